"""Texts made to slow a regular expression down, derived from the expression itself.

For each open repetition of a pattern: a beginning that reaches it, many turns of its body, and
an end that fails. Backtracking, and a search that begins anew at every place, both show on such
texts. `texts` gives them for one pattern; `slow` says which make a pattern cost more than linear
time.
"""

from __future__ import annotations

import re
import re._constants as sre
import re._parser as parser
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

UNITS = (  # runs of each kind of character, and near misses of what the readers look for
    *(
        " ",
        "\n",
        "\t",
        "a",
        "7",
        ".",
        "-",
        '"',
        "'",
        "(",
        "<",
        "[",
        "{",
        "@",
        "#",
        "W",
        "漢",
        "😀",
        "e\u0301",
        "א",
    ),
    *(
        "a.",
        "#W1 ",
        "1,",
        "no ",
        "1. a\n",
        "- a\n",
        "$1 ",
        "1234567890 ",
        "don't ",
        "credit_card_1 ",
        "a@b.c ",
        "### ",
        "a: ",
        "a -> b ",
    ),
    *(
        "I want it. ",
        "what is it? ",
        "my name is Al Bo ",
        "cancel order #W1 ",
        "items, ",
        "color: red, ",
        "Shall I cancel order #W1? ",
    ),
    *(
        "I have cancelled order #W1. ",
        "zip: 12345 ",
        "from 12345 to ",
        "<tool_call>",
        "<think>",
        "Response: a\n",
        "Action: {\n",
    ),
    *("<function=a>", "<parameter=a>", "[f(a=1), ", '{"name": "a", ', "[TOOL_CALLS]", "```\n"),
)
AGAIN_S = 0.02  # a late body is interrupted again after so many CPU seconds
TICK_S = 0.004  # some machines count CPU time by so much
SHORTEST = 32  # characters of a text
MANY = 24  # a repetition that may go on for at least so long counts as open
SAMPLES = {
    sre.CATEGORY_DIGIT: "7", sre.CATEGORY_NOT_DIGIT: "a", sre.CATEGORY_SPACE: " ", sre.CATEGORY_NOT_SPACE: "a",
    sre.CATEGORY_WORD: "a", sre.CATEGORY_NOT_WORD: " ",
}  # fmt: skip


class Late(Exception):
    """A match took longer than a linear one could."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raises Late in the body after so many CPU seconds; the matcher of `re` looks at signals on
    its way."""
    inside, past = True, False

    def late(*_: Any) -> None:
        nonlocal past
        past = True
        if inside:
            raise Late

    before = signal.signal(signal.SIGPROF, late)
    try:
        # again and again: what is raised in a callback of the garbage collector, as hypothesis has
        # one, or in a destructor, never reaches the body
        signal.setitimer(signal.ITIMER_PROF, seconds, AGAIN_S)
        yield
    finally:
        inside = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    if past:  # swallowed, and the body came to its end before the next one
        raise Late


def _chars(items: Any) -> list[str]:
    """Some characters of a set: the first of each of its parts."""
    negated = items and items[0][0] is sre.NEGATE
    found: list[str] = []
    for kind, value in items[1:] if negated else items:
        if kind is sre.LITERAL:
            found.append(chr(value))
        elif kind is sre.RANGE:
            found.append(chr(value[0]))
        elif kind is sre.CATEGORY:
            found.append(SAMPLES.get(value, "a"))
    if not negated:
        return found[:6] or ["a"]
    refused = {chr(value) for kind, value in items[1:] if kind is sre.LITERAL}
    spaces = any(kind is sre.CATEGORY and value is sre.CATEGORY_SPACE for kind, value in items[1:])
    words = any(kind is sre.CATEGORY and value is sre.CATEGORY_WORD for kind, value in items[1:])
    digits = any(kind is sre.CATEGORY and value is sre.CATEGORY_DIGIT for kind, value in items[1:])
    return [
        char
        for char in "a .\n-"
        if char not in refused
        and not (spaces and char.isspace())
        and not (words and char.isalnum())
        and not (digits and char.isdigit())
    ] or ["~"]


def sample(tree: Any, pick: int = 0) -> str:
    """A short text that the parsed expression matches, or nearly; `pick` turns through its
    alternatives."""
    return "".join(_sample(kind, value, pick) for kind, value in tree)


def _sample(kind: Any, value: Any, pick: int) -> str:
    if kind is sre.LITERAL:
        return chr(value)
    if kind is sre.NOT_LITERAL:
        return "a" if value != ord("a") else "b"
    if kind is sre.ANY:
        return "a. -"[pick % 4]
    if kind is sre.IN:
        chars = _chars(value)
        return chars[pick % len(chars)]
    if kind is sre.BRANCH:
        return sample(value[1][pick % len(value[1])], pick // max(1, len(value[1])))
    if kind is sre.SUBPATTERN:
        return sample(value[3], pick)
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return sample(value[2], pick) * max(value[0], min(1, value[1]) if pick % 2 else 0)
    if kind is sre.ATOMIC_GROUP:
        return sample(value, pick)
    return ""


def repeats(tree: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """(a text that leads to it, body) of every open repetition, the nested ones too."""
    for kind, value in tree:
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            if value[1] >= MANY:
                yield before, value[2]
            yield from repeats(value[2], before)
        elif kind is sre.BRANCH:
            for branch in value[1]:
                yield from repeats(branch, before)
        elif kind is sre.SUBPATTERN:
            yield from repeats(value[3], before)
        elif kind is sre.ATOMIC_GROUP:
            yield from repeats(value, before)
        elif kind in (sre.ASSERT, sre.ASSERT_NOT):
            yield from repeats(value[1], before)
            continue
        before += _sample(kind, value, 1)


def units(pattern: re.Pattern[str], most: int = 24) -> list[tuple[str, str]]:
    """(beginning, what is repeated) of the texts to try on a pattern."""
    tree = parser.parse(pattern.pattern, pattern.flags)
    found = {("", unit): None for unit in (" ", "\n", "a", "7", ".", "a.", "1,", "- ")}
    whole = sample(tree, 1)
    found[("", whole or "a")] = None
    for before, body in repeats(tree):
        for pick in range(4):
            unit = sample(body, pick) or "a"
            found[(before, unit)] = None
            found[("", before + unit)] = None
            if before:
                found[("", before)] = None
    return list(found)[:most]


def cost(call: Callable[[str], Any], text: str, tries: int = 1, limit_s: float = 5.0) -> float:
    """CPU seconds of one call, the best of `tries`; infinity where it ran past the limit."""
    best = float("inf")
    for _ in range(tries):
        start = time.process_time()
        try:
            with deadline(limit_s):
                call(text)
        except Late:
            continue  # a busy machine may have taken the time
        best = min(best, time.process_time() - start)
    return best


def superlinear(
    call: Callable[[str], Any],
    made: Callable[[int], str],
    size: int = 2000,
    floor_s: float = 0.008,
    near_s: float | None = None,
) -> float | None:
    """The growth of `call` where doubling the text costs more than three times the time, else None.

    A call below the floor at twice the `size` is no suspect, nor is one that this doubled in its
    first measure. One between `near_s` and the floor is looked at on a text four times as long, for
    a quick machine may hide a fault below it. What runs past eight floors is looked at on shorter
    texts, so that a fault is found in seconds. It must show three times: a busy machine may blur
    one look.
    """
    limit_s = max(8 * floor_s, 0.1)
    twice = cost(call, made(2 * size), limit_s=limit_s)
    if near_s is not None and near_s < twice < floor_s:
        size *= 4
        twice = cost(call, made(2 * size), limit_s=limit_s)
    while twice == float("inf") and size > SHORTEST:
        size //= 2
        twice = cost(call, made(2 * size), limit_s=limit_s)
    if twice == float("inf"):
        return twice  # whatever costs so much on so little is exponential
    if twice < floor_s or twice <= 2.5 * cost(call, made(size), tries=2):
        return None
    growth = 0.0
    for _ in range(3):
        growth = _growth(call, made, size, max(floor_s / 8, TICK_S))
        if growth <= 3:
            return None
    return growth


def _growth(
    call: Callable[[str], Any], made: Callable[[int], str], size: int, least_s: float
) -> float:
    """The growth by a doubling of the text, from its size to four times that."""
    before = max(cost(call, made(size), tries=3), least_s)
    # 16 is quadratic; what costs far more need not be waited for
    return (cost(call, made(4 * size), limit_s=40 * before) / before) ** 0.5


def slow(
    pattern: re.Pattern[str], how: set[str], size: int = 2000
) -> tuple[str, str, float] | None:
    """(beginning, unit, growth) of a text on which the pattern costs more than linear time, used
    by the methods that `how` names."""
    # most texts are slow by an end that fails; only what looks at the end may be slow without it
    looks = any(mark in pattern.pattern for mark in ("$", "\\Z", "(?!", "(?="))
    ends = ("", "\x00") if looks else ("\x00",)

    def call(text: str) -> None:
        for end in ends:
            if how & {"match", "fullmatch"}:
                pattern.match(text + end)
            if "fullmatch" in how:
                pattern.fullmatch(text + end)
            if how - {"match", "fullmatch"}:
                for _ in pattern.finditer(text + end):
                    pass

    if not any(repeats(parser.parse(pattern.pattern, pattern.flags))):
        return None  # all is bounded, so is what one place may cost
    for before, unit in units(pattern):
        growth = superlinear(
            call,
            lambda length, before=before, unit=unit: before + unit * (length // len(unit)),
            size,
            near_s=0.002,
        )
        if growth is not None:
            return before, unit, growth
    return None
