"""The score of a run folder: what all of its episodes come to, with what they cost."""

from __future__ import annotations

from typing import Any

from gem_ma.config.loading import Loaded
from gem_ma.runs.costs import costs_of, other_models
from gem_ma.runs.store import RunFolder
from gem_ma.runs.worlds import Worlds
from gem_ma.scores.verdicts import noting


def score_of(loaded: Loaded, worlds: Worlds, folder: RunFolder) -> dict[str, Any]:
    """The summary of all episodes of the folder, whichever command played them; what the
    scenarios said of each is kept beside it."""
    rows: dict[Any, Any] = {id_: {"id": list(id_)} for id_ in folder.done()}
    summary = {
        # a folder may hold more than this config asks for, and all of it is scored
        "planned": max(worlds.count(), len(folder.done())),
        **noting(worlds.judge, rows).summarise(folder.episodes()),
        **costs_of(loaded.config, folder.episodes),
    }
    folder.write_verdicts(rows.values())
    return summary | other_models(loaded.config, summary)
