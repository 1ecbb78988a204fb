"""How much memory one update takes: 4,096 trained tokens over a vocabulary of 151,936, and what of
it is logits.

    python benchmarks/memory.py [--tokens 4096] [--vocabulary 151936]

Each row is a process of its own, since its peak (resident memory, `ru_maxrss`) is of the whole
process: before is what torch, model and optimiser take. Whole logits of these tokens are 2.3 GiB
a copy, and plain autograd holds about five.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.trl_update import opened, regular, widened
from gem_ma import credit
from gem_ma.config.learning import LossSettings
from gem_ma.credit.estimators import estimate
from gem_ma.engines.local.tiny import make_model

GIB = 1 << 30
ROWS: dict[str, dict[str, Any]] = {  # replies of a batch, and settings of the loss
    "16 replies of 256": {"replies": 16},
    "one reply of 4,096": {"replies": 1},
    "one reply, entropy bonus": {"replies": 1, "loss": {"entropy": 0.01}},
    "one reply, kl to the start": {"replies": 1, "loss": {"kl": 0.1}},
    "one reply, bfloat16": {"replies": 1, "dtype": "bfloat16"},
    "one reply, cloned": {"replies": 1, "clone": True},
}


def peak() -> float:
    """GiB that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


def measured(name: str, folder: str, tokens: int) -> None:
    """Runs one row, and prints its numbers as JSON."""
    row = ROWS[name]
    learner = opened(folder, row.get("dtype", "float32"))
    allowed = (learner.engine.banned == 0).nonzero()[:, 0].tolist()
    episodes = regular(
        row["replies"], allowed, 0, turns=1, heard=50, words=tokens // row["replies"]
    )
    table = credit.turns(episodes, "main")
    advantages, _ = estimate("grpo" if row["replies"] > 1 else "reinforce", table)
    before, start = peak(), time.process_time()
    if row.get("clone"):
        from gem_ma.training.learner.cloning import _imitate
        from gem_ma.training.learner.rows import rows

        _imitate(learner, list(rows(table, advantages, "main").rows))
    else:
        settings = LossSettings(minibatches=1, **row.get("loss", {}))
        learner.update(table, advantages, lr=1e-4, settings=settings, rng=random.Random(0))
    print(json.dumps({"before": before, "peak": peak(), "cpu": time.process_time() - start}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        measured(given.row, given.folder, given.tokens)
        return
    print("| one update | before, GiB | peak, GiB | CPU s |\n| --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder, "model"), "referential", size="nano", positions=2 * given.tokens)
        widened(Path(folder, "model"), given.vocabulary)
        for name in ROWS:
            asked = [
                sys.executable,
                __file__,
                "--row",
                name,
                "--folder",
                folder,
                "--tokens",
                str(given.tokens),
            ]
            done = subprocess.run(asked, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            print(
                f"| {name} | {found['before']:.2f} | {found['peak']:.2f} | {found['cpu']:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
