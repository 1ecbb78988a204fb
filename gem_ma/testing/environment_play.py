"""An environment under test: made by its factory, and reset to an episode of a task of the kit.

An environment is made by a factory `Callable[[Scenario], env]`; the task goes in by
`reset(options={"task": ...})`. Nothing but PettingZoo's public API is used, so that any environment
can be held to it. What the episodes of several environments say about each other is the business of
`rules_environments`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from gem_ma.testing.kit import Kit

Factory = Callable[..., Any]


def accepts(factory: Factory, name: str) -> bool:
    """Whether a factory takes this keyword."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters or any(
        p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()
    )


def make_environment(factory: Factory, scenario: Any, **wanted: Any) -> Any:
    """An environment, with those of the wanted keywords that its factory takes."""
    return factory(
        scenario, **{name: value for name, value in wanted.items() if accepts(factory, name)}
    )


def reset(kit: Kit, env: Any, seed: int | None, task_of: int) -> Any:
    """Resets an environment to an episode; a task of the kit goes in as an option."""
    return reset_to(kit, env, seed, kit.task(task_of))


def reset_to(kit: Kit, env: Any, seed: int | None, task: Any) -> Any:
    """Resets an environment to an episode of this very task."""
    # by its key: an int would be an index, and without a task the environment takes one by the seed
    if task is None or isinstance(task, (int, str)):
        tasks = kit.scenario.tasks("train")
        # a split of one task needs no index
        known = range(len(tasks) if len(tasks) > 1 else 0)
        task = next(
            (
                f"train/{number}"
                for number in known
                if type(tasks[number]) is type(task) and tasks[number] == task
            ),
            task,
        )
    return env.reset(seed=seed) if task is None else env.reset(seed=seed, options={"task": task})
