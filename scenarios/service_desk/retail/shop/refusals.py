"""Requests that have to be refused, each for a typed reason: what is asked for, in the customer's
words and as the call that it would be.

An impossible wish has the arguments of that call and the intent of its tool. The call fails in
the store, except for `not_yours`: there the policy forbids it. What no tool does at all
(`beyond_tools`) is handed over instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gem_ma.scenarios.service_desk.desk.task import GoldCall, Wish
from gem_ma.scenarios.service_desk.retail.domain.kinds import ADDRESS
from gem_ma.scenarios.service_desk.retail.shop.intents import allowed_refunds, make, swap
from gem_ma.scenarios.service_desk.retail.shop.questions import in_words
from gem_ma.scenarios.service_desk.retail.shop.scene import (
    Part,
    Record,
    Scene,
    candidate,
    look,
    look_up,
)
from gem_ma.scenarios.service_desk.retail.shop.words import EXCUSES, FRIENDS, MATTERS
from gem_ma.scenarios.service_desk.retail.shop.world import address

TEXTS = {
    "cancel": "Please cancel {order}. The reason: {reason}.",
    "return": "I want to return from {order}: {items}. Please refund it to {method}.",
    "exchange": "I want to exchange from {order}: {items}. Please use {method} for the difference.",
    "modify": "I want to change items of {order}: {items}. Please use {method} for the difference.",
    "payment": "Please let me pay {order} with {method} instead.",
    "address": "Please change the address of {order} to: {address}.",
}


def refuse(
    intent: str,
    reason: str,
    arguments: dict[str, Any],
    words: dict[str, Any],
    reads: tuple[GoldCall, ...],
    text: str = "",
) -> Part:
    """A request that must be refused for this reason."""
    # As a call that would serve it, so that the refusal can be checked by making that call.
    part = make(intent, arguments, words, reads)
    labelled = "; ".join(f"{name}: {arguments[name]}" for name in ADDRESS if name in arguments)
    spoken = (text or TEXTS[intent]).format(
        **{name: in_words(value) for name, value in words.items()}, address=labelled
    )
    return Part(replace(part.wish, kind="impossible", reason=reason, text=spoken), reads)


def order_status(scene: Scene) -> Part | None:
    """A change that the order's status does not allow."""
    # `cancel` twice: it is what people most often ask for too late.
    asked = scene.rng.choice(
        ("cancel", "cancel", "return", "exchange", "modify", "payment", "address")
    )
    needed = "delivered" if asked in ("return", "exchange") else "pending"
    statuses = [
        status for status in ("pending", "processed", "delivered", "cancelled") if status != needed
    ]
    if asked == "modify":
        statuses.remove("delivered")  # there an exchange serves
    if asked == "exchange":
        statuses.remove("pending")  # there a change serves
    # An order that was cancelled was never delivered, and nobody expects to return it.
    if asked == "return":
        statuses.remove("cancelled")
    order = scene.order("refusal", *statuses)
    return None if order is None else _ask_for(scene, asked, order, "order_status", (look(order),))


def not_yours(scene: Scene) -> Part | None:
    """A change of somebody else's order."""
    asked = scene.rng.choice(("cancel", "return"))
    wanted = {"cancel": "pending", "return": "delivered"}[asked]
    # Any of the shop's orders; the store would carry the change out, and only the policy forbids
    # it.
    orders = [
        order
        for order in scene.data.base.tables["orders"].values()
        if order["user_id"] != scene.user_id and order["status"] == wanted
    ]
    if not orders:
        return None
    order, friend = scene.rng.choice(orders), scene.rng.choice(FRIENDS)
    if asked == "cancel":
        # A valid reason: nothing but the owner stands against it.
        arguments, words = scene.asked(order, reason="no longer needed")
    else:
        item = scene.rng.choice(order["items"])
        methods = scene.methods()
        if not methods:
            return None
        arguments, words = scene.asked(order, [item], method=scene.rng.choice(methods))
    words = {"order": words["order"], "friend": friend, **words}
    text = f"{TEXTS[asked]} It is the order of {{friend}}."
    return refuse(asked, "not_yours", arguments, words, (look(order),), text)


def payment_method(scene: Scene) -> Part | None:
    """A refund to a method that did not pay, or a payment by a card that the account does not
    have."""
    if scene.rng.random() < 0.5:
        order = scene.order("refusal", "pending")
        if order is None:
            return None
        # Not one of the customer's, or the wish would be possible.
        taken = {method.get("last_four") for method in scene.user["payment_methods"].values()}
        last_four = next(
            digits
            for digits in iter(lambda: f"{scene.rng.randrange(10_000):04d}", "")
            if digits not in taken
        )
        arguments, words = scene.asked(order)
        # A made-up id, which the store does not know either.
        arguments["payment_method_id"] = f"credit_card_{scene.rng.randrange(10**6, 10**7)}"
        words["method"] = f"my credit card ending in {last_four}"
        return refuse("payment", "payment_method", arguments, words, (look(order),))

    def strange(order: Record) -> list[str]:
        return [key for key in scene.methods() if key not in allowed_refunds(scene.user, order)]

    # Only orders for which some method is not allowed; else the refund would be fine.
    order = scene.order("refusal", "delivered", fits=lambda order: bool(strange(order)))
    if order is None:
        return None
    items, method = scene.some(order), scene.rng.choice(strange(order))
    arguments, words = scene.asked(order, items, method=method)
    return refuse("return", "payment_method", arguments, words, (look(order),))


def balance(scene: Scene) -> Part | None:
    """An order on a gift card that does not cover it."""
    methods = scene.user["payment_methods"]
    # Cards that can be named in words; two gift cards sound alike.
    cards = [key for key in scene.methods() if methods[key]["source"] == "gift_card"]

    def short(order: Record) -> list[str]:
        first = order["payment_history"][0]
        return [
            key
            for key in cards
            # One that paid already would be refused for that, not for its balance.
            if key != first["payment_method_id"] and methods[key]["balance"] < first["amount"]
        ]

    order = scene.order("refusal", "pending", fits=lambda order: bool(short(order)))
    if order is None:
        return None
    card = scene.rng.choice(short(order))
    return refuse("payment", "balance", *scene.asked(order, method=card), (look(order),))


def product_type(scene: Scene) -> Part | None:
    """An item for one of another product."""
    order = scene.order("refusal", "pending", "delivered")
    if order is None:
        return None
    # Any product but its own; variants are of one product by the rules of the tools.
    item = scene.rng.choice(order["items"])
    others = [
        product
        for key, product in scene.data.base.tables["products"].items()
        if key != item["product_id"]
    ]
    methods = scene.methods()
    if not others or not methods:
        return None
    product, method = scene.rng.choice(others), scene.rng.choice(methods)
    # An available one, so that the kind of product alone stands against it.
    variant = scene.rng.choice(
        [entry for entry in product["variants"].values() if entry["available"]]
    )
    asked = "exchange" if order["status"] == "delivered" else "modify"
    arguments, _ = scene.asked(order, [item], [candidate(variant)], method)
    _, words = scene.asked(order, [item])
    words |= {"product": product["name"], **scene.asked(order, method=method)[1]}
    text = TEXTS[asked].replace("{items}", "{items} for a {product}")
    return refuse(asked, "product_type", arguments, words, (look(order),), text)


def cancel_reason(scene: Scene) -> Part | None:
    """A cancellation for a reason that does not count."""
    order = scene.order("refusal", "pending")
    if order is None:
        return None
    reason = scene.rng.choice(EXCUSES)
    # `the only reason`: a customer who had another one to offer would be served after all.
    text = "Please cancel {order}. The only reason: {reason}."
    return refuse(
        "cancel", "cancel_reason", *scene.asked(order, reason=reason), (look(order),), text
    )


def unavailable(scene: Scene) -> Part | None:
    """A variant that is sold out."""

    def gone(item: Record) -> list[Record]:
        variants = scene.data.record("products", item["product_id"])["variants"].values()
        return [
            variant
            for variant in variants
            # The item's own variant is sold out as well at times, but nobody swaps for the same.
            if not variant["available"] and variant["item_id"] != item["item_id"]
        ]

    order = scene.order(
        "refusal",
        "pending",
        "delivered",
        fits=lambda order: any(gone(item) for item in order["items"]),
    )
    methods = scene.methods()
    if order is None or not methods:
        return None
    item = scene.rng.choice([item for item in order["items"] if gone(item)])
    variant, method = scene.rng.choice(gone(item)), scene.rng.choice(methods)
    asked = "exchange" if order["status"] == "delivered" else "modify"
    arguments, words = scene.asked(order, [item], [candidate(variant)], method)
    return refuse(asked, "unavailable", arguments, words, (look(order), *look_up([item])))


def once(scene: Scene) -> Part | None:
    """A second change of items, after one that is allowed."""
    first = swap(scene, scene.rng.choice(("exchange", "modify")))
    if first is None:
        return None
    order = scene.data.record("orders", first.wish.arguments["order_id"])
    # Only items that the first change left alone.
    left = [
        item
        for item in order["items"]
        if item["item_id"] not in first.wish.arguments["item_ids"] and scene.variants(item)
    ]
    if not left:
        return None
    # Else another request could take the order between the two.
    scene.taken[order["order_id"]].add("refusal")
    item = scene.rng.choice(left)
    variant = scene.rng.choice(scene.variants(item))
    # The first change comes with it: without it nothing is refused.
    asked = scene.asked(order, [item], [variant], first.wish.arguments["payment_method_id"])
    return replace(refuse(first.wish.intent, "once", *asked, (look(order),)), before=first)


def beyond_tools(scene: Scene) -> Part | None:
    """Something that no tool does, and that is handed over to a human. It ends the talk, so it
    comes last."""
    order = scene.order("refusal")
    # Any order: what no tool does needs no status.
    if order is None:
        return None
    matter, words = scene.rng.choice(MATTERS), {"order": scene.named(order)}
    text = (
        f"I need {matter} for {words['order']}. Please put me through to a human who can do that."
    )
    wish = Wish(
        "impossible",
        {"order_id": order["order_id"]},
        words | {"matter": matter},
        text=text,
        intent="human",
        reason="beyond_tools",
    )
    summary = f"The customer needs {matter} for order {order['order_id']}."
    return Part(wish, (look(order), GoldCall("transfer_to_human_agents", {"summary": summary})))


def _ask_for(
    scene: Scene, asked: str, order: Record, reason: str, reads: tuple[GoldCall, ...]
) -> Part | None:
    """Any change of an order, possible or not."""
    if asked == "cancel":
        # A valid reason again: the status is what it is refused for.
        return refuse(asked, reason, *scene.asked(order, reason="no longer needed"), reads)
    if asked == "address":
        arguments, words = scene.asked(order)
        return refuse(asked, reason, arguments | address(scene.rng), words, reads)
    methods = scene.methods()
    if asked == "payment":
        # Another method than the one that paid, which the tool would refuse first.
        methods = [
            key for key in methods if key != order["payment_history"][0]["payment_method_id"]
        ]
    if not methods:
        return None
    arguments, words = scene.asked(order, method=scene.rng.choice(methods))
    if asked == "payment":
        return refuse(asked, reason, arguments, words, reads)
    item, wanted = scene.rng.choice(order["items"]), []
    if asked != "return":
        # Nothing to swap for, no wish.
        variant = scene.rng.choice(scene.variants(item) or [None])
        if variant is None:
            return None
        wanted = [variant]
    what, named = scene.asked(order, [item], wanted)
    return refuse(asked, reason, arguments | what, words | named, reads)


REFUSED: dict[str, Callable[[Scene], Part | None]] = {
    "order_status": order_status,
    "payment_method": payment_method,
    "balance": balance,
    "product_type": product_type,
    "cancel_reason": cancel_reason,
    "once": once,
    "not_yours": not_yours,
    "unavailable": unavailable,
    "beyond_tools": beyond_tools,
}
