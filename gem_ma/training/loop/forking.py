"""Group sampling from the middle of an episode: the plays of a step are forked, and their
continuations from one state form a group.

A play from the beginning is a *trunk*; it is trained on as usual, in the group of its start. A
*branch* takes over the record before a decision point and samples on from there. Only what it
sampled itself is trained on (`credit.turns`), so no token is trained twice. The branches of one
point share a `group`, `<group of the trunk>@<decision point>`. Everything is a function of (config,
step, episodes).

At the next level a drawn branch is forked, so that states are met as often as in plays of the
policies.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gem_ma.config.settings import Config
from gem_ma.config.training import ForkSettings, TrainSettings
from gem_ma.driver.forks import Branch
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import stable_seed
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import EngineError, ReplayError
from gem_ma.training.loop.roles import Players
from gem_ma.training.schedule.alternation import learning


@dataclass(frozen=True, slots=True)
class Grown:
    """The branches of a step, in the order of their plans, and what is logged of them; None
    without forks."""

    episodes: tuple[Episode, ...]
    metrics: Mapping[str, Any] | None


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
    each = (
        f"{settings.episodes} plays and up to {settings.episodes * fork.levels * fork.width}"
        " branches"
    )
    return (
        f"train.fork: every step plays {each} ({fork.levels} x {fork.width} of each play),"
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
        return Grown((), None)
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
        self.drawn = (
            sorted(self.rng.sample(points, min(fork.levels, len(points))))
            if (points := self._points(trunk))
            else []
        )
        # above every repeat of a trunk, and apart for each: `repeat` is a part of an episode's id
        self.offset = settings.episodes + plan.repeat * fork.levels * fork.width

    def _points(self, episode: Episode) -> list[int]:
        """Decision points at which a policy that learns at this step sampled, after the last
        fork and from `at` on."""
        first = max(self.last + 1, self.fork.at if isinstance(self.fork.at, int) else 0)
        points = {
            turn.step
            for turn in episode.turns
            if any(reply.policy in self.learned for reply in turn.replies)
        }
        return sorted(point for point in points if point >= first)

    def branches(self, level: int) -> list[Plan]:
        """The plans of the next level; none where the followed play has no further decision
        point."""
        points = self._points(self.followed)
        if self.fork.at == "random":
            # a branch has other decision points than the trunk, so there one is drawn anew
            on_trunk = self.followed is self.trunk
            points = (
                [point for point in self.drawn if point > self.last][:1]
                if on_trunk
                else [self.rng.choice(points)]
                if points
                else []
            )
        if not points:
            return []
        self.last = points[0]
        # a trunk that is alone has no group, and its branches need one
        group = (
            self.plan.group
            or f"{self.plan.scenario.id}/{self.plan.id[0]}/{self.plan.seed}/{self.plan.repeat}"
        )
        made = []
        for n in range(self.fork.width):
            repeat = self.offset + level * self.fork.width + n
            # a seed for chance after the fork: with the trunk's all branches would be one play
            seed = f"{self.plan.seed}/{repeat}@{self.last}"
            branch = Branch(self.followed, self.last, seed, self.plan.repeat)
            made.append(
                replace(
                    self.plan,
                    repeat=repeat,
                    group=f"{group}@{self.followed.repeat}.{self.last}",
                    branch=branch,
                )
            )
        return made

    def select(self, branches: Sequence[Episode]) -> None:
        """Which play the next level forks."""
        alive = [episode for episode in branches if episode.end.scored]  # others cannot be replayed
        if alive:
            self.followed = self.rng.choice(alive)
