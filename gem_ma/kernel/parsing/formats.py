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

from gem_ma.kernel.parsing.calls import EXCERPT, Read, cut_off, numbered, too_many
from gem_ma.kernel.parsing.json_calls import (
    MARKED,
    PYTHON_TAG,
    TAG,
    TOOL_CALLS,
    Calls,
    hermes,
    is_list,
    is_object,
    json_arguments,
    json_calls,
    llama,
    mistral,
    opens_llama,
)
from gem_ma.kernel.parsing.python_calls import list_end, python_calls
from gem_ma.kernel.parsing.strict_json import DECODER, MAX_CALLS, MAX_DEPTH, MAX_TEXT
from gem_ma.kernel.parsing.text import after_space, clean
from gem_ma.kernel.parsing.xml_calls import FUNCTION, Parameter, add_typed, xml_call
from gem_ma.kernel.types import Malformed, Tool, ToolCall

# Calls whose name stands in front of their arguments, which are JSON: harmony (gpt-oss), DeepSeek,
# Kimi K2, Solar. A family is three expressions, see `Named`.

# One call of the GLM family: `<tool_call>name`, then `<arg_key>key</arg_key>` and
# `<arg_value>value</arg_value>` in turn, then `</tool_call>`. Values are text, typed by the tool's
# schema.

# some write `<tool_call:suffix>`, with the suffix in all tags
_SUFFIX = r"(?::\w{1,30})?"
GLM = re.compile(rf"(?:<tool_calls{_SUFFIX}>\s*+)?<tool_call{_SUFFIX}>(?!\s*+\{{)")
_NAMED_NAME = re.compile(rf"\s*+([^\s<>{{}}]++)\s*+(?:<tool_sep{_SUFFIX}>\s*+)?")
_NAMED_KEY = re.compile(
    rf"<arg_key{_SUFFIX}>(?P<key>[^<]*+)</arg_key{_SUFFIX}>\s*+<arg_value{_SUFFIX}>"
)
# a value ends where the next one or the call does
_VALUE_END = re.compile(
    rf"</arg_value{_SUFFIX}>\s*+(?=<arg_key{_SUFFIX}>|</tool_call{_SUFFIX}>|\Z)"
)
_NAMED_END = re.compile(rf"</tool_call{_SUFFIX}>(?:\s*+</tool_calls{_SUFFIX}>)?")
_NO_END = "bad_xml: a call holds <arg_key>, <arg_value> and </tool_call>"


def glm_call(
    text: str, opening: re.Match[str], number: int, schemas: Mapping[str, Mapping[str, Any]]
) -> Read:
    """The call that `opening` (of `GLM`) begins. `schemas`: tool -> its parameters."""
    raw = text[opening.start() : opening.end() + EXCERPT]
    following = GLM.search(text, opening.end())
    # a call without an end may not swallow the one behind it
    limit = following.start() if following else len(text)
    name = _NAMED_NAME.match(text, opening.end(), limit)
    if name is None:
        return _broken(text, opening.end(), limit, raw, "missing_name: a call opens with its name")
    position = name.end()
    if text.startswith("{", position):
        call, end = json_arguments(text, name[1], position, number)
        closing = _NAMED_END.match(text, after_space(text, end))
        if closing is None and isinstance(call, Malformed):
            return _broken(text, end, limit, call.text, call.reason)
        return Read(call, closing.end() if closing else end, closing is not None)
    properties = schemas.get(name[1], {}).get("properties")
    arguments: dict[str, Any] = {}
    fault = ""
    while True:
        closing = _NAMED_END.match(text, position)
        if closing is not None or (position >= len(text) and not fault):
            whole = ToolCall(f"call_{number}", name[1], arguments)
            end = closing.end() if closing else position
            return Read(Malformed(raw, fault) if fault else whole, end, closing is not None)
        key = _NAMED_KEY.match(text, position)
        value_end = _VALUE_END.search(text, key.end()) if key else None
        if key is None or value_end is None:
            return _broken(text, position, limit, raw, fault or _NO_END)
        schema = properties.get(key["key"]) if isinstance(properties, Mapping) else None
        position = value_end.end()
        value = Parameter(key["key"], text[key.end() : value_end.start()], position)
        wrong = add_typed(arguments, value, schema)
        fault = fault or wrong


def _broken(text: str, position: int, limit: int, raw: str, reason: str) -> Read:
    closing = _NAMED_END.search(text, position, max(position, limit))
    end = closing.end() if closing else max(position, limit)
    return Read(Malformed(raw, reason), end, closing is not None)


class Named(NamedTuple):
    """How a family writes calls. `opening` begins one, `name` matches from there to the arguments,
    `closing` ends it; `form` is what a message says of it."""

    opening: re.Pattern[str]
    name: re.Pattern[str]
    closing: re.Pattern[str]
    form: str

    def call(
        self,
        text: str,
        opening: re.Match[str],
        number: int,
        schemas: Mapping[str, Mapping[str, Any]],
    ) -> Read:
        """The call that `opening` begins."""
        raw = text[opening.start() : opening.end() + EXCERPT]
        following = self.opening.search(text, opening.end())
        # a call without an end may not swallow the one behind it
        limit = following.start() if following else len(text)
        name = self.name.match(text, after_space(text, opening.end()), limit)
        if name is None:
            reason = f"missing_name: a call is {self.form}"
            return self._broken(text, opening.end(), limit, Malformed(raw, reason))
        call, end = json_arguments(text, name[name.lastindex or 1], name.end(), number)
        closing = self.closing.match(text, after_space(text, end))
        if closing is not None:
            return Read(call, closing.end(), True)
        # behind whole arguments, what follows is text again
        if isinstance(call, ToolCall):
            return Read(call, end, False)
        return self._broken(text, end, limit, call)

    def _broken(self, text: str, position: int, limit: int, call: Malformed | ToolCall) -> Read:
        closing = self.closing.search(text, position, max(position, limit))
        end = closing.end() if closing else max(position, limit)
        return Read(call, end, closing is not None)


_WORD = r"([^\s<>{}|]{1,200})"
HARMONY = Named(
    # the name is part of what opens a call, since it tells one from any other message
    re.compile(
        r"(?:<\|start\|>assistant)?(?:<\|channel\|>\w{1,20})? ?to=(?=[^\s<>|]{1,200}"
        r"(?:<\|channel\|>\w{1,20})? {0,2}(?:<\|constrain\|>)? ?\w{0,20}<\|message\|>)"
    ),
    re.compile(
        r"(?:functions\.)?([^\s<>|]{1,200})"
        r"(?:<\|channel\|>\w{1,20})? {0,2}(?:<\|constrain\|>)? ?\w{0,20}<\|message\|>\s*+"
    ),
    re.compile(r"<\|call\|>|<\|end\|>|<\|return\|>"),
    "to=functions.name<|channel|>commentary <|constrain|>json<|message|>{...}<|call|>",
)
DEEPSEEK = Named(
    re.compile(r"(?:<｜tool▁calls▁begin｜>\s*+)?<｜tool▁call▁begin｜>"),
    re.compile(rf"(?:\w{{1,20}}<｜tool▁sep｜>{_WORD}\s*+```(?:json)?|{_WORD}<｜tool▁sep｜>)\s*+"),
    re.compile(r"(?:```\s*+)?<｜tool▁call▁end｜>(?:\s*+<｜tool▁calls▁end｜>)?"),
    "<｜tool▁call▁begin｜>name<｜tool▁sep｜>{...}<｜tool▁call▁end｜>",
)
KIMI = Named(
    re.compile(r"(?:<\|tool_calls_section_begin\|>\s*+)?<\|tool_call_begin\|>"),
    re.compile(
        r"(?:functions\.)?([^\s<>{}|:]{1,200})(?::\d{1,9})?\s*+"
        r"<\|tool_call_argument_begin\|>\s*+"
    ),
    re.compile(r"<\|tool_call_end\|>(?:\s*+<\|tool_calls_section_end\|>)?"),
    "<|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{...}<|tool_call_end|>",
)
SOLAR = Named(
    re.compile(r"(?:<\|tool_calls\|>\s*+)?<\|tool_call:begin\|>"),
    re.compile(r"[^\s<>|]{0,200}<\|tool_call:name\|>([^\s<>{}|]{1,200})<\|tool_call:args\|>\s*+"),
    re.compile(r"<\|tool_call:end\|>(?:\s*+<\|calls\|>)?"),
    "<|tool_call:begin|>id<|tool_call:name|>name<|tool_call:args|>{...}<|tool_call:end|>",
)


# One call of Gemma's: `<|tool_call>call:name{key:<|"|>text<|"|>,other:3}<tool_call|>`. Texts stand
# between quotes that are control tokens; keys have none; the rest is as in JSON.

GEMMA = re.compile(r"<\|tool_call>|<start_function_call>")
_NAME = re.compile(r"\s*+(?:call:)?([^\s<>{}|]{1,200})(?=\{)")
# the result begins with a token by which the turn of a call ends
_END = re.compile(r"<tool_call\|>(?:<\|tool_response>)?|<end_function_call>")
_QUOTE = re.compile(r'<\|"\|>|<escape>')
_KEY = re.compile(r"([^:{}\[\],<]++):")
_PLAIN = re.compile(r"[^,\]}]++")


class _Refused(Exception):
    """What cannot be read; its text is the reason."""


def gemma_call(
    text: str, opening: re.Match[str], number: int, schemas: Mapping[str, Mapping[str, Any]]
) -> Read:
    """The call that `opening` (of `GEMMA`) begins. `schemas`: tool -> its parameters."""
    raw = text[opening.start() : opening.end() + EXCERPT]
    name = _NAME.match(text, opening.end())
    position = opening.end()
    try:
        if name is None:
            raise _Refused("missing_name: a call is call:name{key:value}")
        arguments, position = _value(text, name.end(), 1)
    except _Refused as refused:
        end = _END.search(text, position)
        following = GEMMA.search(text, position)
        # a call without an end may not swallow the one behind it
        if following is not None and (end is None or following.start() < end.start()):
            return Read(Malformed(raw, str(refused)), following.start(), False)
        return Read(Malformed(raw, str(refused)), end.end() if end else len(text), end is not None)
    typed: dict[str, Any] = {}
    fault = _typed(arguments, schemas.get(name[1], {}).get("properties"), typed)
    end = _END.match(text, after_space(text, position))
    call = Malformed(raw, fault) if fault else ToolCall(f"call_{number}", name[1], typed)
    return Read(call, end.end() if end else position, end is not None)


def _typed(arguments: Mapping[str, Any], properties: Any, typed: dict[str, Any]) -> str:
    """Fills `typed`, where a text for which a schema wants no text is read as what it wants: the
    smaller Gemma quotes all values. Gives what is wrong with one."""
    for key, value in arguments.items():
        typed[key] = value
        if isinstance(value, str):
            del typed[key]
            schema = properties.get(key) if isinstance(properties, Mapping) else None
            if fault := add_typed(typed, Parameter(key, value, 0), schema):
                return fault
    return ""


def _value(text: str, position: int, depth: int) -> tuple[Any, int]:
    """The value that begins here, and where it ends."""
    if depth > MAX_DEPTH:
        raise _Refused(f"bad_arguments: nested deeper than {MAX_DEPTH}")
    position = after_space(text, position)
    quote = _QUOTE.match(text, position)
    if quote is not None:
        end = text.find(quote.group(), quote.end())
        if end < 0:
            raise _Refused("bad_arguments: a text has no end")
        return clean(text[quote.end() : end]), end + len(quote.group())
    if text[position : position + 1] in ("{", "["):
        return _items(text, position, depth)
    plain = _PLAIN.match(text, position)
    try:
        word = plain.group().strip() if plain else ""
        value = DECODER.decode("null" if word == "None" else word)
    except (ValueError, RecursionError) as error:
        raise _Refused(f"bad_arguments: {str(error)[:100]}") from None
    if plain is None or isinstance(value, (dict, list)):
        raise _Refused("bad_arguments: a value is missing")
    return value, plain.end()


def _items(text: str, position: int, depth: int) -> tuple[Any, int]:
    """The object or the list that begins here, and where it ends."""
    keyed = text[position] == "{"
    closing = "}" if keyed else "]"
    items: dict[Any, Any] = {}
    position = after_space(text, position + 1)
    while not text.startswith(closing, position):
        key: Any = len(items)
        if keyed:
            key, position = _key(text, position)
        if key in items:
            raise _Refused(f"bad_arguments: key {str(key)[:50]!r} stands twice")
        items[key], position = _value(text, position, depth + 1)
        position = after_space(text, position)
        if text.startswith(",", position):
            position = after_space(text, position + 1)
        elif not text.startswith(closing, position):
            raise _Refused("bad_arguments: values are parted by commas")
    return (items if keyed else [*items.values()]), position + 1


def _key(text: str, position: int) -> tuple[str, int]:
    if _QUOTE.match(text, position):
        key, position = _value(text, position, 1)
        if not text.startswith(":", position):
            raise _Refused("bad_arguments: a key is followed by :")
        return key, position + 1
    plain = _KEY.match(text, position)
    if plain is None:
        raise _Refused("bad_arguments: a key is followed by :")
    return clean(plain[1].strip()), plain.end()


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


def parse_tool_calls(
    text: str, tool_format: str = "hermes", *, tools: Sequence[Tool] = (), finish: str = "stop"
) -> tuple[str, Calls]:
    """Tool calls in `text`, in order, and the text around them; `tool_format` is a key of
    `FORMATS`, described in `gem_ma.kernel.parsing.formats`.

    What cannot be read is a `Malformed` whose reason opens with its kind: bad_json, bad_xml,
    bad_python, not_object, missing_name, bad_arguments, too_many, too_large; with `finish="length"`
    also truncated_call, for a last call that the limit cut. `tools` give the types of xml values. A
    call whose arguments were decoded twice says so in `repaired`. Raises ValueError for an unknown
    format only.

    >>> parse_tool_calls('[f(a=1)]', "python")
    ('', (ToolCall(id='call_0', name='f', arguments={'a': 1}),))
    """
    if tool_format not in FORMATS:
        raise ValueError(
            f"no tool format is called {tool_format!r}; formats are {', '.join(FORMATS)}"
        )
    text = clean(text)
    reader = FORMATS[tool_format]
    # most text holds no call; a search is cheaper than a reader
    called = reader.opens(text)
    falls_back = tool_format != "hermes" and HERMES.search(text)
    if not called and not falls_back:
        return text, ()
    if len(text) > MAX_TEXT:  # plain text may be long
        reason = f"too_large: {len(text)} characters, the limit is {MAX_TEXT}"
        return "", (Malformed(text[:EXCERPT], reason),)
    cut = finish == "length"
    rest, calls = reader.read(text, tools, cut) if called else (text, ())
    if falls_back and HERMES.search(rest):
        rest, more = FORMATS["hermes"].read(rest, tools, cut)
        calls += tuple(numbered(call, len(calls) + place) for place, call in enumerate(more))
    return rest, calls
