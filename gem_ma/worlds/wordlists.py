"""Words for guests: some games ask nltk for a list, which nltk itself does not hold and would fetch
from the network at every start.

Here they get lists of this machine, the same everywhere. `en` is Webster's second edition, which
is nltk's own, out of the package english-words; `en-basic` are our common words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

from gem_ma.worlds.guest import library


@cache
def webster(extra: str) -> tuple[str, ...]:
    """Nearly 236,000 words in the order of a dictionary. Raises ConfigError, with the extra that
    brings the package, where it is missing."""
    words = library("english_words", extra).get_english_words_set(["web2"])
    # sorted: a set of strings has another order in every process
    return tuple(sorted(words, key=lambda word: (word.lower(), word)))


@cache
def common(extra: str = "") -> tuple[str, ...]:
    """Our own 1,180 words of 3 to 7 letters, in the order of a dictionary."""
    # read as a file: an adapter knows no scenario
    text = files("gem_ma.scenarios.games").joinpath("words.txt").read_text(encoding="utf-8")
    return tuple(sorted(text.split()))


LISTS: dict[str, Callable[[str], tuple[str, ...]]] = {"en": webster, "en-basic": common}


@contextmanager
def words_lent(extra: str) -> Iterator[None]:
    """While a guest of this extra starts, nltk's words are ours, and nltk fetches nothing. Both
    are put back."""

    def lent(lists: str | Sequence[str] | None = None) -> list[str]:
        names = [lists] if isinstance(lists, str) else lists or LISTS
        return [word for name in names for word in LISTS[name](extra)]

    nltk: Any = library("nltk", extra)
    corpus = nltk.corpus.words
    download = nltk.download
    outer = vars(corpus).get("words")  # a guest may start within another
    # on the object that all who imported it hold; until it is asked, it looks for no file
    corpus.words = lent
    nltk.download = lambda *_, **__: False
    try:
        yield
    finally:
        nltk.download = download
        if outer is None:
            del corpus.words
        else:
            corpus.words = outer
