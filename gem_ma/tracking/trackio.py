"""trackio: local runs in its own data folder (`TRACKIO_DIR`), shown by `trackio show`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_ma.tracking import PROJECT, Facts


class Trackio:
    """A tracker around one trackio run."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, values: Mapping[str, float], step: int) -> None:
        """One row of trackio."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Returns when trackio has stored everything."""
        self._run.finish()


def open_tracker(facts: Facts, **options: Any) -> Trackio:
    """A run of its own, or the one of this folder again: its name holds the id, since trackio knows a run by its name."""
    import trackio

    given = {"project": PROJECT, "name": f"{facts.name}-{facts.id}", **options}
    run = trackio.init(config=dict(facts.settings), resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False, **given)
    return Trackio(run)
