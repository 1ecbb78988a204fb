"""Tasks of tau-bench: from a flat folder (`tasks_*.json`) or a checkout (`tasks_*.py`, read as a
syntax tree, never imported).

A split is a file, a task its place in it. What the file says otherwise than as literals is
refused with file and line.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from gem_ma.scenarios.service_desk.desk.lazy import Lazy
from gem_ma.scenarios.service_desk.desk.overlay import Base
from gem_ma.scenarios.service_desk.desk.shapes import ShapeError
from gem_ma.scenarios.service_desk.desk.task import GoldCall, Task
from gem_ma.scenarios.service_desk.retail.store.schemas import SCHEMAS
from gem_ma.scenarios.service_desk.retail.store.source import (
    CHECKOUT,
    TABLES,
    commit_of,
    digest_of,
    load_tables,
    naming,
    read_json,
    read_text,
    tables_folder,
)
from gem_ma.scenarios.service_desk.retail.store.tasks import (
    flags_of,
    goal_of,
    identity_of,
    remembered,
    wishes_of,
)

from gem_ma.kernel.errors import DataError

# In the order in which the benchmark's command lists them.
SPLITS = ("test", "train", "dev")
_FIELDS = {"user_id": str, "instruction": str, "actions": list, "outputs": list}


class TauBench:
    """A data folder: its tables, its tasks by split, its policy text. Raises DataError at once
    where a table is missing or damaged."""

    semantics = "tau1"

    def __init__(self, folder: str | Path) -> None:
        self.folder, self.named = str(folder), naming(folder)
        self.base: Base = load_tables(folder)
        self.tables_at = tables_folder(folder)
        # `fromkeys` drops what is named twice and keeps the order: next to the tables first.
        roots = dict.fromkeys(
            (
                self.tables_at,
                self.tables_at.parent,
                Path(folder).expanduser(),
                Path(folder).expanduser() / CHECKOUT,
            )
        )
        self.files: dict[str, Path] = {}
        for split in SPLITS:
            files = [
                root / f"tasks_{split}{ending}" for root in roots for ending in (".json", ".py")
            ]
            # JSON before Python where a folder has both.
            there = [path for path in files if path.is_file()]
            if there:
                self.files[split] = there[0]
        if "dev" in self.files:
            # a folder without training tasks trains on dev, never on test
            self.files.setdefault("train", self.files["dev"])
        self.wiki = next((root / "wiki.md" for root in roots if (root / "wiki.md").is_file()), None)
        self._splits: dict[str, Lazy] = {}

    def __repr__(self) -> str:
        return f"TauBench({self.folder!r})"

    def world(self, task: Task) -> Base:
        """The tables that a task plays on."""
        return self.base

    def provenance(self) -> dict[str, Any]:
        """For the manifest of a run."""
        return {
            "name": "tau-bench retail",
            "folder": self.folder,
            "digest": self.digest,
            "commit": self.commit,
        }

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that the folder holds."""
        return tuple(split for split in SPLITS if split in self.files)

    def policy(self) -> str | None:
        """The policy text of the checkout; None in a flat folder."""
        return read_text(self.wiki, self.named) if self.wiki else None

    def tasks(self, split: str) -> Lazy:
        """The tasks of a split; `train` is `dev` without tasks_train. Raises DataError
        for any other, and for a damaged file."""
        if split not in self._splits:
            # A split without its own file is not an empty one: playing nothing would look like a
            # result.
            if split not in self.files:
                there = ", ".join(self.splits) or "none"
                raise DataError(
                    f"retail data: {self.folder} has no tasks_{split}.json or"
                    f" tasks_{split}.py{self.named}; its splits: {there}"
                )
            path = self.files[split]
            rows, lines = (
                (read_json(path, self.named), [])
                if path.suffix == ".json"
                else _read_python(path, self.named)
            )
            _check_tasks(path, rows, lines, self.named)
            name = f"tau1/{path.stem.removeprefix('tasks_')}"
            # Typed when asked for: flags and wishes are worked out by replay.
            self._splits[split] = Lazy(
                len(rows), lambda place: _typed(self.base, f"{name}/{place}", rows[place])
            )
        return self._splits[split]

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the names and bytes of all files that are used."""
        paths = [self.tables_at / f"{table}.json" for table in TABLES]
        paths += [self.files[split] for split in self.splits]
        return digest_of([*paths, *([self.wiki] if self.wiki else [])], self.named)

    @property
    def commit(self) -> str | None:
        """The git commit of a checkout, if it says."""
        return commit_of(self.folder)


def _typed(base: Base, name: str, row: dict[str, Any]) -> Task:
    actions = tuple(GoldCall(action["name"], action["kwargs"]) for action in row["actions"])
    return Task(
        id=name,
        source="tau-bench",
        user_id=row["user_id"],
        instruction=row["instruction"],
        actions=actions,
        # `or ()`: a null is what some converted files write for no outputs.
        outputs=tuple(row.get("outputs") or ()),
        goal=goal_of(actions),
        knowledge=remembered(identity_of(base, row["user_id"]), row["instruction"]),
        wishes=wishes_of(base, "tau1", actions),
        flags=flags_of(base, "tau1", actions),
        raw=row,
    )


def _read_python(path: Path, named: str) -> tuple[list[dict[str, Any]], list[int]]:
    """The literals of `TASKS... = [Task(...), ...]`, and the line of each task."""
    try:
        with warnings.catch_warnings():
            # such as one about a backslash: the file is not ours to mend
            warnings.simplefilter("ignore")
            tree = ast.parse(read_text(path, named), str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise DataError(
            f"retail data: {path}:{line or 1}: not a task file{named}:"
            f" {str(error).splitlines()[0] if str(error) else 'too deep'}"
        ) from error
    for node in tree.body:
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        elif isinstance(node, ast.AnnAssign):
            target = node.target
        else:
            continue
        if isinstance(target, ast.Name) and target.id.upper().startswith("TASKS"):
            if not isinstance(node.value, ast.List):
                raise DataError(
                    f"retail data: {path}:{node.lineno}: {target.id} is not a list of"
                    f" Task(...){named}"
                )
            # The lines of tasks, for messages about a field that is not a literal's fault.
            return [_task(path, entry, named) for entry in node.value.elts], [
                entry.lineno for entry in node.value.elts
            ]
    raise DataError(
        f"retail data: {path}:1: no assignment to TASKS_TEST, TASKS_TRAIN or TASKS_DEV{named}"
    )


def _task(path: Path, node: ast.expr, named: str) -> dict[str, Any]:
    fields = _keywords(path, node, "Task", named)
    return {
        key: (
            [_action(path, entry, named) for entry in value.elts]
            if key == "actions" and isinstance(value, ast.List)
            else _literal(path, value, f"Task.{key}", named)
        )
        for key, value in fields.items()
        # Who wrote the task down is nothing that anybody plays.
        if key != "annotator"
    }


def _action(path: Path, node: ast.expr, named: str) -> dict[str, Any]:
    return {
        key: _literal(path, value, f"Action.{key}", named)
        for key, value in _keywords(path, node, "Action", named).items()
    }


def _keywords(path: Path, node: ast.expr, name: str, named: str) -> dict[str, ast.expr]:
    if (
        not (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
        )
        or node.args
    ):
        raise DataError(
            f"retail data: {path}:{node.lineno}: expected {name}(...) with keywords only{named}"
        )
    # `**fields` could hold anything, and only running the file would tell.
    if any(keyword.arg is None for keyword in node.keywords):
        raise DataError(f"retail data: {path}:{node.lineno}: {name}(**...) is not a literal{named}")
    return {str(keyword.arg): keyword.value for keyword in node.keywords}


def _literal(path: Path, node: ast.expr, field: str, named: str) -> Any:
    try:
        # what a JSON file would hold in its place
        return json.loads(json.dumps(ast.literal_eval(node)))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise DataError(
            f"retail data: {path}:{node.lineno}: {field} is not a literal that JSON can hold{named}"
        ) from error


def _check_tasks(path: Path, rows: Any, lines: Sequence[int], named: str) -> None:
    """Raises DataError for the first fault of a file of tasks; `lines`: those of the tasks, where
    the file has them."""
    try:
        if not isinstance(rows, list):
            raise ShapeError(f"the file: expected a list of tasks, got {type(rows).__name__}")
        if not rows:
            raise ShapeError("the file: holds no task")
    except ShapeError as fault:
        raise DataError(f"retail data: {path}{named}: {fault}") from None
    for place, row in enumerate(rows):
        try:
            _check_task(f"[{place}]", row)
        except ShapeError as fault:
            # Only a Python file has lines for its tasks; in JSON the place says it.
            where = f"{path}:{lines[place]}" if lines else str(path)
            raise DataError(f"retail data: {where}{named}: {fault}") from None


def _check_task(where: str, row: Any) -> None:
    """Raises ShapeError; `where` is the place of the task."""
    if not isinstance(row, dict):
        raise ShapeError(f"{where}: expected an object, got {type(row).__name__}")
    for field, kind in _FIELDS.items():
        # The only field that a task may leave out.
        if field not in row and field == "outputs":
            continue
        if field not in row:
            raise ShapeError(f"{where}.{field}: is missing")
        if not isinstance(row[field], kind):
            actual = type(row[field]).__name__
            raise ShapeError(f"{where}.{field}: expected {kind.__name__}, got {actual}")
    for number, action in enumerate(row["actions"]):
        _check_action(f"{where}.actions[{number}]", action)
    for number, output in enumerate(row.get("outputs", ())):
        if not isinstance(output, str):
            raise ShapeError(
                f"{where}.outputs[{number}]: expected a text, got {json.dumps(output)[:40]}"
            )


def _check_action(where: str, action: Any) -> None:
    if not (
        isinstance(action, dict)
        and isinstance(action.get("name"), str)
        and isinstance(action.get("kwargs"), dict)
    ):
        raise ShapeError(f"{where}: expected an object with name (text) and kwargs (object)")
    if action["name"] not in SCHEMAS:
        raise ShapeError(f"{where}.name: there is no tool {action['name']!r}")
