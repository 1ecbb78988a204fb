"""What is measured of a policy in an update, where its decisions lie, and what a person sees of
it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gem_ma import Scenario
from gem_ma.cli import live
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.types import Action, Reply, Turn
from gem_ma.pages.static.learning import own_curves
from gem_ma.training.loop.measures import COMPONENTS, policy_measures, tokens_of
from gem_ma.training.loop.step import PHASES, Phases
from gem_ma.training.selfplay.signs import decision_tokens, health
from tests.plays import recorded


class Judged(Scenario):
    """Success is what `a` was paid, where it was paid anything."""

    agents = ("a", "b")

    def play(self, rng: Any, task: Any) -> Any:
        yield from ()

    def success(self, episode: Episode) -> bool | None:
        return episode.returns()["a"] > 0


def reply(
    *ids: int,
    policy: str = "main",
    version: int = 3,
    finish: str = "stop",
    logprobs: Sequence[float] | None = None,
) -> Reply:
    return Reply(
        "x", (), (1, 2), ids, tuple(logprobs or [-0.5] * len(ids)), finish, policy, version
    )


def turn(
    step: int,
    agent: str,
    *replies: Reply,
    parsed: str | None = None,
    legal: tuple[str, ...] | None = None,
) -> Turn:
    return Turn(step, agent, (), legal, (), Action("x", (), parsed), replies)


def episode(
    turns: Sequence[Turn],
    ledger: Sequence[Entry] = (),
    end: End = End.TERMINATED,
    scenario: str = "judged",
    other: str = "frozen",
) -> Episode:
    cast = {"a": Seat("direct", "main"), "b": Seat("direct", other)}
    return recorded(cast, tuple(turns), tuple(ledger), scenario=scenario, end=end)


# -- a policy in an update -----------------------------------------------------------------------


def test_measures_of_a_policy_by_hand() -> None:
    first = episode(
        [
            turn(0, "a", reply(5, 6)),
            turn(1, "b", reply(9, policy="frozen")),
            turn(2, "a", reply(7, finish="length"), reply(8, 8, 8)),
        ],
        [
            Entry(0, "a", 1.0, "round 1"),
            Entry(2, "a", 2.0, "round 12"),
            Entry(2, "b", 5.0, "x"),
            Entry(2, "a", -0.5, "late"),
        ],
    )
    second = episode(
        [turn(0, "a", reply(5, 6, version=1))], [Entry(0, "a", -1.0, "late")], End.MAX_STEPS
    )
    lost = episode([turn(0, "a", reply(1, 1, 1, 1))], [], End.FAILED)
    assert policy_measures([first, second, lost], "main", Judged(), 3) == {
        "dropped": 1,
        "return": {"a": 0.75},  # (2.5 - 1) / 2
        "success": {"a": 0.5},
        "components": {"a": {"late": -0.75, "round #": 1.5}},
        "turns_per_episode": 1.5,
        "tokens_per_episode": 4.0,  # (2 + 1 + 3 + 2) / 2
        "cut_by_limits": 0.5,
        "cut_by_length": 0.25,  # one of four replies
        "lag": 2.0,
        "lag_share": {"0": 0.75, "2": 0.25},
    }


def test_a_policy_that_sits_on_both_sides_is_told_by_agent_and_by_scenario_where_there_are_several() -> (
    None
):
    plays = [episode([], [Entry(0, "a", 1.0, "w"), Entry(0, "b", -1.0, "w")], other="main")]
    assert policy_measures(plays, "main", Judged())["return"] == {"a": 1.0, "b": -1.0}
    both = [*plays, episode([], [Entry(0, "a", 3.0, "w")], scenario="chess", other="main")]
    assert policy_measures(both, "main", Judged())["return"] == {
        "judged a": 1.0,
        "judged b": -1.0,
        "chess a": 3.0,
        "chess b": 0.0,
    }


def test_what_is_not_there_is_absent_and_never_zero() -> None:
    assert policy_measures([episode([])], "stranger", Judged()) == {}
    assert policy_measures([episode([], end=End.FAILED)], "main", Judged()) == {"dropped": 1}

    class Unjudged(Judged):
        def success(self, episode: Episode) -> bool | None:
            return None

    found = policy_measures([episode([])], "main", Unjudged(), 3)
    assert not found.keys() & {"success", "components", "cut_by_length", "lag", "lag_share"}


def test_many_reasons_keep_the_largest_and_sum_the_rest() -> None:
    words = "abcdefghijklmnopqrst"
    ledger = [Entry(0, "a", float(n + 1), word) for n, word in enumerate(words)]
    told = policy_measures([episode([], ledger)], "main", Judged())["components"]["a"]
    assert len(told) == COMPONENTS + 1
    assert told["t"] == 20.0
    assert told["other"] == sum(range(1, 20 - COMPONENTS + 1))
    assert sum(told.values()) == sum(entry.value for entry in ledger)


def test_tokens_are_those_of_everybody_and_a_server_may_count_them() -> None:
    from gem_ma.kernel.types import Usage

    assert Reply("x", usage=Usage(completion_tokens=7)).sampled == 7
    assert (
        tokens_of([episode([turn(0, "a", reply(1, 2)), turn(1, "b", reply(3, policy="frozen"))])])
        == 3
    )


def test_phases_share_out_the_whole_step(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((10.0, 12.0, 12.5, 13.5, 14.0, 15.0, 15.25))
    monkeypatch.setattr(
        "gem_ma.training.loop.step.time",
        SimpleNamespace(perf_counter=lambda: next(times), time=lambda: 99.0),
    )
    phases = Phases()
    for phase in ("play", "credit", "update", "credit", "update", "record"):
        phases.lap(phase)
    row = phases.row(played=100, learned=40)
    seconds = {"play_s": 2.0, "credit_s": 1.0, "update_s": 2.0, "publish_s": 0.0, "record_s": 0.25}
    assert row == {
        "at": 99.0,
        "step_s": 5.25,
        **seconds,
        "play_tokens_per_s": 50.0,
        "update_tokens_per_s": 20.0,
    }
    assert [f"{phase}_s" for phase in PHASES] == list(seconds)
    assert "play_tokens_per_s" not in Phases.row(phases)


# -- decision and format tokens ------------------------------------------------------------------

SPELLED = {"say yes": (1, 2, 4, 0), "say no": (1, 2, 5, 0)}
LEGAL = tuple(SPELLED)


def said(
    parsed: str | None,
    ids: tuple[int, ...],
    logprobs: tuple[float, ...],
    legal: tuple[str, ...] | None = LEGAL,
) -> Episode:
    return episode([turn(0, "a", reply(*ids, logprobs=logprobs), parsed=parsed, legal=legal)])


def test_the_decision_token_is_where_the_ids_of_legal_strings_part_even_if_all_chose_the_same() -> (
    None
):
    same = [said("say yes", (1, 2, 4, 0), (-2.0, -0.1, -0.3, -0.4)) for _ in range(3)]
    exact = health(same, "main", SPELLED.__getitem__)
    assert exact["entropy"] == pytest.approx(0.3)
    assert exact["format_entropy"] == pytest.approx(2.5 / 3)
    # without a tokenizer: the least certain token
    assert health(same, "main")["entropy"] == pytest.approx(2.0)


def test_an_answer_that_begins_later_decides_later() -> None:
    late = said("say no", (9, 9, 1, 2, 5, 0), (-1.0, -1.0, -0.1, -0.1, -0.7, -0.1))
    (found,) = decision_tokens(
        LEGAL, [(late.turns[0], late.turns[0].replies[0])], SPELLED.__getitem__
    )
    assert found[1] == 4
    # worded in another way: as recorded answers part
    other = [said("say no", (7, 5), (-0.2, -0.9)), said("say yes", (7, 4), (-0.2, -0.5))]
    assert health(other, "main", SPELLED.__getitem__)["entropy"] == pytest.approx(0.7)


def test_without_legal_strings_there_is_no_entropy_of_decisions_or_format() -> None:
    for legal in (None, ("say yes",)):
        assert not health(
            [said("say yes", (1, 2, 4, 0), (-1.0,) * 4, legal)], "main", SPELLED.__getitem__
        ).keys() & {"entropy", "format_entropy"}
    unread = [said(None, (3, 3), (-1.0, -1.0))]
    assert not health(unread, "main", SPELLED.__getitem__).keys() & {"entropy", "format_entropy"}


def test_one_token_answers_have_no_format() -> None:
    assert "format_entropy" not in health(
        [said("say no", (5,), (-0.5,)), said("say yes", (4,), (-0.7,))], "main"
    )


# -- what a person sees --------------------------------------------------------------------------

NUMBERS = {
    "policy/main/return/a": 0.5,
    "policy/main/return/b": -0.5,
    "policy/main/kl": 0.0123,
    "policy/main/lag": 1.0,
    "train/return/a": 0.5,
}


def view(**options: Any) -> live.Live:
    shown = live.Live(10, ["main", "other"], **options)
    shown.log(
        {
            **NUMBERS,
            "policy/mainly/kl": 9.0,
            "evaluation/sampled/ok": 3.0,
            "train/success": 0.25,
            "train/failed": 2.0,
        },
        4,
    )
    shown.log({"time/step_s": 2.0, "time/play_s": 1.5, "time/play_tokens_per_s": 12345.0}, 4)
    return shown


def test_the_line_says_step_returns_success_failures_pace_and_what_is_left() -> None:
    assert (
        view(quiet=True).line()
        == "step 4 of 10, return a 0.500, success 0.250, 2 failed, 2 s a step, about 0:12 left"
    )


def test_of_many_agents_the_first_are_shown() -> None:
    shown = live.Live(10, ["main"], quiet=True)
    agents = [f"player_{n}" for n in range(64)]
    for begin in ("train/return", "policy/main/return", "policy/main/success"):
        shown.log({f"{begin}/{agent}": 0.5 for agent in agents}, 1)
    assert shown.line().endswith("player_7 0.500, and 56 more") and len(shown.line()) < 200
    for cell in shown.cells("main")[1:3]:
        assert len(cell.splitlines()) == 9 and cell.endswith("\nand 56 more")


def test_a_row_of_the_table_holds_what_is_known_of_one_policy() -> None:
    from rich.console import Console

    shown = view(quiet=True)
    assert shown.cells("main") == [
        "main",
        "a +0.500\nb -0.500",
        "-",
        "-",
        "-",
        "-",
        "0.012",
        "-",
        "-",
        "1",
    ]
    assert shown.cells("other")[1:] == ["-"] * 9
    assert shown.below() == [
        "play 1.5 s",
        "12.3k tokens/s sampled, 2 failed, 2 s a step, about 0:12 left",
    ]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(shown.drawing())
    text = console.export_text()
    assert "step 4 of 10" in text and "0.012" in text and max(map(len, text.splitlines())) <= 80


def test_off_a_terminal_there_is_a_line_at_the_first_and_the_last_step_and_quiet_has_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for quiet, lines in ((False, 2), (True, 0)):
        with live.Live(3, ["main"], quiet=quiet) as shown:
            for step in (1, 2, 3):
                shown.log({"train/return/a\x1b[31m": 0.1 * step, "time/step_s": 1.0}, step)
        out, err = capsys.readouterr()
        assert out == "" and len(err.splitlines()) == lines and "\x1b" not in err


# -- curves --------------------------------------------------------------------------------------


def test_the_page_of_a_run_groups_its_curves_and_draws_times_beside(tmp_path: Path) -> None:
    import json

    rows = [
        {
            "kind": "train",
            "step": s,
            "success": s / 4,
            "policies": {
                "p": {"entropy": s, "decision_entropy": 2 * s, "grad_norm": 1e-15 * s, "lr": s}
            },
        }
        for s in range(1, 4)
    ]
    times = [
        {"step": s, "at": 1e9 + s, "play_s": 0.5 * s, "padding": {"p": 0.1 * s}} for s in (1, 2, 3)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "timings.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in [{**times[0], "play_s": 99.0}, *times])
    )
    html = own_curves("", tmp_path)
    order = [
        html.index(f">{name}<")
        for name in (
            "success",
            "Entropy",
            "entropy, nats a token",
            "Cost",
            "seconds by phase",
            "share of padding",
        )
    ]
    assert order == sorted(order)
    assert "</svg>p decision</li>" in html
    assert "</svg>p all</li>" in html
    assert "1 more curves: lr" in html
    assert "gradient norm p 3e-15" in html  # a change by rounding is none
    assert ">99<" not in html and ">1.5<" in html  # of a step that was made twice the later time
    assert html.count('<svg class="chart"') == 5
