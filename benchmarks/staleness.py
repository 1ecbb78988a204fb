"""What playing ahead costs and wins: `train.overlap` 0, 1, 2 and 4 over several seeds.

    python benchmarks/staleness.py [--seeds 5] [--steps 60] [--what tables|waits] [--rows guess_number]

`tables`: the scores of tables at the end of a run, with the weight `tis: 2` and without. `waits`:
seconds of a step whose plays wait for others, as those of a server do, under both values of
`train.admission`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import gem_ma

AHEAD = (0, 1, 2, 4)
RUNS: dict[str, tuple[str, tuple[str, ...]]] = {  # row: config and what it says otherwise
    "guess_number": ("guess_number_table", ("train.lr=0.3",)),
    "referential": ("referential_table", ()),
}
QUIET = (
    "run.baselines=false",
    "train.on_collapse=off",
    "evaluate.every=null",
    "evaluate.episodes=512",
    "train.episodes=64",
)


def score(summary: dict[str, Any]) -> float:
    """The mean return of one agent, sampled, after the last step."""
    returns = summary["after"]["sampled"]["return"]
    return sum(returns.values()) / len(returns)


def trained(source: str, *words: str) -> tuple[float, float]:
    """(score at the end, CPU seconds) of a run."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        summary = gem_ma.train(source, [*QUIET, *words], out=Path(folder, "run"))
        return score(summary), time.process_time() - start


def tables(seeds: int, steps: int, rows: list[str]) -> None:
    """Mean scores by row and by how far ahead is played, the worst seed in brackets."""
    print("| run | tis | " + " | ".join(f"k = {count}" for count in AHEAD) + " | CPU s a run |")
    print("| --- | --- |" + " ---: |" * (len(AHEAD) + 1))
    for name in rows:
        source, words = RUNS[name]
        for cap in ("2.0", "null"):
            cells, spent = [], []
            for count in AHEAD:
                found = [
                    trained(
                        source,
                        *words,
                        f"train.steps={steps}",
                        f"train.save_every={steps}",
                        f"run.seed={seed}",
                        f"train.overlap={count}",
                        f"train.loss.tis={cap}",
                    )
                    for seed in range(seeds)
                ]
                scores = [value for value, _ in found]
                cells.append(f"{statistics.mean(scores):.3f} ({min(scores):.3f})")
                spent += [seconds for _, seconds in found]
            row = f"| {name} | {cap} | {' | '.join(cells)} | {statistics.mean(spent):.1f} |"
            print(row, flush=True)


def waits(steps: int) -> None:
    """Seconds of a step by how far ahead is played and by `train.admission`, where one play in
    eight waits ten times as long."""
    import asyncio
    import random

    from gem_ma.engines.small.table import Table
    from gem_ma.training.learner.table_learner import TableLearner

    sample, update = Table.sample, TableLearner.update

    async def slow_sample(self: Any, request: Any) -> Any:
        long = random.Random(request.conversation).random() < 1 / 8
        await asyncio.sleep(0.3 if long else 0.03)
        return await sample(self, request)

    def slow_update(self: Any, *given: Any, **how: Any) -> Any:
        time.sleep(0.1)
        return update(self, *given, **how)

    Table.sample, TableLearner.update = slow_sample, slow_update  # type: ignore[method-assign]
    print("| plays of several steps | " + " | ".join(f"k = {count}" for count in AHEAD) + " |")
    print("| --- |" + " ---: |" * len(AHEAD))
    for admission in ("step", "continuous"):
        cells = []
        for count in AHEAD:
            if not count and admission == "continuous":
                cells.append("")
                continue
            start = time.perf_counter()
            trained(
                "kuhn_table",
                "evaluate.episodes=1",
                "train.episodes=32",
                "run.concurrency=32",
                f"train.steps={steps}",
                f"train.save_every={steps}",
                f"train.overlap={count}",
                f"train.admission={admission}",
            )
            cells.append(f"{(time.perf_counter() - start) / steps:.2f}")
        print(f"| {admission} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--what", choices=("tables", "waits"), default="tables")
    parser.add_argument("--rows", nargs="+", choices=list(RUNS), default=list(RUNS))
    given = parser.parse_args()
    if given.what == "tables":
        tables(given.seeds, given.steps, given.rows)
    else:
        waits(given.steps)


if __name__ == "__main__":
    main()
