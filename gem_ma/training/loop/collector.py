"""Collects the episodes of a step: plays, refills, branches, and what may be played ahead. All is a
function of (config, step, episodes).

Dynamic sampling (`train.refill`; DAPO, arXiv 2503.14476, section 3.2): a start teaches where the
estimator of some policy that learns now gives a turn of it an advantage other than 0. One that does
not is set aside and another start is played in its place. What is set aside stays in the record.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gem_ma.config.settings import Config
from gem_ma.config.training import ForkSettings, TrainSettings
from gem_ma.driver.forks import Branch
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import stable_seed
from gem_ma.kernel.episode import Episode, placed
from gem_ma.kernel.errors import ConfigError, EngineError, ReplayError
from gem_ma.runs.worlds import Worlds
from gem_ma.training.loop.attendants import Curriculum
from gem_ma.training.loop.local import check_some
from gem_ma.training.loop.roles import Players
from gem_ma.training.loop.step import Step, StepRollouts
from gem_ma.training.loop.updates import advantages_of, credited_turns
from gem_ma.training.schedule.plans import TRAINING_SEEDS, Tasks, in_turn, training_plans
from gem_ma.training.schedule.settings import discounts, learning, settings_of
from gem_ma.training.selfplay.league import League

NOT_MIXED = (
    "train.admission: continuous plays on beside a publish, which this engine or number of"
    " processes does not allow; remove it"
)
Start = tuple[list[Plan], list[Episode]]  # the plays of one group, in the order of their plans


class Collector:
    """Plays the steps of a training. Without a `curriculum` tasks come in turn."""

    def __init__(
        self,
        config: Config,
        settings: TrainSettings,
        worlds: Worlds,
        players: Players,
        league: League,
        curriculum: Curriculum | None = None,
    ) -> None:
        self.config = config
        self.settings = settings
        self.worlds = worlds
        self.players = players
        self.league = league
        self.curriculum = curriculum

    async def collect(self, step: Step) -> StepRollouts:
        """The rollouts of a step. Where plays are admitted continuously, the steps that may be
        played ahead begin first, and take the slots that its last plays leave."""
        if step.ahead.admission is not None:
            self._begin_ahead(step, step.index)
        ahead = await step.ahead.take(step.index)
        return ahead or await self.planned(step.index, self.players)()

    async def collect_ahead(self, step: Step, update: Callable[[], None]) -> None:
        """Runs the update of a step; under `train.overlap` in a thread, while steps to come are
        played."""
        if not self.settings.overlap:
            update()
            return
        keeps_weights = self._begin_ahead(step, step.number)
        await asyncio.to_thread(update)
        # else the publish that comes would change the weights that they are played with
        if not keeps_weights:
            await step.ahead.settled()

    def planned(
        self, index: int, players: Players
    ) -> Callable[[], Coroutine[Any, Any, StepRollouts]]:
        """A function that plays a step (counted from 0) and its branches.

        Plans and opponents are drawn now, so nothing depends on when the function is called.
        """
        settings = self.settings
        opponents = self.league.opponents(index, learning(settings, index))
        choices = self.curriculum.choices() if self.curriculum is not None else None
        tasks = choices or in_turn
        plans = training_plans(self.worlds, settings, index, opponents, tasks)

        async def roll_out() -> StepRollouts:
            episodes = await players.play(plans, learning=True)
            full = Refilled(tuple(plans), tuple(episodes))
            grown = Grown()
            if settings.refill:
                full = await refill(self.worlds, settings, index, plans, episodes, players, tasks)
            # after the refill: what is set aside is not played on from
            if settings.fork is not None:
                trunks = (full.plans, full.episodes)
                grown = await grow(self.config, settings, index, *trunks, players)
            rollouts = StepRollouts(
                index,
                tuple(episodes),
                grown.episodes,
                grown.metrics,
                full.refills,
                full.aside,
                full.metrics,
                choices.record() if choices is not None else None,
            )
            check_some(rollouts.episodes)  # of the whole step: a level of it may be few plays
            return rollouts

        return roll_out

    def _begin_ahead(self, step: Step, first: int) -> bool:
        """Begins the steps, from `first` (counted from 0) on, that may be played with the weights
        that are published now. Whether they keep these weights when others are published."""
        count = int(self.settings.overlap)
        continuous = step.ahead.admission is not None
        last = min(step.number + count, self.settings.steps)
        missing = step.ahead.missing(range(first, last))
        # a single step ahead ends before the next update, so a copy of the weights would win
        # nothing; under `continuous` its plays go on beside those of the next step
        pinned = self.players.pinned() if missing and (count > 1 or continuous) else None
        if continuous and missing and pinned is None:
            raise ConfigError(NOT_MIXED)
        for index in missing:
            step.ahead.begin(index, self.planned(index, pinned or self.players))
        return pinned is not None or not missing


class Refilled(NamedTuple):
    """What a step learns from, in the order of its `plans`; `refills`: all that was played on
    top; `aside`: ids of what is not learned from."""

    plans: tuple[Plan, ...]
    episodes: tuple[Episode, ...]
    refills: tuple[Episode, ...] = ()
    aside: frozenset[tuple[str, int, int]] = frozenset()
    metrics: Mapping[str, Any] | None = None


async def refill(
    worlds: Worlds,
    settings: TrainSettings,
    step: int,
    plans: Sequence[Plan],
    episodes: Sequence[Episode],
    players: Players,
    tasks: Tasks = in_turn,
) -> Refilled:
    """Plays another start in place of each that teaches nothing, `train.refill` times at most. What
    still teaches nothing then is learned from as it is, so a step always has as many plays."""
    starts: dict[str, Start] = {}
    for plan, episode in zip(plans, episodes, strict=True):
        group = starts.setdefault(str(plan.group), ([], []))
        group[0].append(plan)
        group[1].append(episode)
    refills: list[Episode] = []
    aside: set[tuple[str, int, int]] = set()
    idle = idle_starts(worlds, settings, step, starts)
    first = len(idle)
    for attempt in range(1, settings.refill + 1):
        if not idle:
            break
        others = {
            name: _another(worlds, settings, starts[name][0], attempt, tasks) for name in idle
        }
        asked = [plan for made in others.values() for plan in made]
        answers = iter(await players.play(asked, learning=True))
        for name, made in others.items():
            aside |= {plan.id for plan in starts[name][0]}
            # episodes come in the order of their plans
            starts[name] = (made, [next(answers) for _ in made])
            refills += starts[name][1]
        idle = idle_starts(worlds, settings, step, {name: starts[name] for name in idle})
    metrics = {"starts": len(starts), "idle": first, "plays": len(refills), "left": len(idle)}
    return Refilled(
        tuple(plan for planned, _ in starts.values() for plan in planned),
        tuple(episode for _, played in starts.values() for episode in played),
        tuple(refills),
        frozenset(aside),
        metrics,
    )


def idle_starts(
    worlds: Worlds, settings: TrainSettings, step: int, starts: Mapping[str, Start]
) -> list[str]:
    """The names of those of these starts that teach no policy that learns at this step."""
    episodes = [episode for _, played in starts.values() for episode in played]
    group_of = {plan.id: name for name, (plans, _) in starts.items() for plan in plans}
    taught: set[str] = set()
    for policy in learning(settings, step):
        ids = _ids_with_advantage(worlds, settings_of(settings, policy), step, policy, episodes)
        taught |= {group_of[episode_id] for episode_id in ids}
    return [name for name in starts if name not in taught]


def _ids_with_advantage(
    worlds: Worlds, settings: TrainSettings, step: int, policy: str, episodes: Sequence[Episode]
) -> Iterable[tuple[str, int, int]]:
    """The ids of the episodes in which some turn has an advantage. Groups compare nothing with
    each other, which the check of the config makes sure of, so these few give what the whole step
    will."""
    gamma = discounts(settings.credit.gamma, step)
    turns = credited_turns(episodes, policy, settings, gamma, worlds)
    advantages, _ = advantages_of(turns, settings, gamma, several=worlds.several)
    return {turns.episodes[n].id for n in advantages.nonzero()[0]}


def _another(
    worlds: Worlds, settings: TrainSettings, plans: Sequence[Plan], attempt: int, tasks: Tasks
) -> list[Plan]:
    """Another start of the same world with the same seats, and as many plays."""
    first = plans[0]
    world = next(world for world in worlds.played if world.name == first.world)
    # the group names start and side, so no two starts of a run are given one seed
    parts = (world.config.run.seed, "refill", str(first.group), attempt)
    seed = TRAINING_SEEDS | stable_seed(*parts)
    count = len(world.scenario.tasks(settings.split))
    turn = stable_seed(*parts, "task") % count
    task = f"{settings.split}/{tasks(first.world, count, turn, *parts[1:])}"
    group = f"{placed(first.world, task)}/{seed}"
    return [replace(plan, task=task, seed=seed, group=group) for plan in plans]


# Group sampling from the middle of an episode. A *trunk* is a play from the beginning. A *branch*
# takes over its record before a decision point and samples on from there; only what it sampled
# itself is trained on (`credit.turns`). The branches of one point share a `group`, `<group of the
# trunk>@<decision point>`. At the next level a drawn branch is forked, so that states are met as
# often as in plays of the policies.


class Grown(NamedTuple):
    """The branches of a step, in the order of their plans, and what is logged of them."""

    episodes: tuple[Episode, ...] = ()
    metrics: Mapping[str, Any] | None = None


def plays_of_a_step(settings: TrainSettings) -> int:
    """How many plays a step is at most: trunks, what is played in their place, and branches."""
    fork = settings.fork
    plays = settings.episodes
    return plays * (1 + settings.refill + (fork.levels * fork.width if fork else 0))


def cost(settings: TrainSettings) -> str | None:
    """One line on what the forks cost, before anything is played; None without forks."""
    fork = settings.fork
    if fork is None:
        return None
    branches = settings.episodes * fork.levels * fork.width
    return (
        f"train.fork: every step plays {settings.episodes} plays and up to {branches} branches"
        f" ({fork.levels} x {fork.width} of each play),"
        f" {plays_of_a_step(settings) * settings.steps} in all"
    )


async def grow(
    config: Config,
    settings: TrainSettings,
    step: int,
    plans: Sequence[Plan],
    trunks: Sequence[Episode],
    players: Players,
) -> Grown:
    """Plays the branches of these trunks, level by level. Trunks that failed are not forked.
    Raises EngineError where no branch of the step could be replayed up to its fork."""
    fork = settings.fork
    if fork is None:
        return Grown()
    # a policy that waits for its turn is not forked: it would not learn from the branches
    learned = set(learning(settings, step))
    by_id = {episode.id: episode for episode in trunks}
    lines = [
        _Line(plan, by_id[plan.id], fork, learned, config.run.seed, step, settings)
        for plan in plans
        if by_id[plan.id].end.scored
    ]
    played: list[Episode] = []
    points = 0
    for level in range(fork.levels):
        wanted = [(line, branches) for line in lines if (branches := line.branches(level))]
        if not wanted:
            break
        # all branches of a level at once: engines batch, and a level needs the one before it
        level_plans = [plan for _, branches in wanted for plan in branches]
        episodes = await players.play(level_plans, learning=True)
        points += len(wanted)
        number = 0  # episodes come in the order of their plans, so each line has a slice of them
        for line, branches in wanted:
            line.select(episodes[number : number + len(branches)])
            number += len(branches)
        played += episodes
    _check_replays(played)
    failed = sum(not episode.end.scored for episode in played)
    return Grown(tuple(played), {"points": points, "branches": len(played), "failed": failed})


def _check_replays(branches: Sequence[Episode]) -> None:
    """Raises EngineError where no branch got past what is on record: then the scenario or a
    behaviour is not pure, and no later step has a fork either. Other failures are data."""
    faults = [branch.error or "" for branch in branches]
    if faults and all(fault.startswith(ReplayError.__name__) for fault in faults):
        raise EngineError(f"all {len(faults)} branches failed; the first: {faults[0]}")


class _Line:
    """One trunk and where it is forked. The play that is followed changes from level to level."""

    def __init__(
        self,
        plan: Plan,
        trunk: Episode,
        fork: ForkSettings,
        learned: set[str],
        seed: int,
        step: int,
        settings: TrainSettings,
    ) -> None:
        self.plan = plan
        self.trunk = trunk
        self.fork = fork
        self.learned = learned
        self.followed = trunk
        self.last = -1  # the decision point of the last fork
        self.rng = random.Random(stable_seed(seed, "fork", step, *plan.id))
        # for `at: random`: without replacement and sorted, since the next level forks further on
        points = self._points(trunk)
        self.drawn = sorted(self.rng.sample(points, min(fork.levels, len(points))))
        # above every repeat of a trunk, and apart for each: `repeat` is a part of an episode's id
        self.offset = settings.episodes + plan.repeat * fork.levels * fork.width

    def _points(self, episode: Episode) -> list[int]:
        """Decision points at which a policy that learns at this step sampled, after the last
        fork and from `at` on."""
        first = max(self.last + 1, self.fork.at if isinstance(self.fork.at, int) else 0)
        turns = ((turn.step, {reply.policy for reply in turn.replies}) for turn in episode.turns)
        points = {step for step, policies in turns if policies & self.learned}
        return sorted(point for point in points if point >= first)

    def branches(self, level: int) -> list[Plan]:
        """The plans of the next level; none where the followed play has no further decision
        point."""
        points = self._points(self.followed)
        if self.fork.at == "random":
            if self.followed is self.trunk:
                points = [point for point in self.drawn if point > self.last][:1]
            elif points:  # a branch has other decision points, so there one is drawn anew
                points = [self.rng.choice(points)]
        if not points:
            return []
        self.last = points[0]
        # a trunk that is alone has no group, and its branches need one
        group = (
            self.plan.group
            or f"{self.plan.scenario.id}/{self.plan.id[0]}/{self.plan.seed}/{self.plan.repeat}"
        )
        named = f"{group}@{self.followed.repeat}.{self.last}"
        made = []
        for n in range(self.fork.width):
            repeat = self.offset + level * self.fork.width + n
            # a seed for chance after the fork: with the trunk's all branches would be one play
            seed = f"{self.plan.seed}/{repeat}@{self.last}"
            branch = Branch(self.followed, self.last, seed, self.plan.repeat)
            made.append(replace(self.plan, repeat=repeat, group=named, branch=branch))
        return made

    def select(self, branches: Sequence[Episode]) -> None:
        """Which play the next level forks."""
        alive = [episode for episode in branches if episode.end.scored]  # others cannot be replayed
        if alive:
            self.followed = self.rng.choice(alive)
