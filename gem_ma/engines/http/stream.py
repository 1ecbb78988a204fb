"""The events of a streamed chat completion -> the one response that they add up to. Knows
server-sent events; raises `Fault`, reads no reply.

A stream counts as whole where it said how the answer ended: without a finish reason it was cut,
whatever stands at its end. An error in any event, an event that is called `error`, and a finish
reason that is no answer's make the whole a fault, also where later events say otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from gem_ma.engines.http.envelope import is_first, part, refuse_error, text_of, thought_of
from gem_ma.engines.http.faults import Fault, of_error_within

TEXTS = ("content", "refusal", "reasoning_content")


class Event(NamedTuple):
    """The lines of one event, joined; `name` is "" where the server gives none."""

    name: str
    data: str


def joined(
    text: str, read: Callable[[str], dict[str, Any]], finish: Callable[[Any], str]
) -> dict[str, Any]:
    """The response that a stream's text adds up to. `read` parses the JSON of an event, `finish`
    a finish reason; both raise Fault."""
    whole: dict[str, Any] = {}
    sums = _Sums()  # of the first choice alone: no other was asked for
    for event in events(text):
        if event.data == "[DONE]":  # what comes behind it belongs to no answer
            break
        value = read(event.data)
        if (
            value.get("error")
            or event.name == "error"
            or value.get("type") == "error"
            or value.get("object") == "error"
        ):
            raise of_error_within(value.get("error") or value)
        # the usage comes last and without choices; servers that send it often send running sums
        for key in ("usage", "prompt_token_ids", "model"):
            if value.get(key) is not None:
                whole[key] = value[key]
        for choice in part(value, "choices") or ():
            if not is_first(choice):
                continue
            refuse_error(choice)
            # with which some servers say that the answer goes on
            if choice.get("finish_reason") != "":
                finish(choice.get("finish_reason"))
            sums.add(choice)
            whole["prompt_token_ids"] = choice.get("prompt_token_ids") or whole.get(
                "prompt_token_ids"
            )
    if sums.started and sums.finish is None:
        raise Fault(
            "bad_reply",
            f"the event stream ended after {len(text)} characters without a finish reason",
            status=200,
        )
    return {**whole, "choices": [sums.choice()] if sums.started else []}


class _Sums:
    """What the deltas of one choice add up to."""

    def __init__(self) -> None:
        self.started, self.finish = False, None
        self.texts: dict[str, list[str]] = {name: [] for name in TEXTS}
        self.calls: dict[int, dict[str, Any]] = {}
        self.logprobs: list[Any] = []
        self.ids: list[Any] = []

    def add(self, choice: dict[str, Any]) -> None:
        self.started = True
        delta = part(choice, "delta") or {}
        for name in TEXTS:
            self.texts[name].append(
                thought_of(delta) if name == "reasoning_content" else text_of(delta, name)
            )
        for call in part(delta, "tool_calls") or ():
            self._add_call(call)
        self.logprobs += list_at(object_at(choice, "logprobs"), "content")
        self.ids += list_at(choice, "token_ids")
        # some servers send an event without a reason behind the one that has it
        self.finish = choice.get("finish_reason") or self.finish

    def _add_call(self, delta: Any) -> None:
        index = delta.get("index") if isinstance(delta, dict) else delta
        if not isinstance(delta, dict) or not (index is None or type(index) is int):
            raise Fault("bad_reply", f"a piece of a call is {ascii(delta)[:100]}", status=200)
        # without an index, an id begins a new call, and pieces without one belong to the last
        if index is None:
            index = max(self.calls, default=-1) + (1 if delta.get("id") or not self.calls else 0)
        call = self.calls.setdefault(index, {"id": None, "name": [], "arguments": []})
        call["id"] = delta.get("id") or call["id"]
        function = part(delta, "function") or {}
        for key in ("name", "arguments"):
            piece = function.get(key)
            # arguments that come as they are, and not as text, are written as text
            if piece is not None:
                call[key].append(piece if isinstance(piece, str) else json.dumps(piece))

    def choice(self) -> dict[str, Any]:
        """The choice as it would have come in one piece."""
        message: dict[str, Any] = {
            "role": "assistant",
            **{name: "".join(pieces) or None for name, pieces in self.texts.items()},
        }
        calls = [self.calls[index] for index in sorted(self.calls)]
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {key: "".join(call[key]) for key in ("name", "arguments")},
            }
            for call in calls
        ] or None
        logprobs = {"content": self.logprobs} if self.logprobs else None
        return {
            "index": 0,
            "message": message,
            "finish_reason": self.finish,
            "logprobs": logprobs,
            "token_ids": self.ids or None,
        }


def events(text: str) -> list[Event]:
    """The server-sent events that hold data; one that is cut in the middle comes last, and
    strict JSON tells whether it is whole."""
    heard: list[Event] = []
    name, lines = "", list[str]()
    # not splitlines: U+2028 may stand inside JSON
    for line in [*text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""]:
        if line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
        elif line.startswith("event:"):
            name = line[6:].strip()
        elif not line:
            heard += [Event(name, "\n".join(lines))] if lines else []
            name, lines = "", []
    return heard


def object_at(value: dict[str, Any], key: str) -> dict[str, Any]:
    """The object under a key, {} where there is none."""
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def list_at(value: dict[str, Any], key: str) -> list[Any]:
    """The list under a key, [] where there is none."""
    inner = value.get(key)
    return inner if isinstance(inner, list) else []
