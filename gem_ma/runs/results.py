"""What a study and a comparison come to in Python: dicts, with a table of their scores behind
them."""

from __future__ import annotations

from html import escape
from typing import Any

from gem_ma.kernel.errors import ConfigError
from gem_ma.system.extras import install

NUMBERS = ("mean", "low", "high", "n")


class Scores(dict[str, Any]):
    """A result whose scores are a data frame, and a table in a notebook."""

    def rows(self) -> list[dict[str, Any]]:
        """Plain rows, one for each score of each thing that was scored."""
        raise NotImplementedError

    def to_frame(self) -> Any:
        """A pandas data frame of `rows()`. Raises ConfigError where pandas is missing."""
        try:
            import pandas
        except ImportError:
            raise ConfigError(f"a data frame needs pandas: {install('pandas')}") from None
        return pandas.DataFrame(self.rows())

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
                numbers = {key: interval.get(key) for key in NUMBERS}
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
