"""A task as units of its situation: all that its customer knows and wants, and nothing else.
Written and read back by `situations.BANK`."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from gem_ma.scenarios.service_desk.desk.task import Slot, Task, Wish
from gem_ma.scenarios.service_desk.reading.sentences import Unit
from gem_ma.scenarios.service_desk.retail.domain.kinds import ADDRESS
from gem_ma.scenarios.service_desk.retail.shop.intents import ANY_METHOD, ANY_REASON
from gem_ma.scenarios.service_desk.retail.shop.situation_sentences import STARTS
from gem_ma.scenarios.service_desk.retail.shop.situations import BANK


def units_of(knowledge: Sequence[Slot], wishes: Sequence[Wish]) -> list[Unit]:
    """Who the customer is, what it has forgotten, and what it wants, in this order."""
    known = {slot.name: slot.value for slot in knowledge if slot.known}
    forgotten = {slot.name for slot in knowledge if not slot.known}
    # The user id is not among them: no customer knows it, and `audit` looks for it in the text.
    who = {"name": f"{known['first_name']} {known['last_name']}"} | {
        name: known[name] for name in ("email", "zip") if name in known
    }
    units: list[Unit] = [
        ("who_" + ("both" if len(who) == 3 else "email" if "email" in who else "zip"), who)
    ]
    units += [(f"forgot_{name}", {}) for name in ("email", "zip") if name in forgotten]
    # An order whose number is forgotten is named by what is in it, in the same words at each wish;
    # so the sentence about the lost number stands once.
    lost = {slot.value for slot in knowledge if slot.name == "order_id" and not slot.known}
    words = {
        wish.arguments["order_id"]: wish.words["order"]
        for wish in every(wishes)
        if wish.arguments.get("order_id") in lost
    }
    units += [("forgot_order", {"order": said}) for said in words.values()]
    for wish in wishes:
        units += _wanted(wish)
    return units


def situation(
    knowledge: Sequence[Slot], wishes: Sequence[Wish], rng: random.Random, held_out: bool
) -> str:
    """The situation as the customer is told it."""
    return BANK.write(units_of(knowledge, wishes), rng, STARTS, held_out)


def audit(task: Task) -> str:
    """What is wrong with the text of a task: it does not say what its fields say, or it names
    what the customer cannot know."""
    read = BANK.read(task.instruction)
    if isinstance(read, str):
        return f"no sentence of the bank: {read}"
    # Exact equality, order included. The text is the only thing that a played customer gets, so
    # what it does not say or says twice is a fault of the task.
    if read != units_of(task.knowledge, task.wishes):
        return "read back, the text says something else than the task"
    for slot in task.knowledge:
        if slot.known != (slot.value in task.instruction):
            return (
                f"{slot.name} {slot.value} is"
                f" {'missing' if slot.known else 'told although forgotten'}"
            )
    # Ids that only the tools show. A customer who says one would have it from nowhere.
    hidden = [task.user_id]
    for wish in every(task.wishes):
        arguments = wish.arguments
        hidden += [
            *arguments.get("item_ids", ()),
            *arguments.get("new_item_ids", ()),
            arguments.get("payment_method_id", task.user_id),
        ]
    hidden += [
        call.arguments["product_id"] for call in task.actions if "product_id" in call.arguments
    ]
    return next(
        (
            f"the text holds {value}, which no customer knows"
            for value in hidden
            if value in task.instruction
        ),
        "",
    )


def every(wishes: Iterable[Wish]) -> Iterable[Wish]:
    """All wishes with those that stand inside them."""
    for wish in wishes:
        yield wish
        yield from every(
            [inner for inner in (wish.before_change, wish.instead) if inner is not None]
        )


def _wanted(wish: Wish) -> list[Unit]:
    units: list[Unit] = []
    if wish.before_change is not None:
        # What it wants first comes first in the text too; the sentence of second thoughts divides
        # them.
        units += [*_asked(wish.before_change), ("mind", {})]
    units += _asked(wish)
    # A hand-over ends the talk, so nothing can be wanted after it.
    if wish.kind == "impossible" and wish.reason != "beyond_tools":
        units += (
            [("accept", {})]
            if wish.instead is None
            else [("otherwise", {}), *_wanted(wish.instead)]
        )
    return units


def _asked(wish: Wish) -> list[Unit]:
    """One request, without what comes before or after it."""
    words, key = wish.words, wish.intent
    # Keys are left out and not empty: a bank reads back only the fields that its sentence has.
    order = {"order": words["order"]} if "order" in words else {}
    items = {"items": words["items"]} if "items" in words else {}
    if key == "cancel":
        units: list[Unit] = [
            (
                ("cancel", order | {"reason": words["reason"]})
                if words["reason"] != ANY_REASON
                else ("cancel_any", order)
            )
        ]
    elif key == "return":
        units = [
            (key, order | items),
            (
                ("refund", {"method": words["method"]})
                if words["method"] != ANY_METHOD
                else ("refund_any", {})
            ),
        ]
    elif key in ("exchange", "modify"):
        other = {"product": words["product"]} if "product" in words else {}
        units = [
            (f"{key}_other" if other else key, order | items | other),
            ("difference", {"method": words["method"]}),
        ]
    elif key in ("address", "default_address"):
        units = [(key, order | {"address": {name: wish.arguments[name] for name in ADDRESS}})]
    elif key == "payment":
        units = [(key, order | {"method": words["method"]})]
    else:
        units = [(key, {name: words[name] for name in words})]
    # Whose order it is goes last, since the sentence says `the order` of the request before it.
    return [*units, *([("friend", {"friend": words["friend"]})] if "friend" in words else [])]
