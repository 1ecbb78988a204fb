"""`benchmarks/gpu.py` with vLLM's CPU build in its process: our driver beside vLLM's own
`generate`, the learner and its publish to that vLLM."""

from __future__ import annotations

import json
import os
import subprocess

from tests.vllm.serving import ENVIRONMENT, PYTHON, ROOT


def test_its_numbers_come_of_the_same_code_on_a_processor() -> None:
    script = ROOT / "benchmarks" / "gpu.py"
    small = ["--one", "--device", "cpu", "--small", "--engine", "vllm"]
    done = subprocess.run(
        [PYTHON, script, "gpu_dilemma_17b", *small],
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)
    assert all(number > 0 for number in found.values())
