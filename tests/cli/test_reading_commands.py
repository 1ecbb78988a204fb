"""Commands that read run none of the code that a run folder names; names that cannot be are
refused before anything is played."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from gem_ma.cli.main import main
from gem_ma.cli.stopping import Stopping
from gem_ma.runs.store import read_manifest
from gem_ma.runs.store.names import settings_digest
from tests.command_line import SLOWLY, environment
from tests.hostile import one_line

EVIL = """
from pathlib import Path
Path("ran").write_text("code of a run folder")
from gem_ma import Scenario
class X(Scenario):
    agents = ("a",)
    def __init__(self, *_, **__): pass
def factory(*_, **__): raise SystemExit(7)
"""
NAMED = {
    "a scenario": ("scenario.id", "evilmod:X"),
    "a scenario of a file": ("scenario.id", "evilmod.py:X"),
    "a file": ("scenario.id", "./evilmod.py"),
    "a behaviour": ("agents.player_0.behaviour", "evilmod:X"),
    "an engine": ("policies", {"main": {"model": "evilmod:X/m"}}),
    "a tracker": ("train", {"policies": ["main"], "log": ["evilmod:factory"]}),
    "an option": ("scenario.rounds", "evilmod:X"),
    "data": ("scenario", {"id": "retail", "data": "evilmod.py"}),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(here: Path) -> Path:
    assert main(["run", "dilemma", "-n", "2", "--out", "runs/one", "--quiet"]) == 0
    (here / "evilmod.py").write_text(EVIL)
    (here / "runs/one/evilmod.py").write_text(EVIL)
    return here / "runs" / "one"


def named(run: Path, key: str, value: object) -> None:
    """Writes a value into resolved.yaml, with a manifest that fits it."""
    resolved = yaml.safe_load((run / "resolved.yaml").read_text())
    *above, last = key.split(".")
    section = resolved
    for part in above:
        section = section[part]
    section[last] = value
    (run / "resolved.yaml").write_text(yaml.safe_dump(resolved))
    manifest = {**read_manifest(run), "resolved": settings_digest(resolved)}
    (run / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.long
@pytest.mark.parametrize("where", NAMED)
def test_a_command_that_reads_imports_nothing_that_a_run_names(
    run: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named(run, *NAMED[where])
    before = set(sys.modules)
    capsys.readouterr()
    for command in (
        ["show", "runs/one"],
        ["show", "runs/one", "--episode", "test/0"],
        ["list", "runs"],
        ["show", "one", "--json"],
    ):
        assert one_line(capsys, command) == 0
    assert not Path("ran").exists()
    assert not {
        name
        for name in set(sys.modules) - before
        if "evil" in name or name.startswith("gem_ma_file")
    }


def test_the_score_of_foreign_code_is_shown_as_it_was_judged(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "slowly_here.py").write_text(SLOWLY)
    assert main(["run", "slowly_here:Quiz", "--out", "run", "--quiet", "--json"]) == 0
    played = json.loads(capsys.readouterr().out)["success"]
    assert played is not None
    (here / "slowly_here.py").unlink()
    assert main(["show", "run", "--json"]) == 0
    printed = capsys.readouterr()
    assert (
        json.loads(printed.out)["success"] == played
        and printed.err.startswith("slowly_here.py is gone; ")
        and printed.err.count("\n") == 1
    )


def test_a_folder_of_runs_names_them(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert one_line(capsys, ["show", "runs"]) == 2
    assert one_line(capsys, ["export", "runs", "--to", "csv"]) == 2
    assert main(["report", "runs"]) == 2
    assert "name one of them: runs/one\n" in capsys.readouterr().err


@pytest.mark.parametrize("scenario", ["slowly_here:Quiz", "kuhn_poker"])
def test_a_run_that_was_killed_is_not_shown_as_one_that_ended(
    scenario: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "slowly_here.py").write_text(SLOWLY)
    assert main(["run", scenario, "-n", "3", "--out", "run", "--quiet"]) == 0
    assert main(["show", "run"]) == 0
    assert "not finished" not in capsys.readouterr().out
    # as after a kill: two of the plays, and no score
    record = here / "run" / "episodes.jsonl"
    record.write_bytes(b"".join(record.read_bytes().splitlines(keepends=True)[:2]))
    (here / "run" / "summary.json").unlink()
    assert main(["show", "run"]) == 0
    told = capsys.readouterr().out
    assert "2 ok" in told
    assert ("not finished" in told) is (scenario != "kuhn_poker")
    # how many are wanted is known there
    assert ("not played yet" in told) is (scenario == "kuhn_poker")


LOSING = """
from gem_ma import Ask, Reward, Scenario

class Mine(Scenario):
    agents = ("a",)
    ends_within = 1
    chance = False

    def tasks(self, split):
        return tuple(range(30))

    def play(self, rng, task):
        yield Ask({"a": f"task {task}"}, legal=("x",))
        if task == 5:
            raise RuntimeError("broken")
        yield Reward({"a": float(task != 17)})

    def success(self, episode):
        return episode.returns()["a"] > 0

    def measures(self, episode):
        return {"distance": float(episode.task.endswith("17"))}

    def labels(self, episode):
        return {"blame": "a"} if episode.task.endswith("17") else {}
"""


@pytest.mark.long
def test_a_lost_play_of_rules_of_ones_own_is_one_command_away(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`show` may not run the file that judged, so it reads what was judged when it was played."""
    (here / "mine.py").write_text(LOSING)
    assert main(["run", "mine.py", "--out", "run", "--quiet", "run.max_failed=1"]) == 0
    capsys.readouterr()

    def shown(which: str) -> str:
        assert main(["show", "run", "--episode", which]) == 0
        return " ".join(capsys.readouterr().out.split())

    for which in ("lost", "test/17"):
        text = shown(which)
        assert (
            text.startswith("episode test/17/")
            and "verdict lost" in text
            and "blame a" in text
            and "distance 1" in text
        )
    assert "verdict success" in shown("won") and "more won" in shown("won")
    assert "verdict success" in shown("test/3") and "verdict failed" in shown("failed")
    assert main(["show", "run", "--episode", "lost", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["verdict"] == "lost"

    # an older version wrote no index, and its summary names the lost plays
    (here / "run/index.jsonl").unlink()
    assert "verdict success" in shown("test/3")
    summary = json.loads((here / "run/summary.json").read_text())
    # plays came after it: only the lost ones are known
    (here / "run/summary.json").write_text(json.dumps({**summary, "episodes": 7}))
    assert "verdict lost" in shown("lost") and "verdict ended" in shown("test/3")
    for damaged in ({**summary, "lost": {"count": 1, "episodes": [7]}}, {**summary, "success": 1}):
        (here / "run/summary.json").write_text(json.dumps(damaged))
        assert one_line(capsys, ["show", "run", "--episode", "lost"]) == 1


LONG = "a" * 5000


TYPED = [[name, LONG] for name in ("run", "show", "resume", "study")]
TYPED += [
    ["train", f"{LONG}.yaml"],
    ["check", f"x/{LONG}"],
    ["list", "runs", "--root", LONG],
    ["new", "model", LONG],
]
TYPED += [
    ["run", "dilemma", "-n", "1", "--quiet", "--out", LONG],
    ["new", "model", "m", "--scenario", "typo"],
]


@pytest.mark.parametrize("words", TYPED)
def test_a_name_that_cannot_be_is_wrong_usage(
    words: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert one_line(capsys, words) == 2
    assert not list(here.iterdir())


def test_a_measure_that_no_cell_will_have_is_refused_before_anything_is_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.hostile import STUDY

    (tmp_path / "study.yaml").write_text(STUDY)
    words = ["study", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "out"), "--quiet"]
    assert one_line(capsys, [*words, "--measure", "return player_3"]) == 2
    assert not (tmp_path / "out").exists()
    assert one_line(capsys, [*words, "--measure", "return player_1"]) == 0


def test_a_signal_after_play_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gem_ma.cli import main as module

    monkeypatch.setattr(Stopping, "latest", "")
    assert module._stopped() == "stopped"
    Stopping("gem-ma resume runs/x")
    assert module._stopped() == "stopped; resume with: gem-ma resume runs/x"


@pytest.mark.long
def test_a_terminated_summary_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(
        SLOWLY + "\n    def measures(self, episode):\n        open('judging', 'w').close()\n       "
        " time.sleep(20)\n        return {}\n"
    )
    command = [sys.executable, "-m", "gem_ma", "run", "late:Quiz", "--out", "run", "--quiet"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    )
    for _ in range(600):
        if (tmp_path / "judging").exists() or process.poll() is not None:
            break
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 143 and "gem-ma resume run" in told, told
