"""`[f(a=1, b="x"), g()]` -> tool calls. The text becomes a syntax tree, of which only literals
are read; nothing of it is ever run."""

from __future__ import annotations

import ast
import re
from math import isfinite
from typing import Any

from gem_ma.kernel.parsing.calls import EXCERPT
from gem_ma.kernel.parsing.strict_json import MAX_CALLS, MAX_DEPTH, MAX_DIGITS
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.types import Malformed, ToolCall

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_KNOWN_ESCAPES = frozenset("\n\\'\"abfnrtvxuUN01234567")
# a text, to the end where it has none, or a bracket
_TOKEN = re.compile(
    r"""'(?:\\.?|[^'\\])*+(?:'|\Z)|"(?:\\.?|[^"\\])*+(?:"|\Z)|[\[\](){}]""", re.DOTALL
)
_JSON_WORDS = {"true": True, "false": False, "null": None}


class _Refused(Exception):
    """Anything that is not a literal; its text is the reason."""


def python_literal(text: str) -> Any:
    """The value that a text of Python writes. Raises ValueError."""
    try:
        return _literal(ast.parse(text.strip(), mode="eval").body, 2)
    except (SyntaxError, MemoryError, RecursionError, _Refused) as error:
        raise ValueError(str(error)) from None


def python_calls(text: str, *, drop: str = "") -> tuple[ToolCall | Malformed, ...]:
    """The calls in the list that `text` is; one `Malformed` where it is not a list of calls.
    `drop`: an ending of names that is not part of them."""
    try:
        # An escape that Python does not know is a backslash and a letter; written so, the parser
        # warns of nothing.
        plain = _ESCAPE.sub(
            lambda found: (
                found.group() if found.group(1) in _KNOWN_ESCAPES else "\\" + found.group()
            ),
            text.strip(),
        )
        body = ast.parse(plain, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        # the last two: nested deeper than the parser's stack
        why = str(error) or f"nested deeper than {MAX_DEPTH}"
        # its str names a file and a line, of which there are none
        if isinstance(error, SyntaxError):
            why = error.msg
        return (Malformed(clean(text[:EXCERPT]), f"bad_python: {why}"),)
    if not isinstance(body, ast.List) or not body.elts:
        return (
            Malformed(
                clean(text[:EXCERPT]), "bad_python: calls are written [name(key=value), ...]"
            ),
        )
    calls: list[ToolCall | Malformed] = []
    for number, node in enumerate(body.elts):
        if number == MAX_CALLS:
            calls.append(Malformed("", f"too_many: more than {MAX_CALLS} calls in one turn"))
            break
        try:
            calls.append(_call(node, number, drop))
        except _Refused as refused:
            # positions of a syntax tree count bytes of UTF-8, within its line
            part = plain.encode()[node.col_offset : node.end_col_offset]
            raw = part.decode("utf-8", "replace") if node.lineno == 1 else text
            calls.append(Malformed(clean(raw)[:EXCERPT], str(refused)))
    return tuple(calls)


def list_end(text: str, start: int) -> int | None:
    """Where the list that starts here ends; None where it does not."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += (token.group() in "[({") - (token.group() in "])}")
        if depth <= 0:
            return token.end()
    return None


def _call(node: ast.expr, number: int, drop: str) -> ToolCall:
    if not isinstance(node, ast.Call):
        raise _Refused("missing_name: a call is written name(key=value)")
    name = _name(node.func).removesuffix(drop)
    if node.args:
        raise _Refused(f"bad_arguments: {name} takes named arguments only, as {name}(key=value)")
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        # what ** would unpack is not a literal
        if keyword.arg is None:
            raise _Refused("bad_arguments: ** names no argument")
        if keyword.arg in arguments:
            raise _Refused(f"bad_arguments: {keyword.arg!r} stands twice")
        arguments[keyword.arg] = _literal(keyword.value, 2)
    return ToolCall(f"call_{number}", clean(name), arguments)


def _name(node: ast.expr) -> str:
    parts = []
    # names of tools may have dots: namespace.tool
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise _Refused("missing_name: a call is written name(key=value)")
    return ".".join([node.id, *reversed(parts)])


def _literal(node: ast.expr, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise _Refused(f"bad_arguments: nested deeper than {MAX_DEPTH}")
    if (
        isinstance(node, ast.UnaryOp)
        # Python has no negative literals: -1 is a minus and a 1
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
    ):
        value = _constant(node.operand.value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return -value
    if isinstance(node, ast.Constant):
        return _constant(node.value)
    # templates write what is nested as JSON
    if isinstance(node, ast.Name) and node.id in _JSON_WORDS:
        return _JSON_WORDS[node.id]
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_literal(item, depth + 1) for item in node.elts]
    if isinstance(node, ast.Dict):
        result: dict[str, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                raise _Refused("bad_arguments: the keys of an object are texts")
            if clean(key.value) in result:
                raise _Refused("bad_arguments: an object names a key twice")
            result[clean(key.value)] = _literal(item, depth + 1)
        return result
    raise _Refused(f"bad_arguments: values are literals, got {type(node).__name__}")


def _constant(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**MAX_DIGITS:
        raise _Refused(f"bad_arguments: an integer of more than {MAX_DIGITS} digits")
    if isinstance(value, float) and not isfinite(value):
        raise _Refused("bad_arguments: a number beyond the range of floats")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise _Refused(f"bad_arguments: {type(value).__name__} is no JSON value")
