"""What a call of the guarded worker costs, beside a fresh `python -I` for each call and beside warm
sessions of the tools `python` and `shell`, and how far behind their limit sleeping and busy calls
are ended.

    python benchmarks/sandbox.py [--calls 500]

Rows take turns, so that a busy machine slows all alike; the best of five passes each.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable

from gem_ma.tools.python import Python
from gem_ma.tools.sandbox import run
from gem_ma.tools.sessions import Session
from gem_ma.tools.shell import Shell
from gem_ma.tools.walls import Wall

CODE = "print(sum(range(10)))"
LATE = {"asleep": "import time; time.sleep(60)", "busy": "while True: pass"}


def warm() -> None:
    assert run(CODE)["out"] == "45\n"


def unwalled() -> None:
    assert run(CODE, wall=Wall("none"))["out"] == "45\n"


def fresh() -> None:
    done = subprocess.run([sys.executable, "-I", "-c", CODE], capture_output=True, text=True)
    assert done.stdout == "45\n"


def in_session(session: Session, name: str, text: str) -> Callable[[], None]:
    def call() -> None:
        session.cells.clear()  # what was typed is kept for forks, and would only grow here
        session.done = 0
        session.plan(name, {"code": text, "command": text})
        assert session.run()["out"] == "45\n"

    call.__name__ = f"session of {name}"
    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=500)
    calls = parser.parse_args().calls
    best: dict[str, float] = {}
    sessions = Python().open(), Shell().open()
    python = in_session(sessions[0], "python", CODE)
    shell = in_session(sessions[1], "shell", "echo $((40 + 5))")
    for _ in range(5):
        rows = ((warm, calls), (python, calls), (shell, calls), (unwalled, calls))
        for row, number in (*rows, (fresh, max(1, calls // 10))):
            row()
            before = time.perf_counter()
            for _ in range(number):
                row()
            rate = number / (time.perf_counter() - before)
            best[row.__name__] = max(best.get(row.__name__, 0.0), rate)
    for session in sessions:
        session.close()
    print("| call | calls/s |\n|---|---:|")
    for name, rate in best.items():
        print(f"| {name} | {rate:.0f} |")
    print("\n| ended at 1 s | seconds late |\n|---|---:|")
    for name, code in LATE.items():
        before = time.perf_counter()
        assert run(code, 1.0)["status"] == "timeout"
        print(f"| {name} | {time.perf_counter() - before - 1:.3f} |")


if __name__ == "__main__":
    main()
