"""Whether a talk ended as its task asks, by calls and the typed end alone."""

from __future__ import annotations

from gem_ma.scenarios.service_desk.desk.log import ASSISTANT, USER, Desk, said
from gem_ma.scenarios.service_desk.desk.task import Task
from gem_ma.scenarios.service_desk.domain import Domain
from gem_ma.scenarios.service_desk.grading.goals import wishes_in
from gem_ma.scenarios.service_desk.grading.grader import hands_over


def wrong_end(desk: Desk, domain: Domain, *, unknown: bool = False) -> str:
    """What is certainly wrong with the end of a talk, "" for nothing. `unknown`: the assistant
    looked for the customer, and found nobody."""
    handed_over = any(hands_over(each, domain) for each in desk.events)
    goal = desk.task.goal
    if goal == "transferred" and not handed_over:
        # Without a text there was no assistant to blame; who left content asked for none; a talk
        # that was cut might still have come to it; and nothing is due to who cannot be found.
        spoke = bool(said(desk.events, ASSISTANT))
        outcome = desk.outcome
        left = outcome is not None and outcome.by == USER and outcome.reason != "settled"
        return "the due transfer was not made" if spoke and left and not unknown else ""
    if goal not in ("served", "transferred") and handed_over:
        return "handed over in place of the due refusal"
    return ""


def feasible(task: Task) -> bool:
    """Whether a task holds no wish that must be refused."""
    return not any(wish.kind == "impossible" for wish in wishes_in(task))
