"""What stands below the scores of a run's page, and the plots that show it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gem_ma.evaluation.judge import Judge
from gem_ma.store import RunFolder
from gem_ma.types import Action, End, Entry, Episode, Seat, Turn
from gem_ma.view.details import details
from gem_ma.view.plots import Mark, heatmap, share_bar, whisker_chart
from gem_ma.view.report import Section, write_report


def episode(task: int, won: bool, repeat: int = 0, end: End = End.TERMINATED) -> Episode:
    turn = Turn(0, "a", (), None, (), Action("x"))
    ledger = (Entry(0, "a", float(won)),)
    return Episode(
        "toy", 1, 0, f"test/{task}", repeat, None, {"a": Seat("silent")}, (turn,), (), (), {}, ledger, end, "E" if end is End.FAILED else None
    )


PLAYED = [episode(task, (task + repeat) % 3 > 0, repeat) for task in range(9) for repeat in range(2)]
HOSTILE = '<img src=x onerror="alert(1)">'


def judge(name: str = "") -> Judge:
    def success(one: Episode) -> bool:
        return one.returns()["a"] > 0

    return Judge(
        success,
        lambda one: {f"words{name}": 2.0, f"faults{name}": 0.0},
        lambda one: {f"intent{name}": (f"cancel{name}", f"return{name}")[: 1 + one.repeat], **({} if success(one) else {"blame": f"user{name}"})},
    )


def test_a_page_shows_pass_k_measures_labels_and_blame_with_their_numbers(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", config_text="", resolved={"scenario": {"id": "toy"}}, manifest={"command": "run"}) as folder:
        folder.append(PLAYED)
    page = write_report(tmp_path / "run", judge=judge()).read_text()
    for said in ("pass^k: all of k tries of a task succeed", "by intent", "blame of the 6 lost episodes", "0 in every episode: faults"):
        assert said in page
    assert page.count('<svg class="chart"') == 2  # the curve and the bar
    summary = judge().summarise(PLAYED)
    assert f"{summary['pass_hat_k'][1]:.3f} [" in page


def test_of_several_runs_the_further_scores_are_folded(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with RunFolder.open(tmp_path / name, config_text="", resolved={"scenario": {"id": "toy"}}, manifest={"command": "run"}) as folder:
            folder.append(PLAYED)
    both = Section("Both", runs=[tmp_path / "one", tmp_path / "two"], judge=judge())
    page = write_report(out=tmp_path / "page.html", sections=[both]).read_text()
    assert "<summary>one: more scores</summary>" in page and "two: by intent" in page
    assert "more scores" not in write_report(tmp_path / "one", judge=judge()).read_text()


def test_a_stored_summary_of_an_older_version_is_made_anew_where_measures_are_wanted(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", config_text="", resolved={"scenario": {"id": "toy"}}, manifest={"command": "run"}) as folder:
        folder.append(PLAYED)
        old = {key: value for key, value in Judge(judge().success).summarise(PLAYED).items() if key not in ("measures", "labels", "tries")}
        folder.write_summary(old)
    assert "by intent" in write_report(tmp_path / "run", judge=judge()).read_text()
    assert "by intent" not in write_report(tmp_path / "run", success=judge().success).read_text()


def test_names_that_a_scenario_gives_cannot_write_markup() -> None:
    summary = judge(HOSTILE).summarise([*PLAYED, episode(20, False, end=End.FAILED)])
    baseline = {"cast": {"a": HOSTILE}, "success": summary["success"], "returns": summary["returns"], "tasks": 1, "of": 2}
    summary["baselines"] = {HOSTILE: {**baseline, "ok": 1, "failed": 0, "excluded": 0}}
    html = "".join(details(HOSTILE, summary))
    assert "<img" not in html and html.count("&lt;img") > 5


def test_a_summary_of_nothing_has_no_details() -> None:
    assert details("", Judge().summarise([])) == []


# -- plots ----------------------------------------------------------------------------------------------------------------------


def widths(svg: str) -> list[float]:
    return [float(width) for width in re.findall(r'class="part s\d" x="[\d.]+" y="4" width="([\d.]+)"', svg)]


def test_a_bar_is_split_by_share_and_never_wider_than_whole() -> None:
    assert widths(share_bar({"a": 0.5, "b": 0.25, "none": 0.0}, title="t")) == [pytest.approx(358.5), pytest.approx(178.5)]
    several = widths(share_bar({"a": 1.0, "b": 1.0}, title="t"))  # an episode with two causes counts for both
    assert sum(several) < 720 and several[0] == several[1]
    assert share_bar({"a": 0.0}, title="t") == "" == share_bar({}, title="t")


def test_a_heatmap_is_darkest_where_the_mean_is_highest() -> None:
    svg = heatmap(["r"], ["x", "y", "z"], {("r", "x"): Mark(0.0), ("r", "y"): Mark(1.0, 0.5, 1.0)}, title="t", rate=True)
    assert [float(found) for found in re.findall(r'fill-opacity="([\d.]+)"', svg)] == [0.05, 0.5]
    assert svg.count('class="rest"') == 1  # the cell that was not played
    assert "0.50 to 1.00" in svg
    same = heatmap(["r"], ["x"], {("r", "x"): Mark(7.0)}, title="t")
    assert "7.00" in same and heatmap([], [], {}, title="t") == ""


def test_points_have_whiskers_where_there_is_an_interval_and_gaps_where_there_is_none() -> None:
    series = {"a": [Mark(0.5, 0.2, 0.8), None, Mark(0.7)], "b": [None, None, None]}
    svg = whisker_chart(series, ["one", "two", "three"], title="t", x_label="x", y_label="y", y_range=(0.0, 1.0))
    assert svg.count("<circle") == 2 and svg.count("whiskers") == 1 and svg.count("<polyline") == 1
    assert whisker_chart({"b": [None]}, ["one"], title="t", x_label="x", y_label="y") == ""
    assert "<polyline" not in whisker_chart(series, ["one", "two", "three"], title="t", x_label="x", y_label="y", joined=False)


@pytest.mark.parametrize("text", [HOSTILE, "</svg><script>", "a & b", "\x00\x1b[31m", "\ud800"])
def test_labels_of_plots_are_text(text: str) -> None:
    plots = [
        share_bar({text: 0.5}, title=text),
        heatmap([text], [text], {(text, text): Mark(0.5)}, title=text),
        whisker_chart({text: [Mark(0.5)], "other": [Mark(0.2)]}, [text], title=text, x_label=text, y_label=text),
    ]
    for svg in plots:
        assert "<img" not in svg and "<script" not in svg and "\x00" not in svg and "\ud800" not in svg
        svg.encode()
