"""The run of a tracking library, as a tracker: what wandb and trackio have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class LibraryRun:
    """A tracker around an open run that has `log(values, step=)` and `finish()`."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, values: Mapping[str, float], step: int) -> None:
        """One row; the library joins the rows of one step."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Returns when the library has written or sent everything."""
        self._run.finish()
