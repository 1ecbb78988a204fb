"""A run in Python: its score as a dict, with its folder, episodes and data frames behind it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.runs.export.tables import turn_rows
from gem_ma.runs.played import Played
from gem_ma.runs.store import read_episodes, read_manifest, read_summary
from gem_ma.runs.stored import Recorded, open_record
from gem_ma.scores.summary_rows import table
from gem_ma.system.extras import install


class Run(dict[str, Any]):
    """What a run came to: the keys of its summary.json, and `run`, its folder.

    >>> run = Run("runs/x", {"episodes": 2, "failed": 0, "success": {"mean": 0.5}})
    >>> run, run.success, run["episodes"]
    (Run(runs/x: 2 episodes, success 0.5), 0.5, 2)
    """

    def __init__(self, path: str | Path, summary: dict[str, Any]) -> None:
        super().__init__({"run": str(path), **summary})
        self.path = Path(path)

    @classmethod
    def of(cls, path: str | Path) -> Run:
        """The run of a folder, as its summary.json has it; of a run that has none yet, the score of
        what was played so far. Raises StoreError where it is not a run folder, or damaged."""
        path = Path(path)
        # a link that leads nowhere is damage, and told below
        if not os.path.lexists(path / "manifest.json"):
            fault = "is no run folder: it has no manifest.json" if path.exists() else "is not there"
            raise StoreError(f"{path}: {fault}; gem_ma.open_run takes a run folder or its name")
        read_manifest(path)
        summary = read_summary(path)
        return cls(path, summary) if summary is not None else cls(path, cls(path, {}).score())

    def episodes(self) -> Iterator[Episode]:
        """Every episode, the last attempt of each, one at a time."""
        return read_episodes(self.path)

    @property
    def success(self) -> float | None:
        """The share of plays that succeeded; of a training, of the last exam, as sampled. None
        where nothing judges them."""
        if "after" in self:
            exam = self["after"].get("sampled") or {}
            success: float | None = exam.get("success")
            return success
        judged = self.get("success") or {}
        mean: float | None = judged.get("mean")
        return mean

    def score(self) -> dict[str, Any]:
        """The score of the stored plays, computed anew without a model, as `gem-ma score`."""
        return self._record().summary()

    def rows(self, of: str = "episodes") -> Iterator[dict[str, Any]]:
        """A row for each of the `episodes`, or of their `turns`, as plain values.

        Keys of episodes: `task seed repeat scenario version end error success`, for each agent
        `return`, `behaviour`, `policy`, `model` (that of the policy) and, where it called one,
        `tokens` and `cost` (USD, None where it is not known); `turns`; `measure NAME` of those that
        apply; `blame`, `cause` and `label NAME` of others. Of turns: `task seed repeat scenario
        success end turn step agent text parsed calls reward policy version tokens`. Raises
        ConfigError for another `of`.
        """
        if of not in ("episodes", "turns"):
            raise ConfigError(f"rows are episodes or turns; got {of!r}")
        record = self._record()
        if of == "turns":
            won = record.judge.success or (lambda episode: None)
            return (row for episode in self.episodes() for row in turn_rows(episode, won))
        return map(Played(record).row, self.episodes())

    def to_frame(self, rows: str = "episodes") -> Any:
        """A pandas data frame of `rows(...)`. Raises ConfigError where pandas is missing."""
        try:
            import pandas
        except ImportError:
            raise ConfigError(f"a data frame needs pandas: {install('pandas')}") from None
        return pandas.DataFrame(list(self.rows(rows)))

    def _record(self) -> Recorded:

        # a program reads no stderr; a run that nobody judges has no success
        return open_record(self.path, lambda line: None)

    def __repr__(self) -> str:
        facts = [f"{self[key]} {key}" for key in ("episodes", "failed") if self.get(key)]
        # a run that plays has steps too: their mean
        if "after" in self:
            facts.append(f"{self['steps']} training steps")
        facts += [f"success {self.success:.3g}"] if self.success is not None else []
        return f"Run({self['run']}: {', '.join(facts) or 'nothing played'})"

    def _repr_html_(self) -> str:
        """The score as a table: names of agents and measures come from others, and are escaped."""
        rows = []
        if "returns" in self:
            rows = table(self)
        elif "after" in self:
            rows = [(name, str(value)) for name, value in self["after"].items()]
        cells = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in rows
        )
        return f"<div><p><code>{escape(repr(self))}</code></p><table>{cells}</table></div>"
