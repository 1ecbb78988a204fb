"""Requests that a write serves, drawn out of a scene: cancel, return, exchange, modify, address,
default address, payment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product as combinations
from typing import Any

from gem_ma.scenarios.service_desk.desk.task import GoldCall, Wish
from gem_ma.scenarios.service_desk.retail.shop.scene import (
    TOOL_OF,
    Part,
    Record,
    Scene,
    look,
    look_up,
)
from gem_ma.scenarios.service_desk.retail.shop.world import address
from gem_ma.scenarios.service_desk.retail.store.tasks import Item
from gem_ma.scenarios.service_desk.retail.store.tools import REASONS

# With more there is hardly a near miss left that could prove the task.
MOST_CHOICES = 4  # right answers of one wish
ATTEMPTS = 6
ANY_REASON, ANY_METHOD = "whatever reason you like", "whatever method is allowed"


def make(
    intent: str,
    arguments: dict[str, Any],
    words: dict[str, Any],
    reads: tuple[GoldCall, ...],
    *choices: dict[str, Any],
) -> Part:
    """A request that one write serves; `choices` are arguments that serve it as well."""
    tool = TOOL_OF[intent]
    wish = Wish(
        tool,
        arguments,
        words,
        intent=intent,
        choices=tuple({**arguments, **choice} for choice in choices),
    )
    return Part(wish, (*reads, GoldCall(tool, arguments)))


def cancel(scene: Scene) -> Part | None:
    order = scene.order("cancel", "pending")
    if order is None:
        return None
    reason = scene.rng.choice(REASONS)
    arguments, words = scene.asked(order, reason=reason)
    # Ties: every reason is right then, so the customer says so and each one is accepted.
    if scene.rng.random() < scene.knobs.ties:
        others = [{"reason": other} for other in REASONS if other != reason]
        return make("cancel", arguments, words | {"reason": ANY_REASON}, (look(order),), *others)
    part = make("cancel", arguments, words, (look(order),))
    if _changes_mind(scene):
        other = next(entry for entry in REASONS if entry != reason)
        return before(part, {"reason": other}, {"reason": other})
    return part


def give_back(scene: Scene) -> Part | None:
    # Only orders whose money can go where the rules allow and the customer has a word for it.
    order = scene.order("return", "delivered", fits=lambda order: bool(_refundable(scene, order)))
    if order is None:
        return None
    items, methods = scene.some(order), _refundable(scene, order)
    method = scene.rng.choice(methods)
    arguments, words = scene.asked(order, items, method=method)
    if len(methods) > 1 and scene.rng.random() < scene.knobs.ties:
        # All methods that the rules allow, also those the customer has no words for: it left it
        # open.
        any_of = [key for key in allowed_refunds(scene.user, order) if key != method]
        return make(
            "return",
            arguments,
            words | {"method": ANY_METHOD},
            (look(order),),
            *({"payment_method_id": key} for key in any_of),
        )
    part = make("return", arguments, words, (look(order),))
    if len(items) > 1 and _changes_mind(scene):  # one item less than it first wanted
        gone = scene.rng.randrange(len(items))
        fewer = [item for place, item in enumerate(items) if place != gone]
        last = make("return", *scene.asked(order, fewer, method=method), (look(order),))
        return replace(last, wish=replace(last.wish, before_change=part.wish))
    return part


def swap(scene: Scene, intent: str) -> Part | None:
    """An exchange of a delivered order or a change of a pending one."""
    order = scene.order(intent, {"exchange": "delivered", "modify": "pending"}[intent])
    if order is None:
        return None
    chosen = scene.some(order)
    items: list[Item] = []
    best: list[tuple[str, ...]] = []
    for item in chosen:
        choice = _wanted(scene, item)
        if choice is None:
            return None
        items.append(choice[0])
        best.append(choice[1])
    # Each item may have several best variants; every combination of them is a right answer.
    answers = list(combinations(*best))
    difference = max(
        sum(
            _price(scene, item, new) - item["price"]
            for item, new in zip(chosen, answer, strict=True)
        )
        # The dearest right answer must be payable, or the gift card would decide which one is
        # right.
        for answer in answers
    )
    # One cent more: a card that just covers it would turn on how a float is rounded.
    methods = scene.methods(max(difference, 0.0) + 0.01)
    if len(answers) > MOST_CHOICES or not methods:
        return None
    method = scene.rng.choice(methods)
    arguments, words = scene.asked(order, chosen)
    paid, named = scene.asked(order, method=method)
    choices = [{"new_item_ids": list(answer)} for answer in answers]
    part = make(
        intent,
        arguments | choices[0] | paid,
        words | {"items": tuple(items)} | named,
        (look(order), *look_up(chosen)),
        *choices[1:],
    )
    if _changes_mind(scene):
        place = scene.rng.randrange(len(chosen))
        # What it first wants must be no right answer, else the yes to it would be right too.
        rest = [entry for entry in scene.variants(chosen[place]) if entry.key not in best[place]]
        if rest:
            other = scene.rng.choice(rest)
            first = [
                *items[:place],
                Item(items[place].name, items[place].options, other.options),
                *items[place + 1 :],
            ]
            new = [*answers[0][:place], other.key, *answers[0][place + 1 :]]
            return before(part, {"new_item_ids": new}, {"items": tuple(first)})
    return part


def order_address(scene: Scene) -> Part | None:
    order = scene.order("address", "pending")
    if order is None:
        return None
    arguments, words = scene.asked(order)
    part = make("address", arguments | _postal(scene), words, (look(order),))
    return before(part, _postal(scene), {}) if _changes_mind(scene) else part


def default_address(scene: Scene) -> Part | None:
    # Under the key "", since it belongs to no order; one default address per talk.
    if "default_address" in scene.taken.setdefault("", set()):
        return None
    scene.taken[""].add("default_address")
    part = make("default_address", {"user_id": scene.user_id, **_postal(scene)}, {}, ())
    return before(part, _postal(scene), {}) if _changes_mind(scene) else part


def payment(scene: Scene) -> Part | None:
    def others(order: Record) -> list[str]:
        first = order["payment_history"][0]
        # Not the one that paid: the tool refuses the method that the order has.
        return [key for key in scene.methods(first["amount"]) if key != first["payment_method_id"]]

    order = scene.order("payment", "pending", fits=lambda order: bool(others(order)))
    if order is None:
        return None
    method, *rest = scene.rng.sample(others(order), len(others(order)))
    part = make("payment", *scene.asked(order, method=method), (look(order),))
    if rest and _changes_mind(scene):
        return before(part, *scene.asked(order, method=rest[0]))
    return part


def before(part: Part, arguments: dict[str, Any], words: dict[str, Any]) -> Part:
    """The request of a customer who first wants something else of the same kind."""
    wish = part.wish
    first = replace(
        # The first wish has no choices: the customer takes it back whichever is proposed.
        wish,
        arguments={**wish.arguments, **arguments},
        words={**wish.words, **words},
        choices=(),
    )
    return replace(part, wish=replace(wish, before_change=first))


def allowed_refunds(user: Record, order: Record) -> list[str]:
    """Where the money of a return may go: the method that paid, or a gift card."""
    paid_with = order["payment_history"][0]["payment_method_id"]
    return [
        # The benchmark's policy text: back to the method that paid, or onto a gift card.
        key
        for key, method in user["payment_methods"].items()
        if key == paid_with or method["source"] == "gift_card"
    ]


def _changes_mind(scene: Scene) -> bool:
    return scene.rng.random() < scene.knobs.change_of_mind


def _refundable(scene: Scene, order: Record) -> list[str]:
    return [key for key in scene.methods() if key in allowed_refunds(scene.user, order)]


def _postal(scene: Scene) -> dict[str, str]:
    return address(scene.rng)


def _price(scene: Scene, item: Record, new: str) -> float:
    return float(scene.data.record("products", item["product_id"])["variants"][new]["price"])


def _wanted(scene: Scene, item: Record) -> tuple[Item, tuple[str, ...]] | None:
    """What is wanted in place of an item, and what fits it best; None where nothing or too much
    does."""
    rng, variants = scene.rng, scene.variants(item)
    if not variants:
        return None
    # In full: all options are named, so one variant fits and no program is needed.
    if rng.random() >= scene.knobs.preferences:
        variant = rng.choice(variants)
        return Item(item["name"], item["options"], variant.options), (variant.key,)
    for _ in range(ATTEMPTS):
        model = rng.choice(variants).options
        differs = [name for name in model if model[name] != item["options"][name]]
        named = [rng.choice(differs)]
        # Mostly one option. The more are required the less is left for preferences to decide.
        if rng.random() < 0.4:
            named += [name for name in model if name not in named and rng.random() < 0.5]
        required = {name: model[name] for name in model if name in named}
        # Preferences concern what is not required, and may point at a value that no candidate has.
        free = [name for name in model if name not in named]
        liked = rng.sample(free, rng.randint(0, min(2, len(free))))
        prefers = tuple(
            (name, rng.choice(sorted({entry.options[name] for entry in variants})))
            for name in liked
        )
        # `keep` means as close as possible to the old item.
        tie = (
            "any"
            if rng.random() < scene.knobs.ties
            else rng.choice(("keep", "cheapest", "dearest"))
        )
        wanted = Item(item["name"], item["options"], required, prefers, tie)
        best = wanted.program.best(item["options"], variants)
        # One best answer, or several only where the customer said that any will do.
        if len(best) == 1 or (tie == "any" and 1 < len(best) <= MOST_CHOICES):
            return wanted, best
    return None


MAKERS: dict[str, Callable[[Scene], Part | None]] = {
    "cancel": cancel,
    "return": give_back,
    "exchange": lambda scene: swap(scene, "exchange"),
    "modify": lambda scene: swap(scene, "modify"),
    "address": order_address,
    "default_address": default_address,
    "payment": payment,
}
