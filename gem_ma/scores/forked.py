"""Forks of one recorded play, and means over them: what `gem_ma.scores.attribution` asks by.

A fork goes on from a step of the record. Two forks of a pair share a seed, and so all random
numbers but those of the one act that differs.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from gem_ma.driver.behaviour import Factory
from gem_ma.driver.forks import Branch, act_again
from gem_ma.driver.limits import NO_LIMITS
from gem_ma.driver.rollout import Plan, play
from gem_ma.driver.seats import Seats, ended
from gem_ma.engines.base import Policy, stable_seed
from gem_ma.kernel.episode import End, Episode, Limits, Seat
from gem_ma.kernel.errors import ConfigError, DataError, EndpointError
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.kernel.types import Action, Message, Turn
from gem_ma.registry import task_of
from gem_ma.scores.stats import skewed_t
from gem_ma.scores.together import apart

Result = TypeVar("Result")

FORK = 1_000_000  # repeats from this number on are forks: no run tries a task so often


class Seen(Exception):
    """The play was watched for as long as it is needed."""


def is_cut(episode: Episode) -> bool:
    """Whether whoever watched the play ended it."""
    return (episode.error or "").startswith(f"{Seen.__name__}:")


class Value(NamedTuple):
    """A mean with its 95 % interval and standard error; None where nothing could be measured. Of
    pairs without spread the interval has no width, which says that none was seen."""

    mean: float | None
    low: float | None
    high: float | None
    error: float | None
    pairs: int
    plays: int
    failed: int


@dataclass(frozen=True)
class Forks:
    """Plays forks of one recorded play. `cast`: who sits where, by default those of the record;
    `first`: the repeat that its behaviours drew for; `behaviours` as for `gem_ma.play`; `faults`:
    why forks failed, counted."""

    scenario: Scenario
    episode: Episode
    policies: Mapping[str, Policy] = field(default_factory=dict)
    cast: Mapping[str, Seat] | None = None
    behaviours: Mapping[str, Factory] = field(default_factory=dict)
    limits: Limits = NO_LIMITS
    call_timeout_s: float | None = 60.0
    concurrency: int = 16
    first: int | None = None
    ended: Callable[[Episode], object] = id  # told of each play
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def seats(self) -> Mapping[str, Seat]:
        return self.episode.cast if self.cast is None else self.cast

    def turns(self, agent: str | None = None) -> list[Turn]:
        """The turns of an agent, or of all."""
        if agent is not None and agent not in self.episode.cast:
            raise ConfigError(
                f"no agent of {self.scenario.id} is called {agent!r}; its agents are"
                f" {', '.join(self.episode.cast)}"
            )
        return [turn for turn in self.episode.turns if agent in (None, turn.agent)]

    def seed(self, *what: Any) -> str:
        """A seed of this play's own. Without the play's name in it the forks of all plays would
        draw alike, and their errors would not be independent."""
        return str(stable_seed(*self.episode.id, "attribution", *what))

    def plan(self, drawn_by: str, **changes: Any) -> Plan:
        """A play of the same task, whose models draw by this seed, with some changes."""
        episode = self.episode
        plan = Plan(
            self.scenario,
            self.seats,
            episode.task,
            episode.seed,
            # requests to models are seeded by it, so that two arms of a pair have one
            FORK + int(drawn_by) % FORK**2,
            limits=self.limits,
            call_timeout_s=self.call_timeout_s,
            options=episode.options,
            world=episode.world,
        )
        return replace(plan, **changes)

    async def play(
        self,
        plan: Plan,
        behaviours: Mapping[str, Factory],
        watch: Callable[[Game], object] = id,
    ) -> Episode:
        made = await play(plan, self.policies, {**self.behaviours, **behaviours}, watch)
        # one that is watched is cut on purpose, but for a budget that ends it
        if watch is id or made.end is End.INTERRUPTED:
            self.ended(made)
        if made.end is End.FAILED and not is_cut(made):
            self.faults[made.error or ""] += 1
        return made

    async def fork(
        self,
        step: int,
        seed: str,
        *,
        kept: Sequence[str],
        behaviours: Mapping[str, Factory],
        watch: Callable[[Game], object] = id,
    ) -> Episode:
        """Goes on from a step, at which those who are `kept` do what they did."""
        first = self.episode.repeat if self.first is None else self.first
        branch = Branch(self.episode, step, seed, first, tuple(kept))
        return await self.play(self.plan(seed, branch=branch), behaviours, watch)

    async def act(self, step: int, seed: str, turn: Turn, player: Factory) -> Action | None:
        """What the agent of a turn does where this player takes it from a step on, asked as in the
        turn; None where it fails."""
        task = task_of(self.scenario, self.episode.task)
        first = self.episode.repeat if self.first is None else self.first
        plan = self.plan(seed)
        seats = Seats(
            self.scenario,
            plan.cast,
            self.policies,
            {turn.agent: player},
            task=task,
            id_=plan.id,
            first=first,
            max_said=self.limits.max_said,
            alone=turn.agent,
        )
        try:
            async with asyncio.timeout(self.limits.timeout_s):
                return await act_again(seats, Branch(self.episode, step, seed, first), turn)
        except (ConfigError, DataError, EndpointError):
            raise
        except Exception as error:
            self.faults[f"{type(error).__name__}: {error}"] += 1
            return None
        finally:
            ended(seats.players.values(), self.episode)

    def behaviour(self, agent: str) -> Any:
        """Who plays an agent: an id or a factory."""
        return self.behaviours.get(agent) or self.seats[agent].behaviour

    async def all(self, work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
        """The results in order, at most `concurrency` at once. Where one raises, the others are
        given up."""
        places = asyncio.Semaphore(self.concurrency)
        waiting = [*work]

        async def one(each: Coroutine[Any, Any, Result]) -> Result:
            async with places:
                return await each

        tasks = [asyncio.ensure_future(one(each)) for each in waiting]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                if not task.cancelling():  # a second time would break off how it ends
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for each in waiting:  # one that never began would be warned of
                each.close()
            raise


class Openings:
    """Which deals show an agent at the beginning what it saw first: most do not, and to look costs
    a tenth of a play. A world that calls outside first is not asked."""

    def __init__(self, forks: Forks, agent: str, view: Sequence[Message]) -> None:
        self.scenario = forks.scenario
        self.task = task_of(forks.scenario, forks.episode.task)
        self.agent = agent
        self.view = view
        # by deal; the deal too, or another one may get its address, and so its `repr`
        self.known: dict[str, tuple[bool, object]] = {}

    def may_be(self, seed: int) -> bool:
        rng = random.Random(seed)
        dealt = self.scenario.deal(rng, self.task)
        key = repr(dealt)
        if key in self.known:
            return self.known[key][0]
        game = Game(self.scenario, self.task, seed, defer_calls=True)
        try:
            shown = game.view(self.agent)
            is_same = len(shown) <= len(self.view) and shown == tuple(self.view[: len(shown)])
            # where nothing but the deal was drawn, it decides what is shown
            if game.rng.getstate() == rng.getstate():
                self.known[key] = is_same, dealt
            return is_same
        finally:
            game.close()


class Pair(NamedTuple):
    """A fork in which a thing was done as on record, and one in which another was; None where none
    was needed, or where an act failed. `share`: how often the other thing is drawn, None where that
    is not known; 0: both did the same, so that nothing lies between them."""

    done: Episode | None
    other: Episode | None
    share: float | None = 1.0

    def apart(self, agent: str) -> float | None:
        """The difference of an agent's returns; None where something failed."""
        if self.share is None:
            return None
        if not self.share:
            return 0.0
        if self.done is None or self.other is None or self.failed:
            return None
        return self.share * apart(self.other.returns()[agent], self.done.returns()[agent])

    @property
    def plays(self) -> list[Episode]:
        return [fork for fork in (self.done, self.other) if fork is not None]

    @property
    def failed(self) -> int:
        return sum(not fork.end.scored for fork in self.plays) + (self.share is None)


def value_of(pairs: Sequence[Pair], agent: str) -> Value:
    """The mean difference of an agent's returns over those pairs of which all ended."""
    apart = [found for pair in pairs if (found := pair.apart(agent)) is not None]
    plays = sum(len(pair.plays) for pair in pairs)
    return mean_of(apart, plays, sum(pair.failed for pair in pairs))


FAILED = Pair(None, None, None)


def mean_of(values: Sequence[float], plays: int, failed: int) -> Value:
    if not values:
        return Value(None, None, None, None, 0, plays, failed)
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Value(mean, None, None, None, 1, plays, failed)
    low, high = skewed_t(values)
    squares = [(x - mean) ** 2 for x in values]
    # The farthest counts three times: what was seen once in K pairs is as well seen never or three
    # times, and then the plain standard error is off by half.
    spread = (math.fsum(squares) + 2 * max(squares)) / (len(values) - 1)
    return Value(mean, low, high, math.sqrt(spread / len(values)), len(values), plays, failed)
