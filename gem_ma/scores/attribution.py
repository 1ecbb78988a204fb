"""Which turn, which message, which agent made a play come out so: values by forks of it.

The value of a turn is what its agent was paid in the end, less what it would have been paid had it
drawn its act once more (or had another behaviour acted there): R(as it was done) - R(instead), each
the mean of plays that go on from the turn. Two questions differ, and every value says which one it
answers:

- `given="state"`, as it lay: the hidden deal stays what it was, and so does what others did at the
  same step;
- `given="view"`, as the agent could know: everything that the agent had not seen is dealt and
  played anew, and only those plays count in which it saw and did what is on record.

Both arms of a pair share all random numbers but those of the act itself (common random numbers), so
a turn that changes nothing has no spread. The random numbers of different turns, pairs and plays
are independent. A fork that fails is counted and takes its pair along.

Sources: a counterfactual of one act, Foerster et al. 2018 (COMA, arXiv 1705.08926); replays of a
context, arXiv 2603.06859 (C3); the decisive turn, arXiv 2509.03312 (AgenTracer); Shapley 1953, by
sampled orders Castro et al. 2009. Axes: K pairs of a turn, N agents.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Literal, NamedTuple

from gem_ma.driver.behaviour import Factory
from gem_ma.driver.forks import StandIn, scripted
from gem_ma.engines.base import stable_seed
from gem_ma.kernel.episode import End, Episode, Seat
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.kernel.types import Action, Message, Turn, spoken
from gem_ma.scores.forked import (
    FAILED,
    Openings,
    Pair,
    Seen,
    Value,
    is_cut,
    mean_of,
    value_of,
)
from gem_ma.scores.forked import (
    Forks as Forks,
)

Given = Literal["state", "view"]
Instead = Literal["silence", "other deal"]
Outcome = Callable[[Episode], float]

EXACT = 5  # agents up to which all coalitions are played
DRAWS = 8  # of a bot's act, for each pair
TRIES = 1000  # deals that are looked at for each pair of `given="view"`


class TurnValue(NamedTuple):
    step: int
    agent: str
    value: Value


class MessageValue(NamedTuple):
    """What a message changed, for each agent: its return as it was said, less its return had the
    other thing been said."""

    step: int
    agent: str
    values: Mapping[str, Value]


class Wins(NamedTuple):
    """How often `plays` forks were won in which another behaviour took over at this turn."""

    step: int
    won: int
    plays: int
    failed: int
    best: Episode | None  # a fork that was won

    @property
    def saves(self) -> bool:
        """Whether at least half of them were won."""
        return 2 * self.won >= self.plays > 0


class Shares(NamedTuple):
    """Shapley values of agents. `exact`: all coalitions were played, and not only sampled orders of
    agents; `everybody` and `nobody` are the worth of the two ends, whose difference they add up
    to; None where no play ended."""

    shares: Mapping[str, Value]
    everybody: float | None
    nobody: float | None
    exact: bool


# -- turns ----------------------------------------------------------------------------------------


async def turn_values(
    forks: Forks,
    *,
    plays: int = 32,
    given: Given = "state",
    instead: str | None = None,
    agent: str | None = None,
    tries: int = TRIES,
) -> list[TurnValue]:
    """The value of every turn, or of an agent's, to the agent itself: K = `plays` pairs each.

    `instead`: a behaviour that acts there in place of the agent's own (None: its own, drawn once
    more). `tries`: so many deals are looked at for each pair of `given="view"`, in the mean, before
    a turn is given up; one for which fewer than two plays showed the agent what it had seen has no
    value.
    """
    if plays < 2:
        raise ConfigError(f"a value with an interval takes 2 or more plays a turn; got {plays}")
    if given == "view":
        agents = [agent] if agent else list(dict.fromkeys(turn.agent for turn in forks.turns()))
        found: list[TurnValue] = []
        for each in agents:
            found += await _seen_values(forks, each, plays, instead, tries)
        return sorted(found, key=lambda value: value.step)
    values = []
    for turn in forks.turns(agent):
        pairs = await forks.all(_pair_as_it_lay(forks, turn, n, instead) for n in range(plays))
        values.append(TurnValue(turn.step, turn.agent, value_of(pairs, turn.agent)))
    return values


@dataclass(frozen=True)
class _Arms:
    """The two forks of a pair at one step, and what they share: `kept`, who does again what it did,
    and `script`, what the agent does before without being asked. `repeats`: at the step the agent's
    own player does again what is on record, and no script."""

    forks: Forks
    turn: Turn
    step: int
    seed: str
    kept: Sequence[str] = ()
    script: Mapping[int, Action] = field(default_factory=dict)
    repeats: bool = False

    async def done(self) -> Episode:
        """The act was as it is on record."""
        agent = self.turn.agent
        if self.repeats:
            return await self.other({}, kept=(*self.kept, agent))
        script = {**self.script, self.step: self.turn.action}
        return await self.other({agent: scripted(self.forks.behaviour(agent), script)})

    async def other(
        self,
        behaviours: Mapping[str, Factory],
        *,
        kept: Sequence[str] | None = None,
    ) -> Episode:
        kept = self.kept if kept is None else kept
        return await self.forks.fork(self.step, self.seed, kept=kept, behaviours=behaviours)

    def act_in(self, episode: Episode) -> Action | None:
        """What the agent did at the step; None where the play failed before."""
        at = (self.step, self.turn.agent)
        return next((turn.action for turn in episode.turns if (turn.step, turn.agent) == at), None)


async def _pair(arms: _Arms, behaviours: Mapping[str, Factory]) -> Pair:
    """Plays the other fork first. Where the act came out as it was on record, the pair's difference
    has mean 0, and playing it would add noise and cost alone."""
    other = await arms.other(behaviours)
    if arms.act_in(other) == arms.turn.action and other.end.scored:
        return Pair(None, other, 0.0)
    return Pair(await arms.done(), other)


async def _drawn_pair(arms: _Arms, instead: str | None) -> Pair:
    """The act against one that is drawn.

    Where no model draws it, a draw takes no play. So several are made, and of these a pair is
    played for the first that comes out otherwise; its difference counts by the share of those that
    do. A behaviour that takes no random numbers draws once.
    """
    agent = arms.turn.agent
    behaviour = arms.forks.behaviour(agent)
    is_model = instead is None and arms.forks.seats[agent].policy is not None
    chosen: dict[str, Factory] = {}
    differing = drawn = 0
    for number in range(DRAWS):
        stand_in = StandIn(arms.step, instead, f"{arms.seed}/{agent}/act {number}")
        behaviours = {agent: scripted(behaviour, arms.script, stand_in)}
        if is_model:
            return await _pair(arms, behaviours)
        act = await arms.forks.act(arms.step, arms.seed, arms.turn, behaviours[agent])
        if act is None:
            return FAILED
        drawn += 1
        if act != arms.turn.action:
            differing += 1
            chosen = chosen or behaviours
        if not stand_in.drew:
            break
    if not chosen:
        return Pair(None, None, 0.0)
    return Pair(await arms.done(), await arms.other(chosen), differing / drawn)


async def _pair_as_it_lay(forks: Forks, turn: Turn, number: int, instead: str | None) -> Pair:
    seed = forks.seed("turn", turn.step, turn.agent, number)
    arms = _Arms(forks, turn, turn.step, seed, _beside(forks, turn), repeats=True)
    return await _drawn_pair(arms, instead)


def _beside(forks: Forks, turn: Turn) -> tuple[str, ...]:
    """Who acts at the same step."""
    return tuple(
        other.agent
        for other in forks.episode.turns
        if other.step == turn.step and other.agent != turn.agent
    )


@dataclass
class _Watch:
    """Follows a play dealt anew for as long as an agent sees what it saw on record. `reached`: the
    steps at which it acts, of those turns up to which all was the same."""

    agent: str
    views: Sequence[tuple[Message, ...]]  # on record, before each of its turns
    legal: Sequence[tuple[str, ...] | None]
    reached: list[int] = field(default_factory=list)

    def __call__(self, game: Game) -> None:
        if self.agent not in game.pending:
            return
        turn = len(self.reached)
        is_same = (
            game.pending[self.agent].legal == self.legal[turn]
            and game.view(self.agent) == self.views[turn]
        )
        if is_same:
            self.reached.append(game.step)
        if not is_same or len(self.reached) == len(self.views):
            raise Seen


async def _seen_values(
    forks: Forks, agent: str, plays: int, instead: str | None, tries: int
) -> list[TurnValue]:
    """The values of an agent's turns as it could know. One play dealt anew serves all turns up to
    which it showed the agent what is on record."""
    turns = forks.turns(agent)
    if not turns:
        return []
    views = _views(turns)
    pairs: list[list[Pair]] = [[] for _ in turns]
    openings = Openings(forks, agent, views[0])
    for number in range(tries * plays):
        # a turn whose next pair takes longer than `tries` deals in the mean is given up, alone
        short = [len(found) < plays and number < tries * (len(found) + 1) for found in pairs]
        if not any(short):
            break
        seed = forks.seed("deal", agent, number)
        if not openings.may_be(int(seed)):
            continue
        twin, reached = await _dealt_anew(forks, agent, turns, views, seed)
        if twin.episode.end is End.INTERRUPTED:
            break  # a budget is spent, and every further play would stop at once
        # a play that broke off would otherwise be taken for one that showed something else
        if not twin.episode.end.scored and not is_cut(twin.episode):
            pairs[len(reached)].append(FAILED)
        wanted = [place for place in range(len(reached)) if short[place]]
        work = (
            _pair_as_seen(twin, turns[: place + 1], reached[: place + 1], instead, seed)
            for place in wanted
        )
        for place, pair in zip(wanted, await forks.all(work), strict=True):
            pairs[place].append(pair)
    return [
        TurnValue(turn.step, agent, value_of(found, agent))
        for turn, found in zip(turns, pairs, strict=True)
    ]


def _views(turns: Sequence[Turn]) -> list[tuple[Message, ...]]:
    """The whole transcript of an agent before each of its turns."""
    views = []
    seen: tuple[Message, ...] = ()
    for turn in turns:
        seen += turn.observed
        views.append(seen)
        seen += (spoken(turn.agent, turn.action),)
    return views


async def _dealt_anew(
    forks: Forks,
    agent: str,
    turns: Sequence[Turn],
    views: Sequence[tuple[Message, ...]],
    seed: str,
) -> tuple[Forks, list[int]]:
    """A play from another seed, in which the agent does what is on record and the others act by
    themselves; and the steps of those of its turns before which it saw what is on record."""
    watch = _Watch(agent, views, [turn.legal for turn in turns])
    player = _ByOrder(turn.action for turn in turns)
    plan = forks.plan(seed, seed=int(seed))
    made = await forks.play(plan, {agent: player}, watch)
    twin = replace(forks, episode=made, cast=forks.seats, first=made.repeat)
    return twin, watch.reached


class _ByOrder:
    """A behaviour that does one thing after the other, and its own factory."""

    waits = False

    def __init__(self, acts: Iterable[Action]) -> None:
        self.acts = iter(acts)

    def __call__(self, *_: Any, **options: Any) -> _ByOrder:
        return self

    async def act(self, asked: Any) -> Action:
        return next(self.acts)


async def _pair_as_seen(
    twin: Forks, turns: Sequence[Turn], reached: Sequence[int], instead: str | None, seed: str
) -> Pair:
    step = reached[-1]
    script = {at: turn.action for at, turn in zip(reached[:-1], turns[:-1], strict=True)}
    seed = str(stable_seed(seed, step))
    return await _drawn_pair(_Arms(twin, turns[-1], step, seed, script=script), instead)


# -- messages -------------------------------------------------------------------------------------


async def message_values(
    forks: Forks,
    *,
    plays: int = 32,
    instead: Instead = "silence",
    agent: str | None = None,
) -> list[MessageValue]:
    """What each message changed, as it lay; of an agent, or of all. A turn without words, or with
    calls of tools, is left out.

    `silence` is the empty text, which a world may take for an answer that it cannot read. `other
    deal`: what the agent says at its turn of the same number in a play from another seed.
    """
    values = []
    for place, turn in numbered(forks.turns(agent)):
        if not turn.action.text or turn.action.tool_calls:
            continue
        work = (_pair_of_message(forks, turn, place, n, instead) for n in range(plays))
        pairs = await forks.all(work)
        told = {each: value_of(pairs, each) for each in forks.seats}
        values.append(MessageValue(turn.step, turn.agent, told))
    return values


def numbered(turns: Sequence[Turn]) -> list[tuple[int, Turn]]:
    """Each turn with its number among those of its agent."""
    counts: dict[str, itertools.count[int]] = {}
    return [(next(counts.setdefault(turn.agent, itertools.count())), turn) for turn in turns]


async def _pair_of_message(
    forks: Forks, turn: Turn, place: int, number: int, instead: Instead
) -> Pair:
    seed = forks.seed("message", turn.step, turn.agent, number)
    text: str | None = ""
    if instead == "other deal":
        text = await said_elsewhere(forks, turn.agent, place, seed)
    if text is None:  # in that deal the agent is not asked so often
        return FAILED
    arms = _Arms(forks, turn, turn.step, seed, _beside(forks, turn), repeats=True)
    return await _pair(arms, {turn.agent: scripted(forks.behaviour(turn.agent), {turn.step: text})})


async def said_elsewhere(forks: Forks, agent: str, place: int, seed: str) -> str | None:
    """What the agent says at its turn of this number in another deal; None where there is none."""

    def watch(game: Game) -> None:
        if sum(turn.agent == agent for turn in game.turns) > place:
            raise Seen

    plan = forks.plan(seed, seed=stable_seed(seed, "other deal"))
    made = await forks.play(plan, {}, watch)
    said = [turn.action.text for turn in made.turns if turn.agent == agent]
    return said[place] if len(said) > place else None


# -- the turn that decided ------------------------------------------------------------------------


async def decisive_turn(
    forks: Forks,
    agent: str,
    better: str,
    *,
    success: Callable[[Episode], bool | None],
    plays: int = 8,
) -> tuple[Turn | None, list[Wins]]:
    """The last turn from which `better`, taking over for the agent, still wins at least half of
    `plays` forks; after it the play was lost. None: it wins from no turn on.

    The turns are tried from the last one back, and those that were tried are given, the last one
    first. `better` is shown what the agent was shown and did, and does not act again what was
    done.
    """
    turns = forks.turns(agent)
    tried: list[Wins] = []
    for turn in reversed(turns):
        tried.append(await _wins(forks, turn, better, success, plays))
        if tried[-1].saves:
            return turn, tried
    return None, tried


async def _wins(
    forks: Forks,
    turn: Turn,
    better: str,
    success: Callable[[Episode], bool | None],
    plays: int,
) -> Wins:
    agent = turn.agent
    script = {each.step: each.action for each in forks.turns(agent) if each.step < turn.step}
    seated = replace(forks, cast={**forks.seats, agent: Seat(better)})
    player = {agent: scripted(better, script)}
    work = (
        seated.fork(
            turn.step,
            forks.seed("from", turn.step, n),
            kept=_beside(forks, turn),
            behaviours=player,
        )
        for n in range(plays)
    )
    played = await forks.all(work)
    ended = [fork for fork in played if fork.end.scored]
    won = [fork for fork in ended if success(fork)]
    return Wins(turn.step, len(won), len(ended), plays - len(ended), won[0] if won else None)


# -- agents ---------------------------------------------------------------------------------------


async def agent_values(
    forks: Forks,
    baseline: str | Factory,
    *,
    plays: int = 32,
    given: Given = "state",
    whose: str | None = None,
    exact_to: int = EXACT,
) -> Shares:
    """What each agent adds, where `baseline` sits in place of those that are left out: Shapley
    values of the mean return of all agents, or of `whose` (an agent or a team; of a team its
    members are the players, and their mean is shared out).

    Up to `exact_to` agents all coalitions are played, K = `plays` times each; beyond, K orders are
    drawn and each is played through. Either way the shares add up to the worth of everybody less
    that of nobody. `given="state"` plays the deal of the record, `view` another deal each time.
    Raises ConfigError where all agents together always come to nothing, since the game is
    zero-sum.
    """
    players, worth = game_of(forks.scenario, forks.episode, whose)
    exact = len(players) <= exact_to
    rows: list[dict[str, float]] = []
    ends: list[tuple[float, float]] = []
    failed = 0
    plays_made = 0
    for number in range(plays):
        seed = forks.seed("coalition", number)
        order = list(players)
        random.Random(seed).shuffle(order)
        heads = _coalitions(players) if exact else _growing(order)
        work = (_coalition(forks, each, players, baseline, seed, given) for each in heads)
        played = dict(zip(heads, await forks.all(work), strict=True))
        plays_made += len(played)
        if lost := sum(not fork.end.scored for fork in played.values()):
            failed += lost
            continue
        worths = {each: worth(fork) for each, fork in played.items()}
        rows.append(shapley(players, worths) if exact else _marginals(order, worths))
        ends.append((worths[frozenset(players)], worths[frozenset()]))
    shares = {agent: mean_of([row[agent] for row in rows], plays_made, failed) for agent in players}
    everybody = mean_of([whole for whole, _ in ends], len(ends), 0).mean
    nobody = mean_of([none for _, none in ends], len(ends), 0).mean
    return Shares(shares, everybody, nobody, exact)


def shapley(agents: Sequence[str], worth: Mapping[frozenset[str], float]) -> dict[str, float]:
    """The Shapley values of a game whose coalitions, the empty one too, are worth this much.

    >>> both = {frozenset(): 0.0, frozenset("a"): 1.0, frozenset("b"): 0.0, frozenset("ab"): 3.0}
    >>> shapley("ab", both)
    {'a': 2.0, 'b': 1.0}
    """
    count = len(agents)
    shares = {}
    for agent in agents:
        rest = [other for other in agents if other != agent]
        parts = []
        for coalition in _coalitions(rest):
            size = len(coalition)
            share = math.factorial(size) * math.factorial(count - size - 1) / math.factorial(count)
            parts.append(share * (worth[coalition | {agent}] - worth[coalition]))
        shares[agent] = math.fsum(parts)
    return shares


def _coalitions(agents: Sequence[str]) -> list[frozenset[str]]:
    sizes = range(len(agents) + 1)
    return [frozenset(each) for size in sizes for each in itertools.combinations(agents, size)]


def _growing(order: Sequence[str]) -> list[frozenset[str]]:
    """Nobody, the first, the first two, ... everybody."""
    return [frozenset(order[:size]) for size in range(len(order) + 1)]


def _marginals(order: Sequence[str], worth: Mapping[frozenset[str], float]) -> dict[str, float]:
    heads = _growing(order)
    steps = zip(order, heads[:-1], heads[1:], strict=True)
    return {agent: worth[after] - worth[before] for agent, before, after in steps}


async def _coalition(
    forks: Forks,
    coalition: frozenset[str],
    players: Sequence[str],
    baseline: str | Factory,
    seed: str,
    given: Given,
) -> Episode:
    """A play in which the players outside of the coalition are the baseline's."""
    left_out = [agent for agent in players if agent not in coalition]
    name = baseline if isinstance(baseline, str) else "baseline"
    cast = {**forks.seats, **{agent: Seat(name) for agent in left_out}}
    plan = forks.plan(seed, cast=cast)
    if given == "view":
        plan = replace(plan, seed=stable_seed(seed, "deal"))
    kept = {agent: made for agent, made in forks.behaviours.items() if agent not in left_out}
    if not isinstance(baseline, str):
        kept |= dict.fromkeys(left_out, baseline)
    return await replace(forks, behaviours=kept).play(plan, {})


def game_of(scenario: Scenario, episode: Episode, whose: str | None) -> tuple[list[str], Outcome]:
    """The players of the game of `agent_values`, and what a play is worth. Raises ConfigError as it
    does."""
    agents = list(episode.cast)
    if whose in agents:
        return agents, lambda episode: episode.returns()[str(whose)]
    teams: dict[str, list[str]] = {}
    for agent in agents:
        teams.setdefault(scenario.team(episode, agent) or "", []).append(agent)
    if whose is not None and whose in teams:
        members = teams[whose]
        # the mean, as in every score of a team
        return members, lambda episode: fmean(episode.returns()[x] for x in members)
    names = ", ".join([*agents, *filter(None, teams)])
    if whose is not None:
        raise ConfigError(f"no agent or team of {scenario.id} is called {whose!r}; it has {names}")
    if scenario.zero_sum:
        raise ConfigError(
            f"{scenario.id} is zero-sum, so all together always get the same; say whose return is"
            f" shared out: {names}"
        )
    return agents, lambda episode: fmean(episode.returns().values())
