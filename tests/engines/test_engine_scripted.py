"""The scripted engine: lists, functions, iterators."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gem_ma.engines.base import Engine, open_engine
from gem_ma.engines.small.scripted import Scripted
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Malformed, Message, Reply, Request, Tool, ToolCall


def ask(engine: Engine, agent: str = "a", **fields: Any) -> Reply:
    return asyncio.run(
        engine.sample(Request(agent, fields.pop("messages", (Message("hi"),)), **fields))
    )


def test_a_list_is_said_line_by_line_by_each_conversation() -> None:
    engine = Scripted.of(["one", "two"])
    assert [ask(engine, conversation=key).text for key in ("x", "y", "x", "y")] == [
        "one",
        "one",
        "two",
        "two",
    ]


def test_a_script_that_is_over_is_an_error_that_names_agent_and_turn() -> None:
    engine = Scripted.of(["one"], policy="main")
    ask(engine, turn=0)
    with pytest.raises(
        EngineError, match=r"'main'.*list of 1 has no reply for agent 'a', turn 1"
    ) as caught:
        ask(engine, turn=1)
    assert not caught.value.retryable


def test_a_repeating_list_starts_again() -> None:
    engine = Scripted.of(["one", "two"], repeat=True)
    assert [ask(engine).text for _ in range(5)] == ["one", "two", "one", "two", "one"]


def test_a_conversation_that_is_played_again_starts_its_script_again() -> None:
    engine = Scripted.of(["one", "two"])
    for _ in range(3):
        assert [ask(engine, conversation="x", seed=seed).text for seed in (11, 12)] == [
            "one",
            "two",
        ]


def test_a_function_sees_the_request_and_may_be_async() -> None:
    async def later(request: Request) -> str:
        await asyncio.sleep(0)
        return request.messages[-1].text + request.agent

    assert ask(Scripted.of(lambda request: request.agent.upper())).text == "A"
    assert ask(Scripted.of(later)).text == "hia"


def test_an_iterator_is_shared_and_may_end() -> None:
    engine = Scripted.of(word for word in ("one", "two"))
    assert [ask(engine, conversation=key).text for key in ("x", "y")] == ["one", "two"]
    with pytest.raises(EngineError, match="its iterator has no reply"):
        ask(engine)


def test_a_reply_is_given_as_it_is_and_a_text_is_marked_with_its_policy() -> None:
    reply = Reply("x", token_ids=(1,), logprobs=(-1.0,), policy="p", version=3)
    assert ask(Scripted.of([reply])) is reply
    assert ask(Scripted.of(["x"]), policy="main") == Reply("x", policy="main")


def test_tool_calls_are_read_where_tools_are_offered() -> None:
    text = (
        'Wait. <tool_call>{"name": "look", "arguments": {"at":'
        " 1}}</tool_call><tool_call>nonsense</tool_call>"
    )
    reply = ask(Scripted.of([text]), tools=(Tool("look"),))
    assert reply.text == "Wait."
    assert reply.tool_calls[0] == ToolCall("call_0", "look", {"at": 1})
    assert isinstance(reply.tool_calls[1], Malformed)
    assert ask(Scripted.of([text])).text == text


def test_rules_by_name() -> None:
    legal = ("check", "bet")
    assert ask(Scripted("first_legal"), legal=legal).text == "check"
    assert {
        ask(Scripted("random_legal"), legal=legal, seed=seed).text for seed in range(20)
    } == set(legal)
    assert ask(Scripted("random_legal"), legal=legal, seed=3) == ask(
        Scripted("random_legal"), legal=legal, seed=3
    )
    assert ask(Scripted("echo")).text == "hi"


def test_it_opens_from_a_config() -> None:
    assert ask(open_engine("main", "scripted/lines", replies=["yes"]), policy="main") == Reply(
        "yes", policy="main"
    )
    with pytest.raises(ConfigError, match="scripted/lines needs replies"):
        open_engine("main", "scripted/lines")
    with pytest.raises(ConfigError, match=r"'main'.*got True"):
        open_engine("main", "scripted/lines", replies=["yes", True])
    with pytest.raises(ConfigError, match=r"replies is a list of texts.*'yes'"):
        open_engine("main", "scripted/lines", replies="yes")
    with pytest.raises(ConfigError, match=r"replys.*did you mean 'replies'"):
        open_engine("main", "scripted/lines", replys=["yes"])


def test_what_is_no_text_is_an_engine_error() -> None:
    with pytest.raises(EngineError, match="got int"):
        ask(Scripted.of(lambda request: 3))


def test_lone_surrogates_are_replaced() -> None:
    assert ask(Scripted.of(["a\ud800"])).text == "a?"
