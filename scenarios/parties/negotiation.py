"""Negotiation over several issues with private weights: two parties in alternating offers, or three
to seven under one proposer, with thresholds and votes.

Type `gem-ma run negotiation`; `docs/parties/negotiation.md` has the rules.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from gem_ma.scenarios.parties.checked import one_of, whole

from gem_ma import Ask, Episode, Reward, Scenario, Tell, dealt, talk
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play
from gem_ma.kernel.talk import FORMS

ISSUES = {
    "price": ("low", "medium", "high"),
    "date": ("spring", "summer", "autumn"),
    "term": ("short", "middling", "long"),
    "place": ("north", "centre", "south"),
    "size": ("small", "usual", "large"),
}
ACCEPT = "accept"
WALK = "walk away"
REJECT = "reject"
ORDERS = tuple(itertools.permutations(range(3)))
WHOLE = 100  # points that a party's best deal is worth
TRIES = 1000  # deals drawn until some can be accepted

# option of an issue -> points; and what no deal is worth
Secret = dict[str, Any]
Talks = Generator[Any, Any, str | None]  # gives the deal


class Negotiation(Scenario):
    """Parties with private values agree on one deal of several issues, or on none: mixed
    motives."""

    rates = ("agreement", "nash share", "deals that pass", "deals for all")
    more_is_better = ("agreement", "nash share", "welfare")
    less_is_better = ("pareto distance",)

    def __init__(
        self,
        parties: int = 2,
        issues: int = 3,
        rounds: int = 6,
        last: str = "lot",
        talk: str = "none",
        needed: int | None = None,
    ) -> None:
        """`parties` 2 to 7; `issues` 2 to 5 of three options each; `rounds` offers of two, or
        proposals to more. `last`: who of two has the last word, which can accept or walk away and
        no more: first | second | lot; it is told. `talk`: none | signals | free before each
        proposal to three and more. `needed`: of three and more, how many must agree, the two
        leaders among them; by default all but one. Raises ConfigError."""
        count = whole("parties", parties, 2, 7)
        names = list(ISSUES)[: whole("issues", issues, 2, len(ISSUES))]
        self.rounds = whole("rounds", rounds, 1, 50)
        self.last = one_of("last", last, ("first", "second", "lot"))
        self.talk = one_of("talk", talk, FORMS)
        if count == 2 and (talk != "none" or needed is not None):
            raise ConfigError("scenario.talk, needed: options of three and more parties; got two")
        if count > 2 and last != "lot":
            raise ConfigError(f"scenario.last: an option of two parties; got {parties}")
        self.issues = names
        self.agents = tuple(f"party_{number + 1}" for number in range(count))
        self.needed = count
        if count > 2:
            self.needed = count - 1 if needed is None else whole("needed", needed, 2, count)
        options = [[f"{name} {option}" for option in ISSUES[name]] for name in names]
        self.parts = tuple(itertools.product(*options))
        self.deals = tuple(map(", ".join, self.parts))
        self.wishes = tuple(itertools.chain.from_iterable(options))
        # kept tuples: a turn costs least where its choices are the same object
        self.first = (*self.deals, WALK)
        self.later = (ACCEPT, WALK, *self.deals)
        asked = 2 + (talk != "none") if count > 2 else 1
        self.ends_within = self.rounds * asked

    # -- what is hidden ---------------------------------------------------------------------------

    def deal(self, rng: random.Random, task: Any) -> dict[str, Secret]:
        """Points of each option and of no deal, by party, drawn again until a deal can pass."""
        for _ in range(TRIES):
            secrets = {agent: self._secret(rng) for agent in self.agents}
            if any(self._passes(secrets, parts) for parts in self.parts):
                break
        return secrets

    def _secret(self, rng: random.Random) -> Secret:
        # weights that sum to WHOLE, each at least 10
        spare = WHOLE - 10 * len(self.issues)
        cuts = sorted(rng.choices(range(spare + 1), k=len(self.issues) - 1))
        weights = [10 + high - low for low, high in itertools.pairwise([0, *cuts, spare])]
        points = {}
        for issue, weight in zip(self.issues, weights, strict=True):
            # best, worst, and between them anything, in one of all orders
            worths = (weight, 0, int(rng.random() * (weight + 1)))
            order = ORDERS[int(rng.random() * len(ORDERS))]
            for option, place in zip(ISSUES[issue], order, strict=True):
                points[f"{issue} {option}"] = worths[place]
        return {"points": points, "walk": 30 + int(rng.random() * 26)}

    def worth(self, secret: Secret, deal: str) -> int:
        """Points of a deal to a party."""
        points = secret["points"]
        return sum([points[part] for part in deal.split(", ")])

    def counts(self, secrets: Mapping[str, Secret]) -> tuple[int, int]:
        """How many deals would pass if each party accepted what is worth no less to it than no
        deal: by the rule of votes, and of all parties."""
        passing = sum(self._passes(secrets, parts) for parts in self.parts)
        return passing, sum(all(self._content(secrets, parts)) for parts in self.parts)

    def _content(self, secrets: Mapping[str, Secret], parts: Sequence[str]) -> list[bool]:
        """Who has no less than without a deal."""
        return [sum([s["points"][x] for x in parts]) >= s["walk"] for s in secrets.values()]

    def _passes(self, secrets: Mapping[str, Secret], parts: Sequence[str]) -> bool:
        content = self._content(secrets, parts)
        return all(content[:2]) and content.count(True) >= self.needed

    # -- the play ---------------------------------------------------------------------------------

    def play(self, rng: random.Random, task: Any) -> Play:
        secrets = self.deal(rng, task)
        deal = yield from (self._two if len(self.agents) == 2 else self._many)(rng, secrets)
        worth = {
            agent: (self.worth(secret, deal) if deal else secret["walk"]) / WHOLE
            for agent, secret in secrets.items()
        }
        yield Reward(worth, why=f"deal: {deal}" if deal else "no deal")

    def _two(self, rng: random.Random, secrets: Mapping[str, Secret]) -> Talks:
        """Alternating offers. Gives the deal, or None."""
        ends = {"first": 0, "second": 1}.get(self.last)
        last = rng.randrange(2) if ends is None else ends
        start = (last + self.rounds - 1) % 2
        rules = (
            f"{self.agents[start]} begins and {self.agents[last]} has the last word: turn"
            f" {self.rounds} can accept or walk away and no more. What cannot be read walks away."
        )
        yield Tell({agent: self._rules(agent, secrets[agent], rules) for agent in self.agents})
        standing = None
        for turn in range(1, self.rounds + 1):
            me = self.agents[(start + turn - 1) % 2]
            legal = self.first if standing is None else self.later
            if turn == self.rounds:
                legal = (ACCEPT, WALK) if standing else (WALK,)
            offered = f"You are offered: {standing}." if standing else "There is no offer yet."
            said = yield Ask({me: f"Turn {turn} of {self.rounds}. {offered}"}, legal=legal)
            act = said[me].parsed
            if act == ACCEPT:
                return standing
            if act is None or act == WALK:
                return None
            standing = act
        return None

    def _many(self, rng: random.Random, secrets: Mapping[str, Secret]) -> Talks:
        """Proposals of the first party, votes of the others. Gives the deal, or None."""
        others = self.agents[1:]
        rules = (
            f"In each of {self.rounds} rounds party_1 proposes a deal, or walks away, and the"
            f" others vote at once. It passes where {self.needed} of {len(self.agents)} agree,"
            " party_1 and party_2 among them. All see the votes, which are the last word of a"
            " round; what cannot be read rejects, or passes the round."
        )
        yield Tell({agent: self._rules(agent, secrets[agent], rules) for agent in self.agents})
        for turn in range(1, self.rounds + 1):
            yield from talk(
                self.agents, "What do you wish for?", form=self.talk, signals=self.wishes
            )
            question = f"Round {turn} of {self.rounds}. Your proposal?"
            said = yield Ask({"party_1": question}, legal=self.first)
            deal = said["party_1"].parsed
            if deal == WALK:
                return None
            if deal is None:
                yield Tell(dict.fromkeys(others, f"Round {turn} of {self.rounds}: no proposal."))
                continue
            question = f"Round {turn} of {self.rounds}. party_1 proposes: {deal}."
            votes = yield Ask(dict.fromkeys(others, question), legal=(ACCEPT, REJECT))
            agree = [agent for agent in others if votes[agent].parsed == ACCEPT]
            if "party_2" in agree and len(agree) + 1 >= self.needed:
                return deal
            told = f"Rejected; in favour: {', '.join(['party_1', *agree])}."
            yield Tell(dict.fromkeys(self.agents, told))
        return None

    def _rules(self, agent: str, secret: Secret, rules: str) -> str:
        points = ", ".join(f"{part} {worth}" for part, worth in secret["points"].items())
        return (
            f"You are {agent} of {len(self.agents)} parties that agree on one deal, or on none."
            f" {rules} Only you know your points: {points}; no deal {secret['walk']}."
        )

    # -- how it is read ---------------------------------------------------------------------------

    def role(self, episode: Episode, agent: str) -> str:
        if len(self.agents) == 2:
            return ""
        return {"party_1": "proposer", "party_2": "leader"}.get(agent, "party")

    def success(self, episode: Episode) -> bool | None:
        if not episode.ledger or not episode.end.scored:
            return None
        return episode.ledger[-1].why != "no deal"

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        """Agreement; welfare (mean value); the product of gains over no deal as a share of the best
        one; how much more the worst off could have in a deal that is better for all; which share of
        deals would pass, and which all parties would accept."""
        agreed = self.success(episode)
        names = ("agreement", "welfare", "nash share", "pareto distance")
        if agreed is None:
            return dict.fromkeys(names)
        secrets = dealt(self, episode)
        walk = [secret["walk"] / WHOLE for secret in secrets.values()]
        table = [[self.worth(s, d) / WHOLE for s in secrets.values()] for d in self.deals]
        paid = episode.returns()
        got = [paid[agent] for agent in secrets]
        best = max(_nash(values, walk) for values in table)
        values = (
            float(agreed),
            sum(got) / len(got),
            _nash(got, walk) / best if best else None,
            max(0.0, *(min(v - g for v, g in zip(row, got, strict=True)) for row in table)),
        )
        passing, unanimous = self.counts(secrets)
        return {
            **dict(zip(names, values, strict=True)),
            "deals that pass": passing / len(self.deals),
            "deals for all": unanimous / len(self.deals),
        }


def _nash(values: Sequence[float], walk: Sequence[float]) -> float:
    return math.prod(max(0.0, v - w) for v, w in zip(values, walk, strict=True))
