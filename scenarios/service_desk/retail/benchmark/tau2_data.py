"""Tasks of tau2-bench: db.json, tasks.json, split_tasks.json and policy.md of its retail folder.
Nothing of the benchmark is ever imported.

A split is a set of task ids; its order is that of tasks.json, as in the benchmark. Keys that may
be missing may be missing; whatever else is wrong is a DataError of one line: file and field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gem_ma.scenarios.service_desk.desk.lazy import Lazy
from gem_ma.scenarios.service_desk.desk.overlay import Base
from gem_ma.scenarios.service_desk.desk.shapes import ShapeError, key_text, kind
from gem_ma.scenarios.service_desk.desk.task import GoldCall, Task
from gem_ma.scenarios.service_desk.grading import tau2
from gem_ma.scenarios.service_desk.retail.store.source import (
    commit_of,
    digest_of,
    naming,
    read_json,
    read_text,
)
from gem_ma.scenarios.service_desk.retail.store.store import RetailStore
from gem_ma.scenarios.service_desk.retail.store.tasks import (
    flags_of,
    goal_of,
    identity_of,
    remembered,
    wishes_of,
)
from gem_ma.scenarios.service_desk.retail.store.tau2 import SHAPES, typed
from gem_ma.scenarios.service_desk.retail.store.tau2_source import (
    FILES,
    file_in,
    load_typed,
    retail_folder,
)
from gem_ma.scenarios.service_desk.retail.store.tau2_tools import TAU2

from gem_ma.kernel.errors import DataError

SEMANTICS = "tau2"


class Tau2Bench:
    """A data folder of tau2-bench: its tables, its tasks by split, its policy text. Raises
    DataError at once where db.json is damaged."""

    semantics = SEMANTICS

    def __init__(self, folder: str | Path) -> None:
        self.base, self.folder, self.named = load_typed(folder), str(folder), naming(folder)
        self.inner = retail_folder(folder) or Path(folder)
        self._worlds: dict[str, Base] = {}
        self._splits: dict[str, Lazy] = {}

    def __repr__(self) -> str:
        return f"Tau2Bench({self.folder!r})"

    def world(self, task: Task) -> Base:
        """The tables that a task plays on: those of the folder, changed as its `initial_state`
        says."""
        state = task.raw.get("initial_state")
        if not state or not (
            state["initialization_actions"]
            or (state["initialization_data"] or {}).get("agent_data")
        ):
            return self.base
        if task.id not in self._worlds:
            try:
                self._worlds[task.id] = self._started(state)
            except ShapeError as fault:
                where = (
                    f"{self.inner / 'tasks.json'}{self.named}: task"
                    f" {task.id.removeprefix('tau2/')}.initial_state"
                )
                raise DataError(f"retail data: {where}: {fault}") from None
        return self._worlds[task.id]

    def _started(self, state: Mapping[str, Any]) -> Base:
        tables: Any = self.base.tables
        changes = (state["initialization_data"] or {}).get("agent_data")
        if changes:
            tables = {table: typed(table, rows) for table, rows in _merged(tables, changes).items()}
        store = RetailStore(Base(tables), SEMANTICS)
        for place, call in enumerate(state["initialization_actions"] or ()):
            answer = store.call(call["func_name"], call["arguments"])
            if answer.startswith("Error: "):
                raise ShapeError(f"initialization_actions[{place}]: {answer}")
        started: dict[str, dict[str, Any]] = {table: dict(rows) for table, rows in tables.items()}
        for table, key in store.overlay.touched():
            started[table][key] = dict(store.overlay.record(table, key))
        return Base(started)

    def provenance(self) -> dict[str, Any]:
        """For the manifest of a run."""
        return {
            "name": "tau2-bench retail",
            "folder": self.folder,
            "digest": self.digest,
            "commit": commit_of(self.folder, Path(self.folder).expanduser().parent),
        }

    def policy(self) -> str | None:
        """The policy text of the folder; None where it has none."""
        path = file_in(self.inner, "policy.md")
        return read_text(path, self.named) if path.is_file() else None

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that the folder has; `base` is all tasks where its file does not say
        otherwise."""
        return tuple(self._ids)

    def tasks(self, split: str) -> Lazy:
        """The tasks of a split. Raises DataError for an unknown one, and for a damaged file."""
        if split not in self._splits:
            if split not in self._ids:
                raise DataError(
                    f"retail data: {self.inner} has no split {split!r}{self.named}; its splits:"
                    f" {', '.join(self._ids)}"
                )
            rows = [self._rows[task_id] for task_id in self._ids[split]]
            self._splits[split] = Lazy(len(rows), lambda place: _typed(self, rows[place]))
        return self._splits[split]

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the names and bytes of all files that are used."""
        paths = [file_in(self.inner, name) for name in FILES]
        return digest_of([paths[0], *filter(Path.is_file, paths[1:])], self.named)

    @cached_property
    def _rows(self) -> dict[str, dict[str, Any]]:
        path = self.inner / "tasks.json"
        if not path.is_file():
            raise DataError(f"retail data: {path} is missing{self.named}")
        rows, tasks = read_json(path, self.named), dict[str, dict[str, Any]]()
        try:
            if not isinstance(rows, list) or not rows:
                raise ShapeError(
                    "the file: expected a list of tasks, got"
                    f" {'an empty one' if rows == [] else kind(rows)}"
                )
            for place, row in enumerate(rows):
                read = tau2.TASK(f"[{place}]", row)
                _check(f"[{place}]", read)
                if read["id"] in tasks:
                    raise ShapeError(f"[{place}].id: {read['id']!r} is the id of an earlier task")
                tasks[read["id"]] = read
        except ShapeError as fault:
            raise DataError(f"retail data: {path}{self.named}: {fault}") from None
        return tasks

    @cached_property
    def _ids(self) -> dict[str, list[str]]:
        path, everything = self.inner / "split_tasks.json", list(self._rows)
        if not path.is_file():
            return {"base": everything}
        splits, orders = read_json(path, self.named), dict[str, list[str]]()
        try:
            if not isinstance(splits, dict):
                raise ShapeError(
                    f"the file: expected an object of task ids by split, got {kind(splits)}"
                )
            for split, ids in splits.items():
                if not isinstance(ids, list):
                    raise ShapeError(
                        f"{key_text(split)}: expected a list of task ids, got {kind(ids)}"
                    )
                for place, task_id in enumerate(ids):
                    if (
                        not isinstance(task_id, (str, int))
                        or isinstance(task_id, bool)
                        or str(task_id) not in self._rows
                    ):
                        raise ShapeError(
                            f"{key_text(split)}[{place}]: there is no task"
                            f" {json.dumps(task_id)[:40]} in tasks.json"
                        )
                listed = {str(task_id) for task_id in ids}
                # the benchmark keeps the order of tasks.json
                orders[split] = [task_id for task_id in everything if task_id in listed]
        except ShapeError as fault:
            raise DataError(f"retail data: {path}{self.named}: {fault}") from None
        return {**orders, "base": orders.get("base", everything)}


def _typed(source: Tau2Bench, row: dict[str, Any]) -> Task:
    scenario, criteria = row["user_scenario"], row["evaluation_criteria"] or {}
    actions = tuple(
        GoldCall(call["name"], call["arguments"], call["requestor"])
        for call in criteria.get("actions") or ()
    )
    bare = Task(f"tau2/{row['id']}", "tau2-bench", "", tau2.scene_text(scenario), actions, raw=row)
    world = source.world(bare)
    mine = tuple(call for call in actions if call.agent == "assistant")
    user_id = _whose(world, mine, bare.instruction)
    found = tau2.criteria_of(bare)
    judged = ("needs_judge",) if found is not None and found.needs_judge else ()
    return replace(
        bare,
        user_id=user_id,
        outputs=tuple(criteria.get("communicate_info") or ()),
        goal=goal_of(mine),
        knowledge=remembered(identity_of(world, user_id), bare.instruction),
        wishes=wishes_of(world, SEMANTICS, mine),
        flags=tuple(sorted((*flags_of(world, SEMANTICS, mine), *judged))),
    )


def _check(where: str, row: Mapping[str, Any]) -> None:
    """What the shape alone does not say. Raises ShapeError."""
    state, criteria = row["initial_state"] or {}, row["evaluation_criteria"] or {}
    start = f"{where}.initial_state"
    # A talk that begins in the middle would need the records of its first half.
    if state.get("message_history"):
        raise ShapeError(f"{start}.message_history: expected null; a talk is played from its start")
    data = state.get("initialization_data") or {}
    if data.get("user_data"):
        raise ShapeError(
            f"{start}.initialization_data.user_data: expected null; the customer has no database"
        )
    for table, rows in (data.get("agent_data") or {}).items():
        path = f"{start}.initialization_data.agent_data.{key_text(table)}"
        if table not in SHAPES:
            raise ShapeError(f"{path}: expected one of {', '.join(SHAPES)}")
        if not isinstance(rows, Mapping):
            raise ShapeError(f"{path}: expected an object, got {kind(rows)}")
    for place, call in enumerate(state.get("initialization_actions") or ()):
        # In the retail domain the user has neither tools nor a database.
        if call["env_type"] == "user":
            path = f"{start}.initialization_actions[{place}].env_type"
            raise ShapeError(f"{path}: the customer has no tools")
    lists = (
        ("initial_state.initialization_actions", "func_name", state),
        ("evaluation_criteria.actions", "name", criteria),
    )
    for path, name, holder in lists:
        for place, call in enumerate(holder.get(path.rpartition(".")[2]) or ()):
            if call[name] not in TAU2:
                raise ShapeError(f"{where}.{path}[{place}].{name}: there is no tool {call[name]!r}")


def _merged(old: Any, new: Any) -> Any:
    """The old value with what the new one says, objects key by key."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return new
    return {
        **old,
        **{key: _merged(old[key], value) if key in old else value for key, value in new.items()},
    }


def _whose(base: Base, actions: Sequence[GoldCall], text: str) -> str:
    """The customer: whom the solution's own calls find or name first, else whose name or address
    stands in the text; "" where nobody's does."""
    users, orders = base.tables["users"], base.tables["orders"]
    store = RetailStore(base, SEMANTICS)
    for call in actions:
        customer = (
            store.call(call.name, call.arguments)
            if call.name.startswith("find_user_id")
            else call.arguments.get("user_id")
        )
        order_id = call.arguments.get("order_id")
        if customer is None and isinstance(order_id, str) and order_id in orders:
            customer = orders[order_id]["user_id"]
        if isinstance(customer, str) and customer in users:
            return customer
    names = (
        (key, f"{user['name']['first_name']} {user['name']['last_name']}", user)
        for key, user in users.items()
    )
    scores = {
        key: (
            (user["email"] in text) * 4
            + (key in text) * 4
            + (name in text) * 2
            + (user["address"]["zip"] in text)
        )
        for key, name, user in names
    }
    best = max(scores, key=lambda key: scores[key], default="")
    return best if scores.get(best, 0) > 1 else ""
