"""What engines and learners declare: the table is true, nobody asks by the name of a method, and the
engine of docs/engines.md trains."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gem_ma import registry
from gem_ma.cli.main import main
from gem_ma.engines import CATALOG
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import CAPABILITIES, Remembers, declared
from gem_ma.engines.small.scripted import Scripted
from gem_ma.engines.small.table import Table
from gem_ma.kernel.errors import ConfigError
from gem_ma.training.train import open_critic, open_learner

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/engines.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
GAME = """
from gem_ma import Ask, Reward, Scenario


class Coin(Scenario):
    agents = ("a",)

    def play(self, rng, task):
        said = yield Ask({"a": "heads pays"}, legal=("tails", "heads"))
        yield Reward({"a": float(said["a"].text == "heads")})
"""
CONFIG = """
scenario: {id: game.py:Coin}
agents: {a: {policy: main}}
policies: {main: {model: "tally.py:Tally/new"}}
train: {policies: [main], steps: 12, episodes: 16, lr: 4.0, save_every: 12, estimator: {name: rebn}}
evaluate: {episodes: 16, every: 12}
"""


def test_the_page_and_the_command_tell_the_same_table(capsys) -> None:
    assert main(["list", "engines", "--json"]) == 0
    listed = {row["id"]: row["capabilities"] for row in json.loads(capsys.readouterr().out)}
    assert listed.keys() == CATALOG.keys()
    names = [capability.__name__ for capability in CAPABILITIES]
    for engine, has in listed.items():
        marks = ["x" if name in has else "" for name in names]
        assert f"| `{engine}` | {' | '.join(marks)} |" in PAGE
        assert has == list(declared(registry.load("engines", engine)))
    assert main(["list", "engines"]) == 0
    assert re.search(r"^transformers +x  ", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("engine", [Table(policy="main"), Scripted("echo")])
def test_an_engine_can_what_its_class_declares(engine: object) -> None:
    can = tuple(each.__name__ for each in CAPABILITIES if isinstance(engine, each))
    assert can == declared(type(engine))


def test_a_class_without_one_of_the_methods_has_not_the_capability() -> None:
    class Half:
        def recall(self, request, reply): ...

    assert declared(Half) == () and not isinstance(Half(), Remembers)


@pytest.mark.long
def test_the_engine_of_the_page_trains_goes_on_and_plays(tmp_path, monkeypatch, capsys) -> None:
    assert sum(bool(line.strip()) for line in EXAMPLE.splitlines()) <= 60
    monkeypatch.chdir(tmp_path)
    for name, text in (("tally.py", EXAMPLE), ("game.py", GAME), ("coin.yaml", CONFIG)):
        Path(name).write_text(text, encoding="utf-8")
    assert main(["train", "coin.yaml", "--out", "run", "--quiet", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["before"]["sampled"]["return"]["a"] < 0.9
    assert summary["after"]["sampled"]["return"]["a"] > 0.9
    assert summary["models"]["main"] == {"engine": "tally.py:Tally", "path": "models/main"}
    half = ["train", "coin.yaml", "train.save_every=4", "--quiet", "--json"]
    assert main([*half, "--out", "other"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["weights"] == summary["weights"]
    played = ["run", "coin.yaml", "policies.main.model=tally.py:Tally/run/models/main", "--quiet"]
    assert main([*played, "-n", "20", "--json", "--out", "played"]) == 0
    assert Path("played/episodes.jsonl").read_text(encoding="utf-8").count('"value":1.0') > 16


def test_a_learner_that_lacks_a_method_is_refused_in_one_line() -> None:
    class Half(Table):
        def learner(self, sampling, *, apart=False):
            return object()

    lacks = r"cannot learn: object, the learner of its engine, has no bound, clone, finger"
    with pytest.raises(ConfigError, match=lacks):
        open_learner(Policy("main", Half(policy="main")))


def test_a_learner_without_a_critic_says_which_estimator_fits() -> None:
    class Bare:
        policy = "main"

    with pytest.raises(ConfigError, match="Bare has no critic, which its estimator needs"):
        open_critic(Bare())
