"""The human engine: a person at the terminal is the policy. Prints what is new for the agent, reads one line, off the event loop.

What other agents said is untrusted: control characters are shown, never sent to the terminal. One question stands at a time.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import unicodedata
from concurrent.futures import Future
from typing import TextIO

from gem_ma.errors import ConfigError, EngineError
from gem_ma.parsing import clean, parse_tool_calls
from gem_ma.types import Message, Reply, Request

_BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # would reorder what is read


class Human:
    """`human/<any name>`. Reads stdin and writes stderr, so that stdout stays the run's result.

    Refuses an input that is no terminal, where nobody would answer, unless `force` is set. `input` and `output` replace the streams.
    """

    trainable = False

    def __init__(self, name: str, *, policy: str = "human", force: bool = False, input: TextIO | None = None, output: TextIO | None = None) -> None:
        self.name, self.policy = name, policy
        self._input = input if input is not None else sys.stdin
        self._output = output if output is not None else sys.stderr
        if not force and (self._input is None or not self._input.isatty()):
            raise ConfigError(f"policy {policy!r}: the human engine needs a terminal to ask at; with input from a file or a pipe set force: true")
        self._turn = asyncio.Lock()
        self._shown: dict[str, int] = {}  # conversation -> messages already printed
        self._reading: Future[str] | None = None

    async def sample(self, request: Request) -> Reply:
        """One typed line. Raises EngineError at the end of the input."""
        async with self._turn:
            self._show(request)
            line = await self._line()
        if not line:
            raise EngineError(f"policy {self.policy!r}: the input ended before agent {request.agent!r} had answered")
        text = clean(line.rstrip("\r\n"))
        if request.legal is not None:
            return Reply(chosen(text, request.legal), policy=request.policy or self.policy)
        rest, calls = parse_tool_calls(text) if request.tools else (text, ())
        return Reply(rest, calls, policy=request.policy or self.policy)

    def _show(self, request: Request) -> None:
        already = self._shown.get(request.conversation, 0)
        if already > len(request.messages):  # the conversation is played again
            already = 0
        self._shown[request.conversation] = len(request.messages)
        lines = [f"--- {request.agent} ({request.conversation}) ---" if request.conversation else f"--- {request.agent} ---"]
        lines += [spoken_line(message) for message in request.messages[already:] if message.sender != request.agent]
        lines += [f"  tool {tool.name}: {tool.description}" for tool in request.tools]
        if request.tools:
            lines.append('  call one by typing {"name": ..., "arguments": {...}}')
        lines += [f"  {number}. {choice}" for number, choice in enumerate(request.legal or (), start=1)]
        self._output.write(printable("\n".join(lines), self._output.encoding) + f"\n{printable(request.agent, self._output.encoding)}> ")
        self._output.flush()

    async def _line(self) -> str:
        # A read cannot be taken back: if its asker was cancelled, the next one gets the line that is still being typed.
        if self._reading is None:
            self._reading = Future()
            self._reading.set_running_or_notify_cancel()
            threading.Thread(target=_read, args=(self._input, self._reading), name="gem_ma human", daemon=True).start()
        line = await asyncio.wrap_future(self._reading)
        self._reading = None
        return line


def _read(stream: TextIO, answer: Future[str]) -> None:
    try:
        answer.set_result(stream.readline())
    except (OSError, ValueError):  # a closed or undecodable input has ended for us
        answer.set_result("")


def chosen(text: str, legal: tuple[str, ...]) -> str:
    """The legal string behind a typed line: itself, or its number from 1. Anything else stays as typed, and is the scenario's business."""
    typed = text.strip()
    if typed in legal:
        return typed
    return legal[int(typed) - 1] if typed.isascii() and typed.isdecimal() and len(typed) < 10 and 1 <= int(typed) <= len(legal) else text


def spoken_line(message: Message) -> str:
    """A message as a person reads it."""
    parts = (message.content,) if isinstance(message.content, str) else message.content
    return f"[{message.sender}] " + "\n".join(part if isinstance(part, str) else f"<image {part.digest[:12]}>" for part in parts)


def printable(text: str, encoding: str | None = None) -> str:
    r"""The text with control characters and reordering marks written out, as in ``\x1b``; line ends and tabs stay.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    shown = "".join(char if char in "\n\t" or not _hidden(char) else char.encode("unicode_escape").decode("ascii") for char in text)
    encoding = encoding or "utf-8"
    return shown.encode(encoding, "backslashreplace").decode(encoding)


def _hidden(char: str) -> bool:
    return char in _BIDIRECTIONAL or unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")
