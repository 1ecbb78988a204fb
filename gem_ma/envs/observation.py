"""What an agent sees, as the environments hand it out: `{"messages": (...)}`, each message a dict
of five strings.

role          chat role in the observer's eyes: its own lines are `assistant`, other agents and
              scenario text `user`, briefings `system`, results `tool`
name          the other agent who said it, else ""
content       the text; a message with image parts travels as a JSON list, which begins with
              `[{"type": `
tool_calls    "", or a JSON list of calls in the function-calling form; one that could not be read
              has the type `malformed`
tool_call_id  of a tool's result, else ""
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gem_ma.kernel.types import RESERVED_SENDERS, Content, Image, Malformed, Message, ToolCall

_PARTS = '[{"type": '
# keys that are left out of a chat where they are ""
_EMPTY = ("name", "tool_calls", "tool_call_id")


class Messages(tuple[dict[str, str], ...]):
    """The messages of one observation. Those of a play share what they hold, and copy a message
    when it is first looked at: a play of n turns would else cost n^2 copies, while Gymnasium wants
    each observation to be the caller's own.

    >>> plain = {"role": "user"}
    >>> first, second = Messages([plain]), Messages([plain])
    >>> first[0]["role"] = "system"
    >>> first[0], second[0], plain
    ({'role': 'system'}, {'role': 'user'}, {'role': 'user'})
    """

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return tuple(map(self.__getitem__, range(*place.indices(len(self)))))
        place = range(len(self))[place]  # negative places count from the end
        copies = self.__dict__  # by place; a tuple has no room for anything else
        if place not in copies:
            copies[place] = dict(super().__getitem__(place))
        return copies[place]

    def __iter__(self) -> Iterator[dict[str, str]]:
        copies: dict[Any, Any] = self.__dict__
        for place, message in enumerate(super().__iter__()):
            if (copy := copies.get(place)) is None:
                copy = copies[place] = dict(message)
            yield copy

    # what the class of tuples does without looking through __iter__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and tuple(self) == tuple(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, message: object) -> bool:
        return message in tuple(self)

    def __add__(self, other: Any) -> Any:
        return tuple(self) + tuple(other)

    def __radd__(self, other: Any) -> Any:
        return tuple(other) + tuple(self)

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Messages, (list(self),)  # who gets a copy shares nothing


_LATER = object()  # stands for a value until somebody looks


def later(agents: Iterable[str]) -> dict[str, Any]:
    """What a `ByAgent` of these agents begins with, for whoever makes many."""
    return dict.fromkeys(agents, _LATER)


class ByAgent(dict[str, Any]):
    """Values by agent, each made when it is first looked at: of 64 agents mostly one acts, and
    nobody looks at what the others are told. To whoever reads it, a plain dict.

    >>> asked = []
    >>> told = ByAgent(("a", "b"), lambda agent: asked.append(agent) or agent.upper())
    >>> told["b"], list(asked), dict(told), told == {"a": "A", "b": "B"}
    ('B', ['b'], {'a': 'A', 'b': 'B'}, True)
    """

    def __init__(self, agents: Iterable[str], make: Callable[[str], Any]) -> None:
        # a dict is one of `later`, and copied in a fifth of the time
        super().__init__(agents if isinstance(agents, dict) else later(agents))
        self._make = make

    def __getitem__(self, agent: str) -> Any:
        value = super().__getitem__(agent)
        if value is _LATER:
            value = self._make(agent)
            self[agent] = value
        return value

    # defined, so that `dict(...)` and `**` read by key: a dict's own would copy what is not made
    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    def get(self, agent: str, default: Any = None) -> Any:
        try:
            return self[agent]
        except KeyError:
            return default

    def items(self) -> Any:
        return dict(self).items()

    def values(self) -> Any:
        return dict(self).values()

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def pop(self, agent: str, *default: Any) -> Any:
        value = self.get(agent, *default)
        super().pop(agent, *default)
        return value

    def popitem(self) -> tuple[str, Any]:
        agent, value = super().popitem()
        return agent, self._make(agent) if value is _LATER else value

    def setdefault(self, agent: str, default: Any = None) -> Any:
        if agent not in self:
            self[agent] = default
        return self[agent]

    def __eq__(self, other: object) -> bool:
        return dict(self) == other

    def __ne__(self, other: object) -> bool:
        return dict(self) != other

    def __or__(self, other: Any) -> Any:
        return dict(self) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def encode(message: Message, observer: str) -> dict[str, str]:
    """The message as `observer` sees it, all strings. Who did not send it sees what all others
    see."""
    sender = message.sender
    content = message.content
    name = "" if sender == observer or sender in RESERVED_SENDERS else sender
    # a text that looks like parts is written as parts, so that reading it back is sure
    if isinstance(content, str) and not content.startswith(_PARTS):
        text = content
    else:
        text = json.dumps(_parts(content), ensure_ascii=False)
    calls = [_call(call) for call in message.tool_calls]
    return {
        "role": message.role(observer),
        "name": name,
        "content": text,
        "tool_calls": json.dumps(calls, ensure_ascii=False) if calls else "",
        "tool_call_id": message.call_id,
    }


def _parts(content: Content) -> list[dict[str, str]]:
    """Parts as JSON values. A plain text that looks like parts is sent as one text part, so that
    nobody can speak an image."""
    parts = [_part(part) for part in ((content,) if isinstance(content, str) else content)]
    # readers know a list of parts by how its first one begins
    return parts or [{"type": "text", "text": ""}]


def _part(part: str | Image) -> dict[str, str]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    known = {"type": "image", "digest": part.digest, "media_type": part.media_type}
    # one that was read back from a record has its digest alone
    return {**known, "data": base64.b64encode(part.data).decode()} if part.data else known


def _call(call: ToolCall | Malformed) -> dict[str, Any]:
    if isinstance(call, Malformed):
        return {"type": "malformed", "text": call.text, "reason": call.reason}
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def to_chat(observation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of an observation as chat templates and chat servers take them: empty keys
    dropped, parts and tool calls decoded.

    What was meant as a tool call and could not be read goes back into the text, where it came from.

    >>> message = {"role": "user", "content": "hi"} | dict.fromkeys(_EMPTY, "")
    >>> to_chat({"messages": (message,)})
    [{'role': 'user', 'content': 'hi'}]
    """
    chat = []
    for message in observation["messages"]:
        content = message["content"]
        entry: dict[str, Any] = {
            "role": message["role"],
            "content": json.loads(content) if content.startswith(_PARTS) else content,
        }
        entry |= {key: message[key] for key in ("name", "tool_call_id") if message[key]}
        calls = json.loads(message["tool_calls"]) if message["tool_calls"] else []
        # no chat template knows a call that could not be read
        read = [call for call in calls if call["type"] != "malformed"]
        unread = "".join(call["text"] for call in calls if call["type"] == "malformed")
        if read:
            entry["tool_calls"] = read
        # models see their own mistake where they made it
        if unread:
            entry["content"] = (
                [*entry["content"], {"type": "text", "text": unread}]
                if isinstance(entry["content"], list)
                else entry["content"] + unread
            )
        chat.append(entry)
    return chat
