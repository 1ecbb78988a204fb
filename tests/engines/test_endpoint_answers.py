"""What counts as an answer of an endpoint, and what does not: finish reasons, errors in and
beside choices, cut streams, second replies, bombs."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from dataclasses import astuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_ma.engines.api.openai import OpenAI
from gem_ma.engines.api.thoughts import Thoughts
from gem_ma.engines.endpoint.faults import RETRIED, Fault
from gem_ma.engines.endpoint.reply import (
    FINISHES,
    GIVEN_UP,
    decode,
    finish_of,
    read,
    read_completion,
)
from gem_ma.kernel.types import Message, Reply, Request, Sampling, ToolCall, Usage
from tests.asking import answered, ask_together, engine_at, kinds
from tests.fault_server import (
    EVENTS,
    Answer,
    Asked,
    FaultServer,
    body_of,
    events,
    piece,
    raw,
    reply,
    says,
    streamed,
)


def test_an_outage_is_told_once_a_kind_while_it_lasts_and_chance_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = [raw(b"<p>log in</p>", "text/html"), says("x", finish="weird"), raw(b"{}")]
    for fault in bad:
        caplog.clear()
        assert answered(fault, fault, says("x")).text == "x" and not caplog.records
        assert answered(*[fault] * 5, says("x")).text == "x"
        (told,) = [record.getMessage() for record in caplog.records]
        assert "127.0.0.1" in told and "failed a request as bad_reply" in told
        assert "tried again, up to" in told


# -- finish reasons ------------------------------------------------------------------------------

UNKNOWN = st.recursive(
    st.text(max_size=12)
    | st.integers()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
).filter(
    # "null" is none yet in a stream
    lambda value: (
        value not in ("", "null")
        and not (isinstance(value, str) and value.casefold().replace("-", "_") in FINISHES)
    )
)


def bodies(finish: Any) -> list[tuple[bytes, str]]:
    """A whole reply, and streams that say so in their last event, in an earlier one, and beside
    text."""
    end = piece({}, finish)
    good = piece({"content": "x"}, "stop")
    half = piece({"content": "x"}, finish)
    streams = [[half], [{"choices": [{"delta": {"content": "x"}}]}, end], [end, good], [half, good]]
    return [body_of(one) for one in (reply("x", finish=finish), *streams)]


@pytest.mark.long
@given(UNKNOWN)
def test_an_unknown_finish_reason_is_a_fault_that_is_tried_again_wherever_it_stands(
    finish: Any,
) -> None:
    for body, kind in bodies(finish):
        with pytest.raises(Fault) as caught:
            read(decode(body, kind))
        assert caught.value.kind in RETRIED
    choice = {
        "finish_reason": finish,
        "token_ids": [7],
        "logprobs": {"token_logprobs": [-1.0]},
        "prompt_token_ids": [1],
    }
    with pytest.raises(Fault) as caught:
        read_completion({"choices": [choice]}, (1,))
    assert caught.value.kind in RETRIED


@pytest.mark.parametrize("finish", sorted(GIVEN_UP))
def test_words_of_giving_up_are_faults_of_the_server(finish: str) -> None:
    with pytest.raises(Fault, match="server"):
        finish_of(finish)


@pytest.mark.parametrize("finish", [*FINISHES, None])
def test_a_known_finish_reason_is_that_of_an_answer(finish: str | None) -> None:
    for body, kind in bodies(finish)[:3]:
        if finish is not None or kind != EVENTS:
            assert read(decode(body, kind)).finish == (
                FINISHES[finish] if finish is not None else "stop"
            )


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("COMPLETE", "stop"),
        ("TOOL_CALL", "stop"),
        ("end-turn", "stop"),
        ("MAX_TOKENS", "length"),
        ("model_length", "length"),
        ("pause_turn", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("SAFETY", "content_filter"),
        ("ERROR_TOXIC", "content_filter"),
    ],
)
def test_a_reason_of_another_vendor_is_read_as_what_it_means(reason: str, finish: str) -> None:
    assert [read(decode(body, kind)).finish for body, kind in bodies(reason)[:3]] == [finish] * 3


@pytest.mark.parametrize("reason", ["model_length", "model_context_window_exceeded"])
def test_a_full_window_without_an_answer_is_an_overflow(reason: str) -> None:
    assert read(reply("", finish=reason)).finish == "context_overflow"
    assert read(reply("half", finish=reason)).finish == "length"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("finish", ["error", "banana", "", {"type": "stop"}])
def test_a_choice_that_failed_stands_in_the_record_and_not_in_the_answer(
    finish: Any, stream: bool
) -> None:
    bad = events("half an ans", finish=finish) if stream else says("half an ans", finish=finish)
    if stream and not finish:  # the last event of a stream that never ends
        bad = raw(streamed([piece({"content": "half"}, "")]), EVENTS)
    got = answered(bad, says("whole"), stream=stream)
    assert got.text == "whole"
    assert len(got.attempts) == 1
    assert kinds(got)[0] in ("server", "bad_reply")
    assert "finish reason" in got.attempts[0].detail


def test_an_empty_finish_reason_is_none_yet_in_a_stream_and_none_at_all_in_a_whole_reply() -> None:
    going_on = [piece({"content": letter}, "") for letter in "ab"]
    assert read(decode(streamed([*going_on, piece({}, "stop")]), EVENTS)).text == "ab"
    with pytest.raises(Fault):
        read(reply("x", finish=""))


# -- errors in, beside and after choices ---------------------------------------------------------

ERRORS = [
    {"code": 502, "message": "upstream"},
    {"code": 400, "message": "x"},
    {"code": "401"},
    {"message": "m"},
    "busy",
    {"code": 404},
    [1],
    True,
]


def with_error(error: Any) -> list[tuple[bytes, str]]:
    good = reply("half")
    inside = [
        {**good, "choices": [good["choices"][0] | {"error": error}]},
        {**good, "error": error},
        reply(choice={"message": {"role": "assistant", "content": "half", "error": error}}),
    ]
    start = piece({"content": "half"})
    end = piece({}, "stop")
    bad = [
        {"error": error},
        {"choices": [{"delta": {}, "error": error}]},
        {"choices": [{"delta": {"error": error}}]},
        {**end, "error": error},
        {"type": "error", "error": error},
        {"object": "error", "message": "x"},
    ]
    streams = [
        some for one in bad for some in ([one], [start, one], [start, end, one], [start, one, end])
    ]
    named = b'event: error\ndata: {"message": "x"}\n\n'
    last = (streamed([start], done=False) + named + streamed([end], done=False), EVENTS)
    return [*map(body_of, [*inside, *streams]), last]


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_an_error_in_or_beside_a_choice_is_tried_again_whatever_its_code(error: Any) -> None:
    for body, kind in with_error(error):
        with pytest.raises(Fault) as caught:
            read(decode(body, kind))
        assert caught.value.kind in RETRIED, body
    for body, kind in (with_error(error)[0], with_error(error)[1], with_error(error)[-1]):
        got = answered(raw(body, kind), says("whole"))
        assert got.text == "whole" and len(got.attempts) == 1


@pytest.mark.parametrize("nothing", [None, "", {}, [], False])
def test_an_error_of_nothing_is_none(nothing: Any) -> None:
    good = reply("fine")
    good |= {"error": nothing, "choices": [good["choices"][0] | {"error": nothing}]}
    assert read(decode(*body_of(good))).text == "fine"


@pytest.mark.parametrize("done", [False, True])
def test_a_stream_that_never_says_how_it_ended_was_cut(done: bool) -> None:
    got = answered(events("half", finish=None, done=done), events("whole"), stream=True)
    assert got.text == "whole" and kinds(got) == ["bad_reply"]


# -- second replies ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stream, late_s, status", [(False, 0.0, 200), (True, 0.01, 200), (False, 0.1, 500)]
)
def test_a_reply_that_nobody_asked_for_answers_nothing(
    stream: bool, late_s: float, status: int
) -> None:
    """At once with the first, between two requests, while the next one is under way; after
    errors too."""

    def script(asked: Asked) -> Answer:
        second = (events if stream else says)("unasked")
        good = events(asked.last) if stream else says(asked.last)
        made = good if status == 200 or asked.number % 2 else Answer(status, b"{}")
        return Answer(**{**vars(made), "delay_s": 0.04, "second": second, "second_s": late_s})

    async def work(engine: OpenAI) -> list[str]:
        return [(await engine.sample(Request("a", (Message(str(n)),)))).text for n in range(6)]

    with FaultServer(script) as server:
        assert asyncio.run(work(engine_at(server, stream=stream))) == [str(n) for n in range(6)]


# -- compressed bodies ---------------------------------------------------------------------------

BOMB = gzip.compress(bytes(48_000_000), 1)
GZIP = {"content-encoding": "gzip"}


@pytest.mark.parametrize(
    ("status", "kind"), [(200, "bad_reply"), (500, "server"), (429, "rate_limited")]
)
def test_bombs_at_once_cost_no_memory(status: int, kind: str) -> None:
    with FaultServer(
        lambda asked: says("ok") if asked.number >= 6 else Answer(status, BOMB, headers=GZIP)
    ) as server:
        engine = engine_at(server, timeout_s=60)
        tracemalloc.start()
        try:
            got = ask_together(*[(engine, "x")] * 6)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert {one.text for one in got} == {"ok"}
    assert {attempt.kind for one in got for attempt in one.attempts} == {kind}
    assert peak < 40_000_000  # one bomb alone is more


def test_a_compressed_answer_is_read_and_a_broken_or_unknown_one_is_tried_again() -> None:
    body = json.dumps(reply("fine")).encode()
    for encoding, packed in (
        ("gzip", gzip.compress(body)),
        ("deflate", zlib.compress(body)),
        ("identity", body),
    ):
        assert answered(Answer(body=packed, headers={"content-encoding": encoding})).text == "fine"
    for encoding, packed in (
        ("gzip", gzip.compress(body)[:-20]),
        ("gzip", b"no"),
        ("br", b"\x0b\x02\x80"),
        ("gzip, gzip", gzip.compress(gzip.compress(body))),
    ):
        got = answered(Answer(body=packed, headers={"content-encoding": encoding}), says("fine"))
        assert got.text == "fine" and kinds(got)[0] in ("transport", "bad_reply")
    error = Answer(422, gzip.compress(b'{"error": {"message": "bad temperature"}}'), headers=GZIP)
    with pytest.raises(Exception, match="bad temperature"):
        answered(error)


# -- reasoning, and who answered -----------------------------------------------------------------


def test_reasoning_is_recorded_whichever_way_it_comes() -> None:
    thought = {"role": "assistant", "content": "4"}
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "2+2"}]},
        {"type": "text", "text": "4"},
    ]
    usage = {
        "prompt_tokens": 1,
        "completion_tokens": 9,
        "completion_tokens_details": {"reasoning_tokens": 8},
    }
    for message in (
        thought | {"reasoning_content": "2+2"},
        thought | {"reasoning": "2+2"},
        {"role": "assistant", "content": parts},
    ):
        got = read(reply("", choice={"message": message}) | {"usage": usage})
        assert (got.text, got.reasoning, got.usage.reasoning_tokens, got.model) == (
            "4",
            "2+2",
            8,
            "m",
        )
    for names in (("reasoning_content",), ("reasoning",), ("reasoning", "reasoning_content")):
        stream = events(*[dict.fromkeys(names, piece) for piece in ("2", "+", "2")], "4")
        assert answered(stream, stream=True).reasoning == "2+2"


THOUGHT = {"completion_tokens_details": {"reasoning_tokens": 94}}


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        ({"total_tokens": 41}, (32, 9, None, None)),
        ({"total_tokens": 135, **THOUGHT}, (32, 103, None, 94)),  # xAI: thoughts stand apart
        ({"total_tokens": 135}, (32, 103, None, None)),  # Gemini: only the total has them
        ({"completion_tokens": 103, "total_tokens": 135, **THOUGHT}, (32, 103, None, 94)),
        # what was read out of a cache beside the prompt was not sampled
        ({"total_tokens": 1041, "prompt_cache_hit_tokens": 1000}, (32, 9, 1000, None)),
        ({"total_tokens": 1041, "cache_read_input_tokens": 1000}, (32, 9, None, None)),
        (
            {"total_tokens": 1041, "cache_read_input_tokens": 900, "cache_written_tokens": 100},
            (32, 9, None, None),
        ),
        ({"total_tokens": 135, "cached_tokens": 94, **THOUGHT}, (32, 103, 94, 94)),
        ({"total_tokens": 1e999}, (32, 9, None, None)),
        ({"cached_tokens": 30}, (32, 9, 30, None)),  # Moonshot
        ({"prompt_cache_hit_tokens": 30}, (32, 9, 30, None)),  # DeepSeek
    ],
)
def test_what_was_used_is_counted_whichever_way_it_is_told(said: Any, counted: Any) -> None:
    usage = {"prompt_tokens": 32, "completion_tokens": 9, **said}
    whole = reply("4") | {"usage": usage}
    assert astuple(read(whole).usage) == counted
    (choice,) = whole["choices"]
    assert astuple(read({"choices": [choice | {"usage": usage}]}).usage) == counted


def test_reasoning_alone_is_no_empty_answer() -> None:
    message = {"role": "assistant", "content": None, "reasoning": "hm"}
    got = answered(says(choice={"message": message}))
    assert got.attempts == ()
    assert not got.silent
    assert Reply().silent
    assert not Reply("", (ToolCall("c", "f", {}),)).silent


def test_reasoning_goes_back_with_its_own_message_where_it_is_wanted() -> None:
    def script(asked: Asked) -> Answer:
        call = [(f"c{asked.number}", "look", "{}")] if asked.number < 2 else []
        said = reply("ok" if asked.number >= 2 else None, calls=call)["choices"][0]["message"]
        message = said | {"reasoning_content": f"thought {asked.number}"}
        return says(choice={"message": message})

    async def talk(engine: OpenAI) -> None:
        seen: list[Message] = [Message("go")]
        for turn in range(4):
            got = await engine.sample(
                Request("a", tuple(seen), sampling=Sampling(), conversation="t/0/a", turn=turn)
            )
            # of others nothing is sent
            await engine.sample(Request("b", (Message("x"),), conversation="t/0/b"))
            seen += [Message(got.text, "a", got.tool_calls), Message.tool(f"c{2 * turn}", "seen")]

    for field in (None, "reasoning_content", "reasoning"):
        with FaultServer(script) as server:
            asyncio.run(talk(engine_at(server, send_reasoning=field)))
        own = [one for one in server.asked[-2].body["messages"] if one["role"] == "assistant"]
        thoughts = [one.get(field) for one in own] if field else [None] * 3
        assert thoughts == (["thought 0", "thought 2", "thought 4"] if field else [None] * 3)
        assert field is not None or "thought" not in json.dumps(own)


def test_a_thought_goes_back_with_the_message_that_it_led_to() -> None:
    """Also where the same words, or calls of the same id, stand behind many thoughts."""

    def asked(turn: int, *own: str) -> Request:
        said = tuple(message for text in own for message in (Message("and?"), Message(text, "a")))
        return Request("a", (*said, Message("and?")), conversation="t/0/a", turn=turn)

    thoughts = Thoughts()
    for turn in range(4):  # a window of two messages moves
        thoughts.keep(asked(turn, *["yes"] * min(turn, 2)), Reply("yes", reasoning=f"of {turn}"))
    assert list(thoughts.of(asked(4, "yes", "yes")).values()) == ["of 2", "of 3"]
    # a draft of this turn led to no message
    thoughts.keep(asked(4, "yes", "yes"), Reply("yes", reasoning="draft"))
    assert list(thoughts.of(asked(4, "yes", "yes")).values()) == ["of 2", "of 3"]
    # the second one did, and then each of its steps
    thoughts.keep(asked(4, "yes", "yes"), Reply("yes", reasoning="of 4"))
    assert list(thoughts.of(asked(4, "yes", "yes", "yes")).values()) == ["of 2", "of 3", "of 4"]
    assert list(thoughts.of(asked(5, "yes", "yes")).values()) == ["of 3", "of 4"]


def test_a_record_keeps_reasoning_and_model() -> None:
    from gem_ma.record.codec import REPLY

    message = {"content": "x", "reasoning": "hm"}
    got = answered(says(choice={"message": message}, model="other"))
    kept = REPLY.read(REPLY.write(got))
    assert (kept.reasoning, kept.model) == ("hm", "other") == (got.reasoning, got.model)
    assert REPLY.read({"text": "old"}) == Reply("old")
    assert Reply("x", usage=Usage()) == Reply("x", model="m")
