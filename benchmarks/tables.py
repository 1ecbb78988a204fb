"""Every table that can be made here, and one JSON with the machine, the commit and the ratios:

    python benchmarks/tables.py [NAME ...] [--out FILE]

A benchmark is a script of this folder that prints tables of Markdown; each is run by the
environment of the library beside which it measures (`.venv-gem`), where that is there, else by this
Python, and leaves out what it lacks. One that fails is named at the end, and the others run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# all that need no network and no GPU, in the order of docs/benchmarks.md
NAMES = ("kernel", "games", "speed", "scheduling", "faults", "driver", "retail", "reuse")
NAMES += ("learner", "trl_update", "memory", "store", "sandbox", "coverage")
LIBRARIES = {"kernel": "pettingzoo", "games": "gem", "speed": "gem", "trl_update": "trl"}
_NUMBER = re.compile(r"\**(-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?)\s?%?\**")
Table = dict[str, dict[str, str]]  # row -> column -> cell


def tables_of(text: str) -> list[Table]:
    """The tables of Markdown in what a benchmark printed. A row is known by its first cell."""
    found: list[Table] = []
    columns: list[str] = []
    before: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.strip().startswith("|"):
            columns = []
        elif all(re.fullmatch(":?-{3,}:?", cell) for cell in cells):
            columns = before
            found.append({})
        elif columns:
            name = cells[0]
            while name in found[-1]:  # two rows of one name are two rows
                name += " again"
            found[-1][name] = dict(zip(columns[1:], cells[1:], strict=False))
        before = cells
    return found


def number(cell: str) -> float | None:
    """The number that a cell is; None for anything else, an interval too.

    >>> number("**3.59**"), number("9,059"), number("94.9%"), number("0.4 [0.3, 0.5]")
    (3.59, 9059.0, 94.9, None)
    """
    match = _NUMBER.fullmatch(cell.strip())
    return float(match[1].replace(",", "")) if match else None


def ratios(table: Table) -> dict[str, dict[str, float]]:
    """Row -> column -> its number by that of the first row that has one there."""
    first: dict[str, float] = {}
    found: dict[str, dict[str, float]] = {}
    for row, cells in table.items():
        for column, cell in cells.items():
            value = number(cell)
            if value is None or not first.setdefault(column, value):
                continue
            found.setdefault(row, {})[column] = round(value / first[column], 4)
    return found


def run(name: str, root: Path = ROOT, options: Sequence[str] = ()) -> tuple[int, str]:
    """(exit status, what it printed) of a benchmark of the checkout at `root`."""
    python = ROOT / f".venv-{LIBRARIES.get(name, '')}" / "bin" / "python"
    command = [str(python) if python.exists() else sys.executable, f"benchmarks/{name}.py"]
    # before the checkout that is installed in the environment
    variables = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [*command, *options], cwd=root, env=variables, stdout=subprocess.PIPE, text=True
    )
    return done.returncode, done.stdout


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text(encoding="utf-8").splitlines() if cpus.exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), "")
    return {
        "processor": model or platform.processor(),
        "cores": os.cpu_count(),
        "load": [round(load, 1) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def git(*words: str) -> str:
    """What git answers in this checkout; one line and status 1 where it refuses."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"git {' '.join(words)}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip()


def known(names: Sequence[str], default: Sequence[str]) -> Sequence[str]:
    """The benchmarks that were asked for; one line and status 2 for a name that is none."""
    if strange := [name for name in names if name not in NAMES]:
        print(f"no benchmark is called {strange[0]!r}; there are {', '.join(NAMES)}")
        raise SystemExit(2)
    return names or default


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "benchmarks.json")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    failed = []
    report: Mapping[str, Any] = {
        "commit": git("rev-parse", "HEAD"),
        "changed": bool(git("status", "--porcelain", "--untracked-files=no")),
        "machine": machine(),
        "benchmarks": found,
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for name in known(given.names, NAMES):
        start = time.perf_counter()
        status, text = run(name)
        print(f"## {name}\n\n{text}", flush=True)
        found[name] = {
            "status": status,
            "seconds": round(time.perf_counter() - start, 1),
            "tables": [{"rows": table, "ratios": ratios(table)} for table in tables_of(text)],
        }
        failed += [name] if status else []
        # after each: what was measured is kept, whatever comes
        given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"written: {given.out}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
