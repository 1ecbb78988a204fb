"""The table of learning curves of run folders: scores with intervals, whether the end beats the
start, and the answers to one text before and after."""

from __future__ import annotations

from pathlib import Path

import pytest

import gem_ma
from benchmarks.model_curves import answers, cut, judged, row

SHORT = ["train.steps=18", "train.lr=0.3", "train.episodes=192", "evaluate.episodes=64"]


@pytest.mark.long
def test_a_run_that_learned_beats_its_start_and_gives_other_answers_to_the_same_text(
    tmp_path: Path,
) -> None:
    gem_ma.train("guess_number_table", SHORT, out=str(tmp_path / "learned"))
    name, steps, curve, first, last, beats, *exams = row(tmp_path / "learned")[2:-2].split(" | ")
    assert (name, steps, beats) == ("learned", "18", "yes") and float(last[:4]) > float(first[:4])
    assert curve.count("[") == 5 and all("[" in exam for exam in exams) and len(exams) == 4
    line = next(answers(tmp_path / "learned"))
    assert line.startswith("  player, 'I think of a number from 1 to 10.")
    before, after = line.split(": ")[-1].split(" -> ")
    assert before != after and all(0 < float(one.split()[1]) <= 1 for one in before.split(", "))


def test_where_no_play_is_judged_the_score_is_the_mean_return(tmp_path: Path) -> None:
    out, seats = str(tmp_path / "run"), "agents={'*': {policy: player}}"
    gem_ma.train(
        "guess_number_table",
        [*SHORT[1:], "train.steps=1", "scenario={id: dilemma}", seats],
        out=out,
    )
    _, _, curve, first, last, beats, before, _, _, after = row(tmp_path / "run")[2:-2].split(" | ")
    # one step is its own first and last; five rounds pay from 5 to 15 each where both act alike
    assert curve == first == last and beats == "no" and 5 < float(first.split()[0]) < 15
    assert 5 <= float(before) <= 15 and 5 <= float(after) <= 15


def test_the_score_of_a_part_is_that_of_all_its_plays() -> None:
    steps = [{"ok": 10, "success": 0.5}, {"ok": 30, "success": 0.9}]
    assert [str(judged(part)) for part in cut(steps)] == ["0.50 [0.24, 0.76]", "0.90 [0.74, 0.97]"]
    assert judged(steps).mean == pytest.approx(0.8) and [*map(len, cut(range(12)))] == [
        2,
        2,
        3,
        2,
        3,
    ]
