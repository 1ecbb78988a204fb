"""The whole tree of a small game: every decision, every outcome of chance, every end.

It is grown by playing the scenario anew to each node, since a play cannot be copied. What the
nodes are worth is asked in `gem_ma.scores.exploitability`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_ma.kernel.errors import ConfigError, ScenarioError
from gem_ma.kernel.scenario import Game, Play, Scenario
from gem_ma.kernel.types import Action, Message

# Chance as a list: a play whose draws are picked from outside, so that every outcome can be walked.
# `rng.choice`, `sample`, `shuffle`, `randrange` and `randint` become draws of equal outcomes. A
# draw that cannot be listed (`random()`, `gauss()`) is refused.

LARGEST_BITS = 16  # of getrandbits; more outcomes than that no tree holds


class ListedDraws(random.Random):
    """A generator whose draws are given; beyond them it draws 0 and notes in `sizes` how many
    outcomes each draw had."""

    def __init__(self, drawn: Sequence[int]) -> None:
        super().__init__(0)
        self.drawn = drawn
        self.sizes = list[int]()

    def _pick(self, size: int) -> int:
        place = len(self.sizes)
        self.sizes.append(size)
        return self.drawn[place] if place < len(self.drawn) else 0

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        span = range(start) if stop is None else range(start, stop, step)
        return span[self._pick(len(span))]

    def randint(self, a: int, b: int) -> int:
        return self.randrange(a, b + 1)  # both ends included, unlike randrange

    def choice(self, seq: Any) -> Any:
        return seq[self._pick(len(seq))]

    def sample(self, population: Any, k: int, *, counts: Any = None) -> list[Any]:
        rest = list(population)
        if counts is not None:
            rest = [item for item, count in zip(rest, counts, strict=True) for _ in range(count)]
        # without replacement: k draws, each of one outcome fewer
        return [rest.pop(self._pick(len(rest))) for _ in range(k)]

    def shuffle(self, x: Any) -> None:
        x[:] = self.sample(x, len(x))

    def random(self) -> float:
        raise ConfigError(
            "rng.random() has no finite list of outcomes; draw by choice, sample, shuffle or"
            " randrange"
        )

    # Python's own methods draw by this one, so those that are not overridden above are listed too
    def getrandbits(self, k: int) -> int:
        return self._pick(1 << k) if k <= LARGEST_BITS else int(self.random())


class _WithDraws(Scenario):
    """The same rules with the listed draws."""

    def __init__(self, scenario: Scenario, rng: random.Random) -> None:
        self.inner = scenario
        self.rng = rng
        # what `Game` reads off a scenario beside its rules
        self.agents = scenario.agents
        self.id = scenario.id
        self.version = scenario.version

    def play(self, rng: random.Random, task: Any) -> Play:
        return self.inner.play(self.rng, task)


def play_listed(
    scenario: Scenario, task: Any, steps: Sequence[Mapping[str, Action]], drawn: Sequence[int]
) -> tuple[Game, ListedDraws]:
    """The play after these joint actions and outcomes of chance, and its draws. Raises ConfigError
    for a draw that cannot be listed."""
    rng = ListedDraws(drawn)
    try:
        game = Game(_WithDraws(scenario, rng), task)
        for actions in steps:
            game.send(actions)
    except ScenarioError as error:
        if isinstance(error.__cause__, ConfigError):  # a draw that cannot be listed
            raise ConfigError(f"{scenario.id}: {error.__cause__}") from error
        raise
    return game, rng


# (agent, view, legal) -> probability of each legal string
Strategy = Callable[[str, tuple[Message, ...], tuple[str, ...]], Sequence[float]]
Steps = tuple[dict[str, Action], ...]  # the joint actions from the start to a node
Info = tuple[Any, ...]  # an information set: agent, view, legal strings
# nodes grown before a tree's size is probed; random walks of a probe
PROBE_AT = 2000
PROBES = 31
ROUNDING = 1e-6  # how far a sum of probabilities may be off 1
_UNREADABLE = Action("")


@dataclass(slots=True, eq=False)
class Node:
    """A decision (`agent`), a chance node (agent "") or, without branches, an end. `choices`
    counts the branches of legal strings."""

    agent: str = ""
    info: Info = ()
    branches: list[Node] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)  # of the strategy, or of chance
    choices: int = 0
    payoff: tuple[float, ...] = ()


class Tree:
    """A tree under one strategy for each agent. Raises ConfigError where it is not a tree of
    choices that can be listed, or has more than `max_nodes` nodes."""

    def __init__(
        self, scenario: Scenario, task: Any, strategies: Mapping[str, Strategy], max_nodes: int
    ) -> None:
        self.scenario = scenario
        self.task = task
        self.strategies = strategies
        self.max_nodes = max_nodes
        self.nodes = 0
        self.known: dict[Info, list[float]] = {}

    @property
    def sets(self) -> int:
        """Number of information sets met."""
        return len(self.known)

    def grow(self, steps: Steps, drawn: tuple[int, ...]) -> Node:
        """The subtree after these joint actions and outcomes of chance."""
        self.nodes += 1
        # probed early: a tree that is far too large is refused in a second, not after its limit
        probed = self.nodes == PROBE_AT and self._probed() > 2 * self.max_nodes
        if probed or self.nodes > self.max_nodes:
            raise ConfigError(
                f"{self.scenario.id}: its tree has more than {self.max_nodes} nodes, too large to"
                " be exact"
            )
        game, rng = play_listed(self.scenario, self.task, steps, drawn)
        # the play drew more often than outcomes are given: the first such draw is a chance node
        if len(rng.sizes) > len(drawn):
            size = rng.sizes[len(drawn)]
            return Node(
                branches=[self.grow(steps, (*drawn, outcome)) for outcome in range(size)],
                chances=[1 / size] * size,
            )
        if not game.pending:
            paid = dict.fromkeys(self.scenario.agents, 0.0)
            for entry in game.ledger:
                paid[entry.agent] += entry.value
            return Node(payoff=tuple(paid.values()))
        return self._ask(game, steps, drawn, {})

    def _probed(self) -> float:
        """The median of Knuth's estimate of the number of nodes over random walks. A tree has at
        least half as many: each estimate is unbiased."""
        rng = random.Random(0)
        estimates = []
        for _ in range(PROBES):
            steps: Steps = ()
            drawn: tuple[int, ...] = ()
            width = 1
            total = 1
            while total <= 2 * self.max_nodes:
                game, listed = play_listed(self.scenario, self.task, steps, drawn)
                if len(listed.sizes) > len(drawn):
                    width *= listed.sizes[len(drawn)]
                    drawn = (*drawn, rng.randrange(listed.sizes[len(drawn)]))
                elif game.pending:
                    for pending in game.pending.values():
                        width *= len(pending.legal or ("",))
                    picked = {
                        agent: rng.choice(pending.legal or ("",))
                        for agent, pending in game.pending.items()
                    }
                    steps = (
                        *steps,
                        {agent: Action(choice, (), choice) for agent, choice in picked.items()},
                    )
                else:
                    break
                total += width
            estimates.append(total)
        # the median, since one walk down a rare wide branch would throw a mean off
        return sorted(estimates)[PROBES // 2]

    def _ask(
        self,
        game: Game,
        steps: Steps,
        drawn: tuple[int, ...],
        chosen: dict[str, Action],
    ) -> Node:
        waiting = [agent for agent in game.pending if agent not in chosen]
        if not waiting:
            return self.grow((*steps, chosen), drawn)
        agent = waiting[0]
        legal = game.pending[agent].legal
        if legal is None:
            raise ConfigError(
                f"{self.scenario.id}: {agent} is asked without legal strings, so its choices cannot"
                " be listed"
            )
        view = game.view(agent)
        info = (agent, view, legal)
        if info not in self.known:
            self.known[info] = _probabilities(
                self.strategies[agent](agent, view, legal), agent, legal
            )
        node = Node(agent, info, chances=list(self.known[info]), choices=len(legal))
        answers = [Action(choice, (), choice) for choice in legal]
        if len(node.chances) > len(legal):  # what the strategy leaves unassigned
            answers.append(_UNREADABLE)
        # those who choose at the same moment see none of these answers, so the same game asks them
        node.branches = [
            self._ask(game, steps, drawn, {**chosen, agent: answer}) for answer in answers
        ]
        return node


def _probabilities(chances_of: Sequence[float], agent: str, legal: tuple[str, ...]) -> list[float]:
    chances = [float(chance) for chance in chances_of]
    total = sum(chances)
    # written with >= and <= so that a NaN fails too
    sound = all(chance >= 0 for chance in chances) and total <= 1 + ROUNDING
    if len(chances) != len(legal) or not sound:
        raise ValueError(
            f"the strategy of {agent} gives {chances} for {len(legal)} legal strings; probabilities"
            " with a sum of at most 1 are wanted"
        )
    rest = 1 - total
    return [*chances, rest] if rest > ROUNDING else [chance / total for chance in chances]
