"""What the acceptable ends of a task are, worked out by playing its solution on a fresh world: sets
of changes, what its calls answer, and which outputs they found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any

from gem_ma.scenarios.service_desk.desk.facts import Fact, Weigh, distance, once, state
from gem_ma.scenarios.service_desk.desk.log import ASSISTANT, USER, Event, Store
from gem_ma.scenarios.service_desk.desk.task import GoldCall, Task
from gem_ma.scenarios.service_desk.domain import FIND, Domain
from gem_ma.scenarios.service_desk.reading.founded import Basis

Goals = Sequence[Counter[Fact]]
Open = Callable[[], tuple[Store, Store | None]]  # a fresh pair of stores on the task's world
# Choices multiply: three wishes with eight right answers each are 512 ends, each played out.
MOST_ENDS = 512  # acceptable ends of one task that are looked at


def goals_of(task: Task, open_stores: Open, domain: Domain) -> tuple[Counter[Fact], ...]:
    """The acceptable sets of changes, the solution's own first: its calls, with each wish's
    `choices` in place of its arguments, and `ends`.

    The calls of a solution that fails on a write are not a goal where `ends` are supplied in its
    place.
    """
    repaired = "gold_write_error" in task.flags and bool(task.ends)
    ends: list[Counter[Fact]] = []
    for calls in islice((() if repaired else _chosen(task)), MOST_ENDS):
        ends.append(played(calls, open_stores, domain))
    for end in task.ends:
        ends += [played(calls, open_stores, domain) for calls in ([*_others(task), *end],)]
    # Ties often lead to one end, and each goal costs a comparison at every turn.
    distinct: list[Counter[Fact]] = []
    for goal in ends:
        if goal not in distinct:
            distinct.append(goal)
    return tuple(distinct)


def _others(task: Task) -> list[GoldCall]:
    """What the user itself does in the solution; an end in `Task.ends` names the assistant's
    writes, and the user's where it has some."""
    if any(call.agent == USER for end in task.ends for call in end):
        return []
    return [call for call in task.actions if call.agent == USER]


def _chosen(task: Task) -> Iterator[list[GoldCall]]:
    """The solution's calls, then the same with every combination of choices."""
    ways: list[list[GoldCall]] = []
    for call in task.actions:
        wish = next(filter(call.serves, wishes_in(task)), None)
        choices: Sequence[Mapping[str, Any]] = wish.choices if wish is not None else ()
        ways.append(
            [
                call,
                *(
                    GoldCall(call.name, {**call.arguments, **choice}, call.agent)
                    for choice in choices
                ),
            ]
        )
    for calls in product(*ways):
        yield list(calls)


def wishes_in(task: Task) -> Iterator[Any]:
    """All wishes, those that stand in for others included."""
    # Changes of mind are left out: what is taken back is nothing that must be done.
    waiting = list(task.wishes)
    while waiting:
        wish = waiting.pop(0)
        yield wish
        waiting += [other for other in (wish.instead,) if other is not None]


def played(calls: Sequence[GoldCall], open_stores: Open, domain: Domain) -> Counter[Fact]:
    """The changes that these calls make on a fresh world; what only reads is not repeated."""
    store, user_store = open_stores()
    for call in calls:
        side = store if call.agent == ASSISTANT or user_store is None else user_store
        # A find tool may log in, which some domains write down; nobody wanted that change.
        if side.mutates(call.name) and domain.role(call.name) != FIND:
            side.call(call.name, dict(call.arguments))
    return state((store, user_store), domain.facts)


def results_of(task: Task, open_stores: Open) -> list[str]:
    """What the solution's calls answer the assistant."""
    store, user_store = open_stores()
    results = []
    for call in task.actions:
        side = store if call.agent == ASSISTANT or user_store is None else user_store
        result = "" if side.terminates(call.name) else side.call(call.name, dict(call.arguments))
        # The same rule of what an error is as everywhere else.
        if call.agent == ASSISTANT and not Event(0, "called", ASSISTANT, result=result).failed:
            results.append(result)
    return results


def founded_by(task: Task, results: Sequence[str]) -> frozenset[str]:
    """The outputs that these results found."""
    shown = Basis(list(results))
    return frozenset(output for output in task.outputs if shown.founds(output))


def nearness(done: Counter[Fact], goals: Goals, weigh: Weigh = once) -> int:
    """Facts to the nearest goal."""
    return min(distance(done, goal, weigh) for goal in goals)
