"""The scenario `terminal`: its check pays the solution and nothing else, whatever a solver leaves
behind. The tests run behind the wall; without bubblewrap they fail, and `make sandbox` installs it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gem_ma.scenarios.terminal.items import Chore
from gem_ma.scenarios.terminal.kinds import KINDS, deal
from gem_ma.scenarios.terminal.scenario import Terminal

from gem_ma import Action, Episode, Game, Malformed, Plan, Seat, ToolCall, make, play_many, task_of
from gem_ma.config import load
from gem_ma.kernel.errors import ConfigError, DataError, ScenarioError
from gem_ma.runs.plans import scenario_of
from gem_ma.tools.shell import Session
from gem_ma.tools.walls import Wall
from tests.tools.test_shell import typed

EVERYWHERE = "find . -type f | while read -r f; do echo {0} > $f; done; "
OUT = "for f in answer sorted unique addresses slowest part places; do echo {0} > $f.txt; done; "
SAID = "mkdir -p said out/{0}; echo {0} > said/0; echo {0} > said/1; echo {0} > said/2; "
JUNK = {
    "exits": "exit",
    "exits with 0": "exit 0",
    "true": "true",
    "deletes everything": "rm -rf ./* .[!.]*",
    "a wrong number": OUT.format(0),
    "another number": OUT.format(999999),
    "PASS everywhere": EVERYWHERE.format("PASS") + OUT.format("PASS") + SAID.format("PASS"),
    "nothing everywhere": EVERYWHERE.format("").replace("echo", "printf ''"),
    "empty answers": OUT.format("").replace("echo", "printf ''"),
    "all that there is": "cat $(find . -type f) > all; for f in answer sorted unique addresses"
    " slowest part places; do cp all $f.txt; done; cp all clean.conf; cp all papers.tar.gz",
    "functions": "for f in grep cat find tr sort tar readlink test [ cmp stat; do"
    ' eval "function $f { :; }; export -f $f" 2>&1; done; cat() { echo 42; }; export -f cat',
    "aliases": "shopt -s expand_aliases; alias cat=true find=true tr=true '['=true",
    "a path": "mkdir bin; for f in grep cat find tr sort tar readlink; do printf '#!/bin/sh\\nexit 0'"
    " > bin/$f; chmod +x bin/$f; done; export PATH=$PWD/bin; cd bin",
    "BASH_ENV": "echo 'exit 0' > env; export BASH_ENV=$PWD/env ENV=$PWD/env; set -n",
    "start files": "for f in .bashrc .profile .bash_profile .bash_login; do echo exit 0 > $f; done",
    "a trap": "trap 'exit 0' EXIT DEBUG ERR RETURN; set -e",
    "its own words": "for f in answer sorted unique addresses slowest part places; do"
    " ln -s /proc/self/cmdline $f.txt; done; ln -s /proc/self/fd/63 clean.conf",
    "endless devices": "for f in answer sorted part; do ln -s /dev/zero $f.txt; done",
    "ends its session": "kill -9 $$",
    "links and folders": "mkdir answer.txt sorted.txt papers.tar.gz; ln -s / out; ln -s . current",
    "a background writer": "(while :; do echo 42 > answer.txt; done) & setsid sleep 60 &",
}


def verdict(task: Chore, commands: Sequence[str]) -> bool:
    """Whether the check pays after these commands."""
    session = Session(Wall(), 60.0, task.files)
    try:
        for command in commands:
            typed(session, command)
        for script in filter(None, (task.run, task.check)):
            session.plan_check(script)
            status = session.run()["status"]
        return bool(status == "ok")
    finally:
        session.close()


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=[*KINDS])
def test_the_solution_of_every_kind_is_paid_and_nothing_is_not(kind: int) -> None:
    task = deal("train", kind + len(KINDS))
    assert verdict(task, task.solution)
    assert not verdict(task, ())


@pytest.mark.long
def test_no_junk_is_paid_by_any_kind() -> None:
    paid = [
        (task.name, name)
        for task in (deal("dev", kind) for kind in range(len(KINDS)))
        for name, command in JUNK.items()
        if verdict(task, [command])
    ]
    assert paid == [] and len(JUNK) >= 20 and len(KINDS) >= 20


@pytest.mark.parametrize("name", ["PASS everywhere", "functions", "a path", "its own words"])
def test_junk_is_not_paid(name: str) -> None:
    for kind in (0, 4, 24):
        assert not verdict(deal("dev", kind), [JUNK[name]])


def test_what_is_expected_stands_in_no_file_and_every_place_is_another_task() -> None:
    tasks = make("terminal", tasks=104).tasks("all")
    assert len({(task.instruction, str(task.files)) for task in tasks}) > 0.9 * len(tasks)
    for task in tasks:
        if (value := task.check.partition('answer.txt)" = ')[2].partition(" ]")[0]).isdecimal():
            assert not any(value.encode() in file[2].split() for file in task.files.values())
    assert tasks == make("terminal", tasks=104).tasks("all")


async def _played(plans: Sequence[Plan]) -> list[Episode]:
    return [episode async for episode in play_many(plans)]


@pytest.mark.long
def test_the_players_get_what_they_deserve() -> None:
    scenario = make("terminal")
    for behaviour, least, most in (("solution", 26, 26), ("nothing", 0, 0), ("random", 0, 2)):
        seats = {"solver": Seat(f"terminal_{behaviour}")}
        plans = [Plan(scenario, seats, task=f"test/{n}", seed=1) for n in range(26)]
        episodes = asyncio.run(_played(plans))
        assert least <= sum(scenario.success(episode) is True for episode in episodes) <= most


# -- a play ---------------------------------------------------------------------------------------

ROW = {
    "instruction": "Write 42 to answer.txt.",
    "files": {"a/b.txt": "one\n", "run.sh": "#!/bin/bash\necho ran\n"},
    "check": 'read -r x < answer.txt; [ "$x" = 42 ]',
    "solution": ["cd a", "cd ..; echo 42 > answer.txt"],
}


def calls(*commands: str, name: str = "shell") -> Action:
    made = (ToolCall(f"c{n}", name, {"command": text}) for n, text in enumerate(commands))
    return Action("", tuple(made))


def started(folder: Path, row: dict[str, Any] = ROW, **options: Any) -> Game:
    file = folder / "tasks.jsonl"
    file.write_text(json.dumps(row))
    scenario = make("terminal", data=str(file), held_out=1.0, **options)
    return Game(scenario, task_of(scenario, "test/0"), seed=0)


def texts(game: Game, number: int = 1) -> list[str]:
    return [message.text for message in game.view("solver")[-number:]]


def test_commands_are_typed_until_an_answer_and_the_check_pays(tmp_path: Path) -> None:
    game = started(tmp_path)
    game.send({"solver": calls("ls; ./run.sh; cd a", "cat b.txt; false")})
    assert texts(game, 2) == ["a\nrun.sh\nran\n", "one\n[exit status 1]"]
    fork = game.fork()
    for each, number in ((game, 42), (fork, 41)):
        each.send({"solver": calls(f"pwd; echo {number} > ../answer.txt")})
        assert texts(each) == ["/tmp/home/a\n"]
        each.send({"solver": "done"})
        assert each.over
    assert [entry.value for entry in (*game.ledger, *fork.ledger)] == [1.0, 0.0]


def test_what_is_no_command_is_told_and_counted(tmp_path: Path) -> None:
    game = started(tmp_path, commands=4)
    game.send({"solver": Action("", (Malformed("{", "bad_json"),))})
    assert "bad_json" in texts(game)[0]
    game.send({"solver": calls("ls", name="bash")})
    assert "bash was not called: there is shell alone" in texts(game)[0]
    game.send({"solver": calls("echo 1", "echo 42 > answer.txt", "rm answer.txt")})
    assert game.over and game.ledger[-1].value == 1.0  # the third was one too many


def test_a_solver_that_prevents_a_verdict_is_paid_nothing_and_told_so(tmp_path: Path) -> None:
    ways = (
        (ROW, "cd ..; rm -r home", "FileNotFoundError"),
        (ROW, "mkfifo answer.txt", "timeout"),
        ({**ROW, "run": "bash run.sh"}, "echo 'kill -9 $PPID' > run.sh", "died"),
    )
    for row, command, why in ways:
        game = started(tmp_path, row, limits={"timeout_s": 1.0})
        game.send({"solver": calls(command)})
        game.send({"solver": "done"})
        paid = game.ledger[-1]
        assert paid.value == 0.0 and paid.why.startswith(f"no verdict: {why}")


def test_a_check_that_gives_nobody_a_verdict_fails_the_play(tmp_path: Path) -> None:
    for check, limit, why in (("sleep 60", 0.3, "timeout"), ("kill -9 $$", 60.0, "died")):
        game = started(tmp_path, {**ROW, "check": check}, limits={"timeout_s": limit})
        with pytest.raises(ScenarioError, match=f"no verdict, nor one without the solver: {why}"):
            game.send({"solver": "done"})


def test_what_a_solver_wrote_runs_before_the_check_and_is_gone_at_it(tmp_path: Path) -> None:
    row = {**ROW, "run": "bash run.sh > said", "check": "sleep .2; grep -qx 42 said"}
    for script, pay in (("echo 42", 1.0), ("echo 41; (sleep .1; echo 42 > said) &", 0.0)):
        game = started(tmp_path, row)
        game.send({"solver": calls(f"echo '{script}' > run.sh")})
        game.send({"solver": "done"})
        assert game.ledger[-1].value == pay


# -- data -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"check": ""}, "row 1: no text in the column check; it has instruction"),
        ({"instruction": 3}, "row 1: no text in the column instruction"),
        ({"check": "a\0b"}, "row 1: check holds a NUL byte"),
        ({"files": ["a"]}, "row 1: files are an object"),
        ({"files": {"../a": ""}}, r"row 1: '\.\./a' is not a path below the session's home"),
        ({"files": {"/a": ""}}, "row 1: '/a' is not a path"),
        ({"files": {"a": 3}}, "row 1: a: the content of a file is a text"),
        ({"files": {"a": "", "a/b": ""}}, "row 1: a/b lies below a file"),
        ({"files": {"": ""}}, "row 1: '' is not a path"),
        ({"files": {"a/": ""}}, "row 1: 'a/' is not a path"),
        ({"files": {"x" * 256: ""}}, "row 1: 'x+' is not a path"),
        ({"files": {"\ud800": ""}}, "row 1: .* is not a path"),
        ({"solution": [3]}, "row 1: a solution is a command"),
        ({"solution": 3}, "row 1: a solution is a command"),
    ],
)
def test_a_row_that_is_no_task_is_one_line(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        started(tmp_path, {**ROW, **change})


@pytest.mark.parametrize(
    "options",
    [
        {"commands": 0},
        {"held_out": 2},
        {"limits": {"disk": 3}},
        {"limits": {"timeout_s": 0}},
        {"limits": {"sandbox": "docker"}},
        {"data": "nowhere.jsonl"},
    ],
)
def test_a_wrong_option_is_one_line(options: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, DataError)):
        Terminal(**options)


def test_a_task_that_needs_more_than_the_wall_allows_is_refused_by_name(tmp_path: Path) -> None:
    row = {**ROW, "files": {"a": "x" * 600_000}, "check": "[ $(wc -c < a) = 600000 ]"}
    with pytest.raises(
        DataError, match=r"1 files take 0\.6 MiB; .* 0\.5 MiB, half of limits.disk_mb"
    ):
        started(tmp_path, row, limits={"disk_mb": 1})
    game = started(tmp_path, row, limits={"disk_mb": 2})
    game.send({"solver": "done"})
    assert game.ledger[-1].value == 1.0


def test_a_folder_of_folders_is_read_beside_its_config(tmp_path: Path) -> None:
    for number in range(3):
        place = tmp_path / "mine" / f"task{number}"
        (place / "files").mkdir(parents=True)
        (place / "files" / "number.txt").write_text(f"{number}\n")
        (place / "instruction.md").write_text(f"Copy the number to {number}.txt.")
        (place / "check.sh").write_text(f"cmp number.txt {number}.txt")
        (place / "solution.sh").write_text(f"cp number.txt {number}.txt")
    config = tmp_path / "config.yaml"
    config.write_text(
        "scenario: {id: terminal, data: mine, held_out: 1.0}\nagents: {solver: silent}\n"
    )
    loaded = load(config)
    scenario = scenario_of(loaded.config, base=loaded.base)
    tasks = scenario.tasks("test")
    assert len(tasks) == 3 and all(verdict(task, task.solution) for task in tasks)
    before = scenario.provenance()
    (tmp_path / "mine" / "task1" / "check.sh").write_text("true")
    assert scenario.provenance() != before
    (tmp_path / "mine" / "task1" / "instruction.md").unlink()
    with pytest.raises(DataError, match=r"task1: .*instruction\.md"):
        make("terminal", data=str(tmp_path / "mine"))
