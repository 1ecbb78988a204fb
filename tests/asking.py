"""Questions to the openai engine at a scripted server, and what comes of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gem_ma.engines.api.openai import OpenAI
from gem_ma.kernel.errors import EngineError
from gem_ma.kernel.types import Message, Reply, Request
from tests.fault_server import Answer, FaultServer


def engine_at(server: FaultServer, **options: Any) -> OpenAI:
    return OpenAI("m", **{"base_url": server.url, "policy": "main", "timeout_s": 10.0, **options})


def ask(engine: OpenAI, *messages: Message, **more: Any) -> Reply:
    return asyncio.run(engine.sample(Request("a", messages or (Message("hi"),), **more)))


def ask_together(*asked: tuple[OpenAI, str], **more: Any) -> list[Reply]:
    """The replies to these texts, all under way at once."""
    return at_once(*((engine, Request("a", (Message(text),), **more)) for engine, text in asked))


def at_once(*asked: tuple[Any, Request], failing: bool = False) -> list[Any]:
    """What engines answer to these requests, all under way at once; `failing`: or how they fail."""

    async def every() -> list[Any]:
        replies = (engine.sample(request) for engine, request in asked)
        return list(await asyncio.gather(*replies, return_exceptions=failing))

    return asyncio.run(every())


def answered(*script: Answer, request: dict[str, Any] | None = None, **options: Any) -> Reply:
    with FaultServer(script) as server:
        return ask(engine_at(server, **options), **(request or {}))


def refused(*script: Answer, **options: Any) -> EngineError:
    with FaultServer(script) as server, pytest.raises(EngineError) as caught:
        ask(engine_at(server, **options))
    return caught.value


def kinds(got: Reply) -> list[str]:
    return [attempt.kind for attempt in got.attempts]
