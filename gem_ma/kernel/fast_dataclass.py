"""Frozen dataclasses that are made quickly.

`dataclass(frozen=True)` sets each field by a lookup of its name; a play makes six such records a
turn, which was a third of its time. Here the constructor writes to the slots themselves. The class
is otherwise what it was: frozen, compared and hashed by value.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from inspect import signature
from typing import Any, TypeVar

T = TypeVar("T")


def quick(cls: type[T]) -> type[T]:
    """Gives a `@dataclass(frozen=True, slots=True)` a quicker constructor of the same signature.

    Raises TypeError for what this constructor would leave out: a `__post_init__`, and whatever
    makes parameters other than the fields.
    """
    if reason := _unfit(cls):
        raise TypeError(f"{cls.__qualname__}: no quick constructor, since {reason}")
    cls.__init__ = _constructor(cls, "set_{0}(self, {0})")  # type: ignore[method-assign]
    return cls


def maker(cls: type[T]) -> type[T]:
    """What makes records of a class that is `quick` in two thirds of the time: a class of the same
    slots, not frozen, whose instances become records of `cls` as soon as they are filled."""
    twin = type(cls.__name__, (), {"__slots__": cls.__slots__})  # type: ignore[attr-defined]
    fill = _constructor(cls, "self.{0} = {0}", "self.__class__ = cls")
    twin.__init__ = fill  # type: ignore[misc]
    return twin


def _constructor(cls: type, line: str, last: str = "pass") -> Any:
    """The function that does this `line` for each field, then the `last` one."""
    names: dict[str, Any] = {"cls": cls}
    parameters = ["self"]
    lines = []
    for field in fields(cls):
        default = ""
        if field.default is not MISSING:
            names[f"default_{field.name}"] = field.default
            default = f"=default_{field.name}"
        elif field.default_factory is not MISSING:
            # the mark that `dataclass` itself shows in its signature
            names[f"default_{field.name}"] = signature(cls).parameters[field.name].default
            names[f"make_{field.name}"] = field.default_factory
            default = f"=default_{field.name}"
            lines.append(f"    if {field.name} is default_{field.name}:")
            lines.append(f"        {field.name} = make_{field.name}()")
        names[f"set_{field.name}"] = getattr(cls, field.name).__set__  # of the slot
        parameters.append(field.name + default)
        lines.append("    " + line.format(field.name))
    # the names of our own fields, and nothing else, stand in this source
    source = f"def __init__({', '.join(parameters)}):\n" + "\n".join([*lines, f"    {last}"])
    exec(source, names)
    made = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    # the annotations of the old one, for whoever reads the signature
    made.__annotations__ = vars(cls)["__init__"].__annotations__
    return made


def _unfit(cls: type) -> str:
    """Why the constructor of `dataclass` does more than to fill slots from its parameters; "" if
    it does not."""
    if not is_dataclass(cls) or "__slots__" not in vars(cls):
        return "it is not a dataclass with slots"
    if hasattr(cls, "__post_init__"):
        return "it has a __post_init__"
    # not so with init=False, kw_only and InitVar
    taken = [*signature(cls).parameters.values()]
    plain = [each.name for each in taken if each.kind is each.POSITIONAL_OR_KEYWORD]
    if plain != [field.name for field in fields(cls)]:
        return "its parameters are not its fields"
    return ""
