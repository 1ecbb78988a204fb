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

from gem_ma.errors import EngineError
from gem_ma.parsing import clean
from gem_ma.types import SCENARIO, SYSTEM, Image, Malformed, Message, Tool, ToolCall

NO_RESULT = "(no result)"
TOOLS_IN_TEXT = (
    "You can call these tools. To call one, write\n"
    '<tool_call>\n{"name": "<tool>", "arguments": {<its arguments>}}\n</tool_call>\n'
    "and nothing after it; its result comes back between <tool_response> tags.\n"
)

Parts = list[dict[str, Any]]


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
    done: list[dict[str, Any]] = []
    system = (
        [TOOLS_IN_TEXT + "\n".join(json.dumps(tool.schema, ensure_ascii=False) for tool in tools)]
        if tools and not native
        else []
    )
    at = 0
    while at < len(messages):
        message = messages[at]
        role = message.role(agent)
        at += 1
        if role == "assistant":
            here, more = len(done), beside.get(at - 1, {})
            if native:
                at = _called(done, agent, messages, at)
            else:
                _add(done, "assistant", _parts(agent, message, _calls_as_text(message)))
            done[here] |= more
        elif role == "tool":  # its call is not in sight, or calls are text
            text = message.text if native else f"<tool_response>\n{message.text}\n</tool_response>"
            _add(done, "user", _with_images(message, f"tool result: {text}" if native else text))
        elif role == "system" and all(one["role"] == "system" for one in done):
            _add(done, "system", _parts(agent, message))
        else:
            _add(done, "user", _parts(agent, message))
    if system:
        if not done or done[0]["role"] != "system":
            done.insert(0, {"role": "system", "content": []})
        done[0]["content"] += [{"type": "text", "text": text} for text in system]
    return [_plain(one) for one in done]


def _called(done: list[dict[str, Any]], agent: str, messages: Sequence[Message], at: int) -> int:
    """Adds the agent's own message before `at` with the results of its calls; gives where
    reading goes on."""
    message = messages[at - 1]
    calls = [call for call in message.tool_calls if isinstance(call, ToolCall)]
    lost = "".join(call.text for call in message.tool_calls if isinstance(call, Malformed))
    if not calls:
        _add(done, "assistant", _parts(agent, message, lost))
        return at
    ids = _distinct([call.id for call in calls])
    made = [
        {
            "id": own,
            "type": "function",
            "function": {
                "name": clean(call.name),
                "arguments": clean(json.dumps(call.arguments, ensure_ascii=False)),
            },
        }
        for own, call in zip(ids, calls, strict=True)
    ]
    done.append({"role": "assistant", "content": _parts(agent, message, lost), "tool_calls": made})
    end = at  # results stand before the agent's next own message
    while end < len(messages) and messages[end].role(agent) != "assistant":
        end += 1
    open_calls = list(zip(ids, calls, strict=True))
    results: dict[str, Message] = {}
    rest: list[Message] = []
    for other in messages[at:end]:
        own_id = next(
            (own for own, call in open_calls if own not in results and call.id == other.call_id),
            None,
        )
        if other.role(agent) == "tool" and own_id is not None:
            results[own_id] = other
        else:
            rest.append(other)
    for own in ids:
        content = (
            _with_images(results[own], results[own].text)
            if own in results
            else [{"type": "text", "text": NO_RESULT}]
        )
        done.append({"role": "tool", "tool_call_id": own, "content": content})
    for other in rest:
        _add(
            done,
            "user",
            (
                _with_images(other, f"tool result: {other.text}")
                if other.role(agent) == "tool"
                else _parts(agent, other)
            ),
        )
    return end


def _distinct(ids: list[str]) -> list[str]:
    """Ids that servers can tell apart: not empty, and each once."""
    seen: list[str] = []
    for number, one in enumerate(ids):
        seen.append(one if one and one not in seen else f"{one or 'call'}_{number}")
    return seen


def _calls_as_text(message: Message) -> str:
    written = []
    for call in message.tool_calls:
        if isinstance(call, Malformed):
            written.append(call.text)
        else:
            inner = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
            written.append(f"<tool_call>\n{inner}\n</tool_call>")
    return "\n".join(written)


def _parts(agent: str, message: Message, more: str = "") -> Parts:
    name = message.sender
    named = message.role(agent) == "user" and name not in (SCENARIO, SYSTEM, "user", "assistant")
    text = f"{name}: {message.text}" if named else message.text
    return _with_images(message, "\n".join(part for part in (text, more) if part))


def _with_images(message: Message, text: str) -> Parts:
    images = (
        [part for part in message.content if isinstance(part, Image)]
        if not isinstance(message.content, str)
        else []
    )
    parts: Parts = [{"type": "text", "text": clean(text)}] if text or not images else []
    for image in images:
        if not image.data:
            raise EngineError(
                f"the image {image.digest[:12]} is known by its digest only; its bytes are in the"
                " run folder's media/"
            )
        data = base64.b64encode(image.data).decode("ascii")
        parts.append(
            {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{data}"}}
        )
    return parts


def _add(done: list[dict[str, Any]], role: str, parts: Parts) -> None:
    if done and role in ("user", "system") and done[-1]["role"] == role:
        done[-1]["content"] += parts
    else:
        done.append({"role": role, "content": list(parts)})


def _plain(one: dict[str, Any]) -> dict[str, Any]:
    """Content of text alone is a string, which every server reads; null where calls stand for
    it."""
    parts = one["content"]
    if any(part["type"] != "text" for part in parts):
        return one
    text = "\n".join(part["text"] for part in parts)
    return {**one, "content": None if not text and "tool_calls" in one else text}
