"""Trivial players beside a run, and the ceiling that an agent leaves to the others: played
apart, on the run's own tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gem_ma.cli.main import main
from gem_ma.config.loading import load
from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.runs.plans import cast_with, scenario_of
from gem_ma.runs.store import RunFolder, note_in_manifest, read_episodes, read_manifest
from gem_ma.scores.rows import table
from tests.command_line import gem_ma, signalled

DESK = '''
import asyncio
from gem_ma import Action, Ask, Reward, Scenario

COLOURS = ("red", "green", "blue")

class Slow:
    """Waits, then names the first colour."""
    def __init__(self, agent, sample, rng, task=None, seconds: float = 0.05):
        self.seconds = seconds
    async def act(self, asked):
        await asyncio.sleep(self.seconds)
        return Action("red", (), "red")

class Desk(Scenario):
    """A host names a colour, a guesser repeats it."""
    agents = ("guesser", "host")
    chance = False
    rates = ("return guesser",)
    default_cast = {"guesser": "random_legal", "host": "first_legal"}
    baseline_casts = {"first": {"guesser": "first_legal"}, "mute": {"guesser": "silent"}}
    examiners = {"host": {"guesser": "first_legal"}}
    def tasks(self, split):
        return COLOURS * 10
    def play(self, rng, task):
        yield Ask({"host": "Name it."}, legal=COLOURS)
        said = yield Ask({"guesser": "Which colour?"}, legal=COLOURS)
        yield Reward({"guesser": float(said["guesser"].parsed == task)}, why="outcome")
    def success(self, episode):
        return episode.returns()["guesser"] > 0
    def measures(self, episode):
        return {"words": float(len(episode.turns))}
    def labels(self, episode):
        return {} if self.success(episode) else {"blame": "guesser"}

class Open(Desk):
    """Nobody plays the host by default."""
    default_cast = {}
    baseline_casts = {"none": {"guesser": "silent"}, "typo": {"guesser": "silnt"}, "stranger": {"gues": "silent"}, "model": {"guesser": "direct"}}
'''
CONFIG = """\
scenario: {id: "desk:Desk", tasks: 12}
agents:
  guesser: {behaviour: random_legal}
  host: {behaviour: first_legal}
run: {seed: 3, episodes_per_task: 3}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "desk.py").write_text(DESK)
    (tmp_path / "desk.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def run(*words: str, cwd: Path, source: str = "desk.yaml") -> dict[str, Any]:
    done = gem_ma("run", source, *words, "--out", "out", "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


# -- baselines -----------------------------------------------------------------------------------


def test_baselines_play_the_runs_tasks_and_seeds_once_and_lie_apart(folder: Path) -> None:
    found = run(cwd=folder)
    assert set(found["baselines"]) == {"first", "mute"} and found["ok"] == 36
    first = found["baselines"]["first"]
    assert (first["success"]["mean"], first["success"]["n"], first["tasks"], first["of"]) == (
        pytest.approx(1 / 3),
        12,
        12,
        12,
    )
    # one rule for the run's intervals and for those of its baselines
    for summary in (found, *found["baselines"].values()):
        assert summary["returns"]["guesser"]["rate"] and not summary["returns"]["host"]["rate"]
    mute = found["baselines"]["mute"]["returns"]["guesser"]
    assert (mute["mean"], mute["low"]) == (0.0, 0.0) and mute["high"] > 0.1
    assert first["cast"] == {"guesser": "first_legal", "host": "first_legal"}
    own = {(one.task, one.seed) for one in read_episodes(folder / "out")}
    beside = list(read_episodes(folder / "out" / first["run"]))
    assert (
        {(one.task, one.seed) for one in beside} == own
        and len(beside) == 12
        and {one.repeat for one in beside} == {0}
    )
    assert {one.cast["guesser"].behaviour for one in read_episodes(folder / "out")} == {
        "random_legal"
    }
    assert (
        json.loads((folder / "out" / "summary.json").read_text())["baselines"] == found["baselines"]
    )
    assert "trivial players beside it" in (folder / "out" / "report.html").read_text()
    assert "baseline first" in gem_ma("show", "out", cwd=folder).stdout


def test_the_same_command_again_plays_no_baseline_twice(folder: Path) -> None:
    first = run(cwd=folder)
    files = {path: path.read_bytes() for path in (folder / "out").rglob("episodes.jsonl")}
    assert len(files) == 3 and run(cwd=folder) == first
    assert {path: path.read_bytes() for path in (folder / "out").rglob("episodes.jsonl")} == files


def test_baselines_can_be_switched_off_without_another_run_folder(folder: Path) -> None:
    off = run("run.baselines=false", cwd=folder)
    assert off["baselines"] == {} and not (folder / "out" / "baselines").exists()
    # the setting changes no episode of the run
    assert set(run(cwd=folder)["baselines"]) == {"first", "mute"}


def test_of_many_tasks_a_fixed_draw_is_played_and_said(folder: Path) -> None:
    few = run("run.baselines=5", "scenario.tasks=30", cwd=folder)
    one = few["baselines"]["first"]
    assert (one["tasks"], one["of"], one["episodes"]) == (5, 30, 5)
    assert dict(table(few))["baseline first"].endswith(" of 5 (5 of 30 tasks)")
    drawn = {episode.task for episode in read_episodes(folder / "out" / one["run"])}
    more = run("run.baselines=8", "scenario.tasks=30", cwd=folder)["baselines"]["first"]
    assert more["episodes"] == 8 and drawn < {
        episode.task for episode in read_episodes(folder / "out" / more["run"])
    }
    less = run("run.baselines=5", "scenario.tasks=30", cwd=folder)["baselines"]["first"]
    assert less["success"] == one["success"] and less["episodes"] == 5


@pytest.mark.parametrize("value", ["0", "some", "1.5"])
def test_a_wrong_number_of_baseline_tasks_is_refused(
    folder: Path, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "desk.yaml", f"run.baselines={value}"]) == 2
    assert "run.baselines: " in capsys.readouterr().err


def test_a_scenario_without_baselines_has_none(folder: Path) -> None:
    assert run("-n", "3", cwd=folder, source="dilemma")["baselines"] == {}


def test_a_seat_with_a_policy_is_played_by_the_default_of_the_scenario(folder: Path) -> None:
    text = (
        CONFIG.replace("host: {behaviour: first_legal}", "host: {policy: main}")
        + "policies: {main: {model: table/softmax}}\n"
    )
    (folder / "desk.yaml").write_text(text)
    found = run(cwd=folder)["baselines"]["mute"]
    assert found["cast"]["host"] == "first_legal"
    turns = [turn for one in read_episodes(folder / "out" / found["run"]) for turn in one.turns]
    assert not any(turn.replies for turn in turns)  # nothing was sampled


def test_a_baseline_that_cannot_be_played_costs_a_line_and_not_the_result(folder: Path) -> None:
    text = CONFIG.replace("desk:Desk", "desk:Open").replace(
        "host: {behaviour: first_legal}", "host: {policy: main}"
    )
    (folder / "desk.yaml").write_text(text + "policies: {main: {model: table/softmax}}\n")
    done = gem_ma("run", "desk.yaml", "--out", "out", cwd=folder)
    assert done.returncode == 0 and "36 ok" in done.stdout and "baseline" not in done.stdout
    for line in (
        (
            "baseline 'none' is not played: agent 'host' samples from a policy here, and desk:Open"
            " names no default for it"
        ),
        "baseline 'typo' is not played: no behaviour is called 'silnt'",
        "baseline 'stranger' is not played: no agent of desk:Open is called 'gues'",
    ):
        assert line in done.stderr


def test_a_behaviour_that_needs_a_policy_is_no_baseline(folder: Path) -> None:
    loaded = load("desk.yaml")
    with pytest.raises(ConfigError, match="the behaviour 'direct' samples from a policy"):
        cast_with(loaded.config, scenario_of(loaded.config), {"guesser": "direct"})


def test_a_run_that_is_stopped_in_its_baselines_resumes_them(folder: Path) -> None:
    slow = DESK.replace('"mute": {"guesser": "silent"}', '"slow": {"guesser": "desk:Slow"}')
    (folder / "desk.py").write_text(slow)
    below = folder / "out" / "baselines"
    started = ("run", "desk.yaml", "run.concurrency=1", "--out", "out", "--json")
    (folder / "out").mkdir()
    code, _, out, err = signalled(*started, cwd=folder, ready=_second(below))
    assert code == 130 and err.endswith("resume with: gem-ma resume out\n"), err
    assert json.loads(out)["ok"] == 36 and json.loads(out)["baselines"] == {}
    done = gem_ma("resume", "out", "--json", cwd=folder)
    found = json.loads(done.stdout)["baselines"]
    assert {name: one["episodes"] for name, one in found.items()} == {"first": 12, "slow": 12}


def _second(below: Path) -> Path:
    """A stand-in path that exists once the slow baseline has begun to write."""

    class Waiting(type(below)):  # type: ignore[misc]
        def exists(self, **_: object) -> bool:
            return any(path.stat().st_size for path in below.glob("slow-*/episodes.jsonl"))

        def stat(self, **_: object) -> Any:
            return next(below.glob("slow-*/episodes.jsonl")).stat()

    return Waiting(below)


# -- examination ---------------------------------------------------------------------------------


def test_an_examination_seats_examiners_around_the_agent(folder: Path) -> None:
    done = gem_ma("check", "desk.yaml", "--examine", "host", "-n", "9", "--json", cwd=folder)
    found = json.loads(done.stdout)
    assert (
        done.returncode == 0
        and found["examiners"] == {"guesser": "first_legal"}
        and found["seat"]["behaviour"] == "first_legal"
    )
    assert (found["ceiling"]["mean"], found["episodes"]) == (pytest.approx(1 / 3), 9) and found[
        "score"
    ] == "success"
    # red comes first
    assert [one["task"] for one in found["lost"]] == [f"test/{n}" for n in range(9) if n % 3]
    assert (
        found["lost"][0]["labels"] == {"blame": ["guesser"]}
        and found["measures"]["words"]["mean"] == 2.0
    )
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(("at_least", "code"), [("0.3", 0), ("0.34", 1)])
def test_a_ceiling_below_what_is_wanted_costs_the_exit_code(
    folder: Path, at_least: str, code: int
) -> None:
    done = gem_ma(
        "check", "desk.yaml", "--examine", "host", "-n", "9", "--at-least", at_least, cwd=folder
    )
    assert done.returncode == code and "ceiling (success)" in done.stdout
    assert ("host: success 0.333 is below 0.34" in done.stderr) == bool(code)


def test_failed_episodes_lower_a_ceiling(folder: Path) -> None:
    (folder / "desk.py").write_text(
        DESK + '\n\nclass Sharp(Desk):\n    """Fails where red is the colour."""\n    def'
        " play(self, rng, task):\n        if task == 'green':\n            raise"
        " RuntimeError('gone')\n        yield from super().play(rng, 'red')\n"
    )
    done = gem_ma(
        "check", "desk:Sharp", "--examine", "host", "-n", "9", "--at-least", "0.7", cwd=folder
    )
    assert done.returncode == 1 and "6 ok / 3 failed" in done.stdout
    assert (
        "host: success 0.667 (failed episodes count as lost) is below 0.7" in done.stderr
        and "RuntimeError: gone" in done.stdout
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--examine", "hst"], "no agent of desk:Desk has this name (did you mean 'host'?)"),
        (
            ["--examine", "guesser"],
            "desk:Desk names no examiners of 'guesser'; it has some for host",
        ),
        (["--at-least", "0.5"], "need --examine AGENT"),
        (["--examine", "host", "--record", "runs/none"], "runs/none: no such run folder"),
        (["--examine", "host", "-n", "99"], "99 tasks are wanted; split 'test' has 30"),
    ],
)
def test_a_wrong_examination_is_2_and_says_why(
    folder: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "desk.yaml", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_shown_scenario_names_its_baselines_and_examiners(folder: Path) -> None:
    shown = gem_ma("show", "scenario", "desk:Desk", cwd=folder).stdout
    rows = [line.split("  ", 1) for line in shown.splitlines()]
    told = {row[0]: row[1].strip() for row in rows if len(row) > 1}
    assert (
        told["plays beside"] == "first, mute"
        and told["examiners of host"] == "guesser: first_legal"
    )


def test_an_examination_is_kept_in_the_manifest_of_a_run_that_can_still_be_resumed(
    folder: Path,
) -> None:
    run(cwd=folder)
    done = gem_ma(
        "check", "desk.yaml", "--examine", "host", "-n", "6", "--record", "out", cwd=folder
    )
    assert done.returncode == 0 and "recorded in" in done.stdout
    kept = read_manifest(folder / "out")["examination host"]
    assert (
        kept["ceiling"]["mean"] == pytest.approx(1 / 3)
        and kept["examiners"] == {"guesser": "first_legal"}
        and kept["at"]
    )
    assert gem_ma("resume", "out", cwd=folder).returncode == 0


def test_a_manifest_is_not_written_under_a_running_run(tmp_path: Path) -> None:
    with (
        RunFolder.open(tmp_path / "run", config_text="", resolved={"scenario": {"id": "toy"}}),
        pytest.raises(StoreError, match="in use by process"),
    ):
        note_in_manifest(tmp_path / "run", "examination x", {})
    note_in_manifest(tmp_path / "run", "examination x", {"ceiling": 1.0})
    assert read_manifest(tmp_path / "run")["examination x"]["ceiling"] == 1.0
