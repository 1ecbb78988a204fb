"""One episode as plain JSON for the page: how it ended and why, what each agent saw and did, in the
order of steps.

Long texts are cut and the cut is said. What the record holds as a number is written here, not by
the browser, which knows no large integers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Image, Malformed, Message, Reply, ToolCall, Turn

# per text, episode, turn, image (bytes): a page holds dozens of episodes in a few megabytes
MAX_TEXT = 8_000
MAX_TURNS = 400
MAX_CALLS = 20
MAX_IMAGE = 300_000
Media = Callable[[str], bytes | None]


def transcript(
    episode: Episode, verdict: Mapping[str, Any], media: Media = lambda digest: None
) -> dict[str, Any]:
    """`verdict`: `kinds`, `causes`, `labels`, `measures` of the episode
    (`gem_ma.pages.static.folder`). `media` gives the bytes behind an image's digest."""
    totals = episode.returns()
    paid = _paid(episode)
    left_out = len(episode.turns) - MAX_TURNS
    versions = {reply.version for turn in episode.turns for reply in turn.replies if reply.version}
    return {
        "key": key_of(*episode.id),
        "id": (
            f"{episode.id[0]} · seed {episode.seed}"
            + (f" · repeat {episode.repeat}" if episode.repeat else "")
        ),
        "task": cut(episode.id[0]) + (f", repeat {episode.repeat}" if episode.repeat else ""),
        # as text, like all numbers here: a seed has 64 bits, and a double 53
        "seed": str(episode.seed),
        "scenario": cut(episode.scenario),
        "version": episode.version,
        "end": episode.end.value,
        "error": cut(episode.error) if episode.error else None,
        "kinds": list(verdict["kinds"]),
        "causes": [
            f"{cut(name)}: {cut(value)}"
            for name, values in verdict["causes"].items()
            for value in values
        ],
        "labels": [
            f"{cut(name)}: {', '.join(map(cut, values))}"
            for name, values in verdict["labels"].items()
        ],
        "measures": [[cut(name), number(value)] for name, value in verdict["measures"].items()],
        "cut": (
            f"the last {left_out} of {len(episode.turns)} turns are left out"
            if left_out > 0
            else ""
        ),
        "weights": f"v{max(versions)}" if versions else "",
        "agents": [
            {
                "name": agent,
                "plays": _plays(seat.behaviour, seat.policy),
                "total": number(totals[agent]),
                "paid": paid.get(agent, []),
            }
            for agent, seat in episode.cast.items()
        ],
        "turns": [_turn(turn, media) for turn in episode.turns[:MAX_TURNS]],
        "ledger": [
            {
                "step": entry.step,
                "agent": entry.agent,
                "value": number(entry.value),
                "why": cut(entry.why),
            }
            for entry in episode.ledger[: 4 * MAX_TURNS]
        ],
        "final": {name: messages_shown(shown, media) for name, shown in episode.final.items()},
    }


def key_of(task: str, seed: int, repeat: int) -> str:
    """What names an episode in a link: `test/153~7~0`."""
    return f"{task}~{seed}~{repeat}"


def number(value: float) -> str:
    """A number as a person reads it: whole ones whole, however large, others with six digits.

    >>> number(1.0), number(-0.25), number(12345678901234567890), number(1 / 3), number(1e-9)
    ('1', '-0.25', '12345678901234567890', '0.333333', '1e-09')
    """
    # above 1e15 not every whole number is a double any more
    if isinstance(value, int) or (value == value and abs(value) < 1e15 and value == int(value)):
        return str(int(value))
    return f"{value:.6g}"


def _paid(episode: Episode) -> dict[str, list[list[str]]]:
    """Agent -> what it was paid for each reason, in the order in which the reasons came."""
    sums: dict[str, dict[str, float]] = {}
    for entry in episode.ledger:
        reasons = sums.setdefault(entry.agent, {})
        reasons[entry.why] = reasons.get(entry.why, 0.0) + entry.value
    return {
        agent: [[cut(why), number(value)] for why, value in list(reasons.items())[:MAX_CALLS]]
        for agent, reasons in sums.items()
    }


def _plays(behaviour: str, policy: str | None) -> str:
    return f"{behaviour}, policy {policy}" if policy else behaviour


def _turn(turn: Turn, media: Media) -> dict[str, Any]:
    several = len(turn.replies) > 1
    # bytes beyond the driver's limit on what is said
    shortened = turn.action.cut + sum(reply.cut for reply in turn.replies)
    replies = [_reply(reply, several or reply.text != turn.action.text) for reply in turn.replies]
    return {
        "step": turn.step,
        "agent": turn.agent,
        "observed": messages_shown(turn.observed, media),
        "text": cut(turn.action.text),
        "legal": [cut(choice) for choice in turn.legal[:20]] if turn.legal is not None else None,
        "parsed": None if turn.action.parsed is None else cut(turn.action.parsed),
        # of a play with many agents most would be empty
        **_filled(
            calls=_calls(turn.action.tool_calls),
            shortened=shortened,
            replies=replies,
            illegal=turn.illegal,
        ),
    }


def _filled(**values: Any) -> dict[str, Any]:
    """Those that hold something; a script takes what is absent for empty."""
    return {key: value for key, value in values.items() if value}


def _reply(reply: Reply, whole: bool) -> dict[str, Any]:
    """`whole`: with its words and calls, because they are not those of the act; a draft, a
    judgement, an answer before it was read."""
    return {
        "policy": reply.policy,
        "version": reply.version,
        "tokens": reply.sampled,
        "finish": reply.finish,
        "attempts": len(reply.attempts),
        **({"thoughts": cut(reply.reasoning)} if reply.reasoning else {}),
        **(
            {"text": cut(reply.text), "calls": _calls(reply.tool_calls)}
            if whole and (reply.text or reply.tool_calls)
            else {}
        ),
    }


def messages_shown(
    messages: Iterable[Message], media: Media, most: int = MAX_TEXT
) -> list[dict[str, Any]]:
    """Messages as the scripts of a page take them: `sender parts`, and `calls call` where it has
    some. `most`: characters of a text that they show."""
    listed = []
    for message in messages:
        # plain text is one part; with images there are several
        content = message.content
        parts = (content,) if isinstance(content, str) else content
        listed.append(
            {
                "sender": message.sender,
                "parts": [_part(part, media, most) for part in parts],
                **_filled(calls=_calls(message.tool_calls), call=message.call_id),
            }
        )
    return listed


def _part(part: str | Image, media: Media, most: int) -> str | dict[str, str]:
    if isinstance(part, str):
        return cut(part, most)
    # an image that is too large, or was not kept, is named by its digest alone
    data = part.data or media(part.digest) or b""
    kept = base64.b64encode(data).decode() if len(data) <= MAX_IMAGE else ""
    return {"type": part.media_type, "digest": part.digest, "data": kept}


def _calls(calls: Iterable[ToolCall | Malformed]) -> list[dict[str, Any]]:
    return [
        (
            {"text": cut(call.text), "reason": cut(call.reason)}
            if isinstance(call, Malformed)
            else {
                "name": cut(call.name),
                "arguments": [[cut(key), _value(value)] for key, value in call.arguments.items()],
            }
        )
        for call in list(calls)[:MAX_CALLS]
    ]


def _value(value: Any) -> str:
    """A text as it is, anything else as JSON text: the browser would turn 12345678901234567890
    into 12345678901234567000 and 1.0 into 1."""
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, default=str)
    return cut(value)


def cut(text: str, most: int = MAX_TEXT) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]} … [{len(text) - most} more characters are left out]"
