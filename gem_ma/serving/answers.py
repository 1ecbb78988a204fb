"""A reply -> a chat completion, in one piece or as the events of a stream.

A stream is sent once the reply is whole: an engine hands over no part of one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from gem_ma.kernel.types import Reply
from gem_ma.serving.requests import Wanted

DONE = b"data: [DONE]\n\n"


def completion(
    reply: Reply, message: Mapping[str, Any], name: str, wanted: Wanted
) -> dict[str, Any]:
    """The response that is not streamed. `name` is its id."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": dict(message),
        "finish_reason": _finish(reply, message),
        "logprobs": _logprobs(reply) if wanted.logprobs else None,
    }
    whole = _envelope("chat.completion", reply, name)
    if wanted.ids:
        choice["token_ids"] = list(reply.token_ids)
        whole["prompt_token_ids"] = list(reply.prompt_ids)
    return {**whole, "choices": [choice], "usage": _usage(reply)}


def events(reply: Reply, message: Mapping[str, Any], name: str, wanted: Wanted) -> Iterator[bytes]:
    """The same as server-sent events."""
    whole = _envelope("chat.completion.chunk", reply, name)

    def event(delta: Mapping[str, Any], **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": None, **more}
        return _line({**whole, "choices": [choice]})

    calls = message.get("tool_calls", ())
    texts = {key: message[key] for key in ("content", "reasoning_content") if message.get(key)}
    logprobs = {"logprobs": _logprobs(reply)} if wanted.logprobs else {}
    yield event({"role": "assistant", "content": "" if not calls else None})
    for key, text in texts.items():
        yield event({key: text}, **(logprobs if key == "content" else {}))
    for index, call in enumerate(calls):
        yield event({"tool_calls": [{"index": index, **call}]})
    yield event({}, finish_reason=_finish(reply, message))
    if wanted.usage:
        yield _line({**whole, "choices": [], "usage": _usage(reply)})
    yield DONE


def _envelope(kind: str, reply: Reply, name: str) -> dict[str, Any]:
    return {"id": name, "object": kind, "created": int(time.time()), "model": reply.policy}


def _line(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode("ascii") + b"\n\n"


def _finish(reply: Reply, message: Mapping[str, Any]) -> str:
    if message.get("tool_calls") and reply.finish == "stop":
        return "tool_calls"
    return reply.finish


def _usage(reply: Reply) -> dict[str, int]:
    prompt = len(reply.prompt_ids) or reply.usage.prompt_tokens or 0
    sampled = len(reply.token_ids) or reply.usage.completion_tokens or 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
    }


def _logprobs(reply: Reply) -> dict[str, Any] | None:
    """Per sampled id, named as vLLM names ids; None where the engine knows none. A text for each
    would be wrong: ids of one letter are joined to it."""
    if not reply.logprobs:
        return None
    pairs = zip(reply.token_ids, reply.logprobs, strict=True)
    return {
        "content": [
            {"token": f"token_id:{token}", "logprob": value, "bytes": None, "top_logprobs": []}
            for token, value in pairs
        ]
    }
