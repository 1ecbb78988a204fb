"""What an agent says, cut at a limit: the driver's, the same for every engine, behaviour and view,
so that one saying holds up no other play.

A text is cut. A call is not, because arguments that were cut may mean something else: what does
not fit is one `Malformed` of the kind `too_large`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.kernel.parsing.calls import EXCERPT
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.types import Malformed, ToolCall

Calls = tuple[ToolCall | Malformed, ...]


def bounded(text: str, calls: Sequence[Any], limit: int | None) -> tuple[str, Calls, int]:
    """(text, calls, bytes of UTF-8 that were cut off) with at most `limit` characters of text, and
    as many of all calls together; None = no limit.

    >>> bounded("abcdef", (), 4)
    ('abcd', (), 2)
    """
    calls_left = tuple(calls)
    # a replay: what is on record was cut when it was made
    if limit is None:
        return text, calls_left, 0
    cut = 0
    if len(text) > limit:
        cut = _bytes(text) - _bytes(text[:limit])
        text = text[:limit]
    if calls_left:
        calls_left, more = _bounded_calls(calls_left, limit)
        cut += more
    return text, calls_left, cut


def _bounded_calls(calls: tuple[Any, ...], limit: int) -> tuple[Calls, int]:
    total = 0
    for place, call in enumerate(calls):
        fitting = total
        total += size(call)
        if total > limit:
            rest = total - fitting + sum(map(size, calls[place + 1 :]))
            return (*calls[:place], _unread(call, len(calls) - place, limit)), rest
    return calls, 0


def _unread(call: Any, number: int, limit: int) -> Malformed:
    excerpt = call.text if isinstance(call, Malformed) else str(getattr(call, "name", ""))
    many = "" if number == 1 else f" in {number} calls"
    return Malformed(
        clean(excerpt[:EXCERPT]),
        f"too_large: more than {limit} characters of arguments{many} (run.max_said)",
    )


def size(call: Any) -> int:
    """About how many bytes a call takes up in JSON; walks without recursion, since arguments may
    be nested as deep as their author likes."""
    if isinstance(call, Malformed):
        return _bytes(call.text) + _bytes(call.reason)
    if not isinstance(call, ToolCall):
        return 0  # refused by who reads it
    waiting: list[Any] = [call.arguments]
    total = _bytes(call.id) + _bytes(call.name)
    while waiting:
        value = waiting.pop()
        # brackets, or a separator
        total += 2
        if isinstance(value, str):
            total += _bytes(value)
        elif isinstance(value, Mapping):
            waiting += value.keys()
            waiting += value.values()
        elif isinstance(value, (list, tuple)):
            waiting += value
        elif isinstance(value, int):
            # an integer of a million digits is one value; its digits count
            total += value.bit_length() // 3
        else:
            total += 8
    return total


def _bytes(text: Any) -> int:
    if not isinstance(text, str):
        return 0
    # encoding a long ASCII text to count it would double its memory
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
