"""What an assistant is told of the tools: names and arguments are the benchmark's, the
descriptions are ours. In order of their names."""

from __future__ import annotations

from typing import Any

from gem_ma.scenarios.service_desk.retail.store.tools import REASONS

from gem_ma import Tool

ARGUMENTS: dict[str, str] = {
    # Written anew: the benchmark's own sentences are not copied.
    "expression": "Digits, + - * / ( ) and decimal points, as in '2 * (3.50 + 1)'.",
    "order_id": "Id of the order with its leading '#', as in '#W0000000'.",
    "user_id": "Id of the customer's account, as a find tool gives it.",
    "product_id": "Id of a product type; not the id of an item.",
    "payment_method_id": (
        "Id of one of the customer's payment methods; it pays or receives the difference."
    ),
    "email": "E-mail address of the account.",
    "first_name": "First name on the account.",
    "last_name": "Family name on the account.",
    "zip": "Postal code.",
    "address1": "Street and number.",
    "address2": "Flat, suite or floor; may be empty.",
    "city": "City.",
    "state": "Code of the state.",
    "country": "Country.",
    "thought": "What to note.",
    "summary": "What the customer wants and why a human is needed.",
}
# Lists of ids pair by place, and the descriptions must say so: the tools do not check it.
LISTS: dict[str, str] = {
    "item_ids": "Ids of the items concerned; an id stands as often as the item is meant.",
    "new_item_ids": (
        "Ids of the items that replace them, in the same order, each of the same product."
    ),
}
ADDRESS = "address1 address2 city state country zip"

_TOOLS = (
    ("calculate", "expression", "Works out a sum and gives it rounded to cents."),
    (
        "cancel_pending_order",
        "order_id reason",
        "Cancels an order that is still pending and refunds it. Needs the customer's yes.",
    ),
    (
        "exchange_delivered_order_items",
        "order_id item_ids new_item_ids payment_method_id",
        (
            "Requests an exchange of items of a delivered order for others of the same product;"
            " once per order. Needs the customer's yes."
        ),
    ),
    ("find_user_id_by_email", "email", "Finds an account by its e-mail address."),
    (
        "find_user_id_by_name_zip",
        "first_name last_name zip",
        "Finds an account by name and postal code.",
    ),
    ("get_order_details", "order_id", "Shows an order: its items, status, address and payments."),
    (
        "get_product_details",
        "product_id",
        "Shows a product with all its variants, their options, prices and availability.",
    ),
    ("get_user_details", "user_id", "Shows an account: address, payment methods and orders."),
    ("list_all_product_types", "", "Lists the names and ids of all products."),
    (
        "modify_pending_order_address",
        f"order_id {ADDRESS}",
        "Changes where a pending order goes. Needs the customer's yes.",
    ),
    (
        "modify_pending_order_items",
        "order_id item_ids new_item_ids payment_method_id",
        (
            "Swaps items of a pending order for others of the same product; once per order. Needs"
            " the customer's yes."
        ),
    ),
    (
        "modify_pending_order_payment",
        "order_id payment_method_id",
        "Changes what a pending order is paid with. Needs the customer's yes.",
    ),
    (
        "modify_user_address",
        f"user_id {ADDRESS}",
        "Changes the default address of an account. Needs the customer's yes.",
    ),
    (
        "return_delivered_order_items",
        "order_id item_ids payment_method_id",
        (
            "Requests the return of items of a delivered order, refunded to the original method or"
            " a gift card. Needs the customer's yes."
        ),
    ),
    # It changes nothing, but text beside a call is a fault here, so a thought needs a call.
    ("think", "thought", "Notes a thought; changes nothing and shows nothing."),
    (
        "transfer_to_human_agents",
        "summary",
        "Hands the conversation over to a human and ends it. Only for what the tools cannot do.",
    ),
)


def _schema(argument: str) -> dict[str, Any]:
    if argument in LISTS:
        return {"type": "array", "items": {"type": "string"}, "description": LISTS[argument]}
    # The only closed list of values; `fixed` refuses others by name.
    if argument == "reason":
        return {"type": "string", "enum": list(REASONS), "description": "Why the customer cancels."}
    return {"type": "string", "description": ARGUMENTS[argument]}


def tool(name: str, arguments: str, description: str) -> Tool:
    """A tool whose arguments are all required."""
    # All required: the benchmark's functions have no defaults.
    properties = {argument: _schema(argument) for argument in arguments.split()}
    return Tool(
        name,
        description,
        {"type": "object", "properties": properties, "required": list(properties)},
    )


TOOLS: tuple[Tool, ...] = tuple(tool(*row) for row in _TOOLS)
SCHEMAS: dict[str, Tool] = {entry.name: entry for entry in TOOLS}
