"""The turns that one policy learns from, as columns. `gem_ma.credit` fills the table from records,
estimators read it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Image, Message, ToolCall, Turn, spoken


def view_digest(episode: Episode, agent: str, before: Turn | None = None) -> str:
    """Digest of all that an agent had seen and said, tool calls and images included, up to its
    turn `before`, or up to the end of the episode: two turns with one digest are one state, as far
    as the agent can know."""
    # 64 bits: among a million views two share a digest once in 37 million runs
    digest = hashlib.blake2b(digest_size=8)
    for turn in (turn for turn in episode.turns if turn.agent == agent):
        _digest(digest, turn.observed)
        if before is not None and turn.step == before.step:
            return digest.hexdigest()
        _digest(digest, (spoken(agent, turn.action),))
    _digest(digest, episode.final.get(agent, ()))
    return digest.hexdigest()


def observation_digest(turn: Turn) -> str:
    """Digest of what the agent was shown since its turn before: the state, where the world tells
    it anew at every turn."""
    digest = hashlib.blake2b(digest_size=8)
    _digest(digest, turn.observed)
    return digest.hexdigest()


def _digest(digest: hashlib.blake2b, messages: Iterable[Message]) -> None:
    for message in messages:
        # separators that no text holds, so that "ab" + "c" is not "a" + "bc"
        digest.update(f"{message.sender}\0{message.text}\1".encode())
        for call in message.tool_calls:  # without its id, which servers draw
            if isinstance(call, ToolCall):
                text = f"{call.name} {json.dumps(call.arguments, sort_keys=True, default=str)}"
            else:
                text = call.text
            digest.update(f"{text}\2".encode())
        for part in message.content if not isinstance(message.content, str) else ():
            if isinstance(part, Image):
                digest.update(f"{part.digest}\3".encode())


# Columns that may form a group.
KEYS = (
    *("policy", "scenario", "task", "group", "episode"),
    *("agent", "k", "step", "version", "state_key", "observation"),
)
_COLUMNS: dict[str, Any] = {
    **dict.fromkeys(("scenario", "task", "group", "agent", "policy"), np.str_),
    **dict.fromkeys(("episode", "k", "K", "step", "version"), np.int64),
    **dict.fromkeys(("reward", "ret", "total", "value", "tail_value"), np.float64),
    "cut": np.bool_,
}


# N arrays and not N objects: estimators work on whole columns
@dataclass(frozen=True, slots=True)
class TurnTable:
    """The turns that train one policy, as columns of length N; what every estimator receives.

    `episode` is the index into the sequence that was given to `turns`; `group` is the episode's
    group, or scenario, task and seed where it names none. `k` counts from 0. `ret` is the
    discounted return-to-go G, `total` the undiscounted sum of the agent's rewards in the
    episode. `cut` marks turns whose reply was cut by its token limit. `before` and `elsewhere`
    are by (episode, agent) and hold every agent of the policy, also one that never acted.
    `excluded` counts episodes by the reason that kept them out.
    """

    turns: tuple[Turn, ...] = ()
    episodes: tuple[Episode, ...] = ()
    episode: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    scenario: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, np.str_))
    task: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, np.str_))
    group: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, np.str_))
    agent: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, np.str_))
    policy: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, np.str_))
    k: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    K: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    step: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    reward: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    ret: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    total: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    value: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    tail_value: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    version: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    cut: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    before: Mapping[tuple[int, str], float] = field(default_factory=dict)
    elsewhere: Mapping[tuple[int, str], float] = field(default_factory=dict)
    excluded: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        rows: Sequence[Mapping[str, Any]],
        before: Mapping[tuple[int, str], float],
        elsewhere: Mapping[tuple[int, str], float],
        excluded: Mapping[str, int],
    ) -> TurnTable:
        """The table of these rows, in their order: the columns of each, its `turn` and `source`."""
        # with a dtype each: a table of no rows has the same columns as any other
        columns: dict[str, Any] = {
            name: np.array([row[name] for row in rows], dtype) for name, dtype in _COLUMNS.items()
        }
        return cls(
            tuple(row["turn"] for row in rows),
            tuple(row["source"] for row in rows),
            **columns,
            before=before,
            elsewhere=elsewhere,
            excluded=dict(excluded),
        )

    def __len__(self) -> int:
        return len(self.turns)

    def column(self, name: str) -> NDArray[Any]:
        """A key column [N] by name; `state_key` is a digest of the agent's whole view at the
        turn, `observation` of what it was shown last."""
        # computed when asked for: most estimators group by columns that stand there already
        if name == "observation":
            return np.array([observation_digest(turn) for turn in self.turns], np.str_)
        if name == "state_key":
            pairs = zip(self.episodes, self.turns, strict=True)
            return np.array([view_digest(e, t.agent, t) for e, t in pairs], np.str_)
        if name not in KEYS:
            raise ConfigError(
                f"no key column is called {name!r}; key columns are {', '.join(KEYS)}"
            )
        return np.asarray(getattr(self, name))

    def take(self, rows: Sequence[int] | NDArray[Any]) -> TurnTable:
        """The table of these rows (indices, or a mask [N]), in the order given."""
        # numpy reads [] as floats, which are not indices
        index = np.arange(len(self))[np.asarray(rows)] if len(rows) else np.zeros(0, np.int64)
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        changed: dict[str, Any] = {
            name: one[index] for name, one in columns.items() if isinstance(one, np.ndarray)
        }
        return replace(
            self,
            turns=tuple(self.turns[i] for i in index),
            episodes=tuple(self.episodes[i] for i in index),
            **changed,
        )
