"""What it costs to keep episodes: appending lines of about 13 KB, against rewriting one JSON file
at each save.

    python benchmarks/store.py [EPISODES]

Prints CPU milliseconds per episode for the first and the last tenth (they should not differ),
and ratios.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.types import Action, Message, Reply, Tool, ToolCall, Turn
from gem_ma.record.codec import digest, dump_episode, load_episode, to_json
from gem_ma.runs.store import RunFolder, read_episodes

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


def main(count: int) -> None:
    line, one = dump_episode(episode(0)), episode(0)
    print(f"line {len(line) / 1000:.1f} KB; {count} episodes, one append each")
    for name, work in (
        ("dump", lambda: dump_episode(one)),
        ("load", lambda: load_episode(line)),
        ("digest", lambda: digest(one)),
    ):
        start = time.process_time()
        for _ in range(100):
            work()
        print(f"{name:8} {(time.process_time() - start) * 10:8.3f} ms CPU an episode")
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


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
