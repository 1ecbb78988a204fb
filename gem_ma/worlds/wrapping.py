"""A user's own Gymnasium or PettingZoo environment as a scenario: `gem_ma.worlds.wrap(env)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import count
from typing import Any

from gem_ma.kernel.effects import Scenario
from gem_ma.kernel.errors import ConfigError
from gem_ma.worlds.copies import whole_copy
from gem_ma.worlds.foreign import Foreign
from gem_ma.worlds.guest import guest, one_line, starting
from gem_ma.worlds.gymnasium import Gymnasium
from gem_ma.worlds.pettingzoo import PettingZoo

_NUMBERS = count()


def wrapped(env: Any, options: dict[str, Any]) -> Scenario:
    """What `gem_ma.worlds.wrap` gives."""
    maker = _maker(env)
    name = getattr(env, "__name__", type(env).__name__)
    # properties of a user's may raise, too
    with starting(name), guest(0):
        made = maker()
        kind = _kind(made, name)
        title = type(getattr(made, "unwrapped", made)).__name__
    fits = inspect.signature(kind.__mro__[1]).parameters
    names = [name for name in fits if name not in ("env", "options")]
    for key in options.keys() - set(names):
        raise ConfigError(f"wrap() has no option {key!r}; it has {', '.join(names)}")
    scenario: Foreign = kind(maker, title, **options)
    # a reset that fails is seen here, not in the first of a thousand plays
    with starting(title, "played"), guest(0):
        scenario.stop(scenario.opened(0))
    return scenario


def _kind(made: Any, name: str) -> type[WrappedGymnasium] | type[WrappedPettingZoo]:
    """Which of the two an environment is. Raises ConfigError where it is neither."""
    kind = WrappedPettingZoo if _has(made, "possible_agents") else WrappedGymnasium
    if not all(_has(made, member) for member in ("reset", "step", "action_space")):
        raise ConfigError(
            "wrap() takes an environment of Gymnasium or PettingZoo, or a function that makes one;"
            f" got {type(made).__name__}"
        )
    if _has(made, "num_envs"):
        raise ConfigError(f"{name} is made of {made.num_envs} environments; wrap() takes one")
    if kind is WrappedGymnasium and callable(made.action_space):
        raise ConfigError(f"{name} has no possible_agents, which PettingZoo's environments have")
    return kind


def _has(env: Any, member: str) -> bool:
    """Whether it has this; what a property of it raises is raised, an AttributeError too."""
    if inspect.getattr_static(env, member, None) is not None:
        getattr(env, member)
        return True
    return hasattr(env, member)  # some wrappers find it in what they wrap


def _maker(env: Any) -> Callable[[], Any]:
    # an environment may be callable too, so what steps is taken for one first
    if callable(env) and (isinstance(env, type) or not hasattr(env, "step")):
        return env
    try:
        with guest(0):
            # some give themselves as their copy, such as what holds a simulator
            if whole_copy(env) is env:
                raise TypeError("its copy is itself")
    except Exception as error:
        raise ConfigError(
            f"{type(env).__name__} cannot be copied ({one_line(error)}), so two plays would share"
            " it; pass a function that makes it: wrap(lambda: ...)"
        ) from error
    return lambda: whole_copy(env)


class WrappedGymnasium(Gymnasium):
    """A Gymnasium environment of a user."""

    def __init__(self, maker: Callable[[], Any], name: str, **options: Any) -> None:
        self.maker = maker
        super().__init__(name, **options)

    def _key(self) -> str:
        # two objects of one class may differ in anything
        return f"wrapped {next(_NUMBERS)} {self.env}"

    @property
    def title(self) -> str:
        return self.env

    def _spec(self, made: Any) -> Any:
        return getattr(made, "spec", None)

    def _made(self) -> Any:
        return self.maker()


class WrappedPettingZoo(PettingZoo):
    """A PettingZoo environment of a user."""

    def __init__(self, maker: Callable[[], Any], name: str, **options: Any) -> None:
        self.maker = maker
        super().__init__(name, **options)

    @property
    def title(self) -> str:
        return self.env

    def _key(self) -> str:
        return f"wrapped {next(_NUMBERS)} {self.env}"

    def _made(self) -> Any:
        return self.maker()
