"""The client of `gem-ma serve`: a program's side of the plays that it sits in.

>>> from gem_ma.trainers.seat import plays
>>> for play in plays("http://127.0.0.1:8765"):  # doctest: +SKIP
...     play.run(lambda messages: ask_my_agent(messages, play.base_url))

Needs the standard library alone, and nothing of this one: it may be copied to where a program
runs. A model of any library is pointed at `play.base_url`; what it samples there is on record.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any

PATIENCE_S = 60.0  # of one request; the server answers a waiting one after 20
OVER = 410
BUSY = 503
RETRIED_S = 1.0


class SeatError(Exception):
    """The server refused a request. `status` is HTTP's; 410: the play is over."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class PlayOver(SeatError):
    """The play ended before this could be done; `Play.run` takes it for no fault."""


def plays(address: str, *, agent: str | None = None, key: str = "") -> Iterator[Play]:
    """Seats of the server, one play after another, until all is played; in several threads or
    processes at once, each has plays of its own. `agent`: which seat, where several are served."""
    address = address.rstrip("/")
    met = False
    while True:
        try:
            seat = _ask("POST", f"{address}/episodes", {"agent": agent} if agent else {}, key)
        except SeatError as error:
            if error.status == OVER:
                return
            if error.status != BUSY:
                raise
            time.sleep(RETRIED_S)
            continue
        except OSError:
            if met:  # the server ends with the last play
                return
            raise
        met = True
        yield Play(f"{address}/episode/{seat['episode']}", seat, key)


class Play:
    """One seat in one play.

    `base_url` is where the seat's policy answers chat completions. `messages` are new since the
    last turn, `tools` and `legal` what may be done now, each as chat completions write it. After
    the end (`over`) `earned` is what the agent got, `end` how it ended.
    """

    def __init__(self, address: str, seat: Mapping[str, Any], key: str) -> None:
        self.address = address
        self.base_url = f"{address}/v1"
        self.agent = str(seat["agent"])
        self.messages: list[dict[str, Any]] = []
        self.tools: list[dict[str, Any]] = []
        self.legal: list[str] | None = None
        self.over = False
        self.end = ""
        self.earned = 0.0
        self.error = None
        self._turn = 0
        self._key = key
        # libraries run the tools of one answer side by side, and a turn is one of them
        self._lock = threading.RLock()
        self._take(seat)

    def say(self, text: str) -> list[dict[str, Any]]:
        """Acts by a text; gives what is new then."""
        return self.act({"role": "assistant", "content": text})

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Acts by a tool call; gives its result, as text."""
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"call_of_turn_{self._turn}", "type": "function", "function": function}
        new = self.act({"role": "assistant", "content": None, "tool_calls": [call]})
        return "\n".join(_text(message) for message in new) or "(the conversation is over)"

    def act(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Acts by an assistant's message, as a model gave it; gives what is new then. Raises
        PlayOver."""
        with self._lock:
            if self.over:
                raise PlayOver(f"the play is over ({self.end})", OVER)
            body = {"turn": self._turn, "message": dict(message)}
            try:
                self._take(_ask("POST", f"{self.address}/act", body, self._key))
            # it ends with the last play, perhaps at this moment
            except (ConnectionError, urllib.error.URLError) as error:
                raise PlayOver(f"the server is gone ({error})", OVER) from error
            return self.messages

    def leave(self, reason: str = "") -> None:
        """Gives up: the play counts as failed, with the reason."""
        with self._lock:
            if not self.over:
                self.over = True
                self.end = "left"
                _ask("DELETE", self.address, {"reason": reason}, self._key)

    def run(self, answer: Callable[[list[dict[str, Any]]], str | Mapping[str, Any]]) -> None:
        """Plays to the end: `answer(messages)` gives a text, or an assistant's message. What it
        raises fails this play, and is printed; a tool may have ended the play meanwhile, and what
        is raised then is not a fault."""
        try:
            while not self.over:
                message = answer(self.messages)
                if isinstance(message, str):
                    message = {"role": "assistant", "content": message}
                if not self.over:
                    self.act(message)
        except Exception as error:
            if self.over:
                return
            reason = f"{type(error).__name__}: {error}"
            try:
                self.leave(reason)
            except (SeatError, OSError) as refused:
                # the play failed first, with a model call of it: the record knows why
                reason = f"{reason} ({refused})"
            print(f"{self.agent}: the play failed: {reason}", file=sys.stderr)

    def _take(self, state: Mapping[str, Any]) -> None:
        while state["state"] == "wait":
            state = _ask("GET", self.address, None, self._key)
        self.messages = []
        self.tools = []
        self.legal = None
        if state["state"] == "over":
            self.over = True
            self.end = str(state["end"])
            self.earned = float(state["earned"])
            self.error = state["error"]
        else:
            self._turn = int(state["turn"])
            self.messages = state["messages"]
            self.tools = state["tools"]
            self.legal = state["legal"]


def _text(message: Mapping[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def _ask(method: str, address: str, body: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
    """The server's answer. Raises SeatError for a refusal, OSError without a server."""
    request = urllib.request.Request(address, method=method)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    # no proxy: the environment's would be asked for a server of this machine
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=PATIENCE_S) as response:
            answer: dict[str, Any] = json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            message = _refusal(error.read())
        kind = PlayOver if error.code == OVER else SeatError
        raise kind(message or f"status {error.code}", error.code) from None
    return answer


def _refusal(text: bytes) -> str:
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""
