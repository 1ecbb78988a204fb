"""The tables of the generated shop out of a seed, the same bytes on every machine.

A world has the invariants of the real data: no dangling id, an item costs what the catalogue
says, the first payment is the sum of the items.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product as combinations
from typing import Any

from gem_ma.scenarios.service_desk.retail.domain.products import HELD_OUT, PRODUCTS
from gem_ma.scenarios.service_desk.retail.shop.words import (
    BRANDS,
    CITIES,
    COUNTRY,
    EXTRAS,
    FIRST_NAMES,
    LAST_NAMES,
    STREETS,
)

GENERATOR = 3  # a change of what a seed gives is a new number
# As shares: most orders can be changed, a tenth each is on its way or cancelled.
STATUSES = ("pending",) * 8 + ("delivered",) * 8 + ("processed",) * 2 + ("cancelled",) * 2
MOST = 5  # items of an order


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a world is made with. `orders_per_user` above 0 decides the number of orders, and
    `orders` nothing. `distractors` and `repeats` as in `knobs.Knobs`. `held_out`: the products
    are those that no other world sells, filled up with others if there are too few."""

    users: int = 40
    orders: int = 80
    products: int = 20
    orders_per_user: int = 0
    distractors: int = 0
    repeats: float = 0.0
    held_out: bool = False


def build_tables(
    seed: int,
    users: int = 40,
    orders: int = 80,
    products: int = 20,
    orders_per_user: int = 0,
    distractors: int = 0,
    repeats: float = 0.0,
) -> dict[str, dict[str, Any]]:
    """The three tables of a world of the ordinary products."""
    return tables_of(seed, Sizes(users, orders, products, orders_per_user, distractors, repeats))


def tables_of(seed: int, sizes: Sizes) -> dict[str, dict[str, Any]]:
    """The three tables of a world."""
    # All sizes are in the seed: other sizes make another world and not a longer version of it.
    named = "/".join(str(getattr(sizes, field.name)) for field in fields(sizes))
    rng = random.Random(f"retail-world/{GENERATOR}/{seed}/{named}")
    ids = _Ids(rng)
    # Held-out products first, so that a small world of the split `shift` sells nothing else.
    goods = (rng.sample(HELD_OUT, len(HELD_OUT)) if sizes.held_out else []) + rng.sample(
        PRODUCTS, len(PRODUCTS)
    )
    # Drawn before the customers: changing this order changes every world, and `GENERATOR` with it.
    catalogue = _catalogue(rng, ids, goods[: sizes.products])
    people = _people(rng, ids, sizes.users)
    # With a fixed number each customer buys in turn; else whoever chance names.
    buyers = [user_id for user_id in people for _ in range(sizes.orders_per_user)]
    sold: dict[str, Any] = {}
    for user_id in buyers or [rng.choice(list(people)) for _ in range(sizes.orders)]:
        own = [sold[order_id] for order_id in people[user_id]["orders"]]
        order = _order(rng, ids, user_id, people[user_id], _basket(rng, catalogue, own, sizes))
        people[user_id]["orders"].append(order["order_id"])
        sold[order["order_id"]] = order
    return {"users": people, "orders": sold, "products": catalogue}


class _Ids:
    """Numbers of a fixed length, none twice."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.numbers = rng, set[str]()

    def __call__(self, digits: int) -> str:
        # Of a fixed length without leading zeros, as the patterns of ids expect.
        while True:
            number = str(self.rng.randrange(10 ** (digits - 1), 10**digits))
            if number not in self.numbers:
                self.numbers.add(number)
                return number


def _catalogue(
    rng: random.Random, ids: _Ids, goods: Sequence[tuple[str, Mapping[str, Sequence[str]]]]
) -> dict[str, Any]:
    catalogue = {}
    for name, axes in goods:
        product_id, base_price = ids(10), rng.randrange(1500, 60000)
        # Options as a full grid, of which a product has 6 to 12; a gap is what `unavailable` may
        # ask for.
        choices = [dict(zip(axes, values, strict=True)) for values in combinations(*axes.values())]
        variants = {}
        for options in rng.sample(choices, min(len(choices), rng.randint(6, 12))):
            item_id = ids(10)
            # In cents before the division, so that a price has two digits exactly.
            price = round(base_price * rng.uniform(0.8, 1.25)) / 100
            variants[item_id] = {
                "item_id": item_id,
                "options": options,
                "available": rng.random() < 0.7,
                "price": price,
            }
        # At least three, so that an item always has a variant to change to.
        for variant in rng.sample(list(variants.values()), 3):
            variant["available"] = True  # something to change to, always
        catalogue[product_id] = {"name": name, "product_id": product_id, "variants": variants}
    return catalogue


def address(rng: random.Random) -> dict[str, str]:
    """An address in the key order of the data."""
    # The key order is that of the benchmark's files, and so of every digest.
    city, state, prefix = rng.choice(CITIES)
    street = f"{rng.randint(1, 240)} {rng.choice(STREETS)}"
    postcode = f"{prefix}{rng.randrange(100):02d}"
    return {
        "address1": street,
        "address2": rng.choice(EXTRAS),
        "city": city,
        "country": COUNTRY,
        "state": state,
        "zip": postcode,
    }


def _people(rng: random.Random, ids: _Ids, count: int) -> dict[str, Any]:
    people: dict[str, Any] = {}
    names = rng.sample([(first, last) for first in FIRST_NAMES for last in LAST_NAMES], count)
    for first, last in names:
        # A number behind the name, since two customers may share it.
        tag = ids(4)
        methods: dict[str, Any] = {}
        # Two chances of a credit card; a customer may so have two of them.
        for source in rng.sample(
            ("credit_card", "paypal", "gift_card", "credit_card"), rng.randint(1, 4)
        ):
            method_id = f"{source}_{ids(7)}"
            method: dict[str, Any] = {"source": source}
            if source == "credit_card":
                method |= {"brand": rng.choice(BRANDS), "last_four": f"{rng.randrange(10_000):04d}"}
            elif source == "gift_card":
                # In whole units: a balance rarely just covers a price.
                method["balance"] = rng.randint(5, 900)
            methods[method_id] = method | {"id": method_id}
        email = f"{first}.{last}{tag}@example.com".lower()
        record = {
            "name": {"first_name": first, "last_name": last},
            "address": address(rng),
            "email": email,
            "payment_methods": methods,
            "orders": [],
        }
        people[f"{first}_{last}_{tag}".lower()] = record
    return people


def _basket(
    rng: random.Random,
    catalogue: Mapping[str, Any],
    earlier: Sequence[Mapping[str, Any]],
    sizes: Sizes,
) -> list[dict[str, Any]]:
    """The items of a new order of a customer who has these orders."""
    count = min(len(catalogue), rng.choice((1, 1, 2, 2, 3, 4, 5)))
    # Each product once, in the order in which it was bought.
    bought = list(dict.fromkeys(item["product_id"] for order in earlier for item in order["items"]))
    # A product again, as a distractor: its name alone then fits two orders.
    again = rng.sample(bought, min(sizes.distractors, count, len(bought)))
    chosen = again + [
        product_id for product_id in rng.sample(list(catalogue), count) if product_id not in again
    ]
    items = [
        _item(catalogue[product_id], rng.choice(list(catalogue[product_id]["variants"])))
        for product_id in chosen[:count]
    ]
    if rng.random() < sizes.repeats and len(items) < MOST:
        first = items[0]
        others = [
            key for key in catalogue[first["product_id"]]["variants"] if key != first["item_id"]
        ]
        # the same twice, or another variant
        items.append(
            _item(
                catalogue[first["product_id"]], rng.choice([first["item_id"], rng.choice(others)])
            )
        )
    return items


def _item(product: Mapping[str, Any], item_id: str) -> dict[str, Any]:
    variant = product["variants"][item_id]
    item = {
        "name": product["name"],
        "product_id": product["product_id"],
        "item_id": item_id,
        "price": variant["price"],
    }
    return item | {"options": dict(variant["options"])}


def _order(
    rng: random.Random,
    ids: _Ids,
    user_id: str,
    user: Mapping[str, Any],
    items: list[dict[str, Any]],
) -> dict[str, Any]:
    status, method_id = rng.choice(STATUSES), rng.choice(list(user["payment_methods"]))
    paid = {
        "transaction_type": "payment",
        # The sum of the items, or no refund would add up.
        "amount": round(sum(item["price"] for item in items), 2),
        "payment_method_id": method_id,
    }
    sent = (
        [{"tracking_id": [ids(12)], "item_ids": [item["item_id"] for item in items]}]
        # A parcel number once it has been sent; a cancelled order has none.
        if status in ("processed", "delivered")
        else []
    )
    return {
        "order_id": f"#W{ids(7)}",
        "user_id": user_id,
        "address": dict(user["address"]),
        "items": items,
        "fulfillments": sent,
        "status": status,
        "payment_history": (
            # A cancelled order was paid back, by the same method.
            [paid, paid | {"transaction_type": "refund"}] if status == "cancelled" else [paid]
        ),
    }
