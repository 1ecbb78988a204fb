"""What a config leaves out and what it says in short, written out in full before it is checked: so
that the record of a run shows what held."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from gem_ma import registry
from gem_ma.config.check import agents_of, check_used, single, together
from gem_ma.config.document import COMMAND_LINE, Document, Keys, section
from gem_ma.config.seats import fits, is_partial, is_pattern, key_of, keys_of, seats, worlds
from gem_ma.engines.capabilities import Configured, Findable, Settles, declares
from gem_ma.kernel.errors import ConfigError

EACH = "{agent}"
DEFAULT_EPISODES = 20  # of a config made from a scenario id


def spell_seats(document: Document) -> None:
    """`agents.X: NAME` is short for a behaviour, or for a model such as `human/me`."""
    # a list, since the loop puts keys into what it walks through; the schema refuses what is no
    # mapping
    for path, name in list(seats(document)):
        if isinstance(name, str):
            kind = "model" if name.partition("/")[0] in registry.catalog("engines") else "behaviour"
            place = document.place(path)
            # a person has no model name; `me` fills its place in ENGINE/NAME
            values = {kind: f"{name}/me" if name == "human" else name}
            document.put(path, Document(values, {(): place, (kind,): place}))
            continue
        if isinstance(name, dict) and isinstance(name.get("tools"), list):
            name["tools"] = [_spelled(tool) for tool in name["tools"]]


def _spelled(tool: Any) -> Any:
    """`python`, and `python:` with nothing below it, are short for {python: {}}."""
    if isinstance(tool, dict):
        return {key: {} if value is None else value for key, value in tool.items()}
    return {tool: {}} if isinstance(tool, str) else tool


def name_policies(document: Document) -> None:
    """`agents.X.model: M` is short for a frozen policy of its own, called X."""
    spell_seats(document)
    for path, values in list(seats(document)):
        if not isinstance(values, dict) or "model" not in values:
            continue
        place = document.place((*path, "model"))
        # what is typed wins: `agents.X.model=...` replaces the policy that the file names
        if values.get("policy") is not None and place.file != COMMAND_LINE:
            document.fault((*path, "model"), "an agent has either a model or a policy")
            continue
        policies = document.get("policies")
        # `*` is not a name of a policy; a seat of one scenario is not a seat of another
        agent = re.sub(r"[*?]+", "", str(path[-1])).strip("_-") or "all"
        if len(path) > 2:
            agent = f"{path[-3]}_{agent}"
        section = policies.get(agent) if isinstance(policies, dict) else None
        # of this model, written at the policy that it makes
        options = isinstance(section, dict) and "model" not in section
        # a policy of this name may exist, and is not this agent's
        name = agent if options or section is None else f"{agent}_model"
        if not options:
            document.put(("policies", name), Document({}, {(): place}))
        document.put(("policies", name, "model"), Document(values.pop("model"), {(): place}))
        document.put((*path, "policy"), Document(name, {(): place}))


def policy_each(document: Document, base: Path | None) -> None:
    """`policy: "{agent}"` gives each agent of its seats a policy of its own, called as the agent
    and made as `policies."{agent}"` says; `"{agent}"` in `train` stands for all of them."""
    seats_here = section(document, "agents")
    asking = [key for key, seat in seats_here.items() if _policy_of(seat) == EACH]
    policies = section(document, "policies")
    if not asking:
        if EACH in policies:
            document.fault(("policies", EACH), f"no seat asks for it: agents.*.policy: {EACH!r}")
        return
    if EACH not in policies:
        document.fault(("agents", asking[0], "policy"), f"needs policies.{EACH!r}, one for each")
        return
    # what is wrong with a scenario is told once, by the check of the fit
    scratch = Document(document.value, document.places)
    played = [world for world in worlds(scratch) if world[0] != "evaluate"]
    agents = together(agents_of(scratch, world, base) for world in played)
    own = [agent for agent in agents if key_of(agent, seats_here) in asking]
    parts = {key: document.part(("agents", key)) for key in asking}
    for agent in own:
        part = parts[str(key_of(agent, seats_here))]
        values = {**deepcopy(part.value), "policy": agent}
        document.put(("agents", agent), Document(values, part.places))
    for key in asking:
        if is_pattern(key):
            seats_here.pop(key)
    template = document.part(("policies", EACH))
    _spread(policies, own, template.value)
    learned = document.get("train", "policies")
    if isinstance(learned, list) and EACH in learned:
        at = learned.index(EACH)
        learned[at : at + 1] = [agent for agent in own if agent not in learned]
    for name in ("per_policy", "warm_start"):
        settings = section(document, "train", name)
        if EACH in settings:
            _spread(settings, own, settings[EACH])


def _policy_of(seat: Any) -> Any:
    return seat.get("policy") if isinstance(seat, dict) else None


def _spread(settings: dict[str, Any], names: Sequence[str], template: Any) -> None:
    """Puts a copy for each name in place of what is said of `EACH`; a name's own words stay."""
    settings.pop(EACH)
    for name in names:
        own = settings.get(name, {})
        if isinstance(template, dict) and isinstance(own, dict):
            settings[name] = {**deepcopy(template), **own}


def engine_defaults(document: Document, locate: Callable[[str], str] = str) -> None:
    """Writes down what an engine wants of a config that says nothing (its `config_defaults`), where
    it is by the environment, and what this machine decides, so that the record shows it. `locate`
    finds the path of a model.

    These defaults may become better ones with a new version; a run folder keeps those that it
    was made with.
    """
    policies = document.get("policies")
    for name, values in policies.items() if isinstance(policies, dict) else ():
        model = values.get("model") if isinstance(values, dict) else None
        if not isinstance(model, str):
            continue
        try:
            factory = registry.load("engines", model.partition("/")[0])
        except Exception:  # the check of the fit says what is wrong with it
            continue
        place = document.place(("policies", name, "model"))
        for key, value in factory.config_defaults.items() if declares(factory, Configured) else ():
            # a map says where each layer lies, and a device beside it would contradict it
            is_mapped = key == "device" and values.get("device_map") is not None
            if key not in values and not is_mapped:
                document.put(("policies", name, key), Document(value, {(): place}))
        try:
            address = factory.whereabouts(values) if declares(factory, Findable) else {}
        except ConfigError:  # said where it is opened: what is typed may still name an address
            continue
        if declares(factory, Settles):
            address = {**address, **factory.settled(locate(model.partition("/")[2]), values)}
        for key, value in address.items():
            document.put(("policies", name, key), Document(value, {(): place}))


def seed_defaults(document: Document) -> None:
    """Writes `run.seed` to what a training begins with and that has no seed of its own: clones, and
    models with random weights.

    Without `train:` a model is played as it lies in its folder. Seed 0 is not written: it means
    just that.
    """
    seed = document.get("run", "seed")
    train = document.get("train")
    if (
        not isinstance(train, dict)
        or not isinstance(seed, int)
        or isinstance(seed, bool)
        or seed == 0
    ):
        return
    policies = document.get("policies")
    clones = train.get("warm_start")
    place = document.place(("run", "seed"))
    for name, values in policies.items() if isinstance(policies, dict) else ():
        model = values.get("model") if isinstance(values, dict) else None
        try:
            if not isinstance(model, str):
                continue
            factory = registry.load("engines", model.partition("/")[0])
            seeded = declares(factory, Configured) and factory.seeded
        except Exception:  # the check of the fit says what is wrong with it
            continue
        if seeded and "seed" not in values:
            document.put(("policies", name, "seed"), Document(seed, {(): place}))
    for name, values in clones.items() if isinstance(clones, dict) else ():
        if isinstance(values, dict) and "seed" not in values:
            document.put(("train", "warm_start", name, "seed"), Document(seed, {(): place}))


def _seat_by_name(document: Document, agents: Sequence[str]) -> None:
    """Writes the seats of patterns by name: whom they leave out gets a default. What a name says of
    its seat goes before what the pattern says."""
    seats = section(document, "agents")
    names = {agent for agent in agents if agent in seats}
    partial = {agent for agent in names if is_partial(seats[agent])}
    cast: dict[str, str] = {}
    for agent in agents:
        keys = [key for key in keys_of(agent, seats) if key not in partial]
        if keys:
            cast[agent] = keys[0]
    places: dict[str, Keys] = {agent: ("agents", key) for agent, key in cast.items()}
    named: dict[str, Keys] = {agent: ("agents", agent) for agent in names}
    world: Keys = ("scenario",)
    check_used(document, {world: agents}, {world: places, (): named})
    patterns = {agent: key for agent, key in cast.items() if is_pattern(key)}
    parts = {key: document.part(("agents", key)) for key in patterns.values()}
    for agent, key in patterns.items():
        part = parts[key]
        own = seats.get(agent)
        if isinstance(part.value, dict):
            values = {**deepcopy(part.value), **(own or {})}
            document.put(("agents", agent), Document(values, part.places))
            seats.pop(key, None)


def name_credited(document: Document, base: Path | None) -> None:
    """Writes the agents of `train.credit` by name, where its `gamma` and `team` have patterns."""
    train = section(document, "train")
    several = section(document, "train", "per_policy").values()
    settings = [part.get("credit") for part in (train, *several) if isinstance(part, dict)]
    credits = [credit for credit in settings if isinstance(credit, dict)]
    written = [
        name for credit in credits for key in ("gamma", "team") for name in _listed(credit, key)
    ]
    if not any(map(is_pattern, written)):
        return
    # what is wrong with a scenario is told once, by the check of the fit
    scratch = Document(document.value, document.places)
    played = [world for world in worlds(scratch) if world[0] != "evaluate"]
    agents = together(agents_of(scratch, world, base) for world in played)
    for credit in credits if agents else ():
        gamma = credit.get("gamma")
        team = credit.get("team")
        if isinstance(gamma, dict):
            keys = {agent: key_of(agent, gamma) for agent in agents}
            unknown = {key: gamma[key] for key in gamma if not _fitting(key, agents)}
            named = {agent: deepcopy(gamma[key]) for agent, key in keys.items() if key is not None}
            credit["gamma"] = named | unknown
        if isinstance(team, list):
            names = [name for key in team for name in _fitting(str(key), agents) or [key]]
            credit["team"] = list(dict.fromkeys(names)) if any(map(is_pattern, team)) else team


def _listed(credit: dict[str, Any], key: str) -> list[str]:
    names = credit.get(key)
    return [str(name) for name in names] if isinstance(names, (dict, list)) else []


def _fitting(key: str, agents: Sequence[str]) -> list[str]:
    return [agent for agent in agents if fits(agent, key)]


def seat_defaults(document: Document) -> None:
    """Gives every agent without a word about it the scenario's default behaviour, and the run
    some episodes."""
    scenario = document.get("scenario")
    try:
        factory = registry.load("scenarios", scenario["id"])
        if not registry.makes_scenario(factory):
            return
        options = {
            key: value for key, value in scenario.items() if key not in ("id", "split", "tasks")
        }
    except Exception:  # whatever it is, the check of the fit reports it
        return
    # an option may say how many agents there are, and a wrapper may have others
    try:
        made = registry.make(scenario["id"], **options)
    except Exception:  # as above
        if not getattr(factory, "agents", ()):
            return
        made = factory
    _seat_by_name(document, made.agents)
    for agent in made.agents:
        seat = document.get("agents", agent)
        if seat is None or is_partial(seat):
            behaviour = made.default_cast.get(agent, "random_legal")
            place = document.place(("agents", agent))
            document.put(("agents", agent, "behaviour"), Document(behaviour, {(): place}))
    # a split may have thousands of tasks, and whoever typed an id wants to see a few
    if document.get("scenario", "tasks") is None:
        count = DEFAULT_EPISODES
        try:
            tasks = made.tasks(scenario.get("split", "test"))
            count = DEFAULT_EPISODES if single(tasks) else min(DEFAULT_EPISODES, len(tasks))
        except Exception:  # as above
            pass
        document.put(("scenario", "tasks"), Document(count, {(): document.place(("scenario",))}))
