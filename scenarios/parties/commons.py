"""A commons: a stock of fish that doubles each month, and as many fishers as you like who all take
from it at once. What is good for one month is bad for the year.

Type `gem-ma run commons 'agents.player_*=commons_half'`. Stock, growth and length are those of
GovSim.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from gem_ma.scenarios.parties.checked import equality, one_of, rounds_of, whole

from gem_ma import Ask, Episode, Reward, Scenario, Tell, talk
from gem_ma.kernel.scenario import Play
from gem_ma.kernel.talk import FORMS

ENDS = ("unknown", "known")
SIGNALS = ("take less", "stay as we are", "take more")
LONGEST = 10  # times the months that are expected; then an unknown end has come too


class Commons(Scenario):
    """Fishers share a stock that doubles each month: taking half of it lasts, taking all of it
    does not."""

    rates = ("survival", "equality", "over-usage")
    more_is_better = ("survival", "months", "gain", "efficiency", "equality")
    less_is_better = ("over-usage",)

    def __init__(
        self,
        agents: int = 5,
        stock: int | None = None,
        collapse: int | None = None,
        growth: int = 2,
        months: int = 12,
        end: str = "unknown",
        talk: str = "none",
    ) -> None:
        """`agents` from 2 to 64 share `stock` tons (else 20 for each of them), which is the most
        that the water carries; a month multiplies what is left by `growth`. Below `collapse` tons
        (else a twentieth of the stock) it is over. It lasts `months`, in the mean where the `end`
        is unknown. Raises ConfigError."""
        self.agents = tuple(f"player_{number}" for number in range(whole("agents", agents, 2, 64)))
        self.stock = whole("stock", 20 * agents if stock is None else stock, agents, 2000)
        self.collapse = whole(
            "collapse", max(1, self.stock // 20) if collapse is None else collapse, 1, self.stock
        )
        self.growth = whole("growth", growth, 2, 10)
        self.months = whole("months", months, 1, 1000)
        self.is_known = one_of("end", end, ENDS) == "known"
        self.talk = one_of("talk", talk, FORMS)
        self.chance = not self.is_known
        self.longest = months if self.is_known else LONGEST * months
        self.ends_within = self.longest * (1 if talk == "none" else 2)
        self.amounts = tuple(map(str, range(min(self.stock, 100) + 1)))
        # stock -> what may be asked for: a tuple that is made once costs the kernel least
        self.legal = {left: self.amounts[: left + 1] for left in range(self.stock + 1)}
        share = self.stock / agents
        half = sustainable(self.stock, growth) / agents
        self.baselines = {
            "equal shares of all, everybody (return)": share,
            "what grows again, everybody (return)": half * months,
        }

    def play(self, rng: random.Random, task: Any) -> Play:
        names = self.agents
        yield Tell(dict.fromkeys(names, self._rules()))
        stock = self.stock
        for month in range(1, self.longest + 1):
            # a month that says nothing of the end would only give a table a row of its own
            count = f"Month {month}. " if self.is_known else ""
            asks = yield Ask(
                dict.fromkeys(names, f"{count}{stock} tons. How many do you take?"),
                legal=self.legal[stock],
            )
            taken = harvest(stock, {name: int(asks[name].parsed or "0") for name in names})
            yield Reward(taken, why=f"month {month}")
            left = remaining(stock, taken)
            stock = min(self.stock, left * self.growth)
            table = ", ".join([f"{name} {amount:g}" for name, amount in taken.items()])
            is_over = left < self.collapse
            then = "The fish are gone." if is_over else f"They grow to {stock}."
            yield Tell(dict.fromkeys(names, f"Taken: {table}. {left} tons are left. {then}"))
            # one draw a month, whatever is done: the same seed has the same length
            if is_over or month == self.longest or not self._goes_on(rng):
                return
            yield from talk(
                names, "What do you say to all?", form=self.talk, signals=SIGNALS, order="at once"
            )

    def _goes_on(self, rng: random.Random) -> bool:
        return self.is_known or rng.random() * self.months < self.months - 1

    def _rules(self) -> str:
        last = (
            f"It ends after {self.months} months."
            if self.is_known
            else f"After each month it ends with probability 1/{self.months}, at the latest after"
            f" {self.longest}."
        )
        return (
            f"{len(self.agents)} fishers share {self.stock} tons of fish. Each month all say at"
            " once how many tons they take; if that is more than there is, each gets the same part"
            f" of what it asked for. What is left grows {self.growth}-fold, to {self.stock} tons"
            f" at most. If less than {self.collapse} tons are left, the fish are gone. {last} Each"
            " ton is worth one point."
        )

    def success(self, episode: Episode) -> bool | None:
        return self._outlived(episode) if episode.end.scored else None

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        over = 0
        acts = 0
        months = 0
        for stock, taken in self._months(episode):
            bound = sustainable(stock, self.growth) / len(self.agents)
            over += sum(amount > bound for amount in taken.values())
            acts += len(taken)
            months += 1
        returns = episode.returns().values()
        gain = sum(returns) / len(self.agents)
        steady = sustainable(self.stock, self.growth) / len(self.agents) * self.months
        return {
            "survival": float(self._outlived(episode)),
            "months": float(months),
            "gain": gain,
            "efficiency": gain / steady if steady else None,
            "equality": equality(returns),
            "over-usage": over / acts if acts else None,
        }

    def _outlived(self, episode: Episode) -> bool:
        return all(
            remaining(stock, taken) >= self.collapse for stock, taken in self._months(episode)
        )

    def _months(self, episode: Episode) -> Iterator[tuple[int, dict[str, float]]]:
        """(stock, what each took) of each month that was played."""
        stock = self.stock
        asked = (turn for turn in episode.turns if turn.legal and turn.legal[0] == "0")
        for month in rounds_of(asked):
            taken = harvest(stock, {a: int(t.action.parsed or "0") for a, t in month.items()})
            yield stock, taken
            stock = min(self.stock, remaining(stock, taken) * self.growth)


def harvest(stock: int, asked: Mapping[str, int]) -> dict[str, float]:
    """What each gets, in tons: what it asked for, or the same part of it where all ask for more
    than there is. No order, so no seat is better than another."""
    total = sum(asked.values())
    if total <= stock:
        return dict(asked)
    return {agent: stock * amount / total for agent, amount in asked.items()}


def remaining(stock: int, taken: Mapping[str, float]) -> int:
    """Tons that are left, a whole number: parts of tons are taken only where all is taken."""
    return max(0, stock - round(sum(taken.values())))


def sustainable(stock: int, growth: int) -> int:
    """The most tons that all may take together so that as much as now is there next month."""
    return stock - -(-stock // growth)
