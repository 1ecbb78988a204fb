"""What a data frame tells of a play of a run: how it came out, who played it, what was found in it,
and what it cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gem_ma.kernel.episode import End, Episode
from gem_ma.runs.costs import prices_of
from gem_ma.runs.export.tables import flat_row
from gem_ma.runs.store.lines import read_resolved
from gem_ma.runs.stored import Recorded
from gem_ma.scores.columns import costs
from gem_ma.scores.groups import CAUSES, labels_if_any, values_of


class Played:
    """Rows of the plays of a run folder."""

    def __init__(self, record: Recorded) -> None:

        self.judge = record.judge
        self.prices = prices_of(record.config) if record.config is not None else {}
        policies = read_resolved(record.path).get("policies") or {}
        self.models = {name: settings.get("model") for name, settings in policies.items()}

    def row(self, episode: Episode) -> dict[str, Any]:
        """The columns of one play, as `gem_ma.Run.rows` names them."""
        row = flat_row(episode, self.judge.success or (lambda one: None))
        for agent, seat in episode.cast.items():
            row[f"model {agent}"] = self.models.get(seat.policy)
        for agent, cost in costs([episode], self.prices).items():
            row |= {f"tokens {agent}": cost["completion"], f"cost {agent}": cost["usd"]}
        return {**row, **dict(self._findings(episode))}

    def _findings(self, episode: Episode) -> Iterator[tuple[str, Any]]:

        if self.judge.measures is not None and episode.end.scored:
            for name, value in values_of(episode, self.judge.measures).items():
                yield f"measure {name}", value
        if self.judge.labels is not None and episode.end is not End.INTERRUPTED:
            for name, values in labels_if_any(episode, self.judge.labels).items():
                yield name if name in CAUSES else f"label {name}", ", ".join(values)
