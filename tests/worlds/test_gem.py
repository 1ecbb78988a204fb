"""GEM's games (`make test-worlds`)."""

from __future__ import annotations

import pytest

from gem_ma import registry
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Game
from tests.worlds.playing import WORKS, installed, keeps_the_rules, plays_and_forks

pytestmark = pytest.mark.worlds
SLOW = ("Sokoban-v0-hard", "Sokoban-v0-random")  # a start alone takes them up to ten CPU seconds
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
    "Hangman": ("e", "a", "bread"),
    "Wordle": ("cat", "house", "e"),
}


def games() -> list[str]:
    if not installed("gem"):
        return []
    from gem.envs.registration import ENV_REGISTRY

    return sorted(f"gem:{name}" for name in ENV_REGISTRY if name.startswith("game:"))


GAMES = games()


@pytest.mark.parametrize("name", GAMES)
def test_random_play_forks_exactly(name, capsys):
    texts = next((texts for key, texts in ANSWERS.items() if key in name), ("1", "5", "7"))
    plays_and_forks(name, longest=15, texts=[f"\\boxed{{{text}}}" for text in texts])
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(not GAMES, reason="needs the gem extra")
def test_as_many_games_as_before_play():
    assert len(WORKS) >= 35, sorted(WORKS)  # of 37; two cannot be started in any way


@pytest.mark.parametrize("name", [name for name in GAMES if not name.endswith(SLOW)])
def test_it_keeps_the_rules_of_the_kit(name):
    keeps_the_rules(name, turns=6)


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
