"""Players and the publisher in this process; with several processes (`Team`) each plays a share of
every list of plans. What a role promises is in `gem_ma.training.loop.roles`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace

from gem_ma.config.settings import Config
from gem_ma.driver.rollout import Plan, play_many
from gem_ma.engines.base import Policy
from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import BudgetError, EngineError
from gem_ma.training.loop.roles import Learner
from gem_ma.training.loop.step import pinned
from gem_ma.training.processes.chunks import cut
from gem_ma.training.processes.teams import SOLO, Team, together


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
    """The same, chunk after chunk where `train.chunk` says so, as other processes would play."""
    size = (config.train.chunk if config.train is not None else None) or max(1, len(plans))
    return [e for chunk in cut(plans, size) for e in await play_chunk(config, chunk, policies)]


def heated(policies: Mapping[str, Policy], temperature: float | None) -> Mapping[str, Policy]:
    """The policies, all sampled at this temperature; None = at their own."""
    if temperature is None:
        return policies
    return {
        name: replace(policy, sampling=replace(policy.sampling, temperature=temperature))
        for name, policy in policies.items()
    }


def check_some(episodes: Sequence[Episode]) -> list[Episode]:
    """The same episodes. Raises EngineError where there are some and all of them failed: of plays
    that are looked at together, since a failed one is data."""
    if episodes and not any(episode.end.scored for episode in episodes):
        raise EngineError(f"all {len(episodes)} episodes failed; the first: {episodes[0].error}")
    return list(episodes)


Members = Callable[[Iterable[Plan]], Mapping[str, Policy]]


class LocalPlayers:
    """Plays in this process, and in those of its team. `learned` names the policies that learn;
    `members` opens the snapshots of a league that some plans seat."""

    def __init__(
        self,
        config: Config,
        policies: Mapping[str, Policy],
        learned: Iterable[str] = (),
        *,
        members: Members | None = None,
        team: Team = SOLO,
    ) -> None:
        self.config = config
        self.team = team
        self.members = members
        self.policies = dict(policies)
        # `learns` forbids behaviours to draw in a way of their own, which no loss would know
        self.learning = {name: replace(policies[name], learns=True) for name in learned}

    async def play(
        self, plans: Sequence[Plan], *, learning: bool = False, temperature: float | None = None
    ) -> list[Episode]:
        policies = self.policies
        # members only where the plays are learned from: no exam seats a snapshot
        if learning:
            # a barrier: process 0 has written its snapshots before others read them
            self.team.agree(None)
            members = self.members(plans) if self.members is not None else {}
            policies = {**policies, **self.learning, **members}
        heat = heated(policies, temperature)

        async def play(share: Sequence[Plan]) -> list[Episode]:
            return await play_chunks(self.config, share, heat)

        return await together(self.team, plans, play)

    def pinned(self) -> LocalPlayers | None:
        # processes exchange episodes in one order, so none may be played beside a publish
        stays = pinned(self.learning) if self.team.size == 1 else None
        if stays is None:
            return None
        other = copy(self)
        other.learning = stays
        return other


class LocalPublisher:
    """Publishes from learners of this process."""

    def __init__(self, learners: Mapping[str, Learner]) -> None:
        self.learners = learners

    def version(self, policy: str) -> int:
        return self.learners[policy].version

    def publish(self, policy: str) -> dict[str, float]:
        return self.learners[policy].publish()
