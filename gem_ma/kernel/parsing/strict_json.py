"""JSON as a model may write it: strict, and bounded in depth and digits. `DECODER` raises
ValueError or RecursionError, nothing else.

Refused are NaN and infinities, numbers beyond the range of floats, integers of more than 64
digits, and an object that names a key twice.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from gem_ma.kernel.parsing.text import clean

# characters of one answer, calls in it, levels of one call, digits of one integer
MAX_TEXT = 256 * 1024
MAX_CALLS = 64
MAX_DEPTH = 32
MAX_DIGITS = 64
TOO_DEEP = f"bad_json: nested deeper than {MAX_DEPTH}"


def depth_exceeds(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Whether arrays and objects are nested deeper than `limit`; walks by level, so depth costs
    no stack."""
    # no recursion: a hostile text may nest as deep as its length
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for node in level
            if isinstance(node, (dict, list))
            for inner in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return False
    return any(isinstance(node, (dict, list)) for node in level)


def clean_json(value: Any) -> Any:
    """The value with lone surrogates replaced in every string."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): clean_json(item) for key, item in value.items()}
    return [clean_json(item) for item in value] if isinstance(value, list) else value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    # readers disagree which of two wins; an attack may live off that
    if len(result) != len(pairs):
        raise ValueError("an object names a key twice")
    return result


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _real(digits: str) -> float:
    value = float(digits)
    # 1e999 is valid JSON, and infinity to Python
    if not isfinite(value):
        raise ValueError("a number beyond the range of floats")
    return value


def _integer(digits: str) -> int:
    # converting digits takes the square of their number
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"an integer of more than {MAX_DIGITS} digits")
    return int(digits)


DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_constant, parse_int=_integer, parse_float=_real
)
