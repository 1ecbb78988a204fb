"""The human engine: a person at the terminal is the policy. Prints what is new for the agent, reads
one line, off the event loop.

A line is an answer, or a tool call: `/look_up word=seat`, `/look_up seat`, or the call as JSON.
`/help` shows the tools again. A typing error is not a move: the line is asked for again. What other
agents said is untrusted: control characters are shown, never sent to the terminal.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
import threading
import unicodedata
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TextIO
from weakref import WeakKeyDictionary

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.parsing.calls import read_call
from gem_ma.kernel.parsing.formats import parse_tool_calls
from gem_ma.kernel.parsing.legal import parse_legal
from gem_ma.kernel.parsing.reasoning import split_reasoning
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.spelling import in_quotes, near
from gem_ma.kernel.types import Message, Reply, Request, Tool, ToolCall

# marks that would reorder what is read: a message could show another word than it holds
_BIDIRECTIONAL = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)

# One person, one question, in whichever of several seats: each has an engine of its own. By event
# loop, and by input.
_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
_READING: dict[TextIO, Future[str]] = {}


class Human:
    """`human/<any name>`. Reads stdin and writes stderr, so that stdout stays the run's result.

    Refuses an input that is not a terminal, where nobody would answer, unless `force` is set.
    `input` and `output` replace the streams.
    """

    def __init__(
        self,
        name: str,
        *,
        policy: str = "human",
        force: bool = False,
        input: TextIO | None = None,
        output: TextIO | None = None,
    ) -> None:
        self.name = name
        self.policy = policy
        self._input = input if input is not None else sys.stdin
        self._output = output if output is not None else sys.stderr
        if not force and (self._input is None or not self._input.isatty()):
            raise ConfigError(
                f"policy {policy!r}: the human engine needs a terminal to ask at; where answers"
                f" come from a file or a pipe, take gem-ma run with"
                f" policies.{in_quotes(policy)}.force=true"
            )
        self._printed: dict[str, tuple[int, int]] = {}  # conversation -> turn, messages in it
        self._tools: dict[str, tuple[Tool, ...]] = {}  # conversation -> tools that were shown last

    async def sample(self, request: Request) -> Reply:
        """One typed line. Raises EngineError at the end of the input."""
        policy = request.policy or self.policy
        async with _TURNS.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            self._show(request)
            while True:
                line = await self._line()
                if not line:  # an empty line has its line end
                    raise EngineError(
                        f"policy {self.policy!r}: the input ended before agent {request.agent!r}"
                        " had answered"
                    )
                answer = _answer(clean(line.rstrip("\r\n")), request)
                if isinstance(answer, Reply):
                    return replace(answer, policy=policy)
                self._write(answer, f"{request.agent}> ")

    def show_end(self, episode: Episode) -> None:
        """Prints what the person's agents were shown after their last turn, how the play ended,
        and what everybody got."""
        agents = [agent for agent, seat in episode.cast.items() if seat.policy == self.policy]
        if not agents:
            return
        shown = [message for agent in agents for message in episode.final.get(agent, ())]
        end = f"is over ({episode.end.value.replace('_', ' ')})"
        if episode.error:
            end = f"failed: {episode.error}"
        totals = [
            f"{agent}{' (you)' if agent in agents else ''} {value:g}"
            for agent, value in episode.returns().items()
        ]
        lines = [*map(spoken_line, shown), f"--- the play {end} ---", f"  {', '.join(totals)}"]
        self._write(lines)

    def _show(self, request: Request) -> None:
        # a person scrolls up; only what is new is printed
        turn, already = self._printed.get(request.conversation, (-1, 0))
        if request.turn != turn:
            # by the own line, not by their number: behind a memory messages go in front
            own = [at for at, each in enumerate(request.messages) if each.sender == request.agent]
            already = own[-1] + 1 if own else 0
        # unknown, or played again
        is_new = turn < 0 or request.turn < turn or already > len(request.messages)
        if is_new:
            already = 0
        self._printed[request.conversation] = request.turn, len(request.messages)
        lines = _heading(request) if is_new else [f"--- {request.agent} ---"]
        lines += [
            spoken_line(message)
            for message in request.messages[already:]
            if message.sender != request.agent
        ]
        if request.tools and (is_new or self._tools.get(request.conversation) != request.tools):
            lines += map(usage, request.tools)
            lines.append(
                '  call one by typing /name key=value ..., or {"name": ..., "arguments": {...}};'
                " /help shows them again"
            )
        self._tools[request.conversation] = request.tools
        lines += [
            f"  {number}. {choice}" for number, choice in enumerate(request.legal or (), start=1)
        ]
        self._write(lines, f"{request.agent}> ")

    def _write(self, lines: Sequence[str], prompt: str = "") -> None:
        text = "".join(f"{line}\n" for line in lines) + prompt
        self._output.write(printable(text, self._output.encoding))
        self._output.flush()

    async def _line(self) -> str:
        # A read cannot be taken back: if its asker was cancelled, the next one gets the line that
        # is still being typed.
        if self._input not in _READING:
            # a thread and a future of our own: a daemon, so that a read that nobody ends does not
            # keep the process alive, as a thread of the loop's pool would
            reading = _READING[self._input] = Future()
            reading.set_running_or_notify_cancel()
            threading.Thread(
                target=_read, args=(self._input, reading), name="gem_ma human", daemon=True
            ).start()
        line = await asyncio.wrap_future(_READING[self._input])
        del _READING[self._input]
        return line


def _read(stream: TextIO, answer: Future[str]) -> None:
    try:
        answer.set_result(stream.readline())
    except (OSError, ValueError):  # a closed or undecodable input has ended for us
        answer.set_result("")


def _heading(request: Request) -> list[str]:
    """The line above a new play. A conversation of the driver is `task/seed/repeat/agent`."""
    task, *rest = request.conversation.rsplit("/", 3)
    of = f" (task {task})" if task and len(rest) == 3 else ""
    return [f"=== a new play{of}: you are {request.agent} ==="]


def _answer(text: str, request: Request) -> Reply | list[str]:
    """The reply that a typed line means, or the lines that say why it means none."""
    # an arrow key arrives as an escape sequence where the terminal edits no lines
    if any(unicodedata.category(char) == "Cc" and char != "\t" for char in text):
        return [
            f"  {text!r} holds a key that is not a character, as an arrow is; type the line again"
        ]
    answer = typed_reply(text, request)
    if isinstance(answer, Reply):
        return answer
    fault = [] if text.strip() == "/help" else [f"  {answer}"]
    # only where there are tools: else a slash may begin an answer
    is_call = request.tools and text.startswith("/")
    return [*fault, *map(usage, request.tools)] if is_call else fault


def typed_reply(text: str, request: Request) -> Reply | str:
    """The reply that a typed text means, or what is wrong with it: a call after a slash, where
    there are tools; one of the legal moves, or its number; else the words as they are."""
    if request.tools and text.startswith("/"):
        call = typed_call(text, request.tools)
        return call if isinstance(call, str) else Reply("", (call,))
    if split_reasoning(text)[1] != text:
        return "what a tag such as <think> holds is never said; put the tag between backticks"
    if request.legal is not None:
        choice = chosen(text, request.legal)
        if choice in request.legal or parse_legal(choice, request.legal) is not None:
            return Reply(choice)
        return (
            f"{choice!r} is none of the moves; type one of them, or its number from 1 to"
            f" {len(request.legal)}"
        )
    if not request.tools:
        return Reply(text)
    rest, calls = parse_tool_calls(text)
    return Reply(rest, calls)


def chosen(text: str, legal: tuple[str, ...]) -> str:
    """The legal string behind a typed line: itself, or its number from 1. Anything else stays as
    typed."""
    typed = text.strip()
    # first: where the moves are numbers themselves, 3 is the move 3
    if typed in legal:
        return typed
    # short, since int() of thousands of digits takes long; ASCII, since it reads all scripts
    number = int(typed) if typed.isascii() and typed.isdecimal() and len(typed) < 10 else 0
    return legal[number - 1] if 1 <= number <= len(legal) else text


def usage(tool: Tool) -> str:
    """A tool as one line: what it is for, and how a call is typed."""
    properties = tool.parameters.get("properties", {})
    keys = [
        f"{name}={'|'.join(map(str, _schema(schema).get('enum', ()))) or '...'}"
        for name, schema in properties.items()
    ]
    return f"  tool {tool.name}: {tool.description}\n    {' '.join([f'/{tool.name}', *keys])}"


def typed_call(text: str, tools: Sequence[Tool]) -> ToolCall | str:
    """The call behind a line `/name key=value ...`, or what is wrong with the line.

    A value without a key belongs to the next argument in the order of the schema. Where the schema
    wants no text, a value is read as JSON; a list may also be typed as `a,b`.

    >>> properties = {"x": {"type": "integer"}, "y": {"type": "string"}}
    >>> typed_call("/add 2 y=3", (Tool("add", "", {"properties": properties}),))
    ToolCall(id='call_0', name='add', arguments={'x': 2, 'y': '3'})
    """
    name, _, rest = text[1:].strip().partition(" ")
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:
        close = near(name, [tool.name for tool in tools], 1)
        return f"no tool is called {name!r}" + (f"; did you mean /{close[0]}?" if close else "")
    try:
        words = shlex.split(rest)
    except ValueError as error:
        what = "put a value with spaces or quotes between quotes, or type the call as JSON"
        return f"{error}; {what}"
    properties = tool.parameters.get("properties", {})
    arguments: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in properties:  # a=b may be a value
            key = next((name for name in properties if name not in arguments), "")
            value = word
        if not key:
            return (
                f"{word!r} is one value too many; the arguments of {tool.name} are"
                f" {', '.join(properties) or 'none'}"
            )
        arguments[key] = _value(value, _schema(properties[key]))
    # asked again at once: to the scenario a forgotten argument would be a move
    missing = [str(key) for key in tool.parameters.get("required", ()) if key not in arguments]
    if missing:
        return f"{tool.name} also needs {', '.join(missing)}"
    return ToolCall("call_0", tool.name, arguments)


def _schema(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _value(text: str, schema: Mapping[str, Any]) -> Any:
    kind = schema.get("type", "string")
    if kind == "string":
        return text
    call = read_call("", "x", f'{{"x": {text}}}')  # the one strict reader of JSON
    if isinstance(call, ToolCall) and call.arguments.keys() == {"x"}:
        return call.arguments["x"]
    return [part.strip() for part in text.split(",") if part.strip()] if kind == "array" else text


def spoken_line(message: Message) -> str:
    """A message as a person reads it."""
    parts = (message.content,) if isinstance(message.content, str) else message.content
    return f"[{message.sender}] " + "\n".join(
        part if isinstance(part, str) else f"<image {part.digest[:12]}>" for part in parts
    )


def printable(text: str, encoding: str | None = None) -> str:
    r"""The text with control characters and reordering marks written out, as in ``\x1b``; line ends
    and tabs stay.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    letters = "".join(
        char.encode("unicode_escape").decode("ascii") if _hidden(char) else char for char in text
    )
    # surrogates and letters that the terminal cannot write are written out too
    encoding = encoding or "utf-8"
    return letters.encode(encoding, "backslashreplace").decode(encoding)


def _hidden(char: str) -> bool:
    if char in "\n\t":
        return False
    return char in _BIDIRECTIONAL or unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")
