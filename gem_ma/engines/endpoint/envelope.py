"""The envelope of a reply, which a server writes: strict JSON, in which whatever carries an answer
has the type that it must have.

A part of another type is a `Fault`: passed over in silence, the rest would be taken for the whole
answer. What carries no answer (usage, log-probabilities, names) may be anything: a number that is
impossible is read as none. Knows no Reply.
"""

from __future__ import annotations

import math
import re
from itertools import chain
from typing import Annotated, Any

import msgspec

from gem_ma.engines.endpoint.faults import Fault, of_error_within
from gem_ma.kernel.parsing.strict_json import depth_exceeds, strict_decoder

DEEPEST = 96  # levels of a reply: above those of arguments, which may stand in it as an object
MOST_COUNT = 2**53
MOST_ID = 2**31
SLACK = 1e-3  # nats above 0 that rounding may add to a log-probability
THOUGHTS = ("thinking", "reasoning", "reasoning_text")  # kinds of parts
_NESTS = frozenset({dict, list})
_APART = re.compile(r'"[ \t\r\n]+:')
_NUMBERS = frozenset({int, float})  # true is an int to isinstance
_IDS = tuple[Annotated[int, msgspec.Meta(ge=0, lt=MOST_ID)], ...]
# a usage of 1e999 carries no answer, and is read as none
_DECODER = strict_decoder(finite=False)
_TYPES: dict[str, tuple[type, ...]] = {
    "content": (str, list),
    "refusal": (str,),
    "tool_calls": (list,),
    "function_call": (dict,),
    "message": (dict,),
    "delta": (dict,),
    "function": (dict,),
    "choices": (list,),
}


def parsed(text: str) -> dict[str, Any]:
    """The JSON object in a text. Raises Fault for what is none, names a key twice, or is nested
    deeper than `DEEPEST`."""
    value = _plainly_strict(text)
    if value is not None:
        return value
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise Fault("bad_reply", f"JSON nested too deep: {text[:100]}", status=200) from None
    except ValueError as error:
        raise Fault("bad_reply", f"no strict JSON ({error}): {text}", status=200) from None
    if not isinstance(value, dict):
        raise Fault(
            "bad_reply", f"a JSON {type(value).__name__}, not an object: {text}", status=200
        )
    if depth_exceeds(value, DEEPEST):
        raise Fault("bad_reply", f"JSON nested too deep: {text[:100]}", status=200)
    return value


def _plainly_strict(text: str) -> dict[str, Any] | None:
    """What stands in most texts, at a third of the time: the object of one that names no key
    twice and nests less than `DEEPEST` levels; None where that takes a closer look."""
    try:
        # refuses NaN, lone surrogates and numbers beyond floats; of a key named twice it takes one
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    names = 0
    objects: list[dict[str, Any]] = [value]
    arrays: list[list[Any]] = []
    for _ in range(DEEPEST - 1):
        names += sum(map(len, objects))
        # most arrays hold none, such as hundreds of token ids, and that is seen without a loop
        nesting = (array for array in arrays if not _NESTS.isdisjoint(map(type, array)))
        values = chain.from_iterable(map(dict.values, objects))
        inner = [
            one
            for one in chain(values, chain.from_iterable(nesting))
            if type(one) in _NESTS and one
        ]
        objects = [one for one in inner if type(one) is dict]
        arrays = [one for one in inner if type(one) is list]
        if not objects and not arrays:
            break
    else:
        return None
    # A key named twice is a name more in the text than in the value. A quote and a colon inside a
    # string are one more too, and a key apart from its colon one less.
    plain = names == text.count('":') and _APART.search(text) is None
    return value if plain else None


def part(holder: dict[str, Any], key: str) -> Any:
    """What carries an answer under a key, None where it is absent, null or empty. Raises Fault
    where it has another type than its own."""
    value = holder.get(key)
    # servers write "nothing" in all these ways; 0 and false are none of them
    if value is None or (not value and isinstance(value, (str, list, dict))):
        return None
    if not isinstance(value, _TYPES[key]):
        raise Fault("bad_reply", f"{key} is {ascii(value)[:100]}", status=200)
    return value


def text_of(holder: dict[str, Any], key: str) -> str:
    """The text under a key, be it in parts; thoughts, and parts of other kinds, are passed over.
    Raises Fault where text is not text."""
    value = part(holder, key)
    if value is None or isinstance(value, str):
        return value or ""
    return "".join(map(_piece, value))


def _piece(piece: Any) -> str:
    kind = piece.get("type") if isinstance(piece, dict) else None
    if kind in THOUGHTS:
        return ""
    text = piece.get("text", piece.get("refusal")) if isinstance(piece, dict) else None
    if isinstance(text, str):
        return text
    if (
        not isinstance(piece, dict)
        or text is not None
        or kind in (None, "text", "output_text", "refusal")
    ):
        raise Fault("bad_reply", f"a part of the content is {ascii(piece)[:100]}", status=200)
    return ""


def thought_of(holder: dict[str, Any]) -> str:
    """What a message or a delta says of the model's thinking, whichever way a server writes it:
    a field, or parts of the content."""
    # the first alone: servers for old and new clients write the same thought twice
    for name in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(holder.get(name), str) and holder[name]:
            return str(holder[name])
    content = holder.get("content")
    listed = content if isinstance(content, list) else []
    parts = [piece for piece in listed if isinstance(piece, dict)]
    thoughts = [
        piece.get("thinking") or piece.get("text")
        for piece in parts
        if piece.get("type") in THOUGHTS
    ]
    inner = [
        text.get("text") if isinstance(text, dict) else text
        for piece in thoughts
        for text in (piece if isinstance(piece, list) else [piece])
    ]
    return "".join(text for text in inner if isinstance(text, str))


def is_first(choice: Any) -> bool:
    """Whether this is the choice that was asked for, and none of others that a server adds.
    Raises Fault for one that cannot be told."""
    index = choice.get("index") if isinstance(choice, dict) else choice
    if not isinstance(choice, dict) or not (index is None or type(index) is int):
        raise Fault("bad_reply", f"a choice is {ascii(choice)[:100]}", status=200)
    return not index  # 0, or a server that does not count its only one


def refuse_error(choice: dict[str, Any]) -> None:
    """Raises Fault where a choice, its message or its delta holds an error."""
    for holder in (choice, choice.get("message"), choice.get("delta")):
        if isinstance(holder, dict) and holder.get("error"):
            raise of_error_within(holder["error"])


# -- what carries no answer ----------------------------------------------------------------------


def ids_in(value: Any) -> tuple[int, ...]:
    """Token ids; () where any of them is none."""
    try:
        return msgspec.convert(value, _IDS) if isinstance(value, list) else ()
    except msgspec.ValidationError:
        return ()


def logprobs_in(value: Any) -> tuple[float, ...]:
    """Log-probabilities; () where any of them is none: a larger one than 0, or none that is
    finite."""
    fits = (
        isinstance(value, list)
        and value
        and _NUMBERS.issuperset(map(type, value))
        and min(value) > -MOST_COUNT
        and max(value) <= SLACK
        # NaN hides from both, and a sum with it is NaN
        and not math.isnan(sum(value))
    )
    return tuple(map(float, value)) if fits else ()


def count_in(value: Any) -> int | None:
    """A number of tokens; None where it is none that can be."""
    # as some languages write all numbers
    whole = isinstance(value, float) and math.isfinite(value) and value.is_integer()
    count = int(value) if whole else value
    return count if type(count) is int and 0 <= count < MOST_COUNT else None
