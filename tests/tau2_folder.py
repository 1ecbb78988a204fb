"""Writes data folders of tau2-bench's form for tests: out of any tables and tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_ma.scenarios.service_desk.desk.task import Task
from gem_ma.scenarios.service_desk.retail.store.tau2 import as_tau2
from gem_ma.scenarios.service_desk.retail.store.tau2_tools import TAU2


def tau2_row(
    task_id: str, actions: Sequence[tuple[str, Mapping[str, Any]]], **changes: Any
) -> dict[str, Any]:
    """A task as the file has it; `changes` go into the criteria, `told` into the user's text."""
    told = changes.pop("told", "You are Ann Lee and your zip code is 04100.")
    steps = [
        {"action_id": f"{task_id}_{n}", "name": name, "arguments": dict(given), "info": None}
        for n, (name, given) in enumerate(actions)
    ]
    scene = {
        "domain": "retail",
        "reason_for_call": "You want help.",
        "known_info": told,
        "unknown_info": None,
        "task_instructions": "Be brief.",
    }
    criteria = {
        "actions": steps,
        "communicate_info": [],
        "nl_assertions": None,
        "reward_basis": ["DB", "COMMUNICATE"],
        **changes,
    }
    return {
        "id": task_id,
        "description": {"purpose": None, "relevant_policies": None, "notes": None},
        "user_scenario": {"persona": None, "instructions": scene},
        "initial_state": None,
        "evaluation_criteria": criteria,
    }


def rows_of(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """Tasks of any source in tau2's form."""
    return [
        tau2_row(
            str(number),
            [(call.name, call.arguments) for call in task.actions if call.name in TAU2],
            told=task.instruction,
            communicate_info=list(task.outputs),
        )
        for number, task in enumerate(tasks)
    ]


def write_tau2(
    folder: Path,
    tables: Mapping[str, Any],
    rows: Any,
    splits: Any = None,
    policy: str | None = "# The desk\n",
) -> Path:
    """The data folder; its inner retail folder is `folder / "tau2/domains/retail"`."""
    inner = folder / "tau2/domains/retail"
    inner.mkdir(parents=True, exist_ok=True)
    (inner / "db.json").write_text(json.dumps(as_tau2(tables)), "utf-8")
    (inner / "tasks.json").write_text(json.dumps(rows), "utf-8")
    if splits is not None:
        (inner / "split_tasks.json").write_text(json.dumps(splits), "utf-8")
    if policy is not None:
        (inner / "policy.md").write_text(policy, "utf-8")
    return folder
