"""Conversations as token ids that only ever grow: messages -> prompt ids through a tokenizer's own
chat template.

Knows tokenizers and chat templates; knows neither models nor scenarios. Three promises:

1. The next prompt is the previous prompt + what was sampled + the ids of what is new. What the
   policy sampled is never encoded again.
2. Template parts and contents are encoded apart, so a role marker inside a content stays plain text
   and never becomes a control token.
3. Where a conversation does not go on as sampled (edited history, other tools), or a template
   cannot be continued, the whole prompt is rendered anew. Training counts that as a restart.

How messages are shown by a template is told in `gem_ma.engines.local.chat_template`.

Thinking (`<think>...</think>` in front of a reply) is part of what was sampled. With
`keep_thinking` it stays in the history, whatever the template does with it, so prompts only
grow; a behaviour may keep the visible part alone in its own history and still goes on from the
sampled ids. Without it, thoughts of before the last message of others (tool results aside) are
left out: each such turn restarts its row, and `restarts` counts them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gem_ma.engines.local.chat_template import ChatTemplate, Piece
from gem_ma.errors import ConfigError, EngineError
from gem_ma.parsing import FORMATS, clean, parse_tool_calls
from gem_ma.types import Image, Malformed, Message, Reply, Request, Tool, ToolCall

ANSWER_WORD = "zqanswer"
ANSWER = f"\x00{ANSWER_WORD}\x00"  # stands where an answer would, and is never encoded
KEPT, KEPT_PIECES = 4096, 65_536  # conversations and encoded pieces kept; the oldest goes first

THINK, THOUGHT = "<think>", "</think>"
MARKS = (
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
)


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How conversations are written for a model: options of a config, see `Chat`."""

    template: dict[str, Any] | str | None = None
    keep_thinking: bool = True
    tool_format: str = "auto"


@dataclass(slots=True)
class _Conversation:
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    prompt: tuple[int, ...]
    ids: tuple[int, ...] = ()  # prompt + what was sampled; () until the reply is known
    said: tuple[str, tuple[ToolCall | Malformed, ...]] = ("", ())
    ended: bool = False  # the last sampled id is an end token


class Chat:
    """Renders requests of one policy to ids, conversation by conversation.

    `tokenizer`: a fast Hugging Face tokenizer with a chat template. `ends`: ids that end a turn
    when sampled. `template` of the options goes to the template; "plain" stands for roles as plain
    text. `keep_thinking`: see the module. `tool_format`: how the policy writes tool calls, a key of
    `gem_ma.parsing.FORMATS`, or `auto` for what its template says. `vision`: (text that stands
    for an image in the template, ids of an image). Raises ConfigError where there is no
    template, or it cannot render a user message, and for an unknown format.
    """

    def __init__(
        self,
        tokenizer: Any,
        ends: frozenset[int],
        options: ChatOptions = ChatOptions(),
        where: str = "the tokenizer",
        *,
        vision: tuple[str, Callable[[Image], Sequence[int]]] | None = None,
    ) -> None:
        tool_format = options.tool_format
        if tool_format != "auto" and tool_format not in FORMATS:
            raise ConfigError(
                f"{where}: tool_format is auto, {', '.join(FORMATS)}; got {tool_format!r}"
            )
        self.tokenizer, self.ends, self.where = tokenizer, ends, where
        self.keep_thinking = options.keep_thinking
        self._image_ids = vision[1] if vision else None
        self.template = ChatTemplate(
            tokenizer, options.template, where, vision[0] if vision else None
        )
        self.tool_format = format_of(self.template) if tool_format == "auto" else tool_format
        self.marks = self._marks()
        # prompts that came after a reply, and those of them that did not go on from it
        self.turns = self.restarts = 0
        self._conversations: OrderedDict[str, _Conversation] = OrderedDict()
        self._ids: OrderedDict[Piece, tuple[int, ...]] = OrderedDict()
        self.lead, self.opens_thinking, self.may_think = self._before_answer()
        self.continues = self._can_continue()

    # -- prompts ----------------------------------------------------------------------------------

    def prompt(self, request: Request) -> tuple[int, ...]:
        """The prompt's ids; the conversation is remembered until `sampled` completes it. Shape
        [prompt]."""
        key, before = request.conversation, self._conversations.pop(request.conversation, None)
        suffix = self._suffix(before, request) if before is not None else None
        if before is not None and suffix is not None:
            ids = before.ids + suffix
        else:
            ids = self.render(request.agent, request.messages, request.tools)
        if before is not None and before.ids:
            self.turns += 1
            self.restarts += suffix is None
        if key:
            self._conversations[key] = _Conversation(tuple(request.messages), request.tools, ids)
            while len(self._conversations) > KEPT:
                self._conversations.popitem(last=False)
        return ids

    def sampled(self, request: Request, reply: Reply) -> None:
        """What the policy answered to the last prompt of this conversation."""
        kept = self._conversations.get(request.conversation)
        if kept is None:
            return
        if kept.prompt != reply.prompt_ids or reply.finish == "context_overflow":
            del self._conversations[request.conversation]
            return
        kept.ids, kept.said = reply.prompt_ids + reply.token_ids, (reply.text, reply.tool_calls)
        kept.ended = bool(reply.token_ids) and reply.token_ids[-1] in self.ends

    def recall(self, request: Request, reply: Reply) -> None:
        """Takes over what a record holds: this prompt was answered so. The next prompt of the
        conversation goes on from these ids."""
        if reply.prompt_ids and request.conversation:
            self._conversations[request.conversation] = _Conversation(
                tuple(request.messages), request.tools, reply.prompt_ids
            )
            self.sampled(request, reply)

    def _suffix(self, before: _Conversation, request: Request) -> tuple[int, ...] | None:
        """Ids of what came after the sampled tokens, or None where this is no continuation."""
        length = len(before.messages)
        if (
            not self.continues
            or not before.ids
            or len(request.messages) <= length + 1
            or request.tools != before.tools
        ):
            return None
        own = request.messages[length]
        if (
            own.sender != request.agent
            or request.messages[:length] != before.messages
            or not self._is_said(own, before)
        ):
            return None
        new = request.messages[length + 1 :]
        if any(message.sender == request.agent for message in new):
            return None
        if (
            not self.keep_thinking
            and any(message.role(request.agent) != "tool" for message in new)
            and self._thinks(request, before)
        ):
            return None
        try:
            return self.suffix(request.agent, new, request.tools, ended=before.ended)
        except EngineError:
            # for example a template that refuses a tool result without a visible call
            return None

    def _is_said(self, own: Message, before: _Conversation) -> bool:
        """Whether the agent's own message is what was sampled, or its visible part."""
        text, calls = before.said
        if own.tool_calls != calls or not isinstance(own.content, str):
            return False
        return own.content == text or (
            bool(self._thought(text)) and own.content.strip() == self._visible(text).strip()
        )

    def _thinks(self, request: Request, before: _Conversation) -> bool:
        """Whether a thought stands in the kept ids that `keep_thinking: false` leaves out."""
        own = [message.text for message in before.messages if message.sender == request.agent]
        return any(self._thought(text) for text in (*own, before.said[0]))

    def _thought(self, text: str) -> str:
        """The thinking in front of a reply, its end tag included; all of it where the thinking
        never ended, "" where there is none."""
        start = text.lstrip()
        if not (start.startswith(THINK) or (self.opens_thinking and THOUGHT in text)):
            return ""
        end = text.find(THOUGHT)
        return text if end < 0 else text[: end + len(THOUGHT)]

    def _visible(self, text: str) -> str:
        return text[len(self._thought(text)) :]

    def suffix(
        self, agent: str, new: Sequence[Message], tools: Sequence[Tool] = (), *, ended: bool = True
    ) -> tuple[int, ...]:
        """Ids between a sampled answer and the next one: [end of turn, unless sampled] + new
        messages + generation prompt.

        Found without knowing the template: the text after a marker that stands where the answer
        would.
        """
        try:
            ids = self._after_answer(agent, new, tools, plainly=False)
        except EngineError:
            try:
                ids = self._after_call(agent, new, tools)
            except EngineError:
                ids = self._after_answer(agent, new, tools)
        return ids[1:] if ended and ids and ids[0] in self.ends else ids

    def render(
        self, agent: str, messages: Sequence[Message], tools: Sequence[Tool] = ()
    ) -> tuple[int, ...]:
        """The whole conversation with its generation prompt, as ids. Raises EngineError where
        the template refuses."""
        if not self.keep_thinking:
            messages = self._without_thoughts(agent, messages)
        return self._encode(self.template.pieces(agent, messages, tools))

    def answer(
        self, text: str, calls: Sequence[ToolCall | Malformed] = (), tools: Sequence[Tool] = ()
    ) -> tuple[int, ...]:
        """Ids of an action's text and calls with the end of turn: the target of a demonstration.

        Raises EngineError where the template cannot show the calls of a first answer.
        """
        if calls:
            opening = (Message("x"),)
            prompt = self.render("x", opening, tools)
            whole = self._encode(
                self.template.pieces(
                    "x", (*opening, Message(text, "x", tuple(calls)), Message("y")), tools
                )
            )
            said = whole[len(prompt) :] if whole[: len(prompt)] == prompt else ()
            end = next((at for at, token in enumerate(said) if token in self.ends), None)
            if end is None:
                raise EngineError(
                    f"{self.where}: the chat template shows no answer with a tool call, so none can"
                    " be demonstrated"
                )
            return said[: end + 1]
        after = self._after_answer("x", (Message("y"),), ()) if self.continues else ()
        end = next((token for token in after if token in self.ends), min(self.ends))
        return (*self._encode([(self.lead + clean(text), True)] if self.lead + text else []), end)

    def _without_thoughts(self, agent: str, messages: Sequence[Message]) -> list[Message]:
        last = max(
            (
                at
                for at, message in enumerate(messages)
                if message.role(agent) not in ("assistant", "tool")
            ),
            default=-1,
        )
        return [
            (
                replace(message, content=self._visible(message.content).lstrip())
                if at < last
                and message.sender == agent
                and isinstance(message.content, str)
                and self._thought(message.content)
                else message
            )
            for at, message in enumerate(messages)
        ]

    def text(self, ids: Sequence[int]) -> str:
        """The text of sampled ids, without control tokens; those that open a tool call stay."""
        parts: list[str] = []
        plain: list[int] = []
        for token in [*ids, None]:
            if token is not None and token not in self.marks:
                plain.append(token)
                continue
            parts.append(
                self.tokenizer.decode(
                    plain, skip_special_tokens=True, clean_up_tokenization_spaces=False
                )
            )
            plain = []
            if token is not None:
                parts.append(self.tokenizer.convert_ids_to_tokens(token))
        return clean("".join(parts))

    def read(
        self, text: str, tools: Sequence[Tool] = (), finish: str = "stop"
    ) -> tuple[str, tuple[ToolCall | Malformed, ...]]:
        """The text around the tool calls of a sampled text, and the calls; without tools, all is
        text. Calls in thinking are thoughts."""
        if not tools:
            return text, ()
        thought = self._thought(text)
        rest, calls = parse_tool_calls(
            text[len(thought) :], self.tool_format, tools=tools, finish=finish
        )
        return (thought + rest, calls) if calls else (text, ())

    def _after_answer(
        self, agent: str, new: Sequence[Message], tools: Sequence[Tool], *, plainly: bool = True
    ) -> tuple[int, ...]:
        parts = self.template.pieces(
            agent, (Message("x"), Message(ANSWER, agent), *new), tools, plainly=plainly
        )
        return self._encode(parts[self._place(parts) + 1 :])

    def _place(self, parts: Sequence[Piece]) -> int:
        """Where the answer stands, white space of the template in front of it included."""
        for at, (part, content) in enumerate(parts):
            if content and isinstance(part, str) and part.strip(" ") == ANSWER:
                return at
        raise EngineError(f"{self.where}: the chat template drops earlier answers")

    def _after_call(
        self, agent: str, new: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[int, ...]:
        """The same for a template that refuses a tool result without a call in sight: what
        follows a call, from the end of its turn on."""
        ids = dict.fromkeys(message.call_id for message in new if message.role(agent) == "tool")
        if not ids:
            raise EngineError(f"{self.where}: the chat template drops earlier answers")
        calls = tuple(ToolCall(call_id, "f", {"a": ANSWER}) for call_id in ids)
        parts = self.template.pieces(
            agent, (Message("x"), Message("", agent, calls), *new), tools, plainly=False
        )
        marks = [
            at
            for at, (part, _) in enumerate(parts)
            if isinstance(part, str) and ANSWER_WORD in part
        ]
        after = self._encode(parts[marks[-1] + 1 :]) if marks else ()
        end = next((at for at, token in enumerate(after) if token in self.ends), None)
        if end is None:
            raise EngineError(f"{self.where}: the chat template shows no end of a turn with a call")
        return after[end:]

    def _before_answer(self) -> tuple[str, bool, bool]:
        """What the template puts between its generation prompt and an answer; whether that prompt
        opens a thought; whether a thought may come.

        A template that knows thoughts leaves them to the model, unless its generation prompt
        closes an empty one (`enable_thinking: false`).
        """
        try:
            prompt = self.template.pieces("x", (Message("x"),))
            whole = self.template.pieces("x", (Message("x"), Message(ANSWER, "x"), Message("y")))
            place = self._place(whole)
        except EngineError:
            return "", False, THOUGHT in self.template.source
        shown = "".join(part for part, _ in prompt if isinstance(part, str))
        before = "".join(
            part for part, _ in whole[: place + 1] if isinstance(part, str)
        ).removesuffix(ANSWER)
        lead = before[len(shown) :] if before.startswith(shown) else ""
        may_think = THOUGHT in self.template.source and not shown.rstrip().endswith(THOUGHT)
        return lead if lead.isspace() else "", shown.rstrip().endswith(THINK), may_think

    # -- ids --------------------------------------------------------------------------------------

    def _encode(self, parts: Sequence[Piece]) -> tuple[int, ...]:
        ids: list[int] = []
        for part in parts:
            known = self._ids.get(part)
            if known is None:
                text, content = part
                if isinstance(text, Image):
                    known = tuple(self._image_ids(text)) if self._image_ids else ()
                else:
                    known = tuple(
                        self.tokenizer(
                            text, add_special_tokens=False, split_special_tokens=content
                        )["input_ids"]
                    )
                self._ids[part] = known
                if len(self._ids) > KEPT_PIECES:
                    self._ids.popitem(last=False)
            ids += known
        return tuple(ids)

    def _marks(self) -> frozenset[int]:
        """Control tokens that a policy may say: those of its template that open a tool call or a
        thought."""
        return frozenset(
            token
            for token, text in self.template.controls.items()
            if text in MARKS and text in self.template.source
        )

    def _can_continue(self) -> bool:
        """Whether full renderings of canned dialogues end as their suffixes do; where they do
        not, every turn is rendered in full."""
        user, own, more = Message("one"), Message("two", "x"), Message("three")
        try:
            tail = self.suffix("x", (more,), ended=False)
            return all(
                self.render("x", (*front, own, more))[-len(tail) :] == tail
                for front in ((user,), (Message.system("zero"), user))
            )
        except EngineError:
            return False


def format_of(template: ChatTemplate) -> str:
    """The tool format that a template's own text speaks of; hermes where it speaks of none,
    which is also what `TOOLS_IN_TEXT` asks for."""
    text = template.source
    if not template.reads_tools:
        return "hermes"
    if "<function=" in text:
        return "xml"
    if "[TOOL_CALLS]" in text:
        return "mistral"
    if "<tool_call>" in text:
        return "hermes"
    if "<|python_start|>" in text or "func_name1(params_name1" in text:
        return "python"
    return "llama" if "<|python_tag|>" in text or '"parameters"' in text else "hermes"
