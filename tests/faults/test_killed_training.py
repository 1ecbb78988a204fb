"""A training of language models that is killed at any instant goes on by the same command and
ends with the same bytes everywhere."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gem_ma.cli.main import main as gem_ma_command

pytest.importorskip("torch", reason="needs the train extra")

ROOT = Path(__file__).resolve().parents[2]
# on the way to the sixth step; a checkpoint at 0, 2, 4, 6
INSTANTS = ("started", "pooling:3", "saving:3", "recording:3", "playing:5")
CONFIG = """
scenario: {{id: kuhn_poker}}
agents: {{player_0: {{policy: valued}}, player_1: {{policy: based}}}}
policies:
  valued: {{model: transformers/{model}, max_tokens: 4}}
  based: {{model: transformers/{model}, max_tokens: 4}}
run: {{seed: 3, baselines: false}}
train:
  policies: [valued, based]
  alternate: {{valued: 1, based: 1}}
  seats: swap
  steps: 6
  episodes: 8
  lr: 0.001
  save_every: 2
  credit: {{gamma: {{from: 0.5, to: 1.0, steps: 6}}}}
  loss: {{minibatches: 2, kl: 0.01}}
  critic: {{minibatches: 2, epochs: 1}}
  warm_start: {{based: {{cast: {{player_0: {{behaviour: noisy_kuhn}}, player_1: {{behaviour: noisy_kuhn}}}}, episodes: 16, steps: 3, batch: 8}}}}
  per_policy:
    valued: {{estimator: {{name: gae}}}}
    based: {{estimator: {{name: rae, shaping: {{form: margin, alpha: 0.5}}}}}}
  opponents: {{latest: 0.5, uniform: 0.25, prioritised: 0.25}}
  pool: {{every: 1, loaded: 2}}
evaluate: {{episodes: 4, every: 3}}
"""
# clocks, process ids, and a page that shows them
DIFFER = {"timings.jsonl", "index.jsonl", "manifest.json", ".lock", "report.html"}
CUT_OFF = ".torn"  # what a resume took off the end of a file is kept beside it


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def contents(path: Path) -> dict[str, str]:
    """SHA-256 of every file of a run folder that clocks have no part in."""
    files = (
        file
        for file in path.rglob("*")
        if file.is_file() and file.name not in DIFFER and file.suffix != CUT_OFF
    )
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    }


@pytest.mark.longest
def test_a_training_killed_at_any_instant_ends_with_the_bytes_of_one_that_never_was(
    tmp_path: Path, kuhn_model: Path
) -> None:
    config = tmp_path / "league.yaml"
    config.write_text(CONFIG.format(model=kuhn_model), encoding="utf-8")
    # in this process, whose salt of `hash` is another than that of the forks
    whole = ["train", str(config), "--out", str(tmp_path / "whole"), "--quiet"]
    assert gem_ma_command(whole) == 0
    script = [
        sys.executable,
        str(ROOT / "tests" / "faults" / "killed_training.py"),
        str(config),
        str(tmp_path / "killed"),
        "5",
        *INSTANTS,
    ]
    done = subprocess.run(
        script, env=environment(), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert sum(count for name, count in seen.items() if name != "half_written") == len(INSTANTS)
    assert seen["half_written"] >= 1
    expected, found = contents(tmp_path / "whole"), contents(tmp_path / "killed")
    assert {
        name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
    } == set()
    kinds = (
        "episodes.jsonl",
        "metrics.jsonl",
        "summary.json",
        "league/valued@",
        "checkpoints/step-000006/valued@critic",
        "checkpoints/step-000006/based.",
    )
    assert all(any(name.startswith(kind) for name in expected) for kind in kinds)
