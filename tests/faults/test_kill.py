"""A run that is killed at any instant goes on with the same command: nothing lost, nothing
twice, what was finished stays as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gem_ma.runs.store import read_episodes
from gem_ma.scores.metrics import summarise
from gem_ma.scores.rows import table

ROOT = Path(__file__).resolve().parents[2]
EPISODES, KILLS = 500, 50


def run(path: Path, kills: int) -> dict[str, int]:
    command = [
        sys.executable,
        str(ROOT / "tests" / "faults" / "killed_run.py"),
        str(path),
        str(EPISODES),
        str(kills),
        "11",
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.longest
def test_a_run_killed_fifty_times_ends_like_one_that_was_never_killed(tmp_path: Path) -> None:
    seen = run(tmp_path / "killed", KILLS)
    assert run(tmp_path / "whole", 0)["killed"] == 0
    # all of them, unless the machine is so fast that the run comes through before
    assert seen["killed"] >= KILLS // 2
    assert seen["changed_rows"] == 0 and seen["torn"] >= 3
    killed, whole = (
        list(read_episodes(tmp_path / "killed")),
        list(read_episodes(tmp_path / "whole")),
    )
    lines = (tmp_path / "killed" / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == len({episode.id for episode in killed}) == EPISODES
    assert sorted(lines) == sorted(
        (tmp_path / "whole" / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    )
    assert table(summarise(killed)) == table(summarise(whole))
