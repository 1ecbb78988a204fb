"""Runs the suite in several processes at a time, which take one file after another:

    python -m tests.side_by_side PROCESSES [OPTIONS OF PYTEST]

A process collects nothing but its own files (`tests/dealing.py`). There is one process more than
processors, because some tests wait.

`tests/seconds.txt` holds the CPU seconds of the last run that `GEM_MA_WRITE_SECONDS=1` wrote down:
of each file without its long tests, so that no dear file is left to the end, and of each test that
should have the mark `long`. `make test` leaves these out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.dealing import COSTS, LONG, NAMES, padded

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
CACHES = {".hypothesis", ".pytest_cache", "__pycache__"}
SECONDS = TESTS / "seconds.txt"
LISTED = 2.0  # CPU seconds of a file that is worth a line
REPORT = 30.0  # seconds between two lines of progress
HANGS = 600  # seconds after which a test is ended, with the stack of each thread
COUNTED = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed|warnings?|deselected)")
RED = ("failed", "error", "errors")


def dearest_first() -> list[str]:
    """Every test file, from here; marks say which tests are not meant."""
    costs = Counter[str]()
    for line in SECONDS.read_text().splitlines():
        cost, name = line.split(" ", 1)
        costs[name.partition("::")[0]] += int(cost)
    names = [path.relative_to(TESTS).as_posix() for path in sorted(TESTS.rglob("test_*.py"))]
    return sorted(names, key=lambda name: costs[name], reverse=True)


def start(pipe: int, costs: Path, options: list[str]) -> tuple[subprocess.Popen[str], Any]:
    said = tempfile.TemporaryFile("w+")  # noqa: SIM115 (until its process ends)
    limits = ["-o", f"faulthandler_timeout={HANGS}", "-o", "faulthandler_exit_on_timeout=true"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.dealing", *limits, *options],
        cwd=ROOT,
        env={**os.environ, NAMES: str(pipe), COSTS: str(costs)},
        pass_fds=[pipe],
        stdout=said,
        stderr=said,
        text=True,
    )
    return process, said


def main(count: int, options: list[str]) -> int:
    """Runs all files, prints what each process said once it ends, and gives the worst exit code."""
    began, counts, worst, before = time.monotonic(), Counter[str](), 0, set(os.listdir(ROOT))
    names = dearest_first()
    pipe, ours = os.pipe()
    os.set_blocking(ours, False)  # too many names for a pipe are an error, not a wait
    for name in names:
        assert os.write(ours, padded(f"tests/{name}"))
    os.close(ours)
    with tempfile.TemporaryDirectory() as folder:
        costs = Path(folder) / "costs"
        costs.touch()
        running = [start(pipe, costs, options) for _ in range(count)]
        os.close(pipe)
        report = began + REPORT
        while running:
            with suppress(KeyboardInterrupt):  # they have it too, and say how far they came
                time.sleep(0.2)
            if time.monotonic() > report:
                report += REPORT
                rows = rows_of(costs.read_text())
                red = sum(failed for _, _, failed, _ in rows)
                print(progress(rows, len(names), time.monotonic() - began, red), flush=True)
            for process, said in [each for each in running if each[0].poll() is not None]:
                running.remove((process, said))
                said.seek(0)
                text = said.read()
                print(text, flush=True)
                last = text.strip().rpartition("\n")[2]
                counts.update({kind: int(number) for number, kind in COUNTED.findall(last)})
                worst = max(worst, abs(process.returncode))
        ended = costs.read_text()
    totals = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    # a row is written before the last test of its file has run; what the processes said is whole
    red = sum(number for kind, number in counts.items() if kind in RED)
    print(progress(rows_of(ended), len(names), time.monotonic() - began, red))
    print(f"all together: {totals}")
    if left := set(os.listdir(ROOT)) - before - CACHES:
        print(f"tests leave in this folder: {', '.join(sorted(left))}; a test writes into tmp_path")
        worst = worst or 1
    if os.environ.get("GEM_MA_WRITE_SECONDS"):
        SECONDS.write_text(listed(ended))
    return min(worst, 125)


def rows_of(ended: str) -> list[Any]:
    """[file, CPU seconds, tests that failed, {long test: CPU seconds}] of each that has ended."""
    return [json.loads(line) for line in ended.splitlines()]


def progress(rows: list[Any], files: int, seconds: float, red: int) -> str:
    spent = sum(cost for _, cost, _, _ in rows)
    return (
        f"{len(rows)} of {files} files in {seconds:.0f} s ({spent:.0f} CPU s), {red} tests failed"
    )


def listed(ended: str) -> str:
    """The table of `SECONDS`, the dearest first."""
    costs = dict[str, float]()
    for path, cost, _, dear in rows_of(ended):
        costs |= {path: cost - sum(dear.values()), **dear}
    lines = [
        f"{cost:.0f} {name.removeprefix('tests/')}\n"
        for name, cost in sorted(costs.items(), key=lambda item: -item[1])
        if cost >= (LONG if "::" in name else LISTED)
    ]
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
