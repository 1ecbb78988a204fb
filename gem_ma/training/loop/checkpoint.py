"""Checkpoint folders: bytes in, bytes out, whole or not at all. It knows files and digests, neither
torch nor what a file means.

`<folder>/step-000200/` is written as a temporary sibling, every file synced, then `DONE` (size
and SHA-256 of each file) last, then renamed and the parent synced. A folder without a DONE that
fits is not a checkpoint. Nothing is unpickled: files are safetensors and JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gem_ma.kernel.errors import SchemaError, StoreError
from gem_ma.system.files import (
    is_folder,
    kind,
    make_folder,
    names,
    oserror,
    read,
    read_json,
    remove,
    rename,
    stream,
    sync_folder,
    write_new,
)

SCHEMA = 1
# no slash and no dot in front: a name out of DONE must not lead out of the folder
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,199}")
# six digits, so that a listing sorts by step; more where there are more steps
_STEP = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint. `fell_back`: one line for the user per newer folder that was passed
    over."""

    step: int
    path: Path
    files: Mapping[str, Path]
    digests: Mapping[str, str]
    fell_back: tuple[str, ...] = ()

    def read(self, name: str) -> bytes:
        """The bytes of one file, checked against DONE. Raises StoreError where it is absent or
        damaged."""
        if name not in self.files:
            raise StoreError(f"{self.path}: no file {name!r}; it holds {', '.join(self.files)}")
        data = read(self.files[name], self.path.parent.parent)
        # once more, though it was checked when it was found: a long run may read it much later
        if hashlib.sha256(data).hexdigest() != self.digests[name]:
            raise StoreError(
                f"{self.files[name]}: its bytes differ from its digest in DONE, so the checkpoint"
                " is damaged"
            )
        return data


def write_checkpoint(
    folder: Path, step: int, files: Mapping[str, bytes], begun: Path | None = None
) -> Path:
    """Writes `<folder>/step-<step>/` atomically and gives its path; a kill at any moment leaves
    the earlier checkpoints as they were.

    The same step with the same bytes is left alone; one with other bytes (or damaged) moves
    aside to `<step>.old-<n>`. `begun`: a folder beside, in which other files of it lie already; it
    becomes the checkpoint. Raises StoreError.
    """
    if step < 0 or not files:
        raise StoreError(
            f"a checkpoint needs a step >= 0 and at least one file; got step {step} and"
            f" {len(files)} files"
        )
    for name in files:
        if not _NAME.fullmatch(name) or name == "DONE":
            raise StoreError(
                f"{name!r} cannot be a file of a checkpoint: letters, digits and _ . @ + - only,"
                " and not DONE"
            )
    target = folder / f"step-{step:06d}"
    root = folder.parent
    listing = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        for name, data in files.items()
    }
    if begun is not None:
        listing |= {name: _entry(begun / name, root) for name in names(begun, root)}
    with oserror(target):
        make_folder(folder, root)
        for stale in names(folder, root):
            # of a writer that was killed
            if re.fullmatch(r"step-.*\.tmp-.*", stale) and folder / stale != begun:
                remove(folder / stale, root)
        # a step that is done once more after a resume: the same bytes, already on the disk
        if is_folder(target, root) and not _fault(target, listing):
            if begun is not None:
                remove(begun, root)
            return target
        temporary = begun or folder / f"{target.name}.tmp-{os.getpid()}"
        try:
            make_folder(temporary, root)
            for name, data in files.items():
                write_new(temporary / name, data, root)
            # last: after a kill in between, a folder without DONE is not a checkpoint
            done = {"schema": SCHEMA, "step": step, "files": listing}
            write_new(temporary / "DONE", json.dumps(done, indent=1).encode(), root)
            sync_folder(temporary)
            if is_folder(target, root):
                _put_aside(target, root)
            rename(temporary, target, root)
        except BaseException:  # Ctrl-C too
            with contextlib.suppress(OSError):
                remove(temporary, root)
            raise
        sync_folder(folder)  # or a power cut may take the new name back
    return target


def _put_aside(target: Path, root: Path) -> None:
    """Renames a checkpoint of the same step; a rename over it would not be atomic."""
    number = next(
        n for n in range(1, 10**6) if kind(target.with_name(f"{target.name}.old-{n}"), root) is None
    )
    rename(target, target.with_name(f"{target.name}.old-{number}"), root)


def begin_checkpoint(folder: Path, step: int) -> Path:
    """An empty folder for files that several processes write; see `write_checkpoint`."""
    begun = folder / f"step-{step:06d}.tmp-parts"
    root = folder.parent
    with oserror(begun):
        make_folder(folder, root)
        remove(begun, root)  # of a run that was killed
        make_folder(begun, root)
    return begun


def _entry(file: Path, root: Path) -> dict[str, Any]:
    """The line of DONE for a file."""
    with stream(file, root) as opened:
        size = os.fstat(opened.fileno()).st_size
        return {"sha256": hashlib.file_digest(opened, "sha256").hexdigest(), "size": size}


def prune_checkpoints(folder: Path, step: int, keep: int | None, every: int | None) -> None:
    """Deletes what `train.checkpoints` does not keep of the checkpoints up to `step`, the one just
    written; None keeps all. Raises StoreError.

    Newer ones stay: the run fell back to `step` from them. A kill leaves a folder without its DONE,
    which is not a checkpoint, or no folder at all.
    """
    if keep is None:
        return
    with oserror(folder):
        older = [(number, path) for number, path in _folders(folder) if number <= step]
        for number, path in older[keep:]:
            if every is None or number % every:
                # DONE first: half a checkpoint must not look like a whole one
                remove(path / "DONE", folder.parent)
                remove(path, folder.parent)


def _folders(folder: Path) -> list[tuple[int, Path]]:
    """The steps and folders of all checkpoints, the newest first."""
    found = ((_STEP.fullmatch(name), folder / name) for name in names(folder, folder.parent))
    return sorted(((int(m[1]), path) for m, path in found if m), reverse=True)


def latest_checkpoint(
    folder: Path, unfit: Callable[[Checkpoint], str] | None = None
) -> Checkpoint | None:
    """The newest complete checkpoint of the folder, or None. Every file is checked against DONE;
    damaged checkpoints are passed over, and named in `fell_back`.

    `unfit` says why a complete one cannot be used, "" where it can. Raises SchemaError where the
    newest one was written by a newer gem_ma.
    """
    passed: list[str] = []
    for _, path in _folders(folder):
        fault = _fault(path)
        if fault is None:
            read = read_checkpoint(path, tuple(passed))
            if unfit is None or not (fault := unfit(read)):
                return read
        passed.append(f"{path.name} was passed over: {fault}")
    return None


def read_checkpoint(path: Path, fell_back: tuple[str, ...] = ()) -> Checkpoint:
    """The checkpoint in this folder, which another process found. Raises StoreError where it is
    none."""
    # its digests are not checked here: process 0 has done so, and every `read` does
    named = _STEP.fullmatch(path.name)
    if named is None:
        raise StoreError(
            f"{path}: a checkpoint's folder is not called like this, but like step-000200"
        )
    with oserror(path):
        listing = _listing(path)
    files = {name: path / name for name in listing}
    digests = {name: entry["sha256"] for name, entry in listing.items()}
    return Checkpoint(
        int(named[1]), path, MappingProxyType(files), MappingProxyType(digests), fell_back
    )


def _listing(path: Path) -> dict[str, Any]:
    done = read_json(path / "DONE", path.parent.parent)
    if isinstance(done, dict) and isinstance(done.get("schema"), int) and done["schema"] > SCHEMA:
        raise SchemaError(
            f"{path}: schema {done['schema']} is newer than {SCHEMA}; install a newer gem_ma"
        )
    listing = done.get("files") if isinstance(done, dict) else None
    if (
        not isinstance(listing, dict)
        or not listing
        or not all(isinstance(e, dict) and {"sha256", "size"} <= e.keys() for e in listing.values())
    ):
        raise StoreError("DONE lists no files")
    if any(not _NAME.fullmatch(name) for name in listing):
        raise StoreError("DONE names a file outside of its folder")
    return listing


def _fault(path: Path, expected: Mapping[str, Any] | None = None) -> str | None:
    """Why this folder is not a complete checkpoint (or not the expected one); None where it is."""
    try:
        listing = _listing(path)
        if expected is not None and listing != expected:
            return "it holds other files"
        for name, entry in listing.items():
            found = _entry(path / name, path.parent.parent)
            if found["size"] != entry["size"]:  # as where a full disk cut it short
                return f"{name} has {found['size']} bytes, DONE says {entry['size']}"
            if found["sha256"] != entry["sha256"]:
                return f"{name} differs from its digest in DONE"
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing"
    except SchemaError:  # a newer version wrote it: older checkpoints are not a way out
        raise
    except OSError as error:  # StoreError included
        return str(error)
    return None
