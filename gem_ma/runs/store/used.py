"""Whether a run's code and data are those that its manifest has written down: `files`, with
`code`, `data` and `later` (path as seen from the working folder -> SHA-256) and `unknown` (names
whose code had no file). It opens files and runs no code that a folder names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gem_ma.kernel.errors import GemMaError
from gem_ma.kernel.scenario import Scenario
from gem_ma.registry import builtin, file_of, load, make, names_code
from gem_ma.runs.store.lines import read_manifest, read_resolved
from gem_ma.runs.store.names import differs, fingerprint, recorded_changes, settings_digest
from gem_ma.system.files import digest_of

Digests = dict[str, str]
MOST_TOLD = 3
NO_OPTIONS = ("id", "split", "tasks", "wrappers")  # of the block of a scenario
_CODE = ("id", "behaviour", "summary", "wrappers")  # keys of a config whose values are names
_KINDS = ("code", "data", "later")


def changed_files(manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """What differs between the files that a run began with and those that it would go on with, in
    words; "" where nothing does."""
    recorded = _files(manifest)
    now = _files(facts)
    before = _together(recorded) | _rules(manifest)
    after = _together(now)
    if words := [*_differences(before, after, Path())]:
        return in_words(words)
    unknown = _unknown(manifest, {}) if "files" in manifest else []
    if unknown:
        return in_words([f"code of {name} was not written down" for name in unknown])
    new = _began(now, before)
    if new and "files" not in manifest:
        return in_words([f"{name} was not written down when the run began" for name in new])
    words = [f"{name} is used now and was not when the run began" for name in new]
    words += [f"{name} is not used any more" for name in _began(recorded, after)]
    return in_words(words)


def _began(files: Mapping[str, Digests], others: Digests) -> list[str]:
    """What a run began with of these files, where neither its name nor its bytes are among the
    others."""
    begun = _together({kind: files[kind] for kind in files if kind != "later"})
    known = set(others.values())
    return [name for name in begun if name not in others and begun[name] not in known]


def differing(path: Path, *, noted: bool = False) -> str:
    """What of the code, data and settings behind a run folder lies here otherwise, or no more, than
    when it was played, in words; "" where nothing is known to. `noted`: only of what is written
    down. Raises StoreError."""
    manifest = read_manifest(path)
    recorded = _together(_files(manifest)) | _rules(manifest)
    words = [*_differences(recorded, {}, path)]
    resolved = read_resolved(path)
    # an older version kept no digest
    if manifest.get("resolved", digest := settings_digest(resolved)) != digest:
        words.append("resolved.yaml was edited since the run began")
    if noted:
        return in_words(words)
    words += [f"code of {name} was not written down" for name in _unknown(manifest, resolved)]
    return in_words(words)


def is_as_played(path: Path) -> bool:
    """Whether it is known, without making the scenarios of a run folder, that they still are those
    of its plays: built in, in the version of then, with settings as they were written and nothing
    beside. So a summary of these plays can be shown without a word; False where that takes a closer
    look."""
    try:
        manifest = read_manifest(path)
        recorded_changes(manifest.get("resumed"))
        resolved = read_resolved(path)
        # what was noted of code and data is compared by whoever makes the scenarios
        if {"data", "files"} & manifest.keys() or _wrapped(resolved):
            return False
        versions = scenario_versions(manifest)
        return (
            bool(versions)
            and manifest.get("resolved") == settings_digest(resolved)
            and not _unknown(manifest, resolved)
            and all(
                name in builtin("scenarios")
                and getattr(load("scenarios", name), "version", None) == version
                for name, version in versions.items()
            )
        )
    except GemMaError:
        return False


def as_played(path: Path) -> Scenario | None:
    """The scenario of a run folder as it was made for its plays, where that takes no look at the
    config: a built-in one that `is_as_played`, and no agent has tools; else None."""
    if not is_as_played(path):
        return None
    resolved = read_resolved(path)
    block = resolved.get("scenario")
    seats = resolved.get("agents")
    if not isinstance(block, Mapping) or block.get("id") not in builtin("scenarios"):
        return None
    if not isinstance(seats, Mapping) or any(map(_has_tools, seats.values())):
        return None
    try:
        return make(block["id"], **{key: block[key] for key in block if key not in NO_OPTIONS})
    except Exception:  # of options that were edited; told by whoever opens the config
        return None


def _has_tools(seat: Any) -> bool:
    return not isinstance(seat, Mapping) or bool(seat.get("tools"))


def changed_rules(manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Which scenario has another version than when the run began, in words; "" where none has."""
    before = scenario_versions(manifest)
    after = scenario_versions(facts)
    words = [
        f"{name} is version {after[name]} now, and the run began with version {version}"
        for name, version in before.items()
        if name in after and after[name] != version
    ]
    return in_words(words)


def changed_data(manifest: Mapping[str, Any], facts: Mapping[str, Any], name: str = "data") -> str:
    """How the data of the scenarios, or the models, differ from those of the run, in words; ""
    where they do not, and where the run has noted none."""
    recorded, now = (_without_rules(one.get(name)) for one in (manifest, facts))
    if not recorded or fingerprint(now) == fingerprint(recorded):
        return ""
    return f"{name} changed since the run began: {differs(recorded, now)}"


def _without_rules(data: Any) -> Any:
    """Facts of the data without the scenario's file, which older versions kept among them."""
    if not isinstance(data, Mapping):
        return data
    whole = {key: _without_rules(value) for key, value in data.items() if key != "rules"}
    # of a world whose file was all that was kept nothing is left
    return {key: value for key, value in whole.items() if value != {} or data[key] == {}}


def scenario_versions(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Id -> version of the scenarios of a manifest."""
    several = manifest.get("scenarios")
    blocks = several.values() if isinstance(several, Mapping) else [manifest.get("scenario")]
    return {
        str(block["id"]): block["version"]
        for block in blocks
        if isinstance(block, Mapping) and {"id", "version"} <= block.keys()
    }


def in_words(words: list[str]) -> str:
    """A list in one line."""
    left = len(words) - MOST_TOLD
    return "; ".join([*words[:MOST_TOLD], *([f"and {left} more"] if left > 0 else [])])


def _differences(before: Digests, after: Digests, run: Path) -> Iterator[str]:
    moved = set(after.values())
    for name, digest in before.items():
        lies = after.get(name) or _lying(name, digest, run)
        if lies != digest and not (lies is None and digest in moved):
            yield f"{name} changed since the run began" if lies else f"{name} is gone"


def _lying(name: str, digest: str, run: Path) -> str | None:
    """The digest of a file of this name: seen from the working folder or, where that is another
    one today, from a folder around the run."""
    first = None
    for folder in (Path(), *run.absolute().parents):
        lies = _digest(str(folder / name))
        if lies == digest:
            return digest
        first = first or lies
    # a notebook's code has no file to look at
    return digest if ":" in name else first


def with_more(manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """The manifest with what plays have used since the run began; None where that is nothing."""
    recorded = _together(_files(manifest))
    later = {
        name: digest
        for name, digest in _together(_files({"files": facts})).items()
        if name not in recorded
    }
    if not later:
        return None
    files = dict(manifest.get("files") or {})
    return {**manifest, "files": {**files, "later": {**files.get("later", {}), **later}}}


def _unknown(manifest: Mapping[str, Any], resolved: Any) -> list[str]:
    """The names of code that nothing is written down of."""
    if "files" in manifest:
        files = manifest["files"]
        names = files.get("unknown") if isinstance(files, dict) else None
        return [str(name) for name in names] if isinstance(names, list) else []
    rules = _rules(manifest)
    names = list(dict.fromkeys(_names_of_code(resolved, "")))
    return [name for name in names if str(file_of(name)) not in rules]


def _wrapped(resolved: Any) -> bool:
    """Whether anything lies around the rules of a scenario."""
    several = resolved.get("scenarios") or {"": resolved.get("scenario")}
    blocks = several.values() if isinstance(several, Mapping) else [several]
    return not all(isinstance(block, Mapping) and not block.get("wrappers") for block in blocks)


def _names_of_code(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, str):
        if file_of(value) is not None or (key in _CODE and names_code(value)):
            yield value
        return
    for inner_key, inner in value.items() if isinstance(value, dict) else ():
        yield from _names_of_code(inner, inner_key)
    for inner in value if isinstance(value, list) else ():
        yield from _names_of_code(inner, key)


def _digest(path: str) -> str | None:
    """`digest_of`, of a file that many runs have used taken once."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    if os.path.isdir(path):
        return digest_of(path)
    # no edit leaves the time of the last change as it was, whatever is done to the other times
    stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return _stamped(os.path.abspath(path), stamp)


@lru_cache(maxsize=4096)
def _stamped(path: str, stamp: tuple[int, ...]) -> str | None:
    return digest_of(path)


def _files(manifest: Mapping[str, Any]) -> dict[str, Digests]:
    """What of it is as we write it: a run folder may come from a stranger."""
    files = manifest.get("files")
    kinds = files if isinstance(files, Mapping) else {}
    return {
        kind: {
            name: digest
            for name, digest in (kinds[kind].items() if isinstance(kinds[kind], dict) else ())
            if isinstance(digest, str)
        }
        for kind in _KINDS
        if kind in kinds
    }


def _together(files: Mapping[str, Digests]) -> Digests:
    return {name: digest for kind in files.values() for name, digest in kind.items()}


def _rules(manifest: Mapping[str, Any]) -> Digests:
    """The scenario's file, as the manifests of older versions have it."""
    data = manifest.get("data")
    blocks = [data, *(data.values() if isinstance(data, dict) else ())]
    rules = [block.get("rules") for block in blocks if isinstance(block, dict)]
    return {
        str(one["source"]): one["digest"]
        for one in rules
        if isinstance(one, dict) and isinstance(one.get("digest"), str) and "source" in one
    }
