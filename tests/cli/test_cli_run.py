"""`gem-ma run` plays, stores, resumes and tells the truth about what it leaves out, on the real
command line."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gem_ma.cli import serve
from gem_ma.cli.seats import seated
from gem_ma.config.loading import Loaded, load
from gem_ma.runs.playing import with_person
from gem_ma.runs.store import list_runs
from gem_ma.runs.worlds import worlds_of
from tests.command_line import SLOWLY, environment, gem_ma, signalled

CONFIG = (
    "# bots\nscenario: {id: dilemma, tasks: 6}\nagents:\n  player_0: {behaviour: first_legal}\n "
    " player_1: {behaviour: random_legal}\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bots.yaml").write_text(CONFIG)
    (tmp_path / "slowly.py").write_text(SLOWLY)
    return tmp_path


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_config_is_played_into_its_run_folder_and_the_same_command_plays_nothing_twice(
    folder: Path,
) -> None:
    done = gem_ma("run", "bots.yaml", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "6 ok / 0 failed / 0 excluded" in done.stdout and "return player_0" in done.stdout
    (run,) = (folder / "runs").iterdir()
    assert run.name.startswith("bots-") and len(run.name) == len("bots-") + 8
    assert {
        "config.yaml",
        "resolved.yaml",
        "manifest.json",
        "episodes.jsonl",
        "summary.json",
        "report.html",
    } <= {path.name for path in run.iterdir()}
    before = (run / "episodes.jsonl").read_bytes()
    assert gem_ma("run", "bots.yaml", cwd=folder).stdout == done.stdout
    assert gem_ma("resume", run.name, cwd=folder).stdout == done.stdout
    assert (run / "episodes.jsonl").read_bytes() == before
    repeated = gem_ma("run", run / "resolved.yaml", "--out", "again", "--json", cwd=folder)
    assert (
        json.loads(repeated.stdout)["returns"]
        == json.loads((run / "summary.json").read_text())["returns"]
    )


@pytest.mark.parametrize("command", ["run", "train", "study", "play", "resume"])
def test_a_key_that_is_typed_twice_is_refused_by_every_command(folder: Path, command: str) -> None:
    if command == "resume":
        gem_ma("run", "bots.yaml", "--out", "done", cwd=folder)
    (folder / "s.yaml").write_text(CONFIG + "grid:\n  run.seed: [1, 2]\n")
    sources = {"study": "s.yaml", "resume": "done", "train": "kuhn_table"}
    source = sources.get(command, "bots.yaml")
    seat = ["--as", "player_0"] if command == "play" else []
    done = gem_ma(command, source, "run.max_steps=3", "run.max_steps=4", *seat, cwd=folder)
    assert done.returncode == 2
    assert "command line: run.max_steps: typed twice" in done.stderr
    if command == "run":
        done = gem_ma("run", "bots.yaml", "scenario.tasks=3", "-n", "4", cwd=folder)
        assert "command line: scenario.tasks: typed twice" in done.stderr


# seeds of one task, and tasks
@pytest.mark.parametrize("source", ["bots.yaml", "slowly:Quiz"])
def test_more_tasks_go_on_with_the_same_run_and_fewer_keep_it(source: str, folder: Path) -> None:
    def played(count: int, *more: str) -> tuple[Path, list[bytes], str]:
        done = gem_ma("run", source, "-n", count, "--json", *more, cwd=folder)
        assert done.returncode == 0, done.stderr
        run = folder / json.loads(done.stdout)["run"]
        return run, (run / "episodes.jsonl").read_bytes().splitlines(), done.stderr

    run, first, _ = played(1)
    again, grown, _ = played(3)
    assert again == run and len(grown) == 3 and grown[:1] == first
    shrunk, held, said = played(2)
    assert (
        shrunk == run
        and held == grown
        and "holds 3 episodes already; all of them are scored, not only the 2 asked for" in said
    )
    assert json.loads((run / "summary.json").read_text())["planned"] == 3
    # resolved.yaml says 1, the manifest what came of it
    resumed = gem_ma("resume", run.name, "--json", cwd=folder)
    assert resumed.returncode == 0 and json.loads(resumed.stdout)["planned"] == 3
    _, whole, _ = played(3, "--out", "whole")
    assert sorted(whole) == sorted(grown)


def test_chosen_tasks_and_other_settings_are_other_runs(folder: Path) -> None:
    names = {
        json.loads(gem_ma("run", "slowly:Quiz", *more, "--json", cwd=folder).stdout)["run"]
        for more in ([], ["scenario.tasks=[1]"], ["run.seed=2"])
    }
    assert len(names) == 3


def test_failed_episodes_cost_the_exit_code_and_stand_beside_the_score(folder: Path) -> None:
    arguments = [
        "run",
        "dilemma",
        "agents.player_0.behaviour=slowly:Raising",
        "-n",
        "12",
        "--out",
        "out",
    ]
    done = gem_ma(*arguments, cwd=folder)
    failed = sum(line["end"] == "failed" for line in lines(folder / "out" / "episodes.jsonl"))
    assert done.returncode == 1 and 0 < failed < 12
    assert (
        f"{12 - failed} ok / {failed} failed / 0 excluded" in done.stdout
        and "return player_0, failed = 0" in done.stdout
    )
    assert (
        done.stderr
        == f"{failed} of 12 episodes failed, 0 are allowed (run.max_failed); redo them with: gem-ma"
        " resume out --retry-failed\n"
    )
    assert "\x1b" not in done.stdout and "\u202e" not in done.stdout
    assert gem_ma(*arguments, "run.max_failed=100%", cwd=folder).returncode == 0
    # other code would be another run
    (folder / "slowly.py").write_text(SLOWLY.replace("< 1 / 3", "< 0"))
    again = gem_ma("resume", "out", "--retry-failed", cwd=folder)
    assert again.returncode == 2 and again.stderr.startswith("out: slowly.py changed since")
    (folder / "slowly.py").write_text(SLOWLY)
    again = gem_ma("resume", "out", "--retry-failed", cwd=folder, REPAIRED="1")
    assert again.returncode == 0 and "12 ok / 0 failed / 0 excluded" in again.stdout
    assert len(lines(folder / "out" / "episodes.jsonl")) == 12 + failed
    # a play that was tried again is one, in the list of all runs too
    assert [run["episodes"] for run in list_runs(folder)] == [12]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_one_signal_lets_running_episodes_end_and_says_how_to_resume(
    folder: Path, number: int, code: int
) -> None:
    arguments = (
        "run",
        "dilemma",
        "agents.player_0.behaviour=slowly:Slow",
        "-n",
        "60",
        "-j",
        "2",
        "--out",
        "out",
    )
    got, seconds, out, err = signalled(
        *arguments, cwd=folder, number=number, ready=folder / "out" / "episodes.jsonl"
    )
    assert got == code and seconds < 8, err
    assert err.endswith("resume with: gem-ma resume out\n") and "Traceback" not in err
    played = lines(folder / "out" / "episodes.jsonl")
    assert 0 < len(played) < 60 and {line["end"] for line in played} == {"terminated"}
    assert (
        f"{len(played)} ok / 0 failed / 0 excluded" in out
        and f"not played yet     {60 - len(played)}" in out
    )
    assert not (folder / "out" / "summary.json").exists()
    resumed = gem_ma("resume", "out", "-j", "32", cwd=folder)
    assert resumed.returncode == 0 and "60 ok / 0 failed / 0 excluded" in resumed.stdout
    whole = lines(folder / "out" / "episodes.jsonl")
    assert (
        whole[: len(played)] == played
        and len({json.dumps(line["id"]) for line in whole}) == len(whole) == 60
    )


@pytest.mark.longest
@pytest.mark.usefixtures("hangup")
def test_a_terminal_that_is_closed_is_no_error_of_the_run(folder: Path) -> None:
    """With the bar that is drawn there, which can be drawn no longer."""
    words = ["run", "dilemma", "agents.player_0=slowly:Slow", "-n", "60", "-j", "2", "--out", "out"]
    child, terminal = pty.fork()
    if not child:
        os.chdir(folder)
        where = {**environment(), "TERM": "xterm"}
        where.pop("CI", None)
        os.execve(sys.executable, [sys.executable, "-m", "gem_ma", *words], where)
    played = folder / "out" / "episodes.jsonl"
    drawn = b""
    until = time.monotonic() + 60
    while time.monotonic() < until and not (played.exists() and played.stat().st_size):
        if select.select([terminal], [], [], 0.05)[0]:
            drawn += os.read(terminal, 65536)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert b"running" in drawn and os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    assert 0 < len(lines(played)) < 60


def test_what_hangs_is_cut_after_the_drain(folder: Path) -> None:
    arguments = (
        "run",
        "dilemma",
        "agents.player_0.behaviour=slowly:Slow",
        "agents.player_0.options={seconds: 0.1}",
        "--out",
        "out",
        "-n",
        "9",
        "-j",
        "1",
    )
    hanging = (
        "agents.player_1.behaviour=slowly:Slow",
        "agents.player_1.options={seconds: 60}",
        "run.max_steps=1",
    )
    got, seconds, out, err = signalled(
        *arguments, *hanging, cwd=folder, ready=folder / "out" / "manifest.json"
    )
    assert got == 130 and 2 < seconds < 9 and err.endswith("resume with: gem-ma resume out\n")
    assert "0 ok / 0 failed / 0 excluded" in out


@pytest.mark.parametrize("block", ["false", "true"])
def test_a_second_signal_ends_at_once_even_where_the_loop_is_stuck(
    folder: Path, block: str
) -> None:
    options = f"agents.player_0.options={{seconds: 60, block: {block}}}"
    arguments = ("run", "dilemma", "agents.player_0.behaviour=slowly:Slow", options, "--out", "out")
    got, seconds, _, err = signalled(
        *arguments, cwd=folder, times=2, ready=folder / "out" / "manifest.json"
    )
    assert got == 130 and seconds < 3 and err.endswith("resume with: gem-ma resume out\n")


@pytest.mark.longest
def test_a_closed_pipe_is_silent(folder: Path) -> None:
    command = f"{sys.executable} -m gem_ma run bots.yaml --json --out out | head -c 5"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr, done.returncode) == ('{\n  "', "", 0)


def test_progress_is_a_plain_line_off_a_terminal_and_nothing_when_quiet(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gem_ma.cli import terminal

    with terminal.Progress(10, 4) as progress:
        progress.start()
        progress.start()
        progress.end("ok")
        assert capsys.readouterr().err == ""
        progress._last_line -= terminal.LINE_EVERY_S
        progress.tick()
    line = capsys.readouterr().err
    # of the six that are new here one is done: five times as long again
    assert re.fullmatch(
        r"5/10 episodes, 1 ok, 1 running, [0-9.]+ a second, about [0-9:]+ left\n", line
    )
    with terminal.Progress(10, unit="forks") as progress:  # which nobody says when they begin
        assert progress.line().startswith("0/10 forks, none has ended, ")
        progress.end("terminated")
        assert progress.line().startswith("1/10 forks, 1 terminated, ")
        assert "running" not in progress.line()
    with terminal.Progress(10, quiet=True) as progress:
        progress._last_line -= terminal.LINE_EVERY_S
        progress.tick()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("hostile", "left"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x9b2Jb", "ab"),
        ("a\x00\x07\rb", "ab"),
        ("left\u202eright\u2066x", "leftrightx"),
        ("one\u2028two", "one two"),
        ("unfinished \x1b]0;title", "unfinished "),
        ("half \ud800", "half "),
        ("tab\tand\nline é 漢 👍", "tab\tand\nline é 漢 👍"),
    ],
)
def test_nothing_from_a_model_can_steer_a_terminal(hostile: str, left: str) -> None:
    from gem_ma.cli.terminal import plain

    assert plain(hostile) == left


def test_a_wrong_option_of_a_behaviour_is_told_before_a_run_folder_is_made(tmp_path: Path) -> None:
    for command in ("run", "check"):
        found = gem_ma(
            command,
            "retail_scripted",
            "scenario.data=own",
            "agents.user.options.preset=faithfull",
            cwd=tmp_path,
        )
        assert found.returncode == 2 and "did you mean 'faithful'" in found.stderr, found.stderr
    assert not (tmp_path / "runs").exists()


DOTTED = """
from gem_ma import Ask, Scenario

class Dotted(Scenario):
    agents = ("Ann B.", "b=c")

    def play(self, rng, task):
        yield Ask(dict.fromkeys(self.agents, "yes or no?"), ("yes", "no"))
"""


def test_names_with_dots_and_equals_signs_are_seated_wherever_an_agent_is_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "dotted.py").write_text(DOTTED)
    seats = ("--Ann B.", "first_legal", 'agents."b=c".behaviour=silent')
    done = gem_ma("run", "dotted.py", *seats, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    row = lines(tmp_path / "run" / "episodes.jsonl")[0]
    texts = {turn["agent"]: turn["action"].get("text", "") for turn in row["turns"]}  # type: ignore
    assert texts == {"Ann B.": "yes", "b=c": ""}
    twice = gem_ma("run", "dotted.py", *seats, 'agents."b=c"=silent', cwd=tmp_path)
    assert twice.returncode == 2 and "typed twice" in twice.stderr
    # nobody is at a terminal here, but the seat is found
    for name in ("Ann B.", "b=c"):
        played = gem_ma("play", "dotted.py", "--as", name, cwd=tmp_path)
        assert played.returncode == 2 and "needs a terminal" in played.stderr, played.stderr


def test_who_is_seated_has_the_tools_of_the_seat_and_in_every_world(tmp_path: Path) -> None:
    tools = "agents: {player: {behaviour: random_legal, tools: [{python: {uses: 2}}]}}"
    source = str(tmp_path / "tools.yaml")
    Path(source).write_text(f"scenario: {{id: guess_number}}\n{tools}\n")
    seats = [load(*seated(source, ("--player", who))) for who in ("first_legal", "scripted/echo")]
    for loaded in (*seats, with_person(source, (), "player", seed=1)):
        assert loaded.config.agents["player"].tools
    worlds = "a: {id: dilemma, agents: {player_0: silent}}, b: {id: dilemma, tasks: 9}"
    Path(source).write_text(f"scenarios: {{{worlds}}}\nagents: {{'*': first_legal}}\n")
    played = worlds_of(with_person(source, (), "player_0", plays=2, seed=1).config)
    for world in played.played:
        assert world.config.agents["player_0"].policy and world.config.only.tasks == 2
    model = load(*seated(source, ("--player-0", "scripted/echo", "--player_1", "silent")))
    for world in worlds_of(model.config).played:
        player_0, player_1 = world.config.agents.values()
        assert player_0.policy and player_1.seat.behaviour == "silent"


def test_a_served_seat_is_that_of_every_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = "a: {id: dilemma, agents: {player_0: silent}}, b: dilemma"
    source = tmp_path / "worlds.yaml"
    source.write_text(f"scenarios: {{{worlds}}}\nagents: {{'*': first_legal}}\n")
    served: list[Loaded] = []
    monkeypatch.setattr(serve, "_serve", lambda loaded, *rest: served.append(loaded))
    serve.command.main([str(source), "--seat", "player_0"], standalone_mode=False)
    for world in worlds_of(served[0].config).played:
        seats = [seat.seat.behaviour for seat in world.config.agents.values()]
        assert seats == ["program", "first_legal"]
