"""Two commits beside each other:

    python benchmarks/compare.py A B [NAME ...] [--rounds 5] [--options="--seconds 0.2"]

Each is checked out into a worktree of its own, and they take turns (A B, B A), so that a busy
machine slows both alike. A line is a number of a table: the median of B / A over the rounds, the
least and the most of it. Where 1 lies between these two, nothing was shown.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.tables import git, known, number, run, tables_of

Key = tuple[str, str, str]  # benchmark and table, row, column


def numbers(name: str, text: str) -> dict[Key, float]:
    """Every number in the tables that a benchmark printed."""
    return {
        (f"{name} {place}", row, column): value
        for place, table in enumerate(tables_of(text), 1)
        for row, cells in table.items()
        for column, cell in cells.items()
        if (value := number(cell)) is not None
    }


def compared(before: Sequence[dict[Key, float]], after: Sequence[dict[Key, float]]) -> list[str]:
    """A line for each number that both commits print in each round."""
    lines = []
    for key in before[0]:
        if not all(key in each and each[key] for each in (*before, *after)):
            continue
        pairs = [(one[key], other[key]) for one, other in zip(before, after, strict=True)]
        shares = [other / one for one, other in pairs]
        lines.append(
            f"| {' | '.join(key)} | {statistics.median(one for one, _ in pairs):g}"
            f" | {statistics.median(other for _, other in pairs):g}"
            f" | {statistics.median(shares):.2f} | {min(shares):.2f} to {max(shares):.2f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("commits", nargs=2, metavar="COMMIT")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: kernel")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--options", default="", help="of the benchmarks, in one string")
    given = parser.parse_args()
    names = known(given.names, ("kernel",))
    commits = [git("rev-parse", "--verify", f"{name}^{{commit}}") for name in given.commits]
    with tempfile.TemporaryDirectory() as folder:
        trees = [Path(folder, side) for side in "AB"]
        try:
            for tree, commit in zip(trees, commits, strict=True):
                git("worktree", "add", "--detach", "--force", str(tree), commit)
            print("| table | row | column | A | B | B / A | least to most |")
            print("| --- | --- | --- | ---: | ---: | ---: | ---: |", flush=True)
            for name in names:
                measured: list[list[dict[Key, float]]] = [[], []]
                for round_ in range(given.rounds):
                    for side in (0, 1) if round_ % 2 == 0 else (1, 0):
                        status, text = run(name, trees[side], shlex.split(given.options))
                        if status:
                            sys.exit(f"{name} of {given.commits[side]} ended with status {status}")
                        measured[side].append(numbers(name, text))
                print("\n".join(compared(*measured)), flush=True)
        finally:
            for tree in filter(Path.exists, trees):
                git("worktree", "remove", "--force", str(tree))


if __name__ == "__main__":
    main()
