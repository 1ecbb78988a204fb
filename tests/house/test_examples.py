"""examples/: each file runs as its head says, and shows what it claims."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "one_file.py"


@pytest.mark.longest
@pytest.mark.parametrize("seed", [0, 1])
def test_the_method_in_one_file_learns(seed: int) -> None:
    command = [sys.executable, str(EXAMPLE), "--steps", "100", "--seed", str(seed)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split() for line in run.stdout.splitlines() if re.match(r" *\d", line)]
    averages = [float(row[2]) for row in rows]
    # uniform play is at .917
    assert averages[0] > averages[-1] < 0.25


@pytest.mark.longest
def test_ppo_in_the_manner_of_cleanrl_learns_on_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="needs the train extra")
    torch.set_num_threads(1)
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    from ppo_on_arrays import learn

    # a random x has .29; the whole 65,536 turns end at .96
    curve = learn(8_192, seed=0)
    assert len(curve) == 8 and sum(curve[-2:]) > sum(curve[:2]) + 0.1
