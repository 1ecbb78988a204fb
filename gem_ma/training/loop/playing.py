"""A list of plans, played in this process: in one go, or chunk by chunk (`train.chunk`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gem_ma.config.settings import Config
from gem_ma.driver.many import play_many
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy
from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import BudgetError, EngineError
from gem_ma.training.processes.chunks import cut


async def play_chunk(
    config: Config, plans: Sequence[Plan], policies: Mapping[str, Policy]
) -> list[Episode]:
    """The episodes of these plans, in their order, played together. Raises BudgetError where a
    limit ended one."""
    # episodes come as they end; what is learned from them must not depend on that
    order = {plan.id: index for index, plan in enumerate(plans)}
    stream = play_many(plans, policies, concurrency=config.run.concurrency, deterministic=True)
    episodes = [episode async for episode in stream]
    ends = (episode.error for episode in episodes if episode.end is End.INTERRUPTED)
    refusal = next(ends, None)
    if refusal is not None:  # a step is learned from whole or not at all
        raise BudgetError(refusal.removeprefix("BudgetError: "))
    return sorted(episodes, key=lambda episode: order[episode.id])


async def play_chunks(
    config: Config, plans: Sequence[Plan], policies: Mapping[str, Policy]
) -> list[Episode]:
    """The same for any number of plans: chunk after chunk where `train.chunk` says so, as other
    processes would play them."""
    size = config.train.chunk if config.train is not None else None
    if size is None:
        return await play_chunk(config, plans, policies)
    return [
        episode
        for chunk in cut(plans, size)
        for episode in await play_chunk(config, chunk, policies)
    ]


def heated(policies: Mapping[str, Policy], temperature: float | None) -> Mapping[str, Policy]:
    """The policies, all sampled at this temperature; None = at their own."""
    if temperature is None:
        return policies
    return {
        name: replace(policy, sampling=replace(policy.sampling, temperature=temperature))
        for name, policy in policies.items()
    }


def check_some(episodes: Sequence[Episode]) -> list[Episode]:
    """The same episodes. Raises EngineError where there are some and all of them failed.

    For plays that are looked at together: a failed episode is data, so the few of a level of forks
    or of a refill say nothing where the rest of their step ended well.
    """
    if episodes and not any(episode.end.scored for episode in episodes):
        raise EngineError(f"all {len(episodes)} episodes failed; the first: {episodes[0].error}")
    return list(episodes)
