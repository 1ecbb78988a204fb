"""What the retail tests share: where tau-bench's data may lie, and a shop so small that results
can be worked out by hand."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.desk.overlay import Base
from gem_ma.scenarios.service_desk.retail import RetailStore
from gem_ma.scenarios.service_desk.retail.store.store import SEMANTICS

from gem_ma.kernel.errors import DataError

TAU = Path(
    os.environ.get("TAU_BENCH_PATH") or Path(__file__).resolve().parents[2] / "shared" / "tau_bench"
)
needs_tau = pytest.mark.skipif(
    not (TAU / "users.json").is_file(), reason=f"no tau-bench data in {TAU}; set TAU_BENCH_PATH"
)
needs_sample = pytest.mark.skipif(
    not (TAU / "sample_replay.jsonl").is_file(), reason=f"no sample_replay.jsonl in {TAU}"
)

EXCHANGE, RETURN = "exchange_delivered_order_items", "return_delivered_order_items"
MODIFY, PAYMENT = "modify_pending_order_items", "modify_pending_order_payment"
MOVE, USER_MOVE = "modify_pending_order_address", "modify_user_address"
CANCEL = "cancel_pending_order"
ADDRESS = {
    "address1": "9 Hill",
    "address2": "",
    "city": "Oak",
    "state": "VT",
    "country": "USA",
    "zip": "05000",
}
MILL = {
    "address1": "1 Mill",
    "address2": "",
    "city": "Ash",
    "country": "USA",
    "state": "ME",
    "zip": "04100",
}


def _item(number: int, price: float, colour: str, product: str = "P1") -> dict[str, Any]:
    name = {"P1": "Kite", "P2": "Lantern"}[product]
    return {
        "name": name,
        "product_id": product,
        "item_id": f"I{number}",
        "price": price,
        "options": {"colour": colour},
    }


def _variant(number: int, price: float, colour: str, available: bool = True) -> dict[str, Any]:
    return {
        "item_id": f"I{number}",
        "options": {"colour": colour},
        "available": available,
        "price": price,
    }


def _order(
    order_id: str,
    status: str,
    items: list[dict[str, Any]],
    method: str,
    amount: float,
    user_id: str = "ann_lee_1",
) -> dict[str, Any]:
    paid = {"transaction_type": "payment", "amount": amount, "payment_method_id": method}
    body = {
        "order_id": order_id,
        "user_id": user_id,
        "address": dict(MILL),
        "items": items,
        "fulfillments": [],
    }
    return body | {"status": status, "payment_history": [paid]}


def _user(
    first: str, last: str, orders: list[str], methods: dict[str, Any], zip_: str = "04100"
) -> dict[str, Any]:
    email = f"{first}@example.com"
    return {
        "name": {"first_name": first, "last_name": last},
        "address": {**MILL, "zip": zip_},
        "email": email,
        "payment_methods": methods,
        "orders": orders,
    }


def tiny_tables() -> dict[str, dict[str, Any]]:
    """Two customers, four orders, two products. `gift_card_1` holds 50."""
    methods = {
        "paypal_1": {"source": "paypal", "id": "paypal_1"},
        "gift_card_1": {"source": "gift_card", "balance": 50, "id": "gift_card_1"},
        "credit_card_1": {
            "source": "credit_card",
            "brand": "visa",
            "last_four": "0001",
            "id": "credit_card_1",
        },
    }
    orders = {
        "#W1": _order(
            "#W1", "pending", [_item(1, 10.1, "red"), _item(2, 20.2, "blue")], "paypal_1", 30.3
        ),
        "#W2": _order(
            "#W2",
            "delivered",
            [_item(1, 10.1, "red"), _item(1, 10.1, "red"), _item(7, 5.0, "clear", "P2")],
            "paypal_1",
            25.2,
        ),
        "#W3": _order("#W3", "pending", [_item(7, 5.0, "clear", "P2")], "gift_card_1", 5.0),
        "#W4": _order(
            "#W4", "processed", [_item(7, 5.0, "clear", "P2")], "paypal_9", 5.0, "bob_lee_2"
        ),
    }
    kites = [
        _variant(1, 10.1, "red"),
        _variant(2, 20.2, "blue"),
        _variant(3, 40.4, "green"),
        _variant(4, 999.0, "gold"),
        _variant(5, 1.0, "grey", False),
    ]
    lanterns = [_variant(7, 5.0, "clear"), _variant(8, 6.0, "amber")]
    return {
        "users": {
            "ann_lee_1": _user("Ann", "Lee", ["#W1", "#W2", "#W3"], methods),
            "bob_lee_2": _user(
                "Bob", "Lee", ["#W4"], {"paypal_9": {"source": "paypal", "id": "paypal_9"}}, "04200"
            ),
        },
        "orders": orders,
        "products": {
            "P1": {
                "name": "Kite",
                "product_id": "P1",
                "variants": {entry["item_id"]: entry for entry in kites},
            },
            "P2": {
                "name": "Lantern",
                "product_id": "P2",
                "variants": {entry["item_id"]: entry for entry in lanterns},
            },
        },
    }


def swap(order_id: str, old: Any, new: Any, method: Any = "paypal_1") -> dict[str, Any]:
    """Arguments of a change or an exchange of items."""
    return {"order_id": order_id, "item_ids": old, "new_item_ids": new, "payment_method_id": method}


def tiny(semantics: str = "tau1") -> RetailStore:
    return RetailStore(Base(copy.deepcopy(tiny_tables())), semantics)


def ask(store: RetailStore, name: str, *values: Any, **more: Any) -> str:
    """What a tool answers to values for its arguments in their order."""
    arguments = SEMANTICS[store.semantics][name].arguments
    return store.call(name, dict(zip(arguments, values, strict=False)) | more)


def read(store: RetailStore, name: str, *values: Any, **more: Any) -> dict[str, Any]:
    """The record that it answers."""
    found: dict[str, Any] = json.loads(ask(store, name, *values, **more))
    return found


def balance(store: RetailStore) -> Any:
    """What the gift card holds."""
    return read(store, "get_user_details", "ann_lee_1")["payment_methods"]["gift_card_1"]["balance"]


@contextmanager
def one_line(*parts: str) -> Iterator[None]:
    """A DataError is raised, of one line that holds these parts."""
    with pytest.raises(DataError) as error:
        yield
    text = str(error.value)
    assert "\n" not in text
    for part in parts:
        assert part in text, text


def write_tables(folder: Path, tables: dict[str, dict[str, Any]] | None = None) -> Path:
    """The three files of a data folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (tables or tiny_tables()).items():
        (folder / f"{name}.json").write_text(json.dumps(table), "utf-8")
    return folder
