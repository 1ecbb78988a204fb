"""Runs whose models are behind an endpoint, through the real command line: exit codes, budgets
that stop and go on, costs, cache, check."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import gem_ma
from gem_ma.cli.main import main
from gem_ma.engines.api.openai import OpenAI
from gem_ma.engines.endpoint import faults as http_faults
from gem_ma.engines.endpoint.endpoint import Budget, Price
from gem_ma.engines.small.replay import Remembered, digest_of
from gem_ma.engines.small.scripted import Scripted
from gem_ma.kernel.episode import End, Episode, Seat
from gem_ma.kernel.errors import BudgetError, ConfigError, DataError, EngineError
from gem_ma.kernel.types import (
    Action,
    Attempt,
    Message,
    Reply,
    Request,
    Sampling,
    Tool,
    ToolCall,
    Turn,
    Usage,
)
from gem_ma.runs.playing import forget_replies, keep_reply, read_replies, remove_replies
from gem_ma.runs.store import read_episodes
from gem_ma.scores.columns import column_rows, costs, usages_of
from gem_ma.scores.metrics import summarise
from tests.asking import ask, engine_at
from tests.fault_server import Answer, Asked, FaultServer, Script, drop, hang, says, status
from tests.plays import recorded

KEY = "sk-canary-55d1e0"


def config(folder: Path, url: str, *, policy: str = "", more: str = "", episodes: int = 6) -> Path:
    path = folder / "talk.yaml"
    path.write_text(
        f"""
scenario: {{id: dilemma, rounds: 2, tasks: {episodes}}}
agents:
  player_0: {{policy: main}}
  player_1: {{policy: main}}
policies:
  main: {{model: openai/m, base_url: "{url}", api_key_env: MY_KEY, max_tokens: 20{policy}}}
{more}
""",
        encoding="utf-8",
    )
    return path


@dataclass
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """`gem-ma ARGUMENTS` in `tmp_path`, in this process: its imports are paid once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setattr(http_faults, "FIRST_WAIT_S", 0.05)
    monkeypatch.setattr(http_faults, "LONGEST_WAIT_S", 0.1)

    def run(*arguments: object) -> Done:
        code = main([str(one) for one in arguments])
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        return Done(code, told.out, told.err)

    return run


@pytest.fixture
def ran(tmp_path: Path, command: Command) -> Command:
    """`gem-ma run` of the config against a server with this script."""

    def of(script: Script, *words: str, **more: Any) -> Done:
        with FaultServer(script) as server:
            config(tmp_path, server.url, **more)
            return command("run", "talk.yaml", "--out", "out", *words)

    return of


def holds_the_key(folder: Path) -> list[str]:
    return [
        str(file)
        for file in folder.rglob("*")
        if file.is_file() and KEY in file.read_text(errors="replace")
    ]


PRICE = ", price: {input: 2.0, output: 10, as_of: 2026-11-20}"


@pytest.mark.long
def test_a_run_says_what_each_agent_cost_and_keeps_no_key(
    tmp_path: Path, command: Command, ran: Command
) -> None:
    done = ran(
        [status(429, f"{KEY} is too fast", retry_after=0.01), says("cooperate", usage=(100, 10))],
        "--json",
        policy=PRICE,
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "out" / "interrupted.jsonl").exists()
    summary = json.loads(done.stdout)
    # 6 episodes x 2 rounds: 12 requests each, 100 tokens read at $2 and 10 sampled at $10 a million
    for agent in ("player_0", "player_1"):
        one = summary["costs"][agent]
        assert (one["requests"], one["prompt"], one["completion"]) == (12, 1200, 120)
        assert one["usd"] == pytest.approx(0.0036)
    assert sum(one["retries"] for one in summary["costs"].values()) == 1
    assert holds_the_key(tmp_path) == [] and KEY not in done.stdout + done.stderr
    shown = command("show", "out").stdout
    assert "cost player_0" in shown and "$0.0036 for 12 requests" in shown and "$0.0072" in shown
    # whoever reads it later counts by the price of the last command, as its summary does
    dearer = "policies.main.price={input: 4, output: 20}"
    assert command("run", "talk.yaml", "--out", "out", dearer).returncode == 0
    scored = json.loads(command("score", "out", "--json").stdout)
    assert scored["changed"] == {}
    assert scored["costs"]["player_0"]["usd"] == pytest.approx(0.0072)
    run = gem_ma.open_run(tmp_path / "out")
    assert sum(row["cost player_0"] for row in run.rows()) == pytest.approx(0.0072)


@pytest.mark.long
def test_a_key_by_reference_is_the_same_as_one_by_name(tmp_path: Path, command: Command) -> None:
    with FaultServer([says("cooperate")]) as server:
        path = config(tmp_path, server.url)
        path.write_text(path.read_text().replace("api_key_env: MY_KEY", 'api_key: "${env:MY_KEY}"'))
        assert command("run", "talk.yaml", "--out", "out").returncode == 0
        assert command("resume", "out").returncode == 0
    assert {one.headers["authorization"] for one in server.asked} == {f"Bearer {KEY}"}
    assert holds_the_key(tmp_path) == []


def test_a_cost_without_a_price_is_not_available_and_never_0(ran: Command) -> None:
    done = ran([says("cooperate")])
    assert done.returncode == 0 and "n/a (no price)" in done.stdout and "$" not in done.stdout


ENDS: dict[str, tuple[Script, int, str]] = {
    "wrong key": ([status(401, f"Incorrect API key: {KEY}")], 3, "export a valid key"),
    "wrong model": ([status(404, "The model `m` does not exist")], 2, "no model 'm'"),
    "wrong address": ([status(404, "Not Found")], 3, "usually ends in /v1"),
    "no quota": ([status(429, "x", code_word="insufficient_quota")], 3, "no quota"),
    "dead server": ([drop()], 3, "cannot be reached"),
}


@pytest.mark.long
@pytest.mark.parametrize("case", ENDS)
def test_what_no_request_survives_ends_the_run_in_one_line_with_its_exit_code(
    tmp_path: Path, command: Command, case: str
) -> None:
    script, code, what = ENDS[case]
    with FaultServer(script) as server:
        config(tmp_path, server.url, more="retry: {attempts: 3, wall_s: 20}")
        done = command("run", "talk.yaml", "--out", "out")
    line, resume = done.stderr.strip().splitlines()
    assert done.returncode == code and what in line and resume == "resume with: gem-ma resume out"
    assert KEY not in done.stderr and holds_the_key(tmp_path) == []
    with FaultServer([says("cooperate")], port=server.port):
        again = command("resume", "out")
    assert again.returncode == 0 and "6 ok / 0 failed" in again.stdout


@pytest.mark.long
def test_a_server_that_dies_in_the_middle_leaves_a_run_that_goes_on(
    tmp_path: Path, command: Command
) -> None:
    with FaultServer(lambda asked: says("cooperate") if asked.number < 10 else drop()) as server:
        config(tmp_path, server.url, more="run: {concurrency: 1}\nretry: {attempts: 2}")
        done = command("run", "talk.yaml", "--out", "out")
    assert done.returncode == 3
    assert "resume with: gem-ma resume out" in done.stderr
    assert "2 ok / 0 failed" in done.stdout
    with FaultServer([says("cooperate")], port=server.port) as server:
        assert command("resume", "out").returncode == 0
        # four episodes of four requests, of which two were answered before
        assert len(server.asked) == 14
    assert len(list(read_episodes(tmp_path / "out"))) == 6


@pytest.mark.long
def test_a_request_that_fails_for_good_costs_its_episode_only(
    tmp_path: Path, command: Command
) -> None:
    with FaultServer(
        lambda asked: status(422, "strange") if asked.number == 3 else says("cooperate")
    ) as server:
        config(tmp_path, server.url)
        done = command("run", "talk.yaml", "--out", "out")
        assert done.returncode == 1
        assert "5 ok / 1 failed" in done.stdout
        assert "strange" in done.stdout
        assert command("resume", "out", "--retry-failed").returncode == 0


def prompt_tokens(asked: Asked) -> int:
    return len(json.dumps(asked.body["messages"])) // 4


def billed(asked: Asked) -> Answer:
    """Counts a token for every four characters of the prompt, and four of the answer."""
    return says("cooperate", usage=(prompt_tokens(asked), 4))


@pytest.mark.long
def test_a_budget_stops_the_run_with_exit_code_1_and_a_resumed_run_buys_nothing_twice(
    tmp_path: Path, command: Command
) -> None:
    with FaultServer(billed) as server:
        config(tmp_path, server.url, more="limits: {tokens: 300}\nrun: {concurrency: 3}")
        codes, spent = [], []
        while codes[-1:] != [0] and len(codes) < 20:
            before = len(server.asked)
            done = (
                command("resume", "out") if codes else command("run", "talk.yaml", "--out", "out")
            )
            codes.append(done.returncode)
            spent.append(sum(prompt_tokens(one) + 4 for one in server.asked[before:]))
            if done.returncode:
                assert "limits.tokens is 300" in done.stderr
                assert "resume with: gem-ma resume out" in done.stderr
    assert len(codes) > 2 and codes == [1] * (len(codes) - 1) + [0]
    assert max(spent) <= 300 and min(spent[:-1]) > 150
    assert Counter(episode.end for episode in read_episodes(tmp_path / "out")) == {
        End.TERMINATED: 6
    }
    asked = Counter(json.dumps(one.body, sort_keys=True) for one in server.asked)
    # 6 episodes x 2 rounds x 2 agents, each request sent once
    assert len(asked) == 24 and set(asked.values()) == {1}


def test_a_budget_in_usd_is_kept_too_and_wants_a_price(tmp_path: Path, command: Command) -> None:
    with FaultServer(billed) as server:
        config(
            tmp_path,
            server.url,
            policy=", price: {input: 1000, output: 1000}",
            more="limits: {usd: 0.3}\nrun: {concurrency: 1}",
        )
        done = command("run", "talk.yaml", "--out", "out")
        assert done.returncode == 1 and "limits.usd is 0.3" in done.stderr
        assert 0.15 < sum(prompt_tokens(one) + 4 for one in server.asked) / 1000 <= 0.3
        config(tmp_path, server.url)
        done = command("run", "talk.yaml", "--out", "other", "--budget-usd", 0.01)
    assert done.returncode == 2 and "add price" in done.stderr and not (tmp_path / "other").exists()


@pytest.mark.long
def test_a_request_that_hangs_the_server_ends_its_episode_and_not_the_run(ran: Command) -> None:
    poisoned = []

    def script(asked: Asked) -> Answer:  # the third request hangs whenever it comes
        if asked.number == 2:
            poisoned.append(asked.body["seed"])
        return hang() if asked.body.get("seed") in poisoned else says("cooperate")

    done = ran(
        script, policy=", timeout_s: 0.5", more="run: {concurrency: 1}\nretry: {attempts: 2}"
    )
    assert done.returncode == 1
    assert "5 ok / 1 failed" in done.stdout
    assert "resume out --retry-failed" in done.stderr


@pytest.mark.long
def test_limits_and_retry_change_no_result_so_a_run_may_go_on_with_others(
    tmp_path: Path, command: Command
) -> None:
    with FaultServer([says("cooperate")]) as server:
        config(tmp_path, server.url, more="limits: {tokens: 300}")
        assert command("run", "talk.yaml").returncode == 1
        done = command(
            "run",
            "talk.yaml",
            "limits.tokens=100000",
            "retry.attempts=3",
            "policies.main.timeout_s=9",
        )
    assert done.returncode == 0 and len(list((tmp_path / "runs").iterdir())) == 1


def test_unknown_keys_of_limits_retry_and_policy_are_named(
    tmp_path: Path, command: Command
) -> None:
    config(
        tmp_path,
        "http://127.0.0.1:1/v1",
        policy=", timeout: 3",
        more="limits: {dollars: 3}\nretry: {tries: 0}",
    )
    done = command("check", "talk.yaml")
    assert done.returncode == 2
    assert "limits.dollars" in done.stderr
    assert "retry.tries" in done.stderr
    assert "did you mean 'timeout_s'" in done.stderr
    config(tmp_path, "http://127.0.0.1:1/v1", policy=", budget: 3")
    assert "unknown key" in command("check", "talk.yaml").stderr


# -- silence, and who answered -------------------------------------------------------------------

SILENT = {
    "null": says(None),
    "empty": says(""),
    "blank": says(" \n "),
    "cut": says("", finish="length"),
    "nothing": says(choice={"message": {}}),
}


@pytest.mark.long
@pytest.mark.parametrize("case, allowed", [("null", "100%"), *((case, "0") for case in SILENT)])
def test_a_model_that_never_says_a_thing_makes_a_failed_run(
    tmp_path: Path, command: Command, case: str, allowed: str
) -> None:
    with FaultServer([SILENT[case]]) as server:
        config(tmp_path, server.url, more=f"run: {{max_failed: {allowed}}}", episodes=2)
        done = command("run", "talk.yaml", "--out", "out")
    assert done.returncode == 1
    assert "policy 'main' said nothing: each of its 8 replies was empty" in done.stderr
    assert "0 ok / 2 failed" in done.stdout
    assert "empty replies main" in done.stdout
    assert "100.0 % (8 of 8)" in done.stdout
    assert len(done.stderr.strip().splitlines()) == 1
    with FaultServer([says("cooperate")], port=server.port):
        again = command("resume", "out", "--retry-failed")
    assert again.returncode == 0
    assert "2 ok / 0 failed" in again.stdout
    assert "empty" not in again.stdout


@pytest.mark.long
def test_a_play_in_which_a_model_only_ever_said_nothing_failed_and_the_share_is_told(
    ran: Command,
) -> None:
    # the first play is silent, three tries for each of its four replies
    def script(asked: Asked) -> Answer:
        return says(None) if asked.number < 12 or asked.number % 4 == 0 else says("cooperate")

    done = ran(script, "--json", more="run: {concurrency: 1, max_failed: 1}", episodes=3)
    summary = json.loads(done.stdout)
    assert done.returncode == 0
    assert summary["failed"] == 1
    assert summary["empty"]["main"]["replies"] == 12
    assert summary["empty"]["main"]["empty"] == 4
    assert summary["empty"]["main"]["share"] == pytest.approx(1 / 3)
    assert "said nothing in this play" in next(iter(summary["errors"]))


HELD_BACK = says(None, finish="content_filter")
THOUGHT = says(None, choice={"message": {"content": None, "reasoning": "hm"}})


@pytest.mark.long
@pytest.mark.parametrize(
    "answer",
    [
        says(None, calls=[("c", "f", "{}")]),
        THOUGHT,
        HELD_BACK,
    ],
)
def test_calls_reasoning_and_filters_are_no_silence(answer: Answer, ran: Command) -> None:
    done = ran([answer], "--json", episodes=2)
    assert json.loads(done.stdout)["empty"]["main"] == {"replies": 8, "empty": 0, "share": 0.0}
    # a filter that held all of them back, or a thought each, left nothing to score all the same
    assert done.returncode == (answer in (HELD_BACK, THOUGHT))
    assert ("8 replies was refused or held back" in done.stderr) == (answer == HELD_BACK)
    assert ("8 replies was a thought without an answer" in done.stderr) == (answer == THOUGHT)


TOO_LONG = status(400, "the prompt is too long: 900 tokens > 512")
NO_REPLY = {
    "too long": (TOO_LONG, "", "no longer fitted the context"),
    "too slow": (hang(), "run: {episode_timeout_s: .3}", "the time of the play was over"),
    "refused": (status(400, "no"), "run: {max_failed: 100%}", "the play failed: EngineError: "),
    "flagged": (status(403, "your prompt was flagged"), "", "refused or held back by a filter"),
}


@pytest.mark.long
@pytest.mark.parametrize("why", NO_REPLY)
def test_a_run_in_which_a_policy_never_spoke_says_why_and_ends_with_1(
    tmp_path: Path, command: Command, why: str
) -> None:
    answer, more, reason = NO_REPLY[why]
    with FaultServer([answer]) as server:
        config(tmp_path, server.url, more=more, episodes=2)
        done = command("run", "talk.yaml", "--out", "out")
        with pytest.raises(EngineError, match=reason) as caught:
            gem_ma.run(tmp_path / "talk.yaml", out=tmp_path / "again")
    assert done.returncode == 1 and reason in done.stderr and "'main'" in done.stderr
    assert str(tmp_path / "again") in str(caught.value)  # what was played is kept
    assert reason in gem_ma.open_run(tmp_path / "again")["unheard"]["main"]
    assert "unheard main" in command("show", "out").stdout


@pytest.mark.long
def test_a_cell_of_a_study_in_which_a_policy_never_spoke_is_named(
    tmp_path: Path, command: Command
) -> None:
    def script(asked: Asked) -> Answer:
        return says("cooperate") if asked.body["model"] == "m" else TOO_LONG

    with FaultServer(script) as server:
        grid = "grid: {policies.main.model: {short: openai/m, long: openai/l}}"
        config(tmp_path, server.url, more=grid, episodes=2)
        done = command("study", "talk.yaml", "--out", "out")
    assert done.returncode == 1
    assert "cell long: policy 'main' never spoke: 2 of 2 plays" in done.stderr
    assert "cell short" not in done.stderr


@pytest.mark.long
def test_a_training_beside_a_policy_that_never_spoke_says_so(
    tmp_path: Path, command: Command
) -> None:
    with FaultServer([TOO_LONG]) as server:
        (tmp_path / "train.yaml").write_text(f"""
scenario: {{id: kuhn_poker}}
agents: {{player_0: {{policy: main}}, player_1: {{policy: other}}}}
policies:
  main: {{model: table/softmax}}
  other: {{model: openai/m, base_url: "{server.url}", api_key_env: MY_KEY}}
train: {{policies: [main], steps: 1, episodes: 4}}
evaluate: {{episodes: 2}}
""")
        done = command("train", "train.yaml", "--out", "out")
    assert done.returncode == 1 and "policy 'other' never spoke: 4 of 4 plays" in done.stderr


def test_a_policy_that_spoke_once_or_was_never_asked_is_heard_or_no_fault() -> None:
    def episode(end: End, turns: tuple[Turn, ...] = ()) -> Episode:
        cast = {"a": Seat("direct", "main"), "b": Seat("direct", "other")}
        return recorded(
            cast, turns, scenario="dilemma", task="test/0", final={"a": (), "b": ()}, end=end
        )

    def unheard(*episodes: Episode) -> dict[str, str]:
        return summarise([replace(one, seed=n) for n, one in enumerate(episodes)]).get(
            "unheard", {}
        )

    spoke = Turn(0, "a", (), None, (), Action("x"), (Reply("x", policy="main"),))
    ids = replace(spoke, replies=(Reply("", token_ids=(1,), policy="main"),))
    bot = replace(spoke, replies=())
    assert unheard(episode(End.CONTEXT), episode(End.TIMEOUT, (spoke,))).keys() == {"other"}
    assert unheard(episode(End.CONTEXT, (ids,))).keys() == {"other"}
    assert unheard(episode(End.CONTEXT, (bot,))).keys() == {"other"}
    assert unheard(episode(End.CONTEXT), episode(End.TERMINATED)) == {}
    assert unheard(episode(End.INTERRUPTED)) == {}
    assert unheard(episode(End.CONTEXT)).keys() == {"main", "other"}


@pytest.mark.long
def test_another_model_than_the_one_that_was_asked_stands_in_the_score(
    tmp_path: Path, command: Command, ran: Command
) -> None:
    done = ran(
        lambda asked: says("cooperate", model="fallback-1" if asked.number % 4 == 0 else "m")
    )
    shown = command("show", "out", "--json")
    assert done.returncode == 0
    assert "other models main" in done.stdout
    assert "fallback-1 6" in done.stdout
    assert json.loads(shown.stdout)["served"] == {"main": {"m": 18, "fallback-1": 6}}
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["other_models"] == {
        "main": {"fallback-1": 6}
    }


# -- replies that were paid ----------------------------------------------------------------------


def test_a_reply_is_kept_before_its_play_ends_and_forgotten_after(tmp_path: Path) -> None:
    def asked(seed: int, play: int, agent: str = "a") -> Request:
        return Request(
            agent, (Message("x"),), seed=seed, conversation=f"test/{play}/7/0/{agent}/thread"
        )

    def kept() -> dict[str, str]:
        return {digest: reply.text for digest, reply in read_replies(tmp_path).items()}

    one, two, other, last = asked(1, 1), asked(2, 1), asked(3, 11), asked(4, 2)
    for request in (one, two, other, last):
        keep_reply(tmp_path, request, Reply(f"r{request.seed}", reasoning="hm"))
    assert len(kept()) == 4
    assert read_replies(tmp_path)[digest_of(one)] == Reply("r1", reasoning="hm")
    forget_replies(tmp_path, ("test/1", 7, 0))
    # test/11 is another play
    assert kept() == {digest_of(other): "r3", digest_of(last): "r4"}
    # its second try, as of resume --retry-failed
    keep_reply(tmp_path, one, Reply("again"))
    with open(tmp_path / "interrupted.jsonl", "ab") as file:
        file.write(b'{"asked": 9, "leg')  # killed in the middle
    keep_reply(tmp_path, asked(5, 2), Reply("r5"))
    assert sorted(kept().values()) == ["again", "r3", "r4", "r5"]
    remove_replies(tmp_path)
    assert read_replies(tmp_path) == {} and not list(tmp_path.iterdir())


def test_what_was_bought_answers_no_other_words_in_the_play_that_begins_again() -> None:
    """A person, or a program, may say something else then."""
    said = Request("a", (Message("hello", "b"),), seed=1, conversation="test/0/7/0/a")
    engine = Remembered(
        Scripted("x", replies=["new"], repeat=True), {digest_of(said): Reply("bought")}
    )
    others = (
        replace(said, messages=(Message("goodbye", "b"),)),
        replace(said, tools=(Tool("look"),)),
        replace(said, legal=("x", "y")),
        replace(said, sampling=Sampling(max_tokens=9)),
        replace(said, policy="judge"),
        # what JSON does not hold
        *(replace(said, messages=(Message(text, "b"),)) for text in ("\ud800", "\ud801")),
        *(
            replace(said, messages=(Message("", "a", (ToolCall("1", "f", {"n": count}),)),))
            for count in (10**30, 10**30 + 1)
        ),
    )
    assert len({*map(digest_of, (said, *others))}) == len(others) + 1

    async def answers() -> list[str]:
        return [(await engine.sample(request)).text for request in (said, *others)]

    assert asyncio.run(answers()) == ["bought", *["new"] * len(others)]


@pytest.mark.long
def test_a_run_that_is_killed_buys_no_reply_again(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL leaves no time for anything: it is a copy of the folder, taken while a request is
    under way."""
    import shutil

    def script(asked: Asked) -> Answer:
        if asked.number == 13:  # in the middle of the fourth play
            shutil.copytree(
                tmp_path / "out", tmp_path / "killed", ignore=shutil.ignore_patterns(".lock")
            )
        return says("cooperate")

    with FaultServer(script) as server:
        config(tmp_path, server.url, more="run: {concurrency: 1}")
        assert command("run", "talk.yaml", "--out", "out").returncode == 0
        before = Counter(json.dumps(one.body, sort_keys=True) for one in server.asked[:13])
        assert command("resume", "killed").returncode == 0
        after = Counter(json.dumps(one.body, sort_keys=True) for one in server.asked[24:])
    # asked side by side with the request at which it was killed, so perhaps not answered then
    late = before & after
    assert len(before) == 13 and len(late) <= 1 and sum(after.values()) <= 12
    assert not (tmp_path / "killed" / "interrupted.jsonl").exists()
    mine, other = (
        sorted((tmp_path / name / "episodes.jsonl").read_text().splitlines())
        for name in ("out", "killed")
    )
    assert mine == other


def test_a_fault_of_an_engine_names_file_and_line(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "127.0.0.1:1/v1")
    for arguments in (("run", "talk.yaml", "--out", "out"), ("check", "talk.yaml")):
        done = command(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("talk.yaml:7: policies.main.base_url: base_url is an address")
    config(tmp_path, "http://127.0.0.1:1/v1")
    monkeypatch.delenv("MY_KEY")
    done = command("run", "talk.yaml", "--out", "out")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "talk.yaml:7: policies.main: the environment variable MY_KEY is not set"
    )


@pytest.mark.long
def test_a_short_key_is_warned_of_once(
    tmp_path: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("MY_KEY", "ollama")
    with FaultServer([says("cooperate")]) as server:
        config(tmp_path, server.url)
        assert command("run", "talk.yaml", "--out", "out").returncode == 0
        assert command("resume", "out").returncode == 0
    told = [record.getMessage() for record in caplog.records if "MY_KEY" in record.getMessage()]
    assert len(told) == 1 and "less than 16 characters" in told[0] and "ollama" not in told[0]


# -- check ---------------------------------------------------------------------------------------


@pytest.mark.longest
def test_check_asks_each_endpoint_once_and_guesses_tokens_and_money(
    tmp_path: Path, command: Command
) -> None:
    with FaultServer([says("ok")]) as server:
        config(tmp_path, server.url, policy=PRICE)
        done = command("check", "talk.yaml", "--json")
        assert len(server.asked) == 1
        assert done.returncode == 0, done.stderr
        facts = json.loads(done.stdout)
        guess = facts["estimate"]["main"]
        assert guess["requests"] == 24
        assert guess["prompt"] > 24 * 20
        assert guess["usd"] > 0
        assert "answers in" in facts["endpoints"]["main"]
        offline = command("check", "talk.yaml", "--offline")
        assert offline.returncode == 0
        assert "estimate main" in offline.stdout
        assert len(server.asked) == 1


@pytest.mark.longest
def test_check_tells_an_endpoint_that_is_not_there_and_all_the_rest(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "http://127.0.0.1:9/v1")
    done = command("check", "talk.yaml")
    assert done.returncode == 3
    assert "no rule is broken" in done.stdout
    assert "cannot be reached" in done.stderr
    monkeypatch.delenv("MY_KEY")
    assert command("check", "talk.yaml").returncode == 2
    assert command("check", "talk.yaml", "--offline").returncode == 0


# -- the parts -----------------------------------------------------------------------------------


def test_prices_by_hand() -> None:
    price = Price.of({"input": 2, "output": 10, "cached_input": 0.5, "as_of": "2026-11-20"}, "here")
    assert price is not None
    assert price.of_usage(Usage(1000, 100, 400)) == pytest.approx(
        (600 * 2 + 400 * 0.5 + 100 * 10) / 1e6
    )
    assert price.of_usage(Usage(None, 100)) is None and price.of_usage(Usage(1000, None)) is None
    assert Price(1, 1).of_usage(Usage(10, 10, 99)) == pytest.approx(20e-6)
    assert Price(0, 0).of_usage(Usage(10, 10)) == 0.0
    assert Price.of(None, "here") is None


def test_costs_are_by_agent_and_unknown_where_one_price_is() -> None:
    from gem_ma.kernel.types import Action, Turn

    def turn(agent: str, policy: str, usage: Usage) -> Turn:
        reply = Reply("x", policy=policy, usage=usage, attempts=(Attempt("server"),))
        return Turn(0, agent, (), None, (), Action("x"), (reply,))

    turns = (
        turn("a", "p", Usage(10, 1)),
        turn("a", "p", Usage(20, 2)),
        turn("b", "p", Usage(5, 5)),
        turn("b", "q", Usage(5, 5)),
    )
    episode = recorded({}, turns, scenario="s", task="t/0", end=End.FAILED, error="x")
    found = costs([usages_of(episode)], {"p": lambda usage: float(usage.prompt_tokens or 0)})
    assert found["a"] == {
        "requests": 2,
        "retries": 2,
        "prompt": 30,
        "cached": 0,
        "completion": 3,
        "usd": 30.0,
    }
    assert found["b"]["usd"] is None
    assert dict(column_rows({"costs": found}))["cost"] == "n/a (no price)"


def test_a_count_that_no_server_gave_is_neither_zero_nor_a_missing_price() -> None:
    reply = Reply("x", usage=Usage(None, 2))
    turns = (Turn(0, "a", (), None, (), Action("x"), (reply,)),)
    found = costs([usages_of(recorded({}, turns))], {"": Price(1, 1).of_usage})
    found["b"] = found["a"]
    rows = dict(column_rows({"tokens": {"a": {"sampled": 2, "prompt": 0}}, "costs": found}))
    unknown = "n/a (not all tokens were counted)"
    assert (rows["tokens a"], rows["cost"]) == ("2 sampled", unknown)
    assert rows["cost a"] == f"{unknown} for 1 requests, 0 tried again"


def test_a_budget_lets_claims_wait_for_others_before_it_refuses() -> None:
    async def work() -> list[str]:
        budget, order = Budget(tokens=100), []

        async def one(name: str, claim: int, used: int) -> None:
            try:
                held = await budget.claim(claim, None, 0)
            except BudgetError:
                order.append(f"{name} refused")
                return
            await asyncio.sleep(0.01)
            budget.settle(held, [Usage(0, used)], None)
            order.append(f"{name} {budget.tokens}")

        await asyncio.gather(one("a", 60, 10), one("b", 60, 10), one("c", 60, 50), one("d", 60, 1))
        await one("e", 1, 1)
        return order

    # b waits for a, c for b (10 + 60 <= 100), then 70 are spent: d and all after it are refused
    assert asyncio.run(work()) == ["a 10", "b 20", "c 70", "d refused", "e refused"]


def test_a_failed_request_frees_its_claim_and_an_uncounted_one_keeps_it() -> None:
    async def work() -> Budget:
        budget = Budget(tokens=100)
        budget.settle(await budget.claim(90, None, 0), [], None)
        budget.settle(await budget.claim(90, None, 0), [Usage(3, 4), Usage()], None)
        return budget

    # 90 for want of a count, and 7 that an empty reply took
    assert asyncio.run(work()).tokens == 97


@pytest.mark.parametrize("counts", [(7, 3), None])
def test_each_empty_reply_counts_for_the_budget_also_of_a_request_that_fails(counts: Any) -> None:
    def script(asked: Asked) -> Any:
        return status(400) if asked.number == 2 else says("", usage=counts)

    budget = Budget(tokens=100_000)
    with FaultServer(script) as server:
        engine = engine_at(server, budget=budget)
        with pytest.raises(EngineError):
            ask(engine)
        before = budget.tokens
        ask(engine)
    # two empty replies and a refusal, then three
    assert before and 2 * budget.tokens == 5 * before
    assert counts is None or before == 20


@pytest.mark.parametrize("bad", [says(""), says("x", finish="error"), says("x", finish="odd")])
def test_an_attempt_is_sent_only_where_the_budget_has_room_for_it(bad: Answer) -> None:
    """Also one after an answer that was none and that its server counted."""
    budget = Budget(tokens=35)  # a prompt of 13 at most and an answer of 10, three times: 7 + 3
    with FaultServer([bad]) as server:
        engine = engine_at(server, budget=budget)
        with pytest.raises(BudgetError, match=r"limits\.tokens is 35, 20 are spent"):
            ask(engine, sampling=Sampling(max_tokens=10))
    assert len(server.asked) == 2


def test_what_extra_body_lets_a_model_say_is_claimed() -> None:
    with FaultServer([says("x")]) as server:
        engine = engine_at(server, budget=Budget(tokens=800), extra_body={"max_tokens": 900})
        with pytest.raises(BudgetError):
            ask(engine)
    assert not server.asked


def test_usd_without_a_price_is_refused_by_the_budget() -> None:
    with pytest.raises(ConfigError, match="price"):
        asyncio.run(Budget(usd=1.0).claim(5, None, 5))


def test_the_same_request_with_the_same_seed_is_bought_once(tmp_path: Path) -> None:
    def asks(engine: OpenAI, *requests: Request) -> list[Reply]:
        async def work() -> list[Reply]:
            return [await engine.sample(one) for one in requests]

        return asyncio.run(work())

    def script(asked: Asked) -> Any:
        return (
            status(500)
            if asked.number == 0
            else says(f"reply {asked.number}", calls=[("c", "add", '{"x": 1}')])
        )

    one, other = (
        Request("a", (Message("hi"),), seed=1, policy="p"),
        Request("a", (Message("hi"),), seed=2),
    )
    with FaultServer(script) as server:
        options: dict[str, Any] = {"base_url": server.url, "cache": str(tmp_path / "kept")}
        first = asks(OpenAI("m", **options), one, one, other)
        again = asks(OpenAI("m", **options), one, other)
        assert len(server.asked) == 3
        asks(OpenAI("n", **options), one)
        asks(OpenAI("m", extra_body={"x": 1}, **options), one)
        assert len(server.asked) == 5
        assert (
            [reply.text for reply in first]
            == ["reply 1", "reply 1", "reply 2"]
            == [first[0].text, *[reply.text for reply in again]]
        )
        assert len(first[0].attempts) == 1
        assert first[1].attempts == ()
        assert again[0].tool_calls == first[0].tool_calls
        assert again[0].policy == "p"
        for file in (tmp_path / "kept").rglob("*.json"):
            file.write_text('{"text": 3}')
        asks(OpenAI("m", **options), one)  # a damaged file is bought again
        assert len(server.asked) == 6
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="no reply cache"):
        OpenAI("m", base_url="http://127.0.0.1:1/v1", cache=str(tmp_path / "file"))


@pytest.mark.long
def test_hanging_requests_do_not_outlive_a_run(ran: Command) -> None:
    done = ran([hang()], policy=", timeout_s: 0.3", more="retry: {attempts: 2}")
    assert done.returncode == 3 and "no whole reply within 0.3 s" in done.stderr


MINE = """
from gem_ma.kernel.types import Reply, Usage


class Mine:
    def __init__(self, name, *, policy="", price=None):
        pass

    async def sample(self, request):
        return Reply("cooperate", policy=request.policy, usage=Usage(7, 3), model="mine-2")

    def usd(self, prompt, completion):
        return None
"""


def test_an_engine_of_somebody_else_that_costs_money_has_costs_and_tells_another_model(
    tmp_path: Path, command: Command
) -> None:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    model = "agents.player_0.model=mine.py:Mine/m"
    done = command("run", "dilemma", model, "-n", 1, "--json", "--out", "out")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["costs"]["player_0"]["usd"] is None
    assert summary["other_models"] == {"player_0": {"mine-2": 5}}
    # whoever reads the folder is told the same, and does not run its code
    (tmp_path / "mine.py").write_text("open('ran', 'w')", encoding="utf-8")
    for reads in ("score", "show"):
        done = command(reads, "out", "--json")
        assert done.returncode == 0, done.stderr
        read = json.loads(done.stdout)
        assert {key: read[key] for key in ("costs", "other_models")} == {
            key: summary[key] for key in ("costs", "other_models")
        }
        assert not (tmp_path / "ran").exists()
    (tmp_path / "out/summary.json").write_text('{"other_models": 7}', encoding="utf-8")
    done = command("score", "out")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("out/summary.json: damaged")
