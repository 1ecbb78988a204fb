"""Exams of a training: their intervals are those of a run, and the last one is compared with the
first play by play."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gem_ma.cli.main import main
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.errors import StoreError
from gem_ma.pages.static.learning import before_and_after, of_many, place_of
from gem_ma.runs.store import read_summary
from gem_ma.runs.store.summaries import check_training
from gem_ma.scores.exams import MOST_SCORES, changes, exam_cell, exam_rows, plays_of, scores_in
from gem_ma.scores.groups import Kinds
from gem_ma.scores.judge import Judge
from gem_ma.scores.stats import paired
from gem_ma.scores.together import MOST_RETURNS

JUDGE = Judge(
    success=lambda one: one.returns()["player_0"] > 1,
    measures=lambda one: {"first": one.returns()["player_0"]},
    kinds=Kinds(more=("first",)),
)


def play(seed: int, paid: list[float], end: End = End.TERMINATED) -> Episode:
    agents = [f"player_{number}" for number in range(len(paid))]
    ledger = tuple(Entry(0, *pair) for pair in zip(agents, paid, strict=True))
    cast = dict.fromkeys(agents, Seat("direct", "main"))
    return Episode("toy", 1, seed, "test/0", 0, None, cast, (), (), (), {}, ledger, end)


def plays(gain: float, agents: int = 3, count: int = 30) -> list[Episode]:
    """Each seed has its luck; the first agent gains, by turns more and less."""
    made = []
    for seed in range(count):
        paid = [float(random.Random(seed + 100 * k).randrange(4)) for k in range(agents)]
        paid[0] += gain * (1 + seed % 3)
        made.append(play(seed, paid))
    return made


def told(before: list[Episode], after: list[Episode], judge: Judge = JUDGE) -> dict[str, Any]:
    """The summary of a training with these exams."""
    cells = [exam_cell(one, judge) for one in (before, after)]
    rows = [
        {
            "ok": len(one),
            "failed": 0,
            "success": cell.summary["success"] and cell.summary["success"]["mean"],
            "return": {agent: of["mean"] for agent, of in cell.summary["returns"].items()},
            **scores_in(cell),
        }
        for one, cell in zip((before, after), cells, strict=True)
    ]
    kept = json.loads(json.dumps(plays_of(cells[0])))
    return {
        "steps": 1, "learned": ["main"], "unchanged": [],
        "before": {"sampled": rows[0]}, "after": {"sampled": rows[1]},
        "changes": {"sampled": changes(kept, cells[1])},
    }  # fmt: skip


def test_an_exam_has_the_intervals_of_a_run() -> None:
    cell = exam_cell(plays(0.0), JUDGE)
    summary = JUDGE.summarise(plays(0.0))
    found = scores_in(cell)
    for name, estimate in (
        ("success", summary["success"]),
        ("return player_1", summary["returns"]["player_1"]),
        ("welfare", summary["together"]["welfare"]),
        ("equality", summary["together"]["equality"]),
        ("first", summary["measures"]["first"]),
    ):
        assert found["intervals"][name] == [estimate["low"], estimate["high"]], name
    assert list(found["scores"]) == ["welfare", "equality", "first"]
    assert found["scores"]["first"] == summary["measures"]["first"]["mean"]


def test_the_last_exam_is_compared_with_the_first_play_by_play() -> None:
    first, last = plays(0.0), plays(0.5)
    # a play that failed in one of them is compared with nothing
    last[3] = replace(last[3], end=End.FAILED)
    found = told(first, last)["changes"]["sampled"]
    kept = [n for n in range(30) if n != 3]
    values = [[exam[n].returns()["player_0"] for n in kept] for exam in (first, last)]
    wanted = paired(*values, kept)
    row = found["return player_0"]
    assert [row[key] for key in ("difference", "low", "high", "p", "pairs")] == pytest.approx(
        [wanted.difference, wanted.low, wanted.high, wanted.p, 29]
    )
    # of one family: success and the return of the one that gained
    assert row["p_adjusted"] == pytest.approx(2 * wanted.p) or row["p_adjusted"] > wanted.p
    assert found["return player_1"]["difference"] == 0.0
    assert found["return player_1"]["p_adjusted"] is None and found["welfare"]["difference"] > 0


def test_one_play_that_is_copied_is_no_test() -> None:
    exams = [[play(seed, [paid, 1.0]) for seed in range(20)] for paid in (1.0, 2.0)]
    cells = [exam_cell(one, JUDGE, greedy=True) for one in exams]
    row = changes(plays_of(cells[0]), cells[1])["return player_0"]
    assert row["difference"] == 1.0 and row["p"] is row["low"] is None
    assert scores_in(cells[0])["intervals"]["return player_0"] == [None, None]
    # as sampled, equal plays may be luck
    sampled = [exam_cell(one, JUDGE) for one in exams]
    assert changes(plays_of(sampled[0]), sampled[1])["return player_0"]["p"] < 0.01


def test_one_play_from_each_side_that_is_copied_is_no_test_either() -> None:
    exams = []
    for paid in (1.0, 2.0):
        one = [play(seed, [paid, 1.0]) for seed in range(20)]
        other = {"player_0": Seat("direct", "other"), "player_1": Seat("direct", "main")}
        exams.append(one + [replace(each, repeat=1, cast=other) for each in one])
    cells = [exam_cell(each, JUDGE, greedy=True) for each in exams]
    row = changes(plays_of(cells[0]), cells[1])["return player_0"]
    assert row["difference"] == 1.0 and row["p"] is row["low"] is None
    # a play of each side alone may differ with the next start
    assert not exam_cell(exams[0][::20], JUDGE, greedy=True).one_play


def test_a_table_has_before_after_and_what_is_sure_of_their_difference() -> None:
    rows = {row.name: row for row in exam_rows(told(plays(0.0), plays(0.5)))}
    paid = rows["sampled: return player_0"]
    assert paid.before.endswith("]") and paid.change.startswith("+") and float(paid.p) < 0.01
    assert rows["sampled: return player_1"].change == rows["sampled: return player_1"].p == ""
    assert rows["sampled: episodes"].after == "30 ok / 0 failed / 0 excluded"
    page = str(before_and_after("", told(plays(0.0), plays(0.5))))
    assert paid.change in page and "p (Holm)" in page


def test_a_difference_of_some_plays_says_of_how_many() -> None:
    last = plays(0.5)
    last[3] = replace(last[3], end=End.FAILED)
    # equality is that of plays which paid anything
    for paid in (plays(0.5), last):
        first = [play(n, [0.0] * 3) if n < 10 else one for n, one in enumerate(plays(0.0))]
        summary = told(first, paid)
        for row in exam_rows(summary):
            score = row.name.removeprefix("sampled: ")
            if not row.change:
                continue
            pairs = summary["changes"]["sampled"][score]["pairs"]
            assert row.change.endswith("]" if pairs == 30 else f"] of {pairs}"), row
        assert " of " in {row.name: row for row in exam_rows(summary)}["sampled: equality"].change


@pytest.mark.long
def test_a_table_of_64_agents_and_30_measures_is_short() -> None:
    many = Judge(measures=lambda one: {
        **{f"m{n}": 1.0 for n in range(29)}, "late": one.returns()["player_0"]
    })  # fmt: skip
    summary = told(plays(0.0, 64), plays(0.5, 64), many)
    names = [row.name for row in exam_rows(summary)]
    assert len(names) <= 2 + MOST_SCORES + MOST_RETURNS
    assert "sampled: return policy main" in names and "sampled: return player_7" not in names
    # what changed for sure is told first
    assert "sampled: late" in names and exam_rows(summary)[-1].name == "sampled: others"


def test_a_summary_of_before_there_were_intervals_is_told() -> None:
    old = {"ok": 9, "failed": 0, "success": 0.5, "return": {"a": 1.0}}
    rows = exam_rows({"before": {"sampled": old, "nash_conv": 0.9}, "after": {"sampled": old}})
    assert [tuple(row) for row in rows[1:]] == [
        ("sampled: success", "0.500", "0.500", "", ""),
        ("sampled: return a", "1.000", "1.000", "", ""),
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [("intervals", {"success": [0.1]}), ("intervals", {"success": 1}), ("scores", {"x": "y"})],
)
def test_an_exam_of_another_shape_is_damage(key: str, value: object) -> None:
    summary = told(plays(0.0), plays(0.5))
    check_training(summary, Path("summary.json"))
    summary["after"]["sampled"][key] = value
    with pytest.raises(StoreError, match="'after' has another shape"):
        check_training(summary, Path("summary.json"))


@pytest.mark.parametrize("change", [7, {"difference": "x"}, {"difference": 1.0}])
def test_changes_of_another_shape_are_damage(change: object) -> None:
    summary = told(plays(0.0), plays(0.5))
    summary["changes"]["sampled"]["welfare"] = change
    with pytest.raises(StoreError, match="'changes' has another shape"):
        check_training(summary, Path("summary.json"))


# -- in a training ---------------------------------------------------------------------------------

CONFIG = """\
scenario: {id: public_goods, agents: 3, rounds: 2}
agents: {player_*: {policy: main}}
policies: {main: {model: table}}
train: {steps: 4, episodes: 8, policies: [main], lr: 5, save_every: 2}
evaluate: {episodes: 8, every: 2}
"""


@pytest.mark.long
def test_a_training_tells_measures_with_intervals_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)

    def trained(name: str, *words: str) -> dict[str, Any]:
        assert main([*words, "--quiet"]) == 0
        return read_summary(tmp_path / name) or {}

    begin = ("train", str(tmp_path / "config.yaml"), "--out")
    whole = trained("whole", *begin, str(tmp_path / "whole"))
    exam = whole["after"]["sampled"]
    agents = {f"return player_{n}" for n in range(3)}
    assert exam["scores"].keys() == exam["intervals"].keys() - agents
    assert {"welfare", "equality", "contribution"} <= exam["scores"].keys()
    lines = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    exams = [row for row in map(json.loads, lines) if row["kind"] == "evaluation"]
    assert [row["step"] for row in exams] == [0, 2, 4]
    assert all("contribution" in row["greedy"]["scores"] for row in exams)
    page = (tmp_path / "whole" / "report.html").read_text()
    assert "<h3>welfare</h3>" in page and "2 measures in exams" in page
    # the plays of the first exam are in the checkpoint
    trained("parts", *begin, str(tmp_path / "parts"), "train.steps=2")
    parts = trained("parts", "resume", str(tmp_path / "parts"), "train.steps=4")
    assert (
        parts["changes"] == whole["changes"]
        and whole["changes"]["sampled"]["welfare"]["pairs"] == 8
    )


# -- curves ----------------------------------------------------------------------------------------


def test_curves_of_many_agents_are_those_of_a_head() -> None:
    points = {f"sampled/return/p{n}": [(0.0, float(n)), (1.0, 2.0 * n)] for n in range(9)}
    assert of_many(points) == {"sampled/return/a head of 9": [(0.0, 4.0), (1.0, 8.0)]}
    few = of_many({f"return/p{n}": [(0.0, float(n))] for n in range(3)})
    assert list(few) == ["return/a head of 3", *(f"by agent/return/p{n}" for n in range(3))]
    pair = {f"return/p{n}": [(0.0, 1.0)] for n in range(2)}
    assert of_many(pair) == pair
    parts = {f"policies/main/components/p{n}/won": [(0.0, 1.0)] for n in range(9)}
    assert list(of_many(parts)) == ["policies/main/components/a head of 9/won"]


def test_scores_of_exams_have_charts() -> None:
    assert place_of("sampled/scores/welfare") == ("Scores", "welfare", "sampled")
    assert place_of("greedy/scores/return role wolf") == (
        "Scores",
        "return by group",
        "greedy role wolf",
    )
    assert place_of("greedy/scores/won team a") == ("Scores", "won", "greedy team a")
    assert place_of("sampled/scores/fines a/b") == ("Measures", "fines a/b", "sampled")
    assert place_of("by agent/sampled/return/p1") == ("Scores", "return by agent, sampled", "p1")
    assert place_of("by agent/return/p1") == ("Scores", "return by agent, training", "p1")
