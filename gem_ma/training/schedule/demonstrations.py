"""What a policy copies before it learns: turns of scripted players (`train.warm_start`)."""

from __future__ import annotations

from collections.abc import Iterator

from gem_ma.config.seats import seats_of
from gem_ma.config.training import WarmStartSettings
from gem_ma.driver.memory import remembered
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy, stable_seed
from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.types import Message, Request, spoken
from gem_ma.runs.worlds import World, Worlds, due
from gem_ma.training.learner.rows import Demonstration
from gem_ma.training.loop.local import check_some
from gem_ma.training.loop.roles import Players
from gem_ma.training.schedule.plans import TRAINING_SEEDS, plan_of


async def demonstrations(
    worlds: Worlds, players: Players, policy: Policy, warm: WarmStartSettings
) -> list[Demonstration]:
    """What the agents of a policy are asked and answer in episodes of the demonstrators, which the
    record of the run does not hold; of every world it plays in its share."""
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
    """The agents that the policy plays in a world, as it will sit there."""
    agents = world.config.agents.items()
    return {name: seat.seat for name, seat in agents if seat.policy == policy.name}


def _plan(world: World, warm: WarmStartSettings, count: int, seed: int) -> Plan:
    """The play of this number in its world."""
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
