"""Weights & Biases. `WANDB_MODE` and the option `mode` (online, offline, disabled) are honoured;
its files lie in `wandb/` of the run folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gem_ma.training.tracking import PROJECT, Facts

# The run of a tracking library, as a tracker: what wandb and trackio have in common.


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


LOGIN_S = 30  # an unattended run must not wait for somebody to log in


def open_tracker(facts: Facts, **options: Any) -> LibraryRun:
    """A run of its own, or the one of this folder again. A project is the option, else
    WANDB_PROJECT, else gem_ma."""
    import wandb

    names = {"project": os.environ.get("WANDB_PROJECT") or PROJECT, "name": facts.name, **options}
    quiet = {"console": "off", "silent": True, "login_timeout": LOGIN_S}
    return LibraryRun(
        wandb.init(
            id=facts.id,
            # the same run again, or a new one where the project lost it
            resume="allow",
            dir=str(facts.path),
            config=dict(facts.settings),
            settings=quiet,
            **names,
        )
    )
