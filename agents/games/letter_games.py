"""Players of `crosswords` and `word_search`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from gem_ma.agents.games.player import GamePlayer, Texts, grid, matches
from gem_ma.agents.games.word_games import FREQUENT
from gem_ma.scenarios.games.words import all_words, clued

CLUE = re.compile(
    r"^(\d+) letters (across|down) from (\d+) (\d+): (.*)\.$",
    re.MULTILINE,
)
WRONG = re.compile(r"([a-z]) is wrong at (\d+) (\d+)")
# from the beginning of a line: else each "find" of a long line would read the rest of it anew
NAMED = re.compile(
    r"^Word search: find (.*), of (\d++(?:, \d++)*+) letters",
    re.MULTILINE,
)
TRIED = re.compile(r"(?<!\d)(\d++ \d++) to (\d++ \d++) ")


class CrosswordsSimple(GamePlayer):
    """Tries the most frequent letters, square by square."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        wrong = {match.groups() for match in matches(WRONG, texts)}
        for row, line in enumerate(grid(texts[-1], "[a-z_.]")):
            for column, sign in enumerate(line):
                if sign != "_":
                    continue
                place = str(row), str(column)
                for letter in FREQUENT:
                    if (letter, *place) not in wrong:
                        return f"{row} {column} {letter}"
        return self.any_of(legal)


class CrosswordsStrong(CrosswordsSimple):
    """Knows our clues, and fills in the words that they stand for."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        board = grid(texts[-1], "[a-z_.]")
        for row, column, letter in letters_known(texts[0]):
            # a clue of another list may share its words with ours and mean something else
            line = board[row] if row < len(board) else []
            if line[column : column + 1] == ["_"]:
                return f"{row} {column} {letter}"
        return super().choose(texts, legal)


def letters_known(rules: str) -> Iterator[tuple[int, int, str]]:
    """(row, column, letter) of the words whose clues are ours."""
    for length, direction, row, column, clue in CLUE.findall(rules):
        word = answers().get(clue, "")
        for step, letter in enumerate(word):
            if len(word) != int(length):
                break
            down = direction == "down"
            yield int(row) + step * down, int(column) + step * (not down), letter


@lru_cache(maxsize=1)
def answers() -> dict[str, str]:
    """Clue -> word of our own list."""
    return {clue: word for word, clue in clued("").items()}


class WordSearchSimple(GamePlayer):
    """Sees the words that run across, and draws any run when there is none."""

    downwards = False

    def choose(self, texts: Texts, legal: Texts) -> str:
        # letters of words that were found are large
        board = grid(texts[-1].lower(), "[a-z]")
        tried = {f"{match[1]} {match[2]}" for match in matches(TRIED, texts)}
        names, lengths = wanted_in(texts[0])
        for move, letters in runs(board, lengths, self.downwards):
            if letters in names and move not in tried:
                return move
        return self.any_of(legal)


class WordSearchStrong(WordSearchSimple):
    """Sees the words that run down, too."""

    downwards = True


def wanted_in(rules: str) -> tuple[frozenset[str], tuple[int, ...]]:
    """(words to look for, their lengths): those that the rules name, else all that we know."""
    match = NAMED.search(rules)
    if match is None:
        return frozenset(), ()
    lengths = tuple(map(int, match[2].split(", ")))
    if match[1].endswith(" words"):
        return frozenset(all_words("")), lengths
    return frozenset(match[1].split(", ")), lengths


Lines = Sequence[Sequence[str]]


def runs(board: Lines, lengths: Sequence[int], downwards: bool) -> Iterator[tuple[str, str]]:
    """(move, its letters) of every run of these lengths."""
    # the longest first: a short word may stand inside of a long one
    for length in sorted(lengths, reverse=True):
        for number, start, letters in slices(board, length):
            last = start + length - 1
            yield f"{number} {start} {number} {last}", letters
        columns = list(zip(*board, strict=True)) if downwards else []
        for number, start, letters in slices(columns, length):
            last = start + length - 1
            yield f"{start} {number} {last} {number}", letters


def slices(lines: Lines, length: int) -> Iterator[tuple[int, int, str]]:
    """(line, start, letters) of every part of this length."""
    for number, line in enumerate(lines):
        for start in range(len(line) - length + 1):
            yield number, start, "".join(line[start : start + length])
