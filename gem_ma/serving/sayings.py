"""Messages between a program and its seat: as chat completions write them, and as the library has
them.

What a program sends back as its own line is mostly what its model said here. It is known again,
so the next prompt goes on from the sampled ids, as it does for a behaviour of the house.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.engines.wording import speaker
from gem_ma.kernel.parsing import clean, parse_action, read_call, split_reasoning
from gem_ma.kernel.types import Action, Image, Malformed, Message, Reply, ToolCall
from gem_ma.serving.refused import Refused

MOST_MESSAGES = 4096
ROLES = ("system", "developer", "user", "assistant", "tool")
_Key = tuple[str, tuple[tuple[str, str, str], ...]]  # text, and (id, name, arguments) of each call


class Sayings:
    """What one program was sent as its model's lines."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        # the line as it was sent -> the line as it was sampled, and the ids that its calls had
        self._known: dict[_Key, tuple[Message, tuple[str, ...]]] = {}
        self._threads: dict[str, str] = {}
        self._calls = self.replies = 0

    def written(self, reply: Reply) -> dict[str, Any]:
        """A reply as an assistant's message. Calls get ids that are unique in the play: models
        repeat theirs, and libraries match a result to its call by id alone."""
        # a call that could not be read is text: the program sees what its model wrote
        self.replies += 1
        lost = [call.text for call in reply.tool_calls if isinstance(call, Malformed)]
        text = "".join([reply.text, *lost])
        calls = []
        for call in reply.tool_calls:
            if isinstance(call, ToolCall):
                self._calls += 1
                calls.append(_call_entry(f"call_{self._calls}", call.name, call.arguments))
        entry: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            entry["tool_calls"] = calls
        elif not text:
            entry["content"] = ""  # null stands for calls alone
        if reply.reasoning:
            entry["reasoning_content"] = reply.reasoning
        ids = tuple(call.id for call in reply.tool_calls if isinstance(call, ToolCall))
        line = Message(reply.text, self.agent, reply.tool_calls)
        self._known[_key(text, [(each["id"], each["function"]) for each in calls])] = line, ids
        return entry

    def read(self, entries: Any) -> tuple[Message, ...]:
        """The messages of a request. Raises Refused."""
        if not isinstance(entries, list) or not entries:
            raise Refused("messages: a list of at least one message", param="messages")
        if len(entries) > MOST_MESSAGES:
            raise Refused(f"messages: {MOST_MESSAGES} at most; got {len(entries)}")
        ids: dict[str, str] = {}  # of a call as it was sent -> as it was sampled
        return tuple(
            self._message(entry, f"messages[{place}]", ids) for place, entry in enumerate(entries)
        )

    def action(self, entry: Any, legal: tuple[str, ...] | None) -> Action:
        """What an assistant's message does, as `direct` does what its model says. Raises
        Refused."""
        if not isinstance(entry, dict) or entry.get("role", "assistant") != "assistant":
            raise Refused("message: the assistant's message that answers the turn", param="message")
        line = self._message({**entry, "role": "assistant"}, "message", {})
        if line.tool_calls:
            return Action(split_reasoning(line.text)[1], line.tool_calls)
        return parse_action(line.text, legal)

    def thread(self, messages: Sequence[Message]) -> str:
        """Which of the program's conversations this is: each briefing has its own. "" for the
        first, which is then the one that `direct` has."""
        briefing = ""
        for message in messages:
            if message.sender != "system":
                break
            briefing += f"{message.text}\0"
        number = len(self._threads)
        return self._threads.setdefault(briefing, f"program{number}" if number else "")

    def _message(self, entry: Any, where: str, ids: dict[str, str]) -> Message:
        role = entry.get("role") if isinstance(entry, dict) else None
        if role not in ROLES:
            raise Refused(f"{where}.role: one of {', '.join(ROLES)}; got {role!r}")
        text = _text(entry.get("content"), f"{where}.content")
        if role == "assistant":
            return self._own_line(entry, text, where, ids)
        if role == "tool":
            call = entry.get("tool_call_id")
            if not isinstance(call, str):
                raise Refused(f"{where}.tool_call_id: the id of a call; got {call!r}")
            return Message.tool(ids.get(call, call), text)
        return Message(text) if role == "user" else Message.system(text)

    def _own_line(
        self, entry: dict[str, Any], text: str, where: str, ids: dict[str, str]
    ) -> Message:
        listed = entry.get("tool_calls") or []
        if not isinstance(listed, list):
            raise Refused(f"{where}.tool_calls: a list of calls")
        parts = [_parts(call, f"{where}.tool_calls[{place}]") for place, call in enumerate(listed)]
        known = self._known.get(_key(text, parts))
        if known is not None:
            line, sampled = known
            ids |= dict(zip((call_id for call_id, _ in parts), sampled, strict=True))
            return line
        calls = [
            read_call(call_id, function.get("name"), function.get("arguments"))
            for call_id, function in parts
        ]
        return Message(text, self.agent, tuple(calls))


def chat_messages(agent: str, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """What is new for an agent, as messages of chat completions. Another agent's line begins with
    its name, so a model reads the same words from a program as from a behaviour of the house."""
    return [_entry(agent, message) for message in messages if message.sender != agent]


def _entry(agent: str, message: Message) -> dict[str, Any]:
    role = message.role(agent)
    text = clean(speaker(agent, message) + message.text)
    content: Any = text
    pictures = [part for part in message.content if isinstance(part, Image)]
    if pictures:
        content = [{"type": "text", "text": text}] if text else []
        content += [{"type": "image_url", "image_url": {"url": _url(part)}} for part in pictures]
    entry = {"role": role, "content": content}
    if role == "tool":
        entry["tool_call_id"] = message.call_id
    return entry


def _url(image: Image) -> str:
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode('ascii')}"


def _call_entry(call_id: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    text = json.dumps(arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def _text(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return clean(content)
    texts = []
    for part in content if isinstance(content, list) else [None]:
        text = part.get("text") if isinstance(part, dict) else part
        kind = part.get("type", "text") if isinstance(part, dict) else "text"
        if kind not in ("text", "input_text", "output_text") or not isinstance(text, str):
            raise Refused(f"{where}: text, or parts of text; images and sound are not taken here")
        texts.append(text)
    return clean("\n".join(texts))


def _parts(call: Any, where: str) -> tuple[str, dict[str, Any]]:
    """Id and function of a call."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(call.get("id", ""), str):
        raise Refused(f'{where}: {{"id": ..., "type": "function", "function": {{...}}}}')
    return call.get("id", ""), function


def _key(text: str, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> _Key:
    """What tells one line from another, however a library writes its JSON."""
    listed = []
    for call_id, function in calls:
        call = read_call(call_id, function.get("name"), function.get("arguments"))
        same = json.dumps(call.arguments, sort_keys=True) if isinstance(call, ToolCall) else ""
        listed.append((call_id, str(function.get("name")), same))
    return text, tuple(listed)
