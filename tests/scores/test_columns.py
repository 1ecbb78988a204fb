"""Every column that is declared is counted, kept, printed, shown on a page, and explained."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from gem_ma.kernel.episode import End, Episode, Seat
from gem_ma.kernel.types import Action, Attempt, Malformed, Reply, ToolCall, Turn, Usage
from gem_ma.pages.static.report import write_report
from gem_ma.pages.static.study import study_sections
from gem_ma.runs.run import Run
from gem_ma.runs.store import RunFolder
from gem_ma.scores.columns import COLUMNS, column_rows, costs, usages_of
from gem_ma.scores.judge import Judge
from gem_ma.scores.rows import Rows
from gem_ma.scores.studies import Cell, Names, cell_of, study_summary

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "summary.md"
# no words, two tokens, from a model of another name
SILENT = Reply("", (), (), (), (), "stop", "main", usage=Usage(7, 2), model="other")
TRIED = replace(SILENT, text="done ###STOP###", attempts=(Attempt("rate_limit", 429, 0.1),))


def plays() -> list[Episode]:
    calls = (Malformed("{", "not_json"), ToolCall("1", "look", {}))
    turns = (
        Turn(0, "a", (), ("x",), (), Action("y", calls, None, cut=3), (SILENT,)),
        *(Turn(step, "a", (), None, (), Action("done"), (TRIED,)) for step in (1, 2, 3, 4)),
    )
    cast = {"a": Seat("direct", "main"), "b": Seat("direct", "dumb")}
    silent = Turn(5, "b", (), None, (), Action(""), (replace(SILENT, policy="dumb"),))
    return [
        Episode("toy", 1, seed, "test/0", 0, None, cast, (*turns, silent), (), (), {}, (), end)
        for seed, end in enumerate((End.TERMINATED, End.MAX_TURNS, End.FAILED))
    ]


def test_every_column_is_kept_printed_shown_and_explained(tmp_path: Path) -> None:
    judge = Judge()
    summary = judge.summarise(plays())
    # of the prices and of what was asked the config knows
    prices = {"main": lambda usage: 0.25, "dumb": lambda usage: 0.5}
    summary |= {
        "costs": costs(map(usages_of, plays()), prices),
        "other_models": {"main": {"other": 15}},
    }
    # of teams the scenario knows, which is none here
    some = {"mean": 0.5, "low": 0.25, "high": 0.75, "n": 2, "method": "t over tasks", "rate": False}
    summary |= {
        "groups": {"team x": {**some, "agents": 2, "spread": None}},
        "won": {"team x": some},
    }
    assert {column.key for column in COLUMNS} <= summary.keys()
    with RunFolder.open(tmp_path / "run", config_text="", resolved={}, manifest={}) as run:
        run.append(plays())
        run.write_summary(summary, of_all=True)
    page = write_report(tmp_path / "run", judge=judge).read_text("utf-8")
    printed = dict(column_rows(summary, ("row", "table", "score")))
    table = Run.of(tmp_path / "run")._repr_html_()
    explained = PAGE.read_text("utf-8")
    for column in COLUMNS:
        assert f"| `{column.key}` |" in explained and column.tells in explained
        lines = column.lines(summary[column.key])
        assert lines, f"{column.key} says nothing of these plays"
        for who, text in lines if column.shown != "json" else ():
            # a table of a page has a column for each number
            shown = text.partition(" a head")[0]
            assert shown in re.sub("<[^>]+>", " ", page), column.key
            if column.shown != "page":
                assert printed[f"{column.name} {who}".strip()] == text and text in table
    # 5 requests of a in each of three plays, one of b
    assert printed["cost"] == "$5.25" and printed["turns per episode"] == "6.000"
    assert summary["cut"]["a"] == {"sayings": 2, "of": 10, "bytes": 6} and summary["retried"] == 3
    assert summary["tool_calls"] == {"a": 2.0, "b": 0.0}
    assert summary["truncated"] == 0.5 and summary["model_calls"] == 12
    assert summary["served"] == {"dumb": {"other": 3}, "main": {"other": 15}}
    assert printed["illegal a"] == "100.0 %" and printed["malformed calls a"] == "50.0 %"


def test_a_study_keeps_and_shows_the_columns_that_stand_in_tables(tmp_path: Path) -> None:
    cells: dict[Names, Cell] = {
        (name,): cell_of([*map(Rows().of, plays())], Judge()) for name in "xy"
    }
    summary = study_summary({"axis": ("x", "y")}, cells, ("x",), resamples=100)
    wanted = [column for column in COLUMNS if column.shown == "table"]
    assert wanted and {column.key for column in wanted} <= summary["cells"][0].keys()
    *_, whole = study_sections(tmp_path, {**summary, "command": ""}, tables=(), plots=())
    for column in wanted:
        assert f">{column.name}<" in whole.figures[0] and ">6.000<" in whole.figures[0]
