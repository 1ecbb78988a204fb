"""Retail's phrasebook: how customers and assistants of a shop name writes, orders, items, payment
methods and addresses.

Understanding is by ids or by words (product and options, `credit card ending in 1234`, the parts
of an address); telling uses what a customer has words for, so no item id, payment id or user id
is ever said that the task does not give the customer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from gem_ma.scenarios.retail import naming
from gem_ma.scenarios.retail.naming_items import items, strays
from gem_ma.scenarios.retail.products import PRODUCTS
from gem_ma.scenarios.retail.reasons import REASONS
from gem_ma.scenarios.service.desk.task import Wish
from gem_ma.scenarios.service.reading.phrases import MISSING, RIGHT, WRONG, Mention, Pick, fold

CANCEL, RETURN = "cancel_pending_order", "return_delivered_order_items"
EXCHANGE, MODIFY = "exchange_delivered_order_items", "modify_pending_order_items"
PAYMENT, ORDER_ADDRESS, USER_ADDRESS = (
    "modify_pending_order_payment",
    "modify_pending_order_address",
    "modify_user_address",
)
ADDRESS = ("address1", "address2", "city", "state", "country", "zip")
SWAPS = frozenset((EXCHANGE, MODIFY))
CHANGES = SWAPS | {PAYMENT, ORDER_ADDRESS, USER_ADDRESS}  # what "I can change that" may mean
NONE: frozenset[str] = frozenset()
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

# As many words as assistants use for a change. The gaps below are bounded and end with the
# sentence, so that no text makes the search slow.
_CHANGE = r"(?:chang|modif|updat|switch|replac|correct|edit|set|amend|mov)\w*"
_ADDRESS_WRITE = re.compile(
    rf"\b{_CHANGE}\b[^.?!\n]{{0,60}}\baddress(?:es)?\b"
    rf"|\baddress(?:es)?\b[^.?!\n]{{0,60}}\b(?:{_CHANGE}|to:?)\b"
    # `your new address` proposes the change without a verb.
    r"|\bnew (?:shipping |delivery |default )?address\b"
    r"|\b(?:ship|send|deliver|redirect|reroute)\w*\b[^.?!\n]{0,40}\bto\b[^.?!\n]{0,60}\binstead\b"
)
# `pay with PayPal instead` is a change of payment; `refund to PayPal` is not.
_PAYMENT_WRITE = re.compile(
    rf"\b{_CHANGE}\b[^.?!\n]{{0,40}}\bpayment\b|\bpayment(?: method)?"
    r" (?:change|update|switch|modification)\b"
    r"|\b(?:pay|paid|paying|payment|charged?|bill)\b[^.?!\n]{0,60}\binstead\b"
    rf"|\bnew payment(?: method)?\b|\bpayment\b(?: method)?[^.?!\n]{{0,60}}\b{_CHANGE}"
)
# A difference that goes to a card is part of a swap. Only where the payment itself was changed does
# a sentence that speaks of it count.
_PAYMENT_MADE = re.compile(
    r"\b(?:chang|switch|updat|mov)\w*\b[^.?!\n]{0,20}\bpayment\b"
    r"|\bpayment method\b[^.?!\n]{0,60}\b(?:has been|is now|was) (?:successfully"
    r" )?(?:changed|updated|switched)\b"
)
_DIFFERENCE = re.compile(r"\b(?:difference|refund\w*)\b")
_CANCEL_VERB = re.compile(r"\bcancel(?:l?ing|l?ed|s|l?ation)?\b|\bcall off\b")
# `return label` and `return policy` are no returns.
_RETURN_VERB = re.compile(
    r"\breturn(?:s|ed|ing)?\b(?!"
    r" (?:label|instruction|shipping|process|policy|email|e-mail|address|window))|\bsend(?:ing)?"
    r" (?:it |them )?back\b"
)
_SWAP_VERB = re.compile(
    r"\b(?:exchang\w*|swap\w*|replac\w*|trad(?:e|ing)|substitut\w*|switch\w*|upgrad\w*)\b"
)
# `following changes`, `two changes`: as nouns they say nothing about which write is meant.
# Lookbehinds have a fixed width, so each word stands for itself.
_MODIFY_VERB = re.compile(
    r"(?<!following )(?<!this )(?<!these )(?<!that )(?<!the )(?<!any )(?<!your )(?<!of )"
    r"(?<!two )(?<!three )(?<!both )\b(?:chang(?:e"
    r"|ing|es|ed)|modif\w*|updat\w*)\b(?! (?:my|your) mind)"
)
# `cancel only the kite` cancels less than an order, which no tool does.
_PART = re.compile(
    r"\bcancel\w*\b(?: (?:only|just)\b|[^.?!\n]{0,30}\b(?:items?|part|half) (?:of|from|in)\b)"
)
# `and your default address` changes more than the order's own.
_BOTH = re.compile(
    r"\b(?:and|also|plus)(?: also)?(?: your| the| my)? (?:default|account|profile)\b"
)
_ITEMS = re.compile(
    r"\b(?:items?|products?|articles?|variants?|options?|colou?rs?|sizes?|versions?|models?|styles?"
    r"|ones?|to"
    r" (?:an?|the))\b"
)
_REFUND = re.compile(r"\brefund\w*\b")

# Who asks `please verify your identity` asks for all of it.
# an identity that is asked for in general: by all of its parts, unless the sentence names one
_WHO = (
    r"^(?!.*\b(?:e-?mails?|zip\w*|postal|post"
    r" ?code|names?)\b).*(?:\bidentif\w*|\bverif\w*\b(?=[^.?!]{0,200}\b(?:you|account|identity"
    r"|who)\b)"
    r"|\bwho (?:am i|i am|i'm|are you|is this)\b)"
)
# `the name of the product` asks for no person's name.
_NAMES = (
    r"\b(?:your|full|first|last|family|the|account(?:holder)?(?:'s)?|and|or|my|customer(?:'s)?)"
    r" (?:full |first |last |and ){0,4}names?\b(?! of\b)"
    r"|\bname (?:and|on|,|or)"
)


class RetailPhrasebook:
    """English of a shop's service desk. `products` are the shop's: name -> axis -> values; what
    they do not hold is read by labels and ids."""

    name = "retail"
    # Of these there is one value a customer; a second one contradicts the first.
    single = frozenset(("first_name", "last_name", "email", "zip"))
    # What tells two wishes of one kind apart.
    anchors = frozenset(("order_id",))
    # Words in which only a shop refuses; general ones are in `reading.cues`.
    refusing = re.compile(
        r"\bno longer (?:be )?(?:cancel|return|chang|modif|exchang)\w*|\bonly"
        r" (?:pending|delivered|be (?:cancel+ed"
        r"|modified|returned|exchanged|changed))\b"
        r"|\bcan only (?:cancel|modify|change|return|exchange|refund|process|be)\b|\bdo(?:n't| not)"
        r" (?:carry"
        r"|sell|stock)\b|\bout of stock\b|\bsold out\b|\bno\b[^.?!]{0,60}\bexists?\b"
    )
    # What has been done, in a report. The verb must be a past one: `I will process` proposes.
    finished = re.compile(
        r"\b(?:was|were|is|are|been) (?:cancel+ed|returned|exchanged|modified|swapped|replaced)\b"
        r"|\b(?:i|we) (?:just |have |now |already |went ahead and"
        r" )*(?:cancel+ed|exchanged|changed|updated|modified|processed"
        r"|submitted|switched|replaced|swapped|returned)\b"
        r"|^\W*(?:order|return|exchange|cancellation|address|payment|refund"
        r"|request)\b[^.?!]{0,40}\b(?:cancel+ed"
        r"|confirmed|submitted|completed|updated)\W*$"
        r"|\b(?:return|exchange|cancellation|refund|change|update|modification)(?: request)? (?:is"
        r" |was |has been |successfully )?"
        r"(?:submitted|processed|completed?|confirmed|done|requested)\b|^\W*cancel+ed\W*$"
    )
    # The state of an order, said of what happened long ago: no claim of a write in this talk.
    states = re.compile(
        r"\b(?:has|have|had)(?: \w+)? been"
        r" (?:delivered|shipped|sent|placed|paid|charged|pending)\b|\b(?:is|are) now"
        r" (?:pending|delivered|shipped)\b"
    )
    asked: Mapping[str, re.Pattern[str]] = {
        "first_name": re.compile(rf"{_NAMES}|{_WHO}"),
        "last_name": re.compile(rf"{_NAMES}|{_WHO}"),
        # `city, state and zip` asks for an address, not for the zip code that identifies somebody.
        "zip": re.compile(rf"^(?!.*\b(?:city|state|street|address1)\b).*\bzip\w*\b|\bpostal\b"
            rf"|\bpost ?code\b|{_WHO}"),
        "email": re.compile(rf"\be-?mail\b|{_WHO}"),
        "order_id": re.compile(
            r"\border (?:id|number|no\b|reference|code)s?|\bwhich orders?\b|\bwhat order\b"
            r"|\b(?:number|id)s? of (?:the"
            r"|your|that|this) orders?\b|\bits number\b|\border\(s\)|\bfor which order\b"),
        "items": re.compile(
            r"\bwhich (?:items?|products?|ones?|articles?)\b|\bwhat items?\b|\b(?:the|which"
            r"|all) items?(?: you"
            r"|\(s\)| to be)\b|\bitem (?:id|number|name)s?\b|\bwhich (?=[\w -][^?]{0,160}\bdo you"
            r" mean\b)|\bwith their options\b"
            r"|\bwhat (?:would you like|do you want) to (?:return|exchange)\b|\bwhich of\b"),
        "wanted": re.compile(
            r"\b(?:what|which) (?:colou?r|size|material|options?|variants?|version|model|style|type"
            r"|features?"
            r"|specifications?|new|kind)\b|\bwhat (?:would you like"
            r"|do you want)\b[^?]{0,200}\b(?:instead|for|exchange)\b"
            r"|\bexchange (?:it|them) for\b|\bnew (?:item|option|variant)s?\b|\breplacement\b"
            r"|\bpreferences?\b"),
        "method": re.compile(
            r"\bpayment method\b|\bmethod of payment\b|\b(?:which|what) (?:payment|card|method"
            r"|account)\b|\bhow would you like (?:to pay"
            r"|to be refunded|the refund|to receive)\b|\bwhere (?:should|would|shall"
            r"|do)\b[^?]{0,200}\brefund\w*\b|\bgift card or\b"
            r"|\bhow you(?:'d| would) like to (?:pay|be refunded|receive)\b"
            r"|\bpay (?:for )?(?:the|any)? ?(?:price )?difference\b|\brefund(?:ed)? (?:to|method)\b"
            r"|\brefund\b[^?]{0,200}\bor (?:to )?(?:your"
            r"|the|a)\b[^?]{0,60}\b(?:card|account|paypal)\b"),
        # `security reasons` explains the assistant's own rules.
        "reason": re.compile(r"(?<!security )\breasons?\b|\bwhy\b|\bno longer"
            r" needed\b.{0,80}\bor\b.{0,80}\bmistake\b|\bbecause of\b"),
        "address": re.compile(
            r"\bnew (?:(?!e-?mail)\w+ )?address\b|\bwhich address\b|\bwhat address\b|\b(?:the|full"
            r"|whole|complete|correct"
            r"|shipping|delivery) (?:(?!e-?mail)\w+ )?address\b(?! (?:on file|change))|\baddress1\b"
            r"|\bstreet\b|\bwhere (?:should"
            r"|shall|would|do)\b[^?]{0,200}\b(?:ship|send|deliver|go)\w*\b|\b(?:city"
            r"|state)\b,? (?:and|state|zip)"),
    }  # fmt: skip
    reasons: Mapping[str, re.Pattern[str]] = REASONS

    def __init__(self, products: Mapping[str, Mapping[str, Collection[str]]] | None = None) -> None:
        given = dict(PRODUCTS) if products is None else products
        self.products = {
            fold(name): {
                fold(axis): tuple(fold(value) for value in values) for axis, values in axes.items()
            }
            for name, axes in given.items()
        }

        # Customers and models shorten `Garden Hose` to `hose`; read so only where nothing else is
        # called that.
        self.short = {name: found for name in self.products if (found := self._last_word(name))}

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
        found: set[str] = set()
        # An address first: `change`, `ship` and `update` are words of the other writes as well.
        if _ADDRESS_WRITE.search(sentence):
            default = re.search(r"\b(?:default|account|profile|on file)\b", sentence) is not None
            order = (
                re.search(r"\b(?:order|shipping|delivery|package|parcel)\b", sentence) is not None
            )
            return frozenset(
                # Which address, where the sentence does not say, stays open: either yes fits.
                (USER_ADDRESS,)
                if default and not order
                else (ORDER_ADDRESS,)
                if order and not default
                else (USER_ADDRESS, ORDER_ADDRESS)
            )
        if _PAYMENT_WRITE.search(sentence) and (
            not _DIFFERENCE.search(sentence) or _PAYMENT_MADE.search(sentence)
        ):
            found.add(PAYMENT)
        if _CANCEL_VERB.search(sentence):
            found.add(CANCEL)
        # `return the kite in exchange for a lantern` is an exchange.
        if _RETURN_VERB.search(sentence) and not _SWAP_VERB.search(sentence):
            found.add(RETURN)
        if _SWAP_VERB.search(sentence) and PAYMENT not in found:
            found |= SWAPS
        # A general verb decides only where no other one did; whether it speaks of items or not says
        # which kinds.
        if not found and _MODIFY_VERB.search(sentence):
            found |= SWAPS if self._of_items(sentence) else CHANGES
        # `I will process the refund` may follow a return or a cancellation.
        if (
            not found
            and _REFUND.search(sentence)
            and re.search(r"\b(?:issue|process|initiate|request|submit)\w*\b", sentence)
        ):
            found |= {CANCEL, RETURN}
        return frozenset(found)

    def _of_items(self, sentence: str) -> bool:
        """Whether a sentence speaks of items, by a general word or by the name of a product."""
        return _ITEMS.search(sentence) is not None or any(
            name in sentence for name in self.products
        )

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
                verdicts[name] = naming.address_part(name, str(value), lines)
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
        """How a text names items; where only the last words of their names stand there, wrongly
        only if it names values that are not theirs."""
        found, full = items(wish, text, lines, self.products), self._in_full(wish, lines)
        if full == lines or WRONG in found.values():
            return found
        # First as it stands, then with short names filled in; the second reading must not hide a
        # value that the first one found wrong.
        closer = items(wish, text, full, self.products)
        return (
            closer if WRONG not in closer.values() or strays(wish, lines, self.products) else found
        )

    def _in_full(self, wish: Wish, lines: str) -> str:
        """A folded text in which the last word of a product of the wish stands for its whole
        name, where no other thing is called so."""
        for item in wish.words.get("items", ()):
            short = self.short.get(fold(item.name))
            lines = short.sub(fold(item.name), lines) if short else lines
        return lines

    # -- items ------------------------------------------------------------------------------------

    def details(self, wish: Wish) -> tuple[str, ...]:
        given = [] if wish.writes else ["text"]
        given += [name for name in ("order_id", "reason") if name in wish.arguments]
        given += ["items"] if wish.words.get("items") else []
        given += ["method"] if "payment_method_id" in wish.arguments else []
        given += ["address"] if "address1" in wish.arguments else []
        return tuple(given)

    def request(self, wish: Wish, details: Collection[str], pick: Pick) -> str:
        """The details are told in the order of the words below; a request without any still says
        what is wanted."""
        order = self._order_words(wish) if "order_id" in details else ""
        listed = _listed(wish) if "items" in details else ""
        method = f" {self.detail(wish, 'method', pick)}" if "method" in details else ""
        if not wish.writes:
            return wish.text
        if wish.kind == CANCEL:
            reason = f" {self.detail(wish, 'reason', pick)}" if "reason" in details else ""
            return (
                pick(
                    f"Please cancel {order or 'an order of mine'}.",
                    f"I would like to cancel {order or 'an order'}.",
                    f"I want to cancel {order or 'one of my orders'}.",
                )
                + reason
            )
        if wish.kind == RETURN:
            where = f" from {order}" if order else ""
            wanted = f"{where}: {listed}." if listed else f" something{where}."
            return (
                pick("I want to return", "I would like to return", "Please let me return")
                + wanted
                + method
            )
        if wish.kind in SWAPS:
            if wish.kind == EXCHANGE:
                lead = pick("I want to exchange", "I would like to exchange", "Please exchange") + (
                    f" from {order}" if order else " something"
                )
            else:
                lead = pick("I want to change", "I would like to change", "Please change") + (
                    f" items of {order}" if order else " items of an order"
                )
            return f"{lead}: {listed}.{method}" if listed else f"{lead}.{method}"
        if wish.kind == PAYMENT:
            if "method" in details:
                return (
                    pick(
                        f"Please let me pay {order or 'my order'} with",
                        f"I want to pay {order or 'my order'} with",
                        f"I would like to pay {order or 'my order'} with",
                    )
                    + f" {wish.words['method']} instead."
                )
            return (
                pick(
                    "Please change the payment method",
                    "I want to change the payment method",
                    "I would like to change the payment method",
                )
                + f" of {order or 'an order'}."
            )
        subject = (
            f"the address of {order or 'an order'}"
            if wish.kind == ORDER_ADDRESS
            else "my default address"
        )
        lead = pick("Please change", "I want to change", "I would like to change") + f" {subject}"
        return f"{lead} to: {_labelled(wish.arguments)}." if "address" in details else f"{lead}."

    def detail(self, wish: Wish, slot: str, pick: Pick) -> str:
        slot = "items" if slot == "wanted" else slot
        if slot not in self.details(wish):
            return ""
        words = wish.words
        if slot == "order_id":
            return pick("It is", "It is about", "That is") + f" {self._order_words(wish)}."
        if slot == "reason":
            if (
                # The reason of an impossible wish is the customer's own words, so it is told as its
                # reason.
                not wish.writes
                or words.get("reason", wish.arguments["reason"]) == wish.arguments["reason"]
            ):
                return (
                    pick("The reason:", "My reason:", "The reason is:")
                    + f" {words.get('reason', wish.arguments['reason'])}."
                )
            return (
                pick("Any reason will do, say:", "Put down any reason, for example:")
                + f" {wish.arguments['reason']}."
            )
        if slot == "method":
            # The customer left it open, so the words must not sound like a choice.
            if _any_method(wish):
                return (
                    "Any way of refund that is allowed suits me, the original payment method for"
                    " example."
                )
            if wish.kind == RETURN:
                return (
                    pick(
                        "Please refund it to",
                        "Please put the refund on",
                        "Please send the refund to",
                    )
                    + f" {words['method']}."
                )
            if wish.kind == PAYMENT or not wish.writes:
                return (
                    pick("I want to use", "Please use", "I would like to use")
                    + f" {words['method']}."
                )
            return (
                pick("Please use", "Please take", "Please put it on")
                + f" {words['method']}"
                + pick(" for the difference.", " for any difference.")
            )
        if slot == "items":
            # `modify` has no verb that fits a sentence with items; other intents fall back on a
            # neutral one.
            verb = {"return": "return", "exchange": "exchange", "modify": "change the items"}.get(
                wish.intent or wish.kind.split("_")[0], "do this with"
            )
            return (
                f"I want to {verb}:"
                f" {_listed(wish)}{' for a ' + words['product'] if 'product' in words else ''}."
            )
        return (
            f"The new address is: {_labelled(wish.arguments)}."
            if slot == "address"
            else str(wish.text)
        )

    def offered(self, wish: Wish, text: str) -> str:
        if _any_method(wish):
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

    def _order_words(self, wish: Wish) -> str:
        return str(wish.words.get("order") or f"order {wish.arguments['order_id']}")

    def give(self, slots: Mapping[str, str], pick: Pick) -> str:
        said = []
        if "first_name" in slots and "last_name" in slots:
            said.append(f"My name is {slots['first_name']} {slots['last_name']}.")
        else:
            said += [
                f"My {self.label(slot)} is {slots[slot]}."
                for slot in ("first_name", "last_name")
                if slot in slots
            ]
        for slot, value in slots.items():
            if slot == "order_id":
                said.append(f"The order is {value}.")
            elif slot not in ("first_name", "last_name"):
                said.append(f"My {self.label(slot)} is {value}.")
        return " ".join(said)

    def label(self, slot: str) -> str:
        return _LABELS.get(slot, slot.replace("_", " "))

    def mistaken(self, slot: str, value: str) -> str:
        # With a digit wrong these find nobody, while a wrong order number may be another order.
        """Two digits swapped, the last ones that differ."""
        if slot not in ("zip", "email"):
            return ""
        for place in range(len(value) - 2, 0, -1):
            here, there = value[place], value[place + 1]
            if here != there and here.isdigit() and there.isdigit():
                return f"{value[:place]}{there}{here}{value[place + 2 :]}"
        return ""


_LABELS = {
    "zip": "zip code", "email": "e-mail address", "order_id": "order number", "payment_method_id": "payment method", "method": "payment method",
    "item_ids": "items", "new_item_ids": "new items", "items": "items", "wanted": "new items", "address1": "street", "address2": "flat or floor",
    "reason": "reason", "address": "address", "city": "city", "state": "state", "country": "country",
}  # fmt: skip


def _labelled(address: Mapping[str, Any]) -> str:
    return "; ".join(f"{part}: {address[part]}" for part in ADDRESS)


def _any_method(wish: Wish) -> bool:
    """Whether the customer leaves the payment method open."""
    words = str(wish.words.get("method", ""))
    # Left open is what is neither an id nor a thing the customer has.
    return (
        bool(words)
        and words != wish.arguments.get("payment_method_id")
        and not words.startswith("my ")
    )


_TIES = {
    "cheapest": ", the cheapest of them",
    "dearest": ", the most expensive of them",
    "any": ", any of them will do",
}


def _listed(wish: Wish) -> str:
    return " + ".join(
        f"{item.name} ({_options(item.options)}){_instead(item)}" for item in wish.words["items"]
    )


def _instead(item: Any) -> str:
    """What is wanted in place of an item: what it must be, what it had better be, and which of
    several."""
    if item.wanted is None:
        return ""
    liked = ", next ".join(f"{name}: {value}" for name, value in item.prefers)
    rule = _TIES.get(
        item.tie,
        # Nothing to add where all options are named.
        (
            ""
            if item.wanted.keys() == item.options.keys()
            else ", and apart from that as similar as possible"
        ),
    )
    return (
        f" for one with ({_options(item.wanted)}){', preferably ' + liked if liked else ''}{rule}"
    )


def _options(options: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in options.items())


RETAIL = RetailPhrasebook()
