"""A key, and what a server says without it.

A server may repeat the key that it was sent: in an answer, an error, a header, a redirect, split
over the pieces of a stream, escaped. So it is taken out of decoded strings, where they leave the
client: of a reply, of a fault, of a listing. Whole tokens only, and keys of `LEAST` characters
or more only: a shorter one may be a word of the answer (`ollama`, `lm-studio`), and an answer is
never changed for the sake of a word.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from gem_ma.types import Malformed, Reply, ToolCall

LEAST = 16  # characters of a key that is hidden
HIDDEN = "***"
# Latin letters and digits beside a key make it a part of a longer word. Not so where they end an
# escape: %22, \u0022 and \x22 are quotes.
_BEFORE = r"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrtbf])|(?<=\\u[0-9A-Fa-f]{4})|(?<=\\x[0-9A-Fa-f]{2}))"
_AFTER = r"(?![A-Za-z0-9])"


class Secret:
    """A key that shows itself to nobody but `value`."""

    __slots__ = ("_found", "value")

    def __init__(self, value: str) -> None:
        self.value = value
        self._found = (
            re.compile(_BEFORE + "".join(map(_written, value)) + _AFTER, re.IGNORECASE)
            if len(value) >= LEAST
            else None
        )

    def __repr__(self) -> str:
        return "Secret(***)"

    def hide(self, text: str) -> str:
        """The text without the key, however its letters are escaped and in either case: headers
        come in lower case.

        >>> key = Secret("sk/0123456789abcdef")
        >>> key.hide(r'"sk\\/0123456789abcdef", sk%2F0123456789ABCDEF and xsk/0123456789abcdef')
        '"***", *** and xsk/0123456789abcdef'
        """
        return self._found.sub(HIDDEN, text) if self._found is not None else text

    def hide_in(self, value: Any) -> Any:
        """A JSON value without the key in any of its strings; keys of objects too."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, dict):
            return {self.hide(name): self.hide_in(inner) for name, inner in value.items()}
        return [self.hide_in(inner) for inner in value] if isinstance(value, list) else value

    def hide_reply(self, reply: Reply) -> Reply:
        """The reply without the key in anything that a server or a model wrote."""
        if self._found is None:
            return reply
        return replace(
            reply,
            text=self.hide(reply.text),
            tool_calls=tuple(map(self._hide_call, reply.tool_calls)),
            reasoning=self.hide(reply.reasoning),
            model=self.hide(reply.model),
        )

    def _hide_call(self, call: ToolCall | Malformed) -> ToolCall | Malformed:
        if isinstance(call, Malformed):
            return Malformed(self.hide(call.text), self.hide(call.reason))
        return ToolCall(
            self.hide(call.id),
            self.hide(call.name),
            self.hide_in(call.arguments),
            self.hide(call.repaired),
        )

    def stands_in(self, text: str) -> bool:
        """Whether the key is there as a whole token."""
        return self._found is not None and self._found.search(text) is not None


def _written(char: str) -> str:
    """A character of a key as itself, percent-encoded or escaped in JSON, up to three times
    over: without a bound, runs cost their square."""
    return rf"(?:{re.escape(char)}|%(?:25){{0,2}}{ord(char):02x}|\\{{1,8}}(?:{re.escape(char)}|u00{ord(char):02x}|x{ord(char):02x}))"
