"""What a run was made with: the files that a run folder begins with, and the check that whoever
goes on with it asks for the same.

The episodes are the business of `gem_ma.runs.store.folder`; which settings change results, and
which may change at resume, of `gem_ma.runs.store.names`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gem_ma.config.document import write
from gem_ma.kernel.errors import ConfigError, DataError, StoreError
from gem_ma.runs.store.disk import now, take_lock
from gem_ma.runs.store.lines import read_manifest, read_resolved
from gem_ma.runs.store.names import (
    RESUME_KEYS,
    changed_keys,
    finite,
    growing,
    may_grow,
    plain,
    prices_in,
    resumed_changes,
    rising,
    settings_digest,
    versions,
    with_changes,
)
from gem_ma.runs.store.used import changed_data, changed_files, changed_rules, with_more
from gem_ma.system.files import is_file, oserror, replace_file, sync_folder
from gem_ma.system.parts import PART, size_of

SCHEMA = 1
EDITED = (
    "was edited since the run began; set it back. What may change is typed when the run goes on"
)


def create_or_check(
    path: Path,
    config_text: str,
    resolved: dict[str, Any],
    facts: dict[str, Any],
    resuming: bool,
) -> None:
    """Writes the settings of a new run, or checks those of one that goes on. Raises StoreError,
    ConfigError, DataError as `RunFolder.open` says."""
    if is_file(path / "manifest.json", path):
        _check_same(path, resolved, facts, resuming)
        return
    lines = path / "episodes.jsonl"
    # a manifest that was lost: nobody knows with which settings these were played
    if is_file(lines, path) and size_of(lines, path):
        raise StoreError(
            f"{path}: holds episodes but no manifest.json, so it cannot be taken up; use another"
            " folder or --fresh"
        )
    # late: reading a folder needs no YAML writer
    replace_file(path / "config.yaml", config_text.encode("utf-8", "replace"), path)
    replace_file(path / "resolved.yaml", write(resolved).encode(), path)
    manifest = {
        "schema": SCHEMA,
        "created": now(),
        "resolved": settings_digest(resolved),
        # a run that was begun in one file goes on in it
        "part_bytes": PART,
        "tags": _tags(resolved),
        **versions(),
        **facts,
    }
    # last: a folder that has a manifest is whole
    write_manifest(path, manifest)
    sync_folder(path.parent)


def _check_same(
    path: Path, resolved: dict[str, Any], facts: dict[str, Any], resuming: bool
) -> None:
    """Refuses a folder that was made with other settings, data or models; notes what may change
    at resume, and does."""
    manifest = read_manifest(path)
    recorded = read_resolved(path)
    # an older version kept no digest
    if manifest.get("resolved", settings_digest(recorded)) != settings_digest(recorded):
        raise ConfigError(f"{path / 'resolved.yaml'}: {EDITED}: gem-ma resume {path} KEY=VALUE")
    # what earlier resumes changed stands in the manifest, and resolved.yaml as it was written
    holds = with_changes(recorded, manifest.get("resumed"))
    may_rise = rising(RESUME_KEYS, holds, resolved)
    grows = growing(resolved) if may_grow(holds) else ()
    allowed = (*(may_rise if resuming else ()), *grows)
    if changed := changed_keys(holds, resolved, allowed):
        only_rises = not changed_keys(holds, resolved, (*allowed, *may_rise))
        typed = f"type it at gem-ma resume {path} KEY=VALUE, " if only_rises else ""
        remedy = f"set them back, {typed}or start anew with --fresh"
        raise ConfigError(
            f"{path}: made with other settings; changed: {', '.join(changed)} ({remedy})"
        )
    _check_facts(path, manifest, facts)
    # a folder of an older version that may go on is from now on as one of this
    more: dict[str, Any] = {
        key: facts[key] for key in ("judged", "files") if key in facts and key not in manifest
    }
    # what is typed later is added: a list finds the run by either
    known = read_tags(manifest)
    if tags := [tag for tag in _tags(resolved) if tag not in known]:
        more["tags"] = [*known, *tags]
    # no result depends on it, and whoever reads the run later tells what it cost
    if (prices := prices_in(resolved)) != manifest.get("prices", prices_in(recorded)):
        more["prices"] = prices
    if changes := resumed_changes(holds, resolved, allowed):
        more["resumed"] = [*manifest.get("resumed", []), {"at": now(), "changed": changes}]
    if more:
        write_manifest(path, {**manifest, **more})


def _tags(resolved: Mapping[str, Any]) -> list[str]:
    return list(resolved.get("run", {}).get("tags", ()))


def read_tags(manifest: Mapping[str, Any]) -> list[str]:
    """The tags of a run, or in a study.json; [] of an older version, and where they are damaged."""
    tags = manifest.get("tags")
    return [str(tag) for tag in tags] if isinstance(tags, list) else []


def _check_facts(path: Path, manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Raises DataError where code, rules, data or models are others than when the run began: the
    same settings with these are another run."""
    words = (
        changed_files(manifest, facts)
        or changed_rules(manifest, facts)
        or changed_data(manifest, facts)
        or changed_data(manifest, facts, "exams")
        # what knows no models is asked for none
        or ("models" in facts and changed_data(manifest, facts, "models"))
    )
    if words:
        raise DataError(
            f"{path}: {words} (put it back, or start anew with --fresh or another --out)"
        )


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Replaces manifest.json in one step."""
    text = json.dumps(plain(manifest), indent=1, allow_nan=False) + "\n"
    with oserror(path):
        replace_file(path / "manifest.json", text.encode(), path)


def note_more_files(path: Path, files: Mapping[str, Any]) -> None:
    """Adds to the manifest what plays have used since the run began; for the holder of the lock."""
    if (changed := with_more(read_manifest(path), files)) is not None:
        write_manifest(path, changed)


def note_in_manifest(path: Path, key: str, value: Mapping[str, Any]) -> None:
    """Writes one more fact about a run into its manifest, in one step; an older one of this name is
    replaced.

    Raises StoreError where another process writes into the folder, or its manifest cannot be
    read.
    """
    path = Path(path)
    read_manifest(path)  # first: a lock would leave a file in a folder that is not a run
    lock = take_lock(path)
    try:
        write_manifest(path, {**read_manifest(path), key: {"at": now(), **finite(value)}})
    finally:
        os.close(lock)
