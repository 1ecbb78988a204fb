"""The notebook in docs runs from top to bottom, as a notebook runs it: with an event loop that is
there already, one cell after the other, and the value of a last line shown."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "first_steps.ipynb"


async def shown_by(cells: list[str]) -> list[Any]:
    """The value of each cell's last line, None where it has none."""
    names: dict[str, Any] = {"__name__": "__main__"}
    values = []
    for cell in cells:
        tree = ast.parse(cell)
        last = tree.body[-1]
        if isinstance(last, ast.Expr):
            # what a notebook shows is the value of the last line
            tree.body[-1] = ast.Assign([ast.Name("_", ast.Store())], last.value)
            ast.fix_missing_locations(tree)
        names["_"] = None
        code = compile(tree, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        made = eval(code, names)
        if inspect.isawaitable(made):
            await made
        values.append(names["_"])
    return values


@pytest.mark.longest
def test_every_cell_runs_and_shows_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    # results are of the machine that ran it, and would be in every change of the file
    assert not any(cell.get("outputs") for cell in cells)
    values = asyncio.run(
        shown_by(["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"])
    )
    run, talk, successes, coin, trained = values
    assert "<table>" in run._repr_html_() and "success" in run._repr_html_()
    for episode in (talk, coin):
        page = episode._repr_html_()
        assert all(f">{agent}</th>" in page for agent in episode.cast)
    assert successes[0] > successes[1] and trained.success > trained["before"]["sampled"]["success"]
    assert "success" in trained._repr_html_()
    printed = capsys.readouterr()
    assert "to_lost" in printed.out and "->" in printed.out and not printed.err
