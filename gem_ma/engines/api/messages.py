"""Messages as one agent sees them -> the `messages` of a chat-completions request. Pure; sends
nothing.

Several user messages in a row become one, with a line for each; a system message that is not in
front is shown as the user's. Another agent's message starts with `name: `, unless the name is the
chat role itself. So a policy reads the same words here as from a local engine.

With native tools every call is followed by its result, as servers demand: results come right
after the message that called, a call without a result gets one that says so, and a result
without its call (the answer to a malformed one) is a line of the user's.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.engines.wording import (
    BEFORE_RESULT,
    BEHIND_RESULT,
    call_as_text,
    joins,
    role_of,
    speaker,
    tools_as_text,
)
from gem_ma.kernel.errors import EngineError
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.types import Image, Malformed, Message, Tool, ToolCall

NO_RESULT = "(no result)"

Parts = list[dict[str, Any]]
Chat = list[dict[str, Any]]  # messages of the request, in the making


def chat(
    agent: str,
    messages: Sequence[Message],
    tools: Sequence[Tool] = (),
    *,
    native: bool = True,
    beside: Mapping[int, Mapping[str, Any]] = {},
) -> list[dict[str, Any]]:
    """The conversation in the eyes of `agent`. `native` False: calls, results and the tools
    themselves are text.

    `beside`: further fields of the agent's own messages, by their place in `messages`. Raises
    EngineError for an image whose bytes are not there.
    """
    done: Chat = []
    place = 0
    while place < len(messages):
        message = messages[place]
        role = role_of(agent, message, (entry["role"] for entry in done))
        place += 1
        if role == "assistant":
            # the entry that is made next; results follow it
            here = len(done)
            more = beside.get(place - 1, {})
            if native:
                place = _called(done, agent, messages, place)
            else:
                _add(done, "assistant", _parts(agent, message, _calls_as_text(message)))
            done[here] |= more
        elif role == "tool" and not native:
            text = f"{BEFORE_RESULT}{message.text}{BEHIND_RESULT}"
            _add(done, "user", _with_images(message, text))
        elif role == "tool":  # its call is not in sight
            _add(done, "user", _with_images(message, f"tool result: {message.text}"))
        else:
            _add(done, role, _parts(agent, message))
    if tools and not native:
        # behind the briefing, as a local template shows them
        if not done or done[0]["role"] != "system":
            done.insert(0, {"role": "system", "content": []})
        done[0]["content"] += [{"type": "text", "text": tools_as_text(tools)}]
    return [_plain(entry) for entry in done]


def _called(done: Chat, agent: str, messages: Sequence[Message], place: int) -> int:
    """Adds the agent's own message before `place` with the results of its calls; gives where
    reading goes on."""
    message = messages[place - 1]
    if not message.tool_calls:
        _add(done, "assistant", _parts(agent, message))
        return place
    calls = [call for call in message.tool_calls if isinstance(call, ToolCall)]
    lost = "".join(call.text for call in message.tool_calls if isinstance(call, Malformed))
    if not calls:
        _add(done, "assistant", _parts(agent, message, lost))
        return place
    # models repeat ids; a server refuses two results of one id
    ids = _distinct([call.id for call in calls])
    made = [
        {
            "id": call_id,
            "type": "function",
            "function": {
                "name": clean(call.name),
                "arguments": clean(json.dumps(call.arguments, ensure_ascii=False)),
            },
        }
        for call_id, call in zip(ids, calls, strict=True)
    ]
    done.append({"role": "assistant", "content": _parts(agent, message, lost), "tool_calls": made})
    end = place  # results stand before the agent's next own message
    while end < len(messages) and messages[end].role(agent) != "assistant":
        end += 1
    results, rest = _results(agent, messages[place:end], list(zip(ids, calls, strict=True)))
    for call_id in ids:  # in the order of the calls, as some servers demand
        content: Parts = [{"type": "text", "text": NO_RESULT}]
        if call_id in results:
            content = _with_images(results[call_id], results[call_id].text)
        done.append({"role": "tool", "tool_call_id": call_id, "content": content})
    for other in rest:
        if other.role(agent) == "tool":
            _add(done, "user", _with_images(other, f"tool result: {other.text}"))
        else:
            _add(done, "user", _parts(agent, other))
    return end


def _results(
    agent: str, messages: Sequence[Message], calls: Sequence[tuple[str, ToolCall]]
) -> tuple[dict[str, Message], list[Message]]:
    """The result of each call by the id that the server gets, and all other messages."""
    results: dict[str, Message] = {}
    rest: list[Message] = []
    for message in messages:
        # by the id that the model wrote, which may be that of several calls: the first in waiting
        waiting = (name for name, call in calls if name not in results)
        ids = dict(calls)
        name = next((name for name in waiting if ids[name].id == message.call_id), None)
        if message.role(agent) == "tool" and name is not None:
            results[name] = message
        else:
            rest.append(message)
    return results, rest


def _distinct(ids: list[str]) -> list[str]:
    """Ids that servers can tell apart: not empty, and each once."""
    seen: list[str] = []
    for number, name in enumerate(ids):
        seen.append(name if name and name not in seen else f"{name or 'call'}_{number}")
    return seen


def _calls_as_text(message: Message) -> str:
    return "\n".join(
        call.text if isinstance(call, Malformed) else call_as_text(call)
        for call in message.tool_calls
    )


def _parts(agent: str, message: Message, more: str = "") -> Parts:
    text = speaker(agent, message) + message.text
    return _with_images(message, f"{text}\n{more}" if text and more else text or more)


def _with_images(message: Message, text: str) -> Parts:
    if isinstance(message.content, str):  # nearly all
        return [{"type": "text", "text": clean(text)}]
    images = [part for part in message.content if isinstance(part, Image)]
    parts: Parts = [{"type": "text", "text": clean(text)}] if text or not images else []
    for image in images:
        if not image.data:  # an episode that was read from its record
            raise EngineError(
                f"the image {image.digest[:12]} is known by its digest only; its bytes are in the"
                " run folder's media/"
            )
        data = base64.b64encode(image.data).decode("ascii")
        parts.append(
            {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{data}"}}
        )
    return parts


def _add(done: Chat, role: str, parts: Parts) -> None:
    if done and joins(role, done[-1]["role"]):
        done[-1]["content"] += parts
    else:
        done.append({"role": role, "content": list(parts)})


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    """Content of text alone is a string, which every server reads; null where calls stand for
    it."""
    parts = entry["content"]
    if len(parts) == 1 and parts[0]["type"] == "text" and parts[0]["text"]:  # nearly all
        entry["content"] = parts[0]["text"]
        return entry
    if any(part["type"] != "text" for part in parts):
        return entry
    text = "\n".join(part["text"] for part in parts)
    return {**entry, "content": None if not text and "tool_calls" in entry else text}
