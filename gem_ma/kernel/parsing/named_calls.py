"""Calls whose name stands in front of their arguments, which are JSON: harmony (gpt-oss), DeepSeek,
Kimi K2, Solar. A family is three expressions, see `Named`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from gem_ma.kernel.parsing.calls import EXCERPT, Read
from gem_ma.kernel.parsing.json_calls import json_arguments
from gem_ma.kernel.parsing.text import after_space
from gem_ma.kernel.parsing.xml_calls import Parameter, add_typed
from gem_ma.kernel.types import Malformed, ToolCall

# One call of the GLM family: `<tool_call>name`, then `<arg_key>key</arg_key>` and
# `<arg_value>value</arg_value>` in turn, then `</tool_call>`. Values are text, typed by the tool's
# schema.

# some write `<tool_call:suffix>`, with the suffix in all tags
_SUFFIX = r"(?::\w{1,30})?"
GLM = re.compile(rf"(?:<tool_calls{_SUFFIX}>\s*+)?<tool_call{_SUFFIX}>(?!\s*+\{{)")
_NAME = re.compile(rf"\s*+([^\s<>{{}}]++)\s*+(?:<tool_sep{_SUFFIX}>\s*+)?")
_KEY = re.compile(rf"<arg_key{_SUFFIX}>(?P<key>[^<]*+)</arg_key{_SUFFIX}>\s*+<arg_value{_SUFFIX}>")
# a value ends where the next one or the call does
_VALUE_END = re.compile(
    rf"</arg_value{_SUFFIX}>\s*+(?=<arg_key{_SUFFIX}>|</tool_call{_SUFFIX}>|\Z)"
)
_END = re.compile(rf"</tool_call{_SUFFIX}>(?:\s*+</tool_calls{_SUFFIX}>)?")
_NO_END = "bad_xml: a call holds <arg_key>, <arg_value> and </tool_call>"


def glm_call(
    text: str, opening: re.Match[str], number: int, schemas: Mapping[str, Mapping[str, Any]]
) -> Read:
    """The call that `opening` (of `GLM`) begins. `schemas`: tool -> its parameters."""
    raw = text[opening.start() : opening.end() + EXCERPT]
    following = GLM.search(text, opening.end())
    # a call without an end may not swallow the one behind it
    limit = following.start() if following else len(text)
    name = _NAME.match(text, opening.end(), limit)
    if name is None:
        return _broken(text, opening.end(), limit, raw, "missing_name: a call opens with its name")
    position = name.end()
    if text.startswith("{", position):
        call, end = json_arguments(text, name[1], position, number)
        closing = _END.match(text, after_space(text, end))
        if closing is None and isinstance(call, Malformed):
            return _broken(text, end, limit, call.text, call.reason)
        return Read(call, closing.end() if closing else end, closing is not None)
    properties = schemas.get(name[1], {}).get("properties")
    arguments: dict[str, Any] = {}
    fault = ""
    while True:
        closing = _END.match(text, position)
        if closing is not None or (position >= len(text) and not fault):
            whole = ToolCall(f"call_{number}", name[1], arguments)
            end = closing.end() if closing else position
            return Read(Malformed(raw, fault) if fault else whole, end, closing is not None)
        key = _KEY.match(text, position)
        value_end = _VALUE_END.search(text, key.end()) if key else None
        if key is None or value_end is None:
            return _broken(text, position, limit, raw, fault or _NO_END)
        schema = properties.get(key["key"]) if isinstance(properties, Mapping) else None
        position = value_end.end()
        value = Parameter(key["key"], text[key.end() : value_end.start()], position)
        wrong = add_typed(arguments, value, schema)
        fault = fault or wrong


def _broken(text: str, position: int, limit: int, raw: str, reason: str) -> Read:
    closing = _END.search(text, position, max(position, limit))
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
