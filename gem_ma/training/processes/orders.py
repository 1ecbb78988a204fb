"""Plans as JSON values, for a process that has the same config: a scenario is named by its world,
and all else of a plan stands as it is."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Awaitable, Mapping
from dataclasses import asdict
from typing import Any

from gem_ma.driver.forks import Branch
from gem_ma.driver.rollout import Plan
from gem_ma.kernel import errors
from gem_ma.kernel.episode import Episode, Limits, Seat
from gem_ma.kernel.errors import EngineError
from gem_ma.kernel.scenario import Scenario
from gem_ma.record.codec import dump_episode, load_episode
from gem_ma.record.shapes import shown_in, with_bytes
from gem_ma.runs.worlds import World, Worlds


def order_of(plan: Plan, worlds: Worlds) -> dict[str, Any]:
    """A plan as JSON values. Raises EngineError for a scenario that is none of these worlds."""
    branch = plan.branch
    return {
        "world": plan.world,
        "scenario": _index_of(plan.scenario, worlds),
        "cast": {agent: asdict(seat) for agent, seat in plan.cast.items()},
        "task": plan.task,
        "seed": plan.seed,
        "repeat": plan.repeat,
        "group": plan.group,
        "limits": asdict(plan.limits),
        "call_timeout_s": plan.call_timeout_s,
        "options": dict(plan.options),
        "branch": None
        if branch is None
        else {
            "of": dump_episode(branch.of),
            "step": branch.step,
            "seed": branch.seed,
            "first": branch.first,
        },
    }


def plan_of(order: Mapping[str, Any], worlds: Worlds) -> Plan:
    """The inverse of `order_of`."""
    branch = order["branch"]
    if branch is not None:
        branch = Branch(load_episode(branch["of"]), branch["step"], branch["seed"], branch["first"])
    return Plan(
        _scenarios(worlds)[order["scenario"]].scenario,
        {agent: Seat(**seat) for agent, seat in order["cast"].items()},
        order["task"],
        order["seed"],
        order["repeat"],
        order["group"],
        Limits(**order["limits"]),
        order["call_timeout_s"],
        order["options"],
        branch,
        order["world"],
    )


def _scenarios(worlds: Worlds) -> list[World]:
    # a world may be examined on other tasks than it is played on, as another object
    return [*worlds.played, *worlds.examined]


def _index_of(scenario: Scenario, worlds: Worlds) -> int:
    for index, world in enumerate(_scenarios(worlds)):
        if world.scenario is scenario:
            return index
    raise EngineError(f"{scenario.id}: no world of this config, so no other process knows it")


# What a process says of the plays that it was given: their episodes, or the error that ended them.
# JSON values, nothing is pickled.


Report = dict[str, Any]


async def reported(playing: Awaitable[list[Episode]]) -> Report:
    """The report of these plays. Whatever is raised stands in it."""
    try:
        episodes = await playing
        # a line has their digests alone, and others learn from the episodes
        images = {image.digest: image.data for one in episodes for image in shown_in(one)}
        return {
            "kind": "",
            "fault": "",
            "lines": [dump_episode(episode) for episode in episodes],
            "images": {digest: b64encode(data).decode() for digest, data in images.items()},
        }
    except Exception as error:
        return {"kind": type(error).__name__, "fault": str(error), "lines": []}


def episodes_of(report: Mapping[str, Any]) -> list[Episode]:
    """The episodes of a report."""
    images = report.get("images", {})
    return [
        with_bytes(load_episode(line), lambda digest: b64decode(images[digest]))
        for line in report["lines"]
    ]


def error_of(report: Mapping[str, Any]) -> Exception:
    """The error of a report (`kind` is not empty), as an exception of this process."""
    kind = str(report["kind"])
    fault = str(report["fault"])
    # by name, out of our own module alone: what another process sent chooses no other class
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, errors.GemMaError):
        return known(fault)
    return EngineError(f"{kind}: {fault}")
