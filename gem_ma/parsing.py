"""Reading an answer: text -> the legal string it names, or the tool calls it holds. The one parser of the views, behaviours and local engines.

A wrong answer is data. Nothing here raises on a model's text, evaluates it, or repairs it by guessing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from gem_ma.types import Action, Malformed, Tool, ToolCall

MAX_TEXT, MAX_CALLS, MAX_DEPTH, MAX_DIGITS = 256 * 1024, 64, 32, 64
_BOXED = re.compile(r"\\boxed\{([^{}]*)\}|\[([^\[\]]*)\]|<action>(.*?)</action>", re.DOTALL)
_TAG = "<tool_call>"


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
    folded = {fold(choice): choice for choice in legal}
    marked = _marked(text)
    if marked is not None and fold(marked) in folded:
        return folded[fold(marked)]
    whole = fold(text)
    if whole in folded:
        return folded[whole]
    last_line = fold(text.strip().rsplit("\n", 1)[-1])
    found = [choice for key, choice in folded.items() if key and re.search(rf"(?<!\w){re.escape(key)}(?!\w)", last_line)]
    return found[0] if len(found) == 1 else None


def _marked(text: str) -> str | None:
    hits = _BOXED.findall(text)
    if hits:
        return next((part for part in hits[-1] if part), "")
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
    """Tool calls in `text` and the text around them.

    Read are `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` (any number, end tag optional at the end of the text) and a text that
    is one such JSON object and nothing else. JSON is decoded from the opening tag on, so an end tag inside a string does no harm.
    """
    if _TAG not in text:
        stripped = text.strip()
        if stripped.startswith("{") and stripped.endswith("}") and '"name"' in stripped:
            call, end = _one_call(stripped, 0)
            if isinstance(call, Malformed) or end == len(stripped):
                return "", (_numbered(call, 0),)
        return text, ()
    if len(text) > MAX_TEXT:
        return "", (Malformed(text[:200], f"too_large: {len(text)} characters, the limit is {MAX_TEXT}"),)
    calls: list[ToolCall | Malformed] = []
    rest: list[str] = []
    at = 0
    while (start := text.find(_TAG, at)) >= 0:
        rest.append(text[at:start])
        if len(calls) == MAX_CALLS:
            calls.append(Malformed(text[start : start + 200], f"too_many: more than {MAX_CALLS} calls in one turn"))
            at = len(text)
            break
        call, end = _one_call(text, start + len(_TAG))
        calls.append(_numbered(call, len(calls)))
        close = text.find("</tool_call>", end)
        following = text.find(_TAG, end)
        at = close + len("</tool_call>") if close >= 0 and (following < 0 or close < following) else (following if following >= 0 else len(text))
    rest.append(text[at:])
    return "".join(rest).strip(), tuple(calls)


def _numbered(call: ToolCall | Malformed, number: int) -> ToolCall | Malformed:
    return ToolCall(f"call_{number}", call.name, call.arguments) if isinstance(call, ToolCall) else call


def _one_call(text: str, at: int) -> tuple[ToolCall | Malformed, int]:
    """The call whose JSON starts at or after `at`, and where reading stopped."""
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    raw = text[at : at + 200]
    if _too_deep(text, at):
        return Malformed(raw, f"bad_json: nested deeper than {MAX_DEPTH}"), at
    try:
        value, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        return Malformed(raw, f"bad_json: {error}"), at
    if not isinstance(value, dict):
        return Malformed(raw, f"not_object: a call is a JSON object, got {type(value).__name__}"), end
    name, arguments = value.get("name"), value.get("arguments", {})
    if not isinstance(name, str) or not name:
        return Malformed(raw, "missing_name: a call needs a string 'name'"), end
    if isinstance(arguments, str):  # some models encode the arguments twice
        try:
            arguments = _DECODER.decode(arguments)
        except (ValueError, RecursionError) as error:
            return Malformed(raw, f"bad_arguments: {error}"), end
    if not isinstance(arguments, dict):
        return Malformed(raw, f"bad_arguments: 'arguments' is an object, got {type(arguments).__name__}"), end
    return ToolCall("call_0", clean(name), _clean_json(arguments)), end


def _too_deep(text: str, at: int) -> bool:
    depth, inside, escaped = 0, False, False
    for char in text[at:]:
        if inside:
            inside = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            inside = True
        elif char in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif char in "]}":
            depth -= 1
            if depth <= 0:
                return False
    return False


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


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"an integer of more than {MAX_DIGITS} digits")
    return int(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant, parse_int=_integer)
