"""What an import costs. Measured in fresh processes, in CPU time, with a wide guard."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    "torch",
    "transformers",
    "pettingzoo",
    "gymnasium",
    "numpy",
    "openai",
    "vllm",
    "peft",
    "pydantic",
    "rich",
    "jinja2",
    "yaml",
    "aiohttp",
)
# what every command would pay for, and hardly one needs
COSTLY = ("asyncio", "importlib.metadata", "gem_ma.registry", "gem_ma.kernel.scenario")


def fresh(code: str, *arguments: str) -> dict[str, Any]:
    report = (
        f"import sys, json, time\nstart = time.process_time()\ntry:\n    exec({code!r})\nexcept"
        " SystemExit:\n    pass\nprint('\\n' + json.dumps({'seconds': time.process_time() -"
        f" start, 'loaded': [m for m in {HEAVY + COSTLY!r} if m in sys.modules]}}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", report, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def loaded_by(code: str, within: float) -> list[str]:
    """What the code loads; one of three runs must be fast, since others may use the machine."""
    for _ in range(3):
        report = fresh(code)
        if report["seconds"] < within:
            return list(report["loaded"])
    raise AssertionError(f"{report['seconds']} s of {within} s")


def test_importing_gem_ma_loads_nothing_heavy_and_is_fast() -> None:
    assert loaded_by("import gem_ma", within=0.3) == []


@pytest.mark.long
@pytest.mark.parametrize(
    "code",
    [
        "from gem_ma import Scenario, Ask, Game, make; Game(make('kuhn_poker'))",
        "from gem_ma import make; make('kuhn_poker', wrappers=[{'retry': 1}, 'hide_names'])",
        "from gem_ma import make_vec; v = make_vec('guess_number', 2); v.reset(); v.step({0: '1', 1: '2'})",
        "import gem_ma.driver.rollout, gem_ma.engines.base",
    ],
)
def test_playing_needs_neither_numpy_nor_a_library_of_models(code: str) -> None:
    assert set(loaded_by(code, within=0.5)) <= set(COSTLY)


def test_the_command_line_shows_its_help_without_loading_anything_heavy() -> None:
    code = "import sys; sys.argv = ['gem-ma', '--help']\nfrom gem_ma.cli.main import main\nmain()"
    assert loaded_by(code, within=0.5) == []


SHOWING = {"numpy", "jinja2", "rich", "aiohttp"}  # whoever looks at a run does not wait for them


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "not_needed"),
    [
        ("show", {*SHOWING, "pydantic", "importlib.metadata", "asyncio"}),
        ("report", {*SHOWING, "pydantic", "importlib.metadata", "asyncio"}),
        ("list", {*SHOWING, "pydantic"}),
        ("run", {"pydantic", "asyncio", "gem_ma.registry"}),
    ],
)
def test_a_command_imports_what_all_its_uses_need(command: str, not_needed: set[str]) -> None:
    assert not not_needed & set(fresh(f"import gem_ma.cli.{command}")["loaded"])


@pytest.mark.longest
def test_the_commands_from_python_load_no_library_of_models() -> None:
    loaded = fresh("from gem_ma import load_config, open_policies, run, train")["loaded"]
    assert not set(loaded) & {"torch", "transformers", "pettingzoo", "openai", "vllm", "peft"}
