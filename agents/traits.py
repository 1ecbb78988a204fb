"""Traits of a played person. They decide per turn, drawn from the episode's own generator; a trait that stands in a prompt alone fades.

`patience` ends the talk. `cooperation`, `scepticism` and `slips` are chances per turn of a stage direction that the model gets for this one
message. `verbosity` and `persona` stand in the briefing.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from gem_ma.errors import ConfigError

VERBOSITY = ("Be terse: a few words, no greeting, no thanks.", "", "Be talkative: three or four sentences, with small talk around what matters.")
DIRECTIONS = {  # trait -> what is to be done in this turn
    "cooperation": "This time do not answer what you were asked; say something else that is on your mind.",
    "scepticism": "This time doubt what you were told: before you agree to anything, ask for every detail of it once more.",
    "slips": "This time get one detail slightly wrong by mistake. If you are asked about it later, correct yourself.",
}
_REFUSED = re.compile(
    r"\b(?:cannot|can['’]?t|unable|not able|not possible|impossible|not allowed|won['’]?t|sorry|unfortunately|try again)\b", re.IGNORECASE
)


class Traits:
    """The traits of one person in one episode. Raises ConfigError for a value out of range."""

    def __init__(
        self,
        agent: str,
        rng: random.Random,
        *,
        persona: str = "",
        verbosity: int = 1,
        cooperation: float = 1.0,
        scepticism: float = 0.0,
        slips: float = 0.0,
        patience: int | None = None,
    ) -> None:
        shares = {"cooperation": cooperation, "scepticism": scepticism, "slips": slips}
        for name, share in shares.items():
            if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
                raise ConfigError(f"agent {agent!r}: {name} is a share of turns, from 0 to 1; got {share!r}")
        if isinstance(verbosity, bool) or verbosity not in (0, 1, 2):
            raise ConfigError(f"agent {agent!r}: verbosity is 0 (terse), 1 or 2 (talkative); got {verbosity!r}")
        if patience is not None and (isinstance(patience, bool) or not isinstance(patience, int) or patience < 1):
            raise ConfigError(f"agent {agent!r}: patience is a whole number of at least 1; got {patience!r}")
        self.rng, self.patience = rng, patience
        self.persona = " ".join(part for part in (persona.strip(), VERBOSITY[verbosity]) if part)
        self._chances = {name: (1 - share if name == "cooperation" else share) for name, share in shares.items()}

    def direction(self) -> str:
        """What this turn is to be played like; "" for as it comes. Draws the same number of times in every turn."""
        drawn = {name: self.rng.random() < chance for name, chance in self._chances.items()}
        return next((DIRECTIONS[name] for name, hit in drawn.items() if hit), "")

    def is_out_of_patience(self, heard: Sequence[str]) -> bool:
        """Whether the last `patience` messages were all unhelpful: refusals, or said before word by word."""
        if self.patience is None or len(heard) < self.patience:
            return False
        folded = [" ".join(text.casefold().split()) for text in heard]
        last = range(len(folded) - self.patience, len(folded))
        return all(_REFUSED.search(folded[at]) or folded[at] in folded[:at] for at in last)
