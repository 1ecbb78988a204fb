"""Runs the real command line in a process of its own, as a user does, and a scenario folder for
it to find."""

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO

from tests.warm import start

ROOT = Path(__file__).resolve().parents[1]
SLOWLY = '''
import asyncio, os, time
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
    """Fails in every third episode, unless the machine is repaired."""
    def __init__(self, agent, sample, rng, task=None):
        self.fails = rng.random() < 1 / 3 and "REPAIRED" not in os.environ
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


def gem_ma(
    *arguments: object, cwd: Path, hidden: str = "", **extra: str
) -> subprocess.CompletedProcess[str]:
    """`gem-ma ARGUMENTS` in a folder, by a fork of a warm process (`tests/warm.py`), in which the
    module `hidden` is not installed. Asserts that no traceback reaches the user."""
    assert not any(name.startswith(("PYTHON", "LC_", "LANG")) for name in extra), "read by Python"
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as none:
        streams = none, out, err
        started = start(
            *arguments, cwd=cwd, env=environment(**extra), streams=streams, hidden=hidden
        )
        try:
            code = started.wait(timeout=120)
        finally:
            started.kill()
        printed, said = text_of(out), text_of(err)
    assert "Traceback" not in said + printed
    return subprocess.CompletedProcess(list(map(str, arguments)), code, printed, said)


def text_of(file: IO[bytes]) -> str:
    """What a command has written, as `subprocess` gives it."""
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


def signalled(
    *arguments: object,
    cwd: Path,
    number: int = signal.SIGINT,
    times: int = 1,
    ready: Path | None = None,
) -> tuple[int, float, str, str]:
    """Starts a command, sends it a signal once `ready` holds a line, and gives (exit code,
    seconds after the last signal, stdout, stderr)."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as none:
        started = start(*arguments, cwd=cwd, env=environment(), streams=(none, out, err))
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
            code = started.wait(timeout=60)
            return code, time.monotonic() - sent, text_of(out), text_of(err)
        finally:
            started.kill()


def latest(*words: str) -> list[str]:
    """The words with the last of several overrides for one key, which a command would refuse."""
    last = {word.partition("=")[0]: number for number, word in enumerate(words)}
    return [word for number, word in enumerate(words) if last[word.partition("=")[0]] == number]
