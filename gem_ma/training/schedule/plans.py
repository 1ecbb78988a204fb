"""What a training run plays, and how fast it learns: the plans of steps, demonstrations and exams
as functions of the config alone.

Seeds of exams lie below 2^62, all others above: what is examined was never trained on, by
construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from gem_ma.config.plans import cast_of
from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings, WarmStartSettings
from gem_ma.engines.base import Policy, stable_seed
from gem_ma.episode import Episode, Seat
from gem_ma.rollout import Plan
from gem_ma.scenario import Scenario
from gem_ma.training.learner.rows import Demonstration
from gem_ma.training.loop.roles import Players
from gem_ma.training.selfplay.seats import casts, plays_per_start
from gem_ma.types import Message, Request, spoken

TRAINING_SEEDS = 1 << 62


def learning_rate(settings: TrainSettings, step: int) -> float:
    """The learning rate of a step (from 0): linear from lr to lr_final * lr, times a linear rise
    over the first lr_warmup steps."""
    share = 1 + (settings.lr_final - 1) * step / max(1, settings.steps - 1)
    return settings.lr * share * min(1.0, (step + 1) / max(1, settings.lr_warmup))


def training_plans(
    config: Config,
    settings: TrainSettings,
    scenario: Scenario,
    step: int,
    opponents: Callable[[int], Mapping[str, Seat]] | None = None,
) -> list[Plan]:
    """The episodes of a step (from 0): a fixed list, tasks of the split in turn, every start with
    each of its casts `group_size` times.

    Episodes of one start differ in what is sampled only, and in who sits where under
    `train.seats: swap`; `repeat` tells them apart. Those with one cast share a `group`.
    `opponents` gives the seats of a start by its number in the run; by default they are those of
    the config.
    """
    size = settings.group_size
    sides = plays_per_start(settings.seats, len(config.agents))
    starts = settings.episodes // (size * sides)
    known = len(scenario.tasks(settings.split))
    plans = []
    for index in range(starts):
        seed, start = (
            TRAINING_SEEDS | stable_seed(config.run.seed, "train", step, index),
            step * starts + index,
        )
        plan = _plan(config, scenario, cast_of(config), f"{settings.split}/{start % known}", seed)
        seats = plan.cast if opponents is None else opponents(start)
        for side, cast in enumerate(casts(seats, settings.seats, config.run.seed, start)):
            group = f"{plan.task}/{seed}" + (f"/{side}" if sides > 1 else "") if size > 1 else None
            plans += [
                replace(plan, cast=cast, repeat=side * size + n, group=group) for n in range(size)
            ]
    return plans


def exam_plans(config: Config, scenario: Scenario) -> list[Plan]:
    """`evaluate.episodes` plays of the tasks that `scenario:` names, on seeds `evaluate.seed`
    and following, from each side under `swap`."""
    split, chosen = config.scenario.split, config.scenario.tasks
    known = len(scenario.tasks(split))
    tasks = chosen if isinstance(chosen, list) else range(min(chosen or known, known))
    sides = seatings(config)
    starts = range(-(-config.evaluate.episodes // len(sides)))
    plans = [
        _plan(
            config,
            scenario,
            cast_of(config),
            f"{split}/{tasks[n % len(tasks)]}",
            config.evaluate.seed + n,
        )
        for n in starts
    ]
    return [
        replace(plan, cast=cast, repeat=side) for plan in plans for side, cast in enumerate(sides)
    ][: config.evaluate.episodes]


def seatings(config: Config) -> list[dict[str, Seat]]:
    """The casts of an exam: each rotation of the players where they exchange sides and are not
    all the same, else the one of the config."""
    cast = cast_of(config)
    swapped = (
        config.train is not None
        and config.train.seats == "swap"
        and len(set(map(str, cast.values()))) > 1
    )
    return casts(cast, "swap" if swapped else "fixed", 0, 0)


async def demonstrations(
    config: Config, scenario: Scenario, players: Players, policy: Policy, warm: WarmStartSettings
) -> list[Demonstration]:
    """What the agents of a policy are asked and say in episodes of the demonstrators. They are
    no episodes of the run."""
    cast = {agent: (warm.cast.get(agent) or seat).seat for agent, seat in config.agents.items()}
    split = config.train.split if config.train else "train"
    known = len(scenario.tasks(split))
    seeds = [
        TRAINING_SEEDS | stable_seed(warm.seed, "demonstration", policy.name, index)
        for index in range(warm.episodes)
    ]
    plans = [
        _plan(config, scenario, cast, f"{split}/{index % known}", seed)
        for index, seed in enumerate(seeds)
    ]
    episodes = await players.play(plans)
    agents = [agent for agent, seat in config.agents.items() if seat.policy == policy.name]
    return [
        demonstration
        for episode in episodes
        if episode.end.scored
        for agent in agents
        for demonstration in _shown(episode, agent, policy)
    ]


def _plan(
    config: Config, scenario: Scenario, cast: Mapping[str, Seat], task: str, seed: int
) -> Plan:
    run, options = config.run, config.scenario.options
    return Plan(
        scenario,
        cast,
        task,
        seed,
        limits=run.limits,
        call_timeout_s=run.call_timeout_s,
        options=options,
    )


def _shown(episode: Episode, agent: str, policy: Policy) -> Iterator[Demonstration]:
    """Each turn of the agent as the request that the behaviour `direct` would send, and what was
    said."""
    seen: tuple[Message, ...] = ()
    for turn in (turn for turn in episode.turns if turn.agent == agent):
        seen = (*seen, *turn.observed)
        asked = Request(agent, seen, turn.tools, turn.legal, policy.sampling, policy=policy.name)
        yield Demonstration(asked, turn.action.text, turn.action.tool_calls)
        seen = (*seen, spoken(agent, turn.action))
