"""What one core drives: plays whose prompt ids, sampled ids and log-probabilities come over real
HTTP and are written as whole records, beside the same plays with a stub in this process, and beside
the limit: a bare aiohttp session that posts the same bodies, ready as bytes, and only parses.

    python benchmarks/driver.py [--episodes 256] [--at-once 64 256] [--latency 0.0] [--profile 40]

The server is another process; it answers with ready bytes, under the number of the request where
there is one, as vLLM does. Processor
time of the driver alone is counted, threads included, so other work on the machine blurs it
little. The rows take turns and the median of the rounds counts; `of the limit` is the median of
each round's own ratio. `of it records`: the same episodes written once more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import io
import json
import pstats
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gem_ma import Ask, Scenario
from gem_ma.driver.rollout import Plan, play_many
from gem_ma.engines.api.openai import OpenAI
from gem_ma.engines.base import Engine, Policy
from gem_ma.engines.endpoint.reply import decode, read
from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.types import Reply, Request
from gem_ma.runs.store import RunFolder

TURNS, PROMPT, SAID, VOCABULARY = 8, 200, 32, 32_000
LIMIT = "a bare aiohttp session that only parses"
STUB = "a stub in this process"
HTTP = "over HTTP"
# how the other side leaves, or this one ends
LEFT = (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError)
ID = 32 * "0"  # what the number of a request takes the place of


def answer() -> bytes:
    """A reply as vLLM writes it: ids of the prompt and of what was sampled, log-probabilities."""
    rng = random.Random(0)
    entries = [
        {"token": "word", "logprob": -rng.random(), "bytes": None, "top_logprobs": []}
        for _ in range(SAID)
    ]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "word " * SAID},
        "finish_reason": "stop",
        "logprobs": {"content": entries},
        "token_ids": [rng.randrange(VOCABULARY) for _ in range(SAID)],
    }
    usage = {"prompt_tokens": PROMPT, "completion_tokens": SAID, "total_tokens": PROMPT + SAID}
    ids = [rng.randrange(VOCABULARY) for _ in range(PROMPT)]
    body = {
        "id": f"chatcmpl-{ID}",
        "model": "m",
        "choices": [choice],
        "usage": usage,
        "prompt_token_ids": ids,
    }
    return json.dumps(body).encode()


class Talk(Scenario):
    """Two agents speak in turn."""

    agents = ("a", "b")

    def play(self, rng: random.Random, task: Any) -> Any:
        for turn in range(TURNS):
            yield Ask({self.agents[turn % 2]: f"Turn {turn}: what do you say?"})


class Stub:
    """The same replies without a server."""

    def __init__(self, latency: float) -> None:
        body = decode(answer(), "application/json")
        self.reply, self.latency = read(body, ids_wanted=True), latency

    async def sample(self, request: Request) -> Reply:
        await asyncio.sleep(self.latency)
        return self.reply


async def played(engine: Engine, episodes: int, at_once: int, folder: RunFolder) -> list[Episode]:
    """Plays and writes; gives what was played."""
    scenario = Talk()
    cast = dict.fromkeys(scenario.agents, Seat("direct", "main"))
    plans = (Plan(scenario, cast, seed=seed) for seed in range(episodes))
    ended = []
    async for episode in play_many(plans, {"main": Policy("main", engine)}, concurrency=at_once):
        folder.append([episode])
        ended.append(episode)
    return ended


def measured(
    engine: Engine,
    plays: int,
    at_once: int,
    path: Path,
    profile: cProfile.Profile | None = None,
) -> tuple[float, float, list[Episode]]:
    """(processor ms of plays and records, of the records alone, the episodes), a request each."""
    requests = plays * TURNS
    with RunFolder.open(path / "one", config_text="", resolved={}) as folder:
        busy = time.process_time()
        if profile is not None:
            profile.enable()
        episodes = asyncio.run(played(engine, plays, at_once, folder))
        if profile is not None:
            profile.disable()
        whole = time.process_time() - busy
    assert len(episodes) == plays
    replies = [one for episode in episodes for turn in episode.turns for one in turn.replies]
    # a row that lost a token, or did not reach the server, would be fast for nothing
    assert len(replies) == requests and all(len(one.logprobs) == SAID for one in replies)
    with RunFolder.open(path / "other", config_text="", resolved={}) as folder:
        busy = time.process_time()
        for episode in episodes:
            folder.append([episode])
        records = time.process_time() - busy
    return 1e3 * whole / requests, 1e3 * records / requests, episodes


def bodies(engine: OpenAI, episodes: int) -> list[list[bytes]]:
    """What each of these plays sends, turn by turn."""
    sent: dict[str, list[bytes]] = defaultdict(list)

    class Noting(Stub):
        async def sample(self, request: Request) -> Reply:
            body = json.dumps(engine.body(request), separators=(",", ":"))
            sent[request.conversation.rpartition("/")[0]].append(body.encode())
            return self.reply

    with (
        tempfile.TemporaryDirectory() as path,
        RunFolder.open(Path(path) / "one", config_text="", resolved={}) as folder,
    ):
        asyncio.run(played(Noting(0.0), episodes, 1, folder))
    return list(sent.values())


def limit(url: str, plays: list[list[bytes]], at_once: int) -> float:
    """Processor ms a request of a bare session that posts, reads and parses."""
    left = iter(plays)

    async def post(session: aiohttp.ClientSession) -> int:
        tokens = 0
        for play in left:
            for body in play:
                headers = {"content-type": "application/json", "authorization": "Bearer EMPTY"}
                where = f"{url}/chat/completions"
                async with session.post(where, data=body, headers=headers) as response:
                    parsed = json.loads(await response.read())
                tokens += len(parsed["choices"][0]["token_ids"])
        return tokens

    async def work() -> int:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            return sum(await asyncio.gather(*(post(session) for _ in range(at_once))))

    busy = time.process_time()
    tokens = asyncio.run(work())
    requests = sum(map(len, plays))
    assert tokens == requests * SAID
    return 1e3 * (time.process_time() - busy) / requests


# -- the server ----------------------------------------------------------------------------------


@contextlib.contextmanager
def server_process(latency: float) -> Iterator[str]:
    """The address of a server in a process of its own."""
    command = [sys.executable, __file__, "--serve", "--latency", str(latency)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.communicate("stop\n", timeout=10)


async def serve(latency: float) -> None:
    """Answers every request with the same bytes, under its number, until its input ends."""
    body = answer()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    before, _, behind = (f"{head}\r\n".encode() + body).partition(ID.encode())

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(*LEFT):
            while True:
                asked = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = asked.partition(b"content-length:")[2].split(b"\r\n")[0]
                await reader.readexactly(int(length))
                await asyncio.sleep(latency)
                number = asked.partition(b"x-request-id: ")[2][: len(ID)]
                writer.write(before + (number or ID.encode()) + behind)
        writer.close()

    server = await asyncio.start_server(reply, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    server.close()


# -- tables --------------------------------------------------------------------------------------

# the first place that a file's path holds names the row
PLACES = (
    ("gem_ma/engines/endpoint/client", "our client: bytes, limits, deadline"),
    ("gem_ma/engines", "our engine: body, strict reading, hiding keys"),
    ("gem_ma/runs/store", "records: shapes, JSON, writing"),
    ("gem_ma/record/codec", "records: shapes, JSON, writing"),
    ("gem_ma/record/shapes", "records: shapes, JSON, writing"),
    ("gem_ma/record/token_chains", "records: shapes, JSON, writing"),
    ("gem_ma/record/json_text", "records: shapes, JSON, writing"),
    ("gem_ma", "play: kernel, seats, behaviours"),
    *((f"/{name}/", "aiohttp") for name in ("aiohttp", "yarl", "multidict", "aiosignal")),
    ("asyncio", "event loop and sockets"),
    ("selectors", "event loop and sockets"),
    ("socket", "event loop and sockets"),
    ("json/", "JSON of the standard library"),
)


def shares(profile: cProfile.Profile) -> dict[str, float]:
    """The share of each place in the time of a profile. Built-in functions count for the place
    that calls them."""
    spent: dict[str, float] = defaultdict(float)
    stats: Any = pstats.Stats(profile, stream=io.StringIO())

    def place(file: str) -> str:
        return next((name for part, name in PLACES if part in file), "all else")

    for (file, _, _), (_, _, own, _, callers) in stats.stats.items():
        if file != "~":
            spent[place(file)] += own
            continue
        for (caller, _, _), (_, _, here, _) in callers.items():
            spent[place(caller)] += here
    total = sum(spent.values())
    return {name: value / total for name, value in sorted(spent.items(), key=lambda one: -one[1])}


def show(rows: dict[str, list[tuple[float, float]]]) -> None:
    """The table of one number of plays side by side."""
    print(
        "| replies | ms a request | of it records | requests a second of one core | of the limit |"
    )
    print("| --- | ---: | ---: | ---: | ---: |")
    limits = [whole for whole, _ in rows[LIMIT]]
    for name, rounds in rows.items():
        whole, records = (statistics.median(column) for column in zip(*rounds, strict=True))
        ratio = statistics.median(
            mine / least for (mine, _), least in zip(rounds, limits, strict=True)
        )
        print(f"| {name} | {whole:.3f} | {records:.3f} | {1e3 / whole:.0f} | {ratio:.2f} |")


def show_profile(url: str, how: argparse.Namespace) -> None:
    """Where the time over HTTP goes."""
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as path:
        at_once = how.at_once[0]
        engine = OpenAI("m", base_url=url, policy="main", token_ids=True, concurrency=at_once)
        measured(engine, how.episodes, at_once, Path(path), profile)
    print("\n| place | share of the driver's time |\n| --- | ---: |")
    for name, share in shares(profile).items():
        print(f"| {name} | {100 * share:.1f} % |")
    if how.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(how.profile)


def rounds_of(url: str, how: argparse.Namespace, at_once: int) -> dict[str, list[Any]]:
    """Name of a row -> (ms a request, of it records) of each round."""

    def http() -> OpenAI:
        return OpenAI("m", base_url=url, policy="main", token_ids=True, concurrency=at_once)

    plays = bodies(http(), how.episodes)
    rows: dict[str, list[tuple[float, float]]] = {LIMIT: [], STUB: [], HTTP: []}
    for _ in range(how.rounds):
        rows[LIMIT].append((limit(url, plays, at_once), 0.0))
        for name, engine in {STUB: Stub(how.latency), HTTP: http()}.items():
            with tempfile.TemporaryDirectory() as path:
                rows[name].append(measured(engine, how.episodes, at_once, Path(path))[:2])
    return rows


def main(words: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--at-once", type=int, nargs="+", default=[64, 256], help="plays at once")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before an answer")
    parser.add_argument("--rounds", type=int, default=5, help="times that each row is measured")
    parser.add_argument("--profile", type=int, default=0, help="functions of the profile to print")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    how = parser.parse_args(words)
    if how.serve:
        asyncio.run(serve(how.latency))
        return
    with server_process(how.latency) as url:
        for at_once in how.at_once:
            print(f"\n{at_once} at once, median of {how.rounds} rounds\n")
            show(rounds_of(url, how, at_once))
        show_profile(url, how)


if __name__ == "__main__":
    main()
