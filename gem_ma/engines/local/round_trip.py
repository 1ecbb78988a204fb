"""Which calls a chat template shows so that a reader reads them back, found out when a model is
opened.

A call with texts, numbers and objects, a call without arguments, and both at once go through the
template and the readers. The first format whose reader gives back what went in is the one that the
policy writes. Where none does, calls are texts (`ChatTemplate.show_calls`). Costs some
milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from gem_ma.engines.local.answers import ME, answers, text_of
from gem_ma.engines.local.chat_template import MANY, ChatTemplate
from gem_ma.engines.local.template_lines import Writer, in_tags
from gem_ma.engines.local.template_slots import Mark, Shape
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.parsing import FORMATS
from gem_ma.kernel.parsing.json_calls import MARKED, PYTHON_TAG, TOOL_CALLS
from gem_ma.kernel.parsing.reasoning import split_reasoning
from gem_ma.kernel.types import Malformed, Message, Tool, ToolCall

_NAME = "zqtool"  # no template holds this word
TOOL = Tool(
    _NAME,
    "looks",
    {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "digits": {"type": "string"},
            "number": {"type": "integer"},
            "object": {"type": "object"},
        },
    },
)
FULL = ToolCall(
    "call_0",
    _NAME,
    {"text": "a \"b\" 'c'\n<d>", "digits": "12", "number": 3, "object": {"x": ["y", 1, True]}},
)
EMPTY = ToolCall("call_1", _NAME, {})
IDS = ("", "short", "named")
# the plainest first
SHAPES = tuple(Shape(as_text=as_text, ids=ids) for as_text in (False, True) for ids in IDS)


def settle(template: ChatTemplate, ends: Mapping[str, int], wanted: str, opened: bool) -> str:
    """Settles how the template is handed calls, and gives the format that its policy writes:
    `wanted`, or with `auto` the one that reads what the template writes. `opened`: the prompt opens
    a thought. Raises ConfigError where the wanted format does not read it."""
    example = ""
    spoken = ""  # the format that the template speaks of, where it does not write another
    shapes = SHAPES if "tool_calls" in template.source else ()
    formats = tuple(FORMATS) if wanted == "auto" else (wanted,)
    plain = template.shape
    for shape in shapes:
        template.shape = replace(shape, parts=plain.parts, no_tools=plain.no_tools)
        template.show_calls(True)
        written = list(_written(template, ends, (FULL,)))
        example = example or next((text for text in written if _NAME in text), "")
        tool_format = _reader(formats, written, (FULL,), opened)
        if example and not tool_format and not spoken:
            spoken = _reader(
                (_told_of(template),), _written(template, ends, (EMPTY,)), (EMPTY,), opened
            )
        chosen = (tool_format,) if tool_format else ()
        if _reader(chosen, _written(template, ends, (EMPTY,)), (EMPTY,), opened):
            both = (FULL, EMPTY)
            two = _reader(chosen, _written(template, ends, both), both, opened)
            template.calls_at_once = MANY if two else 1
            # where tools are told of in text, calls are written as that text asks for them; what
            # the model may write of its own is read all the same
            native = template.shows_tools or wanted != "auto" or tool_format == "hermes"
            template.show_calls(native, _writer(template, tool_format) if native else in_tags)
            return tool_format
    template.shape = plain
    if example and wanted != "auto":
        raise ConfigError(
            f"{template.where}: tool_format: {wanted} does not read the calls that the chat"
            f" template writes, such as {example.strip()[:80]!r}; leave it out"
        )
    if wanted == "auto":
        # spoken of, and not written in another form
        wanted = spoken if example else _told_of(template)
    return _in_text(template, wanted)


def same(calls: Sequence[ToolCall | Malformed], others: Sequence[ToolCall | Malformed]) -> bool:
    """Whether these are calls of the same tools with the same arguments."""

    def facts(call: ToolCall | Malformed) -> str:
        if isinstance(call, Malformed):
            return ""
        # as JSON, which tells 1, 1.0 and true from each other
        return f"{call.name} {json.dumps(call.arguments, sort_keys=True)}"

    return [*map(facts, calls)] == [*map(facts, others)]


def _reader(
    formats: Sequence[str], written: Iterable[str], calls: Sequence[ToolCall], opened: bool
) -> str:
    """The first format that reads these calls out of one of the texts by itself, "" for none."""
    for text in written:
        answer = split_reasoning(text, opened)[1]
        for name in filter(None, formats):
            tool_format = FORMATS[name]
            if tool_format.opens(answer):
                rest, read = tool_format.read(answer, (TOOL,), False)
                if not rest and same(read, calls):
                    return name
    return ""


def _written(
    template: ChatTemplate, ends: Mapping[str, int], calls: Sequence[ToolCall]
) -> Iterator[str]:
    """The calls as the template writes them."""
    message = Message("", ME, tuple(calls))
    # templates raise what they like
    with suppress(EngineError):
        for pieces, _ in answers(template, ends, message, (TOOL,), template.ways[:1]):
            yield text_of(pieces)


def _in_text(template: ChatTemplate, tool_format: str) -> str:
    """Settles the same for a template that shows no calls, or in a form that nobody reads."""
    # tools that the template shows go with calls as it speaks of them; else both are texts
    template.shows_tools = template.shows_tools and bool(tool_format)
    template.show_calls(False, _writer(template, tool_format) if template.shows_tools else in_tags)
    return tool_format or "hermes"


def settle_words(template: ChatTemplate, wanted: str) -> str:
    """The same for a tokenizer that cannot write JSON: calls are the template's, and tools are
    what the policy has learned of them."""
    template.shows_tools = True
    template.show_calls("tool_calls" in template.source)
    return (_told_of(template) or "hermes") if wanted == "auto" else wanted


def _told_of(template: ChatTemplate) -> str:
    """The format that the words of a template speak of, "" for none."""
    # its own words first: a tokenizer may have tokens of many families
    controls = "".join(template.controls.values()) if template.shows_tools else ""
    for words in (template.source, controls):
        # hermes last: others write other things between its tags
        for name in reversed(list(FORMATS)):
            if any(word in words for word in FORMATS[name].told_by):
                return name
    return ""


def _writer(template: ChatTemplate, tool_format: str) -> Writer:
    """How calls that the template cannot show are written."""
    words = template.source + "".join(template.controls.values())
    if tool_format == "llama":
        return _llama
    if tool_format == "mistral":
        return partial(_json, mark=TOOL_CALLS)
    if tool_format == "python":
        return partial(_python, marked="<|tool_" in words)
    if tool_format == "json":
        mark = next((mark for mark in MARKED if mark in words), "")
        return partial(_json, mark=mark) if mark and MARKED[mark][1].names else in_tags
    return in_tags


def _llama(calls: Sequence[ToolCall]) -> list[str]:
    bodies = [{"name": call.name, "parameters": call.arguments} for call in calls]
    return [Mark(PYTHON_TAG), "; ".join(json.dumps(body, ensure_ascii=False) for body in bodies)]


def _json(calls: Sequence[ToolCall], mark: str) -> list[str]:
    bodies = [{"name": call.name, "arguments": call.arguments} for call in calls]
    return [Mark(mark), json.dumps(bodies, ensure_ascii=False)]


def _python(calls: Sequence[ToolCall], marked: bool) -> list[str]:
    written = [
        f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"
        for call in calls
    ]
    text = f"[{', '.join(written)}]"
    return [Mark("<|tool_call_start|>"), text, Mark("<|tool_call_end|>")] if marked else [text]
