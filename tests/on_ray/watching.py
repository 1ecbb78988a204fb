"""What the tests of workers on Ray share: a training, and a look at the processes below this one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

RULES = Path(__file__).parent / "busy.py"
CONFIG = """
scenario: {id: "BUSY:Busy", rounds: 2, work: 20000}
agents: {a: {policy: main}}
policies: {main: {model: table/softmax}}
train: {policies: [main], steps: 4, episodes: 64, chunk: 4, lr: 1.0, save_every: 2}
evaluate: {episodes: 16}
run: {baselines: false}
"""
SAME = ("episodes.jsonl", "metrics.jsonl", "summary.json")


def write_busy(rules: str) -> str:
    """Writes the training and its rules into the working folder; gives the name of its config."""
    path = Path(rules)
    path.write_text(RULES.read_text())
    name = rules if path.suffix == ".py" and path.parent == Path() else path.stem
    Path("busy.yaml").write_text(CONFIG.replace("BUSY", name))
    return "busy.yaml"


def equal(one: str, other: str) -> None:
    """Two run folders hold the same to the byte."""
    for name in SAME:
        assert Path(one, name).read_bytes() == Path(other, name).read_bytes(), name


def until(there: Callable[[], object], seconds: float = 60) -> bool:
    """Whether it came true within that time."""
    end = time.monotonic() + seconds
    while not (came := bool(there())) and time.monotonic() < end:
        time.sleep(0.01)
    return came


def alive() -> list[int]:
    """The numbers of all processes that have not ended."""
    numbers = []
    for folder in Path("/proc").iterdir():
        try:
            ended = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:  # no process, or none any more
            continue
        if folder.name.isdigit() and not ended:
            numbers.append(int(folder.name))
    return numbers


def children() -> dict[int, str]:
    """The command lines of all processes below this one."""
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "stat").read_text().rpartition(")")[2].split()
                lines[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
            except OSError:  # it has ended
                continue
            parents[int(folder.name)] = int(words[1])
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return {pid: lines[pid] for pid in below if pid in lines}


def listening() -> list[str]:
    """Addresses on which processes below this one listen, other than loopback, in hexadecimal."""
    mine: set[str] = set()
    for pid in children():
        try:
            mine |= {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
        except OSError:
            continue
    wide = []
    # 127.0.0.1, the same as IPv6 writes it, and ::1
    loopback = ("0100007F", "0" * 16 + "FFFF00000100007F", "0" * 24 + "01000000")
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            _, address, _, state, *_, inode = [*line.split()[:4], line.split()[9]]
            listens = state == "0A" and f"socket:[{inode}]" in mine
            if listens and address.partition(":")[0] not in loopback:
                wide.append(address)
    return wide
