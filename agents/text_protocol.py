"""Assistants for models without tools: `act` and `react` write what they do as text, one `Action:
{"name": ..., "arguments": {...}}` per turn.

The tools stand in the briefing, what they answer comes back behind `Observation:`, and a message
is the action `respond`. An answer without a readable action is asked for again, twice; then it
is a malformed call, which the scenario answers. What a model invents behind its action
(observations, further actions) is cut off and not shown to it again. Its own words, thoughts
included, stay before its eyes and reach nobody else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from gem_ma.agents.labels import action, action_text
from gem_ma.agents.thread import Instructed

from gem_ma import Action, Asked, Malformed, Message, Reply, Tool, ToolCall
from gem_ma.kernel.parsing.legal import parse_legal

RESPOND = "respond"
RETRIES = 2
EXCERPT = 200  # characters of an unreadable answer that are kept
ACT = """\
You act by text. Each of your turns is exactly one action, on a line of its own:
Action: {"name": "<tool>", "arguments": {<its arguments>}}"""
REACT = """\
You act by text. Each of your turns is a thought, which nobody else reads, and then exactly one \
action:
Thought: what you know and what to do next
Action: {"name": "<tool>", "arguments": {<its arguments>}}"""
TOOLS = """\
These tools are there, one JSON schema per line. What a tool answers comes back behind \
`Observation:`.
"""
SPEAK = """\
To say something to the other side, use
Action: {"name": "respond", "arguments": {"content": "<your message>"}}
Write nothing behind the action."""
CHOOSE = (
    "Where you must choose from a list, write `Action: ` and the choice, and nothing behind it."
)
NO_ACTION = "bad_json: there is no line `Action: {...}`"
AGAIN = "[Your last answer could not be read: {why}. Write it again as you were told.]"


class Act(Instructed):
    """Plays by text, one `Action: {...}` per turn, for models without tools. `instructions`
    stand in the briefing before the protocol."""

    protocol = ACT
    plain = True

    async def act(self, asked: Asked) -> Action:
        whole = "\n\n".join(part for part in (self.instructions, self._format(asked)) if part)
        prompt = self.thread.prompt(asked, whole)
        messages = prompt
        # Each retry sees the same prompt: faulty drafts are not history.
        for left in reversed(range(1 + RETRIES)):
            reply: Reply = await self.sample(messages, legal=asked.legal)
            acted, words, fault = read(reply, asked)
            # The last one is taken as it is, and the scenario answers what is wrong with it.
            if not fault or not left:
                break
            messages = (*prompt, Message(AGAIN.format(why=fault)))
        # Its own words, thoughts included.
        self.thread.keep(asked, Message(words, self.agent))
        return acted

    def _format(self, asked: Asked) -> str:
        parts = [
            self.protocol,
            TOOLS + "\n".join(map(_schema, asked.tools)) if asked.tools else "",
            SPEAK,
        ]
        return "\n".join([*filter(None, parts), *([CHOOSE] if asked.legal is not None else [])])


class React(Act):
    """As `act`, with a thought before each action."""

    protocol = REACT


def _schema(tool: Tool) -> str:
    return json.dumps(tool.schema["function"], ensure_ascii=False)


def read(reply: Reply, asked: Asked) -> tuple[Action, str, str]:
    """(action, what the model is to see of its answer later, what is wrong with it)."""
    text = reply.text.strip()
    if asked.legal is not None:
        chosen = _choice(text, asked.legal)
        if chosen is not None or not asked.tools:
            return (
                Action(text, (), chosen),
                reply.text,
                "" if chosen is not None else f"it names none of {', '.join(asked.legal)}",
            )
    # An engine may find calls by itself where the model writes them in its own format.
    call, visible_text = (reply.tool_calls[0], text) if reply.tool_calls else action(text)
    if (
        isinstance(call, ToolCall)
        and call.name == RESPOND
        # A domain may have a tool of that name, which then is meant.
        and RESPOND not in {tool.name for tool in asked.tools}
    ):
        content = call.arguments.get("content")
        if isinstance(content, str) and content.strip():
            return Action(content.strip()), _seen(reply, text, visible_text), ""
        call = Malformed(
            text[:EXCERPT], "bad_arguments: respond takes content, a text that says something"
        )
    if call is None:
        call = Malformed(text[:EXCERPT], NO_ACTION)
    fault = call.reason if isinstance(call, Malformed) else ""
    return Action("", (call,)), _seen(reply, text, visible_text), fault


def _choice(text: str, legal: Sequence[str]) -> str | None:
    # A label decides; without one the whole answer is the choice.
    labelled = action_text(text)
    return parse_legal(labelled, legal) if labelled is not None else parse_legal(text, legal)


def _seen(reply: Reply, text: str, words: str) -> str:
    """The answer as sampled, unless something was cut off it: so the next prompt goes on from
    the sampled tokens where it can."""
    return reply.text if words == text else words
