"""The human engine, with a person made of text streams."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from dataclasses import replace
from typing import Any

import pytest

from gem_ma.driver.rollout import Plan, play
from gem_ma.engines.base import Policy, asks_person, open_engine
from gem_ma.engines.small.human import Human, chosen, printable
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Image, Message, Reply, Request, Tool, ToolCall
from gem_ma.registry import make


def seat(typed: str) -> tuple[Human, io.StringIO]:
    output = io.StringIO()
    return Human("me", policy="me", force=True, input=io.StringIO(typed), output=output), output


def ask(engine: Human, *messages: Message, **fields: Any) -> Reply:
    return asyncio.run(engine.sample(Request("a", messages, **fields)))


def test_it_shows_numbered_legal_strings_and_takes_number_or_text() -> None:
    engine, output = seat("2\ncheck\nBET please\n")
    replies = [ask(engine, Message("Your turn."), legal=("check", "bet")).text for _ in range(3)]
    assert replies == ["bet", "check", "BET please"]
    assert "[scenario] Your turn.\n  1. check\n  2. bet\na> " in output.getvalue()


@pytest.mark.parametrize("typed", ["seven", "3", "0", "check or bet", ""])
def test_a_line_that_names_no_move_is_asked_for_again_and_costs_nothing(typed: str) -> None:
    engine, output = seat(f"{typed}\nbet\n")
    assert ask(engine, Message("Your turn."), legal=("check", "bet")).text == "bet"
    assert "is none of the moves; type one of them, or its number from 1 to 2" in output.getvalue()
    assert output.getvalue().count("a> ") == 2


def test_the_end_of_a_play_is_shown_with_what_everybody_got() -> None:
    engine, output = seat("1\n")
    person = Policy("me", engine)
    cast = {"player_0": Seat("direct", "me"), "player_1": Seat("first_legal")}
    episode = asyncio.run(play(Plan(make("dilemma", rounds=1), cast, "test/0", 7), {"me": person}))
    output.truncate(0)
    engine.show_end(episode)
    shown = output.getvalue()

    assert "--- the play is over (terminated) ---" in shown
    assert "player_0 (you) 3, player_1 3" in shown
    output.truncate(0)
    engine.show_end(replace(episode, cast={"player_0": Seat("direct", "other")}))
    assert output.getvalue().strip("\0") == ""  # nobody at this terminal played


def test_who_asks_a_person_is_known_before_a_play() -> None:
    engine, _ = seat("")
    assert asks_person(
        {"me": Policy("me", engine), "bot": Policy("bot", open_engine("bot", "table/softmax"))}
    ) == [engine]


def test_a_legal_number_means_itself() -> None:
    assert chosen("2", ("3", "2", "1")) == "2"
    assert chosen("2", ("x", "y")) == "y"
    assert [chosen(text, ("x", "y")) for text in ("0", "3", "²", "9" * 5000, "-1")] == [
        "0",
        "3",
        "²",
        "9" * 5000,
        "-1",
    ]


def test_only_what_is_new_is_printed_and_never_the_own_lines() -> None:
    engine, output = seat("hello\nagain\n")
    first = (Message("one"),)
    ask(engine, *first, conversation="x")
    ask(engine, *first, Message("hello", "a"), Message("two", "b"), conversation="x")
    assert output.getvalue().count("one") == 1
    assert "[b] two" in output.getvalue()
    assert "[a]" not in output.getvalue()


def test_behind_a_memory_all_that_is_new_is_printed() -> None:
    engine, output = seat("hello\n" * 4)
    view = [Message("rules")]
    for turn in range(4):
        view += [Message(f"news {turn}", "b"), Message("your move?")]
        ask(engine, *view[:1], *view[1:][-5:], conversation="x", turn=turn)
        view.append(Message("hello", "a"))
    shown = output.getvalue()
    assert [shown.count(f"news {turn}") for turn in range(4)] == [1] * 4
    assert shown.count("your move?") == 4 and shown.count("rules") == shown.count("===") / 2 == 1


def test_control_characters_of_others_never_reach_the_terminal() -> None:
    engine, output = seat("ok\n")
    ask(
        engine,
        Message("\x1b[2J\x07 \u202egnp.exe\r\x9b31m", "b"),
        legal=("\x1b]0;x\x07", "ok"),
        tools=(Tool("t\x1b"),),
    )
    shown = output.getvalue()
    assert not any(char < " " and char != "\n" for char in shown)
    assert "\x9b" not in shown
    assert "\u202e" not in shown
    assert "\\x1b[2J\\x07 \\u202egnp.exe\\r\\x9b31m" in shown


def test_what_the_terminal_cannot_encode_is_written_out() -> None:
    assert printable("né 😀", "ascii") == "n\\xe9 \\U0001f600"


def test_images_are_named_and_tools_are_listed() -> None:
    engine, output = seat('{"name": "look", "arguments": {}}\n')
    reply = ask(engine, Message(("see", Image.of(b"x"))), tools=(Tool("look", "Looks."),))
    assert reply.tool_calls == (ToolCall("call_0", "look", {}),)
    assert "<image 2d711642b726>" in output.getvalue() and "tool look: Looks." in output.getvalue()


PAY = Tool(
    "pay",
    "Pays.",
    {
        "type": "object",
        "properties": {
            "who": {"type": "string"},
            "sum": {"type": "integer"},
            "notes": {"type": "array"},
        },
        "required": ["who", "sum"],
    },
)
LEAVE = Tool(
    "leave",
    "Goes.",
    {
        "type": "object",
        "properties": {"why": {"enum": ["done", "late"], "type": "string"}},
        "required": ["why"],
    },
)


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("/pay who=Ann sum=3", {"who": "Ann", "sum": 3}),
        ("/pay Ann 3", {"who": "Ann", "sum": 3}),
        ("/pay sum=3 'Ann Lee'", {"who": "Ann Lee", "sum": 3}),
        ("/pay 12 12", {"who": "12", "sum": 12}),
        ("/pay Ann 3 a,b", {"who": "Ann", "sum": 3, "notes": ["a", "b"]}),
        ("""/pay Ann 3 '["a", "b"]'""", {"who": "Ann", "sum": 3, "notes": ["a", "b"]}),
        ("/pay who=a=b sum=x", {"who": "a=b", "sum": "x"}),
        ("/pay Ann '3}}'", {"who": "Ann", "sum": "3}}"}),
        ('{"name": "pay", "arguments": {"who": "Ann", "sum": 3}}', {"who": "Ann", "sum": 3}),
    ],
)
def test_a_tool_call_may_be_typed_by_hand(line: str, arguments: dict[str, Any]) -> None:
    engine, _ = seat(line + "\n")
    reply = ask(engine, Message("?"), tools=(PAY, LEAVE))
    assert reply.text == "" and reply.tool_calls == (ToolCall("call_0", "pay", arguments),)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/leav done", "no tool is called 'leav'; did you mean /leave?"),
        ("/pay Ann", "pay also needs sum"),
        ("/leave done now", "'now' is one value too many; the arguments of leave are why"),
        ("/pay it's 3", "No closing quotation; put a value with spaces or quotes between quotes"),
        ("/help", "/leave why=done|late"),
    ],
)
def test_a_call_that_cannot_be_meant_is_asked_for_again(line: str, told: str) -> None:
    engine, output = seat(f"{line}\n/leave late\n")
    assert ask(engine, Message("?"), tools=(PAY, LEAVE)).tool_calls == (
        ToolCall("call_0", "leave", {"why": "late"}),
    )
    assert told in output.getvalue() and output.getvalue().count("a> ") == 2


def test_tools_are_shown_once_and_where_none_are_offered_a_slash_is_text() -> None:
    engine, output = seat("hello\nagain\n/leave x\n")
    for _ in range(2):
        ask(engine, Message("?"), tools=(LEAVE,), conversation="x")
    assert output.getvalue().count("tool leave: Goes.") == 1
    assert ask(engine, Message("?")).text == "/leave x"


def test_the_end_of_the_input_is_one_line_and_no_use_to_ask_again() -> None:
    engine, _ = seat("")
    with pytest.raises(
        EngineError, match="the input ended before agent 'a' had answered"
    ) as caught:
        ask(engine, Message("?"))
    assert not caught.value.retryable and "\n" not in str(caught.value)


def test_an_empty_line_is_an_answer() -> None:
    engine, _ = seat("\n")
    assert ask(engine, Message("?")).text == ""


def test_what_would_be_taken_for_a_thought_is_asked_for_again() -> None:
    engine, output = seat("<think> is a tag\n`<think>` is a tag\n")
    assert ask(engine, Message("?")).text == "`<think>` is a tag"
    assert "between backticks" in output.getvalue()


def test_it_refuses_to_ask_where_nobody_sits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    with pytest.raises(ConfigError, match=r'needs a terminal .*policies\."c\.d"\.force=true'):
        open_engine("c.d", "human/me")
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(ConfigError, match="needs a terminal"):
        open_engine("me", "human/me")


def test_questions_do_not_interleave_and_the_loop_goes_on_meanwhile() -> None:
    reader, writer = os.pipe()
    output = io.StringIO()
    terminal = os.fdopen(reader, "r", encoding="utf-8")
    engines = [Human("me", force=True, input=terminal, output=output) for _ in range(2)]

    async def main() -> list[str]:
        asks = [
            asyncio.ensure_future(engine.sample(Request(name, (Message("?"),))))
            for name, engine in zip(("a", "b"), engines, strict=True)
        ]
        await asyncio.sleep(0.05)
        assert "a> " in output.getvalue() and "b> " not in output.getvalue()
        os.write(writer, b"first\nsecond\n")
        return [reply.text for reply in await asyncio.gather(*asks)]

    assert asyncio.run(main()) == ["first", "second"]
    os.close(writer)


def test_a_cancelled_question_swallows_no_line() -> None:
    reader, writer = os.pipe()
    engine = Human(
        "me", force=True, input=os.fdopen(reader, "r", encoding="utf-8"), output=io.StringIO()
    )

    async def main() -> str:
        first = asyncio.ensure_future(engine.sample(Request("a", ())))
        await asyncio.sleep(0.05)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.ensure_future(engine.sample(Request("b", ())))
        os.write(writer, b"typed\n")
        return (await second).text

    assert asyncio.run(main()) == "typed"
    for thread in threading.enumerate():
        if thread.name == "gem_ma human":  # it has given its line and is about to end
            thread.join(10)
            assert not thread.is_alive()
    os.close(writer)
