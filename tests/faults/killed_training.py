"""Runs `gem-ma train` in child processes and kills each with SIGKILL at a chosen kind of instant,
until one comes through; prints counts as JSON.

    python tests/faults/killed_training.py CONFIG FOLDER SEED [INSTANT ...]

An instant is `NAME:COUNT`: what the child does when it dies (`INSTANTS`), and how far the folder
has come by then. torch is imported once and every child is a fork that runs the command itself,
so that a kill costs a second and not an import. Not a test by itself: `test_killed_training.py`
runs it in a process of its own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch  # noqa: F401  (these once, before the forks)
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401
from transformers.models.qwen3 import modeling_qwen3  # noqa: F401

import gem_ma.training.train  # noqa: F401
from gem_ma.cli import train  # noqa: F401
from gem_ma.cli.main import main as gem_ma_command

PATIENCE_S = 30.0  # on a busy machine an instant may be long in coming


def lines_of(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def named(folder: Path, pattern: str) -> set[str]:
    return {path.name for path in folder.glob(pattern)} if folder.exists() else set()


def started(path: Path) -> int:
    """It runs: any time, also while it opens the folder and its models."""
    return 1


def playing(path: Path) -> int:
    """A step has been recorded, the next one is played or learned from."""
    file = path / "metrics.jsonl"
    return file.read_bytes().count(b'"kind":"train"') if file.exists() else 0


def recording(path: Path) -> int:
    """The episodes of a step are on disk, the rest of its record is not."""
    return lines_of(path / "episodes.jsonl") // EPISODES


def saving(path: Path) -> int:
    """Inside the write of a checkpoint: its folder has no name yet."""
    return sum(int(name[5:11]) + 1 for name in named(path / "checkpoints", "step-*.tmp-*"))


def pooling(path: Path) -> int:
    """Snapshots go to the league's pool."""
    return len(named(path / "league", "*@*"))


EPISODES = 8  # of a step
INSTANTS: dict[str, Callable[[Path], int]] = {
    one.__name__: one for one in (started, playing, recording, saving, pooling)
}
# at most so long after it; the others die at once, for a small checkpoint is written in milliseconds
PAUSES_S = {"started": 0.8, "playing": 0.3}


def spawn(config: Path, path: Path) -> int:
    """A child that runs the command; its process id."""
    child = os.fork()
    if child:
        return child
    try:
        sys.stdout = sys.stderr = open(path.with_suffix(".log"), "a", encoding="utf-8")  # noqa: SIM115  (the child's whole life)
        gem_ma_command(["train", str(config), "--out", str(path), "--quiet"])
        os._exit(0)
    except SystemExit as error:
        sys.stderr.flush()
        os._exit(int(error.code or 0))
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(99)


def main(config: Path, path: Path, seed: int, instants: Sequence[str]) -> dict[str, int]:
    rng = random.Random(seed)
    seen = dict.fromkeys((*instants, "half_written"), 0)
    left = list(instants)
    while True:
        child = spawn(config, path)
        if left:
            name, _, count = left[0].partition(":")
            deadline = time.monotonic() + PATIENCE_S
            while (
                INSTANTS[name](path) < int(count or 1)
                and time.monotonic() < deadline
                and running(child)
            ):
                time.sleep(0.0002)
            time.sleep(rng.uniform(0, PAUSES_S.get(name, 0.0)))
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == -signal.SIGKILL:
            seen[left.pop(0)] += 1
            seen["half_written"] += bool(named(path / "checkpoints", "step-*.tmp-*"))
        elif code:
            raise SystemExit(
                f"the training failed with exit code {code}:"
                f" {path.with_suffix('.log').read_text(encoding='utf-8')[-2000:]}"
            )
        else:
            return seen


def running(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])))
