"""Networks of agents who see their neighbours alone, talk in rounds and answer all at once: the
tasks of AgentsNet and a sum, each with an exact checker.

Type `gem-ma run network scenario.problem=colouring`; `docs/parties/network.md` has the rules.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from gem_ma.scenarios.parties.checked import flag, one_of, whole

from gem_ma import Ask, Episode, Message, Reward, Scenario, Tell
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play
from gem_ma.kernel.talk import FORMS

PROBLEMS = ("consensus", "colouring", "leader", "matching", "cover", "sum")
GRAPHS = ("ring", "star", "grid", "random", "given")
DRAWN = 100  # random graphs of a split
MOST_SAID = 400  # characters of free talk that are heard
NOBODY = "nobody"
SIDES = ("yes", "no")
GOALS = {
    "consensus": "All must name the same number, one that somebody holds.",
    "colouring": "Neighbours must name different colours.",
    "leader": "Exactly one agent of all must say yes.",
    "matching": "Name the neighbour you pair with, who must name you, or nobody; no two neighbours"
    " may both be left without a pair.",
    "cover": "Every edge needs an end that says yes, and nobody may say yes whose neighbours all"
    " do.",
    "sum": "Name the sum of all numbers, modulo {values}.",
}


class Graph(NamedTuple):
    """Who is linked to whom: both directions of each edge in `near`; `mixed` has the neighbours in
    an order that says nothing of their names."""

    edges: tuple[tuple[str, str], ...]
    near: dict[str, tuple[str, ...]]
    mixed: dict[str, tuple[str, ...]]


class Network(Scenario):
    """Agents on a graph talk to their neighbours for some rounds, then solve a problem together."""

    cooperative = True
    rates = ("return *", "solved", "satisfied")
    more_is_better = ("solved", "satisfied")

    def __init__(
        self,
        problem: str = "consensus",
        agents: int = 8,
        graph: str = "ring",
        rounds: int = 4,
        talk: str = "signals",
        words: int | None = None,
        values: int = 4,
        colours: int | None = None,
        degree: int = 3,
        edges: Sequence[Sequence[int]] | None = None,
        anonymous: bool = False,
        pay: str = "solved",
    ) -> None:
        """`problem`: consensus | colouring | leader | matching | cover | sum, of 2 to 64 `agents`.
        `graph`: ring | star | grid | random (regular, of `degree` 3 or 4, another one for each
        task) | given (`edges`, pairs of numbers from 0). `words`: size of the alphabet of signals,
        by default what the problem takes; `values`: numbers that agents hold; `colours`: by default
        one more than the most neighbours. `anonymous`: neither names nor sizes are told. `pay`:
        solved (1 or 0) | share (the satisfied part). Raises ConfigError."""
        self.problem = one_of("problem", problem, PROBLEMS)
        count = whole("agents", agents, 2, 64)
        self.graph = one_of("graph", graph, GRAPHS)
        self.talk = one_of("talk", talk, FORMS)
        self.rounds = whole("rounds", rounds, 1, 64) if talk != "none" else 0
        self.values = whole("values", values, 2, 64)
        self.degree = whole("degree", degree, 3, 4)
        self.anonymous = flag("anonymous", anonymous)
        self.pay = one_of("pay", pay, ("solved", "share"))
        self.agents = tuple(f"node_{number}" for number in range(count))
        if (graph == "given") != (edges is not None):
            raise ConfigError("scenario.edges: given with `graph: given`, and with no other graph")
        if graph == "random" and (count <= degree or count * degree % 2):
            what = f"a random graph of degree {degree} needs more agents, and an even product"
            raise ConfigError(f"scenario.agents: {what}; got {count}")
        # pairs of places; () = drawn for each task
        self.pairs = () if graph == "random" else self._pairs(edges)
        most = degree
        if self.pairs:
            most = max(map(len, linked(self.agents, self.pairs).near.values()))
        self.colours = most + 1 if colours is None else whole("colours", colours, 2, 64)
        needed = {
            "consensus": values,
            "colouring": self.colours,
            "leader": count,
            "cover": 2,
            "matching": count + 1,
            "sum": values,
        }
        size = max(2, needed[problem]) if words is None else whole("words", words, 2, 65)
        self.signals = tuple(map(str, range(size))) if talk == "signals" else None
        span = {"consensus": values, "colouring": self.colours, "sum": values}.get(problem, 0)
        self.answers = tuple(map(str, range(span))) if span else SIDES
        self.ends_within = self.rounds + 1
        self.chance = problem in ("consensus", "sum")
        share = by_chance(self.problem, self.network(self.tasks("train")[0]), len(self.answers))
        self.baselines = {"random answers (satisfied)": round(share, 4)}

    def _pairs(self, edges: Any) -> tuple[tuple[int, int], ...]:
        """The edges that the options name. Raises ConfigError where they do not link all agents."""
        count = len(self.agents)
        try:
            pairs = {
                "ring": [(i, (i + 1) % count) for i in range(count)],
                "star": [(0, i) for i in range(1, count)],
                "grid": grid(count),
                "given": [(int(a), int(b)) for a, b in edges or ()],
            }[self.graph]
            ordered = tuple(sorted({(min(pair), max(pair)) for pair in pairs}))
            linked(self.agents, ordered)
        except (TypeError, ValueError):
            what = f"pairs of numbers from 0 to {count - 1} that link all agents"
            raise ConfigError(f"scenario.edges: {what}; got {edges!r}") from None
        return ordered

    def tasks(self, split: str) -> Sequence[Any]:
        if self.pairs:
            return (None,)
        return [{"graph": f"{split}/{number}"} for number in range(DRAWN)]

    def network(self, task: Any) -> Graph:
        """The graph of a task."""
        if self.pairs:
            return linked(self.agents, self.pairs)
        return regular(self.agents, self.degree, task["graph"])

    def deal(self, rng: random.Random, task: Any) -> dict[str, int]:
        if self.problem not in ("consensus", "sum"):
            return {}
        return {agent: rng.randrange(self.values) for agent in self.agents}

    def play(self, rng: random.Random, task: Any) -> Play:
        held = self.deal(rng, task)
        graph = self.network(task)
        near = graph.mixed if self.anonymous else graph.near
        called = {
            agent: [f"neighbour {i + 1}" for i in range(len(near[agent]))]
            if self.anonymous
            else list(near[agent])
            for agent in self.agents
        }
        yield Tell({agent: self._rules(agent, called[agent], held) for agent in self.agents})
        holds = {agent: f" You hold {number}." for agent, number in held.items()}
        heard: dict[str, Any] = {}
        for round_ in range(1, self.rounds + 1):
            question = f"Round {round_} of {self.rounds}."
            end = " What do you say to your neighbours?"
            said = yield Ask(self._asked(question, holds, heard, end), legal=self.signals)
            heard = self._heard(said, near, called)
        legal: Any = self.answers
        if self.problem == "matching":
            legal = {agent: (*called[agent], NOBODY) for agent in self.agents}
        final = yield Ask(self._asked("", holds, heard, " Your answer?"), legal=legal)
        answers = {agent: final[agent].parsed for agent in self.agents}
        if self.problem == "matching":
            named = {a: dict(zip(called[a], near[a], strict=True)) for a in self.agents}
            answers = {a: named[a].get(says, says) for a, says in answers.items()}
        solved, share = check(self.problem, graph, answers, held, self.values)
        paid = share if self.pay == "share" else float(solved)
        why = f"{'solved' if solved else 'not solved'}, {share:.4f} satisfied"
        yield Reward(dict.fromkeys(self.agents, paid), why=why)

    def _rules(self, agent: str, called: Sequence[str], held: Mapping[str, int]) -> str:
        goal = GOALS[self.problem].format(values=self.values)
        holds = f" You hold {held[agent]}." if held else ""
        rounds = f" After {self.rounds} rounds of talk with neighbours all answer at once."
        start = f"You are one of several agents, with {len(called)} neighbours."
        if not self.anonymous:
            kind = f"{len(self.agents)} agents on a graph ({self.graph})"
            start = f"You are {agent}, one of {kind}. Neighbours: {', '.join(called)}."
        return f"{start}{holds} {goal}{rounds if self.rounds else ''}"

    def _asked(
        self, start: str, holds: Mapping[str, str], heard: Mapping[str, Any], end: str
    ) -> dict[str, Any]:
        if self.signals or not heard:
            return {a: f"{start}{holds.get(a, '')}{heard.get(a, '')}{end}" for a in self.agents}
        return {a: (*heard[a], f"{start}{holds.get(a, '')}{end}") for a in self.agents}

    def _heard(
        self,
        said: Mapping[str, Any],
        near: Mapping[str, Sequence[str]],
        called: Mapping[str, Sequence[str]],
    ) -> dict[str, Any]:
        """What each hears: one line of closed signals, or a message for each free one."""
        if self.signals:
            # who says no signal is heard as a dash
            words = {agent: said[agent].parsed or "-" for agent in self.agents}
            return {
                a: " Heard: "
                + "; ".join([f"{x}: {words[y]}" for x, y in zip(called[a], near[a], strict=True)])
                + "."
                for a in self.agents
            }
        texts = {agent: said[agent].text[:MOST_SAID] for agent in self.agents}
        if self.anonymous:
            return {
                a: [f"{x}: {texts[y]}" for x, y in zip(called[a], near[a], strict=True)]
                for a in self.agents
            }
        return {a: [Message(texts[y], y) for y in near[a]] for a in self.agents}

    def success(self, episode: Episode) -> bool | None:
        return _outcome(episode)[0]

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        """Whether it was solved; the satisfied share of edges (of agents for sum; one over the
        number of leaders for leader)."""
        solved, share = _outcome(episode)
        return {"solved": None if solved is None else float(solved), "satisfied": share}


def _outcome(episode: Episode) -> tuple[bool | None, float | None]:
    if not episode.ledger or not episode.end.scored:
        return None, None
    said, _, share = episode.ledger[-1].why.partition(", ")
    return said == "solved", float(share.split()[0])


# -- graphs ---------------------------------------------------------------------------------------


def grid(count: int) -> list[tuple[int, int]]:
    """Edges of a grid of so many cells, as square as their number allows; a prime is a line."""
    wide = max(w for w in range(1, math.isqrt(count) + 1) if count % w == 0)
    across = [(i, i + 1) for i in range(count) if (i + 1) % wide]
    return across + [(i, i + wide) for i in range(count - wide)]


@lru_cache(maxsize=256)
def linked(agents: tuple[str, ...], pairs: tuple[tuple[int, int], ...]) -> Graph:
    """The graph of pairs of places. Raises ValueError where it has loops, strangers, or several
    parts."""
    near: dict[str, list[str]] = {agent: [] for agent in agents}
    for one, other in pairs:
        if not 0 <= one < other < len(agents):
            raise ValueError(f"not an edge: {one}, {other}")
        near[agents[one]].append(agents[other])
        near[agents[other]].append(agents[one])
    reached = {agents[0]}
    waiting = [agents[0]]
    while waiting:
        new = set(near[waiting.pop()]) - reached
        reached |= new
        waiting += sorted(new)
    if len(reached) < len(agents):
        raise ValueError("several parts")
    order = random.Random(repr(pairs))
    return Graph(
        tuple((agents[one], agents[other]) for one, other in pairs),
        {agent: tuple(near[agent]) for agent in agents},
        {agent: tuple(order.sample(near[agent], len(near[agent]))) for agent in agents},
    )


@lru_cache(maxsize=256)
def regular(agents: tuple[str, ...], degree: int, seed: str) -> Graph:
    """A connected graph in which everybody has `degree` neighbours, all such graphs alike likely:
    ends are paired at random until no pair is a loop or stands twice."""
    rng = random.Random(seed)
    while True:
        ends = [place for place in range(len(agents)) for _ in range(degree)]
        rng.shuffle(ends)
        pairs = {(min(pair), max(pair)) for pair in zip(ends[::2], ends[1::2], strict=True)}
        if len(pairs) == len(ends) // 2:
            with suppress(ValueError):
                return linked(agents, tuple(sorted(pairs)))


# -- checkers -------------------------------------------------------------------------------------


def check(
    problem: str,
    graph: Graph,
    answers: Mapping[str, str | None],
    held: Mapping[str, int],
    values: int,
) -> tuple[bool, float]:
    """(solved, satisfied share of 0 to 1). `answers`: agent -> what it said; None solves nothing.
    A matching names agents."""
    said = list(answers.values())
    if problem == "leader":
        leaders = said.count("yes")
        return leaders == 1 and None not in said, 1 / leaders if leaders else 0.0
    if problem == "sum":
        right = said.count(str(sum(held.values()) % values))
        return right == len(said), right / len(said)
    fine = [_is_satisfied(problem, one, other, answers) for one, other in graph.edges]
    solved = all(fine)
    if problem == "consensus":
        solved = solved and said[0] in {str(number) for number in held.values()}
    if problem == "cover":
        # who says yes while all its neighbours do is not needed
        solved = solved and all(
            answers[agent] == "no" or any(answers[other] == "no" for other in graph.near[agent])
            for agent in answers
        )
    return solved, sum(fine) / len(fine)


def _is_satisfied(problem: str, one: str, other: str, answers: Mapping[str, str | None]) -> bool:
    """Whether an edge is as it should be."""
    left = answers[one]
    right = answers[other]
    if left is None or right is None:
        return False
    if problem == "matching":
        return (left == other) == (right == one) and not left == right == NOBODY
    if problem == "cover":
        return "yes" in (left, right)
    return (left == right) == (problem == "consensus")


def by_chance(problem: str, graph: Graph, span: int) -> float:
    """The expected satisfied share where everybody answers at random, of `span` answers."""
    if problem == "leader":
        count = len(graph.near)
        return sum(math.comb(count, k) / k for k in range(1, count + 1)) / 2**count
    if problem == "matching":
        # both name each other, or neither does and not both name nobody
        stays = {agent: len(near) / (len(near) + 1) for agent, near in graph.near.items()}
        return sum(stays[one] * stays[other] for one, other in graph.edges) / len(graph.edges)
    return {"colouring": 1 - 1 / span, "cover": 3 / 4}.get(problem, 1 / span)
