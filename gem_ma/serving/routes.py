"""What a program may ask, from a path and a body to an answer. Runs in the threads of the server.

POST   /episodes                            takes a seat: {"agent": NAME} where several are free
GET    /episode/KEY                         what is new, or how it ended; waits for it
POST   /episode/KEY/act                     {"turn": 1, "message": {...}}; answers as GET does
DELETE /episode/KEY                         gives up: {"reason": ...}
POST   /episode/KEY/v1/chat/completions     the seat's policy
GET    /episode/KEY/v1/models
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from gem_ma.driver.limits import Cut
from gem_ma.kernel.errors import GemMaError
from gem_ma.kernel.parsing import clean
from gem_ma.kernel.types import Reply
from gem_ma.serving.answers import completion, events
from gem_ma.serving.desk import Desk
from gem_ma.serving.program import Ending, News, OverError, Program, ProtocolFault
from gem_ma.serving.refused import Refused
from gem_ma.serving.requests import wanted
from gem_ma.serving.sayings import Sayings, chat_messages

WAIT_S = 20.0  # for a seat or a turn, until the client asks again: proxies cut at 30
LOOK_S = 0.25  # between two looks whether the client is still there
LINGER_S = 2.0  # for programs that were told last
Body = Mapping[str, Any]
Gone = Callable[[], bool]
Result = TypeVar("Result")


class Routes:
    """The answers of one server, which clients reach at `address`."""

    def __init__(self, desk: Desk, address: str) -> None:
        self.desk = desk
        self.address = address
        self._sayings: WeakKeyDictionary[Program, Sayings] = WeakKeyDictionary()
        # replies that were sampled in a turn and reached nobody, by what was asked
        self._unheard: WeakKeyDictionary[Program, list[tuple[Any, Reply]]] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._running = 0

    def answer(
        self, method: str, path: str, body: Body, *, gone: Gone
    ) -> dict[str, Any] | Iterable[bytes]:
        """An object, or the events of a stream. `gone` tells whether the client still waits.
        Raises Refused."""
        with self._counted():
            parts = [part for part in urlsplit(path).path.split("/") if part]
            if parts == ["episodes"]:
                self._only(method, "POST")
                return self._take(body, gone)
            if len(parts) < 2 or parts[0] != "episode":
                raise Refused("begin with POST /episodes", status=404, code="not_found")
            program = self.desk.find(parts[1])
            if program is None:
                raise Refused(
                    "no play has this key, or it has been over for long",
                    status=404,
                    code="not_found",
                )
            return self._of(program, method, parts[2:], body, gone)

    def drain(self) -> None:
        """Waits a moment for those who are being answered."""
        deadline = time.monotonic() + LINGER_S
        while self._running and time.monotonic() < deadline:
            time.sleep(0.02)

    def _of(
        self, program: Program, method: str, rest: list[str], body: Body, gone: Gone
    ) -> dict[str, Any] | Iterable[bytes]:
        if not rest and method == "DELETE":
            reason = clean(str(body.get("reason", "")))[:500]
            self._on(program, program.leave(reason), gone)
            return {}
        if not rest:
            self._only(method, "GET")
            return self._news(program, gone)
        if rest == ["act"]:
            self._only(method, "POST")
            return self._act(program, body, gone)
        if rest == ["v1", "models"]:
            self._only(method, "GET")
            model = {"id": program.agent, "object": "model", "owned_by": "gem_ma", "created": 0}
            return {"object": "list", "data": [model]}
        if rest == ["v1", "chat", "completions"]:
            self._only(method, "POST")
            return self._complete(program, body, gone)
        raise Refused(
            f"{'/'.join(rest)}: only v1/chat/completions is served; tell your library to use chat"
            " completions",
            status=404,
            code="not_found",
        )

    def _take(self, body: Body, gone: Gone) -> dict[str, Any]:
        agent = body.get("agent")
        deadline = time.monotonic() + WAIT_S
        if not isinstance(agent, (str, type(None))):
            raise Refused("agent: the name of an agent, or nothing", param="agent")
        seats = self.desk.agents
        if agent is not None and not any(fnmatchcase(agent, seat) for seat in seats):
            raise Refused(f"agent: {agent!r} is not served; {', '.join(seats)} is", param="agent")
        while not gone():
            program = self.desk.take(agent, LOOK_S)
            if program is not None and gone():
                self.desk.give_back(program)
                break
            if program is not None:
                base = f"{self.address}/episode/{program.key}"
                seat = {"episode": program.key, "agent": program.agent, "base_url": f"{base}/v1"}
                return seat | self._news(program, gone)
            if self.desk.closed:
                raise Refused("all is played", status=410, code="over")
            if time.monotonic() > deadline:
                break
        raise Refused("no seat is free now; ask again", status=503, code="busy")

    def _news(self, program: Program, gone: Gone) -> dict[str, Any]:
        news: News | Ending | None = program.end
        if news is None:
            try:
                news = self._on(program, program.news(WAIT_S), gone)
            except Refused:  # with the last play the loop ends, and with it who waits there
                if program.end is None:
                    raise
                news = program.end
        if isinstance(news, Ending):
            return {"state": "over", **news._asdict()}
        if news is None:
            return {"state": "wait"}
        return {
            "state": "turn",
            "turn": news.turn,
            "messages": chat_messages(program.agent, news.asked.new),
            "tools": [tool.schema for tool in news.asked.tools],
            "legal": None if news.asked.legal is None else list(news.asked.legal),
        }

    def _act(self, program: Program, body: Body, gone: Gone) -> dict[str, Any]:
        turn = body.get("turn")
        if type(turn) is not int:
            raise Refused("turn: the number of the turn that is answered", param="turn")
        with self._lock:
            action = self._of_program(program).action(body.get("message"), program.legal)
        if program.end is None:
            self._on(program, program.answer(turn, action), gone)
        elif not program.is_last(turn, action):
            raise Refused(program.how(), status=410, code="over")
        return self._news(program, gone)

    def _complete(
        self, program: Program, body: Body, gone: Gone
    ) -> dict[str, Any] | Iterable[bytes]:
        if program.sampling is None:
            raise Refused(
                f"agent {program.agent!r} has no policy; name one in the config:"
                f" agents.{program.agent}.policy",
                status=404,
                code="model_not_found",
            )
        what = wanted(body, program.sampling, program.legal)
        for name in what.ignored:
            self.desk.note(f"serve: chat completions: {name!r} means nothing here and is ignored")
        with self._lock:
            sayings = self._of_program(program)
            messages = sayings.read(body.get("messages"))
            how: dict[str, Any] = {
                "tools": what.tools,
                "legal": what.legal,
                "thread": sayings.thread(messages),
            }
            how |= what.options
            asked = program.turn, messages, how
            reply = self._heard_again(program, asked)
        if reply is None:
            reply = self._on(program, program.call(messages, **how), gone)
            if gone():
                with self._lock:
                    self._unheard.setdefault(program, []).append((asked, reply))
                raise Refused("nobody waits for the answer", status=499)
        with self._lock:
            message = sayings.written(reply)
            name = f"chatcmpl-{program.key}-{sayings.replies}"
        if what.stream:
            return events(reply, message, name, what)
        return completion(reply, message, name, what)

    def _heard_again(self, program: Program, asked: Any) -> Reply | None:
        """The reply to the same request, if its client was gone when it came: libraries send again
        what took too long, and to sample anew would put a draft on record that nobody read."""
        if program.asked is None:  # the turn is over: refused like any other
            return None
        kept = [pair for pair in self._unheard.pop(program, ()) if pair[0][0] == program.turn]
        match = next((pair for pair in kept if pair[0] == asked), None)
        if rest := [pair for pair in kept if pair is not match]:
            self._unheard[program] = rest
        return match and match[1]

    def _of_program(self, program: Program) -> Sayings:
        return self._sayings.setdefault(program, Sayings(program.agent))

    def _on(self, program: Program, work: Coroutine[Any, Any, Result], gone: Gone) -> Result:
        """The result of a coroutine on the play's own loop. Raises Refused."""
        try:
            future: Future[Result] = asyncio.run_coroutine_threadsafe(work, program.loop)
        except RuntimeError:  # the loop is closed: the run was stopped
            work.close()
            raise Refused("the run was stopped", status=410, code="over") from None
        try:
            return _waited(future, gone, program.loop)
        except OverError as error:
            raise Refused(str(error), status=410, code="over") from None
        except ProtocolFault as error:
            raise Refused(str(error), status=409, code="conflict") from None
        except CancelledError:
            raise Refused("the turn is over", status=409, code="conflict") from None
        except Exception as error:
            raise _failed(error) from None

    @contextmanager
    def _counted(self) -> Any:
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    def _only(self, method: str, allowed: str) -> None:
        if method != allowed:
            raise Refused(f"{method} is not served here; send {allowed}", status=405)


def _waited(future: Future[Result], gone: Gone, loop: asyncio.AbstractEventLoop) -> Result:
    while True:
        try:
            return future.result(LOOK_S)
        except NotYet:
            # raised by the work itself it is an answer
            if future.done():
                raise
        if gone() or loop.is_closed():
            future.cancel()
            raise Refused("nobody waits for the answer", status=499)


def _failed(error: Exception) -> Refused:
    """A model call that raised: the play has failed with it, or was cut."""
    if isinstance(error, Cut):
        return Refused(
            "the prompt is too long for the model, so the play is cut",
            code="context_length_exceeded",
        )
    text = clean(str(error)).split("\n", 1)[0] if isinstance(error, GemMaError) else ""
    return Refused(
        f"the model call failed, and the play with it: {type(error).__name__} {text}".rstrip(),
        status=500,
        code="server_error",
    )
