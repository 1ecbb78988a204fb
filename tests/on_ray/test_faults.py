"""What goes wrong on a cluster: each fault costs no play, or is one line within seconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gem_ma.cli.main import main
from gem_ma.training.processes import ray_workers
from gem_ma.training.processes.ray_workers import LOOPBACK
from tests.on_ray.watching import alive, children, equal, until, write_busy

pytestmark = pytest.mark.ray
UNPICKLABLE = "\n        self.lock, self.rule = __import__('threading').Lock(), lambda: 1"


@contextmanager
def cluster(folder: Path, nodes: int) -> Iterator[Any]:
    """A cluster of so many machines with one core each; its daemons began in another folder."""
    here, before = os.getcwd(), signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in LOOPBACK.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster

        core = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 * 2**20}
        os.chdir(folder)
        made = Cluster(initialize_head=True, head_node_args={**core, "include_dashboard": False})
        try:
            for _ in range(nodes - 1):
                made.add_node(**core)
            os.chdir(here)
            yield made
        finally:
            os.chdir(here)
            made.shutdown()
            signal.signal(signal.SIGTERM, before)  # every node of a process sets another one


def playing() -> list[int]:
    return [pid for pid, line in children().items() if "ray::Player.play" in line]


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if not line.startswith("(")]


def test_a_machine_that_is_lost_in_play_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # a module in a folder that this process alone has on its path, with what cannot be pickled
    Path("lib").mkdir()
    busy = write_busy("lib/hidden_busy.py")
    rules = Path("lib/hidden_busy.py").read_text()
    Path("lib/hidden_busy.py").write_text(
        rules.replace("= rounds, work", f"= rounds, work{UNPICKLABLE}")
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["lib", os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend("lib")
    assert main(["train", busy, "--out", "alone", "--quiet"]) == 0
    (tmp_path / "far").mkdir()
    with cluster(tmp_path / "far", 2) as machines:
        second = next(iter(machines.worker_nodes))
        lost: list[float] = []

        def lose() -> None:
            if until(lambda: len(playing()) == 2):
                lost.append(time.monotonic())
                machines.remove_node(second, allow_graceful=False)

        loser = threading.Thread(target=lose)
        loser.start()
        command = ["train", busy, "--out", "ray", "--quiet", "--ray", machines.address]
        assert main(command) == 0
        loser.join()
        assert lost
        print(f"the run ended {time.monotonic() - lost[0]:.1f} s after a machine was lost")
    equal("alone", "ray")


def started(command: list[str]) -> tuple[subprocess.Popen[str], dict[int, str]]:
    """The command in a session of its own, and all its processes once two workers play."""
    before = set(children())
    run = subprocess.Popen(
        [sys.executable, "-m", "gem_ma", *command],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert until(lambda: len(playing()) == 2)
    return run, {pid: line for pid, line in children().items() if pid not in before}


def test_ctrl_c_leaves_a_whole_folder_and_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    busy = write_busy("busy.py")
    command = ["train", busy, "--out", "ray", "--ray", "local", "--workers", "2"]
    for times in (1, 2):
        run, processes = started(command)
        for _ in range(times):
            os.killpg(run.pid, signal.SIGINT)
            time.sleep(0.3)
        _, told = run.communicate(timeout=60)
        command = ["resume", "ray", "--ray", "local", "--workers", "2"]
        assert run.returncode == 130
        assert told.strip().endswith(f"resume with: gem-ma {' '.join(command)}"), told
        # the second one ends the process at once: two helpers of Ray, whose names `children` has,
        # ask a daemon that is gone for up to a minute before they follow
        helpers = {pid for pid, line in processes.items() if times == 2 and "Agent" in line}
        ends = set(processes) - helpers
        assert until(lambda ends=ends: not ends & set(alive()), 30)
    assert main(["train", busy, "--out", "alone", "--quiet"]) == 0
    assert main([*command, "--quiet"]) == 0
    equal("alone", "ray")


def test_workers_that_memory_does_not_suffice_for_are_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.01")  # this machine has spent that
    busy = write_busy("busy.py")
    began = time.monotonic()
    assert main(["train", busy, "--out", "x", "--quiet", "--ray", "local", "--workers", "2"]) == 1
    told = lines(capsys)
    assert len(told) == 1 and "running low on memory" in told[0], told
    assert time.monotonic() - began < 100


class Raises:
    def __init__(self, *settings: str) -> None:
        raise OSError("no room in\nthe inn")

    def here(self) -> dict[str, str]:
        return {"gem_ma": "9.9", "python": "3.11.0", "code": "a", "host": "far"}


class Ends(Raises):
    def __init__(self, *settings: str) -> None:
        os._exit(3)


class Other(Raises):
    def __init__(self, *settings: str) -> None: ...


def test_a_worker_that_cannot_start_is_one_line_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    busy = write_busy("busy.py")
    faults = {
        Raises: "a Ray worker cannot start: OSError: no room in the inn",
        Ends: "a Ray worker cannot start: The actor died unexpectedly",
        Other: "the worker on far has gem_ma (9.9 there",
    }
    import ray.cloudpickle

    here = sys.modules[__name__]
    ray.cloudpickle.register_pickle_by_value(here)  # a worker has no such module
    with cluster(tmp_path, 1) as machines:
        for player, said in faults.items():
            monkeypatch.setattr(ray_workers, "Player", player)
            began = time.monotonic()
            command = ["train", busy, "--out", player.__name__, "--quiet"]
            assert main([*command, "--ray", machines.address]) in (1, 2)
            took = time.monotonic() - began
            told = lines(capsys)
            print(f"{player.__name__}: {took:.1f} s: {told}")
            assert len(told) == 1 and said in told[0], told
            # three processes begin for the one that ends: far from the 300 s of a late start
            assert took < 100
    ray.cloudpickle.unregister_pickle_by_value(here)
