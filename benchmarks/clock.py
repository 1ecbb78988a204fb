"""What one agent's text costs: seconds of each reader on 1 MB, and how long 32 retail plays wait
where one of them says words of 32,000 characters.

    python benchmarks/clock.py

A wait is how much later than asked a sleep of 5 ms ends, in the loop that plays; other work on
the machine shows too, so it stands beside a run in which nobody says much.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gem_ma import Action, Plan, play_many
from gem_ma.kernel.episode import Seat
from gem_ma.registry import make
from tests.house.test_linear import READERS, TALKS, played, readers_of_talk, run
from tests.pumps import UNITS

MEGABYTE, WORD, PLAYS = 1_000_000, 32_000, 32


def seconds(reader: Any, text: str) -> float:
    start = time.process_time()
    reader(text)
    return time.process_time() - start


def readers() -> None:
    print(f"{'reader, 1 MB':28} {'worst s':>8}  on runs of")
    for name, reader in {**READERS, **readers_of_talk()}.items():
        worst, unit = max((seconds(reader, run("", unit, MEGABYTE)), unit) for unit in UNITS)
        print(f"{name:28} {worst:8.2f}  {unit!r}", flush=True)
    for name, cast in TALKS.items():
        worst, unit = max(
            (seconds(lambda text, cast=cast: played(cast, text, 4), run("", unit, WORD)), unit)
            for unit in UNITS
        )
        print(f"{f'play of 4, {WORD}: {name}':28} {worst:8.2f}  {unit!r}", flush=True)


class Customer:
    """Says one long word at every turn, or a short one."""

    def __init__(self, word: str) -> None:
        self.word = word

    async def act(self, asked: Any) -> Action:
        await asyncio.sleep(0.01)  # a model
        return Action(self.word)


async def waits(word: str) -> tuple[float, int]:
    """(the longest wait, plays that ended as they should) of 32 plays, one of which has a
    customer that says `word`."""
    scenario, worst, left = make("retail"), 0.0, False

    async def watch() -> None:
        nonlocal worst
        while not left:
            start = time.perf_counter()
            await asyncio.sleep(0.005)
            worst = max(worst, time.perf_counter() - start - 0.005)

    plans = [
        Plan(scenario, {"assistant": Seat("retail_scripted"), "user": Seat("says")}, f"train/{at}")
        for at in range(PLAYS)
    ]
    for at in range(PLAYS):
        scenario.tasks("train")[at]  # made before the clock starts
    words = iter([word, *["Hello, I wait."] * (PLAYS - 1)])
    watching = asyncio.ensure_future(watch())
    await asyncio.sleep(0.05)
    ends = [
        episode.error is None
        async for episode in play_many(
            plans, behaviours={"user": lambda *_, **__: Customer(next(words))}
        )
    ]
    left = True
    await watching
    return worst, sum(ends)


def main() -> None:
    print(f"{'32 plays, one says':28} {'longest wait s':>14} {'whole':>6}")
    for name, word in {
        "a short word": "a",
        **{
            f"{unit!r} x 32,000": run("", unit, WORD)
            for unit in ("a", "7", "a.", "漢", " ", "Shall I cancel order #W1? ")
        },
    }.items():
        wait, whole = asyncio.run(waits(word))
        print(f"{name:28} {wait:14.2f} {whole:3} of {PLAYS}", flush=True)
    readers()


if __name__ == "__main__":
    main()
