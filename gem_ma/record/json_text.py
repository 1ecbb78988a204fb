"""JSON text of records: strict, on one line, the same bytes for the same values. It knows values,
not what they mean (`gem_ma.record.codec`).

What a model wrote is read by `gem_ma.kernel.parsing.strict_json`, which bounds it more tightly.
"""

from __future__ import annotations

import json
import re
from typing import Any

from gem_ma.kernel.errors import StoreError
from gem_ma.kernel.parsing.strict_json import KeyTwice, strict_decoder
from gem_ma.kernel.parsing.text import clean

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
