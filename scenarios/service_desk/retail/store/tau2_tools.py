"""The 16 tools of tau2-bench's retail desk: functions (overlay over typed tables, arguments) ->
text, exactly as that benchmark behaves.

A failure is an exception whose text the assistant sees behind `Error: `. As in `tools.py`
nothing is validated beyond the checks, and a call that fails has changed nothing. The known
fault of `modify_pending_order_items` is kept, because published numbers hold it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from gem_ma.scenarios.service_desk.desk.calculator import ALPHABET, evaluate
from gem_ma.scenarios.service_desk.desk.overlay import Overlay, Tables
from gem_ma.scenarios.service_desk.retail.store import tools
from gem_ma.scenarios.service_desk.retail.store.specs import Spec, spec
from gem_ma.scenarios.service_desk.retail.store.tau2 import ADDRESS

REASONS = frozenset(tools.REASONS)
P = ParamSpec("P")
R = TypeVar("R")
WIDTH = 50  # characters of a wrong value that an error text shows


# -- reading -------------------------------------------------------------------------------------


def calculate(data: Overlay, expression: Any) -> str:
    # The alphabet is checked before anything is worked out, and the error does not show the text.
    if not all(char in ALPHABET for char in expression):
        raise ValueError("Invalid characters in expression")
    return str(round(float(evaluate(expression)), 2))


def find_user_id_by_email(data: Overlay, email: Any) -> str:
    return _in_its_words(tools.find_user_id_by_email)(data, email)


def find_user_id_by_name_zip(data: Overlay, first_name: Any, last_name: Any, zip: Any) -> str:
    return _in_its_words(tools.find_user_id_by_name_zip)(data, first_name, last_name, zip)


def get_item_details(data: Overlay, item_id: Any) -> str:
    # The first product that lists it, as a search through all products would find.
    product_id = data.base.derived("products by item", _products_by_item).get(item_id)
    if product_id is None:
        raise ValueError("Item not found")
    return json.dumps(data.record("products", product_id)["variants"][item_id])


def get_order_details(data: Overlay, order_id: Any) -> str:
    return data.text("orders", _known(data, "orders", order_id))


def get_product_details(data: Overlay, product_id: Any) -> str:
    return data.text("products", _known(data, "products", product_id))


def get_user_details(data: Overlay, user_id: Any) -> str:
    return data.text("users", _known(data, "users", user_id))


def list_all_product_types(data: Overlay) -> str:
    return tools.list_all_product_types(data)


def transfer_to_human_agents(data: Overlay, summary: Any) -> str:
    return "Transfer successful"


# -- writing -------------------------------------------------------------------------------------


def cancel_pending_order(data: Overlay, order_id: Any, reason: Any) -> str:
    order = _order(data, order_id, "pending", "cancelled")
    if reason not in REASONS:
        raise ValueError("Invalid reason")
    drafts: dict[tuple[str, str], Any] = {("orders", order_id): order}
    refunds = []
    for row in order["payment_history"]:  # every row, whatever its type, as in tau-bench
        refunds.append(tools.paid("refund", row["amount"], row["payment_method_id"]))
        slot = ("users", order["user_id"])
        if slot not in drafts:
            # Drafted at the first payment, as there: an order without payments never needs its
            # user.
            drafts[slot] = data.draft("users", _known(data, *slot))
        method = _method(drafts[slot], row["payment_method_id"])
        if method["source"] == "gift_card":
            tools.credit(method, row["amount"])
    order["status"] = "cancelled"
    order["cancel_reason"] = reason
    order["payment_history"].extend(refunds)
    return data.commit(drafts)


def exchange_delivered_order_items(
    data: Overlay, order_id: Any, item_ids: Any, new_item_ids: Any, payment_method_id: Any
) -> str:
    order = _order(data, order_id, "delivered", "exchanged")
    # Each tool has its own words for the same fault, as in that benchmark.
    tools.all_held(order, item_ids, "Number of {} not found.")
    if len(item_ids) != len(new_item_ids):
        raise ValueError("The number of items to be exchanged should match.")
    price, _ = _difference(data, order, item_ids, new_item_ids)
    price = round(price, 2)
    method = _method(
        data.record("users", _known(data, "users", order["user_id"])), payment_method_id
    )
    _cover(method, price, "the price difference")
    return tools.exchanged(data, order_id, order, item_ids, new_item_ids, payment_method_id, price)


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
    order = data.draft("orders", _known(data, "orders", order_id))
    # `in`, not `==`: after a change of items the address can still be changed. tau-bench differs.
    if "pending" not in order["status"]:
        raise ValueError("Non-pending order cannot be modified")
    order["address"] = _address(
        address1=address1, address2=address2, city=city, country=country, state=state, zip=zip
    )
    return data.commit({("orders", order_id): order})


def modify_pending_order_items(
    data: Overlay, order_id: Any, item_ids: Any, new_item_ids: Any, payment_method_id: Any
) -> str:
    # Here `==` again, so items are changed once.
    order = _order(data, order_id, "pending", "modified")
    tools.all_held(order, item_ids, "{} not found")
    if len(item_ids) != len(new_item_ids):
        raise ValueError("The number of items to be exchanged should match")
    price, last = _difference(data, order, item_ids, new_item_ids, others_only=True)
    user = data.draft("users", _known(data, "users", order["user_id"]))
    method = _method(user, payment_method_id)
    # A price below 0 is a refund, which any balance covers.
    _cover(method, price, "the new item")
    order["payment_history"].append(
        tools.paid("payment" if price > 0 else "refund", float(abs(price)), payment_method_id)
    )
    drafts: dict[tuple[str, str], Any] = {("orders", order_id): order}
    if method["source"] == "gift_card":
        tools.credit(method, -price)
        drafts[("users", order["user_id"])] = user
    for item_id, new_item_id in zip(item_ids, new_item_ids, strict=True):
        item = next(item for item in order["items"] if item["item_id"] == item_id)
        item["item_id"] = new_item_id
        # the benchmark's fault: every changed item gets the price and options of the last new one
        item["price"] = last["price"]
        item["options"] = last["options"]
    order["status"] = "pending (item modified)"
    return data.commit(drafts)


def modify_pending_order_payment(data: Overlay, order_id: Any, payment_method_id: Any) -> str:
    order = data.draft("orders", _known(data, "orders", order_id))
    if "pending" not in order["status"]:
        raise ValueError("Non-pending order cannot be modified")
    user = data.draft("users", _known(data, "users", order["user_id"]))
    method, history = _method(user, payment_method_id), order["payment_history"]
    # One payment and no move yet: the method can be changed once.
    if len(history) != 1 or history[0]["transaction_type"] != "payment":
        raise ValueError("There should be exactly one payment for a pending order")
    old_id, amount = history[0]["payment_method_id"], history[0]["amount"]
    if old_id == payment_method_id:
        raise ValueError("The new payment method should be different from the current one")
    _cover(method, amount, "the order")
    history.append(tools.paid("payment", amount, payment_method_id))
    history.append(tools.paid("refund", amount, old_id))
    for changed, sign in ((method, -1), (_method(user, old_id), 1)):
        if changed["source"] == "gift_card":
            tools.credit(changed, sign * amount)
    return data.commit({("orders", order_id): order, ("users", order["user_id"]): user})


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
    # No check of whose account it is; that is the assistant's duty.
    user = data.draft("users", _known(data, "users", user_id))
    user["address"] = _address(
        address1=address1, address2=address2, city=city, country=country, state=state, zip=zip
    )
    return data.commit({("users", user_id): user})


def return_delivered_order_items(
    data: Overlay, order_id: Any, item_ids: Any, payment_method_id: Any
) -> str:
    order = _order(data, order_id, "delivered", "returned")
    method = _method(
        data.record("users", _known(data, "users", order["user_id"])), payment_method_id
    )
    if (
        method["source"] != "gift_card"
        # The gift card or the method that paid first.
        and payment_method_id != order["payment_history"][0]["payment_method_id"]
    ):
        raise ValueError("Payment method should be the original payment method")
    tools.all_held(order, item_ids, "Some item not found")
    return tools.returned(data, order_id, order, item_ids, payment_method_id)


# -- parts ---------------------------------------------------------------------------------------


def _in_its_words(check: Callable[P, R]) -> Callable[P, R]:
    """A check of tau-bench that says what is wrong as this benchmark does: with a capital."""

    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return check(*args, **kwargs)
        except ValueError as error:
            raise ValueError(str(error).capitalize()) from None

    return checked


_known, _order = _in_its_words(tools.known), _in_its_words(tools.order_in)
_method, _cover = _in_its_words(tools.method_of), _in_its_words(tools.cover)


def _products_by_item(tables: Tables) -> dict[str, str]:
    products: dict[str, str] = {}
    for product_id, product in tables["products"].items():
        for item_id in product["variants"]:
            products.setdefault(item_id, product_id)
    return products


def _difference(
    data: Overlay,
    order: Mapping[str, Any],
    item_ids: Any,
    new_item_ids: Any,
    others_only: bool = False,
) -> tuple[Any, Any]:
    """Unrounded price of the new items less that of the old ones, and the last new variant ({}
    where there is none)."""
    price: Any = 0
    variant: Mapping[str, Any] = {}
    for item_id, new_item_id in zip(item_ids, new_item_ids, strict=True):
        # Only a change of items checks this; an exchange for itself goes through.
        if others_only and item_id == new_item_id:
            raise ValueError("The new item id should be different from the old item id")
        item = next(item for item in order["items"] if item["item_id"] == item_id)
        variants = data.record("products", _known(data, "products", item["product_id"]))["variants"]
        if new_item_id not in variants:
            raise ValueError("Variant not found")
        variant = variants[new_item_id]
        if not variant["available"]:
            raise ValueError(f"New item {new_item_id} not found or available")
        price += variant["price"] - item["price"]
    return price, variant


def _address(**fields: Any) -> dict[str, str]:
    """The typed address. Raises ValueError in the words of the benchmark's type check, less its
    link to a manual."""
    faults = []
    for name in ADDRESS:
        value = fields[name]
        if not isinstance(value, str):
            faults.append(
                f"{name}\n  Input should be a valid string [type=string_type,"
                f" input_value={_shortened(value)}, input_type={type(value).__name__}]"
            )
    if faults:
        plural = "s" if len(faults) > 1 else ""
        raise ValueError(
            "\n".join([f"{len(faults)} validation error{plural} for UserAddress", *faults])
        )
    return {name: fields[name] for name in ADDRESS}


def _shortened(value: Any) -> str:
    text = repr(value)
    # As its type check shortens long values: both ends, with points between.
    return text if len(text) <= WIDTH else f"{text[: WIDTH // 2]}...{text[1 - WIDTH // 2 :]}"


# -- the table of tools --------------------------------------------------------------------------

TAU2: dict[str, Spec] = {
    # Nothing ends the talk under its rules: a transfer is a call like any other.
    function.__name__: replace(spec(function), terminates=False)
    for function in (
        calculate,
        cancel_pending_order,
        exchange_delivered_order_items,
        find_user_id_by_email,
        find_user_id_by_name_zip,
        get_item_details,
        get_order_details,
        get_product_details,
        get_user_details,
        list_all_product_types,
        modify_pending_order_address,
        modify_pending_order_items,
        modify_pending_order_payment,
        modify_user_address,
        return_delivered_order_items,
        transfer_to_human_agents,
    )
}
