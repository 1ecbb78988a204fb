"""Whole folders that may come from a stranger: what may lie in a run folder or a study, and files
that a user or a config names.

What it opens and refuses is in `gem_ma.system.files`.
"""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path

from gem_ma.kernel.errors import StoreError
from gem_ma.system.files import is_file, is_folder, names, oserror, stream, whole

# Names of ours. Whatever else lies in the folder is not ours, is never opened, and is not a fault.
FILES = (
    "config.yaml",
    "resolved.yaml",
    "manifest.json",
    "summary.json",
    "study.json",
    "tracking.json",
    "report.html",
    ".lock",
)
PATTERNS = ("*.jsonl", "*.torn", ".*.tmp")
FOLDERS = ("checkpoints", "models", "league", "media", "baselines", "tensorboard", "wandb")
FOREIGN = ("wandb",)  # its library puts links inside, which we never open


def check_run(path: Path) -> None:
    """Raises StoreError where something of ours in a run folder or a study is not what we write:
    a regular file or a folder, no link."""
    for name in names(path, path):
        entry = path / name
        if name in FOLDERS:
            is_folder(entry, path)
            if name not in FOREIGN:
                _check_inside(entry)
        elif name in FILES or any(fnmatch(name, pattern) for pattern in PATTERNS):
            is_file(entry, path)


def _check_inside(folder: Path) -> None:
    with oserror(folder), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _check_inside(Path(entry.path))
            # says in words what it is
            elif not entry.is_file(follow_symlinks=False):
                is_file(Path(entry.path))


def run_around(path: Path) -> Path | None:
    """The nearest folder above a path, as it is written, that is a run folder; None where the
    path lies in none."""
    whole = Path(os.path.abspath(path))
    # both: a folder of somebody else may well hold a manifest.json
    marks = ("manifest.json", "resolved.yaml")
    return next(
        (above for above in whole.parents if all(os.path.lexists(above / mark) for mark in marks)),
        None,
    )


def read_named(path: Path, most: int | None = None) -> bytes:
    """A file that the user or a config named: a model, a table, a config. Raises StoreError,
    FileNotFoundError.

    In a run folder no link is followed; elsewhere it may be one, since caches of models are made
    of links. It is a regular file all the same.
    """
    root = run_around(path)
    if root is not None:
        with stream(Path(os.path.abspath(path)), root) as file:
            return whole(file, path, most)
    if not os.path.isfile(path):
        os.stat(path)  # what is not there says so
        raise StoreError(f"{path}: is not a regular file")
    with open(path, "rb") as file:
        return whole(file, path, most)


def check_named(folder: Path) -> None:
    """Raises StoreError where a file of a model folder is a pipe, a device or a link that leads
    nowhere; in a run folder, for every link."""
    root = run_around(folder)
    if root is not None:
        whole = Path(os.path.abspath(folder))
        is_folder(whole, root)
        _check_inside(whole)
        return
    for entry in sorted(folder.iterdir()):
        if not (entry.is_file() or entry.is_dir()):
            raise StoreError(f"{entry}: is not a regular file")
