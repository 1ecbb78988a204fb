r"""What a step of our games costs in the kernel, in microseconds of CPU, beside GEM's own:

    .venv-gem/bin/python benchmarks/games.py [--rounds 7] [--seconds 0.1] [--letters 0] [--write]

Both sides hear the same answers, random moves in `\boxed{}`, resets included; GEM's pay is asked
of ours. `--letters 80`: each box stands behind a sentence of so many letters, which is new at
every step, as models argue before they answer. The rows take turns, so that a busy machine slows all alike: read ratios. Without gem-llm
our rows stand alone. GEM's word games get our words (`gem_ma.worlds.wordlists`), since nltk has
none here; all other games of GEM run without anything of ours.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from string import ascii_lowercase

from gem_ma.kernel.scenario import Game
from gem_ma.registry import make
from gem_ma.worlds.wordlists import words_lent

PAGE = Path(__file__).resolve().parents[1] / "docs" / "worlds.md"
BEGIN, END = "<!-- speed of our games -->", "<!-- end of the speed -->"
Run = Callable[[float], float]  # plays for so many CPU seconds; gives microseconds a step
DIRECTIONS = ("up", "down", "left", "right")
STEPS = 997  # answers, which come again and again
EASY, HARD = {"level": "easy"}, {"level": "hard"}
SQUARES = tuple(f"reveal {row} {column}" for row in range(5) for column in range(5))
DIGITS = tuple(f"{r} {c} {d}" for r in range(1, 5) for c in range(1, 5) for d in range(1, 5))
WORD_GAMES = ("Wordle", "Hangman", "Crosswords", "WordSearch")  # of GEM
PAIRS = ("A B", "A C", "B A", "B C", "C A", "C B")
# our id and options, GEM's id, and the moves that both draw from
ROWS: tuple[tuple[str, dict[str, str], str, tuple[str, ...]], ...] = (
    ("guess_number", EASY, "GuessTheNumber-v0-easy", tuple(map(str, range(1, 11)))),
    ("guess_number", HARD, "GuessTheNumber-v0-hard", tuple(map(str, range(1, 51)))),
    ("mastermind", EASY, "Mastermind-v0-easy", ("1 2", "3 4", "5 6", "2 1", "6 3")),
    ("mastermind", HARD, "Mastermind-v0-hard", ("1 2 3 4", "5 6 7 8", "2 4 6 8", "8 1 2 5")),
    ("hanoi", EASY, "TowerofHanoi-v0-easy", PAIRS),
    ("fifteen_puzzle", EASY, "FifteenPuzzle-v0-easy", DIRECTIONS),
    ("minesweeper", EASY, "Minesweeper-v0-easy", SQUARES),
    ("sudoku", EASY, "Sudoku-v0-easy", DIGITS),
    ("game2048", EASY, "Game2048-v0-easy", DIRECTIONS),
    ("sokoban", EASY, "Sokoban-v0-easy", DIRECTIONS),
    ("wordle", EASY, "Wordle-v0-easy", ("cat", "dog", "sun", "map", "ten")),
    ("hangman", EASY, "Hangman-v0-easy", ("e", "a", "s", "t", "o", "dog")),
    ("crosswords", EASY, "Crosswords-v0-easy", ("0 0 a", "1 1 e", "2 3 t", "4 2 s")),
    ("word_search", EASY, "WordSearch-v0-easy", ("1 1 1 4", "2 1 2 5", "0 3 4 3")),
)


def answers(moves: tuple[str, ...], letters: int) -> list[str]:
    """Random moves as a model says them, behind sentences of so many letters."""
    rng = random.Random(0)
    return [f"{sentence(rng, letters)}\\boxed{{{rng.choice(moves)}}}" for _ in range(STEPS)]


def sentence(rng: random.Random, letters: int) -> str:
    if not letters:
        return ""
    drawn = (rng.choice(ascii_lowercase) + " " * (rng.random() < 0.2) for _ in range(letters))
    return f"{''.join(drawn)[: letters - 2]}. "


def ours(name: str, options: dict[str, str], drawn: list[str]) -> Run:
    scenario = make(name, rewards="gem", **options)
    game, seed, count = Game(scenario, None, 0), 0, 0

    def run(seconds: float) -> float:
        nonlocal game, seed, count
        steps, start = 0, time.process_time()
        while (spent := time.process_time() - start) < seconds:
            for _ in range(16):
                count += 1
                game.send({"player": drawn[count % STEPS]})
                steps += 1
                if not game.pending:
                    seed += 1
                    game = Game(scenario, None, seed)
        return 1e6 * spent / steps

    return run


def theirs(name: str, drawn: list[str]) -> Run:
    import gem

    # once around all steps: to lend words at each reset would cost GEM more than the reset
    words = words_lent if name.startswith(WORD_GAMES) else nullcontext
    with words("gem"):
        env = gem.make(f"game:{name}")
        env.reset(seed=0)
    seed = count = 0

    def run(seconds: float) -> float:
        with words("gem"):
            return steps_of(seconds)

    def steps_of(seconds: float) -> float:
        nonlocal seed, count
        steps, start = 0, time.process_time()
        while (spent := time.process_time() - start) < seconds:
            for _ in range(16):
                count += 1
                _, _, terminated, truncated, _ = env.step(drawn[count % STEPS])
                steps += 1
                if terminated or truncated:
                    seed += 1
                    env.reset(seed=seed)
        return 1e6 * spent / steps

    return run


def start(name: str, options: dict[str, str], plays: int = 200) -> float:
    """Microseconds until the first Ask, the board included."""
    scenario = make(name, **options)
    before = time.process_time()
    for seed in range(plays):
        Game(scenario, None, seed)
    return 1e6 * (time.process_time() - before) / plays


def measured(
    rounds: int, seconds: float, letters: int, beside: bool
) -> dict[tuple[int, str], list[float]]:
    """Microseconds a step of each row and side, a value a round."""
    runs: dict[tuple[int, str], Run] = {}
    for number, (name, options, partner, moves) in enumerate(ROWS):
        drawn = answers(moves, letters)
        runs[number, "ours"] = ours(name, options, drawn)
        if beside:
            runs[number, "GEM"] = theirs(partner, drawn)
    times: dict[tuple[int, str], list[float]] = {key: [] for key in runs}
    for _ in range(rounds):
        for key, run in runs.items():
            times[key].append(run(seconds))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--letters", type=int, default=0, help="in front of each box")
    parser.add_argument("--write", action="store_true", help="into docs/worlds.md")
    chosen = parser.parse_args()
    beside = find_spec("gem") is not None
    times = measured(chosen.rounds, chosen.seconds, chosen.letters, beside)
    lines = [
        "| game | ours | GEM | ours / GEM | first board |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for number, (name, options, _, _) in enumerate(ROWS):
        own = statistics.median(times[number, "ours"])
        label = f"`{name}` {options['level']}"
        theirs_us = times.get((number, "GEM"))
        other = f"{statistics.median(theirs_us):.1f}" if theirs_us else "-"
        ratio = f"{own / statistics.median(theirs_us):.2f}" if theirs_us else "-"
        lines.append(f"| {label} | {own:.1f} | {other} | {ratio} | {start(name, options):.0f} |")
    print("\n".join(lines))
    if chosen.write:
        text = PAGE.read_text(encoding="utf-8")
        table = "\n".join([BEGIN, *lines, END])
        block = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
        PAGE.write_text(block.sub(lambda _: table, text), encoding="utf-8")


if __name__ == "__main__":
    main()
