"""A careful assistant without a model that works only from the conversation: patterns on what the
customer says, and the tools.

It identifies the customer first, reads the order before it acts, collects what is missing, asks
for a yes before every change, tells what was done, and refuses what the policy forbids. It sees
neither task nor solution. `retail_weaker.py` holds assistants that lack one of its cares.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gem_ma.agents import retail_answers as answers
from gem_ma.agents import retail_reading as reading
from gem_ma.agents.retail_choice import choose
from gem_ma.agents.retail_talk import (
    ADDRESS,
    EMAIL,
    EXCHANGE,
    MODIFY,
    Script,
    Scripted,
    change,
    proposal,
    say,
    use,
)
from gem_ma.scenarios.service.reading.answers import answer

from gem_ma import Action

ANYTHING_ELSE = "Is there anything else I can do for you?"
ONCE = "This can be done only once for an order, so tell me if more of its items should change."
_A_THING = re.compile(r"\b(?:an?|another|some)\s+([A-Z][\w-]*(?: [A-Z][\w-]*)*)")
TRIES = 5  # questions about one request before it is put aside
Record = dict[str, Any]
Step = Generator[Action, str, Any]


@dataclass(slots=True)
class Form:
    """One request and all that was said about it; the newest text counts."""

    kind: str
    texts: list[str]
    order_id: str = ""
    asked: int = 0

    def newest(self, read: Callable[[str], Any]) -> Any:
        """What the newest text that says anything says."""
        return next((found for found in map(read, reversed(self.texts)) if found), None)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about a form: `ask` for what is missing, `tell` an answer or a refusal, or
    `write` with these arguments."""

    how: str
    text: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


class RetailScripted(Scripted):
    """The careful scripted assistant."""

    def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
        super().__init__()
        self.rng = rng
        self.user_id = ""
        self.user: Record = {}
        self.forms: list[Form] = []
        self.last, self.human = "", 0  # the newest message, and how often a human was asked for
        self.known: dict[str, str] = {}  # orders by the words that the customer has for them

    def asks_human(self) -> bool:
        """Whether the customer asked for a human, about something that no tool does; a bare wish
        for one has to be said twice."""
        if not reading.wants_human(self.last):
            return False
        self.human += 1
        return self.human > 1 or len(self.last.split()) > 12

    def script(self, heard: str) -> Script:
        yield from self.identify(heard)
        while True:
            if not self.forms:
                if self.asks_human():
                    yield use(
                        "transfer_to_human_agents",
                        summary=f"The customer asks for what the tools cannot do: {self.last}",
                    )
                self.hear((yield say(f"What can I do for you? {answers.HINT}")))
                continue
            form = self.next_form()
            plan = yield from self.plan(form)
            yield from self.carry_out(form, plan)

    # -- who it is --------------------------------------------------------------------------------

    def identify(self, heard: str) -> Step:
        """Finds the account; what the customer said until then is taken as requests."""
        told, tried = heard, set[tuple[str, ...]]()
        while True:
            self.hear(heard)
            email, name, postcode = (
                EMAIL.search(told),
                reading.NAME.search(told),
                reading.POSTCODE.search(told),
            )
            ways: list[tuple[str, ...]] = [("email", email.group())] if email else []
            ways += (
                [("zip", name.group(1), name.group(2), postcode.group())]
                if name and postcode
                else []
            )
            for way in ways:
                if way in tried:
                    continue
                tried.add(way)
                if way[0] == "email":
                    found = yield use("find_user_id_by_email", email=way[1])
                else:
                    found = yield use(
                        "find_user_id_by_name_zip", first_name=way[1], last_name=way[2], zip=way[3]
                    )
                if not found.startswith("Error"):
                    self.user_id, self.user = (
                        found,
                        json.loads((yield use("get_user_details", user_id=found))),
                    )
                    return
            heard = yield say(
                "I could not find your account yet. What is your e-mail address, or your full name"
                " and zip code?"
            )
            told = f"{heard} {told}"  # the newest is found first

    # -- what is wanted ---------------------------------------------------------------------------

    def hear(self, heard: str, form: Form | None = None) -> None:
        """Takes a message as details of the form under way and as further requests."""
        self.last = heard
        found = reading.requests(heard)
        if form is not None:
            mine = [
                r
                for r in found
                if r.kind == form.kind
                and (not r.order_id or not form.order_id or r.order_id == form.order_id)
            ]
            if not found or mine:
                form.texts.append(mine[0].text if mine and len(found) > 1 else heard)
                found = [request for request in found if request not in mine]
            elif reading.changes_mind(heard) and form in self.forms:
                self.forms.remove(form)
        for request in found:
            same = next(
                (
                    f
                    for f in self.forms
                    if f.kind == request.kind
                    and f.order_id == request.order_id
                    and f.kind != "question"
                ),
                None,
            )
            if same is None:
                self.forms.append(Form(request.kind, [request.text], request.order_id))
            elif request.text not in same.texts:
                same.texts.append(request.text)

    def next_form(self) -> Form:
        """The first form, but changes of items last within an order: they close it for
        everything else."""
        for form in self.forms:
            later = any(
                other.kind != "swap"
                and other.kind != "question"
                and other.order_id == form.order_id
                for other in self.forms
            )
            if form.kind != "swap" or not form.order_id or not later:
                return form
        return self.forms[0]

    # -- planning ---------------------------------------------------------------------------------

    def plan(self, form: Form) -> Step:
        """What to do about a form, after looking at what it concerns. Gives a Plan."""
        order: Record = {}
        form.order_id = form.order_id or (reading.Request(form.kind, form.text).order_id)
        if form.kind == "question":
            if not form.order_id and reading.order_described(form.text):
                found = yield from self.find_order(form)
                form.order_id = found if isinstance(found, str) else ""
            return Plan(
                "tell",
                (yield from answers.answer(form.text, form.order_id, self.user_id, self.user)),
            )
        if not form.order_id and not (
            form.kind == "address" and "order" not in form.text.casefold()
        ):
            found = yield from self.find_order(form)
            if isinstance(found, Plan):
                return found
            form.order_id = found
        if form.order_id:
            read = yield use("get_order_details", order_id=form.order_id)
            if read.startswith("Error"):
                unknown, form.order_id = form.order_id, ""
                return Plan("ask", f"I cannot find an order {unknown}. Could you check its number?")
            order = json.loads(read)
            if order["user_id"] != self.user_id:
                return Plan(
                    "tell",
                    f"I am sorry, I cannot help with order {form.order_id}: it does not belong to"
                    " your account.",
                )
        planner = {
            "address": self.plan_address,
            "cancel": self.plan_cancel,
            "payment": self.plan_payment,
        }.get(form.kind)
        if planner is not None:
            return planner(form, order)
        return (yield from self.plan_items(form, order))

    def find_order(self, form: Form) -> Step:
        """The order that a customer without its number means: the only one that fits what was
        said. Gives an id or a Plan."""
        described = form.newest(reading.order_described) or ""
        if described and described in self.known:
            return self.known[described]
        fits = []
        wanted = {
            "cancel": ("pending",),
            "payment": ("pending",),
            "address": ("pending",),
            "return": ("delivered",),
            "swap": ("pending", "delivered"),
        }
        right = wanted.get(form.kind, ())
        for order_id in self.user.get("orders", ()):
            order = json.loads((yield use("get_order_details", order_id=order_id)))
            told = described or form.text
            named = sum(
                item["name"].casefold() in told.casefold()
                for item in {item["name"]: item for item in order["items"]}.values()
            )
            fits.append((named, not right or order["status"] in right, order_id))
        best = [
            order_id
            for named, fit, order_id in fits
            if (named, fit) == max((n, r) for n, r, _ in fits)
        ]
        if len(best) == 1 and (max(fits)[0] or len(fits) == 1):
            if described:
                self.known[described] = best[0]
            return best[0]
        listed = (
            f" Your orders are {', '.join(self.user['orders'])}." if self.user.get("orders") else ""
        )
        return Plan(
            "ask",
            "Which order is it about? Please give me its number, or the names of its"
            f" items.{listed}",
        )

    def plan_address(self, form: Form, order: Record) -> Plan:
        told = form.newest(reading.address) or {}
        if missing := [part for part in ADDRESS if part not in told]:
            return Plan("ask", f"Please give me the whole new address, with {', '.join(missing)}.")
        if not order:
            return Plan("write", "", "modify_user_address", {"user_id": self.user_id, **told})
        if order["status"] != "pending":
            return _late(order, "changed")
        return Plan(
            "write", "", "modify_pending_order_address", {"order_id": form.order_id, **told}
        )

    def plan_cancel(self, form: Form, order: Record) -> Plan:
        if order["status"] != "pending":
            return _late(order, "cancelled")
        told = form.newest(reading.reason)
        if not told:
            return Plan(
                "ask",
                "Why do you want to cancel: is it no longer needed, or was it ordered by mistake?",
            )
        if told not in ("no longer needed", "ordered by mistake"):
            text = (
                f"I am sorry, order {form.order_id} cannot be cancelled for that reason: only if it"
                " is no longer needed or was ordered by mistake."
            )
            return Plan("tell", f"{text} {ANYTHING_ELSE}")
        return Plan(
            "write", "", "cancel_pending_order", {"order_id": form.order_id, "reason": told}
        )

    def plan_payment(self, form: Form, order: Record) -> Plan:
        if order["status"] != "pending":
            return _late(order, "changed")
        method = self.method(form)
        if isinstance(method, Plan):
            return method
        paid = order["payment_history"][0]
        if method == paid["payment_method_id"]:
            return Plan(
                "ask",
                f"Order {form.order_id} is already paid with {method}. Which other payment method"
                " do you want?",
            )
        if (refusal := self.too_small(method, paid["amount"])) is not None:
            return refusal
        return Plan(
            "write",
            "",
            "modify_pending_order_payment",
            {"order_id": form.order_id, "payment_method_id": method},
        )

    def plan_items(self, form: Form, order: Record) -> Step:
        """A return, an exchange or a change of items."""
        tools = {
            "swap": {"delivered": EXCHANGE, "pending": MODIFY},
            "return": {"delivered": "return_delivered_order_items"},
        }
        tool = tools[form.kind].get(order["status"])
        if tool is None:
            return _late(order, "changed" if form.kind == "swap" else "returned")
        named, unclear = self.items(form, order)
        if not named:
            return Plan(
                "ask", unclear or "Which items do you mean? Please name them with their options."
            )
        old, new, price = [named_item.item["item_id"] for named_item in named], [], 0.0
        if form.kind == "swap":
            for one in named:
                product = json.loads(
                    (yield use("get_product_details", product_id=one.item["product_id"]))
                )
                chosen = choose(one, product, form.texts)
                if isinstance(chosen, str):
                    other = yield from self.other_type(one)
                    if other:
                        text = (
                            f"I am sorry, I cannot do that: a {other} is another product, and only"
                            " the options of an item can be changed."
                        )
                        return Plan("tell", f"{text} {ANYTHING_ELSE}")
                    return Plan(
                        "ask" if chosen.endswith("?") else "tell",
                        chosen if chosen.endswith("?") else f"{chosen} {ANYTHING_ELSE}",
                    )
                new.append(chosen["item_id"])
                price += chosen["price"] - one.item["price"]
        method = self.method(form, order)
        if isinstance(method, Plan):
            return method
        arguments: Record = {"order_id": form.order_id, "item_ids": old}
        if form.kind == "swap":
            arguments["new_item_ids"] = new
            if (refusal := self.too_small(method, price)) is not None:
                return refusal
        elif (
            method != order["payment_history"][0]["payment_method_id"]
            and self.user["payment_methods"][method]["source"] != "gift_card"
        ):
            paid = order["payment_history"][0]["payment_method_id"]
            text = (
                f"I am sorry, a refund goes only to the method that paid ({paid}) or to a gift card"
                f" of yours, so it cannot go to {method}."
            )
            return Plan("tell", f"{text} {ANYTHING_ELSE}")
        return Plan("write", "", tool, {**arguments, "payment_method_id": method})

    def other_type(self, named: reading.Named) -> Step:
        """The name of another product that an item should become, "" where the customer wants
        none."""
        types: dict[str, str] = json.loads((yield use("list_all_product_types")))
        wanted = named.into.casefold()
        found = [
            name
            for name in types
            if name != named.item["name"] and reading.where(name.casefold(), wanted) >= 0
        ]
        # not in this shop at all
        found += [
            name
            for name in _A_THING.findall(named.into)
            if name.casefold() != named.item["name"].casefold()
        ]
        return max(found, key=len, default="")

    def items(self, form: Form, order: Record) -> tuple[list[reading.Named], str]:
        """The items of the newest text that names any, and what is unclear."""
        unclear = ""
        for text in reversed(form.texts):
            named, question = reading.items(text, order)
            if named and not question:
                return named, ""
            unclear = unclear or question
        if len(order["items"]) == 1:
            return [reading.Named(order["items"][0], form.text, reading.split(form.text)[1])], ""
        return [], unclear

    def method(self, form: Form, order: Record | None = None) -> str | Plan:
        """The payment method that the customer named, or what to say instead."""
        methods = self.user["payment_methods"]
        told = next(
            (
                found
                for found in (reading.method(text, methods) for text in reversed(form.texts))
                if found is not None
            ),
            None,
        )
        if told:
            return told
        if told is None and order is not None and "original" in form.text.casefold():
            return str(order["payment_history"][0]["payment_method_id"])
        if told is None:
            return Plan("ask", f"Which payment method shall I use? There are {', '.join(methods)}.")
        return Plan(
            "tell",
            "I am sorry, I cannot use that payment method: it is not in your account, which has"
            f" {', '.join(methods)}. {ANYTHING_ELSE}",
        )

    def too_small(self, method: str, amount: float) -> Plan | None:
        """A refusal where a gift card does not cover an amount."""
        balance = self.user["payment_methods"][method].get("balance")
        if balance is None or balance >= amount:
            return None
        return Plan(
            "tell",
            f"I am sorry, the gift card {method} holds {balance:.2f} and cannot cover {amount:.2f}."
            f" {ANYTHING_ELSE}",
        )

    # -- acting -----------------------------------------------------------------------------------

    def carry_out(self, form: Form, plan: Plan) -> Step:
        """Asks, tells, or proposes and writes; takes in what the customer answers."""
        if plan.how == "ask":
            form.asked += 1
            if form.asked > TRIES:
                self.forms.remove(form)
                self.hear(
                    (yield say(f"I am sorry, I could not find out what you want. {ANYTHING_ELSE}"))
                )
                return
            self.hear((yield say(plan.text)), form)
        elif plan.how == "tell":
            self.forms.remove(form)
            self.hear(
                (
                    yield say(
                        plan.text if plan.text.endswith("?") else f"{plan.text} {ANYTHING_ELSE}"
                    )
                )
            )
        else:
            yield from self.propose(form, plan)

    def propose(self, form: Form, plan: Plan) -> Step:
        """Asks for a yes to one write and makes it."""
        once = f" {ONCE}" if form.kind == "swap" else ""
        heard = yield say(f"{proposal([change(plan.tool, plan.arguments)])}{once}")
        if answer(heard) != "yes":
            form.asked += 1
            if form.asked > TRIES:
                self.forms.remove(form)
            self.hear(heard, form)
            return
        yield from self.write(form, plan, heard)

    def write(self, form: Form, plan: Plan, heard: str) -> Step:
        """Makes an agreed write and tells what came of it."""
        self.forms.remove(form)
        self.hear_more(heard)
        result = yield use(plan.tool, **plan.arguments)
        if result.startswith("Error"):
            text = f"I am sorry, this is not possible: {result.removeprefix('Error: ')}."
        else:
            text = f"This has been done: {change(plan.tool, plan.arguments)}."
            if plan.tool == "modify_user_address":
                self.user = json.loads(result)
        self.hear((yield say(f"{text} {ANYTHING_ELSE}")))

    def hear_more(self, heard: str) -> None:
        """Requests that come with a yes; what repeats the agreed one is none."""
        for request in reading.requests(heard)[1:]:
            self.forms.append(Form(request.kind, [request.text], request.order_id))


def _late(order: Record, verb: str) -> Plan:
    text = (
        f"I am sorry, order {order['order_id']} cannot be {verb}, because its status is"
        f" {order['status']}."
    )
    return Plan("tell", f"{text} {ANYTHING_ELSE}")
