"""The images of episodes: a line of a record names them by digest, and whoever learns from a record
that was read needs their bytes again. Knows records; knows neither files nor engines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Content, Image, Message

Messages = tuple[Message, ...]


def images_in(messages: Iterable[Message]) -> Iterator[Image]:
    """The images of these messages, in their order."""
    for message in messages:
        if not isinstance(message.content, str):
            yield from (part for part in message.content if isinstance(part, Image))


def shown_in(episode: Episode) -> Iterator[Image]:
    """All images that agents were shown in a play, also at its end."""
    for turn in episode.turns:
        yield from images_in(turn.observed)
    for messages in episode.final.values():
        yield from images_in(messages)


def with_bytes(episode: Episode, bytes_of: Callable[[str], bytes]) -> Episode:
    """The episode with the bytes of its images; `bytes_of(digest)` gives them."""
    if not any(not image.data for image in shown_in(episode)):
        return episode
    turns = tuple(
        replace(turn, observed=_filled(turn.observed, bytes_of)) for turn in episode.turns
    )
    final = {agent: _filled(messages, bytes_of) for agent, messages in episode.final.items()}
    return replace(episode, turns=turns, final=final)


def _filled(messages: Messages, bytes_of: Callable[[str], bytes]) -> Messages:
    def part(content: str | Image) -> str | Image:
        if isinstance(content, str) or content.data:
            return content
        return replace(content, data=bytes_of(content.digest))

    def content(whole: Content) -> Content:
        return whole if isinstance(whole, str) else tuple(map(part, whole))

    return tuple(replace(message, content=content(message.content)) for message in messages)
