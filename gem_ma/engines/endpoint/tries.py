"""What one request has been through: tries, waits, failures, and the tokens that they cost.

Counts; decides only whether an empty reply is a fault. What is tried again, and when, is in
`gem_ma.engines.endpoint.remote`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gem_ma.engines.endpoint.reply import is_empty
from gem_ma.kernel.types import Attempt, Reply, Usage

EMPTY_TRIES = 3  # after so many the empty text is the answer


@dataclass(slots=True)
class Tries:
    """What one request has been through so far."""

    most: int
    answered: int  # responses of the client when it began
    count: int = 0
    empty: int = 0  # replies without text or call
    spent_s: float = 0.0
    failed: list[Attempt] = field(default_factory=list)
    wasted: Usage = Usage(0, 0)  # of attempts without a usable reply

    def looks_empty(self, reply: Reply) -> bool:
        """Whether an empty reply is a fault of the server: the last one allowed is the answer."""
        if not is_empty(reply):
            return False
        self.empty += 1
        if self.empty >= EMPTY_TRIES or self.count >= self.most:
            return False
        self.wasted = _sum(self.wasted, reply.usage)
        return True


def _sum(first: Usage, other: Usage) -> Usage:
    return Usage(
        (first.prompt_tokens or 0) + (other.prompt_tokens or 0),
        (first.completion_tokens or 0) + (other.completion_tokens or 0),
    )
