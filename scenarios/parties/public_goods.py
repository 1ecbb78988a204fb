"""Public goods: what all give to a pot is multiplied and shared by all, round after round; each
point that is given costs its owner. With talk before, and fines after, if you like.

Type `gem-ma run public_goods 'agents.player_*=goods_conditional'`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.scenarios.parties.checked import one_of, rounds_of, whole

from gem_ma import Ask, Episode, Reward, Scenario, Tell, talk
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play
from gem_ma.kernel.talk import FORMS

NOBODY = "nobody"
HARM = 3  # points that a fine takes from its target, for one of who fines


class PublicGoods(Scenario):
    """Everybody keeps points or gives them to a pot, which is multiplied and shared by all; with
    talk and fines."""

    agents: tuple[str, ...] = tuple(f"player_{seat}" for seat in range(4))
    chance = False
    rates = ("contribution", "contribution, last round", "fines", "unjust fines", "promises kept")

    def __init__(
        self,
        agents: int = 4,
        rounds: int = 10,
        endowment: int = 20,
        step: int = 5,
        factor: float = 1.6,
        fines: int = 0,
        talk: str = "none",
    ) -> None:
        """2 to 64 `agents` have an `endowment` each round, of which they give a multiple of `step`;
        what is given is multiplied by `factor`, which lies above 1 and below the number of agents,
        and shared by all. With `fines` each may then spend so many points (1 to 10) on a fine for
        one other, who loses three times as many. `talk`: what each announces before it gives.
        Raises ConfigError."""
        self.agents = tuple(f"player_{seat}" for seat in range(whole("agents", agents, 2, 64)))
        self.rounds = whole("rounds", rounds, 1, 1000)
        self.endowment = whole("endowment", endowment, 1, 1000)
        self.step = whole("step", step, 1, self.endowment)
        if self.endowment % self.step or self.endowment // self.step > 100:
            raise ConfigError(
                "scenario.step: goes into the endowment at most 100 times, without rest; got"
                f" {step} for {endowment}"
            )
        number = isinstance(factor, (int, float)) and not isinstance(factor, bool)
        if not number or not 1 < factor < agents:
            raise ConfigError(
                f"scenario.factor: above 1 and below the {agents} agents; got {factor!r}"
            )
        self.factor = factor
        self.fines = whole("fines", fines, 0, 10)
        self.talk = one_of("talk", talk, FORMS)
        self.ends_within = self.rounds * (1 + (talk != "none") + bool(fines))
        self.baselines = {
            "nobody gives (return)": float(self.endowment * rounds),
            "all give all (return)": self.endowment * factor * rounds,
        }
        # tuples and texts that are made once: each turn is then cheap
        self.legal = tuple(map(str, range(0, self.endowment + 1, self.step)))
        self.signals = tuple(f"I give {amount}." for amount in self.legal)
        self.targets: dict[str, tuple[str, ...]] = {
            agent: (NOBODY, *(other for other in self.agents if other != agent))
            for agent in self.agents
        }

    def play(self, rng: random.Random, task: Any) -> Play:
        names = self.agents
        yield Tell({agent: f"You are {agent}. {self._rules()}" for agent in names})
        for round_ in range(1, self.rounds + 1):
            count = f"Round {round_} of {self.rounds}"
            yield from talk(
                names,
                f"{count}. What do you tell all others?",
                form=self.talk,
                signals=self.signals,
            )
            moves = yield Ask(
                dict.fromkeys(names, f"{count}. How much do you give?"), legal=self.legal
            )
            # an unreadable answer gives nothing
            given = [int(moves[agent].parsed or "0") for agent in names]
            share = self.factor * sum(given) / len(names)
            paid = {
                agent: self.endowment - own + share for agent, own in zip(names, given, strict=True)
            }
            yield Reward(paid, why=f"round {round_}")
            table = ", ".join(f"{agent} {own}" for agent, own in zip(names, given, strict=True))
            told = f"Given: {table}. Each gets {share:g} of the pot."
            yield Tell(dict.fromkeys(names, told))
            if self.fines:
                yield from self._fine(count, round_)

    def _rules(self) -> str:
        rules = (
            f"{len(self.agents)} players have {self.endowment} points each in every round. What is"
            f" given to the pot is multiplied by {self.factor:g} and shared equally by all; you"
            " keep what you do not give."
        )
        if self.fines:
            rules += (
                f" Then you may fine one other: it costs you {self.fines} and the other"
                f" {HARM * self.fines} points. Nobody is told who fined."
            )
        return f"{rules} Your aim is as many points as you can get."

    def _fine(self, count: str, round_: int) -> Play:
        """All fine at once, and are told what it cost them."""
        question = f"{count}. Whom do you fine?"
        fines = yield Ask(dict.fromkeys(self.agents, question), legal=self.targets)
        # an unreadable answer fines nobody
        chosen = [(agent, fines[agent].parsed or NOBODY) for agent in self.agents]
        cost = dict.fromkeys(self.agents, 0)
        for agent, target in chosen:
            if target != NOBODY:
                cost[agent] -= self.fines
                cost[target] -= HARM * self.fines
        paid = {agent: float(points) for agent, points in cost.items() if points}
        if paid:
            yield Reward(paid, why=f"fines {round_}")
        # the number of fines, and not whose they were
        hit = [target for _, target in chosen]
        yield Tell({agent: f"Fines for you: {hit.count(agent)}." for agent in self.agents})

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        said = rounds_of(turn for turn in episode.turns if turn.legal == self.signals)
        gifts = rounds_of(turn for turn in episode.turns if turn.legal == self.legal)
        given = [{a: int(t.action.parsed or "0") for a, t in acts.items()} for acts in gifts]
        shares = [sum(gave.values()) / (len(gave) * self.endowment) for gave in given]
        kept = [
            turn.action.parsed == f"I give {gave[agent]}."
            for acts, gave in zip(said, given, strict=False)
            for agent, turn in acts.items()
            if turn.action.parsed
        ]
        fines: list[bool] = []
        unjust: list[bool] = []
        fined = (turn for turn in episode.turns if turn.legal == self.targets[turn.agent])
        for acts, gave in zip(rounds_of(fined), given, strict=False):
            targets = {agent: turn.action.parsed or NOBODY for agent, turn in acts.items()}
            fines += [target != NOBODY for target in targets.values()]
            # of those who gave at least as much as who fines them
            unjust += [gave[x] >= gave[agent] for agent, x in targets.items() if x != NOBODY]
        return {
            "contribution": _mean(shares),
            "contribution, last round": shares[-1] if len(shares) == self.rounds else None,
            **({"fines": _mean(fines), "unjust fines": _mean(unjust)} if self.fines else {}),
            **({"promises kept": _mean(kept)} if self.talk == "signals" else {}),
        }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
