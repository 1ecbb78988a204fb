"""GEM's games (`make test-worlds`)."""

from __future__ import annotations

import random

import pytest

from gem_ma import registry
from gem_ma.adapters import line
from gem_ma.errors import ConfigError
from gem_ma.scenario import Game
from gem_ma.testing import check_scenario
from tests.worlds.playing import forks_exactly, installed, played

pytestmark = pytest.mark.worlds
CHECKED = ("GuessTheNumber-v0-easy", "Mastermind-v0-hard", "Minesweeper-v0-easy")
ANSWERS = {  # in the form that a game reads
    "Sudoku": ("1 1 1", "2 3 4", "4 4 2", "3 1 2"),
    "Hanoi": ("A B", "A C", "B C", "C A"),
    "Fifteen": ("up", "down", "left", "right"),
    "2048": ("up", "down", "left", "right"),
    "Sokoban": ("up", "down", "left", "right"),
    "WordSearch": ("1 1 1 4", "2 1 2 5"),
    "Crosswords": ("1 1 A", "2 3 E"),
    "Minesweeper": ("reveal 1 1", "flag 2 2", "reveal 3 0"),
    "Mastermind": ("1 2 3 4", "1234", "12"),
}


def games() -> list[str]:
    if not installed("gem"):
        return []
    from gem.envs.registration import ENV_REGISTRY

    return sorted(name for name in ENV_REGISTRY if name.startswith("game:"))


GAMES, WORKS = games(), list[str]()


@pytest.mark.parametrize("name", GAMES)
def test_random_play_forks_exactly(name, capsys):
    before = random.getstate()
    try:
        scenario = registry.make(name.replace("game:", "gem:game:", 1))
    except ConfigError as error:  # a list of words, a server
        assert "\n" not in str(error)
        pytest.skip(str(error)[:200])
    texts = next((texts for key, texts in ANSWERS.items() if key in name), ("1", "5", "7"))
    boxed = [f"\\boxed{{{text}}}" for text in texts]
    forks_exactly(played(scenario, longest=15, texts=boxed))
    line.forget()
    WORKS.append(name)
    assert random.getstate() == before and capsys.readouterr().out == ""


@pytest.mark.skipif(not GAMES, reason="needs the gem extra")
def test_as_many_games_as_before_play():
    # two more, Wordle and Hangman, where nltk's list of words lies on the machine
    assert len(WORKS) >= 26, sorted(WORKS)


@pytest.mark.parametrize("name", CHECKED if GAMES else ())
def test_it_keeps_the_rules_of_the_kit(name):
    check_scenario(registry.make(f"gem:game:{name}", turns=6), seeds=range(3))


@pytest.mark.skipif(not GAMES, reason="needs the gem extra")
def test_what_runs_an_answer_as_code_is_refused():
    for name in ("rg:n_queens", "math:GSM8K", "code:Taco8k"):
        with pytest.raises(ConfigError, match="as code"):
            registry.make(f"gem:{name}")


@pytest.mark.skipif(not GAMES, reason="needs the gem extra")
def test_a_win_is_told_from_what_a_loser_is_paid():
    scenario = registry.make("gem:game:GuessTheNumber-v0-easy")
    wins, paid = 0, 0.0
    for seed in range(20):
        game = Game(scenario, None, seed)
        for number in ("3", "5", "7", "9"):
            if game.pending:
                game.send({"player": f"\\boxed{{{number}}}"})
        wins += any(entry.why == "win" for entry in game.ledger)
        paid += sum(entry.value for entry in game.ledger)
    assert 0 < wins < paid
