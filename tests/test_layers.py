"""The floors: a room stands above all that it imports. Read from the source, imports inside
functions included."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import gem_ma

ROOT = Path(__file__).resolve().parents[1]
FLOORS = {
    0: {
        "errors",
        "gymnasium_ids",
        "import_folders",
        "digests",
        "used",
        "frozen",
        "decimals",
        "types",
        "sampling",
        "episode",
        "lanes",
        "transcript",
        "codec",
        "json_text",
        "shapes",
        "choices",
        "conversations",
        "pictures",
        "png",
        "parsing",
        "config.document",
        "spelling",
        "config.seating",
        "config.shares",
        "config.worlds_written",
        "installing",
        "files",
        "folders",
        "config.secrets",
        "env_file",
        "options",
    },
    1: {
        "effects",
        "wrappers",
        "exchange",
        "effect_values",
        "script",
        "scenario",
        "calling",
        "registry",
        "behaviour",
        "config.playing",
        "config.learning",
        "config.opponents",
        "config.training",
        "config.settings",
        "config.studies",
        "config.paths",
        "config.options",
        "config.fit",
        "config.fit_keys",
        "config.fit_scenario",
        "config.fit_training",
        "config.defaults",
        "config.sources",
        "config.schema",
        "config.json_schema",
        "config.grid",
        "config",
        "config.loading",
        "config.casts",
        "engines.capabilities",
    },
    2: {"envs", "adapters", "tools", "engines", "testing"},
    3: {
        "hearing",
        "limits",
        "memory",
        "policy_faults",
        "serving",
        "together",
        "seats",
        "branches",
        "admission",
        "crew",
        "rollout",
        "config.plans",
        "config.worlds",
        "store",
        "tracking",
        "observed",
        "credit",
        "turn_table",
        "estimators",
        "evaluation",
        "exporting",
        "view",
    },
    4: {"training"},
    5: {"running"},
    6: {"cli", "entrance", "gym_like", "integrations", "viewer", "__main__"},
}
SAME_FLOOR = {  # who may import whom on its own floor
    "shapes": {"parsing"},
    "json_text": {"errors", "parsing"},
    "episode": {"frozen", "lanes", "types"},
    "transcript": {"types"},
    "codec": {"choices", "conversations", "episode", "errors", "types", "json_text", "shapes"},
    "parsing": {"spelling", "errors", "types"},
    "types": {"errors", "frozen", "png", "sampling"},
    "pictures": {"episode", "types"},
    "config.document": {"errors"},
    "config.worlds_written": {"config.document", "config.seating"},
    "used": {"digests"},
    "files": {"json_text", "errors"},
    "folders": {"errors", "files"},
    "config.secrets": {"config.document", "env_file", "errors"},
    "env_file": {"errors", "files"},
    "wrappers": {"effects", "effect_values", "registry"},
    "exchange": {"effect_values"},
    "script": {"effect_values"},
    "scenario": {"effect_values", "effects", "exchange", "script"},
    "calling": {"scenario"},
    "registry": {"scenario"},
    "behaviour": {"registry", "scenario"},
    "serving": {"limits"},
    "config.learning": {"config.playing"},
    "config.opponents": {"config.playing"},
    "config.training": {"config.learning", "config.opponents", "config.playing"},
    "config.settings": {"config.playing", "config.training"},
    "config.studies": {"config.playing"},
    "config.paths": {"config.playing", "config.settings", "registry"},
    "config.fit_training": {
        "behaviour",
        "config.learning",
        "engines.capabilities",
        "registry",
    },
    "config.fit_scenario": {
        "config.options",
        "config.paths",
        "config.playing",
        "registry",
        "scenario",
    },
    "config.fit": {
        "behaviour",
        "config.fit_keys",
        "config.fit_scenario",
        "config.fit_training",
        "config.options",
        "config.playing",
        "registry",
    },
    "config.defaults": {
        "config.fit_keys",
        "config.fit_scenario",
        "config.fit_training",
        "engines.capabilities",
        "registry",
    },
    "config.sources": {"config.paths", "registry"},
    "config.casts": {"behaviour", "config.playing", "config.settings", "scenario"},
    "config.grid": {"config.schema", "config.settings", "config.studies"},
    "config.json_schema": {"config.settings", "config.studies"},
    "config": {"config.loading"},
    "config.loading": {
        "config.defaults",
        "config.fit",
        "config.fit_scenario",
        "config.grid",
        "config.paths",
        "config.schema",
        "config.settings",
        "config.sources",
        "config.studies",
        "registry",
    },
    "testing": {"envs"},
    "tools": {"engines"},  # how a local model is loaded, and how the key of a server is hidden
    "adapters": {"tools"},  # graders that evaluate an answer run in the guarded worker
    "seats": {"hearing", "limits", "memory", "policy_faults", "together"},
    "branches": {"seats"},
    "rollout": {"hearing", "limits", "policy_faults", "seats", "branches"},
    "crew": {"admission", "rollout"},
    "config.plans": {"memory", "rollout"},
    "config.worlds": {"config.plans", "evaluation", "rollout"},
    "turn_table": {"observed"},
    "credit": {"turn_table"},
    "estimators": {"credit", "turn_table"},
    "tracking": {"store"},
    "exporting": {"credit", "evaluation", "store"},
    "view": {"store", "evaluation"},
    "integrations": {"entrance"},
    "cli": {"viewer"},
    "__main__": {"cli"},
}
NEVER = {  # allowed by the floors and still refused: these read episodes only
    "evaluation": {"engines", "envs", "tools", "adapters"},
    "view": {"engines", "envs", "tools", "adapters"},
}
# Circles of modules that still stand, each as the set of its members. It may only shrink.
KNOWN_CIRCLES: set[frozenset[str]] = set()
FLOOR_OF = {room: floor for floor, rooms in FLOORS.items() for room in rooms}
TRACKERS = {"tensorboard", "wandb", "trackio"}
HEAVY = {
    "torch",
    "transformers",
    "peft",
    "accelerate",
    "safetensors",
    "tokenizers",
    "vllm",
    "openai",
    "h11",
    "ray",
    *TRACKERS,
}
HEAVY_ROOMS = {"engines", "training", "cli", "adapters", "tracking", "integrations", "viewer"}
# all else by `from gem_ma import name`
OPEN_TO_AUTHORS = {
    "effects",
    "episode",
    "errors",
    "evaluation",
    "folders",  # a file that a config names
    "installing",  # what to type for an extra that is missing
    "options",
    "parsing",
    "scenario",
    "testing",
    "tools",  # the guarded worker: a grader that runs what a model wrote
    "types",
}


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
    """The room of gem_ma behind an imported path; None for what is no room (the version, the
    package itself)."""
    parts = path.split(".")
    if parts[0] != "gem_ma" or len(parts) == 1:
        return None
    public = gem_ma._PUBLIC.get(parts[1]) if len(parts) == 2 else None
    parts = public.split(".") if public else parts
    # the files of `config` stand on several floors
    inner = ".".join(parts[1:3])
    name = inner if inner in FLOOR_OF else parts[1]
    return None if name.startswith("__") and name != "__main__" else name


def faults(file: str, source: str) -> list[str]:
    """Sentences about the imports of a file, whose path is relative to the checkout."""
    parts = Path(file).with_suffix("").parts
    module = ".".join(parts if parts[0] == "gem_ma" else ("gem_ma", *parts)).removesuffix(
        ".__init__"
    )
    home = parts[1] if parts[0] == "gem_ma" and len(parts) > 1 else parts[0]
    if home == "__init__":
        home = "gem_ma"
    inner = ".".join(module.split(".")[1:3])
    home = inner if inner in FLOOR_OF else home
    told = str(Path(*parts[1:]).with_suffix(".py")) if parts[0] == "gem_ma" else file
    found = []
    for path in imports(source):
        room = room_of(path)
        if path.startswith("."):
            found.append(f"{told}: {module} may not import {path}: imports are absolute")
        elif path.split(".")[0] in ("scenarios", "agents"):
            found.append(
                f"{told}: {module} may not import {path}: the package is called"
                f" gem_ma.{path.split('.')[0]}"
            )
        elif room is not None and not allowed(home, room, path):
            found.append(f"{told}: {module} may not import gem_ma.{room}")
        elif path.split(".")[0] in HEAVY and home not in HEAVY_ROOMS:
            found.append(f"{told}: {module} may not import {path.split('.')[0]}")
    found += [
        f"{told}: {module} may not import {path.split('.')[0]} at its top"
        for path in imports(source, top=True)
        if path.split(".")[0] in HEAVY
    ]
    return list(dict.fromkeys(found))


def allowed(home: str, room: str, path: str) -> bool:
    if home in ("scenarios", "agents"):
        if room in ("scenarios", "agents"):
            return (home, room) != ("scenarios", "agents") and not path.split(".")[-1].startswith(
                "_"
            )
        return path.split(".")[1] in gem_ma._PUBLIC or (
            room in OPEN_TO_AUTHORS and not path.split(".")[-1].startswith("_")
        )
    if home == room:
        return True
    # scenarios and agents are found by the registry, never by name; the facade is lazy
    if room not in FLOOR_OF or home not in FLOOR_OF:
        return False
    if room in NEVER.get(home, ()):
        return False
    return (
        FLOOR_OF[room] < FLOOR_OF[home]
        if FLOOR_OF[room] != FLOOR_OF[home]
        else room in SAME_FLOOR.get(home, ())
    )


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


def test_no_modules_import_each_other_in_a_circle() -> None:
    sources = {module_of(file): (ROOT / file).read_text(encoding="utf-8") for file in files()}
    assert circles(arrows(sources)) == KNOWN_CIRCLES


@pytest.mark.parametrize(
    ("back", "found"),
    [
        ("import gem_ma.a", True),
        ("from gem_ma import a", True),
        ("def f():\n    from gem_ma.a import name", True),
        ("class C:\n    def f(self):\n        import gem_ma.a as other", True),
        ("if TYPE_CHECKING:\n    import gem_ma.a", False),
        ("if typing.TYPE_CHECKING:\n    pass\nelse:\n    import gem_ma.a", True),
        ("import a", False),
        ("'import gem_ma.a'", False),
    ],
)
def test_a_circle_is_found_however_it_is_dodged(back: str, found: bool) -> None:
    sources = {
        "gem_ma.a": "from gem_ma.b import name",
        "gem_ma.b": "def f():\n    import gem_ma.c",
        "gem_ma.c": back,
        "gem_ma.d": "import gem_ma.a",
    }
    circle = {frozenset({"gem_ma.a", "gem_ma.b", "gem_ma.c"})} if found else set()
    assert circles(arrows(sources)) == circle


def test_a_room_stands_above_all_that_it_imports() -> None:
    # all at once: a test for each file would cost more than what it looks at
    found = {file: faults(file, (ROOT / file).read_text(encoding="utf-8")) for file in files()}
    assert {file: why for file, why in found.items() if why} == {}


def test_every_room_has_a_floor() -> None:
    rooms = {
        Path(file).parts[1].removesuffix(".py") for file in files() if file.startswith("gem_ma")
    }
    assert rooms - {"__init__"} <= FLOOR_OF.keys()


def test_the_page_of_the_design_has_every_folder_on_its_floor() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| (`.*?`) \|", page, re.MULTILINE)
    shown = {name: int(floor) for floor, names in rows for name in re.findall(r"`(.+?)`", names)}
    folders = {path.parent.name for path in (ROOT / "gem_ma").glob("*/__init__.py")}
    assert folders <= shown.keys()
    assert shown == {name: FLOOR_OF[name] for name in shown}


@pytest.mark.parametrize(
    ("file", "source", "fault"),
    [
        (
            "gem_ma/kernel/types.py",
            "import gem_ma.cli",
            "types.py: gem_ma.kernel.types may not import gem_ma.cli",
        ),
        (
            "gem_ma/kernel/types.py",
            "from gem_ma import cli",
            "types.py: gem_ma.kernel.types may not import gem_ma.cli",
        ),
        (
            "gem_ma/kernel/types.py",
            "def f():\n    from gem_ma.cli.main import main",
            "types.py: gem_ma.kernel.types may not import gem_ma.cli",
        ),
        (
            "gem_ma/kernel/types.py",
            "from gem_ma import play",
            "types.py: gem_ma.kernel.types may not import gem_ma.driver.rollout",
        ),
        (
            "gem_ma/engines/base.py",
            "from gem_ma.envs.aec import aec_env",
            "engines/base.py: gem_ma.engines.base may not import gem_ma.envs",
        ),
        (
            "gem_ma/engines/base.py",
            "from . import table",
            "engines/base.py: gem_ma.engines.base may not import ..table: imports are absolute",
        ),
        (
            "gem_ma/driver/rollout.py",
            "import gem_ma.scenarios.kuhn",
            "rollout.py: gem_ma.driver.rollout may not import gem_ma.scenarios",
        ),
        (
            "gem_ma/driver/rollout.py",
            "import scenarios.kuhn",
            (
                "rollout.py: gem_ma.driver.rollout may not import scenarios.kuhn: the package is called"
                " gem_ma.scenarios"
            ),
        ),
        (
            "gem_ma/driver/rollout.py",
            "import torch",
            "rollout.py: gem_ma.driver.rollout may not import torch",
        ),
        (
            "gem_ma/engines/base.py",
            "import torch.nn",
            "engines/base.py: gem_ma.engines.base may not import torch at its top",
        ),
        (
            "gem_ma/scores/metrics.py",
            "import gem_ma.engines.base",
            "evaluation/metrics.py: gem_ma.scores.metrics may not import gem_ma.engines",
        ),
        (
            "gem_ma/runs/store/__init__.py",
            "import gem_ma.pages.static",
            "store/__init__.py: gem_ma.runs.store may not import gem_ma.pages.static",
        ),
        (
            "scenarios/kuhn.py",
            "from gem_ma.driver.rollout import Plan",
            "scenarios/kuhn.py: gem_ma.scenarios.kuhn may not import gem_ma.driver.rollout",
        ),
        (
            "scenarios/kuhn.py",
            "from gem_ma.agents.bots import Silent",
            "scenarios/kuhn.py: gem_ma.scenarios.kuhn may not import gem_ma.agents",
        ),
        (
            "agents/bots.py",
            "from gem_ma.kernel.scenario import _name",
            "agents/bots.py: gem_ma.agents.bots may not import gem_ma.kernel.scenario",
        ),
    ],
)
def test_a_forbidden_import_is_named_in_one_line(file: str, source: str, fault: str) -> None:
    assert fault in faults(file, source)


def test_allowed_imports_are_not_named() -> None:
    assert (
        faults(
            "gem_ma/engines/base.py",
            "import json\nfrom gem_ma.engines.batching import Batched\ndef f():\n    import torch",
        )
        == []
    )
    assert (
        faults(
            "gem_ma/cli/run.py",
            "from gem_ma import __version__, play\nimport gem_ma.training.train",
        )
        == []
    )
    assert (
        faults(
            "scenarios/kuhn.py",
            "from gem_ma import Ask\nfrom gem_ma.kernel.scenario import Play\nimport random",
        )
        == []
    )
    assert (
        faults(
            "gem_ma/engines/base.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch",
        )
        == []
    )
