"""The litellm engine on a stub of its library: what is sent, which errors are tried again, and what a
missing library, provider or key says. The library itself: `make test-litellm`."""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gem_ma.engines.api.litellm import LiteLLM
from gem_ma.kernel.errors import ConfigError, EndpointError, EngineError
from gem_ma.kernel.types import Message, Reply, Request, Sampling, Tool
from gem_ma.system.extras import install

KEY = "sk-this-is-only-a-test-0123456789abcdef"
NAME = "anthropic/claude-haiku-4-5"


class Library:
    """Answers with what lies next in `answers`: a text, or an error to raise."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.sent: list[dict[str, Any]] = []
        self.missing = ["ANTHROPIC_API_KEY"]

    def get_llm_provider(self, name: str) -> tuple[str, str]:
        provider, slash, model = name.partition("/")
        if not slash:
            raise RuntimeError("a page\nof advice")
        return model, provider

    def validate_environment(self, model: str) -> dict[str, Any]:
        return {"missing_keys": self.missing}

    async def acompletion(self, **sent: Any) -> Any:
        self.sent.append(sent)
        answer = self.answers.pop(0) if self.answers else "ok"
        if isinstance(answer, Exception):
            raise answer
        choice = {"message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 5, "completion_tokens": 1}
        body = json.dumps({"model": "m", "choices": [choice], "usage": usage})
        return SimpleNamespace(model_dump_json=lambda: body)


def error(name: str, status: int | None, words: str = "no") -> Exception:
    made = type(name, (Exception,), {"status_code": status})(words)
    assert isinstance(made, Exception)
    return made


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Library:
    monkeypatch.chdir(tmp_path)
    made = Library()
    monkeypatch.setitem(sys.modules, "litellm", made)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setattr("gem_ma.engines.endpoint.remote.back_off", lambda *_: 0.0)
    return made


def asked(engine: LiteLLM, tools: tuple[Tool, ...] = ()) -> Reply:
    request = Request("a", (Message("Hi."),), tools, sampling=Sampling(max_tokens=9), seed=3)
    return asyncio.run(engine.sample(request))


def test_a_request_is_that_of_the_openai_engine_and_retries_are_ours(library: Library) -> None:
    library.answers = [error("RateLimitError", 429), error("APIConnectionError", 500), "fine"]
    look = Tool("look", "Looks.", {"type": "object", "properties": {}})
    reply = asked(LiteLLM(NAME, policy="p", extra_body={"thinking": {"type": "disabled"}}), (look,))
    assert (reply.text, reply.policy, reply.usage.prompt_tokens) == ("fine", "p", 5)
    assert [attempt.kind for attempt in reply.attempts] == ["rate_limited", "transport"]
    sent = library.sent[0]
    assert sent["messages"] == [{"role": "user", "content": "Hi."}] and sent["model"] == NAME
    assert sent["tools"] == [look.schema] and sent["thinking"] == {"type": "disabled"}
    assert (sent["num_retries"], sent["max_retries"], sent["api_key"]) == (0, 0, KEY)
    assert (sent["seed"], sent["max_tokens"]) == (3, 9) and "api_base" not in sent
    # the next loop has connections of its own
    assert asked(LiteLLM(NAME, base_url="http://127.0.0.1:9/v1")).text == "ok"
    assert library.sent[-1]["api_base"] == "http://127.0.0.1:9/v1"


def test_an_option_that_a_provider_does_not_know_is_left_out(library: Library) -> None:
    refusal = "anthropic does not support parameters: ['seed']"
    library.answers = [error("UnsupportedParamsError", 400, refusal), "fine"]
    engine = LiteLLM(NAME)
    assert asked(engine).text == "fine" and asked(engine).text == "ok"
    assert ["seed" in sent for sent in library.sent] == [True, False, False]


@pytest.mark.parametrize(
    ("name", "status", "words", "kind"),
    [
        ("AuthenticationError", 401, f"{KEY} is wrong", EndpointError),
        ("InternalServerError", 500, "Missing credentials. Pass one", EndpointError),
        ("NotFoundError", 404, "gone", EndpointError),
        ("BadRequestError", 400, "odd", EngineError),
        ("ContextWindowExceededError", 400, "long", "context_overflow"),
        ("ContentPolicyViolationError", 400, "rude", "content_filter"),
        ("InternalServerError", 500, "down", None),
        ("APIError", None, "?", None),
    ],
)
def test_an_error_of_the_library_means_what_it_means_at_a_server(
    library: Library, name: str, status: int | None, words: str, kind: Any
) -> None:
    library.answers = [error(name, status, words)]
    if isinstance(kind, type):
        with pytest.raises(kind) as caught:
            asked(LiteLLM(NAME))
        assert KEY not in str(caught.value) and len(library.sent) == 1
        assert isinstance(caught.value, EndpointError) is (kind is EndpointError)
    else:
        reply = asked(LiteLLM(NAME))
        assert reply.finish == (kind or "stop") and len(reply.attempts) == 1


def test_what_is_missing_is_one_line(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="write litellm/PROVIDER/NAME") as caught:
        LiteLLM("claude")
    assert "\n" not in str(caught.value)
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY is not set"):
        LiteLLM(NAME)
    assert LiteLLM(NAME, offline=True) and not library.sent
    # an account of several keys is the library's business
    library.missing = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
    assert asked(LiteLLM("bedrock/x")).text == "ok" and "api_key" not in library.sent[-1]
    with pytest.raises(ConfigError, match="stream and token_ids"):
        LiteLLM(NAME, stream=True)
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(ConfigError) as caught:
        LiteLLM(NAME)
    assert install("litellm") in str(caught.value)
