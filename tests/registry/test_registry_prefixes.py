"""Ids of other libraries' environments: a prefix names the adapter."""

from __future__ import annotations

import sys
import types

import pytest

from gem_ma import registry
from gem_ma import worlds as adapters
from gem_ma.cli.main import main
from gem_ma.kernel.effects import Ask, Scenario
from gem_ma.kernel.errors import ConfigError


class Board(Scenario):
    """An environment of a library."""

    def __init__(self, game: str, size: int = 3) -> None:
        self.game, self.size, self.agents = game, size, ("ann",)

    def play(self, rng, task):
        yield Ask({"ann": f"{self.game} of {self.size}"}, legal=("on",))


@pytest.fixture
def library(monkeypatch):
    module = types.ModuleType("a_library")
    module.Board = Board
    monkeypatch.setitem(sys.modules, "a_library", module)
    monkeypatch.setitem(adapters.CATALOG, "boards", "a_library:Board")


def test_the_rest_of_the_id_and_the_options_go_to_the_adapter(library):
    made = registry.make("boards:go/9", size=9)
    assert (made.game, made.size, made.id) == ("go/9", 9, "boards:go/9")
    with pytest.raises(ConfigError, match=r"did you mean 'size'"):
        registry.make("boards:go", sise=9)


@pytest.mark.parametrize(
    ("name", "code", "known"),
    [
        ("boards:go", False, True),
        ("boards:module:go", True, False),  # a library that imports the module of an id
        ("other:Class", True, False),
        ("game.py", True, False),
        ("kuhn_poker", False, True),
    ],
)
def test_an_environment_of_a_library_is_no_code_of_a_user(library, name, code, known):
    assert registry.names_code(name) is code and registry.known("scenarios", name) is known


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gym:FrozenLake-v1", "gymnasium:FrozenLake-v1"),
        ("open_spiel:kuhn_poker", "openspiel:kuhn_poker"),
        ("ta:TicTacToe-v0", "textarena:TicTacToe-v0"),
        ("rg:leg_counting", "reasoning_gym:leg_counting"),
        ("game:Wordle-v0-easy", "gem:game:Wordle-v0-easy"),
    ],
)
def test_a_short_form_of_a_library_is_told_its_prefix(typed, meant):
    with pytest.raises(ConfigError, match=rf"did you mean '{meant}'\?"):
        registry.load("scenarios", typed)


def test_a_module_that_is_like_no_library_is_no_library():
    with pytest.raises(ConfigError, match=r"there is no module 'no_such_room'$"):
        registry.load("scenarios", "no_such_room:Game")


def test_an_id_without_its_prefix_is_told_that_it_wants_one(capsys):
    assert main(["run", "FrozenLake-v1"]) == 2
    assert "LIBRARY:FrozenLake-v1, with gem, gymnasium, " in capsys.readouterr().err


def test_a_list_of_scenarios_ends_with_the_prefixes(capsys):
    assert main(["list", "scenarios"]) == 0
    told = capsys.readouterr().out.partition("\n\n")[2]
    assert all(prefix in told for prefix in adapters.CATALOG)


def test_a_prefix_alone_asks_which_one(library):
    with pytest.raises(ConfigError, match=r"say which one, as in boards:NAME"):
        registry.make("boards:")


def test_a_config_may_name_it_and_its_options_are_checked(library, tmp_path, capsys):
    out = ["--quiet", "--out", str(tmp_path / "run")]
    assert main(["run", "boards:go", "-n", "1", "scenario.size=9", *out]) == 0
    assert main(["run", "boards:go", "scenario.size=wide"]) == 2
    assert "scenario.size: should be a valid integer" in capsys.readouterr().err
    assert main(["run", "boards:go", "scenario.sise=9"]) == 2
    assert "did you mean 'size'" in capsys.readouterr().err
