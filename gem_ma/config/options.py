"""Options of a config against the parameters of the constructor that gets them: unknown keys,
missing ones, values of another type than the annotation says."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from gem_ma.config.document import Document, Keys
from gem_ma.kernel.spelling import nearest

SEAT = frozenset({"agent", "sample", "rng", "task"})  # what a behaviour gets from the driver
# what an engine gets from the driver
ENGINE = frozenset({"name", "policy", "budget", "offline", "frozen"})


def check_options(
    document: Document,
    path: Keys,
    options: dict[str, Any],
    factory: Callable[..., Any],
    fed: frozenset[str],
    fields: Iterable[str],
) -> bool:
    """Compares options with the parameters of a constructor, less those that the driver feeds.
    True where nothing is wrong."""
    parameters = signature(factory, fed)
    if parameters is None:
        return True
    before = len(document.faults)
    # what a constructor takes as **options it checks itself
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    named = {
        name: p
        for name, p in parameters.items()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    hints = _hints(factory)
    for key, value in options.items():
        if key in named:
            problem = _type_problem(value, hints.get(key))
            if problem:
                document.fault((*path, key), problem)
        elif not open_ended:
            document.fault(
                (*path, key),
                f"unknown key{nearest(key, [*named, *fields]) or ' (it takes no options)'}",
            )
    for name, parameter in named.items():
        # names of *args and **kwargs have no default either, and are not in `named`
        if parameter.default is parameter.empty and name not in options:
            document.fault((*path, name), "is missing; it has no default")
    return len(document.faults) == before


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
    if fed == SEAT and positional and positional[0] != "agent":
        return {}  # a plain f(messages, legal, rng)
    return {name: parameter for name, parameter in parameters.items() if name not in fed}


def _constructor(class_: Any) -> Any:
    return class_.__init__


def _hints(factory: Callable[..., Any]) -> dict[str, Any]:
    if isinstance(factory, partial):  # an adapter that has its id
        factory = factory.func
    try:
        return get_type_hints(_constructor(factory) if isinstance(factory, type) else factory)
    except Exception:  # names that exist for type checkers only
        return {}


def _type_problem(value: Any, hint: Any) -> str:
    """What is wrong with an option's value by its annotation; "" where nothing is, or where the
    annotation is not plain data."""
    if hint is None or hint is Any:
        return ""
    try:
        adapter = TypeAdapter(hint)
    except Exception:  # an annotation that pydantic knows no schema for
        return ""
    try:
        # as JSON: a list from YAML may fill a tuple or a set, which strict Python values may not
        adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        # a union has one problem for each of its members
        wants = " or ".join(
            dict.fromkeys(
                problem["msg"].removeprefix("Input should be ")
                for problem in error.errors(include_url=False)
            )
        )
        return f"should be {wants}; got {json.dumps(value)[:60]}"
    return ""
