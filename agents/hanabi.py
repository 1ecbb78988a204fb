"""Players of Hanabi as OpenSpiel has it (`openspiel:hanabi`), for any number of players: both play
what they are sure of, and one of them thinks before it gives a hint.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from gem_ma.agents.bots import Bot, chosen

from gem_ma import Action, Asked
from gem_ma.kernel.errors import ConfigError

# "G1 || GX|G12345": the card, what hints have named of it, and what it may be by them
_CARD = re.compile(r"\b([A-Z]\d|XX) \|\| (\w\w)\|([A-Z]{1,9})(\d{1,9})")
_PILE = re.compile(r"\b([A-Z])(\d)\b")
UNTOLD = "XX"  # a card of which no hint has said anything

Card = tuple[str, int]  # colour, rank
Slot = tuple[str, str, str, str]  # as `_CARD` reads it


class _Table:
    """What a player sees when it must act."""

    def __init__(self, view: str) -> None:
        head, _, rest = view.partition("Hands:")
        hands, is_there, rest = rest.partition("Deck size:")
        if not is_there:
            raise ConfigError(f"no table of Hanabi is shown; got {view[:60]!r}")
        self.piles = {colour: int(rank) for colour, rank in _PILE.findall(head)}
        # one's own hand comes first
        own, *others = hands.split("-----")
        self.own: list[Slot] = _CARD.findall(own)
        self.others: list[list[Slot]] = [_CARD.findall(hand) for hand in others]
        seen = [card(slot) for hand in self.others for slot in hand]
        seen += [(colour, int(rank)) for colour, rank in _PILE.findall(rest.partition(":")[2])]
        self.seen = Counter(seen)

    def may_be(self, slot: Slot) -> list[Card]:
        """What a card of one's own can be: by hints, and since copies of a card are few."""
        return [
            (colour, rank)
            for colour in slot[2]
            for rank in map(int, slot[3])
            if self.seen[colour, rank] + (rank <= self.piles[colour]) < self.copies(rank)
        ]

    def copies(self, rank: int) -> int:
        return {1: 3, 5: 1}.get(rank, 2)  # with fewer ranks no fewer of the last

    def fits(self, of: Card) -> bool:
        """Whether the card can be played now."""
        return self.piles[of[0]] == of[1] - 1

    def is_dead(self, of: Card) -> bool:
        return self.piles[of[0]] >= of[1]


def card(slot: Slot) -> Card:
    """The card of a slot that lies open."""
    return slot[0][0], int(slot[0][1])


class Simple(Bot):
    """Plays a card only where it is sure that it fits; else gives any hint; else discards what is
    of no use, or its oldest card that no hint was about."""

    async def act(self, asked: Asked) -> Action:
        legal = asked.legal or ("",)
        table = _Table(asked.transcript[-1].text)
        wishes = (*self.plays(table), *self.hints(table, legal), *self.discards(table))
        choice = next((wish for wish in wishes if wish in legal), legal[-1])
        return chosen(choice)

    def plays(self, table: _Table) -> Iterator[str]:
        """Moves that it would make, the best first."""
        for place, slot in enumerate(table.own):
            if (cards := table.may_be(slot)) and all(map(table.fits, cards)):
                yield f"(Play {place})"

    def hints(self, table: _Table, legal: Sequence[str]) -> Iterator[str]:
        if told := [move for move in legal if move.startswith("(Reveal")]:
            yield self.rng.choice(told)

    def discards(self, table: _Table) -> Iterator[str]:
        def use(place: int) -> tuple[bool, bool, int]:
            slot = table.own[place]
            return not all(map(table.is_dead, table.may_be(slot))), slot[1] != UNTOLD, place

        for place in sorted(range(len(table.own)), key=use):
            yield f"(Discard {place})"


class Strong(Simple):
    """Hints at the next card of another that fits, its rank first, then its colour."""

    def hints(self, table: _Table, legal: Sequence[str]) -> Iterator[str]:
        for number, hand in enumerate(table.others, 1):
            for slot in hand:
                if table.fits(card(slot)):
                    if slot[1][1] == "X":
                        yield f"(Reveal player +{number} rank {slot[0][1]})"
                    elif slot[1][0] == "X":
                        yield f"(Reveal player +{number} color {slot[0][0]})"
