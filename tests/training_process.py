"""Processes that train configs one after the other as one: `training_process.py SIZE PORT JOBS`,
JOBS = [[config, overrides, folder]].

torch is imported once, and every process is a fork with the environment that a launcher gives it.
All forks have one salt of `hash`; what hangs on it differs from the run of one process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from gem_ma import config
from gem_ma.runs.plans import open_policies, scenario_of
from gem_ma.runs.store import RunFolder
from gem_ma.training.processes.teams import ALONE, Teams, join
from gem_ma.training.train import train


def work(jobs: list[list[Any]], teams: Teams = ALONE) -> None:
    for source, overrides, path in jobs:
        settings = config.load(source, overrides).config
        first = (
            RunFolder.open(Path(path), config_text="", resolved=settings.model_dump(mode="json"))
            if teams.play.first
            else nullcontext()
        )
        with first as folder:
            asyncio.run(
                train(settings, scenario_of(settings), open_policies(settings), folder, teams=teams)
            )


LOOPBACK = ("0100007F", "00000000000000000000000001000000")  # as /proc/net has them


def heard(number: int) -> list[str]:
    """The addresses that a process listens on."""
    sockets = set()
    for link in Path(f"/proc/{number}/fd").iterdir():
        with suppress(OSError):
            sockets.add(os.readlink(link).removeprefix("socket:[").removesuffix("]"))
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{number}/net/{table}").read_text().splitlines()[1:]
    ]
    # 0A: listening; the tenth column is the socket
    return [line[1].split(":")[0] for line in lines if line[3] == "0A" and line[9] in sockets]


def launch(rank: int, size: int, port: int) -> int:
    """Forks a process of this rank, which returns 0; its id."""
    if child := os.fork():
        return child
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in own.items()})
    return 0


if __name__ == "__main__":
    import accelerate  # noqa: F401  (all of these once, before the forks)
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401
    from transformers.models.qwen3 import modeling_qwen3  # noqa: F401

    size, port = int(sys.argv[1]), int(sys.argv[2])
    children = []
    for rank in range(size):
        child = launch(rank, size, port)
        if not child:
            team = join()
            # what meets on loopback is heard of nowhere else
            if Path("/proc/self/net").exists():
                assert set(heard(os.getpid())) == {LOOPBACK[0]}, heard(os.getpid())
            work(json.loads(sys.argv[3]), team)
            team.close()
            sys.exit()
        children.append(child)
    # the others would wait for one that has failed
    for _ in children:
        _, status = os.wait()
        if code := os.waitstatus_to_exitcode(status):
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            sys.exit(f"a process ended with exit code {code}")
