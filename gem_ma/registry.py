"""Names -> objects. A name is an id of a catalog, an id of an entry point, or `package.module:Class`.

Built-in scenarios, behaviours and engines are found exactly as a user's package is: a catalog (id -> "module:Class") or an entry point in
the groups `gem_ma.scenarios`, `gem_ma.agents`, `gem_ma.engines`. Nothing here is imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any

from gem_ma.errors import ConfigError
from gem_ma.scenario import Scenario

KINDS = {"scenarios": "scenario", "agents": "behaviour", "engines": "engine"}


@cache
def catalog(kind: str) -> dict[str, str]:
    """id -> "module:Class" of every scenario, behaviour (`agents`) or engine that is installed."""
    from importlib.metadata import entry_points

    found = {entry.name: entry.value for entry in entry_points(group=f"gem_ma.{kind}")}
    return {**found, **builtin(kind)}


def builtin(kind: str) -> dict[str, str]:
    """The catalog that the package itself brings."""
    return dict(import_module(f"gem_ma.{kind}").CATALOG)


def load(kind: str, name: str) -> Any:
    """The class or factory behind a name. Raises ConfigError with the nearest names."""
    target = builtin(kind).get(name) or (name if ":" in name else catalog(kind).get(name))
    if target is None:
        known = catalog(kind)
        near = get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(sorted(known))}, or package.module:Class"
        raise ConfigError(f"no {KINDS[kind]} is called {name!r} ({hint})")
    module, _, attribute = target.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
            raise  # an import inside the module: its own message says what is missing
        raise ConfigError(f"{KINDS[kind]} {name!r}: there is no module {error.name!r}") from error
    except AttributeError as error:
        raise ConfigError(f"{KINDS[kind]} {name!r}: module {module} has no {attribute!r}") from error
    except SystemExit as error:
        what = f"module {module} ends the process while it is imported (SystemExit: {error.code})"
        raise ConfigError(f"{KINDS[kind]} {name!r}: {what}; what it runs belongs below `if __name__ == '__main__':`") from error


def construct(what: str, factory: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """`factory(*args, **options)`. Raises ConfigError where the options do not fit its signature, with the nearest name."""
    try:
        return factory(*args, **options)
    except TypeError as error:
        try:
            parameters = signature(factory).parameters
            signature(factory).bind(*args, **options)
        except TypeError as mismatch:
            known = [name for name in parameters if name not in ("self", "agent", "sample", "rng", "task", "policy")]
            near = [close for name in options if name not in parameters for close in get_close_matches(name, known, n=1, cutoff=0.5)]
            hint = f" (did you mean {near[0]!r}?)" if near else f" (its options are {', '.join(known)})" if known else ""
            raise ConfigError(f"{what}: {mismatch}{hint}") from error
        except ValueError:  # a factory written in C shows no signature
            pass
        raise


def make(name: str, /, **options: Any) -> Scenario:
    """A scenario by name, with the options of its constructor."""
    scenario = construct(f"scenario {name!r}", load("scenarios", name), **options)
    if not isinstance(scenario, Scenario):
        raise ConfigError(f"{name!r} is no Scenario but a {type(scenario).__name__}")
    object.__setattr__(scenario, "id", name)  # a scenario may be a frozen dataclass
    return scenario


def as_scenario(scenario: str | Scenario | type[Scenario], /, **options: Any) -> Scenario:
    """A scenario out of a name, a class or an instance; an instance takes no options."""
    if isinstance(scenario, str):
        return make(scenario, **options)
    made = construct(f"scenario {scenario.__name__}", scenario, **options) if isinstance(scenario, type) else scenario
    if not isinstance(made, Scenario):
        raise ConfigError(f"a scenario is a name, a class or an instance of Scenario; got {made!r}")
    if made is scenario and options:
        raise ConfigError(f"a scenario that is already made takes no options; got {', '.join(options)}")
    if not made.id:
        object.__setattr__(made, "id", f"{type(made).__module__}:{type(made).__qualname__}")
    return made


def task_of(scenario: Scenario, key: str) -> Any:
    """The task behind `<split>/<index>`. Raises ConfigError with the range where there is none."""
    split, _, index = key.rpartition("/")
    tasks = scenario.tasks(split)
    if not index.isdecimal() or int(index) >= len(tasks):
        held = (
            f"it has {len(tasks)}, from {split}/0 to {split}/{len(tasks) - 1}"
            if tasks and split
            else "it is empty"
            if split
            else "a task is <split>/<index>"
        )
        raise ConfigError(f"{scenario.id}: no task {key!r} in split {split!r}; {held}")
    return tasks[int(index)]
