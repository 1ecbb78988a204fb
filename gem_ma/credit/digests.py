"""Digests of what an agent was shown: two turns with one digest are one state, as far as the agent
can know. Reads records; knows no rewards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Image, Malformed, Message, ToolCall, Turn, spoken


def view_digest(episode: Episode, agent: str, before: Turn | None = None) -> str:
    """Digest of all that an agent had seen and said, tool calls and images included: `before`
    one of its turns, or at the end, as if it were asked once more.
    """
    # 64 bits: among a million views two share a digest once in 37 million runs
    digest = hashlib.blake2b(digest_size=8)
    for turn in (turn for turn in episode.turns if turn.agent == agent):
        _digest(digest, turn.observed)
        if before is not None and turn.step == before.step:
            return digest.hexdigest()
        _digest(digest, (spoken(agent, turn.action),))
    _digest(digest, episode.final.get(agent, ()))
    return digest.hexdigest()


def observation_digest(turn: Turn) -> str:
    """Digest of what the agent was shown since its turn before: the state, where the world tells
    it anew at every turn."""
    digest = hashlib.blake2b(digest_size=8)
    _digest(digest, turn.observed)
    return digest.hexdigest()


def _digest(digest: hashlib.blake2b, messages: Iterable[Message]) -> None:
    for message in messages:
        # separators that no text holds, so that "ab" + "c" is not "a" + "bc"
        digest.update(f"{message.sender}\0{message.text}\1".encode())
        for call in message.tool_calls:  # without its id, which servers draw
            text = call.text if isinstance(call, Malformed) else _spelled(call)
            digest.update(f"{text}\2".encode())
        for part in message.content if not isinstance(message.content, str) else ():
            if isinstance(part, Image):
                digest.update(f"{part.digest}\3".encode())


def _spelled(call: ToolCall) -> str:
    return f"{call.name} {json.dumps(call.arguments, sort_keys=True, default=str)}"
