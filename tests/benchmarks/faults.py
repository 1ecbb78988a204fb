"""Episodes against a server full of faults beside the same episodes against a clean one, and what the engine adds to the bare client.

    python tests/benchmarks/faults.py [--episodes 500] [--latency 1.0] [--requests 400]

Faults by seeded chance: 10 % 429 (Retry-After up to 1 s), 10 % 500, 5 % truncated JSON with status 200, 5 % dropped connections, 3 % empty
choices; in the last row 2 % hangs besides, each cut at the request time-out of 3 s. 429 and 500 come at once, a dropped connection after half
of the latency, all else after all of it. `lost` counts episodes without an end of their own, `doubled` replies that two turns got; the number
of attempts on record must equal the number of faults that were sent.

Overhead is processor time of this process per request, the server being another one: the engine (rendering, sending, strict reading) against
`client.chat.completions.create` of the client library, one at a time and 64 at once, taking turns, the best of three.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gem_ma import Ask, Message, Scenario
from gem_ma.engines.base import Policy
from gem_ma.engines.openai import OpenAI
from gem_ma.rollout import Plan, play_many
from gem_ma.types import End, Request, Seat
from tests.fault_server import Answer, Asked, FaultServer, drop, hang, raw, says, status, truncated

AT_ONCE, TIMEOUT_S, TURNS, REPEATS = 64, 3.0, 4, 3
SHARES = {"429": 0.10, "500": 0.10, "truncated": 0.05, "drop": 0.05, "empty": 0.03}


class Talk(Scenario):
    """Two agents answer in turn, twice each."""

    agents = ("a", "b")

    def play(self, rng: random.Random, task: Any) -> Any:
        for turn in range(TURNS):
            yield Ask({self.agents[turn % 2]: f"Turn {turn}: what do you say?"})


class Faulty:
    """The script of a server: a good reply that names its request, or a fault."""

    def __init__(self, shares: dict[str, float], latency: float, seed: int = 1) -> None:
        self.shares, self.latency, self.rng = shares, latency, random.Random(seed)
        self.sent: Counter[str] = Counter()

    def __call__(self, asked: Asked) -> Answer:
        draw = self.rng.random()
        for kind, share in self.shares.items():
            if draw < share:
                self.sent[kind] += 1
                return self._fault(kind)
            draw -= share
        return says(str(asked.body["seed"]), delay_s=self.latency)

    def _fault(self, kind: str) -> Answer:
        late = {"delay_s": self.latency}
        if kind == "429":
            return status(429, "slow down", retry_after=round(self.rng.uniform(0, min(1.0, self.latency)), 2))
        faults = {"500": status(500), "truncated": truncated(**late), "drop": drop(after=30, delay_s=self.latency / 2)}
        return faults.get(kind) or (raw(b'{"choices": []}', **late) if kind == "empty" else hang())


def play(shares: dict[str, float], episodes: int, latency: float) -> dict[str, Any]:
    """Plays the episodes once; raises AssertionError where the record and the server disagree."""
    script, scenario = Faulty(shares, latency), Talk()
    plans = (Plan(scenario, dict.fromkeys(scenario.agents, Seat("direct", "main")), seed=seed) for seed in range(episodes))
    with FaultServer(script) as server:
        engine = OpenAI("m", base_url=server.url, policy="main", timeout_s=TIMEOUT_S, concurrency=AT_ONCE)

        async def work() -> list[Any]:
            return [episode async for episode in play_many(plans, {"main": Policy("main", engine)}, concurrency=AT_ONCE)]

        began = time.perf_counter()
        ended = asyncio.run(work())
        wall = time.perf_counter() - began
        replies = [reply for episode in ended for turn in episode.turns for reply in turn.replies]
        lost = episodes - len({episode.id for episode in ended if episode.end is End.TERMINATED})
        recorded = sum(len(reply.attempts) for reply in replies)
        assert lost or recorded == script.sent.total(), (recorded, script.sent)
        return {
            "wall": wall,
            "lost": lost,
            "doubled": len(replies) - len({reply.text for reply in replies}),
            "attempts": recorded,
            "faults": script.sent.total(),
            "requests": len(server.asked),
            "tries": max(len(reply.attempts) for reply in replies) + 1 if replies else 0,
        }


def show_faults(episodes: int, latency: float) -> None:
    print(f"{episodes} episodes of two agents, {TURNS} calls each, {AT_ONCE} at once, latency {latency:g} s\n")
    print("| server | wall, s | against clean | lost | doubled | faults sent | attempts on record | most tries |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    clean = 0.0
    for name, shares in (("clean", {}), ("faults", SHARES), ("faults and 2 % hangs", {**SHARES, "hang": 0.02})):
        got = play(shares, episodes, latency)
        clean = clean or got["wall"]
        counts = f"{got['lost']} | {got['doubled']} | {got['faults']} | {got['attempts']} | {got['tries']}"
        print(f"| {name} | {got['wall']:.1f} | {got['wall'] / clean:.2f} | {counts} |", flush=True)


# -- overhead -------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def server_process() -> Iterator[str]:
    """The address of a clean server in a process of its own."""
    process = subprocess.Popen([sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the server has no pipes")
        yield json.loads(process.stdout.readline())
    finally:
        process.communicate("stop\n", timeout=10)


def serve() -> None:
    with FaultServer([says("A short answer.")]) as server:
        print(json.dumps(server.url), flush=True)
        sys.stdin.readline()


def cost(one: Callable[[], Awaitable[Any]], requests: int, at_once: int, client: list[Any]) -> float:
    """Processor ms per request. A client that was made on the way is closed."""

    async def work() -> float:
        left = iter(range(requests))

        async def worker() -> None:
            for _ in left:
                await one()

        await asyncio.gather(*(one() for _ in range(at_once)))  # connections are open now
        busy = time.process_time()
        await asyncio.gather(*(worker() for _ in range(at_once)))
        busy = time.process_time() - busy
        for made in client:
            await made.close()
        return 1e3 * busy / requests

    return asyncio.run(work())


def show_overhead(requests: int) -> None:
    import openai

    history = tuple(Message("What is there to say? " * 8, "b" if n % 2 else "a") for n in range(9))
    request = Request("a", history)
    print("\n| at once | bare client, ms | engine, ms | engine above it, ms | requests a second of one core |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    with server_process() as url:
        for at_once in (1, AT_ONCE):
            best: dict[str, float] = {}
            for _ in range(REPEATS):
                engine = OpenAI("m", base_url=url, concurrency=at_once)
                body, made = engine.body(request), list[Any]()

                async def bare(body: dict[str, Any] = body, client: list[Any] = made) -> Any:
                    if not client:  # on the loop that uses it
                        client.append(openai.AsyncOpenAI(api_key="none", base_url=url, max_retries=0))
                    known = {key: body[key] for key in ("model", "messages", "temperature", "top_p", "max_tokens", "seed")}
                    return (await client[0].chat.completions.create(**known, extra_body={"top_k": 0})).choices[0].message.content

                async def ours(engine: OpenAI = engine) -> Any:
                    return (await engine.sample(request)).text

                for name, one, opened in (("bare", bare, made), ("ours", ours, [])):
                    best[name] = min(best.get(name, float("inf")), cost(one, requests, at_once, opened))
            above = best["ours"] - best["bare"]
            print(f"| {at_once} | {best['bare']:.2f} | {best['ours']:.2f} | {above:+.2f} | {1e3 / best['ours']:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--latency", type=float, default=1.0)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve()
        return
    show_faults(given.episodes, given.latency)
    show_overhead(given.requests)


if __name__ == "__main__":
    main()
