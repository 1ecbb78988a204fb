"""The retail desk as its judges see it (`service.domain`): what each tool is for, whose a record
is, and a record as facts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gem_ma.scenarios.service_desk.desk.facts import Fact, cents, folded
from gem_ma.scenarios.service_desk.desk.overlay import Base, Overlay, Tables
from gem_ma.scenarios.service_desk.desk.task import GoldCall, Wish
from gem_ma.scenarios.service_desk.domain import (
    CATALOGUE,
    FIND,
    PERSONAL,
    TRANSFER,
    UTILITY,
    WRITE,
    Domain,
)
from gem_ma.scenarios.service_desk.retail.domain.kinds import RETURN, SWAPS
from gem_ma.scenarios.service_desk.retail.domain.language import RETAIL as BOOK
from gem_ma.scenarios.service_desk.retail.domain.language import RetailPhrasebook
from gem_ma.scenarios.service_desk.retail.domain.named import unnamed
from gem_ma.scenarios.service_desk.retail.domain.reasons import GROUNDS
from gem_ma.scenarios.service_desk.retail.store.tasks import INTENTS, wish_of

from gem_ma import ToolCall

ROLES = {
    "find_user_id_by_email": FIND,
    "find_user_id_by_name_zip": FIND,
    "get_user_details": PERSONAL,
    "get_order_details": PERSONAL,
    "get_product_details": CATALOGUE,
    "get_item_details": CATALOGUE,
    "list_all_product_types": CATALOGUE,
    **dict.fromkeys(INTENTS, WRITE),
    "calculate": UTILITY,
    "think": UTILITY,
    "transfer_to_human_agents": TRANSFER,
}
# Item and product ids have 10 digits and parcel numbers 12. A `#W` in front belongs to an order,
# and a longer run of digits is none of them.
# items, products and parcels
IDS = re.compile(r"#W\d+|\b(?:credit_card|gift_card|paypal)_\d+\b|(?<![\w#])\d{10}(?:\d{2})?(?!\d)")
# Both words alone. `pending (item modified)` is locked: the tools of this shop change nothing in
# it.
OPEN_STATUSES = ("pending", "delivered")


def facts(table: str, key: str, record: Mapping[str, Any]) -> Counter[Fact]:
    """A record as a multiset of normalised facts: money in cents, addresses folded, payments net
    by method, lists without their order."""
    entries: list[Fact] = []
    paired = record.get("exchange_pairs") is not None
    for name, value in record.items():
        where = (table, key, name)
        if value is None:
            # Null is what the typed tables write for a field that the other form leaves out.
            continue
        if name == "payment_history":
            # Net by method: a payment that was moved away and back has changed nothing that
            # matters.
            entries += [
                (*where, method, amount) for method, amount in _net(value).items() if amount
            ]
        elif name == "items":
            entries += [
                # The price too: under tau2's rules a changed item can get the price of another one.
                (*where, item["product_id"], item["item_id"], cents(item["price"]))
                for item in value
            ]
        elif name == "payment_methods":
            entries += [
                (*where, method, cents(entry["balance"]))
                # The methods themselves never change; only the balance of a gift card does.
                for method, entry in value.items()
                if entry.get("balance") is not None
            ]
        elif name == "address":
            # Folded, so that `Flat 2` and `flat 2` are one address; the benchmarks compare the
            # bytes.
            entries += [
                (*where, part, folded(text)) for part, text in value.items() if text is not None
            ]
        elif name == "exchange_price_difference":
            entries.append((*where, cents(value)))
        elif name == "exchange_pairs":
            entries += [(*where, old, new) for old, new in value]
        elif name in ("exchange_items", "exchange_new_items") and paired:
            continue  # the pairs say it, and more
        elif name in ("exchange_items", "exchange_new_items", "return_items"):
            entries += [(*where, item_id) for item_id in value]
        elif isinstance(value, str):
            entries.append((*where, value))
    return Counter(entries)


def _net(history: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    net: dict[str, int] = {}
    for row in history:
        sign = -1 if row["transaction_type"] == "refund" else 1
        # In cents: a sum of floats would make equal payments differ in the last bit.
        net[row["payment_method_id"]] = net.get(row["payment_method_id"], 0) + sign * cents(
            row["amount"]
        )
    return net


def put(call: ToolCall, data: Overlay) -> Wish | None:
    """A write as a customer would put it; by its ids alone where it names what is not there."""
    # A model may send a number, a text or nested lists as ids; such a call is not a wish at all.
    if not isinstance(call.arguments, Mapping) or not all(
        _are_texts(call.arguments.get(name, ())) for name in ("item_ids", "new_item_ids")
    ):
        return None
    try:
        return wish_of(data, GoldCall(call.name, call.arguments))
    # Whatever the data do not bear. The call is going to fail, but the monitor still has to know
    # what the assistant asked a yes for.
    except (KeyError, StopIteration, TypeError, IndexError, AttributeError):
        method = call.arguments.get("payment_method_id", "")
        return Wish(
            call.name, call.arguments, {"method": method if isinstance(method, str) else ""}
        )


def _are_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value)


def same(call: ToolCall) -> list[str]:
    """Items that are changed to themselves."""
    old, new = call.arguments.get("item_ids"), call.arguments.get("new_item_ids")
    # The tools walk any sequence; only two lists can be compared by place.
    if not isinstance(old, list) or not isinstance(new, list):
        return []
    return [str(item) for item, other in zip(old, new, strict=False) if item == other]


def locked(table: str, key: str, record: Mapping[str, Any]) -> bool:
    """Whether an order has gone where no tool can change it any more."""
    return table == "orders" and record.get("status") not in OPEN_STATUSES


# Wide on purpose. A topic only says whether a message speaks of this kind of write at all;
# `language` reads what it says.
_SWAP_WORDS = re.compile(
    r"exchang|swap|replac|modif|chang|updat|switch|substitut|upgrad|downgrad|adjust|amend|alter|instead|trade"
)
_ADDRESS_WORDS = re.compile(r"address|ship|deliver|send|redirect|rerout|move")
TOPICS = {
    "cancel_pending_order": re.compile(r"cancel|call(?:ed|ing)? off|void"),
    "return_delivered_order_items": re.compile(
        # Bounded gaps: `send the blue one back` is meant, and without a bound the time grows with
        # the square of a text's length.
        r"return|refund|sen[dt]\w{0,20} (?:\w{1,30} ){0,3}back"
    ),
    # Sorted, since a set of texts has another order in every process.
    **dict.fromkeys(sorted(SWAPS), _SWAP_WORDS),
    "modify_pending_order_payment": re.compile(r"pay|paid|card|charg|method|bill"),
    **dict.fromkeys(("modify_pending_order_address", "modify_user_address"), _ADDRESS_WORDS),
}

RETAIL = Domain(
    roles=ROLES,
    keys={"order_id": "orders", "user_id": "users", "product_id": "products"},
    owners={"orders": "user_id", "users": ""},
    ids=IDS,
    id_arguments=frozenset(
        {
            "order_id",
            "user_id",
            "product_id",
            "item_id",
            "item_ids",
            "new_item_ids",
            "payment_method_id",
        }
    ),
    # A second call of these on one order is a finding even if the tool would let it through.
    once=dict.fromkeys((*SWAPS, RETURN), "items"),
    topics=TOPICS,
    grounds=GROUNDS,
    facts=facts,
    book=BOOK,
    put=put,
    same=same,
    unnamed=unnamed,
    locked=locked,
)


def domain_of(base: Base) -> Domain:
    """The desk of a world, with a phrasebook that knows its products."""
    return base.derived("judges", _judges)


def _judges(tables: Tables) -> Domain:
    products: dict[str, dict[str, set[str]]] = {}
    for product in tables["products"].values():
        axes = products.setdefault(product["name"], {})
        for variant in product["variants"].values():
            for axis, value in variant["options"].items():
                axes.setdefault(axis, set()).add(value)
    # The ordinary products are known already, and their patterns are compiled: no second book.
    if all(folded(name) in BOOK.products for name in products):
        return RETAIL
    return replace(
        RETAIL,
        book=RetailPhrasebook(
            {
                name: {axis: sorted(values) for axis, values in axes.items()}
                for name, axes in products.items()
            }
        ),
    )
