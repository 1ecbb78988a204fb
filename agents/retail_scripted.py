"""A careful assistant without a model that works only from the conversation: patterns on what the customer says, and the tools.

It identifies the customer first, serves one request at a time, reads the order before it acts, asks for a yes before every change, and
refuses what the policy forbids. It sees neither task nor solution.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gem_ma.agents.retail_talk import ADDRESS, EMAIL, EXCHANGE, METHOD, MODIFY, ORDER, Script, Scripted, change, is_yes, proposal, say, use

from gem_ma import Action

ANYTHING_ELSE = "Is there anything else I can do for you?"
_NAME = re.compile(r"(?:[Mm]y name is|I am|I'm|[Tt]his is)\s+([A-Z][\w'-]*)\s+([A-Z][\w'-]*)")
_POSTCODE = re.compile(r"(?<![\w#])\d{5}(?![\w])")
_ITEM = re.compile(r"([A-Z][^():+.]*?) \(([^()]*)\)(?: for one with \(([^()]*)\))?")
_PART = re.compile(r"\b(address1|address2|city|state|country|zip): ?([^;]*?)(?=;|\.?\s*$)")
_QUESTION = re.compile(r"\b(how (much|many)|what is|which|tracking)\b")
_KINDS = (  # the first that fits is meant
    ("address", re.compile(r"address1:|\b(change|update|modify|correct)\b.*\baddress\b")),
    ("swap", re.compile(r"\b(exchange|swap|replace)\b|\b(change|modify)\b.*\bitems?\b")),
    ("return", re.compile(r"\breturn\b")),
    ("cancel", re.compile(r"\bcancel\b")),
    ("payment", re.compile(r"\bpay\b|\bpayment\b")),
)
_REASON = re.compile(r"no longer needed|ordered by mistake|\bmistake\b|do(?:n't| not) need")
Serving = Generator[Action, str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """What a message asks for, as far as patterns can tell."""

    kind: str
    order_id: str = ""
    items: tuple[tuple[str, dict[str, str], dict[str, str]], ...] = ()  # name, options, options wanted instead
    address: Mapping[str, str] = field(default_factory=dict)
    text: str = ""


def understand(text: str) -> Request | None:
    """The request in a message, or None.

    >>> understand("Please cancel order #W1. The reason: ordered by mistake.").kind
    'cancel'
    """
    folded, order = text.casefold(), ORDER.search(text)
    order_id = order.group() if order else ""
    if "?" in text and _QUESTION.search(folded):
        return Request("question", order_id, text=text)
    for kind, pattern in _KINDS:
        if pattern.search(folded):
            items = tuple((name.strip(), _options(old), _options(new)) for name, old, new in _ITEM.findall(text))
            return Request(kind, order_id, items, dict(_PART.findall(text)), text)
    return None


def _options(text: str) -> dict[str, str]:
    pairs = (part.partition(": ") for part in text.split("; ") if part)
    return {name.strip(): value.strip() for name, _, value in pairs}


class RetailScripted(Scripted):
    """The careful scripted assistant."""

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__()
        self.user_id = ""
        self.user: dict[str, Any] = {}

    def script(self, heard: str) -> Script:
        heard = yield from self._identify(heard)
        while True:
            heard = yield from self._serve(heard)

    # -- who it is ----------------------------------------------------------------------------------------------------------

    def _identify(self, heard: str) -> Serving:
        """Finds the account; gives the message that is to be served."""
        told = heard
        while True:
            email, name, postcode = EMAIL.search(told), _NAME.search(told), _POSTCODE.search(told)
            found = "Error"
            if email:
                found = yield use("find_user_id_by_email", email=email.group())
            if found.startswith("Error") and name and postcode:
                found = yield use("find_user_id_by_name_zip", first_name=name.group(1), last_name=name.group(2), zip=postcode.group())
            if not found.startswith("Error"):
                self.user_id = found
                self.user = json.loads((yield use("get_user_details", user_id=found)))
                return heard if understand(heard) or not understand(told) else told
            told = yield say("I could not find your account yet. What is your e-mail address, or your full name and zip code?")

    # -- what is wanted -----------------------------------------------------------------------------------------------------

    def _serve(self, heard: str) -> Serving:
        """Serves the request in a message and gives the customer's next message."""
        request = understand(heard)
        if request is None:
            return (yield say("What can I do for you? Please tell me what you want and for which order."))
        if request.kind == "question":
            return (yield say(f"{(yield from self._answer(request))} {ANYTHING_ELSE}"))
        order: dict[str, Any] = {}
        if request.order_id:
            read = yield use("get_order_details", order_id=request.order_id)
            if read.startswith("Error"):
                return (yield say(f"I cannot find order {request.order_id}. Could you check its number?"))
            order = json.loads(read)
            if order["user_id"] != self.user_id:
                return (yield say(f"I am sorry, I cannot help with order {request.order_id}: it does not belong to your account."))
        elif request.kind != "address":
            return (yield say("Which order is it about? Please give me its number."))
        planned = yield from self._plan(request, order)
        if isinstance(planned, str):
            return (yield say(planned))
        kind, arguments = planned
        answer = yield say(proposal([change(kind, arguments)]))
        if not is_yes(answer):
            return answer
        result = yield use(kind, **arguments)
        if result.startswith("Error"):
            return (yield say(f"I am sorry, this is not possible: {result.removeprefix('Error: ')}. {ANYTHING_ELSE}"))
        return (yield say(f"This has been done. {ANYTHING_ELSE}"))

    def _plan(self, request: Request, order: Mapping[str, Any]) -> Generator[Action, str, tuple[str, dict[str, Any]] | str]:
        """The tool and its arguments, or what to say instead."""
        status, order_id = order.get("status", ""), request.order_id
        if request.kind == "address":
            if missing := [part for part in ADDRESS if part not in request.address]:
                return f"Please give me the whole new address, with {', '.join(missing)}."
            if not order:
                return "modify_user_address", {"user_id": self.user_id, **request.address}
            return ("modify_pending_order_address", {"order_id": order_id, **request.address}) if status == "pending" else _late(order, "changed")
        if request.kind == "cancel":
            reason = _REASON.search(request.text.casefold())
            if status != "pending":
                return _late(order, "cancelled")
            if reason is None:
                return "Why do you want to cancel: is it no longer needed, or was it ordered by mistake?"
            meant = "ordered by mistake" if "mistake" in reason.group() else "no longer needed"
            return "cancel_pending_order", {"order_id": order_id, "reason": meant}
        tools = {"swap": {"delivered": EXCHANGE, "pending": MODIFY}, "return": {"delivered": "return_delivered_order_items"}}
        tool = tools.get(request.kind, {"pending": "modify_pending_order_payment"}).get(status)
        if tool is None:
            return _late(order, {"swap": "changed", "return": "returned"}.get(request.kind, "changed"))
        method = self._method(request.text)
        if method is None:
            return f"Which payment method shall I use? There are {', '.join(self.user['payment_methods'])}."
        if request.kind == "payment":
            return tool, {"order_id": order_id, "payment_method_id": method}
        old, new = [], []
        for name, options, wanted in request.items:
            item = next((item for item in order["items"] if item["name"] == name and item["options"] == options and item["item_id"] not in old), None)
            if item is None:
                return f"I cannot find {name} with these options in order {order_id}. Which item do you mean?"
            old.append(item["item_id"])
            if request.kind == "swap":
                product = json.loads((yield use("get_product_details", product_id=item["product_id"])))
                meant_options = {**item["options"], **wanted}
                fits = [v["item_id"] for v in product["variants"].values() if v["available"] and v["options"] == meant_options]
                if not fits:
                    return f"I am sorry, {name} with these options is not available, so I cannot do that. {ANYTHING_ELSE}"
                new.append(fits[0])
        if not old:
            return "Which items do you mean? Please name them with their options."
        arguments: dict[str, Any] = {"order_id": order_id, "item_ids": old}
        if request.kind == "swap":
            arguments["new_item_ids"] = new
        return tool, {**arguments, "payment_method_id": method}

    def _method(self, text: str) -> str | None:
        """The payment method that a message names, if exactly one of the account's fits."""
        methods = self.user["payment_methods"]
        said, digits, folded = METHOD.search(text), re.search(r"ending in (\d{4})", text), text.casefold()
        if said and said.group() in methods:
            return said.group()
        source = next((s for s, words in (("gift_card", "gift card"), ("paypal", "paypal"), ("credit_card", "credit card")) if words in folded), "")
        fits = [key for key, entry in methods.items() if entry["source"] == source]
        if digits and source == "credit_card":
            fits = [key for key in fits if methods[key].get("last_four") == digits.group(1)]
        return fits[0] if len(fits) == 1 else None

    # -- questions ----------------------------------------------------------------------------------------------------------

    def _answer(self, request: Request) -> Serving:
        """The answer to a question, out of the tools."""
        folded = request.text.casefold()
        if request.order_id:
            read = yield use("get_order_details", order_id=request.order_id)
            if read.startswith("Error"):
                return f"I cannot find order {request.order_id}."
            order = json.loads(read)
            if order["user_id"] != self.user_id:
                return f"I am sorry, I cannot tell you about order {request.order_id}: it does not belong to your account."
            if "tracking" in folded:
                numbers = [number for sent in order["fulfillments"] for number in sent["tracking_id"]]
                return (
                    f"The tracking number is {', '.join(numbers)}." if numbers else "This order has not been sent yet, so it has no tracking number."
                )
            return f"You paid {order['payment_history'][0]['amount']:.2f} for this order."
        types: dict[str, str] = json.loads((yield use("list_all_product_types")))
        named = [product_id for name, product_id in types.items() if name.casefold() in folded]
        if not named:
            return "I am sorry, I do not know which product you mean."
        product = json.loads((yield use("get_product_details", product_id=named[0])))
        count = sum(variant["available"] for variant in product["variants"].values())
        return f"There are {count} variants of the {product['name']} available."


def _late(order: Mapping[str, Any], verb: str) -> str:
    return f"I am sorry, order {order['order_id']} cannot be {verb}, because its status is {order['status']}. {ANYTHING_ELSE}"
