"""Tic-tac-toe: rules, the value of every position, and players of known strength."""

from __future__ import annotations

from functools import cache

import pytest
from gem_ma.scenarios.tic_tac_toe import (
    EMPTY,
    TicTacToe,
    best_moves,
    board_text,
    free,
    placed,
    value,
    winner,
)

from gem_ma import Game, Plan, Seat, config, make
from gem_ma.kernel.errors import ConfigError
from gem_ma.training.train import run_training
from tests.plays import played_all


def played(*moves: str) -> Game:
    game = Game(TicTacToe(), seed=0)
    for move in moves:
        (mover,) = game.pending
        game.send({mover: move})
    return game


def returns(game: Game) -> dict[str, float]:
    return {
        agent: sum(entry.value for entry in game.ledger if entry.agent == agent)
        for agent in ("x", "o")
    }


def test_three_in_a_row_wins_and_nobody_is_asked_afterwards():
    game = played("1", "4", "2", "5", "3")
    assert game.over and returns(game) == {"x": 1.0, "o": -1.0}
    game = played("1", "4", "2", "5", "9", "6")
    assert game.over and returns(game) == {"x": -1.0, "o": 1.0}


def test_a_full_board_without_a_row_is_a_draw():
    game = played("1", "2", "3", "5", "4", "6", "8", "7", "9")
    assert game.over and not game.ledger


def test_a_taken_square_or_an_unreadable_answer_loses_at_once():
    for text in ("1", "the middle", ""):
        game = played("1", text)
        assert game.over and returns(game) == {"x": 1.0, "o": -1.0}
        assert {entry.why for entry in game.ledger} == {"foul"}


def test_only_empty_squares_are_legal_and_the_mover_sees_the_board():
    game = played("5", "1")
    assert game.pending["x"].legal == ("2", "3", "4", "6", "7", "8", "9")
    assert game.view("x")[-1].text == "Board: o 2 3 / 4 x 6 / 7 8 9 Your move."
    assert board_text("xo.......") == "x o 3 / 4 5 6 / 7 8 9"


def test_values_of_positions_by_hand():
    assert value(EMPTY) == 0
    assert value(placed(EMPTY, 4, "x")) == 0
    assert value("xo.......") == 1  # x takes a corner, o an edge beside it: a known loss of o
    assert best_moves("xx.oo....") == [2] and best_moves("xx..o....") == [2]
    assert winner("xxxoo....") == "x" and winner("xx.oo....") == ""


@cache
def expected(board: str, perfect: tuple[bool, bool]) -> float:
    """Mean return of x by enumeration: each side plays perfectly, or any legal move."""
    if found := winner(board):
        return 1.0 if found == "x" else -1.0
    squares = free(board)
    if not squares:
        return 0.0
    side = 0 if len(squares) % 2 else 1
    moves = best_moves(board) if perfect[side] else squares
    return sum(expected(placed(board, move, "xo"[side]), perfect) for move in moves) / len(moves)


def mean_return(x: str, o: str, count: int = 400) -> float:
    scenario = make("tic_tac_toe")

    episodes = played_all(
        [Plan(scenario, {"x": Seat(x), "o": Seat(o)}, seed=seed) for seed in range(count)]
    )
    assert all(turn.action.parsed for episode in episodes for turn in episode.turns) and not [
        e.error for e in episodes if e.error
    ]
    return sum(episode.returns()["x"] for episode in episodes) / count


@pytest.mark.longest
def test_players_are_as_strong_as_enumeration_says():
    strength = {False: "random_legal", True: "tic_tac_toe_perfect"}
    exact = {(x, o): expected(EMPTY, (x, o)) for x in strength for o in strength}
    assert exact == {
        (False, False): pytest.approx(0.2968, abs=1e-4),
        (False, True): pytest.approx(-0.7775, abs=1e-4),
    } | {
        (True, False): pytest.approx(0.9678, abs=1e-4),
        (True, True): 0.0,
    }
    assert make("tic_tac_toe").baselines["random legal play (return of x)"] == pytest.approx(
        exact[False, False], abs=1e-4
    )
    for (x, o), mean in exact.items():
        assert mean_return(strength[x], strength[o]) == pytest.approx(
            mean, abs=0.12 if (x, o) == (False, False) else 0.08
        )
    assert mean_return(strength[True], strength[True]) == 0.0


def test_a_noise_that_is_no_probability_is_refused():
    scenario = make("tic_tac_toe")

    seats = {"x": Seat("tic_tac_toe_perfect", options={"noise": 7}), "o": Seat("random_legal")}

    with pytest.raises(ConfigError, match="noise is a probability"):
        played_all([Plan(scenario, seats)])


@pytest.mark.longest
def test_who_plays_by_the_board_alone_learns_it_against_both_anchors():
    """A few updates of the shipped recipe: one table for both sides, scored on each side against
    players that never learn."""
    small = (
        "train.steps=12",
        "train.episodes=32",
        "evaluate.episodes=64",
        "evaluate.every=null",
        "train.pool.every=4",
    )
    summary = run_training(config.load("tic_tac_toe.yaml", small).config)
    for anchor in ("random_legal", "tic_tac_toe_perfect"):
        assert set(summary["after"][f"against {anchor}"]["players"]["main"]) == {"x", "o"}
    # too large to be exact
    assert summary["league"]["members"] > 1 and "nash_conv" not in summary["after"]
    perfect = summary["after"]["against tic_tac_toe_perfect"]["players"]["main"]
    assert max(perfect.values()) <= 0
