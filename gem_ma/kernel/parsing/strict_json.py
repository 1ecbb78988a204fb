"""Strict JSON: the one decoder of the house, `strict_decoder`, and `DECODER`, which reads what a
model wrote: bounded in digits too. They raise ValueError or RecursionError, nothing else.
"""

from __future__ import annotations

import json
from collections import Counter
from math import isfinite
from typing import Any, NoReturn

from gem_ma.kernel.parsing.text import clean

# characters of one answer, calls in it, levels of one call, digits of one integer
MAX_TEXT = 256 * 1024
MAX_CALLS = 64
MAX_DEPTH = 32
MAX_DIGITS = 64
_NESTS = frozenset({dict, list})
TOO_DEEP = f"bad_json: nested deeper than {MAX_DEPTH}"


def depth_exceeds(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Whether arrays and objects are nested deeper than `limit`; walks by level, so depth costs
    no stack."""
    # no recursion: a hostile text may nest as deep as its length
    level = [value] if type(value) in _NESTS else []
    for _ in range(limit):
        below: list[Any] = []
        for node in level:
            inner = node.values() if type(node) is dict else node
            # most hold none, such as hundreds of token ids, and that is seen without a loop
            if not _NESTS.isdisjoint(map(type, inner)):
                below += [one for one in inner if type(one) in _NESTS]
        level = below
        if not level:
            return False
    return bool(level)


def clean_json(value: Any) -> Any:
    """The value with lone surrogates replaced in every string."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): clean_json(item) for key, item in value.items()}
    return [clean_json(item) for item in value] if isinstance(value, list) else value


class KeyTwice(ValueError):
    """An object that names a key twice."""

    def __init__(self, key: str) -> None:
        super().__init__("an object names a key twice")
        self.key = key


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    # readers disagree which of two wins; an attack may live off that
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        raise KeyTwice(next(name for name, count in Counter(names).items() if count > 1))
    return result


def refuse_constant(name: str) -> NoReturn:
    """What `parse_constant` of a decoder is, where NaN and infinities are refused."""
    raise ValueError(f"{name} is not JSON")


def _real(digits: str) -> float:
    value = float(digits)
    # 1e999 is valid JSON, and infinity to Python
    if not isfinite(value):
        raise ValueError("a number beyond the range of floats")
    return value


def strict_decoder(digits: int | None = None, *, finite: bool = True) -> json.JSONDecoder:
    """A decoder that refuses NaN, infinities and an object that names a key twice; integers of
    more than so many `digits`, and, where `finite`, numbers beyond the range of floats."""

    def integer(text: str) -> int:
        # converting digits takes the square of their number
        if digits is not None and len(text) > digits:
            raise ValueError(f"an integer of more than {digits} digits")
        return int(text)

    return json.JSONDecoder(
        object_pairs_hook=_unique,
        parse_constant=refuse_constant,
        parse_int=None if digits is None else integer,
        parse_float=_real if finite else None,
    )


DECODER = strict_decoder(MAX_DIGITS)
