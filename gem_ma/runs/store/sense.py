"""What a recorded play must be beside well-formed: acts and payments of its own cast, at steps that
a play can have."""

from __future__ import annotations

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import StoreError

MOST_STEPS = 10**9


def check_play(episode: Episode) -> None:
    """Raises StoreError, which names the turn or the ledger's entry that no play can have."""
    step = 0
    for number, turn in enumerate(episode.turns):
        if turn.agent not in episode.cast:
            raise StoreError(f"turns[{number}]: {turn.agent!r} is not in the cast")
        if not step <= turn.step <= MOST_STEPS:
            raise StoreError(
                f"turns[{number}]: {turn.agent!r} acts at step {turn.step}, behind step {step}"
            )
        step = turn.step
    for number, entry in enumerate(episode.ledger):
        if entry.agent not in episode.cast:
            raise StoreError(f"ledger[{number}]: {entry.agent!r} is not in the cast")
        if not -1 <= entry.step <= MOST_STEPS:
            raise StoreError(f"ledger[{number}]: no play has a step {entry.step}")
