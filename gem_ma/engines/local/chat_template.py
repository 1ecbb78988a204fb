"""Messages -> the pieces of a prompt, through a model's own chat template: what is template, what
is content, what is an image.

Knows templates; knows neither ids nor conversations. Every content is a placeholder while the
template runs (`template_slots`). What a template cannot show is shown more plainly, step by step
(`template_lines`):

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

from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.engines.local.template_budget import TemplateLimit, refill
from gem_ma.engines.local.template_guard import guard
from gem_ma.engines.local.template_lines import ImageRefused, Line, Way, add_tools, lines_of
from gem_ma.engines.local.template_slots import Layout, Slots, layout_of, quoted
from gem_ma.errors import ConfigError, EngineError
from gem_ma.types import Image, Message, Tool, ToolCall

# what templates that take a date print, where `template: {date_string: ...}` says nothing else
DAY = "26 Jul 2024"
MOST_LAYOUTS = 4096  # layouts kept
PLAIN = (  # `template: plain`, for models without a template of their own
    "{{- bos_token or '' -}}{%- for message in messages -%}{{- message['role'] | capitalize + ': '"
    " + message['content'] + (eos_token if message['role'] == 'assistant' else '') + '\\n\\n'"
    " -}}{%- endfor -%}{%- if add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%}"
)

Piece = tuple[str | Image, bool]  # (text or image, it is a content and not template)


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
        # a tokenizer may hold several templates by name, and its library picks one
        guard(PLAIN if self.plain else getattr(tokenizer, "chat_template", None))
        self._loading = True  # a template that is stopped now will never work
        self.options: dict[str, Any] = (
            {} if options is None or isinstance(options, str) else dict(options)
        )
        if "date_string" in self.source:
            self.options.setdefault("date_string", DAY)
        self.controls = control_tokens(tokenizer)
        self._layouts: dict[tuple[Any, ...], Layout] = {}
        self.ways: tuple[Way, ...] = (Way(),)
        self.short_ids = self.shows_tools = self.shows_calls = False
        self._learn()
        self._loading = False

    def _learn(self) -> None:
        """Finds out by trial renderings what the template can show, and in which ways."""
        hello = Message("hello")
        self.system_role = self._takes((Message.system("hello"), hello))
        try:
            self.pieces("x", (hello,))
        except EngineError as error:
            raise ConfigError(
                f"{self.where}: the chat template cannot render a user message: {error}"
            ) from error
        alternates = not self._takes((hello, Message("a", "x"), Message("b", "x"), hello))
        first = Way(joined=alternates, system_role=self.system_role)
        self.ways = (first,)
        self._learn_tools()
        steps = (
            first,
            Way(alternates, True, self.system_role),
            Way(True, True, self.system_role),
            Way(True, True, False),
        )
        # a template that shows no calls would drop them in silence
        start = 0 if self.reads_tools else 1
        self.ways = tuple(dict.fromkeys(steps[start:]))

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

    def _learn_tools(self) -> None:
        tool = Tool("zqtool", "looks")  # no template holds this word
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
        # Mistral's templates refuse a call whose id has not nine letters and digits
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
                # the first refusal is of the conversation as it is, so it says most
                refusal = refusal or error
                if isinstance(error, ImageRefused):
                    break
        raise refusal or EngineError(f"{self.where}: nothing to render")

    def _pieces(
        self, way: Way, agent: str, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> list[Piece]:
        slots = Slots(self.controls.values(), self.short_ids)
        lines = lines_of(way, agent, messages, sees_images=bool(self.image_token), where=self.where)
        described: list[dict[str, Any]] = []
        if tools and self.reads_tools:
            described = [slots.tool(tool) for tool in tools]
        elif tools:
            add_tools(way, lines, tools)
        images = [part for line in lines for part in line.parts if isinstance(part, Image)]
        chat = [_entry(line, slots) for line in lines]
        key = None
        if not described and not images and not any(line.calls for line in lines):
            # Contents are slots, so roles and empty contents are all that the layout depends on.
            # Plays go through the same few layouts, which are rendered once.
            empty = (entry["content"] == "" for entry in chat)
            key = tuple(zip((line.role for line in lines), empty, strict=True))
        layout = self._layouts.get(key) if key is not None else None
        if layout is None:
            layout = self._layout(chat, described, len(slots.contents))
            if key is not None and len(self._layouts) < MOST_LAYOUTS:
                self._layouts[key] = layout
        return self._filled(layout, slots.contents, images)

    def _layout(
        self, chat: list[dict[str, Any]], tools: list[dict[str, Any]], slots: int
    ) -> Layout:
        """The rendered template, cut at its placeholders."""
        template = {"chat_template": PLAIN} if self.plain else {}
        refill()
        try:
            text = self.tokenizer.apply_chat_template(
                chat,
                tools=tools or None,  # some templates announce an empty list
                add_generation_prompt=True,
                tokenize=False,
                **template,
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
        layout = layout_of(text, slots)
        if layout is None:
            raise EngineError(
                f"{self.where}: the chat template changes contents, so they cannot be told from its"
                " own text"
            )
        return layout

    def _filled(
        self, layout: Layout, contents: list[tuple[str, bool]], images: list[Image]
    ) -> list[Piece]:
        """The pieces of a layout, with contents and images in it. Raises ImageRefused where the
        template shows fewer images than there are."""
        pieces: list[Piece] = []
        waiting = iter(images)
        for place, part in enumerate(layout):
            if isinstance(part, int):
                text, escaped = contents[part]
                text = quoted(text, layout, place) if escaped else text
                pieces[-1:], text = _glued(pieces[-1:], text)
                pieces.append((text, True))
            elif self.image_token and images:
                # the first piece stands in front of the first image
                for number, around in enumerate(part.split(self.image_token)):
                    image = next(waiting, None) if number else None
                    if image is not None:
                        pieces.append((image, True))
                    if around:
                        pieces.append((around, False))
            else:
                pieces.append((part, False))
        if next(waiting, None) is not None:
            raise ImageRefused(f"{self.where}: the chat template drops images")
        return pieces


def _glued(before: list[Piece], text: str) -> tuple[list[Piece], str]:
    """The piece in front of a content without the spaces at its end, and the content with them: a
    space belongs to the word behind it, as tokenizers see it."""
    template = before[0][0] if before and not before[0][1] else ""
    if not isinstance(template, str) or not template.endswith(" "):
        return before, text
    stripped = template.rstrip(" ")
    return [(stripped, False)] if stripped else [], template[len(stripped) :] + text


def _entry(line: Line, slots: Slots) -> dict[str, Any]:
    """A line as templates read it."""
    entry: dict[str, Any] = {"role": line.role}
    if any(isinstance(part, Image) for part in line.parts):
        entry["content"] = [
            (
                {"type": "image"}
                if isinstance(part, Image)
                else {"type": "text", "text": slots.put(part)}
            )
            for part in line.parts
        ]
    else:
        entry["content"] = slots.put("".join(part for part in line.parts if isinstance(part, str)))
    if line.role == "tool":
        entry["tool_call_id"] = slots.call_id(line.call_id)
    if line.calls:
        entry["tool_calls"] = [slots.call(call) for call in line.calls]
    return entry


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
