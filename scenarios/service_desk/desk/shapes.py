"""The types of JSON records as data: a shape takes (where a value stands, the value) and gives the
typed value, or says what is wrong with it.

    order = record(id=text, price=number, note=Optional(text))
    order("orders[0]", {"id": "W1", "price": 5})  ->  {"id": "W1", "price": 5.0, "note": None}

A shape makes new objects, fills what is optional with null and leaves out what it does not know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Shape = Callable[[str, Any], Any]
# bool first: it is an int in Python.
_NAMES = (
    (bool, "true or false"),
    (str, "a text"),
    ((int, float), "a number"),
    (Mapping, "an object"),
    (list, "a list"),
)


class ShapeError(ValueError):
    """A value has not the shape it needs; the text says where it stands, what was expected and
    what there is."""


def kind(value: Any) -> str:
    """A JSON value's type in words."""
    return (
        "null"
        if value is None
        else next(
            (name for types, name in _NAMES if isinstance(value, types)), type(value).__name__
        )
    )


def key_text(key: str) -> str:
    """A key as a part of a path: on one line, whatever it holds."""
    # A key may hold a newline, and a message is one line.
    return key if key.isprintable() else ascii(key)


def wrong(where: str, expected: str, value: Any) -> ShapeError:
    """The fault of a value."""
    return ShapeError(f"{where}: expected {expected}, got {kind(value)}")


def text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong(where, "a text", value)
    return value


def number(where: str, value: Any) -> float:
    """Always a float, and finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong(where, "a number", value)
    try:
        amount = float(value)
    # JSON allows integers that no float holds.
    except OverflowError:
        amount = math.inf
    if not math.isfinite(amount):
        raise ShapeError(f"{where}: expected a number, got one that is not finite")
    return amount


def flag(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise wrong(where, "true or false", value)
    return value


def anything(where: str, value: Any) -> Any:
    return value


def mapping(where: str, value: Any) -> dict[str, Any]:
    """An object of whatever it holds."""
    if not isinstance(value, Mapping):
        raise wrong(where, "an object", value)
    return dict(value)


def one_of(*choices: str) -> Shape:
    def read(where: str, value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ShapeError(
                f"{where}: expected one of {', '.join(choices)}; got {value!r}"
                if isinstance(value, str)
                else str(wrong(where, "a text", value))
            )
        return value

    return read


@dataclass(frozen=True, slots=True)
class Optional:
    """The shape, or `default` where the field is null or missing."""

    shape: Shape
    default: Any = None

    def __call__(self, where: str, value: Any) -> Any:
        return self.default if value is None else self.shape(where, value)


def listed(shape: Shape) -> Shape:
    def read(where: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise wrong(where, "a list", value)
        return [shape(f"{where}[{place}]", item) for place, item in enumerate(value)]

    return read


def keyed(shape: Shape) -> Shape:
    """An object whose values all have this shape."""

    def read(where: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise wrong(where, "an object", value)
        return {key: shape(f"{where}.{key_text(key)}", item) for key, item in value.items()}

    return read


def record(**fields: Shape) -> Shape:
    """An object with these fields in this order."""

    def read(where: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise wrong(where, "an object", value)
        # A field that may be null may be missing too.
        for name, shape in fields.items():
            if name not in value and not isinstance(shape, Optional):
                raise ShapeError(f"{where}: the field {name} is missing")
        # Rebuilt: in the order of the shape, and without what it does not know.
        return {name: shape(f"{where}.{name}", value.get(name)) for name, shape in fields.items()}

    return read
