"""Kept KV and the running batch: what is computed, what is reused, what is dropped, and that no
result depends on it."""

from __future__ import annotations

import asyncio
import copy
import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs the train extra")

from gem_ma.engines.batching import Batched  # noqa: E402
from gem_ma.engines.local.decoding import Decoder  # noqa: E402
from gem_ma.engines.local.kv_cache import KVCache  # noqa: E402
from gem_ma.engines.local.sampling import Draw, Source, allowed_along, tree_of  # noqa: E402  # noqa: E402
from gem_ma.kernel.errors import EngineError  # noqa: E402
from gem_ma.kernel.types import Action, Message, Reply, Request, Sampling, spoken  # noqa: E402

ID = torch.arange(1000.0)


def states_of(ids: Sequence[int], start: int = 0) -> Any:
    """A tensor [2, 1, T, 1] that tells which ids it belongs to, and at which place they stand."""
    places = torch.arange(float(start), float(len(ids)))
    return torch.stack([ID[list(ids[start:])], places])[:, None, :, None]


def told(kept: KVCache, owner: str, ids: Sequence[int]) -> tuple[list[int], list[int]]:
    path, length = kept.find(owner, ids)
    parts = [segment.states[:, 0, :count, 0] for segment, count in path]
    found = torch.cat(parts, 1) if parts else torch.zeros(2, 0)
    assert found.shape[1] == length
    return found[0].int().tolist(), found[1].int().tolist()


@pytest.mark.long
@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 2), min_size=1, max_size=9)),
        max_size=25,
    ),
    st.data(),
)
def test_what_is_found_is_the_longest_kept_beginning_with_its_own_states(
    sequences: list[tuple[str, list[int]]], data: Any
) -> None:
    kept = KVCache(10_000)
    for owner, ids in sequences:
        kept.keep(owner, tuple(ids), lambda start, ids=ids: states_of(ids, start))
    asked = data.draw(st.lists(st.integers(0, 2), max_size=12))
    for owner in "ab":
        mine = [ids for other, ids in sequences if other == owner]
        longest = max(
            (
                n
                for n in range(len(asked) + 1)
                if any(ids[:n] == asked[:n] for ids in mine if len(ids) >= n)
            ),
            default=0,
        )
        assert told(kept, owner, asked) == (asked[:longest], list(range(longest)))
    prefixes = {(owner, tuple(ids[: n + 1])) for owner, ids in sequences for n in range(len(ids))}
    assert kept.tokens == len(prefixes)  # nothing is held twice


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), max_size=40), st.integers(0, 30)
)
def test_never_more_than_the_limit_is_kept_and_what_is_left_is_whole(
    sequences: list[list[int]], limit: int
) -> None:
    kept = KVCache(limit)
    for ids in sequences:
        kept.keep("a", tuple(ids), lambda start, ids=ids: states_of(ids, start))
        assert kept.tokens <= limit
        found, places = told(kept, "a", ids)
        assert found == ids[: len(found)] and places == list(range(len(found)))


def test_what_was_used_longest_ago_goes_first() -> None:
    kept = KVCache(16)
    for first in (1, 2, 3):
        kept.keep("a", (first, *range(10, 14)), lambda start: states_of(range(5), start))
    assert kept.find("a", (1, 10))[1] == 2  # used again
    kept.keep("a", (4, 10, 11), lambda start: states_of(range(3), start))
    assert [kept.find("a", (first, 10, 11))[1] for first in (1, 2, 3, 4)] == [3, 0, 3, 3]


def test_what_one_owner_has_computed_can_be_dropped_alone() -> None:
    kept = KVCache(100)
    for owner in "ab":
        kept.keep(owner, (1, 2, 3), lambda start: states_of((1, 2, 3), start))
        kept.keep(owner, (1, 2, 4, 5), lambda start: states_of((1, 2, 4, 5), start))
    assert kept.tokens == 10
    kept.drop("a")
    kept.drop("nobody")
    assert (kept.tokens, kept.find("a", (1, 2, 3))[1], kept.find("b", (1, 2, 4, 5))[1]) == (5, 0, 4)


# -- with a model --------------------------------------------------------------------------------


@pytest.fixture
def decoder(byte_model: Path) -> Iterator[Decoder]:
    from gem_ma.engines.local.transformers import Transformers

    engine = Transformers(str(byte_model), policy="main")
    made = copy.copy(engine.decoder)
    made.model = Counting(engine.model)
    yield made


class Counting:
    """A module that counts the tokens that it is fed, padding included, and its passes."""

    def __init__(self, model: Any) -> None:
        self.model, self.passes = model, list[tuple[int, int]]()

    def __call__(self, **given: Any) -> Any:
        self.passes.append(tuple(given["input_ids"].shape))
        return self.model(**given)

    def parameters(self) -> Any:
        return self.model.parameters()


def some(seed: int, count: int) -> tuple[int, ...]:
    rng = random.Random(seed)
    return tuple(rng.randrange(10, 300) for _ in range(count))


def row(
    decoder: Decoder, prompt: tuple[int, ...], seed: int = 0, max_tokens: int = 6, **options: Any
) -> Draw:
    return decoder.draw(
        prompt, Sampling(max_tokens=max_tokens), seed, Source(), **{"keep": True, **options}
    )


def plain(decoder: Decoder, draw: Draw) -> float:
    """The largest gap of a row's log-probabilities to one forward pass without a cache, padding
    or batch."""
    whole = torch.tensor([[*draw.prompt, *draw.ids]])
    with torch.no_grad():
        logits = decoder.model.model(whole, use_cache=False).logits[0, len(draw.prompt) - 1 : -1]
    expected = (
        (logits + decoder.banned).log_softmax(-1).gather(1, torch.tensor(draw.ids)[:, None])[:, 0]
    )
    return float((expected - torch.tensor(draw.logprobs)).abs().max())


def talk(
    decoder: Decoder, kv_tokens: int | None, talks: int = 5, turns: int = 4
) -> list[list[Draw]]:
    """Ragged talks: prompts and replies of different lengths, some end early; each turn goes on
    from all before."""
    decoder = copy.copy(decoder)
    decoder.kv_tokens = kv_tokens
    prompts = [some(talk, 3 + 17 * talk) for talk in range(talks)]
    said: list[list[Draw]] = []
    for turn in range(turns):
        draws = [
            row(decoder, prompt, 100 * turn + n, 2 + (5 * n + turn) % 9)
            for n, prompt in enumerate(prompts)
        ]
        decoder.finish(draws)
        said.append(draws)
        prompts = [
            (*draw.prompt, *draw.ids, *some(1000 + turn, 1 + (7 * n + 3 * turn) % 11))
            for n, draw in enumerate(draws)
        ]
    return said


@pytest.mark.long
def test_talks_sample_the_same_with_and_without_reuse_and_are_those_of_the_plain_pass(
    decoder: Decoder,
) -> None:
    kept, anew = talk(decoder, None), talk(decoder, 0)
    for mine, others in zip(kept, anew, strict=True):
        for draw, other in zip(mine, others, strict=True):
            assert (draw.prompt, draw.ids, draw.finish) == (other.prompt, other.ids, other.finish)
            assert plain(decoder, draw) < 1e-5
            assert other.cached == 0
    for before, after in itertools.pairwise(kept):
        # the last one was never fed
        assert [draw.cached for draw in after] == [
            len(draw.prompt) + len(draw.ids) - 1 for draw in before
        ]


def test_one_token_is_computed_with_its_queries_packed_in_half_precision(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 heads of queries, 2 of keys: packed they are [B, 2, 2, D], whether the library's own mask
    hides anything or not."""
    from gem_ma.engines.local.transformers import Transformers
    from gem_ma.engines.models.loading import How

    shapes: list[tuple[int, ...]] = []
    attention = torch.nn.functional.scaled_dot_product_attention

    def seen(query: Any, *others: Any, **options: Any) -> Any:
        shapes.append(tuple(query.shape[1:3]))
        return attention(query, *others, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", seen)
    for dtype, one in (("bfloat16", (2, 2)), ("float32", (4, 1))):
        decoder = Transformers(str(byte_model), policy="main", how=How(dtype=dtype)).decoder
        draw = row(decoder, some(1, 40), max_tokens=3)
        shapes.clear()
        decoder.finish([draw])
        # a look at the cache, the prompt, then a token at a time
        assert shapes[-2 * (len(draw.ids) - 1) :] == [one] * 2 * (len(draw.ids) - 1), dtype
        # as one pass over the whole text has them
        with torch.no_grad():
            whole = torch.tensor([[*draw.prompt, *draw.ids]])
            logits = decoder.model(whole, use_cache=False).logits[0, len(draw.prompt) - 1 : -1]
        told = (logits.float() + decoder.banned).log_softmax(-1)
        expected = told.gather(1, torch.tensor(draw.ids)[:, None])[:, 0]
        gap = (expected - torch.tensor(draw.logprobs)).abs().max()
        assert gap < (0.05 if dtype == "bfloat16" else 1e-5)


def test_the_head_is_never_copied_for_the_rows_of_a_batch(decoder: Decoder) -> None:
    """Hidden states that do not lie together would be multiplied one by one."""
    head, strides = decoder.model.model.get_output_embeddings(), list[tuple[int, ...]]()
    hook = head.register_forward_pre_hook(lambda _, given: strides.append(given[0].stride()))
    decoder.finish([row(decoder, some(n, 20 + n), max_tokens=3) for n in range(4)])
    hook.remove()
    width = head.weight.shape[1]
    assert len(strides) > 3 and {stride[0] for stride in strides} == {width}


def test_only_new_tokens_are_fed(decoder: Decoder) -> None:
    first = row(decoder, some(1, 40))
    decoder.finish([first])
    decoder.model.passes.clear()
    decoder.finish([row(decoder, (*first.prompt, *first.ids, 40, 41))])
    assert decoder.model.passes[0] == (1, 3)


def test_equal_prompts_are_computed_once_and_a_long_common_beginning_too(decoder: Decoder) -> None:
    system = some(2, 150)
    # four different, each twice
    draws = [row(decoder, (*system, *some(n // 2, 5)), n) for n in range(8)]
    decoder.finish(draws)
    # the first looks at the cache of the model
    assert decoder.model.passes[1:3] == [(1, 155), (3, 5)]
    assert sum(len(draw.prompt) - draw.cached for draw in draws) == 150 + 4 * 5
    assert max(plain(decoder, draw) for draw in draws) < 1e-5


def test_a_fork_finds_what_the_play_that_it_left_has_computed(decoder: Decoder) -> None:
    first = row(decoder, some(3, 30), max_tokens=9)
    decoder.finish([first])
    other = row(decoder, (*first.prompt[:20], 77, 78), 5)
    decoder.finish([other])
    again = row(decoder, (*first.prompt, *first.ids, 40), 6)
    decoder.finish([again])
    assert (other.cached, again.cached) == (20, 30 + len(first.ids) - 1)
    assert max(plain(decoder, draw) for draw in (other, again)) < 1e-5


def test_what_other_weights_have_computed_is_never_used(decoder: Decoder) -> None:
    first = row(decoder, some(4, 30))
    decoder.finish([first])
    weight = next(iter(decoder.model.parameters()))
    with torch.no_grad():
        weight.add_(0.05)
    after = row(decoder, (*first.prompt, *first.ids, 40))
    decoder.finish([after])
    assert after.cached == 0 and plain(decoder, after) < 1e-5
    # the rest is gone, not only hidden
    assert decoder.kv_cache.tokens == len(after.prompt) + len(after.ids) - 1
    apart = [
        decoder.draw(after.prompt, after.sampling, 0, Source(None, version), keep=True)
        for version in (1, 2)
    ]
    decoder.finish(apart)
    assert [draw.cached for draw in apart] == [0, 0]


def test_forgetting_and_rows_that_are_not_kept_leave_nothing(decoder: Decoder) -> None:
    decoder.finish([row(decoder, some(5, 30))])
    assert decoder.kv_cache.tokens > 30 - 1
    decoder.forget()
    assert decoder.kv_cache.tokens == 0
    decoder.finish([row(decoder, some(5, 30), keep=False)])
    assert decoder.kv_cache.tokens == 0


@pytest.mark.long
def test_what_is_kept_is_bounded_by_the_option(decoder: Decoder) -> None:
    decoder.kv_tokens = 100
    for seed in range(12):
        decoder.finish([row(decoder, some(seed, 40))])
        assert decoder.kv_cache.tokens <= 100
    assert decoder.kv_cache.find(Source(), some(11, 40))[1] == 40


def test_where_the_memory_is_full_all_that_is_kept_goes_and_the_pass_is_made_again(
    decoder: Decoder,
) -> None:
    first = row(decoder, some(6, 30))
    decoder.finish([first])
    module, failed = decoder.model, list[int]()

    class Full(Counting):
        def __call__(self, **given: Any) -> Any:
            if not failed and given["past_key_values"] is None:
                raise torch.OutOfMemoryError("no memory, and nothing is kept")
            if not failed:
                failed.append(1)
                # one layer has taken the new tokens when the memory ends
                layer = given["past_key_values"].layers[0]
                layer.update(layer.keys[:, :, :2], layer.values[:, :, :2])
                raise torch.OutOfMemoryError("no memory")
            return self.model(**given)

    decoder.model = Full(module.model)
    second = row(decoder, (*first.prompt, *first.ids, 40, 41))
    decoder.finish([second])
    assert failed and plain(decoder, second) < 1e-5
    decoder.model = Full(module.model)
    failed.clear()
    decoder.forget()
    with pytest.raises(torch.OutOfMemoryError):
        decoder.finish([row(decoder, some(9, 3))])


# -- the running batch ---------------------------------------------------------------------------


@pytest.mark.long
def test_a_row_that_waits_joins_at_the_next_token_and_one_that_ends_leaves_at_once(
    decoder: Decoder,
) -> None:
    decoder.ends = frozenset()
    long, late = (
        row(decoder, some(7, 20), 1, 30),
        [row(decoder, some(8 + n, 3 + 30 * n), 10 + n, 4) for n in range(3)],
    )
    come, ended = iter([[long], [], [late[0]], [], [late[1], late[2]]]), list[Draw]()
    steps = 0

    def more() -> list[Draw]:
        nonlocal steps
        steps += 1
        return next(come, [])

    decoder.run(more, lambda draw: ended.append(draw))
    assert ended[-1] is long and set(map(id, ended[:3])) == set(map(id, late))
    assert steps == 31  # one look before each token of the longest, and a last one
    for draw in (long, *late):
        alone = row(
            decoder, draw.prompt, draws_seed(draw, long, late), draw.sampling.max_tokens, keep=False
        )
        decoder.finish([alone])
        assert alone.ids == draw.ids and plain(decoder, draw) < 1e-5


def draws_seed(draw: Draw, long: Draw, late: list[Draw]) -> int:
    return 1 if draw is long else 10 + late.index(draw)


@pytest.mark.long
def test_no_more_rows_run_together_than_fit_and_none_is_starved(decoder: Decoder) -> None:
    decoder.padded_tokens = 120
    # the last ones do not fit even alone
    draws = [row(decoder, some(n, 5 + 9 * n), n, 8) for n in range(10)]
    decoder.finish(draws)
    assert all(len(draw.ids) == 8 or draw.finish == "stop" for draw in draws)
    assert all(rows * width <= 120 or rows == 1 for rows, width in decoder.model.passes)
    assert max(plain(decoder, draw) for draw in draws) < 1e-5


@pytest.mark.long
def test_a_model_whose_cache_slides_is_sampled_without_reuse(
    tmp_path: Path, decoder: Decoder
) -> None:
    import transformers

    config = transformers.MistralConfig(
        vocab_size=decoder.banned.shape[0], hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        head_dim=16, sliding_window=8, max_position_embeddings=256, initializer_range=0.2,
    )  # fmt: skip
    torch.manual_seed(0)
    decoder.model = Counting(transformers.MistralForCausalLM(config).eval())
    draws = [row(decoder, some(n, 5 + 6 * n), n, 12) for n in range(4)]
    given = iter([draws[:2], [], draws[2:]])
    decoder.run(lambda: next(given, []), lambda draw: None)
    assert max(plain(decoder, draw) for draw in draws) < 1e-5
    assert decoder.joins is False and decoder.kv_cache.tokens == 0
    again = row(decoder, (*draws[3].prompt, *draws[3].ids, 40))
    decoder.finish([again])
    assert again.cached == 0 and plain(decoder, again) < 1e-5


# -- choices and stops ---------------------------------------------------------------------------


@pytest.mark.long
def test_a_constrained_row_spells_a_choice_with_the_probability_of_the_masked_distribution(
    decoder: Decoder,
) -> None:
    end = min(decoder.ends)
    answers = [(40, end), (40, 41, end), (50, end)]
    tree, prompt = tree_of(answers), some(3, 20)
    draws = [row(decoder, prompt, seed, choices=tree) for seed in range(200)] + [
        row(decoder, prompt, 1)
    ]
    decoder.finish(draws)
    assert {tuple(draw.ids) for draw in draws[:-1]} == set(answers) and {
        draw.finish for draw in draws[:-1]
    } == {"stop"}
    free = row(decoder, prompt, 1)
    decoder.finish([free])
    assert free.ids == draws[-1].ids  # its neighbours' masks are not its own
    with torch.no_grad():
        logits = decoder.model.model(torch.tensor([prompt])).logits[0, -1]
    expected = float(logits[[40, 50]].log_softmax(0)[1])
    assert all(
        abs(sum(draw.logprobs) - expected) < 1e-5 for draw in draws[:-1] if draw.ids[0] == 50
    )
    assert all(draw.logprobs[1] == 0 for draw in draws[:-1] if draw.ids[0] == 50)  # no choice left
    assert allowed_along(tree, draws[0].ids) is not None


@pytest.mark.long
def test_stop_strings_look_at_the_last_ids_only_and_are_found_across_tokens(
    decoder: Decoder,
) -> None:
    seen: list[int] = []
    text = decoder.text
    pieces = [decoder.text([token], ()) for token in range(3, 320)]

    def counted(ids: Sequence[int], stop: Sequence[str]) -> str:
        seen.append(len(ids))
        return text(ids, stop)

    decoder.text = counted
    free = row(decoder, some(1, 10), 3, 60)
    decoder.finish([free])
    whole = text(free.ids, ())
    marks = [whole[at : at + 6] for at in range(80, len(whole) - 6)]
    # no token holds all of it
    mark = next(
        mark for mark in marks if mark.isascii() and not any(mark in piece for piece in pieces)
    )
    seen.clear()
    stopped = decoder.draw(
        free.prompt, Sampling(max_tokens=60, stop=("~~never~~", mark)), 3, Source()
    )
    decoder.finish([stopped])
    first = next(n for n in range(1, 61) if mark in text(free.ids[:n], ()))
    assert (len(stopped.ids), stopped.finish) == (first, "stop")
    assert sum(seen) < first * 20 + first  # not quadratic


def test_an_empty_prompt_is_refused_and_a_full_context_is_told(decoder: Decoder) -> None:
    with pytest.raises(EngineError, match="empty prompt"):
        row(decoder, ())
    full = row(decoder, some(1, decoder.positions))
    assert (full.room, full.finish) == (0, "context_overflow")
    decoder.finish([full])
    assert full.ids == []


# -- several policies on one base ----------------------------------------------------------------


@pytest.fixture
def pair(byte_model: Path) -> list[Any]:
    """Two policies that differ by their adapters only."""
    pytest.importorskip("peft", reason="needs the train extra")
    from gem_ma.engines.local.transformers import Transformers

    engines = [
        Transformers(str(byte_model), policy=name, lora={"rank": 4}) for name in ("one", "two")
    ]
    generator = torch.Generator().manual_seed(0)
    for engine in engines:
        with torch.no_grad():
            for name, weight in engine.weights().items():
                if ".lora_B." in name:
                    weight.copy_(torch.empty(weight.shape).normal_(0, 0.3, generator=generator))
    return engines


def turns_of(
    engines: Sequence[Any], texts: Sequence[str], said: dict[str, list[Message]]
) -> list[Reply]:
    """The next turn of one talk per policy, all in one free batch; the talks begin alike."""

    async def ask() -> list[Reply]:
        batched = [Batched(engine) for engine in engines]
        asked = []
        for engine in engines:
            said.setdefault(engine.policy, []).extend(map(Message, texts))
            how = Sampling(max_tokens=5)
            asked.append(
                Request(
                    "a",
                    tuple(said[engine.policy]),
                    sampling=how,
                    seed=1,
                    conversation=engine.policy,
                    policy=engine.policy,
                )
            )
        return await asyncio.gather(
            *(one.sample(request) for one, request in zip(batched, asked, strict=True))
        )

    replies = asyncio.run(ask())
    for engine, reply in zip(engines, replies, strict=True):
        said[engine.policy].append(spoken("a", Action(reply.text)))
        whole = torch.tensor([[*reply.prompt_ids, *reply.token_ids]])
        with torch.no_grad(), engine.active():
            logits = engine.model(whole, use_cache=False).logits[0, len(reply.prompt_ids) - 1 : -1]
        expected = (
            (logits + engine.banned)
            .log_softmax(-1)
            .gather(1, torch.tensor(reply.token_ids)[:, None])[:, 0]
        )
        assert float((expected - torch.tensor(reply.logprobs)).abs().max()) < 1e-5
    return replies


@pytest.mark.long
def test_policies_on_one_base_reuse_their_own_and_never_what_the_other_has_computed(
    pair: list[Any],
) -> None:
    said: dict[str, list[Message]] = {}
    first = turns_of(pair, ["You keep a shop. " * 8], said)
    assert first[0].prompt_ids == first[1].prompt_ids
    assert [reply.usage.cached_tokens for reply in first] == [0, 0]
    known = [len(reply.prompt_ids) + len(reply.token_ids) - 1 for reply in first]
    assert [reply.usage.cached_tokens for reply in turns_of(pair, ["What is new?"], said)] == known


@pytest.mark.long
def test_an_adapter_that_learns_drops_what_it_has_computed_and_nothing_of_the_other(
    pair: list[Any],
) -> None:
    said: dict[str, list[Message]] = {}
    before = turns_of(pair, ["You keep a shop. " * 8], said)
    with torch.no_grad():
        for weight in pair[0].weights().values():
            weight.mul_(1.5)
    after = turns_of(pair, ["What is new?"], said)
    assert [reply.usage.cached_tokens for reply in after] == [
        0,
        len(before[1].prompt_ids) + len(before[1].token_ids) - 1,
    ]
