"""The transformers engine: batches, left padding, seeds, the distribution that is sampled,
finishes, damaged folders."""

from __future__ import annotations

import asyncio
import itertools
import math
import re
import shutil
import sys
import weakref
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gem_ma import make
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy, open_engine
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.errors import ConfigError, DataError, EngineError
from gem_ma.kernel.types import (
    Action,
    Image,
    Malformed,
    Message,
    Reply,
    Request,
    Sampling,
    Tool,
    ToolCall,
    spoken,
)
from gem_ma.system.extras import install
from tests.asking import at_once
from tests.plays import played_all

torch = pytest.importorskip("torch", reason="needs the train extra")

from gem_ma.engines.local.kv_cache import SPARE, grow_in_place  # noqa: E402
from gem_ma.engines.local.transformers import Transformers  # noqa: E402

WORDS = "Kuhn poker. Your card is J. Moves so far: none. Choose check or bet."


@pytest.fixture(scope="module")
def engine(thin_model: Path) -> Transformers:
    return Transformers(str(thin_model), policy="main")


@pytest.fixture(scope="module")
def byte_engine(byte_model: Path) -> Transformers:
    return Transformers(str(byte_model), policy="main")


def request(text: str = WORDS, seed: int = 0, **sampling: object) -> Request:
    return Request(
        "player_0",
        (Message(text),),
        seed=seed,
        sampling=Sampling(**{"max_tokens": 6, **sampling}),
        policy="main",
    )  # type: ignore[arg-type]


def ragged(count: int = 24, **sampling: object) -> list[Request]:
    """Requests whose prompts have many lengths; some are equal."""
    return [
        request(" ".join(WORDS.split()[: 1 + (7 * seed) % 11]), seed, **sampling)
        for seed in range(count)
    ]


def scored(
    engine: Transformers, prompt: tuple[int, ...], ids: tuple[int, ...], temperature: float = 1.0
) -> list[float]:
    """Log-probabilities by one plain forward pass per token: no padding, no cache, no packing."""
    result = []
    for at, token in enumerate(ids):
        with torch.no_grad():
            logits = engine.model(torch.tensor([[*prompt, *ids[:at]]]), use_cache=False).logits[
                0, -1
            ]
        result.append(float(((logits + engine.banned) / temperature).log_softmax(-1)[token]))
    return result


@pytest.mark.long
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_of_a_ragged_batch_are_those_of_the_plain_forward_pass(
    engine: Transformers, temperature: float
) -> None:
    for reply in engine.sample_batch(ragged(temperature=temperature)):
        assert len(reply.logprobs) == len(reply.token_ids) > 0
        expected = scored(engine, reply.prompt_ids, reply.token_ids, temperature)
        assert max(abs(a - b) for a, b in zip(reply.logprobs, expected, strict=True)) < 1e-5


@pytest.mark.long
@pytest.mark.parametrize("name", ["engine", "byte_engine"])
def test_a_request_draws_the_same_tokens_alone_in_a_batch_and_in_another_batch(
    name: str, request: pytest.FixtureRequest
) -> None:
    sampler: Transformers = request.getfixturevalue(name)
    asked = ragged(20)
    together = [reply.token_ids for reply in sampler.sample_batch(asked)]
    assert together == [sampler.sample_batch([one])[0].token_ids for one in asked]
    assert (
        together[5:9] == [reply.token_ids for reply in sampler.sample_batch(asked[5:9][::-1])][::-1]
    )
    assert len(set(together)) > 10  # seeds differ, so do draws


@pytest.mark.long
def test_a_small_cap_on_padded_tokens_changes_no_reply(
    thin_model: Path, engine: Transformers
) -> None:
    narrow = Transformers(str(thin_model), policy="main", padded_tokens=64)
    assert [r.token_ids for r in narrow.sample_batch(ragged())] == [
        r.token_ids for r in engine.sample_batch(ragged())
    ]


def test_the_global_random_stream_is_neither_read_nor_moved(engine: Transformers) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = engine.sample_batch([request()])
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(4)
    assert engine.sample_batch([request()]) == first


@pytest.fixture(scope="module")
def free(engine: Transformers) -> tuple[Counter[int], dict[int, float]]:
    """First tokens of many draws: how often each came, and its probability."""
    replies = engine.sample_batch([request(seed=seed, max_tokens=1) for seed in range(3000)])
    probability = {reply.token_ids[0]: math.exp(reply.logprobs[0]) for reply in replies}
    return Counter(reply.token_ids[0] for reply in replies), probability


@pytest.mark.long
def test_first_tokens_are_drawn_in_proportion_to_their_probabilities(
    free: tuple[Counter[int], dict[int, float]],
) -> None:
    drawn, probability = free
    count = drawn.total()
    for token, hits in drawn.items():
        p = probability[token]
        assert abs(hits / count - p) < 5 * math.sqrt(p * (1 - p) / count)
    assert sum(probability.values()) > 0.99  # nearly every token has been seen


def test_top_k_keeps_the_likeliest_and_renormalises(
    engine: Transformers, free: tuple[Counter[int], dict[int, float]]
) -> None:
    chance = free[1]
    best = sorted(chance, key=lambda token: -chance[token])[:3]
    kept = engine.sample_batch([request(seed=s, max_tokens=1, top_k=3) for s in range(200)])
    assert {r.token_ids[0] for r in kept} == set(best)
    for reply in kept:
        assert math.exp(reply.logprobs[0]) == pytest.approx(
            chance[reply.token_ids[0]] / sum(chance[token] for token in best), rel=1e-4
        )


def test_top_p_keeps_the_smallest_set_that_reaches_it(
    engine: Transformers, free: tuple[Counter[int], dict[int, float]]
) -> None:
    chance = free[1]
    order = sorted(chance, key=lambda token: -chance[token])
    sums = list(itertools.accumulate(chance[token] for token in order))
    best = order[: 1 + next(at for at, mass in enumerate(sums) if mass >= 0.3)]
    kept = engine.sample_batch([request(seed=s, max_tokens=1, top_p=0.3) for s in range(300)])
    assert {r.token_ids[0] for r in kept} == set(best)
    tiny = engine.sample_batch([request(seed=s, max_tokens=1, top_p=1e-9) for s in range(9)])
    assert {(r.token_ids[0], r.logprobs[0]) for r in tiny} == {(order[0], 0.0)}


def test_one_batch_may_mix_all_sampling_options(engine: Transformers) -> None:
    asked = [
        request(seed=1),
        request(seed=2, temperature=0.0),
        request(seed=3, top_k=2),
        request(seed=4, top_p=0.4, max_tokens=2),
    ]
    assert [r.token_ids for r in engine.sample_batch(asked)] == [
        engine.sample_batch([one])[0].token_ids for one in asked
    ]


def test_temperature_zero_takes_the_likeliest_token_whatever_the_seed(engine: Transformers) -> None:
    replies = engine.sample_batch([request(seed=seed, temperature=0.0) for seed in range(4)])
    assert len({reply.token_ids for reply in replies}) == 1
    assert set(replies[0].logprobs) == {0.0}
    with torch.no_grad():
        logits = engine.model(torch.tensor([replies[0].prompt_ids])).logits[0, -1] + engine.banned
    assert replies[0].token_ids[0] == int(logits.argmax())


def test_role_padding_and_unknown_tokens_are_never_sampled(engine: Transformers) -> None:
    with torch.no_grad():  # a model that wants nothing more than role tokens
        weight = engine.model.get_output_embeddings().weight
        kept = weight.clone()
        specials = [
            token
            for token in engine.tokenizer.all_special_ids
            if token not in engine.vocabulary.ends
        ]
        weight[specials] *= 100
    try:
        drawn = {token for reply in engine.sample_batch(ragged(64)) for token in reply.token_ids}
    finally:
        with torch.no_grad():
            weight.copy_(kept)
    assert len(specials) == 6
    assert not drawn & set(specials)


def test_finish_tells_an_end_token_from_a_cut(engine: Transformers) -> None:
    replies = engine.sample_batch([request(seed=seed, max_tokens=20) for seed in range(100)])
    assert {reply.finish for reply in replies} == {"stop", "length"}
    for reply in replies:
        ended = reply.token_ids[-1] in engine.vocabulary.ends
        assert (reply.finish == "stop") == ended
        assert ended or len(reply.token_ids) == 20
        assert "<|" not in reply.text
        assert reply.usage.completion_tokens == len(reply.token_ids)


def test_a_stop_string_ends_the_reply_and_is_not_part_of_its_text(engine: Transformers) -> None:
    long = engine.sample_batch([request(seed=5, max_tokens=12)])[0]
    word = long.text.split()[2]
    short = engine.sample_batch([request(seed=5, max_tokens=12, stop=(word,))])[0]
    assert (short.finish, word in short.text) == ("stop", False)
    assert short.token_ids == long.token_ids[: len(short.token_ids)]
    assert len(short.token_ids) < len(long.token_ids)


def test_a_prompt_that_leaves_no_room_is_answered_without_sampling(
    byte_model: Path, tmp_path: Path
) -> None:
    small = shutil.copytree(byte_model, tmp_path / "small")
    config = (small / "config.json").read_text()
    (small / "config.json").write_text(
        config.replace('"max_position_embeddings": 4096', '"max_position_embeddings": 64')
    )
    engine = Transformers(str(small), policy="main")
    fits, full = request("bet", max_tokens=500), request("bet " * 100)
    short, over = engine.sample_batch([fits, full])
    assert over.finish == "context_overflow"
    assert (over.token_ids, over.logprobs, over.text) == ((), (), "")
    assert len(short.prompt_ids) + len(short.token_ids) <= 64
    edge = next(n for n in range(1, 60) if len(engine.chat.render("a", (Message("x " * n),))) == 63)
    assert [len(r.token_ids) for r in engine.sample_batch([request("x " * edge)])] == [1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"top_p": 0.0},
        {"top_k": -1},
    ],
)
def test_sampling_options_out_of_range_are_refused_by_name(
    engine: Transformers, wrong: dict[str, float]
) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        engine.sample_batch([request(**wrong)])


def test_tool_calls_are_parsed_only_where_tools_are_offered(
    byte_engine: Transformers, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"text": ""}
    spoken = replace(byte_engine.vocabulary, read=lambda ids: said["text"])
    monkeypatch.setattr(byte_engine, "vocabulary", spoken)
    call = '<tool_call>{"name": "look", "arguments": {"at": "it"}}</tool_call>'
    with_tools = Request(
        "a", (Message("x"),), tools=(Tool("look"),), sampling=Sampling(max_tokens=2)
    )
    said["text"] = "I look. " + call
    reply = byte_engine.sample_batch([with_tools])[0]
    assert (reply.text, reply.tool_calls) == (
        "I look.",
        (ToolCall("call_0", "look", {"at": "it"}),),
    )
    assert (
        byte_engine.sample_batch([Request("a", (Message("x"),), sampling=Sampling(max_tokens=2))])[
            0
        ].tool_calls
        == ()
    )
    said["text"] = call + '<tool_call>{"name": "look"'  # cut by max_tokens inside the second call
    calls = byte_engine.sample_batch([with_tools])[0].tool_calls
    assert isinstance(calls[0], ToolCall)
    assert isinstance(calls[1], Malformed)
    assert calls[1].reason.startswith("truncated_call")


def test_weights_that_are_not_finite_are_named_instead_of_sampled(thin_model: Path) -> None:
    engine = Transformers(str(thin_model), policy="main")
    with torch.no_grad():
        next(iter(engine.model.parameters())).fill_(math.nan)
    with pytest.raises(EngineError, match=r"'main'.*NaN"):
        engine.sample_batch([request()])


def test_an_image_is_refused_with_the_name_of_the_policy(engine: Transformers) -> None:
    with pytest.raises(EngineError, match=r"main.*image"):
        engine.sample_batch([Request("a", (Message(("look", Image.of(b"x"))),))])


def test_many_concurrent_askers_each_get_their_own_reply(thin_model: Path) -> None:
    engine = open_engine("main", f"transformers/{thin_model}")
    replies = at_once(*((engine, one) for one in ragged(64)))
    alone: Any = engine.engine.sample_batch(ragged(64))  # type: ignore[attr-defined]
    assert [reply.token_ids for reply in replies] == [reply.token_ids for reply in alone]


@pytest.mark.long
def test_episodes_are_the_same_at_any_concurrency(thin_model: Path) -> None:
    engine = open_engine("main", f"transformers/{thin_model}")
    policies = {"main": Policy("main", engine, Sampling(max_tokens=4))}
    cast = {agent: Seat("direct", "main") for agent in ("player_0", "player_1")}
    plans = [Plan(make("kuhn_poker"), cast, seed=seed) for seed in range(12)]

    def said(concurrency: int) -> list[tuple[tuple[int, ...], ...]]:
        played = played_all(plans, policies, concurrency=concurrency)
        return [tuple(turn.replies[0].token_ids for turn in episode.turns) for episode in played]

    assert said(1) == said(12)


def talks(model: Path, episodes: int = 6, turns: int = 5, **options: object) -> list[list[Reply]]:
    """Talks beside each other, not under a gate: every prompt is all that was said before and
    something new."""
    engine = open_engine("main", f"transformers/{model}", **options)

    async def talk(number: int) -> list[Reply]:
        messages, replies = [Message.system("You keep a shop. " * 6)], list[Reply]()
        for turn in range(turns):
            messages.append(
                Message(f"I want {number} of item {turn}. " * (1 + (number + turn) % 3))
            )
            how = Sampling(max_tokens=3 + (5 * number + turn) % 9)
            asked = Request(
                "a",
                tuple(messages),
                seed=100 * number + turn,
                sampling=how,
                conversation=f"{number}",
                turn=turn,
                policy="main",
            )
            replies.append(await engine.sample(asked))
            messages.append(spoken("a", Action(replies[-1].text)))
        return replies

    async def every() -> list[list[Reply]]:
        return await asyncio.gather(*(talk(number) for number in range(episodes)))

    return asyncio.run(every())


@pytest.mark.long
def test_the_turns_of_a_talk_compute_what_is_new_only_and_sample_the_same(byte_model: Path) -> None:
    kept, anew = talks(byte_model), talks(byte_model, kv_tokens=0)
    for mine, others in zip(kept, anew, strict=True):
        for turn, (reply, other) in enumerate(zip(mine, others, strict=True)):
            assert (reply.prompt_ids, reply.token_ids) == (other.prompt_ids, other.token_ids)
            assert (
                max(abs(a - b) for a, b in zip(reply.logprobs, other.logprobs, strict=True)) < 1e-5
            )
            assert other.usage.cached_tokens == 0
            if turn:
                before = mine[turn - 1]
                assert (
                    reply.usage.cached_tokens == len(before.prompt_ids) + len(before.token_ids) - 1
                )
    prompts = [reply.usage for talk in kept for reply in talk]
    computed = sum((usage.prompt_tokens or 0) - (usage.cached_tokens or 0) for usage in prompts)
    assert 3 * computed < sum(usage.prompt_tokens or 0 for usage in prompts)


def test_a_token_is_appended_without_a_copy_of_those_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Keys and values are those of the library's own cache, whatever is done to rows meanwhile."""
    from transformers import DynamicCache

    generator = torch.Generator().manual_seed(3)

    def states(rows: int, tokens: int) -> Any:
        return torch.randn(rows, 2, tokens, 4, generator=generator)

    first = states(3, 5), states(3, 5)
    plain, growing = DynamicCache(), DynamicCache()
    for cache in (plain, growing):
        cache.update(*first, 0)
    grow_in_place(growing)
    copies = []
    copied = type(growing.layers[0])._roomy
    monkeypatch.setattr(
        type(growing.layers[0]),
        "_roomy",
        staticmethod(lambda *states: (copies.append(step), copied(*states))[1]),
    )
    for step in range(SPARE + 40):
        rows = len(plain.layers[0].keys)
        if step == 10:  # a row ends, and what all had is not held any more
            all_rows = weakref.ref(growing.layers[0].keys._base)
            got = wanted = new = None
            for cache in (plain, growing):
                cache.batch_select_indices(torch.tensor([2, 0]))
            assert all_rows() is None
            continue
        if step == 20:  # padding is dropped
            for layer in (plain.layers[0], growing.layers[0]):
                layer.keys, layer.values = layer.keys[:, :, 2:], layer.values[:, :, 2:]
        new = states(rows, 1), states(rows, 1)
        wanted = plain.update(*new, 0)
        got = growing.update(*new, 0)
        assert all(map(torch.equal, got, wanted)) and growing.get_seq_length() == got[0].shape[2]
    # keys and values: at the start, when rows have changed, and after SPARE more
    assert copies == [0, 0, 11, 11, 20, 20, 85, 85]


def test_a_broken_prefix_is_computed_from_where_it_breaks(byte_model: Path) -> None:
    engine = Transformers(str(byte_model), policy="main")

    def ask(*texts: str) -> Reply:
        messages = tuple(
            Message(text, "a" if at % 2 else "scenario") for at, text in enumerate(texts)
        )
        return engine.sample_batch(
            [
                Request(
                    "a", messages, sampling=Sampling(max_tokens=4), conversation="x", policy="main"
                )
            ]
        )[0]  # type: ignore[return-value]

    first = ask("one two three")
    other = ask("one two four", "never said", "five")
    same = next(
        n
        for n, (a, b) in enumerate(zip(first.prompt_ids, other.prompt_ids, strict=False))
        if a != b
    )
    assert other.usage.cached_tokens == same
    assert (
        max(
            abs(a - b)
            for a, b in zip(
                other.logprobs, scored(engine, other.prompt_ids, other.token_ids), strict=True
            )
        )
        < 1e-5
    )


def test_nothing_is_kept_over_new_weights(byte_model: Path) -> None:
    engine = Transformers(str(byte_model), policy="main")
    asked = Request(
        "a",
        (Message("one two three"),),
        sampling=Sampling(max_tokens=4),
        conversation="x",
        policy="main",
    )
    engine.sample_batch([asked])
    assert engine.sample_batch([asked])[0].usage.cached_tokens > 0  # type: ignore[union-attr, operator]
    engine.take({name: weight * 1.5 for name, weight in engine.weights().items()})
    reply = engine.sample_batch([asked])[0]
    assert reply.usage.cached_tokens == 0  # type: ignore[union-attr]
    assert (
        max(
            abs(a - b)
            for a, b in zip(
                reply.logprobs, scored(engine, reply.prompt_ids, reply.token_ids), strict=True
            )
        )
        < 1e-5
    )  # type: ignore[union-attr]


def test_two_engines_on_one_folder_hold_weights_of_their_own(
    thin_model: Path, engine: Transformers
) -> None:
    other = Transformers(str(thin_model), policy="other")
    assert other.fingerprint() == engine.fingerprint()
    with torch.no_grad():
        next(iter(other.model.parameters())).add_(1e-3)
    assert other.fingerprint() != engine.fingerprint()


def test_a_saved_engine_loads_again_with_equal_weights(
    engine: Transformers, tmp_path: Path
) -> None:
    engine.save(tmp_path / "copy")
    again = Transformers(str(tmp_path / "copy"), policy="main")
    assert again.fingerprint() == engine.fingerprint()
    assert [r.token_ids for r in again.sample_batch(ragged(4))] == [
        r.token_ids for r in engine.sample_batch(ragged(4))
    ]


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: shutil.rmtree(folder), "no model folder"),
        (lambda folder: (folder / "config.json").unlink(), "config.json"),
        (
            lambda folder: (folder / "config.json").write_text('{"model_type": "qwen3"'),
            "config.json",
        ),
        (
            lambda folder: (folder / "config.json").write_text('{"model_type": "nothing-known"}'),
            "cannot be loaded",
        ),
        (lambda folder: [f.unlink() for f in folder.glob("tokenizer*")], "tokenizer"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer"),
        (lambda folder: (folder / "model.safetensors").unlink(), "safetensors"),
        (
            lambda folder: (folder / "model.safetensors").write_bytes(
                (folder / "model.safetensors").read_bytes()[:5000]
            ),
            "cannot be loaded",
        ),
        (lambda folder: (folder / "model.safetensors").write_bytes(b""), "cannot be loaded"),
    ],
)
def test_a_missing_or_damaged_model_folder_gives_one_line_that_names_it(
    thin_model: Path, tmp_path: Path, damage: object, named: str
) -> None:
    folder = shutil.copytree(thin_model, tmp_path / "model")
    damage(folder)  # type: ignore[operator]
    with pytest.raises(DataError, match=named) as caught:
        open_engine("main", f"transformers/{folder}")
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_options_and_dtypes_are_config_errors(thin_model: Path) -> None:
    with pytest.raises(ConfigError, match="speed"):
        open_engine("main", f"transformers/{thin_model}", speed=3)
    with pytest.raises(ConfigError, match="float32"):
        open_engine("main", f"transformers/{thin_model}", dtype="int4")
    with pytest.raises(ConfigError, match="device 'abacus' cannot be used"):
        open_engine("main", f"transformers/{thin_model}", device="abacus")


def test_without_the_train_extra_one_line_names_it(
    thin_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match=re.escape(install("train"))):
        open_engine("main", f"transformers/{thin_model}")


def test_a_request_that_cannot_be_rendered_fails_alone_in_its_batch(
    thin_model: Path, engine: Transformers
) -> None:
    refused = Request("a", (Message(("look", Image.of(b"x"))),), policy="main")
    first, error, last = engine.sample_batch([request(seed=1), refused, request(seed=2)])
    assert [first, last] == engine.sample_batch([request(seed=1), request(seed=2)])
    assert isinstance(error, EngineError) and "image" in str(error)
    batched = open_engine("main", f"transformers/{thin_model}")
    asked = (request(seed=1), refused, request(seed=2))
    replies = at_once(*((batched, one) for one in asked), failing=True)
    assert replies[0] == first and isinstance(replies[1], EngineError) and replies[2] == last
