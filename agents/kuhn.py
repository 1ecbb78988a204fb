"""A demonstrator of `kuhn_poker`: it looks at its card. Clones of players that ignore their card
never learn to look at it."""

from __future__ import annotations

from gem_ma.agents.bots import Bot, chosen

from gem_ma import Action, Asked

# Never 0 or 1: a clone that has seen one move only gives the other no chance to be learned.
BOLDNESS = {"J": 0.15, "Q": 0.5, "K": 0.85}  # probability of bet or call


class NoisyKuhn(Bot):
    """Bets and calls more often the better its card."""

    async def act(self, asked: Asked) -> Action:
        # The briefing ends with the card.
        card = asked.transcript[0].text.rstrip(".")[-1]
        bold = self.rng.random() < BOLDNESS[card]
        choice = next(move for move in asked.legal or ("",) if (move in ("bet", "call")) == bold)
        return chosen(choice)
