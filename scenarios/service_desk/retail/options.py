"""The options of the scenario `retail` that belong together: the bounds of a talk, the generated
shop, and what is paid beside the outcome. A config writes their fields one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gem_ma.scenarios.service_desk.grading.tau2 import MAX_STEPS
from gem_ma.scenarios.service_desk.retail.shop.shop import OwnWorld

from gem_ma.kernel.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a talk ends: the assistant has acted `max_actions` times (30) or the user
    `max_user_actions` times (40); under the scoring `tau2` both have 200 steps together."""

    max_actions: int | None = None
    max_user_actions: int | None = None

    def under(self, scoring: str) -> tuple[int, int]:
        """Both bounds as they hold under a scoring. Raises ConfigError for anything that is not a
        bound."""
        usual = (MAX_STEPS, MAX_STEPS) if scoring == "tau2" else (30, 40)
        asked_for = (self.max_actions, self.max_user_actions)
        names = ("max_actions", "max_user_actions")
        bounds: list[int] = []
        for name, value, default in zip(names, asked_for, usual, strict=True):
            bound = default if value is None else value
            if isinstance(bound, bool) or not isinstance(bound, int) or bound < 1:
                raise ConfigError(f"scenario.{name}: a whole number of at least 1; got {bound!r}")
            bounds.append(bound)
        return bounds[0], bounds[1]


MOST_SHOPS = 4  # that are kept
_SHOPS: dict[str, OwnWorld] = {}  # by their digest, which is all that decides their tasks


@dataclass(frozen=True, slots=True)
class Shop:
    """The generated shop: how many `users`, `orders` and `products` a world has, and the `knobs` of
    its tasks (see `knobs.Knobs`)."""

    users: int = 40
    orders: int = 80
    products: int = 20
    knobs: Mapping[str, Any] | None = None

    def built(self, semantics: str) -> OwnWorld:
        """The shop under these rules, with the tasks that a scenario of the same settings has made:
        all cells of a study play them. Raises ConfigError for sizes that no world has."""
        made = OwnWorld(semantics, self.users, self.orders, self.products, self.knobs)
        if made.digest not in _SHOPS and len(_SHOPS) >= MOST_SHOPS:
            _SHOPS.pop(next(iter(_SHOPS)), None)
        return _SHOPS.setdefault(made.digest, made)


@dataclass(frozen=True, slots=True)
class Stakes:
    """What is paid beside the outcome.

    `rewards`: terms, as in `{progress: 0.3, policy: {hard: 0.1}}` (`service.rewards.watchers`).
    `user_reward`: whether the user shares the outcome (`cooperative`), is paid for its role at most
    (`neutral`), or for the assistant's hard violations (`adversarial`). `gamma`: the discount of
    the run, for the progress term.
    """

    rewards: Mapping[str, Any] | None = None
    user_reward: str = "cooperative"
    gamma: float = 1.0
