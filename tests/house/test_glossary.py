"""docs/glossary.md: a word has one meaning, so one class at most is called by it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
WORDS = [
    word.strip()
    for row in re.findall(r"^\| \*\*([^*]+)\*\* \|", PAGE, re.MULTILINE)
    for word in row.split(",")
]


def class_names(tree: ast.Module) -> set[str]:
    """Classes of a module, and types that it gives a name."""
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.add(node.targets[0].id)
    return {name.lstrip("_") for name in names if name.lstrip("_")[:1].isupper()}


@pytest.fixture(scope="module")
def homes() -> dict[str, list[str]]:
    """Name of a class -> the files that make one."""
    found = defaultdict(list)
    for room in ("gem_ma", "scenarios", "agents"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for name in class_names(ast.parse(path.read_text(encoding="utf-8"))):
                found[name].append(str(path.relative_to(ROOT)))
    return found


@pytest.mark.parametrize("word", WORDS)
def test_one_class_at_most_is_called_by_a_word(word: str, homes: dict[str, list[str]]) -> None:
    name = "".join(part.capitalize() for part in re.split(r"[ _-]", word))
    assert len(homes.get(name, [])) <= 1, homes[name]
