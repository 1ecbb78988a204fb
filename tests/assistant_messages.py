"""What assistants of a shop say, in many styles, with what it means: a labelled set for the parser
of dialogue acts.

A row is (text, acts, wish, verdict). Acts are what a careful reader would say the message does:
`ask:<slot>` (identity = e-mail, name or zip), `propose:<write>`, `claim:<write>`, `inform`,
`refuse`, `transfer`, `more`, `wait`, `greet`; the write is one of cancel, return, swap, payment,
address, any. Where a wish of `WISHES` is named, the verdict is what a customer with that wish
should answer to the proposal: `yes`, `no` (something is wrong), `ask` (something is not said).
"""

from __future__ import annotations

import json
from pathlib import Path

from gem_ma.scenarios.service_desk.retail import Item, Wish

EXCHANGE, RETURN, CANCEL = (
    "exchange_delivered_order_items",
    "return_delivered_order_items",
    "cancel_pending_order",
)
PAYMENT, ADDRESS, HOME, MODIFY = (
    "modify_pending_order_payment",
    "modify_pending_order_address",
    "modify_user_address",
    "modify_pending_order_items",
)
PLACE = {
    "address1": "12 Mill Bank",
    "address2": "Flat 7",
    "city": "Fernhollow",
    "state": "OR",
    "country": "USA",
    "zip": "97301",
}
KITE = Item(
    "Kite",
    {"shape": "delta", "line": "30 m", "colour": "amber"},
    {"shape": "box", "line": "60 m", "colour": "amber"},
)
TWO = (
    Item(
        "Kite",
        {"shape": "delta", "line": "30 m", "colour": "amber"},
        {"shape": "box", "line": "30 m", "colour": "amber"},
    ),
    Item(
        "Kite",
        {"shape": "delta", "line": "60 m", "colour": "violet"},
        {"shape": "diamond", "line": "60 m", "colour": "violet"},
    ),
)
PAIR = (
    Item("Kite", {"shape": "box", "line": "30 m", "colour": "violet"}),
    Item("Lantern", {"fuel": "oil", "glass": "clear", "hook": "fixed"}),
)
WISHES = {
    "cancel": Wish(
        CANCEL,
        {"order_id": "#W1234567", "reason": "no longer needed"},
        {"order": "order #W1234567"},
        intent="cancel",
    ),
    "return": Wish(
        RETURN,
        {
            "order_id": "#W2345678",
            "item_ids": ["1111111111", "2222222222"],
            "payment_method_id": "paypal_7654321",
        },
        {"order": "order #W2345678", "items": PAIR, "method": "my PayPal account"},
    ),
    "exchange": Wish(
        EXCHANGE,
        {
            "order_id": "#W3456789",
            "item_ids": ["3333333333"],
            "new_item_ids": ["4444444444"],
            "payment_method_id": "credit_card_1112223",
        },
        {"order": "order #W3456789", "items": (KITE,), "method": "my credit card ending in 4321"},
    ),
    "two": Wish(
        MODIFY,
        {
            "order_id": "#W3456790",
            "item_ids": ["3000000001", "3000000002"],
            "new_item_ids": ["3000000003", "3000000004"],
            "payment_method_id": "gift_card_9998887",
        },
        {"order": "order #W3456790", "items": TWO, "method": "my gift card"},
    ),
    "payment": Wish(
        PAYMENT,
        {"order_id": "#W4567890", "payment_method_id": "gift_card_9998887"},
        {"order": "order #W4567890", "method": "my gift card"},
    ),
    "address": Wish(ADDRESS, {"order_id": "#W5678901", **PLACE}, {"order": "order #W5678901"}),
    "home": Wish(HOME, {"user_id": "ann_lee_1", **PLACE}),
}


def rows(name: str) -> tuple[tuple[str, str, str, str], ...]:
    """The rows of `tests/talks/NAME.jsonl`."""
    lines = (Path(__file__).parent / "talks" / f"{name}.jsonl").read_text("utf-8").splitlines()
    return tuple(tuple(json.loads(line)) for line in lines)


MESSAGES = rows("messages")

# written after the parser was tuned on the others
UNSEEN = rows("unseen")
