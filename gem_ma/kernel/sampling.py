"""How a policy samples, which options of that nobody named, and what it took: tokens and tries."""

from __future__ import annotations

from dataclasses import dataclass, field


class Unsaid:
    """Marks the value of an option that nobody named: an engine that computes takes it as it is,
    and an endpoint is not sent it."""


class _UnsaidNumber(float, Unsaid):
    pass


class _UnsaidCount(int, Unsaid):
    pass


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a policy samples. Unset values are 1, 1 and off in engines that compute, and left to
    the server by engines that ask an endpoint; nothing is inherited from a model folder."""

    temperature: float = _UnsaidNumber(1.0)
    top_p: float = _UnsaidNumber(1.0)
    top_k: int = _UnsaidCount(0)
    max_tokens: int = 256
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one reply; None = the server did not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    # of the prompt; tells how it was computed, not what was said
    cached_tokens: int | None = field(default=None, compare=False)
    # of the completion; None = the server did not tell them apart
    reasoning_tokens: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a request that an engine had to repeat."""

    kind: str
    status: int | None = None
    wait_s: float = 0.0
    detail: str = ""
