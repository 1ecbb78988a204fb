"""Which arguments of a shop's write no text names in any way: by id, by words for it, or by its
price.

Nothing is read here: a value stands in a text, or it does not. So what is said to be unnamed is
certain, and what is not may still be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from gem_ma.scenarios.service_desk.desk.overlay import Overlay
from gem_ma.scenarios.service_desk.reading.phrases import fold, names
from gem_ma.scenarios.service_desk.reading.values import numbers

from gem_ma import ToolCall

# `refund it to the original method` names a method without any word for its kind.
_SAME = re.compile(r"\b(?:original|same|current|existing|default|used|previous|on file)\b")
_SOURCES = {
    "paypal": re.compile(r"pay ?pal"),
    "gift_card": re.compile(r"gift[ -]?card"),
    # `gift card` is a card too, but no credit card.
    "credit_card": re.compile(r"(?<!gift )(?<!gift-)\bcards?\b|\b(?:credit|debit)\b"),
}


def unnamed(call: ToolCall, data: Overlay, texts: Sequence[str]) -> list[str]:
    """The names of such arguments; [] for a call that the data do not bear, since then nothing
    can be said."""
    try:
        return list(_unnamed(call.arguments, data, texts, [fold(text) for text in texts]))
    # Not this module's fault to find: the tool answers such a call with an error of its own.
    except (KeyError, StopIteration, TypeError, IndexError, AttributeError):
        return []


def _unnamed(
    arguments: Mapping[str, Any], data: Overlay, texts: Sequence[str], folded: Sequence[str]
) -> Iterator[str]:
    amounts = frozenset[Decimal]().union(*map(numbers, texts))
    # Either part tells the address apart; a flat or a city alone stands in many texts.
    if "address1" in arguments and not any(
        _held(arguments[part], folded) for part in ("address1", "zip")
    ):
        yield "address1"
    if "order_id" not in arguments:
        return
    order = data.record("orders", arguments["order_id"])
    if "payment_method_id" in arguments:
        methods = data.record("users", order["user_id"])["payment_methods"]
        if not _method_named(arguments["payment_method_id"], methods, order, folded):
            yield "payment_method_id"
    # Without new items this is not a swap, and old ones are named by the order.
    for place, old in enumerate((arguments.get("new_item_ids") and arguments["item_ids"]) or ()):
        item = next(item for item in order["items"] if item["item_id"] == old)
        variant = data.record("products", item["product_id"])["variants"][
            arguments["new_item_ids"][place]
        ]
        if not _variant_named(arguments["new_item_ids"][place], item, variant, folded, amounts):
            yield "new_item_ids"
            # One finding a call: which of the pairs it was is in the log.
            return


def _held(value: Any, folded: Sequence[str]) -> bool:
    return any(names(str(value), text) for text in folded)


def _method_named(
    method_id: str, methods: Mapping[str, Any], order: Mapping[str, Any], folded: Sequence[str]
) -> bool:
    method = methods[method_id]
    # The digits of the id, since models tend to leave the words before them out.
    words = [
        method_id.rsplit("_", 1)[-1],
        *(str(method[name]) for name in ("brand", "last_four") if name in method),
    ]
    # A source that no table here knows is looked for by its own name.
    source = _SOURCES.get(method["source"], re.compile(re.escape(method["source"])))
    # Words such as `original` or `the card on file` mean the method that paid, or the only one.
    known = (
        any(row["payment_method_id"] == method_id for row in order["payment_history"])
        or len(methods) == 1
    )
    return any(
        any(word in text for word in words) or source.search(text) or (known and _SAME.search(text))
        for text in folded
    )


def _variant_named(
    item_id: str,
    old: Mapping[str, Any],
    variant: Mapping[str, Any],
    folded: Sequence[str],
    amounts: frozenset[Decimal],
) -> bool:
    """Whether a new item was named: by its id, its price, or the value of an option in which it
    differs from the old one."""
    differs = [
        value for axis, value in variant["options"].items() if old["options"].get(axis) != value
    ]
    # Nothing differs where an item is swapped for its like; then there is nothing to name.
    if not differs or _held(item_id, folded) or Decimal(str(variant["price"])) in amounts:
        return True
    return any(_loosely(str(value), text) for value in differs for text in folded)


def _loosely(value: str, text: str) -> bool:
    """Whether a text holds a value or any word of it that says something: `8-inch` and `8
    inches` name the same."""
    parts = [
        # Short words say too little: `the 2 m one` would name every size with an `m`.
        part
        for part in re.findall(r"[a-z]{3,}|\d+", fold(value))
        if part not in ("the", "and", "with", "not")
    ]
    return (
        names(value, text)
        or any(re.search(rf"(?<![a-z0-9]){part}", text) for part in parts)
        # A value of nothing but short words cannot be looked for, and is never called unnamed.
        or not parts
    )
