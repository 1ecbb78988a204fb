"""Names -> objects. A name is an id of a catalog, an id of an entry point, or `package.module:Class`.

Built-in scenarios, behaviours and engines are found exactly as a user's package is: a catalog (id -> "module:Class") or an entry point in
the groups `gem_ma.scenarios`, `gem_ma.agents`, `gem_ma.engines`. Nothing here is imported before it is asked for.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import import_module
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


def make(name: str, **options: Any) -> Scenario:
    """A scenario by name, with the options of its constructor."""
    factory = load("scenarios", name)
    try:
        scenario = factory(**options)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error) and "takes no arguments" not in str(error):
            raise
        raise ConfigError(f"scenario {name!r}: {str(error).split(') ', 1)[-1]}") from error
    if not isinstance(scenario, Scenario):
        raise ConfigError(f"{name!r} is no Scenario but a {type(scenario).__name__}")
    scenario.id = name
    return scenario


def as_scenario(scenario: str | Scenario | type[Scenario], **options: Any) -> Scenario:
    """A scenario out of a name, a class or an instance; an instance takes no options."""
    if isinstance(scenario, str):
        return make(scenario, **options)
    made = scenario(**options) if isinstance(scenario, type) else scenario
    if not made.id:
        made.id = f"{type(made).__module__}:{type(made).__qualname__}"
    return made


def task_of(scenario: Scenario, key: str) -> Any:
    """The task behind `<split>/<index>`. Raises ConfigError with the range where there is none."""
    split, _, index = key.rpartition("/")
    tasks = scenario.tasks(split)
    if not index.isdecimal() or int(index) >= len(tasks):
        raise ConfigError(f"{scenario.id}: no task {key!r}; split {split!r} has {len(tasks)} (0 to {len(tasks) - 1})")
    return tasks[int(index)]
