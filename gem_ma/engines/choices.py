"""Constrained choice: which ids may come next so that an answer ends as one of some given ones. Knows ids only,
and asks whether they are read as what they stand for.

The sampler walks the tree as it samples, a learner walks it along what was sampled, so both see the same mask.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gem_ma.errors import ConfigError
from gem_ma.parsing import parse_legal

KEPT = 4096  # sets of legal strings

Tree = dict[int, Any]  # id -> what may follow it; {} after the last


def tree_of(answers: Iterable[Sequence[int]]) -> Tree:
    """The answers as a tree that shares their beginnings.

    >>> tree_of([(5, 9), (5, 7, 9)])
    {5: {9: {}, 7: {9: {}}}}
    """
    root: Tree = {}
    for answer in answers:
        here = root
        for token in answer:
            here = here.setdefault(token, {})
    return root


def allowed_along(tree: Tree, ids: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
    """What was allowed at each of these ids, or None where they leave the tree and so were never constrained by it.

    >>> allowed_along(tree_of([(5, 9), (5, 7, 9)]), (5, 9))
    ((5,), (9, 7))
    >>> allowed_along(tree_of([(5, 9)]), (5, 8)) is None
    True
    """
    allowed = []
    for token in ids:
        if token not in tree:
            return None
        allowed.append(tuple(tree))
        tree = tree[token]
    return tuple(allowed)


class Choices:
    """The trees of legal strings as one chat writes them, the end of turn included. The last ones asked for are kept.

    `answer(text)` gives the ids of an answer, `text(ids)` what they are read as; `sampled(ids)` is false where one of them is never sampled.
    """

    def __init__(
        self, answer: Callable[[str], tuple[int, ...]], sampled: Callable[[Sequence[int]], bool], text: Callable[[Sequence[int]], str], where: str
    ) -> None:
        self.answer, self.sampled, self.text, self.where = answer, sampled, text, where
        self._known: OrderedDict[tuple[str, ...], tuple[Tree, int]] = OrderedDict()

    def tree(self, legal: tuple[str, ...]) -> tuple[Tree, int]:
        """What may be sampled, and the length of the longest answer in tokens.

        Raises ConfigError where the tokenizer has no word for a legal string, writes two of them alike, or writes one that is read as another text.
        """
        known = self._known.get(legal)
        if known is None:
            answers = {choice: self.answer(choice) for choice in legal}
            for choice, ids in answers.items():
                if not self.sampled(ids):
                    raise ConfigError(
                        f"{self.where}: the tokenizer has no word for the legal string {choice!r}; "
                        "use a model that knows it, or leave out `constrain: legal`"
                    )
            if len(set(answers.values())) < len(answers):
                raise ConfigError(f"{self.where}: the tokenizer writes two legal strings alike, so they cannot be told apart: {legal}")
            for choice, ids in answers.items():
                if (read := self.text(ids)) != choice and parse_legal(read, legal) != choice:
                    what = f"the legal string {choice!r} would be read back as {read!r}"
                    raise ConfigError(f"{self.where}: {what}; change the string, or leave out `constrain: legal`")
            known = tree_of(answers.values()), max(map(len, answers.values()))
            self._known[legal] = known
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        return known
