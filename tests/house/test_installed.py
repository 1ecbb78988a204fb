"""What an installation costs, and that each extra which is missing is one line that says what to
type."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from functools import lru_cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import gem_ma
from tests.fault_server import FaultServer
from tests.fault_server import says as answer

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
KUHN = ("run", "kuhn_poker", "agents.player_1=first_legal", "scenario.tasks=1")
TINY = (*KUHN, "agents.player_0=transformers/{model}")
SERVE = ("serve", "dilemma", "--seat", "player_0", "--port", "0", "-n", "1")
MCP = "agents.player_0.tools=[{{mcp: {{url: 'http://127.0.0.1:9/mcp'}}}}]"
LAUNCHED = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29599"}
# extra -> (a module of it, the command that needs it)
MISSING: dict[str, list[tuple[str, tuple[str, ...]]]] = {
    "train": [
        *((name, TINY) for name in ("torch", "transformers", "tokenizers", "safetensors")),
        ("peft", (*TINY, "policies.player_0.lora={{rank: 2}}")),
        ("accelerate", ("train", "guess_number_table")),
        ("torch", ("new", "model", "{folder}/new", "--scenario", "kuhn_poker")),
    ],
    "grammar": [
        (
            "llguidance",
            (
                *("run", "retail_one_order", "agents.user=silent", "scenario.tasks=1"),
                *("agents.assistant=transformers/{model}", "policies.assistant.constrain=tools"),
            ),
        )
    ],
    "litellm": [("litellm", (*KUHN, "agents.player_0=litellm/anthropic/claude-haiku-4-5"))],
    "vllm": [
        (module, (*KUHN, "agents.player_0=vllm/{model}")) for module in ("vllm", "transformers")
    ],
    "tinker": [
        (
            module,
            (
                *KUHN,
                "agents.player_0=tinker/{model}",
                "policies.player_0.base_url=http://127.0.0.1:9",
                "policies.player_0.api_key_env=null",
            ),
        )
        for module in ("tinker", "transformers")
    ],
    "view": [(name, ("view", "{folder}")) for name in ("starlette", "uvicorn")],
    "serve": [(name, SERVE) for name in ("starlette", "uvicorn")],
    "zstd": [("zstandard", (*KUHN, "agents.player_0=first_legal", "run.zstd=true"))],
    "ray": [("ray", ("train", "kuhn_table", "train.chunk=16", "--ray", "local"))],
    "mcp": [("mcp", (*KUHN, "agents.player_0.behaviour=random_legal", MCP))],
    **{
        extra: [(module, ("run", "questions", f"scenario.data={data}", "scenario.grader=math"))]
        for extra, module, data in (
            ("math", "math_verify", "{folder}/rows.jsonl"),
            ("parquet", "pyarrow", "{folder}/rows.parquet"),
            ("datasets", "datasets", "nobody/nothing"),
        )
    },
    **{
        name: [(name, ("train", "guess_number_table", f"train.log=[{name}]"))]
        for name in ("tensorboard", "wandb", "trackio")
    },
    **{
        name.replace("_", "-"): [(module, ("run", f"{name}:{world}"))]
        for name, module, world in (
            ("reasoning_gym", "reasoning_gym", "chain_sum"),
            ("gymnasium", "minigrid", "MiniGrid-Empty-5x5-v0"),
            ("pettingzoo", "pygame", "connect_four_v3"),
            ("textarena", "textarena", "TicTacToe-v0"),
            ("gem", "gem", "game:GuessTheNumber-v0"),
            ("textworld", "textworld", "tw-simple"),
            ("openspiel", "pyspiel", "kuhn_poker"),
            ("sklearn", "sklearn", "digits"),
        )
    },
}
# extra -> (a module of it, code that needs it and that no command reaches at once)
CODE = {
    **{name: (name, f"import gem_ma.trainers.{name}") for name in ("trl", "verl", "verifiers")},
    "pandas": ("pandas", "from gem_ma.runs.run import Run as made; made.to_frame(None)"),
    "vision": (
        "PIL",
        "from gem_ma.engines.models.sight import image_processor as made; made(None, '.', 'm', 'p')",
    ),
}


def test_every_extra_has_a_command_that_misses_it() -> None:
    # of their tests alone; `api` is an empty name, and `frames` for programs beside ours
    assert {*MISSING, *CODE} == set(EXTRAS) - {"dev", "sb3", "rllib", "api", "frames"}


@pytest.mark.parametrize("module", ["httpx2", "certifi", "h11", "openai"])
def test_the_base_alone_reaches_a_model(module: str, tmp_path: Path) -> None:
    with FaultServer([answer("bet")]) as server:
        asked = (*KUHN, "agents.player_0=openai/x", f"policies.player_0.base_url={server.url}")
        done = gem_ma(*asked, cwd=tmp_path, hidden=module)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("extra", "module", "command"),
    [
        pytest.param(extra, module, command, id=f"{extra}-{module}-{command[0] if command else ''}")
        for extra, cases in MISSING.items()
        for module, command in cases
    ],
)
def test_a_missing_extra_is_one_line_that_says_what_to_type(
    extra: str, module: str, command: tuple[str, ...], tmp_path: Path, request: Any
) -> None:
    model = request.getfixturevalue("byte_model") if "{model}" in " ".join(command) else ""
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "?", "answer": "\\sqrt{x}"}))
    (tmp_path / "rows.parquet").touch()
    arguments = [part.format(folder=tmp_path, model=model) for part in command]
    # `accelerate`: as if a launcher had started two
    joined = LAUNCHED if module == "accelerate" else {}
    done = gem_ma(*arguments, cwd=tmp_path, hidden=module, **joined)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1 and says(extra, lines[0]), done.stderr
    assert done.returncode == 2


@pytest.mark.longest
@pytest.mark.parametrize("extra", CODE)
def test_code_that_misses_an_extra_says_what_to_type(extra: str, tmp_path: Path) -> None:
    module, code = CODE[extra]
    done = python(f"import sys; sys.modules[{module!r}] = None\n{code}", cwd=tmp_path)
    assert "ConfigError" in done.stderr and says(extra, done.stderr.splitlines()[-1])


def says(extra: str, line: str) -> bool:
    return re.search(rf'pip install "\S*\[(\w+,)*{extra}(,\w+)*\]"', line) is not None


def python(code: str, cwd: Path) -> Any:
    """Code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@lru_cache(maxsize=1)
def base() -> dict[str, int]:
    """Bytes of every distribution that a plain install brings."""
    requirements = pytest.importorskip("packaging.requirements")
    sizes: dict[str, int] = {}
    wanted = [requirements.Requirement(text) for text in PROJECT["dependencies"]]
    while wanted:
        requirement = wanted.pop()
        name = requirement.name.lower().replace("_", "-")
        if name in sizes or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found = distribution(name)
        paths = [Path(str(found.locate_file(file))) for file in found.files or ()]
        sizes[name] = sum(path.stat().st_size for path in paths if path.is_file())
        wanted += [requirements.Requirement(text) for text in found.requires or ()]
    return sizes


@pytest.mark.long
def test_a_plain_install_is_small() -> None:
    beyond = sum(size for name, size in base().items() if name != "numpy")
    # 32 MB on Linux, byte code included
    assert 10e6 < beyond < 60e6, base()


def test_a_plain_install_brings_no_library_of_models() -> None:
    assert not base().keys() & {
        "torch",
        "transformers",
        "openai",
        "vllm",
        "scipy",
        "pandas",
        "pillow",
    }
