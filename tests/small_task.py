"""A task of the tiny shop, by the calls that solve it."""

from __future__ import annotations

from typing import Any

from gem_ma.scenarios.service_desk.desk.task import GoldCall
from gem_ma.scenarios.service_desk.retail import Task
from gem_ma.scenarios.service_desk.retail.store.tasks import (
    flags_of,
    goal_of,
    identity_of,
    wishes_of,
)

from tests.retail_data import tiny


def task_of(*actions: tuple[str, dict[str, Any]], semantics: str = "tau1", **fields: Any) -> Task:
    base, calls = tiny().overlay.base, tuple(GoldCall(*action) for action in actions)
    own = {
        "goal": goal_of(calls),
        "knowledge": identity_of(base, "ann_lee_1"),
        "wishes": wishes_of(base, semantics, calls),
        "flags": flags_of(base, semantics, calls),
    }
    return Task("t", "test", "ann_lee_1", "x", calls, **{**own, **fields})
