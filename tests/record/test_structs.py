"""Lines of schema 2: what msgspec writes and reads alone, and what the second look says."""

from __future__ import annotations

import base64
import json
import math
import struct
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from gem_ma.kernel.episode import CallResult, Entry, Episode, Seat
from gem_ma.kernel.errors import StoreError
from gem_ma.kernel.types import Action, Message, Reply, ToolCall
from gem_ma.record import codec, structs
from gem_ma.record.codec import digest, dump_episode, load_episode
from tests.record.test_codec import edited, full, small


def replied(**changes: Any) -> Episode:
    """`small()` with a reply that has these fields."""
    first, second = small().turns
    return small(turns=(first, replace(second, replies=(Reply(**changes),))))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("episode", [small(), full(5, "hm", "shop")], ids=["small", "full"])
def test_what_is_as_it_should_be_needs_no_second_look(
    episode: Episode, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = dump_episode(episode, 1)
    for name in ("_plain_values", "from_json"):
        monkeypatch.delattr(codec, name)
    line = dump_episode(episode)
    assert load_episode(line) == load_episode(line.encode() + b"\n") == episode
    assert line != plain and line.startswith('{"schema":2,"id":["')


def test_a_play_has_one_digest_whatever_it_was_read_from() -> None:
    for episode, known in (
        (small(), "8680c0d4cbf9e64c4c07d282546514c78ab5d224a9d7120585969bf4a7c5ea69"),
        (full(5, "hm", "shop"), "2809907984bcfd11a315cc77036ab5d51d8928d21b3ac6df44f7f7bd3feafe28"),
    ):
        lines = [dump_episode(episode, schema) for schema in (1, 2)]
        assert {digest(load_episode(line)) for line in lines} == {digest(episode)} == {known}
    whole = replied(token_ids=(1, 2), logprobs=(0, -1))
    assert digest(load_episode(dump_episode(whole))) == digest(whole)


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        ((0, 65_535), "u16"),
        ((0, 65_536), "u32"),
        ((1, 1 << 24), "u32"),
        ((2**32 - 1,), "u32"),
        ((2**32,), None),
        ((-1, 2**70), None),
    ],
)
def test_ids_are_packed_in_the_least_width_that_holds_them(
    ids: tuple[int, ...], kind: str | None
) -> None:
    episode = replied(prompt_ids=ids, token_ids=ids)
    line = dump_episode(episode)
    for held in (
        json.loads(line)["turns"][1]["replies"][0][name] for name in ("prompt_ids", "token_ids")
    ):
        if kind is None:
            assert held == list(ids)
        else:
            letter, _ = structs.WIDTHS[kind]
            data = struct.pack(f"<{len(ids)}{letter}", *ids)
            assert held == {"of": kind, "base64": base64.b64encode(data).decode()}
    assert load_episode(line) == episode


def test_a_sampled_token_takes_less_than_40_bytes() -> None:
    ids = tuple(range(100_000, 100_256))
    logprobs = tuple(-1 / (3 + n) for n in ids)
    empty, whole = (
        dump_episode(
            replied(
                text="x" * 1000,
                prompt_ids=ids[:length],
                token_ids=ids[:length],
                logprobs=logprobs[:length],
            )
        )
        for length in (0, 256)
    )
    assert len(whole) - len(empty) <= 256 * 25


@pytest.mark.parametrize(
    "episode",
    [
        small(options=MappingProxyType({"a": (1, MappingProxyType({"b": 2}))})),
        small(cast={"a": Seat(options={"deep": nested(60)})}),
        small(calls=(CallResult(0, [2**70, -(2**63)]),)),
        small(ledger=(Entry(0, "a", 10**299), Entry(0, "a", -1.7e308))),
        replied(logprobs=(-1.7e308, -1.7e308)),
    ],
    ids=["read-only", "deep", "long", "large", "sum beyond"],
)
def test_the_second_look_writes_and_reads_what_msgspec_does_not(episode: Episode) -> None:
    line = dump_episode(episode)
    assert line.startswith('{"schema":2,')
    plain = json.loads(dump_episode(episode, 1))
    assert json.loads(dump_episode(load_episode(line), 1)) == plain
    assert dump_episode(load_episode(line)) == line


NAN = base64.b64encode(struct.pack("<2d", -0.5, math.nan)).decode()
BAD = 'expected {"of": '


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("token_ids", {"of": "u16", "base64": "AAA="}, None),
        ("token_ids", {"of": "u16", "base64": "AA=="}, BAD),
        ("token_ids", {"of": "u32", "base64": "AAA="}, BAD),
        ("token_ids", {"of": "f64", "base64": NAN}, BAD),
        ("token_ids", {"of": "u8", "base64": "AA=="}, BAD),
        ("token_ids", {"of": "u16", "base64": "?"}, BAD),
        ("token_ids", {"of": "u16", "base64": 7}, BAD),
        ("token_ids", {"of": "u16"}, BAD),
        ("token_ids", {"of": "u16", "base64": "AAA=", "more": 1}, BAD),
        ("token_ids", [1, True], r"token_ids\[1\]: expected an integer, got bool"),
        ("prompt_ids", [1, 2.0], r"prompt_ids\[1\]: expected an integer, got float"),
        ("logprobs", {"of": "u16", "base64": "AAA="}, BAD),
        ("logprobs", {"of": "f64", "base64": NAN}, r"logprobs\[1\]: nan is not a finite number"),
        ("prompt_of", [1, 0], "leads to no ids of an earlier reply"),
        ("finish", None, "finish: expected text, got null"),
        ("usage", [], "usage: expected an object, got list"),
    ],
)
def test_a_wrong_field_of_a_reply_is_named(name: str, value: object, message: str | None) -> None:
    line = edited(f"turns.1.replies.0.{name}", value, 2)
    if message is None:
        assert load_episode(line).turns[1].replies[0].token_ids == (0,)
        return
    with pytest.raises(StoreError) as caught:
        load_episode(line)
    said = str(caught.value)
    assert said.startswith(f"turns[1].replies[0].{name}") and "\n" not in said
    assert message.replace("\\", "") in said


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("malformed", "text: is missing"),
        ("tool", "'tool' is not call or malformed"),
        ([], r"\[\] is not call or malformed"),
    ],
)
def test_a_call_that_lies_about_its_kind_is_named(kind: object, message: str) -> None:
    with pytest.raises(StoreError, match=r"^turns\[0\].action.tool_calls\[0\].*" + message):
        load_episode(edited("turns.0.action.tool_calls.0.kind", kind, 2))


@pytest.mark.parametrize(
    "there",
    [
        '"schema":2',
        '"end":"terminated"',
        '"agent":"a"',
        '"text":"left"',
        '"kind":"call"',
        '"of":"u16"',
        '"base64":"AwA="',
        '"prompt_tokens":2',
        '"type":"string"',
        '"id":"7"',
    ],
)
def test_a_key_that_stands_twice_is_refused_wherever_it_stands(there: str) -> None:
    line = dump_episode(small())
    assert there in line
    with pytest.raises(StoreError, match="duplicate key"):
        load_episode(line.replace(there, f"{there},{there}", 1))


@pytest.mark.parametrize(
    ("there", "instead", "message"),
    [
        ('"value":1.0', '"value":NaN', "NaN is not JSON"),
        ('"value":1.0', '"value":1e400', "beyond the range of floats"),
        ('"value":1.0', f'"value":{10**301}', r"ledger\[0\].value: an integer beyond"),
        ('"id":"7"', '"id":Infinity', "Infinity"),
        ('"id":"7"', f'"id":{10**301}', r"arguments.id: an integer beyond"),
        ('"id":"7"', f'"id":{json.dumps(nested(70))}', "nested deeper than 64"),
        ('"id":"7"', '"id":"\\udc00"', "lone surrogate"),
        ('"id":"7"', '"id":"\udc00"', "lone surrogate"),
        ('"id":["test/3",7,0]', '"id":["test/3",7,1]', r"^id: "),
        ('"tools":[0]', '"tools":[1]', r"turns\[0\].tools: names a tool that `tools` lacks"),
        ('"sender":"scenario"', '"sender":"scenario","x":1', r"observed\[0\]: unknown key 'x'"),
        ('"error":null', '"error":null,"x":1', "unknown key 'x'"),
        ('"schema":2', '"schema":3', "schema 3 is newer than 2"),
    ],
)
def test_what_msgspec_lets_pass_is_refused_as_in_schema_1(
    there: str, instead: str, message: str
) -> None:
    line = dump_episode(small())
    assert there in line
    with pytest.raises(StoreError, match=message):
        load_episode(line.replace(there, instead, 1))


def test_a_line_that_another_hand_wrote_is_read_too() -> None:
    line = dump_episode(small())
    for other in (
        json.dumps(json.loads(line)),
        line.replace('"value":1.0', '"value":1e0'),
        line.replace('"text":"left"', '"text":"\\u006ceft"'),
        line.replace('"why":"won"', '"original":null,"why":"won"'),
        line.replace('"sender":"scenario",', "").replace(',"sender":"scenario"', ""),
    ):
        assert other != line and load_episode(other) == small()


def test_what_is_written_wrong_is_named_after_any_number_of_good_turns() -> None:
    turn = small().turns[0]
    call = ToolCall("c", "f", {"x": math.nan})
    for wrong, where in (
        (replace(turn, action=Action("x", (call,))), "action.tool_calls[0].arguments.x"),
        (
            replace(turn, observed=(Message("x", "a", (call,)),)),
            "observed[0].tool_calls[0].arguments.x",
        ),
        (replace(turn, observed=({"content": "go"},)), "observed[0]"),
        (replace(turn, legal=("a", 7)), "legal[1]"),
        (replace(turn, tools=("f",)), "tools[0]"),
        (replace(turn, replies=(Reply(token_ids=(1, 2.5)),)), "replies[0].token_ids[1]"),
        (replace(turn, replies=(Reply(logprobs=(-1.0, math.inf)),)), "replies[0].logprobs[1]"),
        (replace(turn, replies=(Reply(logprobs=(-1.0, "x")),)), "replies[0].logprobs[1]"),
    ):
        with pytest.raises(StoreError) as caught:
            dump_episode(small(turns=(*small().turns, wrong)))
        assert str(caught.value).startswith(f"episode test/3, seed 7, repeat 0: turns[2].{where}: ")
