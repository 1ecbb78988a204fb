"""The games for one agent: moves in every form, what is paid, boards that can be won, and players
that win them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from gem_ma.agents.games.fifteen_puzzle import solution
from gem_ma.agents.games.sudoku import holes
from gem_ma.scenarios.games import fifteen_puzzle, sokoban, sudoku
from gem_ma.scenarios.games.solo import FOUL, LONGEST_KNOWN, UNREADABLE, Form

from gem_ma import Action, Episode, Game, Plan, Seat, config, make
from gem_ma.kernel.errors import ConfigError
from gem_ma.registry import builtin
from gem_ma.training.train import run_training
from tests.plays import played_all

CONFIGS = Path(__file__).parents[2] / "configs"
GAMES = sorted(
    name for name, target in builtin("scenarios").items() if ".scenarios.games." in target
)
LEVELS = ("easy", "hard", "random")


def played(name: str, behaviour: str, count: int, **options: Any) -> list[Episode]:
    scenario = make(name, **options)

    seat = {"player": Seat(behaviour)}

    episodes = played_all([Plan(scenario, seat, seed=s) for s in range(count)])
    assert not [episode.error for episode in episodes if episode.error]
    return episodes


def paid(episode: Episode) -> float:
    return sum(entry.value for entry in episode.ledger)


def after(name: str, *texts: str, seed: int = 0, **options: Any) -> Game:
    """A play after these answers."""
    game = Game(make(name, **options), None, seed)
    for text in texts:
        game.send({"player": text})
    return game


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", GAMES)
def test_it_plays_to_its_end_the_same_twice_and_forks_exactly(name, level):
    game = Game(make(name, level=level, rewards="dense"), None, 3)
    rng = random.Random(3)
    while game.pending:
        game.send({"player": rng.choice(game.pending["player"].legal or ("1 2 3 4", "what?"))})
    fork = game.fork(game.step // 2)
    while fork.pending:
        fork.send({"player": game.turns[fork.step].action})
    assert game.step <= game.scenario.ends_within
    assert (fork.turns, fork.ledger) == (game.turns, game.ledger)
    assert fork.view("player") == game.view("player")


@pytest.mark.parametrize("name", GAMES)
def test_success_is_winning_and_only_gem_pays_a_loser(name):
    strong = f"{name}_strong"
    for behaviour in ("random_legal", strong):
        for rewards in ("win", "dense"):
            for episode in played(name, behaviour, 3, rewards=rewards):
                won = make(name).success(episode)
                assert paid(episode) == pytest.approx(float(won)), (behaviour, rewards)
    scenario = make(name, rewards="gem")
    for behaviour in ("random_legal", strong):
        for episode in played(name, behaviour, 3, rewards="gem"):
            total, won = paid(episode), scenario.success(episode)
            assert total == pytest.approx(1.0) if won else -1e-9 <= total <= 1.0


STRONG = {"minesweeper": 0.4, "hangman": 0.6, "fifteen_puzzle": 0.6, "game2048": 0.9}


@pytest.mark.parametrize("name", GAMES)
def test_players_of_three_strengths(name):
    wins = {}
    for behaviour in ("random_legal", f"{name}_simple", f"{name}_strong"):
        episodes = played(name, behaviour, 12)
        wins[behaviour] = sum(bool(make(name).success(e)) for e in episodes) / len(episodes)
    rate, simple, strong = wins.values()
    assert rate <= simple <= strong and strong > rate
    assert strong >= STRONG.get(name, 1.0)


@pytest.mark.parametrize("name", [name for name in GAMES if name != "game2048"])
def test_hard_boards_are_won_too(name):
    episodes = played(name, f"{name}_strong", 3, level="hard")
    assert sum(bool(make(name).success(e)) for e in episodes) >= 1


# -- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, text, answer",
    [
        ("hanoi", r"\boxed{A C}", "Disk 1 is on tower C"),
        ("hanoi", r"\boxed{a,c}", "Disk 1 is on tower C"),
        ("hanoi", "a  B", "Disk 1 is on tower B"),
        ("hanoi", r"\boxed{A B} or rather \boxed{A C}", "Disk 1 is on tower C"),
        ("hanoi", r"\boxed{A C} \boxed{done}", "Disk 1 is on tower C"),
        ("hanoi", "First A B is\nbetter: A C", "Disk 1 is on tower C"),
        # what stands in the box counts, also where it cannot be done and another move is named
        ("hanoi", r"not A C but \boxed{B C}", "Tower B is empty"),
        ("hanoi", "A C or A B", UNREADABLE),
        ("hanoi", r"\boxed{up}", UNREADABLE),
        ("mastermind", r"\boxed{1  7}", "1 7 has a digit beyond 1 to 6"),
        ("mastermind", r"\boxed{1 2 3}", "1 2 3 has 3 digits"),
        ("minesweeper", r"\boxed{Reveal 0 0}", "0 0 is open"),
        ("minesweeper", r"\boxed{dig 0 0}", "dig is no move"),
        ("minesweeper", r"\boxed{reveal 9 9}", "9 9 is no square"),
        ("minesweeper", "flag 1 1", "1 1 is flagged"),
        ("sudoku", r"\boxed{5 1 1}", "5 1 1 is beyond 1 to 4"),
        ("crosswords", r"\boxed{99 0 E}", "99 0 is no square"),
        ("word_search", r"\boxed{0 0 1 1}", "runs neither across nor down"),
        ("word_search", r"\boxed{0 0 0 99}", "is beyond 0 to"),
        ("wordle", r"\boxed{abcd}", "abcd has 4 letters"),
        ("hangman", r"\boxed{Q}", "q is not in the word"),
        ("game2048", "hello", UNREADABLE),
        ("guess_number", r"\boxed{99}", "That is no number of mine"),
        ("guess_number", "0", "That is no number of mine"),
    ],
)
def test_moves_are_read_in_every_form(name, text, answer):
    game = after(name, text)
    assert answer in game.view("player")[2].text


@pytest.mark.parametrize("seed", range(6))
def test_of_a_long_answer_the_end_is_read_as_the_whole(seed):
    rng = random.Random(seed)
    form = Form(r"(\d+)\s+(\d+)", boxed=r"([a-z]+|\d+)\s+(\d+)")
    pieces = [
        "\\boxed{1 2}",
        "\\boxed{ 3 4 }",
        "\\boxed{",
        "5 6",
        "}",
        "\\boxed{no}",
        "\\BOXED{7 8}",
    ]
    pieces += ["\n", " so ", ". ", "then " * 9, "\\boxed{a 9}", "0" * 70, "[1 2]"]
    read = set()
    for _ in range(200):
        text = "".join(rng.choices(pieces, k=rng.randint(1, 9)))
        for parsed in (None, "5 6", text):
            parts = form.read(Action(text, (), parsed))
            assert parts == form._read(text, parsed), text
            read.add(parts is not None and len(text) > LONGEST_KNOWN)
    assert read == {True, False}


def test_a_form_reads_in_time_that_grows_with_the_text():
    form = Form(r"(\d+(?:\s+\d+)*)")
    for text in ("\\boxed{" * 20_000, "\\boxed{" + "1 " * 50_000, "1 " * 50_000 + "x 1"):
        form.read(Action(text))  # quadratic reading would take minutes


@pytest.mark.parametrize("name", [*GAMES, "guess_number"])
def test_an_answer_without_a_move_takes_its_turn_or_ends_the_play(name):
    going = after(name, "???")
    ended = after(name, "???", foul="end")
    gem = after(name, "???", rewards="gem")
    assert going.pending and not ended.pending and not gem.pending
    assert [entry.value for entry in gem.ledger] == [FOUL]
    assert after(name, "???", rewards="gem", foul="turn").pending


# -- what GEM pays, by hand; beside GEM itself in tests/worlds/test_gem_games.py ------------------


def test_gem_pays_progress_once():
    game = Game(make("mastermind", length=2, digits=3, rewards="gem"), None, 0)
    secret = next(iter({"1 2", "1 3", "2 1", "2 3", "3 1", "3 2"} - misses(game)))
    first, second = secret.split()
    other = next(digit for digit in "123" if digit not in (first, second))
    for text in (f"{first} {other}", f"{other} {second}", secret):
        game.send({"player": text})
    # the second guess has one black as the first had
    assert [(entry.step, entry.value) for entry in game.ledger] == [(0, 0.5), (2, 0.5)]


def misses(game: Game) -> set[str]:
    """The codes that do not win at once."""
    wrong = set()
    for code in game.pending["player"].legal:
        fork = game.fork()
        fork.send({"player": code})
        wrong |= {code} if fork.pending else set()
    return wrong


def test_gem_pays_who_is_near_at_the_last_turn():
    game = after("hanoi", "A C", rewards="gem", turns=1)
    assert [(e.value, e.why) for e in game.ledger] == [(pytest.approx(1 / 3), "turns")]
    assert not make("hanoi").success(played("hanoi", "random_legal", 1, turns=1)[0])


# -- boards ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale, count", [(4, 12), (9, 50)])
def test_a_sudoku_has_one_solution(scale, count):
    for seed in range(12):
        digits, full = sudoku.drawn(scale, count, random.Random(seed))
        assert digits.count(0) == count
        board = [digits[row : row + scale] for row in range(0, scale * scale, scale)]
        assert solutions(board) == 1
        assert all(
            sorted(full[r * scale : (r + 1) * scale]) == [*range(1, scale + 1)]
            for r in range(scale)
        )


def solutions(board: list[list[int]]) -> int:
    """How many solutions a board has; 2 stands for more."""
    hole = min(holes(board), key=lambda hole: len(hole[2]), default=None)
    if hole is None:
        return 1
    row, column, digits = hole
    count = 0
    for digit in digits:
        board[row][column] = digit
        count += solutions(board) if count < 2 else 0
    board[row][column] = 0
    return count


def test_a_small_puzzle_is_solved_within_its_turns_and_is_not_always_the_same():
    boards = {fifteen_puzzle.scrambled(2, 10, random.Random(seed)) for seed in range(60)}
    assert len(boards) >= 8
    assert all(0 < len(solution(2, tiles)) <= 10 for tiles in boards)


@pytest.mark.parametrize("size", [sokoban.Size(6, 2, 20), sokoban.Size(8, 5, 50)])
def test_a_room_is_left_with_boxes_to_push(size):
    for seed in range(40):
        room = sokoban.room(size, random.Random(seed))
        assert len(room.boxes) == len(room.goals) == size.boxes and room.boxes != room.goals
        assert room.player in room.floor - room.boxes and room.boxes <= room.floor


def test_the_first_reveal_of_a_field_is_never_mined():
    for seed in range(20):
        for square in ("0 0", "2 2", "4 1"):
            game = after("minesweeper", f"reveal {square}", seed=seed)
            assert f"{square} is open" in game.view("player")[2].text


def test_a_move_that_does_nothing_is_not_offered():
    game = after("fifteen_puzzle")
    while game.pending:
        before = game.view("player")[-1].text.split("\n")[-2:]
        move = game.pending["player"].legal[-1]
        game.send({"player": move})
        assert before != game.view("player")[-1].text.split("\n")[-2:]


# -- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, options, problem",
    [
        ("mastermind", {"level": "huge"}, "level is easy, hard, random"),
        ("mastermind", {"rewards": "big"}, "rewards is win, dense, gem"),
        ("mastermind", {"foul": "stop"}, "foul is end, turn"),
        ("mastermind", {"turns": 0}, "at least 1 turn"),
        ("mastermind", {"turns": "ten"}, "turns is a whole number"),
        ("mastermind", {"length": 7}, "7 different digits"),
        ("mastermind", {"repeats": 1}, "repeats cannot be 1"),
        ("minesweeper", {"mines": 17}, "1 to 16 mines"),
        ("hanoi", {"disks": 0}, "1 to 20 disks"),
        ("game2048", {"target": 100}, "power of two"),
        ("sudoku", {"scale": 5}, "scale is 4 or 9"),
        ("sudoku", {"holes": 13}, "1 to 12 holes"),
        ("sokoban", {"boxes": 9}, "1 to 3 boxes"),
        ("wordle", {"length": 12}, "no word of 12 letters"),
        ("wordle", {"words": "missing.txt"}, "cannot read missing.txt"),
        ("guess_number", {"level": "huge"}, "level is easy, hard, random"),
        ("guess_number", {"rewards": "win"}, "rewards is gem"),
    ],
)
def test_options_that_make_no_game_are_refused_in_one_line(name, options, problem):
    with pytest.raises(ConfigError, match=problem) as refused:
        make(name, **options)
    assert "\n" not in str(refused.value)


def test_a_users_words_are_played(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("Hund: it barks\nKatze Maus Igel\nTaube: it coos\n", encoding="utf-8")
    words = str(file)
    assert after("wordle", length=4, words=words).pending["player"].legal == (
        "hund",
        "igel",
        "maus",
    )
    rules = after("crosswords", words=words, number=2).view("player")[0].text
    assert "it coos" in rules or "it barks" in rules or "its letters are" in rules
    assert make("word_search", words=words, number=3)
    with pytest.raises(ConfigError, match="has 5 words; 9 are wanted"):
        make("word_search", words=words, number=9)


def test_levels_of_guess_number_are_gems():
    hard = make("guess_number", level="hard")
    assert (hard.numbers, hard.turns) == (50, 7)
    texts = {
        after("guess_number", level="random", seed=seed).view("player")[0].text for seed in range(9)
    }
    assert len(texts) > 5
    assert len(played("guess_number", "number_halver", 20, level="random", rewards="gem")) == 20


def test_many_words_get_room():
    for seed in range(5):
        rules = after("word_search", number=20, names=True, seed=seed).view("player")[0].text
        assert len(rules.split("find ")[1].split(", of")[0].split(", ")) == 20


@pytest.mark.longest
def test_a_table_learns_the_shortest_way():
    """Half of `configs/hanoi_table.yaml`; random moves get there in one play of ten."""
    short = ["train.steps=15", "evaluate.episodes=128", "run.baselines=false"]
    summary = run_training(config.load(CONFIGS / "hanoi_table.yaml", short).config)
    before, after_ = (summary[when]["sampled"]["success"] for when in ("before", "after"))
    assert before < 0.25 and after_ > 0.8
