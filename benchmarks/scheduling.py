"""Episodes without a barrier beside the same episodes in lock-step, with real sleeps in the place
of a model.

    python benchmarks/scheduling.py

`ideal` is the same latencies slept through with nothing else to do. Lock-step is the loop of a
vector environment: all episodes wait for the slowest answer of each step. Best of three, the
schedules taking turns; other work on the machine shows as lost percents.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from gem_ma.driver.rollout import Plan, play_many
from gem_ma.engines.base import Policy
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.scenario import Ask, Game, Play, Reward, Scenario
from gem_ma.kernel.types import Reply, Request

ROUNDS, REPEATS = 20, 3


class Turns(Scenario):
    """Two agents speak in turn."""

    agents = ("a", "b")

    def play(self, rng: random.Random, task: Any) -> Play:
        for turn in range(ROUNDS):
            agent = self.agents[turn % 2]
            said = yield Ask({agent: f"Turn {turn}: left or right?"}, legal=("left", "right"))
            yield Reward({agent: float(said[agent].parsed == "left")})


class Sleeps:
    """Answers with the first legal string after the latency of the episode."""

    def __init__(self, latency: Callable[[int], float]) -> None:
        self.latency = latency

    async def sample(self, request: Request) -> Reply:
        await asyncio.sleep(self.latency(int(request.conversation.split("/")[2])))
        return Reply(request.legal[0] if request.legal else "")


async def without_barrier(count: int, latency: Callable[[int], float]) -> list[float]:
    """Seconds until each episode was there."""
    scenario = Turns()
    cast = dict.fromkeys(scenario.agents, Seat("direct", "main"))
    plans = [Plan(scenario, cast, seed=seed) for seed in range(count)]
    start, ended = time.perf_counter(), []
    async for episode in play_many(
        plans, {"main": Policy("main", Sleeps(latency))}, concurrency=count
    ):
        assert len(episode.turns) == ROUNDS
        ended.append(time.perf_counter() - start)
    return ended


async def lock_step(count: int, latency: Callable[[int], float]) -> list[float]:
    """The same plays, one gather per step over all of them."""
    scenario = Turns()
    games = [Game(scenario, seed=seed) for seed in range(count)]
    start, ended = time.perf_counter(), []

    async def answer(seed: int, game: Game) -> dict[str, str]:
        await asyncio.sleep(latency(seed))
        return {
            agent: asked.legal[0] if asked.legal else "" for agent, asked in game.pending.items()
        }

    while live := [(seed, game) for seed, game in enumerate(games) if game.pending]:
        for (_, game), said in zip(
            live, await asyncio.gather(*(answer(*one) for one in live)), strict=True
        ):
            game.send(said)
            if game.over:
                ended.append(time.perf_counter() - start)
    return ended


async def sleeps_alone(count: int, latency: Callable[[int], float]) -> list[float]:
    """The latencies and nothing else: what no scheduler can beat on this machine at this moment."""
    start, ended = time.perf_counter(), []

    async def one(seed: int) -> None:
        for _ in range(ROUNDS):
            await asyncio.sleep(latency(seed))
        ended.append(time.perf_counter() - start)

    await asyncio.gather(*(one(seed) for seed in range(count)))
    return ended


def report(name: str, count: int, latency: Callable[[int], float], others: int) -> None:
    """`others`: how many episodes are no stragglers."""
    schedules = {
        "sleeps alone (ideal)": sleeps_alone,
        "no barrier": without_barrier,
        "lock-step": lock_step,
    }
    best: dict[str, list[float]] = {}
    for _ in range(REPEATS):
        for how, schedule in schedules.items():
            ended = sorted(asyncio.run(schedule(count, latency)))
            best[how] = (
                ended
                if how not in best
                else [min(pair) for pair in zip(best[how], ended, strict=True)]
            )
    ideal = best["sleeps alone (ideal)"]
    for how, ended in best.items():
        last, rest = ended[-1], ended[others - 1]
        print(
            f"| {name} | {how} | {last:.3f} | {ideal[-1] / last:.1%} | {rest:.3f} |"
            f" {ideal[others - 1] / rest:.1%} |"
        )


def main() -> None:
    print(
        "| episodes | schedule | all there, s | of ideal | all but the straggler, s | of ideal |\n|"
        " --- | --- | ---: | ---: | ---: | ---: |"
    )
    report("64, each call 20 ms", 64, lambda seed: 0.02, 64)
    report("8, calls of 5 ms, of one 200 ms", 8, lambda seed: 0.2 if seed == 7 else 0.005, 7)


if __name__ == "__main__":
    main()
