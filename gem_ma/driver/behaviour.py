"""What plays an agent: the protocol of behaviours, and how one is made for a seat.

A factory is called once per (episode, agent) as `factory(agent, sample, rng, task=None,
**options)`. Only a factory with `privileged = True` (an oracle, a scripted user) receives the
task; the cast records it, and a learned policy may not sit there. A factory with `waits = False`
promises that its `act` awaits nothing but itself, as a bot's does: sync views then run it in place,
and where all who are asked promise it, they act one after the other, without a task each.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from gem_ma.kernel.errors import ActionError, ConfigError, EngineError
from gem_ma.kernel.parsing.legal import parse_action
from gem_ma.kernel.types import Action, Asked, Message, Reply
from gem_ma.registry import construct, load
from gem_ma.system.options import is_factory

# await sample(messages, legal=None, tools=(), thread="", policy="", **sampling) -> Reply
Sample = Callable[..., Awaitable[Reply]]
Plain = Callable[[Sequence[Message], "tuple[str, ...] | None", random.Random], str]


class Behaviour(Protocol):
    """Turns what an agent is asked into one Action; it may call its model several times, and may
    keep memory."""

    async def act(self, asked: Asked) -> Action | str: ...


async def act_of(player: Behaviour, asked: Asked) -> Action | str:
    """What a behaviour does. Its `act` may be plain, in a run as in an environment."""
    answer: Any = player.act(asked)
    acted: Action | str = await answer if inspect.isawaitable(answer) else answer
    return acted


Factory = Callable[..., Behaviour]


class FromFunction:
    """A plain `f(messages, legal, rng) -> str` as a behaviour; the function may be async."""

    def __init__(self, function: Plain, rng: random.Random) -> None:
        self.function = function
        self.rng = rng

    async def act(self, asked: Asked) -> Action:
        answer: Any = self.function(asked.transcript, asked.legal, self.rng)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Action):
            return answer
        if not isinstance(answer, str):
            raise ActionError(
                f"{getattr(self.function, '__name__', 'the function')}(messages, legal, rng) gives"
                f" a str; got {type(answer).__name__}"
            )
        return parse_action(answer, asked.legal, asked.tools)


def as_factory(player: Any) -> Factory:
    """A factory out of an id, a factory (see `is_factory`), a plain function, or a ready
    behaviour."""
    if isinstance(player, str):
        player = load("agents", player)
    if not isinstance(player, type) and hasattr(player, "act"):
        # ready as it is: it keeps its memory from play to play, which is its maker's business
        return lambda agent, sample, rng, task=None, **options: player
    if not callable(player):
        raise ConfigError(
            f"a behaviour is an id, a factory, a function or an object with act(); got {player!r}"
        )
    if is_factory(player):
        made: Factory = player
        return made
    return lambda agent, sample, rng, task=None, **options: FromFunction(player, rng)


def is_privileged(factory: Factory) -> bool:
    """True where the behaviour is given the task."""
    return bool(getattr(factory, "privileged", False))


def waits(factory: Factory) -> bool:
    """False where the factory declares that its behaviour never waits for anything."""
    # true where nothing is said: waiting for one that need not costs time, the other way round a
    # play
    return bool(getattr(factory, "waits", True))


def seat(
    factory: Factory, agent: str, sample: Sample, rng: random.Random, task: Any, **options: Any
) -> Behaviour:
    """A behaviour in its seat. Raises ConfigError for an option that the factory does not know."""
    what = f"agent {agent!r}: behaviour {getattr(factory, '__name__', repr(factory))}"
    return construct(
        what, factory, agent, sample, rng, task=task if is_privileged(factory) else None, **options
    )


def no_policy(agent: str) -> Sample:
    """The `sample` of a seat without a policy: says what is missing."""

    async def sample(*args: Any, **kwargs: Any) -> Reply:
        raise EngineError(
            f"agent {agent!r}: its behaviour samples from a policy, but its seat names none"
        )

    return sample


def behaviour_rng(seed: int | str, agent: str) -> random.Random:
    """The stream of one behaviour, apart from the play's own and from every other agent's."""
    # `random` hashes a text by SHA-512, alike in every process
    return random.Random(f"{seed}/{agent}")


def needs_policy(behaviour: str, factory: Any) -> bool:
    """Whether a behaviour samples from a policy: what its attribute `needs_policy` says, else
    true for `direct` alone."""
    return bool(getattr(factory, "needs_policy", behaviour == "direct"))
