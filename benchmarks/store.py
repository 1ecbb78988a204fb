"""What it costs to keep episodes: the codec beside msgspec alone, and appending lines of about
13 KB, against rewriting one JSON file at each save; and what whole commands cost on runs of many
plays.

    python benchmarks/store.py [EPISODES] [--sizes 10000,200000] [--resume 1000000]

A row of the codec is the median of nine rounds in which all take turns: microseconds of CPU a turn,
of msgspec that encodes and decodes the same line with our structs and no further check (ids and
log-probabilities stay bytes), of the same where `struct` makes numbers of the bytes, and of msgspec
that keeps the whole play alone, its numbers as lists. Then CPU milliseconds per episode for the
first and the last tenth (they should not differ), and ratios. Of commands CPU seconds beyond those
of `gem-ma --version`; the large runs are generated: lines of a hundred plays of dilemma with the
seeds of the plans.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from kernel import kernel

from gem_ma.config.loading import load
from gem_ma.driver.rollout import Plan, play
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.types import Action, Message, Reply, Tool, ToolCall, Turn, Usage
from gem_ma.pages.live.answers import Asked
from gem_ma.pages.live.site import Site
from gem_ma.pages.live.table import plays_page
from gem_ma.record import structs
from gem_ma.record.codec import digest, dump_episode, load_episode, to_json
from gem_ma.record.structs import Line
from gem_ma.registry import make
from gem_ma.runs.open import open_config
from gem_ma.runs.playing import Silent, play_run, score_of
from gem_ma.runs.store import RunFolder, read_episodes, read_rows
from gem_ma.runs.store.index import IndexWriter
from gem_ma.scores.rows import PlayRow, line_digest
from gem_ma.system.parts import PART, close_part

# a play as msgspec alone would keep it: numbers as lists, prompts and tools in full
Plain = structs.EpisodeRecord[
    tuple[int, ...], tuple[float, ...], tuple[str, ...], tuple[structs.ToolRecord, ...]
]
TOOLS = tuple(
    Tool(
        f"tool_{n}",
        "Does one thing to one order.",
        {"type": "object", "properties": {"order_id": {"type": "string"}}},
    )
    for n in range(16)
)


def episode(number: int) -> Episode:
    """20 turns of two agents with ids and log-probabilities: a line of about 13 KB."""
    ids, logprobs = tuple(range(100, 124)), tuple(-1 / (n + 3) for n in range(8))
    reply = Reply("I looked it up. " * 3, (), ids, ids[:8], logprobs, policy="main")
    call = ToolCall("call_0", "tool_3", {"order_id": "#W2378156"})
    turns = tuple(
        Turn(
            n,
            "assistant" if n % 2 else "user",
            (Message("Thank you, and " * 4),),
            None,
            TOOLS,
            Action("I looked it up. " * 3, (call,)),
            (reply,),
        )
        for n in range(20)
    )
    seats = {"assistant": Seat("direct", "main"), "user": Seat("direct", "main")}
    return Episode(
        "toy",
        1,
        number,
        f"test/{number}",
        0,
        None,
        seats,
        turns,
        (),
        (),
        {},
        (Entry(19, "assistant", 1.0, "goal"),),
        End.TERMINATED,
    )


def chat(turns: int) -> Episode:
    """Turns of 256 sampled tokens of a vocabulary of 150,000; the first prompt has 300 ids, and a
    later one goes on by 60."""
    chance = random.Random(0)
    text = "I looked it up and found that the order is on its way. " * 18
    prompt = tuple(chance.choices(range(150_000), k=300))
    made = []
    for number in range(turns):
        ids = tuple(chance.choices(range(150_000), k=256))
        logprobs = tuple(-3 * chance.random() for _ in ids)
        usage = Usage(len(prompt), len(ids))
        reply = Reply(text, (), prompt, ids, logprobs, policy="main", usage=usage)
        asked = (Message("Where is my order? " * 10, "user"),)
        made.append(Turn(number, "assistant", asked, None, (), Action(text), (reply,)))
        prompt = (*prompt, *ids, *chance.choices(range(150_000), k=60))
    return replace(episode(0), turns=tuple(made))


def dilemma() -> Episode:
    """50 rounds of two bots."""
    scenario = make("dilemma", rounds=50, briefing=False)
    cast = {agent: Seat(behaviour="random_legal") for agent in scenario.agents}
    return asyncio.run(play(Plan(scenario, cast, seed=0)))


def codec(one: Episode) -> dict[str, float]:
    """CPU microseconds a turn of each way to write and read this episode."""
    line = dump_episode(one).encode()
    encode = msgspec.json.Encoder().encode
    decode = msgspec.json.Decoder(Line).decode
    record = decode(line)
    plain = msgspec.convert(one, Plain, from_attributes=True)
    plain_line = encode(plain)
    plain_decode = msgspec.json.Decoder(Plain).decode
    found = [
        (numbers, structs.layout(len(numbers.base64) // size, letter))
        for turn in record.turns
        for reply in turn.replies
        for numbers in (reply.prompt_ids, reply.token_ids, reply.logprobs)
        if isinstance(numbers, structs.Packed)
        for letter, size in (structs.WIDTHS[numbers.of],)
    ]
    values = [layout.unpack(numbers.base64) for numbers, layout in found]

    def pack() -> None:
        for (numbers, layout), value in zip(found, values, strict=True):
            numbers.base64 = layout.pack(*value)

    def unpack() -> list[tuple[float, ...]]:
        return [layout.unpack(numbers.base64) for numbers, layout in found]

    ways: dict[str, Callable[[], Any]] = {
        "write": lambda: dump_episode(one),
        "encode": lambda: encode(record),
        "pack": pack,
        "read": lambda: load_episode(line),
        "decode": lambda: decode(line),
        "unpack": unpack,
        "plain encode": lambda: encode(plain),
        "plain decode": lambda: plain_decode(plain_line),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    repeats = max(1, 100 // len(one.turns))
    for _ in range(9):
        for name, way in ways.items():
            start = time.process_time()
            for _ in range(repeats):
                way()
            times[name].append(time.process_time() - start)
    scale = 1e6 / repeats / len(one.turns)
    return {name: statistics.median(spent) * scale for name, spent in times.items()}


def print_codec(name: str, one: Episode) -> None:
    took = codec(one)
    for ours, theirs, numbers in (("write", "encode", "pack"), ("read", "decode", "unpack")):
        of = {
            "msgspec, numbers left packed": took[theirs],
            "and unpacked": took[theirs] + took[numbers],
            "msgspec, numbers as lists": took[f"plain {theirs}"],
        }
        ratios = "; ".join(
            f"{what} {us:.1f}, ratio {took[ours] / us:.1f}" for what, us in of.items()
        )
        print(f"{name}, {ours}: {took[ours]:.1f} us a turn; {ratios}")
    sizes = [len(dump_episode(one, schema)) for schema in (1, 2)]
    tokens = sum(len(reply.token_ids) for turn in one.turns for reply in turn.replies)
    per, of = (tokens, "sampled token") if tokens else (len(one.turns), "turn")
    old, new = (size / per for size in sizes)
    print(f"{name}: {new:.1f} bytes a {of}, {old:.1f} in schema 1")


def main(count: int) -> None:
    print_codec("chat turn of 256 tokens", chat(1))
    print_codec("chat of 10 such turns", chat(10))
    print_codec("dilemma", dilemma())
    line, one = dump_episode(episode(0)), episode(0)
    print(f"line {len(line) / 1000:.1f} KB; {count} episodes, one append each")
    start = time.process_time()
    for _ in range(100):
        digest(one)
    print(f"digest   {(time.process_time() - start) * 10:8.3f} ms CPU an episode")
    with tempfile.TemporaryDirectory() as root:
        spent, wall = [], time.perf_counter()
        with RunFolder.open(
            Path(root) / "run", config_text="", resolved={"scenario": {"id": "toy"}}
        ) as folder:
            for number in range(count):
                made, start = episode(number), time.process_time()
                folder.append([made])
                spent.append(time.process_time() - start)
        wall = time.perf_counter() - wall
        tenth = max(1, count // 10)
        first, last = (1000 * sum(part) / tenth for part in (spent[:tenth], spent[-tenth:]))
        print(
            f"append   {first:8.3f} ms CPU an episode in the first tenth, {last:.3f} in the last:"
            f" ratio {last / first:.2f}; {wall:.1f} s wall in all"
        )
        start = time.process_time()
        with RunFolder.open(
            Path(root) / "run", config_text="", resolved={"scenario": {"id": "toy"}}
        ) as folder:
            known = len(folder.done())
        print(
            f"take up  {1000 * (time.process_time() - start) / count:8.3f} ms CPU an episode"
            f" ({known} known)"
        )
        start = time.process_time()
        read = sum(1 for _ in read_episodes(Path(root) / "run"))
        print(
            f"read all {1000 * (time.process_time() - start) / count:8.3f} ms CPU an episode"
            f" ({read} read)"
        )
        whole = [to_json(one)] * count  # what a store does that keeps one JSON file
        start = time.process_time()
        with open(Path(root) / "all.json", "w") as file:
            json.dump(whole, file)
            file.flush()
            os.fsync(file.fileno())
        rewrite = 1000 * (time.process_time() - start)
        print(
            f"rewriting one file of {count} episodes: {rewrite:.0f} ms CPU a save,"
            f" {rewrite / last:.0f} x an append"
        )


FEW = 100  # plays that are multiplied
ROUNDS = 5  # of a command that reads
BARE = ("scenario.briefing=false", "run.baselines=false")


def grown(path: Path, count: int) -> None:
    """A finished run of so many plays of dilemma, a few of which were played."""
    few, all_ = (
        open_config(load("dilemma", [f"scenario.tasks={number}", *BARE], typed=True))
        for number in (FEW, count)
    )
    play_run(few, path, watch=Silent())
    lines = (path / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    rows = read_rows(path, PlayRow)
    record = path / "episodes.jsonl"
    part = bytearray(record.read_bytes())
    for number, plan in enumerate(all_.worlds.plans()):
        if number < FEW:
            continue
        row = rows[number % FEW]
        line = lines[number % FEW].replace(str(row.seed).encode(), str(plan.seed).encode())
        if len(part) + len(line) > PART:  # as a writer does
            record.write_bytes(part)
            close_part(record, path)
            part = bytearray()
        part += line
        told = {"seed": plan.seed, "size": len(line), "digest": line_digest(line), "copy": None}
        rows.append(msgspec.structs.replace(row, **told))
    record.write_bytes(part)
    index = IndexWriter(path)
    index.replace(rows)
    index.stamp()
    index.close()
    with all_.folder(path) as folder:
        folder.write_summary(score_of(all_.loaded, all_.worlds, folder), of_all=True)


def spent(*words: str, rounds: int = 1) -> float:
    """CPU seconds of a Python command, median of so many rounds; its modules are compiled, as an
    installation has them."""
    variables = {key: value for key, value in os.environ.items() if "BYTECODE" not in key}
    times = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=variables)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times)


class First(Silent):
    """Ends this process as soon as a play is begun."""

    def start(self, plan: Any = None) -> None:
        os._exit(0)


def go_on(path: Path, count: int) -> None:
    """Goes on with a generated run, asked for so many plays, up to its first new one."""
    run = open_config(load("dilemma", [f"scenario.tasks={count}", *BARE], typed=True))
    play_run(run, path, watch=First())


def viewed(root: Path, size: int) -> None:
    """CPU seconds of pages of the viewer, of a run `one` of so many plays below this folder."""
    site = Site(root)
    for name, query in (
        ("opened", {}),
        ("again", {}),
        ("turns>9", {"where": "turns>9"}),
        ("a word", {"where": "terminated"}),
        ("sorted", {"sort": "-return player_0"}),
        ("its last plays", {"from": str(size - 1)}),
    ):
        begun = time.process_time()
        answer = plays_page(site, Asked([], query, ["one"]))
        assert answer.status == 200 and f"of {size} plays".encode() in answer.body
        print(f"| table of {size} plays, {name} | {time.process_time() - begun:.2f} |", flush=True)
    begun = time.process_time()
    site.answer("/run/one", {})
    print(f"| page of {size} plays, opened | {time.process_time() - begun:.2f} |")
    run, _ = site.run(["one"])
    *_, last = run.index
    begun = time.process_time()
    assert site.answer("/run/one/episode", {"key": "~".join(map(str, last.id))}).status == 200
    print(f"| the last of {size} plays | {time.process_time() - begun:.2f} |")


LOOKS = ("show", "report", "list runs --root", "score")


def commands(sizes: list[int], resumed: int) -> None:
    gem_ma = ("-m", "gem_ma")
    start = spent(*gem_ma, "--version", rounds=ROUNDS)
    with tempfile.TemporaryDirectory() as root:
        play = kernel(make("dilemma", briefing=False))
        begun = time.process_time()
        turns = sum(play(seed) for seed in range(2_000))
        turn = (time.process_time() - begun) / turns
        run = str(Path(root) / "run")
        whole = spent(*gem_ma, "run", "dilemma", BARE[0], "-n", "10000", "--out", run, "--quiet")
        kernels = whole / (1e5 * turn)
        print(f"gem-ma run dilemma {BARE[0]} -n 10000: {whole:.2f} s, {kernels:.1f} kernels\n")
        print(f"| CPU s beyond the {start:.2f} of --version | s |\n|---|---:|")
        for size in sizes:
            place = Path(root) / str(size)
            grown(place / "one", size)
            for name in LOOKS if size <= 10_000 else LOOKS[:-1]:
                one = place if "list" in name else place / "one"
                spent(*gem_ma, *name.split(), str(one))  # compiles what it imports
                took = spent(*gem_ma, *name.split(), str(one), rounds=ROUNDS) - start
                print(f"| {name.split(' --')[0]} of {size} | {took:.2f} |", flush=True)
            viewed(place, size)
        if resumed:
            place = Path(root) / "large"
            grown(place, resumed)
            words = (__file__, "--go-on", str(place), str(resumed + 1))
            took = spent(*words, rounds=3) - start
            print(f"| resume up to the first new play of {resumed + 1} | {took:.2f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("episodes", nargs="?", type=int, default=2000)
    parser.add_argument("--sizes", default="10000,200000", help="plays of generated runs")
    parser.add_argument("--resume", type=int, default=0, help="plays of a run that is gone on with")
    parser.add_argument("--go-on", nargs=2, metavar=("PATH", "COUNT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.go_on:
        go_on(Path(given.go_on[0]), int(given.go_on[1]))
        sys.exit("no play was begun")
    main(given.episodes)
    commands([int(size) for size in given.sizes.split(",") if size], given.resume)
