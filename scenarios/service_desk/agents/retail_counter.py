"""Who serves and who buys at the one-order desk of `retail_one_order`: an expert, weaker ones that
never look, and the customer.

All work from what they were shown and from nothing else, so their talks can be cloned. `noise`
makes demonstrators: of a clerk that hands the customer over where it should go on, of a customer
that says anything.
"""

from __future__ import annotations

import random
from typing import Any

from gem_ma.agents.bots import Bot, chosen
from gem_ma.agents.options import probability
from gem_ma.scenarios.service_desk.retail.compact import (
    LOOK,
    NO,
    OK,
    OPENINGS,
    TRANSFER,
    USER_WORDS,
    WHY,
)
from gem_ma.scenarios.service_desk.retail.one_order import COLOURS, SIZES

from gem_ma import Action, Asked

STATUSES = ("pending", "delivered", "processed", "cancelled", "changed")


class _Counter(Bot):
    """Says what `right` says, or what `wrong` says: with probability `noise` at its first turn,
    and `noise * later` after it."""

    later = 1.0

    def __init__(
        self, agent: str, sample: Any, rng: random.Random, task: Any = None, noise: float = 0.0
    ) -> None:
        super().__init__(agent, sample, rng, task)
        self.noise = probability(agent, "noise", noise)

    async def act(self, asked: Asked) -> Action:
        seen = [message.text for message in asked.transcript if message.sender != self.agent]
        acted = len(seen) < len(asked.transcript)
        noise = self.noise * (self.later if acted else 1.0)
        # One draw per turn, whatever it says, so that noise changes no later draw.
        text = self.wrong() if self.rng.random() < noise else self.right(seen)
        return chosen(text)

    def right(self, seen: list[str]) -> str:
        raise NotImplementedError

    def wrong(self) -> str:
        raise NotImplementedError


class Clerk(_Counter):
    """Looks at the order, asks what it must know, and does what the order's status allows;
    refuses what it does not."""

    looks = asks = True
    later = 0.25  # who is not handed over at first sight is mostly served

    def right(self, seen: list[str]) -> str:
        wish = next((words for words in seen if words in OPENINGS), "")
        if not wish:
            # Nothing said so far opens a request; any question keeps the talk going.
            return "ask colour"
        if seen[-1] == OK:
            return "done"
        # The newest look: a write changes the status.
        offered = next(
            (row for row in map(str.split, reversed(seen)) if len(row) == 2 and row[0] in STATUSES),
            None,
        )
        if offered is None and self.looks:
            return LOOK
        # Without a look the size is guessed, and the status found by trying.
        status, size = offered or ("", self.rng.choice(SIZES))
        tried = seen.count(NO)
        if wish == "which size":
            return f"tell {size}"
        if wish == "cancel":
            why = self._answer(seen, tuple(WHY))
            # A write that failed shows what a look would have shown.
            if status not in ("", "pending") or tried:
                return "sorry"
            return f"cancel {why}" if why else "ask reason"
        if status not in ("", "pending", "delivered") or tried > 1:
            return "sorry"
        colour = self._answer(seen, COLOURS)
        # Modify first, then exchange: two of the three statuses allow one of them.
        verb = "exchange" if status == "delivered" or (not status and tried) else "modify"
        return f"{verb} {colour} {size}" if colour else "ask colour"

    def wrong(self) -> str:
        return TRANSFER

    def _answer(self, seen: list[str], among: tuple[str, ...]) -> str:
        said = [words for words in seen if words in among]
        # The last answer: a customer may say something else first.
        return said[-1] if said else "" if self.asks else self.rng.choice(among)


class ClerkWhoAsks(Clerk):
    """Asks all there is to ask and never looks: guesses the size, tries one write after the
    other, refuses where none goes through."""

    looks = False


class ClerkWhoGuesses(ClerkWhoAsks):
    """Neither looks nor asks."""

    asks = False


class ClerkWhoTransfers(_Counter):
    """Hands everybody over at once."""

    def right(self, seen: list[str]) -> str:
        return TRANSFER

    def wrong(self) -> str:
        return TRANSFER


class Customer(_Counter):
    """Says what it wants, answers what it is asked, and ends the talk where it is told that it
    is over."""

    def right(self, seen: list[str]) -> str:
        # The briefing is all that it knows.
        _, _, *wish = seen[0].split()  # "want to ..."
        heard = seen[-1]
        if heard == "done" or heard.startswith("tell "):
            return "bye"
        if heard == "sorry":
            return "accept"
        if heard.startswith("ask "):
            known = {"change": "ask colour", "cancel": "ask reason"}.get(wish[0])
            return wish[-1] if heard == known else "none"
        # A wish that is neither is the question.
        return {"change": "change colour", "cancel": "cancel"}.get(wish[0], "which size")

    def wrong(self) -> str:
        return self.rng.choice(USER_WORDS)
