"""Guess a number: one agent, several turns, a hint after each. The smallest scenario in which what
was said earlier decides what is right now.

Type `gem-ma run guess_number`; `configs/guess_number_table.yaml` learns it in seconds,
`configs/guess_number.yaml` with a tiny language model.
"""

from __future__ import annotations

import random
from typing import Any

from gem_ma import Ask, Episode, Reward, Scenario
from gem_ma.errors import ConfigError
from gem_ma.scenario import Play

HIGHER, LOWER, UNREADABLE = "Higher than", "Lower than", "That is no number of mine."
START = "I think of a number from 1 to {numbers}. You have {turns} guesses."


class GuessNumber(Scenario):
    """One agent finds a number by guessing; each guess costs, and is answered by higher or
    lower."""

    agents = ("player",)
    default_cast = {"player": "number_guesser"}
    baseline_casts = {
        "guesses blindly": {"player": "number_guesser"},
        "never repeats itself": {"player": "number_guesser_without_repeats"},
        "halves what is left": {"player": "number_halver"},
    }

    def __init__(
        self,
        numbers: int = 10,
        turns: int = 4,
        cost: float = 0.1,
        win: float = 1.0,
        penalty: float = 0.2,
    ) -> None:
        """`cost` is paid at every turn, `penalty` on top for an answer that names no number (it
        uses up its turn), `win` at the right guess."""
        if numbers < 2 or turns < 1:
            raise ConfigError(
                f"scenario: there are at least 2 numbers and 1 turn; got {numbers} numbers and"
                f" {turns} turns"
            )
        self.numbers, self.cost, self.win, self.penalty = numbers, cost, win, penalty
        self.turns = self.ends_within = turns
        # made once: a tuple that stays the same is checked once
        self.choices = tuple(str(number) for number in range(1, numbers + 1))
        self.baselines = {
            "guesses blindly (success)": 1 - (1 - 1 / numbers) ** turns,
            "never repeats itself (success)": min(1.0, turns / numbers),
            # a question tree of depth t holds 2^t - 1 numbers
            "halves what is left (success)": min(1.0, (2**turns - 1) / numbers),
        }

    def play(self, rng: random.Random, task: Any) -> Play:
        number = rng.randint(1, self.numbers)
        prompt = START.format(numbers=self.numbers, turns=self.turns)
        for _ in range(self.turns):
            actions = yield Ask({"player": prompt}, legal=self.choices)
            guess = actions["player"].parsed
            # paid before the outcome, so that the last guess costs too
            yield Reward({"player": -self.cost}, why="turn")
            if guess is None:
                prompt = UNREADABLE
                yield Reward({"player": -self.penalty}, why="format")
            elif int(guess) == number:
                yield Reward({"player": self.win}, why="win")
                return
            else:
                prompt = f"{HIGHER if int(guess) < number else LOWER} {guess}."

    def success(self, episode: Episode) -> bool | None:
        return any(entry.why == "win" for entry in episode.ledger) if episode.end.scored else None
