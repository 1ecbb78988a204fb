"""How hard the generated tasks are: the option `knobs` of the scenario, each with its range."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from typing import Any

from gem_ma.kernel.errors import ConfigError

# The order is part of the generator: tasks are drawn by place in these lists, so a name in the
# middle would change every seed.
WRITES = ("cancel", "return", "exchange", "modify", "address", "default_address", "payment")
QUESTIONS = (
    "amount_paid",
    "tracking_number",
    "variant_count",
    "total_refund",
    "price_difference",
    "cheapest_variant",
    "gift_balance",
)
REFUSALS = (
    "order_status",
    "payment_method",
    "balance",
    "product_type",
    "cancel_reason",
    "once",
    "not_yours",
    "unavailable",
    "beyond_tools",
)
INTENTS = (*WRITES, *QUESTIONS, *REFUSALS)
_WHOLE = {  # whole numbers: least and most
    "requests": (1, 4),
    "orders_per_user": (0, 9),
    "items_per_write": (1, 5),
    "distractors": (0, 5),
}


@dataclass(frozen=True, slots=True)
class Knobs:
    """Shares are from 0 to 1, of tasks or of requests as said.

    `requests`: the most that one customer wants. `intents`: only these; () is all that the
    shares allow. `orders_per_user`: what every customer has; 0 leaves it to chance and to the
    size of the shop. `items_per_write`: the most items of one change. `distractors`: items of an
    order that repeat a product of an earlier order of the same customer. `repeats`: share of
    orders that hold a product twice. Of requests: `questions`, `infeasible` (to be refused),
    `conditional` (something else is wanted once the first is refused), `change_of_mind`,
    `preferences` (wanted items described by what matters, not in full), `ties` (several right
    answers). Of tasks: `unknown` (the numbers of orders have been forgotten) and `traits` (the
    customer has a character of its own: patience, words, mistakes, scepticism and the like).
    """

    requests: int = 3
    intents: tuple[str, ...] = ()
    orders_per_user: int = 0
    items_per_write: int = 3
    distractors: int = 0
    repeats: float = 0.05
    questions: float = 0.2
    infeasible: float = 0.12
    conditional: float = 0.3
    change_of_mind: float = 0.1
    preferences: float = 0.4
    ties: float = 0.1
    unknown: float = 0.1
    traits: float = 0.0

    def allows(self, intent: str) -> bool:
        """Whether requests of this intent may be drawn."""
        return not self.intents or intent in self.intents

    def allows_more(self, intent: str) -> bool:
        """Whether requests of other intents may be drawn, in the same talk."""
        return self.requests > 1 and self.intents != (intent,)

    @property
    def plain(self) -> dict[str, Any]:
        """These knobs as a config has them."""
        return asdict(self) | {"intents": list(self.intents)}

    @property
    def digest(self) -> str:
        """Eight digits of what these knobs are."""
        # Sorted keys, since the digest is part of each task's id and seed.
        return hashlib.sha256(json.dumps(self.plain, sort_keys=True).encode()).hexdigest()[:8]


def read_knobs(options: Knobs | Mapping[str, Any] | None) -> Knobs:
    """The knobs out of a config. Raises ConfigError for an unknown knob, with the nearest name,
    and for a value out of its range."""
    # Knobs that are read already pass as they are; a shop may be made out of another one's.
    if options is None or isinstance(options, Knobs):
        return options or Knobs()
    if not isinstance(options, Mapping):
        raise ConfigError(
            f"scenario.knobs: an object of knobs, such as {{requests: 3}}; got {options!r}"
        )
    # The dataclass is the only list of names.
    names = [field.name for field in fields(Knobs)]
    for name, value in options.items():
        where = f"scenario.knobs.{name}"
        if name not in names:
            raise ConfigError(f"{where}: there is no such knob{_nearest(str(name), names)}")
        if name == "intents":
            _check_intents(value)
        elif name in _WHOLE:
            least, most = _WHOLE[name]
            # True is an int in Python; `requests: true` is a mistake and no 1.
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ConfigError(f"{where}: a whole number from {least} to {most}; got {value!r}")
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise ConfigError(f"{where}: a share from 0 to 1; got {value!r}")
    typed: dict[str, Any] = {
        # As floats: `ties: 0` and `ties: 0.0` must have one digest.
        name: float(value) if name not in (*_WHOLE, "intents") else value
        for name, value in options.items()
    }
    if "intents" in typed:
        # their order changes nothing
        typed["intents"] = tuple(name for name in INTENTS if name in typed["intents"])
    return Knobs(**typed)


def _check_intents(value: Any) -> None:
    if not isinstance(value, (list, tuple)) or not value:
        raise ConfigError(
            f"scenario.knobs.intents: a list of at least one of {', '.join(INTENTS)}; got {value!r}"
        )
    for name in value:
        if name not in INTENTS:
            raise ConfigError(
                f"scenario.knobs.intents: there is no intent {name!r}{_nearest(str(name), INTENTS)}"
            )


def _nearest(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else f"; there is {', '.join(known)}"
