"""The 16 tools of tau-bench's retail desk, as functions (overlay, arguments) -> text, exactly as
that benchmark behaves.

Names, argument names, the order of the checks and the error strings are the interface. A check that
fails raises ValueError, whose text the assistant sees behind `Error: `. Nothing is validated beyond
them, so Python's own semantics decide about odd arguments (a string given for a list of ids is
walked character by character). `fixed.py` holds the better rules of our own world. The tools check
neither identity nor ownership: that is the assistant's policy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gem_ma.scenarios.service_desk.desk.calculator import calculate as arithmetic
from gem_ma.scenarios.service_desk.desk.overlay import Overlay, Tables
from gem_ma.scenarios.service_desk.retail.store.specs import Spec, spec

REASONS = ("no longer needed", "ordered by mistake")


# -- reading -------------------------------------------------------------------------------------


def calculate(data: Overlay, expression: Any) -> str:
    return arithmetic(expression)


def find_user_id_by_email(data: Overlay, email: Any) -> str:
    # `.lower()` of anything that is not text raises, and the store answers with Python's words.
    user_id = data.base.derived("emails", _emails).get(email.lower())
    if user_id is None:
        raise ValueError("user not found")
    return user_id


def find_user_id_by_name_zip(data: Overlay, first_name: Any, last_name: Any, zip: Any) -> str:
    for user_id, family_name in data.base.derived("first names", _first_names).get(
        first_name.lower(), ()
    ):
        if (
            # By name first and by zip code last, so that two people of one name are told apart.
            family_name == last_name.lower()
            and data.record("users", user_id)["address"]["zip"] == zip
        ):
            return user_id
    raise ValueError("user not found")


def get_order_details(data: Overlay, order_id: Any) -> str:
    return data.text("orders", known(data, "orders", order_id))


def get_product_details(data: Overlay, product_id: Any) -> str:
    return data.text("products", known(data, "products", product_id))


def get_user_details(data: Overlay, user_id: Any) -> str:
    return data.text("users", known(data, "users", user_id))


def list_all_product_types(data: Overlay) -> str:
    return data.base.derived("product types", _product_types)


def think(data: Overlay, thought: Any) -> str:  # notes nothing: the call itself is in the log
    return ""


def transfer_to_human_agents(data: Overlay, summary: Any) -> str:
    return "Transfer successful"


# -- writing -------------------------------------------------------------------------------------


def cancel_pending_order(data: Overlay, order_id: Any, reason: Any) -> str:
    order = order_in(data, order_id, "pending", "cancelled")
    # A list, since a set would raise for what cannot be hashed, and the benchmark does not.
    if reason not in list(REASONS):
        raise ValueError("invalid reason")
    drafts: dict[tuple[str, str], Any] = {("orders", order_id): order}
    refunds = []
    for row in order["payment_history"]:  # every row, whatever its type: a refund is refunded again
        method_id = row["payment_method_id"]
        refunds.append(paid("refund", row["amount"], method_id))
        # By the id's name and not by its source, as there: a card whose id says so is refunded at
        # once.
        if "gift_card" in method_id:
            slot = ("users", order["user_id"])
            if slot not in drafts:
                drafts[slot] = data.draft(*slot)
            credit(drafts[slot]["payment_methods"][method_id], row["amount"])
    order["status"] = "cancelled"
    order["cancel_reason"] = reason
    order["payment_history"].extend(refunds)
    return data.commit(drafts)


def modify_pending_order_address(
    data: Overlay,
    order_id: Any,
    address1: Any,
    address2: Any,
    city: Any,
    state: Any,
    country: Any,
    zip: Any,
) -> str:
    order = order_in(data, order_id, "pending", "modified")
    # No type is checked: whatever the assistant sends is the new address.
    order["address"] = _address(address1, address2, city, state, country, zip)
    return data.commit({("orders", order_id): order})


def modify_pending_order_items(
    data: Overlay, order_id: Any, item_ids: Any, new_item_ids: Any, payment_method_id: Any
) -> str:
    order = order_in(data, order_id, "pending", "modified")
    price = _difference(data, order, item_ids, new_item_ids)
    user = data.draft("users", order["user_id"])
    method = method_of(user, payment_method_id)
    cover(method, price, "the new item")
    order["payment_history"].append(
        paid("payment" if price > 0 else "refund", abs(price), payment_method_id)
    )
    drafts: dict[tuple[str, str], Any] = {("orders", order_id): order}
    if method["source"] == "gift_card":
        credit(method, -price)
        drafts[("users", order["user_id"])] = user
    for item_id, new_item_id in zip(item_ids, new_item_ids, strict=False):
        item = _first(order, item_id)
        variant = data.record("products", item["product_id"])["variants"][new_item_id]
        item["item_id"] = new_item_id
        # A price of 0 is written as a refund of 0, as there.
        item["price"] = variant["price"]
        item["options"] = variant["options"]
    order["status"] = "pending (item modified)"
    return data.commit(drafts)


def modify_pending_order_payment(data: Overlay, order_id: Any, payment_method_id: Any) -> str:
    order = order_in(data, order_id, "pending", "modified")
    user = data.draft("users", order["user_id"])
    method = method_of(user, payment_method_id)
    history = order["payment_history"]
    # After a move there are two rows, so the method can be changed once.
    if len(history) > 1 or history[0]["transaction_type"] != "payment":
        raise ValueError("there should be exactly one payment for a pending order")
    old_id, amount = history[0]["payment_method_id"], history[0]["amount"]
    if old_id == payment_method_id:
        raise ValueError("the new payment method should be different from the current one")
    cover(method, amount, "the order")
    history.append(paid("payment", amount, payment_method_id))
    history.append(paid("refund", amount, old_id))
    drafts: dict[tuple[str, str], Any] = {("orders", order_id): order}
    if method["source"] == "gift_card":
        credit(method, -amount)
        drafts[("users", order["user_id"])] = user
    # By the id again: the card that paid before gets its money back.
    if "gift_card" in old_id:
        credit(user["payment_methods"][old_id], amount)
        drafts[("users", order["user_id"])] = user
    return data.commit(drafts)


def exchange_delivered_order_items(
    data: Overlay, order_id: Any, item_ids: Any, new_item_ids: Any, payment_method_id: Any
) -> str:
    order = order_in(data, order_id, "delivered", "exchanged")
    price = _difference(data, order, item_ids, new_item_ids)
    # Rounded here, but not for a change of a pending order: both as in the benchmark.
    price = round(price, 2)
    method = method_of(data.record("users", order["user_id"]), payment_method_id)
    cover(method, price, "the price difference")
    return exchanged(data, order_id, order, item_ids, new_item_ids, payment_method_id, price)


def return_delivered_order_items(
    data: Overlay, order_id: Any, item_ids: Any, payment_method_id: Any
) -> str:
    order = order_in(data, order_id, "delivered", "returned")
    method_of(data.record("users", order["user_id"]), payment_method_id)
    if (
        "gift_card" not in payment_method_id
        and payment_method_id != order["payment_history"][0]["payment_method_id"]
    ):
        raise ValueError(
            "payment method should be either the original payment method or a gift card"
        )
    all_held(order, item_ids, "some item not found")
    return returned(data, order_id, order, item_ids, payment_method_id)


def modify_user_address(
    data: Overlay,
    user_id: Any,
    address1: Any,
    address2: Any,
    city: Any,
    state: Any,
    country: Any,
    zip: Any,
) -> str:
    user = data.draft("users", known(data, "users", user_id))
    user["address"] = _address(address1, address2, city, state, country, zip)
    return data.commit({("users", user_id): user})


# -- parts ---------------------------------------------------------------------------------------


def _product_types(tables: Tables) -> str:
    names = {product["name"]: product["product_id"] for product in tables["products"].values()}
    # By name and sorted: two products of one name would be one entry, the last.
    return json.dumps(dict(sorted(names.items())))


def _emails(tables: Tables) -> dict[str, str]:
    users: dict[str, str] = {}
    for user_id, user in tables["users"].items():
        users.setdefault(user["email"].lower(), user_id)  # the first in the order of the file
    return users


def _first_names(tables: Tables) -> dict[str, list[tuple[str, str]]]:
    people: dict[str, list[tuple[str, str]]] = {}
    for user_id, user in tables["users"].items():
        people.setdefault(user["name"]["first_name"].lower(), []).append(
            (user_id, user["name"]["last_name"].lower())
        )
    return people


def _address(
    address1: Any, address2: Any, city: Any, state: Any, country: Any, zip: Any
) -> dict[str, Any]:
    return {
        "address1": address1,
        "address2": address2,
        "city": city,
        "state": state,
        "country": country,
        "zip": zip,
    }


def known(data: Overlay, table: str, key: Any) -> Any:
    """The key of a record that there is."""
    if not data.has(table, key):
        raise ValueError(f"{table.removesuffix('s')} not found")
    return key


def order_in(data: Overlay, order_id: Any, status: str, verb: str) -> dict[str, Any]:
    """A draft of an order that has this status."""
    order = data.draft("orders", known(data, "orders", order_id))
    if order["status"] != status:
        raise ValueError(f"non-{status} order cannot be {verb}")
    return order


def method_of(user: Mapping[str, Any], method_id: Any) -> dict[str, Any]:
    """The account's own, not a copy: who asks for it to change it has drafted the account."""
    methods: dict[str, dict[str, Any]] = user["payment_methods"]
    if method_id not in methods:
        raise ValueError("payment method not found")
    return methods[method_id]


def cover(method: Mapping[str, Any], amount: Any, what: str) -> None:
    """Raises ValueError for a gift card that does not cover an amount."""
    if method["source"] == "gift_card" and method["balance"] < amount:
        raise ValueError(f"insufficient gift card balance to pay for {what}")


def paid(transaction_type: str, amount: Any, method_id: Any) -> dict[str, Any]:
    """A row of a payment history."""
    return {
        "transaction_type": transaction_type,
        "amount": amount,
        "payment_method_id": method_id,
    }


def credit(method: dict[str, Any], amount: Any) -> None:
    """Puts an amount on a gift card."""
    method["balance"] += amount
    # Rounded after each addition, or a card would hold 0.30000000000000004.
    method["balance"] = round(method["balance"], 2)


def _first(order: dict[str, Any], item_id: Any) -> dict[str, Any]:
    return [item for item in order["items"] if item["item_id"] == item_id][0]  # noqa: RUF015  # its error text is the benchmark's


def all_held(order: Mapping[str, Any], item_ids: Any, fault: str) -> None:
    """Whether the order holds these items. Raises ValueError with the first that it does not."""
    held = [item["item_id"] for item in order["items"]]
    for item_id in item_ids:
        # Counted, since an order may hold the same item twice.
        if item_ids.count(item_id) > held.count(item_id):
            raise ValueError(fault.format(item_id))


def _difference(data: Overlay, order: dict[str, Any], item_ids: Any, new_item_ids: Any) -> Any:
    """Unrounded price of the new items less that of the old ones. New variants are of the old
    item's own product."""
    all_held(order, item_ids, "{} not found")
    if len(item_ids) != len(new_item_ids):
        raise ValueError("the number of items to be exchanged should match")
    price: Any = 0
    # Old and new by place; the new variant is looked for among those of the old item's product.
    for item_id, new_item_id in zip(item_ids, new_item_ids, strict=False):
        item = _first(order, item_id)
        variants = data.record("products", item["product_id"])["variants"]
        if not (new_item_id in variants and variants[new_item_id]["available"]):
            raise ValueError(f"new item {new_item_id} not found or available")
        price += variants[new_item_id]["price"] - item["price"]
    return price


def exchanged(
    data: Overlay,
    order_id: Any,
    order: dict[str, Any],
    item_ids: Any,
    new_item_ids: Any,
    method_id: Any,
    price: Any,
) -> str:
    """Stores an exchange that is asked for."""
    order["status"] = "exchange requested"
    order["exchange_items"] = sorted(item_ids)
    order["exchange_new_items"] = sorted(new_item_ids)
    order["exchange_payment_method_id"] = method_id
    order["exchange_price_difference"] = price
    text = data.commit({("orders", order_id): order})
    _pair_up(data, order_id, item_ids, new_item_ids)
    return text


def returned(
    data: Overlay, order_id: Any, order: dict[str, Any], item_ids: Any, method_id: Any
) -> str:
    """Stores a return that is asked for."""
    order["status"] = "return requested"
    order["return_items"] = sorted(item_ids)
    order["return_payment_method_id"] = method_id
    return data.commit({("orders", order_id): order})


def _pair_up(data: Overlay, order_id: Any, item_ids: Any, new_item_ids: Any) -> None:
    """Notes which new item goes for which old one, since the record of an exchange loses it."""
    # `strict=False`: a string of ids is walked like a list, and lengths were compared before.
    pairs = sorted(f"{old} for {new}" for old, new in zip(item_ids, new_item_ids, strict=False))
    data.notes[("orders", order_id)] = tuple(("exchanged", pair) for pair in pairs)


# -- the table of tools --------------------------------------------------------------------------


TAU1: dict[str, Spec] = {
    function.__name__: spec(function)
    for function in (
        calculate,
        cancel_pending_order,
        exchange_delivered_order_items,
        find_user_id_by_email,
        find_user_id_by_name_zip,
        get_order_details,
        get_product_details,
        get_user_details,
        list_all_product_types,
        modify_pending_order_address,
        modify_pending_order_items,
        modify_pending_order_payment,
        modify_user_address,
        return_delivered_order_items,
        think,
        transfer_to_human_agents,
    )
}
