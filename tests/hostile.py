"""Whole folders as the commands leave them, to be spoiled; and the commands that then read or
write them, each in one line of output."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from gem_ma.cli.main import main

TRAINING = """
scenario: {id: kuhn_poker}
agents: {player_0: {policy: main}, player_1: {policy: main}}
policies: {main: {model: table/softmax}}
train:
  policies: [main]
  steps: 2
  episodes: 8
  save_every: 1
  log: [tensorboard]
  opponents: {latest: 0.5, uniform: 0.5}
  pool: {every: 1}
run: {baselines: 1}
evaluate: {episodes: 4}
"""
STUDY = """
scenario: {id: dilemma, tasks: 2}
agents: {player_0: {behaviour: random_legal}, player_1: {behaviour: random_legal}}
grid: {agents.player_0: {loyal: {behaviour: silent}, random: {behaviour: random_legal}}}
"""
KINDS = ("link", "pipe", "device", "folder", "socket", "hard link")


class Folders(NamedTuple):
    """`run` plays, `train` has learned, `study` holds two cells; `configs` are what they were
    made of."""

    root: Path

    def commands(self, name: str) -> list[list[str]]:
        """Every command that reads or writes this folder."""
        path, reading = (
            str(self.root / name),
            [
                ["list", "runs", "--root", str(self.root)],
                ["show", str(self.root / name)],
            ],
        )
        if name == "study":
            return [*reading, ["study", str(self.root / "study.yaml"), "--out", path, "--quiet"]]
        made = (
            ["run", "guess_number", "-n", "2"]
            if name == "run"
            else ["train", str(self.root / "train.yaml")]
        )
        return [
            *reading,
            ["resume", path, "--quiet"],
            [*made, "--out", path, "--quiet"],
            ["check", f"{path}/resolved.yaml", "--quiet"],
        ]


def make(root: Path) -> Folders:
    (root / "train.yaml").write_text(TRAINING)
    (root / "study.yaml").write_text(STUDY)
    folders = Folders(root)
    for name in ("run", "train", "study"):
        assert main(folders.commands(name)[-1 if name == "study" else 3]) == 0
    return folders


def entries(path: Path) -> list[str]:
    """Every file and folder below, as a path from there."""
    return sorted(str(one.relative_to(path)) for one in path.rglob("*"))


@contextmanager
def in_time(seconds: int = 20) -> Iterator[None]:
    """Fails where something hangs."""

    def hangs(number: int, frame: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def plant(place: Path, what: str, outside: Path) -> bool:
    """Puts something hostile where a file or folder of ours was, which goes outside; False where
    that cannot be made here."""
    outside.mkdir(parents=True)
    moved = outside / "victim"
    if os.path.lexists(place):
        shutil.move(place, moved)
    else:
        moved.write_text("precious")
        place.parent.mkdir(parents=True, exist_ok=True)
    if what == "link":
        place.symlink_to(moved)
    elif what == "pipe":
        os.mkfifo(place)
    elif what == "device":
        place.symlink_to("/dev/zero")
    elif what == "folder":
        place.mkdir()
        return moved.is_file()
    elif what == "socket":
        here = os.getcwd()
        os.chdir(place.parent)  # the names of sockets are short
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(place.name)
        os.chdir(here)
    elif what == "hard link":
        if not moved.is_file():
            return False
        os.link(moved, place)
    return True


def state(path: Path) -> dict[str, tuple[bytes, int, int]]:
    """Bytes, size and time of change of every file below."""
    found = {}
    for one in sorted(path.rglob("*")):
        if one.is_file() and not one.is_symlink():
            found[str(one)] = (one.read_bytes(), one.stat().st_size, one.stat().st_mtime_ns)
        elif one.is_dir():
            found[str(one)] = (b"", 0, one.stat().st_mtime_ns)
    return found


def one_line(capsys: pytest.CaptureFixture[str], words: list[str], most: int = 4) -> int:
    """Runs a command and gives its exit code: never a bug of ours, and few lines where it is no
    success."""
    with in_time():
        code = main(words)
    out, err = capsys.readouterr()
    told = f"{' '.join(words)}: exit {code}\n{out[-800:]}\n{err[-1500:]}"
    assert code in (0, 1, 2), told
    assert "Traceback" not in out + err, told
    assert len(err.splitlines()) <= most, told
    if code:
        assert err.strip(), told
    return code
