"""Answers to a retail customer's questions, out of the tools: tracking, money, stock, prices,
balances, status."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from typing import Any

from gem_ma.scenarios.service_desk.agents import retail_items as reading
from gem_ma.scenarios.service_desk.agents.retail_choice import choose
from gem_ma.scenarios.service_desk.agents.retail_talk import use

from gem_ma import Action
from gem_ma.kernel.parsing.text import in_order

Record = dict[str, Any]
Lookup = Generator[Action, str, Any]
HINT = "Please tell me what you want and for which order."
_COUNT = re.compile(
    r"\bhow many\b|"
    + in_order(r"\bnumber of\b", r"\b(?:variants|options|versions|kinds|available)\b")
)
_HELD = in_order(r"\bgift card\b", r"\b(?:left|hold|have|worth)\b")
_BALANCE = re.compile(rf"\bbalance\b|{_HELD}|" + in_order(r"\b(?:left|much)\b", r"\bgift card\b"))
_PRICE = re.compile(r"\b(?:price|cost|how much|cheap\w*|expensive|dear\w*)\b")


def answer(text: str, order_id: str, user_id: str, user: Record) -> Lookup:
    """The answer to a question, as a sentence."""
    folded = text.casefold()
    # Before products: `gift card` is the name of no product.
    if _BALANCE.search(folded) and not order_id:
        return _balance(text, user)
    product = None if order_id else (yield from _product_named(folded))
    # With a single order `it` can only mean that one.
    if product is None and not order_id and len(user.get("orders", ())) == 1:
        order_id = user["orders"][0]
    if order_id:
        read = yield use("get_order_details", order_id=order_id)
        if read.startswith("Error"):
            return f"I cannot find order {order_id}."
        order = json.loads(read)
        # The tools would tell anybody's order; the policy forbids it.
        if order["user_id"] != user_id:
            return (
                f"I am sorry, I cannot tell you about order {order_id}: it does not belong to your"
                " account."
            )
        return (yield from _about_order(text, order))
    if product is None:
        return "I am sorry, I do not know which product you mean."
    return _about_product(text, product)


def _balance(text: str, user: Record) -> str:
    cards = {
        key: entry["balance"]
        for key, entry in user["payment_methods"].items()
        if "balance" in entry
    }
    if not cards:
        return "There is no gift card in your account."
    return " ".join(
        f"The balance of your gift card {key} is ${balance:.2f}." for key, balance in cards.items()
    )


def _product_named(folded: str) -> Lookup:
    """The record of the product that a text names, or None; the longest name counts."""
    types: dict[str, str] = json.loads((yield use("list_all_product_types")))
    # All products of the shop are asked about, so a name inside another one loses to it.
    named = [name for name in types if reading.mentions(name, folded)]
    if not named:
        return None
    return json.loads((yield use("get_product_details", product_id=types[max(named, key=len)])))


def _about_order(text: str, order: Record) -> Lookup:
    # In this order: a tracking number may be asked for with words of status beside it.
    folded = text.casefold()
    if "tracking" in folded:
        numbers = [number for sent in order["fulfillments"] for number in sent["tracking_id"]]
        return (
            f"The tracking number is {', '.join(numbers)}."
            if numbers
            else "This order has not been sent yet, so it has no tracking number."
        )
    if "status" in folded or "shipped" in folded or "arriv" in folded:
        return f"The status of order {order['order_id']} is {order['status']}."
    if "address" in folded:
        return (
            f"Order {order['order_id']} goes to"
            f" {', '.join(str(part) for part in order['address'].values() if part)}."
        )
    named, _ = reading.items(text, order)
    if (
        named
        and re.search(
            r"\b(?:refund\w*|get back|money back|return\w*|worth|cost|price|paid?)\b", folded
        )
        # A difference speaks of prices too, and is not what the items cost.
        and "differen" not in folded
    ):
        total = sum(one.item["price"] for one in named)
        return f"That is ${total:.2f} for {', '.join(one.item['name'] for one in named)}."
    if named and re.search(
        r"\b(?:differen\w*|cheap\w*|expensive|swap\w*|exchang\w*|instead)\b", folded
    ):
        return (yield from _difference(named[0]))
    # What is asked of an order and is nothing else is mostly its price.
    return f"You paid ${order['payment_history'][0]['amount']:.2f} for this order."


def _difference(named: reading.Named) -> Lookup:
    product = json.loads((yield use("get_product_details", product_id=named.item["product_id"])))
    chosen = choose(named, product, (named.into or named.about,))
    if isinstance(chosen, str):
        return chosen
    return f"The difference in price is ${abs(chosen['price'] - named.item['price']):.2f}."


def _about_product(text: str, product: Record) -> str:
    folded, name = text.casefold(), product["name"]
    axes: dict[str, list[str]] = {}
    for variant in product["variants"].values():
        for option, value in variant["options"].items():
            axes.setdefault(option, []).append(value)
    # Without the name, whose words may be values of an option.
    wanted = reading.named_values(axes, folded.replace(name.casefold(), " "))
    fits = [
        variant
        for variant in product["variants"].values()
        if variant["available"]
        and all(variant["options"].get(option) in values for option, values in wanted.items())
    ]
    if not fits:
        # With the 0, since a customer that asks how many waits for a number.
        return f"There is no such {name} available; that makes 0."
    if _COUNT.search(folded):
        return f"There are {len(fits)} variants of the {name} available."
    if _PRICE.search(folded):
        dear = re.search(r"\b(?:most expensive|dearest|highest)\b", folded)
        best = sorted(fits, key=lambda variant: variant["price"])[-1 if dear else 0]
        return (
            f"The {'dearest' if dear else 'cheapest'} {name} available is {best['item_id']}"
            f" ({_listed(best)}) at ${best['price']:.2f}."
        )
    return f"The {name} is available as: {'; '.join(_listed(variant) for variant in fits)}."


def _listed(variant: Mapping[str, Any]) -> str:
    return ", ".join(f"{option}: {value}" for option, value in variant["options"].items())
