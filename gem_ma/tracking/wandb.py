"""Weights & Biases. `WANDB_MODE` and the option `mode` (online, offline, disabled) are honoured; its files lie in `wandb/` of the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_ma.tracking import PROJECT, Facts

LOGIN_S = 30  # an unattended run must not wait for somebody to log in


class Wandb:
    """A tracker around one wandb run."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Rows of one step are joined by wandb."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Returns when wandb has written or sent everything."""
        self._run.finish()


def open_tracker(facts: Facts, **options: Any) -> Wandb:
    """A run of its own, or the one of this folder again. A project is the option, else WANDB_PROJECT, else gem_ma."""
    import os

    import wandb

    given = {"project": os.environ.get("WANDB_PROJECT") or PROJECT, "name": facts.name, **options}
    quiet = {"console": "off", "silent": True, "login_timeout": LOGIN_S}
    return Wandb(wandb.init(id=facts.id, resume="allow", dir=str(facts.path), config=dict(facts.settings), settings=quiet, **given))
