"""The vllm engine in a process that has vLLM: `in_process.py` runs there once, and these tests
read what it wrote."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.vllm.serving import ENVIRONMENT, PYTHON, ROOT


@pytest.fixture(scope="module")
def found(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("in_process") / "found.json"
    done = subprocess.run(
        [PYTHON, Path(__file__).with_name("in_process.py"), models["untied"], models["bytes"], out],
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1_000,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return {**json.loads(out.read_text()), "stdout": done.stdout}


def test_a_seed_gives_the_same_tokens_alone_and_among_forty(found: dict[str, Any]) -> None:
    assert (
        found["crowd"][3]["ids"] == found["alone"][0]["ids"]
        and len({tuple(one["ids"]) for one in found["crowd"]}) == 40
    )


def test_its_log_probabilities_are_those_of_transformers(found: dict[str, Any]) -> None:
    assert found["gap of version 0"] <= 1e-4


def test_all_weights_are_published_where_the_head_is_its_own(found: dict[str, Any]) -> None:
    print(
        f"all weights, untied: parity gap {found['gap of version 1']:.2g} nats; before:"
        f" {found['stale']}"
    )
    assert found["gap of version 1"] <= 1e-4 and "differ by" in found["stale"]
    assert found["alone"][0]["version"] == 0 and found["after"][0]["version"] == 1
    assert found["after"][0]["ids"] != found["alone"][0]["ids"]


def test_two_adapters_on_one_base_are_published_side_by_side(found: dict[str, Any]) -> None:
    print(
        "adapters in process: parity gaps"
        f" {', '.join(f'{gap:.2g}' for gap in found['adapter gaps'])} nats"
    )
    assert (
        len(found["adapter gaps"]) == 4 and max(found["adapter gaps"]) <= 1e-4 and found["one core"]
    )
    (one,), (other,) = found["adapted"]
    assert one["ids"] != other["ids"] and (one["version"], other["version"]) == (2, 2)


def test_a_prompt_longer_than_the_context_is_an_outcome(found: dict[str, Any]) -> None:
    assert found["overflow"] == "context_overflow"


def test_a_tied_head_that_this_build_keeps_is_found_out_at_the_opening(
    found: dict[str, Any],
) -> None:
    print(found["tied"])
    assert "keeps the old output head of a model with tied embeddings" in found["tied"]
    assert "differ by" in found["tied"] and "published by full" in found["tied"]


def test_nothing_is_written_to_stdout(found: dict[str, Any]) -> None:
    assert found["stdout"] == ""
