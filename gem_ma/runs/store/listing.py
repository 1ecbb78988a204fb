"""The run folders below a folder: what each played, with whom, and what came of it.

It reads, and runs no code that a folder names.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from gem_ma.config.document import read as read_yaml
from gem_ma.config.seats import entries_in, seats_in
from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.runs.store.index import fits, read_stamp
from gem_ma.runs.store.lines import (
    older_summary,
    read_manifest,
    read_resolved,
    standing_summary,
)
from gem_ma.runs.store.manifest import read_tags
from gem_ma.system.files import (
    MOST_JSON,
    MOST_LINE,
    damage,
    kind,
    names,
    oserror,
    read,
    read_json,
    stamp_of,
)
from gem_ma.system.parts import open_parts

MOST_FLOAT = sys.float_info.max

# of each listed folder, by its path: the stamps of its files, and what they said
Listing = dict[str, tuple[object, dict[str, Any]]]


def list_runs(root: Path = Path("runs"), earlier: Listing | None = None) -> list[dict[str, Any]]:
    """Run folders below `root`, newest first.

    Keys: `name run created scenario episodes cast models score tags finished error`. `cast`: agent
    -> its policy, or its behaviour where it has none; `WORLD AGENT`: its seat in one scenario of
    several alone. `models`: policy -> model. `score`: name -> mean, success where it was judged,
    else every return; of a training those after it. An unreadable folder has `name`, `run` and its
    `error`. `earlier`: a dict that the caller hands over each time; only folders whose files have
    changed are read again.
    """
    earlier = {} if earlier is None else earlier
    runs: list[dict[str, Any]] = []
    root = Path(root)
    for folder in (root / name for name in sorted(os.listdir(root))) if root.is_dir() else []:
        # lexists: a link that leads nowhere is a damaged run, and shown as one
        if not os.path.lexists(folder / "manifest.json"):
            continue
        # before the reading: what is written meanwhile has another stamp the next time
        stamps = [stamp_of(folder / name) for name in _READ]
        place = str(folder)
        if place not in earlier or earlier[place][0] != stamps:
            # one broken folder may not hide the others
            try:
                earlier[place] = stamps, _listed(folder)
            except (StoreError, OSError) as error:
                earlier.pop(place, None)  # rights may change without a stamp
                runs.append({"name": folder.name, "run": place, "error": str(error)})
                continue
        runs.append(dict(earlier[place][1]))
    # dates in ISO 8601 are in order as text; an unreadable folder has none and comes last
    return sorted(runs, key=lambda run: str(run.get("created", "")), reverse=True)


def run_folders(path: Path) -> list[Path]:
    """The run folders that a path stands for: itself, or all in it, by name; of a study, and of one
    in it, the cells that it compares. Damaged ones are among them. Raises StoreError where there is
    none."""
    if os.path.lexists(path / "manifest.json"):
        return [path]
    with oserror(path):
        found = [*_below(path, 1)]
    if not found:
        raise StoreError(f"{path}: holds no run folder; one has a manifest.json")
    return found


def _below(path: Path, deeper: int) -> Iterator[Path]:
    # beside them may lie cells that the grid has no more, or with fewer repeats
    cells = {*_cells(path)} if is_study(path) else None
    for folder in (path / name for name in sorted(os.listdir(path))):
        if os.path.lexists(folder / "manifest.json"):
            if cells is None or folder.name in cells:
                yield folder
        elif deeper and folder.is_dir():
            yield from _below(folder, deeper - 1)


STUDY = "study.json"


def _cells(study: Path) -> list[str]:
    """The names of the folders of its cells. Raises StoreError."""
    summary = read_json(study / STUDY, study)
    with damage(study / STUDY):
        return [str(cell["run"]) for cell in summary["cells"]]


def folders_of_runs(root: Path) -> list[Path]:
    """The folders directly below a folder that hold runs, as of several seeds or of scorecards, and
    are neither a run nor a study, by name. Those that cannot be read are passed over."""
    found = []
    for folder in [root / name for name in sorted(os.listdir(root))] if root.is_dir() else []:
        try:
            if not is_study(folder) and run_folders(folder) != [folder]:
                found.append(folder)
        except StoreError:
            continue
    return found


def is_study(path: Path) -> bool:
    """Whether this is the folder of a study that has been compared; no link inside is followed."""
    return kind(path / STUDY, path) == "a file" and kind(path / "manifest.json", path) is None


def since_compared(path: Path, summary: Mapping[str, Any]) -> str:
    """Which cells of a study have other plays by now than those that its study.json compares, as a
    line; "" where all stand. A cell that is gone or damaged says nothing."""
    changed = []
    there = {*names(path)}  # what stands in a file may lead elsewhere
    for cell in summary["cells"]:
        place = path / str(cell["run"])
        try:
            if place.name not in there or kind(place / "manifest.json", path) != "a file":
                continue
            found = standing_summary(place, of_all=False) or older_summary(place)
        except (StoreError, OSError):
            continue
        # killed in the middle, it has none that stands
        if found is None or any(found.get(key) != cell.get(key) for key in _COUNTS):
            changed.append(place.name)
    if not changed:
        return ""
    return (
        f"{path}: {', '.join(changed)} played on since the cells were compared; the numbers of then"
        f" are shown; compare anew with: {summary.get('command')}"
    )


_COUNTS = ("episodes", "ok", "failed", "excluded")


def find_studies(root: Path) -> dict[str, Path]:
    """The folders of studies below a folder by their names; "" is the folder itself."""
    names = sorted(os.listdir(root)) if root.is_dir() else []
    places = {name: root / name for name in names if kind(root / name, root) == "a folder"}
    return {name: place for name, place in {"": root, **places}.items() if is_study(place)}


def list_studies(root: Path = Path("runs")) -> list[dict[str, Any]]:
    """The folders of studies below `root`, the one that was compared last first.

    Keys: `name study compared axes cells episodes failed scores tags changed error`. `axes`: axis
    -> its names; `compared`: when, in ISO 8601; `scores`: those that are compared; `changed`: which
    cells were played on since, as a line. An unreadable one has
    `name`, `study` and its `error`.
    """
    found: list[dict[str, Any]] = []
    for name, folder in find_studies(Path(root)).items():
        if not name:
            continue
        entry: dict[str, Any] = {"name": name, "study": str(folder)}
        file = folder / STUDY
        try:
            summary = read_json(file, folder)
            compared = datetime.fromtimestamp(os.lstat(file).st_mtime, UTC)
            with damage(file):
                entry |= {
                    "compared": compared.isoformat(timespec="seconds"),
                    "axes": dict(summary["axes"]),
                    "cells": len(summary["cells"]),
                    "episodes": sum(cell["episodes"] for cell in summary["cells"]),
                    "failed": sum(cell["failed"] for cell in summary["cells"]),
                    "scores": list(summary["compared"]),
                    "tags": read_tags(summary),
                    "changed": since_compared(folder, summary),
                    "error": None,
                }
        except (StoreError, OSError) as error:
            entry["error"] = str(error)
        found.append(entry)
    return sorted(found, key=lambda study: str(study.get("compared", "")), reverse=True)


_READ = ("manifest.json", "resolved.yaml", "summary.json", "episodes.jsonl")


def _listed(folder: Path) -> dict[str, Any]:
    """Raises StoreError, OSError."""
    manifest = read_manifest(folder)
    named, cast, models = _played(folder)
    summary = _summary(folder)
    return {
        "name": folder.name,
        "run": str(folder),
        "created": str(manifest.get("created") or ""),
        "scenario": named,
        "episodes": _count(folder, summary),
        "cast": cast,
        "models": models,
        "score": _score(summary),
        "tags": read_tags(manifest),
        "finished": is_whole(summary),
        "error": None,
    }


Played = tuple[str, dict[str, str], dict[str, str]]


def _played(folder: Path) -> Played:
    """What resolved.yaml says of the scenario, the cast and the models. Raises StoreError."""
    file = folder / "resolved.yaml"
    text = read(file, folder, MOST_JSON).decode("utf-8-sig", "surrogateescape")
    # We write these sections before `run:`, so that the head is enough, and often equals that of
    # the run before. A file in which one of them stands elsewhere is read whole.
    head, _, tail = text.partition("\nrun:")
    if tail and not _ELSEWHERE.search(tail):
        try:
            named, cast, models = _facts_of(head)
            return named, dict(cast), dict(models)
        except ConfigError:
            pass  # told below, with the file
    return _facts(read_resolved(folder))


# in the tail: one of these sections, or a key that is written otherwise
_ELSEWHERE = re.compile(r"^(?:(?:scenarios?|agents|policies)\b|[^\sa-z#-])", re.MULTILINE)


@lru_cache(maxsize=256)
def _facts_of(text: str) -> Played:

    document = read_yaml(text, "resolved.yaml")
    document.refuse()
    if not isinstance(document.value, dict):
        raise ConfigError("no mapping")
    return _facts(document.value)


def _facts(resolved: Any) -> Played:
    scenario = resolved.get("scenario", {}) if isinstance(resolved, Mapping) else {}
    named = scenario.get("id") if isinstance(scenario, dict) else scenario
    # several by their names, which say more than ids that may be equal
    named = named or ", ".join(entries_in(resolved, "scenarios"))
    return str(named or ""), _cast(resolved), _models(resolved)


def _cast(resolved: Any) -> dict[str, str]:
    return {
        f"{world} {agent}".lstrip(): str(seat.get("policy") or seat.get("behaviour") or "")
        for world, agent, seat in seats_in(resolved)
    }


def _models(resolved: Any) -> dict[str, str]:
    return {
        policy: str(options.get("model") or "")
        for policy, options in entries_in(resolved, "policies").items()
    }


def _summary(folder: Path) -> Mapping[str, Any]:
    """The summary that the plays still come to, {} without one."""
    try:
        return standing_summary(folder, of_all=False) or older_summary(folder) or {}
    except (StoreError, OSError):
        return {}


def is_whole(summary: Mapping[str, Any]) -> bool:
    """Whether a summary is of all plays that were asked for; a training has one at its end."""
    planned, played = (summary.get(key) for key in ("planned", "episodes"))
    if type(planned) is int and type(played) is int:
        return planned <= played
    return bool(summary)


def _score(summary: Mapping[str, Any]) -> dict[str, float]:
    """The means that a summary gives; none of one of another shape."""
    if "after" in summary:  # a training: its last exam, as sampled
        exam = entries_in(summary, "after").get("sampled", {})
        success = exam.get("success")
        returns = exam.get("return")
    else:
        success = summary.get("success")
        returns = summary.get("returns")
        success = success.get("mean") if isinstance(success, Mapping) else None
        returns = {agent: one.get("mean") for agent, one in entries_in(summary, "returns").items()}
    means: dict[str, Any] = {"success": success}
    if isinstance(returns, Mapping):
        means |= {f"return {agent}": value for agent, value in returns.items()}
    # by type: True is an int, and a stranger's file may hold a text
    known = {name: value for name, value in means.items() if type(value) in (int, float)}
    # of more digits than a float has room for, or none: no mean
    known = {name: float(value) for name, value in known.items() if abs(value) <= MOST_FLOAT}
    return {"success": known["success"]} if "success" in known else known


def _count(folder: Path, summary: Mapping[str, Any]) -> int:
    """How many plays a summary that stands is of, in which one that was tried again is one; of a
    training, or without a summary, how many lines the record has, by its index where that fits."""
    if type(summary.get("planned")) is int and type(played := summary.get("episodes")) is int:
        return played
    found = read_stamp(folder)
    if found is not None and fits(found[0], folder):
        return found[0].rows
    return _count_lines(folder / "episodes.jsonl")


def _count_lines(file: Path) -> int:
    """Raises StoreError where a line is longer than any that is written, as soon as that is so."""
    count = 0
    open_line = 0
    with oserror(file), open_parts(file, file.parent, through=True) as opened:
        for block in iter(lambda: opened.read(1 << 17), b""):
            # counted by blocks: an episode may be megabytes long
            count += block.count(b"\n")
            end = block.rfind(b"\n")
            open_line = len(block) - 1 - end if end >= 0 else open_line + len(block)
            if open_line > MOST_LINE:
                raise StoreError(f"{file}: a line of more than {MOST_LINE} bytes; damaged")
    return count
