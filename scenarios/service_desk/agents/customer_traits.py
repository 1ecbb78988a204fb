"""What kind of customer a scripted one is: its traits with their ranges, and the presets."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from gem_ma.scenarios.service_desk.agents.customer_phrases import REGISTERS

from gem_ma.kernel.errors import ConfigError

# As the task lists them, the other way round, or by the seed.
ORDERS = ("given", "reversed", "shuffled")


@dataclass(frozen=True, slots=True)
class Traits:
    """How a customer is. A number may be given as a range [low, high]; it is then drawn by the
    seed.

    `patience`: unhelpful messages in a row that it bears. `verbosity`: 0 terse to 2 chatty.
    `front_load`: share of what may be said at once that is said at once, 0 to 1. `cooperation`:
    chance that it answers a question the first time. `mistakes`: chance that a value it tells is
    mistyped, and corrected in its next message. `scepticism`: 0 checks that nothing is wrong, 1
    wants every argument named, 2 wants the price as well. `order` of its wishes. `mind_change`:
    chance that it wavers once before a yes. `register`: its tone.
    """

    # The defaults are the faithful customer, whom an assistant without a fault can serve in full.
    patience: int = 4
    verbosity: int = 1
    front_load: float = 1.0
    cooperation: float = 1.0
    mistakes: float = 0.0
    scepticism: int = 1
    order: str = "given"
    mind_change: float = 0.0
    register: str = "plain"


@dataclass(frozen=True, slots=True)
class Character:
    """What is asked of a customer: a preset, and traits in the place of the preset's.

    None leaves a trait as the preset has it; a number may be a pair, see `Traits`. These are the
    options of every behaviour that plays a customer, scripted or by a model.
    """

    preset: str | None = None
    patience: Any = None
    verbosity: Any = None
    front_load: Any = None
    cooperation: Any = None
    mistakes: Any = None
    scepticism: Any = None
    order: str | None = None
    mind_change: Any = None
    register: str | None = None

    def named(self) -> dict[str, Any]:
        """The traits that are named, without the preset."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(Traits)}
        return {name: value for name, value in values.items() if value is not None}


# Patience of 100 is endless here: no talk has so many turns.
RANGES: dict[str, tuple[float, float]] = {
    "patience": (1, 100),
    "verbosity": (0, 2),
    "front_load": (0, 1),
    "cooperation": (0, 1),
    "mistakes": (0, 1),
    "scepticism": (0, 2),
    "mind_change": (0, 1),
}
CHOICES = {"order": ORDERS, "register": REGISTERS}
PRESETS: dict[str, dict[str, Any]] = {
    # Nothing: the defaults of `Traits`.
    "faithful": {},
    "terse": {"verbosity": 0, "front_load": 0.5},
    "chatty": {"verbosity": 2, "register": "casual"},
    "impatient": {"patience": 3, "verbosity": 0, "register": "casual"},
    "forgetful": {"mistakes": 0.4, "front_load": 0.6, "patience": 6},
    "sceptical": {"scepticism": 2, "register": "formal", "patience": 6},
    "erratic": {
        "order": "shuffled",
        "mind_change": 0.6,
        "mistakes": 0.2,
        "register": "casual",
        "patience": 6,
    },
    "uncooperative": {"cooperation": 0.4, "front_load": 0.0, "verbosity": 0, "patience": 6},
}


def traits_of(
    agent: str, rng: random.Random, character: Character, task_traits: Mapping[str, Any]
) -> Traits:
    """The traits of one customer: the preset, then the task's own unless a preset was asked for,
    then what is named. Raises ConfigError."""
    name = character.preset
    # A task may bring a character of its own, which only a named preset replaces.
    if name is None:
        name = task_traits.get("preset", "faithful")
    if name not in PRESETS:
        near = get_close_matches(str(name), PRESETS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(PRESETS)}"
        raise ConfigError(f"agent {agent!r}: no preset of a customer is called {name!r} ({hint})")
    merged = dict(PRESETS[name])
    if character.preset is None:
        # A task's traits may hold more, such as its preset.
        known = {entry.name for entry in fields(Traits)}
        merged |= {key: value for key, value in task_traits.items() if key in known}
    merged |= character.named()
    # Ranges are drawn in this order, which recorded episodes replay.
    return Traits(**{key: _trait(agent, rng, key, value) for key, value in merged.items()})


def _trait(agent: str, rng: random.Random, name: str, value: Any) -> Any:
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise ConfigError(
                f"agent {agent!r}: {name} is one of {', '.join(CHOICES[name])}; got {value!r}"
            )
        return value
    low, high = RANGES[name]
    # The default says the type of a trait.
    whole = isinstance(getattr(Traits(), name), int)
    bounds = list(value) if isinstance(value, (list, tuple)) and len(value) == 2 else [value, value]
    for bound in bounds:
        number = isinstance(bound, int) if whole else isinstance(bound, (int, float))
        # True would pass for 1.
        if isinstance(bound, bool) or not number or not low <= bound <= high:
            kind = (
                f"a whole number of at least {low:g}"
                if name == "patience"
                else f"{'a whole number' if whole else 'a number'} from {low:g} to {high:g}"
            )
            raise ConfigError(
                f"agent {agent!r}: {name} is {kind}, or a range of two; got {value!r}"
            )
    if bounds[0] > bounds[1]:
        raise ConfigError(
            f"agent {agent!r}: the range of {name} goes from low to high; got {value!r}"
        )
    # Nothing is drawn where there is nothing to choose, so that a fixed trait moves no later draw.
    if bounds[0] == bounds[1]:
        return bounds[0]
    return rng.randint(*bounds) if whole else rng.uniform(*bounds)
