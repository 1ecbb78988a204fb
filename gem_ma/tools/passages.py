"""The passages of a folder's text files, and which of them fit a query best by their words (BM25).

BM25 as in Robertson and Zaragoza, "The Probabilistic Relevance Framework" (2009), equation 3.15,
with k1 = 1.2, b = 0.75 and the logarithm of Lucene, which is never negative.
"""

from __future__ import annotations

import codecs
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nsmallest
from itertools import pairwise
from math import log
from pathlib import Path
from unicodedata import normalize

from gem_ma.kernel.errors import ConfigError

K1 = 1.2
B = 0.75
SUFFIXES = (".txt", ".md")
PASSAGE = 1_000  # characters after which a paragraph ends a passage, if not told otherwise
PARAGRAPH = 2_000  # characters of one; a longer one is several, so that all of it is shown
MOST_BYTES = 256 << 20  # of a folder; more wants a server
MOST_WORDS = 64  # of a query
# Thai, Lao, Burmese, Khmer, Japanese, Chinese, and Korean, whose words end in particles
_JOINED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_JOINED += "\uf900-\ufaff\U00020000-\U0003ffff"
_RUNS = re.compile(f"([{_JOINED}]+)")


def words(text: str) -> list[str]:
    """The words that are compared: no case, no punctuation, one way to write a letter. Where a
    script puts no space between words, its letters and pairs of letters.

    >>> words("The cat's mat, No. 9")
    ['the', 'cat', 's', 'mat', 'no', '9']
    >>> words("X長江")
    ['x', '長', '江', '長江']
    """
    if text.isascii():
        return re.findall(r"\w+", text.casefold())
    pieces: list[str] = []
    for word in re.findall(r"\w+", normalize("NFKC", text).casefold()):
        for number, part in enumerate(_RUNS.split(word)):
            if number % 2:  # between them stands what the expression found
                pieces += [*part, *map("".join, pairwise(part))]
            elif part:
                pieces.append(part)
    return pieces


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a file, from one blank line to another."""

    file: str
    text: str


class Index:
    """Passages by their words."""

    def __init__(self, passages: list[Passage]) -> None:
        self.passages = passages
        counts = [Counter(words(passage.text)) for passage in passages]
        lengths = [count.total() for count in counts]
        mean = sum(lengths) / max(1, len(lengths)) or 1.0
        # of a passage's part in a score everything but the rarity of the word
        self.weights: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for number, count in enumerate(counts):
            damping = K1 * (1 - B + B * lengths[number] / mean)
            for word, times in count.items():
                self.weights[word].append((number, times / (times + damping)))

    def best(self, query: str, most: int) -> list[Passage]:
        """Up to `most` passages that hold a word of the query, the best first; ties in the order
        of files."""
        scores: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(words(query)[:MOST_WORDS]):
            holders = self.weights.get(word, ())
            rarity = log(1 + (len(self.passages) - len(holders) + 0.5) / (len(holders) + 0.5))
            for number, weight in holders:
                scores[number] += rarity * weight
        order = nsmallest(most, scores, key=lambda number: (-scores[number], number))
        return [self.passages[number] for number in order]


def read(folder: Path, least: int = PASSAGE) -> list[Passage]:
    """The passages of a folder's text files, by name: paragraphs together, until they have `least`
    characters. Raises ConfigError for a folder that cannot be searched."""
    if not folder.is_dir():
        raise ConfigError(f"search: no such folder: {folder}")
    try:
        return _read(folder, least)
    except OSError as error:
        raise ConfigError(f"search: {error.filename}: {error.strerror}") from error


def _read(folder: Path, least: int) -> list[Passage]:
    # no links: a folder that came from elsewhere may point anywhere
    inside = (
        Path(place, name) for place, _, names in os.walk(folder, onerror=_fail) for name in names
    )
    files = sorted(
        path
        for path in inside
        if path.suffix.lower() in SUFFIXES and path.is_file() and not path.is_symlink()
    )
    if not files:
        raise ConfigError(f"search: {folder} holds no {' or '.join(SUFFIXES)} file")
    if (size := sum(path.stat().st_size for path in files)) > MOST_BYTES:
        raise ConfigError(f"search: {folder} holds {size >> 20} MiB, of {MOST_BYTES >> 20} at most")
    # a text that stands in several files is a passage of the first of them
    passages: dict[str, Passage] = {}
    odd = []
    for path in files:
        name = _plain_name(path.relative_to(folder).as_posix())
        try:
            text = _text(path.read_bytes())
        except ValueError:
            odd.append(name)
            continue
        for part in _passages(text, least):
            passages.setdefault(part, Passage(name, part))
    if odd:
        raise ConfigError(
            f"search: {folder} holds files that are not text in UTF-8 ({len(odd)} of {len(files)},"
            f" the first is {odd[0]}); convert them, or take them out"
        )
    if not passages:
        raise ConfigError(f"search: the files of {folder} are empty")
    return list(passages.values())


def _fail(error: OSError) -> None:
    raise error  # else a folder that cannot be read is left out in silence


def _plain_name(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def _text(data: bytes) -> str:
    """Raises ValueError for anything that is not text."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    if b"\0" in data:
        raise ValueError("bytes of a program or a picture")
    # as text files are read: any end of a line is one
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def _passages(text: str, least: int) -> Iterator[str]:
    held = ""
    for part in _paragraphs(text):
        held = f"{held}\n\n{part.strip()}".strip()
        if len(held) >= least:
            yield held
            held = ""
    if held:
        yield held


def _paragraphs(text: str) -> Iterator[str]:
    """What blank lines part. A long one ends at the end of a line, or of a word, or anywhere."""
    for part in re.split(r"\n\s*\n", text):
        start = 0
        while start < len(part):
            end = start + PARAGRAPH
            if end < len(part):
                ends = (part.rfind(mark, start + PASSAGE, end) for mark in ("\n", " "))
                end = next((place for place in ends if place > 0), end)
            yield part[start:end]
            start = end
