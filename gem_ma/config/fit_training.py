"""Does `train:` fit the scenario's agents and the engines? Part of `fit`, for the sections that
learn; what needs the estimators is asked by `gem_ma.training.schedule.checks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gem_ma import registry
from gem_ma.behaviour import is_privileged
from gem_ma.config.document import Document, Keys, section
from gem_ma.config.learning import SCHEDULE
from gem_ma.config.spelling import nearest
from gem_ma.engines.capabilities import Trains, declares


def check_training(document: Document, agents: Sequence[str], engines: dict[str, Any]) -> None:
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
        seats = [
            agent
            for agent, values in section(document, "agents").items()
            if isinstance(values, dict) and values.get("policy") == name
        ]
        if not seats:
            document.fault(
                path,
                f"{name!r} plays no agent; give it one"
                f" (agents.{agents[0] if agents else 'X'}.policy)",
            )
        for agent in seats:
            behaviour = document.get("agents", agent, "behaviour")
            # what it learns from the answers of a task is no play of the game
            if isinstance(behaviour, str) and _is_privileged(behaviour):
                document.fault(
                    ("agents", agent),
                    f"the behaviour {behaviour!r} is given the task (privileged); a learned policy"
                    " may not sit there",
                )
    _check_credit(document, ("train", "credit"), agents)
    for policy in section(document, "train", "per_policy"):
        _check_credit(document, ("train", "per_policy", policy, "credit"), agents)


def _check_credit(document: Document, place: tuple[str, ...], agents: Sequence[str]) -> None:
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
                f"no agent of {document.get('scenario', 'id')} has this"
                f" name{nearest(agent, agents)}",
            )


def _is_privileged(behaviour: str) -> bool:
    try:
        return is_privileged(registry.load("agents", behaviour))
    except Exception:  # reported where the seat is checked
        return False
