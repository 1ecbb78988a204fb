"""One task: who asks for what, and what the right end is. A task holds the solution, so it never reaches a view as a whole.

The user is meant to know `instruction`; `wishes` say the same as data, for users without a model. `actions`, `outputs` and `goal` are for the
grader and for privileged behaviours only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gem_ma.scenarios.retail.overlay import Base, Overlay
from gem_ma.scenarios.retail.store import RetailStore

GOALS = ("served", "transferred", "refused")


@dataclass(frozen=True, slots=True)
class GoldCall:
    """One call of the solution."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Identity:
    """By what the user can be found."""

    first_name: str
    last_name: str
    zip: str
    email: str


@dataclass(frozen=True, slots=True)
class Item:
    """An item as a customer describes it: the product's name, its options, and the options wanted instead, if any."""

    name: str
    options: Mapping[str, str]
    wanted: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """One thing the user wants. `kind` is a write tool, `question`, or `impossible`; `arguments` are the solution's, to check proposals by.

    `method` is the payment method in the user's words; `text` the question, or the request that has to be refused.
    """

    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    items: tuple[Item, ...] = ()
    method: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class RetailTask:
    """A task of any source. `world` is the seed of its world, None for a data folder; `flags` name what is wrong with it as a test."""

    id: str
    source: str
    user_id: str
    instruction: str
    actions: tuple[GoldCall, ...]
    outputs: tuple[str, ...]
    goal: str
    identity: Identity
    wishes: tuple[Wish, ...] = ()
    flags: tuple[str, ...] = ()
    world: int | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scorable(self) -> bool:
        """False where the canonical grader has nothing to go by: inaction is right, nothing is to be told, or the solution itself fails."""
        if "gold_write_error" in self.flags:
            return False
        return "inaction_passes" not in self.flags or bool(self.outputs) or self.goal != "served"


def replay_gold(base: Base, semantics: str, actions: tuple[GoldCall, ...]) -> tuple[RetailStore, tuple[str, ...]]:
    """The database after the solution and what each call answered; a call that ends the talk is left out, a failing one changes nothing."""
    store = RetailStore(base, semantics)
    return store, tuple("" if store.terminates(call.name) else store.call(call.name, dict(call.arguments)) for call in actions)


def flags_of(base: Base, semantics: str, actions: tuple[GoldCall, ...]) -> tuple[str, ...]:
    """What replaying the solution shows: `inaction_passes`, `gold_read_error`, `gold_write_error`, `redundant_write`."""
    end, answers = replay_gold(base, semantics, actions)
    failed = [call.name for call, answer in zip(actions, answers, strict=True) if answer.startswith(("Error: ", "Unknown action "))]
    flags = {"inaction_passes"} if end.overlay.equals(Overlay(base)) else set()
    flags |= {"gold_write_error" if end.mutates(name) else "gold_read_error" for name in failed}
    writes = [number for number, call in enumerate(actions) if end.mutates(call.name)]
    for number in writes:
        without, _ = replay_gold(base, semantics, actions[:number] + actions[number + 1 :])
        if not answers[number].startswith("Error: ") and without.overlay.equals(end.overlay):
            flags.add("redundant_write")
    return tuple(sorted(flags))


def goal_of(actions: tuple[GoldCall, ...]) -> str:
    """The outcome that a solution stands for."""
    return "transferred" if any(call.name == "transfer_to_human_agents" for call in actions) else "served"


def identity_of(base: Base, user_id: str) -> Identity:
    """By what the tools find this user; empty fields where there is no such user."""
    user = base.tables["users"].get(user_id)
    if user is None:
        return Identity("", "", "", "")
    return Identity(user["name"]["first_name"], user["name"]["last_name"], user["address"]["zip"], user["email"])


def wishes_of(base: Base, semantics: str, actions: tuple[GoldCall, ...]) -> tuple[Wish, ...]:
    """The writes of a solution in a customer's words; writes that fail are no wishes."""
    store, wishes = RetailStore(base, semantics), []
    for call in actions:
        if store.terminates(call.name):
            continue
        before = store.copy()
        if not store.call(call.name, dict(call.arguments)).startswith("Error: ") and store.mutates(call.name):
            wishes.append(wish_of(before.overlay, call))
    return tuple(wishes)


def wish_of(data: Overlay, call: GoldCall) -> Wish:
    """A write that would succeed now, in a customer's words."""
    arguments = call.arguments
    order = data.record("orders", arguments["order_id"]) if "order_id" in arguments else None
    if order is None:
        return Wish(call.name, arguments)
    method = ""
    if "payment_method_id" in arguments:
        method = method_words(data.record("users", order["user_id"])["payment_methods"], arguments["payment_method_id"])
    items = []
    for place, item_id in enumerate(arguments.get("item_ids", ())):
        item = next(item for item in order["items"] if item["item_id"] == item_id)
        wanted = None
        if "new_item_ids" in arguments:
            wanted = data.record("products", item["product_id"])["variants"][arguments["new_item_ids"][place]]["options"]
        items.append(Item(item["name"], item["options"], wanted))
    return Wish(call.name, arguments, tuple(items), method)


def method_words(methods: Mapping[str, Any], method_id: str) -> str:
    """A payment method as its owner would name it; its id where the owner has several that sound alike."""
    words = {key: _method(method) for key, method in methods.items()}
    said = words[method_id]
    return method_id if list(words.values()).count(said) > 1 else said


def _method(method: Mapping[str, Any]) -> str:
    if method["source"] == "credit_card" and "last_four" in method:
        return f"my credit card ending in {method['last_four']}"
    return {"paypal": "my PayPal account", "gift_card": "my gift card"}.get(method["source"], f"my {method['source']}")
