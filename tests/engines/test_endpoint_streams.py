"""Streams in the shapes that servers give them: all add up to the answer that a whole reply would
have been, or are a fault."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gem_ma.engines.endpoint.faults import RETRIED, Fault
from gem_ma.engines.endpoint.reply import decode, read
from gem_ma.kernel.types import Reply, ToolCall, Usage
from tests.fault_server import EVENTS, piece, streamed


def said(message: str, finish: Any = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"content": message}, "finish_reason": finish}]}


def heard(body: bytes, kind: str = EVENTS) -> Reply:
    return read(decode(body, kind))


# -- texts ---------------------------------------------------------------------------------------

HEL, LO, STOP = piece({"content": "Hel"}), piece({"content": "lo"}), piece({}, "stop")
USAGE = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}
WHOLE = {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
TEXTS = {
    "plain": streamed([HEL, LO, STOP]),
    "lines of CRLF": streamed([HEL, LO, STOP], "\r\n\r\n"),
    "lines of CR": streamed([HEL, LO, STOP], "\r\r"),
    "one line end between events": streamed([HEL, LO, STOP], "\n"),
    "no space": streamed([HEL, LO, STOP]).replace(b"data: ", b"data:"),
    "no DONE": streamed([HEL, LO, STOP], done=False),
    "comments": b": hi\n\n" + streamed([HEL], done=False) + b": ping\n\n" + streamed([LO, STOP]),
    "empty data": streamed([HEL]).replace(b"[DONE]", b"") + streamed([LO, STOP], " \r\n\r\n"),
    "ids and times": b"retry: 3\nid: 1\n" + streamed([HEL, LO, STOP]),
    "named events": b"event: message\n" + streamed([HEL, LO, STOP]),
    "a byte order mark": b"\xef\xbb\xbf" + streamed([HEL, LO, STOP]),
    "usage among it": streamed([USAGE, HEL, USAGE, LO, STOP, USAGE]),
    "no choices": streamed([{"id": 1}, HEL, LO, STOP, {"choices": None}]),
    "other ends of lines": streamed([{"id": "@"}, HEL, LO, STOP]).replace(b"@", b"\xe2\x80\xa8"),
    "a role first": streamed([piece({"role": "assistant", "content": ""}), HEL, LO, STOP]),
    "null content": streamed([HEL, piece({"content": None}), LO, STOP]),
    "no delta at the end": streamed([HEL, LO, {"choices": [{"finish_reason": "stop"}]}]),
    "the word null": streamed([piece({"content": "Hel"}, "null"), LO, STOP]),
    "no reason behind the end": streamed([HEL, piece({"content": "lo"}, "stop"), piece({}), USAGE]),
    "parts": streamed([HEL, piece({"content": [{"type": "text", "text": "lo"}]}), STOP]),
    "a message": streamed([said("Hello", "stop")]),
    "pieces called message": streamed([said("Hel"), said("lo"), said("", "stop")]),
    "a message that grows": streamed([said("Hel"), said("Hello"), said("Hello", "stop")]),
    "a message beside no delta": streamed([{"choices": [{"delta": {}, **WHOLE["choices"][0]}]}]),
    "a message behind deltas": streamed([HEL, LO, said("Hello", "stop")]),
    "a whole reply in its place": json.dumps(WHOLE).encode(),
}


@pytest.mark.parametrize("shape", TEXTS)
def test_a_text_is_the_same_in_any_shape_of_stream(shape: str) -> None:
    got = heard(TEXTS[shape])
    assert (got.text, got.finish) == ("Hello", "stop")


def test_counts_are_put_together_wherever_in_a_stream_they_stand() -> None:
    start = {"prompt_tokens": 20, "completion_tokens": 1, "prompt_tokens_details": {}}
    for end in ({"completion_tokens": 5}, {"prompt_tokens": 0, "completion_tokens": 5}):
        inside = piece({}, "stop")
        inside["choices"][0]["usage"] = end
        for last in ([STOP, {"choices": [], "usage": end}], [inside]):
            got = heard(streamed([HEL | {"usage": start}, LO, *last, {"usage": {}}]))
            assert got.usage == Usage(20, 5)


def test_a_stream_that_is_called_json_is_read_all_the_same() -> None:
    for kind in ("application/json", ""):
        assert heard(TEXTS["plain"], kind).text == "Hello"


@pytest.mark.parametrize(
    "body",
    [
        streamed([HEL, {"error": {"message": "busy"}}, LO, STOP]),
        streamed([HEL], done=False) + b"event: error\ndata: overloaded\n\n",
        streamed([HEL, LO], done=False),
        streamed([HEL, LO]),
        streamed([HEL, piece({"content": "lo"}, "null")]),
        streamed([]),
        streamed([{"choices": [{"text": "Hello", "finish_reason": "stop"}]}]),
        streamed([HEL, {"choices": [{"message": "lo", "finish_reason": "stop"}]}]),
    ],
)
def test_what_is_no_whole_stream_is_a_fault_that_is_tried_again(body: bytes) -> None:
    with pytest.raises(Fault) as caught:
        heard(body)
    assert caught.value.kind in RETRIED


def test_halves_of_a_letter_in_two_pieces_are_a_letter() -> None:
    smile = "\U0001f642"
    halves = [piece({"content": "Fine \ud83d"}), piece({"content": "\ude42."}), STOP]
    assert heard(streamed(halves)).text == f"Fine {smile}."
    in_call = [call(0, "x", "say", '{"t":"\ud83d'), call(0, arguments='\ude42"}')]
    assert calls(in_call) == [("say", {"t": smile})]
    lone = [piece({"content": "Fine \ud83d"}), piece({"content": "."}), STOP]
    assert heard(streamed(lone)).text == "Fine ?."


# -- calls ---------------------------------------------------------------------------------------


def call(
    index: int | None = None, id: str = "", name: str = "", arguments: Any = ""
) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    at = {} if index is None else {"index": index}
    return {**at, **({"id": id} if id else {}), "type": "function", "function": function}


def calls(pieces: list[Any]) -> list[Any]:
    deltas = [piece({"tool_calls": one if isinstance(one, list) else [one]}) for one in pieces]
    got = heard(streamed([*deltas, piece({}, "tool_calls")])).tool_calls
    return [(one.name, one.arguments) if isinstance(one, ToolCall) else one for one in got]


ONE = [("weigh", {"a": 1})]
TWO = [*ONE, ("weigh", {"a": 2})]
LOOKS = [("look", {}), ("weigh", {"a": 2})]
A1, A2 = '{"a":1}', '{"a":2}'
SHAPES: dict[str, tuple[list[Any], list[Any]]] = {
    "counted": (
        TWO,
        [
            call(0, "x", "weigh"),
            call(0, arguments='{"a":'),
            call(0, arguments="1}"),
            call(1, "y", "weigh"),
            call(1, arguments=A2),
        ],
    ),
    "interleaved": (
        TWO,
        [
            call(0, "x", "weigh", '{"a"'),
            call(1, "y", "weigh", '{"a"'),
            call(0, arguments=":1}"),
            call(1, arguments=":2}"),
        ],
    ),
    "out of order": (TWO, [call(1, "y", "weigh", A2), call(0, "x", "weigh", A1)]),
    "counted from 1": (TWO, [call(1, "x", "weigh", A1), call(2, "y", "weigh", A2)]),
    "one id for all": (TWO, [call(0, "f", "weigh", A1), call(1, "f", "weigh", A2)]),
    "all at 0": (TWO, [call(0, "x", "weigh", A1), call(0, "y", "weigh", A2)]),
    "all at 0 in one event": (TWO, [[call(0, "x", "weigh", A1), call(0, "y", "weigh", A2)]]),
    "all at 0 in pieces": (
        TWO,
        [
            call(0, "x", "weigh", '{"a":'),
            call(0, arguments="1}"),
            call(0, "y", "weigh", '{"a"'),
            call(0, arguments=":2}"),
        ],
    ),
    "all at 0, no ids": (TWO, [call(0, "", "weigh", A1), call(0, "", "weigh", A2)]),
    "all at 0, no ids, in pieces": (
        TWO,
        [
            call(0, "", "weigh", '{"a":'),
            call(0, arguments="1}"),
            call(0, "", "weigh", '{"a":'),
            call(0, arguments="2}"),
        ],
    ),
    "all at 0, no ids, other tools": (LOOKS, [call(0, "", "look"), call(0, "", "weigh", A2)]),
    "all at 0, no arguments": ([LOOKS[0]] * 2, [call(0, "x", "look"), call(0, "y", "look")]),
    "null arguments": (LOOKS, [call(0, "x", "look", None), call(1, "y", "weigh", A2)]),
    "the text null": (LOOKS, [call(0, "x", "look", "null"), call(0, "y", "weigh", A2)]),
    "objects": (TWO, [call(0, "x", "weigh", {"a": 1}), call(0, "", "weigh", {"a": 2})]),
    "the name in every piece": (
        ONE,
        [call(0, "x", "weigh"), call(0, "x", "weigh", '{"a"'), call(0, "x", "weigh", ":1}")],
    ),
    "the name in every piece, no ids": (
        [("weigh", {"a": {"b": 1}})],
        [
            call(0, "", "weigh", '{"a": '),
            call(0, "", "weigh", '{"b":1}'),
            call(0, "", "weigh", "}"),
            call(0, "", "weigh"),
        ],
    ),
    "a brace in a text": (
        [("weigh", {"a": '}"'}), *ONE],
        [call(0, "", "weigh", '{"a":"}\\'), call(0, "", "weigh", '""}'), call(0, "", "weigh", A1)],
    ),
    "a name that grows": (ONE, [call(0, "x", "we"), call(0, "", "weigh"), call(0, arguments=A1)]),
    "a name in pieces": (ONE, [call(0, "x", "we"), call(0, "", "igh"), call(0, arguments=A1)]),
    "an id first": (ONE, [{"index": 0, "id": "x"}, call(0, "", "weigh"), call(0, arguments=A1)]),
    "an empty id and name": (
        ONE,
        [call(0, "x", "weigh"), {"index": 0, "id": "", "function": {"name": "", "arguments": A1}}],
    ),
    "a new id in every piece": (
        ONE,
        [call(0, "p", "weigh"), call(0, "q", arguments='{"a"'), call(0, "r", arguments=":1}")],
    ),
    "a new id and the name in every piece": (
        ONE,
        [call(0, "p", "weigh", '{"a"'), call(0, "q", "weigh", ":1"), call(0, "r", "weigh", "}")],
    ),
    "no index": (TWO, [[call(None, "x", "weigh", A1), call(None, "y", "weigh", A2)]]),
    "no index and no id": (TWO, [[call(None, "", "weigh", A1), call(None, "", "weigh", A2)]]),
    "no index, the id in every piece": (
        TWO,
        [
            call(None, "x", "weigh", '{"a"'),
            call(None, "y", "weigh", '{"a"'),
            call(None, "x", arguments=":1}"),
            call(None, "y", arguments=":2}"),
        ],
    ),
    "a null index later": (
        ONE,
        [call(0, "x", "weigh"), {"index": None, "function": {"arguments": A1}}],
    ),
    "an index later": (ONE, [call(None, "x", "weigh"), call(0, arguments=A1)]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_calls_are_the_same_in_any_shape_of_stream(shape: str) -> None:
    wanted, pieces = SHAPES[shape]
    assert calls(pieces) == wanted


def test_a_call_in_the_form_of_2023_is_read_in_pieces_too() -> None:
    deltas = [{"name": "weigh", "arguments": '{"a"'}, {"arguments": ":1}"}]
    chunks = [piece({"function_call": one}) for one in deltas]
    got = heard(streamed([*chunks, piece({}, "function_call")])).tool_calls
    assert [(one.name, one.arguments) for one in got if isinstance(one, ToolCall)] == ONE


@pytest.mark.parametrize("nothing", [None, "null", "", "{}", {}, ' "null" '])
def test_arguments_that_are_none_are_alike_in_a_whole_reply_and_in_a_stream(nothing: Any) -> None:
    message = {"content": None, "tool_calls": [call(0, "x", "look", nothing)]}
    whole = read({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).tool_calls
    assert [one.arguments for one in whole if isinstance(one, ToolCall)] == [{}]
    assert calls([call(0, "x", "look", nothing)]) == [("look", {})]
