"""Small attendants: notes on episodes that were too old, and the share of padding in passes."""

from __future__ import annotations

from collections.abc import Mapping

from gem_ma.training.learner.capabilities import Pads
from gem_ma.training.loop.attendant import Attendant
from gem_ma.training.loop.roles import Learner
from gem_ma.training.loop.step import Step


class StalenessNotes(Attendant):
    """Says once per policy that many of its episodes were too old to learn from."""

    def __init__(self) -> None:
        self.warned: set[str] = set()

    def updated(self, step: Step) -> None:
        """Passes on the warnings of the step's lessons."""
        for lesson in step.lessons:
            if lesson.warning and lesson.policy not in self.warned:
                step.notes.append(f"step {step.number}, {lesson.warning}")
                self.warned.add(lesson.policy)


class PaddingShares(Attendant):
    """Records the share of computed positions that held padding, by policy. It depends on what
    fits into a pass, so it belongs to the timings."""

    def __init__(self, learners: Mapping[str, Learner]) -> None:
        self.learners = learners

    def updated(self, step: Step) -> None:
        """Records the shares of the policies that learned."""
        # the others keep the share of their last update, which is no number of this step
        taught = ((name, self.learners[name]) for name in step.taught)
        shares = {name: learner.padding for name, learner in taught if isinstance(learner, Pads)}
        known = {name: share for name, share in shares.items() if share is not None}
        if known:
            step.times["padding"] = known
