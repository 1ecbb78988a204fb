"""What adapters of one-agent worlds share: the state of a play, and how a stop is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gem_ma.kernel.effects import Reward, Tell
from gem_ma.worlds.foreign import Foreign
from gem_ma.worlds.line import Stop

AGENT = "player"


@dataclass(slots=True)
class SoloState:
    """An environment, and what its last step gave; `view` is what the agent is shown of it."""

    env: Any
    view: str
    info: Mapping[str, Any] = field(default_factory=dict)
    paid: float = 0.0
    over: bool = False
    cut: bool = False  # over by a limit of the environment's own that nobody declared
    why: str = "step"
    steps: int = 0


class Solo(Foreign):
    """A world of one agent. An adapter writes `opened` and `stepped`, which give a `SoloState`, and
    `moves` where it lists its moves."""

    agents = (AGENT,)
    brief = ""  # what the agent is told first

    def moves(self, state: SoloState) -> Mapping[str, Any] | None:
        """Legal strings, and what the library calls each; None where it reads for itself."""
        return None

    def stop(self, state: SoloState) -> Stop:
        before: tuple[Reward | Tell, ...] = ()
        if state.paid:
            before = (Reward({AGENT: state.paid}, why=state.why),)
        elif self.brief and not state.steps:
            before = (Tell({AGENT: self.brief}),)
        if state.over:
            return Stop(before, cut={AGENT: state.view} if state.cut else None)
        moves = self.moves(state)
        listed = None if moves is None else {AGENT: moves}
        return Stop(before, {AGENT: state.view or "Go on."}, listed)
