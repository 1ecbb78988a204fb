"""A broken config is the same message at every entrance, with file and line: `gem-ma run`, `train`,
`check` and `study`, and the same from Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gem_ma as package
from gem_ma.cli.main import main
from gem_ma.kernel.errors import ConfigError, GemMaError

TABLE = "table/softmax"
HEAD = "scenario: {id: kuhn_poker, tasks: 2}\n"
SEATS = "agents:\n  player_0: {policy: main}\n  player_1: {policy: main}\n"
POLICY = f"policies:\n  main: {{model: {TABLE}}}\n"
TRAIN = "train: {policies: [main], steps: 1, episodes: 4}\n"
GRID = "grid:\n  limits.tokens: {some: 1000000, more: 2000000}\n"


def config(
    head: str = HEAD, seats: str = SEATS, policy: str = POLICY, train: str = TRAIN, more: str = ""
) -> str:
    return f"{head}{seats}{policy}{train}{more}"


def of_policy(options: str, more: str = "") -> str:
    return config(policy=f"policies:\n  main: {{{options}}}\n{more}")


def of_seat(seat: str) -> str:
    return config(seats=f"agents:\n  player_0: {{policy: main}}\n  player_1: {seat}\n")


def of_scenario(options: str) -> str:
    return config(head=f"scenario: {{{options}}}\n")


def of_train(options: str) -> str:
    return config(train=f"train: {{policies: [main], steps: 1, episodes: 4, {options}}}\n")


# name -> what is wrong in every command
EVERYWHERE = {
    "a key nobody knows": config(more="limit: {usd: 1}\n"),
    "a section of another kind": config(more="run: 3\n"),
    "a number that is text": config(more="run: {seed: often}\n"),
    "a number below its bound": config(more="run: {concurrency: 0}\n"),
    "a fraction for a count": config(more="run: {episodes_per_task: 1.5}\n"),
    "a flag that is neither": config(more="run: {baselines: perhaps}\n"),
    "a limit below zero": config(more="limits: {usd: -1}\n"),
    "a retry option nobody takes": config(more="retry: {atempts: 3}\n"),
    "an exam without episodes": config(more="evaluate: {episodes: 0}\n"),
    "yaml that does not parse": config(more="run: {seed: 1\n"),
    "a key that stands twice": config(more="run: {seed: 1}\nrun: {seed: 2}\n"),
    "a list for the whole": "- scenario\n- agents\n",
    "no scenario": config(head=""),
    "a scenario that nobody knows": of_scenario("id: kuhn_pokr"),
    "an option that the scenario lacks": of_scenario("id: kuhn_poker, chips: 3"),
    "an option of another type": of_scenario("id: guess_number, high: much"),
    "a task that the split lacks": of_scenario("id: retail, split: test, tasks: [99999]"),
    "a split that is not there": of_scenario("id: retail, split: tset"),
    "a file that is not there": of_scenario("id: missing.py"),
    "an agent that is not there": config(seats=SEATS + "  player_2: {behaviour: random_legal}\n"),
    "a pattern that seats nobody": config(seats=SEATS + "  plyer_*: {behaviour: random_legal}\n"),
    "a behaviour that nobody knows": of_seat("{behaviour: random_leagl}"),
    "an option that the behaviour lacks": of_seat("{behaviour: random_legal, options: {warm: 1}}"),
    "a policy that is not listed": of_seat("{policy: mian}"),
    "a seat with nobody in it": of_seat("{}"),
    "a memory of another shape": of_seat("{policy: main, memory: {turns: few}}"),
    "a tool that nobody knows": of_seat("{policy: main, tools: [pyhton]}"),
    "an engine that nobody knows": of_policy("model: tabel/softmax"),
    "a model without its engine": of_policy("model: softmax"),
    "an option that the engine lacks": of_policy(f"model: {TABLE}, heat: 2"),
    "a temperature below zero": of_policy(f"model: {TABLE}, temperature: -1"),
    "a key in the open": of_policy("model: openai/m, api_key: sk-0123456789abcdef0123456789abcdef"),
    "a variable that is not set": of_policy("model: openai/m, api_key: '${env:NO_SUCH_KEY_9}'"),
    "an address that is none": of_policy("model: openai/m, base_url: 'not an address'"),
    "a model folder that is not there": of_policy("model: table/models/none"),
    "a wrapper that nobody knows": of_scenario("id: kuhn_poker, wrappers: [retyr]"),
}
# what is wrong where something learns, and in the check
TRAINING = {
    "an estimator that nobody knows": of_train("estimator: {name: rebm}"),
    "a learner without such a key": of_train("loss: {surrogat: clip}"),
    "a policy that is not seated": config(
        policy=POLICY + f"  idle: {{model: {TABLE}}}\n",
        train="train: {policies: [idle], steps: 1, episodes: 4}\n",
    ),
    "a policy that cannot learn": config(
        policy="policies:\n  main: {model: scripted/echo}\n",
    ),
    "a rate of zero steps": of_train("lr: -1"),
    "a group that does not divide": of_train("group_size: 3"),
}


Say = Callable[[str], str]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Say:
    """What a command says of the config that lies in the working folder."""
    monkeypatch.chdir(tmp_path)

    def say(name: str) -> str:
        assert main([name, "broken.yaml", "--quiet"]) == 2, name
        if name != "study":  # which opens a model when its cell comes
            assert not Path("runs").exists()
        return capsys.readouterr().err.strip()

    return say


def said_by_python(function: Callable[..., Any]) -> str:
    with pytest.raises(GemMaError) as caught:
        function("broken.yaml")
    return str(caught.value).strip()


def written(text: str) -> None:
    Path("broken.yaml").write_text(text)


@pytest.mark.parametrize("name", EVERYWHERE)
def test_what_is_wrong_is_said_alike_by_all(
    name: str, command: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY_9", raising=False)
    written(EVERYWHERE[name])
    said = {
        "gem-ma run": command("run"),
        "gem-ma train": command("train"),
        "gem_ma.run": said_by_python(package.run),
        "gem_ma.train": said_by_python(package.train),
    }
    written(EVERYWHERE[name] + GRID)
    first = said["gem-ma run"]
    if "parse" not in name and "whole" not in name:
        said["gem-ma study"] = command("study")
        said["gem_ma.study"] = said_by_python(package.study)
    assert said == dict.fromkeys(said, first)
    assert first.startswith("broken.yaml:"), first


@pytest.mark.parametrize("name", TRAINING)
def test_what_is_wrong_with_a_training_is_said_alike(name: str, command: Say) -> None:
    written(TRAINING[name])
    said = {
        "gem-ma train": command("train"),
        "gem-ma check": command("check"),
        "gem_ma.train": said_by_python(package.train),
    }
    first = said["gem-ma train"]
    assert said == dict.fromkeys(said, first)
    assert first.startswith("broken.yaml:"), first


def test_the_errors_are_of_the_class_of_configs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(EVERYWHERE["an engine that nobody knows"])
    with pytest.raises(ConfigError):
        package.run("broken.yaml")
