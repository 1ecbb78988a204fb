"""The canonical grader of a service talk: a pure function of (task, what changed, acceptable
changes, how the talk went). It changes nothing.

Three parts, all needed: the same changes as one of the goals makes; every wanted fact told, each
after a result that founds it, and not as one of many; the typed outcome that the task stands
for. Doing nothing earns nothing: where no change is right, the due refusal with its reason, or
the due transfer, is what is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gem_ma.scenarios.service_desk.desk.facts import Fact, distance, folded
from gem_ma.scenarios.service_desk.desk.log import ASSISTANT, Event, Outcome
from gem_ma.scenarios.service_desk.desk.task import Task
from gem_ma.scenarios.service_desk.domain import TRANSFER, WRITE, Domain
from gem_ma.scenarios.service_desk.grading.goals import Goals, wishes_in
from gem_ma.scenarios.service_desk.grading.refusals import gives_reasons, looked, refuses
from gem_ma.scenarios.service_desk.reading.founded import GUESSES, Basis, guessed
from gem_ma.scenarios.service_desk.reading.stated import Answers, Saying
from gem_ma.scenarios.service_desk.reading.values import kind_of


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
    guesses = len(guessed(task.outputs, outcome.texts, outcome.sources)) if task.outputs else 0
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
        talk = [Saying(text) for text in outcome.texts]
        return (
            tuple(
                o for o in outputs if not any(map(answers(o, task, talk).stands, range(len(talk))))
            ),
            (),
        )
    talk = texts_of(outcome.events, domain)
    missing, unfounded = [], []
    for output in outputs:
        answered = answers(output, task, talk, _asked_at(output, task, outcome.events))
        places = [place for place in range(len(talk)) if answered.stands(place)]
        if not places:
            missing.append(output)
        # Founded before it was told, and not just somewhere in the talk.
        elif (founded is None or output in founded) and not _founds(outcome.events, output, places):
            unfounded.append(output)
    return tuple(missing), tuple(unfounded)


def answers(output: str, task: Task, talk: Sequence[Saying], since: int | None = None) -> Answers:
    """What stands in the texts of the assistant for one output of a task; `since`: the first text
    behind the question."""
    kind = kind_of(output)
    # Whoever asks for two prices may be told four; the limit grows with what is asked for.
    needed = sum(kind_of(other) == kind for other in task.outputs)
    others = sum(not wish.outputs for wish in task.wishes)
    return Answers(output, talk, needed, others, task.outputs, since)


def _asked_at(output: str, task: Task, events: Sequence[Event]) -> int | None:
    """How many texts of the assistant stand before the question for an output in the task's own
    words; None where the user put it otherwise."""
    questions = [
        folded(wish.text) for wish in wishes_in(task) if output in wish.outputs and wish.text
    ]
    texts = 0
    for event in events:
        if event.kind == "said" and event.agent == ASSISTANT:
            texts += 1
        elif event.kind == "said" and any(text in folded(event.text) for text in questions):
            return texts
    return None


def texts_of(events: Sequence[Event], domain: Domain) -> list[Saying]:
    """The texts of the assistant, and which of them stand next to a write."""
    texts: list[Saying] = []
    wrote = False
    for event in events:
        if event.agent != ASSISTANT:
            continue
        if event.kind == "said":
            texts.append(Saying(event.text, wrote))
            wrote = False
        elif event.call and not event.failed and domain.role(event.call.name) == WRITE:
            wrote = True
            # The text before a write lists what will be done, the one after it what was: both hold
            # its values.
            texts[-1:] = [Saying(said.text, True) for said in texts[-1:]]
    return texts


def _founds(events: Sequence[Event], output: str, places: Sequence[int]) -> bool:
    """Whether something founds the output before one of the assistant's texts at these places."""
    basis, place = Basis(), -1
    for event in events:
        if event.kind == "called" and event.agent == ASSISTANT and not event.failed:
            basis.add(event.result)
        elif event.kind == "said" and event.agent == ASSISTANT:
            # Places count the texts that reached the customer, as `texts_of` lists them.
            place += 1
            if place in places and basis.founds(output):
                return True
    return False


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
        return outcome.reason == "refused" and bool(outcome.texts)
    due = [wish for wish in task.wishes if wish.kind == "impossible"]
    refusal = outcome.reason == "refused" or (
        outcome.reason == "settled" and any(refuses(text, domain) for text in outcome.texts)
    )
    return (
        refusal
        and bool(outcome.texts)
        and gives_reasons(task, outcome.texts, domain, in_any_words=True)
        and all(looked(wish, outcome.events, domain) for wish in due)
    )
