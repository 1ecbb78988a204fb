"""Tools of agents: private, counted, paid, and exact when a play is forked."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gem_ma import (
    Action,
    Ask,
    Game,
    Malformed,
    Plan,
    Reward,
    Scenario,
    Seat,
    Tool,
    ToolCall,
    make,
    play,
    replay,
)
from gem_ma.config import load
from gem_ma.config.document import write
from gem_ma.kernel.errors import ConfigError, ScenarioError
from gem_ma.registry import wrapped
from gem_ma.runs.plans import scenario_of
from gem_ma.scores.judge import Judge
from gem_ma.testing import check_scenario
from gem_ma.tools import sandbox, sessions
from gem_ma.tools.belt import Equipment, Use, WithTools
from gem_ma.tools.python import Python, Session
from gem_ma.tools.sandbox import Worker
from gem_ma.tools.walls import Wall

RUNS: list[Any] = []


class Echo(Use):
    """Says what it was told, and how many were planned."""

    def __init__(self) -> None:
        self.planned: list[Any] = []

    def plan(self, name: str, arguments: Mapping[str, Any]) -> None:
        self.planned.append(arguments.get("text"))

    def run(self) -> Any:
        RUNS.append(self.planned[-1])
        if self.planned[-1] == "fail":
            raise ValueError("as told")
        return f"{len(self.planned)}: {self.planned[-1]}"


class Parrot(Equipment):
    tools = (Tool("parrot"),)

    def __init__(self, uses: int = 3, reward: float = 0.0) -> None:
        self.uses, self.reward = uses, reward

    def open(self) -> Echo:
        return Echo()


class Named(Parrot):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.tools = (Tool(name),)


class Both(Scenario):
    """Two agents choose at once; the first may use a tool of the scenario."""

    agents = ("a", "b")
    chance, ends_within = False, 1

    def play(self, rng: Any, task: Any) -> Any:
        says = yield Ask(dict.fromkeys(self.agents, "go"), ("x", "y"), {"a": (Tool("theirs"),)})
        yield Reward({agent: float(says[agent].parsed == "x") for agent in self.agents})


def call(text: str, name: str = "parrot", key: str = "text") -> Action:
    return Action("", (ToolCall(f"c-{text}", name, {key: text}),))


def python(code: str) -> Action:
    return call(code, "python", "code")


def seen(game: Game, agent: str) -> str:
    return game.view(agent)[-1].text


def test_a_result_is_shown_to_its_owner_who_is_asked_again() -> None:
    game = Game(WithTools(Both(), {"a": [Parrot()]}))
    assert [tool.name for tool in game.pending["a"].tools] == ["theirs", "parrot"]
    assert game.pending["b"].tools == ()
    game.send({"a": call("one"), "b": "x"})
    assert list(game.pending) == ["a"]
    assert game.view("a")[-1].call_id == "c-one"
    assert seen(game, "a") == "1: one"
    assert "one" not in str(game.view("b"))
    game.send({"a": "x"})
    assert game.over
    assert [entry.value for entry in game.ledger] == [1, 1]


class Pays(Both):
    """It pays nothing for a call of its own tool, and asks how often."""

    def play(self, rng: Any, task: Any) -> Any:
        yield from super().play(rng, task)
        yield Reward({"a": 0}, why="tool: theirs")

    def measures(self, episode: Any) -> dict[str, float]:
        return dict.fromkeys((entry.why for entry in episode.ledger), 1.0)


def test_what_rules_pay_for_their_own_tools_is_judged_behind_changed_rewards() -> None:
    scenario = WithTools(wrapped(Pays(), [{"reward": {"scale": 2}}]), {"a": [Parrot(reward=1)]})
    said: dict[str, Any] = {
        "a": lambda seen, *_: call("one") if len(seen) < 2 else "x",
        "b": lambda *_: "x",
    }
    plan = Plan(scenario, {"a": Seat("?"), "b": Seat("?")})
    episode = asyncio.run(play(plan, behaviours=said))
    assert [entry.why for entry in episode.ledger] == ["tool: parrot", "", "", "tool: theirs"]
    assert [*scenario.measures(episode)] == ["", "tool: theirs"]


def test_uses_are_counted_and_paid() -> None:
    scenario = WithTools(Both(), {"a": [Parrot(uses=2, reward=-0.25)]})
    assert not scenario.zero_sum and scenario.ends_within == 3
    game = Game(scenario)
    game.send({"a": Action("", (*call("one").tool_calls, *call("two").tool_calls)), "b": "y"})
    assert [tool.name for tool in game.pending["a"].tools] == ["theirs"]
    assert [m.text for m in game.view("a")[-2:]] == ["1: one", "2: two"]
    game.send({"a": call("three")})
    assert game.over
    assert [(entry.value, entry.why) for entry in game.ledger if entry.agent == "a"] == [
        (-0.25, "tool: parrot"),
        (-0.25, "tool: parrot"),
        (0.0, ""),
    ]


def test_what_cannot_be_called_is_told_and_counted() -> None:
    game = Game(WithTools(Both(), {"b": [Parrot(uses=3)]}))
    game.send({"a": "x", "b": Action("", (Malformed("{", "bad_json"),))})
    assert "bad_json" in seen(game, "b")
    game.send({"b": Action("", (ToolCall("1", "unknown", {}),))})
    assert "unknown was not called: no tool is called so" in seen(game, "b")
    game.send({"b": call("fail")})
    assert "ValueError: as told" in seen(game, "b")
    assert game.pending["b"].tools == ()
    game.send({"b": "x"})
    assert game.over


def test_calls_of_a_spent_tool_take_the_uses_of_others_in_the_end() -> None:
    game = Game(WithTools(Both(), {"b": [Named("one"), Named("two")]}))
    game.send({"a": "x", "b": Action("", call("x", "one").tool_calls * 4)})
    assert [tool.name for tool in game.pending["b"].tools] == ["two"]
    for _ in range(4):
        game.send({"b": call("x", "one")})
    assert game.over


def test_a_call_of_the_scenario_passes_and_beside_an_own_one_it_waits() -> None:
    game = Game(WithTools(Both(), {"a": [Parrot()]}))
    game.send({"a": Action("x", (ToolCall("1", "theirs", {}),)), "b": "x"})
    assert game.over
    game = Game(WithTools(Both(), {"a": [Parrot()]}))
    both = Action("", (ToolCall("1", "theirs", {}), *call("one").tool_calls))
    game.send({"a": both, "b": "x"})
    assert [m.text for m in game.view("a")[-2:]] == [
        "Error: theirs was not called: call it alone",
        "1: one",
    ]


def test_a_replay_runs_nothing_and_a_fork_goes_on() -> None:
    scenario = WithTools(Both(), {"a": [Parrot()]})
    game = Game(scenario)
    game.send({"a": call("one"), "b": "x"})
    RUNS.clear()
    again = replay(scenario, None, 0, game.turns, game.calls)
    fork = game.fork()
    assert RUNS == []
    for each in (again, fork):
        each.send({"a": call("two")})
        assert seen(each, "a") == "2: two"


@pytest.mark.longest
@pytest.mark.parametrize("name", ["kuhn_poker", "dilemma", "guess_number", "tic_tac_toe"])
def test_the_rules_of_a_game_hold_with_a_tool_in_it(name: str) -> None:
    inner = make(name)
    check_scenario(WithTools(inner, {inner.agents[0]: [Parrot()]}), seeds=range(3))


# -- python ---------------------------------------------------------------------------------------


def agent(game: Game) -> str:
    return next(iter(game.pending))


def ask(game: Game, code: str) -> str:
    name = agent(game)
    game.send({name: python(code)})
    return seen(game, name)


def test_a_session_keeps_its_variables_and_is_its_own() -> None:
    inner = make("dilemma")
    scenario = WithTools(inner, {name: [Python()] for name in inner.agents})
    first, second = inner.agents
    game = Game(scenario)
    game.send({first: python("x = 5"), second: python("x = 7")})
    game.send({first: python("x + 1"), second: python("x + 1")})
    assert (seen(game, first), seen(game, second)) == ("6\n", "8\n")
    game.close()


def test_a_fork_in_the_middle_of_a_session_continues_exactly() -> None:
    inner = make("guess_number")
    game = Game(WithTools(inner, {inner.agents[0]: [Python(uses=9)]}))
    ask(game, "import random\nnumbers = [random.random() for _ in range(3)]\nx = {'a', 'b', 'c'}")
    ask(game, "open('file', 'w').write('left')")
    fork = game.fork()
    older = game.fork(1)
    expected = ask(game, "print(numbers, random.random(), x, open('file').read())")
    assert "left" in expected
    assert ask(fork, "print(numbers, random.random(), x, open('file').read())") == expected
    assert "FileNotFoundError" in ask(older, "open('file').read()")
    # both go on by themselves
    ask(game, "x = 1")
    assert "'a'" in ask(fork, "sorted(x)")
    for each in (game, fork, older):
        each.close()


def test_a_cell_without_an_end_leaves_the_state_before_it() -> None:
    inner = make("guess_number")
    game = Game(WithTools(inner, {inner.agents[0]: [Python(uses=9, timeout_s=0.5)]}))
    ask(game, "x = 5")
    assert "longer than 0.5 s" in ask(game, "x = 6\nwhile True: pass")
    fork = game.fork()
    assert ask(game, "x") == ask(fork, "x") == "5\n"
    assert "process ended" in ask(game, "import os; os._exit(0)")
    assert ask(game, "x") == "5\n"
    assert "ZeroDivisionError" in ask(game, "x = 7\n1 / 0")
    assert ask(game, "x") == ask(game.fork(), "x") == "7\n"
    assert "TypeError" in (
        game.send({agent(game): call("1", "python", "kode")}) or seen(game, agent(game))
    )
    game.close()
    fork.close()


def test_a_session_that_gave_up_its_process_is_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gem_ma.tools.sessions.HOLDERS.most", 1)
    wall = Python().wall
    sessions = [Session(wall, 5.0), Session(wall, 5.0)]
    for cell in ("x = 1", "x += 1", "x"):
        for session in sessions:
            session.plan("python", {"code": cell})
            result = session.run()
            assert session.text_of(result) == ("2\n" if cell == "x" else "")
    assert sum(session.worker is not None for session in sessions) == 1
    for session in sessions:
        session.close()


def test_no_process_is_taken_from_a_session_whose_cell_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gem_ma.tools.sessions.HOLDERS.most", 1)
    wall = Python().wall
    sessions = [Session(wall, 20.0) for _ in range(3)]
    results: dict[int, Any] = {}

    def sleep(number: int) -> None:
        sessions[number].plan("python", {"code": f"import time; time.sleep(.3); {number}"})
        results[number] = sessions[number].run()

    threads = [threading.Thread(target=sleep, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[number]["out"] for number in range(3)] == ["0\n", "1\n", "2\n"]
    for session in sessions:
        session.close()
        session.plan("python", {"code": "1"})
        assert session.run()["status"] == "died" and session.worker is None


def test_a_worker_goes_from_session_to_session_and_takes_nothing_along() -> None:
    wall = Python().wall
    left = """import os, subprocess, sys
secret = 1
open("left", "w").write("x")
os.environ["LEFT"] = "x"
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])"""
    look = """import os, glob
print("secret" in globals(), os.environ.get("LEFT"), os.path.exists("left"))
print(any(b"sleep(60)" in open(f, "rb").read() for f in glob.glob("/proc/[0-9]*/cmdline")))"""
    first, second = Session(wall, 5.0), Session(wall, 5.0)
    assert first._cell(left, 5.0)["status"] == "ok"
    worker = first.worker
    first.close()
    second.plan("python", {"code": look})
    assert second.run()["out"].split() == ["False", "None", "False", "False"]
    assert second.worker is worker is not None
    second.close()


@pytest.mark.long
def test_many_plays_that_call_at_once_share_few_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of plays calls, ends and begins again together: no batch starts its own processes."""
    started: list[Worker] = []

    class Counted(Worker):
        def __init__(self, wall: Wall) -> None:
            super().__init__(wall)
            started.append(self)

    Python()  # asks once whether there is a wall
    monkeypatch.setattr(sandbox, "Worker", Counted)
    monkeypatch.setattr(sandbox, "MAX_BUSY", 3)
    # others of this process may hold workers and rooms of the common wall
    monkeypatch.setattr(sessions, "POOL", pool := sandbox._Pool())
    inner = make("guess_number")
    try:
        for uses, most in ((1, 3), (2, 12)):  # who has no use left holds no process
            scenario = WithTools(inner, {inner.agents[0]: [Python(uses=uses)]})
            for _ in range(3):
                games = [Game(scenario) for _ in range(12)]
                with ThreadPoolExecutor(12) as threads:
                    assert [*threads.map(ask, games, ["6 * 7"] * 12)] == ["42\n"] * 12
                for game in games:
                    game.close()
            assert 0 < len(started) <= most
    finally:
        pool.close()


def test_a_session_that_is_closed_while_a_cell_runs_ends_at_once() -> None:
    session = Session(Python().wall, 20.0)
    session.plan("python", {"code": "import time; time.sleep(15)"})
    thread = threading.Thread(target=session.run)
    thread.start()
    while session.worker is None:
        time.sleep(0.01)
    begun = time.monotonic()
    session.close()
    thread.join()
    assert time.monotonic() - begun < 10


# -- by config ------------------------------------------------------------------------------------


def config(tmp_path: Path, tools: str) -> Path:
    file = tmp_path / "config.yaml"
    seats = f"agents:\n  player_0: {{behaviour: random_legal, tools: {tools}}}\n  player_1: random_legal\n"
    file.write_text("scenario: {id: dilemma, tasks: 2}\n" + seats)
    return file


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ("[pythn]", r"tools\[0\]\.pythn: unknown key \(did you mean 'python'"),
        (
            "[{python: {time: 3}}]",
            r"config\.yaml:3: agents\.player_0\.tools\[0\]\.python\.time: unk",
        ),
        ("[{python: {sandbox: docker}}]", "wants 'bubblewrap' or 'none'"),
        ("[{python: {uses: 0}}]", "greater than or equal to 1"),
        ("[{python: {}, search: {folder: x}}]", "should be one tool"),
        ("[search]", "either a folder or a url"),
        ("[{search: {url: x, model: y}}]", "a model belongs to a folder"),
        ("[mcp]", "either a command or a url"),
        ("[{mcp: {command: [], url: x}}]", r"mcp\.command: "),
        ("python", "wants a list"),
        ("[3]", "wants keys with values"),
    ],
)
def test_a_wrong_tool_is_one_line(tmp_path: Path, tools: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(config(tmp_path, tools))


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ("[python, python]", r"agents\.player_0\.tools: two tools are called python"),
        ("[{python: {packages: [no_such]}}]", r"player_0\.tools\[0\]: the package 'no_such'"),
        ("[{python: {packages: [../x]}}]", r"tools\[0\]: a package is a top-level name, as numpy"),
        ("[{python: {packages: [os.path]}}]", r"is a top-level name, as numpy; got 'os.path'"),
        ("[{search: {folder: nowhere}}]", r"player_0\.tools\[0\]: search: no such folder"),
    ],
)
def test_a_tool_that_cannot_be_had_is_one_line(tmp_path: Path, tools: str, message: str) -> None:
    loaded = load(config(tmp_path, tools))
    with pytest.raises(ConfigError, match=message):
        scenario_of(loaded.config, base=loaded.base)


def test_without_the_sdk_a_line_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    loaded = load(config(tmp_path, "[{mcp: {url: 'http://127.0.0.1:9/mcp'}}]"))
    with pytest.raises(ConfigError, match=r"tools\[0\]: mcp: .*pip install .*\[mcp\]"):
        scenario_of(loaded.config, base=loaded.base)


def test_a_config_gives_tools_and_its_record_loads_again(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    loaded = load(config(tmp_path, "[python, {search: {folder: texts}}]"))
    record = tmp_path / "again.yaml"
    record.write_text(write(loaded.resolved()))
    for each in (loaded, load(record)):
        tools = each.config.agents["player_0"].tools
        assert [tool.named[0] for tool in tools] == ["python", "search"]


def test_a_folder_is_looked_up_beside_the_config_and_played(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("one two")
    loaded = load(config(tmp_path, "[python, {search: {folder: texts}}]"))
    scenario = scenario_of(loaded.config, base=loaded.base)
    game = Game(scenario)
    assert [tool.name for tool in game.pending["player_0"].tools] == ["python", "search"]
    assert game.pending["player_1"].tools == ()
    assert "tools" not in load(config(tmp_path, "[]")).identity()["agents"]["player_0"]


def test_a_scenario_without_a_goal_has_none_with_tools_either() -> None:
    for name in ("dilemma", "guess_number"):
        bare = make(name)
        equipped = WithTools(bare, {bare.agents[0]: [Parrot()]})
        for hook in ("success", "measures", "labels"):
            judged = getattr(Judge.of(WithTools(equipped, {})), hook)
            assert (judged is None) == (getattr(Judge.of(bare), hook) is None)


def test_a_policy_that_calls_a_tool_is_played_and_forked(tmp_path: Path) -> None:
    loaded = load(config(tmp_path, "[{python: {reward: -0.5}}]"))
    scenario = scenario_of(loaded.config, base=loaded.base)

    class Caller:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        async def act(self, asked: Any) -> Action | str:
            used = any(message.call_id for message in asked.new)
            return (asked.legal or ("",))[0] if used or not asked.tools else python("6 * 7")

    plan = Plan(scenario, {name: Seat("random_legal") for name in scenario.agents}, seed=3)
    episode = asyncio.run(play(plan, behaviours={"player_0": Caller}))
    assert episode.end.scored
    texts = [m.text for turn in episode.turns for m in turn.observed if turn.agent == "player_0"]
    assert "42\n" in texts
    assert not any(
        "42" in m.text for t in episode.turns for m in t.observed if t.agent == "player_1"
    )
    assert sum(entry.value for entry in episode.ledger if entry.why == "tool: python") == -2.5
    again = replay(scenario, None, 3, episode.turns, episode.calls)
    assert again.over and tuple(again.ledger) == episode.ledger


@pytest.mark.parametrize("equipment", [[Named("theirs")], [Parrot(), Parrot()]])
def test_two_tools_of_one_name_are_refused(equipment: list[Equipment]) -> None:
    with pytest.raises(ScenarioError, match=r"agents\.a\.tools: two tools are called (theirs|par)"):
        Game(WithTools(Both(), {"a": equipment}))


def test_a_tool_without_uses_takes_nothing_from_the_length_of_a_play() -> None:
    scenario = WithTools(Both(), {"a": [Parrot(uses=-1)]})
    assert scenario.ends_within == 1
    assert [tool.name for tool in Game(scenario).pending["a"].tools] == ["theirs"]
