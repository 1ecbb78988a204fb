"""What a learner of 38M parameters takes in memory: in one process and in each of two; and what a
pass over rows of 4,000 tokens keeps, plain and computed again (`train.loss.recompute`).

    python benchmarks/sharded.py

Every number is of processes of its own. Weights, gradients and moments are counted in bytes of
tensors. What a pass keeps is the growth of resident memory over its forward pass; its peak, with
the gradients of all weights, is that of the process (`ru_maxrss`) less what it had before.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
MIB = 1 << 20
TOKENS = 4000


def peak() -> float:
    """MiB that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resident() -> float:
    """MiB that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def passed(model: str, recompute: bool) -> dict[str, float]:
    """Memory and time of the gradients of one row."""
    import numpy as np

    from gem_ma.config.learning import LossSettings
    from gem_ma.engines.local.transformers import Transformers
    from gem_ma.kernel.types import Sampling
    from gem_ma.training.learner.rows import Row
    from gem_ma.training.learner.torch_learner import TorchLearner
    from tests.sharded_process import pulled

    learner = TorchLearner(Transformers(model, policy="main"), Sampling(max_tokens=640))
    usual = (learner.engine.banned == 0).nonzero()[:, 0].tolist()
    ids = np.array(random.Random(0).choices(usual, k=TOKENS), np.int64)
    mask = np.arange(TOKENS) >= TOKENS - 640
    zeros, turn = np.zeros(TOKENS), np.where(mask, 0, -1)
    row = Row(("r", 0, 0), ids, mask, mask * 1.0, zeros - 1.0, turn, np.zeros(TOKENS, np.int64))
    ahead, kept = learner.scorer._ahead, list[float]()

    def watched(pack: Any) -> Any:
        before = resident()
        result = ahead(pack)
        kept.append(resident() - before)
        return result

    learner.scorer._ahead = watched  # type: ignore[method-assign]
    before, start = resident(), time.process_time()
    pulled(learner, [row], LossSettings(recompute=recompute))
    # the first pass had no gradient
    return {"kept": kept[-1], "peak": peak() - before, "cpu": time.process_time() - start}


def asked(*words: str) -> dict[str, float]:
    """The JSON that a process prints."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    from gem_ma.engines.local.tiny import make_model

    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder, "model"))
        make_model(model, "referential", size="medium", positions=TOKENS + 64)
        print("| learner, MiB | weights | gradients | moments | together |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for count, name in ((1, "one process"), (2, "each of two")):
            held = asked("-m", "tests.sharded_process", str(count), "memory", model, folder)
            parts = [held[part] / MIB for part in ("weights", "gradients", "moments")]
            cells = " | ".join(f"{part:.0f}" for part in (*parts, sum(parts)))
            print(f"| {name} | {cells} |", flush=True)
        print("\n| a row of 4,000 tokens | kept, MiB | peak, MiB | CPU s |")
        print("| --- | ---: | ---: | ---: |")
        for name in ("plain", "recompute"):
            row = asked(__file__, model, name)
            cells = " | ".join(f"{row[key]:.0f}" for key in ("kept", "peak", "cpu"))
            print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(passed(sys.argv[1], sys.argv[2] == "recompute")))
    else:
        main()
