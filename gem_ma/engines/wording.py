"""What every way of writing a conversation says in the same words: who speaks, calls and results as
text, and whose line a message is.

A local chat template and the messages of a chat-completions request both ask here, so a policy
reads the same text from either engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from gem_ma.kernel.types import SCENARIO, SYSTEM, Message, Tool, ToolCall

TOOLS_IN_TEXT = (
    "You can call these tools. To call one, write\n"
    '<tool_call>\n{"name": "<tool>", "arguments": {<its arguments>}}\n</tool_call>\n'
    "and nothing after it; its result comes back between <tool_response> tags.\n"
)
BEFORE_RESULT = "<tool_response>\n"
BEHIND_RESULT = "\n</tool_response>"
# The scenario speaks for itself, and a name that is a chat role would say the role twice.
NAMELESS = (SCENARIO, SYSTEM, "user", "assistant")


def speaker(agent: str, message: Message) -> str:
    """`name: ` in front of another agent's message, "" where none is shown."""
    # several speak to an agent in one role, and a policy must tell them apart
    named = message.role(agent) == "user" and message.sender not in NAMELESS
    return f"{message.sender}: " if named else ""


def role_of(agent: str, message: Message, before: Iterable[str]) -> str:
    """The chat role of a message; `before`: the roles of those in front of it. A system message
    that is not in front is shown as the user's."""
    # templates and servers refuse a system message behind others, or move it to the front
    role = message.role(agent)
    return "user" if role == "system" and any(other != "system" for other in before) else role


def joins(role: str, last: str) -> bool:
    """Whether a message becomes another line of the one before it: templates and servers refuse
    two of a side in a row."""
    return role == last and role in ("user", "system")


def call_as_text(call: ToolCall) -> str:
    """A call as a policy without native tools writes it."""
    # letters as they are: escapes cost tokens, and no model was trained on them
    inner = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    return f"<tool_call>\n{inner}\n</tool_call>"


def tools_as_text(tools: Sequence[Tool]) -> str:
    """What a policy without native tools is told of them."""
    schemas = (json.dumps(tool.schema, ensure_ascii=False) for tool in tools)
    return TOOLS_IN_TEXT + "\n".join(schemas)
