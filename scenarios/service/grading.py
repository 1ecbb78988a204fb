"""The canonical grader of a service talk: a pure function of (task, what changed, acceptable changes, how the talk went). It changes nothing.

Three parts, all needed: the same changes as one of the goals makes; every wanted fact told, each after a result that founds it, and not as one
of many; the typed outcome that the task stands for. Doing nothing earns nothing: where no change is right, the due refusal with its reason, or
the due transfer, is what is asked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any

from gem_ma.scenarios.service.acts import SURE, read
from gem_ma.scenarios.service.domain import FIND, TRANSFER, Domain
from gem_ma.scenarios.service.facts import Fact, Weigh, distance, once, state
from gem_ma.scenarios.service.phrases import fold
from gem_ma.scenarios.service.talk import ASSISTANT, USER, Event, Outcome, Store
from gem_ma.scenarios.service.task import GoldCall, Task
from gem_ma.scenarios.service.values import GUESSES, Shown, crowded, guessed, told

Goals = Sequence[Counter[Fact]]
Open = Callable[[], tuple[Store, Store | None]]  # a fresh pair of stores on the task's world
MOST_ENDS = 512  # acceptable ends of one task that are looked at
REFUSES = re.compile(
    r"\b(cannot|can't|can ?not|could ?n[o']t|unable|not able|(not|isn't) (possible|allowed|eligible|available|permitted)|impossible|won't be able"
    r"|refuse|(must|have to) decline|no longer (possible|pending)|not (something|a change) (i|we) can)\b"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reward` is 1 or 0; `parts` say why; `scored` is False where the grader has nothing to go by, `unscored` may say why not.

    Of the canonical grader: `distance` in facts to the nearest goal, which is number `goal`; `missing` facts were not told, `unfounded` ones were
    told before any result that founds them; `guesses` are numbers told that nothing showed.
    """

    reward: float
    parts: Mapping[str, bool] = field(default_factory=dict)
    scored: bool = True
    distance: int | None = None
    goal: int = 0
    missing: tuple[str, ...] = ()
    unfounded: tuple[str, ...] = ()
    guesses: int = 0
    unscored: str = ""


def canonical(task: Task, done: Counter[Fact], goals: Goals, outcome: Outcome, domain: Domain, founded: frozenset[str] | None = None) -> Verdict:
    """The verdict on a talk that is over.

    `founded`: the outputs that the solution's own results found; of the others no provenance is asked (None = ask it of all). An outcome without
    a log of events (`Outcome.events`) is judged by its texts alone: then neither provenance nor the reason of a refusal is asked.
    """
    far = [distance(done, goal) for goal in goals]
    nearest = min(range(len(far)), key=far.__getitem__)
    missing, unfounded = facts_told(task.outputs, outcome, founded)
    guesses = len(guessed(task.outputs, outcome.said, outcome.shown)) if task.outputs else 0
    parts = {
        "database": far[nearest] == 0,
        "facts": not missing and not unfounded and guesses <= GUESSES,
        "outcome": outcome_fits(task, outcome, domain),
    }
    reward = float(task.scorable and all(parts.values()))
    return Verdict(reward, parts, task.scorable, far[nearest], nearest, missing, unfounded, guesses)


# -- facts ------------------------------------------------------------------------------------------------------------------


def facts_told(outputs: Sequence[str], outcome: Outcome, founded: frozenset[str] | None = None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The outputs that no message tells among few enough of their like, and those that are only told before a result founds them."""
    if not outputs:
        return (), ()
    texts = [text for text in outcome.said if any(told(output, (text,)) for output in outputs)]
    missing = tuple(o for o in outputs if not any(told(o, (text,)) and not crowded(o, text, outputs) for text in texts))
    if not outcome.events:
        return missing, ()
    open_ = [o for o in outputs if o not in missing and (founded is None or o in founded)]
    shown = Shown()
    for event in outcome.events:
        if not open_:
            break
        if event.kind == "called" and event.agent == ASSISTANT and not event.failed:
            shown.add(event.result)
        elif event.kind == "said" and event.agent == ASSISTANT:
            open_ = [o for o in open_ if not (told(o, (event.text,)) and not crowded(o, event.text, outputs) and shown.founds(o))]
    return missing, tuple(open_)


def founded_by(task: Task, results: Sequence[str]) -> frozenset[str]:
    """The outputs that these results found."""
    shown = Shown(list(results))
    return frozenset(output for output in task.outputs if shown.founds(output))


# -- outcomes ---------------------------------------------------------------------------------------------------------------


def transferred(outcome: Outcome, domain: Domain) -> bool:
    """Whether the assistant handed the customer over, whether or not that ends a talk in this domain."""
    return outcome.by == "transfer" or any(hands_over(event, domain) for event in outcome.events)


def hands_over(event: Event, domain: Domain) -> bool:
    """Whether this is a transfer that succeeded."""
    return event.call is not None and event.agent == ASSISTANT and not event.failed and domain.role(event.call.name) == TRANSFER


def refused(task: Task, said: Sequence[str], domain: Domain) -> bool:
    """Whether some text refuses, and the refusals give every due reason that the domain has words for."""
    refusals = [text for text in said if refuses(text, domain)]
    if not refusals or domain.book is None:
        return bool(refusals)
    due = {wish.reason for wish in task.wishes if wish.kind == "impossible"}
    cues = [domain.book.reasons[reason] for reason in due if reason in domain.book.reasons]
    return all(any(cue.search(fold(text)) for text in refusals) for cue in cues)


def refuses(text: str, domain: Domain) -> bool:
    """Whether a text of the assistant says that something cannot be done."""
    if REFUSES.search(fold(text)):
        return True
    return domain.book is not None and any(act.kind == "refuse" and act.confidence >= SURE for act in read(text, domain.book))


def outcome_fits(task: Task, outcome: Outcome, domain: Domain) -> bool:
    """Whether the talk ended as the task's goal wants it: settled by the user, refused in words and accepted, or handed over."""
    handed_over = transferred(outcome, domain)
    if task.goal == "transferred":
        return handed_over
    if handed_over or outcome.by != "user":
        return False
    if task.goal == "refused":
        return outcome.reason == "refused" and bool(outcome.said) and (not outcome.events or refused(task, outcome.said, domain))
    mixed = any(wish.kind == "impossible" for wish in task.wishes)
    return outcome.reason == "settled" or (mixed and outcome.reason == "refused")


# -- goals ------------------------------------------------------------------------------------------------------------------


def goals_of(task: Task, open_stores: Open, domain: Domain) -> tuple[Counter[Fact], ...]:
    """The acceptable sets of changes, the solution's own first: its calls, with each wish's `choices` in place of its arguments, and `ends`.

    The calls of a solution that fails on a write are no goal where `ends` are supplied in its place.
    """
    repaired = "gold_write_error" in task.flags and bool(task.ends)
    found: list[Counter[Fact]] = []
    for calls in islice((() if repaired else _chosen(task)), MOST_ENDS):
        found.append(played(calls, open_stores, domain))
    for end in task.ends:
        found += [played(calls, open_stores, domain) for calls in ([*_others(task), *end],)]
    distinct: list[Counter[Fact]] = []
    for goal in found:
        if goal not in distinct:
            distinct.append(goal)
    return tuple(distinct)


def _others(task: Task) -> list[GoldCall]:
    """What the user itself does in the solution; an end in `Task.ends` names the assistant's writes, and the user's where it has some."""
    if any(call.agent == USER for end in task.ends for call in end):
        return []
    return [call for call in task.actions if call.agent == USER]


def _chosen(task: Task) -> Iterator[list[GoldCall]]:
    """The solution's calls, then the same with every combination of choices."""
    ways: list[list[GoldCall]] = []
    for call in task.actions:
        wish = next((wish for wish in wishes_in(task) if wish.kind == call.name and dict(wish.arguments) == dict(call.arguments)), None)
        choices: Sequence[Mapping[str, Any]] = wish.choices if wish is not None else ()
        ways.append([call, *(GoldCall(call.name, {**call.arguments, **choice}, call.agent) for choice in choices)])
    for calls in product(*ways):
        yield list(calls)


def wishes_in(task: Task) -> Iterator[Any]:
    """All wishes, those that stand in for others included."""
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
        if side.mutates(call.name) and domain.role(call.name) != FIND:
            side.call(call.name, dict(call.arguments))
    return state((store, user_store), domain.facts)


def results_of(task: Task, open_stores: Open) -> list[str]:
    """What the solution's calls answer the assistant."""
    store, user_store = open_stores()
    found = []
    for call in task.actions:
        side = store if call.agent == ASSISTANT or user_store is None else user_store
        result = "" if side.terminates(call.name) else side.call(call.name, dict(call.arguments))
        if call.agent == ASSISTANT and not Event(0, "called", ASSISTANT, result=result).failed:
            found.append(result)
    return found


def nearness(done: Counter[Fact], goals: Goals, weigh: Weigh = once) -> int:
    """Facts to the nearest goal."""
    return min(distance(done, goal, weigh) for goal in goals)
