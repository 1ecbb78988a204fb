"""A hidden profile: a group chooses, each member knows a part of the facts, and what all know
speaks for the wrong choice.

Type `gem-ma run hidden_profile 'agents.member_*=hidden_profile_unshared'`;
`docs/parties/hidden_profile.md` has the rules.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from gem_ma.scenarios.parties.checked import flag, one_of, whole

from gem_ma import Ask, Episode, Reward, Scenario, Tell, dealt, talk, task_of
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play
from gem_ma.kernel.talk import FORMS, ORDERS

NAMES = "ABCDE"
NOTHING = "nothing"
FACT = re.compile(r"\b[A-E][1-9]\d{0,2}\b")
NUMBERS = range(1, 1000)  # of facts, whatever they speak for: none tells how many others do
DRAWN = 100  # sets of shared facts of a split
MOST_SAID = 400  # characters of free talk that are heard
SMALL = 16  # unshared facts of a group whose chance is computed where it is made


class HiddenProfile(Scenario):
    """A group chooses one of several; what all know speaks for a wrong one, what each knows alone
    for the right one."""

    cooperative = True
    rates = ("return *", "*mentioned", "agreement", "votes right", "misled", "made up")
    more_is_better = ("unshared mentioned", "votes right")
    less_is_better = ("made up",)

    def __init__(
        self,
        agents: int = 4,
        choices: int = 3,
        unshared: int = 3,
        lead: int = 2,
        hidden: float = 1.0,
        rounds: int = 3,
        talk: str = "signals",
        order: str = "at once",
        marked: bool = True,
        pay: str = "group",
    ) -> None:
        """2 to 64 `agents` vote on one of 2 to 5 `choices`. All know the shared facts, which speak
        for one choice with `lead` facts more than for another; each knows 1 to 8 `unshared` ones
        that nobody else does. With probability `hidden` these make another choice the right one.

        They talk for 1 to 16 `rounds` (`talk`: none | signals: one fact that you know | free;
        `order`: at once | in turn | bids). `marked`: members are told which of their facts all
        know. `pay`: group (1 where the group is right) | share (of votes that are). Raises
        ConfigError."""
        count = whole("agents", agents, 2, 64)
        self.agents = tuple(f"member_{number}" for number in range(count))
        self.choices = tuple(NAMES[: whole("choices", choices, 2, 5)])
        self.unshared = whole("unshared", unshared, 1, 8)
        self.lead = whole("lead", lead, 1, min(20, count * unshared - 1))
        number = isinstance(hidden, (int, float)) and not isinstance(hidden, bool)
        if not number or not 0 <= hidden <= 1:
            raise ConfigError(f"scenario.hidden: a probability from 0 to 1; got {hidden!r}")
        self.hidden = hidden
        self.talk = one_of("talk", talk, FORMS)
        self.order = one_of("order", order, ORDERS)
        self.rounds = whole("rounds", rounds, 1, 16) if talk != "none" else 0
        self.marked = flag("marked", marked)
        self.pay = one_of("pay", pay, ("group", "share"))
        self.rules = self._rules()
        self.ends_within = self.rounds * {"at once": 1, "in turn": count, "bids": 2}[order] + 1
        self.baselines = {
            "votes at random (success)": 1 / choices,
            "against what all know (success)": hidden / (choices - 1),
        }
        if count * unshared <= SMALL:
            alone = hidden * self.alone(True) + (1 - hidden) * self.alone(False)
            self.baselines["own facts alone, everybody (success)"] = round(alone, 4)

    # -- facts ------------------------------------------------------------------------------------

    def pool(self, is_hidden: bool) -> dict[str, int]:
        """How many unshared facts speak for the `leader` of the shared ones, for its `rival` and
        for each of the `others`. All facts together make one of the two right, by as few facts as
        can be."""
        total = len(self.agents) * self.unshared
        others = (total - self.lead - 1) // len(self.choices)
        rival = total - others * (len(self.choices) - 1)
        # facts that change sides, where the leader is to be right
        moved = 0 if is_hidden else (rival - others - self.lead) // 2 + 1
        return {"leader": others + moved, "rival": rival - moved, "others": others}

    def alone(self, is_hidden: bool) -> float:
        """The exact chance that the group is right where each votes for what its own facts speak
        for, ties by lot."""
        pool = self.pool(is_hidden)
        kinds = ("leader", "rival", *["others"] * (len(self.choices) - 2))
        shared = tuple(1 + self.lead * (kind == "leader") for kind in kinds)
        unshared = tuple(pool[kind] for kind in kinds)
        return chosen(len(self.agents), self.unshared, shared, unshared)[is_hidden]

    def tasks(self, split: str) -> Sequence[Any]:
        return [{"facts": f"{split}/{number}"} for number in range(DRAWN)]

    def shared(self, task: Any) -> tuple[str, ...]:
        """What all know in this task: one fact for each choice, and the lead."""
        return self._of(task)[1]

    def _of(self, task: Any) -> tuple[str, tuple[str, ...], Sequence[int]]:
        return _of_task(task["facts"], self.choices, self.lead, self.marked)

    def deal(self, rng: random.Random, task: Any) -> dict[str, tuple[str, ...]]:
        leader, _, numbers = self._of(task)
        rival = rng.choice([choice for choice in self.choices if choice != leader])
        pool = self.pool(rng.random() < self.hidden)
        kind = {leader: "leader", rival: "rival"}
        names = "".join([choice * pool[kind.get(choice, "others")] for choice in self.choices])
        order = rng.sample(names, len(names))
        # a part of the task's numbers, in its order: one draw in place of one for each fact
        first = 0 if self.marked else rng.randrange(len(numbers) - len(order) + 1)
        facts = [
            f"{name}{number}"
            for name, number in zip(order, numbers[first : first + len(order)], strict=True)
        ]
        hands = zip(*[iter(facts)] * self.unshared, strict=True)
        return dict(zip(self.agents, hands, strict=True))

    def right(self, task: Any, held: Mapping[str, Sequence[str]]) -> str:
        """The choice that most facts speak for, of all that somebody knows."""
        known = itertools.chain(self.shared(task), *held.values())
        return favoured(known, self.choices)[0]

    # -- the play ---------------------------------------------------------------------------------

    def play(self, rng: random.Random, task: Any) -> Play:
        held = self.deal(rng, task)
        shared = self.shared(task)
        yield Tell(self._told(shared, held))
        if self.rounds:
            known = {a: (*sorted((*shared, *held[a])), NOTHING) for a in self.agents}
            yield from talk(
                self.agents,
                "What do you say to all?",
                form=self.talk,
                signals=known,
                rounds=self.rounds,
                order=self.order,
                rng=rng,
                most=MOST_SAID,
            )
        acts = yield Ask(dict.fromkeys(self.agents, "Your vote?"), legal=self.choices)
        votes = Counter(vote for agent in self.agents if (vote := acts[agent].parsed))
        right = self.right(task, held)
        most = max(votes.values(), default=0)
        # by lot among equals, and among all where nobody votes
        winner = rng.choice([choice for choice in self.choices if votes[choice] == most])
        share = votes[right] / len(self.agents)
        paid = share if self.pay == "share" else float(winner == right)
        why = f"{winner} is chosen, {right} is right"
        yield Reward(dict.fromkeys(self.agents, paid), why=why)
        told = ", ".join(f"{choice} {votes[choice]}" for choice in self.choices)
        yield Tell(dict.fromkeys(self.agents, f"Votes: {told}. {why}."))

    def _rules(self) -> str:
        """What all are told, but for who they are and what they know."""
        rounds = f"After {self.rounds} rounds of talk all" if self.rounds else "All"
        paid = (
            "if the group is right"
            if self.pay == "group"
            else "the share of members who vote right"
        )
        return (
            f"one of {len(self.agents)} who choose one of {', '.join(self.choices)}. Facts speak"
            " for a choice, which is their letter; the one that most facts speak for is right. Some"
            f" are known to all, others to one member alone. {rounds} vote at once; most votes"
            f" decide, ties by lot. You are paid {paid}."
        )

    def _told(self, shared: Sequence[str], held: Mapping[str, Sequence[str]]) -> dict[str, str]:
        own = {agent: f"You are {agent}, {self.rules}" for agent in self.agents}
        if not self.marked:
            # sorted: an order would tell who else knows them
            return {a: f"{own[a]} You know: {', '.join(sorted((*shared, *held[a])))}." for a in own}
        all_know = f"All know: {', '.join(shared)}."
        return {a: f"{own[a]} {all_know} Only you know: {', '.join(held[a])}." for a in own}

    # -- how it is read ---------------------------------------------------------------------------

    def success(self, episode: Episode) -> bool | None:
        if not episode.ledger or not episode.end.scored:
            return None
        winner, _, right = episode.ledger[-1].why.partition(", ")
        return winner[0] == right[0]

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        """Shares: of unshared and of shared facts that were said, of votes for the one with most,
        of votes that were right, of members whose own facts speak for another; where talk is
        free, of facts said that do not exist."""
        task = task_of(self, episode.task)
        held = dealt(self, episode)
        shared = set(self.shared(task))
        own = set(itertools.chain(*held.values()))
        right = self.right(task, held)
        said: set[str] = set()
        votes: Counter[str] = Counter()
        for turn in episode.turns:
            # of a closed choice what was taken for it
            text = turn.action.text[:MOST_SAID] if turn.legal is None else turn.action.parsed or ""
            if turn.legal == self.choices:
                votes[text] += 1
            else:
                said.update(FACT.findall(text))
        del votes[""]
        cast = votes.total()
        misled = [right not in favoured((*shared, *hand), self.choices) for hand in held.values()]
        free = {"made up": len(said - own - shared) / len(said) if said else None}
        return {
            "unshared mentioned": len(said & own) / len(own) if self.rounds else None,
            "shared mentioned": len(said & shared) / len(shared) if self.rounds else None,
            "agreement": max(votes.values()) / cast if cast else None,
            "votes right": votes[right] / cast if cast else None,
            "misled": sum(misled) / len(misled),
            **(free if self.talk == "free" else {}),
        }


@lru_cache(maxsize=256)
def _of_task(
    seed: str, choices: tuple[str, ...], lead: int, marked: bool
) -> tuple[str, tuple[str, ...], Sequence[int]]:
    """The leader of a task, its shared facts, and numbers for others. Numbers are drawn where they
    would tell which facts are shared; else they are few, so that a table may learn."""
    rng = random.Random(seed)
    leader = rng.choice(choices)
    names = sorted((*choices, *[leader] * lead))
    numbers = NUMBERS if marked else rng.sample(NUMBERS, len(NUMBERS))
    shared = tuple(f"{name}{number}" for name, number in zip(names, numbers, strict=False))
    return leader, shared, numbers[len(names) :]


def favoured(facts: Iterable[str], choices: Sequence[str]) -> list[str]:
    """The choices that most of these facts speak for, in order."""
    counts = Counter(fact[0] for fact in facts)
    most = max(counts[choice] for choice in choices)
    return [choice for choice in choices if counts[choice] == most]


@lru_cache(maxsize=256)
def chosen(
    agents: int, unshared: int, shared: tuple[int, ...], pool: tuple[int, ...]
) -> tuple[float, ...]:
    """The exact chance of each choice to be the group's where nobody says anything: `shared` facts
    for each choice are known to all, those of the `pool` are dealt out, `unshared` to each agent;
    each votes for what it knows most facts for, ties by lot.

    >>> chosen(3, 1, (2, 1), (0, 3))  # each knows two facts for either one
    (0.5, 0.5)
    """
    # (facts not dealt yet, votes so far) -> its chance
    states = {(pool, (0,) * len(pool)): 1.0}
    for _ in range(agents):
        after: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = defaultdict(float)
        for (rest, votes), chance in states.items():
            for hand, dealt_so in _hands(rest, unshared):
                knows = [all_know + own for all_know, own in zip(shared, hand, strict=True)]
                top = [place for place, count in enumerate(knows) if count == max(knows)]
                left = tuple(a - b for a, b in zip(rest, hand, strict=True))
                for place in top:
                    cast = (*votes[:place], votes[place] + 1, *votes[place + 1 :])
                    after[left, cast] += chance * dealt_so / len(top)
        states = after
    result = [0.0] * len(pool)
    for (_, votes), chance in states.items():
        top = [place for place, count in enumerate(votes) if count == max(votes)]
        for place in top:
            result[place] += chance / len(top)
    return tuple(result)


def _hands(rest: Sequence[int], size: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Each hand of so many facts out of these, by choice, and its chance."""
    ways = math.comb(sum(rest), size)
    for hand in itertools.product(*(range(min(count, size) + 1) for count in rest)):
        if sum(hand) == size:
            yield hand, math.prod(map(math.comb, rest, hand)) / ways
