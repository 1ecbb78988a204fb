"""Token rows: the replies that one policy sampled, as growing id sequences that say which tokens
are trained, and with what advantage.

Reads records, without weights or torch. Axes: T ids of one row, N turns of the table. The rules:

- A row is prompt, sampled ids, new suffix, sampled ids, ... A reply continues the row of its agent
  iff its prompt begins with everything so far; otherwise the row *restarts*, which is counted.
- The mask is true exactly on the ids that this policy sampled, a sampled end of turn included;
  never on observations, tool results, other agents' words, template glue, or an end of turn that
  the template added. So every sampled id is trained exactly once.
- An image in a prompt is the seen ids of `gem_ma.engines.models.sight`, not those of the record.
- Every reply of a turn, also of several model calls in one act, carries the advantage of the
  turn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import LossSettings
from gem_ma.engines.local.sampling import IdSet
from gem_ma.engines.local.tool_grammar import OPENING
from gem_ma.engines.models.sight import Picture, Sight, images_of
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.kernel.types import Image, Reply, Tool, Turn
from gem_ma.training.learner import Turns
from gem_ma.training.learner.losses import PAIRED, Slope, k3, start_of
from gem_ma.training.learner.parity import fresh_gap

# What a sampled id was chosen among; None = anything that is ever sampled. Over the sampled ids of
# a row or a reply.
Allowed = tuple[tuple[int, ...] | IdSet | None, ...]
# (legal strings of the turn, sampled ids, tools of the turn) -> what each was chosen among, or None
# where the reply was not bound to them.
Bound = Callable[[Sequence[str] | None, Sequence[int], Sequence[Tool]], Allowed | None]


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One id sequence [T] of one agent in one episode. `turn` is the row of the table, -1 off the
    mask, where all else is 0.

    `allowed`: per trained id, in their order; () where none was constrained.
    """

    episode: tuple[str, int, int]
    ids: NDArray[np.int64]
    mask: NDArray[np.bool_]
    advantage: NDArray[np.float64]
    logprob: NDArray[np.float64]  # as sampled
    turn: NDArray[np.int64]
    version: NDArray[np.int64]  # of the weights that sampled it
    allowed: Allowed = ()
    start: str = ""  # see `start_of`

    @classmethod
    def of(
        cls,
        episode: tuple[str, int, int],
        prompt: Sequence[int],
        ids: Sequence[int],
        allowed: Allowed | None = None,
    ) -> Row:
        """A prompt and the ids after it, which alone are trained: as one turn, without advantage
        and never sampled."""
        whole = np.array([*prompt, *ids], np.int64)
        mask = np.arange(len(whole)) >= len(prompt)
        zeros = np.zeros(len(whole))
        turn = np.where(mask, 0, -1)
        return cls(episode, whole, mask, zeros, zeros, turn, np.zeros_like(whole), allowed or ())


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of a batch; `restarts` counts those that began because a prompt did not continue
    the row before."""

    rows: tuple[Row, ...]
    restarts: int

    @property
    def tokens(self) -> int:
        return sum(int(row.mask.sum()) for row in self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """Columns [n] of the trained tokens of some rows, in their order."""

    advantage: NDArray[np.float64]
    logprob: NDArray[np.float64]
    turn: NDArray[np.int64]
    version: NDArray[np.int64]

    @classmethod
    def of(cls, chosen: Sequence[Row]) -> Tokens:
        names = ("advantage", "logprob", "turn", "version")
        columns = ([getattr(row, name)[row.mask] for row in chosen] for name in names)
        return cls(*map(np.concatenate, columns))

    def take(self, index: NDArray[np.int64]) -> Tokens:
        return Tokens(
            self.advantage[index], self.logprob[index], self.turn[index], self.version[index]
        )


def told_of(made: Rows, every: Tokens, old: NDArray[np.float64], version: int) -> dict[str, float]:
    """What is logged of an update beside its steps: how far the log-probabilities [n] of before it
    are from those that were sampled, and counts. `version`: of the weights that learn."""
    gap = old - every.logprob
    _, first = np.unique(every.turn, return_index=True)
    return {
        "logprob_gap": float(np.abs(gap).max()),
        "mismatch_kl": float(k3(Slope.of(every.logprob), old).value.mean()),
        **fresh_gap(every.logprob, old, every.version == version),
        "zero_advantage": float((every.advantage[first] == 0).mean()),
        "lag": float(version - every.version.min()),
        "forks": float(made.restarts),
        "rows": float(len(made.rows)),
        "turns": float(len(first)),
        "tokens": float(len(every.turn)),
    }


class _Growing:
    """A row under construction."""

    def __init__(self, episode: Episode) -> None:
        self.episode = episode.id
        self.start = start_of(episode)
        self.ids: list[int] = []
        # (start, reply, row of the table, advantage)
        self.spans: list[tuple[int, Reply, int, float]] = []
        self.allowed: list[tuple[int, ...] | IdSet | None] = []

    def add(
        self,
        prompt: Sequence[int],
        reply: Reply,
        turn: int,
        advantage: float,
        allowed: Allowed | None,
    ) -> None:
        self.spans.append((len(prompt), reply, turn, advantage))
        self.ids = [*prompt, *reply.token_ids]
        self.allowed += allowed or [None] * len(reply.token_ids)

    def done(self) -> Row:
        length = len(self.ids)
        row = Row(
            self.episode,
            np.array(self.ids, np.int64),
            np.zeros(length, np.bool_),
            np.zeros(length),
            np.zeros(length),
            np.full(length, -1, np.int64),
            np.zeros(length, np.int64),
            tuple(self.allowed) if any(self.allowed) else (),  # () costs a pass no mask
            self.start,
        )
        for start, reply, turn, advantage in self.spans:
            span = slice(start, start + len(reply.token_ids))
            row.mask[span] = True
            row.advantage[span] = advantage
            row.turn[span] = turn
            row.version[span] = reply.version
            row.logprob[span] = reply.logprobs
        return row


def rows(
    table: Turns,
    advantages: Sequence[float] | NDArray[np.float64],
    policy: str,
    bound: Bound | None = None,
    sight: Sight | None = None,
) -> Rows:
    """Rows of the tokens that `policy` sampled in these turns; `advantages` [N] is one value per
    turn of the table. `bound`: of its engine, where it constrains what is sampled. `sight`: of its
    engine, where it sees images; somebody must hold those of these turns (`pictures_of`).

    Raises ValueError where lengths differ, ConfigError for a reply of the policy without ids or
    log-probabilities (it may be played, never trained on), DataError where a reply's ids and
    log-probabilities do not fit together.
    """
    if len(advantages) != len(table.turns):
        raise ValueError(
            f"there must be one advantage per turn; got {len(advantages)} for {len(table.turns)}"
            " turns"
        )
    # stable: rows of one agent in the order of its turns
    order = sorted(range(len(table.turns)), key=lambda index: table.turns[index].step)
    growing: dict[tuple[object, ...], list[_Growing]] = {}
    restarts = 0
    for index in order:
        turn = table.turns[index]
        episode = table.episodes[index]
        for reply in turn.replies:
            if reply.policy != policy or not _trainable(reply, episode, turn):
                continue
            mine = growing.setdefault((id(episode), turn.agent), [])
            prompt = reply.prompt_ids
            if sight is not None:  # another image is another id from here on
                prompt = sight.seen(prompt, reply.images)
            # by ids, not by text: the same words may be other ids, and gradients would be wrong
            if not mine or tuple(mine[-1].ids) != prompt[: len(mine[-1].ids)]:
                restarts += bool(mine)
                mine.append(_Growing(episode))
            allowed = None
            if bound is not None:
                allowed = bound(turn.legal, reply.token_ids, _offered(turn, reply))
            mine[-1].add(prompt, reply, index, float(advantages[index]), allowed)
    # as the table has them
    in_table = sorted(growing.values(), key=lambda mine: mine[0].spans[0][2])
    return Rows(tuple(row.done() for mine in in_table for row in mine), restarts)


def pictures_of(table: Turns, policy: str, sight: Sight) -> list[Picture]:
    """The images that stand in the prompts of a policy in these turns, opened; the ids of their
    rows mean something as long as somebody holds them.

    Raises EngineError for an image whose bytes are in no message of its play.
    """
    replies = (reply for turn in table.turns for reply in turn.replies if reply.policy == policy)
    wanted = {digest for reply in replies for digest in reply.images}
    if not wanted:
        return []
    episodes = {id(episode): episode for episode in table.episodes}.values()
    messages = [m for episode in episodes for turn in episode.turns for m in turn.observed]
    images = {image.digest: image for image in images_of(messages) if image.data}
    return sight.open([images.get(digest) or Image(digest) for digest in sorted(wanted)])


def _offered(turn: Turn, reply: Reply) -> tuple[Tool, ...]:
    """The tools that a model call was asked with: a behaviour may ask for words alone, and an
    opening in those was read as no call."""
    return turn.tools if reply.tool_calls or OPENING not in reply.text else ()


def _trainable(reply: Reply, episode: Episode, turn: Turn) -> bool:
    """False for a reply without a token (its prompt did not fit). Raises where only a part of what
    training needs is there."""
    if not reply.token_ids and reply.finish == "context_overflow":
        return False
    where = f"policy {reply.policy!r}, episode {episode.id}, agent {turn.agent!r}, step {turn.step}"
    if not (reply.token_ids and reply.prompt_ids and reply.logprobs):
        raise ConfigError(
            f"{where}: the reply has no token ids or no log-probabilities, so its engine can be"
            " played but not trained; take the policy out of train.policies, or give it a local"
            " model"
        )
    if len(reply.token_ids) != len(reply.logprobs):
        raise DataError(
            f"{where}: the reply has {len(reply.token_ids)} token ids and {len(reply.logprobs)}"
            " log-probabilities"
        )
    return True


def units_of(table: Turns) -> NDArray[np.int64]:
    """[2, N]: for each turn the number of its agent's part in its episode, and that of all parts
    of this agent from the same start."""
    turns = list(zip(table.episodes, table.turns, strict=True))
    parts = [f"{episode.id}/{turn.agent}" for episode, turn in turns]
    groups = [f"{start_of(episode)}/{turn.agent}" for episode, turn in turns]
    return np.stack([np.unique(names, return_inverse=True)[1] for names in (parts, groups)])


def minibatches(
    all_rows: Sequence[Row], settings: LossSettings, rng: random.Random
) -> Iterator[list[int]]:
    """Which rows each optimiser step of an update takes: every epoch deals the episodes anew, in
    an order drawn from `rng`; under a loss of pairs all plays of a start together."""
    # by episode: rows of one play share its luck, and would make two minibatches look alike
    by_episode: dict[object, list[int]] = {}
    paired = settings.surrogate in PAIRED
    for number, row in enumerate(all_rows):
        by_episode.setdefault(row.start if paired else row.episode, []).append(number)
    episodes = list(by_episode)
    for _ in range(settings.epochs):
        rng.shuffle(episodes)
        for part in range(min(settings.minibatches, len(episodes))):
            chosen = episodes[part :: settings.minibatches]
            yield [number for episode in chosen for number in by_episode[episode]]
