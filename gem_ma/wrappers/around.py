"""A scenario around a scenario: it says of itself what the inner one says, and passes every effect
on until a subclass does otherwise.

What is judged are the rules: success, measures and labels see the ledger as the rules paid it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gem_ma.kernel.effects import Effect, Play, Scenario
from gem_ma.kernel.episode import Episode, Limits
from gem_ma.kernel.errors import CallError, ConfigError
from gem_ma.kernel.types import Message, Turn

FACTS = [
    name
    for name, value in vars(Scenario).items()
    if not name.startswith("_") and not callable(value) and not isinstance(value, property)
]
# how the reasons of payments begin that the rules know nothing of
ADDED = "wrapper: "
# yields effects in place of one of the inner scenario's, and gives what that is answered
Handler = Callable[[Effect], Generator[Any, Any, Any]]


def rules_of(scenario: Scenario) -> Scenario:
    """The scenario that knows the rules: itself, or the one that wrappers stand around."""
    while isinstance(inner := getattr(scenario, "inner", None), Scenario):
        scenario = inner
    return scenario


def layers_of(scenario: Scenario) -> list[Scenario]:
    """The scenario, and those that it stands around, the rules last."""
    layers = [scenario]
    while isinstance(inner := getattr(layers[-1], "inner", None), Scenario):
        layers.append(inner)
    return layers


def relay(inner: Play, handle: Handler) -> Play:
    """Plays the inner play on, each of its effects as `handle` has it. The error of a call goes
    to the rules, which made it."""
    answer = None
    failed = None
    try:
        while True:
            try:
                effect = inner.send(answer) if failed is None else inner.throw(failed)
            except StopIteration:
                return
            answer = None
            failed = None
            try:
                answer = yield from handle(effect)
            except CallError as error:
                failed = error
    finally:
        # a play that is closed from outside frees what the rules hold
        inner.close()


class Around(Scenario):
    """A scenario that stands around `inner`."""

    def __init__(self, inner: Scenario) -> None:
        self.inner = inner
        for name in FACTS:
            setattr(self, name, getattr(inner, name))

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # not made yet
            raise AttributeError(name)
        return getattr(self.inner, name)  # what behaviours and pages ask of it by name

    def play(self, rng: random.Random, task: Any) -> Play:
        return self.played(rng, task)

    def played(self, rng: random.Random, task: Any) -> Play:
        """The play of the inner scenario."""
        inner = self.inner
        if "deal" in vars(self):
            # who deals anew (the kit does) sets it on the outermost; the rules are to use it
            inner = copy.copy(inner)
            object.__setattr__(inner, "deal", self.deal)
        return inner.play(rng, task)

    def deal(self, rng: random.Random, task: Any) -> Mapping[str, Any]:
        return self.inner.deal(rng, task)

    def answers(self, rng: random.Random, task: Any) -> Sequence[str]:
        return self.inner.answers(rng, task)

    def tasks(self, split: str) -> Sequence[Any]:
        return self.inner.tasks(split)

    def success(self, episode: Episode) -> bool | None:
        return self.inner.success(self.as_ruled(episode))

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        return self.inner.measures(self.as_ruled(episode))

    def labels(self, episode: Episode) -> Mapping[str, str | Sequence[str]]:
        return self.inner.labels(self.as_ruled(episode))

    def fault(self, episode: Episode) -> tuple[int | None, str, str] | None:
        found = self.inner.fault(self.as_ruled(episode))
        if found is None or (*found[:2],) in {(turn.step, turn.agent) for turn in episode.turns}:
            return found
        # of an agent that this layer made others of: no step is better than a wrong one
        return None, found[1] if found[1] in episode.cast else "", found[2]

    def team(self, episode: Episode, agent: str) -> str:
        return self.inner.team(self.as_ruled(episode), agent)

    def role(self, episode: Episode, agent: str) -> str:
        return self.inner.role(self.as_ruled(episode), agent)

    def as_ruled(self, episode: Episode) -> Episode:
        """The episode without what this layer added: what the inner scenario judges."""
        # asked of the inner layers too: one of them may give agents tools that pay
        return as_paid(episode, getattr(self, "paid_calls", ()))

    def provenance(self) -> dict[str, Any]:
        return self.inner.provenance()

    @property
    def summary(self) -> str:
        return self.inner.summary

    def pays_otherwise(self, *, alike: bool = False) -> None:
        """Takes back what the rules declare of their rewards. `alike`: sums stay sums, so that
        what is equal or adds up to 0 still does."""
        rewards = ("return ", "return*", "return *")
        self.rates = tuple(name for name in self.rates if not name.startswith(rewards))
        if not alike:
            self.zero_sum = self.cooperative = False
        if type(rules_of(self)).success is Scenario.success:
            self.baselines = {}  # returns of the rules; where there is a success they are shares


def as_paid(episode: Episode, calls: Collection[str]) -> Episode:
    """The episode with the ledger as the rules paid it; `calls`: why tools pay that are not the
    rules' own."""
    if all(entry.original is None for entry in episode.ledger):
        return episode
    ledger = tuple(
        entry if entry.original is None else replace(entry, value=entry.original, original=None)
        for entry in episode.ledger
        # rules may pay 0 too, and ask how often
        if entry.original != 0 or not (entry.why.startswith(ADDED) or entry.why in calls)
    )
    return replace(episode, ledger=ledger)


def without(episode: Episode, turns: Collection[Turn]) -> Episode:
    """The episode as if these turns, by identity, had never been taken: what their agent was shown
    then stands in its next turn."""
    gone = set(map(id, turns))
    others = []
    unread: dict[str, tuple[Message, ...]] = {}
    for turn in episode.turns if gone else ():
        observed = (*unread.pop(turn.agent, ()), *turn.observed)
        if id(turn) in gone:
            unread[turn.agent] = observed
        else:
            others.append(replace(turn, observed=observed))
    return replace(episode, turns=tuple(others)) if gone else episode


class TimeLimit(Around):
    """Cuts a play after `steps` decision points, retries included. That is a truncation: the value
    of what would follow still counts. A shorter limit of the rules' own stays."""

    def __init__(self, inner: Scenario, steps: int) -> None:
        if type(steps) is not int or steps < 1:
            raise ConfigError(f"time_limit: 1 decision point or more; got {steps!r}")
        if any(isinstance(layer, TimeLimit) for layer in layers_of(inner)):
            raise ConfigError("time_limit stands around time_limit: write the shorter one")
        super().__init__(inner)
        self.limits = Limits(max_steps=steps).narrowed(inner.limits)
        # what a limit cuts has not ended by the rules
        if inner.ends_within is not None and inner.ends_within > steps:
            self.ends_within = None
