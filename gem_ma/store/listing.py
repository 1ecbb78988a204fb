"""The run folders below a folder: what each played, with whom, and what came of it.

It reads, and runs no code that a folder names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gem_ma.errors import StoreError
from gem_ma.files import MOST_LINE, is_file, oserror, stream
from gem_ma.store.lines import read_manifest, read_resolved, read_summary


def list_runs(root: Path = Path("runs")) -> list[dict[str, Any]]:
    """Run folders below `root`, newest first.

    Keys: `name run created scenario episodes cast models score finished error`. `cast`: agent ->
    its policy, or its behaviour where it has none. `models`: policy -> model. `score`: name ->
    mean, success where it was judged, else every return; of a training those after it. An
    unreadable folder has `name`, `run` and its `error`.
    """
    runs: list[dict[str, Any]] = []
    root = Path(root)
    for folder in (root / name for name in sorted(os.listdir(root))) if root.is_dir() else []:
        # lexists: a link that leads nowhere is a damaged run, and shown as one
        if not os.path.lexists(folder / "manifest.json"):
            continue
        run: dict[str, Any] = {"name": folder.name, "run": str(folder)}
        try:
            manifest, resolved = read_manifest(folder), read_resolved(folder)
            scenario = resolved.get("scenario", {})
            named = scenario.get("id") if isinstance(scenario, dict) else scenario
            # several by their names, which say more than ids that may be equal
            named = named or ", ".join(_entries(resolved, "scenarios"))
            run |= {
                "created": str(manifest.get("created") or ""),
                "scenario": str(named or ""),
                "episodes": _count_lines(folder / "episodes.jsonl"),
            }
            run |= {"cast": _cast(resolved), "models": _models(resolved), "score": _score(folder)}
            run |= {"finished": is_file(folder / "summary.json", folder), "error": None}
        # one broken folder may not hide the others
        except (StoreError, OSError) as error:
            run["error"] = str(error)
        runs.append(run)
    # dates in ISO 8601 are in order as text; an unreadable folder has none and comes last
    return sorted(runs, key=lambda run: str(run.get("created", "")), reverse=True)


def _entries(value: Any, key: str) -> dict[str, Mapping[str, Any]]:
    """The mappings in a section; nothing of another shape, since the file may be a stranger's."""
    section = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(section, Mapping):
        return {}
    return {str(name): entry for name, entry in section.items() if isinstance(entry, Mapping)}


def _cast(resolved: Any) -> dict[str, str]:
    return {
        agent: str(seat.get("policy") or seat.get("behaviour") or "")
        for agent, seat in _entries(resolved, "agents").items()
    }


def _models(resolved: Any) -> dict[str, str]:
    return {
        policy: str(options.get("model") or "")
        for policy, options in _entries(resolved, "policies").items()
    }


def _score(folder: Path) -> dict[str, float]:
    """The means that a summary gives; none where there is no summary, or one of another shape."""
    try:
        summary: Any = read_summary(folder) or {}
    except StoreError:
        return {}
    if "after" in summary:  # a training: its last exam, as sampled
        exam = _entries(summary, "after").get("sampled", {})
        success, returns = exam.get("success"), exam.get("return")
    else:
        success, returns = summary.get("success"), summary.get("returns")
        success = success.get("mean") if isinstance(success, Mapping) else None
        returns = {agent: one.get("mean") for agent, one in _entries(summary, "returns").items()}
    means: dict[str, Any] = {"success": success}
    if isinstance(returns, Mapping):
        means |= {f"return {agent}": value for agent, value in returns.items()}
    # by type: True is an int, and a stranger's file may hold a text
    known = {name: float(value) for name, value in means.items() if type(value) in (int, float)}
    return {"success": known["success"]} if "success" in known else known


def _count_lines(file: Path) -> int:
    """Raises StoreError where a line is longer than any that is written, as soon as that is so."""
    count, open_line = 0, 0
    with oserror(file), stream(file, file.parent) as opened:
        for block in iter(lambda: opened.read(1 << 20), b""):
            # counted by blocks: an episode may be megabytes long
            count += block.count(b"\n")
            end = block.rfind(b"\n")
            open_line = len(block) - 1 - end if end >= 0 else open_line + len(block)
            if open_line > MOST_LINE:
                raise StoreError(f"{file}: a line of more than {MOST_LINE} bytes; damaged")
    return count
