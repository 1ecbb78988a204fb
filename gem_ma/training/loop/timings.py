"""Where the seconds of a training step go. Times are no part of the record of a run, since no
two runs agree on them."""

from __future__ import annotations

import time
from collections.abc import Mapping

PHASES = ("play", "credit", "update", "publish", "record")


class Phases:
    """A clock of one step: the time since the last lap belongs to the phase that has ended."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._last = time.perf_counter()  # the wall clock may be set back while a run goes on

    def lap(self, phase: str) -> None:
        """A phase has ended; a phase may come several times in a step."""
        now = time.perf_counter()
        self.seconds[phase] += now - self._last
        self._last = now

    def row(self, played: float = 0, learned: float = 0) -> dict[str, float]:
        """Seconds by phase and in all, and tokens a second: of `played` sampled tokens while
        playing, of `learned` trained ones in updates."""
        rows: Mapping[str, float] = {
            f"{phase}_s": round(seconds, 6) for phase, seconds in self.seconds.items()
        }
        rates = {
            "play_tokens_per_s": (played, self.seconds["play"]),
            "update_tokens_per_s": (learned, self.seconds["update"]),
        }
        times = {
            name: round(tokens / seconds, 3)
            for name, (tokens, seconds) in rates.items()
            if tokens and seconds > 0  # a coarse clock may see no time pass
        }
        return {
            "at": round(time.time(), 3),  # seconds since the epoch, when the step ended
            "step_s": round(sum(self.seconds.values()), 6),
            **rows,
            **times,
        }
