"""The files of a table's learner in a checkpoint, as JSON; floats survive bit for bit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gem_ma.engines.small.table import Array, decode, encode
from gem_ma.record.json_text import load_json
from gem_ma.training.learner.table_average import Path
from gem_ma.training.learner.table_rows import Moment


class TableState(NamedTuple):
    """Everything that a resume needs, by view; see `TableLearner`."""

    weights: dict[int, Array]
    moments: dict[int, Moment]
    reference: dict[int, Array] | None
    paths: dict[int, Path]
    sums: dict[int, Array]
    version: int


def saved(state: TableState) -> dict[str, bytes]:
    """Files of a checkpoint: table.json, learner.json and, where the loss holds to one,
    reference.json."""
    # sorted, so that the same table is the same bytes; `tolist` writes every float in full
    moments = {
        str(key): [m.tolist(), v.tolist(), n] for key, (m, v, n) in sorted(state.moments.items())
    }
    rest = {
        "version": state.version,
        "moments": moments,
        "paths": {str(key): path for key, path in sorted(state.paths.items())},
        "sums": {str(key): row.tolist() for key, row in sorted(state.sums.items())},
    }
    # a file of its own, since most losses hold to nothing
    held = {"reference.json": encode(state.reference)} if state.reference is not None else {}
    return {
        **held,
        "table.json": encode(state.weights),
        "learner.json": json.dumps(rest).encode(),
    }


def loaded(files: Mapping[str, bytes], policy: str) -> TableState:
    """The inverse of `saved`. Raises ValueError or DataError for what is damaged, KeyError for a
    missing file."""
    weights = decode(files["table.json"], f"policy {policy!r}: table.json")
    rest = load_json(files["learner.json"])
    held = files.get("reference.json")
    reference = decode(held, f"policy {policy!r}: reference.json") if held is not None else None
    moments = {int(key): (_row(m), _row(v), float(n)) for key, (m, v, n) in rest["moments"].items()}
    paths = {
        int(key): tuple((int(view), int(choice)) for view, choice in path)
        for key, path in rest["paths"].items()
    }
    sums = {int(key): _row(row) for key, row in rest["sums"].items()}
    rows = [
        *sums.items(),
        *((key, row) for key, (*pair, _) in moments.items() for row in pair),
    ]
    # files of two checkpoints, each whole in itself, must not be mixed
    shapes = {key: row.shape for key, row in weights.items()}
    if any(row.shape != shapes.get(key) for key, row in rows):
        raise ValueError("learner.json: its rows are not those of table.json")
    return TableState(weights, moments, reference, paths, sums, int(rest["version"]))


def _row(values: Any) -> Array:
    return np.array(values, np.float64)
