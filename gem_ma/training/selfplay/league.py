"""The opponents of a learner: a pool of snapshots on disk, the draw of opponents, their results.
Knows seats and games; learns nothing.

At every start one agent whose policy learns now is the *learner*. The other learned seats are its
rivals, and the draw decides who sits there: `latest` the present weights, `uniform` and
`prioritised` a snapshot `name@version` of the rival's own policy, an anchor a behaviour or a frozen
policy. All draws are functions of (run.seed, step, start, recorded games), so a resumed run meets
the same opponents.

A step first draws `pool.loaded` snapshots, and every start picks one of them, which bounds memory.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from gem_ma.config.settings import Config
from gem_ma.config.training import OpponentSettings, PoolSettings, TrainSettings
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy, open_engine, stable_seed
from gem_ma.engines.capabilities import Weighs
from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.errors import ConfigError, DataError, EngineError
from gem_ma.runs.plans import cast_of
from gem_ma.runs.worlds import Worlds
from gem_ma.scores.ratings import games, points
from gem_ma.system.files import kind, place
from gem_ma.training.loop.step import Attendant, Step
from gem_ma.training.schedule.plans import Opponents, anchor_seat

FOLDER = "league"
# old games tell little of a learner that has changed since
DECAY = 0.98  # what a game counts for one step later, in the win rates
PRIOR = 2.0  # drawn games that every win rate starts from
Pair = tuple[str, str]


def prioritised(rates: Sequence[float], settings: PoolSettings) -> list[float]:
    """The weight of each rival by the learner's win rate p against it: (1-p)^2 under `hard`, p(1-p)
    under `even`; all alike where all are 0.

    >>> prioritised([0.5, 1.0], PoolSettings()), prioritised([1.0, 1.0], PoolSettings())
    ([0.25, 0.0], [1.0, 1.0])
    """
    weights = [(1 - p) ** 2 if settings.prioritised == "hard" else p * (1 - p) for p in rates]
    return weights if sum(weights) > 0 else [1.0] * len(weights)


@dataclass(frozen=True, slots=True)
class Member:
    """A frozen snapshot of a policy: `name@version` in the records, a model on disk."""

    policy: str
    version: int
    step: int
    fingerprint: str

    @property
    def name(self) -> str:
        return f"{self.policy}@{self.version}"


class LeagueState(TypedDict):
    """What a checkpoint holds of it, beside the snapshots on disk."""

    members: list[tuple[str, int, int, str]]
    games: list[tuple[str, str, float, float]]


class League(Attendant):
    """The pool, the games of the run so far, and the draw of opponents. Without `train.opponents`
    all seats are those of the config.

    `root` is the run folder; None keeps the pool in a temporary one. Of several processes with
    one folder only one `writes` snapshots.
    """

    def __init__(
        self,
        config: Config,
        settings: TrainSettings,
        policies: Mapping[str, Policy],
        root: Path | None,
        *,
        worlds: Worlds | None = None,
        writes: bool = True,
    ) -> None:
        self.config = config
        self.settings = settings
        self.policies = policies
        # who sits where in each world; opponents are drawn for a start of one of them
        self.casts = {"": cast_of(config)}
        self.team: Callable[[Episode, str], str] | None = None
        if worlds is not None:
            self.casts = {world.name: cast_of(world.config) for world in worlds.played}
            self.team = worlds.team
        self.pool = settings.pool
        self.shares = settings.opponents or OpponentSettings(latest=1.0)
        self.active = settings.opponents is not None
        self.writes = writes
        self._temporary: Any = None  # goes when the league goes
        if root is None and self.active:
            self._temporary = tempfile.TemporaryDirectory(prefix="gem_ma_league_")
            root = Path(self._temporary.name)
        self.root = (root or Path()) / FOLDER
        self.members: list[Member] = []
        self.won: dict[Pair, float] = {}  # (i, j) -> wins of i over j, half the ties included
        self.recent: dict[Pair, float] = {}  # the same, older games counting less
        self._steps = 0
        self._open: dict[str, tuple[Policy, str]] = {}

    name = "league"
    shape = LeagueState

    def played(self, step: Step) -> None:
        self.note(step.rollouts.plays)

    def examined(self, step: Step) -> None:
        """Records the ratings after an exam, and adds the present weights to the pool."""
        if step.scores is not None and step.number and self.active:
            step.rows.append(self.standing(step.number))
        self._steps = step.number
        if not step.last:
            self.snapshot(step.number)

    def summary(self) -> Mapping[str, Any]:
        return {"league": self.standing(self._steps)} if self.active else {}

    def snapshot(self, step: int) -> None:
        """Adds the present weights of every learned policy, where they are due and new. Raises
        StoreError where they cannot be written."""
        if step % self.pool.every or not self.shares.uniform + self.shares.prioritised > 0:
            return
        for name in self.settings.policies:
            engine = _weights(self.policies[name])
            member = Member(name, int(engine.version), step, engine.fingerprint())
            known = [(old.version, old.fingerprint) for old in self.drawn_from(name)]
            # a policy that waits for its turn (`train.alternate`) would fill the pool with copies
            if any(v == member.version or f == member.fingerprint for v, f in known):
                continue
            if self.writes:
                # what is already there was written before a kill, by the same step: the same bytes
                place(self.root / member.name, self.root.parent, engine.save)
            self.members.append(member)

    def drawn_from(self, policy: str) -> list[Member]:
        """The members that may be drawn as rivals of this policy's seats: the newest
        `pool.size`."""
        return [member for member in self.members if member.policy == policy][-self.pool.size :]

    def opened(self, plans: Iterable[Plan]) -> dict[str, Policy]:
        """The policies of all members that these plans seat, ready to sample. Raises DataError
        where a snapshot is missing or was changed."""
        known = {member.name: member for member in self.members}
        seats = (seat for plan in plans for seat in plan.cast.values())
        wanted = dict.fromkeys(seat.policy for seat in seats if seat.policy in known)
        # closed only where room is needed: the next step may draw the same members again
        missing = sum(name not in self._open for name in wanted)
        for name in [name for name in self._open if name not in wanted]:
            if len(self._open) + missing > self.pool.loaded:
                self._close(name)
        for name in wanted:
            if name is not None and name not in self._open:
                self._open[name] = (self._load(known[name]), known[name].fingerprint)
        return {name: self._open[name][0] for name in wanted if name is not None}

    def close(self) -> None:
        """Closes all open members. Raises EngineError where the weights of one have changed."""
        for name in list(self._open):
            self._close(name)

    def _close(self, name: str) -> None:
        policy, fingerprint = self._open.pop(name)
        if _weights(policy).fingerprint() != fingerprint:
            raise EngineError(f"the weights of the frozen opponent {name} changed while it played")

    def _load(self, member: Member) -> Policy:
        living = self.policies[member.policy]
        path = self.root / member.name
        if kind(path, self.root.parent) not in ("a file", "a folder"):
            raise DataError(
                f"{path}: this snapshot of the pool is gone; put it back, or start anew with"
                " --fresh"
            )
        section = self.config.policies[member.policy]
        # the snapshot is the adapter already: `lora` would put a new one on top of it
        options = {key: value for key, value in section.options.items() if key != "lora"}
        opener = section.model.partition("/")[0]
        engine = open_engine(member.name, f"{opener}/{path}", **options)
        policy = Policy(member.name, engine, living.sampling)
        weights = _weights(policy)
        weights.version = member.version  # of its replies, so that the record says who played
        if weights.fingerprint() != member.fingerprint:
            raise DataError(
                f"{path}: the weights of this snapshot are not those that were written; put it"
                " back, or start anew with --fresh"
            )
        return policy

    def opponents(self, step: int, learning: Sequence[str]) -> Opponents:
        """The seats of a start by its number in the run (and its world), when these policies learn
        at this step."""
        learning_in = {
            world: [agent for agent, seat in cast.items() if seat.policy in learning]
            for world, cast in self.casts.items()
        }
        shares = {
            "latest": self.shares.latest,
            "uniform": self.shares.uniform,
            "prioritised": self.shares.prioritised,
            **self.shares.anchors,
        }
        ways = [way for way in ("uniform", "prioritised") if shares[way] > 0]
        hands = self._hands(step, learning_in, ways)

        def seats(start: int, world: str = "", /) -> dict[str, Seat]:
            # a generator per start: what one start draws must not depend on the others
            named = (world,) if world else ()
            rng = random.Random(stable_seed(self.config.run.seed, "opponents", *named, start))
            way = rng.choices(list(shares), list(shares.values()))[0]
            cast = self.casts[world]
            learners = learning_in[world]
            if not learners or way == "latest":
                return dict(cast)
            learner = rng.choice(learners)
            result = dict(cast)
            for agent in self._rivals(cast, learner):
                if way in ways:
                    # a rival that does not learn in this world has no snapshots
                    hand = hands.get((cast[learner].policy, cast[agent].policy, way))
                    if hand is not None:
                        result[agent] = replace(cast[agent], policy=rng.choice(hand))
                else:
                    result[agent] = anchor_seat(cast[agent], way, self.config.policies)
            return result

        return seats

    def _rivals(self, cast: Mapping[str, Seat], learner: str) -> list[str]:
        """The other learned seats; where nobody else learns, all other seats, so that an anchor
        has somewhere to sit."""
        others = [agent for agent in cast if agent != learner]
        return [agent for agent in others if cast[agent].policy in self.settings.policies] or others

    def _hands(
        self, step: int, learners: Mapping[str, Sequence[str]], ways: Sequence[str]
    ) -> dict[tuple[str | None, str | None, str], list[str]]:
        """The members that this step's starts pick from, by (learner's policy, rival's policy,
        way)."""
        # of all worlds together: what is in memory at once is bound for the whole step
        pairs = dict.fromkeys(
            (cast[a].policy, cast[b].policy)
            for world, cast in self.casts.items()
            for a in learners[world]
            for b in self._rivals(cast, a)
        )
        keys = [(mine, rival, way) for mine, rival in pairs for way in ways]
        # one generator for all hands of a step, drawn in the order of `keys`
        rng = random.Random(stable_seed(self.config.run.seed, "pool", step))
        hands = {}
        for mine, rival, way in keys:
            members = [member.name for member in self.drawn_from(rival or "")]
            if members:
                weights = [1.0] * len(members)
                if way == "prioritised":
                    rates = [self.win_rate(mine or "", member) for member in members]
                    weights = prioritised(rates, self.pool)
                # with replacement: a member that is drawn twice is played twice as often
                size = max(1, self.pool.loaded // len(keys))
                hands[mine, rival, way] = rng.choices(members, weights, k=size)
        return hands

    def note(self, episodes: Iterable[Episode]) -> None:
        if not self.active:
            return
        self.recent = {pair: value * DECAY for pair, value in self.recent.items()}
        for game in games(episodes, team=self.team):
            # both ways round: a tie is half a win of each
            for i, j, score in ((*game.players, game.score), (*game.players[::-1], 1 - game.score)):
                self.won[i, j] = self.won.get((i, j), 0.0) + score
                self.recent[i, j] = self.recent.get((i, j), 0.0) + score

    def win_rate(self, player: str, rival: str) -> float:
        """The player's share of wins against the rival, old games counting less, `PRIOR`
        ties added."""
        # the prior keeps a rival that was met once from being drawn always or never
        won = self.recent.get((player, rival), 0.0)
        lost = self.recent.get((rival, player), 0.0)
        return (won + PRIOR / 2) / (won + lost + PRIOR)

    def standing(self, step: int) -> dict[str, Any]:
        """For the record: ratings in points of all who met, and how many snapshots there are; {}
        where `train.opponents` is absent."""
        if not self.active:
            return {}
        try:
            rated: Any = {name: round(value, 1) for name, value in points(self.won).items()}
        except DataError as error:  # who never met cannot be compared, which ends no training
            rated = str(error)
        return {"kind": "league", "step": step, "ratings": rated, "members": len(self.members)}

    def state(self) -> dict[str, Any]:
        members = [[one.policy, one.version, one.step, one.fingerprint] for one in self.members]
        counts = [[*pair, won, self.recent.get(pair, 0.0)] for pair, won in self.won.items()]
        return {"members": members, "games": counts}

    def load(self, state: Any) -> None:
        self.members = [Member(*values) for values in state["members"]]
        self.won = {(i, j): won for i, j, won, _ in state["games"]}
        self.recent = {(i, j): recent for i, j, _, recent in state["games"]}


def _weights(policy: Policy) -> Weighs:
    """The engine of a policy. Raises ConfigError where its weights cannot be written."""
    engine = policy.core
    if not isinstance(engine, Weighs):
        raise ConfigError(
            f"policy {policy.name!r}: a league keeps snapshots of it, and its engine"
            f" {type(engine).__name__} cannot write its weights"
        )
    return engine
