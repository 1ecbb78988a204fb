"""Messages -> the lines that a template walks over: who speaks, which messages become one, and what
is shown as text because the template cannot show it.

A `Way` says how plainly. Knows messages; knows no template.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
from gem_ma.kernel.parsing import clean
from gem_ma.kernel.types import Image, Malformed, Message, Tool, ToolCall


@dataclass(slots=True)
class Line:
    """One entry of the list that a template walks over."""

    role: str
    parts: list[str | Image]
    calls: list[ToolCall] = field(default_factory=list)
    call_id: str = ""


# calls -> the parts of a text, of which some are `Mark`
Writer = Callable[[Sequence[ToolCall]], Sequence[str]]


def in_tags(calls: Sequence[ToolCall]) -> list[str]:
    """Calls as `TOOLS_IN_TEXT` asks for them."""
    return ["\n".join(map(call_as_text, calls))]


@dataclass(frozen=True, slots=True)
class Way:
    """How plainly a conversation is shown; the fields are steps of the list in
    `gem_ma.engines.local.chat_template`."""

    joined: bool = False
    write: Writer | None = None  # calls are texts, written so
    results_in_text: bool = False
    system_role: bool = True


class ImageRefused(EngineError):
    """An image for a policy that cannot see it; no plainer way of showing helps."""


def lines_of(
    way: Way, agent: str, messages: Sequence[Message], *, sees_images: bool, where: str
) -> list[Line]:
    """The lines of a conversation. Raises ImageRefused, naming `where`, for an image that the
    policy cannot see."""
    lines: list[Line] = []
    for message in messages:
        line = _line(way, agent, message, lines, sees_images, where)
        last = lines[-1] if lines else None
        # some templates want answers in a row as one; behind a call stands its result
        follows = line.role == "assistant" and way.joined
        if last is not None and (
            joins(line.role, last.role) or (follows and last.role == line.role and not last.calls)
        ):
            last.parts += ["\n", *line.parts]
            last.calls += line.calls
        else:
            lines.append(line)
    return lines


def _line(
    way: Way,
    agent: str,
    message: Message,
    before: Sequence[Line],
    sees_images: bool,
    where: str,
) -> Line:
    role = role_of(agent, message, (line.role for line in before))
    parts = _parts(agent, message, sees_images, where)
    calls = [call for call in message.tool_calls if isinstance(call, ToolCall)]
    # what could not be read as a call is shown as it was written
    text = "".join(clean(call.text) for call in message.tool_calls if isinstance(call, Malformed))
    if role == "tool" and way.results_in_text:
        # the user's, since every template knows that role
        role = "user"
        parts = [BEFORE_RESULT, *parts, BEHIND_RESULT]
    parts = [*parts, text] if text else parts
    if calls and way.write:
        # an answer of calls alone begins with the first of them
        parts = [*parts, "\n"] if parts != [""] else []
        parts += way.write(calls)
        calls = []
    if role == "system" and not way.system_role:
        role = "user"
    return Line(role, parts, calls, message.call_id)


def _parts(agent: str, message: Message, sees_images: bool, where: str) -> list[str | Image]:
    name = speaker(agent, message)
    if isinstance(message.content, str) or not any(
        isinstance(part, Image) for part in message.content
    ):
        return [clean(name + message.text)]
    if not sees_images:
        raise ImageRefused(
            f"{where} reads text only, and agent {agent!r} was shown an image; use a policy that"
            " sees images"
        )
    # an empty text would be a content too, and change the layout
    parts: list[str | Image] = [clean(name)] if name else []
    return [
        *parts,
        *(part if isinstance(part, Image) else clean(part) for part in message.content),
    ]


def add_tools(way: Way, lines: list[Line], tools: Sequence[Tool]) -> None:
    """Puts the tools as text in front of the briefing, for a template that cannot show them."""
    text = tools_as_text(tools)
    # behind the words of a briefing, which say who the agent is; in front of what a user asks
    role = "system" if way.system_role else "user"
    if not lines or lines[0].role != role:
        lines.insert(0, Line(role, [text]))
    elif role == "system":
        lines[0].parts += ["\n", text]
    else:
        lines[0].parts = [text, "\n", *lines[0].parts]
