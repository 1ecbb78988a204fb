"""The engine protocol: requests in, replies out. Nothing above this line knows transformers, vLLM
or HTTP.

Engines know tokens and weights; they do not know scenarios, rewards or other agents.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from inspect import signature
from typing import Any, Protocol, runtime_checkable

from gem_ma.engines.batching import Batched, Core
from gem_ma.engines.capabilities import Batches
from gem_ma.registry import asks_nothing, construct, load
from gem_ma.types import Reply, Request, Sampling


class Engine(Protocol):
    """How a policy samples."""

    async def sample(self, request: Request) -> Reply: ...


@runtime_checkable
class Wraps(Protocol):
    """An engine around another one: it batches for it, or answers in its place now and then."""

    engine: Engine | Core


@dataclass(frozen=True, slots=True)
class Policy:
    """A named policy as the driver sees it: an engine, and how it samples.

    `learns`: an update will weigh what it samples now by `sampling`, so no behaviour may draw in
    another way.
    """

    name: str
    engine: Engine
    sampling: Sampling = Sampling()
    learns: bool = False

    @property
    def core(self) -> Engine | Core:
        """The engine itself, where `engine` only gathers requests to batches for it. What it can
        do beside answering: `gem_ma.engines.capabilities`."""
        return self.engine.engine if isinstance(self.engine, Wraps) else self.engine


def open_engine(policy: str, model: str, **options: Any) -> Engine:
    """The engine of a policy; `model` is `<engine>/<name>`. An unknown engine is refused before any
    heavy import.

    An engine class is constructed as `Class(name, policy=policy, **options)`. `constrain: null`
    and `device: null` are fulfilled by an engine that knows no such option.
    """
    kind, _, name = model.partition("/")
    factory = load("engines", kind)
    if spare := [
        key
        for key, value in options.items()
        if asks_nothing(key, value) and key not in signature(factory).parameters
    ]:
        options = {key: value for key, value in options.items() if key not in spare}
    engine = construct(
        f"policy {policy!r}: engine {kind!r}", factory, name, policy=policy, **options
    )
    return Batched(engine) if isinstance(engine, Batches) else engine


def stable_seed(*parts: object) -> int:
    """A 63-bit seed out of any printable parts; unlike hash(), the same in every process."""
    digest = hashlib.blake2b("|".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
