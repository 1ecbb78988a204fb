"""The tools under the rules of our own world: `semantics="fixed"`.

What differs from tau-bench: arguments are checked against the schema first (`Error:
invalid_arguments: ...`), empty lists of ids and changes to the same item are refused, stored
amounts are whole cents, a cancelled order refunds what each method paid net of earlier refunds,
and an exchange keeps which item goes for which (`exchange_pairs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_ma.scenarios.service_desk.desk.overlay import Overlay
from gem_ma.scenarios.service_desk.retail.store import tools
from gem_ma.scenarios.service_desk.retail.store.schemas import SCHEMAS
from gem_ma.scenarios.service_desk.retail.store.specs import Spec, spec


def cancel_pending_order(data: Overlay, order_id: str, reason: str) -> str:
    order = tools.order_in(data, order_id, "pending", "cancelled")
    if reason not in tools.REASONS:
        raise ValueError("invalid reason")
    paid: dict[str, float] = {}
    # tau-bench refunds every row, refunds too; here a method gets back what it paid, net.
    for row in order["payment_history"]:
        sign = 1 if row["transaction_type"] == "payment" else -1
        # Rounded at each step: two floats of whole cents may add up to something else.
        paid[row["payment_method_id"]] = round(
            paid.get(row["payment_method_id"], 0) + sign * row["amount"], 2
        )
    user = data.draft("users", order["user_id"])
    for method_id, amount in paid.items():
        if amount <= 0:
            continue
        order["payment_history"].append(tools.paid("refund", amount, method_id))
        method = user["payment_methods"][method_id]
        if method["source"] == "gift_card":
            method["balance"] = round(method["balance"] + amount, 2)
    order["status"] = "cancelled"
    order["cancel_reason"] = reason
    return data.commit({("orders", order_id): order, ("users", order["user_id"]): user})


def modify_pending_order_items(
    data: Overlay,
    order_id: str,
    item_ids: list[str],
    new_item_ids: list[str],
    payment_method_id: str,
) -> str:
    _not_empty(item_ids)
    _all_new(item_ids, new_item_ids)
    tools.modify_pending_order_items(data, order_id, item_ids, new_item_ids, payment_method_id)
    order = data.draft("orders", order_id)
    # The tool that is shared leaves the float difference as the benchmark does; the last row is its
    # own.
    order["payment_history"][-1]["amount"] = round(order["payment_history"][-1]["amount"], 2)
    return data.commit({("orders", order_id): order})


def exchange_delivered_order_items(
    data: Overlay,
    order_id: str,
    item_ids: list[str],
    new_item_ids: list[str],
    payment_method_id: str,
) -> str:
    _not_empty(item_ids)
    _all_new(item_ids, new_item_ids)
    tools.exchange_delivered_order_items(data, order_id, item_ids, new_item_ids, payment_method_id)
    order = data.draft("orders", order_id)
    # Sorted pairs: the order in which a call lists its items means nothing.
    order["exchange_pairs"] = sorted(
        [old, new] for old, new in zip(item_ids, new_item_ids, strict=True)
    )
    return data.commit({("orders", order_id): order})


def return_delivered_order_items(
    data: Overlay, order_id: str, item_ids: list[str], payment_method_id: str
) -> str:
    _not_empty(item_ids)
    return tools.return_delivered_order_items(data, order_id, item_ids, payment_method_id)


def validate(name: str, arguments: Any) -> None:
    """Raises ValueError where the arguments of a tool are not those of its schema."""
    # In the order of the schema, unknown names before missing ones, so that a call has one answer.
    if not isinstance(arguments, Mapping):
        kind = type(arguments).__name__
        raise ValueError(f"invalid_arguments: arguments are an object, got {kind}")
    properties: dict[str, Any] = SCHEMAS[name].parameters["properties"]
    for key in arguments:
        if key not in properties:
            raise ValueError(
                # The names that there are. An agent that cannot see the schema again can still mend
                # its call.
                f"invalid_arguments: {name} has no argument {key!r}; it takes"
                f" {', '.join(properties) or 'none'}"
            )
    for key, schema in properties.items():
        if key not in arguments:
            raise ValueError(f"invalid_arguments: {name} needs {key}")
        value = arguments[key]
        if schema["type"] == "string" and not isinstance(value, str):
            raise ValueError(f"invalid_arguments: {key} is a string, got {type(value).__name__}")
        if schema["type"] == "array" and not (
            isinstance(value, list) and all(isinstance(item, str) for item in value)
        ):
            raise ValueError(f"invalid_arguments: {key} is a list of strings")


# tau-bench takes an empty list, and marks the order as returned though nothing comes back.
def _not_empty(item_ids: list[str]) -> None:
    if not item_ids:
        raise ValueError("no item given")


def _all_new(item_ids: list[str], new_item_ids: list[str]) -> None:
    for old, new in zip(item_ids, new_item_ids, strict=False):
        if old == new:
            raise ValueError(f"the new item {old} is the old item")


# Reads and the writes without a fault are tau-bench's own.
FIXED: dict[str, Spec] = {
    **tools.TAU1,
    **{
        function.__name__: spec(function)
        for function in (
            cancel_pending_order,
            modify_pending_order_items,
            exchange_delivered_order_items,
            return_delivered_order_items,
        )
    },
}
