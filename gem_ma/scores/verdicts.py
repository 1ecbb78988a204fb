"""What a scenario said of each play while its code was there: rows that a run folder keeps, and a
judge that repeats them, for readers that may not ask the scenario, or find another one.

A row is `{id: [task, seed, repeat], success, measures, labels}`; a key is there where that was
asked. `heads` of a run say what its scenarios judge: world -> `{hooks, rates, more, less}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from gem_ma.kernel.episode import Episode
from gem_ma.scores.groups import Kinds
from gem_ma.scores.judge import Judge
from gem_ma.scores.pairs import Id

HOOKS = ("success", "measures", "labels")


def heads_of(judge: Judge) -> dict[str, Any]:
    """What a judge judges, for the manifest."""
    return {name: _head(one) for name, one in (judge.worlds or {"": judge}).items()}


def success_row(judge: Judge, episode: Episode) -> dict[str, Any]:
    """The row of a play that has just ended, without measures and labels, which cost more. What
    the scenario raises is left to the summary."""
    row: dict[str, Any] = {"id": list(episode.id)}
    if judge.success is not None and episode.end.scored:
        try:
            row["success"] = _plain(judge.success(episode))
        except Exception:
            return row
    return row


def noting(judge: Judge, rows: dict[Id, dict[str, Any]]) -> Judge:
    """A judge that says the same, and puts what it says into `rows`; rows of plays that it is not
    asked of stay as they are."""

    def noted(hook: str) -> Any:
        ask: Callable[[Episode], Any] | None = getattr(judge, hook)
        if ask is None:
            return None

        def answer(episode: Episode) -> Any:
            value = ask(episode)
            row = rows.setdefault(episode.id, {"id": list(episode.id)})
            row[hook] = _plain(value)
            return value

        return answer

    return replace(judge, **{hook: noted(hook) for hook in HOOKS})


def repeating(rows: Iterable[dict[str, Any]], heads: Mapping[str, Any]) -> Judge:
    """The judge that says what the rows say, and nothing of other plays. Raises KeyError and
    TypeError where they are damaged."""
    known = {_id(row): row for row in rows}
    worlds = {name: _judge(known, head) for name, head in heads.items()}
    if set(worlds) == {""}:
        return worlds[""]
    hooks = {hook for head in heads.values() for hook in head["hooks"]}
    return replace(_judge(known, {"hooks": hooks}), worlds=worlds)


def _id(row: dict[str, Any]) -> Id:
    task, seed, repeat = row["id"]
    return task, seed, repeat


def _judge(known: Mapping[Id, dict[str, Any]], head: Mapping[str, Any]) -> Judge:
    def repeated(hook: str, none: Any) -> Any:
        if hook not in head["hooks"]:
            return None
        return lambda episode: known.get(episode.id, {}).get(hook, none)

    kinds = Kinds(*(tuple(head.get(key, ())) for key in ("rates", "more", "less")))
    return Judge(repeated("success", None), repeated("measures", {}), repeated("labels", {}), kinds)


def _head(judge: Judge) -> dict[str, Any]:
    kinds = judge.kinds
    return {
        "hooks": [hook for hook in HOOKS if getattr(judge, hook) is not None],
        "rates": list(kinds.rates),
        "more": list(kinds.more),
        "less": list(kinds.less),
    }


def _plain(value: Any) -> Any:
    """A value as JSON has it: numpy's numbers as Python's."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (str, int, float, type(None))):
        return value
    if hasattr(value, "item"):
        return value.item()
    return [_plain(inner) for inner in value] if isinstance(value, Iterable) else str(value)
