"""Does a config fit its scenarios, behaviours and engines? Asked of their declarations and
constructors, before anything is played.

Works on plain values, so that it can speak although the schema has refused something else. Opens
no model; data that it names is looked at. What needs the estimators and losses is asked by
`gem_ma.training.schedule.checks`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gem_ma import registry
from gem_ma.config.document import COMMAND_LINE, Document, Keys, dotted, section
from gem_ma.config.learning import SCHEDULE
from gem_ma.config.playing import PolicySettings, ScenarioSettings, WorldSettings
from gem_ma.config.seats import SECTIONS, fits, key_of, keys_of, letters, seats, worlds
from gem_ma.config.sources import FILES, locate_files
from gem_ma.driver.behaviour import is_privileged, needs_policy
from gem_ma.engines.capabilities import Pins, Trains, declares
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.kernel.scenario import Scenario
from gem_ma.kernel.spelling import nearest
from gem_ma.system.options import ENGINE, SEAT, problem, signature, types_of


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


def check_used(
    document: Document, agents: Mapping[Keys, Sequence[str]], casts: Mapping[Keys, dict[str, Keys]]
) -> None:
    """Adds a fault for every key that fits agents and seats none, because others go before it, and
    for two patterns of which none goes before the other. `agents` and the places of their seats
    are by world; where those of one cannot be known, nothing is called unused."""
    used = {path for cast in casts.values() for path in cast.values()} | document.copied
    for path, values in seats(document) if all(agents.values()) else ():
        key = str(path[-1])
        section_of = path[:-1]
        fitting = [
            (world, agent)
            for world, names in agents.items()
            for agent in names
            if section_of in (("agents",), (*world, "agents")) and fits(agent, key)
        ]
        before = {casts[world][agent] for world, agent in fitting if agent in casts[world]}
        layer = _layer(document, path)
        # what is typed later may take all seats of what stood there before
        if fitting and path not in used and all(_layer(document, o) <= layer for o in before):
            others = ", ".join(
                f"{dotted(o)} ({document.place(o)})" for o in sorted(before, key=str)
            )
            document.fault(
                path,
                "seats nobody, since a name goes before a pattern and a longer pattern before a"
                f" shorter: take it out, or {others}",
            )
        for agent in dict.fromkeys(agent for _, agent in fitting):
            keys = keys_of(agent, section(document, *section_of))
            rival = keys[1] if len(keys) > 1 and keys[1] == key else key
            is_tie = agent not in keys and letters(rival) == letters(keys[0]) and rival != keys[0]
            if is_tie and document.get(*section_of, keys[0]) != values:
                document.fault(path, f"{agent!r} fits {keys[0]!r} too: write {agent!r} out")
                break


def _layer(document: Document, path: Keys) -> int:
    """The later a seat was written, the higher: a file that is extended, the file, the cell of a
    study, the command line."""
    place = document.place(path)
    if place.file == COMMAND_LINE:
        return 3
    return 2 if path in document.cell else int(place.file == document.place(()).file)


def single(tasks: Sequence[Any]) -> bool:
    """True for a split that is one task, None: there `scenario.tasks: n` means n episodes with
    different seeds."""
    return len(tasks) == 1 and tasks[0] is None


def fields_of(world: Keys) -> Mapping[str, Any]:
    """The keys of a block that are not options of its scenario."""
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
    # what is not a list the schema refuses
    if isinstance(values.get("wrappers"), list):
        options["wrappers"] = values["wrappers"]
    for key in FILES:
        if key in options:
            options[key] = locate_files(options[key], base)
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
    # where a split is one task, a number means so many seeds, without end
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


# of each world that is trained on: its agents, () where they cannot be known, and where the seat of
# each stands
Played = Mapping[Keys, tuple[Sequence[str], Mapping[str, Keys]]]


def together(casts: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The agents of all these scenarios, each once; () where those of one cannot be known."""
    listed = list(casts)
    return tuple(dict.fromkeys(a for cast in listed for a in cast)) if all(listed) else ()


def ids_of(document: Document) -> str:
    """The ids of all scenarios of a config, for messages."""
    return ", ".join(dict.fromkeys(str(block.get("id")) for block in worlds(document).values()))


def check_training(document: Document, played: Played, engines: dict[str, Any]) -> None:
    """Adds a fault for everything in `train:` that does not fit the worlds that it plays."""
    agents = together(known for known, _ in played.values())
    places = dict.fromkeys(path for _, cast in played.values() for path in cast.values())
    learned = section(document, "train").get("policies")
    for position, name in enumerate(learned if isinstance(learned, list) else ()):
        path: Keys = ("train", "policies", position)
        if not isinstance(name, str):
            continue
        if name not in engines:
            document.fault(path, f"no policy is called {name!r}{nearest(name, engines)}")
            continue
        # None: its model is a fault of its own already
        if engines[name] is not None and not declares(engines[name], Trains):
            model = str(document.get("policies", name, "model"))
            document.fault(
                path,
                f"{name!r} cannot learn: its engine {model.partition('/')[0]!r} is not trainable",
            )
        seats = [path for path in places if document.get(*path, "policy") == name]
        if not seats:
            document.fault(
                path,
                f"{name!r} plays no agent; give it one"
                f" (agents.{agents[0] if agents else 'X'}.policy)",
            )
        for path in seats:
            behaviour = document.get(*path, "behaviour")
            # what it learns from the answers of a task is not a play of the game
            if isinstance(behaviour, str) and _is_privileged(behaviour):
                document.fault(
                    path,
                    f"the behaviour {behaviour!r} is given the task (privileged); a learned policy"
                    " may not sit there",
                )
    _check_admission(document, learned if isinstance(learned, list) else (), engines)
    _check_credit(document, ("train", "credit"), agents, played)
    for policy in section(document, "train", "per_policy"):
        _check_credit(document, ("train", "per_policy", policy, "credit"), agents, played)


def _check_admission(document: Document, learned: Sequence[Any], engines: dict[str, Any]) -> None:
    """Plays of several steps at once want engines that stay as they are beside a publish."""
    if document.get("train", "admission") != "continuous":
        return
    for name in learned:
        engine = engines.get(name) if isinstance(name, str) else None
        if engine is not None and not declares(engine, Pins):
            model = str(document.get("policies", name, "model")).partition("/")[0]
            document.fault(
                ("train", "admission"),
                f"a publish of {name!r} waits for the plays in flight ({model!r} samples the"
                " newest weights alone), so nothing would be continuous; remove it",
            )


def _check_credit(
    document: Document, place: tuple[str, ...], agents: Sequence[str], played: Played
) -> None:
    """The agents that discounts and teams name."""
    discounts, team = (section(document, *place).get(key) for key in ("gamma", "team"))
    # else one schedule for all
    by_agent = isinstance(discounts, dict) and not SCHEDULE & discounts.keys()
    named: list[tuple[Keys, Any]] = [
        ((*place, "gamma", agent), agent)
        for agent in (discounts if isinstance(discounts, dict) and by_agent else ())
    ]
    named += [
        ((*place, "team", at), agent)
        for at, agent in enumerate(team if isinstance(team, list) else ())
    ]
    # without a readable scenario no name can be called wrong
    for path, agent in named if agents else ():
        if isinstance(agent, str) and agent not in agents:
            document.fault(
                path,
                f"no agent of {ids_of(document)} has this name{nearest(agent, agents)}",
            )
    # a team is one of every play, so that all of it has to be there in every scenario
    for index, agent in enumerate(team if isinstance(team, list) else ()):
        lacking = [world[-1] for world, (known, _) in played.items() if agent not in known]
        if agent in agents and lacking:
            document.fault((*place, "team", index), f"{lacking[0]} has no agent {agent!r}")


def _is_privileged(behaviour: str) -> bool:
    try:
        return is_privileged(registry.load("agents", behaviour))
    except Exception:  # reported where the seat is checked
        return False


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
    hints = types_of(factory)
    for key, value in options.items():
        if key in named:
            if wrong := problem(value, hints.get(key)):
                document.fault((*path, key), wrong)
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
