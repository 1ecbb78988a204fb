"""The iterated prisoner's dilemma: both act at once, every round, and see afterwards what the other
did. It is the preset `dilemma` of `matrix`.

Type `gem-ma run dilemma agents.player_0=tit_for_tat`.
"""

from __future__ import annotations

from gem_ma.scenarios.parties.checked import whole
from gem_ma.scenarios.parties.matrix import LONGEST, Matrix


class Dilemma(Matrix):
    """Iterated prisoner's dilemma for two agents: simultaneous, mixed motives."""

    version = 2  # 1 told nobody what is paid

    def __init__(self, rounds: int = 5, briefing: bool = True) -> None:
        """`rounds` are played; without `briefing` nobody is told what is paid, nor what for. Raises
        ConfigError."""
        rounds = whole("rounds", rounds, 1, LONGEST)
        super().__init__("dilemma", rounds=rounds, briefing=briefing)
