"""Whether a method of a library can do nothing to the process around it, told by its bytecode.

A guest's turn (`guest.py`) saves and puts back the random states of the process, which takes
longer than most graders do. One that only computes needs no such turn: it reaches nothing that
draws, prints, imports, evaluates, or is kept for the next call. In doubt a method is impure, and
nothing is lost but time.
"""

from __future__ import annotations

import builtins
import dis
import re
import sys
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from random import Random
from types import CodeType, FunctionType, ModuleType, NoneType
from typing import Any

_COMPUTING = (
    "abs all any bool chr complex dict divmod enumerate filter float frozenset getattr hasattr int"
    " isinstance issubclass iter len list map max min next object ord pow property range repr"
    " reversed round set slice sorted staticmethod str sum super tuple type zip"
)
_KNOWN = (
    "__future__ _decimal cmath collections copy dataclasses datetime decimal enum fractions"
    " functools itertools json math numbers operator re string typing"
)
_BUILTINS = frozenset(_COMPUTING.split())
_MODULES = frozenset(_KNOWN.split())
_CONSTANTS = (NoneType, bool, int, float, complex, str, bytes, re.Pattern)
# of what code computes with: a method of another name is some object's own, and may do anything
_PLAIN = (str, bytes, float, complex, list, dict, set, Counter, deque, datetime, Decimal, Fraction)
_METHODS = {name for kind in (*_PLAIN, re.Pattern, re.Match, Random) for name in dir(kind)}


def is_pure(function: Any, owner: type) -> bool:
    """Whether a method of this class, and all that it may call, only computes. Each name in its
    code is looked up where the code would find it. An attribute is the owner's, where the owner
    has one of that name."""
    # one that is wrapped, cached or compiled shows no bytecode of its own
    return isinstance(function, FunctionType) and _pure(function, owner, set())


def _pure(function: FunctionType, owner: type, seen: set[Any]) -> bool:
    if function in seen:
        return True
    seen.add(function)
    module: ModuleType | None = None  # one of the library's, of which a name is read next
    for step in _instructions(function.__code__):
        name = step.argval
        place = module
        module = None
        value: Any = None
        if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_STAR"):
            return False
        if step.opname == "IMPORT_NAME" and not _is_known(name):
            return False
        if step.opname == "STORE_ATTR" and function.__name__ != "__init__":
            return False
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            value = function.__globals__.get(name)
            if name not in function.__globals__ and not _is_harmless(name):
                return False
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
            value = getattr(place or owner, name, None)
            if value is None and _is_method(step) and name not in _METHODS:
                return False
        if isinstance(value, ModuleType) and not _is_known(value.__name__):
            module = value
        elif not isinstance(value, ModuleType) and not _pure_value(value, owner, seen):
            return False
    return True


def _instructions(code: CodeType) -> Iterator[dis.Instruction]:
    """Of the code, and of the functions and comprehensions in it."""
    yield from dis.get_instructions(code)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _instructions(inner)


def _is_method(step: dis.Instruction) -> bool:
    """Whether an attribute is read to be called."""
    if sys.version_info >= (3, 12) and step.opname == "LOAD_ATTR":
        return bool((step.arg or 0) & 1)
    return step.opname != "LOAD_ATTR"


def _is_known(module: str) -> bool:
    return module.partition(".")[0] in _MODULES


def _is_harmless(name: str) -> bool:
    """Whether a name of no module is a built-in that only computes, or an error."""
    value = getattr(builtins, name, None)
    return name in _BUILTINS or (isinstance(value, type) and issubclass(value, BaseException))


def _pure_value(value: Any, owner: type, seen: set[Any]) -> bool:
    """Whether what a name stands for may be used, and called."""
    # a generator of one's own draws from a state of its own
    if value is Random or isinstance(value, _CONSTANTS):
        return True
    if _is_known(getattr(value, "__module__", None) or ""):
        return True
    if isinstance(value, property):
        return value.fget is not None and _pure_value(value.fget, owner, seen)
    if isinstance(value, FunctionType):
        return _pure(value, owner, seen)
    if isinstance(value, type):
        if value in seen:
            return True
        seen.add(value)
        # without those of known modules, such as Enum, and of `object`
        above = [kind for kind in value.__mro__[:-1] if not _is_known(kind.__module__)]
        own = [getattr(part, "__func__", part) for kind in above for part in vars(kind).values()]
        return all(_pure_value(part, value, seen) for part in own if isinstance(part, FunctionType))
    if isinstance(value, Mapping):
        return all(_pure_value(part, owner, seen) for part in value.values())
    return isinstance(value, Collection) and all(_pure_value(v, owner, seen) for v in value)
