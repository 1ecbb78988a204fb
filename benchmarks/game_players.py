"""How often players of three strengths win our games, and what GEM's rewards pay them: writes the
table of docs/worlds.md.

    python benchmarks/game_players.py [--plays 100]

What `rewards: win` and `rewards: dense` pay is the share of games won, by construction. A player of
random legal moves draws from the legal strings, or from all moves where they are too many to list.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

from gem_ma import Plan, Seat, make, play_many
from gem_ma.registry import builtin
from gem_ma.scores.stats import wilson

PAGE = Path(__file__).resolve().parents[1] / "docs" / "worlds.md"
BEGIN, END = "<!-- players of our games -->", "<!-- end of the players -->"
GAMES = (
    *("guess_number", "mastermind", "minesweeper", "wordle", "hangman", "fifteen_puzzle"),
    *("sudoku", "hanoi", "game2048", "sokoban", "crosswords", "word_search"),
)
NUMBERS = ("number_guesser", "number_guesser_without_repeats", "number_halver")


def players(game: str, level: str) -> tuple[str, str, str]:
    """The random, the simple and the strong player of a game."""
    if game == "guess_number":
        return NUMBERS
    lists = game != "mastermind" or level == "easy"
    return "random_legal" if lists else f"{game}_random", f"{game}_simple", f"{game}_strong"


def score(game: str, level: str, player: str, plays: int) -> tuple[int, float]:
    """(plays won, the mean of what GEM pays)."""
    scenario = make(game, level=level, rewards="gem")

    async def collect() -> tuple[int, float]:
        won, paid = 0, 0.0
        plans = [Plan(scenario, {"player": Seat(player)}, seed=seed) for seed in range(plays)]
        async for episode in play_many(plans):
            won += bool(scenario.success(episode))
            paid += sum(entry.value for entry in episode.ledger)
        return won, paid / plays

    return asyncio.run(collect())


def rows(plays: int) -> Iterator[str]:
    """A line of the table for each game and level."""
    for game in GAMES:
        for level in ("easy", "hard"):
            cells = [f"| `{game}` {level} "]
            for player in players(game, level):
                won, paid = score(game, level, player, plays)
                low, high = wilson(won, plays)
                cells.append(f"| {won / plays:.2f} [{low:.2f}, {high:.2f}] | {paid:.2f} ")
            yield "".join(cells) + "|"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plays", type=int, default=100)
    plays = parser.parse_args().plays
    known = builtin("scenarios")
    assert all(game in known for game in GAMES)
    head = (
        "| game | random wins | GEM pays | simple wins | GEM pays | strong wins | GEM pays |\n"
        "| --- | --- | ---: | --- | ---: | --- | ---: |\n"
    )
    lines = list(rows(plays))
    table = f"{BEGIN}\n{plays} plays each.\n\n{head}" + "\n".join(lines) + f"\n{END}"
    text = PAGE.read_text(encoding="utf-8")
    block = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    PAGE.write_text(block.sub(lambda _: table, text), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
