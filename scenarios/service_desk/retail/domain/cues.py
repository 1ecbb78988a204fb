"""The words of a shop's desk, as patterns over folded text: ways to ask for something, to refuse,
and to report what was done.

General ones stand in `service.reading.cues`. Alternatives with open ends are bounded, so that no
text makes a search slow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Words in which only a shop refuses.
REFUSING = re.compile(
    r"\bno longer (?:be )?(?:cancel|return|chang|modif|exchang)\w*"
    r"|\bonly (?:pending|delivered|be (?:cancel+ed|modified|returned|exchanged|changed))\b"
    r"|\bcan only (?:cancel|modify|change|return|exchange|refund|process|be)\b"
    r"|\bdo(?:n't| not) (?:carry|sell|stock)\b|\bout of stock\b|\bsold out\b"
    r"|\bno\b[^.?!]{0,60}\bexists?\b"
)
# What has been done, in a report. The verb must be a past one: `I will process` proposes.
FINISHED = re.compile(
    r"\b(?:was|were|is|are|been) (?:cancel+ed|returned|exchanged|modified|swapped|replaced)\b"
    r"|\b(?:i|we) (?:just |have |now |already |went ahead and )*(?:cancel+ed|exchanged|changed"
    r"|updated|modified|processed|submitted|switched|replaced|swapped|returned)\b"
    r"|^\W*(?:order|return|exchange|cancellation|address|payment|refund"
    r"|request)\b[^.?!]{0,40}\b(?:cancel+ed|confirmed|submitted|completed|updated)\W*$"
    r"|\b(?:return|exchange|cancellation|refund|change|update|modification)(?: request)? (?:is "
    r"|was |has been |successfully )?(?:submitted|processed|completed?|confirmed|done"
    r"|requested)\b|^\W*cancel+ed\W*$"
)
# The state of an order, said of what happened long ago: no claim of a write in this talk.
STATES = re.compile(
    r"\b(?:has|have|had)(?: \w+)? been (?:delivered|shipped|sent|placed|paid|charged|pending)\b"
    r"|\b(?:is|are) now (?:pending|delivered|shipped)\b"
)

# An identity that is asked for in general, as in `please verify your identity`, is asked for by
# all of its parts, unless the sentence names one.
_WHO = (
    r"^(?!.*\b(?:e-?mails?|zip\w*|postal|post ?code|names?)\b).*(?:\bidentif\w*"
    r"|\bverif\w*\b(?=[^.?!]{0,200}\b(?:you|account|identity|who)\b)|\bwho (?:am i|i am|i'm|are"
    r" you|is this)\b)"
)
# `the name of the product` asks for no person's name.
_NAMES = (
    r"\b(?:your|full|first|last|family|the|account(?:holder)?(?:'s)?|and|or|my|customer(?:'s)?)"
    r" (?:full |first |last |and ){0,4}names?\b(?! of\b)|\bname (?:and|on|,|or)"
)
# slot -> the words by which it is asked for
ASKED: Mapping[str, re.Pattern[str]] = {
    "first_name": re.compile(rf"{_NAMES}|{_WHO}"),
    "last_name": re.compile(rf"{_NAMES}|{_WHO}"),
    # `city, state and zip` asks for an address, not for the zip code that identifies somebody.
    "zip": re.compile(
        r"^(?!.*\b(?:city|state|street|address1)\b).*\bzip\w*\b"
        rf"|\bpostal\b|\bpost ?code\b|{_WHO}"
    ),
    "email": re.compile(rf"\be-?mail\b|{_WHO}"),
    "order_id": re.compile(
        r"\border (?:id|number|no\b|reference|code)s?|\bwhich orders?\b|\bwhat order\b"
        r"|\b(?:number|id)s? of (?:the|your|that|this) orders?\b|\bits number\b|\border\(s\)"
        r"|\bfor which order\b"
    ),
    "items": re.compile(
        r"\bwhich (?:items?|products?|ones?|articles?)\b|\bwhat items?\b"
        r"|\b(?:the|which|all) items?(?: you|\(s\)| to be)\b|\bitem (?:id|number|name)s?\b"
        r"|\bwhich (?=[\w -][^?]{0,160}\bdo you mean\b)|\bwith their options\b"
        r"|\bwhat (?:would you like|do you want) to (?:return|exchange)\b|\bwhich of\b"
    ),
    "wanted": re.compile(
        r"\b(?:what|which) (?:colou?r|size|material|options?|variants?|version|model|style|type"
        r"|features?|specifications?|new|kind)\b"
        r"|\bwhat (?:would you like|do you want)\b[^?]{0,200}\b(?:instead|for|exchange)\b"
        r"|\bexchange (?:it|them) for\b|\bnew (?:item|option|variant)s?\b|\breplacement\b"
        r"|\bpreferences?\b"
    ),
    "method": re.compile(
        r"\bpayment method\b|\bmethod of payment\b"
        r"|\b(?:which|what) (?:payment|card|method|account)\b"
        r"|\bhow would you like (?:to pay|to be refunded|the refund|to receive)\b"
        r"|\bwhere (?:should|would|shall|do)\b[^?]{0,200}\brefund\w*\b|\bgift card or\b"
        r"|\bhow you(?:'d| would) like to (?:pay|be refunded|receive)\b"
        r"|\bpay (?:for )?(?:the|any)? ?(?:price )?difference\b|\brefund(?:ed)? (?:to|method)\b"
        r"|\brefund\b[^?]{0,200}\bor (?:to )?(?:your|the|a)\b[^?]{0,60}\b(?:card|account"
        r"|paypal)\b"
    ),
    # `security reasons` explains the assistant's own rules.
    "reason": re.compile(
        r"(?<!security )\breasons?\b|\bwhy\b"
        r"|\bno longer needed\b.{0,80}\bor\b.{0,80}\bmistake\b|\bbecause of\b"
    ),
    "address": re.compile(
        r"\bnew (?:(?!e-?mail)\w+ )?address\b|\bwhich address\b|\bwhat address\b"
        r"|\b(?:the|full|whole|complete|correct|shipping|delivery) (?:(?!e-?mail)\w+"
        r" )?address\b(?! (?:on file|change))|\baddress1\b|\bstreet\b"
        r"|\bwhere (?:should|shall|would|do)\b[^?]{0,200}\b(?:ship|send|deliver|go)\w*\b"
        r"|\b(?:city|state)\b,? (?:and|state|zip)"
    ),
}
