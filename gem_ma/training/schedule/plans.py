"""What a step of a training plays, as a function of the config alone."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gem_ma.config.seats import seats_of
from gem_ma.config.settings import Config
from gem_ma.config.training import CurriculumSettings, Seating, TrainSettings, WarmStartSettings
from gem_ma.driver.rollout import Plan
from gem_ma.driver.seats import remembered
from gem_ma.engines.base import Policy, stable_seed
from gem_ma.kernel.episode import Episode, Seat, placed
from gem_ma.kernel.scenario import Scenario
from gem_ma.kernel.types import Message, Request, spoken
from gem_ma.runs.plans import cast_of
from gem_ma.runs.worlds import World, Worlds, due
from gem_ma.training.learner import Demonstration
from gem_ma.training.loop.local import check_some
from gem_ma.training.loop.roles import Players

# Seeds of exams lie below, all others above, so no exam can ask what was trained on. Below 2^63,
# since a seed fits into int64.
TRAINING_SEEDS = 1 << 62


# `train.curriculum`: a task is worth p (1 - p), its *learnability* (arXiv 2408.15099, section 4),
# with p how often its plays succeeded. Where p is 0 or 1 all plays of a group are paid alike, and
# nothing is learned.
BAND = (0.1, 0.9)  # the estimated success of tasks that are drawn, by p (1 - p)
# a task that was out of reach may be within it for a policy that has learned since
DECAY = 0.98  # what a play counts for one step later
PRIOR = 1.0  # plays of success 1/2 that every estimate begins with
Tally = list[float]  # plays of a task, and those that succeeded; older ones count less


class Tasks(Protocol):
    """Which of the `known` tasks of a world a start has, where `turn` is the one in turn; `draw`
    names the start."""

    def __call__(self, world: str, known: int, turn: int, /, *draw: object) -> int: ...


def in_turn(world: str, known: int, turn: int, /, *draw: object) -> int:
    """Without `train.curriculum`."""
    return turn


def chance(tally: Tally | None) -> float:
    """The estimated success of a task.

    >>> chance(None), chance([3.0, 0.0]), chance([1.0, 1.0])
    (0.5, 0.125, 0.75)
    """
    plays, won = tally or (0.0, 0.0)
    return (won + PRIOR / 2) / (plays + PRIOR)


def worth(p: float) -> float:
    """The weight of a task in the draw; 0 outside of the band."""
    return p * (1 - p) if BAND[0] <= p <= BAND[1] else 0.0


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """The task of a start, and why: `band` by its worth, `turn` because its turn came. `success`:
    what was estimated then."""

    task: str
    why: str
    success: float


@dataclass(slots=True)
class TaskChoices:
    """The tasks of one step. `tallies`: of the tasks met so far, by their names; it is not changed.
    `made` gets every choice, in their order."""

    how: CurriculumSettings
    split: str
    seed: int
    tallies: Mapping[str, Tally]
    made: list[TaskChoice] = field(default_factory=list)
    weights: dict[str, dict[int, float]] = field(default_factory=dict)  # by world, once asked for

    def __call__(self, world: str, known: int, turn: int, *draw: object) -> int:
        """One of `known` tasks for a start: `turn` where it explores, or where no task is worth
        anything. `draw` names the start, and no other."""
        task = turn
        why = "turn"
        # digests, not draws of a generator: a resumed step need not draw what is past
        lucky, place = (
            stable_seed(self.seed, "curriculum", what, world, *draw) / 2**63
            for what in ("explore", "task")
        )
        if lucky >= self.how.explore:
            drawn = self._by_worth(world, known, place)
            task, why = (turn, why) if drawn is None else (drawn, "band")
        name = placed(world, f"{self.split}/{task}")
        self.made.append(TaskChoice(name, why, chance(self.tallies.get(name))))
        return task

    def _by_worth(self, world: str, known: int, place: float) -> int | None:
        """The task at a place (0 to 1) of all their weights, laid end to end: those that were met,
        then the others. None where all are 0."""
        weights = self._weights(world, known)
        fresh = worth(chance(None))
        rest = known - len(weights)
        left = place * (sum(weights.values()) + rest * fresh)
        last = None
        for task, weight in weights.items():
            if left < weight:
                return task
            left -= weight
            last = task if weight else last
        if not (fresh and rest):
            return last  # rounding may leave a little more than the last weight
        number = min(int(left / fresh), rest - 1)
        # the tasks that were met are passed over, in their order; a split may have millions more
        for task in weights:
            if task > number:
                break
            number += 1
        return number

    def _weights(self, world: str, known: int) -> dict[int, float]:
        """The weights of the tasks of a world that were met, in their order."""
        if world not in self.weights:
            begin = placed(world, f"{self.split}/")
            numbers = [n.removeprefix(begin) for n in self.tallies if n.startswith(begin)]
            # another world may be called like the beginning of this one's tasks
            met = sorted(int(number) for number in numbers if number.isdigit())
            self.weights[world] = {
                task: worth(chance(self.tallies[f"{begin}{task}"])) for task in met if task < known
            }
        return self.weights[world]

    def record(self) -> dict[str, Any]:
        """What the record says of the step: how many starts were drawn for which reason, and each
        start with its task, the reason and the estimate."""
        known = [chance(tally) for tally in self.tallies.values()]
        return {
            "band": sum(choice.why == "band" for choice in self.made),
            "turn": sum(choice.why == "turn" for choice in self.made),
            "met": len(known),
            "in_band": sum(worth(p) > 0 for p in known),
            "starts": [[one.task, one.why, round(one.success, 4)] for one in self.made],
        }


def casts(cast: Mapping[str, Seat], how: Seating, seed: int, start: int) -> list[dict[str, Seat]]:
    """The casts with which one start is played: `fixed` as it is; `random` one permutation of the
    players; `swap` every rotation of them.

    A player is all that a seat holds: behaviour, options, policies. With two agents, `swap` is the
    start once from each side.

    >>> cast = {"a": Seat(policy="x"), "b": Seat(policy="y")}
    >>> [[seat.policy for seat in turned.values()] for turned in casts(cast, "swap", 0, 0)]
    [['x', 'y'], ['y', 'x']]
    """
    agents = list(cast)
    players = list(cast.values())
    # by the number of the start in the run, so that the same task is met from both sides in time
    if how == "random":
        random.Random(stable_seed(seed, "seats", start)).shuffle(players)
    # rotations, not permutations: n casts, in which every player has every seat once
    turns = plays_per_start(how, len(agents))
    return [
        dict(zip(agents, players[turn:] + players[:turn], strict=True)) for turn in range(turns)
    ]


def plays_per_start(how: Seating, agents: int) -> int:
    return agents if how == "swap" else 1


def anchor_seat(seat: Seat, anchor: str, policies: Iterable[str]) -> Seat:
    """The seat of an anchor: the same behaviour with the frozen policy of this name, else the
    behaviour of this name."""
    return replace(seat, policy=anchor) if anchor in policies else Seat(anchor)


class Opponents(Protocol):
    """Who sits where at a start, by its number in the run and its world."""

    def __call__(self, start: int, world: str = "", /) -> Mapping[str, Seat]: ...


def training_plans(
    worlds: Worlds,
    settings: TrainSettings,
    step: int,
    opponents: Opponents | None = None,
    tasks: Tasks = in_turn,
) -> list[Plan]:
    """The episodes of a step (from 0): a fixed list, the worlds in turn by their weights, tasks of
    the split in turn, every start with each of its casts `group_size` times.

    Episodes of one start differ in what is sampled only, and in who sits where under
    `train.seats: swap`; `repeat` tells them apart. Those with one cast share a `group`.
    `opponents` gives the seats of a start; by default they are those of the config. `tasks` may
    choose others than those in turn.
    """
    by_name = {world.name: world for world in worlds.played}
    weights = {world.name: world.weight for world in worlds.played}
    each = plays_of_a_turn(worlds, settings)
    turns = settings.episodes // each
    plans: list[Plan] = []
    # counted over the run, so that no task is left out and every world gets its share
    for number in range(step * turns, (step + 1) * turns):
        name, count = due(weights, number)
        world = by_name[name]
        starts = each // _plays_of_a_start(world, settings)
        for index in range(starts):
            start = count * starts + index
            # digests, not draws of a generator: a resume need not draw what is past
            parts = (step, (number - step * turns) * starts + index) if not name else (name, start)
            seed = TRAINING_SEEDS | stable_seed(world.config.run.seed, "train", *parts)
            plans += world.placing(_plans_of(world, settings, start, seed, opponents, tasks))
    return plans


def plays_of_a_turn(worlds: Worlds, settings: TrainSettings) -> int:
    """How many plays a world has when its turn comes: alike for all, so that weights are shares of
    plays, and whole starts of each."""
    # worlds differ in how many agents change seats
    return math.lcm(*(_plays_of_a_start(world, settings) for world in worlds.played))


def _plays_of_a_start(world: World, settings: TrainSettings) -> int:
    return settings.group_size * plays_per_start(settings.seats, len(world.config.agents))


def _plans_of(
    world: World,
    settings: TrainSettings,
    start: int,
    seed: int,
    opponents: Opponents | None,
    tasks: Tasks,
) -> Iterator[Plan]:
    config = world.config
    size = settings.group_size
    known = len(world.scenario.tasks(settings.split))
    task = f"{settings.split}/{tasks(world.name, known, start % known, start)}"
    plan = plan_of(config, world.scenario, cast_of(config), task, seed)
    seats = plan.cast if opponents is None else opponents(start, world.name)
    sides = casts(seats, settings.seats, config.run.seed, start)
    for side, cast in enumerate(sides):
        # of one side: returns of a stronger and a weaker seat do not compare
        same = f"{placed(world.name, task)}/{seed}" + (f"/{side}" if len(sides) > 1 else "")
        group = same if size > 1 else None
        for n in range(size):
            yield replace(plan, cast=cast, repeat=side * size + n, group=group)


def plan_of(
    config: Config, scenario: Scenario, cast: Mapping[str, Seat], task: str, seed: int
) -> Plan:
    run = config.run
    options = config.only.options
    wait = run.call_timeout_s
    return Plan(scenario, cast, task, seed, limits=run.limits, call_timeout_s=wait, options=options)


async def demonstrations(
    worlds: Worlds, players: Players, policy: Policy, warm: WarmStartSettings
) -> list[Demonstration]:
    """What a policy copies before it learns (`train.warm_start`): what its agents are asked and
    answer in plays of scripted players, which the record does not hold; of every world in its
    share."""
    # a world in which the policy has no seat would show nothing
    seated = {world.name: world for world in worlds.played if _seats(world, policy)}
    weights = {name: world.weight for name, world in seated.items()}
    plans: list[Plan] = []
    for index in range(warm.episodes if seated else 0):
        name, count = due(weights, index)
        seed = TRAINING_SEEDS | stable_seed(warm.seed, "demonstration", policy.name, index)
        plans += seated[name].placing([_plan(seated[name], warm, count, seed)])
    episodes = check_some(await players.play(plans))
    # a play that failed may end in the middle of an answer, and is not an example
    return [
        demonstration
        for episode in episodes
        if episode.end.scored
        for agent, seat in _seats(seated[episode.world], policy).items()
        for demonstration in _demonstrations(episode, agent, seat, policy)
    ]


def _seats(world: World, policy: Policy) -> dict[str, Seat]:
    agents = world.config.agents.items()
    return {name: seat.seat for name, seat in agents if seat.policy == policy.name}


def _plan(world: World, warm: WarmStartSettings, count: int, seed: int) -> Plan:
    config = world.config
    scenario = world.scenario
    # agents that the warm start does not name play as in the run
    demonstrators = seats_of(scenario.agents, warm.cast)
    cast = {agent: (demonstrators.get(agent) or seat).seat for agent, seat in config.agents.items()}
    split = config.train.split if config.train else "train"
    task = f"{split}/{count % len(scenario.tasks(split))}"
    return plan_of(config, scenario, cast, task, seed)


def _demonstrations(
    episode: Episode, agent: str, seat: Seat, policy: Policy
) -> Iterator[Demonstration]:
    """Each turn of the agent as the request that the behaviour `direct` would send from the seat
    that the policy will have, with its answer."""
    seen: tuple[Message, ...] = ()
    for turn in (turn for turn in episode.turns if turn.agent == agent):
        # the view only grows: what a script was shown in an earlier turn a model still sees
        seen = (*seen, *turn.observed)
        prompt = tuple(remembered(seat, agent, seen))
        asked = Request(agent, prompt, turn.tools, turn.legal, policy.sampling, policy=policy.name)
        yield Demonstration(asked, turn.action.text, turn.action.tool_calls)
        seen = (*seen, spoken(agent, turn.action))
