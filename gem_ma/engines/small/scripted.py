"""The scripted engine: replies that were written beforehand, by a list, a function of the request,
or an iterator.

A list is one script per conversation. An iterator is shared by all askers, in the order of their
requests; use it where one episode is played at a time.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.parsing.formats import parse_tool_calls
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.types import Reply, Request

Line = str | Reply
Script = Iterable[Line] | Callable[[Request], Any]


def first_legal(request: Request) -> str:
    """The first legal string; "" where the choice is open."""
    return request.legal[0] if request.legal else ""


def random_legal(request: Request) -> str:
    """A legal string drawn by the request's seed; "" where the choice is open."""
    return random.Random(request.seed).choice(request.legal) if request.legal else ""


def echo(request: Request) -> str:
    """The last message, said again."""
    return request.messages[-1].text if request.messages else ""


RULES: dict[str, Callable[[Request], str]] = {
    "first_legal": first_legal,
    "random_legal": random_legal,
    "echo": echo,
}


class Scripted:
    """`scripted/<rule>` plays a rule of `RULES`; `scripted/<any name>` with `replies: [...]` says
    these lines, one per model call; with `repeat`, it starts again at its end. A line is a str or a
    Reply."""

    def __init__(
        self,
        name: str,
        *,
        policy: str = "scripted",
        replies: Script | None = None,
        repeat: bool = False,
    ) -> None:
        # before it is played: a script that is missing would be found in the middle of a run
        if replies is None and name not in RULES:
            raise ConfigError(
                f"policy {policy!r}: scripted/{name} needs replies: [...], or is one of"
                f" scripted/{', scripted/'.join(sorted(RULES))}"
            )
        script = RULES[name] if replies is None else replies
        # a text is a list of letters to Python; nobody means that
        if isinstance(script, str) or not (callable(script) or isinstance(script, Iterable)):
            raise ConfigError(
                f"policy {policy!r}: replies is a list of texts, a function of the request or an"
                f" iterator; got {script!r}"
            )
        self.name = name
        self.policy = policy
        self.repeat = repeat
        self._function: Callable[[Request], Any] | None = script if callable(script) else None
        self._shared: Iterator[Line] | None = script if isinstance(script, Iterator) else None
        self._lines: tuple[Line, ...] = (
            () if callable(script) or isinstance(script, Iterator) else tuple(script)
        )
        if wrong := [line for line in self._lines if not isinstance(line, (str, Reply))]:
            raise ConfigError(
                f"policy {policy!r}: a scripted reply is a text; got {wrong[0]!r} (quote it)"
            )
        # conversation -> (seed of its first request, lines already said)
        self._places: dict[str, tuple[int, int]] = {}

    @classmethod
    def of(cls, replies: Script, *, policy: str = "scripted", repeat: bool = False) -> Scripted:
        """An engine out of a list, a (possibly async) function of the request, or an iterator."""
        return cls("given", policy=policy, replies=replies, repeat=repeat)

    async def sample(self, request: Request) -> Reply:
        """The next line. Raises EngineError where the script has ended."""
        line = self._function(request) if self._function is not None else self._next(request)
        if inspect.isawaitable(line):  # a function may ask another engine
            line = await line
        if isinstance(line, Reply):
            return line
        if not isinstance(line, str):
            raise EngineError(
                f"policy {self.policy!r}: a scripted reply is a str or a Reply; got"
                f" {type(line).__name__}"
            )
        # as a model's answer is read, so that scripts test what readers do
        text, calls = parse_tool_calls(line) if request.tools else (clean(line), ())
        return Reply(text, calls, policy=request.policy or self.policy)

    def _next(self, request: Request) -> Line:
        if self._shared is not None:
            try:
                return next(self._shared)
            except StopIteration:
                raise self._ended(request, "its iterator") from None
        first, count = self._places.get(request.conversation, (request.seed, 0))
        # The same request as at its start: the conversation is played again. 0 is the seed of
        # requests that name none.
        if count and request.seed and request.seed == first:
            count = 0
        self._places[request.conversation] = (first, count + 1)
        if count < len(self._lines) or (self.repeat and self._lines):
            return self._lines[count % len(self._lines)]
        raise self._ended(request, f"its list of {len(self._lines)}")

    def _ended(self, request: Request, what: str) -> EngineError:
        return EngineError(
            f"policy {self.policy!r}: the script is over: {what} has no reply for agent"
            f" {request.agent!r}, turn {request.turn}"
        )
