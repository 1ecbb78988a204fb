"""What all adapters share: foreign code leaves no trace, plays are the same again, a fork does not
step again."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gem_ma.cli.terminal import progress_line
from gem_ma.kernel.effects import Reward
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Game
from gem_ma.testing import check_scenario
from gem_ma.worlds import line, openspiel, option_values
from gem_ma.worlds.foreign import FOUL, MISREAD, Foreign
from gem_ma.worlds.guest import library, quiet
from gem_ma.worlds.line import Stop
from gem_ma.worlds.reasoning_gym import ReasoningGym


class Dice(Foreign):
    """A library that draws from the global random states, prints, and counts its steps."""

    agents = ("ann",)
    seeded = True
    ends_within = 6
    steps = 0

    def __init__(self, copies: bool = True) -> None:
        self.copies, self.key = copies, f"dice {copies}"

    def opened(self, seed):
        print("opened")
        return [seed % 100]

    def copied(self, state):
        if not self.copies:
            raise TypeError("cannot be copied")
        return list(state)

    def stepped(self, state, move, seed):
        print("stepped")
        Dice.steps += 1
        state.append(random.randrange(100) + 100 * int(np.random.randint(100)) + move["ann"])
        return state

    def stop(self, state):
        before = (Reward({"ann": float(state[-1])}),) if len(state) > 1 else ()
        if len(state) > 5:
            return Stop(before)
        return Stop(before, {"ann": f"so far {state}"}, {"ann": {"low": 0, "high": 50}})


class Board(Foreign):
    """Two players, no chance; the first three moves are all there is."""

    agents = ("ann", "bob")
    zero_sum, chance, borrows, ends_within, worst, key = True, False, False, 3, -2.0, "board"

    def __init__(self, moves: int = 2, listed: int = 512) -> None:
        self.moves, self.listed, self.key = moves, listed, f"board {moves}"

    def opened(self, seed):
        return []

    def stepped(self, state, move, seed):
        return [*state, *move.values()]

    def stop(self, state):
        before = (Reward({"ann": 1.0, "bob": -1.0}),) if len(state) == 1 else ()
        if len(state) == 3:
            return Stop(before)
        mover = self.agents[len(state) % 2]
        choices = {f"square {number}": number for number in range(self.moves)}
        return Stop(before, {mover: f"moves {state}"}, {mover: choices})


@pytest.fixture(autouse=True)
def nothing_remembered():
    line.forget()
    line.COSTS.clear()


def played(scenario, seed=1):
    game = Game(scenario, None, seed)
    while game.pending:
        game.send({agent: asked.legal[0] for agent, asked in game.pending.items()})
    return game


def test_two_games_in_turn_disturb_neither_each_other_nor_the_caller(capsys):
    alone = [played(Dice(), seed).ledger for seed in (1, 2)]
    line.forget()
    random.seed(5)
    np.random.seed(5)
    expected = random.random(), np.random.random()
    random.seed(5)
    np.random.seed(5)
    first, second = Game(Dice(), None, 1), Game(Dice(), None, 2)
    while first.pending:
        first.send({"ann": "low"})
        second.send({"ann": "low"})
    assert [first.ledger, second.ledger] == alone
    assert (random.random(), np.random.random()) == expected
    assert capsys.readouterr().out == ""


@pytest.fixture
def restless() -> Iterator[ThreadPoolExecutor]:
    """Threads that change after nearly every step of the interpreter."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(6) as threads:
        yield threads
    sys.setswitchinterval(before)


def test_plays_in_threads_are_those_of_each_alone(restless, capsys):
    alone = [played(Dice(), seed).ledger for seed in range(24)]
    line.forget()
    stdout, state = sys.stdout, random.getstate()
    together = restless.map(lambda seed: played(Dice(), seed).ledger, range(24))
    assert list(together) == alone
    assert sys.stdout is stdout and random.getstate() == state
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("copies", [True, False])
def test_what_was_played_before_is_not_stepped_again(copies, monkeypatch):
    monkeypatch.setattr(line, "perf_counter", lambda: 0.0)  # a copy costs nothing
    game, steps = played(Dice(copies)), Dice.steps
    fork = game.fork(3)
    assert Dice.steps == steps  # the fork stands, and nothing was stepped
    fork.send({"ann": "high"})
    # its one step, and the three before it where there is no copy
    assert Dice.steps - steps == (1 if copies else 4)
    assert fork.turns[:3] == game.turns[:3] and fork.ledger != game.ledger[:4]


def test_a_fork_is_exact_when_nothing_is_remembered():
    game = played(Dice())
    line.forget()
    fork = game.fork(2)
    while fork.pending:
        fork.send({"ann": "low"})
    assert fork.ledger == game.ledger and fork.turns == game.turns


def test_a_reseeded_fork_has_luck_of_its_own():
    game = played(Dice())
    fork = game.fork(2, seed="x")
    while fork.pending:
        fork.send({"ann": "low"})
    assert fork.ledger[:2] == game.ledger[:2] and fork.ledger[2:] != game.ledger[2:]


def test_an_unreadable_answer_is_asked_again_or_forfeits_what_the_game_can_cost():
    game = Game(Dice(), None, 1)
    game.send({"ann": "hm"})
    assert game.new("ann")[0].text == MISREAD and game.step == 1 and not game.over
    game = Game(Board(), None, 1)
    game.send({"ann": "square 0"})
    game.send({"bob": "hm"})
    paid = {agent: sum(e.value for e in game.ledger if e.agent == agent) for agent in Board.agents}
    # in all, with what was paid before
    assert game.over and paid == {"ann": 2.0, "bob": -2.0}


@pytest.mark.parametrize("foul", [0.0, -0.5])
def test_an_unreadable_answer_has_its_price_and_is_asked_again(foul):
    scenario = Dice()
    scenario.foul = foul
    game = Game(scenario, None, 1)
    for answer in ("hm", "middle", "low"):  # none, one that is not legal, and a move
        game.send({"ann": answer})
    fouls = [entry.value for entry in game.ledger if entry.why == FOUL]
    assert fouls == ([foul] * 2 if foul else [])
    assert len(game.ledger) == len(fouls) + 1 and not game.over


def test_a_long_list_of_moves_is_shown_as_a_pattern_and_still_read():
    game = Game(Board(moves=900, listed=512), None, 1)
    assert game.pending["ann"].legal is None
    assert "one of 900 moves" in game.new("ann")[-1].text
    game.send({"ann": r"I take \boxed{Square 899}"})
    assert game.new("bob")[0].text == "moves [899]"
    assert Game(Board(moves=512), None, 1).pending["ann"].legal is not None


@pytest.mark.longest
@pytest.mark.parametrize("scenario", [Dice, Board])
def test_a_foreign_game_keeps_the_rules_of_the_kit(scenario):
    # the suites of views play hundreds of times, and know nothing of adapters
    check_scenario(scenario(), seeds=range(3), skip=(9, 12, 13))


def test_a_missing_library_is_one_line_that_says_what_to_type():
    with pytest.raises(ConfigError) as fault:
        library("no_such_library", "openspiel")
    assert "pip install" in str(fault.value) and "openspiel" in str(fault.value)
    assert "\n" not in str(fault.value)


def test_what_an_extra_does_not_bring_says_its_own_line() -> None:
    with pytest.raises(ConfigError, match=r"no module 'no_such'; type pip install \"zoo\[fun\]\"$"):
        library("no_such.part", "zoo", beside="zoo[fun]")
    with pytest.raises(ConfigError, match=r"no module 'zoos'; type pip install .*\[zoos\]"):
        library("zoos.part", "zoos", beside="zoo[fun]")


def test_what_is_remembered_is_bounded():
    shelf = line.Shelf(3)
    for number in range(9):
        shelf.put(bytes([number]), number)
        shelf.get(bytes([0]))
    assert list(shelf.values.values()) == [7, 8, 0]


def test_a_library_that_came_in_half_says_each_time_what_is_missing(tmp_path, monkeypatch) -> None:
    half = tmp_path / "half_a_library"
    half.mkdir()
    (half / "__init__.py").write_text("from . import table\nimport no_such_dependency")
    (half / "table.py").write_text("GAMES = {}")
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):  # a config makes its world twice
        with pytest.raises(ConfigError, match="there is no module 'no_such_dependency'"):
            library("half_a_library.table", "half_a_library")


def test_a_library_that_ends_its_process_is_asked_in_another_one(monkeypatch) -> None:
    ends = {
        "import os; os.abort()": "ends its process (signal 6)",
        "import os; os._exit(3)": "ends its process (code 3)",  # as a library does that calls exit()
        "raise ValueError": "",
        "import no_such_module": "",
        "1": "",
    }
    assert {code: openspiel._fault(code) for code in ends} == ends
    monkeypatch.setattr(openspiel, "OPENSPIEL", "import os; os.abort()")
    with pytest.raises(
        ConfigError, match=r"^openspiel:x: .* ends its process .signal 6. with y: 1$"
    ):
        openspiel.openspiel_survives("x", {"y": 1})
    openspiel.openspiel_survives("x", {})  # of a plain game nothing is asked


def test_a_library_that_hangs_is_one_line(monkeypatch) -> None:
    monkeypatch.setattr(openspiel, "OPENSPIEL", "while True: pass")
    monkeypatch.setattr(openspiel, "TRIAL_S", 0.1)
    with pytest.raises(
        ConfigError, match=r"^openspiel:x: the library does not come back within 0.1 s with z: 1$"
    ):
        openspiel.openspiel_survives("x", {"z": 1})


def test_a_number_of_tasks_is_bounded() -> None:
    for size in (0, -1, 10**9, True, 1.5, "5"):
        with pytest.raises(ConfigError, match=r"^chess: size wants a whole number, 1 to 1,000,000"):
            option_values.check(ReasoningGym, "chess", {"size": size})


def test_a_signal_has_its_line_while_foreign_code_is_quiet(capsys):
    with quiet(), quiet():
        print("foreign", file=sys.stderr)
        progress_line("stopping")
    assert capsys.readouterr().err == "stopping\n"


def test_a_stop_that_an_extension_took_for_its_own_fault_is_a_stop(tmp_path, monkeypatch):
    # what C++ does with a Ctrl-C in the middle of its import
    lines = "try:\n    raise KeyboardInterrupt\nexcept KeyboardInterrupt as stop:\n"
    (tmp_path / "in_cpp.py").write_text(f"{lines}    raise ImportError('failed') from stop\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        library("in_cpp", "openspiel")
