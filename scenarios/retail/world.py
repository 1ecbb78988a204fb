"""The tables of the generated shop out of a seed, the same bytes on every machine.

A world has the invariants of the real data: no dangling id, an item costs what the catalogue says, the first payment is the sum of the items.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product as combinations
from typing import Any

from gem_ma.scenarios.retail.words import BRANDS, CITIES, COUNTRY, EXTRAS, FIRST_NAMES, LAST_NAMES, PRODUCTS, STREETS

GENERATOR = 2  # a change of what a seed gives is a new number
STATUSES = ("pending",) * 8 + ("delivered",) * 8 + ("processed",) * 2 + ("cancelled",) * 2


def build_tables(seed: int, users: int = 40, orders: int = 80, products: int = 20) -> dict[str, dict[str, Any]]:
    """The three tables of a world."""
    rng = random.Random(f"retail-world/{GENERATOR}/{seed}/{users}/{orders}/{products}")
    ids = _Ids(rng)
    catalogue = _catalogue(rng, ids, products)
    people = _people(rng, ids, users)
    found = {}
    for _ in range(orders):
        user_id = rng.choice(list(people))
        order = _order(rng, ids, user_id, people[user_id], catalogue)
        people[user_id]["orders"].append(order["order_id"])
        found[order["order_id"]] = order
    return {"users": people, "orders": found, "products": catalogue}


class _Ids:
    """Numbers of a fixed length, none twice."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.given = rng, set[str]()

    def __call__(self, digits: int) -> str:
        while True:
            number = str(self.rng.randrange(10 ** (digits - 1), 10**digits))
            if number not in self.given:
                self.given.add(number)
                return number


def _catalogue(rng: random.Random, ids: _Ids, count: int) -> dict[str, Any]:
    catalogue = {}
    for name, axes in rng.sample(PRODUCTS, count):
        product_id, base_price = ids(10), rng.randrange(1500, 60000)
        choices = [dict(zip(axes, values, strict=True)) for values in combinations(*axes.values())]
        variants = {}
        for options in rng.sample(choices, min(len(choices), rng.randint(6, 12))):
            item_id = ids(10)
            price = round(base_price * rng.uniform(0.8, 1.25)) / 100
            variants[item_id] = {"item_id": item_id, "options": options, "available": rng.random() < 0.7, "price": price}
        for variant in rng.sample(list(variants.values()), 3):
            variant["available"] = True  # something to change to, always
        catalogue[product_id] = {"name": name, "product_id": product_id, "variants": variants}
    return catalogue


def address(rng: random.Random) -> dict[str, str]:
    """An address in the key order of the data."""
    city, state, prefix = rng.choice(CITIES)
    street = f"{rng.randint(1, 240)} {rng.choice(STREETS)}"
    postcode = f"{prefix}{rng.randrange(100):02d}"
    return {"address1": street, "address2": rng.choice(EXTRAS), "city": city, "country": COUNTRY, "state": state, "zip": postcode}


def _people(rng: random.Random, ids: _Ids, count: int) -> dict[str, Any]:
    people: dict[str, Any] = {}
    names = rng.sample([(first, last) for first in FIRST_NAMES for last in LAST_NAMES], count)
    for first, last in names:
        tag = ids(4)
        methods: dict[str, Any] = {}
        for source in rng.sample(("credit_card", "paypal", "gift_card", "credit_card"), rng.randint(1, 4)):
            method_id = f"{source}_{ids(7)}"
            method: dict[str, Any] = {"source": source}
            if source == "credit_card":
                method |= {"brand": rng.choice(BRANDS), "last_four": f"{rng.randrange(10_000):04d}"}
            elif source == "gift_card":
                method["balance"] = rng.randint(5, 900)
            methods[method_id] = method | {"id": method_id}
        email = f"{first}.{last}{tag}@example.com".lower()
        record = {"name": {"first_name": first, "last_name": last}, "address": address(rng), "email": email, "payment_methods": methods, "orders": []}
        people[f"{first}_{last}_{tag}".lower()] = record
    return people


def _order(rng: random.Random, ids: _Ids, user_id: str, user: Mapping[str, Any], catalogue: Mapping[str, Any]) -> dict[str, Any]:
    items = []
    for product_id in rng.sample(list(catalogue), min(len(catalogue), rng.choice((1, 1, 2, 2, 3, 4, 5)))):
        variant = rng.choice(list(catalogue[product_id]["variants"].values()))
        item = {"name": catalogue[product_id]["name"], "product_id": product_id, "item_id": variant["item_id"], "price": variant["price"]}
        items.append(item | {"options": dict(variant["options"])})
    status, method_id = rng.choice(STATUSES), rng.choice(list(user["payment_methods"]))
    paid = {"transaction_type": "payment", "amount": round(sum(item["price"] for item in items), 2), "payment_method_id": method_id}
    sent = [{"tracking_id": [ids(12)], "item_ids": [item["item_id"] for item in items]}] if status in ("processed", "delivered") else []
    return {
        "order_id": f"#W{ids(7)}",
        "user_id": user_id,
        "address": dict(user["address"]),
        "items": items,
        "fulfillments": sent,
        "status": status,
        "payment_history": [paid, paid | {"transaction_type": "refund"}] if status == "cancelled" else [paid],
    }
