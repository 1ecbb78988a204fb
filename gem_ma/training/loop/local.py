"""Players and the publisher in this process; with several processes (`Team`) each plays a share of
every list of plans. What a role promises is in `gem_ma.training.loop.roles`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace

from gem_ma.config.settings import Config
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy
from gem_ma.kernel.episode import Episode
from gem_ma.training.loop.overlap import pinned
from gem_ma.training.loop.playing import heated, play_chunks
from gem_ma.training.loop.roles import Learner
from gem_ma.training.processes.teams import SOLO, Team, together

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
        """See `Players.play`."""
        policies = self.policies
        # members only where the plays are learned from: no exam seats a snapshot
        if learning:
            # a barrier: process 0 has written its snapshots before others read them
            self.team.agree(None)
            members = self.members(plans) if self.members is not None else {}
            policies = {**policies, **self.learning, **members}
        return await play_all(self.config, plans, heated(policies, temperature), self.team)

    def pinned(self) -> LocalPlayers | None:
        """See `Players.pinned`."""
        # processes exchange episodes in one order, so none may be played beside a publish
        stays = pinned(self.learning) if self.team.size == 1 else None
        if stays is None:
            return None
        other = copy(self)
        other.learning = stays
        return other


async def play_all(
    config: Config, plans: Sequence[Plan], policies: Mapping[str, Policy], team: Team = SOLO
) -> list[Episode]:
    """The episodes of these plans, in their order; each process of the team plays a share. Raises
    as `Players.play`."""

    async def play(share: Sequence[Plan]) -> list[Episode]:
        return await play_chunks(config, share, policies)

    return await together(team, plans, play)


class LocalPublisher:
    """Publishes from learners of this process."""

    def __init__(self, learners: Mapping[str, Learner]) -> None:
        self.learners = learners

    def version(self, policy: str) -> int:
        """See `Publisher.version`."""
        return self.learners[policy].version

    def publish(self, policy: str) -> dict[str, float]:
        """See `Publisher.publish`."""
        return self.learners[policy].publish()
