"""Whether a talk ended as its task asks: served, refused, or handed over."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from gem_ma.scenarios.service.desk.log import ASSISTANT, Desk, Event
from gem_ma.scenarios.service.desk.task import Task
from gem_ma.scenarios.service.domain import Domain
from gem_ma.scenarios.service.grading.goals import wishes_in
from gem_ma.scenarios.service.grading.grader import hands_over
from gem_ma.scenarios.service.grading.refusals import gives_reasons, refused, refuses
from gem_ma.scenarios.service.reading.acts import READ


class WrongEnd(NamedTuple):
    """What is wrong with an end; `clear`: its words leave nothing open."""

    evidence: str
    sure: bool = True
    clear: bool = True


def wrong_end(
    desk: Desk, event: Event, domain: Domain, made: Collection[str], refusing: bool
) -> WrongEnd | None:
    """What is wrong with the end `event` of a talk, None for nothing. `made`: the tools of the
    writes; `refusing`: some text was read as a refusal."""
    task = desk.task
    texts = [each.text for each in desk.events if each.kind == "said" and each.agent == ASSISTANT]
    if task.goal == "served":
        if domain.book is None:
            refusing = any(refuses(text, domain) for text in texts)
        # A user that got what it wanted has not been refused, whatever was said on the way.
        gave_up = event.reason in ("refused", "gave_up") and feasible(task)
        if gave_up and refusing and not _tried(task, made):
            return WrongEnd("a feasible request was refused", sure=False, clear=task.scorable)
        return None
    handed_over = any(hands_over(each, domain) for each in desk.events)
    if task.goal == "transferred":
        # Without a text there was no assistant to blame.
        silent = texts and not handed_over
        return WrongEnd("the due transfer was not made") if silent else None
    if handed_over:
        return WrongEnd("handed over in place of the due refusal")
    # The user's typed acceptance stands for words that no pattern knows, as long as the reason was
    # given.
    accepted = event.reason == "refused" and gives_reasons(task, texts, domain)
    if texts and not refused(task, texts, domain) and not accepted:
        # it may stand in the middle of a text that is too long to be read
        whole = all(len(text) <= READ for text in texts)
        return WrongEnd("the due refusal was not given", sure=False, clear=whole)
    return None


def _tried(task: Task, made: Collection[str]) -> bool:
    """Whether a write of each kind that is wanted was made, rightly or not: what is refused
    then is to undo it."""
    wanted = {wish.kind for wish in wishes_in(task) if wish.writes}
    return bool(wanted) and wanted <= set(made)


def feasible(task: Task) -> bool:
    """Whether a task holds no wish that must be refused."""
    return not any(wish.kind == "impossible" for wish in wishes_in(task))
