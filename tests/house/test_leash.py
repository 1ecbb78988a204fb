"""What a test starts ends with it, even where its process is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.leash import leashed

HERE = Path(__file__).parents[1]
# a server with a worker, which hears no SIGTERM, started by a thread that ends
SERVER = "trap '' TERM; sleep 60 & echo $! >{file}.part; mv {file}.part {file}; wait"
STARTS = """
import sys, threading, time
sys.path.insert(0, {root!r})
from tests.leash import leashed
thread = threading.Thread(target=lambda: kept.append(leashed(["sh", "-c", {server!r}], 0.1)))
kept = []
thread.start()
thread.join()
time.sleep(60)
"""
# what else tests start reads a pipe or a socket, and sees its end
SERVERS = (
    "tinker/conftest.py",
    "vllm/serving.py",
    "worlds/test_mcp.py",
    "engines/test_transformers_serve.py",
)


def gone(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"  # nobody may be there who reaps it


def until(happened: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not happened() and time.monotonic() < end:
        time.sleep(0.02)
    assert happened()


def test_a_killed_process_takes_its_server_and_the_servers_children_along(tmp_path: Path) -> None:
    file = tmp_path / "worker"
    server = SERVER.format(file=file)
    program = STARTS.format(root=str(HERE.parent), server=server)
    with subprocess.Popen([sys.executable, "-c", program]) as one:
        until(file.exists)
        worker = int(file.read_text())
        try:
            assert not gone(worker)
            one.kill()
            until(lambda: gone(worker))
        finally:
            if not gone(worker):
                os.kill(worker, signal.SIGKILL)


def test_a_server_is_stopped_and_says_how_it_ended() -> None:
    with leashed(["sh", "-c", "exit 3"]) as server:
        assert server.wait(30) == 3
    with leashed(["sleep", "60"]) as server:
        time.sleep(0.2)
        server.terminate()
        assert server.wait(30) != 0


@pytest.mark.parametrize("file", SERVERS)
def test_every_server_of_the_tests_is_started_so(file: str) -> None:
    text = (HERE / file).read_text()
    assert "leashed(" in text and not re.search(r"\bPopen\(", text)
