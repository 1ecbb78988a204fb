"""The options of a constructor: which it takes, whether a value fits, and those that belong
together as one value object, written flat in a config.

A constructor that takes `timeout_s`, `attempts`, `wall_s` and five more says what they are together
once, in a frozen dataclass, and takes that object. A config still writes the fields one by one,
and so may a call in Python. What reads a signature (the check of a config, `gem-ma list`, the
message with the nearest name) sees the fields, since they are what a user may write.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, fields, is_dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SEAT = frozenset({"agent", "sample", "rng", "task"})  # what a behaviour gets from the driver
# what an engine gets from the driver
ENGINE = frozenset({"name", "policy", "budget", "offline", "frozen"})
T = TypeVar("T")


def flat(constructor: Callable[..., T]) -> Callable[..., T]:
    """Lets a constructor take the fields of its value objects as keywords of their own.

    A value object is a parameter by keyword whose default is a dataclass instance. A field that a
    caller names replaces that of the object, which is the default where it is not passed; a field
    with the metadata `{"option": False}` is not an option. Raises TypeError for an object of
    another class, and on import where two parameters have one name.
    """
    signature = inspect.signature(constructor)
    objects = {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if is_dataclass(parameter.default) and not isinstance(parameter.default, type)
    }
    # a field belongs to one object: two objects with one name could not be told apart in a config
    holder = {entry.name: name for name, value in objects.items() for entry in _options(value)}

    @functools.wraps(constructor)
    def construct(*args: Any, **options: Any) -> T:
        changes: dict[str, dict[str, Any]] = {}
        for key in options.keys() & holder.keys():
            changes.setdefault(holder[key], {})[key] = options.pop(key)
        for name, default in objects.items():
            value = options.get(name, default)
            # None, say, would fail later and name nothing
            if not isinstance(value, type(default)):
                wanted = type(default).__name__
                raise TypeError(
                    f"{name} is an object of class {wanted}; got a {type(value).__name__}"
                )
            if name in changes:
                options[name] = replace(value, **changes[name])
        return constructor(*args, **options)

    # Both are what `inspect` and `typing` read of a function; __wrapped__ alone shows the objects.
    construct.__signature__ = _spread(signature, objects)  # type: ignore[attr-defined]
    hints = {key: hint for value in objects.values() for key, hint in _types(value).items()}
    construct.__annotations__ = {**constructor.__annotations__, **hints}
    return construct


def _spread(signature: inspect.Signature, objects: dict[str, Any]) -> inspect.Signature:
    """The signature with the fields of each object in its place."""
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        parameters += _fields(objects[name]) if name in objects else [parameter]
    return signature.replace(parameters=parameters)


def _fields(value: Any) -> list[inspect.Parameter]:
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(
            entry.name, kind, default=getattr(value, entry.name), annotation=entry.type
        )
        for entry in _options(value)
    ]


def _options(value: Any) -> list[Field[Any]]:
    return [entry for entry in fields(value) if entry.metadata.get("option", True)]


def _types(value: Any) -> dict[str, Any]:
    """Resolved here: the names in a dataclass's annotations are those of its own module."""
    hints = get_type_hints(type(value))
    return {entry.name: hints[entry.name] for entry in _options(value)}


def signature(
    factory: Callable[..., Any], fed: Iterable[str] = ()
) -> dict[str, inspect.Parameter] | None:
    """The parameters that options can set; None where they cannot be read."""
    try:
        parameters = dict(inspect.signature(factory).parameters)
    except (TypeError, ValueError):
        return None
    # `object` says (*args, **kwargs), and takes neither
    if isinstance(factory, type) and _constructor(factory) is object.__init__:
        return {}
    positional = [
        name
        for name, p in parameters.items()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if fed == SEAT:
        if not is_factory(factory):
            return {}
        fed = {*SEAT, *positional[:3]}  # which come in this order, whatever they are called
    return {name: parameter for name, parameter in parameters.items() if name not in fed}


def is_factory(player: Callable[..., Any]) -> bool:
    """Whether a callable makes behaviours: a class, or what takes `agent` first, a `task`, or
    anything (`*_, **__`). All others are plain, `f(messages, legal, rng)`."""
    if isinstance(player, type):
        return True
    parameters = inspect.signature(player).parameters
    if "task" in parameters or next(iter(parameters), "") == "agent":
        return True
    kinds = {parameter.kind for parameter in parameters.values()}
    return kinds == {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def _constructor(class_: Any) -> Any:
    return class_.__init__


def types_of(factory: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of the options that a constructor takes, as far as they can be resolved."""
    if isinstance(factory, partial):  # an adapter that has its id
        factory = factory.func
    try:
        return get_type_hints(_constructor(factory) if isinstance(factory, type) else factory)
    except Exception:  # names that exist for type checkers only
        return {}


def misfits(factory: Callable[..., Any], options: Mapping[str, Any]) -> Iterator[str]:
    """Each option that is not of the type that its constructor declares, in words."""
    hints = types_of(factory) if options else {}
    for name, value in options.items():
        if name in hints and (wrong := problem(value, hints[name])):
            yield f"{name} {wrong}"


def problem(value: Any, hint: Any) -> str:
    """What is wrong with an option's value by its annotation; "" where nothing is, or where the
    annotation is not plain data."""
    if hint is None or hint is Any:
        return ""
    if type(value) is hint and (hint in (bool, int) or (hint is str and value.isascii())):
        return ""
    # late: 0.1 s, and most scenarios are made without options, or with such plain ones
    from pydantic import ValidationError

    try:
        # as JSON: a list from YAML may fill a tuple or a set, which strict Python values may not
        text = json.dumps(value, default=_plain)
    except (AttributeError, TypeError, ValueError):  # an object, which no plain annotation means
        text = json.dumps(repr(value))
        if not {*(get_args(hint) or (hint,))} <= {int, float, bool, type(None)}:
            return ""
    try:
        _adapter(hint).validate_json(text, strict=True)
    except ValidationError as error:
        # a union has one problem for each of its members
        wants = " or ".join(
            dict.fromkeys(
                problem["msg"].removeprefix("Input should be ")
                for problem in error.errors(include_url=False)
            )
        )
        return f"should be {wants}; got {text[:60]}"
    except Exception:  # an annotation that pydantic has no schema for
        return ""
    return ""


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(hint)


def _plain(value: Any) -> Any:
    """A number of numpy as Python's, a path as text."""
    return os.fspath(value) if isinstance(value, os.PathLike) else value.item()
