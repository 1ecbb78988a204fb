"""Whatever a server writes where an answer belongs is the answer, or a fault that is tried
again: nothing of it is lost in silence."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import random
import re
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from gem_ma.engines.endpoint import remote
from gem_ma.engines.endpoint.endpoint import HIDDEN, Price, Secret
from gem_ma.engines.endpoint.envelope import _DECODER, DEEPEST, _plainly_strict
from gem_ma.engines.endpoint.faults import RETRIED, Fault, of_error_body
from gem_ma.engines.endpoint.reply import decode, read, read_completion
from gem_ma.kernel.parsing.strict_json import depth_exceeds, dump_json, load_json
from gem_ma.kernel.types import Malformed, Reply, Tool
from gem_ma.record.codec import REPLY
from tests.asking import answered
from tests.fault_server import JSON, Answer, body_of, reply, says

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
CHOICE = {
    "index": 0,
    "message": {"role": "assistant", "content": "hello", "tool_calls": [CALL]},
    "finish_reason": "tool_calls",
    "token_ids": [5, 6],
    "logprobs": {"content": [{"logprob": -0.5}, {"logprob": -1.0}]},
}
WHOLE = {"model": "m", "prompt_token_ids": [1, 2], "choices": [CHOICE], "usage": USAGE}
PIECES = [
    {"model": "m", "choices": [{"index": 0, "delta": {"content": "hel"}}]},
    {"choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **CALL}]}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    {"choices": [], "usage": USAGE},
]
WRONG: list[Any] = [
    True,
    False,
    0,
    -1,
    1,
    1.5,
    10**30,
    10**400,
    "x",
    [1],
    [None],
    [[]],
    {"a": 1},
    [{}],
    {"text": "hi"},
]
CARRIES = ("choices", "message", "delta", "content", "tool_calls", "function")
FREE = {"id", "type", "name", "arguments", "model", "logprobs"}  # what a model wrote, and names


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key in (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    ):
        yield from paths(value[key], (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    changed = copy.deepcopy(value)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = new
    return changed


@pytest.mark.parametrize("base", [WHOLE, PIECES], ids=["whole", "stream"])
def test_a_part_of_an_answer_that_has_another_type_is_a_fault_and_no_shorter_answer(
    base: Any,
) -> None:
    seen = 0
    for path in paths(base):
        if not path or path[-1] not in CARRIES or FREE & set(path):
            continue
        # fitting, or what a model wrote
        as_it_is = {"content": str, "tool_calls": list, "choices": list}.get(path[-1], dict)
        for wrong in WRONG:
            if isinstance(wrong, as_it_is) or (path[-1] == "function" and base is WHOLE):
                continue
            seen += 1
            with pytest.raises(Fault) as caught:
                read(decode(*body_of(put(base, path, wrong))))
            assert caught.value.kind in RETRIED, (path, wrong)
    assert seen > 40


@pytest.mark.parametrize("index", ["0", 0.0, False, True, [], {}])
def test_a_piece_that_belongs_to_no_choice_is_a_fault_and_that_of_another_choice_is_none_of_ours(
    index: Any,
) -> None:
    for base, path in ((WHOLE, ("choices", 0, "index")), (PIECES, (1, "choices", 0, "index"))):
        with pytest.raises(Fault):
            read(decode(*body_of(put(base, path, index))))
    other = {
        "index": 1,
        "message": {"content": "other"},
        "delta": {"content": "other"},
        "finish_reason": "stop",
    }
    assert (
        read({**WHOLE, "choices": [other, CHOICE]}).text
        == "hello"
        == read(decode(*body_of([{"choices": [other]}, *PIECES]))).text
    )
    with pytest.raises(Fault):
        read({**WHOLE, "choices": [other]})


@pytest.mark.parametrize(
    "number",
    [
        "1e999",
        "-1e999",
        "1" + "0" * 400,
        "-1" + "0" * 400,
        "1" + "0" * 4200,
        "1e308",
        "-1",
        "-0.0",
        "0.5",
        "1.5",
    ],
)
def test_numbers_that_cannot_be_are_none_and_break_nothing(number: str) -> None:
    """Of tokens, their ids and log-probabilities: nothing of them is the answer."""
    for path in paths(WHOLE):
        if (
            not path
            or path[-1] not in (*USAGE, "cached_tokens", "logprob", 0)
            or path[-2:] in (("choices", 0), ("tool_calls", 0), ("content", 0))
        ):
            continue
        text = json.dumps(put(WHOLE, path, "NUMBER")).replace('"NUMBER"', number)
        got = read(decode(text.encode(), JSON))
        assert (got.text, got.tool_calls) == ("hello", read(WHOLE).tool_calls)
        assert REPLY.read(load_json(dump_json(REPLY.write(got)).encode())) == got
        assert (Price(1.0, 1.0).of_usage(got.usage) or 0) < 1e12
        assert all(-(2**53) < one < 0.01 for one in got.logprobs)
    told = {
        "choices": [
            {
                "finish_reason": "stop",
                "token_ids": [5],
                "prompt_token_ids": [1],
                "logprobs": {"token_logprobs": ["NUMBER"]},
            }
        ]
    }
    if number != "-1" and number != "-0.0":
        with pytest.raises(Fault):
            read_completion(
                decode(json.dumps(told).replace('"NUMBER"', number).encode(), JSON), (1,)
            )


@pytest.mark.parametrize(
    "text",
    ['{"choices": [%s], "choices": [%s]}', '{"choices": [%s, %s], "error": null, "error": "x"}'],
)
def test_a_name_that_stands_twice_is_a_fault(text: str) -> None:
    with pytest.raises(Fault, match="twice"):
        decode((text % (json.dumps(CHOICE), json.dumps(CHOICE))).encode(), JSON)


@pytest.mark.parametrize("digits", ["9" * 5000, "0" * 5000, "٤٠٠", "4040"])
def test_a_code_of_any_digits_is_a_fault(digits: str) -> None:
    assert of_error_body({"code": digits, "message": "x"}).kind in {*RETRIED, "request"}


def test_thoughts_among_the_parts_are_no_answer_and_a_refusal_is_one() -> None:
    for kind, field in (
        ("thinking", "thinking"),
        ("reasoning", "text"),
        ("reasoning_text", "text"),
    ):
        parts = [{"type": kind, field: "hm"}, {"type": "text", "text": "4"}]
        for value in (
            reply("", choice={"message": {"content": parts}}),
            [{"choices": [{"delta": {"content": parts}, "finish_reason": "stop"}]}],
        ):
            got = read(decode(*body_of(value)))
            assert (got.text, got.reasoning) == ("4", "hm")
    assert (
        read(
            reply("", choice={"message": {"content": [{"type": "refusal", "refusal": "no"}]}})
        ).text
        == "no"
    )
    assert read(reply("", choice={"message": {"content": "4", "thinking": "hm"}})).reasoning == "hm"


def test_arguments_that_are_streamed_as_an_object_are_the_arguments() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": {"x": [1]}}}
    got = read(
        decode(
            *body_of([{"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "stop"}]}])
        )
    )
    assert not isinstance(got.tool_calls[0], Malformed)
    assert got.tool_calls[0].arguments == {"x": [1]}


# -- over the wire -------------------------------------------------------------------------------

KEY = "sk-proj-Canary7f3a+9bD41c/Xy_Zw0123456789abcdefABCDEF=="


def sampled(*script: Answer, **options: Any) -> Reply:
    return answered(*script, request={"tools": (Tool("f"),)}, api_key_env="MY_KEY", **options)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)


def test_a_part_of_a_reply_and_what_follows_a_compressed_one_are_tried_again() -> None:
    whole = json.dumps(reply("bad")).encode()
    for bad in (
        Answer(206, whole),
        Answer(body=gzip.compress(whole) + b"more", headers={"content-encoding": "gzip"}),
    ):
        got = sampled(bad, says("fine"))
        assert got.text == "fine" and len(got.attempts) == 1


def test_a_long_body_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def noted(body: bytes, kind: str) -> dict[str, Any]:
        seen.append(threading.current_thread() is threading.main_thread())
        return decode(body, kind)

    monkeypatch.setattr(
        remote.Remote.tried,
        "__kwdefaults__",
        {**remote.Remote.tried.__kwdefaults__, "decoding": noted},
    )
    assert sampled(says("x" * remote.LONG)).text == "x" * remote.LONG
    assert sampled(says("y")).text == "y"
    assert seen == [False, True]


# -- keys ----------------------------------------------------------------------------------------

RAW = KEY.encode()
SPELLED = {
    "four times over": json.dumps(json.dumps(json.dumps(json.dumps(KEY.replace("/", "\\/"))))),
    "escaped": "".join(f"\\u{code:04x}" for code in RAW),
    "an address": quote(KEY, safe=""),
    "an address in an address": quote(quote(KEY, safe=""), safe=""),
    "base64": base64.b64encode(RAW).decode(),
    "base64 of a header": base64.b64encode(b"Bearer " + RAW + b"\n").decode(),
    "base64 of addresses": base64.urlsafe_b64encode(b"user:" + RAW).decode(),
    "twice": KEY + KEY,
}


@pytest.mark.parametrize("name", SPELLED)
def test_a_key_is_hidden_however_software_spells_it(name: str) -> None:
    got = Secret(KEY).hide(f"see {SPELLED[name]} .")
    left = re.sub(r"[\\\"]", "", got.replace(HIDDEN, "")).removeprefix("see ").removesuffix(" .")
    assert HIDDEN in got and len(left) <= (12 if name.startswith("base64") else 8), got


@pytest.mark.parametrize("room", range(130, 210, 11))
def test_no_half_of_a_key_is_left_where_a_record_is_cut(room: int) -> None:
    filling = "x " * (room // 2)
    call = {"id": "c", "function": {"name": "f", "arguments": "{" + filling + KEY}}
    for calls in (
        [call],
        [filling + KEY],
        [{"id": "c", "function": {"name": filling + KEY, "arguments": "{"}}],
    ):
        message = {"role": "assistant", "content": "", "tool_calls": calls}
        assert KEY[:LEFT] not in repr(sampled(says(choice={"message": message})))
    got = sampled(says(f'<tool_call>\n{{"name": "f", "arguments": {filling}{KEY}'), tools="text")
    assert KEY[:LEFT] not in repr(got)


LEFT = 8


@pytest.mark.long
def test_what_is_read_fast_is_read_as_the_strict_decoder_does() -> None:
    """Any text, whole or with a piece put in, taken out or doubled."""
    rng = random.Random(0)
    pieces = [
        *'{}[]":,\\ \n\t',
        '":',
        '" :',
        '"a":1',
        '\\"',
        "\\ud800",
        "NaN",
        "1e999",
        "\\u0061",
        "-0",
    ]
    wholes = [
        json.dumps(WHOLE),
        json.dumps(WHOLE, indent=1),
        json.dumps({"a\\": 'b": "c', "b :": [{}, [[]], {"c": [1.5, -1]}]}, separators=(",", " :")),
        '{"a":1,"\\u0061":2}',
        '{"a":{"b":1,"b" :2},"c":"\\":"}',
        '{"a":' + "[" * 94 + "]" * 94 + "}",
        '{"a":' + "[" * 96 + "]" * 96 + "}",
    ]
    fast = 0
    for number in range(7_000):
        text = wholes[number % len(wholes)]
        for _ in range(rng.randrange(3)):
            place = rng.randrange(len(text))
            end = place + rng.choice((0, 0, 1, 2))
            text = text[:place] + rng.choice(pieces) * rng.choice((0, 1, 1)) + text[end:]
        read_fast = _plainly_strict(text)
        if read_fast is not None:
            fast += 1
            assert repr(read_fast) == repr(_DECODER.decode(text)), text
            assert not depth_exceeds(read_fast, DEEPEST)
    assert fast > 300
