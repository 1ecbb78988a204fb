"""Small tasks for small models: a shop with one customer, one order, one thing in it, and wishes
that take two to four turns.

People, ids and addresses are those of the ordinary generator; the thing comes from a shelf of 4
x 4 options at one price, all in stock. A wish is to have another colour, to know the size, or to
cancel. What is right stands in the order: a pending one is modified, a delivered one exchanged,
a processed one left as it is; and the size, which has to stay, is nowhere else. Tasks are proved
as all others are: the solution scores, no near miss and no inaction does.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import product as combinations
from typing import Any

from gem_ma.scenarios.service_desk.desk.lazy import Lazy
from gem_ma.scenarios.service_desk.desk.overlay import Base, Overlay
from gem_ma.scenarios.service_desk.desk.task import GoldCall, Slot, Task, Wish
from gem_ma.scenarios.service_desk.grading import proofs
from gem_ma.scenarios.service_desk.retail.shop.prove import trial
from gem_ma.scenarios.service_desk.retail.shop.world import GENERATOR, build_tables
from gem_ma.scenarios.service_desk.retail.store.tasks import Item, flags_of, wish_of
from gem_ma.scenarios.service_desk.retail.store.tools import REASONS

from gem_ma.kernel.errors import ConfigError

THINGS = ("scarf", "lamp", "kettle", "cushion")
COLOURS = ("red", "blue", "green", "black")
SIZES = ("small", "medium", "large", "huge")
# As shares: 45 % pending, 45 % delivered, 10 % processed. A processed order can only be refused,
# and more of them would pay an assistant that refuses everybody.
STATUSES = ("pending",) * 9 + ("delivered",) * 9 + ("processed",) * 2
CHANGE, QUESTION, CANCEL = "change", "question", "cancel"
WISHES = (CHANGE,) * 7 + (QUESTION,) * 2 + (CANCEL,)
# A processed order has no tool, so a wish for it is to be refused.
WRITES = {"pending": "modify_pending_order_items", "delivered": "exchange_delivered_order_items"}
# first seed, number of tasks
SPLITS = {"train": (0, 1000), "val": (10_000_000, 200), "test": (20_000_000, 500)}
MOST_WORLDS = 4096  # worlds in memory


def never_looking() -> Fraction:
    """The chance of success of the best assistant that never looks at the order: it asks all
    there is to ask, guesses the size, tries every write, and refuses where none goes through. A
    question it cannot answer: what is told must have been shown."""
    # Read off the tables above and not measured, so a change of the shares moves the baseline with
    # it.
    possible = Fraction(sum(status in WRITES for status in STATUSES), len(STATUSES))
    change = possible / len(SIZES) + (1 - possible)
    return (WISHES.count(CHANGE) * change + WISHES.count(CANCEL)) / len(WISHES)


def tasks_of(split: str) -> Lazy:
    """The tasks of a split, each made and proved, in a world of its own, when first asked for.
    Raises ConfigError for an unknown split."""
    if split not in SPLITS:
        raise ConfigError(
            f"scenario.split: the one-order shop has {', '.join(SPLITS)}; got {split!r}"
        )
    first, size = SPLITS[split]
    source = f"one-order/{GENERATOR}/{split}"
    return Lazy(size, lambda place: _task(first + place, f"{source}/{first + place}"))


def provenance() -> dict[str, Any]:
    """For the manifest of a run."""
    knobs = (
        f"one-order shop, generator {GENERATOR}, shelf {THINGS} {COLOURS} {SIZES}, statuses"
        f" {STATUSES}, wishes {WISHES}"
    )
    return {
        "name": "one-order shop",
        "folder": None,
        "digest": hashlib.sha256(knobs.encode()).hexdigest(),
        "knobs": knobs,
    }


@lru_cache(maxsize=MOST_WORLDS)
def world(seed: int) -> Base:
    """The tables of a seed: the ordinary world of one customer, one order and one product, with
    the shelf in place of what it sells."""
    tables = build_tables(seed, users=1, orders=1, products=1)
    # A generator of its own: the ordinary tables of a seed stay what they are in the large shop.
    rng = random.Random(f"retail-one-order/{GENERATOR}/{seed}")
    (product_id,), (order,) = tables["products"], tables["orders"].values()
    # One price for all: no swap moves money, so the method that pays is never a question.
    price, name = order["items"][0]["price"], rng.choice(THINGS)
    numbers = rng.sample(range(10**9, 10**10), len(COLOURS) * len(SIZES))
    variants = {
        f"{number}": {
            "item_id": f"{number}",
            "options": {"colour": colour, "size": size},
            "available": True,
            "price": price,
        }
        for number, (colour, size) in zip(numbers, combinations(COLOURS, SIZES), strict=True)
    }
    bought = rng.choice(list(variants.values()))
    # What is bought lies on the shelf, so the order's own item is a variant too.
    item = {
        "name": name,
        "product_id": product_id,
        "item_id": bought["item_id"],
        "price": price,
        "options": dict(bought["options"]),
    }
    paid = {
        "transaction_type": "payment",
        "amount": price,
        "payment_method_id": order["payment_history"][0]["payment_method_id"],
    }
    status = rng.choice(STATUSES)
    sent = {"tracking_id": [f"{rng.randrange(10**11, 10**12)}"], "item_ids": [item["item_id"]]}
    # In place of what the ordinary world sells; ids and people are left.
    tables["products"] = {
        product_id: {"name": name, "product_id": product_id, "variants": variants}
    }
    order |= {
        "items": [item],
        "status": status,
        "payment_history": [paid],
        "fulfillments": [] if status == "pending" else [sent],
    }
    return Base(tables)


def write(base: Base, status: str, colour: str, size: str) -> GoldCall:
    """The change of the only order to this colour and size, by the tool for orders of this
    status."""
    (order,) = base.tables["orders"].values()
    (product,) = base.tables["products"].values()
    # Exactly one variant has both options, since the shelf holds each combination once.
    new = next(
        key
        for key, variant in product["variants"].items()
        if variant["options"] == {"colour": colour, "size": size}
    )
    names = {"item_ids": [order["items"][0]["item_id"]], "new_item_ids": [new]}
    method = order["payment_history"][0]["payment_method_id"]
    return GoldCall(
        WRITES[status], {"order_id": order["order_id"], **names, "payment_method_id": method}
    )


def _task(seed: int, name: str) -> Task:
    base, rng = world(seed), random.Random(f"retail-one-order-task/{GENERATOR}/{seed}")
    (user_id,), (order,) = base.tables["users"], base.tables["orders"].values()
    order_id, status, item = order["order_id"], order["status"], order["items"][0]
    kind, options = rng.choice(WISHES), item["options"]
    gold: GoldCall | None = None
    knowledge: tuple[Slot, ...] = (Slot("wish", kind),)
    if kind == QUESTION:
        text = f"Which size is the {item['name']} that I ordered?"
        wish = Wish("question", {"order_id": order_id}, text=text, outputs=(options["size"],))
    elif kind == CANCEL:
        reason = rng.choice(REASONS)
        knowledge, text = (
            (
                *knowledge,
                Slot("reason", reason),
            ),
            f"Please cancel my order, the reason is: {reason}.",
        )
        # None where the status forbids it: then the customer's wish is to be refused.
        gold = (
            GoldCall("cancel_pending_order", {"order_id": order_id, "reason": reason})
            if status == "pending"
            else None
        )
        wish = Wish(
            "impossible", {"order_id": order_id, "reason": reason}, text=text, reason="order_status"
        )
    else:
        colour = rng.choice([colour for colour in COLOURS if colour != options["colour"]])
        knowledge, text = (
            (
                *knowledge,
                Slot("colour", colour),
            ),
            f"I would like my {item['name']} in another colour: {colour}.",
        )
        gold = write(base, status, colour, options["size"]) if status in WRITES else None
        words = {"items": (Item(item["name"], options, {**options, "colour": colour}),)}
        wish = Wish("impossible", {"order_id": order_id}, words, text=text, reason="order_status")
    # What can be done is put as the ordinary shop puts it, so both are graded alike.
    if gold is not None:
        wish = wish_of(Overlay(base), gold)
    actions = (GoldCall("get_order_details", {"order_id": order_id}), *([gold] if gold else ()))
    # Its own name: `desk` refuses tasks of another shop by it.
    task = Task(
        id=name,
        source="one-order shop",
        user_id=user_id,
        instruction=f"You are logged in and have one order. You want to say this: {text}",
        actions=actions,
        outputs=wish.outputs,
        goal="refused" if wish.kind == "impossible" else "served",
        knowledge=knowledge,
        wishes=(replace(wish, intent=kind),),
        flags=flags_of(base, "fixed", actions),
        world=seed,
    )
    return replace(task, proof=prove(task))


def prove(task: Task) -> dict[str, int]:
    """How many cases each proof went through. Raises `proofs.Unproved` where one fails.

    `unique` and `told` hold by how a task is made: one wish that names one value, and a shelf
    with every combination once, at one price. So no money moves, and which method would have
    paid is not a near miss.
    """
    made = trial(task, world(task.world or 0))

    def misses(call: GoldCall) -> Iterator[GoldCall]:
        return (
            miss
            for miss in made.misses(call)
            if miss.arguments.get("payment_method_id") == call.arguments.get("payment_method_id")
        )

    return proofs.prove(replace(made, misses=misses, unique=lambda end: "", reads_back=lambda: ""))
