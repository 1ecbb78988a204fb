"""What a policy copies before it learns: turns of scripted players (`train.warm_start`)."""

from __future__ import annotations

from collections.abc import Iterator

from gem_ma.config.settings import Config
from gem_ma.config.training import WarmStartSettings
from gem_ma.engines.base import Policy, stable_seed
from gem_ma.episode import Episode
from gem_ma.scenario import Scenario
from gem_ma.training.learner.rows import Demonstration
from gem_ma.training.loop.roles import Players
from gem_ma.training.schedule.plans import TRAINING_SEEDS, plan_of
from gem_ma.types import Message, Request, spoken


async def demonstrations(
    config: Config, scenario: Scenario, players: Players, policy: Policy, warm: WarmStartSettings
) -> list[Demonstration]:
    """What the agents of a policy are asked and answer in episodes of the demonstrators, which the
    record of the run does not hold."""
    # agents that the warm start does not name play as in the run
    cast = {agent: (warm.cast.get(agent) or seat).seat for agent, seat in config.agents.items()}
    split = config.train.split if config.train else "train"
    known = len(scenario.tasks(split))
    seeds = [
        TRAINING_SEEDS | stable_seed(warm.seed, "demonstration", policy.name, index)
        for index in range(warm.episodes)
    ]
    plans = [
        plan_of(config, scenario, cast, f"{split}/{index % known}", seed)
        for index, seed in enumerate(seeds)
    ]
    episodes = await players.play(plans)
    agents = [agent for agent, seat in config.agents.items() if seat.policy == policy.name]
    # a play that failed may end in the middle of an answer, and is no example
    return [
        demonstration
        for episode in episodes
        if episode.end.scored
        for agent in agents
        for demonstration in _shown(episode, agent, policy)
    ]


def _shown(episode: Episode, agent: str, policy: Policy) -> Iterator[Demonstration]:
    """Each turn of the agent as the request that the behaviour `direct` would send, with its
    answer."""
    seen: tuple[Message, ...] = ()
    for turn in (turn for turn in episode.turns if turn.agent == agent):
        # the view only grows: what a script was shown in an earlier turn a model still sees
        seen = (*seen, *turn.observed)
        asked = Request(agent, seen, turn.tools, turn.legal, policy.sampling, policy=policy.name)
        yield Demonstration(asked, turn.action.text, turn.action.tool_calls)
        seen = (*seen, spoken(agent, turn.action))
