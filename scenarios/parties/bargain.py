"""Two bargain over a pie: an ultimatum, or trust that may be repaid; once or in rounds, in fixed
roles or in turns.

Type `gem-ma run bargain scenario.game=trust`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from gem_ma.scenarios.parties.checked import flag, one_of, whole

from gem_ma import Ask, Episode, Reward, Scenario, Tell
from gem_ma.kernel.scenario import Play

GAMES = ("ultimatum", "trust")
ANSWERS = ("accept", "refuse")
GROWTH = 3  # what is sent in trust comes multiplied
ROLES = {"ultimatum": ("proposer", "responder"), "trust": ("investor", "trustee")}


class Bargain(Scenario):
    """Two agents share a pie: one offers and the other takes it or neither gets anything
    (ultimatum), or one sends, it triples, and the other sends back (trust)."""

    agents = ("player_0", "player_1")
    chance = False
    rates = ("offer", "accepted", "sent", "returned", "efficiency")

    def __init__(
        self, game: str = "ultimatum", pie: int = 10, rounds: int = 1, swap: bool = False
    ) -> None:
        """`game` is `ultimatum` or `trust`, about a `pie` of 1 to 100 points each round; with
        `swap` roles change after each round, player_0 moving first in the first. Raises
        ConfigError."""
        self.game = one_of("game", game, GAMES)
        self.pie = whole("pie", pie, 1, 100)
        self.rounds = whole("rounds", rounds, 1, 1000)
        self.swap = flag("swap", swap)
        self.ends_within = 2 * rounds
        self.amounts = tuple(map(str, range(GROWTH * self.pie + 1)))
        self.offers = self.amounts[: self.pie + 1]
        # what may be sent back, by what was sent
        self.back = [self.amounts[: GROWTH * sent + 1] for sent in range(self.pie + 1)]
        self.baselines = {}
        if not swap:
            first, second = ROLES[game]
            # the least is accepted; nothing would be sent back, so nothing is sent
            self.baselines = {
                f"subgame perfect, {first} (return)": float(pie * rounds),
                f"subgame perfect, {second} (return)": 0.0,
            }

    def role(self, episode: Episode, agent: str) -> str:
        # who changes roles has none of its own
        return "" if self.swap else ROLES[self.game][self.agents.index(agent)]

    def play(self, rng: random.Random, task: Any) -> Play:
        rounds = self._ultimatum if self.game == "ultimatum" else self._trust
        yield Tell({agent: self._rules(seat) for seat, agent in enumerate(self.agents)})
        for round_ in range(1, self.rounds + 1):
            turned = self.swap and round_ % 2 == 0
            first, second = self.agents[::-1] if turned else self.agents
            count = f"Round {round_} of {self.rounds}"
            yield from rounds(first, second, count, round_)

    def _rules(self, seat: int) -> str:
        first, second = ROLES[self.game]
        if self.game == "ultimatum":
            told = (
                f"The {first} offers a part of {self.pie} points to the {second}, who accepts it,"
                " or refuses: then neither gets anything."
            )
        else:
            told = (
                f"The {first} has {self.pie} points and sends a part of"
                f" them; the {second} gets {GROWTH} times as many, and sends back what it likes."
            )
        own = f"You are {(first, second)[seat]}."
        if self.swap:
            own = f"You begin as {(first, second)[seat]}; roles change after each round."
        return f"{told} {own} Your aim is as many points as you can get."

    def _ultimatum(self, first: str, second: str, count: str, round_: int) -> Play:
        said = yield Ask({first: f"{count}. How much do you offer?"}, legal=self.offers)
        # an unreadable offer is one of nothing, an unreadable answer refuses
        offer = int(said[first].parsed or "0")
        question = f"{count}. You are offered {offer} of {self.pie}: accept or refuse?"
        heard = yield Ask({second: question}, legal=ANSWERS)
        is_taken = heard[second].parsed == "accept"
        yield Tell({first: f"Your offer of {offer} was {'accepted' if is_taken else 'refused'}."})
        paid = (self.pie - offer, offer) if is_taken else (0, 0)
        yield Reward({first: float(paid[0]), second: float(paid[1])}, why=f"round {round_}")

    def _trust(self, first: str, second: str, count: str, round_: int) -> Play:
        said = yield Ask({first: f"{count}. How much do you send?"}, legal=self.offers)
        # what cannot be read sends nothing, and sends nothing back
        sent = int(said[first].parsed or "0")
        grown = GROWTH * sent
        question = (
            f"{count}. {sent} of {self.pie} were sent to you, {grown} arrive. How much do you send"
            " back?"
        )
        heard = yield Ask({second: question}, legal=self.back[sent])
        back = int(heard[second].parsed or "0")
        yield Tell({first: f"You sent {sent}, and {back} of {grown} came back."})
        paid = {first: float(self.pie - sent + back), second: float(grown - back)}
        yield Reward(paid, why=f"round {round_}")

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        offers: list[int] = []
        replies: list[int] = []
        # by their order: what stands around the rules may ask in between
        for number, turn in enumerate(episode.turns):
            word = turn.action.parsed
            if number % 2 == 0:
                offers.append(int(word or "0"))
            else:
                replies.append(word == "accept" if self.game == "ultimatum" else int(word or "0"))
        if not offers or len(offers) != len(replies):
            return {}
        total = len(offers) * self.pie
        if self.game == "ultimatum":
            taken = sum(replies) / len(replies)
            return {"offer": sum(offers) / total, "accepted": taken, "efficiency": taken}
        grown = GROWTH * sum(offers)
        return {
            "sent": sum(offers) / total,
            "returned": sum(replies) / grown if grown else None,
            "efficiency": (total + grown - sum(offers)) / (GROWTH * total),
        }
