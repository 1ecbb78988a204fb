"""What stands below the scores of a run's page, and the plots that show it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.types import Action, Turn
from gem_ma.pages.static.figures import Mark, axis_of
from gem_ma.pages.static.learning import own_curves
from gem_ma.pages.static.plots import heatmap, share_bar, whisker_chart
from gem_ma.pages.static.report import write_report
from gem_ma.pages.static.scores import details, scores
from gem_ma.runs.store import RunFolder
from gem_ma.scores.judge import Judge
from tests.plays import recorded


def episode(task: int, won: bool, repeat: int = 0, end: End = End.TERMINATED) -> Episode:
    turn = Turn(0, "a", (), None, (), Action("x"))
    ledger = (Entry(0, "a", float(won)),)
    return recorded(
        {"a": Seat("silent")},
        (turn,),
        ledger,
        task=f"test/{task}",
        repeat=repeat,
        end=end,
        error="E" if end is End.FAILED else None,
    )


PLAYED = [
    episode(task, (task + repeat) % 3 > 0, repeat) for task in range(9) for repeat in range(2)
]
HOSTILE = '<img src=x onerror="alert(1)">'


def judge(name: str = "") -> Judge:
    def success(one: Episode) -> bool:
        return one.returns()["a"] > 0

    return Judge(
        success,
        lambda one: {f"words{name}": 2.0, f"faults{name}": 0.0},
        lambda one: {
            f"intent{name}": (f"cancel{name}", f"return{name}")[: 1 + one.repeat],
            **({} if success(one) else {"blame": f"user{name}"}),
        },
    )


def test_a_page_shows_pass_k_measures_labels_and_blame_with_their_numbers(tmp_path: Path) -> None:
    with RunFolder.open(
        tmp_path / "run",
        config_text="",
        resolved={"scenario": {"id": "toy"}},
        manifest={"command": "run"},
    ) as folder:
        folder.append(PLAYED)
    page = write_report(tmp_path / "run", judge=judge()).read_text()
    for said in (
        "pass^k: all of k tries of a task succeed",
        "by intent",
        "blame of the 6 lost episodes",
        "0 in every episode: faults",
    ):
        assert said in page
    assert page.count('<svg class="chart"') == 2  # the curve and the bar
    summary = judge().summarise(PLAYED)
    assert f"{summary['pass_hat_k'][1]:.3f} [" in page


def test_a_stored_summary_of_an_older_version_is_made_anew_where_measures_are_wanted(
    tmp_path: Path,
) -> None:
    with RunFolder.open(
        tmp_path / "run",
        config_text="",
        resolved={"scenario": {"id": "toy"}},
        manifest={"command": "run"},
    ) as folder:
        folder.append(PLAYED)
        old = {
            key: value
            for key, value in Judge(judge().success).summarise(PLAYED).items()
            if key not in ("measures", "labels", "tries")
        }
        folder.write_summary(old)
    assert "by intent" in write_report(tmp_path / "run", judge=judge()).read_text()
    assert "by intent" not in write_report(tmp_path / "run", success=judge().success).read_text()


def test_names_that_a_scenario_gives_cannot_write_markup() -> None:
    summary = judge(HOSTILE).summarise([*PLAYED, episode(20, False, end=End.FAILED)])
    baseline = {
        "cast": {"a": HOSTILE},
        "success": summary["success"],
        "returns": summary["returns"],
        "tasks": 1,
        "of": 2,
    }
    summary["baselines"] = {HOSTILE: {**baseline, "ok": 1, "failed": 0, "excluded": 0}}
    html = "".join(details(HOSTILE, summary))
    assert "<img" not in html and html.count("&lt;img") > 5


def test_a_summary_of_nothing_has_no_details() -> None:
    assert details("", Judge().summarise([])) == []


# -- plots ---------------------------------------------------------------------------------------


def widths(svg: str) -> list[float]:
    return [
        float(width)
        for width in re.findall(r'class="part s\d" x="[\d.]+" y="4" width="([\d.]+)"', svg)
    ]


def test_a_bar_is_split_by_share_and_never_wider_than_whole() -> None:
    assert widths(share_bar({"a": 0.5, "b": 0.25, "none": 0.0}, title="t")) == [
        pytest.approx(358.5),
        pytest.approx(178.5),
    ]
    # an episode with two causes counts for both
    several = widths(share_bar({"a": 1.0, "b": 1.0}, title="t"))
    assert sum(several) < 720 and several[0] == several[1]
    assert share_bar({"a": 0.0}, title="t") == "" == share_bar({}, title="t")


def test_a_heatmap_is_darkest_where_the_mean_is_highest() -> None:
    svg = heatmap(
        ["r"],
        ["x", "y", "z"],
        {("r", "x"): Mark(0.0), ("r", "y"): Mark(1.0, 0.5, 1.0)},
        title="t",
        rate=True,
    )
    assert [float(found) for found in re.findall(r'fill-opacity="([\d.]+)"', svg)] == [0.05, 0.5]
    assert svg.count('class="rest"') == 1  # the cell that was not played
    assert "0.50 to 1.00" in svg
    same = heatmap(["r"], ["x"], {("r", "x"): Mark(7.0)}, title="t")
    assert "7.00" in same and heatmap([], [], {}, title="t") == ""


@pytest.mark.parametrize(
    ("better", "darkest", "kind"),
    [("more", "high", "heat"), ("less", "low", "heat"), ("", "high", "heat neutral")],
)
def test_a_heatmap_is_darkest_where_it_is_best_and_grey_where_nobody_said_what_is(
    better: str, darkest: str, kind: str
) -> None:
    svg = heatmap(
        ["r"],
        ["low", "high"],
        {("r", "low"): Mark(0.1), ("r", "high"): Mark(0.9)},
        title="t",
        rate=True,
        better=better,
    )
    cells = re.findall(r'class="(heat[^"]*)" fill-opacity="([\d.]+)"', svg)
    assert [name for name, _ in cells] == [kind] * 2
    opacity = dict(zip(("low", "high"), (float(found) for _, found in cells), strict=True))
    assert max(opacity, key=lambda name: opacity[name]) == darkest


# -- one axis ------------------------------------------------------------------------------------


def estimate(mean: float, low: float | None, high: float | None) -> dict[str, float | None]:
    return {"mean": mean, "low": low, "high": high}


ESTIMATES = st.builds(
    lambda mean, half: estimate(
        mean, None if half is None else mean - half, None if half is None else mean + half
    ),
    st.floats(-1e6, 1e6),
    st.one_of(st.none(), st.floats(0, 1e6)),
)


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.none(), ESTIMATES), max_size=5))
def test_one_axis_holds_all_intervals_and_0_and_that_of_rates_is_0_to_1(
    estimates: list[dict[str, float | None] | None],
) -> None:
    low, high = axis_of(estimates)
    known = [value for one in estimates if one for value in one.values() if value is not None]
    assert (
        low < high
        and low <= 0
        and (
            not known
            or (
                low <= min(known) + 1e-9 * (1 + abs(low)) and max(known) <= high + 1e-9 * (1 + high)
            )
        )
    )
    if all(0 <= value <= 1 for value in known):
        assert (low, high) == (0.0, 1.0)


@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_the_same_numbers_have_the_same_marks_side_by_side(tmp_path: Path, scale: float) -> None:
    """A success and a return of .995 looked like certainty and like knowing nothing, each on an
    axis of its own."""
    played = [episode(task, task != 7) for task in range(60)]
    played = [replace(one, ledger=(Entry(0, "a", scale * one.returns()["a"]),)) for one in played]
    summary = judge().summarise(played)
    html = scores({"run": summary})
    marks = re.findall(r'<svg class="mark".*?</svg>', html)
    spans = [
        sorted(
            float(x) for x in re.findall(r'class="whisker" x1="([\d.]+)" x2="([\d.]+)"', mark)[0]
        )
        for mark in marks
    ]
    # sixty plays: narrow on both axes
    assert len(spans) == 2 and all(end - start < 0.2 * 112 for start, end in spans)
    assert ("0 … 1" in html) and (scale == 1 or "0 … 6" in html)


# -- exams ---------------------------------------------------------------------------------------


def test_exams_are_points_and_training_is_a_line_and_the_distance_from_an_equilibrium_comes_first(
    tmp_path: Path,
) -> None:
    rows: list[dict[str, Any]] = []
    for step in range(0, 6, 5):
        scores_of = {"return": {"a": step / 7}, "success": step / 9}
        rows.append(
            {
                "kind": "evaluation",
                "step": step,
                "sampled": scores_of,
                "nash_conv": 1.0 - step / 10,
                "exploitability": 0.5 - step / 20,
            }
        )
    rows += [{"kind": "train", "step": step, "return": {"a": step / 6}} for step in range(1, 6)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    html = own_curves("", tmp_path)
    order = [
        html.index(f"<h3>{name}</h3>")
        for name in ("nash_conv", "exploitability", "success", "return")
    ]
    assert order == sorted(order)
    charts = {
        name: html[html.index(f"<h3>{name}</h3>") :].split("</figure>", 1)[0]
        for name in ("nash_conv", "success", "return")
    }
    for name, lines in (("nash_conv", 0), ("success", 0), ("return", 1)):
        assert charts[name].count("<polyline") == lines, name
        assert "points: exams" in charts[name]
    # its two exams, their key, and no line that would tell what lay between
    assert charts["nash_conv"].count('<circle class="dot') == 2 + 1
    assert charts["return"].count('class="dot s0"') == 2 + 1  # the points, and their key


def test_points_have_whiskers_where_there_is_an_interval_and_gaps_where_there_is_none() -> None:
    series = {"a": [Mark(0.5, 0.2, 0.8), None, Mark(0.7)], "b": [None, None, None]}
    svg = whisker_chart(
        series, ["one", "two", "three"], title="t", x_label="x", y_label="y", y_range=(0.0, 1.0)
    )
    assert svg.count("<circle") == 2 and svg.count("whiskers") == 1 and svg.count("<polyline") == 1
    assert whisker_chart({"b": [None]}, ["one"], title="t", x_label="x", y_label="y") == ""
    assert "<polyline" not in whisker_chart(
        series, ["one", "two", "three"], title="t", x_label="x", y_label="y", joined=False
    )


@pytest.mark.parametrize("text", [HOSTILE, "</svg><script>", "a & b", "\x00\x1b[31m", "\ud800"])
def test_labels_of_plots_are_text(text: str) -> None:
    plots = [
        share_bar({text: 0.5}, title=text),
        heatmap([text], [text], {(text, text): Mark(0.5)}, title=text),
        whisker_chart(
            {text: [Mark(0.5)], "other": [Mark(0.2)]},
            [text],
            title=text,
            x_label=text,
            y_label=text,
        ),
    ]
    for svg in plots:
        assert (
            "<img" not in svg and "<script" not in svg and "\x00" not in svg and "\ud800" not in svg
        )
        svg.encode()
