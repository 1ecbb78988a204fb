"""A run that taught a policy nothing says why, and what to do, and does not end as if all were
well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gem_ma import config
from gem_ma.cli.main import main
from gem_ma.engines.small.table import Table
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.types import Action, Reply, Turn
from gem_ma.training.loop.attendants import LIMITS, Taught, cut_note
from tests.broken_runs import break_off, trained
from tests.plays import recorded

SMALL = (
    "train.steps=2",
    "train.episodes=8",
    "evaluate.episodes=4",
    "evaluate.every=~",
    "train.on_collapse=off",
)
TWO = ("policies.b.model=table/softmax", "agents.player_1.policy=b")
CASES = {
    "a bot's seat names the policy": (
        ("agents.player_0.behaviour=random_legal", "agents.player_1.behaviour=random_legal"),
        "does not ask its model",
    ),
    "every play is cut and left out": (
        ("run.max_steps=1", "train.credit.truncated=drop"),
        "16 of 16 episodes were left out as failed or cut",
    ),
    "no two returns of a group are compared": (
        ("train.estimator={name: grpo, key: [episode, agent]}",),
        "every advantage of its",
    ),
    "its turn never comes": (
        (*TWO, "train.policies=[main, b]", "train.alternate={main: 9, b: 9}"),
        "policy 'b' learned nothing: its turn never came",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_run_that_taught_nothing_ends_with_1_and_the_reason(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides, said = CASES[case]
    assert (
        main(["train", "kuhn_table", *SMALL, *overrides, "--out", str(tmp_path / "run"), "--quiet"])
        == 1
    )
    shown, told = capsys.readouterr()
    assert said in told and "learned nothing" in told, told
    (learned,) = (line.split()[1:] for line in shown.splitlines() if line.startswith("learned "))
    assert learned == (["main"] if case == "its turn never comes" else ["none"])
    assert ("step 1: so far policy 'main' learned nothing" in told) == (
        case in ("a bot's seat names the policy", "every play is cut and left out")
    ), told
    # ended: it says so again
    assert (
        main(["train", "kuhn_table", *SMALL, *overrides, "--out", str(tmp_path / "run"), "--quiet"])
        == 1
    )


@pytest.mark.long
def test_a_run_that_taught_something_ends_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "kuhn_table", *SMALL, "--out", str(tmp_path / "run"), "--quiet"]) == 0
    assert "nothing" not in capsys.readouterr().err


@pytest.mark.long
def test_where_no_prompt_fits_the_model_its_context_is_named_and_no_limit_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def full(engine: Table, request: Any) -> Reply:
        return Reply(prompt_ids=(1,), finish="context_overflow", policy="main")

    monkeypatch.setattr(Table, "sample", full)
    assert main(["train", "kuhn_table", *SMALL, "--out", str(tmp_path / "run"), "--quiet"]) == 1
    told = capsys.readouterr().err
    assert (
        "16 of 16 episodes ended before its first reply, because a prompt no longer fitted the"
        " context of a model; use a model with" in told
    )
    assert "8 of 8 episodes ended because a prompt no longer fitted the context of a model" in told
    assert "limit" not in told


@pytest.mark.long
def test_what_was_taught_before_a_kill_counts(tmp_path: Path) -> None:
    settings = config.load("kuhn_table", [*SMALL, "train.save_every=1"]).config
    break_off(tmp_path / "run", settings, 1)
    assert "learned_nothing" not in trained(tmp_path / "run", settings)


# -- reasons -------------------------------------------------------------------------------------


def play(end: End, sampled: bool) -> Episode:
    made = (
        Turn(
            0,
            "player_0",
            (),
            None,
            (),
            Action("x"),
            (Reply(policy="main", token_ids=(1,) * sampled),),
        ),
    )
    return recorded({"player_0": Seat("direct", "main")}, made, scenario="game", end=end)


REASONS = {
    "context": ([play(End.CONTEXT, False)], {}, "1 of 1 episodes ended before its first reply"),
    "bare": ([play(End.TERMINATED, False)], {}, "its replies in 1 of 1 episodes have no token ids"),
    "failed": ([play(End.FAILED, True)], {"excluded": 1}, "1 of 1 episodes failed"),
    "stale": (
        [play(End.TERMINATED, True)],
        {"dropped_stale": 1},
        "1 of 1 episodes were too old for it (train.max_policy_lag)",
    ),
    "excluded": ([play(End.MAX_STEPS, True)], {"excluded": 1}, "(train.credit.truncated)"),
    "equal": (
        [play(End.TERMINATED, True)],
        {"tokens": 3, "zero_advantage": 1.0, "optimizer_steps": 4},
        "every advantage of its 3 tokens was 0",
    ),
    "absent": ([], {}, "it sat in none of the episodes of 1 steps"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_is_named_with_its_count_and_survives_a_checkpoint(reason: str) -> None:
    episodes, stats, said = REASONS[reason]
    settings = config.load("kuhn_table").config
    first, again = Taught(settings, ["main"]), Taught(settings, ["main"])
    first.note("main", episodes, stats)
    again.load(first.state())
    assert said in again.nothing()["main"] and again.nothing() == first.nothing()
    again.note(
        "main",
        [play(End.TERMINATED, True)],
        {"tokens": 1, "zero_advantage": 0.5, "optimizer_steps": 1},
    )
    assert again.nothing() == {}
    old = Taught(settings, ["main"])
    old.load({})
    assert old.nothing() == {}


@pytest.mark.parametrize("end", [end for end in End if end.bootstraps])
def test_what_cuts_is_named(end: End) -> None:
    episodes = [replace(play(end, True), repeat=n) for n in range(3)] + [
        play(End.TERMINATED, True)
    ] * 5
    assert cut_note(4, episodes, []) is None and cut_note(4, episodes[3:], ["main"]) is None
    told = cut_note(4, episodes, ["main"]) or ""
    assert told.startswith("step 4: 3 of 8 episodes ")
    assert "main learns as if nothing followed" in told
    assert (
        (LIMITS[end] in told and "raise the limit" in told)
        if end in LIMITS
        else ("context" in told and "limit" not in told)
    )


def _play(*turns: Turn, end: End = End.TERMINATED, paid: float = 0.0) -> Episode:
    cast = {"player_0": Seat("direct", "main"), "player_1": Seat("random_legal")}
    ledger = (Entry(0, "player_0", paid),)
    return recorded(cast, tuple(turns), ledger, end=end)


OTHER = Turn(0, "player_1", (), ("x",), (), Action("x"))
MINE = replace(OTHER, agent="player_0")
SPOKE = replace(MINE, replies=(Reply("x", policy="main"),))
SAMPLED = replace(MINE, replies=(Reply("x", policy="main", token_ids=(1,), logprobs=(0.0,)),))
ADVICE = {
    "its agents were not asked in 4 of 4": [_play(OTHER)] * 4,
    "4 of 4 episodes were cut before its first reply; raise run.episode_timeout_s": [
        _play(OTHER, end=End.TIMEOUT)
    ]
    * 4,
    "its replies in 4 of 4 episodes have no token ids": [_play(SPOKE)] * 4,
    "does not ask its model": [_play(MINE)] * 4,
    "differ by less than 1e-07": [_play(SAMPLED, paid=1e-9 * at) for at in range(4)],
    "scale its rewards down": [_play(SAMPLED, paid=1e300 * (-1) ** at) for at in range(4)],
    "all plays of a step were paid alike": [_play(SAMPLED, paid=1.0)] * 4,
    "all returns within a group were equal": [_play(SAMPLED, paid=float(at)) for at in range(4)],
}


@pytest.mark.parametrize("said", ADVICE)
def test_the_advice_is_about_what_happened(said: str) -> None:
    """An agent that was never asked has no behaviour to change."""
    taught = Taught(config.load("kuhn_table", []).config, ["main"])
    tokens = sum(bool(turn.replies and turn.replies[0].token_ids) for turn in ADVICE[said][0].turns)
    taught.note("main", ADVICE[said], {"tokens": 4 * tokens, "zero_advantage": 1.0})
    assert said in taught.nothing()["main"]
    assert ("take `direct`" in taught.nothing()["main"]) == (said == "does not ask its model")
