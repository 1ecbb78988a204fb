"""Kuhn poker with prices beside the stakes: knobs of experiments, which change no rule of the hand.

It is what `kuhn_poker` makes; the game itself is `kuhn.py`.
"""

from __future__ import annotations

import random
from typing import Any

from gem_ma.scenarios.kuhn import Kuhn

from gem_ma import Action, Ask, Reward
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play


class PricedKuhn(Kuhn):
    """Kuhn poker for two agents: zero-sum, private cards, one or two chips."""

    def __init__(self, offset: float = 0.0, foul: float = 0.0) -> None:
        """`offset` is what player_1 pays player_0 at the end of every hand, whoever wins: it
        changes no decision.

        `foul` is what an answer costs its agent that is not one of the two words and nothing
        else; it is played as check or fold, and the other gets the chips, since the game is
        zero-sum. Without a foul words around the move are forgiven, and an unreadable answer is
        as good as check or fold: a language model that learns has no reason to keep to the
        format. Raises ConfigError for a foul below 0.
        """
        priced = isinstance(foul, (int, float)) and not isinstance(foul, bool)
        if not priced or not 0 <= foul < float("inf"):
            raise ConfigError(f"scenario.foul: chips of 0 or more; got {foul!r}")
        self.offset = offset
        self.foul = foul

    def play(self, rng: random.Random, task: Any) -> Play:
        # without a price no frame stands between the kernel and the game
        hand = super().play(rng, task)
        return self._priced(hand) if self.offset or self.foul else hand

    def _priced(self, hand: Play) -> Play:
        """The effects of the hand, with the payments between them."""
        first, second = self.agents
        effect = next(hand)
        while True:
            actions = yield effect
            # Tell and Reward are answered by None
            if self.foul and isinstance(effect, Ask):
                [(agent, action)] = actions.items()
                legal = tuple(effect.legal or ())
                if action.text.strip() not in legal:
                    # the hand sees a move: what was written stays in the transcript
                    actions = {agent: Action(action.text, (), legal[0])}
                    other = second if agent == first else first
                    yield Reward({agent: -self.foul, other: self.foul}, why="foul")
            # no further effect: the hand is over
            try:
                effect = hand.send(actions)
            except StopIteration:
                break
        if self.offset:
            yield Reward({first: self.offset, second: -self.offset}, why="offset")
