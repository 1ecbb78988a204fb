"""What models behind an endpoint have thought, so that it can be sent back: models that think
between tool calls go on from it.

A conversation's own messages hold no reasoning, since behaviours build them. So a message is
known again by what the reply said: its first call, or else its text. Knows records; sends
nothing. Bounded in conversations: what was asked about longest ago is forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from gem_ma.kernel.types import Malformed, Reply, Request, ToolCall

MOST = 4096  # conversations


class Thoughts:
    """Replies of running conversations, by the name of the conversation, in order."""

    def __init__(self) -> None:
        # (what the reply said, see `_key`; what was thought)
        self._of: OrderedDict[str, list[tuple[str, str]]] = OrderedDict()

    def keep(self, request: Request, reply: Reply) -> None:
        """After a reply, sampled or taken out of a record."""
        replies = self._of.setdefault(request.conversation, [])
        replies.append((_key(reply.text, reply.tool_calls), reply.reasoning))
        self._of.move_to_end(request.conversation)
        while len(self._of) > MOST:
            self._of.popitem(last=False)

    def of(self, request: Request) -> dict[int, str]:
        """Place in `request.messages` -> the reasoning behind the agent's message there. Drafts
        that became no message are passed over."""
        replies = self._of.get(request.conversation, [])
        thoughts: dict[int, str] = {}
        first = 0  # replies come in the order of the messages, so none is taken twice
        for place, message in enumerate(request.messages):
            if message.role(request.agent) != "assistant":
                continue
            key = _key(message.text, message.tool_calls)
            later = range(first, len(replies))
            match = next((number for number in later if replies[number][0] == key), None)
            if match is not None:
                first = match + 1
                if replies[match][1]:
                    thoughts[place] = replies[match][1]
        return thoughts


def _key(text: str, calls: Sequence[ToolCall | Malformed]) -> str:
    # a behaviour may shorten the text beside a call, but passes the call on as it is
    first = next((call for call in calls if isinstance(call, ToolCall)), None)
    return f"text {text.strip()}" if first is None else f"call {first.id} {first.name}"
