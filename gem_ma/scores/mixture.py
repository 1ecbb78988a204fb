"""The average of strategies in a small game: draw one per episode and play it throughout. As one
strategy, exactly.

With perfect recall such a mixture equals one strategy: at each information set the mean of the
members' probabilities, each weighted by how often its own choices lead there. The plain mean of
the probabilities is another strategy, and so is the mean of weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.kernel.types import Message
from gem_ma.scores.exploitability import Decision, TokenStrategy
from gem_ma.scores.game_tree import Strategy


class Mixture:
    """A weighted sum of strategies over the `decisions` of a game, added one by one; nothing of
    a member is kept but its share."""

    def __init__(self, decisions: Sequence[Decision]) -> None:
        self.decisions = tuple(decisions)
        self.size = 0  # members so far
        self.reached = [0.0] * len(self.decisions)  # weight times own reach, over the members
        # the same times the probability of each choice
        self.sums = [[0.0] * len(decision.legal) for decision in self.decisions]

    def add(self, strategy: Strategy, weight: float = 1.0) -> None:
        """Takes one strategy into the mixture. Mass that it does not assign is that of
        unreadable answers."""
        asked = [(decision.agent, decision.view, decision.legal) for decision in self.decisions]
        # a language model is asked for all decisions in one pass; one pass each would be hours
        chances = (
            strategy.many(asked)
            if isinstance(strategy, TokenStrategy)
            else [[float(p) for p in strategy(*one)] for one in asked]
        )
        reach: list[float] = []
        self.size += 1
        for place, decision in enumerate(self.decisions):
            reached = 1.0
            # a decision comes after the one before it in the list, so that one's reach is known
            if decision.before is not None:
                before, choice = decision.before
                taken = chances[before]
                reached = reach[before] * (
                    taken[choice] if choice < len(taken) else max(0.0, 1 - sum(taken))
                )
            reach.append(reached)
            self.reached[place] += weight * reached
            self.sums[place] = [
                total + weight * reached * chance
                for total, chance in zip(self.sums[place], chances[place], strict=True)
            ]

    def chances(self) -> list[list[float]]:
        """The probabilities of the mixture at each decision; uniform where no member ever comes."""
        pairs = zip(self.sums, self.reached, strict=True)
        return [
            # what no member reaches changes no play: any strategy is right there
            [value / reached for value in sums] if reached > 0 else [1 / len(sums)] * len(sums)
            for sums, reached in pairs
        ]

    def strategy(self) -> Strategy:
        """The present mixture as one strategy."""
        known = {
            (one.agent, one.view, one.legal): chances
            for one, chances in zip(self.decisions, self.chances(), strict=True)
        }

        def strategy(
            agent: str, view: tuple[Message, ...], legal: tuple[str, ...]
        ) -> Sequence[float]:
            return known[agent, view, legal]

        return strategy

    def state(self) -> dict[str, Any]:
        """The sums, as JSON values."""
        return {"size": self.size, "reached": self.reached, "sums": self.sums}

    def load(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.size = state["size"]
        self.reached = list(state["reached"])
        self.sums = [list(row) for row in state["sums"]]
