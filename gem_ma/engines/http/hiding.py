"""A key, and what a server says without it.

A server may repeat the key that it was sent: in an answer, an error, a header, a redirect, split
over the pieces of a stream, escaped. So it is taken out of decoded strings, before anything is cut
from them and where they leave the client: of a reply, of a fault, of a listing.

Whole tokens only, and keys of `LEAST` characters or more only: a shorter one may be a word of
the answer (`ollama`, `lm-studio`), and an answer is never changed for the sake of a word.
Spellings that software makes by itself are known (`_written`, `_codes`); one that a server makes
up to get around this, such as the key backwards, is not.
"""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import Any

from gem_ma.types import Malformed, Reply, ToolCall

LEAST = 16  # characters of a key that is hidden
HIDDEN = "***"
WINDOW = 1 << 16  # characters looked at in one go: other threads run in between
SPELLED = 48  # characters that one character of a key is written with, at most
# Latin letters and digits beside a key make it a part of a longer word. Not so where they end an
# escape (%22, \u0022 and \x22 are quotes), or a colour of terminals.
_BEFORE = r"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrtbf])|(?<=\\u[0-9A-Fa-f]{4})|(?<=\\x[0-9A-Fa-f]{2})|(?<=[0-9\[]m))"
_AFTER = r"(?![A-Za-z0-9])"
_ESCAPES = re.compile(r"[\\%&=]")


class Secret:
    """A key that shows itself to nobody but `value`."""

    __slots__ = ("_coded", "_found", "_longest", "value")

    def __init__(self, value: str) -> None:
        self.value = value
        hidden = len(value) >= LEAST
        self._found = (
            re.compile(f"{_BEFORE}(?:{''.join(map(_written, value))})+{_AFTER}", re.IGNORECASE)
            if hidden
            else None
        )
        self._coded = re.compile("|".join(map(re.escape, _codes(value)))) if hidden else None
        self._longest = 2 * SPELLED * len(value)

    def __repr__(self) -> str:
        return "Secret(***)"

    def hide(self, text: str) -> str:
        """The text without the key, however its letters are escaped and in either case: headers
        come in lower case.

        >>> key = Secret("sk/0123456789abcdef")
        >>> key.hide(r'"sk\\/0123456789abcdef", sk%2F0123456789ABCDEF and xsk/0123456789abcdef')
        '"***", *** and xsk/0123456789abcdef'
        """
        if self._found is None or self._coded is None:
            return text
        if self.value.lower() in text.lower() or _ESCAPES.search(text) is not None:
            text = self._replaced(self._found, text)
        return self._coded.sub(HIDDEN, text)

    def _replaced(self, pattern: re.Pattern[str], text: str) -> str:
        """The text without what is found, looked for window by window: a long text does not hold
        up those who run beside."""
        if len(text) <= WINDOW:
            return pattern.sub(HIDDEN, text)
        pieces, place, begin = (
            [],
            0,
            0,
        )  # `place`: up to where the text is done, `begin`: of the window
        while begin < len(text):
            match = pattern.search(text, begin, begin + WINDOW + self._longest)
            if match is None or match.start() >= begin + WINDOW:
                begin += WINDOW
                continue
            pieces += [text[place : match.start()], HIDDEN]
            place = begin = match.end()
        return "".join([*pieces, text[place:]])

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
    """A character of a key as itself, or as software escapes it for JSON, addresses, pages, mails
    or code, several times over.

    How often is bounded: without a bound, runs cost their square.
    """
    code = ord(char)
    braced = rf"\{{0{{0,4}}{code:x}\}}"
    # possessive, so that runs of backslashes are tried once and not sixteen times
    run = r"\\{1,16}" + "+" * (char != "\\")
    backslashed = rf"{run}(?:{re.escape(char)}|u(?:00{code:02x}|{braced})|U0{{6}}{code:02x}|x(?:{code:02x}|{braced})|{code:03o})"
    entity = rf"&(?:amp;){{0,2}}#(?:0{{0,4}}{code}|x0{{0,4}}{code:x});?"
    named = rf"|&(?:amp;){{0,2}}{_ENTITIES[char]};" if char in _ENTITIES else ""
    return rf"(?:{re.escape(char)}|%(?:25){{0,4}}(?:u00)?{code:02x}|{backslashed}|{entity}{named}|={code:02x})"


_ENTITIES = {
    "/": "sol",
    "+": "plus",
    "=": "equals",
    "_": "lowbar",
    ".": "period",
    ":": "colon",
    "-": "hyphen",
    "&": "amp",
}


def _codes(value: str) -> list[str]:
    """What base64, in both of its alphabets, and hexadecimal digits make of the key, wherever in
    a longer text it stands."""
    raw, made = value.encode("utf-8", "replace"), [value.encode("utf-8", "replace").hex()]
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        # its ends depend on what stands beside
        inner = coded[-(-before * 4 // 3) : len(coded) - (1 if (before + len(raw)) % 3 else 0)]
        made += [inner, inner.replace("+", "-").replace("/", "_")]
    return list(dict.fromkeys([*made, made[0].upper()]))
