"""The worlds of a config, opened: each scenario with the config that holds in it alone, so that
whoever plays or scores one world need not know that there are others.

A config of one `scenario:` is one world without a name. Names stand in the record
(`Episode.world`), in ids of episodes and before agents in scores.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import compress, cycle, islice, repeat
from math import floor, gcd, lcm
from operator import not_
from pathlib import Path
from typing import NamedTuple, TypeVar

from gem_ma.config.playing import AgentSettings, ExamSettings, ScenarioSettings, WorldSettings
from gem_ma.config.seats import is_pattern, seats_of
from gem_ma.config.settings import Config
from gem_ma.config.sources import located
from gem_ma.driver.rollout import Plan
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.scenario import Scenario
from gem_ma.registry import make
from gem_ma.runs.plans import Plans, count, with_tools
from gem_ma.scores.groups import Id, verdict_of
from gem_ma.scores.judge import Judge

Given = TypeVar("Given")


@dataclass(frozen=True, slots=True)
class World:
    """One scenario of a config. `config` is that of this world alone: its `scenario`, and a seat
    for each of its agents by name."""

    name: str  # "" where the config has one scenario
    config: Config
    scenario: Scenario
    weight: float = 1.0

    def placing(self, plans: Iterable[Plan]) -> Iterator[Plan]:
        """The same plans, as plays of this world."""
        return (replace(plan, world=self.name) for plan in plans)

    def among(self, episodes: Iterable[Episode]) -> list[Episode]:
        """Those that were played in this world."""
        return [episode for episode in episodes if episode.world == self.name]

    def named(self, name: str) -> str:
        """A name with that of the world before it: `kuhn player_0`, as `Episode.whose`."""
        return f"{self.name} {name}" if self.name else name

    def label(self, name: str) -> str:
        """A name with that of the world behind it, for keys of scores: `sampled kuhn`."""
        return f"{name} {self.name}" if self.name else name


@dataclass(frozen=True, slots=True)
class Worlds:
    """All worlds of a config: those that are played and trained on, and those of exams."""

    played: tuple[World, ...]
    examined: tuple[World, ...]

    @classmethod
    def of(cls, config: Config, scenario: Scenario | Worlds) -> Worlds:
        """Of a config and its one scenario; worlds are given as they are."""
        if isinstance(scenario, Worlds):
            return scenario
        alone = _seated(config, scenario)
        return cls((alone,), (alone,))

    @property
    def several(self) -> bool:
        """Whether plays of several scenarios may meet."""
        return any(world.name for world in self.played)

    @property
    def configs(self) -> list[Config]:
        """The configs of the worlds that are played."""
        return [world.config for world in self.played]

    @property
    def with_baselines(self) -> list[World]:
        """Those whose baselines are to be played."""
        wanted = [world for world in self.played if world.config.run.baselines is not False]
        return [world for world in wanted if world.scenario.baseline_casts]

    @property
    def judge(self) -> Judge:
        """What judges plays of all of them."""
        if not self.several:
            return Judge.of(self.played[0].scenario)
        return Judge.among({world.name: Judge.of(world.scenario) for world in self.played})

    def of_episode(self, episode: Episode) -> World:
        """The world that an episode was played in. Raises KeyError where it is none of these."""
        for world in (*self.played, *self.examined):
            if world.name == episode.world:
                return world
        raise KeyError(episode.world)

    def success(self, episode: Episode) -> bool | None:
        """What the scenario of its world says of an episode."""
        return verdict_of(self.of_episode(episode).scenario.success, episode)

    def team(self, episode: Episode, agent: str) -> str:
        """The team that an agent of an episode has in its world; "" where it has none."""
        return self.of_episode(episode).scenario.team(episode, agent)

    def plans(self) -> Iterator[Plan]:
        """What `gem-ma run` plays: the plans of every world as if it were alone, in turn by their
        weights, so that a run that was stopped holds a share of each."""
        return self._in_turn(iter)

    def left(self, done: Container[Id], most: int | None = None) -> tuple[int, Iterator[Plan]]:
        """How many of these plans, or of the first `most`, are not done, and those; none is made
        before it is asked for."""
        lacks = bytes(map(not_, map(done.__contains__, self.ids(most))))
        makers = self._in_turn(lambda plans: zip(repeat(plans), range(len(plans))))
        turns = compress(makers, lacks)
        return lacks.count(1), (plans.plan(number) for plans, number in turns)

    def ids(self, most: int | None = None) -> Iterator[Id]:
        """The ids of these plans, or of the first `most`."""
        return islice(self._in_turn(Plans.ids), most)

    def _in_turn(self, give: Callable[[Plans], Iterator[Given]]) -> Iterator[Given]:
        """What is given of the plans of each world, one of whose turn it is."""
        left = {w.name: give(Plans(w.config, w.scenario, w.name)) for w in self.played}
        weights = {world.name: world.weight for world in self.played}
        while len(left) > 1:
            for name in taking_turns(weights):
                given = next(left[name], None)
                if given is None:  # the others go on among themselves
                    break
                yield given
            del left[name], weights[name]
        for last in left.values():
            yield from last

    def count(self) -> int:
        """How many plans `plans` gives."""
        return sum(count(world.config, world.scenario) for world in self.played)


def worlds_of(
    config: Config, *, base: Path | None = None, made: dict[str, Scenario] | None = None
) -> Worlds:
    """The worlds of a config, with the tools of their agents. Raises DataError where data of a
    scenario is missing or damaged.

    `made` keeps scenarios by what they were made of, for several configs that share some.
    """
    made = {} if made is None else made
    opened = located(config, base)
    played = tuple(_world(config, opened, made, name) for name in config.scenarios or ("",))
    # an exam of a world that is trained on, too, may ask other tasks
    exams = {
        name: _world(config, opened, made, name, exam=True) for name in config.evaluate.scenarios
    }
    named = {world.name for world in played}
    kept = [exams.get(world.name, world) for world in played]
    return Worlds(played, (*kept, *(exams[name] for name in exams if name not in named)))


def seats_by_name(config: Config, *, base: Path | None = None) -> dict[str, AgentSettings]:
    """Agent -> its seat. Of several worlds in which an agent sits, the seat in the first one."""
    if not config.scenarios and not any(map(is_pattern, config.agents)):
        return config.agents
    named: dict[str, AgentSettings] = {}
    for world in worlds_of(config, base=base).played:
        named = {**world.config.agents, **named}
    return named


def _world(
    config: Config, opened: Config, made: dict[str, Scenario], name: str, *, exam: bool = False
) -> World:
    """`opened` is the config with its paths as seen from the working folder, to open what they
    name; a world has what was written."""
    if not name:
        scenario = _made(opened.only, made)
        seats = seats_of(scenario.agents, opened.agents)
        return _seated(config, with_tools(scenario, seats))
    block, there = (
        (one.evaluate.scenarios if exam else one.scenarios)[name] for one in (config, opened)
    )
    scenario = _made(there, made)
    seats = seats_of(scenario.agents, there.agents, opened.agents)
    return _seated(config, with_tools(scenario, seats), name, block)


def _made(block: ScenarioSettings, made: dict[str, Scenario]) -> Scenario:
    key = json.dumps([block.id, block.options], sort_keys=True)
    if key not in made:
        made[key] = make(block.id, **block.options)
    return made[key]


def _seated(
    config: Config, scenario: Scenario, name: str = "", block: ExamSettings | None = None
) -> World:
    """The world of a scenario that is made: its seats by name instead of pattern."""
    if block is None:
        seats = seats_of(scenario.agents, config.agents)
        return World(name, config.model_copy(update={"agents": seats}), scenario)
    seats = seats_of(scenario.agents, block.agents, config.agents)
    alone = {
        "scenario": block.scenario,
        "scenarios": {},
        "agents": seats,
        "evaluate": config.evaluate.model_copy(update={"scenarios": {}}),
    }
    # an exam is held in each world with as many plays
    weight = block.weight if isinstance(block, WorldSettings) else 1.0
    return World(name, config.model_copy(update=alone), scenario, weight)


class Due(NamedTuple):
    """Whose turn it is, and how many turns this one had before."""

    name: str
    before: int


def due(weights: Mapping[str, float], number: int) -> Due:
    """Whose turn the one of this number (from 0) is, so that each world has its share of every
    stretch: a function of the weights and of a number alone, so a resumed run has nothing to
    remember.

    The worlds are taken one by one. Of the numbers that the worlds before left over, a world takes
    those at which `share * n`, rounded, grows; the rest is numbered anew and goes to the next ones.
    So a world is never more than a few turns from its due.

    >>> "".join(due({"a": 3, "b": 1}, number).name for number in range(8))
    'aabaaaba'
    """
    # by name: the order in which a config names its scenarios is not part of its digest
    names = sorted(weights)
    # fractions, since a share of .1 that is added a million times is another number in floats
    left = sum(Fraction(str(weights[name])) for name in names)
    for name in names[:-1]:
        share = Fraction(str(weights[name])) / left
        before = _turns_before(share, number)
        if _turns_before(share, number + 1) > before:
            return Due(name, before)
        number = number - before
        left = left - Fraction(str(weights[name]))
    return Due(names[-1], number)


def taking_turns(weights: Mapping[str, float]) -> Iterator[str]:
    """Whose turn it is, without end: the names of `due` at 0, 1, 2 ... They come again as soon as
    every world has had a whole number of turns, so that a long run asks for few of them."""
    shares = [Fraction(str(weight)) for weight in weights.values()]
    parts = lcm(*(share.denominator for share in shares))
    whole = [int(share * parts) for share in shares]
    return cycle(due(weights, number).name for number in range(sum(whole) // gcd(*whole)))


def _turns_before(share: Fraction, number: int) -> int:
    """How many of the first so many are its own."""
    return floor(share * number + Fraction(1, 2))
