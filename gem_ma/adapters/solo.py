"""What adapters of one-agent worlds share: what is held of a play, and how a stop is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gem_ma.adapters.foreign import Foreign
from gem_ma.adapters.line import Stop
from gem_ma.effects import Reward, Tell

AGENT = "player"


@dataclass(slots=True)
class Held:
    """An environment, and what its last step gave."""

    env: Any
    shown: str
    info: Mapping[str, Any] = field(default_factory=dict)
    paid: float = 0.0
    over: bool = False
    why: str = "step"
    steps: int = 0


class Solo(Foreign):
    """A world of one agent. An adapter writes `opened` and `stepped`, both of which give a `Held`,
    and `moves` where it lists its moves."""

    agents = (AGENT,)
    brief = ""  # what the agent is told first

    def moves(self, state: Held) -> Mapping[str, Any] | None:
        """Legal strings, and what the library calls each; None where it reads for itself."""
        return None

    def stop(self, state: Held) -> Stop:
        before: tuple[Reward | Tell, ...] = ()
        if state.paid:
            before = (Reward({AGENT: state.paid}, why=state.why),)
        elif self.brief and not state.steps:
            before = (Tell({AGENT: self.brief}),)
        if state.over:
            return Stop(before)
        moves = self.moves(state)
        listed = None if moves is None else {AGENT: moves}
        return Stop(before, {AGENT: state.shown or "Go on."}, listed)
