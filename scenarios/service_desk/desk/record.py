"""A task as JSON and back: `read_task(write_task(task)) == task`. A domain says how its own
kinds of words are written and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from gem_ma.scenarios.service_desk.desk.task import GoldCall, Slot, Task, Wish

from gem_ma.kernel.errors import DataError

FORM = 1  # of the JSON; another form is another number
Words = Callable[[Mapping[str, Any]], dict[str, Any]]


def write_task(task: Task, words: Words = dict) -> dict[str, Any]:
    """A task as JSON values."""
    # By the dataclass's own fields, so that a new one is written without being named here.
    row = {field.name: getattr(task, field.name) for field in fields(task)}
    row["actions"] = [_write_call(call) for call in task.actions]
    row["ends"] = [[_write_call(call) for call in end] for end in task.ends]
    row["knowledge"] = [
        {field.name: getattr(slot, field.name) for field in fields(slot)} for slot in task.knowledge
    ]
    row["wishes"] = [_write_wish(wish, words) for wish in task.wishes]
    for name in ("outputs", "flags"):
        row[name] = list(row[name])
    for name in ("traits", "difficulty", "proof", "raw"):
        row[name] = dict(row[name])
    return {"form": FORM, **row}


def read_task(row: Any, words: Words = dict) -> Task:
    """The task of JSON values. Raises DataError naming what is missing or wrong."""
    if not isinstance(row, Mapping):
        raise DataError(f"a task: expected an object, got {type(row).__name__}")
    # Before anything else is read: a newer form may lack every field below.
    if row.get("form") != FORM:
        raise DataError(
            f"task {row.get('id')!r}: form {row.get('form')!r}; this version reads form {FORM}"
        )
    try:
        values = {field.name: row[field.name] for field in fields(Task)}
        values["actions"] = tuple(_read_call(call) for call in values["actions"])
        values["ends"] = tuple(tuple(_read_call(call) for call in end) for end in values["ends"])
        values["knowledge"] = tuple(Slot(**slot) for slot in values["knowledge"])
        values["wishes"] = tuple(_read_wish(wish, words) for wish in values["wishes"])
        for name in ("outputs", "flags"):
            values[name] = tuple(values[name])
        return Task(**values)
    except KeyError as error:
        raise DataError(f"task {row.get('id')!r}: {error} is missing") from error
    # The dataclasses raise these for values of another type; the reader says which task it was.
    except (TypeError, AttributeError, ValueError) as error:
        raise DataError(f"task {row.get('id')!r}: {error}") from error


def _write_call(call: GoldCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": dict(call.arguments), "agent": call.agent}


def _read_call(row: Mapping[str, Any]) -> GoldCall:
    return GoldCall(row["name"], row["arguments"], row["agent"])


def _write_wish(wish: Wish | None, words: Words) -> dict[str, Any] | None:
    if wish is None:
        return None
    row = {field.name: getattr(wish, field.name) for field in fields(wish)}
    row |= {
        "arguments": dict(wish.arguments),
        "words": words(wish.words),
        "outputs": list(wish.outputs),
        "after": list(wish.after),
    }
    row["choices"] = [dict(choice) for choice in wish.choices]
    return row | {
        "instead": _write_wish(wish.instead, words),
        "before_change": _write_wish(wish.before_change, words),
    }


# Recursive, as wishes hold others.
def _read_wish(row: Mapping[str, Any], words: Words) -> Wish:
    values = {field.name: row[field.name] for field in fields(Wish)}
    values["words"] = words(values["words"])
    for name in ("outputs", "after", "choices"):
        values[name] = tuple(values[name])
    for name in ("instead", "before_change"):
        values[name] = None if values[name] is None else _read_wish(values[name], words)
    return Wish(**values)
