"""The canonical grader of a service talk: a pure function of (task, what changed, acceptable
changes, how the talk went). It changes nothing.

Three parts, all needed: the same changes as one of the goals makes; every wanted fact told, each
after a result that founds it, and not as one of many; the typed outcome that the task stands
for. Doing nothing earns nothing: where no change is right, the due refusal with its reason, or
the due transfer, is what is asked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any

from gem_ma.scenarios.service.desk.facts import Fact, Weigh, distance, once, state
from gem_ma.scenarios.service.desk.log import ASSISTANT, USER, Event, Outcome, Store
from gem_ma.scenarios.service.desk.task import GoldCall, Task, Wish
from gem_ma.scenarios.service.domain import FIND, RECORD, TRANSFER, UTILITY, WRITE, Domain
from gem_ma.scenarios.service.reading.acts import SURE, read
from gem_ma.scenarios.service.reading.phrases import fold
from gem_ma.scenarios.service.reading.stated import Answers, Said
from gem_ma.scenarios.service.reading.values import GUESSES, Shown, guessed, kind_of

from gem_ma import ToolCall

Goals = Sequence[Counter[Fact]]
Open = Callable[[], tuple[Store, Store | None]]  # a fresh pair of stores on the task's world
# Choices multiply: three wishes with eight right answers each are 512 ends, each played out.
MOST_ENDS = 512  # acceptable ends of one task that are looked at
REFUSES = re.compile(
    r"\b(?:can ?not|can't|could ?n[o']t|unable|not able|(?:not|isn't|aren't"
    r"|[a-z]{2,6}n't) (?:an? )?(?:possible|allowed|eligible|available|permitted|accepted"
    r"|acceptable|valid|enough|sufficient|one of|yours|your|in stock|an option|something|a change"
    r"|on file|linked|associated)|impossible|won't|wouldn't"
    r"|will not|would not|must decline|have to (?:decline|say no|refuse)|refus\w+|no longer|(?:do"
    r"|does)(?:n't| not) (?:seem|have|allow|support|offer|cover|carry"
    r"|come|belong|qualify|let|make|sell|stock|exist|count|permit|match)|unfortunately|i'm afraid"
    r"|i am afraid|not going to|too late|sold out|out of stock"
    r"|unavailable|insufficient|nothing (?:i|we) can do|only (?:has|have|holds?)|no way|invalid"
    r"|there (?:isn't|is no|are no)|no further|can only|only be|but not (?:to|for|into))\b"
)
_CLAUSE = re.compile(r"(?<=[.!?;:])\s|,\s|\n")
_GENERAL = re.compile(  # speaks of a rule or of what may be, not of why this is refused
    r"\?|\b(?:if|unless|only (?:if|when|for|be|accept|allow)|as long as|would have to|(?:can"
    r"|may) (?:be )?(?:either|only)|either)\b"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reward` is 1 or 0; `parts` say why; `scored` is False where the grader has nothing to go by,
    `unscored` may say why not.

    Of the canonical grader: `distance` in facts to the nearest goal, which is number `goal`;
    `missing` facts were not told, `unfounded` ones were told before any result that founds them;
    `guesses` are numbers told that nothing showed.
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


def canonical(
    task: Task,
    done: Counter[Fact],
    goals: Goals,
    outcome: Outcome,
    domain: Domain,
    founded: frozenset[str] | None = None,
) -> Verdict:
    """The verdict on a talk that is over.

    `founded`: the outputs that the solution's own results found; of the others no provenance is
    asked (None = ask it of all). An outcome without a log of events (`Outcome.events`) is judged
    by its texts alone: then neither provenance nor the reason of a refusal is asked.
    """
    far = [distance(done, goal) for goal in goals]
    # The first of equal ones: the solution's own goal comes first.
    nearest = min(range(len(far)), key=far.__getitem__)
    missing, unfounded = facts_told(task, outcome, domain, founded)
    guesses = len(guessed(task.outputs, outcome.said, outcome.shown)) if task.outputs else 0
    parts = {
        "database": far[nearest] == 0,
        "facts": not missing and not unfounded and guesses <= GUESSES,
        "outcome": outcome_fits(task, outcome, domain),
    }
    # A task that cannot be scored pays nobody, so that it cannot be mistaken for a success.
    reward = float(task.scorable and all(parts.values()))
    return Verdict(reward, parts, task.scorable, far[nearest], nearest, missing, unfounded, guesses)


# -- facts ---------------------------------------------------------------------------------------


def facts_told(
    task: Task, outcome: Outcome, domain: Domain, founded: frozenset[str] | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The outputs that no message answers, and those that are only answered before a result
    founds them."""
    outputs = task.outputs
    if not outputs:
        return (), ()
    # Outcomes without a log come from the proofs, which have texts only.
    if not outcome.events:
        talk = [Said(text) for text in outcome.said]
        return (
            tuple(
                o for o in outputs if not any(map(answers(o, task, talk).stands, range(len(talk))))
            ),
            (),
        )
    talk = texts_of(outcome.events, domain)
    missing, unfounded = [], []
    for output in outputs:
        answered = answers(output, task, talk)
        places = [place for place in range(len(talk)) if answered.stands(place)]
        if not places:
            missing.append(output)
        # Founded before it was told, and not just somewhere in the talk.
        elif (founded is None or output in founded) and not _founds(outcome.events, output, places):
            unfounded.append(output)
    return tuple(missing), tuple(unfounded)


def answers(output: str, task: Task, talk: Sequence[Said]) -> Answers:
    """What stands in the texts of the assistant for one output of a task."""
    kind = kind_of(output)
    # Whoever asks for two prices may be told four; the limit grows with what is asked for.
    needed = sum(kind_of(other) == kind for other in task.outputs)
    return Answers(
        output, talk, needed, sum(not wish.outputs for wish in task.wishes), task.outputs
    )


def texts_of(events: Sequence[Event], domain: Domain) -> list[Said]:
    """The texts of the assistant, and which of them stand next to a write."""
    found: list[Said] = []
    wrote = False
    for event in events:
        if event.agent != ASSISTANT:
            continue
        if event.kind == "said":
            found.append(Said(event.text, wrote))
            wrote = False
        elif (
            event.kind == "called"
            and event.call is not None
            and not event.failed
            and domain.role(event.call.name) == WRITE
        ):
            wrote = True
            # The text before a write lists what will be done, the one after it what was: both hold
            # its values.
            found[-1:] = [Said(said.text, True) for said in found[-1:]]
    return found


def _founds(events: Sequence[Event], output: str, places: Sequence[int]) -> bool:
    """Whether something founds the output before one of the assistant's texts at these places."""
    shown, place = Shown(), -1
    for event in events:
        if event.kind == "called" and event.agent == ASSISTANT and not event.failed:
            shown.add(event.result)
        elif event.kind == "said" and event.agent == ASSISTANT:
            # Places count the texts that reached the customer, as `texts_of` lists them.
            place += 1
            if place in places and shown.founds(output):
                return True
    return False


def founded_by(task: Task, results: Sequence[str]) -> frozenset[str]:
    """The outputs that these results found."""
    shown = Shown(list(results))
    return frozenset(output for output in task.outputs if shown.founds(output))


# -- outcomes ------------------------------------------------------------------------------------


def transferred(outcome: Outcome, domain: Domain) -> bool:
    """Whether the assistant handed the customer over, whether or not that ends a talk in this
    domain."""
    return outcome.by == "transfer" or any(hands_over(event, domain) for event in outcome.events)


def hands_over(event: Event, domain: Domain) -> bool:
    """Whether this is a transfer that succeeded."""
    return (
        event.call is not None
        and event.agent == ASSISTANT
        and not event.failed
        and domain.role(event.call.name) == TRANSFER
    )


def refused(task: Task, said: Sequence[str], domain: Domain) -> bool:
    """Whether some text refuses, and the texts give every due reason that the domain has words
    for, and none that is not due."""
    return any(refuses(text, domain) for text in said) and gives_reasons(task, said, domain)


def refuses(text: str, domain: Domain) -> bool:
    """Whether a text of the assistant says that something cannot be done."""
    # The fast pattern decides nearly always; parsing into acts is for refusals in a shop's own
    # words.
    if REFUSES.search(fold(text)):
        return True
    return domain.book is not None and any(
        act.kind == "refuse" and act.confidence >= SURE for act in read(text, domain.book)
    )


def gives_reasons(task: Task, said: Sequence[str], domain: Domain) -> bool:
    """Whether the texts hold words for every due reason, and name none as the reason of this
    case that is not due."""
    if domain.book is None:
        return True
    # Each due reason: a talk with two refusals has two.
    due = {wish.reason for wish in task.wishes if wish.kind == "impossible"}
    # Marks of emphasis would part the words of a cue.
    texts = [fold(text.replace("*", "")) for text in said]
    cues = [domain.book.reasons[reason] for reason in due if reason in domain.book.reasons]
    return all(any(cue.search(text) for text in texts) for cue in cues) and not undue(
        due, texts, domain
    )


def undue(due: Iterable[str], texts: Sequence[str], domain: Domain) -> set[str]:
    # What may be said along with a due reason is no wrong reason.
    """The reasons that folded texts name and that are neither due nor akin to one that is.
    Questions, conditions and rules name none."""
    fine = set(due).union(
        *(domain.grounds[reason].akin for reason in due if reason in domain.grounds)
    )
    named = [
        # By clauses: `only pending orders can be changed` names a rule; the case stands beside it.
        clause
        for text in texts
        for clause in _CLAUSE.split(text)
        if not _GENERAL.search(clause)
    ]
    wrong = {
        reason: ground.named for reason, ground in domain.grounds.items() if reason not in fine
    }
    return {reason for reason, cue in wrong.items() if any(cue.search(clause) for clause in named)}


def looked(wish: Wish, events: Sequence[Event], domain: Domain) -> bool:
    """Whether the assistant used a tool that can show why this wish is refused; a write that
    failed shows it too."""
    ground = domain.grounds.get(wish.reason)
    own = set(domain.records(ToolCall("", "", dict(wish.arguments))))
    used = set[str]()
    for event in events:
        if event.kind == "called" and event.agent == ASSISTANT and event.call is not None:
            # A failed write shows that it cannot be done; a failed read shows nothing.
            role = domain.role(event.call.name)
            used |= {role} if role and not event.failed else set()
            used |= (
                {RECORD}
                if own & set(domain.records(event.call)) and (role == WRITE or not event.failed)
                else set()
            )
    # A reason without a ground needs some look at the data; a calculator or a thought is none.
    return bool(used & ground.looks) if ground is not None else bool(used - {UTILITY})


def outcome_fits(task: Task, outcome: Outcome, domain: Domain) -> bool:
    """Whether the talk ended as the task's goal wants it: settled by the user, refused and left by
    the user, or handed over.

    A refusal is what the user's typed end says. `settled` in its place does not take it from the
    assistant where its texts refuse. It counts where the assistant looked at what shows the
    reason, and gave that reason and no undue one.
    """
    handed_over = transferred(outcome, domain)
    if task.goal == "transferred":
        return handed_over
    if handed_over or outcome.by != "user":
        return False
    if task.goal != "refused":
        # With a request that is refused among those that are served, either reason fits the end.
        mixed = any(wish.kind == "impossible" for wish in task.wishes)
        return outcome.reason == "settled" or (mixed and outcome.reason == "refused")
    if not outcome.events:
        # Without a log neither looks nor reasons can be asked for.
        return outcome.reason == "refused" and bool(outcome.said)
    due = [wish for wish in task.wishes if wish.kind == "impossible"]
    told = outcome.reason == "refused" or (
        outcome.reason == "settled" and any(refuses(text, domain) for text in outcome.said)
    )
    return (
        told
        and bool(outcome.said)
        and gives_reasons(task, outcome.said, domain)
        and all(looked(wish, outcome.events, domain) for wish in due)
    )


# -- goals ---------------------------------------------------------------------------------------


def goals_of(task: Task, open_stores: Open, domain: Domain) -> tuple[Counter[Fact], ...]:
    """The acceptable sets of changes, the solution's own first: its calls, with each wish's
    `choices` in place of its arguments, and `ends`.

    The calls of a solution that fails on a write are no goal where `ends` are supplied in its
    place.
    """
    repaired = "gold_write_error" in task.flags and bool(task.ends)
    found: list[Counter[Fact]] = []
    for calls in islice((() if repaired else _chosen(task)), MOST_ENDS):
        found.append(played(calls, open_stores, domain))
    for end in task.ends:
        found += [played(calls, open_stores, domain) for calls in ([*_others(task), *end],)]
    # Ties often lead to one end, and each goal costs a comparison at every turn.
    distinct: list[Counter[Fact]] = []
    for goal in found:
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
        wish = next(
            (
                wish
                for wish in wishes_in(task)
                if wish.kind == call.name and dict(wish.arguments) == dict(call.arguments)
            ),
            None,
        )
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
        # A find tool may log in, which some domains write down; that is no change that is wanted.
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
        # The same rule of what an error is as everywhere else.
        if call.agent == ASSISTANT and not Event(0, "called", ASSISTANT, result=result).failed:
            found.append(result)
    return found


def nearness(done: Counter[Fact], goals: Goals, weigh: Weigh = once) -> int:
    """Facts to the nearest goal."""
    return min(distance(done, goal, weigh) for goal in goals)
