"""What a task gives its user to say: the text and the values that it may state, the runs of words
that it may not copy, and what no user says at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gem_ma.scenarios.service_desk.desk.task import Task
from gem_ma.scenarios.service_desk.reading.phrases import Phrasebook, fold, plain
from gem_ma.scenarios.service_desk.watching.wishes import lines_of, spoken_of

TOKEN = re.compile(
    # Possessive marks and bounded gaps: a row of `#` is walked once.
    r"(?<!#)#{2,}+\s{0,8}[A-Za-z][\w -]{0,80}\s{0,8}#{2,}"
    r"|<\|[^|<>]{1,40}\|>|\[(?:STOP|END|DONE|TRANSFER|EOS|INST)\]|</?s>|\bend_conversation\b|<(?:stop|end)/?>",
    re.IGNORECASE,
)
GRAM = 8  # words in a row that make a copy


def corpus(task: Task, book: Phrasebook) -> tuple[str, frozenset[tuple[str, str]]]:
    """All that the user may state: folded text, and values as (slot, value)."""
    # What it has forgotten it may not state either.
    forgotten = {slot.value for slot in task.knowledge if not slot.known}
    asked: list[str] = []
    values: set[tuple[str, str]] = {
        (slot.name, fold(slot.value)) for slot in task.knowledge if slot.known
    }
    for wish in task.wishes:
        for each in spoken_of(wish):
            details = [
                name
                for name in book.details(each)
                if str(each.arguments.get(name)) not in forgotten
            ]
            asked += [each.text, _flat(each.words), book.request(each, details, _first)]
            for name in details:
                values |= {
                    (name, fold(arguments[name]))
                    for arguments in (each.arguments, *each.choices)
                    if isinstance(arguments.get(name), str)
                }
    requests = "\n".join(asked)
    joined = "\n".join(
        [task.instruction, requests, *(slot.value for slot in task.knowledge if slot.known)]
    )
    values |= {(mention.slot, fold(mention.value)) for mention in book.mentions(joined)}
    return fold(joined), frozenset(values)


def wanted_by(task: Task, book: Phrasebook) -> tuple[frozenset[str], frozenset[str]]:
    """The records that the wishes of a task name, and the kinds of changes that it speaks of."""
    wishes = [each for wish in task.wishes for each in spoken_of(wish)]
    records = {
        str(arguments[slot])
        for wish in wishes
        for arguments in (wish.arguments, *wish.choices)
        for slot in book.anchors
        if slot in arguments
    }
    spoken = map(book.writes, lines_of(task.instruction))
    return frozenset(records), frozenset[str]().union(*map(book.kinds, wishes), *spoken)


def _first(*ways: str) -> str:
    return ways[0]


def _flat(words: Any) -> str:
    if isinstance(words, Mapping):
        return " ".join(f"{key} {_flat(value)}" for key, value in words.items())
    if isinstance(words, (list, tuple)):
        return " ".join(map(_flat, words))
    if hasattr(words, "__slots__"):
        return " ".join(_flat(getattr(words, name)) for name in words.__slots__)
    return str(words)


def words(text: str) -> list[str]:
    return re.findall(r"(?<![\w'#@.+-])[\w'#@.+-]*\w", plain(text))


def grams(words: list[str]) -> list[tuple[str, ...]]:
    return list(zip(*(words[start:] for start in range(GRAM)), strict=False))


def instruction_grams(task: Task) -> frozenset[tuple[str, ...]]:
    """Runs of words of the instruction, apart from those that mostly list values or stand in a
    wish's own words: these may be said as they are."""
    wishes = [each for wish in task.wishes for each in spoken_of(wish)]
    requests = {gram for wish in wishes for gram in grams(words(wish.text))}
    held = [slot.value for slot in task.knowledge] + [
        f"{_flat(wish.words)} {_flat(dict(wish.arguments))}" for wish in wishes
    ]
    values = set(words(" ".join(held)))
    # Runs that are mostly values may be said as they are: nothing else says them.
    most = GRAM // 4  # words of values in a run that is still a copy
    return frozenset(
        gram
        for gram in grams(words(task.instruction))
        if gram not in requests and sum(word in values for word in gram) <= most
    )
