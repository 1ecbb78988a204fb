"""The records: roles, derived facts, equality."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from dataclasses import MISSING, FrozenInstanceError, fields, replace

import pytest

import gem_ma.kernel.episode as played
import gem_ma.kernel.types as types
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.errors import ConformanceError, EngineError, GemMaError, ReplayError
from gem_ma.kernel.types import Action, Image, Message, Reply, Tool, ToolCall, Turn, spoken


def episode(end: End = End.TERMINATED) -> Episode:
    turns = (
        Turn(0, "a", (Message("one"),), None, (), Action("x"), (Reply("x"),)),
        Turn(0, "b", (Message("one"),), None, (), Action("y")),
        Turn(1, "a", (Message("y", "b"),), None, (), Action("z")),
    )
    final = {"a": (Message("end"),), "b": ()}
    ledger = (Entry(-1, "a", 0.5), Entry(0, "b", 1.0), Entry(1, "a", 2.0, "why"))
    cast = {"a": Seat(), "b": Seat(), "c": Seat()}
    return Episode("s", 1, 7, "test/3", 2, None, cast, turns, (), (), final, ledger, end)


def test_the_role_of_a_message_depends_on_who_looks() -> None:
    messages = (
        Message("x", "user"),
        Message("x", "assistant"),
        Message("x"),
        Message.system("x"),
        Message.tool("call_0", "x"),
    )
    assert [message.role("user") for message in messages] == [
        "assistant",
        "user",
        "user",
        "system",
        "tool",
    ]
    assert [message.role("assistant") for message in messages] == [
        "user",
        "assistant",
        "user",
        "system",
        "tool",
    ]


def test_the_text_of_parts_leaves_images_out() -> None:
    image = Image.of(b"bytes")
    assert Message(("a", image, "b")).text == "a\nb" and Message("plain").text == "plain"


def test_images_are_equal_by_digest_and_never_print_their_bytes() -> None:
    image = Image.of(b"bytes")
    assert image == Image(image.digest) and image.digest != Image.of(b"other").digest
    assert "bytes" not in repr(image) and image != Image(image.digest, "image/jpeg")


def test_a_tool_offers_the_schema_of_function_calling() -> None:
    schema = Tool("look", "Looks.", {"type": "object"}).schema
    assert schema == {
        "type": "function",
        "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}},
    }


def test_an_agents_own_line_keeps_its_tool_calls() -> None:
    call = ToolCall("call_0", "f", {})
    assert spoken("a", Action("x", (call,), "x")) == Message("x", "a", (call,))


def test_returns_and_transcripts_are_derived_from_the_record() -> None:
    played = episode()
    assert played.id == ("test/3", 7, 2)
    assert played.returns() == {"a": 2.5, "b": 1.0, "c": 0.0}
    assert [message.text for message in played.transcript("a")] == ["one", "x", "y", "z", "end"]
    assert [message.text for message in played.transcript("b")] == [
        "one",
        "y",
    ] and played.transcript("c") == ()


def test_every_end_is_explained_and_is_exactly_one_kind() -> None:
    assert all(end.__doc__ and end.__doc__ != End.__doc__ for end in End)
    assert {end for end in End if end.bootstraps} == {
        End.TRUNCATED,
        End.MAX_STEPS,
        End.MAX_TURNS,
        End.MAX_TOKENS,
        End.TIMEOUT,
        End.CONTEXT,
    }
    assert {end for end in End if not end.scored} == {End.INTERRUPTED, End.FAILED}
    assert [End(end.value) for end in End] == list(End)


RECORDS = {**vars(types), **vars(played)}


@pytest.mark.parametrize(
    "name", [name for name, kind in RECORDS.items() if dataclasses.is_dataclass(kind)]
)
def test_records_are_frozen_and_slotted(name: str) -> None:
    kind = RECORDS[name]
    assert kind.__dataclass_params__.frozen and "__slots__" in vars(kind)


def test_records_compare_by_value() -> None:
    assert episode() == episode() and episode() != episode(End.FAILED)


def test_errors_travel_between_processes() -> None:
    for error in (
        EngineError("x", retryable=True),
        ReplayError("x"),
        ConformanceError(("one", "two")),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (
            type(again) is type(error)
            and str(again) == str(error)
            and isinstance(again, GemMaError)
        )
    assert pickle.loads(pickle.dumps(EngineError("x", retryable=True))).retryable


def test_records_that_are_made_quickly_are_what_they_were() -> None:
    for kind, values in {
        Message: ("a", "b", (), "c"),
        Action: ("a", (), "b", 1),
        Entry: (1, "a", 2.0, "why", 1.0),
        Turn: (0, "a", (), None, (), Action(), ()),
    }.items():
        made = kind(*values)
        names = [field.name for field in fields(kind)]
        assert made == kind(**dict(zip(names, values, strict=True))) == replace(made)
        assert pickle.loads(pickle.dumps(made)) == made and hash(made) == hash(replace(made))
        with pytest.raises(FrozenInstanceError):
            setattr(made, names[0], "x")
        with pytest.raises(TypeError, match="unexpected keyword"):
            kind(*values[:1], nothing=1)

        defaults = [p.default for p in inspect.signature(kind).parameters.values()]
        assert defaults == [
            inspect.Parameter.empty if field.default is MISSING else field.default
            for field in fields(kind)
        ]
