"""Shapes: how one type of value is written to JSON and read from it, both ways with the same
checks.

A shape is put together from smaller ones (`many`, `optional`, `by_agent`, `record`). What does not
fit raises `Wrong`, which names the path to the value. Which records there are is said in
`gem_ma.record.codec`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, replace
from numbers import Real
from typing import Any, NamedTuple, NoReturn

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.types import Content, Image, Message

MAX_DEPTH = 64  # of free JSON values: tool arguments, call results, options
LARGEST = 10**300  # of numbers that somebody calculates with
Convert = Callable[[Any], Any]


class Wrong(Exception):
    """A value that does not fit, with the path to it that grows on the way up."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path = ""

    def within(self, part: str) -> Wrong:
        """Itself, with the path of what holds the value in front."""
        self.path = part + ("." if self.path and not self.path.startswith("[") else "") + self.path
        return self


class Shape(NamedTuple):
    """How one type of value is written and read; both directions check."""

    write: Convert
    read: Convert


def refuse(expected: str, value: Any) -> NoReturn:
    """Raises Wrong for a value of another type."""
    kind = "null" if value is None else type(value).__name__
    raise Wrong(f"expected {expected}, got {kind}")


def within(name: str, convert: Convert, value: Any) -> Any:
    """The value converted; what is wrong in it is said to lie in the field `name`."""
    try:
        return convert(value)
    except Wrong as wrong:
        raise wrong.within(name) from None


# -- single values --------------------------------------------------------------------------------


def text(value: Any) -> str:
    """Text without lone surrogates, which UTF-8 cannot hold."""
    if not isinstance(value, str):
        refuse("text", value)
    return clean(value)


def integer(value: Any) -> int:
    """An integer; numpy's own become Python's, which json can write."""
    if type(value) is int:
        return value
    # a bool is an int in Python, but in a record it is a mistake
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        refuse("an integer", value)
    return operator.index(value)


def number(value: Any) -> int | float:
    """A finite number in the range of floats."""
    if isinstance(value, bool) or not isinstance(value, Real):
        refuse("a number", value)
    python_number: int | float
    if isinstance(value, (int, float)):
        python_number = value
    else:
        python_number = operator.index(value) if hasattr(value, "__index__") else float(value)
    if isinstance(python_number, float) and not math.isfinite(python_number):
        raise Wrong(f"{python_number} is not a finite number")
    # JSON's integers have no bound, but whoever adds this one to a float would fail
    if isinstance(python_number, int) and abs(python_number) > LARGEST:
        raise Wrong("an integer beyond the range of floats")
    return python_number


def flag(value: Any) -> bool:
    """True or false."""
    if type(value) is not bool:
        refuse("true or false", value)
    return value


def free(value: Any, depth: int = 0) -> Any:
    """Any JSON value; a tuple is written as a list."""
    if isinstance(value, str):
        return text(value)
    if value is None or isinstance(value, bool):
        return value
    # far below Python's own limit, so that every other reader can read it too
    if depth > MAX_DEPTH:
        raise Wrong(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, Mapping):
        result = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise Wrong(f"the key {key!r} is not text")
            try:
                result[text(key)] = free(item, depth + 1)
            except Wrong as wrong:
                raise wrong.within(str(key)) from None
        return result
    if isinstance(value, (list, tuple)):
        return _items(lambda item: free(item, depth + 1), value)
    if isinstance(value, Real):
        return number(value)
    refuse("a JSON value", value)


def free_object(value: Any) -> dict[str, Any]:
    """Any JSON object."""
    if not isinstance(value, Mapping):
        refuse("an object", value)
    return free(value)


# -- put together ---------------------------------------------------------------------------------


def _items(convert: Convert, values: Iterable[Any]) -> list[Any]:
    result = []
    for place, value in enumerate(values):
        try:
            # the path is put together only where something is wrong: it costs nothing else
            result.append(convert(value))
        except Wrong as wrong:
            raise wrong.within(f"[{place}]") from None
    return result


def _list(value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        refuse("a list", value)
    return value


def many(shape: Shape) -> Shape:
    """A tuple of values of one shape, as a list."""
    return Shape(
        lambda values: _items(shape.write, _list(values)),
        lambda values: tuple(_items(shape.read, _list(values))),
    )


def many_numbers(convert: Convert, kind: type) -> Shape:
    """Many numbers of one type; the common case costs no call per number."""

    def write(values: Any) -> list[Any]:
        same = set(map(type, _list(values))) <= {kind}
        if same and (kind is int or all(map(math.isfinite, values))):
            return list(values)
        return _items(convert, values)  # which names the one that is wrong

    return Shape(write, lambda values: tuple(write(values)))


def optional(shape: Shape) -> Shape:
    """The shape, or null."""
    return Shape(
        lambda value: None if value is None else shape.write(value),
        lambda value: None if value is None else shape.read(value),
    )


def text_or(shape: Shape) -> Shape:
    """Text, or what the shape says."""
    return Shape(
        lambda value: text(value) if isinstance(value, str) else shape.write(value),
        lambda value: text(value) if isinstance(value, str) else shape.read(value),
    )


def by_agent(shape: Shape) -> Shape:
    """An object of values of one shape; its keys are names of agents."""

    def each(convert: Convert) -> Convert:
        # one function for both ways: only the conversion of the items differs
        def run(value: Any) -> dict[str, Any]:
            if not isinstance(value, Mapping):
                refuse("an object", value)
            result = {}
            for agent, item in value.items():
                try:
                    result[text(agent)] = convert(item)
                except Wrong as wrong:
                    raise wrong.within(str(agent)) from None
            return result

        return run

    return Shape(each(shape.write), each(shape.read))


class _Field(NamedTuple):
    name: str
    shape: Shape
    default: Any  # MISSING where the field must be there


def record(kind: type, /, **shapes: Shape) -> Shape:
    """A dataclass as an object. A field that has a default may be absent, and is left out while
    it holds it."""
    # A factory's default is made once: it is compared with, never handed out.
    defaults: dict[str, Any] = {}
    for field in fields(kind):
        if field.default is not MISSING:
            defaults[field.name] = field.default
        elif field.default_factory is not MISSING:
            defaults[field.name] = field.default_factory()
    plan = [_Field(name, shape, defaults.get(name, MISSING)) for name, shape in shapes.items()]
    return Shape(_writer(kind, plan), _reader(kind, plan))


def _writer(kind: type, plan: list[_Field]) -> Convert:
    # plain tuples: this loop runs for every record of a run
    steps = [(field.name, field.shape.write, field.default) for field in plan]

    def write(value: Any) -> dict[str, Any]:
        if not isinstance(value, kind):
            refuse(f"a {kind.__name__}", value)
        result = {}
        for name, convert, default in steps:
            item = getattr(value, name)
            # by type too: 0 == False == 0.0, and a reader would get the wrong one back
            if item is default or (type(item) is type(default) and item == default):
                continue
            try:
                result[name] = convert(item)
            except Wrong as wrong:
                raise wrong.within(name) from None
        return result

    return write


def _reader(kind: type, plan: list[_Field]) -> Convert:
    steps = [(field.name, field.shape.read, field.default) for field in plan]
    names = {field.name for field in plan}

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            refuse("an object", value)
        values = {}
        for name, convert, default in steps:
            if name in value:
                try:
                    values[name] = convert(value[name])
                except Wrong as wrong:
                    raise wrong.within(name) from None
            elif default is MISSING:
                raise Wrong("is missing").within(name)
        if not value.keys() <= names:  # a typing error, or a field of a newer version
            raise Wrong(
                f"unknown key {min(value.keys() - names)!r}; this kind of record has"
                f" {', '.join(field.name for field in plan)}"
            )
        return kind(**values)

    return read


# The images of episodes: a line of a record names them by digest, and whoever learns from a record
# that was read needs their bytes again. Knows records; knows neither files nor engines.


Messages = tuple[Message, ...]


def images_in(messages: Iterable[Message]) -> Iterator[Image]:
    """The images of these messages, in their order."""
    for message in messages:
        if not isinstance(message.content, str):
            yield from (part for part in message.content if isinstance(part, Image))


def shown_in(episode: Episode) -> Iterator[Image]:
    """All images that agents were shown in a play, also at its end."""
    for turn in episode.turns:
        yield from images_in(turn.observed)
    for messages in episode.final.values():
        yield from images_in(messages)


def with_bytes(episode: Episode, bytes_of: Callable[[str], bytes]) -> Episode:
    """The episode with the bytes of its images; `bytes_of(digest)` gives them."""
    if not any(not image.data for image in shown_in(episode)):
        return episode
    turns = tuple(
        replace(turn, observed=_filled(turn.observed, bytes_of)) for turn in episode.turns
    )
    final = {agent: _filled(messages, bytes_of) for agent, messages in episode.final.items()}
    return replace(episode, turns=turns, final=final)


def _filled(messages: Messages, bytes_of: Callable[[str], bytes]) -> Messages:
    def part(content: str | Image) -> str | Image:
        if isinstance(content, str) or content.data:
            return content
        return replace(content, data=bytes_of(content.digest))

    def content(whole: Content) -> Content:
        return whole if isinstance(whole, str) else tuple(map(part, whole))

    return tuple(replace(message, content=content(message.content)) for message in messages)
