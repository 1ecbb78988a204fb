"""What turns advantages into new weights: learners, losses, critics, parity, cloning.

`CATALOG`: learner name -> "module:Class". An engine that trains asks the registry for its learner,
since it may not import from this room, which lies floors above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Malformed, Request, ToolCall, Turn

CATALOG = {
    "table": "gem_ma.training.learner.table_learner:TableLearner",
    "sharded": "gem_ma.training.learner.sharded_learner:ShardedLearner",
    "tinker": "gem_ma.training.learner.tinker_learner:TinkerLearner",
    "torch": "gem_ma.training.learner.torch_learner:TorchLearner",
}


@dataclass(frozen=True, slots=True)
class Demonstration:
    """What a scripted agent was asked, and what it answered: one example for behaviour cloning."""

    request: Request
    text: str
    calls: tuple[ToolCall | Malformed, ...] = ()


class Turns(Protocol):
    """What learners read of a `TurnTable`: the turns [N] and the episode of each [N]."""

    @property
    def turns(self) -> tuple[Turn, ...]: ...
    @property
    def episodes(self) -> tuple[Episode, ...]: ...
