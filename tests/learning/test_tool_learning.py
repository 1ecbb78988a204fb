"""A tiny language model learns generated arithmetic with the python tool, and without it does not:
sampled on expressions held out, every seed by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gem_ma import config
from gem_ma.cli.main import group
from gem_ma.training.train import run_training

pytestmark = pytest.mark.learning
CONFIG = Path(__file__).parents[2] / "configs" / "arithmetic.yaml"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "arithmetic"
    words = ["new", "model", str(path), "--scenario", "arithmetic", "--tool", "python"]
    made = CliRunner().invoke(group, words)
    assert made.exit_code == 0, made.output
    return path


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tools", ["[{python: {uses: 1}}]", "[]"], ids=["python", "alone"])
def test_arithmetic_is_learned_with_the_tool_and_not_without(
    tools: str, seed: int, model: Path
) -> None:
    named = [f"policies.solver.model=transformers/{model}", f"agents.solver.tools={tools}"]
    summary = run_training(config.load(CONFIG, [*named, f"run.seed={seed}"]).config)
    before, after = (summary[when]["sampled"]["success"] for when in ("before", "after"))
    print(f"tools {tools}, seed {seed}: sampled {before:.3f} -> {after:.3f}")
    if tools == "[]":
        assert before < 0.1 and after < 0.15
    else:
        assert before < 0.4 and after >= 0.7
