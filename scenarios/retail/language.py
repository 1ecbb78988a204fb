"""Retail's phrasebook: how customers and assistants of a shop name writes, orders, items, payment methods and addresses.

Understanding is by ids or by words (product and options, `credit card ending in 1234`, the parts of an address); telling uses what a customer
has words for, so no item id, payment id or user id is ever said that the task does not give the customer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from itertools import permutations
from typing import Any

from gem_ma.scenarios.retail.words import PRODUCTS
from gem_ma.scenarios.service.phrases import MISSING, RIGHT, WRONG, Mention, Pick, fold, labelled, names, pairs, places, plain
from gem_ma.scenarios.service.task import Wish

CANCEL, RETURN = "cancel_pending_order", "return_delivered_order_items"
EXCHANGE, MODIFY = "exchange_delivered_order_items", "modify_pending_order_items"
PAYMENT, ORDER_ADDRESS, USER_ADDRESS = "modify_pending_order_payment", "modify_pending_order_address", "modify_user_address"
ADDRESS = ("address1", "address2", "city", "state", "country", "zip")
SWAPS = frozenset((EXCHANGE, MODIFY))
NONE: frozenset[str] = frozenset()
_MEANT = {  # intent of an impossible wish -> the writes that would serve it
    "cancel": frozenset((CANCEL,)),
    "return": frozenset((RETURN,)),
    "exchange": SWAPS,
    "modify": SWAPS,
    "payment": frozenset((PAYMENT,)),
    "address": frozenset((ORDER_ADDRESS,)),
    "default address": frozenset((USER_ADDRESS,)),
}

_CHANGE = r"(?:chang|modif|updat|switch|replac|correct|edit|set|amend|mov)\w*"
_ADDRESS_WRITE = re.compile(
    rf"\b{_CHANGE}\b[^.?!\n]{{0,60}}\baddress\b|\baddress\b[^.?!\n]{{0,60}}\b(?:{_CHANGE}|to:?)\b|\bnew (?:shipping |delivery |default )?address\b"
    r"|\b(?:ship|send|deliver|redirect|reroute)\w*\b[^.?!\n]{0,40}\bto\b[^.?!\n]{0,60}\binstead\b"
)
_PAYMENT_WRITE = re.compile(
    rf"\b{_CHANGE}\b[^.?!\n]{{0,40}}\bpayment\b|\bpayment(?: method)? (?:change|update|switch|modification)\b"
    r"|\b(?:pay|paid|paying|payment|charged?|bill)\b[^.?!\n]{0,60}\binstead\b"
    rf"|\bnew payment(?: method)?\b|\bpayment\b(?: method)?[^.?!\n]{{0,60}}\b{_CHANGE}"
)
_DIFFERENCE = re.compile(r"\b(?:difference|refund\w*)\b")
_CANCEL_VERB = re.compile(r"\bcancel(?:l?ing|l?ed|s|l?ation)?\b|\bcall off\b")
_RETURN_VERB = re.compile(
    r"\breturn(?:s|ed|ing)?\b(?! (?:label|instruction|shipping|process|policy|email|e-mail|address|window))|\bsend(?:ing)? (?:it |them )?back\b"
)
_SWAP_VERB = re.compile(r"\b(?:exchang\w*|swap\w*|replac\w*|trad(?:e|ing)|substitut\w*|switch\w*|upgrad\w*)\b")
_MODIFY_VERB = re.compile(
    r"(?<!following )(?<!this )(?<!these )(?<!that )(?<!the )(?<!any )(?<!your )(?<!of )\b(?:chang(?:e"
    r"|ing|es|ed)|modif\w*|updat\w*)\b(?! (?:my|your) mind)"
)
_REFUND = re.compile(r"\brefund\w*\b")
_STATUS = re.compile(r"\b(?:already|status(?: is|:)?|has been|was|is|non-)(?: now)? ?(?:cancel+ed|returned|exchanged|delivered)\b")

_ORDER = re.compile(r"(?<!\w)#?(W\d+)\b", re.IGNORECASE)
_METHOD_ID = re.compile(r"\b(?:credit_card|gift_card|paypal|debit_card)_\d+\b", re.IGNORECASE)
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_ZIP = re.compile(r"(?<![\w#$.,*-])\d{5}(?:-\d{4})?(?![\w*-]|[.,]\d)")
_OWN_ZIP = re.compile(r"(?<!; )\b(?:zip|postal|post ?code|postcode)\b\W*(?:code|area)?\W*(?:is|in|of|was|as|should be)?\W*$", re.IGNORECASE)
_ITEM = re.compile(r"(?<![\w#])\d{10}(?!\w)")
_DIGITS = re.compile(
    r"(?:ending(?: in| with)?:?|ends (?:in|with)|last (?:four|4)(?: digits)?(?: (?:are|is|of))?:?|\*{2,}"
    r"|x{3,}|•+|\.{3,}|…)[ -]*#?(\d{4})(?!\d)|\((?:\*+|\.+|x+)?(\d{4})\)",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?:\b[Mm]y (?:full )?name is|\b[Mm]y name's|\b[Tt]his is|\bI am|\bI'm|\b[Nn]ame:)\s+([A-Z][\w'-]+)\s+([A-Z][\w'-]+)")
_REASONS = {
    "no longer needed": re.compile(
        r"\bno longer (?:need|want|require)\w*|\b(?:do|did|does)(?:n't| not) (?:need|want) (?:it|them|this"
        r"|the order|that)\b|\bnot needed\b|\bunneeded\b"
    ),
    "ordered by mistake": re.compile(
        r"\bby (?:mistake|accident)\b|\bmistaken\w*|\baccident\w*|\border(?:ed|ing)? (?:it |them |this )?(?:in error"
        r"|wrong)|(?<!my )(?<!\ba )\bmistake\b"
    ),
}
_OLD = re.compile(
    r"(?:\bfrom|\binstead of|\brather than|\bcurrent\w*(?: payment)?(?: method)?(?: is|:)?|\boriginal\w*(?: payment)?(?: method)?(?: is|:|,)?"
    r"|\bprevious\w*|\bold|\b(?:was|were|originally|currently) paid (?:with|by|using|for)|\baway from|\breplac\w+|\bnot|\bwas on)\b"
    r"(?:(?!\b(?:to|with|using|use|for)\b)[^.;:\n,]){0,40}$"
)
_SOURCES = (
    ("paypal", re.compile(r"\bpay ?pal\b")),
    ("gift_card", re.compile(r"\bgift ?-?card\b")),
    ("credit_card", re.compile(r"\b(?:credit|debit)[ -]?card\b|\bvisa\b|\bmaster ?card\b|\bamex\b")),
)
_PAYS = (
    r"(?: (?:your|the|my|a|any))?(?: \w+)? ?(?:order|#|difference|credit|debit|card|visa|master|paypal|gift|account|original|price|refund|payment)"
)
_INTO = re.compile(
    r"->|=>|→|⇒|\b(?:in exchange for|exchanged? for|for|to|into|becomes?|replacement|desired|new(?: item| variant| version| one| kind)?)\b:?"
    rf"(?!{_PAYS})"
)
_WITH = re.compile(rf"\b(?:with|by|as)\b(?!{_PAYS})")
_BACK = re.compile(r"\b(?:instead of|rather than|in place of|replacing|replaces|in exchange for your)\b")
_EMPTY = re.compile(r"\b(?:the|an?|your|one|another|new|this|item|of|order|#w\d+)\b")
_EXTRA = re.compile(r"\b(?:apt|apartment|suite|ste|unit|flat|floor|house|studio|room|building|bldg)\b\.? ?#?[\w-]+")
# fmt: off
_STATES = {
    "al": "alabama", "ak": "alaska", "az": "arizona", "ar": "arkansas", "ca": "california", "co": "colorado", "ct": "connecticut",
    "de": "delaware", "fl": "florida", "ga": "georgia", "hi": "hawaii", "id": "idaho", "il": "illinois", "in": "indiana", "ia": "iowa",
    "ks": "kansas", "ky": "kentucky", "la": "louisiana", "me": "maine", "md": "maryland", "ma": "massachusetts", "mi": "michigan",
    "mn": "minnesota", "ms": "mississippi", "mo": "missouri", "mt": "montana", "ne": "nebraska", "nv": "nevada", "nh": "new hampshire",
    "nj": "new jersey", "nm": "new mexico", "ny": "new york", "nc": "north carolina", "nd": "north dakota", "oh": "ohio", "ok": "oklahoma",
    "or": "oregon", "pa": "pennsylvania", "ri": "rhode island", "sc": "south carolina", "sd": "south dakota", "tn": "tennessee", "tx": "texas",
    "ut": "utah", "vt": "vermont", "va": "virginia", "wa": "washington", "wv": "west virginia", "wi": "wisconsin", "wy": "wyoming",
    "dc": "district of columbia",
}
# fmt: on
_ABBREVIATED = {
    "street": "st",
    "avenue": "ave",
    "road": "rd",
    "drive": "dr",
    "lane": "ln",
    "court": "ct",
    "boulevard": "blvd",
    "place": "pl",
    "close": "cl",
    "square": "sq",
    "highway": "hwy",
    "parkway": "pkwy",
    "terrace": "ter",
    "suite": "ste",
    "apartment": "apt",
    "building": "bldg",
    "floor": "fl",
}  # fmt: skip
_COUNTRIES = {"usa": ("usa", "us", "u.s.", "u.s.a.", "united states", "united states of america", "america")}
_WHO = r"\bidentif\w*|\bverif\w*\b(?=[^.?!]*\b(?:you|account|identity|who)\b)|\bwho (?:am i|i am|i'm|are you|is this)\b"
_NAMES = (
    r"\b(?:your|full|first|last|family|the|account(?:holder)?(?:'s)?|and|or|my|customer(?:'s)?) (?:full |first |last |and )*names?\b(?! of\b)"
    r"|\bname (?:and|on|,|or)"
)


class RetailPhrasebook:
    """English of a shop's service desk. `products` are the shop's: name -> axis -> values; what they do not hold is read by labels and ids."""

    name = "retail"
    single = frozenset(("first_name", "last_name", "email", "zip"))
    anchors = frozenset(("order_id",))
    refusing = re.compile(
        r"\bno longer (?:be )?(?:cancel|return|chang|modif|exchang)\w*|\bonly (?:pending|delivered|be (?:cancel+ed"
        r"|modified|returned|exchanged|changed))\b"
        r"|\bcan only (?:cancel|modify|change|return|exchange|refund|process|be)\b|\bdo(?:n't| not) (?:carry"
        r"|sell|stock)\b|\bout of stock\b|\bsold out\b|\bno\b[^.?!]{0,60}\bexists?\b"
    )
    finished = re.compile(
        r"\b(?:was|were|is|are|been) (?:cancel+ed|returned|exchanged|modified|swapped|replaced)\b"
        r"|\b(?:i|we) (?:just |have |now |already |went ahead and )*(?:cancel+ed|exchanged|changed|updated|modified|processed"
        r"|submitted|switched|replaced|swapped|returned)\b"
        r"|^\W*(?:order|return|exchange|cancellation|address|payment|refund|request)\b[^.?!]{0,40}\b(?:cancel+ed"
        r"|confirmed|submitted|completed|updated)\W*$"
        r"|\b(?:return|exchange|cancellation|refund|change|update|modification)(?: request)? (?:is |was |has been |successfully )?"
        r"(?:submitted|processed|completed?|confirmed|done|requested)\b|^\W*cancel+ed\W*$"
    )
    states = re.compile(
        r"\b(?:has|have|had)(?: \w+)? been (?:delivered|shipped|sent|placed|paid|charged|pending)\b|\b(?:is|are) now (?:pending|delivered|shipped)\b"
    )
    asked: Mapping[str, re.Pattern[str]] = {
        "first_name": re.compile(rf"{_NAMES}|{_WHO}"),
        "last_name": re.compile(rf"{_NAMES}|{_WHO}"),
        "zip": re.compile(rf"^(?!.*\b(?:city|state|street|address1)\b).*\bzip\w*\b|\bpostal\b|\bpost ?code\b|{_WHO}"),
        "email": re.compile(rf"\be-?mail\b|{_WHO}"),
        "order_id": re.compile(
            r"\border (?:id|number|no\b|reference|code)s?|\bwhich orders?\b|\bwhat order\b|\b(?:number|id)s? of (?:the"
            r"|your|that|this) orders?\b|\bits number\b|\border\(s\)|\bfor which order\b"),
        "items": re.compile(
            r"\bwhich (?:items?|products?|ones?|articles?)\b|\bwhat items?\b|\b(?:the|which|all) items?(?: you"
            r"|\(s\)| to be)\b|\bitem (?:id|number|name)s?\b|\bwhich [\w -]{1,30}\b(?=[^?]*\bdo you mean\b)|\bwith their options\b"
            r"|\bwhat (?:would you like|do you want) to (?:return|exchange)\b|\bwhich of\b"),
        "wanted": re.compile(
            r"\b(?:what|which) (?:colou?r|size|material|options?|variants?|version|model|style|type|features?"
            r"|specifications?|new|kind)\b|\bwhat (?:would you like|do you want)\b[^?]*\b(?:instead|for|exchange)\b"
            r"|\bexchange (?:it|them) for\b|\bnew (?:item|option|variant)s?\b|\breplacement\b|\bpreferences?\b"),
        "method": re.compile(
            r"\bpayment method\b|\bmethod of payment\b|\b(?:which|what) (?:payment|card|method|account)\b|\bhow would you like (?:to pay"
            r"|to be refunded|the refund|to receive)\b|\bwhere (?:should|would|shall|do)\b[^?]*\brefund\w*\b|\bgift card or\b"
            r"|\bhow you(?:'d| would) like to (?:pay|be refunded|receive)\b"
            r"|\bpay (?:for )?(?:the|any)? ?(?:price )?difference\b|\brefund(?:ed)? (?:to|method)\b|\brefund\b[^?]*\bor (?:to )?(?:your"
            r"|the|a)\b[^?]*\b(?:card|account|paypal)\b"),
        "reason": re.compile(r"(?<!security )\breasons?\b|\bwhy\b|\bno longer needed\b.*\bor\b.*\bmistake\b|\bbecause of\b"),
        "address": re.compile(
            r"\bnew (?:(?!e-?mail)\w+ )?address\b|\bwhich address\b|\bwhat address\b|\b(?:the|full|whole|complete|correct"
            r"|shipping|delivery) (?:(?!e-?mail)\w+ )?address\b(?! (?:on file|change))|\baddress1\b|\bstreet\b|\bwhere (?:should"
            r"|shall|would|do)\b[^?]*\b(?:ship|send|deliver|go)\w*\b|\b(?:city|state)\b,? (?:and|state|zip)"),
    }  # fmt: skip
    reasons: Mapping[str, re.Pattern[str]] = {
        "order_status": re.compile(
            r"\bstatus\b|\b(?:already|has been|have been|was|is|are|been|being)\b[^.?!]{0,20}\b(?:deliver|ship"
            r"|process|cancel|sent|return|exchang)\w*|\b(?:non-|not |no longer |isn't |only |longer )pending\b"
            r"|\bonly (?:pending|delivered)\b|\bnot (?:yet )?(?:been )?delivered\b|\bnon-delivered\b|\btoo late\b"
            r"|\bon its way\b"),
        "not_yours": re.compile(
            r"\b(?:belong|own|yours|your account|another|someone|somebody|different (?:customer|account|user|person)"
            r"|other (?:customer|people|account)|privacy|not (?:your|yours|associated|linked)|under your)\w*"),
        "unavailable": re.compile(
            r"\b(?:not|isn't|aren't|no|un|none|currently|longer) ?(?:currently |longer )?(?:available|in stock"
            r"|offered|carried|sold)\b|\bout of stock\b|\bsold out\b|\bunavailable\b|\bdo(?:n't| not) (?:have"
            r"|carry|offer|sell)\b|\bno (?:such )?variant\b|\bdoes(?:n't| not) (?:exist|come)\b|\bno .{0,30}\bavailable\b"),
        "product_type": re.compile(
            r"\b(?:different|another|other) (?:product|type|kind|item)\w*|\bsame (?:product|type|kind|item)\b"
            r"|\bproduct type\b|\bonly (?:for|within)\b"),
        "cancel_reason": re.compile(r"\breasons?\b"),
        "payment_method": re.compile(r"\bpayment\b|\bmethod\b|\bgift card\b|\boriginal\b|\bcard\b|\bpaypal\b|\bon file\b|\bprofile\b"),
        "balance": re.compile(r"\bbalance\b|\bcover\b|\benough\b|\binsufficient\b|\bfunds\b|\bsufficient\b"),
        "once": re.compile(r"\bonce\b|\balready\b|\bagain\b|\bsecond\b|\btwice\b|\bone time\b|\bonly one\b|\bstatus\b|\brequested\b|\bmodified\b"),
        "beyond_tools": re.compile(r"\b(?:tool|able|ability|possible|policy|system|human|transfer|option|allowed)\w*"),
    }  # fmt: skip

    def __init__(self, products: Mapping[str, Mapping[str, Collection[str]]] | None = None) -> None:
        given = dict(PRODUCTS) if products is None else products
        self.products = {
            fold(name): {fold(axis): tuple(fold(value) for value in values) for axis, values in axes.items()} for name, axes in given.items()
        }

    # -- understanding ------------------------------------------------------------------------------------------------------

    def writes(self, sentence: str) -> frozenset[str]:
        found: set[str] = set()
        if _ADDRESS_WRITE.search(sentence):
            default = re.search(r"\b(?:default|account|profile|on file)\b", sentence) is not None
            order = re.search(r"\b(?:order|shipping|delivery|package|parcel)\b", sentence) is not None
            return frozenset(
                (USER_ADDRESS,) if default and not order else (ORDER_ADDRESS,) if order and not default else (USER_ADDRESS, ORDER_ADDRESS)
            )
        if _PAYMENT_WRITE.search(sentence) and not _DIFFERENCE.search(sentence):
            found.add(PAYMENT)
        if _CANCEL_VERB.search(sentence):
            found.add(CANCEL)
        if _RETURN_VERB.search(sentence) and not _SWAP_VERB.search(sentence):
            found.add(RETURN)
        if _SWAP_VERB.search(sentence) and PAYMENT not in found:
            found |= SWAPS
        if not found and _MODIFY_VERB.search(sentence):
            found |= SWAPS
        if not found and _REFUND.search(sentence) and re.search(r"\b(?:issue|process|initiate|request|submit)\w*\b", sentence):
            found |= {CANCEL, RETURN}
        return frozenset(found)

    def kinds(self, wish: Wish) -> frozenset[str]:
        if wish.writes:
            return frozenset((wish.kind,))
        if wish.kind != "impossible":
            return NONE
        return _MEANT.get(wish.intent) or self.writes(fold(wish.text))

    def mentions(self, text: str) -> tuple[Mention, ...]:
        return _mentions(text)

    def judge(self, wish: Wish, text: str) -> Mapping[str, str]:
        lines = "\n".join(fold(line) for line in text.replace("*", " ").replace("`", " ").replace("|", " , ").splitlines())
        verdicts: dict[str, str] = {}
        for name, value in wish.arguments.items():
            if name == "order_id":
                verdicts[name] = _order(str(value), text)
            elif name == "reason":
                verdicts[name] = _reason(str(value), lines)
            elif name == "payment_method_id":
                verdicts[name] = _method(wish, str(value), text, lines)
            elif name == "item_ids":
                verdicts |= self._items(wish, text, lines)
            elif name in ADDRESS:
                verdicts[name] = _address(name, str(value), lines)
        return verdicts

    # -- items --------------------------------------------------------------------------------------------------------------

    def _items(self, wish: Wish, text: str, lines: str) -> dict[str, str]:
        old, new = list(wish.arguments["item_ids"]), list(wish.arguments.get("new_item_ids", ()))
        keys: tuple[str, ...] = ("item_ids", "new_item_ids") if new else ("item_ids",)
        seen = [hit.group() for hit in _ITEM.finditer(text)] or [word for word in (*old, *new) if names(word, lines)]
        foreign = [item for item in seen if item not in old and item not in new]
        if foreign:
            if not new or not all(item in seen for item in old):
                return {keys[0]: WRONG} | ({keys[1]: MISSING} if new else {})
            return {keys[0]: RIGHT, keys[1]: WRONG}
        by_id = all(seen.count(item) >= min(old.count(item), 1) for item in old)
        if not new and by_id and seen:
            return {"item_ids": RIGHT}
        if new and by_id and all(item in seen for item in new):
            return dict.fromkeys(keys, RIGHT) if _paired(old, new, seen, text) else {keys[0]: RIGHT, keys[1]: WRONG}
        if "items" not in wish.words:
            return dict.fromkeys(keys, MISSING)
        return self._described(wish, keys, lines, seen)

    def _described(self, wish: Wish, keys: tuple[str, ...], lines: str, seen: list[str]) -> dict[str, str]:
        """The items of a wish in words: product, options, and what is wanted instead."""
        meant: dict[str, list[int]] = {}
        for place, item in enumerate(wish.words["items"]):
            meant.setdefault(fold(item.name), []).append(place)
        if any(
            names(other, lines) or names(f"{other}s", lines)
            for other in self.products
            if other not in meant and not any(other in name for name in meant)
        ):
            return {keys[0]: WRONG} | ({keys[1]: MISSING} if len(keys) > 1 else {})
        verdicts = dict.fromkeys(keys, RIGHT)
        for name, alike in meant.items():
            slices = _slices(name, lines)
            for key, verdict in zip(keys, self._matched(wish, name, alike, slices, seen, len(keys) > 1), strict=False):
                verdicts[key] = _worse(verdicts[key], verdict)
        return verdicts

    def _matched(self, wish: Wish, name: str, alike: list[int], slices: list[tuple[str, str]], seen: list[str], swap: bool) -> tuple[str, str]:
        if not slices:
            return MISSING, MISSING
        items, best = wish.words["items"], (WRONG, WRONG)
        if len(alike) == 1:
            slices = [("\n".join(old for old, _ in slices), "\n".join(new for _, new in slices if new))]
        if len(slices) < len(alike):
            first = items[alike[0]]
            if any((items[place].options, items[place].wanted) != (first.options, first.wanted) for place in alike):
                return MISSING, MISSING
            slices = [slices[0]] * len(alike)
        if len(slices) > len(alike):
            slices = [part for part in slices if part[1]] or slices
        if len(slices) > 5:
            return MISSING, MISSING
        for order in permutations(slices, len(alike)):
            old = new = RIGHT
            for place, (before, after) in zip(alike, order, strict=True):
                item = items[place]
                old = _worse(old, self._fits(name, item.options, (), before))
                if swap and wish.arguments["new_item_ids"][place] not in seen:
                    differs = [axis for axis in item.wanted if item.wanted[axis] != item.options.get(axis)]
                    new = _worse(new, self._fits(name, item.wanted, differs or list(item.wanted), after) if after else MISSING)
            best = min(best, (old, new), key=lambda both: (both.count(WRONG), both.count(MISSING)))
        return best

    def _fits(self, name: str, options: Mapping[str, Any], needed: Collection[str], text: str) -> str:
        """How a text describes a variant: WRONG where it says another value, MISSING where a needed value is not named."""
        verdict = RIGHT
        for axis, value in options.items():
            value, given = fold(str(value)), labelled(fold(axis), text)
            if given and all(value != other and not names(value, other) for other in given):
                return WRONG
            others = self.products.get(name, {}).get(fold(axis), ())
            present = _present((*others, value), text)
            if value not in present:
                shared = {fold(str(kept)) for kept in options.values()}
                if any(other in present and other not in shared for other in others):
                    return WRONG
                if axis in needed:
                    verdict = MISSING
        return verdict

    # -- telling ------------------------------------------------------------------------------------------------------------

    def details(self, wish: Wish) -> tuple[str, ...]:
        given = [] if wish.writes else ["text"]
        given += [name for name in ("order_id", "reason") if name in wish.arguments]
        given += ["items"] if wish.words.get("items") else []
        given += ["method"] if "payment_method_id" in wish.arguments else []
        given += ["address"] if "address1" in wish.arguments else []
        return tuple(given)

    def request(self, wish: Wish, details: Collection[str], pick: Pick) -> str:
        """The details are told in the order of the words below; a request without any still says what is wanted."""
        order = self._order_words(wish) if "order_id" in details else ""
        items = _listed(wish) if "items" in details else ""
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
            wanted = f"{where}: {items}." if items else f" something{where}."
            return pick("I want to return", "I would like to return", "Please let me return") + wanted + method
        if wish.kind in SWAPS:
            if wish.kind == EXCHANGE:
                lead = pick("I want to exchange", "I would like to exchange", "Please exchange") + (f" from {order}" if order else " something")
            else:
                lead = pick("I want to change", "I would like to change", "Please change") + (f" items of {order}" if order else " items of an order")
            return f"{lead}: {items}.{method}" if items else f"{lead}.{method}"
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
                pick("Please change the payment method", "I want to change the payment method", "I would like to change the payment method")
                + f" of {order or 'an order'}."
            )
        subject = f"the address of {order or 'an order'}" if wish.kind == ORDER_ADDRESS else "my default address"
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
            if not wish.writes or words.get("reason", wish.arguments["reason"]) == wish.arguments["reason"]:
                return pick("The reason:", "My reason:", "The reason is:") + f" {words.get('reason', wish.arguments['reason'])}."
            return pick("Any reason will do, say:", "Put down any reason, for example:") + f" {wish.arguments['reason']}."
        if slot == "method":
            if _any_method(wish):
                return "Any way of refund that is allowed suits me, the original payment method for example."
            if wish.kind == RETURN:
                return pick("Please refund it to", "Please put the refund on", "Please send the refund to") + f" {words['method']}."
            if wish.kind == PAYMENT or not wish.writes:
                return pick("I want to use", "Please use", "I would like to use") + f" {words['method']}."
            return (
                pick("Please use", "Please take", "Please put it on") + f" {words['method']}" + pick(" for the difference.", " for any difference.")
            )
        if slot == "items":
            verb = {"return": "return", "exchange": "exchange", "modify": "change the items"}.get(
                wish.intent or wish.kind.split("_")[0], "do this with"
            )
            return f"I want to {verb}: {_listed(wish)}{' for a ' + words['product'] if 'product' in words else ''}."
        return f"The new address is: {_labelled(wish.arguments)}." if slot == "address" else str(wish.text)

    def offered(self, wish: Wish, text: str) -> str:
        if _any_method(wish):
            methods = {mention.value for mention in self.mentions(text) if mention.slot == "payment_method_id"}
            allowed = [arguments["payment_method_id"] for arguments in (wish.arguments, *wish.choices) if "payment_method_id" in arguments]
            return next((f"Please use {method}." for method in allowed if method in methods), "")
        seen = [mention.value for mention in self.mentions(text) if mention.slot == "item_id"]
        for arguments in (wish.arguments, *wish.choices):
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
            said += [f"My {self.label(slot)} is {slots[slot]}." for slot in ("first_name", "last_name") if slot in slots]
        for slot, value in slots.items():
            if slot == "order_id":
                said.append(f"The order is {value}.")
            elif slot not in ("first_name", "last_name"):
                said.append(f"My {self.label(slot)} is {value}.")
        return " ".join(said)

    def label(self, slot: str) -> str:
        return _LABELS.get(slot, slot.replace("_", " "))

    def mistaken(self, slot: str, value: str) -> str:
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


@lru_cache(maxsize=512)
def _mentions(text: str) -> tuple[Mention, ...]:
    found: list[Mention] = []
    if any(char.isdigit() for char in text):
        found += [Mention("order_id", f"#{hit.group(1).upper()}", hit.start(), hit.end()) for hit in _ORDER.finditer(text)]
        found += [Mention("payment_method_id", hit.group().lower(), hit.start(), hit.end()) for hit in _METHOD_ID.finditer(text)]
        for hit in _ZIP.finditer(text):  # the customer's own, or a part of some address
            own = _OWN_ZIP.search(text[max(0, hit.start() - 40) : hit.start()])
            found.append(Mention("zip" if own else "postcode", hit.group(), hit.start(), hit.end()))
        found += [Mention("item_id", hit.group(), hit.start(), hit.end()) for hit in _ITEM.finditer(text)]
        found += [Mention("last_four", hit.group(1) or hit.group(2), hit.start(), hit.end()) for hit in _DIGITS.finditer(text)]
    if "@" in text:
        found += [Mention("email", hit.group().rstrip("."), hit.start(), hit.end()) for hit in _EMAIL.finditer(text)]
    if name := _NAME.search(text):
        found += [Mention(slot, name.group(part), name.start(part), name.end(part)) for part, slot in ((1, "first_name"), (2, "last_name"))]
    folded = plain(text)
    for reason, pattern in _REASONS.items():
        found += [Mention("reason", reason, hit.start(), hit.end()) for hit in pattern.finditer(folded)]
    return tuple(sorted(found, key=lambda mention: (mention.start, mention.end, mention.slot)))


def _worse(one: str, other: str) -> str:
    return WRONG if WRONG in (one, other) else MISSING if MISSING in (one, other) else RIGHT


def _order(value: str, text: str) -> str:
    found = {f"#{hit.group(1).upper()}" for hit in _ORDER.finditer(text)}
    if value.upper() in found:
        return RIGHT if len(found) == 1 else MISSING
    return WRONG if found else MISSING


def _reason(value: str, folded: str) -> str:
    found = {reason for reason, pattern in _REASONS.items() if pattern.search(folded)}
    if value not in _REASONS:
        return RIGHT if names(value, folded) else WRONG if found else MISSING
    if found == {value}:
        return RIGHT
    return MISSING if not found or value in found else WRONG


def _method(wish: Wish, value: str, text: str, lines: str) -> str:
    words, low = fold(str(wish.words.get("method", ""))), text.lower()
    digits = re.search(r"\d{4}$", words)
    own_digits = digits.group() if digits and words != value.lower() else ""
    source, ambiguous = value.rsplit("_", 1)[0], words == value.lower()
    found: list[tuple[int, str]] = []
    exact: list[tuple[int, str]] = []  # where an id or digits stand, and of which kind
    for hit in _METHOD_ID.finditer(low):
        found.append((hit.start(), RIGHT if hit.group() == value.lower() else WRONG))
        exact.append((hit.start(), hit.group().rsplit("_", 1)[0]))
    for hit in _DIGITS.finditer(low):
        verdict = RIGHT if (hit.group(1) or hit.group(2)) == own_digits else MISSING if ambiguous and source == "credit_card" else WRONG
        found.append((hit.start(), verdict))
        exact.append((hit.start(), "credit_card"))
    for name, pattern in _SOURCES:
        for hit in pattern.finditer(low):
            if any(kind == name and 0 <= start - hit.start() < 60 and "\n" not in low[hit.start() : start] for start, kind in exact):
                continue  # its id or its digits follow and say more
            found.append((hit.start(), WRONG if name != source else MISSING if ambiguous or own_digits else RIGHT))
    now = [verdict for start, verdict in found if not _OLD.search(low[max(0, start - 60) : start])]
    if wish.kind != PAYMENT and not now:
        now = [verdict for _, verdict in found]
    if RIGHT in now:
        return MISSING if WRONG in now else RIGHT
    return WRONG if WRONG in now else MISSING


def _address(name: str, value: str, lines: str) -> str:
    if not value.strip():
        street = _EXTRA.search(lines)
        given = [other for other in labelled(name, lines) if other not in ("none", "n/a", "-", "empty", "(none)", '""', "''")]
        return WRONG if given or (street and name == "address2" and "\n" not in street.group()) else RIGHT
    given = labelled(name, lines)
    if given:
        return RIGHT if any(_same(name, value, other) for other in given) else WRONG
    flat = _street(lines)
    if any(names(_street(form), flat) for form in _forms(name, value)):
        return RIGHT
    if name == "address2" and _EXTRA.search(lines):
        return WRONG
    if name == "zip":
        return WRONG if _ZIP.search(lines) else MISSING
    return WRONG if name in ("address1", "city") and _ZIP.search(lines) else MISSING


def _same(name: str, value: str, other: str) -> bool:
    return any(_street(form) == _street(other) for form in _forms(name, value))


def _forms(name: str, value: str) -> tuple[str, ...]:
    folded = fold(value)
    if name == "state":
        return tuple(form for pair in _STATES.items() if folded in pair for form in pair) or (folded,)
    return _COUNTRIES.get(folded, (folded,)) if name == "country" else (folded,)


def _street(text: str) -> str:
    """A folded text with short forms for the usual words of an address, and without full stops behind them."""
    return re.sub(
        r"[a-z]+\.?(?!\w)",
        lambda hit: _ABBREVIATED.get(hit.group().rstrip("."), hit.group() if hit.group()[:-1] not in _ABBREVIATED.values() else hit.group()[:-1]),
        text,
    )


def _paired(old: list[str], new: list[str], seen: list[str], text: str) -> bool:
    """Whether ids stand in a text in an order that joins each old item with its own new one; where the order says nothing, they may not be joined."""
    wanted = sorted(zip(old, new, strict=True))
    if len(wanted) == 1:
        first_new, first_old = seen.index(new[0]), seen.index(old[0])
        return first_old <= first_new or _BACK.search(fold(text)) is not None or "new" in fold(text)
    if set(old) & set(new):
        return sorted(zip(seen[::2], seen[1::2], strict=False)) == wanted
    marks = [(item, item in new) for number, item in enumerate(seen) if item not in seen[:number] or old.count(item) + new.count(item) > 1]
    joined = pairs(marks)
    return joined is not None and sorted(joined) == wanted


def _present(values: Collection[str], text: str) -> set[str]:
    """The values that stand in a text, longest first: `carbon steel` is not also `steel`."""
    found = set()
    for value in sorted(set(values), key=lambda value: (-len(value), value)):
        if value in text and names(value, text):
            found.add(value)
            text = text.replace(value, " ")
    return found


def _slices(name: str, lines: str) -> list[tuple[str, str]]:
    """What a text says of each item of a name: (of the one there is, of the one that replaces it)."""
    marks, found = places(name, lines), list[tuple[str, str]]()
    for number, (start, end) in enumerate(marks):
        stop = marks[number + 1][0] if number + 1 < len(marks) else len(lines)
        lead = re.split(r"[.;!?\n+]|\band\b(?= (?:the|your|an?)\b)", lines[marks[number - 1][1] if number else 0 : start])[-1]
        about = lines[end:stop]
        if number + 1 < len(marks) and re.search(r"[.;!?\n+]|\band\b", _outside(about)):
            about = re.split(r"(?:[.;!?\n+]|\band\b)(?=[^.;!?\n+]*$)", about)[0]  # the words before the next name belong to that one
        turned, back = _turn(lead), _BACK.search(lead)
        if back and found:
            found[-1] = (f"{lead[back.end() :]} {about}", found[-1][0])
        elif turned and found:
            found[-1] = (found[-1][0], f"{lead[turned[1] :]} {about}")
        elif turned and number + 1 < len(marks) and _BACK.search(about):
            found.append((f"{lead} {about}", ""))
        else:
            found.append(_halves(lead, about))
    return found


def _halves(lead: str, about: str) -> tuple[str, str]:
    """What is said around a name, parted into the old and the new."""
    back = _BACK.search(_outside(about))
    if back and re.search(r"\w", _EMPTY.sub(" ", about[back.end() :])):
        return about[back.end() :], f"{lead} {about[: back.start()]}"
    turn = _turn(about)
    if turn is None:
        return f"{lead} {about}", ""
    new = about[turn[1] :]
    return f"{lead} {about[: turn[0]]}", new if re.search(r"\w", _EMPTY.sub(" ", new)) else ""


def _turn(text: str) -> tuple[int, int] | None:
    """Where a text turns from the old to the new: at a word such as `for`, else at the only `with` or `by`."""
    outside = _outside(text)
    strong, weak = _INTO.search(outside), list(_WITH.finditer(outside))
    turn = strong or (weak[0] if len(weak) == 1 else None)
    return turn.span() if turn else None


def _outside(text: str) -> str:
    """The text with what stands in brackets blanked."""
    return re.sub(r"\([^()]*\)", lambda hit: "\0" * len(hit.group()), text)


def _labelled(address: Mapping[str, Any]) -> str:
    return "; ".join(f"{part}: {address[part]}" for part in ADDRESS)


def _any_method(wish: Wish) -> bool:
    """Whether the customer leaves the payment method open."""
    words = str(wish.words.get("method", ""))
    return bool(words) and words != wish.arguments.get("payment_method_id") and not words.startswith("my ")


_TIES = {"cheapest": ", the cheapest of them", "dearest": ", the most expensive of them", "any": ", any of them will do"}


def _listed(wish: Wish) -> str:
    return " + ".join(f"{item.name} ({_options(item.options)}){_instead(item)}" for item in wish.words["items"])


def _instead(item: Any) -> str:
    """What is wanted in place of an item: what it must be, what it had better be, and which of several."""
    if item.wanted is None:
        return ""
    liked = ", next ".join(f"{name}: {value}" for name, value in item.prefers)
    rule = _TIES.get(item.tie, "" if item.wanted.keys() == item.options.keys() else ", and apart from that as similar as possible")
    return f" for one with ({_options(item.wanted)}){', preferably ' + liked if liked else ''}{rule}"


def _options(options: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in options.items())


RETAIL = RetailPhrasebook()
