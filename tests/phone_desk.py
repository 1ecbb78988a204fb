"""A phone line's service desk, small enough to follow by hand: a second domain on the machinery of
`scenarios/service`, with tools on both sides.

The assistant changes plans and data at the carrier; the user turns roaming on and off at the
phone. Neither sees the other's calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from gem_ma.scenarios.service_desk.desk.log import END, Desk, Rules, Style
from gem_ma.scenarios.service_desk.desk.overlay import Base, Overlay
from gem_ma.scenarios.service_desk.desk.task import GoldCall, Slot, Task, Wish
from gem_ma.scenarios.service_desk.domain import CATALOGUE, FIND, PERSONAL, TRANSFER, WRITE, Domain
from gem_ma.scenarios.service_desk.reading.phrases import MISSING, RIGHT, WRONG, Mention, names
from gem_ma.scenarios.service_desk.rewards.terms import TERMS

from gem_ma import Message, Tool

# what pays beside the outcome, where one agent learns
EVERY_TERM = dict.fromkeys([name for name in TERMS if name not in ("outcome", "game")], True)
TABLES: dict[str, dict[str, dict[str, Any]]] = {
    "clients": {
        "C-1": {"name": "Ida", "pin": "4711", "lines": ["L-10", "L-11"]},
        "C-2": {"name": "Odo", "pin": "0815", "lines": ["L-20"]},
    },
    "lines": {
        "L-10": {"client": "C-1", "plan": "P-small", "extra": 0.0, "state": "open"},
        "L-11": {"client": "C-1", "plan": "P-large", "extra": 0.0, "state": "suspended"},
        "L-20": {"client": "C-2", "plan": "P-small", "extra": 0.0, "state": "open"},
    },
    "plans": {"P-small": {"price": 9.5, "data": 2}, "P-large": {"price": 24.25, "data": 40}},
    "phones": {
        "L-10": {"roaming": False, "model": "brick"},
        "L-11": {"roaming": False, "model": "slab"},
        "L-20": {"roaming": True, "model": "egg"},
    },
}
ROLES = {
    "find_client": FIND,
    "read_line": PERSONAL,
    "read_client": PERSONAL,
    "list_plans": CATALOGUE,
    "set_plan": WRITE,
    "add_data": WRITE,
    "hand_over": TRANSFER,
    "look_at_phone": PERSONAL,
    "set_roaming": WRITE,
}
WRITES = frozenset({"set_plan", "add_data", "set_roaming"})


class PhoneStore:
    """One side's tools over tables that both share."""

    def __init__(self, overlay: Overlay, own: frozenset[str]) -> None:
        self.overlay, self.own = overlay, own

    def call(self, tool: str, kwargs: Any) -> str:
        try:
            return (
                getattr(self, f"_{tool}")(**kwargs)
                if tool in self.own
                else f"Unknown action {tool}"
            )
        except (KeyError, TypeError) as error:
            return f"Error: {type(error).__name__}"

    def mutates(self, tool: str) -> bool:
        return tool in WRITES

    def terminates(self, tool: str) -> bool:
        return tool == "hand_over"

    def _find_client(self, name: str, pin: str) -> str:
        return next(
            (
                key
                for key, client in self.overlay.base.tables["clients"].items()
                if (client["name"], client["pin"]) == (name, pin)
            ),
            "Error: nobody",
        )

    def _read_client(self, client_id: str) -> str:
        return self.overlay.text("clients", client_id)

    def _read_line(self, line_id: str) -> str:
        return self.overlay.text("lines", line_id)

    def _list_plans(self) -> str:
        return json.dumps(self.overlay.base.tables["plans"])

    def _change(self, table: str, key: str, **fields: Any) -> str:
        return self.overlay.commit({(table, key): {**self.overlay.draft(table, key), **fields}})

    def _set_plan(self, line_id: str, plan_id: str) -> str:
        return (
            self._change("lines", line_id, plan=plan_id)
            if plan_id in self.overlay.base.tables["plans"]
            else "Error: no such plan"
        )

    def _add_data(self, line_id: str, price: float) -> str:
        return self._change(
            "lines", line_id, extra=self.overlay.record("lines", line_id)["extra"] + price
        )

    def _hand_over(self, summary: str) -> str:
        return "handed over"

    def _look_at_phone(self, line_id: str) -> str:
        return self.overlay.text("phones", line_id)

    def _set_roaming(self, line_id: str, on: bool) -> str:
        return self._change("phones", line_id, roaming=on)


class PhoneBook:
    """English of the phone desk."""

    name = "phone"
    single = frozenset(("name", "pin"))
    anchors = frozenset(("line_id",))
    asked: Mapping[str, re.Pattern[str]] = {
        "pin": re.compile(r"\bpin\b"),
        "name": re.compile(r"\byour name\b"),
    }
    reasons: Mapping[str, re.Pattern[str]] = {"suspended": re.compile(r"\bsuspended\b")}
    refusing = finished = states = re.compile(r"(?!)")

    def writes(self, sentence: str) -> frozenset[str]:
        found = (
            {"set_plan"}
            if re.search(r"\b(plan|tariff)\b", sentence)
            and re.search(r"\b(move|moved|change|changed|switch)\b", sentence)
            else set()
        )
        return frozenset(
            found | ({"add_data"} if re.search(r"\b(add|added|top up)\b", sentence) else set())
        )

    def kinds(self, wish: Wish) -> frozenset[str]:
        return (
            frozenset((wish.kind,))
            if wish.writes
            else frozenset(("set_plan",))
            if wish.kind == "impossible"
            else frozenset()
        )

    def mentions(self, text: str) -> tuple[Mention, ...]:
        return tuple(
            Mention("line_id", found.group(), *found.span())
            for found in re.finditer(r"\bL-\d+\b", text)
        )

    def judge(self, wish: Wish, text: str) -> Mapping[str, str]:
        said = text.casefold()
        others = {"line_id": r"\bl-\d+\b", "plan_id": r"\bp-\w+\b"}
        return {
            name: (
                RIGHT
                if names(str(value), said)
                else WRONG
                if re.search(others.get(name, r"(?!)"), said)
                else MISSING
            )
            for name, value in wish.arguments.items()
        }

    def details(self, wish: Wish) -> tuple[str, ...]:
        return tuple(wish.arguments)

    def request(self, wish: Wish, details: Any, pick: Any) -> str:
        return wish.text

    def detail(self, wish: Wish, slot: str, pick: Any) -> str:
        return str(wish.arguments.get(slot, ""))

    def give(self, slots: Mapping[str, str], pick: Any) -> str:
        return " ".join(slots.values())

    def label(self, slot: str) -> str:
        return slot

    def mistaken(self, slot: str, value: str) -> str:
        return ""


PHONE = Domain(
    roles=ROLES,
    keys={"line_id": "lines", "client_id": "clients"},
    owners={"lines": "client", "clients": ""},
    ids=re.compile(r"\b[LCP]-\w+\b"),
    id_arguments=frozenset({"line_id", "plan_id", "client_id"}),
    once={"set_plan": "plan"},
    book=PhoneBook(),
    locked=lambda table, key, record: table == "lines" and record["state"] == "suspended",
)
ASSISTANT_TOOLS = frozenset(ROLES) - {"look_at_phone", "set_roaming"}
USER_TOOLS = frozenset({"look_at_phone", "set_roaming"})
KNOWN = (
    Slot("name", "Ida", "opening"),
    Slot("pin", "4711", "opening"),
    Slot("line_id", "L-10", "opening"),
)
BASE = Base(TABLES)


def stores(base: Base = BASE) -> tuple[PhoneStore, PhoneStore]:
    """The two sides over one fresh overlay."""
    shared = Overlay(base)
    return PhoneStore(shared, ASSISTANT_TOOLS), PhoneStore(shared, USER_TOOLS)


def desk(task: Task, watchers: Any = ()) -> Desk:
    """A talk about a task that has not begun."""
    store, user_store = stores()
    style = Style(
        (Message.system("Serve the client that gives name and pin. Ask before a change."),),
        (Message.system(task.instruction),),
        tools=tuple(Tool(name) for name in sorted(ASSISTANT_TOOLS)),
        user_tools=(END, *(Tool(name) for name in sorted(USER_TOOLS))),
    )
    return Desk(task, store, style, Rules(12, 12), user_store, watchers)


def find(name: str = "Ida", pin: str = "4711") -> GoldCall:
    return GoldCall("find_client", {"name": name, "pin": pin})


def plan_task(**changes: Any) -> Task:
    """Line L-10 is to go to the large plan, and roaming is to be on."""
    wanted = {"line_id": "L-10", "plan_id": "P-large"}
    calls = (
        find(),
        GoldCall("read_line", {"line_id": "L-10"}),
        GoldCall("list_plans", {}),
        GoldCall("set_plan", wanted),
    )
    fields: dict[str, Any] = {
        "id": "phone/plan",
        "source": "phone",
        "user_id": "C-1",
        "instruction": (
            "You are Ida, your pin is 4711. You want line L-10 on the large plan and roaming"
            " switched on."
        ),
        "actions": (*calls, GoldCall("set_roaming", {"line_id": "L-10", "on": True}, "user")),
        "outputs": ("24.25",),
        "knowledge": KNOWN,
        "wishes": (
            Wish(
                "set_plan",
                wanted,
                text="Please move line L-10 to plan P-large. What does it cost?",
                intent="plan",
                outputs=("24.25",),
            ),
        ),
    }
    return Task(**{**fields, **changes})


def refusal_task() -> Task:
    """The plan of a suspended line cannot be changed."""
    wish = Wish(
        "impossible",
        {"line_id": "L-11", "plan_id": "P-small"},
        text="Please move line L-11 to plan P-small.",
        intent="plan",
        reason="suspended",
    )
    knows = (*KNOWN[:2], Slot("line_id", "L-11", "opening"))
    calls = (find(), GoldCall("read_line", {"line_id": "L-11"}))
    return plan_task(
        id="phone/refusal",
        actions=calls,
        outputs=(),
        goal="refused",
        knowledge=knows,
        wishes=(wish,),
        flags=("inaction_passes",),
    )
