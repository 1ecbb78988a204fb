"""Players of `mastermind`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from gem_ma.agents.games.player import GamePlayer, Texts, matches
from gem_ma.scenarios.games.mastermind import Code, codes, marks, name_of

RULES = re.compile(r".*code of (\d+) (different )?digits from 1 to (\d+)")
ANSWER = re.compile(r"(?<![\d ])([\d ]++): (\d++) black, (\d++) white")
MOST_DRAWS = 2000  # until a code fits; all but impossible to need
MOST_GUESSES = 40  # weighed against each other; more cost time and gain little

Kind = tuple[int, int, bool]  # length, digits, whether a digit may stand twice
Heard = tuple[Code, tuple[int, int]]  # a guess, and its black and white marks


class MastermindRandom(GamePlayer):
    """Draws any code."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        return name_of(self.guess(kind_of(texts), heard(texts)))

    def guess(self, kind: Kind, answers: Sequence[Heard]) -> Code:
        """The next code, after these answers."""
        length, digits, repeats = kind
        draw = self.rng.choices if repeats else self.rng.sample
        return tuple(draw(range(1, digits + 1), k=length))


class MastermindSimple(MastermindRandom):
    """Draws a new code that the newest answer allows, and forgets the others."""

    def guess(self, kind: Kind, answers: Sequence[Heard]) -> Code:
        tried = {code for code, _ in answers}
        code: Code = ()
        for _ in range(MOST_DRAWS):
            code = super().guess(kind, answers)
            if code not in tried and allowed(code, answers[-1:]):
                break
        return code


class MastermindStrong(MastermindRandom):
    """Says a code that all answers allow: the one whose worst answer leaves the fewest."""

    def guess(self, kind: Kind, answers: Sequence[Heard]) -> Code:
        possible = consistent(kind, tuple(answers))
        # nothing is known before the first answer, and one code is as good as another
        if not answers or len(possible) <= 2:
            return self.rng.choice(possible)
        draw = self.rng.sample(possible, min(MOST_GUESSES, len(possible)))
        against = possible[:: max(1, len(possible) // MOST_GUESSES)]
        return min(draw, key=lambda guess: worst(guess, against))


def kind_of(texts: Texts) -> Kind:
    """The kind of code that the rules tell of; the smallest one in another text."""
    match = RULES.match(texts[0])
    if match is None:
        return 2, 6, False
    return int(match[1]), int(match[3]), not match[2]


def heard(texts: Texts) -> list[Heard]:
    """Every guess that was marked, with its marks."""
    return [
        (tuple(map(int, match[1].split())), (int(match[2]), int(match[3])))
        for match in matches(ANSWER, texts)
    ]


def allowed(code: Code, answers: Sequence[Heard]) -> bool:
    """Whether this code would have got all these answers."""
    return all(marks(code, guess) == answer for guess, answer in answers)


# the codes after the first answers are asked for again at the next turn
@lru_cache(maxsize=256)
def consistent(kind: Kind, answers: tuple[Heard, ...]) -> tuple[Code, ...]:
    """The codes that would have got all these answers; those of the answers before where the last
    one contradicts them."""
    if not answers:
        return tuple(codes(*kind))
    before = consistent(kind, answers[:-1])
    return tuple(code for code in before if allowed(code, answers[-1:])) or before


def worst(guess: Code, possible: Sequence[Code]) -> int:
    """The most codes that one answer to this guess would leave."""
    return max(Counter(marks(code, guess) for code in possible).values())
