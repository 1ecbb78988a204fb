"""Recorded replies of the table engine as arrays: each is one choice; its key names a row of
logits, its token the index (`gem_ma.engines.small.table`). Axis: N choices sampled in a batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gem_ma.engines.small.table import Array
from gem_ma.kernel.errors import EngineError
from gem_ma.training.learner.rows import Turns
from gem_ma.training.learner.sampled import Sampled, start_of
from gem_ma.training.learner.table_average import Path


class Batch(NamedTuple):
    """Sampled choices: `keys` names the V views, the arrays are [N]; `turn` counts the rows of
    the turn table."""

    keys: list[int]
    view: NDArray[np.int64]
    choice: NDArray[np.int64]
    sampled: Array
    advantage: Array
    episode: NDArray[np.int64]
    part: NDArray[np.int64]  # one agent's part in one episode
    turn: NDArray[np.int64]
    version: NDArray[np.int64]
    start: NDArray[np.int64]
    group: NDArray[np.int64]  # the parts of one agent from one start

    def tokens(self) -> Sampled:
        """The columns that a loss sees: each choice is one token."""
        return Sampled(self.advantage, self.sampled, self.turn, self.part, self.group)


def checked_advantages(policy: str, table: Turns, advantages: Array) -> Array:
    """The advantages [N]. Raises ValueError where they do not fit or are not finite."""
    worth = np.asarray(advantages, np.float64)
    if worth.shape != (len(table.turns),):
        raise ValueError(
            f"there must be one advantage per turn; got shape {worth.shape} for"
            f" {len(table.turns)} turns"
        )
    if not np.isfinite(worth).all():
        bad = sorted({table.episodes[n].id for n in np.flatnonzero(~np.isfinite(worth))})
        raise ValueError(f"policy {policy!r}: advantages are not finite in episodes {bad[:5]}")
    return worth


def batch_of(
    policy: str,
    table: Turns,
    advantages: Array,
    weights: dict[int, Array],
    paths: dict[int, Path],
) -> Batch | None:
    """The choices that this policy made in these turns; None where it made none.

    A view that is met for the first time gets logits of 0 in `weights`, and in `paths` the agent's
    choices before it. Raises EngineError for a reply that the table engine did not sample.
    """
    choices: list[tuple[Any, ...]] = []
    histories: dict[tuple[int, str], list[tuple[int, int]]] = {}
    parts: dict[tuple[int, str], int] = {}
    starts: dict[str, int] = {}
    groups: dict[tuple[str, str], int] = {}
    once = {id(episode): episode for episode in table.episodes}
    numbers = {key: number for number, key in enumerate(once)}
    # in the order of play, so that a history is complete when its view is met
    for n in sorted(range(len(table.turns)), key=lambda n: table.turns[n].step):
        turn = table.turns[n]
        number = numbers[id(table.episodes[n])]
        history = histories.setdefault((number, turn.agent), [])
        part = parts.setdefault((number, turn.agent), len(parts))
        for reply in (reply for reply in turn.replies if reply.policy == policy):
            if {len(reply.prompt_ids), len(reply.token_ids), len(reply.logprobs)} != {1}:
                raise EngineError(
                    f"policy {policy!r}: a reply of episode {table.episodes[n].id} was not"
                    " sampled by the table engine"
                )
            key = reply.prompt_ids[0]
            choice = reply.token_ids[0]
            # a recorded turn may lack its legal strings; then as many as its choice needs
            if key not in weights:
                weights[key] = np.zeros(len(turn.legal or ()) or choice + 1)
            paths.setdefault(key, tuple(history))
            history.append((key, choice))
            sampled = (reply.logprobs[0], advantages[n], number, part, n, reply.version)
            name = start_of(table.episodes[n])
            start = starts.setdefault(name, len(starts))
            group = groups.setdefault((name, turn.agent), len(groups))
            choices.append((key, choice, *sampled, start, group))
    if not choices:
        return None
    keys, *columns = zip(*choices, strict=True)
    names = sorted(set(keys))
    rows = {key: row for row, key in enumerate(names)}
    return Batch(names, np.array([rows[key] for key in keys]), *map(np.array, columns))
