"""Retail's phrasebook: how customers and assistants of a shop name writes, orders, items, payment
methods and addresses.

Understanding is by ids or by words (product and options, `credit card ending in 1234`, the parts
of an address). Kinds of writes are read in `kinds`, values in `naming` and `naming_items`; what a
customer says stands in `telling`, the patterns of the desk in `cues`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from gem_ma.scenarios.service_desk.desk.task import Wish
from gem_ma.scenarios.service_desk.reading.phrases import (
    DOUBTFUL,
    MISSING,
    RIGHT,
    WRONG,
    Mention,
    Pick,
    fold,
)
from gem_ma.scenarios.service_desk.retail.domain import cues, naming, telling
from gem_ma.scenarios.service_desk.retail.domain.kinds import (
    ADDRESS,
    CANCEL,
    NONE,
    ORDER_ADDRESS,
    PAYMENT,
    RETURN,
    SWAPS,
    USER_ADDRESS,
    spoken_of,
)
from gem_ma.scenarios.service_desk.retail.domain.naming import ITEM
from gem_ma.scenarios.service_desk.retail.domain.naming_addresses import address_part
from gem_ma.scenarios.service_desk.retail.domain.naming_items import items, names_others, strays
from gem_ma.scenarios.service_desk.retail.domain.products import PRODUCTS
from gem_ma.scenarios.service_desk.retail.domain.reasons import REASONS

# A refused wish has no tool of its own, but an assistant that proposes one of these speaks of it.
_MEANT = {  # intent of an impossible wish -> the writes that would serve it
    "cancel": frozenset((CANCEL,)),
    "return": frozenset((RETURN,)),
    "exchange": SWAPS,
    "modify": SWAPS,
    "payment": frozenset((PAYMENT,)),
    "address": frozenset((ORDER_ADDRESS,)),
    "default address": frozenset((USER_ADDRESS,)),
}
# `cancel only the kite` cancels less than an order, which no tool does.
_PART = re.compile(
    r"\bcancel\w*\b(?: (?:only|just)\b|[^.?!\n]{0,30}\b(?:items?|part|half) (?:of|from|in)\b)"
)
# `and your default address` changes more than the order's own.
_BOTH = re.compile(
    r"\b(?:and|also|plus)(?: also)?(?: your| the| my)? (?:default|account|profile)\b"
)


class RetailPhrasebook:
    """English of a shop's service desk. `products` are the shop's: name -> axis -> values; what
    they do not hold is read by labels and ids."""

    name = "retail"
    # Of these there is one value a customer; a second one contradicts the first.
    single = frozenset(("first_name", "last_name", "email", "zip"))
    # What tells two wishes of one kind apart.
    anchors = frozenset(("order_id",))
    refusing, finished, states = cues.REFUSING, cues.FINISHED, cues.STATES
    asked = cues.ASKED
    reasons: Mapping[str, re.Pattern[str]] = REASONS

    def __init__(self, products: Mapping[str, Mapping[str, Collection[str]]] | None = None) -> None:
        shelf = dict(PRODUCTS) if products is None else products
        self.products = {
            fold(name): {
                fold(axis): tuple(fold(value) for value in values) for axis, values in axes.items()
            }
            for name, axes in shelf.items()
        }
        # Customers and models shorten `Garden Hose` to `hose`; read so only where nothing else is
        # called that.
        last_words = {name: self._last_word(name) for name in self.products}
        self.short = {name: pattern for name, pattern in last_words.items() if pattern}

    def _last_word(self, name: str) -> re.Pattern[str] | None:
        """Where the last word of a product's name stands alone, None where it may mean something
        else."""
        before, _, last = name.rpartition(" ")
        options = (
            word
            for axes in self.products.values()
            for axis, values in axes.items()
            for word in (axis, *values)
        )
        if (
            not before
            or any(last in word for word in options)
            or sum(last in other for other in self.products) > 1
        ):
            return None
        # The plural's `s` stays in the text, since only what is matched is replaced.
        plural = "" if last.endswith("s") else "s?"
        return re.compile(
            rf"(?<!{re.escape(before)} )(?<![\w-]){re.escape(last)}(?={plural}(?![\w-]))"
        )

    # -- understanding ----------------------------------------------------------------------------

    def writes(self, sentence: str) -> frozenset[str]:
        return spoken_of(sentence, self.products)

    def kinds(self, wish: Wish) -> frozenset[str]:
        if wish.writes:
            return frozenset((wish.kind,))
        if wish.kind != "impossible":
            return NONE
        # The intent of the task decides where there is one; else its own text is read.
        return _MEANT.get(wish.intent) or self.writes(fold(wish.text))

    def mentions(self, text: str) -> tuple[Mention, ...]:
        return naming.mentions(text)

    def judge(self, wish: Wish, text: str) -> Mapping[str, str]:
        lines = "\n".join(
            # Marks of emphasis go, and a table's columns become a list.
            fold(line)
            for line in text.replace("*", " ").replace("`", " ").replace("|", " , ").splitlines()
        )
        verdicts: dict[str, str] = {}
        for name, value in wish.arguments.items():
            if name == "order_id":
                verdicts[name] = naming.order_id(str(value), text)
            elif name == "reason":
                verdicts[name] = naming.reason(str(value), lines)
            elif name == "payment_method_id":
                verdicts[name] = naming.method(wish, str(value), text)
            elif name == "item_ids":
                verdicts |= self._items(wish, text, lines)
            elif name in ADDRESS:
                verdicts[name] = address_part(name, str(value), lines)
        # `cancel the kite from order W1` names the order, but not all of it.
        if (
            _PART.search(lines)
            if wish.kind == CANCEL
            else _BOTH.search(lines)
            if wish.kind == ORDER_ADDRESS
            else None
        ) and verdicts["order_id"] == RIGHT:
            verdicts["order_id"] = MISSING  # of more, or less, than the order
        return verdicts

    def _items(self, wish: Wish, text: str, lines: str) -> dict[str, str]:
        """How a text names items. What an order of words tells is doubtful, where only the last
        words of their names stand there all the more; certain is what no item of the wish is."""
        full = self._in_full(wish, lines)
        verdicts = self._read_items(wish, text, lines, full)
        if RIGHT in verdicts.values() and len(set(verdicts.values())) == 1:
            return verdicts
        if names_others(wish, full, self.products):
            return {**verdicts, [*verdicts][-1]: WRONG}
        if WRONG in verdicts.values() and not ITEM.search(text):
            return {
                name: DOUBTFUL if verdict == WRONG else verdict
                for name, verdict in verdicts.items()
            }
        return verdicts

    def _read_items(self, wish: Wish, text: str, lines: str, full: str) -> dict[str, str]:
        verdicts = items(wish, text, lines, self.products)
        if full == lines or WRONG in verdicts.values():
            return verdicts
        # First as it stands, then with short names filled in; the second reading must not hide a
        # value that the first one found wrong.
        closer = items(wish, text, full, self.products)
        if WRONG not in closer.values() or strays(wish, lines, self.products):
            return closer
        return verdicts

    def _in_full(self, wish: Wish, lines: str) -> str:
        """A folded text in which the last word of a product of the wish stands for its whole
        name, where no other thing is called so."""
        for item in wish.words.get("items", ()):
            short = self.short.get(fold(item.name))
            lines = short.sub(fold(item.name), lines) if short else lines
        return lines

    def offered(self, wish: Wish, text: str) -> str:
        if telling.any_method(wish):
            methods = {
                mention.value
                for mention in self.mentions(text)
                if mention.slot == "payment_method_id"
            }
            # Offered one that is right, it takes that; it never asks for one that is not.
            allowed = [
                arguments["payment_method_id"]
                for arguments in (wish.arguments, *wish.choices)
                if "payment_method_id" in arguments
            ]
            return next((f"Please use {method}." for method in allowed if method in methods), "")
        seen = [mention.value for mention in self.mentions(text) if mention.slot == "item_id"]
        for arguments in (wish.arguments, *wish.choices):
            # Several right answers: the customer takes one that it was shown, and only where there
            # was a choice.
            new = [item for item in arguments.get("new_item_ids", ()) if item in seen]
            if new and any(item not in new and item not in arguments["item_ids"] for item in seen):
                return f"I take {' and '.join(new)}."
        return ""

    # -- telling ----------------------------------------------------------------------------------

    def details(self, wish: Wish) -> tuple[str, ...]:
        return telling.details(wish)

    def request(self, wish: Wish, details: Collection[str], pick: Pick) -> str:
        return telling.request(wish, details, pick)

    def detail(self, wish: Wish, slot: str, pick: Pick) -> str:
        return telling.detail(wish, slot, pick)

    def give(self, slots: Mapping[str, str], pick: Pick) -> str:
        return telling.give(slots)

    def label(self, slot: str) -> str:
        return telling.label(slot)

    def mistaken(self, slot: str, value: str) -> str:
        return telling.mistaken(slot, value)


RETAIL = RetailPhrasebook()
