"""Plays a run in child processes and kills each with SIGKILL at a random instant, until one comes
through; prints what it saw as JSON.

    python tests/faults/killed_run.py FOLDER EPISODES KILLS SEED

Not a test by itself: `test_kill.py` runs it in a process of its own, so that no thread of the
test run is forked.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gem_ma.driver.rollout import Plan, play_many
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.types import Action, Asked
from gem_ma.registry import make
from gem_ma.runs.store import RunFolder

PADDING = "x" * 2_000


class Slow:
    """Plays a random legal move after a moment."""

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        self.rng = rng

    async def act(self, asked: Asked) -> Action:
        await asyncio.sleep(0.004)
        assert asked.legal is not None
        return Action(self.rng.choice(asked.legal))


def plans(episodes: int) -> Iterator[Plan]:
    scenario = make("kuhn_poker")
    cast = {agent: Seat("slow") for agent in scenario.agents}
    for seed in range(episodes):
        yield Plan(scenario, cast, seed=seed, options={"padding": PADDING})


def play(path: Path, episodes: int) -> None:
    """What a command does: open the folder, play what is not done, append each episode as it
    ends."""

    async def go() -> None:
        with RunFolder.open(
            path, config_text="", resolved={"scenario": {"id": "kuhn_poker"}}
        ) as folder:
            done = folder.done()
            left = [plan for plan in plans(episodes) if plan.id not in done]
            behaviours = dict.fromkeys(make("kuhn_poker").agents, Slow)
            async for episode in play_many(left, behaviours=behaviours, concurrency=4):
                folder.append([episode])

    asyncio.run(go())


def wait_for_growth(file: Path) -> None:
    """Returns when a line has been appended; on a busy machine that may take its time."""
    start, deadline = size(file), time.monotonic() + 20
    while size(file) <= start and time.monotonic() < deadline:
        time.sleep(0.0005)


def size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def main(path: Path, episodes: int, kills: int, seed: int) -> dict[str, Any]:
    rng, file = random.Random(seed), path / "episodes.jsonl"
    seen = {"killed": 0, "torn": 0, "changed_rows": 0}
    while True:
        child = os.fork()
        if child == 0:
            try:
                play(path, episodes)
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(1)
        if seen["killed"] < kills:
            if rng.random() < 0.5:
                time.sleep(rng.uniform(0, 0.06))  # also before or while it opens the folder
            else:
                wait_for_growth(file)
                time.sleep(rng.uniform(0, 0.008))
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == -signal.SIGKILL:
            seen["killed"] += 1
        elif code:
            raise SystemExit(f"the run failed with exit code {code}")
        else:
            return seen
        now = file.read_bytes() if file.exists() else b""
        whole = now[: now.rfind(b"\n") + 1]
        # what a kill inside of a write leaves; the kernel lets it happen too rarely to wait for
        if whole and rng.random() < 0.3:
            line = whole.splitlines(keepends=True)[-1]
            with file.open("ab") as end:
                end.write(line[: rng.randrange(1, len(line))])
            now = file.read_bytes()
        seen["torn"] += now != whole
        before = path.with_suffix(".seen")
        seen["changed_rows"] += not whole.startswith(
            before.read_bytes() if before.exists() else b""
        )
        before.write_bytes(whole)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))))
