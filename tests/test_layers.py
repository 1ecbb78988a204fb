"""The rooms: each stands above all that it imports. Read from the source, imports inside functions
and those for type checkers included."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import gem_ma

ROOT = Path(__file__).resolve().parents[1]
# from the ground up; rooms of one floor do not import each other, but for what SAME_FLOOR allows
FLOORS = {
    0: {"kernel"},
    1: {"record"},
    2: {"system"},
    3: {"registry"},
    4: {"engines", "wrappers"},
    5: {"driver"},
    6: {"config", "envs", "serving", "tools"},
    7: {"credit", "testing", "worlds"},
    8: {"scores"},
    9: {"runs"},
    10: {"training"},
    11: {"api", "pages"},
    12: {"cli", "trainers"},
    13: {"__main__"},
}
SAME_FLOOR: dict[str, set[str]] = {}
KNOWN_CIRCLES: set[frozenset[str]] = set()  # of modules
FLOOR_OF = {room: floor for floor, rooms in FLOORS.items() for room in rooms}
# whoever reads what was kept needs nothing that plays
NEVER = {
    "scores": {"envs", "tools", "worlds"},
    "pages": {"envs", "tools", "worlds"},
}
HEAVY = {
    *("accelerate", "peft", "safetensors", "tokenizers", "torch", "transformers"),
    *("aiohttp", "openai", "ray", "tensorboard", "trackio", "vllm", "wandb"),
}
HEAVY_ROOMS = {"cli", "engines", "pages", "trainers", "training", "worlds"}
# what scenarios and agents may import; all else by `from gem_ma import name`
OPEN_TO_AUTHORS = (
    *("kernel.effects", "kernel.episode", "kernel.errors", "kernel.parsing", "kernel.scenario"),
    *("kernel.talk", "kernel.types", "scores", "testing"),
    "system.extras",  # what to type for an extra that is missing
    "system.folders",  # a file that a config names
    "system.options",
    "tools",  # the guarded worker: a grader that runs what a model wrote
)


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


def imports(source: str, *, top: bool = False, typed: bool = True) -> Iterator[str]:
    """Every imported module or name as a dotted path; with `top`, only what runs when the module
    is imported; without `typed`, less what only type checkers read."""
    skipped: set[ast.AST] = set()
    guarded = "TYPE_CHECKING" in source
    for node in ast.walk(parsed(source)):
        body: list[ast.stmt] = []
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body if top else []
        elif guarded and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            body = node.body if top or not typed else []
        skipped |= {inner for part in body for inner in ast.walk(part)}
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from (f"{base}.{alias.name}" for alias in node.names)


def room_of(path: str) -> str | None:
    """The room of gem_ma behind an imported path; None for the version and the package itself."""
    public = gem_ma._PUBLIC.get(path.removeprefix("gem_ma."))
    parts = (public or path).split(".")
    if parts[0] != "gem_ma" or len(parts) == 1:
        return None
    return None if parts[1].startswith("__") and parts[1] != "__main__" else parts[1]


def faults(file: str, source: str) -> list[str]:
    """Sentences about the imports of a file, whose path is relative to the checkout."""
    home = Path(file).parts[file.startswith("gem_ma/")].removesuffix(".py")
    if file.startswith("scenarios/service_desk/agents/"):  # behaviours, beside the desk they sit at
        home = "agents"
    found = []
    for path in imports(source):
        room = room_of(path)
        library = path.split(".")[0]
        if path.startswith("."):
            found.append(f"{file}: {path}: imports are absolute")
        elif library in ("scenarios", "agents"):
            found.append(f"{file}: {path}: the package is called gem_ma.{library}")
        elif room is not None and home != "__init__" and not is_allowed(home, room, path):
            found.append(f"{file}: {home} may not import gem_ma.{room}")
        elif (library in HEAVY and home not in HEAVY_ROOMS) or (
            home == "kernel" and library not in {"gem_ma", *sys.stdlib_module_names}
        ):
            found.append(f"{file}: {home} may not import {library}")
    found += [
        f"{file}: {home} may not import {path.split('.')[0]} at its top"
        for path in imports(source, top=True)
        if path.split(".")[0] in HEAVY
    ]
    return list(dict.fromkeys(found))


def is_allowed(home: str, room: str, path: str) -> bool:
    if home == room:
        return True
    if home in ("scenarios", "agents"):
        name = path.removeprefix("gem_ma.")
        if name in gem_ma._PUBLIC:
            return True
        if name.split(".")[-1].startswith("_") or (home, room) == ("scenarios", "agents"):
            return False
        return room == "scenarios" or any(f"{name}.".startswith(f"{m}.") for m in OPEN_TO_AUTHORS)
    # scenarios and agents are found by the registry, never by name
    if room not in FLOOR_OF or room in NEVER.get(home, ()):
        return False
    return FLOOR_OF[room] < FLOOR_OF[home] or room in SAME_FLOOR.get(home, ())


def files() -> list[str]:
    return sorted(
        str(path.relative_to(ROOT))
        for room in ("gem_ma", "scenarios", "agents")
        for path in (ROOT / room).rglob("*.py")
    )


def module_of(file: str) -> str:
    """The dotted name under which a file, relative to the checkout, is imported."""
    parts = Path(file).with_suffix("").parts
    home = parts if parts[0] == "gem_ma" else ("gem_ma", *parts)
    return ".".join(home).removesuffix(".__init__")


def arrows(sources: dict[str, str]) -> dict[str, set[str]]:
    """Module -> the modules of the house that it imports, at its top or inside a function. What
    only type checkers read is left out, and so is the lazy facade `gem_ma` itself."""
    drawn: dict[str, set[str]] = {}
    for module, source in sources.items():
        drawn[module] = set()
        for path in imports(source, typed=False):
            first, _, name = path.partition(".")
            target = gem_ma._PUBLIC.get(name, path) if first == "gem_ma" else path
            while target not in sources and "." in target:  # a name inside a module
                target = target.rpartition(".")[0]
            if target in sources and target not in (module, "gem_ma"):
                drawn[module].add(target)
    return drawn


def circles(drawn: dict[str, set[str]]) -> set[frozenset[str]]:
    """The largest groups of modules that all reach each other."""
    reached: dict[str, set[str]] = {}
    for module in drawn:
        seen, left = set[str](), [module]
        while left:
            for target in drawn[left.pop()] - seen:
                seen.add(target)
                left.append(target)
        reached[module] = seen
    return {
        frozenset(other for other in seen if module in reached[other])
        for module, seen in reached.items()
        if module in seen
    }


@pytest.mark.longest
def test_no_modules_import_each_other_in_a_circle() -> None:
    sources = {module_of(file): (ROOT / file).read_text(encoding="utf-8") for file in files()}
    assert circles(arrows(sources)) == KNOWN_CIRCLES


@pytest.mark.longest
def test_a_room_stands_above_all_that_it_imports() -> None:
    # all at once: a test for each file would cost more than what it looks at
    found = {file: faults(file, (ROOT / file).read_text(encoding="utf-8")) for file in files()}
    assert {file: why for file, why in found.items() if why} == {}


def test_every_room_has_a_floor() -> None:
    rooms = {Path(file).parts[1].removesuffix(".py") for file in files() if "gem_ma/" in file}
    assert rooms - {"__init__"} == FLOOR_OF.keys()


@pytest.mark.parametrize(
    ("file", "source", "fault"),
    [
        ("gem_ma/kernel/types.py", "import gem_ma.cli", "gem_ma.cli"),
        ("gem_ma/kernel/types.py", "from gem_ma import cli", "gem_ma.cli"),
        ("gem_ma/kernel/types.py", "def f():\n    from gem_ma.cli.main import main", "gem_ma.cli"),
        ("gem_ma/kernel/types.py", "from gem_ma import play", "gem_ma.driver"),
        ("gem_ma/kernel/types.py", "import numpy", "numpy"),
        ("gem_ma/engines/base.py", "from gem_ma.envs.aec import aec_env", "gem_ma.envs"),
        ("gem_ma/driver/rollout.py", "import gem_ma.scenarios.kuhn", "gem_ma.scenarios"),
        ("gem_ma/driver/rollout.py", "import torch", "torch"),
        ("gem_ma/engines/base.py", "import torch.nn", "torch at its top"),
        ("gem_ma/scores/metrics.py", "import gem_ma.worlds.gem", "gem_ma.worlds"),
        ("gem_ma/runs/store/__init__.py", "import gem_ma.pages.static", "gem_ma.pages"),
        ("scenarios/kuhn.py", "from gem_ma.driver.rollout import Plan", "gem_ma.driver"),
        ("scenarios/kuhn.py", "from gem_ma.agents.bots import Silent", "gem_ma.agents"),
        ("agents/bots.py", "from gem_ma.kernel.scenario import _name", "gem_ma.kernel"),
    ],
)
def test_a_forbidden_import_is_named_in_one_line(file: str, source: str, fault: str) -> None:
    home = file.removeprefix("gem_ma/").split("/")[0]
    assert f"{file}: {home} may not import {fault}" in faults(file, source)


@pytest.mark.long
def test_no_engine_imports_another() -> None:
    shared = {"endpoint", "models"}
    rooms = {path.parent.name for path in (ROOT / "gem_ma" / "engines").glob("*/__init__.py")}
    assert shared < rooms
    for path in (ROOT / "gem_ma" / "engines").glob("*/*.py"):
        home = path.parent.name
        parts = [name.split(".") for name in imports(path.read_text("utf-8"))]
        others = {part[2] for part in parts if part[:2] == ["gem_ma", "engines"] and len(part) > 2}
        allowed = {home, "endpoint", "models"} if home not in shared else {home}
        assert others & rooms <= allowed, path
