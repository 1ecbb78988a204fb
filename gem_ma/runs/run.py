"""A run in Python: its score as a dict, with its folder, episodes and data frames behind it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.runs.costs import prices_in, prices_of
from gem_ma.runs.export.tables import flat_row, turn_rows
from gem_ma.runs.store import read_episodes, read_manifest, read_summary, standing_summary
from gem_ma.runs.store.lines import read_settings
from gem_ma.runs.stored import Recorded, open_record, run_summary
from gem_ma.scores.columns import costs, usages_of
from gem_ma.scores.groups import CAUSES, labels_if_any, values_of
from gem_ma.scores.judge import fault_of
from gem_ma.scores.rows import table
from gem_ma.system.extras import install

# What a study and a comparison come to in Python: dicts, with a table of their scores behind them.

NUMBERS = ("mean", "low", "high", "n")


def pandas() -> Any:
    """The library. Raises ConfigError where it is missing."""
    try:
        import pandas as library
    except ImportError:
        raise ConfigError(f"a data frame needs pandas: {install('pandas')}") from None
    return library


class Scores(dict[str, Any]):
    """A result whose scores are a data frame, and a table in a notebook."""

    def rows(self) -> list[dict[str, Any]]:
        """Plain rows, one for each score of each thing that was scored."""
        raise NotImplementedError

    def to_frame(self) -> Any:
        """A pandas data frame of `rows()`. Raises ConfigError where pandas is missing."""
        return pandas().DataFrame(self.rows())

    def _repr_html_(self) -> str:
        rows = self.rows()
        head = "".join(f"<th>{escape(name)}</th>" for name in (rows[0] if rows else ()))
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(_text(value))}</td>' for value in row.values())}</tr>"
            for row in rows
        )
        return f"<table><tr>{head}</tr>{body}</table>"


class Study(Scores):
    """The keys of study.json, and `study`, its folder.

    >>> cell = {"names": {"user": "calm"}, "scores": {"success": {"mean": 0.5, "n": 4}}}
    >>> Study({"axes": {"user": ["calm"]}, "cells": [cell], "comparisons": {}}).rows()
    [{'user': 'calm', 'score': 'success', 'mean': 0.5, 'low': None, 'high': None, 'n': 4, \
'difference': None, 'p': None}]
    """

    def rows(self) -> list[dict[str, Any]]:
        """A row for each cell and score; `difference` and `p` against the reference where the
        score is compared, `p` adjusted where the study adjusts."""
        against = {
            (score, tuple(row["names"].values())): row
            for score, rows in self["comparisons"].items()
            for row in rows
        }
        made = []
        for cell in self["cells"]:
            for score, interval in cell["scores"].items():
                other = against.get((score, tuple(cell["names"].values())), {})
                # a cell may have no number of a score, as pass^k where a try was lost
                numbers = {key: (interval or {}).get(key) for key in NUMBERS}
                p = other.get("p") if other.get("p_adjusted") is None else other["p_adjusted"]
                differs = {"difference": other.get("difference"), "p": p}
                made.append({**cell["names"], "score": score, **numbers, **differs})
        return made


class Comparison(Scores):
    """The keys of `gem_ma.scores.comparison.compare_cells`, with `a`, `b` and `settings`."""

    def rows(self) -> list[dict[str, Any]]:
        """A row for each score: both means, `difference` (b - a) with its interval, and `p`."""
        keys = ("a", "b", "difference", "low", "high", "p", "p_adjusted", "pairs")
        return [
            {"score": name, **{key: row.get(key) for key in keys}}
            for name, row in self["scores"].items()
        ]


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# What a data frame tells of a play of a run: how it came out, who played it, what was found in it,
# and what it cost.


class Played:
    """Rows of the plays of a run folder."""

    def __init__(self, record: Recorded) -> None:

        self.judge = record.judge
        policies = read_settings(record.path).get("policies") or {}
        config = record.config
        self.prices = prices_of(config) if config is not None else prices_in(policies)
        self.models = {name: settings.get("model") for name, settings in policies.items()}

    def row(self, episode: Episode) -> dict[str, Any]:
        """The columns of one play, as `gem_ma.Run.rows` names them."""
        row = flat_row(episode, self.judge.success or (lambda one: None))
        for agent, seat in episode.cast.items():
            row[f"model {agent}"] = self.models.get(seat.policy)
        for agent, cost in costs([usages_of(episode)], self.prices).items():
            row |= {f"tokens {agent}": cost["completion"], f"cost {agent}": cost["usd"]}
        return {**row, **dict(self.findings(episode))}

    def findings(self, episode: Episode) -> Iterator[tuple[str, Any]]:
        """The columns of a play that its scenario's hooks give."""
        if self.judge.measures is not None and episode.end.scored:
            for name, value in values_of(episode, self.judge.measures).items():
                yield f"measure {name}", value
        if (fault := fault_of(episode, self.judge.faults)) is not None:
            yield from (("fault step", fault.step), ("fault agent", fault.agent))
            yield "fault", fault.why
        if self.judge.labels is not None and episode.end is not End.INTERRUPTED:
            for name, values in labels_if_any(episode, self.judge.labels).items():
                yield name if name in CAUSES else f"label {name}", ", ".join(values)


def check_rows(of: str) -> None:
    """Raises ConfigError for what has no rows."""
    if of not in ("episodes", "turns"):
        raise ConfigError(f"rows are episodes or turns; got {of!r}")


def _unsaid(line: str) -> None:
    """A program reads no stderr; a run that nobody judges has no success."""


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
            fault = (
                "is not a run folder: it has no manifest.json" if path.exists() else "is not there"
            )
            raise StoreError(f"{path}: {fault}; gem_ma.open_run takes a run folder or its name")
        is_training = read_manifest(path).get("command") == "train"
        summary = read_summary(path) if is_training else standing_summary(path)
        if summary is None:
            record = open_record(path, _unsaid)
            # the baselines are other plays, which a score of these cannot give
            baselines = (read_summary(path) or {}).get("baselines")
            beside = {"baselines": baselines} if baselines is not None else {}
            summary = {**run_summary(path, record), **beside}
        return cls(path, summary)

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
        `tokens` (sampled), `cost` (USD), None where unknown; `turns`; `measure NAME` of those
        that apply; `blame`, `cause` and `label NAME` of others; of a lost play whose scenario says
        why, `fault step`, `fault agent` and `fault`, a sentence. Of turns: `task seed repeat
        scenario success end turn step agent text parsed calls reward policy version tokens`. Raises
        ConfigError for another `of`.
        """
        check_rows(of)
        record = self._record()
        if of == "turns":
            won = record.judge.success or (lambda episode: None)
            return (row for episode in self.episodes() for row in turn_rows(episode, won))
        return map(Played(record).row, self.episodes())

    def to_frame(self, rows: str = "episodes") -> Any:
        """A pandas data frame of `rows(...)`. Raises ConfigError where pandas is missing."""
        return pandas().DataFrame(list(self.rows(rows)))

    def _record(self) -> Recorded:

        return open_record(self.path, _unsaid)

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
