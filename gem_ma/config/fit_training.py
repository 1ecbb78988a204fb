"""Does `train:` fit the scenario's agents and the engines? Part of `fit`, for the sections that
learn; what needs the estimators is asked by `gem_ma.training.schedule.checks`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gem_ma import registry
from gem_ma.config.document import Document, Keys, section
from gem_ma.config.learning import SCHEDULE
from gem_ma.config.worlds_written import worlds
from gem_ma.driver.behaviour import is_privileged
from gem_ma.engines.capabilities import Pins, Trains, declares
from gem_ma.kernel.spelling import nearest

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
            # what it learns from the answers of a task is no play of the game
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
