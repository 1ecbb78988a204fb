"""Options that belong together as one value object, written flat in a config.

A constructor that takes `timeout_s`, `attempts`, `wall_s` and five more says what they are together
once, in a frozen dataclass, and takes that object. A config still writes the fields one by one,
and so may a call in Python. What reads a signature (the check of a config, `gem-ma list`, the
message with the nearest name) sees the fields, since they are what a user may write.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass, replace
from typing import Any, TypeVar, get_type_hints

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
