"""The events of a streamed chat completion -> the one response that they add up to. Knows
server-sent events; raises `Fault`, reads no reply.

A stream counts as whole where it said how the answer ended: without a finish reason it was cut,
whatever stands at its end. An error in any event, an event that is called `error`, and a finish
reason that is not an answer's make the whole a fault, also where later events say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gem_ma.engines.endpoint.envelope import is_first, part, refuse_error, text_of, thought_of
from gem_ma.engines.endpoint.faults import Fault, of_error_within
from gem_ma.engines.endpoint.streamed_calls import Calls
from gem_ma.kernel.parsing.text import joined_halves

GOES_ON = (None, "", "null")  # finish reasons with which servers say that more will come
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
        data = event.data.strip()
        if data == "[DONE]":  # what comes behind it belongs to no answer
            break
        if not data:  # to keep the connection open
            continue
        value = read(data)
        if (
            value.get("error")
            or event.name == "error"
            or value.get("type") == "error"
            or value.get("object") == "error"
        ):
            raise of_error_within(value.get("error") or value)
        for key in ("prompt_token_ids", "model"):
            if value.get(key) is not None:
                whole[key] = value[key]
        whole["usage"] = _counted(whole, value)
        for choice in part(value, "choices") or ():
            if not is_first(choice):
                continue
            refuse_error(choice)
            if choice.get("finish_reason") not in GOES_ON:
                finish(choice.get("finish_reason"))
            sums.add(choice)
            whole["usage"] = _counted(whole, choice)  # Moonshot
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


def _counted(whole: dict[str, Any], event: dict[str, Any]) -> dict[str, Any]:
    """The usage until now. It comes last and without choices, as running sums with every event, or
    the prompt's at first and the answer's in the end; what a server has not counted may be 0."""
    before = object_at(whole, "usage")
    counts = object_at(event, "usage").items()
    return before | {name: count for name, count in counts if count or name not in before}


class _Sums:
    """What the deltas of one choice add up to."""

    def __init__(self) -> None:
        self.started = False
        self.finish = None
        self.texts: dict[str, list[str]] = {name: [] for name in TEXTS}
        self.calls = Calls()
        self.messages: list[dict[str, Any]] = []  # that stand in place of deltas
        self.logprobs: list[Any] = []
        self.ids: list[Any] = []

    def add(self, choice: dict[str, Any]) -> None:
        """Takes the choice of one event."""
        self.started = True
        delta = part(choice, "delta")
        message = part(choice, "message")
        if delta is not None:
            self._add(delta)
        if message is not None:
            self.messages.append(message)
        if delta is None and message is None and choice.get("text"):
            raise Fault(
                "bad_reply", "an event holds text and neither delta nor message", status=200
            )
        self.logprobs += list_at(object_at(choice, "logprobs"), "content")
        self.ids += list_at(choice, "token_ids")
        # some servers send an event without a reason behind the one that has it
        reason = choice.get("finish_reason")
        self.finish = self.finish if reason in GOES_ON else reason

    def _add(self, delta: dict[str, Any]) -> None:
        for name in TEXTS:
            self.texts[name].append(
                thought_of(delta) if name == "reasoning_content" else text_of(delta, name)
            )
        for call in part(delta, "tool_calls") or ():
            self.calls.add(call)
        if (single := part(delta, "function_call")) is not None:  # as OpenAI wrote it until 2023
            self.calls.add({"index": 0, "function": single})

    def _add_messages(self) -> None:
        """Takes the messages that came in place of deltas: pieces, or each all that came so far.
        Beside deltas they say the same once more."""
        if any(map(any, self.texts.values())) or self.calls.written():
            return
        said = [text_of(message, "content") for message in self.messages]
        grows = len(set(said)) > 1 and all(map(str.startswith, said[1:], said))
        for message in self.messages[-1:] if grows else self.messages:
            self._add(message)

    def choice(self) -> dict[str, Any]:
        """The choice as it would have come in one piece."""
        self._add_messages()
        message: dict[str, Any] = {
            "role": "assistant",
            **{name: joined_halves(pieces) or None for name, pieces in self.texts.items()},
        }
        message["tool_calls"] = self.calls.written() or None
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
    name = ""
    lines = list[str]()
    # not splitlines: U+2028 may stand inside JSON
    for line in [*text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""]:
        if line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
        elif line.startswith("event:"):
            name = line[6:].strip()
        elif not line:
            # servers that leave out the empty line between two events
            apart = len(lines) > 1 and all(map(_is_event, lines))
            whole = lines if apart else ["\n".join(lines)] if lines else []
            heard += [Event(name, data) for data in whole]
            name = ""
            lines = []
    return heard


def _is_event(line: str) -> bool:
    line = line.strip()
    return (line.startswith("{") and line.endswith("}")) or line in ("", "[DONE]")


def object_at(value: dict[str, Any], key: str) -> dict[str, Any]:
    """The object under a key, {} where there is none."""
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def list_at(value: dict[str, Any], key: str) -> list[Any]:
    """The list under a key, [] where there is none."""
    inner = value.get(key)
    return inner if isinstance(inner, list) else []
