"""Players of `commons`: what part of the stock each of them takes, whatever the others do, and one
that answers what the others did."""

from __future__ import annotations

import re

from gem_ma.agents.bots import Bot, chosen

from gem_ma import Action, Asked

_STOCK = re.compile(r"\b(\d{1,18}) tons\. How many")


class _Fisher(Bot):
    whole = 1  # it takes its share of one `whole`-th of the stock

    async def act(self, asked: Asked) -> Action:
        legal = asked.legal or ("",)
        stock = _STOCK.search(asked.transcript[-1].text)
        if stock is None:  # talk: what it does is what it says
            return Action(legal[0], (), asked.legal and legal[0])
        fishers = int(asked.transcript[0].text.split(" ", 1)[0])
        amount = min(self.takes(int(stock[1]), fishers, asked), len(legal) - 1)
        return chosen(legal[amount])

    def takes(self, stock: int, fishers: int, asked: Asked) -> int:
        """Tons that it asks for."""
        return stock // (self.whole * fishers)


class Half(_Fisher):
    """Takes its share of half of the stock, which grows again in a month."""

    whole = 2


class Share(_Fisher):
    """Takes its share of all that is there."""


class All(_Fisher):
    """Takes all that may be taken."""

    def takes(self, stock: int, fishers: int, asked: Asked) -> int:
        return stock


class Match(_Fisher):
    """Takes its share of half of the stock until somebody took more than it did itself; then its
    share of all."""

    def takes(self, stock: int, fishers: int, asked: Asked) -> int:
        for message in asked.transcript:
            if message.text.startswith("Taken: "):
                # "Taken: player_0 10, player_1 5. ..."
                table = message.text.removeprefix("Taken: ").partition(". ")[0]
                taken = dict(part.split(" ", 1) for part in table.split(", "))
                own = float(taken.pop(self.agent))
                if any(float(amount) > own for amount in taken.values()):
                    return stock // fishers
        return stock // (2 * fishers)
