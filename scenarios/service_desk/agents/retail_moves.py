"""What the careful assistant does about one request, once it knows the account: what it asks for,
what it tells, and which write it proposes.

A move is made out of what the customer said and what the tools show. It changes nothing: the
assistant asks for a yes first, see `retail_scripted`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gem_ma.scenarios.service_desk.agents import retail_answers as answers
from gem_ma.scenarios.service_desk.agents import retail_details as details
from gem_ma.scenarios.service_desk.agents import retail_items as item_reading
from gem_ma.scenarios.service_desk.agents.retail_choice import choose
from gem_ma.scenarios.service_desk.agents.retail_reading import Errand
from gem_ma.scenarios.service_desk.agents.retail_talk import use
from gem_ma.scenarios.service_desk.retail.domain.kinds import (
    ADDRESS,
    CANCEL,
    EXCHANGE,
    MODIFY,
    ORDER_ADDRESS,
    PAYMENT,
    RETURN,
    USER_ADDRESS,
)
from gem_ma.scenarios.service_desk.retail.store.tools import REASONS

from gem_ma import Action

ANYTHING_ELSE = "Is there anything else I can do for you?"
# A name in capitals behind an article, as names of products are written.
_A_THING = re.compile(r"\b(?:an?|another|some)\s+([A-Z][\w-]*(?: [A-Z][\w-]*)*)")
# The status that an order must have for a request; others are not meant by "my order".
RIGHT_STATUS = {
    "cancel": ("pending",),
    "payment": ("pending",),
    "address": ("pending",),
    "return": ("delivered",),
    "swap": ("pending", "delivered"),
}
TOOLS = {
    "swap": {"delivered": EXCHANGE, "pending": MODIFY},
    "return": {"delivered": RETURN},
}
Record = dict[str, Any]
Lookup = Generator[Action, str, Any]


@dataclass(slots=True)
class Form:
    """One request and all that was said about it; the newest text counts."""

    kind: str
    texts: list[str]
    order_id: str = ""
    asked: int = 0

    def newest(self, read: Callable[[str], Any]) -> Any:
        """What the newest text that says anything says."""
        # Newest first: a correction replaces what was said before.
        return next((value for value in map(read, reversed(self.texts)) if value), None)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


@dataclass(frozen=True, slots=True)
class Move:
    """What to do about a form: `ask` for what is missing, `tell` an answer or a refusal, or
    `write` with these arguments."""

    how: str
    text: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Account:
    """Whom the assistant talks to, as the tools show it."""

    user_id: str = ""
    user: Record = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)  # orders by the customer's words for them

    @property
    def methods(self) -> Record:
        """Payment methods by id."""
        methods: Record = self.user["payment_methods"]
        return methods


def next_move(form: Form, account: Account) -> Lookup:
    """What to do about a form, after looking at what it concerns. Gives a Move."""
    # An order once found stays: later messages speak of it without its number.
    form.order_id = form.order_id or Errand(form.kind, form.text).order_id
    if form.kind == "question":
        return (yield from _reply(form, account))
    # An address without an order is that of the account.
    of_account = form.kind == "address" and "order" not in form.text.casefold()
    if not form.order_id and not of_account:
        order_id = yield from _find_order(form, account)
        if isinstance(order_id, Move):
            return order_id
        form.order_id = order_id
    order: Record = {}
    if form.order_id:
        read = yield use("get_order_details", order_id=form.order_id)
        if read.startswith("Error"):
            # Forgotten again, so that the corrected number is taken.
            unknown, form.order_id = form.order_id, ""
            return Move("ask", f"I cannot find an order {unknown}. Could you check its number?")
        order = json.loads(read)
        # The tools do not check whose order it is.
        if order["user_id"] != account.user_id:
            return Move(
                "tell",
                f"I am sorry, I cannot help with order {form.order_id}: it does not belong to"
                " your account.",
            )
    planner = {"address": _address, "cancel": _cancel, "payment": _payment}.get(form.kind)
    if planner is not None:
        return planner(form, account, order)
    return (yield from _items(form, account, order))


def _reply(form: Form, account: Account) -> Lookup:
    if not form.order_id and details.order_described(form.text):
        order_id = yield from _find_order(form, account)
        form.order_id = order_id if isinstance(order_id, str) else ""
    reply = yield from answers.answer(form.text, form.order_id, account.user_id, account.user)
    return Move("tell", reply)


def _find_order(form: Form, account: Account) -> Lookup:
    """The order that a customer without its number means: the only one that fits what was said.
    Gives an id or a Move."""
    described = form.newest(details.order_described) or ""
    # The same words mean the same order for the whole talk.
    if described and described in account.known:
        return account.known[described]
    right = RIGHT_STATUS.get(form.kind, ())
    words = (described or form.text).casefold()
    fits = []
    for order_id in account.user.get("orders", ()):
        order = json.loads((yield use("get_order_details", order_id=order_id)))
        named = sum(name.casefold() in words for name in {item["name"] for item in order["items"]})
        # Items in common first, then the status: what is asked for tells more than what is
        # possible.
        fits.append((named, not right or order["status"] in right, order_id))
    most = max((fit[:2] for fit in fits), default=None)
    best = [order_id for *fit, order_id in fits if tuple(fit) == most]
    # Sure of it only where something fits, or where there is nothing else.
    if len(best) == 1 and (max(fits)[0] or len(fits) == 1):
        if described:
            account.known[described] = best[0]
        return best[0]
    orders = account.user.get("orders")
    listed = f" Your orders are {', '.join(orders)}." if orders else ""
    return Move(
        "ask",
        f"Which order is it about? Please give me its number, or the names of its items.{listed}",
    )


def _address(form: Form, account: Account, order: Record) -> Move:
    parts = form.newest(details.address) or {}
    if missing := [part for part in ADDRESS if part not in parts]:
        return Move("ask", f"Please give me the whole new address, with {', '.join(missing)}.")
    if not order:
        return Move("write", "", USER_ADDRESS, {"user_id": account.user_id, **parts})
    if order["status"] != "pending":
        return _late(order, "changed")
    return Move("write", "", ORDER_ADDRESS, {"order_id": form.order_id, **parts})


def _cancel(form: Form, account: Account, order: Record) -> Move:
    # The status first: asking for a reason would promise what cannot be done.
    if order["status"] != "pending":
        return _late(order, "cancelled")
    reason = form.newest(details.reason)
    if not reason:
        return Move(
            "ask",
            "Why do you want to cancel: is it no longer needed, or was it ordered by mistake?",
        )
    if reason not in REASONS:
        return _refusal(
            f"order {form.order_id} cannot be cancelled for that reason: only if it is no longer"
            " needed or was ordered by mistake."
        )
    arguments = {"order_id": form.order_id, "reason": reason}
    return Move("write", "", CANCEL, arguments)


def _payment(form: Form, account: Account, order: Record) -> Move:
    if order["status"] != "pending":
        return _late(order, "changed")
    method = _method(form, account)
    if isinstance(method, Move):
        return method
    paid = order["payment_history"][0]
    if method == paid["payment_method_id"]:
        return Move(
            "ask",
            f"Order {form.order_id} is already paid with {method}. Which other payment method do"
            " you want?",
        )
    # The tool would say so as well, but only after the customer's yes.
    if (refusal := _too_small(account, method, paid["amount"])) is not None:
        return refusal
    arguments = {"order_id": form.order_id, "payment_method_id": method}
    return Move("write", "", PAYMENT, arguments)


# -- items ---------------------------------------------------------------------------------------


def _items(form: Form, account: Account, order: Record) -> Lookup:
    """A return, an exchange or a change of items. Gives a Move."""
    tool = TOOLS[form.kind].get(order["status"])
    if tool is None:
        return _late(order, "changed" if form.kind == "swap" else "returned")
    named, unclear = _named_items(form, order)
    if not named:
        usual = "Which items do you mean? Please name them with their options."
        return Move("ask", unclear or usual)
    arguments: Record = {
        "order_id": form.order_id,
        "item_ids": [item.item["item_id"] for item in named],
    }
    price = 0.0  # what new items cost more than the old ones
    if form.kind == "swap":
        variants = yield from _new_items(form, named)
        if isinstance(variants, Move):
            return variants
        arguments["new_item_ids"] = [variant["item_id"] for variant in variants]
        for item, variant in zip(named, variants, strict=True):
            price += variant["price"] - item.item["price"]
    method = _method(form, account, order)
    if isinstance(method, Move):
        return method
    if form.kind == "swap":
        refusal = _too_small(account, method, price)
    else:
        refusal = _wrong_refund(account, method, order)
    return refusal or Move("write", "", tool, {**arguments, "payment_method_id": method})


def _new_items(form: Form, named: list[item_reading.Named]) -> Lookup:
    """The variant that each item becomes, or a Move where one is unclear or cannot be had."""
    variants: list[Record] = []
    for item in named:
        product_id = item.item["product_id"]
        product = json.loads((yield use("get_product_details", product_id=product_id)))
        # All that was said, since options come in pieces.
        chosen = choose(item, product, form.texts)
        if not isinstance(chosen, str):
            variants.append(dict(chosen))
            continue
        # Asked only where nothing fits: a product's own options may hold another product's name.
        other = yield from _other_type(item)
        if other:
            return _refusal(
                f"I cannot do that: a {other} is another product, and only the options of an item"
                " can be changed."
            )
        if chosen.endswith("?"):
            return Move("ask", chosen)
        return Move("tell", f"{chosen} {ANYTHING_ELSE}")
    return variants


def _other_type(named: item_reading.Named) -> Lookup:
    """The name of another product that an item should become, "" where the customer wants none."""
    types: dict[str, str] = json.loads((yield use("list_all_product_types")))
    wanted, own_name = named.into.casefold(), named.item["name"]
    others = [
        name
        for name in types
        if name != own_name and item_reading.where(name.casefold(), wanted) >= 0
    ]
    # Not in this shop at all: any other name that stands behind an article.
    others += [
        name for name in _A_THING.findall(named.into) if name.casefold() != own_name.casefold()
    ]
    return max(others, key=len, default="")


def _named_items(form: Form, order: Record) -> tuple[list[item_reading.Named], str]:
    """The items of the newest text that names any, and what is unclear."""
    unclear = ""
    for text in reversed(form.texts):
        named, question = item_reading.items(text, order)
        if named and not question:
            return named, ""
        unclear = unclear or question
    # With a single item there is nothing to name.
    if len(order["items"]) == 1:
        into = item_reading.split(form.text)[1]
        return [item_reading.Named(order["items"][0], form.text, into)], ""
    return [], unclear


# -- money ---------------------------------------------------------------------------------------


def _method(form: Form, account: Account, order: Record | None = None) -> str | Move:
    """The payment method that the customer named, or what to say instead."""
    methods = account.methods
    readings = (details.method(text, methods) for text in reversed(form.texts))
    named = next((method for method in readings if method is not None), None)
    if named:
        return named
    # The method that paid can be meant only where there is an order.
    if named is None and order is not None and "original" in form.text.casefold():
        return str(order["payment_history"][0]["payment_method_id"])
    if named is None:
        return Move("ask", f"Which payment method shall I use? There are {', '.join(methods)}.")
    return _refusal(
        "I cannot use that payment method: it is not in your account, which has"
        f" {', '.join(methods)}."
    )


def _too_small(account: Account, method: str, amount: float) -> Move | None:
    """A refusal where a gift card does not cover an amount."""
    balance = account.methods[method].get("balance")
    if balance is None or balance >= amount:
        return None
    return _refusal(f"the gift card {method} holds {balance:.2f} and cannot cover {amount:.2f}.")


def _wrong_refund(account: Account, method: str, order: Record) -> Move | None:
    """A refusal where a refund may not go to this method."""
    paid = order["payment_history"][0]["payment_method_id"]
    if method == paid or account.methods[method]["source"] == "gift_card":
        return None
    return _refusal(
        f"a refund goes only to the method that paid ({paid}) or to a gift card of yours, so it"
        f" cannot go to {method}."
    )


def _late(order: Record, verb: str) -> Move:
    return _refusal(
        f"order {order['order_id']} cannot be {verb}, because its status is {order['status']}."
    )


def _refusal(why: str) -> Move:
    return Move("tell", f"I am sorry, {why} {ANYTHING_ELSE}")
