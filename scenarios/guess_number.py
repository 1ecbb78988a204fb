"""Guess a number: one agent, several turns, a hint after each. The smallest scenario in which what
was said earlier decides what is right now.

Type `gem-ma run guess_number`; `configs/guess_number_table.yaml` learns it in seconds,
`configs/guess_number.yaml` with a tiny language model.
"""

from __future__ import annotations

import random
from functools import lru_cache
from math import ceil, sqrt
from typing import Any, NamedTuple

from gem_ma.scenarios.games.solo import FOUL, Form

from gem_ma import Ask, Episode, Reward, Scenario
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play

HIGHER = "Higher than"
LOWER = "Lower than"
UNREADABLE = "That is no number of mine."
START = "I think of a number from {low} to {high}. You have {turns} guesses."
FORM = Form("([0-9]+)")


class Size(NamedTuple):
    """The numbers from `low` to `high`, and the guesses."""

    low: int
    high: int
    turns: int


# the sizes of GEM's three levels; its random one draws a low and then a high number
LEVELS: dict[str, tuple[Size, ...]] = {
    "easy": (Size(1, 10, 4),),
    "hard": (Size(1, 50, 7),),
    "random": tuple(
        Size(low, low + span, ceil(sqrt(span)) + 1) for low in range(1, 11) for span in range(5, 51)
    ),
}


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
        level: str = "",
        rewards: str = "",
        foul: str = "",
    ) -> None:
        """`cost` is paid at every turn, `penalty` on top for an answer that names no number (it
        uses up its turn), `win` at the right guess.

        `level`: easy, hard or random, GEM's sizes in place of `numbers` and `turns`. `rewards:
        gem`: GEM's numbers in place of ours, which pay who does not win by the distance of the
        last guess. `foul`: an answer without a number takes its `turn`, or is the `end`, which is
        the default with GEM's rewards.
        """
        for name, value, known in (
            ("level", level, ("", *LEVELS)),
            ("rewards", rewards, ("", "gem")),
            ("foul", foul, ("", "turn", "end")),
        ):
            if value not in known:
                raise ConfigError(f"scenario: {name} is {', '.join(known[1:])}; got {value!r}")
        if numbers < 2 or turns < 1:
            raise ConfigError(
                f"scenario: there are at least 2 numbers and 1 turn; got {numbers} numbers and"
                f" {turns} turns"
            )
        self.cost = cost
        self.win = win
        self.penalty = penalty
        self.level = level
        self.rewards = rewards
        self.foul = foul or ("end" if rewards == "gem" else "turn")
        self.numbers = numbers
        self.turns = turns
        sizes = self.sizes
        self.ends_within = max(size.turns for size in sizes)
        if len(sizes) > 1:
            return
        self.numbers, self.turns = numbers, turns = sizes[0].high, sizes[0].turns
        self.baselines = {
            "guesses blindly (success)": 1 - (1 - 1 / numbers) ** turns,
            "never repeats itself (success)": min(1.0, turns / numbers),
            # a question tree of depth t holds 2^t - 1 numbers
            "halves what is left (success)": min(1.0, (2**turns - 1) / numbers),
        }

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The sizes that a play draws from."""
        return LEVELS.get(self.level) or (Size(1, self.numbers, self.turns),)

    def _drawn(self, rng: random.Random) -> tuple[Size, int]:
        """The size of a play, and its number."""
        sizes = self.sizes
        size = rng.choice(sizes) if len(sizes) > 1 else sizes[0]
        return size, rng.randint(size.low, size.high)

    def answers(self, rng: random.Random, task: Any) -> tuple[str, ...]:
        return (str(self._drawn(rng)[1]),)

    def play(self, rng: random.Random, task: Any) -> Play:
        (low, high, turns), number = self._drawn(rng)
        choices = listed(low, high)
        prompt = START.format(low=low, high=high, turns=turns)
        for turn in range(turns):
            actions = yield Ask({"player": prompt}, legal=choices)
            parts = FORM.read(actions["player"])
            # 0 is not a number at all, as in GEM
            guess = (int(parts[0]) or None) if parts else None
            readable = guess is not None and low <= guess <= high
            if self.rewards == "gem":
                if guess is None:
                    yield Reward({"player": FOUL}, why="format")
                elif guess == number:
                    yield Reward({"player": 1.0}, why="win")
                # a wrong guess is paid at the last turn alone, by its distance
                elif readable and turn == turns - 1:
                    near = 1 - abs(guess - number) / (high - low)
                    yield Reward({"player": near}, why="turns")
            else:
                # paid before the outcome, so that the last guess costs too
                yield Reward({"player": -self.cost}, why="turn")
                if not readable:
                    yield Reward({"player": -self.penalty}, why="format")
                elif guess == number:
                    yield Reward({"player": self.win}, why="win")
            if guess == number or (guess is None and self.foul == "end"):
                return
            if guess is None or not readable:
                prompt = UNREADABLE
            else:
                prompt = f"{HIGHER if guess < number else LOWER} {guess}."

    def success(self, episode: Episode) -> bool | None:
        return any(entry.why == "win" for entry in episode.ledger) if episode.end.scored else None


# made once: a tuple that stays the same is checked once
@lru_cache(maxsize=1024)
def listed(low: int, high: int) -> tuple[str, ...]:
    """The numbers of a play, as they are typed."""
    return tuple(str(number) for number in range(low, high + 1))
