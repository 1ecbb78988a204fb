"""The loop knows nothing of torch."""

from __future__ import annotations

import subprocess
import sys


def test_a_training_is_opened_without_torch_and_without_local_models() -> None:
    code = (
        "import sys, gem_ma.training.train, gem_ma.training.learner.table_learner\n"
        "print([n for n in sys.modules if n == 'torch' or n.startswith('gem_ma.engines.local.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
