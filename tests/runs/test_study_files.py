"""A study as a list, a table and a figure."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from gem_ma.cli.main import main
from gem_ma.kernel.errors import ConfigError
from gem_ma.pages.static.study_file import study_svg
from gem_ma.runs.store import list_runs, list_studies
from gem_ma.scores.sides import flat_rows, pass_k_rows

NAMES = (("=SUM(A1)", "x"), ("=SUM(A1)", "y"), ("b", "x"), ("b", "y"))


def told(mean: float) -> dict[str, Any]:
    return {"mean": mean, "low": mean - 0.125, "high": mean + 0.125, "method": "t", "n": 4}


def summary() -> dict[str, Any]:
    cells = []
    for place, names in enumerate(NAMES):
        paid = {"return one": told(30.25 + place), "return two": told(9.875), "+odd": told(0.5)}
        cells.append(
            {
                "names": dict(zip(("agents.one", "agents.two"), names, strict=True)),
                "run": f"run-{place}",
                **dict.fromkeys(("episodes", "ok", "tasks"), 4),
                "failed": place,
                "excluded": 0,
                "scores": paid if place else {**paid, "+odd": None},
                "pass_hat_k_intervals": [told(0.5), told(0.25 * (place > 1))][: 1 + (place != 1)],
            }
        )
    rest = dict(zip(("agents.one", "agents.two"), NAMES[3], strict=True))
    against = {"names": rest, "difference": 3.0, "low": 1.0, "high": 5.0, "p": 0.01}
    return {
        "axes": {"agents.one": ["=SUM(A1)", "b"], "agents.two": ["x", "y"]},
        "scores": ["return one", "return two", "+odd"],
        "compared": ["return one"],
        "rates": [],
        "cells": cells,
        "comparisons": {"return one": [{**against, "p_adjusted": 0.03}]},
    }


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "runs" / "who-1"
    path.mkdir(parents=True)
    (path / "study.json").write_text(json.dumps(summary()))
    return path


def drawn(svg: str) -> list[str]:
    """The texts of a drawing that can be read."""
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_csv_of_a_study_has_a_row_for_each_cell_and_no_formula(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "runs/who-1", "--to", "csv"]) == 0
    assert capsys.readouterr().out == "who-1.csv: 4 cells\n"
    with Path("who-1.csv").open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [row["one"] for row in rows] == ["'=SUM(A1)", "'=SUM(A1)", "b", "b"]
    assert rows[0]["return one / return two"] == "30.250 / 9.875"
    assert rows[2]["return one"] == "32.25" and rows[2]["return one: low"] == "32.125"
    assert rows[0]["'+odd"] == "" and rows[1]["'+odd"] == "0.5"
    assert [row["failed"] for row in rows] == ["0", "1", "2", "3"]
    assert rows[3]["return one: difference"] == "3.0"
    assert rows[3]["return one: difference p_adjusted"] == "0.03"
    assert rows[0]["return one: difference"] == ""
    assert [row["pass^2: high"] for row in rows] == ["0.125", "", "0.375", "0.375"]


def test_pass_hat_k_of_each_cell_stands_with_its_interval_in_a_table_and_a_figure(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, head = pass_k_rows(summary())
    assert head == ["one", "two", "pass^1", "pass^2"]
    assert rows[2] == ["b", "x", "0.500 [0.375, 0.625]", "0.250 [0.125, 0.375]"]
    assert rows[1][3] == ""
    single = summary()
    for cell in single["cells"]:
        del cell["pass_hat_k_intervals"][1:]
    assert pass_k_rows(single)[0] == []
    assert main(["export", "runs/who-1", "--to", "svg", "--score", "pass^k", "-o", "k.svg"]) == 0
    svg = Path("k.svg").read_text(encoding="utf-8")
    assert "b x y" in drawn(svg) and "pass^k by k" in drawn(svg)
    # a mark and a whisker for each number, and a mark for each name of the legend
    assert svg.count('stroke-width="2" stroke-opacity="0.6"') == 7
    assert sum(svg.count(f"<{shape} ") for shape in ("circle", "polygon")) == 7 + 4


def test_a_figure_of_two_axes_is_a_heatmap_that_stands_alone(study: Path) -> None:
    svg = study_svg(summary())
    words = drawn(svg)
    assert {"return one: one (rows) x two (columns)", "30.25", "33.25"} <= {*words}
    assert any("=SUM(A1)" in word for word in words)
    # no style sheet of a page is beside it: each shade and each text says its own colour
    assert "class=" not in svg and "var(" not in svg
    assert len(re.findall(r'<rect fill="#[0-9a-f]{6}" fill-opacity=', svg)) == 4
    assert svg.count("<text ") == svg.count('font-family="sans-serif"')
    other = study_svg(summary(), "+odd")
    # the cell without the score is empty
    assert other.count('fill="#f1efe9"') == 1 and "30.25" not in other


def test_a_figure_of_a_mix_draws_both_sides_and_of_one_axis_its_points() -> None:
    one = summary()
    one["axes"] = {"mix": ["0 a + 1 b", "1 a + 0 b"]}
    one["cells"] = one["cells"][:2]
    for cell, name in zip(one["cells"], one["axes"]["mix"], strict=True):
        cell["names"] = {"mix": name}
    assert "return one by mix" in drawn(study_svg(one))
    rows = [
        {"count": 0, "first": None, "second": told(1.0)},
        {"count": 1, "first": told(2.0), "second": None},
    ]
    words = drawn(study_svg({**one, "mix": {"players": ["a<b", "b"], "rows": rows}}))
    assert {"return a head by seats of a<b", "a<b", "b", "0", "1"} <= {*words}


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (["--to", "jsonl"], "a study is written as csv, svg, png; --to jsonl is for a run"),
        (["--to", "csv", "--agent", "one"], "--agent, --only and --scenario are for runs"),
        (["--to", "svg", "--score", "return on"], "did you mean 'return one'"),
        (["--to", "csv", "--score", "return one"], "--to csv has every score"),
    ],
)
def test_what_a_study_cannot_be_written_as_is_refused_in_a_line(
    study: Path, capsys: pytest.CaptureFixture[str], typed: list[str], line: str
) -> None:
    assert main(["export", "runs/who-1", *typed]) == 2
    assert line in capsys.readouterr().err and not [*Path.cwd().glob("who-1*")]


def test_more_than_two_axes_or_nothing_to_draw_is_refused() -> None:
    three = summary()
    three["axes"]["scenario.size"] = ["1"]
    with pytest.raises(ConfigError, match="one or two axes; this study has 3"):
        study_svg(three)
    empty = summary()
    for cell in empty["cells"]:
        cell["scores"] = {}
    with pytest.raises(ConfigError, match="no cell has a number to draw"):
        study_svg(empty)
    assert flat_rows(empty)[0]["return one"] is None


def test_axes_and_scores_of_one_name_keep_a_column_each() -> None:
    scores = {"months": told(1), "run": told(2)}
    names = {"scenario.seed": "7", "run.seed": "8", "scenario.months": "9", "agents.one": "b"}
    counts = dict.fromkeys(("episodes", "ok", "failed", "excluded"), 4)
    cell = {"names": names, "run": "run-0", **counts, "scores": scores}
    (row,) = flat_rows({"axes": names, "scores": scores, "cells": [cell], "comparisons": {}})
    kept = {**names, "one": "b", "months": 1, "run": "run-0", "measure run": 2}
    del kept["agents.one"]  # nothing else is called so
    assert kept.items() <= row.items()


def test_png_is_drawn_where_the_tool_is_there(
    study: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    assert main(["export", "runs/who-1", "--to", "png"]) == 2
    assert "pip install cairosvg" in capsys.readouterr().err

    def pixels(bytestring: bytes, scale: float) -> bytes:
        assert bytestring.startswith(b"<svg xmlns") and scale == 2
        return b"\x89PNG"

    monkeypatch.setitem(sys.modules, "cairosvg", SimpleNamespace(svg2png=pixels))
    assert main(["export", "who-1", "--to", "png"]) == 0
    assert Path("who-1.png").read_bytes() == b"\x89PNG"


def test_studies_are_listed_with_what_they_compare_and_a_damaged_one_says_so(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("torn", '{"axes": '), ("list", "[]"), ("other", '{"axes": {}}')):
        (study.parent / name).mkdir()
        (study.parent / name / "study.json").write_text(text)
    (study.parent / "run").mkdir()
    (study.parent / "run" / "manifest.json").write_text("{}")
    assert main(["list", "studies"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and lines[0].split() == [
        *("study", "compared", "axes", "cells", "episodes", "scores", "tags")
    ]
    assert "2 one x 2 two" in lines[1] and "16 (6 failed)" in lines[1] and "return one" in lines[1]
    assert sum("unreadable:" in line for line in lines) == 3
    found: Mapping[str, Any] = list_studies(study.parent)[0]
    assert found["cells"] == 4 and found["error"] is None
    assert list_studies(study / "nowhere") == []
    assert main(["list", "studies", "--root", "nowhere"]) == 0
    assert capsys.readouterr().out == "no studies in nowhere\n"


@pytest.mark.long
def test_a_tag_of_a_study_reaches_its_cells_its_pages_and_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "scenario: {id: dilemma, tasks: 2}\nmix: {players: [always_defect, grim]}\n"
    Path("who.yaml").write_text(text)
    plain = ("study", "who.yaml", "--quiet")
    assert main([*plain, "--tag", "pilot", "--tag", "a, <b>"]) == 0
    (path,) = Path("runs").iterdir()
    cells = [run for run in path.iterdir() if run.is_dir()]
    assert [run["tags"] for run in list_runs(path)] == [["pilot", "a, <b>"]] * 3
    for page in (path, *cells):
        facts = (page / "report.html").read_text()
        assert "<dt>tags</dt><dd>pilot, a, &lt;b&gt;</dd>" in facts
    # typed later it is one more, of the same study; not typed, none is lost
    assert main([*plain, "--tag", "second"]) == 0 and main([*plain]) == 0
    assert [*Path("runs").iterdir()] == [path]
    assert list_studies(Path("runs"))[0]["tags"] == ["pilot", "a, <b>", "second"]
    capsys.readouterr()
    assert main(["list", "studies"]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith("  pilot, a, <b>, second")
