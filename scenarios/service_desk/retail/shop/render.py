"""Generated tasks in three forms: tau-bench's, tau2-bench's and our own JSON; alone, or as folders
that the loaders read.

The tasks of a folder share its tables, so tasks of several worlds make several folders.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gem_ma.scenarios.service_desk.desk import record
from gem_ma.scenarios.service_desk.desk.overlay import Base
from gem_ma.scenarios.service_desk.desk.task import Task
from gem_ma.scenarios.service_desk.reading.sentences import split
from gem_ma.scenarios.service_desk.retail.domain.texts import POLICY
from gem_ma.scenarios.service_desk.retail.shop.prove import world_of
from gem_ma.scenarios.service_desk.retail.shop.situations import BANK
from gem_ma.scenarios.service_desk.retail.store.tasks import Item
from gem_ma.scenarios.service_desk.retail.store.tau2 import as_tau2
from gem_ma.scenarios.service_desk.retail.store.tau2_tools import TAU2

from gem_ma.kernel.errors import ConfigError, DataError

TAU2_FOLDER = Path("tau2/domains/retail")
MANNERS = (
    "Say yes only to what you want. Give what you are asked for if you know it. End the"
    " conversation when everything is settled."
)


# -- one task ------------------------------------------------------------------------------------


def own_row(task: Task) -> dict[str, Any]:
    """A task as our own JSON; `read_own` gives it back."""
    return record.write_task(task)


def read_own(row: Any) -> Task:
    """The task of our own JSON. Raises DataError."""
    return record.read_task(row, _read_words)


def tau1_row(task: Task) -> dict[str, Any]:
    """A task as an element of tau-bench's `tasks_*.json`."""
    actions = [
        {"name": call.name, "kwargs": dict(call.arguments)}
        for call in task.actions
        if call.agent == "assistant"
    ]
    return {
        "user_id": task.user_id,
        "instruction": task.instruction,
        "actions": actions,
        "outputs": list(task.outputs),
    }


def tau2_row(task: Task) -> dict[str, Any]:
    """A task as an element of tau2-bench's `tasks.json`; what is known, forgotten and wanted are
    told apart."""
    sentences: dict[str, list[str]] = {"known": [], "forgot": [], "wanted": []}
    for sentence in split(task.instruction):
        units = BANK.read(sentence)
        key = "" if isinstance(units, str) else units[0][0]
        sentences[
            (
                "known"
                if key.startswith("who_")
                else "forgot"
                if key.startswith("forgot_")
                else "wanted"
            )
        ].append(sentence)
    steps = [
        {
            "action_id": f"{task.id}_{number}",
            "requestor": call.agent,
            "name": call.name,
            "arguments": dict(call.arguments),
            "info": None,
        }
        for number, call in enumerate(task.actions)
        if call.name in TAU2
    ]
    scene = {
        "domain": "retail",
        "reason_for_call": " ".join(sentences["wanted"]),
        "known_info": " ".join(sentences["known"]) or None,
        "unknown_info": " ".join(sentences["forgot"]) or None,
        "task_instructions": MANNERS,
    }
    return {
        "id": task.id,
        "description": {
            "purpose": ", ".join(wish.intent for wish in task.wishes) or None,
            "relevant_policies": None,
            "notes": None,
        },
        "user_scenario": {"persona": None, "instructions": scene},
        "ticket": None,
        "initial_state": None,
        "evaluation_criteria": {
            "actions": steps,
            "env_assertions": None,
            "communicate_info": list(task.outputs),
            "nl_assertions": None,
            "reward_basis": ["DB", "COMMUNICATE"],
        },
    }


def _read_words(words: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(_item(entry) for entry in value) if name == "items" else value
        for name, value in words.items()
    }


def _item(row: Mapping[str, Any]) -> Item:
    return Item(
        row["name"],
        row["options"],
        row["wanted"],
        tuple((name, value) for name, value in row["prefers"]),
        row["tie"],
    )


# -- folders -------------------------------------------------------------------------------------


def write_world(
    folder: str | Path, form: str, tasks: Iterable[Task], base: Base | None = None
) -> list[Path]:
    """Writes tasks with their tables as folders that the loaders read; gives the folders.

    `form`: `tau1` (a flat folder, its tasks as the split `test`), `tau2` (the `data` folder of a
    checkout) or `own` (tables and `tasks.json`). Tasks of one world go into `folder` itself,
    those of several into `folder/world-<seed>` each. `base`: the tables of all tasks; None makes
    their worlds again. Raises ConfigError for an unknown form or no task, DataError for a task
    that does not say its world and for a folder that cannot be written.
    """
    if form not in FORMS:
        raise ConfigError(f"form: there is {', '.join(FORMS)}; got {form!r}")
    worlds: dict[Any, list[Task]] = {}
    for task in tasks:
        worlds.setdefault(
            (task.world, json.dumps(task.raw.get("sizes"))) if base is None else None, []
        ).append(task)
    if not worlds:
        raise ConfigError("tasks: there is none to write")
    folders: list[Path] = []
    for number, group in enumerate(worlds.values()):
        into = Path(folder) if len(worlds) == 1 else Path(folder) / f"world-{group[0].world}"
        # the same seed in another size
        into = into.with_name(f"{into.name}-{number}") if into in folders else into
        try:
            FORMS[form](into, base or world_of(group[0]), group)
        except OSError as error:
            raise DataError(f"{into}: cannot be written ({error.strerror})") from error
        folders.append(into)
    return folders


def _write_tau1(folder: Path, base: Base, tasks: list[Task]) -> None:
    _write_tables(folder, base)
    _dump(folder / "tasks_test.json", [tau1_row(task) for task in tasks])
    (folder / "wiki.md").write_text(POLICY, "utf-8")


def _write_tau2(folder: Path, base: Base, tasks: list[Task]) -> None:
    inner = folder / TAU2_FOLDER
    _dump(inner / "db.json", as_tau2(base.tables))
    _dump(inner / "tasks.json", [tau2_row(task) for task in tasks])
    _dump(
        inner / "split_tasks.json",
        {"test": [task.id for task in tasks], "base": [task.id for task in tasks]},
    )
    (inner / "policy.md").write_text(POLICY, "utf-8")


def _write_own(folder: Path, base: Base, tasks: list[Task]) -> None:
    _write_tables(folder, base)
    _dump(folder / "tasks.json", [own_row(task) for task in tasks])


def _write_tables(folder: Path, base: Base) -> None:
    for name, rows in base.tables.items():
        _dump(folder / f"{name}.json", rows)


def _dump(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n", "utf-8")


FORMS: dict[str, Callable[[Path, Base, list[Task]], None]] = {
    "tau1": _write_tau1,
    "tau2": _write_tau2,
    "own": _write_own,
}
