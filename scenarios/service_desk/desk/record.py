"""A task as JSON and back: `read_task(write_task(task)) == task`. A domain says how its own
kinds of words are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from gem_ma.scenarios.service_desk.desk.task import GoldCall, Slot, Task, Wish

from gem_ma.kernel.errors import DataError

FORM = 1  # of the JSON; another form is another number
Words = Callable[[Mapping[str, Any]], dict[str, Any]]


def write_task(task: Task) -> dict[str, Any]:
    """A task as JSON values."""
    return {"form": FORM, **_plain(task), "raw": dict(task.raw)}


def _plain(value: Any) -> Any:
    """A value as JSON has it. A record is its fields, so that a new one is written without being
    named here."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (tuple, list)) else value


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


def _read_call(row: Mapping[str, Any]) -> GoldCall:
    return GoldCall(row["name"], row["arguments"], row["agent"])


# Recursive, as wishes hold others.
def _read_wish(row: Mapping[str, Any], words: Words) -> Wish:
    values = {field.name: row[field.name] for field in fields(Wish)}
    values["words"] = words(values["words"])
    for name in ("outputs", "after", "choices"):
        values[name] = tuple(values[name])
    for name in ("instead", "before_change"):
        values[name] = None if values[name] is None else _read_wish(values[name], words)
    return Wish(**values)
