"""One agent's conversation as its model is shown it: the record's transcript, with what a behaviour
adds.

The transcript holds what was really said. A behaviour adds instructions to the briefing, shows
what others said in another form, and may keep its model's own words (a thought, a stage
direction) at their place, so that the next prompt goes on from the last one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gem_ma import Asked, Malformed, Message, ToolCall
from gem_ma.kernel.types import SYSTEM, TOOL

Rewrite = Callable[[str], str]


class Thread:
    """Prompts of one agent. `show` changes the texts of others; `plain` writes calls and results
    of tools as text, for models without tools."""

    def __init__(self, agent: str, show: Rewrite | None = None, plain: bool = False) -> None:
        self.agent = agent
        self.show = show
        self.plain = plain
        # place in the transcript -> what the model is shown there
        self._replaced: dict[int, tuple[Message, ...]] = {}

    def prompt(self, asked: Asked, instructions: str = "") -> tuple[Message, ...]:
        """The whole conversation; the instructions stand at the end of the first briefing."""
        messages: list[Message] = []
        for place, message in enumerate(asked.transcript):
            # What was kept replaces what the record has at this place.
            messages += self._replaced.get(place) or (self._message(message),)
        if not instructions:
            return tuple(messages)
        if not messages or messages[0].sender != SYSTEM:
            return (Message.system(instructions), *messages)
        first = messages[0].content
        # A briefing may hold images, which instructions follow as a further part.
        whole = f"{first}\n\n{instructions}" if isinstance(first, str) else (*first, instructions)
        return (Message.system(whole), *messages[1:])

    def keep(self, asked: Asked, *messages: Message) -> None:
        """Shows the model these messages where the transcript will have the action that answers
        `asked`."""
        # The action will stand where the transcript now ends.
        self._replaced[len(asked.transcript)] = messages

    def _message(self, message: Message) -> Message:
        if message.sender == self.agent:
            if self.plain and message.tool_calls:
                return Message(
                    # A text beside the calls comes first, as the model wrote it.
                    "\n".join(
                        [
                            *([message.text] if message.text else []),
                            *map(call_text, message.tool_calls),
                        ]
                    ),
                    self.agent,
                )
            return message
        if message.sender == TOOL and self.plain:
            return Message(f"Observation: {message.text}")
        # Briefings and results are shown as they are: nobody on the other side wrote them.
        if self.show is None or message.sender in (SYSTEM, TOOL):
            return message
        parts = (message.content,) if isinstance(message.content, str) else message.content
        shown = tuple(self.show(part) if isinstance(part, str) else part for part in parts)
        return replace(message, content=shown[0] if isinstance(message.content, str) else shown)


class Instructed:
    """A model that plays by a thread of its own; `instructions` stand in the briefing."""

    needs_policy = True
    plain = False  # it has no tools, and writes its calls as text

    def __init__(
        self,
        agent: str,
        sample: Any,
        rng: random.Random,
        task: Any = None,
        *,
        instructions: str = "",
    ) -> None:
        self.agent = agent
        self.sample = sample
        self.instructions = instructions
        self.thread = Thread(agent, plain=self.plain)


def call_text(call: ToolCall | Malformed) -> str:
    """A tool call as a line of text."""
    return f"Action: {written(call)}"


def written(call: ToolCall | Malformed) -> str:
    """A tool call as JSON, or what was written instead of one."""
    return (
        call.text
        if isinstance(call, Malformed)
        else json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    )


def dialogue(
    messages: Sequence[Message], me: str, others: Rewrite | None = None, results: int = 0
) -> str:
    """A conversation as text, each line under the name of who said it, without briefings.

    `others` changes what others said; `results` is how many characters of a tool's result are
    shown, 0 for none.

    >>> dialogue((Message("Hello?", "assistant"), Message("I want tea.", "user")), "user")
    'assistant: Hello?\\nuser: I want tea.'
    """
    lines = []
    for message in messages:
        text = message.text
        if message.sender == SYSTEM or (message.sender == TOOL and not results):
            continue
        if message.sender == TOOL:
            text = text if len(text) <= results else f"{text[:results]} ..."
        elif message.sender != me and others is not None:
            text = others(text)
        lines += [f"{message.sender}: {text}"] if text.strip() else []
        lines += [f"{message.sender} calls {written(call)}" for call in message.tool_calls]
    return "\n".join(lines)
