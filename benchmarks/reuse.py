"""Prints what kept KV and joining a running batch save: prompt tokens, wall time, and whether the
same is sampled. A byte-level nano model.

Run it with one thread: OMP_NUM_THREADS=1 python benchmarks/reuse.py
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gem_ma.engines.base import open_engine
from gem_ma.engines.batching import Batched
from gem_ma.kernel.types import Action, Message, Reply, Request, Sampling, spoken

EPISODES, TURNS, SAID, SEEN = 16, 20, 16, 24
CONCURRENT, SHORTEST, LONGEST = 64, 5, 200


def request(
    talk: int, turn: int, messages: Sequence[Message], max_tokens: int, conversation: str
) -> Request:
    how = Sampling(max_tokens=max_tokens)
    return Request(
        "a",
        tuple(messages),
        sampling=how,
        seed=1000 * talk + turn,
        conversation=conversation,
        turn=turn,
        policy="main",
    )


def seen(talk: int, turn: int) -> Message:
    """About SEEN tokens of text, another one each turn."""
    return Message(" ".join(f"item {(7 * talk + 13 * turn + n) % 97}" for n in range(SEEN // 6)))


async def talks(engine: Any) -> list[list[Reply]]:
    """EPISODES talks of TURNS turns beside each other; each prompt is all before it and a new
    observation."""

    async def talk(number: int) -> list[Reply]:
        messages, replies = [Message.system("You keep a shop. " * 4)], list[Reply]()
        for turn in range(TURNS):
            messages.append(seen(number, turn))
            replies.append(
                await engine.sample(request(number, turn, messages, SAID, f"talk {number}"))
            )
            messages.append(spoken("a", Action(replies[-1].text)))
        return replies

    return await asyncio.gather(*(talk(number) for number in range(EPISODES)))


def reuse(model: Path) -> None:
    print(f"\n{EPISODES} episodes x {TURNS} turns, {SAID} tokens said a turn at most\n")
    print("| kept KV | prompt tokens | of them computed | wall, s |")
    print("| --- | ---: | ---: | ---: |")
    found: dict[str, tuple[list[Reply], int, float]] = {}
    for name, options in (("off", {"kv_tokens": 0}), ("on", {})):
        engine = open_engine("main", f"transformers/{model}", **options)
        asyncio.run(engine.sample(request(99, 0, [Message("warm up")], 4, "")))
        best = float("inf")
        for _ in range(2):
            engine.engine.forget()  # type: ignore[attr-defined]
            start = time.perf_counter()
            replies = [reply for talk in asyncio.run(talks(engine)) for reply in talk]
            best = min(best, time.perf_counter() - start)
        prompt = sum(reply.usage.prompt_tokens or 0 for reply in replies)
        computed = prompt - sum(reply.usage.cached_tokens or 0 for reply in replies)
        found[name] = replies, computed, best
        print(f"| {name} | {prompt} | {computed} | {best:.2f} |")
    (off, anew, slow), (on, once, fast) = found["off"], found["on"]
    same = sum(
        a.token_ids == b.token_ids and a.prompt_ids == b.prompt_ids
        for a, b in zip(off, on, strict=True)
    )
    gap = max(
        abs(x - y)
        for a, b in zip(off, on, strict=True)
        if a.token_ids == b.token_ids
        for x, y in zip(a.logprobs, b.logprobs, strict=True)
    )
    print(
        f"\nprompt tokens computed: {anew / once:.1f} times fewer; wall: {slow / fast:.2f} times"
        " faster"
    )
    print(
        f"same tokens from the same seeds: {same} of {len(off)} replies; largest gap of a"
        f" log-probability: {gap:.1e}"
    )


class AtOnce:
    """The same engine, a batch at a time: what `Batched` does for an engine that cannot take
    rows while others run."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    def sample_batch(self, requests: Sequence[Request]) -> Any:
        return self.engine.sample_batch(requests)


async def queue(engine: Any, lengths: Sequence[int]) -> tuple[float, list[float]]:
    """CONCURRENT askers with one request after another; wall time, and the wait of each request."""
    left, waits = iter(enumerate(lengths)), list[float]()

    async def asker() -> None:
        for number, length in left:
            start = time.perf_counter()
            await engine.sample(request(number, 0, [seen(number, 0)], length, ""))
            waits.append(time.perf_counter() - start)

    start = time.perf_counter()
    await asyncio.gather(*(asker() for _ in range(CONCURRENT)))
    return time.perf_counter() - start, waits


def joining(model: Path) -> None:
    count = 4 * CONCURRENT
    lengths = [SHORTEST + (37 * n * n + 11 * n) % (LONGEST - SHORTEST + 1) for n in range(count)]
    print(
        f"\n{count} requests of {SHORTEST} to {LONGEST} tokens, {CONCURRENT} at once, none ends"
        " early\n"
    )
    print("| rows | wall, s | tokens a second | passes of the model | median wait, s |")
    print("| --- | ---: | ---: | ---: | ---: |")
    walls = {}
    for name in ("a batch at a time", "join at the next token"):
        inner = open_engine("main", f"transformers/{model}").engine  # type: ignore[attr-defined]
        inner.decoder.ends = frozenset()  # every reply is as long as it may be
        engine = Batched(AtOnce(inner)) if name.startswith("a batch") else Batched(inner)
        asyncio.run(queue(engine, [4] * 8))
        passes = list[int]()
        inner.model.register_forward_hook(lambda *_, passes=passes: passes.append(1))
        wall, waits = asyncio.run(queue(engine, lengths))
        walls[name] = wall, len(passes)
        print(
            f"| {name} | {wall:.2f} | {sum(lengths) / wall:.0f} | {len(passes)} |"
            f" {statistics.median(waits):.2f} |"
        )
    (slow, many), (fast, few) = walls.values()
    print(f"\nwall: {slow / fast:.2f} times faster; passes: {many / few:.2f} times fewer")


class Nothing:
    """An engine without a model: what is left is asking, batching and answering."""

    def stream(self, pull: Any, give: Any) -> None:
        number = 0
        while asked := pull():
            for _ in asked:
                give(number, Reply("x"))
                number += 1

    def sample_batch(self, requests: Sequence[Request]) -> list[Reply]:
        return [Reply("x") for _ in requests]


def overhead() -> None:
    async def ask(engine: Any, count: int) -> None:
        async def asker(number: int) -> None:
            for turn in range(count // CONCURRENT):
                await engine.sample(request(number, turn, [], 1, ""))

        await asyncio.gather(*(asker(number) for number in range(CONCURRENT)))

    threads = threading.active_count()
    start = time.perf_counter()
    asyncio.run(ask(Batched(Nothing(), wait_s=0.0), 6400))
    each = (time.perf_counter() - start) / 6400
    left = threading.active_count() - threads
    print(
        f"\n{CONCURRENT} requests at once through an engine without a model: {1e6 * each:.0f} us a"
        f" request; threads left: {left}"
    )


def main() -> None:
    from gem_ma.engines.local.tiny import make_model

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "nano"
        make_model(model, "retail", size="nano", seed=1)
        reuse(model)
        joining(model)
    overhead()


if __name__ == "__main__":
    main()
