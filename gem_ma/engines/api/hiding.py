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
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gem_ma.kernel.types import Malformed, Reply, ToolCall

LEAST = 16  # characters of a key that is hidden
PART = 8  # characters of a key that a cut leaves at an end and that are hidden there
HIDDEN = "***"
WINDOW = 1 << 16  # characters looked at in one go: other threads run in between
SPELLED = 48  # characters that one character of a key is written with, at most
# Latin letters and digits beside a key make it a part of a longer word. Not so where they end an
# escape (%22, \u0022 and \x22 are quotes), or a colour of terminals.
_ENDED_ESCAPES = (
    r"%[0-9A-Fa-f]{2}",
    r"\\[nrtbf]",
    r"\\u[0-9A-Fa-f]{4}",
    r"\\x[0-9A-Fa-f]{2}",
    r"[0-9\[]m",
)
# one look-behind for each, since a look-behind has one width
_BEFORE = f"(?:(?<![A-Za-z0-9])|{'|'.join(f'(?<={escape})' for escape in _ENDED_ESCAPES)})"
_AFTER = r"(?![A-Za-z0-9])"
_ESCAPES = re.compile(r"[\\%&=]")
# Where a cut falls: perhaps inside an escape, and perhaps with the brackets and quotes behind it
# with which a broken call is shown.
_CUT_ESCAPE = r"(?:\\+(?:[uUx]?\{?[0-9A-Fa-f]*)|%[0-9A-Fa-fu]*|&[#A-Za-z0-9;]*|=[0-9A-Fa-f]?)"
_CLOSERS = "\"'])}"
_CUT = rf"{_CUT_ESCAPE}?(?=[{re.escape(_CLOSERS)}]*\Z)"


class Secret:
    """A key that shows itself to nobody but `value`."""

    __slots__ = ("_coded", "_codes", "_cut", "_longest", "_pattern", "value")

    def __init__(self, value: str) -> None:
        self.value = value
        hidden = len(value) >= LEAST
        letters = list(map(_written, value))
        whole = "".join(letters)
        # A model in a loop writes key behind key. A `+` would find them too, in the square of
        # their number where the last is a part of a word.
        begins = f"(?:{_BEFORE}|(?<={re.escape(value)}))"
        ends = f"(?:{_AFTER}|(?={whole}))"
        self._pattern = re.compile(begins + whole + ends, re.IGNORECASE) if hidden else None
        self._codes = _codes(value) if hidden else []
        self._coded = re.compile("|".join(map(re.escape, self._codes))) if hidden else None
        self._cut = re.compile(_beginning(letters), re.IGNORECASE) if hidden else None
        self._longest = 2 * SPELLED * len(value)  # characters of a key and the one behind it

    def __repr__(self) -> str:
        return "Secret(***)"

    def hide(self, text: str) -> str:
        """The text without the key, however its letters are escaped and in either case: headers
        come in lower case.

        >>> key = Secret("sk/0123456789abcdef")
        >>> key.hide(r'"sk\\/0123456789abcdef", sk%2F0123456789ABCDEF and xsk/0123456789abcdef')
        '"***", *** and xsk/0123456789abcdef'
        """
        if self._pattern is None or self._coded is None:
            return text
        if self.value.lower() in text.lower() or _ESCAPES.search(text) is not None:
            text = self._replaced(self._pattern, text)
        return self._coded.sub(HIDDEN, text)

    def hide_at_cut(self, text: str) -> str:
        """The text, whose end was cut off, without the key and without the beginning of a key
        that the cut fell into.

        >>> Secret("sk/0123456789abcdef").hide_at_cut("my key is sk/0123456")
        'my key is ***'
        """
        text = self.hide(text)
        if self._cut is None:
            return text
        match = self._cut.search(text, max(0, len(text) - self._longest))
        if match is not None:
            return text[: match.start()] + HIDDEN + text[match.end() :]
        end = text.rstrip(_CLOSERS)
        for code in self._codes:
            least = -(-PART * len(code) // len(self.value))  # of the code, for `PART` of the key
            for length in range(min(len(code) - 1, len(end)), least - 1, -1):
                if end.endswith(code[:length]):
                    return end[:-length] + HIDDEN + text[len(end) :]
        return text

    def _replaced(self, pattern: re.Pattern[str], text: str) -> str:
        """The text without what is found, looked for window by window: a long text does not hold
        up those who run beside."""
        if len(text) <= WINDOW:
            return pattern.sub(HIDDEN, text)
        pieces: list[str] = []
        place = begin = 0  # up to where the text is done; where the window begins
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
        if self._pattern is None:  # nothing is hidden, and a reply has hundreds of values
            return value
        return _in_strings(value, self.hide)

    def hide_reply(self, reply: Reply) -> Reply:
        """The reply without the key in anything that a server or a model wrote.

        A reply that was cut (by `max_tokens`, by a filter) may end inside the key: there its
        beginning goes as well. What ends by itself may say how keys begin.
        """
        if self._pattern is None:
            return reply
        at_end = self.hide if reply.finish == "stop" else self.hide_at_cut
        *whole, last = reply.tool_calls or (None,)
        calls = [_call_without(call, self.hide) for call in whole if call is not None]
        if last is not None:
            calls.append(_call_without(last, at_end))
        return replace(
            reply,
            text=at_end(reply.text),
            tool_calls=tuple(calls),
            reasoning=at_end(reply.reasoning),
            model=self.hide(reply.model),
        )

    def stands_in(self, text: str) -> bool:
        """Whether the key is there as a whole token."""
        return self._pattern is not None and self._pattern.search(text) is not None


def _in_strings(value: Any, hide: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {hide(name): _in_strings(inner, hide) for name, inner in value.items()}
    return [_in_strings(inner, hide) for inner in value] if isinstance(value, list) else value


def _call_without(call: ToolCall | Malformed, hide: Callable[[str], str]) -> ToolCall | Malformed:
    if isinstance(call, Malformed):
        return Malformed(hide(call.text), hide(call.reason))
    return ToolCall(
        hide(call.id), hide(call.name), _in_strings(call.arguments, hide), hide(call.repaired)
    )


def _beginning(letters: list[str]) -> str:
    """What finds the beginning of a key at the cut end of a text: `PART` characters or more, or
    any number of them right behind the whole key."""
    # Once the cut is reached, every letter that is left matches it too, as nothing. So the pattern
    # is flat: optional groups inside each other would be as deep as the key is long.
    ends = [f"(?:{letter}|{_CUT})" for letter in letters]
    behind_a_key = "".join([*letters, *ends])
    alone = "".join([*letters[:PART], *ends[PART:]])
    return f"{_BEFORE}(?:{behind_a_key}|{alone}){_CUT}"


def _written(char: str) -> str:
    """A character of a key as itself, or as software escapes it for JSON, addresses, pages, mails
    or code, several times over.

    How often is bounded: without a bound, runs cost their square.
    """
    code = ord(char)
    braced = rf"\{{0{{0,4}}{code:x}\}}"
    # possessive, so that runs of backslashes are tried once and not sixteen times
    run = r"\\{1,16}" + "+" * (char != "\\")
    coded = rf"u(?:00{code:02x}|{braced})|U0{{6}}{code:02x}|x(?:{code:02x}|{braced})|{code:03o}"
    ways = [
        re.escape(char),
        rf"%(?:25){{0,4}}(?:u00)?{code:02x}",
        rf"{run}(?:{re.escape(char)}|{coded})",
        rf"&(?:amp;){{0,2}}#(?:0{{0,4}}{code}|x0{{0,4}}{code:x});?",
    ]
    if char in _ENTITIES:
        ways.append(rf"&(?:amp;){{0,2}}{_ENTITIES[char]};")
    return f"(?:{'|'.join([*ways, f'={code:02x}'])})"


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
    raw = value.encode("utf-8", "replace")
    made = [value.encode("utf-8", "replace").hex()]
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        # its ends depend on what stands beside
        inner = coded[-(-before * 4 // 3) : len(coded) - (1 if (before + len(raw)) % 3 else 0)]
        made += [inner, inner.replace("+", "-").replace("/", "_")]
    return list(dict.fromkeys([*made, made[0].upper()]))
