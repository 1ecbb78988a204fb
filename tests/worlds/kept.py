"""Two fresh processes of the kit that stay for all environments of a library: its import takes
seconds, and most environments a fraction of one. `python -m tests.worlds.kept` is one of them."""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

from gem_ma.testing import fresh
from gem_ma.testing.kit import Kit

ROOT = Path(__file__).resolve().parents[2]


class Child:
    """A process with string hashes of its own. It is started when it is asked, and anew where it
    has ended."""

    def __init__(self, salt: str) -> None:
        self.salt = salt
        self.process: subprocess.Popen[str] | None = None

    def ask(self, order: dict[str, Any]) -> dict[str, str]:
        """What it answers to an order; `{"problem": ...}` where it cannot."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.worlds.kept"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=ROOT,
                env={**os.environ, fresh._INSIDE: "1", "PYTHONHASHSEED": self.salt},
            )
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], fresh.WAIT_S)[0]:
            self.process.kill()
        return json.loads(self.process.stdout.readline() or '{"problem": "it has ended"}')

    def end(self) -> None:
        if self.process is not None:
            with self.process:  # which closes its pipes
                self.process.kill()


CHILDREN = Child("1"), Child("2")
for child in CHILDREN:
    atexit.register(child.end)


def answers(kit: Kit, order: dict[str, Any]) -> list[dict[str, str]]:
    """In the place of `fresh._answers`."""
    came = []
    for child in CHILDREN:
        digests = child.ask(order)
        if "problem" in digests:
            kit.skip(1, f"fresh processes with other string hashes: {digests['problem']}")
        else:
            came.append(digests)
    return came


def main() -> None:
    from gem_ma.worlds import line

    # what a library prints, in C too, is no answer
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for text in sys.stdin:
        try:
            digests = fresh.answer(json.loads(text))
        except Exception as error:
            digests = {
                "problem": f"it could not be rebuilt there ({type(error).__name__}: {error})"
            }
        line.forget()
        print(json.dumps(digests), file=out, flush=True)


if __name__ == "__main__":
    main()
