"""Constrained choice: which ids may come next so that an answer ends as one of a list.

The sampler walks the tree as it samples, and a learner walks it along what was sampled, so both see
the same mask.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.parsing import parse_legal

MOST_TREES = 4096  # sets of legal strings whose trees are kept; the oldest goes first

Tree = dict[int, Any]  # id -> what may follow it; {} after the last


class IdSet:
    """A set of ids of a vocabulary, one bit each: for sets that hold most of it. Sets of the same
    ids are equal."""

    __slots__ = ("_hash", "_size", "bits", "vocabulary")

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        self.bits = np.packbits(mask).tobytes()
        self.vocabulary = len(mask)
        # A learner hashes the set of every token of a row, and large ones have 20 kB of bits.
        self._size, self._hash = int(mask.sum()), hash(self.bits)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """[vocabulary], true at its ids."""
        bits = np.unpackbits(np.frombuffer(self.bits, np.uint8), count=self.vocabulary)
        return bits.astype(np.bool_)

    def __contains__(self, token: int) -> bool:
        # numpy packs the first id into the highest bit of the first byte
        return 0 <= token < self.vocabulary and bool(self.bits[token >> 3] >> (7 - (token & 7)) & 1)

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self.mask).tolist())

    def __len__(self) -> int:
        return self._size

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        # Most sets come out of one cache, so they are the same object.
        return self is other or (
            isinstance(other, IdSet)
            and self.vocabulary == other.vocabulary
            and self.bits == other.bits
        )


class Walk(Protocol):
    """What may come next in one answer, where that is not a tree. `among()`: the ids, None = any.
    `after(id)` goes on past an id."""

    def among(self) -> IdSet | None: ...
    def after(self, token: int) -> None: ...


def among(choices: Tree | Walk | None) -> Tree | IdSet | None:
    """The ids that may come next; None = anything that is ever sampled."""
    return choices if choices is None or isinstance(choices, dict) else choices.among()


def tree_of(answers: Iterable[Sequence[int]]) -> Tree:
    """The answers as a tree that shares their beginnings.

    >>> tree_of([(5, 9), (5, 7, 9)])
    {5: {9: {}, 7: {9: {}}}}
    """
    root: Tree = {}
    for answer in answers:
        here = root
        # Every answer ends with an end of turn, so none of them is the beginning of another.
        for token in answer:
            here = here.setdefault(token, {})
    return root


def allowed_along(tree: Tree, ids: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
    """What was allowed at each of these ids. None where they leave the tree: then they were not
    constrained by it.

    >>> allowed_along(tree_of([(5, 9), (5, 7, 9)]), (5, 9))
    ((5,), (9, 7))
    >>> allowed_along(tree_of([(5, 9)]), (5, 8)) is None
    True
    """
    allowed = []
    for token in ids:
        # An answer that was sampled before the policy was bound, or is not a legal string.
        if token not in tree:
            return None
        allowed.append(tuple(tree))
        tree = tree[token]
    return tuple(allowed)


class Choices:
    """The trees of legal strings as one chat writes them, the end of turn included. `answer(text)`
    gives the ids of an answer, `text(ids)` what they are read as; `sampled(ids)` is false where one
    of them is never sampled."""

    def __init__(
        self,
        answer: Callable[[str], tuple[int, ...]],
        sampled: Callable[[Sequence[int]], bool],
        text: Callable[[Sequence[int]], str],
        where: str,
    ) -> None:
        self.answer = answer
        self.sampled = sampled
        self.text = text
        self.where = where
        self._known: OrderedDict[tuple[str, ...], tuple[Tree, int]] = OrderedDict()

    def tree(self, legal: tuple[str, ...]) -> tuple[Tree, int]:
        """What may be sampled, and the length of the longest answer in tokens. Raises ConfigError
        where the tokenizer cannot write these strings so that they are told apart."""
        known = self._known.get(legal)
        if known is None:
            answers = {choice: self.answer(choice) for choice in legal}
            self._check(legal, answers)
            known = tree_of(answers.values()), max(map(len, answers.values()))
            self._known[legal] = known
            # By age, not by use: a game asks for the same few sets all the time.
            if len(self._known) > MOST_TREES:
                self._known.popitem(last=False)
        return known

    def _check(self, legal: tuple[str, ...], answers: dict[str, tuple[int, ...]]) -> None:
        for choice, ids in answers.items():
            if not self.sampled(ids):
                raise ConfigError(
                    f"{self.where}: the tokenizer has no word for the legal string {choice!r}; "
                    "use a model that knows it, or leave out `constrain: legal`"
                )
        if len(set(answers.values())) < len(answers):
            raise ConfigError(
                f"{self.where}: the tokenizer writes two legal strings alike, so they cannot be"
                f" told apart: {legal}"
            )
        for choice, ids in answers.items():
            # What counts is the choice that the agent will read; letter case may get lost.
            if (read := self.text(ids)) != choice and parse_legal(read, legal) != choice:
                what = f"the legal string {choice!r} would be read back as {read!r}"
                raise ConfigError(
                    f"{self.where}: {what}; change the string, or leave out `constrain: legal`"
                )
