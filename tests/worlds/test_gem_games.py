"""Our games beside GEM's own: the same hidden state, the same answers, the same rewards and the same
end (`make test-worlds`).

GEM gets our board before each answer, so that chance makes no difference. Where a game ends a turn
sooner here, the test says why.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gem_ma.scenarios.games.sokoban import Warehouse
from gem_ma.scenarios.games.solo import Board

from gem_ma import Game, make
from gem_ma.registry import load
from gem_ma.worlds.wordlists import words_lent
from tests.worlds.playing import installed

pytestmark = [
    pytest.mark.worlds,
    pytest.mark.skipif(not installed("gem"), reason="needs the gem extra"),
]
SEEDS = 40
DIRECTIONS = ("up", "down", "left", "right", "Left")


def numbers(count: int, low: int, high: int) -> Callable[[random.Random], str]:
    return lambda rng: " ".join(str(rng.randint(low, high)) for _ in range(count))


def word(rng: random.Random) -> str:
    return "".join(rng.choices("aest", k=rng.choice((1, 3, 3, 5))))


# our id -> GEM's, and a move of any kind: good, useless, or beyond the board
GAMES: dict[str, tuple[str, Callable[[random.Random], str]]] = {
    "guess_number": ("GuessTheNumber", numbers(1, 0, 12)),
    "mastermind": ("Mastermind", numbers(2, 0, 7)),
    "minesweeper": (
        "Minesweeper",
        lambda rng: f"{rng.choice(('reveal', 'flag', 'Reveal', 'dig'))} {numbers(2, 0, 5)(rng)}",
    ),
    "wordle": ("Wordle", word),
    "hangman": ("Hangman", word),
    "fifteen_puzzle": ("FifteenPuzzle", lambda rng: rng.choice(DIRECTIONS[:4])),
    "sudoku": ("Sudoku", numbers(3, 0, 5)),
    "hanoi": ("TowerofHanoi", lambda rng: " ".join(rng.choices("ABCc", k=2))),
    "game2048": ("Game2048", lambda rng: rng.choice(DIRECTIONS)),
    "sokoban": ("Sokoban", lambda rng: rng.choice(DIRECTIONS)),
    "crosswords": ("Crosswords", lambda rng: f"{numbers(2, 0, 6)(rng)} {rng.choice('aeirstE')}"),
    "word_search": ("WordSearch", numbers(4, 0, 9)),
}


@pytest.fixture(autouse=True)
def words() -> Iterator[None]:
    """GEM asks nltk for words, which would fetch them; the secret word is ours anyway."""
    with words_lent("gem"):
        yield


def hand_over(board: Any, env: Any) -> None:
    """Gives GEM the state of our board."""
    kind = type(board).__name__
    if kind == "Pegs":
        env.game_code = list(board.code)
    elif kind in ("Letters", "Gallows"):
        env.secret_word = board.word.upper()
    elif kind == "Squares":
        rows = range(0, board.scale**2, board.scale)
        env.full_grid = [board.solution[row : row + board.scale] for row in rows]
        env.board = [board.digits[row : row + board.scale] for row in rows]
        env.init_num_empty = board.holes
    elif kind == "Tray":
        rows = range(0, board.rows**2, board.rows)
        env.board = [[t or None for t in board.tiles[row : row + board.rows]] for row in rows]
    elif kind == "Grid":
        env.board = [list(row) for row in board.tiles]
    elif kind == "Warehouse":
        hand_over_room(board, env)
    elif kind == "Lattice":
        side = max(board.rows, board.columns)  # GEM's grids are square
        places = [(row, column) for row in range(side) for column in range(side)]
        letters = [board.letters.get(place, ".") for place in places]
        signs = ["_" if place in board.open else board.letters.get(place, ".") for place in places]
        env.solution = [letters[row : row + side] for row in range(0, side * side, side)]
        env.board = [signs[row : row + side] for row in range(0, side * side, side)]
        env.total_letter_cells = len(board.letters)
    elif kind == "Puzzle":
        env.game_board = [["x"] * board.side for _ in range(board.side)]
        env.placed_words = {
            laid.word: (laid.row, laid.column, "down" if laid.down else "across")
            for laid in board.laid
        }


def hand_over_room(board: Warehouse, env: Any) -> None:
    import numpy

    squares = numpy.zeros(board.side**2, dtype=int)
    squares[list(board.floor)] = 1
    squares[list(board.goals)] = 2
    env.room_fixed = squares.copy().reshape(board.side, board.side)
    for box in board.boxes:
        squares[box] = 3 if box in board.goals else 4
    squares[board.player] = 5
    env.room_state = squares.reshape(board.side, board.side)
    env.player_position = numpy.array(divmod(board.player, board.side))


def lay_mines(board: Any, env: Any) -> None:
    """Both lay their mines at the first reveal: GEM's go where ours went."""
    if type(board).__name__ == "Field" and board.mines and env.first_reveal:

        def lay(row: int, column: int) -> None:
            for square in board.mines:
                r, c = board.place(square)
                env.grid[r][c] = -1
            env._calculate_adjacent_numbers()

        env._setup_mines = lay


def watched(name: str, level: str, seed: int) -> tuple[Game, list[Board]]:
    """A play under GEM's rewards, and its board."""
    scenario = make(name, level=level, rewards="gem")
    boards: list[Board] = []
    if hasattr(scenario, "board"):
        start = scenario.board

        def board(*args: Any) -> Board:
            boards.append(start(*args))
            return boards[-1]

        scenario.board = board
    return Game(scenario, None, seed), boards


def compare(name: str, level: str, seed: int, answers: Callable[[Game], str]) -> tuple[bool, float]:
    """Plays both to the end; (whether it was won, what was paid)."""
    import gem

    partner = GAMES[name][0]
    game, boards = watched(name, level, seed)
    env = gem.make(f"game:{partner}-v0-{level}")
    env.reset(seed=seed)
    if name == "guess_number":
        size, rng = game.scenario.sizes[0], random.Random(seed)
        env.game_number = rng.randint(size.low, size.high)
    ended, total = False, 0.0
    while game.pending:
        answer = answers(game)
        if boards:
            hand_over(boards[0], env)
        before = len(game.ledger)
        game.send({"player": answer})
        if boards:
            lay_mines(boards[0], env)
        _, reward, ended, _, _ = env.step(answer)
        paid = sum(entry.value for entry in game.ledger[before:])
        assert paid == pytest.approx(float(reward)), (
            name,
            seed,
            answer,
            game.view("player")[-1].text,
        )
        total += paid
        if name != "minesweeper":  # won here when the safe squares are open, flags or not
            assert game.over == ended, (name, seed, answer)
    won = any(entry.why == "win" for entry in game.ledger)
    assert ended or won
    return won, total


@pytest.mark.parametrize("level", ["easy", "hard"])
@pytest.mark.parametrize("name", GAMES)
def test_every_answer_is_paid_as_gem_pays_it(name, level):
    """A mix of good moves, useless ones, those that cannot be made, and now and then no move."""
    if (name, level) == ("sokoban", "hard"):
        pytest.skip("GEM takes a second for each of its rooms")
    move = GAMES[name][1]
    for seed in range(SEEDS if level == "easy" else 8):
        rng = random.Random(seed)

        def answer(game: Game, rng: random.Random = rng) -> str:
            luck, legal = rng.random(), game.pending["player"].legal
            if luck < 0.02:
                return rng.choice(("no idea", "\\boxed{}", "\\boxed{?!}"))
            text = rng.choice(legal) if legal and luck < 0.6 else move(rng)
            return f"first \\boxed{{{rng.choice(legal or ('1 2',))}}}, no: \\boxed{{{text}}}"

        compare(name, level, seed, answer)


@pytest.mark.parametrize("name", [name for name in GAMES if name != "guess_number"])
def test_a_win_is_one_in_both(name):
    """Solvers play both: a game that is won pays 1 in all, one that is not pays less."""
    wins = []
    for seed in range(8):
        bot = load("agents", f"{name}_strong")("player", None, random.Random(seed))

        def answer(game: Game, bot: Any = bot) -> str:
            texts = [entry.text for entry in game.view("player") if entry.sender != "player"]
            return f"\\boxed{{{bot.choose(texts, game.pending['player'].legal or ())}}}"

        won, total = compare(name, "easy", seed, answer)
        assert total == pytest.approx(1.0) if won else total < 1.0
        wins.append(won)
    assert any(wins)
