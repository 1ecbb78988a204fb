"""The openai engine against a real loopback server: what is sent, what is read, what is tried
again, what ends a run, and that no key gets out."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gem_ma
from benchmarks import faults
from gem_ma import Action, Ask, Scenario
from gem_ma.config.loading import Loaded, load
from gem_ma.driver.rollout import Plan, play
from gem_ma.engines.api.messages import NO_RESULT, chat
from gem_ma.engines.api.openai import OpenAI
from gem_ma.engines.base import Policy
from gem_ma.engines.endpoint import faults as http_faults
from gem_ma.engines.endpoint.client import Limiter
from gem_ma.engines.endpoint.endpoint import Budget
from gem_ma.engines.endpoint.faults import Fault, back_off, of_error_body, of_status, retry_after
from gem_ma.engines.endpoint.reply import decode, read
from gem_ma.kernel.episode import End, Seat
from gem_ma.kernel.errors import BudgetError, ConfigError, EndpointError, EngineError, ModelNotFound
from gem_ma.kernel.types import (
    Attempt,
    Image,
    Malformed,
    Message,
    Reply,
    Request,
    Sampling,
    Tool,
    ToolCall,
    Usage,
)
from tests.asking import answered, ask, ask_together, at_once, engine_at, kinds, refused
from tests.fault_server import (
    EVENTS,
    HTML,
    Answer,
    Asked,
    FaultServer,
    body_of,
    drop,
    events,
    hang,
    piece,
    raw,
    reply,
    says,
    status,
    streamed,
    truncated,
)
from tests.plays import played_all

ADD = Tool(
    "add", "Adds.", {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
)
KEY = "sk-canary-7f3a9b"


# -- what is sent --------------------------------------------------------------------------------


def test_a_request_carries_the_model_and_every_sampling_field() -> None:
    with FaultServer([says("fine")]) as server:
        engine = engine_at(server, extra_body={"user": "x", "cache_salt": "v3"})
        got = ask(
            engine,
            sampling=Sampling(0.3, 0.9, 5, 17, ("END",)),
            seed=2**62 + 5,
            tools=(ADD,),
            policy="other",
        )
    assert got == Reply("fine", policy="other", usage=Usage(7, 3))
    assert server.asked[0].path == "/v1/chat/completions"
    assert server.asked[0].body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.3,
        "top_p": 0.9,
        "top_k": 5,
        "max_tokens": 17,
        "seed": 5,
        "stop": ["END"],
        "tools": [ADD.schema],
        "user": "x",
        "cache_salt": "v3",
    }


def test_what_nobody_named_is_not_sent_and_the_dialect_s_own_keys_are() -> None:
    effort = {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}}
    with FaultServer([says("fine")] * 3) as server:
        ask(engine_at(server))
        ask(engine_at(server, **effort), sampling=Sampling(temperature=1.0, top_k=0))
        ask(engine_at(server), sampling=replace(Sampling(), top_p=1.0))
    plain, named, replaced = [asked.body for asked in server.asked]
    assert plain.keys() == {"model", "messages", "max_tokens", "seed"}
    assert named == {**plain, **effort, "temperature": 1.0, "top_k": 0}
    assert replaced == {**plain, "top_p": 1.0}


def test_who_asks_for_log_probabilities_is_told_of_which_distribution_they_are() -> None:
    with FaultServer([says("fine")]) as server:
        engine = engine_at(server, token_ids=True)
        sent = engine.body(Request("a", (Message("hi"),)))
    assert (sent["temperature"], sent["top_p"], sent["top_k"]) == (1.0, 1.0, 0)


@pytest.mark.parametrize(
    ("model", "named", "sent"),
    [
        ("openai/m", {}, {}),
        ("openai/m", {"temperature": 1.0}, {"temperature": 1.0}),
        ("openai/m", {"temperature": None, "top_p": 0.5}, {"top_p": 0.5}),
        ("openai/m", {"top_k": 0}, {"top_k": 0}),
        ("table/softmax", {"temperature": None}, {}),
    ],
)
def test_a_config_says_what_is_sent_and_so_does_the_folder_that_it_leaves(
    tmp_path: Path, model: str, named: dict[str, Any], sent: dict[str, Any]
) -> None:
    def written(values: dict[str, Any], name: str) -> Loaded:
        policy = {"model": model, **values}
        seats = {agent: {"policy": "p"} for agent in ("player_0", "player_1")}
        config = {"scenario": {"id": "dilemma"}, "agents": seats, "policies": {"p": policy}}
        (tmp_path / name).write_text(json.dumps(config))
        return load(tmp_path / name)

    loaded = written(named, "first.yaml")
    values = loaded.resolved()["policies"]["p"]
    again = written({key: value for key, value in values.items() if key != "model"}, "again.yaml")
    engine = OpenAI("m", base_url="http://127.0.0.1:1/v1")
    for config in (loaded.config, again.config):
        sampling = config.policies["p"].sampling
        assert sampling == Sampling(**sent)  # whoever computes takes 1, 1 and 0
        body = engine.body(Request("a", (Message("hi"),), sampling=sampling))
        told = {key: body[key] for key in ("temperature", "top_p", "top_k") if key in body}
        assert told == sent or model == "table/softmax"


@pytest.mark.parametrize("refuses", ["temperature", "top_p", "top_k"])
def test_a_sampling_option_that_a_server_refuses_is_left_out_only_where_it_is_off(
    refuses: str,
) -> None:
    def script(asked: Asked) -> Answer:
        unknown = f"{'x' * 250} Unsupported parameter: '{refuses}' is not supported"
        return status(400, unknown) if refuses in asked.body else says("ok")

    off, on = Sampling(1.0, 1.0, 0), Sampling(0.5, 0.5, 5)
    with FaultServer(script) as server:
        engine = engine_at(server)
        assert kinds(ask(engine, sampling=off)) == ["adapted"] and not ask(engine).attempts
        with pytest.raises(EngineError, match=f"{refuses}: null leaves it out"):
            ask(engine_at(server), sampling=on)


def test_a_server_that_takes_one_of_temperature_and_top_p_gets_the_one_that_does_something() -> (
    None
):
    def script(asked: Asked) -> Answer:
        both = {"temperature", "top_p"} <= asked.body.keys()
        return status(400, "temperature and top_p cannot both be given") if both else says("ok")

    with FaultServer(script) as server:
        assert kinds(ask(engine_at(server), sampling=Sampling(0.7, 1.0))) == ["adapted"]
        assert server.asked[-1].body["temperature"] == 0.7
        assert kinds(ask(engine_at(server), sampling=Sampling(1.0, 0.7))) == ["adapted"]
        assert server.asked[-1].body["top_p"] == 0.7


def test_at_openai_itself_top_k_off_is_not_sent_and_max_tokens_has_its_own_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    engine = OpenAI("gpt-x")
    asked = Request("a", (Message("hi"),), sampling=Sampling(top_k=0))
    sent = engine._adapted(engine.body(asked))
    assert "top_k" not in sent and "max_tokens" not in sent and sent["max_completion_tokens"] == 256


def test_an_option_that_a_server_refuses_and_that_has_an_equal_is_left_out_from_then_on() -> None:
    off = Sampling(top_k=0)

    def script(asked: Asked) -> Answer:
        if "top_k" in asked.body:
            return status(400, "Unrecognized request argument supplied: top_k")
        if "max_tokens" in asked.body:
            return status(
                400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            )
        return says("ok")

    with FaultServer(script) as server:
        engine = engine_at(server)

        first = ask_together(*((engine, str(n)) for n in range(8)), sampling=off)
        later = ask(engine, sampling=off)
    assert [one.text for one in first] == ["ok"] * 8
    assert {kind for one in first for kind in kinds(one)} == {"adapted"}
    assert later.attempts == () and server.asked[-1].body["max_completion_tokens"] == 256


def test_a_top_k_that_cuts_is_never_left_out_in_silence() -> None:
    with FaultServer([status(400, "unknown field top_k")]) as server:
        with pytest.raises(EngineError, match="unknown field top_k"):
            ask(engine_at(server), sampling=Sampling(top_k=5))
        assert len(server.asked) == 1


def test_roles_depend_on_who_looks_and_rows_of_user_messages_become_one() -> None:
    messages = (
        Message.system("rules"),
        Message("start"),
        Message("hello", "b"),
        Message("mine", "a"),
        Message("yours", "b"),
        Message.system("late"),
    )
    assert chat("a", messages) == [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "start\nb: hello"},
        {"role": "assistant", "content": "mine"},
        {"role": "user", "content": "b: yours\nlate"},
    ]
    assert chat("b", messages)[1:3] == [
        {"role": "user", "content": "start"},
        {"role": "assistant", "content": "hello"},
    ]
    assert chat("a", (Message("x", "user"),)) == [{"role": "user", "content": "x"}]


def test_a_call_and_its_result_are_fields_of_the_api() -> None:
    messages = (
        Message("2?"),
        Message("", "a", (ToolCall("c1", "add", {"x": 2}),)),
        Message.tool("c1", "3"),
        Message("so?"),
    )
    assert chat("a", messages)[1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "add", "arguments": '{"x": 2}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "user", "content": "so?"},
    ]


def test_servers_get_a_result_for_every_call_and_no_result_without_its_call() -> None:
    both = (
        ToolCall("c", "add", {"x": 1}),
        ToolCall("c", "add", {"x": 2}),
        Malformed("add(3", "bad_json: x"),
    )
    messages = (
        Message("go", "b"),
        Message("two", "a", both),
        Message("wait", "b"),
        Message.tool("c", "one"),
        Message.tool("?", "lost"),
    )
    rendered = chat("a", messages)
    assert [one["role"] for one in rendered] == ["user", "assistant", "tool", "tool", "user"]
    assert [call["id"] for call in rendered[1]["tool_calls"]] == ["c", "c_1"]
    assert rendered[1]["content"] == "two\nadd(3"
    assert [(one["tool_call_id"], one["content"]) for one in rendered[2:4]] == [
        ("c", "one"),
        ("c_1", NO_RESULT),
    ]
    assert rendered[4]["content"] == "b: wait\ntool result: lost"
    assert chat(
        "a", (Message("bad", "a", (Malformed("{", "bad_json"),)), Message.tool("", "unreadable"))
    )[1] == {
        "role": "user",
        "content": "tool result: unreadable",
    }


CALL_IDS = st.sampled_from(["", "c", "d"])
CALLS = st.lists(
    st.builds(ToolCall, CALL_IDS, st.just("add"), st.just({"x": 1}))
    | st.just(Malformed("{", "bad_json: x")),
    max_size=3,
).map(tuple)
SENT = st.one_of(
    st.builds(Message, st.text(max_size=3), st.sampled_from(["scenario", "system", "b"])),
    st.builds(Message, st.text(max_size=3), st.just("a"), CALLS),
    st.builds(Message.tool, CALL_IDS, st.text(max_size=3)),
)


@pytest.mark.long
@given(st.lists(SENT, max_size=8))
def test_any_conversation_is_rendered_as_servers_demand_it(messages: list[Message]) -> None:
    rendered, open_calls = chat("a", messages), list[str]()
    before = ""
    for one in rendered:
        role = one["role"]
        if role == "tool":
            assert one["tool_call_id"] == open_calls.pop(0) and isinstance(one["content"], str)
            continue
        assert not open_calls
        assert not (role == before and role in ("user", "system"))
        assert role != "system" or before == ""
        open_calls, before = [call["id"] for call in one.get("tool_calls", ())], role
        assert len(set(open_calls)) == len(open_calls) and all(open_calls)
        assert isinstance(one["content"], str) or (open_calls and one["content"] is None)
    assert not open_calls
    shown = json.dumps(rendered, ensure_ascii=False)
    assert all(message.text in shown for message in messages if message.text.isalnum())
    for one in chat("a", messages, (ADD,), native=False):
        assert one["role"] != "tool" and "tool_calls" not in one


def test_tools_as_text_stand_in_the_system_message_and_calls_are_read_from_text() -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {"x": 2}}\n</tool_call>'
    with FaultServer([says(f"Sure. {call}")]) as server:
        history = (
            Message("2?"),
            Message("", "a", (ToolCall("c", "add", {"x": 1}),)),
            Message.tool("c", "2"),
        )
        got = ask(engine_at(server, tools="text"), *history, tools=(ADD,))
    body = server.asked[0].body
    assert "tools" not in body
    assert body["messages"][0]["role"] == "system"
    assert '"name": "add"' in body["messages"][0]["content"]
    assert "<tool_call>" in body["messages"][2]["content"]
    assert "<tool_response>\n2\n" in body["messages"][3]["content"]
    assert got.text == "Sure." and got.tool_calls == (ToolCall("call_0", "add", {"x": 2}),)
    # none was offered
    assert answered(says(call), tools="text") == Reply(call, policy="main", usage=Usage(7, 3))


def test_a_server_that_knows_no_tools_is_told_with_the_way_out() -> None:
    error = refused(status(400, '"auto" tool choice requires --enable-auto-tool-choice to be set'))
    assert not error.retryable and str(error).endswith("takes tools: text")


def test_an_image_goes_as_a_data_url_and_one_without_bytes_is_refused() -> None:
    image = Image.of(b"\x89PNG")
    assert chat("a", (Message(("look", image)),)) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
            ],
        }
    ]
    with pytest.raises(EngineError, match="its bytes are in the run folder"):
        chat("a", (Message((Image(image.digest),)),))


def test_lone_surrogates_are_sent_as_question_marks() -> None:
    with FaultServer([says()]) as server:
        ask(
            engine_at(server),
            Message("a\ud800b"),
            Message("", "a", (ToolCall("c", "f\udfff", {"k": "\ud800"}),)),
        )
    assert server.asked[0].body["messages"][0]["content"] == "a?b"


# -- what is read --------------------------------------------------------------------------------


def test_calls_are_read_from_fields_and_a_bad_one_is_data_with_its_reason() -> None:
    deep = '{"x": ' + "[" * 10_000 + "]" * 10_000 + "}"
    given = [
        ("c1", "add", '{"x": 2}'),
        ("c2", "add", "{x: 2}"),
        ("c3", "add", "[2]"),
        ("c4", "add", deep),
        ("c5", "", "{}"),
        ("c6", "add", ""),
    ]
    given += [
        ("c7", "add", '"{\\"x\\": 4}"'),
        ("c8", "add", {"x": 5}),
        ("c9", "add", '{"x": NaN}'),
        ("c10", "add", "9" * 300_000),
        (None, "add", "{}"),
    ]
    got = answered(says(None, calls=given, finish="tool_calls"))
    reasons = [
        call.reason.split(":")[0] if isinstance(call, Malformed) else call.arguments
        for call in got.tool_calls
    ]
    assert reasons == [
        {"x": 2},
        "bad_json",
        "not_object",
        "bad_json",
        "missing_name",
        {},
        {"x": 4},
        {"x": 5},
        "bad_json",
        "too_large",
        {},
    ]
    assert got.finish == "stop" and got.text == "" and got.attempts == ()
    assert got.tool_calls[0].id == "c1" and got.tool_calls[-1].id == "call_10"  # type: ignore[union-attr]


def test_a_call_that_max_tokens_cut_says_so() -> None:
    (call,) = answered(says(None, calls=[("c", "add", '{"x": 1')], finish="length")).tool_calls
    assert isinstance(call, Malformed) and call.reason.startswith("truncated_call")


def test_more_than_64_calls_are_cut_in_plain_sight() -> None:
    calls = answered(says(None, calls=[(f"c{n}", "add", "{}") for n in range(100)])).tool_calls
    assert len(calls) == 65
    assert isinstance(calls[64], Malformed)
    assert calls[64].reason.startswith("too_many")


def test_usage_is_read_and_unknown_where_the_server_does_not_say() -> None:
    assert answered(says("x", usage=None)).usage == Usage()
    full = reply("x", usage=(10, 4))
    full["usage"]["prompt_tokens_details"] = {"cached_tokens": 6}
    assert answered(raw(full)).usage == Usage(10, 4, 6)
    odd = {"usage": {"prompt_tokens": -1, "completion_tokens": "4"}}
    assert answered(raw(reply("x") | odd)).usage == Usage()


def test_ids_and_log_probabilities_are_read_where_they_are_asked_for() -> None:
    choice = {
        "token_ids": [5, 6],
        "logprobs": {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1}]},
    }
    with FaultServer([says("ab", choice=choice, prompt_token_ids=[1, 2, 3])]) as server:
        got = ask(engine_at(server, token_ids=True))
    assert (got.prompt_ids, got.token_ids, got.logprobs) == ((1, 2, 3), (5, 6), (-0.5, -1.0))
    assert server.asked[0].body["logprobs"] is True
    assert server.asked[0].body["return_token_ids"] is True


def test_ids_that_were_asked_for_and_do_not_come_are_a_fault() -> None:
    choice = {"token_ids": [5], "logprobs": {"content": [{"logprob": -0.5}, {"logprob": -1}]}}
    error = refused(says("ab", choice=choice, prompt_token_ids=[1]), token_ids=True, attempts=2)
    assert error.retryable and "token ids were asked for" in str(error)
    assert answered(says("ab", choice=choice)).token_ids == ()


def test_invalid_utf8_and_lone_surrogates_are_replaced() -> None:
    body = json.dumps(reply("A_B")).encode().replace(b"A_B", b"A\xff\\ud800B")
    got = answered(raw(body))
    assert got.text == "A\ufffd?B" and got.attempts == ()


def test_a_server_that_says_nothing_of_the_content_type_is_taken_at_its_json() -> None:
    for kind in (None, "application/problem+json; charset=utf-8"):
        assert answered(raw(reply("x"), kind)).text == "x"


def test_a_stream_adds_up_to_the_same_reply() -> None:
    parts = [
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "add", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]},
        {
            "tool_calls": [
                {"index": 0, "function": {"arguments": ": 2}"}},
                {"index": 1, "id": "c2", "function": {"name": "add", "arguments": "{}"}},
            ]
        },
    ]
    with FaultServer(
        [
            events(
                {"role": "assistant"}, "he", "llo\u2028", *parts, finish="tool_calls", usage=(3, 4)
            )
        ]
    ) as server:
        got = ask(engine_at(server, stream=True))
    assert got == Reply(
        "hello\u2028",
        (ToolCall("c1", "add", {"x": 2}), ToolCall("c2", "add", {})),
        policy="main",
        usage=Usage(3, 4),
    )
    assert server.asked[0].body["stream"] is True
    assert server.asked[0].body["stream_options"] == {"include_usage": True}


def test_a_stream_may_carry_ids() -> None:
    chunk = piece({"content": "a"}, "stop") | {"prompt_token_ids": [1, 2]}
    chunk["choices"][0] |= {"token_ids": [4], "logprobs": {"content": [{"logprob": -1.5}]}}
    body = raw(streamed([chunk], "\r\n\r\n", done=False), EVENTS)
    got = answered(body, stream=True, token_ids=True)
    assert (got.prompt_ids, got.token_ids, got.logprobs) == ((1, 2), (4,), (-1.5,))


def test_a_server_that_does_not_stream_is_understood_all_the_same() -> None:
    assert answered(says("whole"), stream=True).text == "whole"


# -- what is tried again -------------------------------------------------------------------------

GARBAGE = Answer(body=b"\x1f\x8bnot gzip", headers={"content-encoding": "gzip"})
DEEP = raw(b'{"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")
FAULTS = {
    "rate_limited": [
        status(429, retry_after=0),
        status(529),
        status(503, retry_after="0"),
        raw(b'{"error": {"code": "rate_limit_exceeded"}}'),
    ],
    "server": [
        status(500),
        status(502),
        status(503),
        status(408),
        status(409),
        status(425),
        raw(b'{"error": {"code": 500, "message": "x"}}'),
    ],
    "transport": [
        drop(),
        drop(after=30),
        GARBAGE,
        Answer(body=b"x" * 10, promised=100, then="drop"),
    ],
    "bad_reply": [
        truncated(),
        raw(b"<html>busy</html>", HTML),
        raw(reply("x"), "text/plain"),
        raw(b'{"choices": []}'),
        raw(b'{"choices": null}'),
        raw(b'{"choices": [{"message": null}]}'),
        raw(b'{"choices": [{"message": {"content": "x"}, "score": NaN}]}'),
        raw(b"[1, 2]"),
        raw(b""),
        raw(b"null"),
        raw(b'{"error": "busy"}'),
        DEEP,
        events("half", finish=None, done=False),
        events("half", finish=None, done=False, usage=(1, 1)),
        raw(b"data: {broken\n\n", EVENTS),
        raw(b'data: {"error": {"message": "gone"}}\n\ndata: [DONE]\n\n', EVENTS),
        events(finish=None),
        Answer(status=204, body=b""),
    ],
}


@pytest.mark.parametrize(
    ("kind", "fault"), [(kind, fault) for kind, several in FAULTS.items() for fault in several]
)
def test_a_fault_is_tried_again_and_stands_in_the_record(kind: str, fault: Answer) -> None:
    got = answered(fault, says("whole"))
    assert got.text == "whole" and kinds(got) == [kind]
    assert kind == "transport" or got.attempts[0].status in (fault.status, 200)
    told = fault.headers.get("retry-after") is not None
    assert 0 <= got.attempts[0].wait_s <= (0.4 if kind == "rate_limited" and not told else 0.1)
    assert got.attempts[0].detail


def test_a_stream_that_is_cut_is_tried_again() -> None:
    cut = events("half a", "nswer", then="drop")
    assert kinds(answered(cut, says("whole"), stream=True)) == ["transport"]


def test_a_hang_and_a_slow_drip_are_cut_at_the_time_limit() -> None:
    for slow in (
        hang(),
        raw(reply("drip"), drip_s=0.05),
        says("late", delay_s=5.0),
    ):
        began = time.monotonic()
        got = answered(slow, says("whole"), timeout_s=0.3)
        assert kinds(got) == ["transport"] and "within 0.3 s" in got.attempts[0].detail
        assert time.monotonic() - began < 3.0


@pytest.mark.long
def test_a_body_of_50_mb_is_cut_at_the_cap() -> None:
    with FaultServer([raw(b'{"x": "' + b"y" * 50_000_000 + b'"}'), says("small")]) as server:
        got = ask(engine_at(server, timeout_s=30))
    assert kinds(got) == ["bad_reply"] and "longer than" in got.attempts[0].detail
    huge_error = Answer(500, b"z" * 50_000_000, "text/plain")
    got = answered(huge_error, says("small"), timeout_s=30)
    assert kinds(got) == ["server"] and len(got.attempts[0].detail) == 200


def test_an_empty_answer_is_tried_twice_and_is_data_then() -> None:
    got = answered(says(""))
    assert got.text == "" and kinds(got) == ["empty", "empty"] and got.finish == "stop"
    assert kinds(answered(says(None), says("now"))) == ["empty"]
    assert answered(says("", finish="length")).attempts == ()
    assert answered(says(None, calls=[("c", "add", "{}")])).attempts == ()


def test_retry_after_is_obeyed_and_one_beyond_the_budget_gives_up_at_once() -> None:
    began = time.monotonic()
    got = answered(status(429, retry_after=0.4), says())
    assert time.monotonic() - began >= 0.4 and 0.4 <= got.attempts[0].wait_s <= 0.45
    began = time.monotonic()
    error = refused(status(429, retry_after=3600), wall_s=10)
    assert error.retryable and not isinstance(error, EndpointError) and time.monotonic() - began < 5
    # nothing that is raised helps against an hour, and nobody guesses it
    assert "it asks to wait 3600 s" in str(error)


def test_retry_after_in_all_its_forms() -> None:
    assert retry_after({"retry-after": "2"}) == 2.0
    assert retry_after({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    now = 1_800_000_000
    assert (
        retry_after(
            {"retry-after": formatdate(now + 30, usegmt=True), "date": formatdate(now, usegmt=True)}
        )
        == 30.0
    )
    assert (
        retry_after(
            {"retry-after": formatdate(now - 30, usegmt=True), "date": formatdate(now, usegmt=True)}
        )
        == 0.0
    )
    assert retry_after({"retry-after": "-5"}) == 0.0
    assert [retry_after({"retry-after": bad}) for bad in ("soon", "nan", "inf", "")] == [None] * 4
    assert retry_after({}) is None


def test_the_wait_grows_its_ceiling_sixfold_and_never_undercuts_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_faults, "FIRST_WAIT_S", 0.5)
    monkeypatch.setattr(http_faults, "LONGEST_WAIT_S", 30.0)
    rng, fault = random.Random(1), Fault("server")
    most = [max(back_off(tries, fault, rng) for _ in range(1000)) for tries in (1, 2, 3, 12, 10**6)]
    assert most[:3] == pytest.approx([0.5, 3.0, 18.0], rel=0.02)
    assert 29.0 < most[3] <= 30.0
    assert 29.0 < most[4] <= 30.0
    waits = [back_off(1, Fault("rate_limited", retry_after=2.0), rng) for _ in range(100)]
    assert min(waits) >= 2.0 and max(waits) <= 2.04 and len(set(waits)) == 100


def test_a_request_gives_up_after_its_attempts_and_names_them() -> None:
    with (
        FaultServer([status(500, "one"), truncated(), status(500, "three")]) as server,
        pytest.raises(EngineError) as caught,
    ):
        ask(engine_at(server, attempts=3))
    assert len(server.asked) == 3 and caught.value.retryable
    assert "3 attempts" in str(caught.value)
    assert "2 x server (500), 1 x bad_reply (200)" in str(caught.value)
    assert "three" in str(caught.value)


def test_a_request_gives_up_at_its_wall_budget() -> None:
    began = time.monotonic()
    with FaultServer([hang()]) as server, pytest.raises(EndpointError):
        ask(engine_at(server, timeout_s=0.2, wall_s=0.5, attempts=1000))
    # three attempts of 0.2 s or less, one more to see whether it is there
    assert 0.4 < time.monotonic() - began < 4 and len(server.asked) <= 5


def test_a_request_that_makes_a_server_hang_is_told_from_a_server_that_is_gone() -> None:
    with FaultServer(lambda asked: hang() if asked.last == "poison" else says("ok")) as server:
        engine = engine_at(server, timeout_s=0.2, attempts=2)
        with pytest.raises(EngineError) as caught:
            ask(engine, Message("poison"))
        assert type(caught.value) is EngineError
        assert caught.value.retryable
        assert ask(engine).text == "ok"


def test_a_budget_learns_how_many_tokens_a_server_counts() -> None:
    with FaultServer([says("x", usage=(400, 4))]) as server:
        budget = Budget(tokens=1000)
        engine = engine_at(server, budget=budget)
        for _ in range(2):
            ask(engine, sampling=Sampling(max_tokens=16))
        with pytest.raises(BudgetError, match=r"limits\.tokens is 1000, 808 are spent"):
            ask(engine, sampling=Sampling(max_tokens=16))
    assert len(server.asked) == 2


def test_the_wall_budget_does_not_run_while_a_request_waits_for_its_place() -> None:
    with FaultServer([says("ok", delay_s=0.25)]) as server:
        engine = engine_at(server, concurrency=1, wall_s=0.6)
        got = ask_together(*((engine, str(n)) for n in range(6)))
    assert [one.text for one in got] == ["ok"] * 6
    assert server.most_at_once == 1


# -- what is never tried again -------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        status(
            400,
            "This model's maximum context length is 100 tokens. However, you requested 120 tokens",
            code_word=None,
        ),
        status(400, "too long", code_word="context_length_exceeded"),
        status(413, "maximum context length"),
        raw(b'{"error": {"code": "context_length_exceeded", "message": "x"}}'),
        Answer(400, b'{"object": "error", "message": "maximum context length is 10", "code": 400}'),
    ],
)
def test_a_context_overflow_is_a_reply_that_says_so_once(answer: Answer) -> None:
    with FaultServer([answer]) as server:
        got = ask(engine_at(server))
    assert got.finish == "context_overflow"
    assert kinds(got) == ["context_overflow"]
    assert len(server.asked) == 1


def test_a_context_overflow_cuts_its_episode_once() -> None:
    with FaultServer([says("left"), status(400, "maximum context length")]) as server:
        (episode,) = _episodes(engine_at(server), 1)
    assert episode.end is End.CONTEXT and len(server.asked) == 2


def test_what_a_server_says_of_a_request_that_it_refused_is_told_once_a_kind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = [status(400, "prompt is too long: 9 tokens > 8"), status(403, "prompt was flagged")]
    with FaultServer([*script, *script]) as server:
        engine = engine_at(server)
        finishes = [ask(engine).finish for _ in range(4)]
    assert finishes == ["context_overflow", "content_filter"] * 2
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2 and "(400: prompt is too long: 9 tokens > 8)" in told[0]


def test_a_refusal_by_a_filter_is_data() -> None:
    assert answered(status(400, "no", code_word="content_filter")).finish == "content_filter"
    assert answered(says(None, finish="content_filter")).finish == "content_filter"


def test_a_wrong_key_is_one_line_that_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    for code in (401, 403):
        with (
            FaultServer([status(code, f"Incorrect key provided: {KEY}.")]) as server,
            pytest.raises(EndpointError) as caught,
        ):
            ask(engine_at(server, api_key_env="MY_KEY"))
        text = str(caught.value)
        assert len(server.asked) == 1 and not caught.value.retryable
        assert "policy 'main'" in text
        assert "MY_KEY" in text
        assert "export a valid key" in text
        assert KEY not in text
        assert "\n" not in text


@pytest.mark.parametrize(
    "answer",
    [
        status(404, "The model `m` does not exist.", code_word="model_not_found"),
        Answer(
            404,
            b'{"object":"error","message":"The model `m` does not'
            b' exist.","type":"NotFoundError","code":404}',
        ),
        status(400, "model m not found"),
    ],
)
def test_a_wrong_model_name_is_told_from_a_wrong_address(answer: Answer) -> None:
    error = refused(answer)
    assert isinstance(error, ModelNotFound) and "no model 'm'" in str(error)
    assert type(refused(status(404, "Not Found"))) is EndpointError


def test_no_quota_ends_the_run_although_it_is_a_429() -> None:
    for answer in (
        status(429, "You exceeded your quota", code_word="insufficient_quota"),
        status(402),
    ):
        error = refused(answer)
        assert isinstance(error, EndpointError) and "no quota" in str(error)


def test_a_redirect_is_not_followed_because_the_key_would_travel() -> None:
    with FaultServer([says("stolen")]) as other:
        with (
            FaultServer([status(307, location=f"{other.url}/chat/completions")]) as server,
            pytest.raises(EndpointError, match="write that as base_url"),
        ):
            ask(engine_at(server))
        assert other.asked == []


def test_a_request_that_a_server_refuses_fails_alone() -> None:
    with FaultServer(
        lambda asked: (
            status(422, "bad temperature") if "poison" in asked.last else says("ok", delay_s=0.02)
        )
    ) as server:
        engine = engine_at(server)
        requests = [Request("a", (Message("poison" if n == 3 else "fine"),)) for n in range(8)]
        got = at_once(*((engine, one) for one in requests), failing=True)
    assert [one.text for n, one in enumerate(got) if n != 3] == ["ok"] * 7
    assert type(got[3]) is EngineError and "bad temperature" in str(got[3]) and not got[3].retryable


def test_a_server_that_is_not_there_is_one_line_after_few_attempts() -> None:
    with FaultServer([says()]) as server:
        url = server.url
    with pytest.raises(EndpointError) as caught:
        ask(OpenAI("m", base_url=url, policy="main"))
    error = caught.value
    assert "5 attempts" in str(error)
    assert "start it, or correct base_url" in str(error)
    assert "\n" not in str(error)


def test_a_server_that_comes_back_is_waited_for() -> None:
    with FaultServer([says("before")]) as server:
        engine, port = engine_at(server, attempts=60, wall_s=60), server.port

        async def through_a_restart() -> list[str]:
            first = await engine.sample(Request("a", (Message("1"),)))
            await asyncio.to_thread(server.__exit__)
            second = asyncio.ensure_future(engine.sample(Request("a", (Message("2"),))))
            await asyncio.sleep(0.3)
            with FaultServer([says("after")], port=port):
                return [
                    first.text,
                    (await second).text,
                    *{one.kind for one in (await second).attempts},
                ]

        assert asyncio.run(through_a_restart()) == ["before", "after", "transport"]


@pytest.mark.long
@given(
    st.binary(max_size=200)
    | st.sampled_from(
        [b'{"choices": [1]}', b'{"choices": {}}', b'{"error": []}', b'{"error": {"code": [1]}}']
    ),
    st.booleans(),
)
def test_no_body_raises_anything_but_a_fault(body: bytes, stream: bool) -> None:
    try:
        read(decode(body, EVENTS if stream else "application/json"))
    except Fault as fault:
        assert fault.kind


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    [
        "content",
        "tool_calls",
        "function_call",
        "logprobs",
        "token_ids",
        "finish_reason",
        "delta",
        "function",
        "index",
        "refusal",
    ]
)
SHAPES = st.recursive(
    JSON_VALUES,
    lambda inner: st.dictionaries(FIELDS, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.long
@settings(max_examples=40)
@given(SHAPES, SHAPES, SHAPES)
def test_no_shape_of_a_reply_raises_anything_but_a_fault(
    message: Any, choice: Any, rest: Any
) -> None:
    whole = {
        "choices": [{"message": message, **(choice if isinstance(choice, dict) else {})}],
        "usage": rest,
        "prompt_token_ids": rest,
    }
    chunk = {
        "choices": [{"delta": message, **(choice if isinstance(choice, dict) else {})}, rest],
        "usage": rest,
    }
    for value in (whole, [chunk]):
        try:
            read(decode(*body_of(value)))
        except Fault as fault:
            assert fault.kind
    for error in (message, rest):
        assert of_error_body(error).kind and of_status(400, {}, json.dumps({"error": error})).kind


# -- many at once --------------------------------------------------------------------------------


@pytest.mark.long
def test_64_requests_are_under_way_at_once_and_each_gets_its_own_reply() -> None:
    with FaultServer(lambda asked: says(f"to {asked.last}", delay_s=0.3)) as server:
        engine = engine_at(server, concurrency=64)
        got = ask_together(*((engine, str(n)) for n in range(128)))
    assert [one.text for one in got] == [f"to {n}" for n in range(128)]
    assert 32 < server.most_at_once <= 64


def test_policies_of_one_endpoint_share_its_limit() -> None:
    with FaultServer([says(delay_s=0.05)]) as server:
        one = engine_at(server, concurrency=3)
        other = engine_at(server, concurrency=8, policy="other")
        ask_together(*[(other, "x"), (one, "x")] * 12)
    assert server.most_at_once == 3


def test_a_limit_halves_where_most_answers_say_too_many_and_grows_back() -> None:
    async def work() -> list[int]:
        limiter, seen = Limiter(8), []
        for busy in (
            [True] * 8 + [True] * 4 + [False] * 2 + [False, True, True, False, False, False]
        ):
            limiter.heard(busy)
            seen.append(limiter.limit)
        return seen

    assert asyncio.run(work()) == [8] * 7 + [4] * 4 + [2] + [2, 3] + [3, 3, 1, 2, 2, 3]


def test_places_are_given_in_order_and_a_cancelled_one_is_passed_on() -> None:
    async def work() -> list[int]:
        limiter, order = Limiter(1), []

        async def one(number: int) -> None:
            async with limiter:
                order.append(number)
                await asyncio.sleep(0.01)

        tasks = [asyncio.ensure_future(one(n)) for n in range(5)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert limiter.running == 0
        return order

    assert asyncio.run(work()) == [0, 2, 3, 4]


def test_a_place_that_was_given_to_a_cancelled_request_is_not_lost() -> None:
    async def work() -> bool:
        limiter, entered = Limiter(1), []

        async def one(name: str) -> None:
            async with limiter:
                entered.append(name)

        async with limiter:
            waiting = asyncio.ensure_future(one("cancelled"))
            await asyncio.sleep(0)
        waiting.cancel()  # it has been given the place and has not run yet
        await asyncio.wait_for(one("next"), 1.0)
        return entered == ["next"] and limiter.running == 0

    assert asyncio.run(work())


def test_a_cancelled_request_leaves_nothing_behind() -> None:
    with FaultServer(lambda asked: hang() if asked.last == "hang" else says("ok")) as server:
        engine = engine_at(server, concurrency=1)

        async def work() -> str:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await engine.sample(Request("a", (Message("hang"),)))
            return (await engine.sample(Request("a", (Message("hi"),)))).text

        assert asyncio.run(work()) == "ok"


def test_one_engine_serves_several_loops_and_leaves_no_connection_open() -> None:
    with warnings.catch_warnings(), FaultServer([says("ok")]) as server:
        warnings.simplefilter("error", ResourceWarning)
        engine = engine_at(server)
        assert [ask(engine).text for _ in range(3)] == ["ok"] * 3
        gc.collect()


class Talk(Scenario):
    """Two agents answer in turn, twice each."""

    agents = ("a", "b")

    def play(self, rng: random.Random, task: Any) -> Any:
        for turn in range(4):
            said: dict[str, Action] = yield Ask({self.agents[turn % 2]: f"turn {turn}"})
            assert set(said) == {self.agents[turn % 2]}


def _plans(count: int) -> Iterator[Plan]:
    scenario = Talk()
    return (
        Plan(scenario, dict.fromkeys(scenario.agents, Seat("direct", "main")), seed=seed)
        for seed in range(count)
    )


def _episodes(engine: OpenAI, count: int) -> list[Any]:

    return played_all(_plans(count), {"main": Policy("main", engine)}, concurrency=count)


@pytest.mark.long
@pytest.mark.parametrize("stream", [False, True])
def test_no_episode_is_lost_or_doubled_by_a_server_full_of_faults(stream: bool) -> None:
    rng, sent = random.Random(3), []

    def script(asked: Asked) -> Answer:
        draw = rng.random()
        mixed = [
            (0.1, status(429, retry_after=0.01)),
            (0.1, status(500)),
            (0.05, truncated()),
            (0.05, drop(after=20)),
            (0.03, raw(b'{"choices": []}')),
        ]
        for share, fault in [*mixed, (0.02, hang())]:
            if draw < share:
                sent.append(fault)
                return fault
            draw -= share
        text = f"{asked.body['seed']}"
        return events(text) if stream else says(text)

    with FaultServer(script) as server:
        episodes = _episodes(engine_at(server, concurrency=64, timeout_s=1.0, stream=stream), 50)
    assert sorted(episode.seed for episode in episodes) == list(range(50))
    assert all(episode.end is End.TERMINATED for episode in episodes)
    replies = [one for episode in episodes for turn in episode.turns for one in turn.replies]
    assert len(replies) == len({one.text for one in replies}) == 200
    attempts = [attempt for one in replies for attempt in one.attempts]
    # a busy machine makes an honest answer miss the time-out, as a hang does
    late = len(attempts) - len(sent)
    assert 0 <= late <= sum(attempt.kind == "transport" for attempt in attempts)
    assert len(server.asked) == 200 + len(attempts)


@pytest.mark.long
def test_the_benchmark_of_faults_holds_small() -> None:
    many = {**faults.EVERY, "hang": 0.005}
    got = faults.play(many, 20, 0.02, stream=True, together=True, timeout_s=1.5)
    assert got["lost"] == got["doubled"] == got["wrong"] == 0
    assert got["attempts"] == got["faults"] + got["late"] > 0 <= got["late"]
    assert got["requests"] == 80 + got["attempts"]


def test_what_ends_a_run_is_raised_through_a_behaviour_that_catches_everything() -> None:
    class Stubborn:
        def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
            self.sample = sample

        async def act(self, asked: Any) -> Action:
            try:
                await self.sample(asked.transcript)
            except Exception:
                return Action("never mind")
            return Action("fine")

    with FaultServer([status(401)]) as server:
        policies = {"main": Policy("main", engine_at(server))}
        with pytest.raises(EndpointError):
            asyncio.run(play(next(_plans(1)), policies, dict.fromkeys(Talk.agents, Stubborn)))


# -- secrets, options ----------------------------------------------------------------------------


def test_a_key_reaches_the_server_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    echo = [
        status(500, f"key {KEY}"),
        raw(f"<p>{KEY}</p>".encode(), HTML),
        says(f"your key is {KEY}"),
    ]
    with FaultServer(echo) as server:
        engine = engine_at(server, api_key_env="MY_KEY")
        got = ask(engine)
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert got.text == "your key is ***"
    assert KEY not in repr(got)
    assert kinds(got) == ["server", "bad_reply"]
    assert KEY not in repr(engine) and KEY not in repr(vars(engine)) and KEY not in caplog.text
    for answer in (status(401, KEY), status(400, KEY), status(500, KEY), drop()):
        with FaultServer([answer]) as server:
            try:
                ask(engine_at(server, api_key_env="MY_KEY", attempts=2))
            except EngineError as error:
                assert error.__cause__ is None and error.__context__ is None
                frames = traceback.TracebackException.from_exception(
                    error, capture_locals=True
                ).stack
                assert KEY not in str(
                    [
                        (frame.line, frame.locals)
                        for frame in frames
                        if frame.filename.startswith(gem_ma.__path__[0])
                    ]
                )
                assert any("gem_ma" in frame.filename for frame in frames)
            else:
                pytest.fail("no error")


def test_a_key_of_the_default_server_is_never_sent_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with FaultServer([says()]) as server:
        ask(engine_at(server))
    assert KEY not in str(server.asked[0].headers)


def test_what_the_environment_says_for_openai_is_sent_to_no_other_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sesame-4")
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    with FaultServer([says()]) as server:
        ask(engine_at(server, api_key_env="MY_KEY"))
    assert "sesame" not in str(server.asked[0].headers)
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("key", ["sk-canary\nX-Other: 1", "sk-canary\u00e9", " ", "sk canary"])
def test_a_key_that_is_none_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("MY_KEY", key)
    with pytest.raises(ConfigError, match="the key in MY_KEY holds white space") as caught:
        OpenAI("m", base_url="http://127.0.0.1:1/v1", api_key_env="MY_KEY")
    assert "canary" not in str(caught.value)


def test_a_missing_key_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set"):
        OpenAI("gpt-x")
    with pytest.raises(ConfigError, match="MY_KEY is not set"):
        OpenAI("m", base_url="http://127.0.0.1:1/v1", api_key_env="MY_KEY")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": "127.0.0.1:8000/v1"}, "base_url is an address"),
        ({"base_url": "http://me:sesame@host/v1"}, "may hold no user"),
        ({"base_url": "http://host/v1?key=sesame"}, "may hold no user"),
        ({"base_url": "http://host:port/v1"}, "base_url is an address"),
        ({"attempts": 0}, "attempts must be above 0"),
        ({"timeout_s": float("nan")}, "timeout_s must be above 0"),
        ({"tools": "magic"}, "tools is native or text"),
        ({"extra_body": {"messages": []}}, "may not hold 'messages'"),
        ({"price": {"input": 1}}, "'output' is missing"),
        ({"price": {"input": 1, "output": -2}}, "price.output is USD"),
        ({"price": {"input": 1, "output": 2, "in": 3}}, "unknown key 'in'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        OpenAI("m", **{"base_url": "http://127.0.0.1:1/v1", **options})
    assert "sesame" not in str(caught.value)


def test_a_slash_or_the_whole_path_at_the_end_of_the_address_does_no_harm() -> None:
    with FaultServer([says()]) as server:
        for end in ("", "/", "/chat/completions"):
            ask(OpenAI("m", base_url=server.url + end))
    assert {one.path for one in server.asked} == {"/v1/chat/completions"}


def test_a_ping_is_one_small_request() -> None:
    with FaultServer([says()]) as server:
        assert asyncio.run(engine_at(server).ping()).text == "ok"
    assert len(server.asked) == 1 and server.asked[0].body["max_tokens"] == 16


def test_attempts_survive_the_record() -> None:
    from gem_ma.record.codec import dump_episode, load_episode

    with FaultServer([status(429, "a\x1b[31m\u202e\ud800b", retry_after=0), says("x")]) as server:
        (episode,) = _episodes(engine_at(server), 1)
    kept = load_episode(dump_episode(episode))
    assert kept == episode
    assert kept.turns[0].replies[0].attempts[0] == Attempt(
        "rate_limited", 429, kept.turns[0].replies[0].attempts[0].wait_s, "a?[31m??b"
    )
