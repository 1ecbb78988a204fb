"""The desk: seats of plays that wait for a program, and the programs that wait for a seat.

Plays run on the event loop of the run, programs are heard in the threads of the server. The desk
is where the two meet, so it is locked. It knows no HTTP and no chat.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gem_ma.serving.program import Program

PATIENCE_S = 300.0  # without a word of a program, until its play has failed
MOST_ENDED = (
    256  # plays that are over and still answered for: their programs may ask how they ended
)


class Desk:
    """Hands out seats, first come first served. `agents`: names or patterns of those that come
    free, where they are known. `note` gets the lines that are for the user who serves, each line
    once."""

    def __init__(
        self,
        agents: Sequence[str] = ("*",),
        *,
        patience_s: float = PATIENCE_S,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.agents = tuple(agents)
        self.patience_s = patience_s
        self._note = note
        self._changed = threading.Condition()
        self._free: deque[Program] = deque()
        self._taken: OrderedDict[str, Program] = OrderedDict()
        self._noted: set[str] = set()
        self.closed = False

    def offer(self, program: Program) -> None:
        """A seat whose agent was asked for the first time; somebody may take it."""
        with self._changed:
            self._free.append(program)
            self._changed.notify_all()

    def withdraw(self, program: Program) -> None:
        """The play of a seat is over before anybody took it."""
        with self._changed:
            if program in self._free:
                self._free.remove(program)

    def take(self, agent: str | None, wait_s: float) -> Program | None:
        """The seat that waits longest, of this agent where one is named; None where none came
        free within so many seconds, or all is over (`closed`)."""
        deadline = time.monotonic() + wait_s
        with self._changed:
            while not self.closed:
                for program in self._free:
                    if agent in (None, program.agent):
                        self._free.remove(program)
                        self._keep(program)
                        return program
                if not self._changed.wait(deadline - time.monotonic()):
                    break
        return None

    def give_back(self, program: Program) -> None:
        """Whoever took the seat never heard of it: it is free again, and the next one's."""
        with self._changed:
            del self._taken[program.key]
            program.seat("")
            self._free.appendleft(program)
            self._changed.notify_all()

    def find(self, key: str) -> Program | None:
        """The seat that was handed out under this key; None where none was, or its play has been
        over for long."""
        with self._changed:
            return self._taken.get(key)

    def close(self) -> None:
        """Nothing is played any more: who waits for a seat is told so."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def note(self, line: str) -> None:
        """Says a line once."""
        with self._changed:
            if line in self._noted:
                return
            self._noted.add(line)
        self._note(line)

    def _keep(self, program: Program) -> None:
        # unguessable: whoever knows the key plays this seat, and one client never meets another's
        program.seat(secrets.token_urlsafe(12))
        self._taken[program.key] = program
        ended = [key for key, each in self._taken.items() if each.end is not None]
        for key in ended[:-MOST_ENDED]:
            del self._taken[key]


# The desk of the run that plays in this context. A behaviour is made from its name, deep inside a
# play, so no desk can be handed down to it; and one process may hold several runs, so it is no
# global either.
DESK: ContextVar[Desk | None] = ContextVar("gem_ma_desk", default=None)
