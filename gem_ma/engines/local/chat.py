"""Conversations as token ids that only ever grow.

How a conversation becomes ids: `gem_ma.engines.local.rendering`. Three promises:

1. The next prompt is the previous prompt + what was sampled + the ids of what is new. What the
   policy sampled is never encoded again.
2. Contents are encoded apart from the template, so none becomes a control token.
3. Where a conversation does not go on as sampled (edited history, other tools), or a template
   cannot be continued, the whole prompt is rendered anew. Training counts that as a restart.

A thought is part of what was sampled, and no part of the messages. With `keep_thinking` it
stays in the history as ids, whatever the template does with it, so prompts only grow. Without
it, and where a prompt is rendered anew, thoughts are left out; those of before the last message
of others (tool results aside) each restart their row, and `restarts` counts them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gem_ma.engines.local.rendering import ChatOptions, Rendering
from gem_ma.kernel.errors import EngineError
from gem_ma.kernel.types import Image, Malformed, Message, Reply, Request, Tool, ToolCall

MOST_CONVERSATIONS = 4096  # conversations kept; the oldest goes first


@dataclass(slots=True)
class _Conversation:
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    prompt: tuple[int, ...]
    ids: tuple[int, ...] = ()  # prompt + what was sampled; () until the reply is known
    text: str = ""  # of the reply
    calls: tuple[ToolCall | Malformed, ...] = ()
    ended: bool = False  # the last sampled id is an end token
    thinks: bool = False  # a thought stands in the ids


class Chat(Rendering):
    """A rendering that goes on from what was sampled, conversation by conversation. `turns` counts
    prompts that came after a reply, `restarts` those of them that did not go on from it."""

    def __init__(
        self,
        tokenizer: Any,
        ends: frozenset[int],
        options: ChatOptions = ChatOptions(),  # noqa: B008  (frozen)
        where: str = "the tokenizer",
        *,
        vision: tuple[str, Callable[[Image], Sequence[int]]] | None = None,
    ) -> None:
        super().__init__(tokenizer, ends, options, where, vision=vision)
        self.turns = self.restarts = 0
        self._conversations: OrderedDict[str, _Conversation] = OrderedDict()

    def prompt(self, request: Request) -> tuple[int, ...]:
        """The prompt's ids; the conversation is remembered until `sampled` completes it."""
        # taken out and put in again, so that the oldest is the one that was asked longest ago
        key = request.conversation
        before = self._conversations.pop(request.conversation, None)
        suffix = self._suffix(before, request) if before is not None else None
        if before is not None and suffix is not None:
            ids = before.ids + suffix
        else:
            ids = self.render(request.agent, request.messages, request.tools)
        if before is not None and before.ids:
            self.turns += 1
            self.restarts += suffix is None
        if key:
            thinks = suffix is not None and before is not None and before.thinks
            self._conversations[key] = _Conversation(
                tuple(request.messages), request.tools, ids, thinks=thinks
            )
            while len(self._conversations) > MOST_CONVERSATIONS:
                self._conversations.popitem(last=False)
        return ids

    def sampled(self, request: Request, reply: Reply) -> None:
        """What the policy answered to the last prompt of this conversation."""
        talk = self._conversations.get(request.conversation)
        if talk is None:
            return
        # of another prompt, or of none: nothing to go on from
        if talk.prompt != reply.prompt_ids or reply.finish == "context_overflow":
            del self._conversations[request.conversation]
            return
        talk.ids = reply.prompt_ids + reply.token_ids
        talk.text = reply.text
        talk.calls = reply.tool_calls
        talk.thinks = talk.thinks or bool(reply.reasoning)
        # a reply that max_tokens cut has no end of turn: the suffix brings it
        talk.ended = bool(reply.token_ids) and reply.token_ids[-1] in self.ends

    def recall(self, request: Request, reply: Reply) -> None:
        """Takes over from a record how this prompt was answered; the next one goes on from it."""
        if reply.prompt_ids and request.conversation:
            before = self._conversations.get(request.conversation)
            goes_on = before is not None and before.ids == reply.prompt_ids[: len(before.ids)]
            self._conversations[request.conversation] = _Conversation(
                tuple(request.messages),
                request.tools,
                reply.prompt_ids,
                thinks=before is not None and goes_on and before.thinks,
            )
            self.sampled(request, reply)

    # -- going on ---------------------------------------------------------------------------------

    def _suffix(self, before: _Conversation, request: Request) -> tuple[int, ...] | None:
        """Ids of what came after the sampled tokens, or None where this is not a continuation."""
        new = self._new_messages(before, request)
        if new is None:
            return None
        if (
            not self.keep_thinking
            and any(message.role(request.agent) != "tool" for message in new)
            and before.thinks
        ):
            return None
        try:
            calls = before.calls
            return self.suffix(request.agent, new, request.tools, ended=before.ended, calls=calls)
        except EngineError:
            # for example a template that refuses a tool result without a visible call
            return None

    def _new_messages(self, before: _Conversation, request: Request) -> tuple[Message, ...] | None:
        """What came behind the agent's answer, or None where the conversation does not go on as it
        was sampled."""
        length = len(before.messages)
        if (
            not self.continues
            or not before.ids
            or len(request.messages) <= length + 1
            or request.tools != before.tools
        ):
            return None
        answer = request.messages[length]
        if (
            answer.sender != request.agent
            or request.messages[:length] != before.messages
            or not self._is_answer(answer, before)
        ):
            return None
        new = request.messages[length + 1 :]
        # a second message of the agent's own was written by nobody, or sampled elsewhere
        return None if any(message.sender == request.agent for message in new) else tuple(new)

    def _is_answer(self, message: Message, before: _Conversation) -> bool:
        """Whether the agent's own message is what was said in the sampled answer."""
        if message.tool_calls != before.calls or not isinstance(message.content, str):
            return False
        # behaviours strip what they keep, and behind a thought stands white space
        same = before.thinks and message.content.strip() == before.text.strip()
        return message.content == before.text or same
