"""Werewolf: a few who know each other kill by night, and all vote by day on who is to go.

Type `gem-ma run werewolf`; `docs/parties/werewolf.md` has the rules, and what chance is worth.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from gem_ma.scenarios.parties.checked import one_of, whole

from gem_ma import Ask, Episode, Reward, Scenario, Tell, dealt, talk
from gem_ma.kernel.scenario import Play
from gem_ma.kernel.talk import FORMS, ORDERS

Someone = Generator[Any, Any, str | None]  # a part of a play, and who dies in it

SLEEP = ("sleep",)
NOTHING = "nothing to say"
NIGHT = {
    "wolf": "Night. Whom do you kill?",
    "seer": "Night. Whose role do you look at?",
    "doctor": "Night. Whom do you protect?",
    "villager": "Night. You sleep.",
}
DAY = "Day. What do you say?"
VOTE = "Day. Who is to go?"


def village_wins(players: int, wolves: int, first: str = "night") -> float:
    """The chance that the village wins where there is no seer and no doctor and everybody acts at
    random: by night one of the village dies, by day anybody living goes, each as likely.

    >>> round(village_wins(7, 2), 4), round(village_wins(8, 2), 4), round(village_wins(12, 3), 4)
    (0.0833, 0.2286, 0.1645)
    """
    if not wolves:
        return 1.0
    if 2 * wolves >= players:
        return 0.0
    if first == "night":
        return village_wins(players - 1, wolves, "day")
    caught = wolves / players
    return caught * village_wins(players - 1, wolves - 1) + (1 - caught) * village_wins(
        players - 1, wolves
    )


class Werewolf(Scenario):
    """Wolves who know each other against a village that does not know them: hidden roles, secret
    votes, two teams."""

    zero_sum = True
    rates = ("village wins", "votes for wolves")

    def __init__(
        self,
        players: int = 8,
        wolves: int = 2,
        seer: int = 1,
        doctor: int = 0,
        first: str = "night",
        votes: str = "secret",
        talk: str = "none",
        talk_rounds: int = 1,
        order: str = "at once",
    ) -> None:
        """`players` 4 to 64, of which fewer than half are `wolves`; `seer` and `doctor` 0 or 1.
        `first`: night | day. `votes`: secret (only counts are told) | open. `talk`: none | signals
        | free before each vote, in `talk_rounds` rounds. `order` of speaking: at once | in turn |
        bids (who bids most speaks, ties by lot). Raises ConfigError."""
        whole("players", players, 4, 64)
        whole("wolves", wolves, 1, (players - 1) // 2)
        special = whole("seer", seer, 0, 1) + whole("doctor", doctor, 0, 1)
        self.first = one_of("first", first, ("night", "day"))
        self.open = one_of("votes", votes, ("secret", "open")) == "open"
        self.talk = one_of("talk", talk, FORMS)
        self.talk_rounds = whole("talk_rounds", talk_rounds, 1, 8)
        self.order = one_of("order", order, ORDERS)
        self.agents = tuple(f"player_{number}" for number in range(players))
        self.roles = [
            *["wolf"] * wolves,
            *["seer"] * seer,
            *["doctor"] * doctor,
            *["villager"] * (players - wolves - special),
        ]
        # a day takes one of the living, so there are fewer of them than players
        asked = {"at once": 1, "in turn": players, "bids": 2}[order]
        rounds = self.talk_rounds * asked if talk != "none" else 0
        self.ends_within = (players - 1) * (2 + rounds)
        self.baselines = {}
        if not special:
            chance = village_wins(players, wolves, first)
            self.baselines["everybody at random (village wins)"] = round(chance, 4)

    def deal(self, rng: random.Random, task: Any) -> dict[str, str]:
        return dict(zip(self.agents, rng.sample(self.roles, len(self.roles)), strict=True))

    def play(self, rng: random.Random, task: Any) -> Play:
        role = self.deal(rng, task)
        pack = [agent for agent in self.agents if role[agent] == "wolf"]
        yield Tell({agent: self._rules(agent, role[agent]) for agent in self.agents})
        yield Tell(dict.fromkeys(pack, f"The wolves are {', '.join(pack)}."), reveals=pack)
        alive = list(self.agents)
        is_night = self.first == "night"
        while pack and 2 * len(pack) < len(alive):
            who = yield from (self._night if is_night else self._day)(rng, role, alive)
            if who:
                alive.remove(who)
                if who in pack:
                    pack.remove(who)
                how = "was killed in the night" if is_night else "was voted out"
                said = f"{who} {how}; role: {role[who]}."
                yield Tell(dict.fromkeys(self.agents, said), reveals=(who,))
            is_night = not is_night
        won = "wolves" if pack else "village"
        # the dead are paid with their team
        yield Reward(
            {agent: 1.0 if side(role[agent]) == won else -1.0 for agent in self.agents},
            why=f"{won} win" if pack else f"{won} wins",
        )

    def _rules(self, agent: str, role: str) -> str:
        counts = Counter(self.roles)
        dealt_out = ", ".join(f"{number} {name}" for name, number in counts.items())
        return (
            f"You are {agent}, role: {role}. There are {len(self.agents)} players: {dealt_out}."
            " By night wolves name a victim; by day all the living vote, and who gets most votes is"
            " out, ties by lot. The village wins when no wolf lives, the wolves when they are half"
            " of the living. Who is out is not asked again and wins with its team."
        )

    def _night(self, rng: random.Random, role: Mapping[str, str], alive: Sequence[str]) -> Someone:
        """Everybody is asked, so that nobody is known by being asked. Gives who dies, or None."""
        living = tuple(alive)
        prey = tuple(agent for agent in alive if role[agent] != "wolf")
        may = {"wolf": prey, "villager": SLEEP, "seer": living, "doctor": living}
        acts = yield Ask(
            {agent: NIGHT[role[agent]] for agent in alive},
            legal={agent: may[role[agent]] for agent in alive},
        )
        named: dict[str, list[str]] = {"wolf": [], "doctor": []}
        for agent in alive:
            act = acts[agent].parsed
            if act and role[agent] == "seer":
                yield Tell({agent: f"{act} has the role: {role[act]}."}, reveals=(act,))
            elif act and role[agent] in named:
                named[role[agent]].append(act)
        victim = most_named(named["wolf"], rng)
        if victim is None or victim in named["doctor"]:
            yield Tell(dict.fromkeys(self.agents, "Nobody died in the night."))
            return None
        return victim

    def _day(self, rng: random.Random, role: Mapping[str, str], alive: Sequence[str]) -> Someone:
        """Talk and a vote of all the living. Gives who goes: always one of them."""
        living = tuple(alive)
        yield from talk(
            living,
            DAY,
            form=self.talk,
            signals=signals(living) if self.talk == "signals" else (),
            rounds=self.talk_rounds,
            order=self.order,
            rng=rng,
        )
        # one tuple for all: who votes for itself does what the rules allow
        acts = yield Ask(dict.fromkeys(living, VOTE), legal=living)
        votes = {agent: act for agent in living if (act := acts[agent].parsed)}
        if self.open:
            told = ", ".join(f"{agent} for {votes[agent]}" for agent in votes)
        else:
            counts = Counter(votes.values())
            told = ", ".join(f"{agent} {counts[agent]}" for agent in living if counts[agent])
        yield Tell(dict.fromkeys(self.agents, f"Votes: {told or 'none'}."))
        # where no vote counts, the lot decides among the living
        return most_named(votes.values(), rng) or rng.choice(living)

    def team(self, episode: Episode, agent: str) -> str:
        return side(dealt(self, episode)[agent])

    def role(self, episode: Episode, agent: str) -> str:
        return str(dealt(self, episode)[agent])

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        """Whether the village won; the days that were voted on; the share of the village's votes
        that named a wolf."""
        role = dealt(self, episode)
        paid = next((e.value for e in episode.ledger if role[e.agent] != "wolf"), None)
        votes = [t for t in episode.turns if any(m.text == VOTE for m in t.observed)]
        named = [role.get(t.action.parsed or "") for t in votes if role[t.agent] != "wolf"]
        return {
            "village wins": None if paid is None else float(paid > 0),
            # whoever lives to the last day has voted on each
            "days": float(max(Counter(turn.agent for turn in votes).values(), default=0)),
            "votes for wolves": named.count("wolf") / len(named) if named else None,
        }


def side(role: str) -> str:
    """The team of a role."""
    return "wolves" if role == "wolf" else "village"


def signals(living: Sequence[str]) -> tuple[str, ...]:
    """What may be said of the living where talk is closed."""
    return (
        NOTHING,
        *chain.from_iterable((f"{x} is a wolf", f"{x} is of the village") for x in living),
    )


def most_named(names: Iterable[str], rng: random.Random) -> str | None:
    """Who was named most often, ties by lot; None where nobody was."""
    counts = Counter(names)
    most = max(counts.values(), default=0)
    # sorted: an order of seats would tell who named whom
    top = sorted(name for name in counts if counts[name] == most)
    return rng.choice(top) if top else None
