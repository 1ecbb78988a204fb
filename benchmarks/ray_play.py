"""Plays whose own rules burn the processor: two workers of Ray beside one process. Prints seconds of
play of a few steps, the start of the cluster left out.

Where others use the machine, seconds say little. So it prints the processor time of both as well:
of the workers, of this process and of Ray. Two quiet cores share that time at best evenly, so the
ratio there is at most 2 x that of one process / that of all.

    python benchmarks/ray_play.py [--work 60000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from gem_ma.config import load
from gem_ma.kernel.episode import Episode
from gem_ma.runs.plans import open_policies
from gem_ma.runs.worlds import worlds_of
from gem_ma.training.loop.local import LocalPlayers
from gem_ma.training.loop.remote import RemotePlayers
from gem_ma.training.loop.roles import Players
from gem_ma.training.processes.ray_workers import ray_pool
from gem_ma.training.schedule.plans import training_plans

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.on_ray.watching import children  # noqa: E402  (found from the root alone)

EPISODES, WORKERS = 64, 2


def spent_below() -> float:
    """Seconds of the processor that this process and all below it have spent."""
    ticks = 0
    for number in children():
        with suppress(OSError):  # it has ended
            words = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            ticks += int(words[11]) + int(words[12])  # for itself, and in the system
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=int, default=60_000, help="digests before a choice")
    parser.add_argument("--rounds", type=int, default=3, help="times that each of both is measured")
    how = parser.parse_args()
    settings = [
        f"scenario={{id: '{ROOT}/tests/on_ray/busy.py:Busy', rounds: 2, work: {how.work}}}",
        "agents={a: {policy: main}}",
        "policies={main: {model: table/softmax}}",
        f"train={{policies: [main], steps: 9, episodes: {EPISODES}, chunk: 4, lr: 1.0}}",
    ]
    config = load(ROOT / "configs" / "kuhn_table.yaml", settings).config
    assert config.train is not None
    worlds, policies = worlds_of(config), open_policies(config)
    began = time.monotonic()
    pool = ray_pool("local", config.model_dump_json(), str(ROOT), WORKERS)
    players: dict[str, Players] = {
        "one process": LocalPlayers(config, policies, ["main"]),
        f"{WORKERS} workers": RemotePlayers(config, worlds, policies, ["main"], pool),
    }

    def played(name: str, step: int) -> tuple[float, float, list[Episode]]:
        """Seconds, seconds of the processor, and the episodes of a step."""
        assert config.train is not None
        plans = training_plans(worlds, config.train, step)
        start, spent = time.monotonic(), spent_below()
        episodes = asyncio.run(players[name].play(plans, learning=True))
        return time.monotonic() - start, spent_below() - spent, episodes

    try:
        # workers open their config at the first chunk
        first, *_ = played(f"{WORKERS} workers", 0)
        whole = time.monotonic() - began
        print(f"cluster and workers: {first:.1f} s of first plays, {whole:.1f} s in all")
        walls, quiet = [], []
        for step in range(1, how.rounds + 1):  # side by side: both meet the same load
            alone, alone_cpu, expected = played("one process", step)
            shared, shared_cpu, episodes = played(f"{WORKERS} workers", step)
            assert episodes == expected
            walls.append(alone / shared)
            quiet.append(WORKERS * alone_cpu / shared_cpu)
            print(
                f"{EPISODES} plays: one process {alone:.2f} s ({alone_cpu:.2f} of the processor),"
                f" {WORKERS} workers {shared:.2f} s ({shared_cpu:.2f}), {walls[-1]:.2f} times as"
                f" fast, at most {quiet[-1]:.2f} on quiet cores, records equal"
            )
        for name, ratios in (
            ("as measured", walls),
            ("at most, where nobody waits for a core", quiet),
        ):
            middle = sorted(ratios)[how.rounds // 2]
            print(f"{name}: median {middle:.2f}, best {max(ratios):.2f} of {how.rounds}")
        print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    finally:
        pool.close()


if __name__ == "__main__":
    main()
