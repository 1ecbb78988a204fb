"""Episodes against a server full of faults beside the same episodes against a clean one, and what
the engine adds to the bare client.

    python benchmarks/faults.py [--episodes 500] [--latency 1.0] [--requests 400]

Four tables: whole replies and streams, agents in turn and both at once. In each a clean server; the
promised mix by seeded chance (10 % 429 with Retry-After 1 s, 10 % 500, 5 % truncated JSON with
status 200, 5 % dropped connections, 3 % empty choices); 30 % of every class of fault, with failed
choices, unknown finish reasons, errors in, beside and after choices, cut streams, compressed bombs
and replies that nobody asked for, at once and late; and the promised mix with 2 % hangs, each cut
at the request time-out of 3 s. 429 and 500 come at once, a dropped connection after half of the
latency, all else after all of it.

`lost` counts episodes without an end of their own, `doubled` replies that two turns got, `wrong`
turns whose reply belongs to another request or to a fault. The number of attempts on record must
equal the number of faults that were sent; on a busy machine an honest answer may miss the time-out,
which is an attempt too (`late`).

Overhead is processor time of this process per request, the server being another one: the engine
(rendering, sending, strict reading) against `client.chat.completions.create` of the client
library, one at a time and 64 at once, taking turns, the best of three. The bare client keeps its
connections; the engine opens one per request, and says in `engines/endpoint.py` why.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gem_ma import Ask, Message, Scenario
from gem_ma.driver.rollout import Plan, play_many
from gem_ma.engines.api.openai import SEED_BITS, OpenAI
from gem_ma.engines.base import Policy, stable_seed
from gem_ma.kernel.episode import End, Seat
from gem_ma.kernel.types import Request
from tests.fault_server import (
    EVENTS,
    Answer,
    Asked,
    FaultServer,
    drop,
    events,
    hang,
    raw,
    reply,
    says,
    status,
    truncated,
)

AT_ONCE, TIMEOUT_S, TURNS, REPEATS = 64, 3.0, 4, 3
PROMISED = {"429": 0.10, "500": 0.10, "truncated": 0.05, "drop": 0.05, "empty": 0.03}
HARMLESS = ("second", "late second")  # good replies, with what nobody asked for behind them
CLASSES = (
    "429",
    "500",
    "truncated",
    "drop",
    "empty",
    "finish error",
    "finish unknown",
    "finish number",
    "error in choice",
    "error beside",
    "bomb",
)
CLASSES += ("error event", "no finish", *HARMLESS)
EVERY = dict.fromkeys(CLASSES, 0.30 / len(CLASSES))
BOMB = gzip.compress(bytes(8_000_000))


class Talk(Scenario):
    """Two agents answer, in turn or `together`, twice each."""

    agents = ("a", "b")

    def __init__(self, together: bool = False) -> None:
        self.together = together

    def play(self, rng: random.Random, task: Any) -> Any:
        for turn in range(TURNS // 2 if self.together else TURNS):
            yield Ask(
                dict.fromkeys(
                    self.agents if self.together else self.agents[turn % 2 :][:1],
                    f"Turn {turn}: what do you say?",
                )
            )


class Faulty:
    """The script of a server: a good reply that names its request, or a fault."""

    def __init__(
        self, shares: dict[str, float], latency: float, *, stream: bool = False, seed: int = 1
    ) -> None:
        self.shares, self.latency, self.stream, self.rng = (
            shares,
            latency,
            stream,
            random.Random(seed),
        )
        self.sent: Counter[str] = Counter()

    def __call__(self, asked: Asked) -> Answer:
        draw = self.rng.random()
        good = (events if self.stream else says)(str(asked.body["seed"]), delay_s=self.latency)
        for kind, share in self.shares.items():
            if draw < share:
                self.sent[kind] += 1
                return self._fault(kind, good)
            draw -= share
        return good

    def _fault(self, kind: str, good: Answer) -> Answer:
        late = {"delay_s": self.latency}
        if kind in HARMLESS:
            unasked = (events if self.stream else says)("unasked")
            return replace(
                good, second=unasked, second_s=self.latency / 2 if kind == "late second" else 0.0
            )
        whole = {
            "429": status(429, "slow down", retry_after=min(1.0, self.latency)),
            "500": status(500),
            "drop": drop(after=30, delay_s=self.latency / 2),
            "hang": hang(),
            "bomb": Answer(500, BOMB, headers={"content-encoding": "gzip"}, **late),
        }
        if kind in whole:
            return whole[kind]
        error = {"error": {"code": 502, "message": "upstream"}}
        if self.stream:
            return self._broken_stream(kind, error)
        made = {
            "finish error": says("half an", finish="error", **late),
            "finish unknown": says("half an", finish="insufficient_system_resource", **late),
            "finish number": says("half an", finish=7, **late),
            "error in choice": says("half an", choice=error, **late),
            "error beside": raw(json.dumps(reply("half an") | error).encode(), **late),
            "error event": says(
                "half an",
                choice={"message": {"role": "assistant", "content": "half", **error}},
                **late,
            ),
            "empty": raw(b'{"choices": []}', **late),
        }
        return made.get(kind) or truncated(**late)

    def _broken_stream(self, kind: str, error: dict[str, Any]) -> Answer:
        late = {"delay_s": self.latency}
        chunk = {"choices": [{"index": 0, "delta": {"content": "half an"}}]}
        parts: dict[str, list[dict[str, Any]]] = {
            "error in choice": [chunk, {"choices": [chunk["choices"][0] | error]}],
            "error beside": [chunk, chunk | error],
            "error event": [chunk, error],
            "no finish": [chunk],
            "empty": [{"choices": []}],
        }
        if kind in parts:
            body = (
                "".join(f"data: {json.dumps(one)}\n\n" for one in parts[kind]) + "data: [DONE]\n\n"
            )
            return raw(body.encode(), EVENTS, **late)
        finish: Any = {"finish error": "error", "finish unknown": "banana", "finish number": 7}.get(
            kind
        )
        return events("half an", finish=finish, done=kind != "truncated", **late)


def play(
    shares: dict[str, float],
    episodes: int,
    latency: float,
    *,
    stream: bool = False,
    together: bool = False,
    timeout_s: float = 0.0,
) -> dict[str, Any]:
    """Plays the episodes once and counts. `attempts` may be above `faults` by `late` alone:
    honest answers that missed the time-out."""
    script, scenario = Faulty(shares, latency, stream=stream), Talk(together)
    plans = (
        Plan(scenario, dict.fromkeys(scenario.agents, Seat("direct", "main")), seed=seed)
        for seed in range(episodes)
    )
    with FaultServer(script) as server:
        engine = OpenAI(
            "m",
            base_url=server.url,
            policy="main",
            timeout_s=timeout_s or TIMEOUT_S,
            concurrency=AT_ONCE,
            stream=stream,
        )

        async def work() -> list[Any]:
            return [
                episode
                async for episode in play_many(
                    plans, {"main": Policy("main", engine)}, concurrency=AT_ONCE // (1 + together)
                )
            ]

        began = time.perf_counter()
        ended = asyncio.run(work())
        wall = time.perf_counter() - began
    replies = [one for episode in ended for turn in episode.turns for one in turn.replies]
    attempts = [attempt for one in replies for attempt in one.attempts]
    return {
        "wall": wall,
        "lost": episodes - len({episode.id for episode in ended if episode.end is End.TERMINATED}),
        "doubled": len(replies) - len({one.text for one in replies}),
        "wrong": sum(one.text != wanted for episode in ended for one, wanted in _wanted(episode)),
        "attempts": len(attempts),
        "late": (
            sum("no whole reply within" in attempt.detail for attempt in attempts)
            - script.sent["hang"]
        ),
        "faults": script.sent.total() - sum(script.sent[kind] for kind in HARMLESS),
        "requests": len(server.asked),
        "tries": max(len(one.attempts) for one in replies) + 1 if replies else 0,
    }


def _wanted(episode: Any) -> Iterator[tuple[Any, str]]:
    """Every reply with what the server says to its request."""
    turns: Counter[str] = Counter()
    for turn in episode.turns:
        for call, one in enumerate(turn.replies):
            yield (
                one,
                str(stable_seed(*episode.id, turn.agent, turns[turn.agent], call) & SEED_BITS),
            )
        turns[turn.agent] += 1


def show_faults(episodes: int, latency: float) -> None:
    print(
        f"{episodes} episodes of two agents, {TURNS} calls each, {AT_ONCE} at once, latency"
        f" {latency:g} s"
    )
    rows = {
        "clean": {},
        "the promised mix": PROMISED,
        "30 % of every class": EVERY,
        "the mix and 2 % hangs": {**PROMISED, "hang": 0.02},
    }
    for together in (False, True):
        for stream in (False, True):
            print(
                f"\n{'streamed' if stream else 'whole'} replies,"
                f" {'both agents at once' if together else 'agents in turn'}\n"
            )
            print(
                "| server | wall, s | against clean | lost | doubled | wrong | faults sent |"
                " attempts on record | of them late | most tries |"
            )
            print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
            clean = 0.0
            for name, shares in rows.items():
                got = play(shares, episodes, latency, stream=stream, together=together)
                clean = clean or got["wall"]
                counts = " | ".join(
                    str(got[key])
                    for key in ("lost", "doubled", "wrong", "faults", "attempts", "late", "tries")
                )
                print(
                    f"| {name} | {got['wall']:.1f} | {got['wall'] / clean:.2f} | {counts} |",
                    flush=True,
                )


# -- overhead ------------------------------------------------------------------------------------


@contextlib.contextmanager
def server_process() -> Iterator[str]:
    """The address of a clean server in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
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


def cost(
    one: Callable[[], Awaitable[Any]], requests: int, at_once: int, client: list[Any]
) -> float:
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
    print(
        "\n| at once | bare client, ms | engine, ms | engine above it, ms | requests a second of"
        " one core |"
    )
    print("| ---: | ---: | ---: | ---: | ---: |")
    with server_process() as url:
        for at_once in (1, AT_ONCE):
            best: dict[str, float] = {}
            for _ in range(REPEATS):
                engine = OpenAI("m", base_url=url, concurrency=at_once)
                body, made = engine.body(request), list[Any]()

                async def bare(body: dict[str, Any] = body, client: list[Any] = made) -> Any:
                    if not client:  # on the loop that uses it
                        client.append(
                            openai.AsyncOpenAI(api_key="none", base_url=url, max_retries=0)
                        )
                    known = {
                        key: body[key]
                        for key in (
                            "model",
                            "messages",
                            "temperature",
                            "top_p",
                            "max_tokens",
                            "seed",
                        )
                    }
                    return (
                        (await client[0].chat.completions.create(**known, extra_body={"top_k": 0}))
                        .choices[0]
                        .message.content
                    )

                async def ours(engine: OpenAI = engine) -> Any:
                    return (await engine.sample(request)).text

                for name, one, opened in (("bare", bare, made), ("ours", ours, [])):
                    best[name] = min(
                        best.get(name, float("inf")), cost(one, requests, at_once, opened)
                    )
            above = best["ours"] - best["bare"]
            print(
                f"| {at_once} | {best['bare']:.2f} | {best['ours']:.2f} | {above:+.2f} |"
                f" {1e3 / best['ours']:.0f} |",
                flush=True,
            )


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
