"""trackio: local runs in its own data folder (`TRACKIO_DIR`), shown by `trackio show`."""

from __future__ import annotations

from typing import Any

from gem_ma.training.tracking import PROJECT, Facts
from gem_ma.training.tracking.wandb import LibraryRun


def open_tracker(facts: Facts, **options: Any) -> LibraryRun:
    """A run of its own, or the one of this folder again: its name holds the id, since trackio
    knows a run by its name."""
    import trackio

    names = {"project": PROJECT, "name": f"{facts.name}-{facts.id}", **options}
    run = trackio.init(
        config=dict(facts.settings),
        # the same run again, or a new one where its database is gone
        resume="allow",
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
        **names,
    )
    return LibraryRun(run)
