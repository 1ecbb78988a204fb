"""A pretrained model can be trained: no false stop, and each planted fault is found. Needs the
folder of a model, in GEM_MA_PRETRAINED.

GEM_MA_PRETRAINED=models/smollm2 python -m pytest tests/engines/test_pretrained.py     (SmolLM2-135M:
some 30 CPU minutes) GEM_MA_PRETRAINED_STEPS: updates of each run, by default 40.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = os.environ.get("GEM_MA_PRETRAINED", "")
pytestmark = pytest.mark.skipif(not MODEL, reason="GEM_MA_PRETRAINED names no model folder")
torch = pytest.importorskip("torch", reason="needs the train extra")

from benchmarks.parity import (  # noqa: E402
    FAULTS,
    OF_ADAPTERS,
    opened,
    planted,
    prompts,
    step,
)
from gem_ma.runs.store import read_metrics  # noqa: E402
from gem_ma.training.learner.probes import measure  # noqa: E402

STEPS = int(os.environ.get("GEM_MA_PRETRAINED_STEPS", "40"))
CONFIG = """
scenario: {id: guess_number, tasks: 50, turns: 2}
agents: {player: {policy: player}}
policies: {player: {model: MODEL, dtype: DTYPE, max_tokens: 4, constrain: legal, lora: {rank: 8}}}
run: {seed: 0, concurrency: 4}
train:
  policies: [player]
  steps: STEPS
  episodes: 4
  lr: 1.0e-3
  estimator: {name: rebn}
  loss: {minibatches: 1}
evaluate: {episodes: 1}
"""
"""As small as it can be: what is looked at is whether it stops."""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_trains_without_a_false_stop(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "guess.yaml"
    path.write_text(
        CONFIG.replace("MODEL", f"transformers/{MODEL}")
        .replace("DTYPE", dtype)
        .replace("STEPS", str(STEPS))
    )
    done = subprocess.run(
        [sys.executable, "-m", "gem_ma", "train", str(path), "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = [
        line["policies"]["player"]
        for line in read_metrics(tmp_path / "run")
        if line["kind"] == "train"
    ]
    assert len(lines) == STEPS and max(line["parity_share"] for line in lines) < 1


@pytest.mark.parametrize("rank", [0, 8])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_fault_is_found_on_it_after_one_step(dtype: str, rank: int) -> None:
    learner = opened(MODEL, dtype, {"rank": rank} if rank else None)
    learner.probes = prompts(learner.engine, 0, 4)
    before = {name: weight.detach().clone() for name, weight in learner.parameters.items()}
    step(learner, 1e-3, seed=1)
    with planted("none", learner, before):
        assert measure(learner).fits
    missed = []
    for fault in [*FAULTS, *(OF_ADAPTERS if rank else [])]:
        with planted(fault, learner, before):
            missed += [fault] * measure(learner).fits
    assert not missed
