"""What models behind an endpoint have thought, so that it can be sent back: models that think
between tool calls go on from it.

A conversation's own messages hold no reasoning, since behaviours build them. So a message is
known again by what the reply said: its first call, or else its text. Knows records; sends
nothing. Bounded in conversations: what was asked about longest ago is forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from gem_ma.kernel.types import Malformed, Reply, Request, ToolCall

MOST = 4096  # conversations


@dataclass(slots=True)
class Talk:
    """A conversation: (turn, what the reply said, what was thought) of each reply; how many of
    them, and of messages of its own, the agent had when the latest turn began."""

    replies: list[tuple[int, str, str]]
    before: int = 0
    own: int = 0

    def begin(self, turn: int, own: int) -> None:
        """A request of this turn, with so many messages of its own."""
        if self.replies and self.replies[-1][0] == turn:
            return
        if own <= self.own + 1:  # one message came of all replies of the turn before: the last
            ended = {reply[1]: reply for reply in self.replies[self.before :]}
            self.replies[self.before :] = ended.values()
        self.before = len(self.replies)
        self.own = own


class Thoughts:
    """Replies of running conversations, by the name of the conversation, in order."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, Talk] = OrderedDict()

    def keep(self, request: Request, reply: Reply) -> None:
        """After a reply, sampled or taken out of a record."""
        talk = self._of.setdefault(request.conversation, Talk([]))
        talk.begin(request.turn, len(_own(request)))
        key = _key(reply.text, reply.tool_calls)
        talk.replies.append((request.turn, key, reply.reasoning))
        self._of.move_to_end(request.conversation)
        while len(self._of) > MOST:
            self._of.popitem(last=False)

    def of(self, request: Request) -> dict[int, str]:
        """Place in `request.messages` -> the reasoning behind the agent's message there. Drafts
        that became no message are passed over."""
        talk = self._of.get(request.conversation)
        if talk is None:
            return {}
        thoughts: dict[int, str] = {}
        own = _own(request)
        talk.begin(request.turn, len(own))
        # From the end, since a memory leaves out messages at the front. No reply is taken twice,
        # and one of this turn stands behind no message that was there before it.
        left = len(talk.replies)
        for number in reversed(range(len(own))):
            message = request.messages[own[number]]
            key = _key(message.text, message.tool_calls)
            for at in reversed(range(left)):
                turn, said, thought = talk.replies[at]
                if said == key and (turn != request.turn or number >= talk.own):
                    left = at
                    if thought:
                        thoughts[own[number]] = thought
                    break
        return dict(sorted(thoughts.items()))


def _own(request: Request) -> list[int]:
    messages = enumerate(request.messages)
    return [place for place, each in messages if each.role(request.agent) == "assistant"]


def _key(text: str, calls: Sequence[ToolCall | Malformed]) -> str:
    # a behaviour may shorten the text beside a call, but passes the call on as it is
    first = next((call for call in calls if isinstance(call, ToolCall)), None)
    return f"text {text.strip()}" if first is None else f"call {first.id} {first.name}"
