"""Packing: every trained token exactly once, whatever is shared."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from gem_ma.training.learner.packing import BRANCHED, packs
from gem_ma.training.learner.rows import Row


def row(ids: Sequence[int], trained: Sequence[int]) -> Row:
    mask = np.isin(np.arange(len(ids)), trained)
    zeros = np.zeros(len(ids))
    return Row(
        ("t", 0, 0),
        np.array(ids),
        mask,
        zeros,
        zeros,
        np.where(mask, 0, -1),
        np.zeros(len(ids), np.int64),
    )


def seen_by_tokens(rows: Sequence[Row], *, tokens: int, share: bool) -> list[tuple[list[int], int]]:
    """For every trained token of the rows, in their order: (ids that its logits see, by place;
    its own id)."""
    result: dict[int, tuple[list[int], int]] = {}
    for pack in packs(rows, tokens=tokens, share=share):
        for token, order in zip(pack.token, pack.order, strict=True):
            line, at = pack.row[token], pack.position[token]
            before = np.arange(at + 1)
            if pack.branch is not None and pack.place is not None:
                before = before[
                    (pack.branch[line, : at + 1] == 0)
                    | (pack.branch[line, : at + 1] == pack.branch[line, at])
                ]
                # positions count on without holes
                assert pack.place[line, before].tolist() == list(range(len(before)))
            assert int(order) not in result
            result[int(order)] = (pack.ids[line, before].tolist(), int(pack.target[token]))
    return [result[at] for at in range(len(result))]


def plainly(rows: Sequence[Row]) -> list[tuple[list[int], int]]:
    return [
        (one.ids[:at].tolist(), int(one.ids[at])) for one in rows for at in np.flatnonzero(one.mask)
    ]


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_each_trained_token_sees_exactly_what_came_before_it_in_its_row(
    seed: int, share: bool
) -> None:
    rng = random.Random(seed)
    made = []
    for _ in range(rng.randint(1, 20)):
        prompt = [[1, 2, 3], [1, 2], [4] * rng.randint(1, 30)][rng.randrange(3)]
        body = [rng.randrange(1, 4) for _ in range(rng.randint(1, 6))]
        trained = sorted(
            {
                len(prompt),
                *rng.sample(range(len(prompt), len(prompt) + len(body)), rng.randint(0, len(body))),
            }
        )
        made.append(row(prompt + body, trained))
    assert seen_by_tokens(made, tokens=rng.choice([8, 64, 4096]), share=share) == plainly(made)


def test_equal_rows_and_equal_prompts_are_computed_once() -> None:
    made = [
        row([1, 2, 3, 7, 8], [3, 4]),
        row([1, 2, 3, 9, 8], [3, 4]),
        row([1, 2, 3, 7, 8], [3, 4]),
    ]
    (pack,) = packs(made, tokens=4096)
    assert pack.ids.tolist() == [[1, 2, 3, 7, 9]]  # the last id of a row is never fed
    assert len(pack.target) == 4
    assert len(pack.order) == 6


def test_equal_ids_with_different_masks_stay_apart() -> None:
    made = [row([1, 2, 3, 4], [1, 3]), row([1, 2, 3, 4], [1, 2, 3])]
    assert seen_by_tokens(made, tokens=4096, share=True) == plainly(made)


def test_a_pass_holds_no_more_padded_positions_than_asked_and_long_rows_share_nothing() -> None:
    rng = random.Random(0)
    made = [row([5] * 40 + [rng.randrange(9) for _ in range(20)], range(40, 60)) for _ in range(40)]
    for pack in packs(made, tokens=500):
        assert pack.ids.size <= 500
        assert pack.ids.shape[1] <= BRANCHED
    long = [row([5] * 300 + [at], [300]) for at in range(3)]
    assert [pack.ids.shape for pack in packs(long, tokens=100)] == [(1, 300)] * 3
    assert list(packs([], tokens=100)) == []
