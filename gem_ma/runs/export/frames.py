"""A run as three tables: its plays, turns and calls, with the same columns for every run, so that a
program such as DuckDB reads many runs at once (docs/frames.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import TOOL, Malformed, Message, Reply, Usage
from gem_ma.record.codec import dump_episode
from gem_ma.runs.export.tables import COLUMNS, Fields, Rows, Won, episode_row, write_files
from gem_ma.runs.store.tables import PLAYS, RECORD
from gem_ma.scores.together import groups_of

_KEYS = {"run": "string", "task": "string", "seed": "string", "repeat": "int64"}
_ACT = {**_KEYS, "turn": "int64", "step": "int64", "agent": "string"}
_TOLD = [{"name": "string", "value": "string"}]
_PAID = [{"name": "string", "value": "float64"}]
_SPENT = {"prompt_tokens": "int64", "completion_tokens": "int64", "cost": "float64"}
TABLES: dict[str, dict[str, Any]] = {
    "plays": {
        "run": "string",
        **COLUMNS,
        "scored": "bool_",
        "groups": _PAID,
        "measures": _PAID,
        "labels": _TOLD,
        "blame": "string",
        "cause": "string",
        "fault": "string",
        "fault_step": "int64",
        "fault_agent": "string",
        **_SPENT,
        "waited": "float64",
    },
    "turns": {
        **_ACT,
        "behaviour": "string",
        "policy": "string",
        "observed": "string",
        "text": "string",
        "parsed": "string",
        "cut": "int64",
        "reward": "float64",
        **_SPENT,
    },
    "calls": {
        **_ACT,
        "kind": "string",
        "name": "string",
        "policy": "string",
        "text": "string",
        "result": "string",
        "error": "string",
        "finish": "string",
        **_SPENT,
        "cached_tokens": "int64",
        "reasoning_tokens": "int64",
        "retries": "int64",
        "waited": "float64",
    },
}


class Facts(Protocol):
    """What a run knows of its plays beside the record."""

    judge: Any
    prices: dict[str, Callable[[Usage], float | None]]
    models: dict[str, Any]

    def findings(self, episode: Episode) -> Iterator[tuple[str, Any]]:
        """Measures, faults and labels of a play, by name."""


def rows_of(run: str, episode: Episode, won: Won, facts: Facts) -> Rows:
    """Table -> the rows of one play in it."""
    whole = episode_row(episode, won)
    keys = {"run": run, **{name: whole[name] for name in ("task", "seed", "repeat")}}
    calls = list(_calls(episode, keys, facts))
    by_turn: dict[int, list[Fields]] = {}
    for call in calls:
        by_turn.setdefault(call["turn"], []).append(call)
    turns = []
    for number, (turn, told) in enumerate(zip(episode.turns, whole["turns"], strict=True)):
        seat = episode.cast.get(turn.agent)
        turns.append(
            {
                **keys,
                **{name: told[name] for name in ("step", "agent", "text", "parsed", "reward")},
                "turn": number,
                "behaviour": seat and seat.behaviour,
                "policy": seat and seat.policy,
                "observed": "\n".join(message.text for message in turn.observed),
                "cut": turn.action.cut,
                **_spent(by_turn.get(number, ())),
            }
        )
    found = dict(facts.findings(episode))
    play = {
        "run": run,
        **whole,
        "scored": episode.end.scored,
        "groups": _pairs(
            (name, group.mean)
            for name, group in (facts.judge.groups or groups_of)(episode).items()
            if episode.end.scored
        ),
        "measures": _named(found, "measure "),
        "labels": _named(found, "label "),
        **{name: found.get(name) for name in ("blame", "cause", "fault")},
        "fault_step": found.get("fault step"),
        "fault_agent": found.get("fault agent"),
        **_spent(calls),
        "waited": sum(call.get("waited", 0.0) for call in calls),
        RECORD: dump_episode(episode),
    }
    return {"plays": [play], "turns": turns, "calls": calls}


def _pairs(values: Iterable[tuple[str, Any]]) -> list[Fields]:
    return [{"name": name, "value": value} for name, value in values]


def _named(found: Mapping[str, Any], kind: str) -> list[Fields]:
    return _pairs(
        (name.removeprefix(kind), value) for name, value in found.items() if name.startswith(kind)
    )


def _spent(calls: Iterable[Fields]) -> Fields:
    """Sums over replies; None where one of them is not known, since a part would look exact."""
    replies = [call for call in calls if call["kind"] == "reply"]
    counts = {name: [reply[name] for reply in replies] for name in _SPENT}
    return {name: None if None in known else sum(known) for name, known in counts.items()}


def _calls(episode: Episode, keys: Fields, facts: Facts) -> Iterator[Fields]:
    """Replies of models and calls of tools, in the order of the acts."""
    results = _results(episode)
    for number, turn in enumerate(episode.turns):
        act = {**keys, "turn": number, "step": turn.step, "agent": turn.agent}
        for reply in turn.replies:
            yield {**act, "kind": "reply", **_reply(reply, facts)}
        for place, call in enumerate(turn.action.tool_calls):
            told = {**act, "kind": call.kind, "result": results.get((number, place))}
            if isinstance(call, Malformed):
                yield {**told, "text": call.text, "error": call.reason}
            else:
                arguments = json.dumps(call.arguments, ensure_ascii=False)
                yield {**told, "name": call.name, "text": arguments}


def _results(episode: Episode) -> dict[tuple[int, int], str]:
    """(turn, place of the call in it) -> what its agent was told of it."""
    waiting: dict[tuple[str, str], list[tuple[int, int]]] = {}
    told: dict[tuple[int, int], str] = {}

    def hear(agent: str, messages: Iterable[Message]) -> None:
        for message in messages:
            # servers may call two calls alike: the earlier one is answered first
            if message.sender == TOOL and (called := waiting.get((agent, message.call_id))):
                told[called.pop(0)] = message.text

    for number, turn in enumerate(episode.turns):
        hear(turn.agent, turn.observed)
        for place, call in enumerate(turn.action.tool_calls):
            name = "" if isinstance(call, Malformed) else call.id
            waiting.setdefault((turn.agent, name), []).append((number, place))
    for agent, messages in episode.final.items():
        hear(agent, messages)
    return told


def _reply(reply: Reply, facts: Facts) -> Fields:
    usage = reply.usage
    price = facts.prices.get(reply.policy)
    return {
        "name": reply.model or facts.models.get(reply.policy),
        "policy": reply.policy,
        "text": reply.text,
        "finish": reply.finish,
        # ids where the engine gives them, as in a summary
        "prompt_tokens": len(reply.prompt_ids) or usage.prompt_tokens,
        "completion_tokens": reply.sampled,
        "cost": price(usage) if price is not None else None,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "retries": len(reply.attempts),
        "waited": sum(attempt.wait_s for attempt in reply.attempts),
    }


def write_tables(run: str, episodes: Iterable[Episode], won: Won, facts: Facts, out: Path) -> None:
    """Writes the folder `out` with a file for each table. Raises ConfigError where pyarrow is
    missing."""
    out.mkdir(parents=True)
    files = {name: out / f"{name}.parquet" for name in TABLES} | {"plays": out / PLAYS}
    rows = (rows_of(run, episode, won, facts) for episode in episodes)
    write_files(rows, {name: (files[name], columns) for name, columns in TABLES.items()})
