"""The tool `python`: an interactive session behind the wall, one for each agent and play.

A session is its cells. A fork has the cells and no process: it runs them anew when it goes on, in
the same order, with the same seed of `random` and of hashes. A cell that is ended for its time, or
ends its process, counts as never typed: the state is that before it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from textwrap import dedent
from typing import Any

from gem_ma.tools.belt import Equipment, Use
from gem_ma.tools.sandbox import POOL, TIMEOUT_S, Worker, cut_output, require
from gem_ma.tools.walls import Wall, mounts
from gem_ma.types import Tool

# sessions with a live process; the oldest gives its own up, and is built again when it is needed
MOST_LIVE = 64
_LIVE: list[Session] = []
_LOCK = threading.Lock()
DESCRIPTION = (
    "Runs Python and gives what it prints, and the value of its last line. Variables stay for the"
    " next call. There are no files of yours and no network."
)
NO_CODE = "raise TypeError('code is a text')"
PARAMETERS = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "Python source."}},
    "required": ["code"],
}


class Session(Use):
    """The cells of a play, and a process in which the first `done` of them have run."""

    def __init__(self, wall: Wall, timeout_s: float) -> None:
        self.wall, self.timeout_s = wall, timeout_s
        self.cells: list[str] = []
        self.worker: Worker | None = None
        self.done = 0
        self.closed = False
        self.busy = threading.Lock()  # held while cells run: its process is not taken from it then

    def plan(self, name: str, arguments: Mapping[str, Any]) -> None:
        code = arguments.get("code")
        # Some templates put a space in front of a value, which Python would refuse.
        self.cells.append(dedent(code) if isinstance(code, str) else NO_CODE)

    def run(self) -> Any:
        with self.busy:
            return self._run(list(self.cells))

    def _run(self, cells: list[str]) -> Any:
        if self.worker is None or not self.worker.sound or self.done != len(cells) - 1:
            self.release()
            for cell in cells[:-1]:
                self._cell(cell, 3 * self.timeout_s)  # it has ended in its time before
        answer = self._cell(cells[-1], self.timeout_s)
        return cut_output(answer)

    def _cell(self, code: str, timeout_s: float) -> dict[str, Any]:
        if self.closed:  # the play is over, and nobody waits for this call any more
            return {"status": "died", "out": "", "cut": 0}
        if self.worker is None:
            self.worker = POOL.take(self.wall)
            _enter(self)
        answer = self.worker.ask({"code": code, "keep": True}, timeout_s)
        if answer["status"] in ("ok", "error"):
            self.done += 1
        else:
            self.release()
        return answer

    def text_of(self, result: Any) -> str:
        if result is None or result["status"] not in ("ok", "error"):
            # never typed: what comes later finds the state that was there before
            self.cells.pop()
            late = result is None or result["status"] == "timeout"
            what = f"it took longer than {self.timeout_s:g} s" if late else "its process ended"
            head = result["out"] if result else ""
            return f"{head}Error: {what}; the session is as it was before this call"
        return str(result["out"])

    def release(self, *, gently: bool = True) -> None:
        """Gives the process up; the cells stay. `gently`: no cell runs in it."""
        worker, self.worker, self.done = self.worker, None, 0
        with _LOCK, suppress(ValueError):
            _LIVE.remove(self)
        if worker is None:
            return
        if gently and worker.sound:
            # A new worker starts an interpreter; one that ended all of a session's is as good.
            worker.ask({"end": True}, self.timeout_s)
            POOL.give_back(worker)
        else:
            worker.close()

    def close(self) -> None:
        self.closed = True
        idle = self.busy.acquire(blocking=False)
        try:
            self.release(gently=idle)
        finally:
            if idle:
                self.busy.release()


def _enter(session: Session) -> None:
    with _LOCK:
        _LIVE.append(session)
        others = _LIVE[:-1] if len(_LIVE) > MOST_LIVE else []
    for other in others:
        if other.busy.acquire(blocking=False):
            try:
                other.release()
            finally:
                other.busy.release()
            return


class Python(Equipment):
    """`tools: [python]`."""

    tools = (Tool("python", DESCRIPTION, PARAMETERS),)

    def __init__(
        self,
        timeout_s: float = TIMEOUT_S,
        sandbox: str = "bubblewrap",
        packages: Sequence[str] = (),
        uses: int = 5,
        reward: float = 0.0,
    ) -> None:
        """Raises ConfigError where this machine cannot build the wall."""
        require(sandbox)
        self.wall, self.timeout_s = Wall(sandbox, tuple(packages)), timeout_s
        mounts(self.wall.packages)  # a package that is missing is named before anything is played
        self.uses, self.reward = uses, reward

    def open(self) -> Session:
        return Session(self.wall, self.timeout_s)
