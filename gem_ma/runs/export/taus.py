"""Talks of an assistant and a user in the forms in which tau-bench and tau2-bench store results,
so that their viewers and scripts open them.

Tasks stand there by their ids alone: what a benchmark's task says is that benchmark's data. A
score is that of the scenario here, and no recomputed one of theirs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import TOOL, Malformed, Message, ToolCall, Turn, spoken
from gem_ma.runs.export.chats import chat, seen_before

SIDES = ("assistant", "user")
Won = Callable[[Episode], bool | None]
# theirs by ours; a scenario's own end is the user's goodbye
REASONS = {
    End.TERMINATED: "user_stop",
    End.TRUNCATED: "max_steps",
    End.MAX_STEPS: "max_steps",
    End.MAX_TURNS: "max_steps",
    End.TIMEOUT: "timeout",
    End.MAX_TOKENS: "context_window_exceeded",
    End.CONTEXT: "context_window_exceeded",
    End.INTERRUPTED: "infrastructure_error",
}


def tau1(episodes: Iterable[Episode], won: Won) -> list[dict[str, Any]]:
    """A list of `{task_id, reward, info, traj, trial}`: the assistant's whole conversation."""
    results = []
    for episode in episodes:
        _check(episode)
        last = [turn for turn in episode.turns if turn.agent == "assistant"][-1:]
        messages = seen_before(episode, last[0]) if last else []
        messages += [spoken("assistant", turn.action) for turn in last]
        messages += episode.final.get("assistant", ())
        info = {"task": episode.task, "seed": str(episode.seed), "end": episode.end.value}
        results.append(
            {
                "task_id": _number(episode),
                "reward": _reward(episode, won),
                "info": info | ({"error": episode.error} if episode.error else {}),
                "traj": [_tau1_message(message) for message in chat(messages, "assistant")],
                "trial": episode.repeat,
            }
        )
    return results


def _tau1_message(message: dict[str, Any]) -> dict[str, Any]:
    """As the chat API has it: arguments of a call are a text of JSON there."""
    for call in message.get("tool_calls", ()):
        arguments = call["function"]["arguments"]
        call["function"] = {**call["function"], "arguments": json.dumps(arguments)}
    return message


def tau2(
    episodes: Iterable[Episode], won: Won, facts: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """`{timestamp, info, tasks, simulations}`. `facts`: `created`, `commit`, `seed` and `models`
    (agent -> model) of the run."""
    facts = facts or {}
    created = str(facts.get("created") or "")
    simulations = []
    domains = []
    trials = 1
    tasks: dict[str, None] = {}  # in the order played
    casts: dict[str, str] = {}
    for episode in episodes:
        _check(episode)
        tasks[episode.id[0]] = None
        domains.append(episode.scenario)
        casts = casts or {agent: seat.behaviour for agent, seat in episode.cast.items()}
        trials = max(trials, episode.repeat + 1)
        reward = _reward(episode, won)
        simulations.append(
            {
                "id": f"{episode.id[0]}/{episode.seed}/{episode.repeat}",
                "task_id": episode.id[0],
                "timestamp": created,
                # a record holds no clock: two plays of one seed are equal
                "start_time": created,
                "end_time": created,
                "duration": 0.0,
                "termination_reason": REASONS.get(episode.end, "unexpected_error"),
                "reward_info": {"reward": reward, "info": dict(episode.returns())},
                "messages": _messages(episode),
                "trial": episode.repeat,
                "seed": episode.seed,
            }
        )
    models = facts.get("models") or {}
    sides = {
        side: {"implementation": casts.get(side, ""), "llm": models.get(side)} for side in SIDES
    }
    info = {
        "git_commit": str(facts.get("commit") or ""),
        "num_trials": trials,
        "max_steps": 0,
        "max_errors": 0,
        "user_info": sides["user"],
        "agent_info": sides["assistant"],
        "environment_info": {"domain_name": domains[0] if domains else "", "policy": ""},
        "seed": facts.get("seed"),
    }
    listed = [{"id": task, "user_scenario": {"instructions": ""}} for task in tasks]
    return {"timestamp": created, "info": info, "tasks": listed, "simulations": simulations}


def _messages(episode: Episode) -> list[dict[str, Any]]:
    """The talk in the order of turns; results of tools stand where their caller was shown them."""
    messages: list[dict[str, Any]] = []
    for turn in episode.turns:
        messages += _results(turn.observed, turn.agent)
        messages.append(_act(turn))
    for side in SIDES:
        messages += _results(episode.final.get(side, ()), side)
    for number, message in enumerate(messages):
        message["turn_idx"] = number
    return messages


def _act(turn: Turn) -> dict[str, Any]:
    calls = [
        {"id": call.id, "name": call.name, "arguments": call.arguments, "requestor": turn.agent}
        for call in turn.action.tool_calls
        if isinstance(call, ToolCall)
    ]
    # neither benchmark has a place for a call that could not be read: it is what was said
    unread = [call.text for call in turn.action.tool_calls if isinstance(call, Malformed)]
    text = turn.action.text + "".join(unread)
    return {"role": turn.agent, "content": text or None, "tool_calls": calls or None}


def _results(messages: Iterable[Message], side: str) -> list[dict[str, Any]]:
    return [
        {"id": message.call_id, "role": "tool", "content": message.text, "requestor": side}
        for message in messages
        if message.sender == TOOL
    ]


def _reward(episode: Episode, won: Won) -> float:
    """Their reward of a talk: 1 or 0, where success is judged; a failed one has 0."""
    success = won(episode) if episode.end.scored else False
    return episode.returns()["assistant"] if success is None else float(success)


def _number(episode: Episode) -> int:
    number = episode.task.rpartition("/")[2]
    return int(number) if number.isdecimal() else 0


def _check(episode: Episode) -> None:
    """Raises ConfigError for a play that is not a talk of these two."""
    if set(episode.cast) != set(SIDES):
        raise ConfigError(
            f"{episode.scenario}: this format holds talks of an assistant and a user; the agents"
            f" here are {', '.join(episode.cast)}; take messages, jsonl or parquet"
        )
