"""Conversations as token ids that only ever grow: messages -> prompt ids through a tokenizer's own chat template.

Knows tokenizers and chat templates; knows neither models nor scenarios. Three promises:

1. The next prompt is the previous prompt + what was sampled + the ids of what is new. What the policy sampled is never encoded again.
2. Template parts and contents are encoded apart, so a role marker inside a content stays plain text and never becomes a control token.
3. Where a conversation does not go on as sampled (edited history, other tools), or a template cannot be continued, the whole prompt is
   rendered anew. Training counts that as a fork.

Several user messages in a row become one, with a line for each; a system message that is not in front is shown as the user's. Another
agent's message starts with `name: `, unless the name is the chat role itself (`user`, `assistant`).
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gem_ma.errors import ConfigError, EngineError
from gem_ma.parsing import clean, parse_tool_calls
from gem_ma.types import SCENARIO, SYSTEM, Image, Malformed, Message, Reply, Request, Tool, ToolCall

SLOT = "zqslot"  # a placeholder is this word and six digits: survives JSON, case and trimming filters of templates
_SLOTS = re.compile(SLOT + r"(\d{6})")
ANSWER = "\x00answer\x00"  # stands where an answer would, and is never encoded
KEPT, KEPT_PIECES = 4096, 65_536  # conversations and encoded pieces kept; the oldest goes first

MARKS = ("<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "<tool_call>", "</tool_call>", "<think>", "</think>")

Piece = tuple[str, bool]  # (text, it is a content and not template)


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

    `tokenizer`: a fast Hugging Face tokenizer with a chat template. `ends`: ids that end a turn when sampled. `options` go to the template.
    Raises ConfigError where there is no template, or it cannot render a user message.
    """

    def __init__(
        self,
        tokenizer: Any,
        ends: frozenset[int],
        options: Mapping[str, Any] | str | None = None,
        where: str = "the tokenizer",
        *,
        keep_thinking: bool = True,
        tool_format: str = "auto",
    ) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError(f"{where}: there is no chat template, so messages cannot be rendered; use a chat model, or add chat_template.jinja")
        self.tokenizer, self.ends, self.where = tokenizer, ends, where
        self.options = {} if isinstance(options, str) else dict(options or {})
        self.keep_thinking, self.tool_format = keep_thinking, tool_format
        self.marks = self._marks()
        self._conversations: OrderedDict[str, _Conversation] = OrderedDict()
        self._ids: OrderedDict[Piece, tuple[int, ...]] = OrderedDict()
        self._layouts: dict[tuple[Any, ...], list[str | int]] = {}
        self.system_role = True
        hello = Message("hello")
        try:
            self.render("x", (Message.system("hello"), hello))
        except EngineError:  # some templates refuse the system role: it is then shown as the user's
            self.system_role = False
        try:
            self.render("x", (hello,))
        except EngineError as error:
            raise ConfigError(f"{where}: the chat template cannot render a user message: {error}") from error
        self.continues = self._can_continue()

    # -- prompts ------------------------------------------------------------------------------------------------------------

    def prompt(self, request: Request) -> tuple[int, ...]:
        """The prompt's ids; the conversation is remembered until `sampled` completes it. Shape [prompt]."""
        key, before = request.conversation, self._conversations.pop(request.conversation, None)
        suffix = self._suffix(before, request) if before is not None else None
        if before is not None and suffix is not None:
            ids = before.ids + suffix
        else:
            ids = self.render(request.agent, request.messages, request.tools)
        if key:
            self._conversations[key] = _Conversation(request.messages, request.tools, ids)
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
        """Takes over what a record holds: this prompt was answered so. The next prompt of the conversation goes on from these ids."""
        if reply.prompt_ids and request.conversation:
            self._conversations[request.conversation] = _Conversation(request.messages, request.tools, reply.prompt_ids)
            self.sampled(request, reply)

    def _suffix(self, before: _Conversation, request: Request) -> tuple[int, ...] | None:
        """Ids of what came after the sampled tokens, or None where this is no continuation."""
        length = len(before.messages)
        if not self.continues or not before.ids or len(request.messages) <= length + 1 or request.tools != before.tools:
            return None
        own = request.messages[length]
        if own.sender != request.agent or (own.content, own.tool_calls) != before.said or request.messages[:length] != before.messages:
            return None
        new = request.messages[length + 1 :]
        if any(message.sender == request.agent for message in new):
            return None
        try:
            return self.suffix(request.agent, new, request.tools, ended=before.ended)
        except EngineError:  # for example a template that refuses a tool result without a visible call
            return None

    def suffix(self, agent: str, new: Sequence[Message], tools: Sequence[Tool] = (), *, ended: bool = True) -> tuple[int, ...]:
        """Ids between a sampled answer and the next one: [end of turn, unless sampled] + new messages + generation prompt.

        Found without knowing the template: the text after a marker that stands where the answer would.
        """
        ids = self._encode(self._after_answer(agent, new, tools))
        return ids[1:] if ended and ids and ids[0] in self.ends else ids

    def render(self, agent: str, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> tuple[int, ...]:
        """The whole conversation with its generation prompt, as ids. Raises EngineError where the template refuses."""
        return self._encode(self._pieces(agent, messages, tools))

    def answer(self, text: str) -> tuple[int, ...]:
        """Ids of an action's text with the end of turn: the target of a demonstration."""
        after = self._encode(self._after_answer("x", (Message("y"),), ())[:1]) if self.continues else ()
        end = next((token for token in after if token in self.ends), min(self.ends))
        return (*self._encode([(text, True)] if text else []), end)

    def text(self, ids: Sequence[int]) -> str:
        """The text of sampled ids, without control tokens; those that open a tool call stay."""
        parts: list[str] = []
        plain: list[int] = []
        for token in [*ids, None]:
            if token is not None and token not in self.marks:
                plain.append(token)
                continue
            parts.append(self.tokenizer.decode(plain, skip_special_tokens=True, clean_up_tokenization_spaces=False))
            plain = []
            if token is not None:
                parts.append(self.tokenizer.convert_ids_to_tokens(token))
        return clean("".join(parts))

    def read(self, text: str, tools: Sequence[Tool] = (), finish: str = "stop") -> tuple[str, tuple[ToolCall | Malformed, ...]]:
        """The text around the tool calls of a sampled text, and the calls; without tools, all is text."""
        if not tools:
            return text, ()
        whole, (text, calls) = text, parse_tool_calls(text)
        if calls and finish == "length" and whole.rfind("<tool_call>") > whole.rfind("</tool_call>"):
            calls = (*calls[:-1], Malformed(whole[whole.rfind("<tool_call>") :][:200], "truncated_call: cut by max_tokens"))
        return text, calls

    def _after_answer(self, agent: str, new: Sequence[Message], tools: Sequence[Tool]) -> list[Piece]:
        parts = self._pieces(agent, (Message("x"), Message(ANSWER, agent), *new), tools)
        if (ANSWER, True) not in parts:
            raise EngineError(f"{self.where}: the chat template drops earlier answers")
        return parts[parts.index((ANSWER, True)) + 1 :]

    # -- the template -------------------------------------------------------------------------------------------------------

    def _pieces(self, agent: str, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Piece]:
        contents: list[str] = []
        chat = self._chat(agent, messages, contents)
        described = [self._described(tool, contents) for tool in tools]
        key = None
        if not tools and not any("tool_calls" in message for message in chat):
            key = tuple((message["role"], message["content"] == "") for message in chat)  # contents are placeholders: the layout is all
        layout = self._layouts.get(key) if key else None
        if layout is None:
            layout = self._layout(chat, described, len(contents))
            if key and len(self._layouts) < KEPT:
                self._layouts[key] = layout
        return [(part, False) if isinstance(part, str) else (contents[part], True) for part in layout]

    def _layout(self, chat: list[dict[str, Any]], tools: list[dict[str, Any]], slots: int) -> list[str | int]:
        """The rendered template, cut at its placeholders: template text, or the number of a content."""
        try:
            text = self.tokenizer.apply_chat_template(chat, tools=tools or None, add_generation_prompt=True, tokenize=False, **self.options)
        except Exception as error:  # templates raise what they like
            raise EngineError(f"{self.where}: the chat template refused the conversation: {type(error).__name__}: {error}") from error
        cut = _SLOTS.split(text)
        layout: list[str | int] = [int(part) if at % 2 else part for at, part in enumerate(cut) if part]
        if any(part >= slots for part in layout if isinstance(part, int)) or any(SLOT in part.lower() for part in layout if isinstance(part, str)):
            raise EngineError(f"{self.where}: the chat template changes contents, so they cannot be told from its own text")
        return layout

    def _chat(self, agent: str, messages: Sequence[Message], contents: list[str]) -> list[dict[str, Any]]:
        chat: list[dict[str, Any]] = []
        for message in messages:
            role, text = message.role(agent), self._text(agent, message)
            if role == "system" and (not self.system_role or any(one["role"] != "system" for one in chat)):
                role = "user"
            if chat and role in ("user", "system") and chat[-1]["role"] == role:
                chat[-1]["text"] += "\n" + text
                continue
            chat.append({"role": role, "text": text})
            if role == "tool":
                chat[-1]["tool_call_id"] = message.call_id
            if message.tool_calls:
                calls = [call for call in message.tool_calls if isinstance(call, ToolCall)]
                chat[-1]["text"] += "".join(call.text for call in message.tool_calls if isinstance(call, Malformed))
                if calls:
                    chat[-1]["tool_calls"] = calls
        for one in chat:
            one["content"] = self._slot(one.pop("text"), contents)
            if "tool_calls" in one:
                one["tool_calls"] = [self._call(call, contents) for call in one["tool_calls"]]
        return chat

    def _text(self, agent: str, message: Message) -> str:
        if not isinstance(message.content, str) and any(isinstance(part, Image) for part in message.content):
            raise EngineError(f"{self.where} reads text only, and agent {agent!r} was shown an image; use a policy that sees images")
        name = message.sender
        named = message.role(agent) == "user" and name not in (SCENARIO, SYSTEM, "user", "assistant")
        return f"{name}: {message.text}" if named else message.text

    def _call(self, call: ToolCall, contents: list[str]) -> dict[str, Any]:
        return {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": self._slotted(call.arguments, contents)}}

    def _slotted(self, value: Any, contents: list[str]) -> Any:
        if isinstance(value, str):
            return self._slot(_inside_json(value), contents)
        if isinstance(value, Mapping):
            return {self._slot(_inside_json(key), contents): self._slotted(item, contents) for key, item in value.items()}
        return [self._slotted(item, contents) for item in value] if isinstance(value, list) else value

    def _described(self, tool: Tool, contents: list[str]) -> dict[str, Any]:
        schema = tool.schema
        schema["function"]["description"] = self._slot(_inside_json(tool.description), contents)
        return schema

    @staticmethod
    def _slot(text: str, contents: list[str]) -> str:
        if not text:
            return ""
        contents.append(text)
        return f"{SLOT}{len(contents) - 1:06d}"

    # -- ids ----------------------------------------------------------------------------------------------------------------

    def _encode(self, parts: Sequence[Piece]) -> tuple[int, ...]:
        ids: list[int] = []
        for part in parts:
            known = self._ids.get(part)
            if known is None:
                text, content = part
                known = tuple(self.tokenizer(text, add_special_tokens=False, split_special_tokens=content)["input_ids"])
                self._ids[part] = known
                if len(self._ids) > KEPT_PIECES:
                    self._ids.popitem(last=False)
            ids += known
        return tuple(ids)

    def _marks(self) -> frozenset[int]:
        """Control tokens that a policy may say: those of its template that open a tool call."""
        template = str(getattr(self.tokenizer, "chat_template", "") or "")
        known = dict(zip(self.tokenizer.all_special_ids, self.tokenizer.all_special_tokens, strict=True))
        return frozenset(token for token, text in known.items() if text in MARKS and text in template)

    def _can_continue(self) -> bool:
        """Whether full renderings of canned dialogues end as their suffixes do; where they do not, every turn is rendered in full."""
        user, own, more = Message("one"), Message("two", "x"), Message("three")
        try:
            tail = self.suffix("x", (more,), ended=False)
            return all(self.render("x", (*front, own, more))[-len(tail) :] == tail for front in ((user,), (Message.system("zero"), user)))
        except EngineError:
            return False


def _inside_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
