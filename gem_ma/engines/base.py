"""The engine protocol: requests in, replies out. Nothing above this line knows transformers, vLLM
or HTTP.

Engines know tokens and weights; they do not know scenarios, rewards or other agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from inspect import signature
from typing import Any, Protocol, runtime_checkable

from gem_ma.engines.batching import Batched, Core
from gem_ma.engines.capabilities import Batches, Settles, Typed
from gem_ma.kernel.types import Reply, Request, Sampling
from gem_ma.registry import asks_nothing, construct, load


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

    `learns`: an update will compute the probabilities of what it samples now under `sampling`, so
    no behaviour may sample in another way.
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


def asks_person(policies: Mapping[str, Policy]) -> list[Typed]:
    """The engines behind which a person types. While one does, nothing else may be drawn on the
    terminal."""
    return [policy.core for policy in policies.values() if isinstance(policy.core, Typed)]


def stable_seed(*parts: object) -> int:
    """A 63-bit seed out of any printable parts; unlike hash(), the same in every process."""
    # of their text, which is the same in every process and after a record was written and read
    return text_seed("|".join(map(str, parts)))


def text_seed(text: str) -> int:
    """The `stable_seed` of parts whose text, with `|` between two, is this."""
    digest = blake2b(text.encode(), digest_size=8).digest()
    # 63 bits: it fits a signed 64-bit integer, wherever it is handed to
    return int.from_bytes(digest, "big") >> 1


def open_engine(policy: str, model: str, **options: Any) -> Engine:
    """The engine of a policy; `model` is `<engine>/<name>`. An engine class is constructed as
    `Class(name, policy=policy, **options)`; `constrain: null` and `device: null` are fulfilled by
    an engine that knows no such option."""
    kind, _, name = model.partition("/")
    factory = load("engines", kind)
    # one config serves several engines (`policies.main.model=...` on the command line), and an
    # option that asks for nothing is not a reason to refuse one of them
    known = signature(factory).parameters
    options = {
        key: value for key, value in options.items() if key in known or not asks_nothing(key, value)
    }
    engine = construct(
        f"policy {policy!r}: engine {kind!r}", factory, name, policy=policy, **options
    )
    # an engine that answers batches is one that answers: whoever asks sees no difference
    return Batched(engine) if isinstance(engine, Batches) else engine


def paces(policies: Mapping[str, Policy]) -> list[str]:
    """What engines say of how fast this machine is."""
    engines = [policy.core for policy in policies.values()]
    lines = [engine.pace() for engine in engines if isinstance(engine, Settles)]
    return [line for line in lines if line]
