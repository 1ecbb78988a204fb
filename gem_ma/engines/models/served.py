"""A policy whose tokens another process samples: the reply that they are, and what is not known
here of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gem_ma.engines.models.chat import Chat
from gem_ma.engines.models.vocabulary import Vocabulary
from gem_ma.kernel.errors import EngineError
from gem_ma.kernel.types import Reply, Request, Usage


class Served:
    """What engines share whose weights are sampled elsewhere, and whose chat is rendered here."""

    silence_fails = False  # ids are counted here, so an empty reply is an answer
    policy: str
    version: int
    unpublished: bool
    chat: Chat
    vocabulary: Vocabulary
    price: Any

    def recall(self, request: Request, reply: Reply) -> None:
        """See `Remembers`."""
        self.chat.recall(request, reply)

    def forget(self) -> None:
        """What the server keeps is of one version, whoever asks."""

    def usd(self, prompt: int, completion: int) -> float | None:
        """See `Priced`."""
        return None if self.price is None else self.price.of_usage(Usage(prompt, completion))


def check_published(engine: Any) -> None:
    """Raises EngineError where new weights would be sampled under the number of an old version."""
    if engine.unpublished:
        raise EngineError(
            f"policy {engine.policy!r}: its weights have changed and are not published; call"
            " publish() of its learner first"
        )


def said(
    engine: Any, request: Request, drawn: Reply, version: int, stop: Sequence[str] = ()
) -> Reply:
    """The reply that sampled ids are, from which its conversation goes on."""
    text = engine.vocabulary.cut(drawn.token_ids, stop)
    text, calls, thought = engine.chat.read(text, request.tools, drawn.finish)
    policy = request.policy or engine.policy
    reply = replace(
        drawn, text=text, tool_calls=calls, reasoning=thought, policy=policy, version=version
    )
    engine.chat.sampled(request, reply)
    return reply
