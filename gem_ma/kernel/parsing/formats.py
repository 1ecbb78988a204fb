"""The ways in which models write tool calls in their text, by name: text -> (the text around them,
the calls). How one call is written in each is in the modules that are named here.

hermes    `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` (`json_calls`)
json      the same between other marks, or a list of them alone (`json_calls`)
llama     `{"name": ..., "parameters": {...}}` and nothing else (`json_calls`)
mistral   `[TOOL_CALLS][{...}]`, `[TOOL_CALLS]name[ARGS]{...}` (`json_calls`)
xml       `<function=name><parameter=key>value</parameter></function>`, `<invoke name="...">`
          (`xml_calls`)
glm       `<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>`
          (`glm_calls`)
python    `[f(a=1, b="x"), g()]` alone, or between `<|tool_call_start|>` and its end
          (`python_calls`)
gemma     `<|tool_call>call:name{key:<|"|>text<|"|>}<tool_call|>` (`gemma_calls`)
harmony   `<|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>`,
          and deepseek, kimi, solar: a name, then JSON (`named_calls`)

The last call of a reply that its token limit cut is a `Malformed` of kind truncated_call, unless
its end is there. A model of any family may fall back to hermes, which is what `TOOLS_IN_TEXT` asks
for, and what calls that a template cannot show are shown as: that is read too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gem_ma.kernel.parsing.calls import Read, cut_off, numbered, too_many
from gem_ma.kernel.parsing.gemma_calls import GEMMA, gemma_call
from gem_ma.kernel.parsing.json_calls import (
    MARKED,
    PYTHON_TAG,
    TAG,
    TOOL_CALLS,
    Calls,
    hermes,
    is_list,
    is_object,
    json_calls,
    llama,
    mistral,
    opens_llama,
)
from gem_ma.kernel.parsing.named_calls import DEEPSEEK, GLM, HARMONY, KIMI, SOLAR, glm_call
from gem_ma.kernel.parsing.python_calls import list_end, python_calls
from gem_ma.kernel.parsing.strict_json import MAX_CALLS
from gem_ma.kernel.parsing.text import after_space
from gem_ma.kernel.parsing.xml_calls import FUNCTION, xml_call
from gem_ma.kernel.types import Malformed, Tool, ToolCall

Reader = Callable[[str, Sequence[Tool], bool], tuple[str, Calls]]
# (text, what opens the call, its number, tool -> schema) -> the call
OneCall = Callable[[str, re.Match[str], int, Mapping[str, Mapping[str, Any]]], Read]

HERMES = re.compile(r"<tool_call>\s*+\{")
_LIST_OF_CALLS = re.compile(r"\s*\[\s*[A-Za-z_][\w.]*\s*\(")
_PYTHON_START = re.compile(r"<\|python_start\|>|<\|tool_call_start\|>")
_PYTHON_END = re.compile(r"<\|python_end\|>|<\|tool_call_end\|>")


class Format(NamedTuple):
    """A way of writing calls. `opens`: what a text needs so that it may hold one, which costs no
    more than a search. `marks`: control tokens that a policy writes, whether or not its template
    shows them. `told_by`: words of a template that speaks of this format and shows no call."""

    opens: Callable[[str], bool]
    read: Reader
    marks: tuple[str, ...] = ()
    told_by: tuple[str, ...] = ()


def one_by_one(
    opening: re.Pattern[str],
    one_call: OneCall,
    words: tuple[str, ...],
    marks: tuple[str, ...] = (),
    told_by: tuple[str, ...] = (),
) -> Format:
    """The format whose calls each begin with `opening`, in which one of the `words` stands."""

    def read(text: str, tools: Sequence[Tool], cut: bool) -> tuple[str, Calls]:
        schemas = {tool.name: tool.parameters for tool in tools}
        calls: list[ToolCall | Malformed] = []
        rest: list[str] = []
        position = 0
        while (start := opening.search(text, position)) is not None:
            rest.append(text[position : start.start()])
            if len(calls) == MAX_CALLS:
                calls.append(too_many(text, start.start()))
                position = len(text)
                break
            call, position, whole = one_call(text, start, len(calls), schemas)
            # behind a call that was cut stands nothing
            is_cut = cut and not whole and opening.search(text, position) is None
            calls.append(cut_off(call, text[start.start() :]) if is_cut else call)
        rest.append(text[position:])
        return "".join(rest).strip(), tuple(calls)

    def opens(text: str) -> bool:
        # an expression with options in front takes a thousand times as long
        return any(word in text for word in words) and opening.search(text) is not None

    return Format(opens, read, marks, told_by)


def python(text: str, tools: Sequence[Tool], cut: bool) -> tuple[str, Calls]:
    """See the module."""
    opening = _PYTHON_START.search(text)
    if opening is None:
        if text.rstrip().endswith("]"):
            return "", _listed(text, 0, cut)
        if not cut:
            return text, ()
        return "", (cut_off(Malformed("", "bad_python: the list has no end"), text),)
    calls: list[ToolCall | Malformed] = []
    rest: list[str] = []
    position = 0
    while opening is not None and len(calls) <= MAX_CALLS:
        rest.append(text[position : opening.start()])
        start = after_space(text, opening.end())
        end = list_end(text, start) if text.startswith("[", start) else None
        closing = _PYTHON_END.search(text, start) if end is None else None
        stop = end or (closing.start() if closing else len(text))
        closing = _PYTHON_END.match(text, after_space(text, stop))
        calls += _listed(text[start:stop], len(calls), cut and closing is None)
        position = closing.end() if closing else stop
        opening = _PYTHON_START.search(text, position)
    if len(calls) > MAX_CALLS:
        calls[MAX_CALLS:] = [too_many(text, position)]
        position = len(text)
    return "".join([*rest, text[position:]]).strip(), tuple(calls)


def _listed(text: str, number: int, cut: bool) -> Calls:
    calls = python_calls(text)
    if cut and len(calls) == 1 and isinstance(calls[0], Malformed):
        return (cut_off(calls[0], text),)
    return tuple(numbered(call, number + place) for place, call in enumerate(calls))


FORMATS: Mapping[str, Format] = {
    "hermes": Format(lambda text: TAG in text or is_object(text), hermes, told_by=(TAG,)),
    "json": Format(
        lambda text: any(mark in text for mark in MARKED) or is_list(text),
        json_calls,
        (*MARKED, *(closing for closing, _ in MARKED.values())),
        tuple(MARKED),
    ),
    "llama": Format(
        lambda text: PYTHON_TAG in text or opens_llama(text), llama, (PYTHON_TAG,), (PYTHON_TAG,)
    ),
    "mistral": Format(lambda text: TOOL_CALLS in text, mistral, told_by=(TOOL_CALLS,)),
    "xml": one_by_one(
        FUNCTION,
        xml_call,
        ("function", "invoke", "tool_call>"),
        told_by=("<function=", "<invoke name="),
    ),
    "glm": one_by_one(
        GLM,
        glm_call,
        ("<tool_call",),
        ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        ("<arg_key>",),
    ),
    "python": Format(
        lambda text: bool(_PYTHON_START.search(text) or _LIST_OF_CALLS.match(text)),
        python,
        (
            *("<|tool_call_start|>", "<|tool_call_end|>"),
            *("<|python_start|>", "<|python_end|>"),
        ),
        (
            *("<|python_start|>", "<|tool_call_start|>", "func_name1("),
            *("<|tool_list_start|>", "<|tool_response_start|>"),  # LFM2 speaks of these alone
        ),
    ),
    "gemma": one_by_one(
        GEMMA,
        gemma_call,
        ("<|tool_call>", "<start_function_call>"),
        (
            *("<|tool_call>", "<tool_call|>", '<|"|>'),
            *("<start_function_call>", "<end_function_call>", "<escape>"),
        ),
        ("<|tool_call>", "<start_function_call>"),
    ),
    "harmony": one_by_one(
        HARMONY.opening,
        HARMONY.call,
        ("<|message|>",),
        ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>"),
        ("<|channel|>commentary",),
    ),
    "deepseek": one_by_one(
        DEEPSEEK.opening,
        DEEPSEEK.call,
        ("<｜tool▁call▁begin｜>",),
        (
            *("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"),
            *("<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),
        ),
        ("<｜tool▁call▁begin｜>",),
    ),
    "kimi": one_by_one(
        KIMI.opening,
        KIMI.call,
        ("<|tool_call_begin|>",),
        (
            *("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
            *("<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>"),
        ),
        ("<|tool_call_begin|>",),
    ),
    "solar": one_by_one(
        SOLAR.opening,
        SOLAR.call,
        ("<|tool_call:begin|>",),
        (
            *("<|tool_calls|>", "<|tool_call:begin|>", "<|tool_call:name|>"),
            *("<|tool_call:args|>", "<|tool_call:end|>", "<|calls|>"),
        ),
        ("<|tool_call:begin|>",),
    ),
}
