"""The reasons for which a shop refuses: the words that give one, the words that give it and no
other, and what has to be looked at first."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gem_ma.scenarios.service_desk.domain import CATALOGUE, FIND, PERSONAL, RECORD, Ground

# Wide: what is read here is whether a refusal gives a reason at all.
# in a text that refuses; they may be words of other reasons as well
REASONS: Mapping[str, re.Pattern[str]] = {
    "order_status": re.compile(
        r"\bstatus\b|\b(?:already|has|have|was|is|are|been|being|since|got"
        r"|'s)\b[^.?!]{0,20}\b(?:deliver|ship|process|cancel"
        r"|sent|return|exchang|dispatch|complet)\w*|\b(?:non-|not |no longer |isn't |only "
        r"|longer |still )pending\b"
        r"|\bonly (?:pending|delivered)\b|\b(?:not|[a-z]{2,6}n't"
        # `it has not been delivered yet` is about the status without the word.
        r"|never)\b[^.?!]{0,15}\b(?:delivered|arrived|shipped)\b|\bnon-delivered\b"
        r"|\btoo late\b|\b(?:on its|on the|under|in) (?:way|transit)\b|\b(?:past|left) (?:the"
        r"|our) (?:point|stage|warehouse)\b"
        r"|\bshipped\b|\bshows (?:as|up as)\b|\b(?:out for delivery|being prepared"
        r"|in processing)\b|\b(?:arrives?|delivered) first\b"
    ),
    "not_yours": re.compile(
        r"\b(?:belong|own|yours|your account|your profile|another|someone|somebody"
        r"|different (?:customer|account|user|person)"
        r"|other (?:customer|people|account|person)|privacy|not (?:your|yours|associated|linked)"
        # `n't` is written as the ending of a short word: `isn't yours`, `doesn't belong`.
        r"|[a-z]{2,6}n't (?:your|yours|associated|linked|one of yours)"
        r"|under your|your name|your orders|friend|account ?holder|the person who)\w*"
    ),
    "unavailable": re.compile(
        r"\b(?:not|isn't|aren't|no|un|none|currently|longer) ?(?:currently |longer "
        r"|right now )?(?:available|in stock"
        r"|offered|carried|sold|on offer|one)\b|\bout of stock\b|\bsold out\b|\bunavailable\b"
        r"|\b[a-z]{2,6}n't (?:seem to )?(?:have|carry|offer|sell|stock|make|see)\b"
        r"|\bnot (?:seem to )?(?:have|carry|offer|sell|stock|make)\b|\bno (?:such )?(?:variant"
        r"|version|match|stock)\b"
        # A bounded gap that may cross commas, for `no more of the red ones are left`.
        r"|\b(?:does|do)(?:n't| not) (?:exist|come)\b|\bno .{0,30}\b(?:available|left|in stock)\b"
        r"|\b(?:ran|run|are|is|all) out\b|\ball gone\b|\bback ?order\w*"
        r"|\b(?:isn't|is no|are no)\b[^.?!]{0,30}\bin stock\b|\bcombination\b|\bnone (?:left|of)\b"
    ),
    "product_type": re.compile(
        r"\b(?:different|another|other|separate) (?:product|type|kind|item|categor)\w*|\b(?:same"
        r"|within the) (?:product|type|kind|item|categor)\w*"
        r"|\bproduct type\b|\b(?:only|just) (?:for|within|swap|exchange|change)\b|\b(?:across"
        r"|between) (?:product|item|categor)\w*"
        r"|\b(?:altogether|entirely|completely) (?:different|new|other)\b"
        # `swap a kite for a lantern` says by its two articles that the kinds differ.
        r"|\bswap an? \w[\w -]{1,25} (?:for|into|to) an?\b|\binto an? \w+"
        r"|\b(?:isn't|not) an? (?:option|variant|version) of\b|\bnot the same\b"
    ),
    "cancel_reason": re.compile(
            r"\breasons?\b|\bgrounds?\b|\bno longer needed\b|\bordered by mistake\b"
            r"|\bby mistake\b"
    ),
    "payment_method": re.compile(
        r"\bpayment\b|\bmethod\b|\bgift card\b|\boriginal\w*\b|\bcard\b|\bpaypal\b|\bon file\b"
        r"|\bprofile\b|\bpaid with\b|\bwallet\b"
    ),
    "balance": re.compile(
        r"\bbalance\b|\bcover\w*\b|\benough\b|\b(?:in)?sufficient\w*\b|\bfunds\b|\bonly (?:has"
        r"|have|holds?|had|contains?|\$)|\bshort\b|\bless than\b"
        r"|\b(?:left|remaining)\b|\bmore than (?:what )?(?:is|the|your|it)\b"
    ),
    # `already` belongs to the status too, so this list says less than the one below.
    "once": re.compile(
        r"\bonce\b|\balready\b|\bagain\b|\bsecond\b|\btwice\b|\bone time\b|\bonly one\b"
        r"|\bstatus\b|\brequested\b|\bmodified\b|\banother (?:change|exchange"
        r"|modification|round)\b|\b(?:single|one) (?:change|exchange|modification)\b"
        r"|\bfurther (?:change|exchange|modification)s?\b|\bfirst (?:change|exchange)\b"
    ),
    "beyond_tools": re.compile(
            r"\b(?:tool|able|ability|possible|policy|system|human|transfer|option|allowed)\w*"
    ),
}  # fmt: skip

# Reasons that are often given together with another one, and do not contradict it.
_ORDER, _CARD = (
    frozenset(("order_status", "once")),
    frozenset(("payment_method", "balance", "not_yours")),
)
_ITEM = frozenset(("product_type", "unavailable"))
# Narrow: `GROUNDS` decides that a text gives one reason and no other.
# `named`: as the reason of this very case; one of them is enough to know that no other is meant
GROUNDS: Mapping[str, Ground] = {
    "order_status": Ground(
        re.compile(
            r"\b(?:its|the|order|current|whose)\b[^.?!,]{0,25}\bstatus\b"
            r"|\b(?:has|have|was|is|been|'s) (?:already |now |been |just ){0,6}(?:delivered|shipped"
            r"|processed|cancelled|dispatched)\b"
            r"|\b(?:no longer|not|[a-z]{2,6}n't) pending\b|\b(?:not"
            r"|[a-z]{2,6}n't) (?:yet )?(?:been )?delivered\b"
        ),
        # A cancellation for a bad reason is often refused by the status as well.
        _ORDER | {"cancel_reason"},
        # What has to be looked at first, by its role: the record itself, the person, or the
        # catalogue.
        frozenset((RECORD,)),
    ),
    "not_yours": Ground(
        re.compile(
            r"\b(?:does|do)(?:n't| not) belong\b|\bbelongs to (?:another|some|a different)\w*"
            r"|\b(?:not|[a-z]{2,6}n't) (?:one of )?(?:yours|your order|your own)\b"
            r"|\b(?:someone|somebody) else's\b|\b(?:another|different) customer\b"
            r"|\bunder (?:another|a different) account\b"
        ),
        _CARD,
        frozenset((RECORD, PERSONAL)),
    ),
    "unavailable": Ground(
        re.compile(
            r"\bsold out\b|\bout of stock\b|\b(?:is|are|it's"
            r"|that's) (?:currently )?(?:unavailable|not (?:currently )?(?:available"
            r"|in stock))\b"
        ),
        _ITEM,
        frozenset((CATALOGUE,)),
    ),
    "product_type": Ground(
        re.compile(
            r"\b(?:another|a different|different|other) (?:product|type|kind|categor)\w*"
            r"|\bsame (?:product|type|kind|categor)\w*|\bproduct type\b"
        ),
        _ITEM,
        frozenset((RECORD, CATALOGUE)),
    ),
    "cancel_reason": Ground(
        re.compile(
            r"\breason\b[^.?!,]{0,30}\b(?:not|[a-z]{2,6}n't|un|in)(?: an?)? ?(?:accept|valid"
            r"|allow|cover|qualif|recogni|enough|suffic)\w*"
            r"|\b(?:not|[a-z]{2,6}n't)(?: an?| one of the)? (?:accept|valid|allow|qualif"
            r"|recogni)\w* reasons?\b|\binvalid reason\b|\b(?:this|that|your) reason\b"
        ),
        frozenset(("cancel_reason",)),
        # The reason is the customer's own word, so knowing the customer is all that can be looked
        # at.
        frozenset((FIND, PERSONAL)),
    ),
    "payment_method": Ground(
        re.compile(
            r"\b(?:payment method|card|paypal)\b[^.?!,]{0,30}\b(?:cannot be used|can't be used"
            r"|(?:not|[a-z]{2,6}n't) (?:on file|in your|accept|valid|allow)\w*)"
            r"|\b(?:not|[a-z]{2,6}n't) on file\b|\boriginal payment\b"
        ),
        _CARD,
        frozenset((RECORD, PERSONAL)),
    ),
    "balance": Ground(
        re.compile(
            r"\bbalance\b[^.?!,]{0,40}\b(?:cover|enough|suffic|too (?:low|small)|insuffic|less"
            r"|short)\w*|\binsufficient\b|\b(?:not|[a-z]{2,6}n't) (?:fully )?cover\b"
        ),
        _CARD,
        frozenset((PERSONAL,)),
    ),
    "once": Ground(
        re.compile(
            r"\bonly (?:be \w+ |change \w+ )?once\b|\b(?:changed|modified"
            r"|exchanged) (?:only )?once\b|\ba second (?:time|change|exchange)\b|\btwice\b"
        ),
        _ORDER,
        frozenset((RECORD,)),
    ),
}  # fmt: skip
