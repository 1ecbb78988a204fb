"""Which kinds of writes a sentence of a shop's desk may speak of, told by its verbs.

A kind is the name of the shop's tool. Sentences come folded; what they name is read elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection

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
# `return label` and `return policy` are not returns.
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
_ITEMS = re.compile(
    r"\b(?:items?|products?|articles?|variants?|options?|colou?rs?|sizes?|versions?|models?|styles?"
    r"|ones?|to"
    r" (?:an?|the))\b"
)
_REFUND = re.compile(r"\brefund\w*\b")
# Which of the two addresses a sentence means.
_OF_ACCOUNT = re.compile(r"\b(?:default|account|profile|on file)\b")
_OF_ORDER = re.compile(r"\b(?:order|shipping|delivery|package|parcel)\b")
_REFUNDS = re.compile(r"\b(?:issue|process|initiate|request|submit)\w*\b")


def spoken_of(sentence: str, products: Collection[str]) -> frozenset[str]:
    """The kinds that a sentence may speak of; `products` are the folded names of the shop's."""
    # An address first: `change`, `ship` and `update` are words of the other writes as well.
    if _ADDRESS_WRITE.search(sentence):
        return _addresses(sentence)
    kinds: set[str] = set()
    if _PAYMENT_WRITE.search(sentence) and (
        not _DIFFERENCE.search(sentence) or _PAYMENT_MADE.search(sentence)
    ):
        kinds.add(PAYMENT)
    if _CANCEL_VERB.search(sentence):
        kinds.add(CANCEL)
    # `return the kite in exchange for a lantern` is an exchange.
    if _RETURN_VERB.search(sentence) and not _SWAP_VERB.search(sentence):
        kinds.add(RETURN)
    if _SWAP_VERB.search(sentence) and PAYMENT not in kinds:
        kinds |= SWAPS
    # A general verb decides only where no other one did; whether it speaks of items or not says
    # which kinds.
    if not kinds and _MODIFY_VERB.search(sentence):
        kinds |= SWAPS if _of_items(sentence, products) else CHANGES
    # `I will process the refund` may follow a return or a cancellation.
    if not kinds and _REFUND.search(sentence) and _REFUNDS.search(sentence):
        kinds |= {CANCEL, RETURN}
    return frozenset(kinds)


def _addresses(sentence: str) -> frozenset[str]:
    """Which address a change is of; one that the sentence does not tell apart may be either."""
    of_account = _OF_ACCOUNT.search(sentence) is not None
    of_order = _OF_ORDER.search(sentence) is not None
    if of_account and not of_order:
        return frozenset((USER_ADDRESS,))
    if of_order and not of_account:
        return frozenset((ORDER_ADDRESS,))
    return frozenset((USER_ADDRESS, ORDER_ADDRESS))


def _of_items(sentence: str, products: Collection[str]) -> bool:
    """Whether a sentence speaks of items, by a general word or by the name of a product."""
    return _ITEMS.search(sentence) is not None or any(name in sentence for name in products)
