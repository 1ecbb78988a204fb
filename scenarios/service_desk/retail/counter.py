"""The smallest customer service: one order, few words, two seats that a tiny language model can
learn.

Type `gem-ma run retail_one_order`; `configs/retail_train.yaml` trains the assistant, the user,
or both. Behind the few words stand the talk, the tools, the store and the canonical grader of
`retail`: the verdict is the database's. Guessing is worth little: an assistant that never looks
at the order can be right in a third of the talks at most (`one_order.never_looking`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from gem_ma.scenarios.service_desk.desk.log import ASSISTANT, Desk, Rules
from gem_ma.scenarios.service_desk.desk.talk import retell, talk
from gem_ma.scenarios.service_desk.desk.task import Task
from gem_ma.scenarios.service_desk.retail.compact import compact
from gem_ma.scenarios.service_desk.retail.domain.grading import canonical, gold_of
from gem_ma.scenarios.service_desk.retail.one_order import (
    SPLITS,
    never_looking,
    provenance,
    tasks_of,
    world,
)
from gem_ma.scenarios.service_desk.retail.store.store import RetailStore

from gem_ma import Episode, Reward, Scenario, task_of
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play

SEMANTICS = "fixed"
SOLUTION = ("actions", "outputs", "goal", "ends", "wishes", "flags", "proof", "raw")


class RetailOneOrder(Scenario):
    """Customer service of a shop with one order: look, ask, and change what the order allows, in
    a few words; paid by what became of it."""

    agents = ("assistant", "user")
    version = 1
    cooperative = True  # both are paid the outcome
    rates = ("return *", "looked_before_write")
    more_is_better = ("looked_before_write",)
    less_is_better = ("refused_calls",)
    chance = False
    # `knowledge` is the customer's alone: it holds the colour that the assistant has to ask for.
    private = {"user": ("instruction", "knowledge", *SOLUTION), "assistant": SOLUTION}
    default_cast = {"assistant": "one_order_clerk", "user": "one_order_customer"}
    # Not a guess: the value is worked out from the shares of wishes and statuses.
    baselines = {"best that never looks": float(never_looking())}
    baseline_casts = {
        "transfers at once": {"assistant": "one_order_transfers", "user": "one_order_customer"},
        "guesses, neither looks nor asks": {
            "assistant": "one_order_guesses",
            "user": "one_order_customer",
        },
        "asks, never looks": {"assistant": "one_order_asks", "user": "one_order_customer"},
        "looks and asks (expert)": {"assistant": "one_order_clerk", "user": "one_order_customer"},
    }

    def __init__(self, max_actions: int = 6) -> None:
        """The talk ends when the assistant has acted `max_actions` times or the user three times
        more. Raises ConfigError for an option."""
        if isinstance(max_actions, bool) or not isinstance(max_actions, int) or max_actions < 1:
            raise ConfigError(
                f"scenario.max_actions: a whole number of at least 1; got {max_actions!r}"
            )
        # The customer gets three actions more, so that it is the assistant's own slowness that
        # costs the talk and never the customer's greeting or its end.
        self.rules = Rules(max_actions, max_actions + 3)
        self.ends_within = 2 * max_actions + 3
        self._splits = {split: tasks_of(split) for split in SPLITS}

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of `train`, `val` or `test`. Raises ConfigError for another split."""
        return self._splits[split] if split in self._splits else tasks_of(split)

    def provenance(self) -> dict[str, Any]:
        """What the tasks are made of."""
        return provenance()

    def success(self, episode: Episode) -> bool | None:
        """Whether the database, what was told and the end are those of the task."""
        # With a margin, since a reward is a float sum of the ledger's entries.
        return any(entry.agent == ASSISTANT and entry.value > 1 - 1e-6 for entry in episode.ledger)

    def measures(self, episode: Episode) -> dict[str, float | None]:
        """Whether the assistant looked at the order before it wrote (None where it wrote
        nothing), and calls that were refused."""
        desk = retell(
            self.desk(task_of(self, episode.task)),
            ({turn.agent: turn.action} for turn in episode.turns),
        )
        events = [event for event in desk.events if event.kind == "called"]
        calls = [(event, event.call) for event in events if event.agent == ASSISTANT and event.call]
        writes = [place for place, (_, call) in enumerate(calls) if desk.store.mutates(call.name)]
        looks = [place for place, (_, call) in enumerate(calls) if call.name == "get_order_details"]
        # None where nothing was written: a share over talks without a write would praise doing
        # nothing.
        looked_first = float(bool(looks) and looks[0] < writes[0]) if writes else None
        refused = float(sum(event.failed for event, _ in calls))
        return {"looked_before_write": looked_first, "refused_calls": refused}

    def play(self, rng: random.Random, task: Task | None) -> Play:
        """A play without a task is one of the first training task."""
        task = task or self.tasks("train")[0]
        desk = self.desk(task)
        outcome = yield from talk(desk)
        gold = gold_of(world(task.world or 0), SEMANTICS, task)
        verdict = canonical(task, desk.store.overlay.copy(), gold.goals, outcome, gold.founded)
        yield Reward(dict.fromkeys(self.agents, verdict.reward), why="outcome")

    def desk(self, task: Task) -> Desk:
        """A talk about a task that has not begun. Raises ConfigError for a task of another shop."""
        if task.world is None or task.source != "one-order shop":
            raise ConfigError(f"task {task.id} is not of the one-order shop")
        base = world(task.world)
        return Desk(task, RetailStore(base, SEMANTICS), compact(task, base), self.rules)
