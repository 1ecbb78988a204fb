"""What an import costs. Measured in fresh processes, in CPU time, with a wide guard."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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


def fresh(code: str, *arguments: str) -> dict[str, object]:
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


def least(code: str) -> tuple[float, list[str]]:
    """The fastest of three: others may be using the machine."""
    reports = [fresh(code) for _ in range(3)]
    return min(float(str(report["seconds"])) for report in reports), list(reports[0]["loaded"])  # type: ignore[call-overload]


def test_importing_gem_ma_loads_nothing_heavy_and_is_fast() -> None:
    seconds, loaded = least("import gem_ma")
    assert loaded == [] and seconds < 0.3


@pytest.mark.parametrize(
    "code",
    [
        "from gem_ma import Scenario, Ask, Game, make; Game(make('kuhn_poker'))",
        "from gem_ma import make; make('kuhn_poker', wrappers=[{'retry': 1}, 'hide_names'])",
        "from gem_ma import make_vec; make_vec('guess_number', 2).reset()",
        "import gem_ma.driver.rollout, gem_ma.engines.base",
    ],
)
def test_playing_needs_neither_numpy_nor_a_library_of_models(code: str) -> None:
    seconds, loaded = least(code)
    assert set(loaded) <= set(COSTLY) and seconds < 0.5


def test_the_command_line_shows_its_help_without_loading_anything_heavy() -> None:
    seconds, loaded = least(
        "import sys; sys.argv = ['gem-ma', '--help']\nfrom gem_ma.cli.main import main\nmain()"
    )
    assert loaded == [] and seconds < 0.5


@pytest.mark.parametrize("command", ["show", "report", "list"])
def test_who_looks_at_a_run_waits_for_no_numpy(command: str) -> None:
    assert not {"numpy", "jinja2", "rich", "aiohttp"} & set(
        fresh(f"import gem_ma.cli.{command}")["loaded"]
    )


@pytest.mark.parametrize(
    ("command", "not_needed"),
    [
        ("show", {"pydantic", "importlib.metadata", "asyncio"}),
        ("report", {"pydantic", "importlib.metadata", "asyncio"}),
        ("list", {"pydantic"}),
        ("run", {"pydantic", "asyncio", "gem_ma.registry"}),
    ],
)
def test_a_command_imports_what_all_its_uses_need(command: str, not_needed: set[str]) -> None:
    assert not not_needed & set(fresh(f"import gem_ma.cli.{command}")["loaded"])


@pytest.mark.long
def test_the_commands_from_python_load_no_library_of_models() -> None:
    _, loaded = least("from gem_ma import load_config, open_policies, run, train")
    assert not set(loaded) & {"torch", "transformers", "pettingzoo", "openai", "vllm", "peft"}
