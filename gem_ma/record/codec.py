"""Records <-> JSON: one episode is one line. It knows the records of `gem_ma.kernel.episode` and
nothing of files.

A line is of schema 2 (`gem_ma.record.structs`), or of schema 1 in a folder that was begun in it.
The shapes here say what a line of schema 1 holds, and are the second look at one of schema 2.

What is written can always be read back: the same shapes (`gem_ma.record.shapes`) check a value on
its way out and on its way in. A field that holds its default is left out; the tools that a play
offers stand once per episode (`tools`) and a turn names them by number, and so do the ids of a
conversation (`gem_ma.record.token_chains`). Image bytes are not part of a line, only their digest.
Reading is strict: NaN, Infinity, duplicate or unknown keys, wrong types and lone surrogates are
errors that name the field.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import SchemaError, StoreError
from gem_ma.kernel.parsing.strict_json import dump_json, load_json
from gem_ma.kernel.types import Malformed, Reply, Tool, ToolCall, Turn
from gem_ma.record import choices, structs
from gem_ma.record import token_chains as conversations
from gem_ma.record.shapes import (
    Convert,
    Shape,
    Wrong,
    by_agent,
    flag,
    free,
    free_object,
    integer,
    many,
    many_numbers,
    number,
    optional,
    record,
    refuse,
    text,
    text_or,
    within,
)

# raised when old readers would read a line wrongly, not for a field with a default
SCHEMA = structs.SCHEMA
PLAIN = 1  # of an object of plain values, and of lines of older folders

ENDS: dict[str, End] = {str(end.value): end for end in End}


def _end(value: Any) -> End:
    if not isinstance(value, str) or value not in ENDS:
        raise Wrong(f"{value!r} is not one of {', '.join(ENDS)}")
    return ENDS[value]


def _fork(value: Any) -> tuple[int, str]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        refuse("a pair of step and seed", value)
    return integer(value[0]), text(value[1])


def _write_call(call: Any) -> Any:
    return shape_of(Malformed if isinstance(call, Malformed) else ToolCall).write(call)


def _read_call(value: Any) -> Any:
    if not isinstance(value, dict) or "kind" not in value:
        # of schema 1: one that could not be read is told by its reason, which no other has
        is_malformed = isinstance(value, dict) and "reason" in value
        return shape_of(Malformed if is_malformed else ToolCall).read(value)
    rest = {name: part for name, part in value.items() if name != "kind"}
    for kind in (ToolCall, Malformed):
        if value["kind"] == kind.kind:
            return shape_of(kind).read(rest)
    raise Wrong(f"{value['kind']!r} is not {ToolCall.kind} or {Malformed.kind}").within("kind")


# what annotations of the kernel's records mean in a line
_SHAPES: dict[Any, Shape] = {
    str: Shape(text, text),
    int: Shape(integer, integer),
    float: Shape(number, number),
    bool: Shape(flag, flag),
    Any: Shape(free, free),
    # ids and log-probabilities: most of the bytes of a run that trains
    tuple[int, ...]: many_numbers(integer, int),
    tuple[float, ...]: many_numbers(number, float),
    tuple[int, str]: Shape(lambda pair: list(_fork(pair)), _fork),
    End: Shape(lambda end: _end(getattr(end, "value", end)).value, _end),
    ToolCall | Malformed: Shape(_write_call, _read_call),
}


def shape_of(kind: Any) -> Shape:
    """The shape of values of this annotation; of a dataclass an object of its fields."""
    if kind not in _SHAPES:
        _SHAPES[kind] = _shape_of(kind)
    return _SHAPES[kind]


def _shape_of(kind: Any) -> Shape:
    if isinstance(kind, type) and is_dataclass(kind):
        return record(kind, **_field_shapes(kind))
    of = get_args(kind)
    origin = get_origin(kind)
    if origin is tuple:
        return many(shape_of(of[0]))
    if origin in (dict, Mapping):
        return Shape(free_object, free_object) if of[1] is Any else by_agent(shape_of(of[1]))
    # a union of two: with null, or of text and something else
    rare = shape_of(of[0] if of[1] is type(None) else of[1])
    return optional(rare) if type(None) in of else text_or(rare)


def _field_shapes(kind: Any) -> dict[str, Shape]:
    hints = get_type_hints(kind)
    # an image's bytes are not part of a line
    names = [field.name for field in fields(kind) if hints[field.name] is not bytes]
    return {name: shape_of(hints[name]) for name in names}


REPLY = shape_of(Reply)
# of an Episode all but `turns`, whose tools stand once for all
_OTHERS = {name: shape for name, shape in _field_shapes(Episode).items() if name != "turns"}
# written where they say something: lines of a run of one scenario stay as they always were
_SOMETIMES: dict[str, tuple[Shape, Any]] = {
    "world": (_OTHERS.pop("world"), ""),
    "cut": (_OTHERS.pop("cut"), []),
}
_TURN = _field_shapes(Turn)
# a play offers the same tools at every turn, so they stand once in its line
_TOOLS = _TURN["tools"]


class _Tools:
    """The distinct tools of one episode, numbered; turns that offer the same tuple share the
    work."""

    def __init__(self) -> None:
        self.known: list[dict[str, Any]] = []
        self._numbers: dict[str, int] = {}
        self._tuples: dict[int, list[int]] = {}  # by id(): the episode outlives this object

    def write(self, tools: Any) -> list[int]:
        numbers = self._tuples.get(id(tools))
        if numbers is None:
            numbers = self._tuples[id(tools)] = [self._number(tool) for tool in _TOOLS.write(tools)]
        return numbers

    def _number(self, tool: dict[str, Any]) -> int:
        # by content: each turn may make its tools anew
        key = json.dumps(tool)
        if key not in self._numbers:
            self._numbers[key] = len(self.known)
            self.known.append(tool)
        return self._numbers[key]


def _once(convert: Convert) -> Convert:
    """The same object converted once: a play mostly offers the very tuple that it offered
    before, and that may have 10,000 strings."""
    converted: dict[int, tuple[Any, Any]] = {}  # by id(); the object is held, so that it stays one

    def once(value: Any) -> Any:
        if id(value) not in converted:
            converted[id(value)] = (value, convert(value))
        return converted[id(value)][1]

    return once


def _turn_shape(tools: Shape) -> Shape:
    legal = Shape(_once(_TURN["legal"].write), _once(_TURN["legal"].read))
    return record(Turn, **{**_TURN, "legal": legal, "tools": tools})


def to_json(episode: Episode) -> dict[str, Any]:
    """The episode as a JSON object of plain values, which is of schema 1. Raises StoreError
    naming the field that JSON cannot hold."""
    data = _plain_values(episode)
    conversations.thin(data["turns"])
    choices.thin(data["turns"])
    return data


def _plain_values(episode: Episode) -> dict[str, Any]:
    """The object with every prompt in full."""
    tools = _Tools()
    turn = _turn_shape(Shape(tools.write, tools.write))
    # schema and id first: a reader of ids looks at the beginning of a line alone
    data: dict[str, Any] = {"schema": PLAIN, "id": list(episode.id)}
    try:
        for name, shape in _OTHERS.items():
            data[name] = within(name, shape.write, getattr(episode, name))
        for name, (shape, _) in _SOMETIMES.items():
            if value := getattr(episode, name):
                data[name] = within(name, shape.write, value)
        turns = within("turns", many(turn).write, episode.turns)
    except (Wrong, RecursionError) as error:
        raise StoreError(
            f"episode {episode.id[0]}, seed {episode.seed}, repeat {episode.repeat}:"
            f" {_where(error)}"
        ) from None
    if tools.known:
        data["tools"] = tools.known
    data["turns"] = turns
    return data


def from_json(data: Any) -> Episode:
    """The episode out of `to_json`'s object, or of that of a line of any schema. Raises StoreError
    naming the field, SchemaError for a newer schema."""
    try:
        return _from_json(data)
    except (Wrong, RecursionError) as error:
        raise StoreError(_where(error)) from None


def _from_json(data: Any) -> Episode:
    if not isinstance(data, dict):
        refuse("an object", data)
    # before the fields: of a newer schema they may be others
    check_schema(data)
    known = {"schema", "id", "tools", "turns", *_SOMETIMES, *_OTHERS}
    if not data.keys() <= known:
        raise Wrong(f"unknown key {min(data.keys() - known)!r}")
    # all of them, even those with a default: a line is written whole or not at all
    missing = [name for name in ("id", "turns", *_OTHERS) if name not in data]
    if missing:
        raise Wrong("is missing").within(missing[0])
    offered = within("tools", _TOOLS.read, data.get("tools", []))
    shared: dict[tuple[int, ...], tuple[Tool, ...]] = {}

    def tools(value: Any) -> tuple[Tool, ...]:
        numbers = shape_of(tuple[int, ...]).read(value)
        # one tuple for all turns that offer the same, as it was when they were written
        if numbers not in shared:
            if not all(0 <= number < len(offered) for number in numbers):
                raise Wrong(f"names a tool that `tools` lacks; it has {len(offered)}")
            shared[numbers] = tuple(offered[number] for number in numbers)
        return shared[numbers]

    others = {name: within(name, shape.read, data[name]) for name, shape in _OTHERS.items()}
    for name, (shape, nothing) in _SOMETIMES.items():
        others[name] = within(name, shape.read, data.get(name, nothing))
    try:
        # prompts in full again, before their shapes look at them
        turns = data["turns"] if data["schema"] == PLAIN else _as_plain(data["turns"])
        turns = choices.whole(conversations.whole(turns))
    except ValueError as error:
        raise Wrong(f"turns{error}") from None
    turn = _turn_shape(Shape(tools, tools))
    episode = Episode(turns=within("turns", many(turn).read, turns), **others)
    # the id stands in the line for readers that do not read the rest; it may not lie
    if data["id"] != list(episode.id):
        raise Wrong(f"{data['id']!r} is not (task, seed, repeat) = {list(episode.id)!r}").within(
            "id"
        )
    return episode


def _as_plain(turns: Any) -> Any:
    """Turns of schema 2 as schema 1 says them, every packed number as it is; other damage stays
    as it is. Raises Wrong."""
    if not isinstance(turns, list):
        return turns
    result = []
    for index, turn in enumerate(turns):
        if isinstance(turn, dict):
            turn = {"legal": None, "tools": [], **turn}
            if isinstance(turn.get("replies"), list):
                turn["replies"] = [
                    within(f"turns[{index}].replies[{number}]", _unpacked_reply, reply)
                    for number, reply in enumerate(turn["replies"])
                ]
        result.append(turn)
    return result


def _unpacked_reply(reply: Any) -> Any:
    if isinstance(reply, dict):
        for name, kinds in structs.PACKED.items():
            if isinstance(reply.get(name), dict):
                reply = {**reply, name: within(name, partial(_numbers, kinds=kinds), reply[name])}
    return reply


def _numbers(value: dict[str, Any], kinds: tuple[str, ...]) -> list[Any]:
    try:
        return list(structs.unpacked(msgspec.convert(value, structs.Packed), kinds))
    except structs.UNFIT:
        raise Wrong(f'expected {{"of": {" or ".join(kinds)}, "base64": whole numbers}}') from None


def _where(error: Exception) -> str:
    if isinstance(error, Wrong):
        return f"{error.path}: {error.what}" if error.path else error.what
    return "nested too deep"


def check_schema(data: Mapping[str, Any], newest: int = SCHEMA) -> None:
    """Raises SchemaError where `data` says that a newer gem_ma wrote it, StoreError where it
    names no schema."""
    schema = data.get("schema")
    if type(schema) is not int or schema < 1:
        raise StoreError(
            f"schema: expected a number from 1 to {newest}, got {schema!r}"
            if "schema" in data
            else "schema: is missing"
        )
    # newer fields may change what the known ones mean, so nothing is guessed
    if schema > newest:
        raise SchemaError(
            f"schema {schema} is newer than {newest}, the newest that this gem_ma reads; install a"
            " newer gem_ma"
        )


def dump_episode(episode: Episode, schema: int = SCHEMA) -> str:
    """The episode's line, without newline, of schema 1 or 2. The same episode gives the same
    bytes. Raises StoreError naming the field that JSON cannot hold."""
    if schema == PLAIN:
        return dump_json(to_json(episode))
    line = structs.write(episode)
    if line is None:
        # numbers of numpy, read-only mappings, lone surrogates: as a line holds them, or refused
        line = structs.write(_from_json(_plain_values(episode)), sure=True)
    if line is None:
        raise StoreError(f"episode {episode.id[0]}, seed {episode.seed}: not writable as JSON")
    return line.decode()


def schema_of(line: bytes) -> int:
    """That of a line, from its beginning: 1, or the newest, which also is that of a line to
    come."""
    return PLAIN if line.startswith(b'{"schema":1,') else SCHEMA


def load_episode(line: str | bytes) -> Episode:
    """The episode of one line of any schema; `load_episode(dump_episode(e)) == e`. Raises
    StoreError naming the field, SchemaError for a newer schema."""
    try:
        data = line.encode() if isinstance(line, str) else line
    except UnicodeEncodeError:
        raise StoreError("holds a lone surrogate, which is not text") from None
    if data.startswith(_BEGINS) and (episode := structs.read(data)) is not None:
        return episode
    return from_json(load_json(line))


_BEGINS = f'{{"schema":{SCHEMA},'.encode()


def digest(episode: Episode) -> str:
    """SHA-256 (hex) of the episode's canonical JSON without token counts, retries and names of
    servers: equal plays have equal digests."""
    # every prompt in full: how a line saves room is not part of what was played
    data = _plain_values(episode)
    for turn in data["turns"]:
        for reply in turn.get("replies", ()):
            # what a server counts and how often it failed say nothing of the play
            reply.pop("usage", None)
            reply.pop("attempts", None)
            reply.pop("model", None)
            # a packed 0 is 0.0
            if "logprobs" in reply:
                reply["logprobs"] = list(map(float, reply["logprobs"]))
    # keys sorted: the order in which a scenario names things is not part of what was played
    return hashlib.sha256(
        json.dumps(data, sort_keys=True, allow_nan=False, separators=(",", ":")).encode()
    ).hexdigest()
