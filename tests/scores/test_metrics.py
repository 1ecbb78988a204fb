"""Summaries say what they leave out."""

from __future__ import annotations

import gc
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gem_ma import Scenario
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.errors import ScenarioError
from gem_ma.kernel.types import (
    Action,
    Attempt,
    Malformed,
    Message,
    Reply,
    Tool,
    ToolCall,
    Turn,
    Usage,
)
from gem_ma.scores.groups import (
    ONE_PLAY,
    Kinds,
    interval_text,
    labels_of,
    values_of,
    verdict_of,
)
from gem_ma.scores.judge import Judge
from gem_ma.scores.metrics import summarise
from gem_ma.scores.rows import baseline_rows, table
from gem_ma.scores.stats import wilson
from gem_ma.training.loop.measures import measures_of


def episode(
    task: int,
    value: float = 1.0,
    end: End = End.TERMINATED,
    repeat: int = 0,
    seed: int = 0,
    said: str | None = "x",
    **more: object,
) -> Episode:
    turn = Turn(0, "a", (), ("x", "y"), (), Action(said or "?", (), said))
    cast = {"a": Seat("direct", "main"), "b": Seat("silent")}
    ledger = (Entry(0, "a", value), Entry(0, "b", -value))
    made = Episode(
        "toy", 1, seed, f"test/{task}", repeat, None, cast, (turn,), (), (), {}, ledger, end
    )
    return replace(made, **more)


def won(one: Episode) -> bool | None:
    return one.returns()["a"] > 0


def test_failed_and_excluded_episodes_are_counted_and_bound_the_score() -> None:
    played = [*(episode(i) for i in range(6)), episode(6, -1.0), episode(7, -1.0)]
    failed = [episode(8 + i, 5.0, End.FAILED, error="EngineError: gone\nmore") for i in range(2)]
    cut = [episode(10, 9.0, End.INTERRUPTED), episode(11, 9.0, End.INTERRUPTED)]
    summary = summarise([*played, *failed, *cut], won)
    assert (summary["episodes"], summary["ok"], summary["failed"], summary["excluded"]) == (
        12,
        8,
        2,
        2,
    )
    assert (summary["success"]["mean"], summary["success"]["n"]) == (0.75, 8)
    assert (summary["success"]["low"], summary["success"]["high"]) == wilson(6, 8)
    assert summary["score"] == {
        "failed_as_zero": 0.6,
        "lowest": 0.5,
        "highest": pytest.approx(8 / 12),
    }
    # (6 - 2) / 8: what failed episodes were paid is not a score
    assert summary["returns"]["a"]["mean"] == 0.5
    assert summary["returns"]["a"]["failed_as_zero"] == pytest.approx(0.4)
    assert summary["errors"] == {"EngineError: gone": 2}
    assert summary["ends"] == {"terminated": 8, "failed": 2, "interrupted": 2}
    text = dict(table(summary))
    assert text["episodes"] == "8 ok / 2 failed / 2 excluded"
    assert (
        text["success, failed = 0"] == "0.600"
        and text["success, excluded lost / won"] == "0.500 / 0.667"
    )
    assert text["return a, failed = 0"] == "0.400"


def test_a_run_in_which_everything_failed_has_no_score_but_says_so() -> None:
    summary = summarise([episode(i, end=End.FAILED, error="E") for i in range(3)], won)
    assert summary["success"]["mean"] is None and summary["score"]["failed_as_zero"] == 0.0
    text = dict(table(summary))
    assert text["episodes"] == "0 ok / 3 failed / 0 excluded" and text["success"].startswith("n/a")


def test_a_summary_of_nothing_is_still_a_summary() -> None:
    summary = summarise([], won)
    assert summary["episodes"] == 0 and summary["success"]["mean"] is None
    assert dict(table(summary))["episodes"] == "0 ok / 0 failed / 0 excluded"


def test_repeats_of_a_task_count_as_one_unit_and_give_pass_k() -> None:
    wins = {0: [1, 1, 1, 0], 1: [1, 1, 1, 1], 2: [0, 0, 0, 0]}
    played = [
        episode(task, 1.0 if win else -1.0, repeat=at)
        for task, row in wins.items()
        for at, win in enumerate(row)
    ]
    summary = summarise(played, won)
    assert summary["tasks"] == 3 and summary["success"]["method"] == "wilson over tasks"
    expected = [(0.75 + 1 + 0) / 3, (0.5 + 1) / 3, (0.25 + 1) / 3, (0 + 1) / 3]
    assert summary["pass_hat_k"] == pytest.approx(expected)
    assert "4: 0.333" in dict(table(summary))["pass^k"]


def test_seeds_are_the_units_where_there_is_one_task_only() -> None:
    summary = summarise([episode(0, seed=i, value=float(i % 2)) for i in range(30)], won)
    assert summary["success"]["method"] == "wilson" and summary["success"]["n"] == 30


def test_copies_of_one_play_are_one_play() -> None:
    """Equal records of players without a policy, whatever the seeds; equal returns are not enough."""
    acts = [Turn(0, "a", (Message("go"),), None, (), Action("left"))]

    def plays(**other: Any) -> list[Episode]:
        bots = {"a": Seat("first_legal"), "b": Seat("silent")}
        one = replace(episode(0, 1.0), turns=tuple(acts), cast=bots)
        return [replace(one, seed=seed, **(other if seed == 3 else {})) for seed in range(5)]

    copied = summarise(plays(), won, lambda one: {"length": 1.0})
    intervals = [copied["success"], copied["returns"]["a"], copied["measures"]["length"]]
    for found in intervals:
        assert (found["mean"], found["n"], found["method"]) == (1.0, 1, ONE_PLAY)
        assert found["low"] is None and found["high"] is None
        assert interval_text(found) == f"1.000 ({ONE_PLAY})"
    # each of them was judged
    assert dict(table(copied))["success"] == f"1.000 ({ONE_PLAY})"
    # one act that differs, a policy that may sample, another task: plays of their own
    other = [Turn(0, "a", (Message("go"),), None, (), Action("right"))]
    sampled = [replace(one, cast=episode(0).cast) for one in plays()]
    for several in (plays(turns=tuple(other)), sampled, plays(task="test/1"), plays()[:1]):
        assert summarise(several, won)["success"]["method"] != ONE_PLAY


def test_other_seeds_of_a_task_are_no_new_tasks() -> None:
    summary = summarise([episode(i % 25, float(i % 25 < 10), seed=i) for i in range(100)], won)
    assert summary["success"]["method"] == "wilson over tasks"
    # as wide as 25 tasks make it; 100 plays would claim 0.19
    assert summary["success"]["high"] - summary["success"]["low"] > 0.3


def test_an_undecided_episode_is_no_loss() -> None:
    summary = summarise(
        [episode(i) for i in range(4)], lambda one: None if one.task == "test/3" else True
    )
    assert (summary["success"]["mean"], summary["success"]["n"]) == (1.0, 3)
    assert summarise([episode(0)])["success"] is None


def test_truncations_are_scored_and_their_share_is_told() -> None:
    summary = summarise(
        [episode(0), episode(1, end=End.MAX_STEPS), episode(2, end=End.CONTEXT), episode(3)]
    )
    assert (summary["ok"], summary["truncated"]) == (4, 0.5)


def test_illegal_and_malformed_shares_are_by_agent() -> None:
    calls = (
        ToolCall("c", "f", {}),
        Malformed("{", "bad"),
        ToolCall("d", "f", {}),
        ToolCall("e", "f", {}),
    )
    open_turn = Turn(1, "b", (), None, (), Action("talk", calls))
    played = [
        episode(0, said=None),
        episode(1),
        episode(2, turns=(*episode(2).turns, open_turn)),
        episode(3),
    ]
    # a call of a tool that is offered is no illegal move; one of another tool is none of either
    used = replace(open_turn, agent="a", legal=("x",), tools=(Tool("f", "", {}),))
    assert not used.illegal and replace(used, tools=()).illegal
    assert replace(used, action=Action("", calls[1:2])).illegal
    played[3] = episode(3, turns=(used,))
    summary = summarise(played)
    assert summary["illegal"] == {"a": 0.25, "b": None}
    assert summary["malformed"] == {"a": 0.25, "b": 0.25}
    assert dict(table(summary))["illegal a"] == "25.0 %"


def test_tokens_are_counted_by_id_or_by_the_servers_word_and_retries_by_episode() -> None:
    replies = (
        Reply(prompt_ids=(1, 2, 3), token_ids=(4, 5)),
        Reply(usage=Usage(10, 7), attempts=(Attempt("429"),)),
    )
    turn = replace(episode(0).turns[0], replies=replies)
    summary = summarise([episode(0, turns=(turn,)), episode(1)])
    assert (
        summary["tokens"]["a"] == {"sampled": 9, "prompt": 13}
        and summary["tokens"]["b"]["sampled"] == 0
    )
    assert summary["retried"] == 1 and "1 with retried calls" in dict(table(summary))["episodes"]


def test_a_summary_is_strict_json() -> None:
    # one task, one seed: no spread to learn from
    single = summarise([episode(0, 2.0), episode(0, 3.0, repeat=1)], won)
    assert single["returns"]["a"]["low"] is None
    json.dumps(single, allow_nan=False)
    assert interval_text(single["returns"]["a"]) == "2.500 [n/a]"


def test_the_order_in_which_episodes_ended_changes_nothing() -> None:
    played = [episode(i % 25, float(i % 7), repeat=i // 25) for i in range(75)]
    assert summarise(played, won) == summarise(played[::-1], won)


def test_the_table_says_how_many_episodes_have_no_verdict():
    played = [episode(task) for task in range(4)]
    rows = dict(table(summarise(played, lambda one: None if one.task == "test/0" else True)))
    assert rows["success"].endswith(" of 3 judged, 1 cannot be")
    assert "judged" not in dict(table(summarise(played, lambda one: True)))["success"]


# -- what a scenario names itself ----------------------------------------------------------------


def test_measures_are_averaged_over_the_episodes_to_which_they_apply():
    played = [episode(task) for task in range(4)]
    summary = summarise(
        played,
        won,
        measures=lambda one: {
            "violations": None if one.task == "test/3" else float(one.task[-1]),
            "polite": True,
        },
    )
    # (0 + 1 + 2) / 3
    assert (summary["measures"]["violations"]["mean"], summary["measures"]["violations"]["n"]) == (
        1.0,
        3,
    )
    assert summary["measures"]["polite"]["mean"] == 1.0
    rows = dict(table(summary))
    assert rows["violations"].endswith(" of 3") and not rows["polite"].endswith(" of 4")


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("tasks", [1, 5, 30])
@pytest.mark.parametrize(("rates", "declared"), [((), False), (("f*", "return a"), True)])
def test_a_return_or_a_measure_of_0_or_1_is_a_rate_only_where_that_is_declared(
    value, tasks, rates, declared
):
    played = [episode(task, value, seed=task) for task in range(tasks)]
    summary = summarise(
        played, won, measures=lambda one: {"faults": value}, kinds=Kinds(rates=rates, less=("f*",))
    )
    for found in (summary["returns"]["a"], summary["measures"]["faults"]):
        assert found["rate"] is declared and (found["method"] == "wilson") is declared
        if not declared:
            assert (found["low"], found["high"]) == ((None, None) if tasks == 1 else (value, value))
    assert summary["measures"]["faults"]["better"] == "less"
    assert summary["success"]["rate"] and summary["success"]["method"] == "wilson"


def test_what_is_declared_to_be_a_rate_and_is_none_names_the_episode():
    with pytest.raises(
        ScenarioError,
        match=r"toy: measures\(\) of task test/1, .* 'faults' is 2.0, but `rates` declares it",
    ):
        summarise(
            [episode(0), episode(1)],
            won,
            measures=lambda one: {"faults": 2.0 * (one.task == "test/1")},
            kinds=Kinds(rates=("faults",)),
        )
    with pytest.raises(ScenarioError, match=r"'return a' is 6.0, but `rates` declares it"):
        summarise([episode(0, 6.0)], won, kinds=Kinds(rates=("return *",)))


def test_measures_of_failed_and_excluded_episodes_count_for_nothing():
    played = [episode(0), episode(1, end=End.FAILED, error="E"), episode(2, end=End.INTERRUPTED)]
    assert summarise(played, won, measures=lambda one: {"x": 1.0})["measures"]["x"]["n"] == 1


@pytest.mark.parametrize("value", [10**400, float("nan"), float("inf"), "many", [1], 1e308])
def test_a_measure_that_is_no_number_names_the_episode(value):
    with pytest.raises(
        ScenarioError, match=r"toy: measures\(\) of task test/1, seed 0, repeat 0: 'x' is "
    ):
        summarise([episode(1)], won, measures=lambda one: {"x": value})


class Judged(Scenario):
    """Whoever has played it calls it this."""

    agents = ("a",)

    def __init__(self, verdict):
        self.verdict = verdict

    def success(self, one):
        return self.verdict(one)


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (lambda one: 0.5, "returned 0.5; True, False or None is wanted"),
        (lambda one: "yes", "returned 'yes'; "),
        (lambda one: [], r"returned \[\]; "),
        (lambda one: one.turns[99], "raised IndexError"),
    ],
)
def test_a_verdict_is_yes_or_no_in_a_run_and_in_an_exam(verdict, said):
    toy = Judged(verdict)
    where = r"toy: success\(\) of task test/1, seed 0, repeat 0 "
    with pytest.raises(ScenarioError, match=where + said):
        Judge.of(toy).summarise([episode(1)])
    with pytest.raises(ScenarioError, match=where + said):
        measures_of([episode(1)], toy)
    for one, meant in ((1.0, True), (np.bool_(False), False), (0, False)):
        assert verdict_of(lambda _, one=one: one, episode(1)) is meant


def test_a_return_of_which_no_mean_can_be_taken_names_the_episode() -> None:
    # each is finite, and so is no sum of two
    with pytest.raises(ScenarioError, match="task test/0, seed 0, repeat 0: the payments of 'a'"):
        summarise([episode(0, 1e308), episode(1, 1e308)])
    assert summarise([episode(0, 1e300), episode(1, 1e300)])["returns"]["a"]["mean"] == 1e300


def test_a_hook_that_raises_names_the_episode():
    with pytest.raises(
        ScenarioError, match=r"labels\(\) of task test/0, seed 0, repeat 0 raised KeyError"
    ):
        summarise([episode(0)], won, labels=lambda one: {"x": {}["gone"]})


def test_success_is_counted_within_each_value_of_a_label_and_an_episode_may_carry_several():
    intents = {0: ("cancel", "return"), 1: ("cancel",), 2: "return", 3: ()}
    played = [episode(task, 1.0 if task in (0, 3) else -1.0) for task in intents]
    summary = summarise(played, won, labels=lambda one: {"intent": intents[int(one.task[-1])]})
    cancel, back = (summary["labels"]["intent"]["values"][name] for name in ("cancel", "return"))
    assert (
        cancel["success"]["mean"],
        cancel["success"]["n"],
        cancel["episodes"],
        cancel["lost"],
    ) == (0.5, 2, 2, 1)
    assert (cancel["success"]["low"], cancel["success"]["high"]) == wilson(1, 2)
    assert back["share"]["mean"] == 0.5 and back["share"]["n"] == 2  # one of the two lost ones
    assert (
        dict(table(summary))["success, intent cancel"] == f"{interval_text(cancel['success'])} of 2"
    )


def test_blame_is_a_share_of_the_lost_episodes_failed_ones_included():
    blame = {0: "user", 1: "assistant", 2: "assistant", 3: "infrastructure"}
    played = [
        episode(task, -1.0, End.FAILED if task == 3 else End.TERMINATED, error="E")
        for task in blame
    ] + [episode(9), episode(8, -1.0)]
    summary = summarise(
        played,
        won,
        labels=lambda one: (
            {"blame": blame[int(one.task[-1])]} if int(one.task[-1]) in blame else {}
        ),
    )
    one = summary["labels"]["blame"]
    assert one["lost"] == 5 and one["unlabelled"] == 1
    assert {
        value: (found["lost"], found["share"]["mean"]) for value, found in one["values"].items()
    } == {
        "assistant": (2, 0.4),
        "infrastructure": (1, 0.2),
        "user": (1, 0.2),
    }
    row = dict(table(summary))["blame of 5 lost"]
    assert row.startswith("assistant 0.400 [") and row.endswith("none named 0.200")


def test_a_label_that_only_lost_episodes_carry_is_told_as_a_cause_whatever_its_name():
    played = [episode(0), episode(1, -1.0), episode(2, -1.0)]
    summary = summarise(played, won, labels=lambda one: {} if won(one) else {"broke": "rule 4"})
    assert "rule 4 1.000" in dict(table(summary))["broke of 2 lost"]
    assert "success, broke rule 4" not in dict(table(summary))


def test_labels_without_a_notion_of_success_are_counted():
    summary = summarise(
        [episode(0), episode(1), episode(2)],
        labels=lambda one: {"kind": "short" if one.task == "test/2" else "long"},
    )
    assert dict(table(summary))["kind"] == "long 2, short 1"


@pytest.mark.parametrize("given", [1, {"a": 1}, [1], None])
def test_a_label_that_is_no_text_is_refused(given):
    with pytest.raises(ScenarioError, match="a label is text"):
        summarise([episode(0)], won, labels=lambda one: {"x": given})


def test_names_and_labels_are_texts_that_can_be_written():
    word = np.str_("a")
    for given, name in ((word, "a"), ("\ud800", "?")):
        assert labels_of(episode(0), lambda one, given=given: {given: {given}}) == {name: (name,)}
        assert type(*labels_of(episode(0), lambda one, given=given: {"l": given})["l"]) is str
        assert [*values_of(episode(0), lambda one, given=given: {given: 1})] == [name]


def test_pass_k_has_an_interval_over_tasks_and_refuses_a_k_that_a_task_cannot_give():
    wins = {task: [1, 1] if task % 3 else [1, 0] for task in range(30)} | {30: [1]}
    played = [
        episode(task, 1.0 if win else -1.0, repeat=at)
        for task, row in wins.items()
        for at, win in enumerate(row)
    ]
    summary = summarise(played, won)
    assert len(summary["pass_hat_k"]) == 1 and summary["tries"] == [1, 2]
    assert summary["pass_hat_k"][0] == pytest.approx((20 + 10 * 0.5 + 1) / 31)  # each task's own n
    curve = summary["pass_hat_k_intervals"][0]
    assert (
        curve["method"] == "wilson over tasks"
        and curve["n"] == 31
        and curve["low"] < summary["pass_hat_k"][0] < curve["high"]
    )
    assert "no k above 1" in dict(table(summary))["pass^k"]


def test_pass_k_agrees_with_all_subsets_of_the_tries():
    tries = {0: [1, 1, 0, 1], 1: [0, 1, 0, 0], 2: [1, 1, 1, 1]}
    played = [
        episode(task, 1.0 if win else -1.0, repeat=at)
        for task, row in tries.items()
        for at, win in enumerate(row)
    ]
    slow = [
        sum(
            sum(all(pick) for pick in itertools.combinations(row, k)) / math.comb(4, k)
            for row in tries.values()
        )
        / 3
        for k in range(1, 5)
    ]
    assert summarise(played, won)["pass_hat_k"] == pytest.approx(slow)


def test_the_groups_are_strict_json():
    json.dumps(
        summarise([episode(0)], won, lambda one: {"x": 1.0}, lambda one: {"blame": "user"}),
        allow_nan=False,
    )


def test_measures_that_are_nothing_everywhere_share_one_row():
    played = [episode(task) for task in range(4)]
    rows = dict(
        table(
            summarise(
                played,
                won,
                measures=lambda one: {"turns": 2.0, "faults": 0.0, "leaks": 0, "stops": 0.0},
            )
        )
    )
    assert (
        rows["0 in every episode"] == "faults, leaks, stops"
        and "faults" not in rows
        and rows["turns"].startswith("2.000")
    )


def test_a_label_that_tells_nothing_apart_is_not_printed():
    summary = summarise(
        [episode(0), episode(1, -1.0)],
        won,
        labels=lambda one: {"split": "test", "size": "big" if won(one) else "small"},
    )
    rows = dict(table(summary))
    assert (
        "success, split test" not in rows
        and "success, size big" in rows
        and summary["labels"]["split"]["values"]["test"]["episodes"] == 2
    )


def test_a_record_that_broke_off_may_lack_what_labels_read():
    played = [episode(0), episode(1, end=End.FAILED, error="E", turns=())]
    summary = summarise(played, won, labels=lambda one: {"said": one.turns[0].action.text})
    assert summary["labels"]["said"]["lost"] == 1 and summary["labels"]["said"]["unlabelled"] == 1


def test_a_baseline_says_over_how_many_of_its_episodes_it_was_judged() -> None:
    rate = {"mean": 0.0, "low": 0.0, "high": 0.034, "n": 108, "method": "wilson"}
    one = {"ok": 115, "failed": 2, "success": rate, "returns": {}, "tasks": 117, "of": 117}
    assert baseline_rows({"baselines": {"idle": one}}) == [
        ("baseline idle", "0.000 [0.000, 0.034] of 108 judged, 7 cannot be, 2 failed")
    ]
    whole = {**one, "ok": 108, "failed": 0}
    assert baseline_rows({"baselines": {"idle": whole}}) == [
        ("baseline idle", "0.000 [0.000, 0.034] of 108")
    ]


def test_no_turn_is_held_beyond_its_episode() -> None:
    def alive() -> int:
        return sum(type(one) is Turn and one.agent == "a counted one" for one in gc.get_objects())

    def passing() -> Iterator[Episode]:
        for place in range(50):
            turn = Turn(0, "a counted one", (), None, (), Action(str(place)))
            yield episode(place, turns=(turn,))
            most.append(alive())

    most: list[int] = []
    gc.freeze()  # what is older is not looked at fifty times
    summary = summarise(
        passing(), lambda one: True, lambda one: {"turns": len(one.turns)}, lambda one: {"x": "y"}
    )
    assert summary["measures"]["turns"]["mean"] == summary["turns"] == 1 and max(most) <= 3


def test_numbers_too_small_or_large_for_three_decimals_have_three_digits() -> None:
    """A run that learned from 1e-6 to 2e-6 said 0.000 -> 0.000."""
    small = summarise([episode(task, 1e-6 * (task % 2)) for task in range(20)])
    told = dict(table(small))["return a"]
    assert told.startswith("5e-07 [2.6") and "0.000" not in told
    # those that stand together have one form
    assert interval_text({"mean": 0.02, "low": 0.0001, "high": 0.2}) == "0.020 [0.000, 0.200]"
    large = {"mean": 2e200, "low": 1e200, "high": 3e200}
    assert interval_text(large) == "2e+200 [1e+200, 3e+200]"
