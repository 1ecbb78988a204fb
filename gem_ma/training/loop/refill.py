"""Dynamic sampling: a start whose plays teach nothing is set aside, and another one is played in
its place (DAPO, arXiv 2503.14476, section 3.2), so that a step learns from as many starts as ever.

Everything is a function of (config, step, episodes). A start teaches where the estimator of some
policy that learns now gives a turn of it an advantage other than 0. What is set aside stays in the
record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gem_ma import credit
from gem_ma.config.training import TrainSettings
from gem_ma.credit.estimators import estimate, key_among_worlds
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import stable_seed
from gem_ma.kernel.episode import Episode, placed
from gem_ma.runs.worlds import Worlds
from gem_ma.training.loop.roles import Players
from gem_ma.training.schedule.alternation import learning, settings_of
from gem_ma.training.schedule.curriculum import Tasks, in_turn
from gem_ma.training.schedule.discounts import discounts
from gem_ma.training.schedule.plans import TRAINING_SEEDS

Start = tuple[list[Plan], list[Episode]]  # the plays of one group, in the order of their plans


@dataclass(frozen=True, slots=True)
class Refilled:
    """What a step learns from, in the places of its `plans`; `refills`: all that was played on
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
        mine = starts.setdefault(str(plan.group), ([], []))
        mine[0].append(plan)
        mine[1].append(episode)
    played: list[Episode] = []
    aside: set[tuple[str, int, int]] = set()
    idle = idle_starts(worlds, settings, step, starts)
    first = len(idle)
    for number in range(1, settings.refill + 1):
        if not idle:
            break
        others = {name: _another(worlds, settings, starts[name][0], number, tasks) for name in idle}
        coming = [plan for made in others.values() for plan in made]
        answers = iter(await players.play(coming, learning=True))
        for name, made in others.items():
            aside |= {plan.id for plan in starts[name][0]}
            # episodes come in the order of their plans
            starts[name] = (made, [next(answers) for _ in made])
            played += starts[name][1]
        idle = idle_starts(worlds, settings, step, {name: starts[name] for name in idle})
    metrics = {"starts": len(starts), "idle": first, "plays": len(played), "left": len(idle)}
    return Refilled(
        tuple(plan for asked, _ in starts.values() for plan in asked),
        tuple(episode for _, answered in starts.values() for episode in answered),
        tuple(played),
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
        taught |= {group_of[one] for one in _taught(worlds, settings, step, policy, episodes)}
    return [name for name in starts if name not in taught]


def _taught(
    worlds: Worlds, settings: TrainSettings, step: int, policy: str, episodes: Sequence[Episode]
) -> Iterable[tuple[str, int, int]]:
    """The ids of the episodes in which some turn has an advantage. Groups compare nothing with
    each other, which `schedule.checks` makes sure of, so these few give what the whole step will.
    """
    mine = settings_of(settings, policy)
    how = mine.credit
    chosen = mine.estimator
    gamma = discounts(how.gamma, step)
    turns = credit.turns(
        episodes, policy, rule=how.rule, gamma=gamma, team=how.team, truncated=how.truncated
    )
    key: Any = chosen.key
    if worlds.several:
        key = key_among_worlds(chosen.name, chosen.key, chosen.groups)
    options: dict[str, Any] = chosen.options
    advantages, _ = estimate(chosen.name, turns, key, gamma=gamma, cut=how.cut, **options)
    return {turns.episodes[n].id for n in advantages.nonzero()[0]}


def _another(
    worlds: Worlds, settings: TrainSettings, plans: Sequence[Plan], number: int, tasks: Tasks
) -> list[Plan]:
    """Another start of the same world with the same seats, and as many plays."""
    first = plans[0]
    world = next(world for world in worlds.played if world.name == first.world)
    # the group names start and side, so no two starts of a run are given one seed
    parts = (world.config.run.seed, "refill", str(first.group), number)
    seed = TRAINING_SEEDS | stable_seed(*parts)
    known = len(world.scenario.tasks(settings.split))
    turn = stable_seed(*parts, "task") % known
    task = f"{settings.split}/{tasks(first.world, known, turn, *parts[1:])}"
    group = f"{placed(first.world, task)}/{seed}"
    return [replace(plan, task=task, seed=seed, group=group) for plan in plans]
