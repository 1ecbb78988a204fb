"""Reading an answer: text -> the legal string it names, or the tool calls it holds. The one parser of the views, behaviours and local engines.

A wrong answer is data. Nothing here raises on a model's text, evaluates it, or repairs it by guessing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from math import isfinite
from typing import Any

from gem_ma.types import Action, Malformed, Tool, ToolCall

MAX_TEXT, MAX_CALLS, MAX_DEPTH, MAX_DIGITS = 256 * 1024, 64, 32, 64
SHOWN = 200  # characters of a malformed call that are kept
_MARKS = (("\\boxed{", "}"), ("[", "]"), ("<action>", "</action>"))
_TAG, _END = "<tool_call>", "</tool_call>"
_TOO_DEEP = f"bad_json: nested deeper than {MAX_DEPTH}"


def clean(text: str) -> str:
    """The text with lone surrogates replaced, so that it can be written as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def fold(text: str) -> str:
    """The form in which legal strings must stay distinct: case folded, white space collapsed."""
    return " ".join(text.casefold().split())


def parse_legal(text: str, legal: Sequence[str]) -> str | None:
    r"""The legal string that `text` names, or None. Two matches are no match.

    Order: exact; the last marked answer (``\boxed{}``, ``[...]``, ``<action>``, JSON call); folded; the only one contained in the last line.

    >>> parse_legal("I think [Bet]", ("check", "bet"))
    'bet'
    >>> parse_legal("check or bet?", ("check", "bet")) is None
    True
    """
    if text in legal:
        return text
    if len(text) > MAX_TEXT:
        return None
    folded = _folded(tuple(legal))
    marked = _marked(text)
    if marked is not None:
        if marked.strip() in legal:
            return marked.strip()
        if (key := fold(marked)) in folded:
            return folded[key]
    whole = fold(text)
    if whole in folded:
        return folded[whole]
    last_line = fold(text.strip().rsplit("\n", 1)[-1])
    found = [key for key in folded if key and key in last_line and re.search(rf"(?<!\w){re.escape(key)}(?!\w)", last_line)]
    return folded[found[0]] if len(found) == 1 else None


@lru_cache(maxsize=512)
def _folded(legal: tuple[str, ...]) -> dict[str, str | None]:
    """Folded form -> legal string; None where two legal strings share the form, because then it names neither."""
    folded: dict[str, str | None] = {}
    for choice in dict.fromkeys(legal):
        key = fold(choice)
        folded[key] = None if key in folded else choice
    return folded


def _marked(text: str) -> str | None:
    """What stands in the mark that opens last. Searched from the end, so that a text full of opening marks costs no more than its length."""
    last, answer = -1, None
    for opening, closing in _MARKS:
        end = text.rfind(closing)
        start = text.rfind(opening, 0, end) if end >= 0 else -1
        if start > last:
            inside = text[start + len(opening) : end].split(closing, 1)[0]
            last, answer = start, inside.removeprefix("\\text{")
    if answer is not None:
        return answer
    stripped = text.strip()
    if stripped.startswith("{"):
        call = _one_call(stripped, 0)[0]
        if isinstance(call, ToolCall) and len(call.arguments) == 1:
            value = next(iter(call.arguments.values()))
            return value if isinstance(value, str) else json.dumps(value)
    return None


def parse_action(text: str, legal: Sequence[str] | None = None, tools: Sequence[Tool] = ()) -> Action:
    """An Action out of plain text: legal strings where a choice is closed, tool calls where tools are offered."""
    text = clean(text)
    if tools:
        rest, calls = parse_tool_calls(text)
        if calls:
            return Action(rest, calls, None)
    return Action(text, (), parse_legal(text, legal) if legal is not None else None)


def parse_tool_calls(text: str) -> tuple[str, tuple[ToolCall | Malformed, ...]]:
    """Tool calls in `text`, in order, and the text around them. What cannot be read is a `Malformed` whose reason opens with its kind:
    bad_json, not_object, missing_name, bad_arguments, too_many, too_large. (unknown_tool and truncated_call are for who knows tools or tokens.)

    Read are `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` (any number, end tag optional at the end of the text) and a text that
    is one such JSON object and nothing else. JSON is decoded from the opening tag on, so an end tag inside a string does no harm.
    """
    text = clean(text)
    tagged = _TAG in text
    bare = "" if tagged else text.strip()
    if not tagged and not (bare.startswith("{") and bare.endswith("}") and '"name"' in bare):
        return text, ()
    if len(text) > MAX_TEXT:
        return "", (Malformed(text[:SHOWN], f"too_large: {len(text)} characters, the limit is {MAX_TEXT}"),)
    if not tagged:
        call, end = _one_call(bare, 0)
        return ("", (call,)) if isinstance(call, Malformed) or end == len(bare) else (text, ())
    calls: list[ToolCall | Malformed] = []
    rest: list[str] = []
    at = 0
    while (start := text.find(_TAG, at)) >= 0:
        rest.append(text[at:start])
        if len(calls) == MAX_CALLS:
            calls.append(Malformed(text[start : start + SHOWN], f"too_many: more than {MAX_CALLS} calls in one turn"))
            at = len(text)
            break
        call, end = _one_call(text, start + len(_TAG), len(calls))
        calls.append(call)
        close, following = text.find(_END, end), text.find(_TAG, end)
        if close >= 0 and (following < 0 or close < following):
            at = close + len(_END)
        elif isinstance(call, ToolCall):
            at = end  # no end tag: what follows the JSON is text again
        else:
            at = following if following >= 0 else len(text)
    rest.append(text[at:])
    return "".join(rest).strip(), tuple(calls)


def read_call(call_id: str, name: Any, arguments: Any) -> ToolCall | Malformed:
    """A tool call whose parts a server has told apart; `arguments` are JSON text, or an object already. Kinds of reasons: `parse_tool_calls`.

    >>> read_call("a", "add", '{"x": 1}')
    ToolCall(id='a', name='add', arguments={'x': 1})
    """
    raw = clean(f"{name}({arguments if isinstance(arguments, str) else ascii(arguments)[: 2 * SHOWN]})"[:SHOWN])
    if not isinstance(name, str) or not name:
        return Malformed(raw, "missing_name: a call needs a string 'name'")
    if isinstance(arguments, str) and len(arguments) > MAX_TEXT:
        return Malformed(raw, f"too_large: {len(arguments)} characters, the limit is {MAX_TEXT}")
    try:
        for _ in range(2):  # some models encode the arguments twice
            if isinstance(arguments, str):
                arguments = _DECODER.decode(arguments) if arguments.strip() else {}  # servers write "" where a tool takes none
    except RecursionError:
        return Malformed(raw, _TOO_DEEP)
    except ValueError as error:
        return Malformed(raw, f"bad_json: {error}")
    if _depth_exceeds(arguments, MAX_DEPTH):
        return Malformed(raw, _TOO_DEEP)
    if not isinstance(arguments, dict):
        return Malformed(raw, f"not_object: 'arguments' is an object, got {type(arguments).__name__}")
    return ToolCall(call_id, clean(name), _clean_json(arguments))


def _one_call(text: str, at: int, number: int = 0) -> tuple[ToolCall | Malformed, int]:
    """The call whose JSON starts at or after `at`, and where reading stopped."""
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    raw = text[at : at + SHOWN]
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        return Malformed(raw, _TOO_DEEP), at
    except ValueError as error:
        return Malformed(raw, f"bad_json: {error}"), at
    if _depth_exceeds(value, MAX_DEPTH):
        return Malformed(raw, _TOO_DEEP), end
    if not isinstance(value, dict):
        return Malformed(raw, f"not_object: a call is a JSON object, got {type(value).__name__}"), end
    name = value.get("name")
    if not isinstance(name, str) or not name:
        return Malformed(raw, "missing_name: a call needs a string 'name'"), end
    if "arguments" not in value:
        return Malformed(raw, "bad_arguments: a call needs 'arguments', an object; {} for none"), end
    arguments = value["arguments"]
    if isinstance(arguments, str):  # some models encode the arguments twice
        try:
            arguments = _DECODER.decode(arguments)
        except RecursionError:
            return Malformed(raw, _TOO_DEEP), end
        except ValueError as error:
            return Malformed(raw, f"bad_arguments: {error}"), end
        if _depth_exceeds(arguments, MAX_DEPTH):
            return Malformed(raw, _TOO_DEEP), end
    if not isinstance(arguments, dict):
        return Malformed(raw, f"bad_arguments: 'arguments' is an object, got {type(arguments).__name__}"), end
    return ToolCall(f"call_{number}", clean(name), _clean_json(arguments)), end


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [inner for node in level if isinstance(node, (dict, list)) for inner in (node.values() if isinstance(node, dict) else node)]
    return any(isinstance(node, (dict, list)) for node in level)


def _clean_json(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): _clean_json(item) for key, item in value.items()}
    return [_clean_json(item) for item in value] if isinstance(value, list) else value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object names a key twice")
    return result


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _real(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError("a number beyond the range of floats")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"an integer of more than {MAX_DIGITS} digits")
    return int(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant, parse_int=_integer, parse_float=_real)
