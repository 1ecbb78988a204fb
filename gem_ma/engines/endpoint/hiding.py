"""A key, and what a server says without it.

A server may repeat the key that it was sent: in an answer, an error, a header, a redirect, split
over the pieces of a stream. So it is taken out of decoded strings, before anything is cut from
them: of an answer, of a fault, of a listing. What is looked for is the key itself, and what JSON,
addresses and base64 make of it.

Keys of `LEAST` characters or more only: a shorter one may be a word of the answer (`ollama`,
`lm-studio`), and an answer is never changed for the sake of a word.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

LEAST = 16  # characters of a key that is hidden
HIDDEN = "***"
_ESCAPE = re.compile(r"[\\%]")


class Secret:
    """A key that shows itself to nobody but `value`."""

    __slots__ = ("_codes", "_pattern", "digest", "value")

    def __init__(self, value: str) -> None:
        self.value = value
        self.digest = hashlib.sha256(value.encode()).hexdigest()
        hidden = len(value) >= LEAST
        pattern = "".join(map(_written, value))
        self._pattern = re.compile(pattern, re.IGNORECASE) if hidden else None
        self._codes = _codes(value) if hidden else []

    def __repr__(self) -> str:
        return "Secret(***)"

    def hide(self, text: str) -> str:
        """The text without the key, in either case: headers come in lower case.

        >>> Secret("sk/0123456789abcdef").hide(r'"sk\\/0123456789abcdef", sk%2F0123456789ABCDEF')
        '"***", ***'
        """
        if self._pattern is None:
            return text
        # most texts hold neither, and the pattern is slow
        if self.value.lower() in text.lower() or _ESCAPE.search(text) is not None:
            text = self._pattern.sub(HIDDEN, text)
        for code in self._codes:
            text = text.replace(code, HIDDEN)
        return text

    def hide_in(self, value: Any) -> Any:
        """A JSON value without the key in any of its strings; keys of objects too."""
        if self._pattern is None:  # nothing is hidden, and a reply has hundreds of values
            return value
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, dict):
            return {self.hide(name): self.hide_in(inner) for name, inner in value.items()}
        return [self.hide_in(inner) for inner in value] if isinstance(value, list) else value


def _written(char: str) -> str:
    """What finds a character of a key: as itself, or escaped for JSON or an address, several times
    over. How often is bounded: without a bound, runs cost their square."""
    code = f"{ord(char):02x}"
    itself = re.escape(char)
    # possessive, so that runs of backslashes are tried once and not sixteen times
    run = r"\\{1,16}" + "+" * (char != "\\")
    return f"(?:{itself}|{run}(?:{itself}|u00{code})|%(?:25){{0,4}}{code})"


def _codes(value: str) -> list[str]:
    """What base64, in both of its alphabets, makes of the key wherever in a longer text it
    stands."""
    raw = value.encode("utf-8", "replace")
    made: list[str] = []
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        # its ends depend on what stands beside
        inner = coded[-(-before * 4 // 3) : len(coded) - (1 if (before + len(raw)) % 3 else 0)]
        made += [inner, inner.replace("+", "-").replace("/", "_")]
    return list(dict.fromkeys(made))
