"""The vllm engine against a scripted server on loopback: what it asks for, which servers it
refuses, what it makes of faults. No vLLM needed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from gem_ma.engines.endpoint.endpoint import Budget
from gem_ma.engines.small.replay import Remembered, digest_of
from gem_ma.engines.vllm import process as vllm_process
from gem_ma.engines.vllm.backend import Draw, Parameters
from gem_ma.engines.vllm.engine import VLLM
from gem_ma.kernel.errors import (
    BudgetError,
    ConfigError,
    DataError,
    EndpointError,
    EngineError,
    ModelNotFound,
)
from gem_ma.kernel.types import Message, Reply, Request, Sampling
from tests.fault_server import Answer, Asked, FaultServer, drop, raw, status


@dataclass
class Fake:
    """Answers as vLLM's server does, save for what a test changes. `completion` may change the
    body of a reply, or be an answer of its own."""

    tokenize: Callable[[str], list[int]] = lambda text: []
    models: list[dict[str, Any]] = field(
        default_factory=lambda: [{"id": "base", "parent": None, "max_model_len": 64}]
    )
    adapters: set[str] = field(default_factory=set)
    completion: Callable[[Asked, dict[str, Any]], Answer | dict[str, Any]] = lambda asked, body: (
        body
    )
    lora: bool = True
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __call__(self, asked: Asked) -> Answer:
        self.asked.append((asked.path, asked.body))
        if asked.path == "/v1/models":
            return self.json({"data": self.models})
        if asked.path == "/tokenize":
            return self.json({"tokens": self.tokenize(asked.body["prompt"])})
        if asked.path.endswith("_lora_adapter"):
            if not self.lora:
                return Answer(404, json.dumps({"detail": "Not Found"}).encode())
            name = asked.body["lora_name"]
            (self.adapters.add if "unload" not in asked.path else self.adapters.discard)(name)
            return Answer(body=b"Success", content_type="text/plain")
        assert asked.path == "/v1/completions"
        if asked.body["model"] not in {"base", *self.adapters}:
            return status(404, f"The model `{asked.body['model']}` does not exist.")
        allowed = asked.body.get("allowed_token_ids")
        ids = (
            allowed[:1] if allowed and len(allowed) == 1 else [7, 8, 9][: asked.body["max_tokens"]]
        )
        body = {
            "choices": [
                {
                    "index": 0,
                    "text": "?",
                    "finish_reason": "stop" if len(ids) == 3 else "length",
                    "token_ids": ids,
                    "prompt_token_ids": asked.body["prompt"],
                    "logprobs": {
                        "token_logprobs": [0.0] * len(ids) if allowed else [-1.0] * len(ids)
                    },
                }
            ],
            "usage": {
                "prompt_tokens": len(asked.body["prompt"]),
                "completion_tokens": len(ids),
                "prompt_tokens_details": {"cached_tokens": 4},
            },
        }
        changed = self.completion(asked, body)
        return changed if isinstance(changed, Answer) else self.json(changed)

    @staticmethod
    def json(body: Any) -> Answer:
        return raw(body)

    def completions(self) -> list[dict[str, Any]]:
        """Bodies of the requests that were for something: those of the opening checks are left
        out."""
        return [
            body for path, body in self.asked if path == "/v1/completions" and body["prompt"] != [0]
        ]


@pytest.fixture
def fake(kuhn_model: Path) -> Fake:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(kuhn_model)
    return Fake(lambda text: list(tokenizer(text, add_special_tokens=False)["input_ids"]))


def engine_at(server: FaultServer, model: Path, **options: Any) -> VLLM:
    return VLLM(
        str(model), **{"base_url": server.url, "policy": "main", "timeout_s": 5.0, **options}
    )


def request(text: str = "card K", seed: int = 2**62 + 5, **how: Any) -> Request:
    return Request("a", (Message(text),), sampling=Sampling(**{"max_tokens": 8, **how}), seed=seed)


def answered(fake: Fake, model: Path, *requests: Request, **options: Any) -> list[Reply]:
    with FaultServer(fake) as server:
        engine = engine_at(server, model, **options)

        async def every() -> list[Reply]:
            return [await engine.sample(one) for one in requests or (request(),)]

        return asyncio.run(every())


def refused(fake: Fake, model: Path, kind: type[Exception], **options: Any) -> str:
    with pytest.raises(kind) as caught:
        answered(fake, model, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- what is sent and what is read ---------------------------------------------------------------


def test_every_sampling_field_is_sent_with_ids_seed_ends_and_mask(
    fake: Fake, kuhn_model: Path
) -> None:
    (reply,) = answered(
        fake, kuhn_model, request(temperature=0.5, top_p=0.9, top_k=5, stop=("END",))
    )
    (body,) = fake.completions()
    engine = VLLM(str(kuhn_model), base_url="http://127.0.0.1:1/v1")
    assert body == {
        "model": "base",
        "prompt": list(reply.prompt_ids),
        "max_tokens": 8,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "seed": 2**62 + 5,
        "stop": ["END"],
        "stop_token_ids": sorted(engine.vocabulary.ends),
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "logprobs": 0,
        "return_token_ids": True,
        "logit_bias": {str(token): -100.0 for token in sorted(engine.vocabulary.banned)},
    }
    assert reply.token_ids == (7, 8, 9)
    assert reply.logprobs == (-1.0, -1.0, -1.0)
    assert reply.finish == "stop"
    assert (
        reply.usage.prompt_tokens,
        reply.usage.completion_tokens,
        reply.usage.cached_tokens,
    ) == (len(reply.prompt_ids), 3, 4)


@pytest.mark.long
def test_the_same_ids_are_never_sampled_as_by_the_transformers_engine(
    kuhn_model: Path, byte_model: Path
) -> None:
    from gem_ma.engines.local.transformers import Transformers

    for model in (kuhn_model, byte_model):
        local, engine = Transformers(str(model)), VLLM(str(model), base_url="http://127.0.0.1:1/v1")
        assert [token for token, bias in enumerate(local.banned.tolist()) if bias < 0] == sorted(
            engine.vocabulary.banned
        )
        assert replace(local.vocabulary, read=str) == replace(engine.vocabulary, read=str)


def test_a_temperature_that_vllm_does_not_take_is_refused(fake: Fake, kuhn_model: Path) -> None:
    with pytest.raises(ConfigError, match=r"vLLM samples at temperature 0 to 2; got 2\.5"):
        answered(fake, kuhn_model, request(temperature=2.5))


def test_at_temperature_0_the_likeliest_id_is_certain(fake: Fake, kuhn_model: Path) -> None:
    assert answered(fake, kuhn_model, request(temperature=0.0))[0].logprobs == (0.0, 0.0, 0.0)


def test_a_prompt_without_room_is_not_sent_and_one_with_little_asks_for_little(
    fake: Fake, kuhn_model: Path
) -> None:
    length = (
        len(
            VLLM(str(kuhn_model), base_url="http://127.0.0.1:1/v1").chat.render(
                "a", (Message("K " * 10),)
            )
        )
        - 10
    )
    full, tight = answered(
        fake, kuhn_model, request("K " * (64 - length)), request("K " * (62 - length))
    )
    assert full.finish == "context_overflow" and len(full.prompt_ids) == 64 and not full.token_ids
    assert len(tight.prompt_ids) == 62
    assert [body["max_tokens"] for body in fake.completions()] == [2]


def test_an_end_token_alone_is_an_answer_and_is_not_asked_for_again(
    fake: Fake, kuhn_model: Path
) -> None:
    def only_an_end(asked: Asked, body: dict[str, Any]) -> dict[str, Any]:
        if body["choices"][0]["token_ids"] == [7, 8, 9]:
            body["choices"][0] |= {
                "token_ids": asked.body["stop_token_ids"][:1],
                "logprobs": {"token_logprobs": [-0.5]},
            }
        return body

    fake.completion = only_an_end
    (reply,) = answered(fake, kuhn_model)
    assert reply.text == ""
    assert len(reply.token_ids) == 1
    assert reply.attempts == ()
    assert len(fake.completions()) == 1


# -- which servers are refused -------------------------------------------------------------------


def test_raw_log_probabilities_are_refused_with_the_flag(fake: Fake, kuhn_model: Path) -> None:
    def raw_ones(asked: Asked, body: dict[str, Any]) -> dict[str, Any]:
        body["choices"][0]["logprobs"] = {
            "token_logprobs": [-4.2] * len(body["choices"][0]["token_ids"])
        }
        return body

    fake.completion = raw_ones
    said = refused(fake, kuhn_model, ConfigError)
    assert (
        "log-probabilities before temperature and masks; start the server with --logprobs-mode"
        " processed_logprobs" in said
    )


def test_a_server_without_token_ids_is_refused(fake: Fake, kuhn_model: Path) -> None:
    def without(asked: Asked, body: dict[str, Any]) -> dict[str, Any]:
        del body["choices"][0]["token_ids"]
        return body

    fake.completion = without
    assert "gives no token ids with return_token_ids; it must be vLLM 0.32 or newer" in refused(
        fake, kuhn_model, ConfigError
    )


def test_a_server_that_ignores_masks_is_refused(fake: Fake, kuhn_model: Path) -> None:
    def other(asked: Asked, body: dict[str, Any]) -> dict[str, Any]:
        body["choices"][0]["token_ids"] = [11] * len(body["choices"][0]["token_ids"])
        return body

    fake.completion = other
    assert "sampled id 11 where only" in refused(fake, kuhn_model, ConfigError)


def test_another_tokenizer_is_refused_and_a_hidden_one_passes(fake: Fake, kuhn_model: Path) -> None:
    fake.tokenize = lambda text: [1, 2, 3]
    assert "another tokenizer than this policy's folder" in refused(fake, kuhn_model, ConfigError)
    plain = fake.__call__
    closed = Fake(completion=lambda asked, body: body)
    with FaultServer(
        lambda asked: status(404, "no such path") if asked.path == "/tokenize" else plain(asked)
    ) as server:
        assert asyncio.run(engine_at(server, kuhn_model).sample(request())).token_ids == (7, 8, 9)
    assert closed.asked == []


def test_a_wrong_model_name_and_a_choice_of_models_are_told(fake: Fake, kuhn_model: Path) -> None:
    assert "no model 'other'; served_model is one of base" in refused(
        fake, kuhn_model, ModelNotFound, served_model="other"
    )
    fake.models = [{"id": name, "parent": None, "max_model_len": 64} for name in ("one", "two")]
    assert "serves one, two; name one with served_model" in refused(fake, kuhn_model, ConfigError)
    fake.models = []
    assert "serves no model" in refused(fake, kuhn_model, ConfigError)


def test_a_server_that_is_no_vllm_is_told(fake: Fake, kuhn_model: Path) -> None:
    fake.models = [{"id": "base"}]
    assert (
        "names no max_model_len, so it is not a vLLM server; take openai/ for other servers"
        in refused(fake, kuhn_model, ConfigError)
    )


def test_an_address_of_something_else_is_told(fake: Fake, kuhn_model: Path) -> None:
    with (
        FaultServer([raw(b"<html>hello</html>", "text/html")]) as server,
        pytest.raises(ConfigError, match="is not what a vLLM server answers"),
    ):
        asyncio.run(engine_at(server, kuhn_model).sample(request()))


def test_another_machine_over_plain_http_must_be_allowed(kuhn_model: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=(
            r"gpu1:8000 is another machine and base_url no https; forward its port, or set"
            r" allow_http: true"
        ),
    ):
        VLLM(str(kuhn_model), policy="main", base_url="http://gpu1:8000/v1")
    with pytest.raises(ConfigError, match="is another machine"):
        VLLM(str(kuhn_model), policy="main", base_url="http://127.0.0.1.example.org/v1")
    for fine in (
        {"base_url": "http://gpu1:8000/v1", "allow_http": True},
        {"base_url": "https://gpu1/v1"},
        {"base_url": "http://localhost:8000/v1"},
    ):
        VLLM(str(kuhn_model), policy="main", **fine)  # type: ignore[arg-type]


# -- faults --------------------------------------------------------------------------------------


def sometimes(*faults: Answer) -> Callable[[Asked, dict[str, Any]], Answer | dict[str, Any]]:
    left = list(faults)
    return lambda asked, body: left.pop(0) if left and asked.body["prompt"] != [0] else body


def test_faults_are_tried_again_and_stand_in_the_record(fake: Fake, kuhn_model: Path) -> None:
    abort = {
        "choices": [
            {"finish_reason": "abort", "token_ids": [7], "logprobs": {"token_logprobs": [-1.0]}}
        ]
    }
    other = {
        "choices": [
            {
                "finish_reason": "stop",
                "token_ids": [7],
                "logprobs": {"token_logprobs": [-1.0]},
                "prompt_token_ids": [1],
            }
        ]
    }
    bad = [
        json.dumps(one).encode()
        for one in (
            {"choices": []},
            abort,
            other,
            {"choices": [{"token_ids": [7], "logprobs": None}]},
        )
    ]
    fake.completion = sometimes(
        status(500), status(429, retry_after=0), drop(), raw(b'{"choices": [{"tok'), *map(raw, bad)
    )
    (reply,) = answered(fake, kuhn_model)
    kinds = [attempt.kind for attempt in reply.attempts]
    assert kinds == [
        "server",
        "rate_limited",
        "transport",
        "bad_reply",
        "bad_reply",
        "server",
        "bad_reply",
        "bad_reply",
    ]
    assert "which are not the" in reply.attempts[6].detail and reply.token_ids == (7, 8, 9)


def test_the_key_goes_into_the_header_and_into_no_message(
    fake: Fake, kuhn_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-canary-19af-2b7c")
    with FaultServer(
        lambda asked: (
            fake(asked)
            if asked.path != "/v1/completions"
            else status(401, "bad key sk-canary-19af-2b7c")
        )
    ) as server:
        with pytest.raises(EndpointError, match="refused the key in MY_KEY") as caught:
            asyncio.run(engine_at(server, kuhn_model, api_key_env="MY_KEY").sample(request()))
        assert {asked.headers["authorization"] for asked in server.asked} == {
            "Bearer sk-canary-19af-2b7c"
        }
    assert "canary" not in str(caught.value)


def test_after_a_reply_out_of_a_stopped_run_the_prompt_goes_on_from_its_ids(
    fake: Fake, kuhn_model: Path
) -> None:
    first = Request(
        "a", (Message("card K"),), sampling=Sampling(max_tokens=8), seed=1, conversation="e/a"
    )
    (reply,) = answered(fake, kuhn_model, first)
    later = Request(
        "a",
        (*first.messages, Message(reply.text, "a"), Message("bet")),
        sampling=Sampling(max_tokens=8),
        seed=2,
        conversation="e/a",
    )
    with FaultServer(fake) as server:
        engine = Remembered(engine_at(server, kuhn_model), {digest_of(first): reply})

        async def both() -> Reply:
            assert await engine.sample(first) == reply
            return await engine.sample(later)

        known = reply.prompt_ids + reply.token_ids
        assert asyncio.run(both()).prompt_ids[: len(known)] == known


def test_an_outage_after_the_first_answer_is_waited_for_on_every_loop(
    fake: Fake, kuhn_model: Path
) -> None:
    answers = {"left": 0}

    def shaky(asked: Asked) -> Answer:
        if asked.path == "/v1/completions" and asked.body["prompt"] != [0] and answers["left"]:
            answers["left"] -= 1
            return drop()
        return fake(asked)

    with FaultServer(shaky) as server:
        engine = engine_at(server, kuhn_model)
        asyncio.run(engine.sample(request()))
        answers["left"] = 7  # more than a server gets that was never there
        # on a loop of its own
        (drawn,) = engine.sample_ids([(1, 2, 3)], [Sampling(max_tokens=8)], [1])
    assert drawn.ids == [7, 8, 9] and answers["left"] == 0


def test_a_context_overflow_that_the_server_finds_is_an_outcome(
    fake: Fake, kuhn_model: Path
) -> None:
    fake.completion = sometimes(
        status(400, "This model's maximum context length is 64 tokens. However, you requested 70")
    )
    (reply,) = answered(fake, kuhn_model)
    assert reply.finish == "context_overflow" and reply.prompt_ids and not reply.token_ids


def test_a_wrong_key_and_a_server_that_is_not_there_end_the_run(
    fake: Fake, kuhn_model: Path
) -> None:
    with (
        FaultServer([status(401, "Unauthorized")]) as server,
        pytest.raises(EndpointError, match="refused a request without a key"),
    ):
        asyncio.run(engine_at(server, kuhn_model).sample(request()))
    gone = f"http://127.0.0.1:{server.port}/v1"
    with pytest.raises(EndpointError, match="cannot be reached: start it, or correct base_url"):
        asyncio.run(
            VLLM(str(kuhn_model), policy="main", base_url=gone, attempts=2).sample(request())
        )


def test_tokens_of_requests_are_counted_against_the_budget(fake: Fake, kuhn_model: Path) -> None:
    budget = Budget(tokens=60)
    with pytest.raises(BudgetError, match=r"limits.tokens is 60"):
        answered(fake, kuhn_model, *(request(seed=seed) for seed in range(20)), budget=budget)
    assert 0 < budget.tokens <= 60


# -- adapters ------------------------------------------------------------------------------------


@pytest.fixture
def adapter(kuhn_model: Path, tmp_path: Path) -> Path:
    import torch

    from gem_ma.engines.models.adapter_folder import write_adapter
    from gem_ma.engines.vllm.engine import lora_note

    name = "model.layers.0.self_attn.q_proj"
    weights = {
        f"{name}.lora_A.weight": torch.zeros(4, 64),
        f"{name}.lora_B.weight": torch.zeros(64, 4),
    }
    write_adapter(tmp_path / "adapter", lora_note(weights, 8.0, str(kuhn_model)), weights)
    return tmp_path / "adapter"


def test_an_adapter_folder_is_one_that_peft_reads(adapter: Path, kuhn_model: Path) -> None:
    from gem_ma.engines.local.transformers import Transformers

    config = json.loads((adapter / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (4, 8.0, ["q_proj"])
    try:
        Transformers(str(kuhn_model), policy="main", lora=str(adapter))
    except DataError as error:  # one layer of two: read, and found to be of another shape
        assert "does not fit this base" in str(error) and "layers.1" in str(error)


def test_an_adapter_is_loaded_at_first_and_again_where_it_was_forgotten(
    fake: Fake, kuhn_model: Path, adapter: Path
) -> None:
    with FaultServer(fake) as server:
        engine = engine_at(server, kuhn_model, lora=str(adapter))
        asyncio.run(engine.sample(request()))
        (name,) = fake.adapters
        assert name.startswith("main.") and fake.completions()[-1]["model"] == name
        fake.adapters.clear()
        assert asyncio.run(engine.sample(request())).token_ids == (7, 8, 9)
        assert fake.adapters == {name}
    loads = [body for path, body in fake.asked if path == "/v1/load_lora_adapter"]
    assert len(loads) == 2
    assert loads[0] == {"lora_name": name, "lora_path": str(adapter.resolve())}


def test_a_server_that_takes_no_adapters_is_told_which_flags_to_start_with(
    fake: Fake, kuhn_model: Path, adapter: Path
) -> None:
    fake.lora = False
    said = refused(fake, kuhn_model, ConfigError, lora=str(adapter))
    assert (
        "takes no adapters; start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora"
        " --max-lora-rank" in said
    )


# -- options -------------------------------------------------------------------------------------

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "dtype": ({"dtype": "float8"}, "dtype is one of float32, bfloat16, float16"),
    "parity": ({"parity": 0.0}, "parity is in nats, above 0"),
    "route": ({"route": "copy"}, "route is one of adapter, full"),
    "full with lora": (
        {"route": "full", "lora": {"rank": 4}},
        "route full publishes all weights; leave lora out",
    ),
    "adapter without lora": ({"route": "adapter"}, r"route adapter needs lora: \{rank: 8\}"),
    "engine with a server": (
        {"engine": {"dtype": "float32"}},
        "engine starts vLLM in this process",
    ),
    "served_model without one": (
        {"base_url": None, "served_model": "x"},
        "served_model is the name of a model at a server",
    ),
    **{
        f"its own {name}": (
            {"base_url": None, "engine": {name: value}},
            f"engine may not hold '{name}'",
        )
        for name, value in (
            ("logprobs_mode", "raw_logprobs"),
            ("tokenizer", "another"),
            ("enable_lora", True),
            ("max_lora_rank", 8),
            ("skip_tokenizer_init", True),
            ("model", "another"),
            ("generation_config", "auto"),
        )
    },
    "address": ({"base_url": "127.0.0.1:8000"}, "base_url is an address such as"),
}


@pytest.mark.parametrize("case", WRONG)
def test_options_that_do_not_fit_are_refused_in_one_line(kuhn_model: Path, case: str) -> None:
    options, said = WRONG[case]
    with pytest.raises(ConfigError, match=said):
        VLLM(str(kuhn_model), policy="main", **{"base_url": "http://127.0.0.1:1/v1", **options})


def test_a_folder_that_is_no_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"config\.json cannot be read"):
        VLLM(str(tmp_path), policy="main", base_url="http://127.0.0.1:1/v1")


def test_without_vllm_the_engine_in_process_says_what_to_do(kuhn_model: Path) -> None:
    from importlib.util import find_spec

    if find_spec("vllm") is not None:
        pytest.skip("this environment has vLLM")
    with pytest.raises(
        ConfigError,
        match=r"needs vLLM in this environment \(docs/vllm.md\): pip install \S+, or a server: base_url",
    ):
        asyncio.run(VLLM(str(kuhn_model), policy="main").sample(request()))


class FakeCore:
    """Stands for a vLLM that was started."""

    def __init__(self, path: str, options: dict[str, Any], rank: int, where: str) -> None:
        self.rank = rank
        self.llm = SimpleNamespace(model_config=SimpleNamespace(max_model_len=64))


def test_what_vllm_is_asked_for_is_of_plain_types_alone() -> None:
    # its engine sits in a process of its own, and no class of ours travels there
    asked = Parameters([3], frozenset({2})).of(Draw((1,), Sampling(), 0, 8))
    plain = (bool, int, float, str, type(None))
    values = [asked, *asked.values()]
    held = [one for value in values if isinstance(value, (list, dict)) for one in value]
    assert {type(one) for one in [*asked.values(), *held]} <= {*plain, list, dict}


def test_policies_share_one_vllm_in_process_until_all_weights_of_one_are_to_change(
    kuhn_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_process, "Core", FakeCore)
    monkeypatch.setattr(vllm_process, "_OPEN", {})
    one, other, adapted = (
        vllm_process.Process("policy", str(kuhn_model), Parameters([], frozenset({2})), {}, rank)
        for rank in (0, 0, 4)
    )
    for process in (one, other, adapted):
        asyncio.run(process.open())
    # vLLM makes room for 8 at least
    assert one.core is other.core and one.core is not adapted.core and adapted.core.rank == 8
    shared = one.core
    one.unshare()
    asyncio.run(one.open())
    assert one.core is not shared and other.core is shared


def test_unpublished_weights_are_not_sampled_from(fake: Fake, kuhn_model: Path) -> None:
    with FaultServer(fake) as server:
        engine = engine_at(server, kuhn_model)
        engine.unpublished = True
        with pytest.raises(EngineError, match="have changed and are not published"):
            asyncio.run(engine.sample(request()))
