"""Words for the word games: a list of common English words of 3 to 7 letters written for this
project, or a user's own file, and short clues to some of them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.system.folders import read_named

HERE = Path(__file__).parent
WORDS = HERE / "words.txt"
CLUES = HERE / "clues.txt"


# a file is read once in a process: a play may not change because somebody edits it meanwhile
@lru_cache(maxsize=16)
def lines_of(path: str) -> tuple[str, ...]:
    """The lines of a text file. Raises ConfigError where it cannot be read."""
    try:
        return tuple(read_named(Path(path)).decode("utf-8").splitlines())
    except (OSError, UnicodeError, StoreError) as error:
        raise ConfigError(f"scenario: words: cannot read {path}: {error}") from error


@lru_cache(maxsize=16)
def clued(path: str) -> dict[str, str]:
    """Word -> clue of the list in a file, or of our own for "". A line is `word: clue`, or holds
    words between blanks; of a word without a clue the letters are given, in alphabetical order."""
    result: dict[str, str] = {}
    for line in lines_of(path or str(CLUES)):
        head, colon, clue = line.partition(":")
        for word in [head] if colon else head.split():
            name = word.strip().lower()
            if name.isascii() and name.isalpha():
                letters = " ".join(sorted(name))
                result.setdefault(name, clue.strip() or f"its letters are {letters}")
    if not result:
        raise ConfigError(f"scenario: words: {path} has no word of the letters a to z")
    return result


@lru_cache(maxsize=16)
def all_words(path: str) -> tuple[str, ...]:
    """The words of a file, or of our own list for "", in order and in small letters."""
    if path:
        return tuple(sorted(clued(path)))
    return tuple(word for line in lines_of(str(WORDS)) for word in line.split())


def enough(words: Iterable[str], lengths: range, number: int, path: str) -> tuple[str, ...]:
    """The words of these lengths, in their order. Raises ConfigError where they are too few."""
    found = tuple(word for word in words if len(word) in lengths)
    if len(found) < number:
        raise ConfigError(f"scenario: words: {path} has {len(found)} words; {number} are wanted")
    return found


@lru_cache(maxsize=64)
def words_of(length: int, path: str = "") -> tuple[str, ...]:
    """The words of this length. Raises ConfigError where there is none."""
    words = tuple(word for word in all_words(path) if len(word) == length)
    if not words:
        holder = path or "our list"
        raise ConfigError(f"scenario: words: {holder} has no word of {length} letters")
    return words
