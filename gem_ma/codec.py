"""Records <-> JSON: one episode is one line. It knows the records of `gem_ma.types` and nothing of
files.

What is written can always be read back: the same shapes check a value on its way out and on its
way in. A field that holds its default is left out; the tools that a play offers stand once per
episode (`tools`) and a turn names them by number, and so do the ids of a conversation
(`gem_ma.conversations`). Image bytes are not part of a line, only their digest. Reading is
strict: NaN, Infinity, duplicate or unknown keys, wrong types and lone surrogates are errors that
name the field.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from numbers import Real
from typing import Any, NamedTuple, NoReturn

from gem_ma.conversations import thin, whole
from gem_ma.errors import SchemaError, StoreError
from gem_ma.parsing import clean
from gem_ma.types import (
    Action,
    Attempt,
    CallResult,
    End,
    Entry,
    Episode,
    Image,
    Malformed,
    Message,
    Reply,
    Seat,
    Tool,
    ToolCall,
    Turn,
    Usage,
)

SCHEMA = 1
LARGEST = 10**300  # of numbers that somebody calculates with
FLOAT_DIGITS = 300  # an integer of more may be beyond the range of floats
MAX_DEPTH = 64  # of free JSON values: tool arguments, call results, options


class _Wrong(Exception):
    """A value that does not fit, with the path to it that grows on the way up."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what, self.path = what, ""

    def within(self, part: str) -> _Wrong:
        self.path = part + ("." if self.path and not self.path.startswith("[") else "") + self.path
        return self


class Shape(NamedTuple):
    """How one type of value is written and read; both directions check."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _refuse(expected: str, value: Any) -> NoReturn:
    kind = "null" if value is None else type(value).__name__
    raise _Wrong(f"expected {expected}, got {kind}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        _refuse("text", value)
    return value if value.isascii() else clean(value)


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        _refuse("an integer", value)
    return operator.index(value)


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, Real):
        _refuse("a number", value)
    plain: int | float
    if isinstance(value, (int, float)):
        plain = value
    else:
        plain = operator.index(value) if hasattr(value, "__index__") else float(value)
    if isinstance(plain, float) and not math.isfinite(plain):
        raise _Wrong(f"{plain} is not a finite number")
    if isinstance(plain, int) and abs(plain) > LARGEST:
        raise _Wrong("an integer beyond the range of floats")
    return plain


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        _refuse("true or false", value)
    return value


def _free(value: Any, depth: int = 0) -> Any:
    """Any JSON value; a tuple is written as a list."""
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool):
        return value
    if depth > MAX_DEPTH:
        raise _Wrong(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, Mapping):
        result = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise _Wrong(f"the key {key!r} is not text")
            try:
                result[_text(key)] = _free(item, depth + 1)
            except _Wrong as wrong:
                raise wrong.within(str(key)) from None
        return result
    if isinstance(value, (list, tuple)):
        return _items(lambda item: _free(item, depth + 1), value)
    if isinstance(value, Real):
        return _number(value)
    _refuse("a JSON value", value)


def _free_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        _refuse("an object", value)
    return _free(value)


def _items(convert: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    result = []
    for at, value in enumerate(values):
        try:
            result.append(convert(value))
        except _Wrong as wrong:
            raise wrong.within(f"[{at}]") from None
    return result


def _list(value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        _refuse("a list", value)
    return value


def _many(shape: Shape) -> Shape:
    return Shape(
        lambda values: _items(shape.write, _list(values)),
        lambda values: tuple(_items(shape.read, _list(values))),
    )


def _plain(convert: Callable[[Any], Any], kind: type) -> Shape:
    """Many numbers of one type; the common case costs no call per number."""

    def write(values: Any) -> list[Any]:
        same = set(map(type, _list(values))) <= {kind} and (
            kind is int or all(map(math.isfinite, values))
        )
        return list(values) if same else _items(convert, values)

    return Shape(write, lambda values: tuple(write(values)))


def _optional(shape: Shape) -> Shape:
    return Shape(
        lambda value: None if value is None else shape.write(value),
        lambda value: None if value is None else shape.read(value),
    )


def _by_agent(shape: Shape) -> Shape:
    def each(convert: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
        def run(value: Any) -> dict[str, Any]:
            if not isinstance(value, Mapping):
                _refuse("an object", value)
            result = {}
            for agent, item in value.items():
                try:
                    result[_text(agent)] = convert(item)
                except _Wrong as wrong:
                    raise wrong.within(str(agent)) from None
            return result

        return run

    return Shape(each(shape.write), each(shape.read))


def _record(kind: type, /, **shapes: Shape) -> Shape:
    """A dataclass as an object. A field that has a default may be absent, and is left out while
    it holds it."""
    defaults = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
    for f in fields(kind):
        if f.default_factory is not MISSING:
            defaults[f.name] = f.default_factory()
    plan = [
        (name, shape.write, shape.read, defaults.get(name, MISSING))
        for name, shape in shapes.items()
    ]

    def write(value: Any) -> dict[str, Any]:
        if not isinstance(value, kind):
            _refuse(f"a {kind.__name__}", value)
        result = {}
        for name, convert, _, default in plan:
            item = getattr(value, name)
            if item is default or (type(item) is type(default) and item == default):
                continue
            try:
                result[name] = convert(item)
            except _Wrong as wrong:
                raise wrong.within(name) from None
        return result

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            _refuse("an object", value)
        given = {}
        for name, _, convert, default in plan:
            if name in value:
                try:
                    given[name] = convert(value[name])
                except _Wrong as wrong:
                    raise wrong.within(name) from None
            elif default is MISSING:
                raise _Wrong("is missing").within(name)
        if not value.keys() <= shapes.keys():
            raise _Wrong(
                f"unknown key {min(value.keys() - shapes.keys())!r}; this kind of record has"
                f" {', '.join(shapes)}"
            )
        return kind(**given)

    return Shape(write, read)


TEXT, INTEGER, NUMBER, FLAG = (
    Shape(_text, _text),
    Shape(_integer, _integer),
    Shape(_number, _number),
    Shape(_flag, _flag),
)
FREE, FREE_OBJECT = Shape(_free, _free), Shape(_free_object, _free_object)
TEXTS, INTEGERS, NUMBERS = _many(TEXT), _plain(_integer, int), _plain(_number, float)

_TOOL_CALL = _record(ToolCall, id=TEXT, name=TEXT, arguments=FREE_OBJECT, repaired=TEXT)
_MALFORMED = _record(Malformed, text=TEXT, reason=TEXT)
_IMAGE = _record(Image, digest=TEXT, media_type=TEXT)
CALLS = _many(
    Shape(
        lambda call: (_MALFORMED if isinstance(call, Malformed) else _TOOL_CALL).write(call),
        lambda value: (
            _MALFORMED if isinstance(value, dict) and "reason" in value else _TOOL_CALL
        ).read(value),
    )
)
_PART = Shape(
    lambda part: _text(part) if isinstance(part, str) else _IMAGE.write(part),
    lambda value: _text(value) if isinstance(value, str) else _IMAGE.read(value),
)
_PARTS = _many(_PART)
CONTENT = Shape(
    lambda content: _text(content) if isinstance(content, str) else _PARTS.write(content),
    lambda value: _text(value) if isinstance(value, str) else _PARTS.read(value),
)
MESSAGE = _record(Message, content=CONTENT, sender=TEXT, tool_calls=CALLS, call_id=TEXT)
MESSAGES = _many(MESSAGE)
TOOL = _record(Tool, name=TEXT, description=TEXT, parameters=FREE_OBJECT)
ACTION = _record(Action, text=TEXT, tool_calls=CALLS, parsed=_optional(TEXT), cut=INTEGER)
_COUNT = _optional(INTEGER)
REPLY = _record(
    Reply,
    text=TEXT,
    tool_calls=CALLS,
    prompt_ids=INTEGERS,
    token_ids=INTEGERS,
    logprobs=NUMBERS,
    finish=TEXT,
    policy=TEXT,
    version=INTEGER,
    usage=_record(
        Usage,
        prompt_tokens=_COUNT,
        completion_tokens=_COUNT,
        cached_tokens=_COUNT,
        reasoning_tokens=_COUNT,
    ),
    attempts=_many(_record(Attempt, kind=TEXT, status=_COUNT, wait_s=NUMBER, detail=TEXT)),
    cut=INTEGER,
    reasoning=TEXT,
    model=TEXT,
)


ENDS: dict[str, End] = {str(end.value): end for end in End}


def _end(value: Any) -> End:
    if not isinstance(value, str) or value not in ENDS:
        raise _Wrong(f"{value!r} is not one of {', '.join(ENDS)}")
    return ENDS[value]


def _fork(value: Any) -> tuple[int, str]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        _refuse("a pair of step and seed", value)
    return _integer(value[0]), _text(value[1])


_OTHERS: dict[str, Shape] = {
    "scenario": TEXT,
    "version": INTEGER,
    "seed": INTEGER,
    "task": TEXT,
    "repeat": INTEGER,
    "group": _optional(TEXT),
    "cast": _by_agent(
        _record(
            Seat,
            behaviour=TEXT,
            policy=_optional(TEXT),
            options=FREE_OBJECT,
            privileged=FLAG,
            policies=_by_agent(TEXT),
        )
    ),
    "calls": _many(_record(CallResult, step=INTEGER, value=FREE, error=_optional(TEXT))),
    "forks": _many(Shape(lambda pair: list(_fork(pair)), _fork)),
    "final": _by_agent(MESSAGES),
    "ledger": _many(_record(Entry, step=INTEGER, agent=TEXT, value=NUMBER, why=TEXT)),
    "end": Shape(lambda end: _end(getattr(end, "value", end)).value, _end),
    "error": _optional(TEXT),
    "options": FREE_OBJECT,
}


class _Tools:
    """The distinct tools of one episode, numbered; turns that offer the same tuple share the
    work."""

    def __init__(self) -> None:
        self.known: list[dict[str, Any]] = []
        self._numbers: dict[str, int] = {}
        self._tuples: dict[int, list[int]] = {}

    def write(self, tools: Any) -> list[int]:
        numbers = self._tuples.get(id(tools))
        if numbers is None:
            numbers = self._tuples[id(tools)] = [
                self._number(tool) for tool in MESSAGE_TOOLS.write(tools)
            ]
        return numbers

    def _number(self, tool: dict[str, Any]) -> int:
        key = json.dumps(tool)
        if key not in self._numbers:
            self._numbers[key] = len(self.known)
            self.known.append(tool)
        return self._numbers[key]


MESSAGE_TOOLS = _many(TOOL)


def _turn_shape(tools: Shape) -> Shape:
    return _record(
        Turn,
        step=INTEGER,
        agent=TEXT,
        observed=MESSAGES,
        legal=_optional(TEXTS),
        tools=tools,
        action=ACTION,
        replies=_many(REPLY),
    )


def to_json(episode: Episode) -> dict[str, Any]:
    """The episode as a JSON object of plain values. Raises StoreError naming the field that JSON
    cannot hold."""
    data = _plain_values(episode)
    thin(data["turns"])
    return data


def _plain_values(episode: Episode) -> dict[str, Any]:
    """The object with every prompt in full."""
    tools = _Tools()
    turn = _turn_shape(Shape(tools.write, tools.write))
    data: dict[str, Any] = {"schema": SCHEMA, "id": list(episode.id)}
    try:
        for name, shape in _OTHERS.items():
            data[name] = _within(name, shape.write, getattr(episode, name))
        turns = _within("turns", _many(turn).write, episode.turns)
    except (_Wrong, RecursionError) as error:
        raise StoreError(
            f"episode {episode.task}, seed {episode.seed}, repeat {episode.repeat}: {_where(error)}"
        ) from None
    if tools.known:
        data["tools"] = tools.known
    data["turns"] = turns
    return data


def from_json(data: Any) -> Episode:
    """The episode out of `to_json`'s object. Raises StoreError naming the field, SchemaError for
    a newer schema."""
    try:
        return _from_json(data)
    except (_Wrong, RecursionError) as error:
        raise StoreError(_where(error)) from None


def _from_json(data: Any) -> Episode:
    if not isinstance(data, dict):
        _refuse("an object", data)
    check_schema(data)
    known = {"schema", "id", "tools", "turns", *_OTHERS}
    if not data.keys() <= known:
        raise _Wrong(f"unknown key {min(data.keys() - known)!r}")
    missing = [name for name in ("id", "turns", *_OTHERS) if name not in data]
    if missing:
        raise _Wrong("is missing").within(missing[0])
    offered = _within("tools", MESSAGE_TOOLS.read, data.get("tools", []))
    shared: dict[tuple[int, ...], tuple[Tool, ...]] = {}

    def tools(value: Any) -> tuple[Tool, ...]:
        numbers = INTEGERS.read(value)
        if numbers not in shared:
            if not all(0 <= number < len(offered) for number in numbers):
                raise _Wrong(f"names a tool that `tools` lacks; it has {len(offered)}")
            shared[numbers] = tuple(offered[number] for number in numbers)
        return shared[numbers]

    given = {name: _within(name, shape.read, data[name]) for name, shape in _OTHERS.items()}
    try:
        turns = whole(data["turns"])
    except ValueError as error:
        raise _Wrong(f"turns{error}") from None
    episode = Episode(
        turns=_within("turns", _many(_turn_shape(Shape(tools, tools))).read, turns), **given
    )
    if data["id"] != list(episode.id):
        raise _Wrong(f"{data['id']!r} is not (task, seed, repeat) = {list(episode.id)!r}").within(
            "id"
        )
    return episode


def _within(name: str, convert: Callable[[Any], Any], value: Any) -> Any:
    try:
        return convert(value)
    except _Wrong as wrong:
        raise wrong.within(name) from None


def _where(error: Exception) -> str:
    if isinstance(error, _Wrong):
        return f"{error.path}: {error.what}" if error.path else error.what
    return "nested too deep"


def check_schema(data: Mapping[str, Any]) -> None:
    """Raises SchemaError where `data` says that a newer gem_ma wrote it, StoreError where it
    names no schema."""
    schema = data.get("schema")
    if type(schema) is not int or schema < 1:
        raise StoreError(
            f"schema: expected a number from 1 to {SCHEMA}, got {schema!r}"
            if "schema" in data
            else "schema: is missing"
        )
    if schema > SCHEMA:
        raise SchemaError(
            f"schema {schema} is newer than {SCHEMA}, the newest that this gem_ma reads; install a"
            " newer gem_ma"
        )


# -- text ----------------------------------------------------------------------------------------

# legal in JSON, but other readers split lines or drive terminals with them
_SPLITTERS = re.compile("[\x7f-\x9f\u2028\u2029]")


def dump_json(data: Any) -> str:
    """Strict JSON on one line, keys in the order given. Raises StoreError for what JSON cannot
    hold."""
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"not writable as JSON: {error}") from None
    return (
        text
        if text.isascii() and "\x7f" not in text
        else _SPLITTERS.sub(lambda found: f"\\u{ord(found[0]):04x}", clean(text))
    )


def load_json(line: str | bytes, *, bounded: bool = False) -> Any:
    """Strict JSON: UTF-8, no NaN or Infinity, no duplicate key, no lone surrogate. Raises
    StoreError.

    `bounded`: integers too are such as a float can be, for whoever calculates with them.
    """
    try:
        text = line.decode("utf-8") if isinstance(line, (bytes, bytearray)) else line
        value = (_BOUNDED if bounded else _DECODER).decode(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        return value
    except UnicodeDecodeError as error:
        raise StoreError(f"not UTF-8 at byte {error.start}") from None
    except UnicodeEncodeError:
        raise StoreError("holds a lone surrogate, which is no text") from None
    except json.JSONDecodeError as error:
        raise StoreError(f"not JSON at character {error.pos}: {error.msg}") from None
    except RecursionError:
        raise StoreError("nested too deep") from None
    except ValueError as error:
        raise StoreError(f"not strict JSON: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate key {next(name for name in names if names.count(name) > 1)!r}")
    return result


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is too large for a float")
    return value


def _integer_within(digits: str) -> int:
    if len(digits) > FLOAT_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits is too large for a float")
    return int(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant, parse_float=_float)
_BOUNDED = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_constant=_constant,
    parse_float=_float,
    parse_int=_integer_within,
)


def dump_episode(episode: Episode) -> str:
    """The episode's line, without newline. The same episode gives the same bytes."""
    return dump_json(to_json(episode))


def load_episode(line: str | bytes) -> Episode:
    """The episode of one line; `load_episode(dump_episode(e)) == e`. Raises StoreError naming
    the field, SchemaError for a newer schema."""
    return from_json(load_json(line))


def digest(episode: Episode) -> str:
    """SHA-256 (hex) of the episode's canonical JSON without token counts, retries and names of
    servers: equal plays have equal digests."""
    data = _plain_values(episode)
    for turn in data["turns"]:
        for reply in turn.get("replies", ()):
            reply.pop("usage", None)
            reply.pop("attempts", None)
            reply.pop("model", None)
    return hashlib.sha256(
        json.dumps(data, sort_keys=True, allow_nan=False, separators=(",", ":")).encode()
    ).hexdigest()
