"""A program in a seat, over a loopback socket: it plays what a behaviour of the house would, its
model calls are on record, and no client loses a play of another one."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import gem_ma
from gem_ma.config.loading import load
from gem_ma.driver.rollout import play_many
from gem_ma.engines.endpoint.reply import decode, read
from gem_ma.engines.small.scripted import Scripted
from gem_ma.kernel.episode import End, Episode, Seat
from gem_ma.kernel.errors import ConfigError, DataError, EngineError
from gem_ma.kernel.types import Malformed, Reply, ToolCall
from gem_ma.serving import door, routes
from gem_ma.serving.desk import Desk
from gem_ma.serving.door import Door
from gem_ma.serving.requests import Wanted
from gem_ma.serving.routes import Sayings, completion, events
from gem_ma.trainers.seat import Play, PlayOver, SeatError, plays
from tests.command_line import environment
from tests.command_line import gem_ma as command
from tests.plays import played_all
from tests.serving import Client, completions, episodes, passes_on, plans, policies, served

LINES = [
    Reply("", (ToolCall("call_0", "look", {"word": "chair", "more": {"b": 1, "a": [1.0]}}),)),
    Reply("Beside ", (ToolCall("call_0", "look", {"word": "é"}), ToolCall("call_0", "look", {}))),
    Reply("<think>well</think>Here is a chair."),
    Reply("Half a call", (Malformed('{"name": ', "bad_json: cut"),)),
    Reply("yes"),
]


def clerk() -> Any:
    return Scripted("clerk", replies=LINES)


def direct(count: int) -> list[Episode]:
    """The same plans with `direct` in the seat."""
    cast = {"clerk": Seat("direct", "clerk"), "guest": Seat("direct", "guest")}

    planned = [replace(plan, cast=cast) for plan in plans(count)]

    return played_all(planned, policies(clerk()))


def as_langchain(message: dict[str, Any]) -> dict[str, Any]:
    """What a library does to a line that it reads and writes again."""
    for call in message.get("tool_calls", ()):
        arguments = json.loads(call["function"]["arguments"])
        call["function"]["arguments"] = json.dumps(arguments, sort_keys=True, indent=1)
    return {**message, "content": message["content"] or "", "refusal": None, "name": None}


@pytest.mark.long
@pytest.mark.parametrize("change", [dict, as_langchain])
def test_a_program_that_passes_all_on_plays_as_direct_does(change: Any) -> None:
    two = [partial(passes_on, change=change)] * 2
    ours, theirs = episodes(plans(5), policies(clerk()), *two), direct(5)
    assert [each.end for each in ours] == [End.TERMINATED] * 5
    # requests too: a scripted reply says nothing of its prompt
    assert [each.turns for each in ours] == [each.turns for each in theirs]
    assert [each.returns() for each in ours] == [{"clerk": 1.0, "guest": 0.0}] * 5


def test_a_models_prompt_is_what_direct_would_have_shown() -> None:
    def asked(play_all: Any) -> list[Any]:
        seen: dict[str, Any] = {}

        class Watching(Scripted):
            async def sample(self, request: Any) -> Reply:
                seen[f"{request.conversation} {request.turn}"] = (
                    tuple(request.messages), request.tools, request.legal, request.seed,
                )  # fmt: skip
                return await super().sample(request)

        play_all(Watching("clerk", replies=LINES))
        return sorted(seen.items())

    def by_direct(engine: Any) -> None:
        cast = {"clerk": Seat("direct", "clerk"), "guest": Seat("direct", "guest")}

        async def played() -> None:
            planned = [replace(plan, cast=cast) for plan in plans(2)]
            async for _ in play_many(planned, policies(engine)):
                pass

        asyncio.run(played())

    def by_program(engine: Any) -> None:
        episodes(plans(2), policies(engine), passes_on)

    program, house = asked(by_program), asked(by_direct)
    assert [name for name, _ in program] == [name for name, _ in house]
    for (name, (messages, *rest)), (_, (wanted, *others)) in zip(program, house, strict=True):
        assert rest == others, name
        # who said it stands in the text for a program: `guest: A chair`
        texts = [
            (each.role("clerk"), each.text, each.tool_calls, each.call_id) for each in messages
        ]
        named = [
            (each.role("clerk"), ("guest: " if each.sender == "guest" else "") + each.text,
             each.tool_calls, each.call_id) for each in wanted
        ]  # fmt: skip
        assert texts == named, name


@pytest.mark.longest
def test_a_stream_holds_what_one_piece_holds() -> None:
    openai = pytest.importorskip("openai")
    seen: list[Any] = []

    def program(address: str) -> None:
        for play in plays(address):
            client = openai.OpenAI(base_url=play.base_url, api_key="none", max_retries=0)
            for stream in (False, True):
                made = client.chat.completions.create(
                    model="any", messages=play.messages, tools=play.tools, stream=stream,
                    **({"stream_options": {"include_usage": True}} if stream else {}),
                )  # fmt: skip
                seen.append(joined(made) if stream else whole(made))
            play.leave("that was all")

    def whole(made: Any) -> Any:
        choice = made.choices[0]
        calls = [
            (each.function.name, each.function.arguments) for each in choice.message.tool_calls
        ]
        return choice.message.content or "", calls, choice.finish_reason, made.usage.total_tokens

    def joined(made: Any) -> Any:
        text, calls, finish, usage = "", [], None, None
        for event in made:
            usage = event.usage or usage
            for choice in event.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
                calls += [
                    (each.function.name, each.function.arguments)
                    for each in choice.delta.tool_calls or ()
                ]
        return text, calls, finish, usage.total_tokens

    line = Reply("é ", LINES[1].tool_calls, (1, 2), (3, 4), (-0.5, -0.25))
    (played,) = episodes(plans(1), policies(Scripted("clerk", replies=[line] * 2)), program)
    assert seen[0] == seen[1] and seen[0][2:] == ("tool_calls", 4)
    assert played.end is End.FAILED and "left in turn 1: that was all" in str(played.error)
    # drafts of a turn that was never taken are no turn
    assert [turn.agent for turn in played.turns] == ["guest"]


def test_drafts_are_replies_of_the_turn_that_they_were_made_in() -> None:
    def program(address: str) -> None:
        for play in plays(address):
            for draft in range(2):
                completions(play, [{"role": "user", "content": f"draft {draft}"}])
            play.say("mine")
            play.leave()

    (played,) = episodes(plans(1), policies(clerk()), program)
    turn = played.turns[1]
    assert turn.agent == "clerk" and turn.action.text == "mine" and len(turn.replies) == 2


REFUSED = [
    ({"n": 2}, "n:"),
    ({"temperature": 0.5}, "temperature: the policy of this seat samples at 1"),
    ({"top_p": 0.9}, "top_p: the policy of this seat samples at 1"),
    ({"top_k": 0}, "top_k: the policy of this seat samples as its server does"),  # nobody named it
    ({"reasoning_effort": "high"}, "reasoning_effort:"),
    ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs:"),
    ({"min_tokens": 9}, "min_tokens:"),
    ({"tool_choice": "required"}, "tool_choice:"),
    ({"tool_choice": {"type": "function", "function": {"name": "look"}}}, "tool_choice:"),
    ({"response_format": {"type": "json_object"}}, "response_format:"),
    ({"structured_outputs": {"choice": ["yes"]}}, "structured_outputs:"),
    ({"logit_bias": {"5": 1}}, "logit_bias:"),
    ({"presence_penalty": 1.0}, "presence_penalty:"),
    ({"top_logprobs": 3}, "top_logprobs:"),
    ({"parallel_tool_calls": False}, "parallel_tool_calls:"),
    ({"functions": [{"name": "look"}]}, "functions:"),
    ({"max_tokens": 0}, "max_tokens:"),
    ({"stop": [1]}, "stop:"),
    ({"tools": [{"type": "web_search"}]}, "tools[0]:"),
    ({"tools": [{"type": "function", "function": {"name": " "}}]}, "tools:"),
    ({"tools": [{"type": "function", "function": {"name": "look"}}] * 2}, "tools:"),
    ({"stream": "false"}, "stream:"),
    ({"logprobs": 3}, "logprobs:"),
    ({"return_token_ids": []}, "return_token_ids:"),
    ({"messages": [{"role": "assistant", "function_call": {"name": "look"}}]}, "messages:"),
    ({"messages": []}, "messages:"),
    ({"messages": "hi"}, "messages:"),
    ({"messages": [{"role": "friend", "content": "x"}]}, "messages[0].role:"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content:"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id:"),
]  # fmt: skip
TAKEN = [
    {"temperature": 1.0, "top_p": 1, "n": 1, "logit_bias": None, "tool_choice": "auto"},
    {"response_format": {"type": "text"}, "user": "me", "parallel_tool_calls": True},
    {"max_completion_tokens": 9999, "stop": "end", "seed": 7, "verbosity": "low"},
    {"tools": [{"type": "function", "function": {"name": "look", "strict": True}}]},
    {"messages": [{"role": "user", "content": "x", "name": "bob", "refusal": None}]},
]


def test_what_would_change_the_answer_is_done_or_refused_by_one_line() -> None:
    answers: list[tuple[int, Any]] = []

    def program(address: str) -> None:
        for play in plays(address):
            for change, _ in REFUSED:
                answers.append(completions(play, play.messages, change))
            for change in TAKEN:
                assert completions(play, play.messages, change)[0] == 200, change
            play.leave()

    notes: list[str] = []
    script = Scripted("clerk", replies=["one", "two", "three", "four", "five"])
    episodes(plans(1), policies(script, temperature=1.0, top_p=1.0), program, note=notes.append)
    for (change, line), (status, body) in zip(REFUSED, answers, strict=True):
        message = body["error"]["message"]
        assert status == 400 and message.startswith(line) and "\n" not in message, (change, body)
    assert [re.findall("'(.*?)'", note) for note in notes] == [
        ["seed"],
        ["verbosity"],
        ["tools.strict"],
        ["messages.name"],
    ]


@pytest.mark.parametrize("fault", [ConfigError, DataError])
def test_a_model_call_that_no_engine_takes_fails_the_play_of_its_program_alone(fault: Any) -> None:
    """Such an error of a behaviour is one of the config, and ends the run; a program's is not."""
    heard: list[Any] = []

    class Engine:
        async def sample(self, request: Any) -> Reply:
            if request.tools and request.tools[0].name == "odd":
                raise fault("tool 'odd': a schema that no grammar reads")
            return Reply("yes")

    def program(address: str) -> None:
        seats = plays(address)
        tool = {"type": "function", "function": {"name": "odd"}}
        play = next(seats)
        heard.append(completions(play, play.messages, {"tools": [tool]}))
        passes_on(address)

    failed, fine = episodes(plans(2), policies(Engine()), program)
    assert (failed.end, fine.end) == (End.FAILED, End.TERMINATED)
    assert "no grammar reads" in str(failed.error) and "'clerk'" in str(failed.error)
    assert heard[0][0] == 500 and "no grammar reads" in heard[0][1]["error"]["message"]


def test_logprobs_and_ids_are_those_that_were_sampled() -> None:
    bodies: list[Any] = []

    def program(address: str) -> None:
        for play in plays(address):
            bodies.append(completions(play, play.messages, logprobs=True, return_token_ids=True))
            play.leave()

    line = Reply("ok", (), (1, 2, 3), (40, 41), (-0.5, -1.25))
    episodes(plans(1), policies(Scripted("clerk", replies=[line])), program)
    whole = bodies[0][1]
    content = whole["choices"][0]["logprobs"]["content"]
    assert [(each["token"], each["logprob"]) for each in content] == [
        ("token_id:40", -0.5),
        ("token_id:41", -1.25),
    ]
    assert whole["choices"][0]["token_ids"] == [40, 41] and whole["prompt_token_ids"] == [1, 2, 3]
    assert whole["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


LOOKS = (ToolCall("c", "look", {"at": 1}),)


@pytest.mark.parametrize("ids", [(40, 41), ()])  # an endpoint may tell log-probabilities alone
@pytest.mark.parametrize(("text", "calls"), [("ok", ()), ("", LOOKS), ("ok", LOOKS), ("", ())])
def test_a_stream_says_what_the_whole_reply_says(text: str, calls: Any, ids: Any) -> None:
    reply = Reply(text, calls, (1, 2, 3), ids, (-0.5, -1.25), policy="p", reasoning="hm")
    message = Sayings("clerk").written(reply)
    wanted = Wanted(usage=True, logprobs=True, ids=True)
    whole = completion(reply, message, "n", wanted)
    streamed = b"".join(events(reply, message, "n", wanted))
    got = read(decode(streamed, "text/event-stream"))
    assert got == read(whole) and got.token_ids == ids and got.prompt_ids == (1, 2, 3)
    assert got.logprobs == (reply.logprobs if ids else ())


def test_a_silent_program_fails_its_play_alone_and_the_record_says_so() -> None:
    def silent(address: str) -> None:
        next(iter(plays(address)))  # takes a seat, and never speaks again

    def later(address: str) -> None:
        time.sleep(0.1)  # so that the other one has its seat
        passes_on(address)

    played = episodes(plans(3), policies(clerk()), silent, later, patience_s=2.5)
    ends = sorted(each.end.value for each in played)
    assert ends == ["failed", "terminated", "terminated"]
    (error,) = [each.error for each in played if each.error]
    assert error == "ProgramError: agent 'clerk': its program was not heard of for 2.5 s, in turn 1"


def test_a_seat_that_nobody_takes_is_waited_for() -> None:
    def late(address: str) -> None:
        time.sleep(0.6)
        passes_on(address)

    (played,) = episodes(plans(1), policies(clerk()), late, patience_s=0.2)
    assert played.end is End.TERMINATED


def test_an_answer_that_is_sent_twice_counts_once_and_another_one_is_refused() -> None:
    def program(address: str) -> None:
        seats = plays(address)
        play = next(seats)
        client, path = Client(address), f"/episode/{play.address.split('/')[-1]}/act"
        turn = {"turn": 1, "message": {"content": "first"}}
        assert client.ask("POST", path, turn)[1]["turn"] == 2
        assert client.ask("POST", path, turn)[0] == 409  # that turn is over by now
        status, body = client.ask("POST", path, {"turn": 9, "message": {"content": "x"}})
        assert status == 409 and "the turn is 2" in body["error"]["message"]
        second = {"turn": 2, "message": {"content": "second"}}
        assert client.ask("POST", path, second)[1]["legal"] == ["yes", "no"]
        assert (
            client.ask("POST", path, {"turn": 3, "message": {"content": "no"}})[1]["state"]
            == "over"
        )
        again = client.ask("POST", path, {"turn": 3, "message": {"content": "no"}})
        assert again[1]["earned"] == 0.5
        assert client.ask("POST", path, {"turn": 3, "message": {"content": "yes"}})[0] == 410
        assert completions(play, [{"role": "user", "content": "x"}])[0] == 410
        next(seats).leave()

    played, _ = sorted(
        episodes(plans(2), policies(clerk()), program), key=lambda each: -len(each.turns)
    )
    assert [turn.action.text for turn in played.turns if turn.agent == "clerk"] == [
        "first",
        "second",
        "no",
    ]


def test_a_model_that_fails_fails_the_play_and_one_that_is_full_cuts_it() -> None:
    heard: list[Any] = []

    def program(address: str) -> None:
        for play in plays(address):
            heard.append(completions(play, play.messages))
            with pytest.raises(PlayOver):
                play.say("too late")

    class Engine:
        calls = 0

        async def sample(self, request: Any) -> Reply:
            Engine.calls += 1
            if Engine.calls == 1:
                raise EngineError("the GPU is on fire\nline two")
            return Reply("", finish="context_overflow")

    failed, cut = episodes(plans(2), policies(Engine()), program)
    assert failed.end is End.FAILED and "GPU is on fire" in str(failed.error)
    assert cut.end is End.CONTEXT
    assert [status for status, _ in heard] == [500, 400]
    assert heard[0][1]["error"]["message"].endswith("EngineError the GPU is on fire")
    assert heard[1][1]["error"]["code"] == "context_length_exceeded"


def test_a_model_call_that_nobody_waits_for_is_not_on_record() -> None:
    begun, ended = threading.Event(), threading.Event()

    class Engine:
        async def sample(self, request: Any) -> Reply:
            if request.messages[-1].text == "slow":
                begun.set()
                try:
                    await asyncio.sleep(60)
                finally:
                    ended.set()
            return Reply("quick")

    def program(address: str) -> None:
        for play in plays(address):
            body = json.dumps({"messages": [{"role": "user", "content": "slow"}]}).encode()
            host, port = play.address.split("/")[2].split(":")
            path = "/" + play.base_url.split("/", 3)[3] + "/chat/completions"
            with socket.create_connection((host, int(port))) as peer:
                head = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(body)}\r\n\r\n"
                peer.sendall(head.encode() + body)
                assert begun.wait(20)
            assert ended.wait(20)
            completions(play, play.messages)
            play.say("done")
            play.leave()

    (played,) = episodes(plans(1), policies(Engine()), program)
    assert [reply.text for reply in played.turns[1].replies] == ["quick"]


def test_a_request_that_is_sent_again_gets_the_reply_that_nobody_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the client is gone by the time that its answer is there
    monkeypatch.setattr(door._Caller, "is_gone", lambda each: "Gone" in each.request.headers)
    monkeypatch.setattr(routes, "LOOK_S", 60.0)
    heard: list[Any] = []

    class Engine:
        calls = 0

        async def sample(self, request: Any) -> Reply:
            Engine.calls += 1
            return Reply(f"reply {Engine.calls}")

    def ask(play: Play, text: str, **headers: str) -> None:
        address, _, path = play.base_url.partition("/episode/")
        body = {"messages": [{"role": "user", "content": text}]}
        status, said = Client(address).ask(
            "POST", f"/episode/{path}/chat/completions", body, **headers
        )
        heard.append(said["choices"][0]["message"]["content"] if status == 200 else status)

    def program(address: str) -> None:
        for play in plays(address):
            ask(play, "a", Gone="yes")
            ask(play, "b")
            ask(play, "a")
            ask(play, "a")  # a second draft is a second reply
            ask(play, "b", Gone="yes")
            play.say("x")
            ask(play, "b")  # another turn
            play.leave()

    (played,) = episodes(plans(1), policies(Engine()), program)
    assert heard == [499, "reply 2", "reply 1", "reply 3", 499, "reply 5"]
    first = next(turn for turn in played.turns if turn.agent == "clerk")
    assert [reply.text for reply in first.replies] == [f"reply {n}" for n in range(1, 5)]


@pytest.mark.parametrize("where", ["/episodes", "/episode/unknown/v1/chat/completions"])
def test_a_refusal_of_a_body_that_is_still_being_sent_can_be_read(where: str) -> None:
    """A connection that is closed before all is sent is a broken pipe to a client, and no reason."""
    with served(Desk()) as opened:
        status, refusal = Client(opened.address).ask("POST", where, b"x" * (door.MOST_BYTES * 3))
        assert status == 413 and "at most" in refusal["error"]["message"]
        body = b"x" * 4_000_000
        status, refusal = Client(opened.address).ask("POST", where, body, Origin="http://a.example")
        assert status == 403 and "browser" in refusal["error"]["message"]


def test_tools_that_a_library_runs_side_by_side_are_turns_one_after_another() -> None:
    results: list[str] = []

    def program(address: str) -> None:
        for play in plays(address):
            calls = [
                threading.Thread(
                    target=lambda w=word, p=play: results.append(p.call("look", {"word": w}))
                )
                for word in ("a", "b", "c")
            ]
            for call in calls:
                call.start()
            for call in calls:
                call.join()
            play.say("x")
            play.say("x")
            assert play.say("yes") == [] and play.over and play.earned == 1.0

    (played,) = episodes(plans(1), policies(clerk()), program)
    assert sorted(results) == [f"{{'word': '{word}'}} is in stock" for word in "abc"]
    assert [len(turn.action.tool_calls) for turn in played.turns if turn.agent == "clerk"] == [
        1,
        1,
        1,
        0,
        0,
        0,
    ]


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("POST", "/episodes", {}, {"Host": "evil.example"}, 403),
        ("POST", "/episodes", {}, {"Origin": "http://127.0.0.1"}, 403),
        ("POST", "/episodes", {}, {"Transfer-Encoding": "chunked"}, 411),
        ("POST", "/episodes", b"{", {}, 400),
        ("POST", "/episodes", b'{"a": 1, "a": 2}', {}, 400),
        ("POST", "/episodes", b"[]", {}, 400),
        ("POST", "/episodes", b"[" * 5000 + b"]" * 5000, {}, 400),
        ("POST", "/episodes", b"\xff", {}, 400),
        ("POST", "/episodes", {"agent": 3}, {}, 400),
        ("POST", "/episodes", b"", {"Content-Length": "99999999"}, 413),
        ("POST", "/episodes", b"", {"Content-Length": "-1"}, 400),
        ("GET", "/episodes", None, {}, 405),
        ("GET", "/", None, {}, 404),
        ("GET", "/episode/unknown", None, {}, 404),
        ("GET", "/episode/../../etc/passwd", None, {}, 404),
        ("PUT", "/episodes", None, {}, 501),
    ],
)  # fmt: skip
def test_the_door_refuses_what_no_honest_client_sends(
    method: str, path: str, body: Any, headers: dict[str, str], status: int
) -> None:
    with served(Desk()) as door:
        answered, refusal = Client(door.address).ask(method, path, body, **headers)
        assert answered == status and "\n" not in refusal["error"]["message"]


def test_an_agent_whose_seat_is_not_served_is_refused_at_once() -> None:
    with served(Desk(["clerk", "guest_*"])) as door:
        client = Client(door.address)
        status, refusal = client.ask("POST", "/episodes", {"agent": "user"})
        assert (status, refusal["error"]["message"]) == (
            400,
            "agent: 'user' is not served; clerk, guest_* is",
        )
        assert door.desk.agents == ("clerk", "guest_*")


def test_connections_that_say_nothing_make_room_for_one_that_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half a request, or none: the one that has waited longest is closed."""
    monkeypatch.setattr(door, "MOST_CONNECTIONS", 8)
    with served(Desk()) as opened:
        silent = []
        for number in range(30):
            silent.append(socket.create_connection(("127.0.0.1", opened.port)))
            half = (b"", b"POST /epis", b"POST /episodes HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            body = b"POST /episodes HTTP/1.1\r\nContent-Length: 90\r\nHost: 127.0.0.1\r\n\r\n{"
            silent[-1].sendall((*half, body)[number % 4])
        for _ in range(3):
            assert Client(opened.address).ask("GET", "/")[0] == 404
        for each in silent:
            each.close()


def test_beyond_this_machine_a_key_is_wanted() -> None:
    with pytest.raises(ConfigError, match="--key-env"):
        Door(Desk(), host="0.0.0.0")
    with served(Desk(), key="secret") as door:
        client = Client(door.address)
        assert client.ask("GET", "/")[0] == 401
        assert client.ask("GET", "/", Authorization="Bearer secreT")[0] == 401
        assert client.ask("GET", "/", Authorization="Bearer secret")[0] == 404
        with pytest.raises(ConfigError, match=f"cannot listen at 127.0.0.1:{door.port}"):
            Door(Desk(), port=door.port)


def test_a_seat_without_a_policy_says_so_and_plays() -> None:
    def program(address: str) -> None:
        for play in plays(address):
            status, body = completions(play, play.messages)
            assert status == 404 and "agents.clerk.policy" in body["error"]["message"]
            play.run(lambda messages: "yes")

    cast = {"clerk": Seat("program"), "guest": Seat("direct", "guest")}
    (played,) = episodes([replace(plans(1)[0], cast=cast)], policies(clerk()), program)
    assert played.end is End.TERMINATED and played.returns()["clerk"] == 1.0


def test_a_program_that_raises_fails_that_play_and_takes_the_next(capsys: Any) -> None:
    seen: list[Play] = []

    def program(address: str) -> None:
        for play in plays(address):
            seen.append(play)
            play.run(lambda messages: 1 / 0 if len(seen) == 1 else "yes")

    played = episodes(plans(2), policies(clerk()), program)
    assert sorted(each.end.value for each in played) == ["failed", "terminated"]
    assert "its program left in turn 1: ZeroDivisionError" in str([e.error for e in played])
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.longest
@pytest.mark.parametrize("turn_based", [True, False])
def test_a_policy_learns_behind_programs(tmp_path: Path, turn_based: bool) -> None:
    """Under the gate of a training: nobody waits for a program that thinks, and none is stuck."""
    config, seats = (
        ("kuhn_table", ["player_0"]) if turn_based else ("dilemma", ["player_0", "player_1"])
    )
    words = [f"agents.{seat}.behaviour=program" for seat in seats]
    if not turn_based:
        words += ["policies.main.model=table/softmax", "agents.player_0.policy=main", "agents.player_1.policy=main",
                  "train.policies=[main]", "train.lr=0.1"]  # fmt: skip
    words += ["train.steps=2", "train.episodes=8", "evaluate.episodes=4", "run.concurrency=4"]

    def program(address: str) -> None:
        for play in plays(address):

            def answer(messages: list[Any], play: Play = play) -> Any:
                time.sleep(0.002)
                sent = [{"role": "user", "content": each["content"]} for each in messages]
                status, whole = completions(play, sent, structured_outputs={"choice": play.legal})
                assert status == 200, whole
                return whole["choices"][0]["message"]

            play.run(answer)

    with served(Desk(), program, program, program):
        summary = gem_ma.train(load(config, words, configs_first=True), out=tmp_path / "run")
    assert summary["steps"] == 2
    record = list(gem_ma.read_episodes(tmp_path / "run"))
    assert len(record) == 16 and all(each.end is End.TERMINATED for each in record)
    assert {each.cast[seats[0]].behaviour for each in record} == {"program"}


def test_without_a_desk_the_seat_says_what_to_type() -> None:
    with pytest.raises(ConfigError, match="gem-ma serve CONFIG --seat player_0"):
        gem_ma.run(load("dilemma", ["agents.player_0.behaviour=program"], configs_first=True))


@pytest.mark.longest
def test_the_command_plays_a_config_with_a_program(tmp_path: Path) -> None:
    import subprocess
    import sys

    words = [
        "serve",
        "dilemma",
        "--seat",
        "player_0",
        "--port",
        "0",
        "-n",
        "3",
        "--json",
        "--out",
        str(tmp_path / "run"),
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "gem_ma", *words], env=environment(), text=True, cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None and process.stdout is not None
        line = next(each for each in process.stderr if "is free at" in each)
        address = re.findall(r"http://127\.0\.0\.1:\d+", line)[0]
        for play in plays(address):
            play.run(lambda messages: "cooperate")
        summary = json.loads(process.stdout.read())
    assert process.returncode == 0 and summary["episodes"] == 3


@pytest.mark.parametrize(
    ("config", "seat", "learns", "words", "line"),
    [
        ("dilemma", "player_0", True, [], "no section train"),
        ("dilemma", "player_0", False, ["run.episode_timeout_s=5"], "run.episode_timeout_s"),
        ("guess_number_forks", "player", True, [], "train.fork"),
        ("guess_number", "player", True, ["policies.player.constrain=legal"], "policies.player.constrain"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused(
    config: str, seat: str, learns: bool, words: list[str], line: str
) -> None:
    from gem_ma.cli.serve import check

    loaded = load(config, words, configs_first=True)
    with pytest.raises(ConfigError, match=line):
        check(loaded, [seat], learns)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["dilemma", "--seat", "c"], "agents.c"),
        (["dilemma", "--seat", "player_0", "--host", "0.0.0.0"], "--key-env"),
        (["kuhn_table", "--seat", "player_0", "--train", "--retry-failed"], "--retry-failed"),
    ],
)  # fmt: skip
def test_a_wrong_command_is_one_line_and_leaves_nothing(
    words: list[str], line: str, tmp_path: Path
) -> None:
    done = command("serve", *words, "--port", "0", cwd=tmp_path)
    assert done.returncode == 2 and line in done.stderr and done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_unreachable_server_is_an_error_of_the_first_call() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(OSError):
        next(plays(f"http://127.0.0.1:{port}"))
    with served(Desk(), key="k") as door, pytest.raises(SeatError, match="key"):
        next(plays(door.address))
