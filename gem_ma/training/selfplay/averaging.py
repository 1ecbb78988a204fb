"""The averaged policy of language models in self-play: the mixture of all their published versions,
where the game is small enough to list.

In self-play of a zero-sum game the last iterate cycles while the average approaches an
equilibrium, so both are scored. A table averages by itself (`TableLearner.average`); a language
model is asked for its probabilities at every decision of the game after each publication.
Version v has weight v, as in `TableLearner.average`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gem_ma.config.settings import Config
from gem_ma.engines.small.table import Table, view_key
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario
from gem_ma.registry import task_of
from gem_ma.runs.plans import exam_tasks
from gem_ma.runs.worlds import Worlds
from gem_ma.scores.exploitability import Decision, ScoresTexts, Strategy, TokenStrategy, decisions
from gem_ma.training.loop.step import Attendant, Step


class Mixture:
    """The average of strategies in a small game: draw one per episode and play it throughout. Over
    the `decisions` of the game they are added one by one, and nothing is kept but their share.

    With perfect recall such a mixture equals one strategy: at each information set the mean of the
    members' probabilities, each weighted by how often its own choices lead there. The plain mean of
    the probabilities is another strategy, and so is the mean of weights.
    """

    def __init__(self, decisions: Sequence[Decision]) -> None:
        self.decisions = tuple(decisions)
        self.size = 0  # members so far
        self.reached = [0.0] * len(self.decisions)  # weight times own reach, over the members
        # the same times the probability of each choice
        self.sums = [[0.0] * len(decision.legal) for decision in self.decisions]

    def add(self, strategy: Strategy, weight: float = 1.0) -> None:
        """Takes one strategy into the mixture. Mass that it does not assign is that of
        unreadable answers."""
        asked = [(decision.agent, decision.view, decision.legal) for decision in self.decisions]
        # a language model is asked for all decisions in one pass; one pass each would be hours
        if isinstance(strategy, TokenStrategy):
            chances = strategy.many(asked)
        else:
            chances = [[float(p) for p in strategy(*one)] for one in asked]
        reach: list[float] = []
        self.size += 1
        for place, decision in enumerate(self.decisions):
            reached = 1.0
            # a decision comes after the one before it in the list, so that one's reach is known
            if decision.before is not None:
                before, choice = decision.before
                taken = chances[before]
                unread = max(0.0, 1 - sum(taken))
                reached = reach[before] * (taken[choice] if choice < len(taken) else unread)
            reach.append(reached)
            self.reached[place] += weight * reached
            pairs = zip(self.sums[place], chances[place], strict=True)
            self.sums[place] = [total + weight * reached * chance for total, chance in pairs]

    def chances(self) -> list[list[float]]:
        """The probabilities of the mixture at each decision; uniform where no member ever comes."""
        pairs = zip(self.sums, self.reached, strict=True)
        return [
            # what no member reaches changes no play: any strategy is right there
            [value / reached for value in sums] if reached > 0 else [1 / len(sums)] * len(sums)
            for sums, reached in pairs
        ]

    def strategy(self) -> Strategy:
        """The present mixture as one strategy."""
        pairs = zip(self.decisions, self.chances(), strict=True)
        known = {(one.agent, one.view, one.legal): chances for one, chances in pairs}
        return lambda agent, view, legal: known[agent, view, legal]

    def state(self) -> dict[str, Any]:
        return {"size": self.size, "reached": self.reached, "sums": self.sums}

    def load(self, state: Mapping[str, Any]) -> None:
        self.size = state["size"]
        self.reached = list(state["reached"])
        self.sums = [list(row) for row in state["sums"]]


# The largest game that is averaged, since every publication asks the model at all its decisions.
NODES = 10_000
DECISIONS = 200


def exact(config: Config, scenario: Scenario) -> bool:
    """Whether strategies can be scored exactly: a zero-sum scenario in which every agent answers
    by `direct`."""
    # the average asks the model with the prompt of `direct`; other behaviours and memories show it
    # others
    seats = config.agents
    return (
        bool(scenario.zero_sum)
        and set(seats) == set(scenario.agents)
        and all(seat.behaviour == "direct" and not seat.memory for seat in seats.values())
    )


def as_table(mixture: Mixture, policy: str) -> Table:
    """The mixture as a table engine, which any run can seat. The mass of unreadable answers is
    shared out among the legal strings."""
    table = Table(policy=policy)
    for decision, chances in zip(mixture.decisions, mixture.chances(), strict=True):
        key = view_key(decision.agent, decision.view, decision.legal)
        # logits need no normalising, a softmax does that; but the logarithm of 0 is not finite
        table.logits[key] = np.log(np.maximum(chances, 1e-300))
    return table


class Averages(Attendant):
    """The mixtures of one run by policy; none where the game cannot be listed or is too large."""

    def __init__(self, worlds: Worlds, learners: Mapping[str, Any]) -> None:
        self.learners = learners
        self.mixtures: dict[str, Mixture] = {}
        # of several games there would be a mixture each; their exams have the last weights alone
        if worlds.several:
            return
        config = worlds.played[0].config
        scenario = worlds.played[0].scenario
        learned = config.train.policies if config.train is not None else []
        names = [name for name in learned if isinstance(learners.get(name), ScoresTexts)]
        if names and exact(config, scenario):
            try:
                tasks = [task_of(scenario, task) for task in exam_tasks(config, scenario)]
                listed = decisions(scenario, tasks, max_nodes=NODES)
            except ConfigError:  # chance that cannot be listed, open questions, or too large a game
                return
            if len(listed) <= DECISIONS:
                self.mixtures = {name: Mixture(listed) for name in names}

    name = "averages"
    shape = dict[str, dict[str, Any]]
    optional = True

    def updated(self, step: Step) -> None:
        """Adds the weights that were just published; at the beginning those of all policies."""
        self.take(step.taught if step.number else self.mixtures)

    def take(self, policies: Iterable[str]) -> None:
        # version 0 has weight 0: what was never published was never played
        for name in policies:
            if name in self.mixtures and (version := self.learners[name].version):
                self.mixtures[name].add(TokenStrategy(self.learners[name]), version)

    def state(self) -> dict[str, Any]:
        return {name: mixture.state() for name, mixture in self.mixtures.items()}

    def load(self, state: Any) -> None:
        for name in self.mixtures.keys() & state.keys():
            self.mixtures[name].load(state[name])
