"""What vLLM's server samples for the vllm engine, and what its log-probabilities are, against
the same weights in transformers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gem_ma.engines.api.openai import OpenAI
from gem_ma.engines.vllm.engine import VLLM
from gem_ma.kernel.errors import ConfigError, DataError, EndpointError, ModelNotFound
from gem_ma.kernel.types import Message, Reply, Request, Sampling, Tool
from tests.vllm.serving import VllmServer

FP32 = 1e-4  # nats


@pytest.fixture(scope="module")
def plain(models: dict[str, Path]) -> Any:
    """The byte-level model without any engine around it."""
    return AutoModelForCausalLM.from_pretrained(models["bytes"], dtype=torch.float32).eval()


@pytest.fixture
def engine(server: VllmServer, models: dict[str, Path]) -> VLLM:
    return VLLM(str(models["bytes"]), policy="main", base_url=server.url)


def request(text: str = "hello there", *, seed: int = 5, **how: Any) -> Request:
    return Request("a", (Message(text),), sampling=Sampling(**{"max_tokens": 24, **how}), seed=seed)


def ask(engine: Any, *requests: Request) -> list[Reply]:
    async def every() -> list[Reply]:
        return list(await asyncio.gather(*map(engine.sample, requests)))

    return asyncio.run(every())


def distributions(
    model: Any, reply: Reply, banned: frozenset[int], temperature: float = 1.0
) -> torch.Tensor:
    """[tokens, vocabulary] log-probabilities at the sampled places, computed the plain way."""
    whole = torch.tensor([[*reply.prompt_ids, *reply.token_ids]])
    with torch.no_grad():
        logits = model(input_ids=whole).logits[0, len(reply.prompt_ids) - 1 : -1].double()
    logits[:, sorted(banned)] = -torch.inf
    return (logits / temperature).log_softmax(-1)


def gap(expected: torch.Tensor, reply: Reply) -> float:
    of_sampled = expected.gather(1, torch.tensor(reply.token_ids)[:, None])[:, 0]
    return float((of_sampled - torch.tensor(reply.logprobs, dtype=torch.float64)).abs().max())


def test_a_reply_holds_prompt_ids_sampled_ids_log_probabilities_and_usage(engine: VLLM) -> None:
    (reply,) = ask(engine, request())
    assert reply.prompt_ids == engine.chat.render("a", (Message("hello there"),))
    assert 0 < len(reply.token_ids) == len(reply.logprobs) <= 24 and reply.finish in (
        "stop",
        "length",
    )
    assert reply.text == engine.vocabulary.cut(reply.token_ids) and (
        reply.policy,
        reply.version,
    ) == (
        "main",
        0,
    )
    assert reply.usage.prompt_tokens == len(
        reply.prompt_ids
    ) and reply.usage.completion_tokens == len(reply.token_ids)
    assert reply.usage.cached_tokens == 0 and reply.attempts == ()


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
def test_log_probabilities_are_those_of_transformers_on_the_same_ids(
    engine: VLLM, plain: Any, temperature: float
) -> None:
    replies = ask(
        engine,
        *(
            request(f"number {seed}", seed=seed, temperature=temperature, max_tokens=40)
            for seed in range(8)
        ),
    )
    gaps = [
        gap(distributions(plain, reply, engine.vocabulary.banned, temperature), reply)
        for reply in replies
    ]
    print(
        f"vLLM against transformers at temperature {temperature}: {max(gaps):.2g} nats over"
        f" {sum(len(r.token_ids) for r in replies)} tokens"
    )
    assert max(gaps) <= FP32
    assert not {token for reply in replies for token in reply.token_ids} & engine.vocabulary.banned


def test_top_k_is_in_the_log_probabilities(engine: VLLM, plain: Any) -> None:
    (reply,) = ask(engine, request(top_k=3))
    whole = distributions(plain, reply, engine.vocabulary.banned)
    kept = whole.topk(3)
    renormalised = torch.full_like(whole, -torch.inf).scatter(
        1, kept.indices, kept.values.log_softmax(-1)
    )
    assert gap(renormalised, reply) <= FP32


def test_temperature_0_takes_the_likeliest_id_with_log_probability_0(
    engine: VLLM, plain: Any
) -> None:
    (reply,) = ask(engine, request(temperature=0.0))
    assert reply.token_ids == tuple(
        distributions(plain, reply, engine.vocabulary.banned).argmax(-1).tolist()
    )
    assert set(reply.logprobs) == {0.0}


def test_a_seed_gives_the_same_tokens_alone_and_among_forty(engine: VLLM) -> None:
    (alone,) = ask(engine, request(seed=7))
    crowd = ask(engine, *(request(seed=seed) for seed in range(40)))
    assert (
        crowd[7].token_ids == alone.token_ids
        and max(abs(a - b) for a, b in zip(crowd[7].logprobs, alone.logprobs, strict=True)) < FP32
    )
    assert len({reply.token_ids for reply in crowd}) == 40


def test_every_one_of_64_at_once_gets_its_own_reply(engine: VLLM) -> None:
    replies = ask(
        engine, *(request(f"word {number}", seed=number, max_tokens=4) for number in range(64))
    )
    assert [reply.prompt_ids for reply in replies] == [
        engine.chat.render("a", (Message(f"word {number}"),)) for number in range(64)
    ]


def test_the_second_turn_grows_by_appending_and_finds_the_first_in_the_cache(engine: VLLM) -> None:
    first = Request(
        "a",
        (Message("please listen " * 60),),
        sampling=Sampling(max_tokens=12),
        seed=1,
        conversation="e/a",
    )
    (one,) = ask(engine, first)
    said = Message(one.text, "a", one.tool_calls)
    (two,) = ask(
        engine,
        Request(
            "a",
            (*first.messages, said, Message("go on")),
            sampling=Sampling(max_tokens=4),
            seed=2,
            conversation="e/a",
        ),
    )
    known = one.prompt_ids + one.token_ids
    assert two.prompt_ids[: len(known)] == known
    assert (
        two.usage.cached_tokens is not None
        and two.usage.cached_tokens >= 128
        and two.usage.cached_tokens % 128 == 0
    )


def test_a_sampled_end_token_is_kept_with_its_log_probability(engine: VLLM, plain: Any) -> None:
    replies = ask(
        engine, *(request(seed=seed, max_tokens=400, temperature=1.9) for seed in range(24))
    )
    ended = [reply for reply in replies if reply.finish == "stop"]
    assert ended and all(
        reply.token_ids[-1] in engine.vocabulary.ends
        and not set(reply.token_ids[:-1]) & engine.vocabulary.ends
        for reply in ended
    )
    assert gap(distributions(plain, ended[0], engine.vocabulary.banned, 1.9), ended[0]) <= FP32


def test_a_stop_string_ends_the_text_and_stays_in_the_ids(engine: VLLM) -> None:
    (free,) = ask(engine, request(max_tokens=60))
    mark = next(char for char in free.text[5:] if char.isascii() and char.isalpha())
    (cut,) = ask(engine, request(max_tokens=60, stop=(mark,)))
    assert cut.finish == "stop" and cut.text == free.text[: free.text.index(mark)]
    assert free.token_ids[: len(cut.token_ids)] == cut.token_ids and mark in engine.vocabulary.cut(
        cut.token_ids
    )


def test_a_prompt_longer_than_the_context_is_an_outcome_and_no_error(engine: VLLM) -> None:
    (reply,) = ask(engine, request("word " * 3000))
    assert (
        reply.finish == "context_overflow" and not reply.token_ids and len(reply.prompt_ids) > 2048
    )


def test_what_does_not_fit_behind_a_long_prompt_is_not_asked_for(engine: VLLM) -> None:
    length = len(engine.chat.render("a", (Message(""),)))
    text = "w" * (2048 - length - 3)
    (reply,) = ask(engine, request(text, max_tokens=50))
    assert (
        len(reply.prompt_ids) == 2045
        and reply.finish in ("length", "stop")
        and len(reply.token_ids) <= 3
    )


def test_a_wrong_model_name_says_which_there_are(
    server: VllmServer, models: dict[str, Path]
) -> None:
    with pytest.raises(
        ModelNotFound, match="no model 'other'; served_model is one of base"
    ) as caught:
        ask(
            VLLM(str(models["bytes"]), policy="main", base_url=server.url, served_model="other"),
            request(),
        )
    assert isinstance(caught.value, DataError)


def test_the_folder_of_another_model_is_refused(
    server: VllmServer, models: dict[str, Path]
) -> None:
    with pytest.raises(ConfigError, match="another tokenizer than this policy's folder"):
        ask(VLLM(str(models["words"]), policy="main", base_url=server.url), request())


def test_no_server_is_an_endpoint_error(models: dict[str, Path]) -> None:
    from tests.vllm.serving import free_port

    with pytest.raises(EndpointError, match="cannot be reached: start it, or correct base_url"):
        ask(
            VLLM(
                str(models["bytes"]),
                policy="main",
                base_url=f"http://127.0.0.1:{free_port()}/v1",
                attempts=2,
            ),
            request(),
        )


# -- the openai engine at the same server --------------------------------------------------------


def test_the_openai_engine_gets_ids_and_log_probabilities_there(
    server: VllmServer, models: dict[str, Path], plain: Any
) -> None:
    engine = OpenAI("base", policy="main", base_url=server.url, token_ids=True)
    (reply,) = ask(engine, request(temperature=0.7))
    tokenizer = AutoTokenizer.from_pretrained(models["bytes"])
    shown = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hello there"}], add_generation_prompt=True, tokenize=True
    )
    assert reply.prompt_ids == tuple(shown["input_ids"])
    assert 0 < len(reply.token_ids) == len(reply.logprobs)
    assert gap(distributions(plain, reply, [], 0.7), reply) <= FP32


def test_the_openai_engine_streams_tools_and_overflows_there(server: VllmServer) -> None:
    tools = (
        Tool(
            "add",
            "Adds.",
            {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
        ),
    )
    engine = OpenAI("base", policy="main", base_url=server.url, stream=True)
    said, long = ask(
        engine,
        Request("a", (Message("add 1"),), tools=tools, sampling=Sampling(max_tokens=8)),
        request("word " * 3000),
    )
    assert said.usage.completion_tokens and said.finish in ("stop", "length")
    assert long.finish == "context_overflow" and long.attempts[-1].kind == "context_overflow"
