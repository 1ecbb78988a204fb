"""Rooms of the service desk import from those above them alone, as its README lists them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

DESK = Path(__file__).resolve().parents[2] / "scenarios" / "service_desk"
TABLES = [
    re.findall(r"^\| `([a-z]+)(?:/|\.py)` \|", table, re.M)
    for table in (DESK / "README.md").read_text("utf-8").split("\n\n")
    if table.startswith("| room")
]


def imported(file: Path, package: str) -> set[str]:
    """The rooms of a package that a file imports."""
    nodes = ast.walk(ast.parse(file.read_text("utf-8")))
    modules = (node.module or "" for node in nodes if isinstance(node, ast.ImportFrom))
    return {
        name.removeprefix(package).split(".")[0] for name in modules if name.startswith(package)
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("rooms", "folder", "package"),
    [
        (TABLES[0], DESK, "gem_ma.scenarios.service_desk."),
        (TABLES[1], DESK / "retail", "gem_ma.scenarios.service_desk.retail."),
    ],
)
def test_rooms_import_from_those_above_them(rooms: list[str], folder: Path, package: str) -> None:
    assert len(rooms) >= 4
    for place, room in enumerate(rooms):
        single = folder / f"{room}.py"
        for file in [single] if single.is_file() else (folder / room).rglob("*.py"):
            assert imported(file, package) <= set(rooms[: place + 1]), file


def test_every_room_is_listed() -> None:
    found = {path.stem for path in DESK.iterdir() if path.name[0] not in "_R"}
    assert found == set(TABLES[0])
