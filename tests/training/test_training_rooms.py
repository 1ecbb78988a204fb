"""The rooms of training: no file needs one that needs it, and the loop knows nothing of torch."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TRAINING = Path(__file__).parents[2] / "gem_ma" / "training"
# whoever imports one of these can train language models only
TORCH_BOUND = {"cloning", "forward", "probes", "replay", "torch_critic"}
TORCH_BOUND |= {"torch_learner", "trained", "weights"}


def needs(path: Path) -> set[str]:
    """The modules of training that a file imports, wherever it does so."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gem_ma.training"):
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            modules |= {name for name in inside if name in FILES} or {str(node.module)}
    return modules


FILES = {
    "gem_ma.training." + ".".join(path.relative_to(TRAINING).with_suffix("").parts): path
    for path in TRAINING.rglob("*.py")
    if path.stem != "__init__"
}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Files that all need another one of these; empty where there is an order to read them in."""
    left = dict(graph)
    while free := [name for name, below in left.items() if not below & left.keys()]:
        for name in free:
            del left[name]
    return sorted(left)


def test_files_have_an_order_to_be_read_in() -> None:
    assert circle({name: needs(path) for name, path in FILES.items()}) == []


@pytest.mark.parametrize(
    "name", [n for n in FILES if ".loop." in n or n.endswith((".train", ".entry"))]
)
def test_only_the_opening_of_a_run_knows_torch(name: str) -> None:
    bound = {module.rpartition(".")[2] for module in needs(FILES[name])} & TORCH_BOUND
    assert name.endswith(".entry") or bound == set()
