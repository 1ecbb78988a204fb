"""Strict JSON: the one decoder of the house, `strict_decoder`; `DECODER`, which reads what a model
wrote: bounded in digits too; and the JSON text of records, on one line, the same bytes for the same
values. Decoders raise ValueError or RecursionError, nothing else.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from math import isfinite
from typing import Any, NoReturn

from gem_ma.kernel.errors import StoreError
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


FLOAT_DIGITS = 300  # an integer of more may be beyond the range of floats
# legal in JSON, but other readers split lines or drive terminals with them
_SPLITTERS = re.compile("[\x7f-\x9f\u2028\u2029]")


def dump_json(data: Any) -> str:
    """Strict JSON on one line, keys in the order given. Raises StoreError for what JSON cannot
    hold."""
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"not writable as JSON: {error}") from None
    if text.isascii() and "\x7f" not in text:  # the common case, without a search
        return text
    return _SPLITTERS.sub(lambda match: f"\\u{ord(match[0]):04x}", clean(text))


def load_json(line: str | bytes, *, bounded: bool = False) -> Any:
    """Strict JSON: UTF-8, no NaN or Infinity, no duplicate key, no lone surrogate. Raises
    StoreError.

    `bounded`: integers too are such as a float can be, for whoever calculates with them.
    """
    try:
        text = line.decode("utf-8") if isinstance(line, (bytes, bytearray)) else line
        value = (_BOUNDED if bounded else _DECODER).decode(text)
        # A lone surrogate can only come from an escape: UTF-8 itself holds none.
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        return value
    except UnicodeDecodeError as error:
        raise StoreError(f"not UTF-8 at byte {error.start}") from None
    except UnicodeEncodeError:
        raise StoreError("holds a lone surrogate, which is not text") from None
    except json.JSONDecodeError as error:
        raise StoreError(f"not JSON at character {error.pos}: {error.msg}") from None
    except RecursionError:
        raise StoreError("nested too deep") from None
    except KeyTwice as error:
        raise StoreError(f"not strict JSON: duplicate key {error.key!r}") from None
    except ValueError as error:
        raise StoreError(f"not strict JSON: {error}") from None


_DECODER = strict_decoder()
_BOUNDED = strict_decoder(FLOAT_DIGITS)
