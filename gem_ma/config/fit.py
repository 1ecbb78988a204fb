"""Does a config fit its scenario, behaviours and engines? Asked of their declarations and
constructors, before anything is played.

Works on plain values, so that it can speak although the schema has refused something else. Opens
no model; data that it names is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_ma import registry
from gem_ma.config.document import Document, Keys, section
from gem_ma.config.fit_keys import check_used
from gem_ma.config.fit_scenario import agents_of, check_tasks, load_named
from gem_ma.config.fit_training import check_training, ids_of, together
from gem_ma.config.options import ENGINE, SEAT, check_options, signature
from gem_ma.config.playing import PolicySettings
from gem_ma.config.seating import fits, key_of
from gem_ma.config.worlds_written import SECTIONS, seats, worlds
from gem_ma.driver.behaviour import needs_policy
from gem_ma.kernel.spelling import nearest


def check_fit(document: Document, base: Path | None, *, look_for_unused: bool = True) -> None:
    """Adds a fault for everything that does not fit, seats that seat nobody among them. Raises
    DataError where the scenario's data is missing or damaged."""
    _check_sections(document)
    blocks = worlds(document)
    agents = {world: agents_of(document, world, base) for world in blocks}
    engines = _check_policies(document)
    _check_seats(document, agents, engines)
    casts = {world: _cast_of(document, world, agents[world]) for world in blocks}
    if look_for_unused:
        check_used(document, agents, casts)
    played = [world for world in blocks if world[0] != "evaluate"]
    seated = {world: (agents[world], casts[world]) for world in played}
    # without a scenario nobody knows who plays; what is written is taken for it
    nobody: Keys = ("scenario",)
    seated = seated or {nobody: ((), _cast_of(document, nobody, ()))}
    check_training(document, seated, engines)
    for world in blocks:
        check_tasks(document, world, base, trained=world in played)


def _check_sections(document: Document) -> None:
    """One scenario, or several that have a share each."""
    single = document.get("scenario")
    several = document.get("scenarios")
    if single is not None and several:
        document.fault(
            ("scenarios",), "a config has `scenario:` or `scenarios:`; put the one into the other"
        )
    elif several is not None and not several and single is None:
        # a list of none, unless all that stood there was refused
        if not any(fault.path[:1] == ("scenarios",) for fault in document.faults):
            document.fault(("scenarios",), "names no scenario")
    elif single is None and not several:
        document.fault(("scenario",), "is missing; it is keys with values")
    for name, block in section(document, *SECTIONS[1]).items():
        if isinstance(block, dict) and "weight" in block:
            document.fault(
                (*SECTIONS[1], name, "weight"),
                "an exam has no weights: each world is examined with evaluate.episodes plays",
            )


def _cast_of(document: Document, world: Keys, agents: Sequence[str]) -> dict[str, Keys]:
    """Agent -> the place of its seat in this world; a fault where an agent has none."""
    places: list[Keys] = [*[(*world, "agents")] * (len(world) > 1), ("agents",)]
    if not agents:  # they cannot be known, so what is written has to do
        return {name: (*path, name) for path in places for name in section(document, *path)}
    cast: dict[str, Keys] = {}
    for agent in agents:
        for path in places:
            if (key := key_of(agent, section(document, *path))) is not None:
                cast[agent] = (*path, key)
                break
    empty = [agent for agent in agents if agent not in cast]
    if empty and isinstance(document.get("agents"), (dict, type(None))):
        where = ("agents",) if len(world) == 1 else world
        hint = "" if len(world) == 1 else "; a seat called `*` is for all"
        document.fault(
            where,
            f"no seat for {', '.join(map(repr, empty))}; the agents of"
            f" {document.get(*world, 'id')} are {', '.join(agents)}{hint}",
        )
    return cast


def _check_policies(document: Document) -> dict[str, Any]:
    """Engine class by policy (None where unknown)."""
    engines: dict[str, Any] = {}
    for name, values in section(document, "policies").items():
        engines[name] = None
        model = values.get("model") if isinstance(values, dict) else None
        if not isinstance(model, str):
            continue
        kind = model.partition("/")[0]
        engines[name] = factory = load_named(document, "engines", kind, ("policies", name, "model"))
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


def _check_seats(
    document: Document, agents: Mapping[Keys, Sequence[str]], engines: dict[str, Any]
) -> None:
    everybody = together(agents.values())
    for path, values in list(seats(document)):
        # a seat below one scenario is for the agents of that one
        _check_seat(document, path, values, agents.get(path[:-2], everybody), engines)
    for name in section(document, "train", "warm_start"):
        place: Keys = ("train", "warm_start", name)
        if name not in engines:
            document.fault(place, f"no policy has this name{nearest(name, engines)}")
        for agent, values in section(document, *place, "cast").items():
            _check_seat(document, (*place, "cast", agent), values, everybody, engines)


def _check_seat(
    document: Document, seat: Keys, values: Any, agents: Sequence[str], engines: dict[str, Any]
) -> None:
    agent = str(seat[-1])
    # () where a scenario could not be read, and then every name would look wrong
    if agents and not any(fits(known, agent) for known in agents):
        document.fault(
            seat,
            f"no agent of {ids_of(document)} has this name{nearest(agent, agents)}",
        )
    if not isinstance(values, dict):
        return
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
    _check_memory(document, seat, values, engines)
    behaviour = values.get("behaviour", "direct")
    factory = load_named(document, "agents", behaviour, (*seat, "behaviour"))
    if factory is None:
        return
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


def _check_memory(
    document: Document, seat: Keys, values: dict[str, Any], engines: dict[str, Any]
) -> None:
    memory = values.get("memory")
    if not isinstance(memory, dict):
        return
    if values.get("policy") is None:
        # a bot reads all that it likes, and a prompt that nobody is shown cannot be shortened
        document.fault((*seat, "memory"), "it shortens what a policy is shown; name one (policy:)")
    summary = memory.get("summary")
    if not isinstance(summary, str):
        return
    path = (*seat, "memory", "summary")
    if registry.names_code(summary):
        load_named(document, "agents", summary, path)
    elif summary not in engines:
        document.fault(path, f"no policy is called {summary!r}{nearest(summary, engines)}")
