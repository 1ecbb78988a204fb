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
from gem_ma.kernel.types import Malformed, ToolCall


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
