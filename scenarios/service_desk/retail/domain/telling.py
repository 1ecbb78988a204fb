"""How a customer of the shop says what it wants and knows: requests, details, facts and slips.

Only words that a customer has: no item id, payment id or user id is said that the task does not
give it. `pick` draws one of several ways; the order of the draws is a part of recorded talks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from gem_ma.scenarios.service_desk.desk.task import Wish
from gem_ma.scenarios.service_desk.reading.phrases import Pick
from gem_ma.scenarios.service_desk.retail.domain.kinds import (
    ADDRESS,
    CANCEL,
    EXCHANGE,
    MODIFY,
    ORDER_ADDRESS,
    PAYMENT,
    RETURN,
)

_LABELS = {
    "zip": "zip code",
    "email": "e-mail address",
    "order_id": "order number",
    "payment_method_id": "payment method",
    "method": "payment method",
    "item_ids": "items",
    "new_item_ids": "new items",
    "wanted": "new items",
    "address1": "street",
    "address2": "flat or floor",
}
_TIES = {
    "cheapest": ", the cheapest of them",
    "dearest": ", the most expensive of them",
    "any": ", any of them will do",
}
# `modify` has no verb that fits a sentence with items; other intents fall back on a neutral one.
_VERBS = {"return": "return", "exchange": "exchange", "modify": "change the items"}


def label(slot: str) -> str:
    """What a slot or an argument is called among people."""
    return _LABELS.get(slot, slot.replace("_", " "))


def mistaken(slot: str, value: str) -> str:
    """A value with two digits swapped, the last ones that differ; "" where none can be."""
    # With a digit wrong these find nobody, while a wrong order number may be another order.
    if slot not in ("zip", "email"):
        return ""
    for place in range(len(value) - 2, 0, -1):
        here, there = value[place], value[place + 1]
        if here != there and here.isdigit() and there.isdigit():
            return f"{value[:place]}{there}{here}{value[place + 2 :]}"
    return ""


def give(slots: Mapping[str, str]) -> str:
    """Facts that the customer knows, a sentence each; both names in one."""
    sentences = []
    if "first_name" in slots and "last_name" in slots:
        sentences.append(f"My name is {slots['first_name']} {slots['last_name']}.")
    else:
        sentences += [
            f"My {label(slot)} is {slots[slot]}."
            for slot in ("first_name", "last_name")
            if slot in slots
        ]
    for slot, value in slots.items():
        if slot == "order_id":
            sentences.append(f"The order is {value}.")
        elif slot not in ("first_name", "last_name"):
            sentences.append(f"My {label(slot)} is {value}.")
    return " ".join(sentences)


# -- requests ------------------------------------------------------------------------------------


def details(wish: Wish) -> tuple[str, ...]:
    """The parts of a wish that a request may leave out; a wish without a write is said whole."""
    parts = [] if wish.writes else ["text"]
    parts += [name for name in ("order_id", "reason") if name in wish.arguments]
    parts += ["items"] if wish.words.get("items") else []
    parts += ["method"] if "payment_method_id" in wish.arguments else []
    parts += ["address"] if "address1" in wish.arguments else []
    return tuple(parts)


def request(wish: Wish, parts: Collection[str], pick: Pick) -> str:
    """A request that holds these details; one without any still says what is wanted."""
    order = order_words(wish) if "order_id" in parts else ""
    listed = _listed(wish) if "items" in parts else ""
    # Drawn before the words around it, and even where they do not hold it.
    method = f" {detail(wish, 'method', pick)}" if "method" in parts else ""
    if not wish.writes:
        return wish.text
    if wish.kind == CANCEL:
        return _cancel(wish, order, "reason" in parts, pick)
    if wish.kind == RETURN:
        where = f" from {order}" if order else ""
        wanted = f"{where}: {listed}." if listed else f" something{where}."
        lead = pick("I want to return", "I would like to return", "Please let me return")
        return lead + wanted + method
    if wish.kind in (EXCHANGE, MODIFY):
        return _swap(wish, order, listed, pick) + method
    if wish.kind == PAYMENT:
        return _pay(wish, order, "method" in parts, pick)
    of_order = f"the address of {order or 'an order'}"
    subject = of_order if wish.kind == ORDER_ADDRESS else "my default address"
    lead = pick("Please change", "I want to change", "I would like to change") + f" {subject}"
    return f"{lead} to: {labelled(wish.arguments)}." if "address" in parts else f"{lead}."


def _cancel(wish: Wish, order: str, why: bool, pick: Pick) -> str:
    reason = f" {detail(wish, 'reason', pick)}" if why else ""
    words = pick(
        f"Please cancel {order or 'an order of mine'}.",
        f"I would like to cancel {order or 'an order'}.",
        f"I want to cancel {order or 'one of my orders'}.",
    )
    return words + reason


def _swap(wish: Wish, order: str, listed: str, pick: Pick) -> str:
    if wish.kind == EXCHANGE:
        lead = pick("I want to exchange", "I would like to exchange", "Please exchange")
        lead += f" from {order}" if order else " something"
    else:
        lead = pick("I want to change", "I would like to change", "Please change")
        lead += f" items of {order}" if order else " items of an order"
    return f"{lead}: {listed}." if listed else f"{lead}."


def _pay(wish: Wish, order: str, named: bool, pick: Pick) -> str:
    if named:
        words = pick(
            f"Please let me pay {order or 'my order'} with",
            f"I want to pay {order or 'my order'} with",
            f"I would like to pay {order or 'my order'} with",
        )
        return words + f" {wish.words['method']} instead."
    words = pick(
        "Please change the payment method",
        "I want to change the payment method",
        "I would like to change the payment method",
    )
    return words + f" of {order or 'an order'}."


# -- details -------------------------------------------------------------------------------------


def detail(wish: Wish, slot: str, pick: Pick) -> str:
    """One detail of a wish as a sentence; "" where the wish has none of that name."""
    slot = "items" if slot == "wanted" else slot
    if slot not in details(wish):
        return ""
    return _DETAILS.get(slot, _text)(wish, pick)


def _text(wish: Wish, pick: Pick) -> str:
    return str(wish.text)


def _order(wish: Wish, pick: Pick) -> str:
    return pick("It is", "It is about", "That is") + f" {order_words(wish)}."


def _reason(wish: Wish, pick: Pick) -> str:
    reason = wish.arguments["reason"]
    words = wish.words.get("reason", reason)
    # The reason of an impossible wish is the customer's own words, so it is told as its reason.
    if not wish.writes or words == reason:
        return pick("The reason:", "My reason:", "The reason is:") + f" {words}."
    lead = pick("Any reason will do, say:", "Put down any reason, for example:")
    return lead + f" {reason}."


def _method(wish: Wish, pick: Pick) -> str:
    # The customer left it open, so the words must not sound like a choice.
    if any_method(wish):
        return (
            "Any way of refund that is allowed suits me, the original payment method for example."
        )
    method = wish.words["method"]
    if wish.kind == RETURN:
        lead = pick("Please refund it to", "Please put the refund on", "Please send the refund to")
        return f"{lead} {method}."
    if wish.kind == PAYMENT or not wish.writes:
        return pick("I want to use", "Please use", "I would like to use") + f" {method}."
    lead = pick("Please use", "Please take", "Please put it on")
    return f"{lead} {method}" + pick(" for the difference.", " for any difference.")


def _items(wish: Wish, pick: Pick) -> str:
    verb = _VERBS.get(wish.intent or wish.kind.split("_")[0], "do this with")
    product = f" for a {wish.words['product']}" if "product" in wish.words else ""
    return f"I want to {verb}: {_listed(wish)}{product}."


def _address(wish: Wish, pick: Pick) -> str:
    return f"The new address is: {labelled(wish.arguments)}."


_DETAILS: Mapping[str, Callable[[Wish, Pick], str]] = {
    "order_id": _order,
    "reason": _reason,
    "method": _method,
    "items": _items,
    "address": _address,
}


def any_method(wish: Wish) -> bool:
    """Whether the customer leaves the payment method open."""
    words = str(wish.words.get("method", ""))
    # Left open is what is neither an id nor a thing the customer has.
    return (
        bool(words)
        and words != wish.arguments.get("payment_method_id")
        and not words.startswith("my ")
    )


def order_words(wish: Wish) -> str:
    """The order of a wish as its customer names it."""
    return str(wish.words.get("order") or f"order {wish.arguments['order_id']}")


def labelled(address: Mapping[str, Any]) -> str:
    """An address with the names of its parts."""
    return "; ".join(f"{part}: {address[part]}" for part in ADDRESS)


def _listed(wish: Wish) -> str:
    return " + ".join(
        f"{item.name} ({by_name(item.options)}){_instead(item)}" for item in wish.words["items"]
    )


def _instead(item: Any) -> str:
    """What is wanted in place of an item: what it must be, what it had better be, and which of
    several."""
    if item.wanted is None:
        return ""
    liked = ", next ".join(f"{name}: {value}" for name, value in item.prefers)
    # Nothing to add where all options are named.
    whole = item.wanted.keys() == item.options.keys()
    similar = "" if whole else ", and apart from that as similar as possible"
    preferred = f", preferably {liked}" if liked else ""
    return f" for one with ({by_name(item.wanted)}){preferred}{_TIES.get(item.tie, similar)}"


def by_name(options: Mapping[str, str]) -> str:
    """Options by their names."""
    return "; ".join(f"{name}: {value}" for name, value in options.items())
