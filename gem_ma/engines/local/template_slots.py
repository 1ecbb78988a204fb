"""Slots: what stands in a prompt for a content while a template runs.

Every text that somebody wrote becomes a placeholder before the template sees it, and is put in
afterwards. So nothing that was said can become a control token, and no template can change it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gem_ma.kernel.parsing import clean
from gem_ma.kernel.types import Tool, ToolCall

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
