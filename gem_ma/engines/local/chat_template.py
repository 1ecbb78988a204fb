"""Messages -> the pieces of a prompt, through a model's own chat template: what is template, what
is content, what is an image.

Knows templates; knows neither ids nor conversations. Every content is a placeholder while the
template runs and is put in afterwards, so nothing that was said can become a control token, and no
template can change it. What a template cannot show is shown more plainly, step by step:

1. Several user messages in a row become one, with a line for each; a system message that is not in
   front is shown as the user's.
2. Where a template wants roles to alternate, an agent's own messages in a row become one too.
3. Calls and results that it refuses are text: `<tool_call>` behind the agent's words,
   `<tool_response>` as the user's. A template that shows neither tools nor calls gets the tools as
   text in front of the briefing (`TOOLS_IN_TEXT`).
4. A template without a system role shows briefings as the user's.

Another agent's message starts with `name: `, unless the name is the chat role itself (`user`,
`assistant`). A template that takes a date (`date_string`) gets one fixed day unless the options
name another, so the same conversation has the same ids tomorrow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_ma.engines.local.template_budget import TemplateLimit, refill
from gem_ma.engines.local.template_guard import guard
from gem_ma.engines.wording import (
    BEFORE_RESULT,
    BEHIND_RESULT,
    call_as_text,
    joins,
    role_of,
    speaker,
    tools_as_text,
)
from gem_ma.errors import ConfigError, EngineError
from gem_ma.parsing import clean
from gem_ma.types import Image, Malformed, Message, Tool, ToolCall

# a placeholder is this word and six digits: survives JSON, case and trimming filters of templates
SLOT = "zqslot"
_SLOTS = re.compile(SLOT + r"(\d{6})")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,200}")
# what templates that take a date print, where `template: {date_string: ...}` says nothing else
DAY = "26 Jul 2024"
KEPT = 4096  # layouts kept
PLAIN = (  # `template: plain`, for models without a template of their own
    "{{- bos_token or '' -}}{%- for message in messages -%}{{- message['role'] | capitalize + ': '"
    " + message['content'] + (eos_token if message['role'] == 'assistant' else '') + '\\n\\n'"
    " -}}{%- endfor -%}{%- if add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%}"
)

Piece = tuple[str | Image, bool]  # (text or image, it is a content and not template)


@dataclass(slots=True)
class _Line:
    """One entry of the list that a template walks over."""

    role: str
    parts: list[str | Image]
    calls: list[ToolCall] = field(default_factory=list)
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class _Way:
    """How plainly a conversation is shown; the fields are the steps of the module's list."""

    joined: bool = False
    calls_in_text: bool = False
    system_role: bool = True


class ChatTemplate:
    """Renders conversations with the chat template of `tokenizer`, or with `PLAIN` where `options`
    is "plain".

    `image_token`: the text that stands for an image in this template; None for a model that
    reads text only. Raises ConfigError where there is no template, or it cannot show a user
    message.
    """

    def __init__(
        self,
        tokenizer: Any,
        options: Mapping[str, Any] | str | None,
        where: str,
        image_token: str | None = None,
    ) -> None:
        self.tokenizer, self.where, self.image_token = tokenizer, where, image_token
        if isinstance(options, str) and options != "plain":
            raise ConfigError(
                f"{where}: template is 'plain' or the options of the model's own template; got"
                f" {options!r}"
            )
        self.plain = isinstance(options, str)
        self.source = PLAIN if self.plain else str(getattr(tokenizer, "chat_template", None) or "")
        if not self.source:
            raise ConfigError(
                f"{where}: there is no chat template, so messages cannot be rendered; use a chat"
                " model, add chat_template.jinja, or write template: plain for roles as plain text"
            )
        guard(PLAIN if self.plain else getattr(tokenizer, "chat_template", None))
        self._loading = True
        self.options: dict[str, Any] = (
            {} if options is None or isinstance(options, str) else dict(options)
        )
        if "date_string" in self.source:
            self.options.setdefault("date_string", DAY)
        self.controls = control_tokens(tokenizer)
        self._layouts: dict[tuple[Any, ...], list[str | int]] = {}
        self.ways: tuple[_Way, ...] = (_Way(),)
        self.short_ids = self.shows_tools = self.shows_calls = False
        hello = Message("hello")
        self.system_role = self._takes((Message.system("hello"), hello))
        try:
            self.pieces("x", (hello,))
        except EngineError as error:
            raise ConfigError(
                f"{where}: the chat template cannot render a user message: {error}"
            ) from error
        first = _Way(
            joined=not self._takes((hello, Message("a", "x"), Message("b", "x"), hello)),
            system_role=self.system_role,
        )
        self.ways = (first,)
        self._learn_tools(first)
        last = _Way(True, True, False)
        steps = (
            first,
            _Way(first.joined, True, first.system_role),
            _Way(True, True, first.system_role),
            last,
        )
        start = 0 if self.shows_calls or self.shows_tools else 1
        self.ways = tuple(dict.fromkeys(steps[start:]))
        self._loading = False

    @property
    def reads_tools(self) -> bool:
        """Whether tools are for the template to show; else they are text in front of the
        briefing."""
        return self.shows_tools or self.shows_calls

    def _takes(self, messages: Sequence[Message]) -> bool:
        try:
            self.pieces("x", messages)
        except EngineError:
            return False
        return True

    def _learn_tools(self, first: _Way) -> None:
        tool = Tool("zqtool", "looks")
        self.shows_tools = True
        try:
            self.shows_tools = _count("zqtool", self.pieces("x", (Message("hello"),), (tool,))) > 0
        except EngineError:
            self.shows_tools = False
        call = (
            Message("hello"),
            Message("", "x", (ToolCall("call_0", "zqtool", {"a": 1}),)),
            Message.tool("call_0", "seen"),
        )
        for self.short_ids in (False, True):
            try:
                self.shows_calls = _count("zqtool", self.pieces("x", call)) > 0
                return
            except EngineError:
                continue
        self.shows_calls = self.short_ids = False

    # -- pieces -----------------------------------------------------------------------------------

    def pieces(
        self,
        agent: str,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        plainly: bool = True,
    ) -> list[Piece]:
        """The whole conversation with its generation prompt. Raises EngineError where the
        template refuses it, with `plainly` in every way."""
        refusal: EngineError | None = None
        for way in self.ways if plainly else self.ways[:1]:
            try:
                return self._pieces(way, agent, messages, tools)
            except EngineError as error:
                refusal = refusal or error
                if isinstance(error, ImageRefused):
                    break
        raise refusal or EngineError(f"{self.where}: nothing to render")

    def _pieces(
        self, way: _Way, agent: str, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> list[Piece]:
        # (text, it may stand inside a JSON string of the template)
        contents: list[tuple[str, bool]] = []
        lines = self._lines(way, agent, messages)
        described: list[dict[str, Any]] = []
        if tools and self.reads_tools:
            described = [self._described(tool, contents) for tool in tools]
        elif tools:
            self._tools_as_text(way, lines, tools)
        images = [part for line in lines for part in line.parts if isinstance(part, Image)]
        chat = [self._entry(line, contents) for line in lines]
        key = None
        if not described and not images and not any(line.calls for line in lines):
            # contents are slots: the layout is all
            key = tuple(
                (line.role, one["content"] == "") for line, one in zip(lines, chat, strict=True)
            )
        layout = self._layouts.get(key) if key is not None else None
        if layout is None:
            layout = self._layout(chat, described, len(contents))
            if key is not None and len(self._layouts) < KEPT:
                self._layouts[key] = layout
        return self._filled(layout, contents, images)

    def _layout(
        self, chat: list[dict[str, Any]], tools: list[dict[str, Any]], slots: int
    ) -> list[str | int]:
        """The rendered template, cut at its placeholders: template text, or the number of a
        content."""
        own = {"chat_template": PLAIN} if self.plain else {}
        refill()
        try:
            text = self.tokenizer.apply_chat_template(
                chat,
                tools=tools or None,
                add_generation_prompt=True,
                tokenize=False,
                **own,
                **self.options,
            )
        except (TemplateLimit, MemoryError) as error:
            why = (
                f"{self.where}: the chat template was stopped:"
                f" {error or 'it takes more memory than there is'}"
            )
            raise (
                ConfigError(f"{why}; use another model, or template: plain")
                if self._loading
                else TemplateLimit(why)
            ) from error
        except Exception as error:  # templates raise what they like
            raise EngineError(
                f"{self.where}: the chat template refused the conversation: {type(error).__name__}:"
                f" {error}"
            ) from error
        cut = _SLOTS.split(text)
        layout: list[str | int] = [
            int(part) if at % 2 else part for at, part in enumerate(cut) if part
        ]
        if any(part >= slots for part in layout if isinstance(part, int)) or any(
            SLOT in part.lower() for part in layout if isinstance(part, str)
        ):
            raise EngineError(
                f"{self.where}: the chat template changes contents, so they cannot be told from its"
                " own text"
            )
        return layout

    def _filled(
        self, layout: list[str | int], contents: list[tuple[str, bool]], images: list[Image]
    ) -> list[Piece]:
        pieces: list[Piece] = []
        waiting = iter(images)
        for at, part in enumerate(layout):
            if isinstance(part, int):
                text, escaped = contents[part]
                text = _quoted(text, layout, at) if escaped else text
                glue = pieces[-1][0] if pieces and not pieces[-1][1] else ""
                # a space belongs to the word behind it, as tokenizers see it
                if isinstance(glue, str) and glue.endswith(" "):
                    kept = glue.rstrip(" ")
                    text = glue[len(kept) :] + text
                    pieces[-1:] = [(kept, False)] if kept else []
                pieces.append((text, True))
            elif self.image_token and images:
                for number, own in enumerate(part.split(self.image_token)):
                    image = next(waiting, None) if number else None
                    if image is not None:
                        pieces.append((image, True))
                    if own:
                        pieces.append((own, False))
            else:
                pieces.append((part, False))
        if next(waiting, None) is not None:
            raise ImageRefused(f"{self.where}: the chat template drops images")
        return pieces

    # -- messages ---------------------------------------------------------------------------------

    def _lines(self, way: _Way, agent: str, messages: Sequence[Message]) -> list[_Line]:
        lines: list[_Line] = []
        for message in messages:
            role = role_of(agent, message, (line.role for line in lines))
            parts = self._parts(agent, message)
            calls = [call for call in message.tool_calls if isinstance(call, ToolCall)]
            unread = "".join(
                clean(call.text) for call in message.tool_calls if isinstance(call, Malformed)
            )
            if role == "tool" and way.calls_in_text:
                role, parts = "user", [BEFORE_RESULT, *parts, BEHIND_RESULT]
            if calls and way.calls_in_text:
                written = [clean(call_as_text(call)) for call in calls]
                unread, calls = "\n".join([unread, *written] if unread else written), []
                unread = "\n" + unread if parts != [""] else unread
            if unread:
                parts = [*parts, unread]
            if role == "system" and not way.system_role:
                role = "user"
            last = lines[-1] if lines else None
            follows = role == "assistant" and way.joined  # templates that join answers in a row
            if last is not None and (
                joins(role, last.role) or (follows and last.role == role and not last.calls)
            ):
                last.parts += ["\n", *parts]
                last.calls += calls
            else:
                lines.append(_Line(role, list(parts), calls, message.call_id))
        return lines

    def _parts(self, agent: str, message: Message) -> list[str | Image]:
        name = speaker(agent, message)
        if isinstance(message.content, str) or not any(
            isinstance(part, Image) for part in message.content
        ):
            return [clean(name + message.text)]
        if not self.image_token:
            raise ImageRefused(
                f"{self.where} reads text only, and agent {agent!r} was shown an image; use a"
                " policy that sees images"
            )
        parts: list[str | Image] = [clean(name)] if name else []
        return [
            *parts,
            *(part if isinstance(part, Image) else clean(part) for part in message.content),
        ]

    def _tools_as_text(self, way: _Way, lines: list[_Line], tools: Sequence[Tool]) -> None:
        text = tools_as_text(tools)
        role = "system" if way.system_role else "user"
        if lines and lines[0].role == role:
            lines[0].parts = (
                [*lines[0].parts, "\n", text] if role == "system" else [text, "\n", *lines[0].parts]
            )
        else:
            lines.insert(0, _Line(role, [text]))

    def _entry(self, line: _Line, contents: list[tuple[str, bool]]) -> dict[str, Any]:
        entry: dict[str, Any] = {"role": line.role}
        if any(isinstance(part, Image) for part in line.parts):
            entry["content"] = [
                (
                    {"type": "image"}
                    if isinstance(part, Image)
                    else {"type": "text", "text": self._slot(part, contents)}
                )
                for part in line.parts
            ]
        else:
            entry["content"] = self._slot(
                "".join(part for part in line.parts if isinstance(part, str)), contents
            )
        if line.role == "tool":
            entry["tool_call_id"] = self._name(self._call_id(line.call_id), contents)
        if line.calls:
            entry["tool_calls"] = [self._call(call, contents) for call in line.calls]
        return entry

    def _call(self, call: ToolCall, contents: list[tuple[str, bool]]) -> dict[str, Any]:
        function = {
            "name": self._name(call.name, contents),
            "arguments": self._slotted(call.arguments, contents),
        }
        return {
            "type": "function",
            "id": self._name(self._call_id(call.id), contents),
            "function": function,
        }

    def _call_id(self, call_id: str) -> str:
        """The id as the template takes it: some want nine letters and digits."""
        if not self.short_ids or re.fullmatch(r"[A-Za-z0-9]{9}", call_id):
            return call_id
        return (re.sub(r"[^A-Za-z0-9]", "", call_id) + "0" * 9)[:9]

    def _name(self, text: str, contents: list[tuple[str, bool]]) -> str:
        """Names of tools stand as they are, since templates look at them; one that is no plain
        name is a content."""
        return (
            text
            if not text or _PLAIN_NAME.fullmatch(text)
            else self._slot(text, contents, escaped=True)
        )

    def _slotted(self, value: Any, contents: list[tuple[str, bool]]) -> Any:
        if isinstance(value, str):
            return self._slot(value, contents, escaped=True)
        if isinstance(value, Mapping):
            return {
                self._slot(key, contents, escaped=True): self._slotted(item, contents)
                for key, item in value.items()
            }
        return (
            [self._slotted(item, contents) for item in value] if isinstance(value, list) else value
        )

    def _described(self, tool: Tool, contents: list[tuple[str, bool]]) -> dict[str, Any]:
        schema = tool.schema
        schema["function"] |= {
            "description": self._slot(tool.description, contents, escaped=True),
            "parameters": self._guarded(schema["function"]["parameters"], contents),
        }
        return schema

    def _guarded(self, value: Any, contents: list[tuple[str, bool]]) -> Any:
        """A schema as it stands, since templates look into it; a text in it that holds a control
        token is a content."""
        if isinstance(value, str):
            marked = any(mark in value for mark in self.controls.values())
            return self._slot(value, contents, escaped=True) if marked else clean(value)
        if isinstance(value, Mapping):
            return {
                self._guarded(key, contents): self._guarded(item, contents)
                for key, item in value.items()
            }
        return (
            [self._guarded(item, contents) for item in value] if isinstance(value, list) else value
        )

    @staticmethod
    def _slot(text: str, contents: list[tuple[str, bool]], *, escaped: bool = False) -> str:
        if not text:
            return ""
        contents.append((clean(text), escaped))
        return f"{SLOT}{len(contents) - 1:06d}"


class ImageRefused(EngineError):
    """An image for a policy that cannot see it; no plainer way of showing helps."""


def control_tokens(tokenizer: Any) -> dict[int, str]:
    """All control tokens of a tokenizer by id: those that have a name in its settings, and those
    that its vocabulary marks as such only."""
    named = dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    return named | {
        token: str(added)
        for token, added in tokenizer.added_tokens_decoder.items()
        if added.special
    }


def _count(word: str, pieces: Sequence[Piece]) -> int:
    """How often the template's own text holds a word."""
    return sum(
        part.count(word) for part, content in pieces if isinstance(part, str) and not content
    )


def _quoted(text: str, layout: Sequence[str | int], at: int) -> str:
    """A text as the template writes it there: escaped inside the quotes of a JSON string, else
    as it is."""
    before, after = (layout[at - 1] if at else ""), (layout[at + 1] if at + 1 < len(layout) else "")
    if not (
        isinstance(before, str)
        and before.endswith('"')
        and isinstance(after, str)
        and after.startswith(('"', '\\"'))
    ):
        return text
    inside = json.dumps(text, ensure_ascii=False)[1:-1]
    return json.dumps(inside, ensure_ascii=False)[1:-1] if before.endswith('\\"') else inside
