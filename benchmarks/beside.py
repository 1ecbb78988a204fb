"""The kernel, a rollout and the learner beside those of another commit, in one run.

    python benchmarks/beside.py COMMIT [--rounds 15] [--only kernel rollout learner]

Both trees do the same work in a process of their own, in turns, so that what else the machine does
falls on both alike; a process that is started for each round measures its start as well, which
made ratios differ by a tenth. Given are CPU seconds of the work alone: the median of all rounds,
and the median of the ratios of a round (this tree / the other), with the smallest and the largest.
What is measured uses names only that both trees have; a tree that lacks one says so.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Each defines `work`. The first pass warms caches and is not counted.
TURNS = """
import sys, time

work()
print("ready", flush=True)
for line in sys.stdin:
    start = time.process_time()
    work()
    print(time.process_time() - start, flush=True)
"""
KERNEL = """
import random
from gem_ma import Game, make

scenarios = [make("kuhn_poker"), make("guess_number"), make("dilemma", briefing=False)]

def work():
    for scenario in scenarios:
        for seed in range(1500):
            game, chooser = Game(scenario, seed=seed), random.Random(seed)
            while game.pending:
                game.send({a: chooser.choice(asked.legal) for a, asked in game.pending.items()})
"""
COMMANDS = """
import contextlib, io, sys, tempfile
from gem_ma.cli.main import main

def run(*words):
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        code = main([*words, "--quiet", "--out", folder + "/run"])
    if code:
        sys.exit(code)
"""
ROLLOUT = (
    COMMANDS
    + """
def work():
    run("run", "retail_scripted", "run.baselines=false", "scenario.tasks=60")
"""
)
LEARNER = (
    COMMANDS
    + """
from pathlib import Path
from gem_ma.engines.local.tiny import make_model

models = tempfile.TemporaryDirectory()
model = f"transformers/{models.name}/m"
make_model(Path(models.name, "m"), "referential")
words = ("train", "referential", f"policies.speaker.model={model}",
         f"policies.listener.model={model}", "evaluate.episodes=4", "run.baselines=false",
         *(f"train.warm_start.{who}.{key}" for who in ("speaker", "listener")
           for key in ("steps=1", "episodes=8")))

def work():
    run(*words, "train.steps=8")
"""
)
WORK = {"kernel": KERNEL, "rollout": ROLLOUT, "learner": LEARNER}


class Tree:
    """A process that does a piece of work of one tree, again and again."""

    def __init__(self, work: str, path: Path) -> None:
        where = {"PYTHONPATH": str(path), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        self.path, self.faults = path, tempfile.TemporaryFile("w+")  # noqa: SIM115 (until its end)
        self.process = subprocess.Popen(
            [sys.executable, "-c", work + TURNS],
            env={**os.environ, **where},
            cwd=path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.faults,
            text=True,
        )
        self.answer()

    def answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.faults.seek(0)
            sys.exit(f"{self.path.name}: {self.faults.read().strip()[-600:]}")
        return line

    def seconds(self) -> float:
        """CPU seconds of the work, done once more."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.answer())

    def close(self) -> None:
        self.process.communicate()
        self.faults.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", help="what git names: the other tree")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=[*WORK], default=[*WORK])
    options = parser.parse_args()
    print("| work | other, CPU s | here, CPU s | here / other | of the rounds |")
    print("| --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder, "other")
        other.mkdir()
        archive = subprocess.run(
            ["git", "archive", options.commit], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(other)], input=archive.stdout, check=True)
        for name in options.only:
            here, there = Tree(WORK[name], ROOT), Tree(WORK[name], other)
            pairs = []
            for turn in range(options.rounds):
                # who begins changes, since the second may find the machine warmer
                trees = (here, there) if turn % 2 else (there, here)
                pair = {tree: tree.seconds() for tree in trees}
                pairs.append((pair[there], pair[here]))
            here.close()
            there.close()
            ratios = [new / old for old, new in pairs]
            before, now = (statistics.median(column) for column in zip(*pairs, strict=True))
            print(
                f"| {name} | {before:.2f} | {now:.2f} | {statistics.median(ratios):.3f}"
                f" | {min(ratios):.3f} to {max(ratios):.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
