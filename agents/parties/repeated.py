"""Players of repeated games of two choices, of which the first is the one that is good for all:
`dilemma`, and `matrix` with presets such as `stag_hunt`. Among more than two agents the others
count as having done the first only where all of them did.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from gem_ma.agents.bots import Bot, chosen
from gem_ma.agents.options import probability

from gem_ma import Action, Asked
from gem_ma.kernel.errors import ConfigError

# as in "The other chose to defect." and "The others chose 2 stag, 1 hare: you get 0."
_CHOSE = re.compile(r"The (other|others) chose (?:to )?([^.:]{1,4000})[.:]")


class _Repeated(Bot):
    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__(agent, sample, rng, task)
        self.heard = 0  # messages that have been read
        self.good: list[bool] = []  # round by round, whether the others did the first choice

    async def act(self, asked: Asked) -> Action:
        legal: Sequence[str] = asked.legal or ()
        if len(legal) != 2:
            raise ConfigError(
                f"agent {self.agent!r}: plays games of two choices; got {len(legal)} of them"
            )
        for message in asked.transcript[self.heard :]:
            told = _CHOSE.match(message.text) if message.sender != self.agent else None
            if told is not None:
                self.good.append(_all_did(told[1], told[2], legal[0]))
        self.heard = len(asked.transcript)
        choice = legal[0] if self.cooperates(self.good) else legal[1]
        return chosen(choice)

    def cooperates(self, good: Sequence[bool]) -> bool:
        """Whether it makes the first choice, after rounds in which the others did or did not."""
        raise NotImplementedError


def _all_did(who: str, told: str, first: str) -> bool:
    if who == "other":
        return told == first
    # "2 stag, 1 hare" and "player_1 stag, player_2 hare": the choice stands behind the first blank
    return all(part.partition(" ")[2] == first for part in told.split(", "))


class AlwaysCooperate(_Repeated):
    """Makes the first choice, whatever happens."""

    def cooperates(self, good: Sequence[bool]) -> bool:
        return True


class AlwaysDefect(_Repeated):
    """Makes the second choice, whatever happens."""

    def cooperates(self, good: Sequence[bool]) -> bool:
        return False


class TitForTat(_Repeated):
    """Cooperates first, then does what the other did last."""

    def cooperates(self, good: Sequence[bool]) -> bool:
        return not good or good[-1]


class Grim(_Repeated):
    """Cooperates until the other defects once, and never again."""

    def cooperates(self, good: Sequence[bool]) -> bool:
        return all(good)


class Pavlov(_Repeated):
    """Win stay, lose shift: does again what met cooperation, and changes what met defection."""

    def cooperates(self, good: Sequence[bool]) -> bool:
        # it begins with cooperation, and each defection of the other turns it over
        return good.count(False) % 2 == 0


class Generous(_Repeated):
    """Tit for tat that forgives a defection with a probability; a third is the most that still
    keeps a defector from gaining at the payments 5, 3, 1, 0."""

    def __init__(
        self,
        agent: str,
        sample: Any,
        rng: random.Random,
        task: Any = None,
        forgives: float = 1 / 3,
    ) -> None:
        super().__init__(agent, sample, rng, task)
        self.forgives = probability(agent, "forgives", forgives)

    def cooperates(self, good: Sequence[bool]) -> bool:
        return not good or good[-1] or self.rng.random() < self.forgives
