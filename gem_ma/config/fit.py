"""Does a config fit its scenario, behaviours and engines? Asked of their declarations and
constructors, before anything is played.

Works on plain values, so that it can speak although the schema has refused something else. Opens
no model; data that it names is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gem_ma import registry
from gem_ma.behaviour import needs_policy
from gem_ma.config.document import Document, Keys, section
from gem_ma.config.fit_training import check_training
from gem_ma.config.options import ENGINE, SEAT, check_options, signature
from gem_ma.config.paths import locate
from gem_ma.config.playing import PolicySettings, ScenarioSettings
from gem_ma.config.spelling import nearest
from gem_ma.errors import ConfigError, DataError
from gem_ma.scenario import Scenario


def check_fit(document: Document, base: Path | None) -> None:
    """Adds a fault for everything that does not fit. Raises DataError where the scenario's data
    is missing or damaged."""
    agents = _agents_of(document, base)
    engines = _check_policies(document)
    _check_seats(document, agents, engines)
    check_training(document, agents, engines)
    _check_tasks(document, base)


def single(tasks: Sequence[Any]) -> bool:
    """True for a split that is one task, None: there `scenario.tasks: n` means n episodes with
    different seeds."""
    return len(tasks) == 1 and tasks[0] is None


# -- one thing each ------------------------------------------------------------------------------


def _load(document: Document, kind: str, name: Any, path: Keys) -> Any:
    """The class or factory behind a name, or None after adding a fault."""
    if not isinstance(name, str):
        return None
    # `module:Class` is in no catalog: importing it is the only way to know
    if not registry.names_code(name) and not registry.known(kind, name):
        # `agents.X: gpt-4o` is what many type first; no behaviour has a digit in its name
        other = ""
        if kind == "agents" and re.search(r"\d", name):
            other = f"; a model is written ENGINE/NAME, as openai/{name}"
        near = nearest(name, registry.catalog(kind), listed=not other)
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


def _agents_of(document: Document, base: Path | None) -> tuple[str, ...]:
    """The scenario's agents, () where they cannot be known; checks its options on the way."""
    path: Keys = ("scenario", "id")
    factory = _load(document, "scenarios", document.get(*path), path)
    if factory is None:
        return ()
    # a config may name any function; none but a Scenario is called
    maker = factory.func if isinstance(factory, partial) else factory  # an adapter, and its id
    if not isinstance(maker, type) or not issubclass(maker, Scenario):
        document.fault(path, f"{document.get(*path)!r} is no Scenario")
        return ()
    options = {
        key: value
        for key, value in section(document, "scenario").items()
        if key not in ScenarioSettings.model_fields
    }
    # with a wrong option it cannot be made; what its class declares must do
    if not check_options(
        document, ("scenario",), options, factory, frozenset(), ScenarioSettings.model_fields
    ):
        return tuple(getattr(maker, "agents", ()))
    made = _make(document, base)
    return made.agents if made is not None else tuple(getattr(maker, "agents", ()))


def _make(document: Document, base: Path | None) -> Scenario | None:
    values = section(document, "scenario")
    options = {
        key: value for key, value in values.items() if key not in ScenarioSettings.model_fields
    }
    # the one option that is a path, by convention of all scenarios
    if isinstance(options.get("data"), str):
        options["data"] = locate(options["data"], base)
    try:
        return registry.make(values["id"], **options)
    except DataError as error:
        raise _data_error(document, error) from error
    except Exception as error:
        # the constructor of a scenario may refuse a value with any exception; a ConfigError may
        # begin with the key, which has a line of its own
        named = re.match(r"scenario\.([\w.]+): ", str(error))
        if named is not None and isinstance(error, ConfigError):
            document.fault(("scenario", *named[1].split(".")), str(error)[named.end() :])
        else:
            document.fault(("scenario",), f"cannot be made: {_said(error)}")
    return None


def _data_error(document: Document, error: DataError) -> DataError:
    is_named = document.get("scenario", "data") is not None
    path: Keys = ("scenario", "data") if is_named else ("scenario",)
    return DataError(f"{document.place(path)}: {'.'.join(map(str, path))}: {error}")


def _said(error: Exception) -> str:
    # authors refuse a value with a ValueError in words; any other name tells what went wrong
    if isinstance(error, (ConfigError, ValueError)):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _check_tasks(document: Document, base: Path | None) -> None:
    if any(fault.path[:1] == ("scenario",) for fault in document.faults):
        return  # what it has cannot be known
    scenario = _make(document, base)
    if scenario is None:
        return
    wanted, evaluated = document.get("scenario", "tasks"), document.get("scenario", "split")
    split = "test" if evaluated is None else evaluated
    tasks = _split(document, scenario, split, ("scenario", "split"))
    if document.get("train") is not None:
        learned = section(document, "train").get("split", "train")
        # read twice a split would report its faults twice
        if learned != split:
            _split(document, scenario, learned, ("train", "split"))
    if tasks is None:
        return
    # where a split is one task, a number means so many seeds, and there is no end of them
    if isinstance(wanted, int) and not single(tasks) and wanted > len(tasks):
        document.fault(
            ("scenario", "tasks"), f"{wanted} tasks are wanted; split {split!r} has {len(tasks)}"
        )
    for position, index in enumerate(wanted if isinstance(wanted, list) else ()):
        if isinstance(index, int) and not 0 <= index < len(tasks):
            document.fault(
                ("scenario", "tasks", position),
                f"no task {index}; split {split!r} has {len(tasks)} (0 to {len(tasks) - 1})",
            )


def _split(document: Document, scenario: Scenario, split: Any, path: Keys) -> Sequence[Any] | None:
    if not isinstance(split, str):
        return None
    try:
        tasks = scenario.tasks(split)
    except DataError as error:
        raise _data_error(document, error) from error
    except Exception as error:  # the author's way to refuse a split
        document.fault(
            path,
            _said(error).removeprefix(f"{'.'.join(map(str, path))}: ") or f"no split {split!r}",
        )
        return None
    if not tasks:
        document.fault(path, f"split {split!r} has no tasks")
        return None
    return tasks


def _check_policies(document: Document) -> dict[str, Any]:
    """Engine class by policy (None where unknown)."""
    engines: dict[str, Any] = {}
    for name, values in section(document, "policies").items():
        engines[name] = None
        model = values.get("model") if isinstance(values, dict) else None
        if not isinstance(model, str):
            continue
        kind = model.partition("/")[0]
        engines[name] = factory = _load(document, "engines", kind, ("policies", name, "model"))
        if factory is not None:
            # a key that asks for nothing (`cache: false`) may stand at an engine that lacks it: so
            # one config fits several engines
            takes = signature(factory) or {}
            asked = {
                key: value
                for key, value in values.items()
                if key not in PolicySettings.model_fields
            }
            options = {
                key: value
                for key, value in asked.items()
                if key in takes or not registry.asks_nothing(key, value)
            }
            check_options(
                document, ("policies", name), options, factory, ENGINE, PolicySettings.model_fields
            )
    return engines


def _check_seats(document: Document, agents: Sequence[str], engines: dict[str, Any]) -> None:
    seats = section(document, "agents")
    _check_cast(document, ("agents",), seats, agents, engines)
    for name, values in section(document, "train", "warm_start").items():
        path: Keys = ("train", "warm_start", name)
        if name not in engines:
            document.fault(path, f"no policy has this name{nearest(name, engines)}")
        if isinstance(values, dict) and isinstance(values.get("cast"), dict):
            _check_cast(document, (*path, "cast"), values["cast"], agents, engines)
    if document.get("agents") is not None and not isinstance(document.get("agents"), dict):
        return
    empty = [agent for agent in agents if agent not in seats]
    if empty:
        document.fault(
            ("agents",),
            f"no seat for {', '.join(map(repr, empty))}; the agents of"
            f" {document.get('scenario', 'id')} are {', '.join(agents)}",
        )


def _check_cast(
    document: Document,
    path: Keys,
    seats: dict[str, Any],
    agents: Sequence[str],
    engines: dict[str, Any],
) -> None:
    for agent, values in seats.items():
        seat: Keys = (*path, agent)
        # () where the scenario could not be read, and then every name would look wrong
        if agents and agent not in agents:
            document.fault(
                seat,
                f"no agent of {document.get('scenario', 'id')} has this"
                f" name{nearest(agent, agents)}",
            )
        if not isinstance(values, dict):
            continue
        policy = values.get("policy")
        if isinstance(policy, str) and policy not in engines:
            document.fault(
                (*seat, "policy"),
                "no policy is called"
                f" {policy!r}{nearest(policy, engines) or ' (there is no section policies:)'}",
            )
        further = values.get("policies")
        for key, name in further.items() if isinstance(further, dict) else ():
            if isinstance(name, str) and name not in engines:
                document.fault(
                    (*seat, "policies", key),
                    f"no policy is called {name!r}{nearest(name, engines)}",
                )
        behaviour = values.get("behaviour", "direct")
        factory = _load(document, "agents", behaviour, (*seat, "behaviour"))
        if factory is None:
            continue
        options = values.get("options")
        check_options(
            document,
            (*seat, "options"),
            options if isinstance(options, dict) else {},
            factory,
            SEAT,
            (),
        )
        if policy is None and needs_policy(behaviour, factory):
            # both play any scenario, and need no options
            bots = ", ".join(name for name in ("random_legal", "first_legal") if name != behaviour)
            document.fault(
                seat,
                f"the behaviour {behaviour!r} samples from a policy; name one (policy: ...), or"
                f" take a bot ({bots})",
            )
