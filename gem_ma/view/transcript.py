"""One episode as plain JSON for the page: what each agent saw and did, in the order of steps, with long texts cut and the cut said."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any

from gem_ma.types import Episode, Image, Malformed, Message, ToolCall, Turn

MAX_TEXT, MAX_TURNS, MAX_CALLS, MAX_IMAGE = 8_000, 400, 20, 300_000
Media = Callable[[str], bytes | None]


def transcript(episode: Episode, success: bool | None = None, media: Media = lambda digest: None) -> dict[str, Any]:
    """`media` gives the bytes behind an image's digest, or None where they are not at hand."""
    totals = episode.returns()
    left_out = len(episode.turns) - MAX_TURNS
    return {
        "id": f"{episode.task} · seed {episode.seed}" + (f" · repeat {episode.repeat}" if episode.repeat else ""),
        "task": _cut(episode.task) + (f", repeat {episode.repeat}" if episode.repeat else ""),
        "seed": str(episode.seed),
        "scenario": _cut(episode.scenario),
        "version": episode.version,
        "end": episode.end.value,
        "error": _cut(episode.error) if episode.error else None,
        "success": success,
        "cut": f"the last {left_out} of {len(episode.turns)} turns are left out" if left_out > 0 else "",
        "agents": [{"name": agent, "plays": _plays(seat.behaviour, seat.policy), "total": totals[agent]} for agent, seat in episode.cast.items()],
        "turns": [_turn(turn, media) for turn in episode.turns[:MAX_TURNS]],
        "ledger": [{"step": entry.step, "agent": entry.agent, "value": entry.value, "why": _cut(entry.why)} for entry in episode.ledger],
        "final": {agent: _messages(messages, media) for agent, messages in episode.final.items()},
    }


def _plays(behaviour: str, policy: str | None) -> str:
    return f"{behaviour}, policy {policy}" if policy else behaviour


def _turn(turn: Turn, media: Media) -> dict[str, Any]:
    return {
        "step": turn.step,
        "agent": turn.agent,
        "observed": _messages(turn.observed, media),
        "text": _cut(turn.action.text),
        "calls": _calls(turn.action.tool_calls),
        "legal": [_cut(choice) for choice in turn.legal[:20]] if turn.legal is not None else None,
        "parsed": None if turn.action.parsed is None else _cut(turn.action.parsed),
        "replies": [
            {
                "policy": r.policy,
                "version": r.version,
                "tokens": len(r.token_ids) or r.usage.completion_tokens,
                "finish": r.finish,
                "attempts": len(r.attempts),
            }
            for r in turn.replies
        ],
    }


def _messages(messages: Iterable[Message], media: Media) -> list[dict[str, Any]]:
    return [
        {
            "sender": message.sender,
            "parts": [_part(part, media) for part in ((message.content,) if isinstance(message.content, str) else message.content)],
            "calls": _calls(message.tool_calls),
            "call": message.call_id,
        }
        for message in messages
    ]


def _part(part: str | Image, media: Media) -> str | dict[str, str]:
    if isinstance(part, str):
        return _cut(part)
    data = part.data or media(part.digest) or b""
    kept = base64.b64encode(data).decode() if len(data) <= MAX_IMAGE else ""
    return {"type": part.media_type, "digest": part.digest, "data": kept}


def _calls(calls: Iterable[ToolCall | Malformed]) -> list[dict[str, Any]]:
    return [
        {"text": _cut(call.text), "reason": _cut(call.reason)}
        if isinstance(call, Malformed)
        else {"name": _cut(call.name), "arguments": {_cut(key): _cut_value(value) for key, value in call.arguments.items()}}
        for call in list(calls)[:MAX_CALLS]
    ]


def _cut_value(value: Any) -> Any:
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, dict):
        return {_cut(key): _cut_value(item) for key, item in value.items()}
    return [_cut_value(item) for item in value[:200]] if isinstance(value, list) else value


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} … [{len(text) - MAX_TEXT} more characters are left out]"
