"""Where requests are drawn: one customer, the orders that are still free for a request, and how
the customer names things."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from gem_ma.scenarios.service_desk.desk.overlay import Overlay
from gem_ma.scenarios.service_desk.desk.preferences import Candidate
from gem_ma.scenarios.service_desk.desk.task import GoldCall, Wish
from gem_ma.scenarios.service_desk.retail.shop.knobs import Knobs
from gem_ma.scenarios.service_desk.retail.store.tasks import INTENTS, Item, method_words

Record = Mapping[str, Any]
TOOL_OF = {intent: tool for tool, intent in INTENTS.items()}
# The address and the payment of an order can be changed beside its items, as long as the items come
# last; everything else has an order to itself.
TOGETHER = {"address", "payment", "modify"}  # what one pending order can have, the items last


@dataclass(frozen=True, slots=True)
class Part:
    """One request: the wish and the calls that serve it once the customer is known. `before` is
    a request that has to come first."""

    wish: Wish
    calls: tuple[GoldCall, ...]
    before: Part | None = None


@dataclass(slots=True)
class Scene:
    """One customer at the desk. `forgetful` ones describe an order by what is in it wherever
    that says which one is meant."""

    rng: random.Random
    data: Overlay
    user_id: str
    user: Record
    knobs: Knobs
    # Two orders with the same things in them cannot be told apart, so such a customer still says
    # the number.
    forgetful: bool = False
    taken: dict[str, set[str]] = field(default_factory=dict)  # order -> intents

    # -- orders -----------------------------------------------------------------------------------

    def order(
        self, intent: str, *statuses: str, fits: Callable[[Record], bool] = lambda order: True
    ) -> Record | None:
        """An order of the customer that is free for the intent, and takes it; None where there
        is none."""
        orders = [self.data.record("orders", order_id) for order_id in self.user["orders"]]
        free = [
            order
            for order in orders
            if (not statuses or order["status"] in statuses)
            and self._free(order, intent)
            and fits(order)
        ]
        if not free:
            return None
        # By chance and by the seed; the first free one would prefer old orders.
        order = self.rng.choice(free)
        self.taken.setdefault(order["order_id"], set()).add(intent)
        return order

    def _free(self, order: Record, intent: str) -> bool:
        taken = self.taken.get(order["order_id"], set())
        # Each once: a second change of the address would undo the first.
        return not taken or (intent in TOGETHER and taken <= TOGETHER and intent not in taken)

    def named(self, order: Record) -> str:
        """The order in the customer's words; somebody else's is known by its number alone."""
        if self.forgetful and order["order_id"] in self.user["orders"]:
            names = contents(order)
            others = [
                contents(self.data.record("orders", key))
                for key in self.user["orders"]
                if key != order["order_id"]
            ]
            # As few things as tell it apart, from the first on: nobody lists a whole order.
            for count in range(1, len(names) + 1):
                if not any(set(names[:count]) <= set(other) for other in others):
                    return described(names[:count])
        return f"order {order['order_id']}"

    def asked(
        self,
        order: Record,
        items: Sequence[Record] = (),
        wanted: Sequence[Candidate] = (),
        method: str = "",
        reason: str = "",
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What is asked of an order, as arguments of a call and in the customer's words; `wanted`
        are the variants that items are swapped for."""
        arguments: dict[str, Any] = {"order_id": order["order_id"]}
        words: dict[str, Any] = {"order": self.named(order)}
        if items:
            arguments["item_ids"] = [item["item_id"] for item in items]
            words["items"] = tuple(
                Item(item["name"], item["options"], new.options if new else None)
                for item, new in zip_longest(items, wanted)
            )
        if wanted:
            arguments["new_item_ids"] = [new.key for new in wanted]
        if method:
            arguments["payment_method_id"] = method
            words["method"] = method_words(self.user["payment_methods"], method)
        if reason:
            arguments["reason"] = words["reason"] = reason
        return arguments, words

    # -- items ------------------------------------------------------------------------------------

    def some(self, order: Record) -> list[Record]:
        """One or more of the items of an order."""
        items = order["items"]
        return self.rng.sample(
            items, self.rng.randint(1, min(self.knobs.items_per_write, len(items)))
        )

    def variants(self, item: Record) -> list[Candidate]:
        """What an item can be swapped for."""
        return [
            entry
            for entry in candidates(self.data, item["product_id"])
            if entry.key != item["item_id"]
        ]

    # -- payment ----------------------------------------------------------------------------------

    def methods(self, needed: float = 0.0) -> list[str]:
        """Payment methods that can be named in words and, being a gift card, hold enough."""
        methods = self.user["payment_methods"]
        # A method that shares its words with another one has only its id, which no customer knows.
        named = [key for key in methods if method_words(methods, key) != key]
        # Other methods have no balance, and count as enough.
        return [key for key in named if methods[key].get("balance", needed) >= needed]


def look(order: Record) -> GoldCall:
    """The call that shows an order."""
    return GoldCall("get_order_details", {"order_id": order["order_id"]})


def look_up(items: Sequence[Record]) -> tuple[GoldCall, ...]:
    """The calls that show the products of items."""
    return tuple(
        GoldCall("get_product_details", {"product_id": key})
        # Each product once, in the order of the items.
        for key in dict.fromkeys(item["product_id"] for item in items)
    )


def contents(order: Record) -> list[str]:
    """The products of an order by name, each once."""
    return list(dict.fromkeys(item["name"] for item in order["items"]))


def described(names: Sequence[str]) -> str:
    """An order by what is in it.

    >>> described(["Kite", "Umbrella"])
    'the order with a Kite and an Umbrella'
    """
    return (
        "the order with"
        f" {' and '.join(f'an {name}' if name[0] in 'AEIOU' else f'a {name}' for name in names)}"
    )


def candidates(data: Overlay, product_id: str) -> list[Candidate]:
    """The variants of a product that can be had."""
    # What is sold out cannot be had, whatever the customer prefers.
    variants = data.record("products", product_id)["variants"].values()
    return [candidate(variant) for variant in variants if variant["available"]]


def candidate(variant: Record) -> Candidate:
    return Candidate(variant["item_id"], variant["options"], variant["price"])
