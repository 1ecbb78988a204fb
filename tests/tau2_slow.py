"""A second implementation of tau2-bench's retail rules for tests: one plain database that is
changed in place, every check written out."""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

MONEY = ("price", "amount", "balance", "exchange_price_difference")
LATER = (
    "cancel_reason",
    "exchange_items",
    "exchange_new_items",
    "exchange_payment_method_id",
    "exchange_price_difference",
)
ORDER = (
    "order_id",
    "user_id",
    "address",
    "items",
    "status",
    "fulfillments",
    "payment_history",
    *LATER,
    "return_items",
    "return_payment_method_id",
)
ADDRESS = ("address1", "address2", "city", "country", "state", "zip")


def floats(value: Any) -> Any:
    """The value with every amount of money as a float."""
    if isinstance(value, dict):
        return {
            key: float(item) if key in MONEY and item is not None else floats(item)
            for key, item in value.items()
        }
    return [floats(item) for item in value] if isinstance(value, list) else value


class SlowDesk:
    """The database and `call`; an error is a text, like every answer."""

    def __init__(self, tables: dict[str, Any]) -> None:
        self.db = floats(copy.deepcopy(tables))
        for key, user in self.db["users"].items():
            methods = {name: {part: method[part] for part in ("source", "id", "brand", "last_four", "balance") if part in method}
                       for name, method in user["payment_methods"].items()}  # fmt: skip
            where = {part: user["address"][part] for part in ADDRESS}
            names = {part: user["name"][part] for part in ("first_name", "last_name")}
            self.db["users"][key] = {
                "user_id": key,
                "name": names,
                "address": where,
                "email": user["email"],
            }
            self.db["users"][key] |= {"payment_methods": methods, "orders": user["orders"]}
        for key, order in self.db["orders"].items():
            order["address"] = {part: order["address"][part] for part in ADDRESS}
            self.db["orders"][key] = {part: order.get(part) for part in ORDER}

    def hash(self) -> str:
        return hashlib.sha256(json.dumps(self.db, sort_keys=True).encode()).hexdigest()

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        try:
            answer = getattr(self, name)(**arguments)
        except ValueError as error:
            return f"Error: {error}"
        return answer if isinstance(answer, str) else json.dumps(answer)

    def order(self, order_id: Any) -> dict[str, Any]:
        if order_id not in self.db["orders"]:
            raise ValueError("Order not found")
        return self.db["orders"][order_id]

    def user(self, user_id: Any) -> dict[str, Any]:
        if user_id not in self.db["users"]:
            raise ValueError("User not found")
        return self.db["users"][user_id]

    def method(self, order: dict[str, Any], method_id: Any) -> dict[str, Any]:
        methods = self.user(order["user_id"])["payment_methods"]
        if method_id not in methods:
            raise ValueError("Payment method not found")
        return methods[method_id]

    def move(self, method: dict[str, Any], amount: float) -> None:
        if method["source"] == "gift_card":
            method["balance"] = round(method["balance"] + amount, 2)

    def get_order_details(self, order_id: Any) -> Any:
        return self.order(order_id)

    def get_user_details(self, user_id: Any) -> Any:
        return self.user(user_id)

    def get_product_details(self, product_id: Any) -> Any:
        if product_id not in self.db["products"]:
            raise ValueError("Product not found")
        return self.db["products"][product_id]

    def get_item_details(self, item_id: Any) -> Any:
        for product in self.db["products"].values():
            for variant in product["variants"].values():
                if variant["item_id"] == item_id:
                    return variant
        raise ValueError("Item not found")

    def find_user_id_by_email(self, email: str) -> str:
        for key, user in self.db["users"].items():
            if user["email"].lower() == email.lower():
                return key
        raise ValueError("User not found")

    def find_user_id_by_name_zip(self, first_name: str, last_name: str, zip: str) -> str:
        for key, user in self.db["users"].items():
            names = [user["name"][part].lower() for part in ("first_name", "last_name")]
            if names == [first_name.lower(), last_name.lower()] and user["address"]["zip"] == zip:
                return key
        raise ValueError("User not found")

    def list_all_product_types(self) -> Any:
        pairs = sorted(
            (product["name"], product["product_id"]) for product in self.db["products"].values()
        )
        return dict(pairs)

    def transfer_to_human_agents(self, summary: Any) -> str:
        return "Transfer successful"

    def cancel_pending_order(self, order_id: Any, reason: Any) -> Any:
        order = self.order(order_id)
        if order["status"] != "pending":
            raise ValueError("Non-pending order cannot be cancelled")
        if reason != "no longer needed" and reason != "ordered by mistake":
            raise ValueError("Invalid reason")
        for row in list(order["payment_history"]):
            self.move(self.method(order, row["payment_method_id"]), row["amount"])
            order["payment_history"].append({**row, "transaction_type": "refund"})
        order.update(status="cancelled", cancel_reason=reason)
        return order

    def modify_pending_order_address(self, order_id: Any, **where: str) -> Any:
        order = self.order(order_id)
        if order["status"] not in ("pending", "pending (item modified)"):
            raise ValueError("Non-pending order cannot be modified")
        order["address"] = {part: where[part] for part in ADDRESS}
        return order

    def modify_user_address(self, user_id: Any, **where: str) -> Any:
        self.user(user_id)["address"] = {part: where[part] for part in ADDRESS}
        return self.user(user_id)

    def swap(
        self,
        order: dict[str, Any],
        old: list[str],
        new: list[str],
        texts: tuple[str, str],
        same_allowed: bool,
    ) -> tuple[float, Any]:
        held = [item["item_id"] for item in order["items"]]
        for item_id in old:
            if old.count(item_id) > held.count(item_id):
                raise ValueError(texts[0].replace("ID", item_id))
        if len(old) != len(new):
            raise ValueError(texts[1])
        total, variant = 0, None
        for place in range(len(old)):
            if old[place] == new[place] and not same_allowed:
                raise ValueError("The new item id should be different from the old item id")
            item = order["items"][held.index(old[place])]
            variant = self.get_product_details(item["product_id"])["variants"].get(new[place])
            if variant is None:
                raise ValueError("Variant not found")
            if not variant["available"]:
                raise ValueError(f"New item {new[place]} not found or available")
            total += variant["price"] - item["price"]
        return total, variant

    def modify_pending_order_items(
        self, order_id: Any, item_ids: list[str], new_item_ids: list[str], payment_method_id: Any
    ) -> Any:
        order = self.order(order_id)
        if order["status"] != "pending":
            raise ValueError("Non-pending order cannot be modified")
        texts = ("ID not found", "The number of items to be exchanged should match")
        total, variant = self.swap(order, item_ids, new_item_ids, texts, False)
        method = self.method(order, payment_method_id)
        if method["source"] == "gift_card" and method["balance"] < total:
            raise ValueError("Insufficient gift card balance to pay for the new item")
        word = "payment" if total > 0 else "refund"
        order["payment_history"].append(
            {
                "transaction_type": word,
                "amount": float(abs(total)),
                "payment_method_id": payment_method_id,
            }
        )
        self.move(method, -total)
        for old, new in zip(item_ids, new_item_ids, strict=True):
            for item in order["items"]:
                if item["item_id"] == old:
                    item.update(item_id=new, price=variant["price"], options=variant["options"])
                    break
        order["status"] = "pending (item modified)"
        return order

    def modify_pending_order_payment(self, order_id: Any, payment_method_id: Any) -> Any:
        order = self.order(order_id)
        if order["status"] not in ("pending", "pending (item modified)"):
            raise ValueError("Non-pending order cannot be modified")
        method, rows = self.method(order, payment_method_id), order["payment_history"]
        if [row["transaction_type"] for row in rows] != ["payment"]:
            raise ValueError("There should be exactly one payment for a pending order")
        if rows[0]["payment_method_id"] == payment_method_id:
            raise ValueError("The new payment method should be different from the current one")
        if method["source"] == "gift_card" and method["balance"] < rows[0]["amount"]:
            raise ValueError("Insufficient gift card balance to pay for the order")
        old = self.method(order, rows[0]["payment_method_id"])
        self.move(method, -rows[0]["amount"])
        self.move(old, rows[0]["amount"])
        rows += [
            {**rows[0], "payment_method_id": payment_method_id},
            {**rows[0], "transaction_type": "refund"},
        ]
        return order

    def exchange_delivered_order_items(
        self, order_id: Any, item_ids: list[str], new_item_ids: list[str], payment_method_id: Any
    ) -> Any:
        order = self.order(order_id)
        if order["status"] != "delivered":
            raise ValueError("Non-delivered order cannot be exchanged")
        texts = ("Number of ID not found.", "The number of items to be exchanged should match.")
        total, _ = self.swap(order, item_ids, new_item_ids, texts, True)
        method = self.method(order, payment_method_id)
        if method["source"] == "gift_card" and method["balance"] < round(total, 2):
            raise ValueError("Insufficient gift card balance to pay for the price difference")
        order.update(
            status="exchange requested",
            exchange_items=sorted(item_ids),
            exchange_new_items=sorted(new_item_ids),
        )
        order.update(
            exchange_payment_method_id=payment_method_id, exchange_price_difference=round(total, 2)
        )
        return order

    def return_delivered_order_items(
        self, order_id: Any, item_ids: list[str], payment_method_id: Any
    ) -> Any:
        order = self.order(order_id)
        if order["status"] != "delivered":
            raise ValueError("Non-delivered order cannot be returned")
        allowed = (
            self.method(order, payment_method_id)["source"] == "gift_card",
            order["payment_history"][0]["payment_method_id"] == payment_method_id,
        )
        if not any(allowed):
            raise ValueError("Payment method should be the original payment method")
        held = [item["item_id"] for item in order["items"]]
        if any(item_ids.count(item_id) > held.count(item_id) for item_id in item_ids):
            raise ValueError("Some item not found")
        order.update(
            status="return requested",
            return_items=sorted(item_ids),
            return_payment_method_id=payment_method_id,
        )
        return order
