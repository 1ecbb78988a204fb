"""Which task a start plays, by how often plays of each task succeeded: those of which something can
be learned (`train.curriculum`).

A task is worth p (1 - p), its *learnability* (arXiv 2408.15099, section 4): where p is 0 or 1 all
plays of a group are paid alike, and nothing is learned. A function of what was played, and of
digests, without training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gem_ma.config.training import CurriculumSettings
from gem_ma.engines.base import stable_seed
from gem_ma.kernel.episode import placed

BAND = (0.1, 0.9)  # the estimated success of tasks that are drawn, by p (1 - p)
# a task that was out of reach may be within it for a policy that has learned since
DECAY = 0.98  # what a play counts for one step later
PRIOR = 1.0  # plays of success 1/2 that every estimate begins with
Tally = list[float]  # plays of a task, and those that succeeded; older ones count less


class Tasks(Protocol):
    """Which of the `known` tasks of a world a start has, where `turn` is the one in turn; `draw`
    names the start."""

    def __call__(self, world: str, known: int, turn: int, /, *draw: object) -> int: ...


def in_turn(world: str, known: int, turn: int, /, *draw: object) -> int:
    """Without `train.curriculum`."""
    return turn


def chance(tally: Tally | None) -> float:
    """The estimated success of a task.

    >>> chance(None), chance([3.0, 0.0]), chance([1.0, 1.0])
    (0.5, 0.125, 0.75)
    """
    plays, won = tally or (0.0, 0.0)
    return (won + PRIOR / 2) / (plays + PRIOR)


def worth(p: float) -> float:
    """The weight of a task in the draw; 0 outside of the band."""
    return p * (1 - p) if BAND[0] <= p <= BAND[1] else 0.0


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """The task of a start, and why: `band` by its worth, `turn` because its turn came. `success`:
    what was estimated then."""

    task: str
    why: str
    success: float


@dataclass(slots=True)
class TaskChoices:
    """The tasks of one step. `tallies`: of the tasks met so far, by their names; it is not changed.
    `made` gets every choice, in their order."""

    how: CurriculumSettings
    split: str
    seed: int
    tallies: Mapping[str, Tally]
    made: list[TaskChoice] = field(default_factory=list)
    weights: dict[str, dict[int, float]] = field(default_factory=dict)  # by world, once asked for

    def __call__(self, world: str, known: int, turn: int, *draw: object) -> int:
        """One of `known` tasks for a start: `turn` where it explores, or where no task is worth
        anything. `draw` names the start, and no other."""
        task = turn
        why = "turn"
        # digests, not draws of a generator: a resumed step need not draw what is past
        lucky, place = (
            stable_seed(self.seed, "curriculum", what, world, *draw) / 2**63
            for what in ("explore", "task")
        )
        if lucky >= self.how.explore:
            drawn = self._by_worth(world, known, place)
            task, why = (turn, why) if drawn is None else (drawn, "band")
        name = placed(world, f"{self.split}/{task}")
        self.made.append(TaskChoice(name, why, chance(self.tallies.get(name))))
        return task

    def _by_worth(self, world: str, known: int, place: float) -> int | None:
        """The task at a place (0 to 1) of all their weights, laid end to end: those that were met,
        then the others. None where all are 0."""
        weights = self._weights(world, known)
        fresh = worth(chance(None))
        rest = known - len(weights)
        left = place * (sum(weights.values()) + rest * fresh)
        last = None
        for task, weight in weights.items():
            if left < weight:
                return task
            left -= weight
            last = task if weight else last
        if not (fresh and rest):
            return last  # rounding may leave a little more than the last weight
        number = min(int(left / fresh), rest - 1)
        # the tasks that were met are passed over, in their order; a split may have millions more
        for task in weights:
            if task > number:
                break
            number += 1
        return number

    def _weights(self, world: str, known: int) -> dict[int, float]:
        """The weights of the tasks of a world that were met, in their order."""
        if world not in self.weights:
            begin = placed(world, f"{self.split}/")
            numbers = [n.removeprefix(begin) for n in self.tallies if n.startswith(begin)]
            # another world may be called like the beginning of this one's tasks
            met = sorted(int(number) for number in numbers if number.isdigit())
            self.weights[world] = {
                task: worth(chance(self.tallies[f"{begin}{task}"])) for task in met if task < known
            }
        return self.weights[world]

    def record(self) -> dict[str, Any]:
        """What the record says of the step: how many starts were drawn for which reason, and each
        start with its task, the reason and the estimate."""
        known = [chance(tally) for tally in self.tallies.values()]
        return {
            "band": sum(choice.why == "band" for choice in self.made),
            "turn": sum(choice.why == "turn" for choice in self.made),
            "met": len(known),
            "in_band": sum(worth(p) > 0 for p in known),
            "starts": [[one.task, one.why, round(one.success, 4)] for one in self.made],
        }
