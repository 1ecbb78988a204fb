"""Curves of several trainings in one chart: where points stand, what is smoothed, which runs are one
line, and that the files hold every digit."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gem_ma.pages.live.overlays import View, csv_file, lines_of, read_training, smoothed, svg_file
from gem_ma.pages.live.site import Site
from gem_ma.pages.static.figures import Line
from gem_ma.runs.store import RunFolder
from tests.payloads import PAYLOADS, folder_name

LOSS = "policies/p/loss"
SVG = "{http://www.w3.org/2000/svg}"


def training(folder: Path, seed: int = 0, *, lr: float = 0.1, times: bool = True) -> Path:
    """Three updates of two policies, an exam before and after; numbers that need all digits."""
    # a config derives other seeds from that of the run
    train = {"lr": lr, "warm_start": {"p": {"seed": seed}}}
    resolved = {"scenario": {"id": "toy"}, "run": {"seed": seed}, "train": train}
    with RunFolder.open(
        folder, config_text="", resolved=resolved, manifest={"command": "train"}
    ) as run:
        run.append([])
        run.log({"kind": "evaluation", "step": 0, "success": 0.1 + seed})
        for step in (1, 2, 3):
            policies = {
                name: {"tokens": 10.0 * step + seed, "loss": math.pi * step + seed}
                for name in ("p", "q")
            }
            run.log({"kind": "train", "step": step, "policies": policies})
        run.log({"kind": "evaluation", "step": 3, "success": 0.7 + seed})
    if times:
        rows = [json.dumps({"step": step, "step_s": 0.5 + seed}) for step in (1, 2, 3)]
        (folder / "timings.jsonl").write_text("\n".join([*rows, "torn"]), "utf-8")
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed in (0, 1, 2):
        training(tmp_path / f"seed{seed}", seed)
    training(tmp_path / "other", 0, lr=0.2, times=False)
    return tmp_path


def lines(runs: Path, *names: str, **view: Any) -> list[Line]:
    view = {"key": LOSS, **view}
    return lines_of([read_training(name, runs / name) for name in names], View(**view))


def test_runs_that_differ_in_their_seed_alone_are_one_line(runs: Path) -> None:
    names = ("seed0", "other", "seed1", "seed2")
    one, other = lines(runs, *names)
    assert (one.label, one.seeds) == ("seed0 and 2 more seeds", 3)
    assert one.mean == pytest.approx([math.pi * step + 1 for step in (1, 2, 3)])
    assert (one.low[0], one.high[0]) == (math.pi, math.pi + 2)
    assert (other.label, other.seeds) == ("other", 1)
    apart = lines(runs, *names, fold=False)
    assert [line.label for line in apart] == list(names)


@pytest.mark.parametrize(
    ("axis", "alone", "together"),
    [
        ("step", (1.0, 2.0, 3.0), (1.0, 2.0, 3.0)),
        # of both policies that learn; the second seed takes a token more of each
        ("tokens", (20.0, 60.0, 120.0), (21.0, 62.0, 123.0)),
        ("time", (0.5, 1.0, 1.5), (1.0, 2.0, 3.0)),
    ],
)
def test_points_stand_at_what_had_come_up_to_them(
    runs: Path, axis: str, alone: tuple[float, ...], together: tuple[float, ...]
) -> None:
    (line,) = lines(runs, "seed0", axis=axis)
    assert line.x == alone
    (folded,) = lines(runs, "seed0", "seed1", axis=axis)
    assert folded.x == together
    (exam,) = lines(runs, "seed0", key="success", axis=axis)
    assert exam.markers and exam.x == (0.0, alone[-1])


def test_without_timings_nothing_is_drawn_over_time_and_the_page_says_so(runs: Path) -> None:
    (line,) = lines(runs, "other", axis="time")
    assert line.x == ()
    page = Site(runs).answer("/curves", {"x": "time", "y": LOSS}, ["other"]).body.decode()
    assert "no run here recorded loss: p over seconds" in page


def test_smoothing_is_without_a_pull_to_0_and_leaves_exams_alone(runs: Path) -> None:
    (line,) = lines(runs, "seed0", smoothing=0.5)
    first, second, third = line.raw
    assert line.mean[0] == first
    assert line.mean[1] == pytest.approx((0.5 * first + second) / 1.5)
    assert line.mean[2] == pytest.approx((0.25 * first + 0.5 * second + third) / 1.75)
    (exam,) = lines(runs, "seed0", key="success", smoothing=0.9)
    assert exam.mean == (0.1, 0.7) and exam.raw == ()
    assert smoothed([(0, 1.0), (1, math.nan), (2, 3.0)], 0.9)[1][1] < 3.0


def test_the_numbers_of_a_chart_have_all_their_digits(runs: Path) -> None:
    answer = Site(runs).answer("/curves/numbers.csv", {"y": LOSS, "smooth": "0.5"}, ["seed0"])
    assert answer.kind.startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
    (line,) = lines(runs, "seed0", smoothing=0.5)
    assert [float(row["mean"]) for row in rows] == list(line.mean)
    assert [float(row["unsmoothed"]) for row in rows] == [math.pi * step for step in (1, 2, 3)]
    assert [row["step"] for row in rows] == ["1.0", "2.0", "3.0"]


@pytest.mark.parametrize("name", [folder_name(payload) for payload in PAYLOADS])
def test_a_name_is_a_text_in_both_files(name: str) -> None:
    line = Line(name, (0.0, 1.0), (0.5, 1.0), (0.5, 1.0), (0.5, 1.0), 1, raw=(1.0, 1.0))
    (row, _) = csv.DictReader(io.StringIO(csv_file([line], x_label="step")))
    assert row["line"] == name
    tree = ElementTree.fromstring(svg_file([line], title=name, x_label=name, y_label=name))
    assert {one.tag.removeprefix(SVG) for one in tree.iter()} <= {
        *("svg", "g", "rect", "text", "title", "line", "polyline", "circle"),
    }
    assert not [key for one in tree.iter() for key in one.attrib if key.startswith("on")]
    shown = re.sub("[\x00-\x1f]", "\ufffd", name)
    assert shown in [one.text for one in tree.iter(f"{SVG}text")]


@pytest.mark.parametrize("start", ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\uff1d1"])
def test_the_name_of_a_run_is_no_formula(start: str) -> None:
    line = Line(start, (0.0,), (0.5,), (0.5,), (0.5,), 1)
    (row,) = csv.DictReader(io.StringIO(csv_file([line], x_label="step")))
    assert row["line"] == f"'{start}"


def test_a_file_needs_no_style_sheet(runs: Path) -> None:
    answer = Site(runs).answer(
        "/curves/plot.svg", {"y": LOSS}, ["seed0", "other", "seed1", "seed2"]
    )
    assert answer.kind == "image/svg+xml"
    tree = ElementTree.fromstring(answer.body)
    assert not [one for one in tree.iter() if one.get("class")]
    drawn = list(tree.iter(f"{SVG}polyline"))
    assert len(drawn) == 2 and all(one.get("stroke") for one in drawn)
    assert "seed0 and 2 more seeds" in [one.text for one in tree.iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("picked", "words"),
    [
        ((), "choose 1 to 40 runs"),
        (("gone",), "gone: no such run folder"),
        (("../seed0",), "no such run folder"),
        (("empty",), "no curve: empty recorded no number over steps"),
        (("damaged",), "metrics.jsonl"),
        (("huge",), "metrics.jsonl"),
    ],
)
def test_what_cannot_be_drawn_is_one_line_on_the_page(
    runs: Path, picked: tuple[str, ...], words: str
) -> None:
    for name, rows in (
        ("empty", ""),
        ("damaged", "{}\nno json\n"),
        ("huge", '{"step": 1, "policies": {"p": {"tokens": 1' + "0" * 400 + "}}}\n"),
    ):
        training(runs / name)
        (runs / name / "metrics.jsonl").write_text(rows, "utf-8")
        (runs / name / "timings.jsonl").unlink()
    answer = Site(runs).answer("/curves", {}, picked)
    (line,) = re.findall(r'<p class="warn">(.*?)</p>', answer.body.decode())
    assert answer.status == 200 and words in line


def test_fields_that_mean_nothing_are_as_usual(runs: Path) -> None:
    odd = {"y": "<script>", "x": "\x00", "smooth": "nan", "seeds": "?"}
    page = Site(runs).answer("/curves", odd, ["seed0"]).body.decode()
    assert "<h3>success</h3>" in page and "&lt;script&gt;" not in page
    assert Site(runs).answer("/curves/else.svg", {}, ["seed0"]).status == 404
