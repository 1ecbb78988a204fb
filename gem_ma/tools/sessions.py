"""What the tools with a session share: `python` and `shell`, one for each agent and play.

A session is its cells. A fork has the cells and no process: it runs them anew when it goes on, in
the same order. A cell that is ended for its time, or ends its process, counts as never typed: the
state is that before it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.tools.belt import Holders, Use
from gem_ma.tools.sandbox import MAX_IDLE, POOL, Worker, cut_output
from gem_ma.tools.walls import Wall

# as many processes are kept for the next sessions: plays of a batch end together
HOLDERS = Holders(MAX_IDLE)
OPENING_S = 60.0  # of each cell of ours


class Session(Use):
    """The cells of a play, texts of Python, and a process in which the first `done` of them have
    run. `opening`: cells of ours that run before them in every process."""

    def __init__(self, wall: Wall, timeout_s: float, opening: Sequence[str] = ()) -> None:
        self.wall = wall
        self.timeout_s = timeout_s
        self.opening = opening
        self.cells: list[str] = []
        self.worker: Worker | None = None
        self.done = 0
        self.closed = False
        self.busy = threading.Lock()  # held while cells run

    def cell_of(self, arguments: Mapping[str, Any]) -> str:
        """What runs for a call."""
        raise NotImplementedError

    def words(self, result: Any) -> str:
        """The result of a cell that came to its end."""
        return str(result["out"])

    def plan(self, name: str, arguments: Mapping[str, Any]) -> None:
        self.cells.append(self.cell_of(arguments))

    def run(self) -> Any:
        # few cells at once: hundreds of plays that call would each start a process
        with self.busy, POOL.room(self.wall):
            answer = self._run(list(self.cells))
            if self.is_last:
                self.release()
            return answer

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
            HOLDERS.enter(self)
            for each in self.opening:
                begun = self.worker.ask({"code": each, "keep": True}, OPENING_S)
                if begun["status"] != "ok":  # without it no cell would do what it says
                    self.release()
                    why = begun.get("why", begun["status"])
                    return {"status": "died", "out": f"No session began: {why}\n", "cut": 0}
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
        return self.words(result)

    def release(self, *, gently: bool = True) -> None:
        """Gives the process up; the cells stay. `gently`: no cell runs in it."""
        worker = self.worker
        self.worker = None
        self.done = 0
        HOLDERS.leave(self)
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
