"""What was run, for the head of a study's page: the axes, all cells' counts, cost and tokens. It
reads the folders of the cells; of one that is gone or damaged the page tells less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gem_ma.kernel.errors import GemMaError
from gem_ma.pages.static.facts import facts_block
from gem_ma.pages.static.page import Html
from gem_ma.pages.static.study_plots import short_axis
from gem_ma.runs.store import read_manifest, read_resolved, read_summary

Summary = Mapping[str, Any]


def study_facts(path: Path, summary: Summary) -> Html:
    """What was run: the axes, all cells' counts, cost and tokens; the rest as the reference
    cell's folder records it."""
    folders = [path / str(cell["run"]) for cell in summary["cells"] if cell["run"]]
    reference = next(
        (
            path / str(cell["run"])
            for cell in summary["cells"]
            if cell["names"] == summary["reference"] and cell["run"]
        ),
        None,
    )
    # what every cell shares is recorded in each; the reference speaks for all
    manifest, resolved = (_stored(read, reference) for read in (read_manifest, read_resolved))
    whole: dict[str, Any] = {
        key: sum(cell[key] for cell in summary["cells"]) for key in ("ok", "failed", "excluded")
    }
    # summed over all cells, since a study is paid as a whole
    whole |= {"ends": {}, "tokens": {}, "costs": {}}
    for stored in (_stored(read_summary, folder) for folder in folders):
        for end, count in (stored.get("ends") or {}).items():
            whole["ends"][end] = whole["ends"].get(end, 0) + count
        for name in ("tokens", "costs"):
            for agent, counts in (stored.get(name) or {}).items():
                whole[name][agent] = _added(whole[name].get(agent), counts)
    axes = {short_axis(axis): ", ".join(names) for axis, names in summary["axes"].items()}
    design = {
        "cells": len(summary["cells"]),
        **axes,
        "reference": " x ".join(summary["reference"].values()),
    }
    varied = (
        "Cast, models, seeds and config are those of the reference cell; the axes say what differs."
    )
    if not manifest:
        return Html("")
    block = facts_block("", manifest, resolved, {**whole, **design}, folded=False)
    return Html(f'{block}<p class="hint">{varied}</p>')


def _stored(read: Callable[[Path], dict[str, Any] | None], folder: Path | None) -> dict[str, Any]:
    try:
        return (read(folder) if folder is not None else None) or {}
    except GemMaError:  # a folder that is gone or damaged: the page tells less
        return {}


def _added(before: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """Two counts by name; what one of them does not know is not known of both."""
    # a sum that leaves out an unknown price would look like a price
    if before is None:
        return dict(more)
    return {
        key: None if value is None or before.get(key) is None else before[key] + value
        for key, value in more.items()
    }
