"""Runs the real command line in a process of its own, as a user does, and a scenario folder for
it to find."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SLOWLY = '''
import asyncio, time
from gem_ma import Action, Scenario, Ask

class Slow:
    """Waits, then cooperates."""
    def __init__(self, agent, sample, rng, task=None, seconds: float = 0.1, block: bool = False):
        self.seconds, self.block = seconds, block
    async def act(self, asked):
        if self.block:
            time.sleep(self.seconds)
        else:
            await asyncio.sleep(self.seconds)
        return Action("cooperate", (), "cooperate")

class Raising:
    """Fails in every third episode."""
    def __init__(self, agent, sample, rng, task=None):
        self.fails = rng.random() < 1 / 3
    async def act(self, asked):
        if self.fails:
            raise RuntimeError("\\x1b[31mlost\\x1b[0m the\\u202e line")
        return Action("cooperate", (), "cooperate")

class Quiz(Scenario):
    """Three questions, one agent."""
    agents = ("guesser",)
    chance = False
    def tasks(self, split):
        if split not in ("test", "train"):
            raise ValueError(f"splits are test and train, not {split!r}")
        return ("red", "green", "blue")
    def play(self, rng, task):
        yield Ask({"guesser": "Which colour?"}, legal=("red", "green", "blue"))
    def success(self, episode):
        return episode.turns[0].action.parsed == "red" if episode.turns else None
'''


def environment(**extra: str) -> dict[str, str]:
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("GEM_MA", "TAU"))
    }
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **extra,
    }


def gem_ma(*arguments: object, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """`gem-ma ARGUMENTS` in a folder. Asserts that no traceback reaches the user."""
    done = subprocess.run(
        [sys.executable, "-m", "gem_ma", *map(str, arguments)],
        cwd=cwd,
        env=environment(**extra),
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert "Traceback" not in done.stderr + done.stdout
    return done


def signalled(
    *arguments: object,
    cwd: Path,
    number: int = signal.SIGINT,
    times: int = 1,
    ready: Path | None = None,
) -> tuple[int, float, str, str]:
    """Starts a command, sends it a signal once `ready` holds a line, and gives (exit code,
    seconds after the last signal, stdout, stderr)."""
    started = subprocess.Popen(
        [sys.executable, "-m", "gem_ma", *map(str, arguments)],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(600):
            if ready is not None and ready.exists() and ready.stat().st_size:
                break
            if started.poll() is not None:
                break
            time.sleep(0.05)
        for at in range(times):
            time.sleep(0.3 if at else 0.2)
            sent = time.monotonic()
            started.send_signal(number)
        out, err = started.communicate(timeout=60)
        return started.returncode, time.monotonic() - sent, out, err
    finally:
        if started.poll() is None:
            started.kill()
            started.wait()
