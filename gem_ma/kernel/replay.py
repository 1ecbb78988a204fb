"""The script of a replay: what a recorded play feeds a second one, and where the two differ.

It knows records alone; `gem_ma.kernel.scenario` plays by it. No recorded call ever runs again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from gem_ma.kernel.effect_values import Pending
from gem_ma.kernel.episode import CallResult
from gem_ma.kernel.types import Message, Turn


@dataclass(slots=True)
class Script:
    """The recorded results of calls, and the reseedings by step, of the first `steps` decision
    points."""

    steps: int
    calls: deque[CallResult]
    forks: dict[int, list[str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        turns: Sequence[Turn],
        calls: Sequence[CallResult],
        forks: Sequence[tuple[int, str]],
    ) -> Script:
        """The script out of the parts of a record."""
        script = cls(turns[-1].step + 1 if turns else 0, deque(calls))
        for step, seed in forks:
            # several seeds at one step: the record was forked again before anybody acted
            script.forks.setdefault(step, []).append(seed)
        return script

    def lags(self, step: int) -> bool:
        """Whether a recorded call of an earlier step was never made."""
        return bool(self.calls) and self.calls[0].step < step

    def result(self, step: int) -> CallResult | None:
        """The recorded result of the call that is made before decision point `step`; None where
        the record holds none."""
        # a result bears the step that was committed last when its call was made
        if self.calls and self.calls[0].step == step - 1:
            return self.calls.popleft()
        return None


def steps_of(turns: Sequence[Turn]) -> Iterator[tuple[int, list[Turn]]]:
    """The recorded decision points, each with its turns."""
    for step, group in groupby(turns, lambda turn: turn.step):
        yield step, list(group)


def difference(
    group: Sequence[Turn],
    pending: Mapping[str, Pending],
    new: Callable[[str], tuple[Message, ...]],
) -> str:
    """How the open decision point differs from the recorded one, in words; "" where it does not.

    `new` gives what an agent was shown since its last turn.
    """
    agents = [turn.agent for turn in group]
    # in order: it is the order in which turns of one step are recorded
    if agents != list(pending):
        return f"asked are {', '.join(pending) or 'none'}, on record {', '.join(agents)}"
    for turn in group:
        asked = pending[turn.agent]
        # of a tool the name alone: a better description makes no other game
        offered = [tool.name for tool in asked.tools] == [tool.name for tool in turn.tools]
        if not offered or asked.legal != turn.legal or new(turn.agent) != turn.observed:
            return f"{turn.agent} is shown or offered something else"
    return ""
