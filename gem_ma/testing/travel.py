"""A scenario on its way into another process: the name of its class, the file of its module and its
attributes as JSON. A class inside a function does not travel: nothing imports it there.

What it holds travels alike: the scenario that a wrapper stands around, and dataclasses. Nothing
is pickled: that would run the author's code to read, and hide what differs.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from gem_ma.kernel.scenario import Scenario
from gem_ma.registry import load, names_instance


class NotImportable(Exception):
    """The scenario cannot be rebuilt in another process."""


def described(holder: Any, module: str | None = None, *, state: bool = True) -> dict[str, Any]:
    """What `rebuilt` needs, as JSON values; without `state` the class is called there. `module`:
    where it can be imported, as `name` or `name:Class`. Raises NotImportable."""
    cls = type(holder)
    name, _, attribute = (module or "").partition(":")
    name = name or cls.__module__
    attribute = attribute or cls.__qualname__
    order: dict[str, Any] = {
        "module": name,
        "file": _file(name),
        "attribute": attribute,
        "id": getattr(holder, "id", ""),
        "state": None,
    }
    if "<locals>" in attribute:
        raise NotImportable(
            f"{cls.__name__} is a class inside a function, which no other process can import"
        )
    if order["file"] is None:
        raise NotImportable(f"its module {name} has no file; name an importable class in module=")
    if state:
        try:
            order["state"] = packed(_state(holder))
        except TypeError as error:
            if names_instance(order["id"]):  # a child imports it from there, as this process did
                return {**order, "module": ""}
            raise NotImportable(
                f"its attributes or tasks do not travel as JSON ({error}); check it by its id or"
                " its class"
            ) from error
    return order


def _state(holder: Any) -> dict[str, Any]:
    if hasattr(holder, "__dict__"):
        return dict(vars(holder))
    # one with slots says by its fields what it holds
    names = [field.name for field in dataclasses.fields(holder)] if _is_data(holder) else []
    return {name: getattr(holder, name) for name in names}


def _is_data(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def packed(value: Any) -> Any:
    """Values as JSON that keeps tuples and the keys of dicts; scenarios and dataclasses by what
    they hold. Raises TypeError for anything else."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if type(value) in (list, tuple):
        return {"tuple" if type(value) is tuple else "list": [packed(item) for item in value]}
    if type(value) is dict:
        return {"dict": [[packed(key), packed(item)] for key, item in value.items()]}
    # no other objects: those of C hold what no attribute shows, and a copy would play otherwise
    if isinstance(value, Scenario) or _is_data(value):
        try:
            return {"object": described(value)}
        except NotImportable as error:
            raise TypeError(f"a {type(value).__name__}: {error}") from error
    raise TypeError(f"a {type(value).__name__}")


def unpacked(value: Any) -> Any:
    """The inverse of `packed`."""
    if not isinstance(value, dict):
        return value
    ((kind, items),) = value.items()
    if kind == "object":
        return rebuilt(items)
    if kind == "dict":
        return {unpacked(key): unpacked(item) for key, item in items}
    return (tuple if kind == "tuple" else list)(unpacked(item) for item in items)


def _file(module: str) -> str | None:
    found = getattr(sys.modules.get(module), "__file__", None)
    return str(Path(found).resolve()) if found else None


def rebuilt(order: dict[str, Any]) -> Any:
    """The object that was described."""
    if not order["module"]:
        scenario: Any = load("scenarios", order["id"])()
    else:
        try:
            # __main__ is this file here; the author's script is loaded from its path below
            module = (
                importlib.import_module(order["module"]) if order["module"] != "__main__" else None
            )
        except ImportError:
            module = None
        there = str(Path(getattr(module, "__file__", "") or "").resolve())
        # another module may have this name in the child, whose path begins elsewhere
        if module is None or (order["file"] and there != order["file"]):
            spec = importlib.util.spec_from_file_location("_scenario_under_test", order["file"])
            if spec is None or spec.loader is None:
                raise NotImportable(order["module"])
            module = importlib.util.module_from_spec(spec)
            # dataclasses look their module up by name while they are made
            sys.modules["_scenario_under_test"] = module
            if order["module"] == "__main__":
                exec(_definitions(Path(order["file"])), vars(module))
            else:
                spec.loader.exec_module(module)
        cls: Any = module
        for part in order["attribute"].split("."):
            cls = getattr(cls, part)
        # without __init__: its arguments are not known, its result is
        scenario = cls() if order["state"] is None else cls.__new__(cls)
        for name, value in (unpacked(order["state"]) or {}).items():
            object.__setattr__(scenario, name, value)  # past a frozen dataclass
    if isinstance(scenario, Scenario):
        object.__setattr__(scenario, "id", order["id"])
    return scenario


def _definitions(script: Path) -> Any:
    """What a script defines, without what it does: running it again would check again."""
    tree = ast.parse(script.read_text(encoding="utf-8"))
    kinds = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.Assign, ast.AnnAssign)
    tree.body = [node for node in tree.body if isinstance(node, kinds) and not _computes(node)]
    return compile(tree, str(script), "exec")


def _computes(node: ast.stmt) -> bool:
    """Whether an assignment calls something: that may be the check itself."""
    is_value = isinstance(node, (ast.Assign, ast.AnnAssign))
    return is_value and any(isinstance(part, ast.Call) for part in ast.walk(node))
