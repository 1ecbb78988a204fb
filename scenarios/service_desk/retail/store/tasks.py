"""What a retail task needs beside its fields: the solution played, its faults as a test, and its
writes in a customer's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from gem_ma.scenarios.service_desk.desk.overlay import Base, Overlay
from gem_ma.scenarios.service_desk.desk.preferences import Program
from gem_ma.scenarios.service_desk.desk.task import GoldCall, Slot, Wish
from gem_ma.scenarios.service_desk.retail.store.store import RetailStore

INTENTS = {
    "cancel_pending_order": "cancel",
    "return_delivered_order_items": "return",
    "exchange_delivered_order_items": "exchange",
    "modify_pending_order_items": "modify",
    "modify_pending_order_payment": "payment",
    "modify_pending_order_address": "address",
    "modify_user_address": "default_address",
}
IDENTITY = ("first_name", "last_name", "zip", "email")


@dataclass(frozen=True, slots=True)
class Item:
    """An item as a customer describes it: the product's name, its options, and what is wanted
    instead, if anything.

    `wanted`: the options that must hold, not always all; `prefers` and `tie` as in
    `service.desk.preferences.Program`.
    """

    name: str
    options: Mapping[str, str]
    wanted: Mapping[str, str] | None = None
    prefers: tuple[tuple[str, str], ...] = ()
    tie: str = "keep"

    @property
    def program(self) -> Program:
        """What is wanted instead, as a program over the variants of the product."""
        return Program(self.wanted or {}, self.prefers, self.tie)


def replay_gold(
    base: Base, semantics: str, actions: tuple[GoldCall, ...]
) -> tuple[RetailStore, tuple[str, ...]]:
    """The database after the solution and what each call answered; a call that ends the talk is
    left out, a failing one changes nothing."""
    store = RetailStore(base, semantics)
    return store, tuple(
        "" if store.terminates(call.name) else store.call(call.name, dict(call.arguments))
        for call in actions
    )


def flags_of(base: Base, semantics: str, actions: tuple[GoldCall, ...]) -> tuple[str, ...]:
    """What replaying the solution shows: `inaction_passes`, `gold_read_error`,
    `gold_write_error`, `redundant_write`, `order_sensitive` (the end depends on the order in
    which the items of a call are listed)."""
    end, answers = replay_gold(base, semantics, actions)
    failed = [
        call.name
        for call, answer in zip(actions, answers, strict=True)
        if answer.startswith(("Error: ", "Unknown action "))
    ]
    flags = {"inaction_passes"} if end.overlay.equals(Overlay(base)) else set()
    flags |= {"gold_write_error" if end.mutates(name) else "gold_read_error" for name in failed}
    writes = [number for number, call in enumerate(actions) if end.mutates(call.name)]
    for number in writes:
        without, _ = replay_gold(base, semantics, actions[:number] + actions[number + 1 :])
        if not answers[number].startswith("Error: ") and without.overlay.equals(end.overlay):
            flags.add("redundant_write")
    if _order_sensitive(RetailStore(base, semantics), actions):
        flags.add("order_sensitive")
    return tuple(sorted(flags))


def _order_sensitive(store: RetailStore, actions: tuple[GoldCall, ...]) -> bool:
    for place, call in enumerate(actions):
        others = _reordered(call.arguments) if store.mutates(call.name) else ()
        before = store.copy() if others else store
        if not store.terminates(call.name):
            store.call(call.name, dict(call.arguments))
        for other in others:
            twin = before.copy()
            twin.call(call.name, other)
            if not twin.overlay.equals(store.overlay):  # else all that follows is the same
                ours = store.copy()
                for later in actions[place + 1 :]:
                    for desk in (ours, twin):
                        desk.call(later.name, dict(later.arguments))
                if not twin.overlay.equals(ours.overlay):
                    return True
    return False


def _reordered(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The arguments with their lists in other orders, all lists alike: every order of two or
    three, else turned and turned around."""
    lists = {
        name: value
        for name, value in arguments.items()
        if isinstance(value, list) and len(value) > 1
    }
    sizes = {len(value) for value in lists.values()}
    if len(sizes) != 1:
        return []
    places = range(sizes.pop())
    turns = [(*places[turn:], *places[:turn]) for turn in places[1:]]
    orders = (
        list(permutations(places))[1:]
        if len(places) <= 3
        else [tuple(reversed(places)), *turns[:10]]
    )
    return [
        {**arguments, **{name: [value[place] for place in order] for name, value in lists.items()}}
        for order in orders
    ]


def goal_of(actions: tuple[GoldCall, ...]) -> str:
    """The outcome that a solution stands for."""
    return (
        "transferred"
        if any(call.name == "transfer_to_human_agents" for call in actions)
        else "served"
    )


def identity_of(base: Base, user_id: str) -> tuple[Slot, ...]:
    """By what the tools find this user, as slots; () without such a user."""
    user = base.tables["users"].get(user_id)
    if user is None:
        return ()
    values = (
        user["name"]["first_name"],
        user["name"]["last_name"],
        user["address"]["zip"],
        user["email"],
    )
    return tuple(Slot(name, value) for name, value in zip(IDENTITY, values, strict=True))


def remembered(knowledge: tuple[Slot, ...], instruction: str) -> tuple[Slot, ...]:
    """The slots as the instruction has them: the e-mail address only if it stands there, else
    the zip code in any case."""
    # Instructions name a zip code or an e-mail address; who was given one does not know the other.
    email = any(slot.name == "email" and slot.value in instruction for slot in knowledge)
    forgotten = {"zip"} if email else {"email"}
    return tuple(
        replace(slot, known=slot.name not in forgotten or slot.value in instruction)
        for slot in knowledge
    )


def wishes_of(base: Base, semantics: str, actions: tuple[GoldCall, ...]) -> tuple[Wish, ...]:
    """The writes of a solution in a customer's words; writes that fail are not wishes."""
    store, wishes = RetailStore(base, semantics), []
    for call in actions:
        if store.terminates(call.name):
            continue
        before = store.copy()
        if not store.call(call.name, dict(call.arguments)).startswith("Error: ") and store.mutates(
            call.name
        ):
            wishes.append(wish_of(before.overlay, call))
    return tuple(wishes)


def wish_of(data: Overlay, call: GoldCall) -> Wish:
    """A write that would succeed now, in a customer's words."""
    arguments = call.arguments
    order = data.record("orders", arguments["order_id"]) if "order_id" in arguments else None
    if order is None:
        return Wish(call.name, arguments, intent=INTENTS.get(call.name, call.name))
    method = ""
    if "payment_method_id" in arguments:
        method = method_words(
            data.record("users", order["user_id"])["payment_methods"],
            arguments["payment_method_id"],
        )
    items = []
    for place, item_id in enumerate(arguments.get("item_ids", ())):
        item = next(item for item in order["items"] if item["item_id"] == item_id)
        wanted = None
        if "new_item_ids" in arguments:
            wanted = data.record("products", item["product_id"])["variants"][
                arguments["new_item_ids"][place]
            ]["options"]
        items.append(Item(item["name"], item["options"], wanted))
    words = {"order": f"order {order['order_id']}", "items": tuple(items), "method": method}
    return Wish(call.name, arguments, words, intent=INTENTS.get(call.name, call.name))


def method_words(methods: Mapping[str, Any], method_id: str) -> str:
    """A payment method as its owner would name it; its id where the owner has several that sound
    alike."""
    words = {key: _method(method) for key, method in methods.items()}
    said = words[method_id]
    return method_id if list(words.values()).count(said) > 1 else said


def _method(method: Mapping[str, Any]) -> str:
    if method["source"] == "credit_card" and "last_four" in method:
        return f"my credit card ending in {method['last_four']}"
    return {"paypal": "my PayPal account", "gift_card": "my gift card"}.get(
        method["source"], f"my {method['source']}"
    )
