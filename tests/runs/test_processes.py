"""Several processes that play for one run folder: the record is that of one, whoever is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gem_ma.config.loading import load
from gem_ma.kernel.errors import StoreError
from gem_ma.runs.open import open_config
from gem_ma.runs.playing import Silent, play_run
from gem_ma.runs.processes import _share
from gem_ma.runs.store import read_ends
from gem_ma.runs.store.disk import take_lock
from tests.command_line import SLOWLY, environment, gem_ma, text_of
from tests.warm import start

PLAYS = 40
STUDY = "scenario: {id: kuhn_poker}\nagents: {player_*: random_legal}\ngrid: {run.seed: [1, 2]}\n"
SLOW = ("run", "dilemma", "agents.player_0=slowly:Slow", "-n", PLAYS, "-j", "4", "--out", "out")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slowly.py").write_text(SLOWLY)
    return tmp_path


def ids(run: Path) -> Counter[str]:
    lines = (run / "episodes.jsonl").read_text().splitlines()
    return Counter(json.dumps(json.loads(line)["id"]) for line in lines)


@contextmanager
def playing(folder: Path, *more: object) -> Iterator[Any]:
    """A command that has recorded a play, and its stderr."""
    played = folder / "out" / "episodes.jsonl"
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as none:
        started = start(*SLOW, *more, cwd=folder, env=environment(), streams=(none, out, err))
        try:
            until = time.monotonic() + 60
            while not (played.exists() and played.stat().st_size) and time.monotonic() < until:
                time.sleep(0.02)
            yield started, err
        finally:
            started.kill()


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.long
def test_a_run_of_several_processes_is_that_of_one(tmp_path: Path) -> None:
    words = ["run.baselines=false", "scenario.tasks=12"]
    runs = {}
    for number in (1, 3):
        opened = open_config(load("dilemma", [*words, f"run.processes={number}"]))
        path = tmp_path / str(number)
        runs[number] = play_run(opened, path, watch=Silent()).summary, path
    (alone, one), (together, several) = runs.values()
    assert together == alone
    assert read_ends(one) == read_ends(several)
    lines = [sorted((path / "episodes.jsonl").read_bytes().splitlines()) for path in (one, several)]
    assert lines[0] == lines[1] and len(lines[0]) == 12
    # and it goes on in one process
    more = open_config(load("dilemma", ["run.baselines=false", "scenario.tasks=15"]))
    assert play_run(more, several, watch=Silent()).summary["episodes"] == 15


@pytest.mark.long
def test_a_process_that_is_killed_costs_what_it_was_playing(folder: Path) -> None:
    with playing(folder, "--processes", "2") as (started, err):
        os.kill(children(started.pid)[0], signal.SIGKILL)
        assert started.wait(timeout=30) == 1
        said = text_of(err)
    assert "process 1 of 2 that play was ended by signal 9; what was played is kept" in said
    before = ids(folder / "out")
    assert 0 < len(before) < PLAYS
    done = gem_ma("resume", "out", "--processes", "2", cwd=folder)
    assert done.returncode == 0, done.stderr
    after = ids(folder / "out")
    assert len(after) == PLAYS and set(after.values()) == {1} and not before - after


@pytest.mark.long
def test_a_writer_that_is_killed_takes_the_others_with_it(folder: Path) -> None:
    with playing(folder, "--processes", "2") as (started, _):
        others = children(started.pid)
        with pytest.raises(StoreError, match="in use by process"):
            take_lock(folder / "out")
        os.kill(started.pid, signal.SIGKILL)
        started.wait(timeout=30)
    until = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in others) and time.monotonic() < until:
        time.sleep(0.02)
    assert len(others) == 2 and not any(Path(f"/proc/{pid}").exists() for pid in others)
    done = gem_ma("resume", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    after = ids(folder / "out")
    assert len(after) == PLAYS and set(after.values()) == {1}


@pytest.mark.long
def test_a_signal_lets_running_plays_end(folder: Path) -> None:
    with playing(folder, "--processes", "2") as (started, err):
        started.send_signal(signal.SIGINT)
        assert started.wait(timeout=30) == 130
        assert "resume with: gem-ma resume out" in text_of(err)
    assert 0 < len(ids(folder / "out")) < PLAYS


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "kuhn_table"], "policy 'main' answers in this process"),
        (["train", "kuhn_table"], "gem-ma train --processes N"),
        (["study", "study.yaml"], "a study plays its cells in one process"),
    ],
)
def test_what_one_process_plays_is_refused(folder: Path, words: list[str], said: str) -> None:
    (folder / "study.yaml").write_text(STUDY)
    done = gem_ma(*words, "run.processes=2", "--out", "out", cwd=folder)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert "run.processes" in done.stderr


def test_a_server_out_of_reach_ends_all_of_them_as_it_ends_one(folder: Path) -> None:
    words = ["run", "dilemma", "--player_0", "openai/x", "--base-url", "http://127.0.0.1:9/v1"]
    words += ["-n", "4", "retry.attempts=1", "retry.wall_s=1"]
    key = {"OPENAI_API_KEY": "none"}
    alone = gem_ma(*words, "--out", "one", cwd=folder, **key)
    several = gem_ma(*words, "--out", "two", "--processes", "2", cwd=folder, **key)
    assert several.returncode == alone.returncode != 0
    # all but how long it was tried
    told = [re.sub("[0-9]+ s", "", each.stderr.replace("two", "one")) for each in (alone, several)]
    assert told[0] == told[1] and "cannot be reached" in told[0]


def test_limits_are_shared_among_them() -> None:
    words = [
        "agents.player_0.policy=x",
        "policies.x.model=openai/x",
        "limits.tokens=100",
        "limits.usd=4",
    ]
    words += ["policies.x.price={input: 1, output: 1}", "policies.x.api_key=none"]
    words += ["policies.x.base_url=http://127.0.0.1:9/v1", "policies.x.concurrency=6"]
    opened = open_config(load("dilemma", words))
    (policy,) = _share(opened, opened.policies, 2).values()
    way = policy.core.remote
    assert way.endpoint.concurrency == 3
    assert (way.budget.most_tokens, way.budget.most_usd) == (50, 2.0)
