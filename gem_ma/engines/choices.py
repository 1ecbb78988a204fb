"""Constrained choice: which ids may come next so that an answer ends as one of some given ones. Knows ids only.

The sampler walks the tree as it samples, a learner walks it along what was sampled, so both see the same mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

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
