"""A game whose own rules burn the processor, as simulations and checkers of answers do."""

from __future__ import annotations

import hashlib
import random
from typing import Any

from gem_ma import Ask, Reward, Scenario


class Busy(Scenario):
    """`rounds` choices; before each the rules compute `work` digests."""

    agents = ("a",)

    def __init__(self, rounds: int = 4, work: int = 20_000) -> None:
        self.rounds, self.work = rounds, work

    def play(self, rng: random.Random, task: Any) -> Any:
        digest = rng.randbytes(8)
        for _ in range(self.rounds):
            for _ in range(self.work):
                digest = hashlib.sha256(digest).digest()
            answers = yield Ask({"a": f"{digest[0] % 2}"}, legal=("0", "1"))
            yield Reward({"a": float(answers["a"].text == f"{digest[0] % 2}")})
