"""Does a scenario of a config fit: is it one, do its options, its data and its tasks exist? One
block of `scenario:` or `scenarios:` at a time, named by its place in the document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gem_ma import registry
from gem_ma.config.document import Document, Keys, dotted
from gem_ma.config.options import check_options
from gem_ma.config.paths import locate_files
from gem_ma.config.playing import ScenarioSettings, WorldSettings
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.kernel.scenario import Scenario
from gem_ma.kernel.spelling import nearest


def single(tasks: Sequence[Any]) -> bool:
    """True for a split that is one task, None: there `scenario.tasks: n` means n episodes with
    different seeds."""
    return len(tasks) == 1 and tasks[0] is None


def fields_of(world: Keys) -> Mapping[str, Any]:
    """The keys of a block that are no options of its scenario."""
    model = ScenarioSettings if world == ("scenario",) else WorldSettings
    return model.model_fields


def load_named(document: Document, kind: str, name: Any, path: Keys) -> Any:
    """The class or factory behind a name, or None after adding a fault."""
    if not isinstance(name, str):
        return None
    # `module:Class` is in no catalog: importing it is the only way to know
    if not registry.names_code(name) and not registry.known(kind, name):
        # `agents.X: gpt-4o` is what many type first; no behaviour has a digit in its name
        other = ""
        first, slash, rest = name.partition("/")
        if kind == "agents" and slash:
            engines = ", ".join(sorted(registry.catalog("engines")))
            other = (
                f"; no engine is called {first!r} either ({engines}). A server that speaks the chat"
                f" API is openai/{rest} with policies.NAME.base_url; other providers are"
                f" litellm/{name}"
            )
        elif kind == "agents" and re.search(r"\d", name):
            other = f"; a model is written ENGINE/NAME, as openai/{name}"
        near = nearest(name, registry.catalog(kind), listed=kind != "agents")
        if kind == "agents" and not (near or other):
            near = f" ({registry.ALL_AGENTS})"
        document.fault(path, f"no {registry.KINDS[kind]} is called {name!r}{near}{other}")
        return None
    try:
        return registry.load(kind, name)
    except ConfigError as error:
        document.fault(path, str(error))
    except Exception as error:  # a user's module may raise anything while it is imported
        document.fault(
            path,
            f"{registry.KINDS[kind]} {name!r} cannot be imported: {type(error).__name__}: {error}",
        )
    return None


def agents_of(document: Document, world: Keys, base: Path | None) -> tuple[str, ...]:
    """The scenario's agents, () where they cannot be known; checks its options on the way."""
    path: Keys = (*world, "id")
    factory = load_named(document, "scenarios", document.get(*path), path)
    if factory is None:
        return ()
    if not registry.makes_scenario(factory):
        document.fault(path, f"{document.get(*path)!r} is no Scenario{_remedy(factory)}")
        return ()
    fields = fields_of(world)
    options = {key: value for key, value in document.get(*world).items() if key not in fields}
    # with a wrong option it cannot be made; what its class declares must do
    if not check_options(document, world, options, factory, frozenset(), fields):
        return tuple(getattr(getattr(factory, "func", factory), "agents", ()))
    made = _make(document, world, base)
    if made is not None:
        return made.agents
    # which agents another library's world has, only that library knows
    return () if isinstance(factory, partial) else tuple(getattr(factory, "agents", ()))


def _remedy(named: Any) -> str:
    """How a scenario is made of what was named in its place: the end of a message."""
    if hasattr(named, "reset") and hasattr(named, "step"):
        return "; one is made of an environment by: game = gem_ma.worlds.wrap(...)"
    if callable(named) and not isinstance(named, type):
        return "; a config calls no function: name a class, or a scenario that is made"
    return ""


def _make(document: Document, world: Keys, base: Path | None) -> Scenario | None:
    values = document.get(*world)
    fields = fields_of(world)
    options = {key: value for key, value in values.items() if key not in fields}
    # what is no list the schema refuses
    if isinstance(values.get("wrappers"), list):
        options["wrappers"] = values["wrappers"]
    # the one option that is a path, by convention of all scenarios
    if "data" in options:
        options["data"] = locate_files(options["data"], base)
    try:
        return registry.make(values["id"], **options)
    except DataError as error:
        raise _data_error(document, world, error) from error
    except Exception as error:
        # the constructor of a scenario may refuse a value with any exception; a ConfigError may
        # begin with the key, which has a line of its own
        named = re.match(r"(?:scenario\.([\w.]+)|wrappers\[(\d+)\]): ", str(error))
        if named is not None and isinstance(error, ConfigError):
            path = ("wrappers", int(named[2])) if named[2] else tuple(named[1].split("."))
            document.fault((*world, *path), str(error)[named.end() :])
        else:
            document.fault(world, f"cannot be made: {_reason(error)}")
    return None


def _data_error(document: Document, world: Keys, error: DataError) -> DataError:
    is_named = document.get(*world, "data") is not None
    path: Keys = (*world, "data") if is_named else world
    return DataError(f"{document.place(path)}: {dotted(path)}: {error}")


def _reason(error: Exception) -> str:
    # authors refuse a value with a ValueError in words; any other name tells what went wrong
    if isinstance(error, (ConfigError, ValueError)):
        return str(error)
    return f"{type(error).__name__}: {error}"


def check_tasks(
    document: Document, world: Keys, base: Path | None, *, trained: bool = False
) -> None:
    """The split and the tasks that a block names; of one that is trained on, the split of
    `train:` too."""
    if any(fault.path[: len(world)] == world for fault in document.faults):
        return  # what it has cannot be known
    scenario = _make(document, world, base)
    if scenario is None:
        return
    wanted = document.get(*world, "tasks")
    evaluated = document.get(*world, "split")
    split = "test" if evaluated is None else evaluated
    tasks = _split(document, world, scenario, split, (*world, "split"))
    train = document.get("train")
    if trained and train is not None:
        learned = train.get("split", "train") if isinstance(train, dict) else "train"
        # read twice a split would report its faults twice
        if learned != split:
            _split(document, world, scenario, learned, ("train", "split"))
    if tasks is None:
        return
    # where a split is one task, a number means so many seeds, and there is no end of them
    if isinstance(wanted, int) and not single(tasks) and wanted > len(tasks):
        document.fault(
            (*world, "tasks"), f"{wanted} tasks are wanted; split {split!r} has {len(tasks)}"
        )
    for position, index in enumerate(wanted if isinstance(wanted, list) else ()):
        if isinstance(index, int) and not 0 <= index < len(tasks):
            document.fault(
                (*world, "tasks", position),
                f"no task {index}; split {split!r} has {len(tasks)} (0 to {len(tasks) - 1})",
            )


def _split(
    document: Document, world: Keys, scenario: Scenario, split: Any, path: Keys
) -> Sequence[Any] | None:
    if not isinstance(split, str):
        return None
    try:
        tasks = scenario.tasks(split)
    except DataError as error:
        raise _data_error(document, world, error) from error
    except Exception as error:  # the author's way to refuse a split
        document.fault(
            path,
            _reason(error).removeprefix(f"{'.'.join(map(str, path))}: ") or f"no split {split!r}",
        )
        return None
    if not tasks:
        document.fault(path, f"split {split!r} has no tasks")
        return None
    return tasks
