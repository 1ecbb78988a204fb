"""A recorded play of a run folder, opened to play forks of it, and what they cost.

Forks are played by the code, data and models of now, so a run is refused where one of them is not
what it was; else the values would be of another play.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from gem_ma.config.loading import load
from gem_ma.engines.api.openai import OpenAI
from gem_ma.engines.api.reply_cache import ReplyCache
from gem_ma.engines.base import Engine
from gem_ma.engines.endpoint.endpoint import Budget
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import BudgetError, ConfigError, DataError, StoreError
from gem_ma.kernel.types import Reply, Request, Turn, Usage
from gem_ma.runs.costs import prices_of
from gem_ma.runs.open import Opened, model_facts, open_config, world_facts
from gem_ma.runs.store import read_manifest
from gem_ma.runs.store.names import recorded_changes
from gem_ma.runs.store.used import changed_data, changed_rules, differing
from gem_ma.runs.worlds import World
from gem_ma.scores.attribution import EXACT, Forks
from gem_ma.system.files import make_folder

MARGIN = 1.5  # forks may be longer than what is on record; what is spent stays below it
TIMEOUT_S = 600.0  # of a fork whose run sets no limit
REPLIES = "explained.replies"  # of endpoints, by request and seed: no fork buys one twice


class Cost(NamedTuple):
    """What forks cost, by the record: model calls, their tokens and USD (None where no price is
    known, both where a server did not count); and `most`, the calls and tokens (None: calls alone)
    at which it stops."""

    forks: int
    calls: int
    tokens: int | None
    usd: float | None
    most: tuple[int, int | None]


def keep_replies(folder: Path, engines: Iterable[Engine]) -> None:
    """Has engines at an endpoint that keep their replies nowhere keep them in a folder of a run,
    where that can be written."""
    asked = [engine for engine in engines if isinstance(engine, OpenAI) and engine.cache is None]
    with suppress(OSError, StoreError, DataError):  # what is not kept is bought again
        if asked:
            make_folder(folder, folder.parent)
        for engine in asked:
            engine.cache = ReplyCache(folder)


@dataclass
class Meter:
    """How many model calls are left."""

    left: int


class Metered:
    """An engine that stops where the calls that were said before are made."""

    def __init__(self, engine: Any, meter: Meter) -> None:
        self.engine = engine
        self.meter = meter

    async def sample(self, request: Request) -> Reply:
        if self.meter.left < 1:
            raise BudgetError("the model calls that were said before are made")
        self.meter.left -= 1
        reply: Reply = await self.engine.sample(request)
        return reply


@dataclass(frozen=True, slots=True)
class Explained:
    """A recorded play with the world that it was played in."""

    path: Path
    opened: Opened
    world: World
    episode: Episode

    def forks(self, cost: Cost, ended: Callable[[Episode], object] = id) -> Forks:
        """What plays forks of it, at most at this cost; `ended` is told of each. Raises
        ConfigError for models that are not what they were."""
        config = self.world.config
        calls, tokens = cost.most
        known = [limit for limit in (tokens, config.limits.tokens) if limit is not None]
        budget = Budget(tokens=min(known, default=None), usd=config.limits.usd)
        opened = self.opened.of_policies(self.opened.loaded.config, budget=budget)
        facts = {"models": model_facts(self.opened.loaded.config, opened)}
        if words := changed_data(read_manifest(self.path), facts, "models"):
            raise _refused(self.path, words)
        keep_replies(self.path / REPLIES, [policy.engine for policy in opened.values()])
        meter = Meter(calls)
        limits = config.run.limits
        return Forks(
            self.world.scenario,
            self.episode,
            {
                name: replace(policy, engine=Metered(policy.engine, meter))
                for name, policy in opened.items()
            },
            {agent: config.agents[agent].seat for agent in self.episode.cast},
            limits=replace(limits, timeout_s=limits.timeout_s or TIMEOUT_S),
            call_timeout_s=config.run.call_timeout_s,
            concurrency=config.run.concurrency,
            ended=ended,
        )

    def cost(self, forks: Iterable[Kind]) -> Cost:
        """What forks of these kinds cost where as many calls follow as on record, and as many
        tokens each."""
        prices = prices_of(self.world.config)
        number = most_calls = most_tokens = 0
        calls = tokens = usd = 0.0
        is_counted = True
        for kind in forks:
            number += kind.number
            likely = kind.number * kind.likely
            turns = filter(kind.asks, self.episode.turns)
            replies = [reply for turn in turns for reply in turn.replies]
            most_calls += kind.number * len(replies)
            calls += likely * len(replies)
            for reply in replies:
                usage = _usage(reply)
                read, said = usage.prompt_tokens, usage.completion_tokens
                if not read or said is None:  # no prompt is empty
                    is_counted = False
                    continue
                # a call begins only where all that it may say has room
                room = self.world.config.policies[reply.policy].sampling.max_tokens
                most_tokens += kind.number * (read + max(said, room))
                tokens += likely * (read + said)
                price = prices.get(reply.policy)
                usd += likely * ((price(usage) if price else 0.0) or 0.0)
        if not is_counted:
            return Cost(number, round(calls), None, None, (round(most_calls * MARGIN), None))
        most = round(most_calls * MARGIN), round(most_tokens * MARGIN)
        return Cost(number, round(calls), round(tokens), usd if prices else None, most)

    def alike(self, agent: str) -> float:
        """How likely an act of this agent, drawn once more, comes out as it was, by how often two
        of its acts on record are alike."""
        taken = self.world.config.agents[agent].seat
        sampling = self.world.config.policies[taken.policy].sampling if taken.policy else None
        if sampling is not None and sampling.temperature == 0:
            return 1.0
        acts = [repr(turn.action) for turn in self.episode.turns if turn.agent == agent]
        pairs = len(acts) * (len(acts) - 1)
        same = sum(count * (count - 1) for count in Counter(acts).values())
        return same / pairs if pairs else 0.0

    def kinds_of_turns(
        self, turns: Sequence[Turn], plays: int, instead: str | None, is_said: bool
    ) -> list[Kind]:
        """The forks of `turn_values` of these turns as it lay, and of `message_values` where
        something else `is_said`."""
        kinds = []
        for turn in turns:
            everybody = frozenset(x.agent for x in self.episode.turns if x.step == turn.step)
            is_drawn = instead is None and not is_said
            others = everybody - {turn.agent} if is_drawn else everybody
            differs = 1 - self.alike(turn.agent) if is_drawn else 1.0
            kinds += [
                Kind(plays, turn.step, everybody, likely=differs),
                Kind(plays, turn.step, others),
            ]
        return kinds


@dataclass(frozen=True, slots=True)
class Kind:
    """So many forks that go on from a step, at which some do what they did; those that are `mute`
    ask no model. `likely`: the share of them that is played."""

    number: int
    step: int = -1
    kept: frozenset[str] = frozenset()
    mute: frozenset[str] = frozenset()
    likely: float = 1.0

    def asks(self, turn: Turn) -> bool:
        """Whether the models of a recorded turn are asked once more."""
        goes_on = turn.step > self.step or (turn.step == self.step and turn.agent not in self.kept)
        return goes_on and turn.agent not in self.mute


def kinds_of_agents(agents: Sequence[str], plays: int) -> list[Kind]:
    """The plays of `agent_values`."""
    if len(agents) > EXACT:
        # of the orders in which agents join each is in half of the plays, on average
        half = round(plays * (len(agents) + 1) / 2)
        return [Kind(half), Kind(half, mute=frozenset(agents))]
    sizes = range(len(agents) + 1)
    left_out = [each for size in sizes for each in itertools.combinations(agents, size)]
    return [Kind(plays, mute=frozenset(each)) for each in left_out]


def _usage(reply: Reply) -> Usage:
    """What a reply used; its ids are counted where its server did not say."""
    said = reply.usage
    prompt, sampled = said.prompt_tokens, said.completion_tokens
    return Usage(
        len(reply.prompt_ids) if prompt is None else prompt,
        (len(reply.token_ids) or None) if sampled is None else sampled,
        said.cached_tokens,
    )


def open_explained(path: Path, episode: Episode) -> Explained:
    """Raises ConfigError where code, rules or data are not what they were."""
    manifest = read_manifest(path)
    loaded = load(path / "resolved.yaml", recorded_changes(manifest.get("resumed")))
    if words := differing(path):
        raise _refused(path, words)
    opened = open_config(loaded)
    facts = world_facts(opened.worlds)
    if words := changed_rules(manifest, facts) or changed_data(manifest, facts):
        raise _refused(path, words)
    return Explained(path, opened, opened.worlds.of_episode(episode), episode)


def _refused(path: Path, words: str) -> ConfigError:
    return ConfigError(f"{path}: {words}; forks of it would be of another play; play it anew")
