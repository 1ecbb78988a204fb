"""Opens the engine of a policy by the name of its model.

What an engine is: `gem_ma.engines.base`.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from gem_ma.engines.base import Engine, Policy
from gem_ma.engines.batching import Batched
from gem_ma.engines.capabilities import Batches, Settles
from gem_ma.registry import asks_nothing, construct, load


def open_engine(policy: str, model: str, **options: Any) -> Engine:
    """The engine of a policy; `model` is `<engine>/<name>`. An unknown engine is refused before any
    heavy import.

    An engine class is constructed as `Class(name, policy=policy, **options)`. `constrain: null`
    and `device: null` are fulfilled by an engine that knows no such option.
    """
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
