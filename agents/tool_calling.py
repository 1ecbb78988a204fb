"""The plain assistant for models with tools: one model call per turn, and a turn is one message or
one call.

Models like to write beside a call, and to make several calls at once. Here a turn is the first
call alone: what stands beside it is dropped, from the action and from the model's own history.
So nobody believes that something was said or run which was not. `direct` passes all on.
"""

from __future__ import annotations

from gem_ma.agents.thread import Instructed

from gem_ma import Action, Asked, Message, Reply
from gem_ma.kernel.parsing.legal import parse_action


class ToolCalling(Instructed):
    """A model with the scenario's tools: a turn is one message or one call. `instructions` stand
    at the end of the briefing."""

    async def act(self, asked: Asked) -> Action:
        reply = await self.sample(
            self.thread.prompt(asked, self.instructions), legal=asked.legal, tools=asked.tools
        )
        acted = one_act(reply, asked)
        # as sampled, white space included: the next prompt goes on from the sampled tokens
        if acted.text == reply.text.strip():
            self.thread.keep(asked, Message(reply.text, self.agent, acted.tool_calls))
        return acted


def one_act(reply: Reply, asked: Asked) -> Action:
    """A reply as a message or as one call."""
    if reply.tool_calls:
        # The text beside a call goes too: it would reach nobody.
        return Action("", reply.tool_calls[:1])
    said = parse_action(reply.text.strip(), asked.legal, asked.tools)
    # Models without a tool parser write calls as text.
    return Action("", said.tool_calls[:1]) if said.tool_calls else said
