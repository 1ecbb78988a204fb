"""What the ids of a model mean: which end a turn, which are never sampled, what text they make."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gem_ma.engines.models.vocabulary import Vocabulary, end_ids
from gem_ma.kernel.errors import DataError

WORDS = 10  # ids with a token; the head has more rows


class Tokenizer:
    eos_token_id = 2

    def __len__(self) -> int:
        return WORDS


def chat(marks: frozenset[int] = frozenset()) -> Any:
    """A chat whose control tokens are 0 to 4, of which 2 ends a turn; the text of 5 is a, ..."""
    return SimpleNamespace(
        ends=frozenset({2}),
        marks=marks,
        tokenizer=Tokenizer(),
        template=SimpleNamespace(controls=dict.fromkeys(range(5), "<x>")),
        text=lambda ids: "".join(chr(ord("a") + token - 5) for token in ids),
    )


@pytest.mark.parametrize(
    ("configured", "ends"), [(None, {2}), (7, {2, 7}), ([7, 8], {2, 7, 8}), ([], {2})]
)
def test_a_turn_ends_with_what_config_or_tokenizer_name(configured: Any, ends: set[int]) -> None:
    assert end_ids(Tokenizer(), configured, "m", "policy 'p'") == ends


def test_a_model_that_names_no_end_is_refused_with_its_policy_and_a_remedy() -> None:
    silent = SimpleNamespace(eos_token_id=None)
    with pytest.raises(DataError, match=r"^policy 'p': m names no end-of-turn token; set eos_"):
        end_ids(silent, [None], "m", "policy 'p'")


def test_control_tokens_rows_without_a_token_and_named_ids_are_banned_and_ends_and_marks_free() -> (
    None
):
    assert Vocabulary.of(chat(), WORDS).banned == {0, 1, 3, 4}
    assert Vocabulary.of(chat(frozenset({3})), WORDS + 2).banned == {0, 1, 4, 10, 11}
    assert Vocabulary.of(chat(), WORDS, [6, 99]).banned == {0, 1, 3, 4, 6}
    # a tokenizer may have more tokens than the head has rows
    assert Vocabulary.of(chat(), 4).banned == {0, 1, 3}


@pytest.mark.parametrize("size", [WORDS, WORDS + 3, 4])
def test_the_mask_takes_banned_ids_and_no_others(size: int) -> None:
    torch = pytest.importorskip("torch", reason="needs the train extra")
    vocabulary = Vocabulary.of(chat(), size)
    mask = vocabulary.mask(torch, "cpu")
    assert mask.shape == (size,) and mask.dtype == torch.float32
    assert set((mask == -torch.inf).nonzero()[:, 0].tolist()) == vocabulary.banned
    assert set(mask.unique().tolist()) == {-float("inf"), 0.0}
    free = Vocabulary(size, frozenset(), frozenset(), str)
    assert not free.mask(torch, "cpu").any()


@pytest.mark.parametrize(
    ("ids", "stop", "text"),
    [
        ((5, 6, 7), (), "abc"),
        ((5, 6, 2), (), "ab"),  # the end is no text
        ((2,), (), ""),
        ((), ("a",), ""),
        ((5, 6, 7), ("c", "b"), "a"),  # the first place, not the first string
        ((5, 6, 7), ("", "z"), "abc"),
    ],
)
def test_text_ends_before_the_end_token_and_the_first_stop_string(
    ids: tuple[int, ...], stop: tuple[str, ...], text: str
) -> None:
    assert Vocabulary.of(chat(), WORDS).cut(ids, stop) == text
