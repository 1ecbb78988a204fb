"""The adapter of TextWorld, on a small module of ours in its place: a corridor with a coin at its
end, which takes a copy by itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gem_ma import Game, make
from gem_ma.kernel.episode import Limits
from gem_ma.kernel.errors import ConfigError
from gem_ma.testing import check_scenario
from gem_ma.worlds import line
from gem_ma.worlds.foreign import FOUL

INIT = """
from types import SimpleNamespace as EnvInfos
from textworld import challenges, generator
class GameOptions:
    seeds = path = None
class State(dict):
    __getattr__ = dict.__getitem__
class Env:
    def __init__(self, length, place=0): self.length, self.place = length, place
    def copy(self): return Env(self.length, self.place)
    def reset(self): return self.state("BANNER")
    def state(self, text):
        won = self.place == self.length
        commands = ["look", "take coin"] if won else ["go on", "look"]
        return State(feedback=text, objective="Find the coin.", description=f"Room {self.place}.",
                     score=0, won=False, lost=False, admissible_commands=commands)
    def step(self, command):
        assert command in self.state("").admissible_commands
        self.place += command == "go on"
        state = self.state(f"You {command}. Room {self.place}.\\n\\n>   -= Room =-0/1")
        taken = command == "take coin"
        state.update(score=int(taken), won=taken)
        return state, state.score, taken
def start(path, infos): return Env(int(open(path).read()))
"""
CHALLENGES = """
def arguments(parser):
    parser.add_argument("--level", required=True, type=int)
    parser.add_argument("--goal", choices=("brief", "none"), default="none")
def make(settings, options): return settings["level"] + options.seeds % 3
CHALLENGES = {"tw-corridor": ("a corridor", make, arguments)}
"""
GENERATOR = """
def compile_game(game, options):
    open(options.path, "x").write(str(game))
    return options.path
"""


@pytest.fixture(autouse=True)
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "textworld"
    folder.mkdir()
    texts = {"__init__": INIT, "challenges": CHALLENGES, "generator": GENERATOR}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    line.forget()
    yield
    from gem_ma.worlds import textworld as adapter

    adapter._made.cache_clear()
    adapter._folder.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "textworld"]:
        del sys.modules[name]


def walked(game: Game) -> Game:
    while game.pending:
        game.send({"player": game.pending["player"].legal[-1 if game.step > 9 else 0]})
        if "take coin" in (game.pending["player"].legal if game.pending else ()):
            game.send({"player": "take coin"})
    return game


def test_a_game_is_played_by_the_commands_that_it_admits_and_forks_exactly() -> None:
    scenario = make("textworld:tw-corridor", level=2, turns=20)
    assert scenario.limits == Limits(max_steps=20) and not scenario.chance
    game = walked(Game(scenario, "train:1", 0))
    assert game.view("player")[0].text == "Find the coin.\n\nRoom 0."
    assert game.view("player")[2].text == "You go on. Room 1."  # without the prompt
    assert [(entry.value, entry.why) for entry in game.ledger] == [(1.0, "win")]
    for _ in range(2):
        assert walked(game.fork(1)).turns == game.turns
        line.forget()


def test_a_split_has_games_of_its_own_and_the_same_ones_again() -> None:
    scenario = make("textworld:tw-corridor", games=3)
    lengths = {
        split: [walked(Game(scenario, task, 0)).step for task in scenario.tasks(split)]
        for split in ("train", "test")
    }
    assert len(set(lengths["train"])) == 3
    assert [walked(Game(scenario, "train:2", 9)).step] == lengths["train"][2:]


def test_a_command_that_is_not_admitted_has_its_price() -> None:
    game = Game(make("textworld:tw-corridor", foul=-0.1), "train:0", 0)
    game.send({"player": "fly"})
    assert [(entry.value, entry.why) for entry in game.ledger] == [(-0.1, FOUL)]
    assert not game.over


def test_a_file_is_one_game(tmp_path: Path) -> None:
    file = tmp_path / "game.z8"
    file.write_text("1")
    scenario = make(f"textworld:{file}")
    assert walked(Game(scenario, *scenario.tasks("train"), 0)).step == 2
    with pytest.raises(ConfigError, match="no option 'level'"):
        make(f"textworld:{file}", level=2)


@pytest.mark.parametrize(
    ("name", "options", "fault"),
    [
        ("tw-coridor", {}, "did you mean tw-corridor"),
        ("nowhere.z8", {}, "no challenge or file is called 'nowhere.z8'"),
        ("tw-corridor", {"levl": 1}, "no option 'levl'; it has .*level"),
        ("tw-corridor", {"goal": "long"}, "goal: one of"),
    ],
)
def test_what_it_does_not_have_is_one_line(name: str, options: dict, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as refused:
        make(f"textworld:{name}", **options)
    assert "\n" not in str(refused.value)


@pytest.mark.longest
def test_it_keeps_the_rules_of_the_kit() -> None:
    check_scenario(make("textworld:tw-corridor", level=1), seeds=range(3), skip=(9, 12, 13))
