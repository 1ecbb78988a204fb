"""The labelled talks as text, and how they are read: `== name | customer | solution | facts: ... |
lost: side`, then one act a paragraph.

    U: what the customer says                 A: what the assistant says > order 1000311
    a call of the assistant, with the short names of `shop` & order 1000311
    another call in the same turn as the act above END settled                               the
    customer ends

Marks at the end of an act say what holds there: `!CONSENT` a finding of the monitor,
`!early_stop` a fault of the customer. What has no mark does not hold. The labels come from the
policy text and the meaning of the faults, never from what the readers make of a talk.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gem_ma.scenarios.service_desk.desk.task import GoldCall, Slot, Task, Wish
from gem_ma.scenarios.service_desk.retail import Retail
from gem_ma.scenarios.service_desk.retail.store.store import RetailStore
from gem_ma.scenarios.service_desk.retail.store.tasks import wish_of

from gem_ma import Action, ToolCall
from tests.retail_data import write_tables
from tests.talks import shop

FOLDER = Path(__file__).parent
# a sentence of every situation
MOOD = "You are in a hurry because the train to your mother leaves in less than an hour."
REASONS = {"nln": "no longer needed", "mist": "ordered by mistake"}
_ACT = re.compile(r"^(U: |A: |> |& |END )", re.MULTILINE)
_MARKS = re.compile(r"(?: ![A-Za-z_]+)+\s*$")


@dataclass(frozen=True, slots=True)
class Labelled:
    """One talk: `marks` are (step, name of a finding or fault); `lost` the side that lost it, ""
    where it was won."""

    name: str
    task: Task
    acts: tuple[tuple[str, Action], ...]
    marks: frozenset[tuple[int, str]]
    lost: str


@lru_cache(maxsize=1)
def scenario() -> Retail:
    """The shop as a scenario."""
    return Retail(data=str(write_tables(Path(tempfile.mkdtemp(prefix="talks-")), shop.tables())))


@lru_cache
def talks(part: str = ".") -> tuple[Labelled, ...]:
    """Every labelled talk of a part, in the order of files and lines: `.`, or the held-out
    `fresh`."""
    found = []
    for path in sorted((FOLDER / part).glob("*.txt")):
        for part in re.split(r"^== ", path.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            head, body = part.split("\n", 1)
            found.append(_talk([field.strip() for field in head.split("|")], body))
    return tuple(found)


def _talk(head: list[str], body: str) -> Labelled:
    name, customer, solution, *more = head
    extra = {key: value.strip() for key, _, value in (field.partition(":") for field in more)}
    acts: list[tuple[str, Action]] = []
    marks: set[tuple[int, str]] = set()
    parts = _ACT.split(body)[1:]
    for kind, text in zip(parts[::2], parts[1::2], strict=True):
        text = text.rstrip()
        found = _MARKS.search(text)
        said = text[: found.start()] if found else text
        if kind == "& ":
            agent, last = acts.pop()
            acts.append((agent, Action(last.text, (*last.tool_calls, call(said, customer)))))
        elif kind == "> ":
            acts.append(("assistant", Action("", (call(said, customer),))))
        elif kind == "END ":
            # a customer who has said goodbye is answered before it leaves
            if acts[-1][0] == "user":
                acts.append(("assistant", Action("You are welcome.")))
            acts.append(
                ("user", Action("", (ToolCall("end", "end_conversation", {"reason": said}),)))
            )
        else:
            acts.append(("user" if kind == "U: " else "assistant", Action(said.strip())))
        marks |= {(len(acts) - 1, mark) for mark in (found[0].split() if found else ())}
    held = frozenset((step, mark.removeprefix("!")) for step, mark in marks)
    extra["asks"] = re.sub(r"\S+@\S+", "", acts[0][1].text)
    return Labelled(
        name, _task(name, customer, solution, extra), tuple(acts), held, extra.get("lost", "")
    )


# -- calls ---------------------------------------------------------------------------------------


def call(text: str, customer: str) -> ToolCall:
    """A call in short names, such as `exchange 1000322 mixer_red:mixer_black pp`."""
    name, *rest = text.split()
    tool, arguments = _CALLS[name](customer, *rest)
    return ToolCall("call", tool, arguments)


def _item(short: str) -> str:
    return shop.VARIANTS[short][1]


def _swap(tool: str) -> Any:
    def made(customer: str, order: str, pairs: str, pay: str) -> tuple[str, dict[str, Any]]:
        old, new = zip(*(pair.split(":") for pair in pairs.split(",")), strict=True)
        given = {"item_ids": [*map(_item, old)], "new_item_ids": [*map(_item, new)]}
        return tool, {
            "order_id": f"#W{order}",
            **given,
            "payment_method_id": shop.method(customer, pay),
        }

    return made


def _by_name(customer: str, who: str) -> tuple[str, dict[str, Any]]:
    first, last = shop.CUSTOMERS[who]["name"]
    code = shop.address(shop.CUSTOMERS[who]["at"])["zip"]
    return "find_user_id_by_name_zip", {"first_name": first, "last_name": last, "zip": code}


def _return(customer: str, order: str, items: str, pay: str) -> tuple[str, dict[str, Any]]:
    given = {"order_id": f"#W{order}", "item_ids": [_item(short) for short in items.split(",")]}
    return "return_delivered_order_items", {
        **given,
        "payment_method_id": shop.method(customer, pay),
    }


_CALLS: dict[str, Any] = {
    "find": lambda customer, who: (
        "find_user_id_by_email",
        {"email": shop.CUSTOMERS[who]["email"]},
    ),
    "mail": lambda customer, mail: ("find_user_id_by_email", {"email": mail}),
    "findz": _by_name,
    "user": lambda customer, who: ("get_user_details", {"user_id": shop.CUSTOMERS[who]["id"]}),
    "order": lambda customer, order: ("get_order_details", {"order_id": f"#W{order}"}),
    "product": lambda customer, kind: (
        "get_product_details",
        {"product_id": shop.PRODUCT_IDS.get(kind, kind)},
    ),
    "list": lambda customer: ("list_all_product_types", {}),
    "calc": lambda customer, *rest: ("calculate", {"expression": " ".join(rest)}),
    "think": lambda customer, *rest: ("think", {"thought": " ".join(rest)}),
    "transfer": lambda customer: (
        "transfer_to_human_agents",
        {"summary": "The customer needs a human."},
    ),
    "cancel": lambda customer, order, why: (
        "cancel_pending_order",
        {"order_id": f"#W{order}", "reason": REASONS[why]},
    ),
    "return": _return,
    "exchange": _swap("exchange_delivered_order_items"),
    "modify": _swap("modify_pending_order_items"),
    "pay": lambda customer, order, pay: (
        "modify_pending_order_payment",
        {"order_id": f"#W{order}", "payment_method_id": shop.method(customer, pay)},
    ),
    "addr": lambda customer, order, key: (
        "modify_pending_order_address",
        {"order_id": f"#W{order}", **shop.address(key)},
    ),
    "home": lambda customer, who, key: (
        "modify_user_address",
        {"user_id": shop.CUSTOMERS[who]["id"], **shop.address(key)},
    ),
    "raw": lambda customer, tool, *rest: (tool, json.loads(" ".join(rest))),
}


# -- tasks ---------------------------------------------------------------------------------------


def _task(name: str, customer: str, solution: str, extra: dict[str, str]) -> Task:
    """What the customer wants: writes, `refuse INTENT REASON ORDER`, `transfer`, or `ask`;
    `facts` are to be told."""
    world = scenario().source.world(Task("", "", "", "", ()))
    store = RetailStore(world, "tau1")
    actions, wishes = list[GoldCall](), list[Wish]()
    facts = tuple(fact.strip() for fact in extra.get("facts", "").split(",") if fact.strip())
    for part in filter(None, (step.strip() for step in solution.split(";"))):
        if part.startswith("refuse "):
            _, intent, reason, order = part.split()
            text = f"I want to {intent} something of order #W{order}."
            wishes.append(
                Wish(
                    "impossible",
                    {"order_id": f"#W{order}"},
                    text=text,
                    intent=intent,
                    reason=reason,
                )
            )
            continue
        if part == "ask":
            wishes.append(Wish("question", text=extra["asks"], outputs=facts))
            continue
        made = call(part, customer)
        gold = GoldCall(made.name, made.arguments)
        if made.name != "transfer_to_human_agents":
            wishes.append(wish_of(store.overlay, gold))
            store.call(made.name, dict(made.arguments))
        actions.append(gold)
    impossible = [wish for wish in wishes if wish.kind == "impossible"]
    goal = (
        "transferred"
        if solution.strip() == "transfer"
        else "refused"
        if len(impossible) == len(wishes)
        else "served"
    )
    who = shop.CUSTOMERS[customer]
    mine = [f"#W{number}" for number, (owner, *_) in shop.ORDERS.items() if owner == customer]
    told = f"Your orders are {', '.join(mine)}. {extra.get('knows', '')}"
    at = shop.address(who["at"])
    slots = zip(
        ("first_name", "last_name", "zip", "email"),
        (*who["name"], at["zip"], who["email"]),
        strict=True,
    )
    known = tuple(Slot(slot, value, "opening") for slot, value in slots)
    situation = f"You are {' '.join(who['name'])}. {MOOD} {' '.join(_situation(wishes))} {told}"
    return Task(
        f"talks/{name}",
        "talks",
        who["id"],
        situation,
        tuple(actions),
        facts,
        goal,
        known,
        tuple(wishes),
    )


def _situation(wishes: list[Wish]) -> Iterator[str]:
    for wish in wishes:
        values = " ".join(f"{key}: {value}" for key, value in wish.arguments.items())
        yield wish.text or f"{wish.kind.replace('_', ' ')} {values}"
