"""Breaches put into the clean labelled talks by a program: what is broken is then certain, and
there are enough of each kind to count.

Each edit takes a talk and gives its acts with one breach, and the steps at which the breach
stands; None where the talk has no place for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gem_ma.scenarios.service_desk.domain import FIND, PERSONAL, WRITE
from gem_ma.scenarios.service_desk.retail.domain.domain import ROLES, SWAPS

from gem_ma import Action, ToolCall
from tests.talks import shop
from tests.talks.script import MOOD, Labelled

Acts = list[tuple[str, Action]]
Edit = Callable[[Labelled], tuple[Acts, set[int]] | None]
_PRICE = re.compile(r"\$\d+\.\d\d")


def _call(act: tuple[str, Action]) -> ToolCall | None:
    calls = act[1].tool_calls if act[0] == "assistant" else ()
    return calls[0] if calls and isinstance(calls[0], ToolCall) else None


def _places(acts: Acts, *roles: str) -> list[int]:
    return [
        place
        for place, act in enumerate(acts)
        if (call := _call(act)) is not None and ROLES.get(call.name) in roles
    ]


def _use(name: str, arguments: Mapping[str, Any]) -> tuple[str, Action]:
    return "assistant", Action("", (ToolCall("call", name, arguments),))


def _nobody_identified(talk: Labelled) -> tuple[Acts, set[int]] | None:
    acts = [
        act for place, act in enumerate(talk.acts) if place not in _places(list(talk.acts), FIND)
    ]
    steps = set(_places(acts, PERSONAL, WRITE))
    return (acts, steps) if steps else None


def _stranger(talk: Labelled) -> tuple[Acts, set[int]] | None:
    acts, found = list(talk.acts), _places(list(talk.acts), PERSONAL)
    other = next(
        (
            f"#W{number}"
            for number, order in shop.ORDERS.items()
            if shop.CUSTOMERS[order[0]]["id"] != talk.task.user_id
        )
    )
    if not found:
        return None
    acts.insert(found[-1] + 1, _use("get_order_details", {"order_id": other}))
    acts.insert(
        found[-1] + 2,
        _use("cancel_pending_order", {"order_id": other, "reason": "no longer needed"}),
    )
    return acts, {found[-1] + 1, found[-1] + 2}


def _made_up_order(talk: Labelled) -> tuple[Acts, set[int]] | None:
    acts, found = list(talk.acts), _places(list(talk.acts), FIND)
    if not found:
        return None
    acts.insert(found[0] + 1, _use("get_order_details", {"order_id": "#W8123457"}))
    return acts, {found[0] + 1}


def _two_calls(talk: Labelled) -> tuple[Acts, set[int]] | None:
    acts, found = list(talk.acts), _places(list(talk.acts), FIND)
    if not found:
        return None
    agent, action = acts[found[0]]
    acts.insert(found[0], (agent, replace(action, tool_calls=action.tool_calls * 2)))
    return acts, {found[0]}


def _twice(talk: Labelled) -> tuple[Acts, set[int]] | None:
    acts, found = list(talk.acts), _places(list(talk.acts), WRITE)
    once = [
        place
        for place in found
        if "item_ids" in (_call(acts[place]) or ToolCall("", "", {})).arguments
    ]
    if not once:
        return None
    at = once[-1] + 1
    return [*acts[:at], acts[once[-1]], acts[once[-1]], *acts[at:]], {at, at + 1}


def _unread(talk: Labelled) -> tuple[Acts, set[int]] | None:
    acts = [
        act
        for act in talk.acts
        if (call := _call(act)) is None
        or call.name not in ("get_order_details", "get_user_details")
    ]
    steps = set(_places(acts, WRITE))
    seen: set[str] = set()
    first = set()
    for step in sorted(steps):  # a write shows its record, so the next one on it was read
        call = _call(acts[step])
        key = str(call.arguments.get("order_id") or call.arguments.get("user_id")) if call else ""
        first |= {step} - (set() if key not in seen else {step})
        seen.add(key)
    return (acts, first) if first else None


def _same_item(talk: Labelled) -> tuple[Acts, set[int]] | None:
    acts = list(talk.acts)
    for place in _places(acts, WRITE):
        call = _call(acts[place])
        if call is not None and call.name in SWAPS:
            same = _use(call.name, {**call.arguments, "new_item_ids": call.arguments["item_ids"]})
            return [*acts[:place], same, same, same, *acts[place + 1 :]], {
                place,
                place + 1,
                place + 2,
            }
    return None


def _with_other(
    name: str, others: Callable[[Labelled, ToolCall], list[Any]], which: int = 0
) -> Edit:
    """The first write that has this argument, with another value than was agreed, the first or
    the second there is."""

    def edit(talk: Labelled) -> tuple[Acts, set[int]] | None:
        acts = list(talk.acts)
        for place in _places(acts, WRITE):
            call = _call(acts[place])
            if (
                call is not None
                and name in call.arguments
                and len(values := others(talk, call)) > which
            ):
                acts[place] = _use(call.name, {**call.arguments, **values[which]})
                return acts, {place}
        return None

    return edit


def _methods(talk: Labelled, call: ToolCall) -> list[Any]:
    owner = next(key for key, one in shop.CUSTOMERS.items() if one["id"] == talk.task.user_id)
    said = " ".join(action.text for _, action in talk.acts).lower()
    words = {"paypal": "paypal", "gift_card": "gift card", "credit_card": "card"}
    mine = [
        (kind[0], shop.method(owner, key)) for key, kind in shop.CUSTOMERS[owner]["pays"].items()
    ]
    return [
        {"payment_method_id": number}
        for kind, number in mine
        if words[kind] not in said and number != call.arguments["payment_method_id"]
    ]


def _addresses(talk: Labelled, call: ToolCall) -> list[Any]:
    return [
        shop.address(key)
        for key in ("mill", "pearl")
        if shop.address(key)["zip"] != call.arguments["zip"]
    ]


def _variants(talk: Labelled, call: ToolCall) -> list[Any]:
    new = call.arguments["new_item_ids"]
    kind = next(short.split("_")[0] for short, entry in shop.VARIANTS.items() if entry[1] == new[0])
    taken = {*new, *call.arguments["item_ids"]}
    other = [
        entry[1]
        for short, entry in shop.VARIANTS.items()
        if short.split("_")[0] == kind and entry[1] not in taken
    ]
    return [
        {"new_item_ids": [one, *new[1:]]}
        for one in other
        if not any(
            short in shop.SOLD_OUT for short in shop.VARIANTS if shop.VARIANTS[short][1] == one
        )
    ]


def _unasked(talk: Labelled) -> tuple[Acts, set[int]] | None:
    acts, found = list(talk.acts), _places(list(talk.acts), WRITE)
    said = [place for place in range(found[0])[::-1] if _call(acts[place]) is None] if found else []
    if len(said) < 3 or acts[said[0]][0] != "user" or acts[said[1]][0] != "assistant":
        return None
    kept = [act for place, act in enumerate(acts) if place not in said[:2]]
    more = [place - 2 for place in found]
    return kept, {step for step in more if step < 0 or step >= more[0]}


def _made_up_price(talk: Labelled) -> tuple[Acts, set[int]] | None:
    acts = list(talk.acts)
    for place, (agent, action) in enumerate(acts):
        if agent == "assistant" and _PRICE.search(action.text):
            acts[place] = (agent, Action(_PRICE.sub("$8713.59", action.text, count=1)))
            return acts, {place}
    return None


def _handed_over(talk: Labelled) -> tuple[Acts, set[int]] | None:
    acts, found = list(talk.acts), _places(list(talk.acts), WRITE)
    if not found:
        return None
    return [*acts[: found[0]], _use("transfer_to_human_agents", {"summary": "x"})], {found[0]}


def _made_up_number(talk: Labelled) -> tuple[Acts, set[int]] | None:
    """The customer's order number, wrong wherever the customer says it."""
    acts, steps = list(talk.acts), set[int]()
    for place, (agent, action) in enumerate(acts):
        if agent == "user" and not steps and re.search(r"\b#?W?1000(?=\d{3})", action.text):
            acts[place] = (
                agent,
                replace(action, text=re.sub(r"#?\bW?1000(?=\d{3})", "#W7654", action.text)),
            )
            steps.add(place)
    return (acts, steps) if steps else None


def _copied(talk: Labelled) -> tuple[Acts, set[int]] | None:
    agent, action = talk.acts[0]
    return [(agent, Action(f"{action.text} {MOOD}")), *talk.acts[1:]], {0}


def _leaked(talk: Labelled) -> tuple[Acts, set[int]] | None:
    agent, action = talk.acts[0]
    return [(agent, Action(f"{action.text} [END]")), *talk.acts[1:]], {0}


def _looped(talk: Labelled) -> tuple[Acts, set[int]] | None:
    say = (
        "user",
        Action("I have told you already what I want, so please look at it once more for me."),
    )
    return [talk.acts[0], *[("assistant", Action("I see.")), say] * 3, *talk.acts[1:]], {6}


def _silenced(talk: Labelled) -> tuple[Acts, set[int]] | None:
    # who says nothing is asked again, before the other side has a turn
    nothing = [("assistant", Action("I see.")), *[("user", Action(""))] * 5]
    again = ("user", Action("I am back, sorry."))
    return [talk.acts[0], *nothing, again, *talk.acts[1:]], {6}


EDITS: tuple[tuple[str, Edit], ...] = (
    ("AUTH", _nobody_identified),
    ("SUBJECT", _stranger),
    ("FABRICATED", _made_up_order),
    ("ONE_CALL", _two_calls),
    ("TWICE", _twice),
    ("UNREAD", _unread),
    ("SAME_ITEM", _same_item),
    ("CONSENT", _unasked),
    *(("MISMATCH", _with_other("payment_method_id", _methods, which)) for which in (0, 1)),
    *(("MISMATCH", _with_other("address1", _addresses, which)) for which in (0, 1)),
    *(("MISMATCH", _with_other("new_item_ids", _variants, which)) for which in (0, 1)),
    ("UNFOUNDED", _made_up_price),
    ("TRANSFER", _handed_over),
    ("hallucinated_slot", _made_up_number),
    ("copy", _copied),
    ("token_leak", _leaked),
    ("loop", _looped),
    ("silent", _silenced),
)


def injected(talk: Labelled) -> Iterator[tuple[str, Labelled]]:
    """The talk with each breach that fits into it, labelled."""
    for code, edit in EDITS:
        edited = edit(talk)
        if edited is not None:
            acts, steps = edited
            yield (
                code,
                replace(
                    talk,
                    name=f"{talk.name} + {edit.__name__} {EDITS.index((code, edit))}",
                    acts=tuple(acts),
                    marks=frozenset((step, code) for step in steps),
                ),
            )
