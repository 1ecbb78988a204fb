"""One play as numbers and groups for the tables: everything that monitor, ledger, grader and
blame found, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gem_ma.scenarios.service_desk.desk.log import ASSISTANT, USER, Desk
from gem_ma.scenarios.service_desk.desk.task import Task
from gem_ma.scenarios.service_desk.grading.goals import wishes_in
from gem_ma.scenarios.service_desk.grading.grader import Verdict
from gem_ma.scenarios.service_desk.reading.acts import SURE, read
from gem_ma.scenarios.service_desk.reading.answers import answer, corrects
from gem_ma.scenarios.service_desk.reading.phrases import Phrasebook
from gem_ma.scenarios.service_desk.watching.blame import CRITICAL, Blame
from gem_ma.scenarios.service_desk.watching.ledger import FAULTS, Fault
from gem_ma.scenarios.service_desk.watching.monitor import Monitor

from gem_ma import Episode

# Of the names that `measures` gives: which lie in 0..1 in every play, and of which more, or less,
# is better.
RATES = ("*success*", "plays with *", "user gave up", "facts told", "part *", "score *", "DB alone")
MORE_IS_BETTER = ("*success*", "facts told", "part *", "score *", "DB alone", "reward *")
LESS_IS_BETTER = (
    "*violations*",
    "*user faults*",
    "plays with *",
    "user gave up",
    "questions again",
    "tool errors",
    "distance",
)


@dataclass(frozen=True, slots=True)
class Audit:
    """A retold talk with all verdicts on it; `others` are those of the graders that do not pay."""

    desk: Desk
    verdict: Verdict
    others: Mapping[str, Verdict]
    monitor: Monitor
    faults: tuple[Fault, ...]
    blame: Blame | None


def measures(
    episode: Episode, audit: Audit, success: bool | None, paying: Iterable[tuple[str, str]] = ()
) -> dict[str, float | None]:
    """The numbers of a play. Shares and scores are None where the task has no such thing;
    `paying` are (agent, reward term) that may pay."""
    findings, desk = audit.monitor.findings, audit.desk
    hard = sum(finding.hard for finding in findings)
    canon = audit.others.get("canonical", audit.verdict)
    # The user's tools are its own affair.
    called = [event for event in desk.events if event.kind == "called" and event.agent == ASSISTANT]
    numbers: dict[str, float | None] = {
        "success without hard violations": None if success is None else float(success and not hard),
        "hard violations": hard,
        "soft violations": len(findings) - hard,
        **{f"violations {code}": count for code, count in audit.monitor.counts().items()},
        "user faults": len(audit.faults),
        "critical user faults": sum(fault.kind in CRITICAL for fault in audit.faults),
        "plays with a user fault": float(bool(audit.faults)),
        **{
            f"user faults {kind}": sum(fault.kind == kind for fault in audit.faults)
            for kind in FAULTS
        },
        "assistant turns": desk.acted[ASSISTANT],
        "user turns": desk.acted[USER],
        **manner(desk, audit.monitor.domain.book),
        "tool calls": len(called),
        "tool errors": sum(event.failed for event in called),
        "distance": canon.distance,
        "facts told": _share_told(canon, desk.task),
        **{f"part {name}": float(held) for name, held in audit.verdict.parts.items()},
        **{
            f"score {name}": verdict.reward if verdict.scored else None
            for name, verdict in audit.others.items()
        },
    }
    return {**numbers, **dict(_terms(episode, paying))}


def manner(desk: Desk, book: Phrasebook | None) -> dict[str, float | None]:
    """How the two talked, read from their texts, so that it holds for any user; None where there is
    no text, or no phrasebook to read it by.

    `user queries`: messages that answer a proposal with neither yes nor no; `user corrections`:
    of the user's own words, its mind included; `questions`: slots that the assistant asks for,
    `questions again` those of them that it had asked for before.
    """
    spoken = [event for event in desk.events if event.kind == "said"]
    texts = [event.text for event in spoken if event.agent == USER]
    numbers: dict[str, float | None] = {
        "words per user message": (
            sum(len(text.split()) for text in texts) / len(texts) if texts else None
        ),
        # A no that corrects is counted as a no.
        "user corrections": sum(corrects(text) and answer(text) != "no" for text in texts),
        "user gave up": float(
            desk.outcome is not None
            and desk.outcome.by == USER
            and desk.outcome.reason == "gave_up"
        ),
    }
    if book is None:
        return numbers | dict.fromkeys(("user queries", "questions", "questions again"))
    asked: Counter[str] = Counter()
    queries, proposed = 0, False
    for event in spoken:
        if event.agent == USER:
            queries += proposed and not answer(event.text) and not corrects(event.text)
            proposed = False
            continue
        acts = read(event.text, book)
        # "request" is a question for the whole matter, which may be put again.
        asked.update({act.slot for act in acts if act.kind == "ask"} - {"", "request"})
        proposed = any(act.kind == "propose" and act.confidence >= SURE for act in acts)
    return numbers | {
        "user queries": queries,
        "questions": asked.total(),
        "questions again": asked.total() - len(asked),
    }


def _share_told(verdict: Verdict, task: Task) -> float | None:
    """The share of the required facts that was told, by the grader that says which."""
    if not task.outputs or verdict.distance is None:
        return None
    # The strict graders do not say which facts are missing.
    return 1 - len({*verdict.missing, *verdict.unfounded}) / len(set(task.outputs))


def _terms(episode: Episode, paying: Iterable[tuple[str, str]]) -> Iterator[tuple[str, float]]:
    """What each reward term paid each agent."""
    # Terms that may pay and did not are 0 and not missing, or their means would lie.
    sums = {f"reward {agent} {term}": 0.0 for agent, term in paying}
    for entry in episode.ledger:
        name = f"reward {entry.agent} {entry.why.partition(':')[0]}"
        sums[name] = sums.get(name, 0.0) + entry.value
    yield from sorted(sums.items())


def labels(task: Task, split: str) -> dict[str, str | Sequence[str]]:
    """The groups of a task."""
    intents = tuple(dict.fromkeys(wish.intent or wish.kind for wish in wishes_in(task)))
    return {
        "split": split,
        "intent": intents or ("none",),
        "source": task.source,
        "goal": task.goal,
        "requests": str(len(task.wishes)),
        **({"flags": task.flags} if task.flags else {}),
    }
