"""Packing: token rows -> few, dense forward passes. numpy only; knows no model.

Three savings that change no result: equal rows are computed once; short rows with the same prompt
share it, as branches of one sequence; sequences of similar length lie together, padded on the
right, where a causal model's trained tokens never look.

Axes: U sequences of T positions in one pass, m different trained places, n trained tokens of all
rows (equal rows included).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gem_ma.engines.local.sampling import IdSet
from gem_ma.training.learner.rows import Allowed, Row

PADDING = 128  # padded positions that cost less than a pass of its own
# positions of a sequence that shares its prompt; longer ones would pay in attention what they save
BRANCHED = 256


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """One forward pass.

    `ids` [U, T]. `branch` and `place` [U, T], or None where nothing is shared: a position sees
    what lies before it in branch 0 (the prompt) and in its own branch; `place` is its position
    id. The k-th of m trained ids is `target[k]`, read from the logits at [`row[k]`,
    `position[k]`]. Trained token `order[j]` of the given rows is the place `token[j]`. `used` of
    the U * T positions are not padding. `allowed`: per place, () where nothing is constrained.
    """

    ids: NDArray[np.int64]
    branch: NDArray[np.int64] | None
    place: NDArray[np.int64] | None
    row: NDArray[np.int64]
    position: NDArray[np.int64]
    target: NDArray[np.int64]
    token: NDArray[np.int64]
    order: NDArray[np.int64]
    used: int
    allowed: Allowed = ()


class _Sequence:
    """One sequence under construction: a prompt and its branches. The last id of a row is a
    target only and is not fed."""

    __slots__ = ("copies", "length", "prompt", "rows")

    def __init__(self, row: Row, prompt: int, copies: list[int]) -> None:
        self.prompt = prompt
        self.length = len(row.ids) - 1
        self.rows = [row]
        self.copies = [copies]

    def add(self, row: Row, copies: list[int]) -> None:
        self.rows.append(row)
        self.copies.append(copies)
        self.length += len(row.ids) - 1 - self.prompt


def packs(
    rows: Sequence[Row], *, tokens: int, share: bool = True, part: tuple[int, int] = (0, 1)
) -> Iterator[Pack]:
    """Passes of at most `tokens` padded positions (a longer row has one of its own) that hold every
    trained token exactly once.

    `part` (k, n): the k-th of n shares of them, which together hold every token once.
    """
    starts = np.cumsum([0, *(int(row.mask.sum()) for row in rows)])
    # every n-th of the sorted ones, so that the shares of all processes take about as long
    made = sorted(_sequences(rows, share), key=lambda sequence: sequence.length)[part[0] :: part[1]]
    # apart, since a mask of branches costs every sequence of its pass twice the attention
    for branched in (False, True):
        sequences = [one for one in made if (len(one.rows) > 1) is branched]
        while sequences:
            # the next one is the longest: all before it would be padded to its length
            take = 1
            filled = sequences[0].length
            while take < len(sequences):
                length = sequences[take].length
                filled += length
                if (take + 1) * length > tokens or (take + 1) * length - filled > max(
                    PADDING, filled // 16
                ):
                    break
                take += 1
            yield _pack(sequences[:take], starts)
            sequences = sequences[take:]


def _sequences(rows: Sequence[Row], share: bool) -> list[_Sequence]:
    # equal rows are common: greedy games repeat themselves, and a small one has few plays
    same: dict[tuple[bytes, bytes, Allowed], list[int]] = {}
    for at, row in enumerate(rows):
        same.setdefault((row.ids.tobytes(), row.mask.tobytes(), row.allowed), []).append(at)
    made: list[_Sequence] = []
    growing: dict[bytes, _Sequence] = {}
    for copies in same.values():
        row = rows[copies[0]]
        prompt = int(row.mask.argmax())
        key = row.ids[:prompt].tobytes()
        sequence = growing.get(key) if share else None
        if sequence is not None and sequence.length + len(row.ids) - 1 - prompt <= BRANCHED:
            sequence.add(row, copies)
        else:
            growing[key] = _Sequence(row, prompt, copies)
            made.append(growing[key])
    return made


def _pack(sequences: list[_Sequence], starts: NDArray[np.int64]) -> Pack:
    shape = len(sequences), sequences[-1].length
    ids, branch, place = np.zeros((3, *shape), np.int64)
    parts: tuple[list[NDArray[np.int64]], ...] = ([], [], [], [], [])
    row_of, position, target, token, order = parts
    allowed: list[tuple[int, ...] | IdSet | None] = []
    places = 0
    for index, sequence in enumerate(sequences):
        prompt = sequence.prompt
        end = prompt
        ids[index, :prompt] = sequence.rows[0].ids[:prompt]
        place[index, :prompt] = np.arange(prompt)
        for number, (row, copies) in enumerate(zip(sequence.rows, sequence.copies, strict=True), 1):
            body = len(row.ids) - 1 - prompt
            ids[index, end : end + body] = row.ids[prompt:-1]
            branch[index, end : end + body] = number
            # every branch counts on from the prompt, as if it stood alone behind it
            place[index, end : end + body] = np.arange(prompt, prompt + body)
            where = np.flatnonzero(row.mask) - 1  # an id is predicted one place before its own
            position.append(np.where(where < prompt, where, where - prompt + end))
            row_of.append(np.full(len(where), index, np.int64))
            target.append(row.ids[where + 1])
            allowed += row.allowed or [None] * len(where)
            for copy in copies:
                token.append(np.arange(places, places + len(where)))
                order.append(np.arange(starts[copy], starts[copy + 1]))
            places += len(where)
            end += body
    shared = any(len(sequence.rows) > 1 for sequence in sequences)
    rows_of, positions, targets, tokens, orders = (np.concatenate(column) for column in parts)
    used = sum(one.length for one in sequences)
    bound = tuple(allowed) if any(allowed) else ()
    return Pack(
        ids,
        branch if shared else None,
        place if shared else None,
        rows_of,
        positions,
        targets,
        tokens,
        orders,
        used,
        bound,
    )
