"""Players of `twenty_questions`, in both roles: who asks in the order of the table, who asks what
names the animal in the fewest turns, and who answers the opposite of what is true."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from gem_ma.agents.bots import Bot, chosen
from gem_ma.scenarios.parties.animals import (
    ATTRIBUTES,
    PLACES,
    best,
    is_true,
    members,
    narrowed,
    says_one_of,
)
from gem_ma.scenarios.parties.twenty_questions import (
    ANSWERER,
    ANSWERS,
    ASK,
    CANNOT_SAY,
    STATEMENTS,
)

from gem_ma import Action, Asked

_NAMED = re.compile(r"animals is to be named: ([^.]{1,2000})\.")
_OWN = re.compile(r"It is: (\w+)\.")
_CARD = re.compile(r"Your card forbids: ([^.]{1,2000})\.")
_SAID = re.compile(rf"({'|'.join(ATTRIBUTES)}): (yes|no)\b")
_WRONG = re.compile(r"\w{1,40} guesses (\w+): wrong\.")


class Strong(Bot):
    """Asks or guesses what names the animal in the fewest turns, if answers are true; answers what
    is true, and gives the clue that leaves the fewest animals."""

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__(agent, sample, rng, task)
        self.read = 0  # messages that have been read
        self.left = 0  # animals that it may be, by what was heard
        self.tried = 0  # animals that were guessed
        self.animals = 0
        self.own = ""
        self.card = ""
        self.asked: set[str] = set()

    async def act(self, asked: Asked) -> Action:
        for message in asked.transcript[self.read :]:
            # guessers may write anything
            if message.sender in ("scenario", ANSWERER):
                self.hear(message.text)
        self.read = len(asked.transcript)
        legal = asked.legal
        if self.own:
            return self.answer(asked, legal)
        if legal is None:
            return Action(f"{self.question()}?")
        may_ask = ASK in legal or not PLACES.keys() >= set(legal)
        move = self.question() if may_ask else ""
        if move in ATTRIBUTES:
            return chosen(ASK if ASK in legal else move)
        return chosen(move or self.guess())

    def hear(self, text: str) -> None:
        if named := _NAMED.search(text):
            self.animals = sum(PLACES[name] for name in named[1].split(", "))
            self.left = self.animals
            own = _OWN.search(text)
            card = _CARD.search(text)
            self.own = own[1] if own else ""
            self.card = card[1] if card else ""
        elif heard := _SAID.search(text):
            self.asked.add(heard[1])
            self.left = narrowed(self.left, heard[1], heard[2])
        elif wrong := _WRONG.fullmatch(text):
            self.tried |= PLACES[wrong[1]]
            self.left &= ~PLACES[wrong[1]]

    # -- who asks ---------------------------------------------------------------------------------

    def question(self) -> str:
        """An attribute to ask for, or an animal to guess; "" where what was heard fits none."""
        return best(self.left)[1] if self.left else ""

    def guess(self) -> str:
        # where nothing fits, somebody has lied: any that nobody guessed
        return self.rng.choice(members(self.left or self.animals & ~self.tried or self.animals))

    # -- who answers ------------------------------------------------------------------------------

    def answer(self, asked: Asked, legal: Sequence[str] | None) -> Action:
        question = asked.transcript[-2 if legal and CANNOT_SAY in legal else -1].text
        named = next((attribute for attribute in ATTRIBUTES if attribute in question), None)
        if legal == ANSWERS and named:
            return chosen(self.says(named))
        if legal and CANNOT_SAY in legal:
            return chosen(f"{named}: {self.says(named)}" if named else CANNOT_SAY)
        clue = self.clue()
        return chosen(clue or STATEMENTS[0]) if legal else Action(clue)

    def says(self, attribute: str) -> str:
        return ANSWERS[not is_true(self.own, attribute)]

    def clue(self) -> str:
        """The clue that its card allows and that leaves the fewest animals."""
        return min(self.clues(), key=lambda clue: self.leaves(clue), default="")

    def clues(self) -> list[str]:
        card = self.card.split(", ")  # attributes, or words where clues are free
        allowed = [x for x in ATTRIBUTES if x not in card and not says_one_of(x, card)]
        return [f"{attribute}: {self.says(attribute)}" for attribute in allowed]

    def leaves(self, clue: str) -> int:
        return narrowed(self.left, *clue.split(": ")).bit_count()


class Simple(Strong):
    """Asks in the order of the table until one animal is left; gives true clues in its order."""

    def question(self) -> str:
        if self.left.bit_count() < 2:
            return "".join(members(self.left))
        return next((attribute for attribute in ATTRIBUTES if attribute not in self.asked), "")

    def clue(self) -> str:
        said = [clue for clue in self.clues() if self.leaves(clue) < self.left.bit_count()]
        return said[0] if said else "".join(self.clues()[:1])


class Liar(Strong):
    """Answers the opposite of what is true; asks as the strong one does."""

    def says(self, attribute: str) -> str:
        return ANSWERS[is_true(self.own, attribute)]
