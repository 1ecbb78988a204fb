"""A user's own Gymnasium or PettingZoo environment as a scenario: `gem_ma.adapters.wrap(env)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import count
from typing import Any

from gem_ma.adapters.copies import whole_copy
from gem_ma.adapters.guest import guest
from gem_ma.adapters.gymnasium import Gymnasium
from gem_ma.adapters.pettingzoo import PettingZoo
from gem_ma.effects import Scenario
from gem_ma.errors import ConfigError

_NUMBERS = count()


def wrapped(env: Any, options: dict[str, Any]) -> Scenario:
    """What `gem_ma.adapters.wrap` gives."""
    maker = _maker(env)
    with guest(0):
        made = maker()
    kind = WrappedPettingZoo if hasattr(made, "possible_agents") else WrappedGymnasium
    if not all(hasattr(made, name) for name in ("reset", "step", "action_space")):
        raise ConfigError(
            "wrap() takes an environment of Gymnasium or PettingZoo, or a function that makes one;"
            f" got {type(made).__name__}"
        )
    fits = inspect.signature(kind.__mro__[1]).parameters
    names = [name for name in fits if name not in ("env", "options")]
    for name in options.keys() - set(names):
        raise ConfigError(f"wrap() has no option {name!r}; it has {', '.join(names)}")
    return kind(maker, type(made.unwrapped).__name__, **options)


def _maker(env: Any) -> Callable[[], Any]:
    # an environment may be callable too, so what steps is taken for one first
    if callable(env) and (isinstance(env, type) or not hasattr(env, "step")):
        return env
    try:
        with guest(0):
            whole_copy(env)
    except Exception as error:
        raise ConfigError(
            f"{type(env).__name__} cannot be copied ({error}), so two plays would share it; pass a"
            " function that makes it: wrap(lambda: ...)"
        ) from error
    return lambda: whole_copy(env)


class WrappedGymnasium(Gymnasium):
    """A Gymnasium environment of a user."""

    def __init__(self, maker: Callable[[], Any], name: str, **options: Any) -> None:
        self.maker = maker
        super().__init__(name, **options)

    def _declare(self, made: Any, turns: int | None, chance: bool | None) -> None:
        # two objects of one class may differ in anything
        self.key = f"wrapped {next(_NUMBERS)} {self.env}"
        super()._declare(made, turns, chance)

    def _spec(self, made: Any) -> Any:
        return made.spec

    def _made(self) -> Any:
        return self.maker()


class WrappedPettingZoo(PettingZoo):
    """A PettingZoo environment of a user."""

    def __init__(self, maker: Callable[[], Any], name: str, **options: Any) -> None:
        self.maker = maker
        super().__init__(name, **options)
        self.key = f"wrapped {next(_NUMBERS)} {self.env}"

    def _made(self) -> Any:
        return self.maker()
