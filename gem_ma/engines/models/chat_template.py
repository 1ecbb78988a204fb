"""Messages -> the pieces of a prompt, through a model's own chat template: what is template, what
is content, what is an image.

Every content is a placeholder while the template runs (`Slots`) and is put in afterwards: nothing
that was said can become a control token, and no template can change it. What a template cannot show
is shown more plainly, step by step (`Way`):

1. Several user messages in a row become one, with a line for each; a system message that is not in
   front is shown as the user's.
2. Where a template wants roles to alternate, an agent's own messages in a row become one too.
3. Calls and results that it refuses or drops are text: `<tool_call>` behind the agent's words,
   `<tool_response>` as the user's. A template that does not show tools gets them as text in front
   of the briefing (`TOOLS_IN_TEXT`).
4. A template without a system role shows briefings as the user's.

What a template drops it refuses: no prompt lacks a content. Which calls it shows, and in what shape
it takes messages, is found out by `gem_ma.engines.models.answers`.

Another agent's message starts with `name: `, unless the name is the chat role itself. A template
that takes a date (`date_string`) or the time (`strftime_now`) gets one fixed day unless the options
name another: the same conversation has the same ids tomorrow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, product
from typing import Any

from gem_ma.engines.wording import (
    BEFORE_RESULT,
    BEHIND_RESULT,
    call_as_text,
    joins,
    role_of,
    speaker,
    tools_as_text,
)
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.types import Image, Malformed, Message, Tool, ToolCall

# a placeholder is this word and six digits: survives JSON, case and trimming filters of templates
SLOT = "zqslot"
_SLOTS = re.compile(SLOT + r"(\d{6})")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,200}")

Layout = list[str | int]  # a rendered template: its own text, or the number of a content


@dataclass(frozen=True, slots=True)
class Shape:
    """In what shape a template takes messages. `parts`: contents as lists of parts. `as_text`:
    arguments as JSON text. `ids`: of calls, as they are, `short` (nine letters and digits), or
    `named` (`functions.name:0`). `no_tools`: an empty list where there are none."""

    parts: bool = False
    as_text: bool = False
    ids: str = ""
    no_tools: bool = False


class Mark(str):
    """A control token that a policy writes itself, in a text that shows what it wrote."""

    __slots__ = ()


class Slots:
    """The contents of one conversation, in the order of their slots. `controls`: texts of control
    tokens. `needed`: the numbers of those that a prompt may not lack."""

    def __init__(self, controls: Collection[str], shape: Shape) -> None:
        self.controls = controls
        self.shape = shape
        # (text, it may stand inside a string of the template)
        self.contents: list[tuple[str, bool]] = []
        self.needed: set[int] = set()
        self._called: dict[str, tuple[str, str]] = {}  # id of a call -> its id here, its name

    def put(self, text: str, *, escaped: bool = False, needed: bool = True) -> str:
        """The slot of a text; an empty text stays one, since templates ask for it."""
        if not text:
            return ""
        if needed:
            self.needed.add(len(self.contents))
        self.contents.append((text if isinstance(text, Mark) else clean(text), escaped))
        return f"{SLOT}{len(self.contents) - 1:06d}"

    def content(self, text: str) -> Any:
        """A content as the template takes it."""
        return [{"type": "text", "text": text}] if self.shape.parts else text

    def name(self, text: str, *, needed: bool = False) -> str:
        """A name of a tool, which templates look at; one that is not a plain name is a content."""
        plain = not text or _PLAIN_NAME.fullmatch(text)
        return text if plain else self.put(text, escaped=True, needed=needed)

    def call(self, call: ToolCall, number: int) -> dict[str, Any]:
        """The call of this number in its message, as templates read it."""
        # the name first: slots are counted, and layouts of equal conversations are equal
        name = self.name(call.name, needed=True)
        arguments = self._arguments(call.arguments)
        if self.shape.as_text:
            arguments = json.dumps(arguments, ensure_ascii=False)
        call_id = self._call_id(call.id)
        if self.shape.ids == "named":
            call_id = f"functions.{name}:{number}"
        self._called[call.id] = (call_id, name)
        function = {"name": name, "arguments": arguments}
        return {"type": "function", "id": call_id, "function": function}

    def result(self, call_id: str) -> dict[str, Any]:
        """What templates read of the call that a result belongs to; its name where it is here."""
        here, name = self._called.get(call_id) or (self._call_id(call_id), "")
        return {"tool_call_id": here, **({"name": name} if name else {})}

    def _call_id(self, call_id: str) -> str:
        if self.shape.ids == "short" and not re.fullmatch(r"[A-Za-z0-9]{9}", call_id):
            call_id = (re.sub(r"[^A-Za-z0-9]", "", call_id) + "0" * 9)[:9]
        return self.name(call_id)

    def tool(self, tool: Tool) -> dict[str, Any]:
        """A tool as templates read it."""
        schema = tool.schema
        schema["function"] |= {
            "description": self.put(tool.description, escaped=True, needed=False),
            "parameters": self._schema(schema["function"]["parameters"]),
        }
        return schema

    def _arguments(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.put(value, escaped=True)
        if isinstance(value, Mapping):
            return {
                self.put(key, escaped=True): self._arguments(item) for key, item in value.items()
            }
        return [self._arguments(item) for item in value] if isinstance(value, list) else value

    def _schema(self, value: Any) -> Any:
        """A schema as it stands, since templates look into it; a text in it that holds a control
        token is a content."""
        if isinstance(value, str):
            marked = any(control in value for control in self.controls)
            return self.put(value, escaped=True, needed=False) if marked else clean(value)
        if isinstance(value, Mapping):
            return {self._schema(key): self._schema(item) for key, item in value.items()}
        return [self._schema(item) for item in value] if isinstance(value, list) else value


def layout_of(text: str, slots: int) -> Layout | None:
    """A rendered template, cut at its placeholders; None where one of them was changed."""
    # `split` with a group: template text and numbers take turns
    layout: Layout = [
        int(part) if place % 2 else part for place, part in enumerate(_SLOTS.split(text)) if part
    ]
    unknown = any(part >= slots for part in layout if isinstance(part, int))
    # a filter such as `capitalize` leaves the word in another case
    changed = any(SLOT in part.lower() for part in layout if isinstance(part, str))
    return None if unknown or changed else layout


def quoted(text: str, layout: Sequence[str | int], place: int) -> str:
    """A text as the template writes it there: escaped inside the quotes of a string of JSON or
    Python, else as it is."""
    before = layout[place - 1] if place else ""
    after = layout[place + 1] if place + 1 < len(layout) else ""
    if not (isinstance(before, str) and isinstance(after, str)):
        return text
    if before.endswith("'") and after.startswith("'"):
        return json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'")
    if not (before.endswith('"') and after.startswith(('"', '\\"'))):
        return text
    inside = json.dumps(text, ensure_ascii=False)[1:-1]
    # JSON within JSON: some templates write the arguments as a text
    twice = before.endswith('\\"')
    return json.dumps(inside, ensure_ascii=False)[1:-1] if twice else inside


@dataclass(slots=True)
class Line:
    """One entry of the list that a template walks over."""

    role: str
    parts: list[str | Image]
    calls: list[ToolCall] = field(default_factory=list)
    call_id: str = ""


# calls -> the parts of a text, of which some are `Mark`
Writer = Callable[[Sequence[ToolCall]], Sequence[str]]


def in_tags(calls: Sequence[ToolCall]) -> list[str]:
    """Calls as `TOOLS_IN_TEXT` asks for them."""
    return ["\n".join(map(call_as_text, calls))]


@dataclass(frozen=True, slots=True)
class Way:
    """How plainly a conversation is shown; the fields are steps of the list above."""

    joined: bool = False
    write: Writer | None = None  # calls are texts, written so
    results_in_text: bool = False
    system_role: bool = True


class ImageRefused(EngineError):
    """An image for a policy that cannot see it; no plainer way of showing helps."""


def lines_of(
    way: Way, agent: str, messages: Sequence[Message], *, sees_images: bool, where: str
) -> list[Line]:
    """The lines of a conversation. Raises ImageRefused, naming `where`, for an image that the
    policy cannot see."""
    lines: list[Line] = []
    for message in messages:
        line = _line(way, agent, message, lines, sees_images, where)
        last = lines[-1] if lines else None
        # some templates want answers in a row as one; behind a call stands its result
        follows = line.role == "assistant" and way.joined
        if last is not None and (
            joins(line.role, last.role) or (follows and last.role == line.role and not last.calls)
        ):
            last.parts += ["\n", *line.parts]
            last.calls += line.calls
        else:
            lines.append(line)
    return lines


def _line(
    way: Way,
    agent: str,
    message: Message,
    before: Sequence[Line],
    sees_images: bool,
    where: str,
) -> Line:
    role = role_of(agent, message, (line.role for line in before))
    parts = _parts(agent, message, sees_images, where)
    calls = [call for call in message.tool_calls if isinstance(call, ToolCall)]
    # what could not be read as a call is shown as it was written
    text = "".join(clean(call.text) for call in message.tool_calls if isinstance(call, Malformed))
    if role == "tool" and way.results_in_text:
        # the user's, since every template knows that role
        role = "user"
        parts = [BEFORE_RESULT, *parts, BEHIND_RESULT]
    parts = [*parts, text] if text else parts
    if calls and way.write:
        # an answer of calls alone begins with the first of them
        parts = [*parts, "\n"] if parts != [""] else []
        parts += way.write(calls)
        calls = []
    if role == "system" and not way.system_role:
        role = "user"
    return Line(role, parts, calls, message.call_id)


def _parts(agent: str, message: Message, sees_images: bool, where: str) -> list[str | Image]:
    name = speaker(agent, message)
    if isinstance(message.content, str) or not any(
        isinstance(part, Image) for part in message.content
    ):
        return [clean(name + message.text)]
    if not sees_images:
        raise ImageRefused(
            f"{where} reads text only, and agent {agent!r} was shown an image; use a policy that"
            " sees images"
        )
    # an empty text would be a content too, and change the layout
    parts: list[str | Image] = [clean(name)] if name else []
    return [
        *parts,
        *(part if isinstance(part, Image) else clean(part) for part in message.content),
    ]


def add_tools(way: Way, lines: list[Line], tools: Sequence[Tool]) -> None:
    """Puts the tools as text in front of the briefing, for a template that cannot show them."""
    text = tools_as_text(tools)
    # behind the words of a briefing, which say who the agent is; in front of what a user asks
    role = "system" if way.system_role else "user"
    if not lines or lines[0].role != role:
        lines.insert(0, Line(role, [text]))
    elif role == "system":
        lines[0].parts += ["\n", text]
    else:
        lines[0].parts = [text, "\n", *lines[0].parts]


# what templates that take a date print, where `template: {date_string: ...}` says nothing else
DAY = "26 Jul 2024"
NOW = datetime(2024, 7, 26)  # the same day, for templates that ask for the time
MOST_TEXT = 5_000_000  # characters of a template, and of what it renders
MOST_LAYOUTS = 4096  # layouts kept
MANY = 1 << 30
PLAIN = (  # `template: plain`, for models without a template of their own
    "{{- bos_token or '' -}}{%- for message in messages -%}{{- message['role'] | capitalize + ': '"
    " + message['content'] + (eos_token if message['role'] == 'assistant' else '') + '\\n\\n'"
    " -}}{%- endfor -%}{%- if add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%}"
)

Piece = tuple[str | Image, bool]  # (text or image, it is a content and not template)


class ChatTemplate:
    """Renders conversations with the chat template of `tokenizer`, or with `PLAIN` where `options`
    is "plain". `image_token`: the text that stands for an image; None for a model that reads text
    only. Raises ConfigError without a template, or it cannot show a user message."""

    def __init__(
        self,
        tokenizer: Any,
        options: Mapping[str, Any] | str | None,
        where: str,
        image_token: str | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.where = where
        self.image_token = image_token
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
        if len(self.source) > MOST_TEXT:
            raise ConfigError(
                f"{where}: the chat template has {len(self.source)} characters; {MOST_TEXT} are"
                " read; use another model, or template: plain"
            )
        self.options: dict[str, Any] = (
            {} if options is None or isinstance(options, str) else dict(options)
        )
        if "date_string" in self.source:
            self.options.setdefault("date_string", DAY)
        self.controls = control_tokens(tokenizer)
        self._layouts: dict[tuple[Any, ...], Layout] = {}
        self.ways: tuple[Way, ...] = (Way(),)
        self.shape = Shape()
        self.calls_at_once = MANY  # calls of one message that the template shows
        # found out by trial renderings
        self._learn_texts()
        self.shows_tools = self._shows_tool()
        self.show_calls(False)

    def _learn_texts(self) -> None:
        hello = Message("hello")
        refusal: EngineError | None = None
        for no_tools, parts in product((False, True), (False, True)):
            self.shape = Shape(parts=parts, no_tools=no_tools)
            try:
                self.pieces("x", (hello,))
                break
            except EngineError as error:
                refusal = refusal or error
        else:
            raise ConfigError(
                f"{self.where}: the chat template cannot render a user message:"
                f" {str(refusal).removeprefix(f'{self.where}: ')}"
            ) from refusal
        self.system_role = self._takes((Message.system("hello"), hello))
        self._alternates = not self._takes((hello, Message("a", "x"), Message("b", "x"), hello))

    def show_calls(self, native: bool, write: Writer = in_tags) -> None:
        """From now on calls are for the template to show (`native`), or texts that are written
        so; as such they are also shown where the template refuses them."""
        joined = self._alternates
        system = self.system_role
        ways = [Way(joined, None, False, system)] if native else []
        for written in (write, in_tags):
            # tools that the template shows have results that it shows, too
            ways += [Way(joined, written, False, system)] if self.shows_tools else []
            ways += [Way(joined, written, True, system), Way(True, written, True, system)]
            ways.append(Way(True, written, True, False))
        self.ways = tuple(dict.fromkeys(ways))
        self._layouts.clear()

    def _takes(self, messages: Sequence[Message]) -> bool:
        try:
            self.pieces("x", messages)
        except EngineError:
            return False
        return True

    def _shows_tool(self) -> bool:
        tool = Tool("zqtool", "looks")  # no template holds this word
        self.shows_tools = True
        try:
            pieces = self.pieces("x", (Message("hello"),), (tool,))
        except EngineError:
            return False
        return any(
            "zqtool" in part for part, content in pieces if isinstance(part, str) and not content
        )

    # -- pieces -----------------------------------------------------------------------------------

    def pieces(
        self,
        agent: str,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        ways: Sequence[Way] = (),
    ) -> list[Piece]:
        """The whole conversation with its generation prompt, in the first of these ways, or of
        all, that the template takes. Raises EngineError where it takes none."""
        refusal: EngineError | None = None
        for way in ways or self.ways:
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
        slots = Slots(self.controls.values(), self.shape)
        lines = lines_of(way, agent, messages, sees_images=bool(self.image_token), where=self.where)
        if any(len(line.calls) > self.calls_at_once for line in lines):
            raise EngineError(f"{self.where}: the chat template shows one call in a message")
        described: list[dict[str, Any]] = []
        if tools and self.shows_tools:
            described = [slots.tool(tool) for tool in tools]
        elif tools:
            add_tools(way, lines, tools)
        images = [part for line in lines for part in line.parts if isinstance(part, Image)]
        chat: list[dict[str, Any]] = []
        # contents are slots, so a layout depends on roles, ids and the number of slots alone
        key: tuple[Any, ...] | None = ()
        if described or images or any(line.calls for line in lines):
            key = None
        for line in lines:
            chat.append(_entry(line, slots))
            if key is not None:
                key = (*key, line.role, line.call_id, len(slots.contents))
        layout = self._layouts.get(key) if key is not None else None
        if layout is None:
            layout = self._layout(chat, described, slots)
            if key is not None and len(self._layouts) < MOST_LAYOUTS:
                self._layouts[key] = layout
        return self._filled(layout, slots.contents, images)

    def _stop_clock(self, tools: list[dict[str, Any]]) -> None:
        """`strftime_now` gives one day: the same conversation has the same ids tomorrow."""
        if "strftime_now" in self.source:
            from transformers.utils import chat_template_utils

            source = self.tokenizer.get_chat_template(None, tools or None)
            # kept by the library, which turns a function among the options into its text
            compiled = chat_template_utils._compile_jinja_template(source)
            compiled.globals["strftime_now"] = NOW.strftime

    def _layout(
        self, chat: list[dict[str, Any]], tools: list[dict[str, Any]], slots: Slots
    ) -> Layout:
        """The rendered template, cut at its placeholders."""
        template = {"chat_template": PLAIN} if self.plain else {}
        self._stop_clock(tools)
        try:
            text = self.tokenizer.apply_chat_template(
                chat,
                # some templates announce an empty list, and some want one
                tools=tools or ([] if self.shape.no_tools else None),
                add_generation_prompt=True,
                tokenize=False,
                **template,
                **self.options,
            )
        except Exception as error:  # templates raise what they like
            raise EngineError(
                f"{self.where}: the chat template refused the conversation: {type(error).__name__}:"
                f" {error}"
            ) from error
        if len(text) > MOST_TEXT:
            raise EngineError(
                f"{self.where}: the chat template makes {len(text)} characters; {MOST_TEXT} fit"
            )
        layout = layout_of(text, len(slots.contents))
        if layout is None:
            raise EngineError(
                f"{self.where}: the chat template changes contents, so they cannot be told from its"
                " own text"
            )
        if not slots.needed.issubset(layout):
            raise EngineError(f"{self.where}: the chat template drops a content")
        return layout

    def _filled(
        self, layout: Layout, contents: list[tuple[str, bool]], images: list[Image]
    ) -> list[Piece]:
        """The pieces of a layout. Raises ImageRefused where it shows too few images."""
        pieces: list[Piece] = []
        waiting = iter(images)
        for place, part in enumerate(layout):
            if isinstance(part, int):
                text, escaped = contents[part]
                text = quoted(text, layout, place) if escaped else text
                if isinstance(text, Mark):
                    pieces.append((str(text), False))
                    continue
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
        # a text without marks is one slot
        texts = groupby((part for part in line.parts if isinstance(part, str)), _is_mark)
        entry["content"] = slots.content(
            "".join(
                slots.put(Mark("".join(run)) if marked else "".join(run)) for marked, run in texts
            )
        )
    if line.role == "tool":
        entry |= slots.result(line.call_id)
    if line.calls:
        entry["tool_calls"] = [slots.call(call, place) for place, call in enumerate(line.calls)]
    return entry


def _is_mark(part: str) -> bool:
    return isinstance(part, Mark)


def control_tokens(tokenizer: Any) -> dict[int, str]:
    """All control tokens of a tokenizer by id, by its settings or its vocabulary."""
    named = dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    return named | {
        token: str(added)
        for token, added in tokenizer.added_tokens_decoder.items()
        if added.special
    }
