"""Tasks for the generated shop: drawn from a seed, solved with the real tools, kept only where the solution proves right.

Kept means: every call of the solution succeeds, the canonical grader says yes to it, each write is needed, and doing nothing is wrong.
The instruction names nothing that the customer could not know: no item id, no payment id, no user id.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gem_ma.scenarios.retail.grading import canonical, gold_state
from gem_ma.scenarios.retail.tasks import Item, flags_of, identity_of, method_words, wish_of
from gem_ma.scenarios.retail.tools import REASONS
from gem_ma.scenarios.retail.world import GENERATOR, address
from gem_ma.scenarios.service.overlay import Base, Overlay
from gem_ma.scenarios.service.talk import Outcome
from gem_ma.scenarios.service.task import GoldCall, Slot, Task, Wish

from gem_ma.errors import ConfigError

TRIES = 400
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Part:
    """One intent: the wish, the calls that serve it after the customer is known, and what must be told."""

    wish: Wish
    calls: tuple[GoldCall, ...]
    outputs: tuple[str, ...] = ()
    goal: str = "served"


@dataclass(frozen=True, slots=True)
class _Scene:
    """Where an intent is drawn: the customer and one of the customer's orders."""

    rng: random.Random
    data: Overlay
    user_id: str
    user: Record
    order: Record

    @property
    def look(self) -> GoldCall:
        return GoldCall("get_order_details", {"order_id": self.order["order_id"]})

    def write(self, name: str, **arguments: Any) -> _Part:
        call = GoldCall(name, arguments)
        return _Part(wish_of(self.data, call), (self.look, call))

    def methods(self, needed: float = 0.0) -> list[str]:
        """Payment methods that can be named in words and, being a gift card, hold enough."""
        methods = self.user["payment_methods"]
        named = [key for key in methods if method_words(methods, key) != key]
        return [key for key in named if methods[key].get("balance", needed) >= needed]


def forge(base: Base, semantics: str, name: str, seed: int, world: int) -> Task:
    """The task of a seed. Raises ConfigError where the world is too small to hold one."""
    rng = random.Random(f"retail-task/{GENERATOR}/{seed}")
    for _ in range(TRIES):
        task = _draw(rng, base, semantics, name, world)
        if task is not None and _proven(base, semantics, task):
            return task
    raise ConfigError("scenario.users, scenario.orders: the shop is too small to hold a task; give it more users and orders")


def _draw(rng: random.Random, base: Base, semantics: str, name: str, world: int) -> Task | None:
    data = Overlay(base)
    user_id = rng.choice([key for key, user in base.tables["users"].items() if user["orders"]] or [""])
    if not user_id:
        return None
    user = data.record("users", user_id)
    parts: list[_Part] = []
    for order_id in rng.sample(user["orders"], min(len(user["orders"]), rng.choice((1, 1, 2)))):
        part = rng.choice(KINDS)(_Scene(rng, data, user_id, user, data.record("orders", order_id)))
        if part is not None and (not parts or "served" == part.goal == parts[0].goal):
            parts.append(part)
    if not parts:
        return None
    hidden = rng.choice(("zip", "email"))
    knowledge = tuple(replace(slot, known=slot.name != hidden) for slot in identity_of(base, user_id))
    who = {slot.name: slot.value for slot in knowledge}
    named = dict.fromkeys(part.wish.arguments["order_id"] for part in parts if "order_id" in part.wish.arguments)
    find = (
        GoldCall("find_user_id_by_email", {"email": who["email"]})
        if hidden == "zip"
        else GoldCall("find_user_id_by_name_zip", {name: who[name] for name in ("first_name", "last_name", "zip")})
    )
    actions = (find, GoldCall("get_user_details", {"user_id": user_id}), *(call for part in parts for call in part.calls))
    return Task(
        id=f"own/{GENERATOR}/{name}",
        source="generated shop",
        user_id=user_id,
        instruction=_instruction(who, hidden, [part.wish for part in parts]),
        actions=actions,
        outputs=tuple(output for part in parts for output in part.outputs),
        goal=parts[0].goal,
        knowledge=(*knowledge, *(Slot("order_id", order_id, "opening") for order_id in named)),
        wishes=tuple(part.wish for part in parts),
        flags=flags_of(base, semantics, actions),
        world=world,
    )


def _proven(base: Base, semantics: str, task: Task) -> bool:
    gold, start = gold_state(base, semantics, task), Overlay(base)
    if not task.scorable or set(task.flags) - {"inaction_passes"}:
        return False
    reason = "refused" if task.goal == "refused" else "settled"
    solved = canonical(task, gold, gold, Outcome("user", reason, (" ".join(task.outputs) or "done",)))
    silent = [canonical(task, start, gold, outcome) for outcome in (Outcome("user", "settled"), Outcome("user", "refused"), Outcome("transfer"))]
    return solved.reward == 1 and not any(verdict.reward for verdict in silent)


# -- intents ----------------------------------------------------------------------------------------------------------------


def _cancel(scene: _Scene) -> _Part | None:
    if scene.order["status"] != "pending":
        return None
    return scene.write("cancel_pending_order", order_id=scene.order["order_id"], reason=scene.rng.choice(REASONS))


def _return(scene: _Scene) -> _Part | None:
    paid_with = scene.order["payment_history"][0]["payment_method_id"]
    methods = [key for key in scene.methods() if key == paid_with or key.startswith("gift_card")]
    if scene.order["status"] != "delivered" or not methods:
        return None
    item_ids = [item["item_id"] for item in _some(scene, 3)]
    method = scene.rng.choice(methods)
    return scene.write("return_delivered_order_items", order_id=scene.order["order_id"], item_ids=item_ids, payment_method_id=method)


def _swap(scene: _Scene) -> _Part | None:
    """An exchange of a delivered order or a change of a pending one."""
    tools = {"delivered": "exchange_delivered_order_items", "pending": "modify_pending_order_items"}
    if scene.order["status"] not in tools:
        return None
    old, new, price = [], [], 0.0
    for item in _some(scene, 2):
        variants = scene.data.record("products", item["product_id"])["variants"].values()
        others = [variant for variant in variants if variant["available"] and variant["item_id"] != item["item_id"]]
        variant = scene.rng.choice(others)
        old.append(item["item_id"])
        new.append(variant["item_id"])
        price += variant["price"] - item["price"]
    methods = scene.methods(max(price, 0.0) + 0.01)
    if not methods:
        return None
    arguments = {"order_id": scene.order["order_id"], "item_ids": old, "new_item_ids": new, "payment_method_id": scene.rng.choice(methods)}
    return scene.write(tools[scene.order["status"]], **arguments)


def _order_address(scene: _Scene) -> _Part | None:
    if scene.order["status"] != "pending":
        return None
    return scene.write("modify_pending_order_address", order_id=scene.order["order_id"], **address(scene.rng))


def _user_address(scene: _Scene) -> _Part | None:
    call = GoldCall("modify_user_address", {"user_id": scene.user_id, **address(scene.rng)})
    return _Part(wish_of(scene.data, call), (call,))


def _payment(scene: _Scene) -> _Part | None:
    first = scene.order["payment_history"][0]
    methods = [key for key in scene.methods(first["amount"]) if key != first["payment_method_id"]]
    if scene.order["status"] != "pending" or not methods:
        return None
    return scene.write("modify_pending_order_payment", order_id=scene.order["order_id"], payment_method_id=scene.rng.choice(methods))


def _ask_total(scene: _Scene) -> _Part | None:
    order = scene.order
    about = {"order_id": order["order_id"]}
    wish = Wish("question", about, _words(order), intent="amount paid", text=f"How much did I pay for order {order['order_id']} in total?")
    return _part(wish, (scene.look,), f"{order['payment_history'][0]['amount']:.2f}")


def _ask_tracking(scene: _Scene) -> _Part | None:
    order = scene.order
    if not order["fulfillments"]:
        return None
    about = {"order_id": order["order_id"]}
    wish = Wish("question", about, _words(order), intent="tracking number", text=f"What is the tracking number of order {order['order_id']}?")
    return _part(wish, (scene.look,), order["fulfillments"][0]["tracking_id"][0])


def _ask_variants(scene: _Scene) -> _Part | None:
    product = scene.data.record("products", scene.rng.choice(list(scene.data.base.tables["products"])))
    count = sum(variant["available"] for variant in product["variants"].values())
    wish = Wish(
        "question",
        words={"product": product["name"]},
        intent="variants available",
        text=f"How many variants of the {product['name']} are available right now?",
    )
    return _part(wish, (GoldCall("list_all_product_types", {}), GoldCall("get_product_details", {"product_id": product["product_id"]})), str(count))


def _impossible(scene: _Scene) -> _Part | None:
    order_id = scene.order["order_id"]
    if scene.order["status"] == "pending":
        return None
    asked = {"order_id": order_id, "reason": "no longer needed"}
    text = f"Please cancel order {order_id}, it is no longer needed."
    wish = Wish("impossible", asked, _words(scene.order), intent="cancel", reason="order_status", text=text)
    return _Part(wish, (scene.look,), goal="refused")


def _part(wish: Wish, calls: tuple[GoldCall, ...], output: str) -> _Part:
    return _Part(replace(wish, outputs=(output,)), calls, (output,))


def _words(order: Record) -> dict[str, Any]:
    return {"order": f"order {order['order_id']}"}


def _some(scene: _Scene, most: int) -> list[Record]:
    items = scene.order["items"]
    return scene.rng.sample(items, scene.rng.randint(1, min(most, len(items))))


KINDS: tuple[Callable[[_Scene], _Part | None], ...] = (
    _cancel,
    _return,
    _return,
    _swap,
    _swap,
    _swap,
    _order_address,
    _user_address,
    _payment,
    _ask_total,
    _ask_tracking,
    _ask_variants,
    _impossible,
)


# -- words ------------------------------------------------------------------------------------------------------------------


def _instruction(who: Mapping[str, str], hidden: str, wishes: list[Wish]) -> str:
    known = f"your e-mail address is {who['email']}" if hidden == "zip" else f"your postal code is {who['zip']}"
    said = [f"Your name is {who['first_name']} {who['last_name']} and {known}.", *(_second_person(wish) for wish in wishes)]
    return " ".join(said)


def _second_person(wish: Wish) -> str:
    arguments, method = wish.arguments, wish.words.get("method", "").replace("my ", "your ")
    order_id = arguments.get("order_id", "")
    if wish.kind == "cancel_pending_order":
        return f"You want to cancel order {order_id}; if asked why: {arguments['reason']}."
    if wish.kind == "return_delivered_order_items":
        return f"You want to return these items of order {order_id}: {_listed(wish)}. The refund should go to {method}."
    if wish.kind in ("exchange_delivered_order_items", "modify_pending_order_items"):
        verb = "exchange items of the delivered" if wish.kind.startswith("exchange") else "change items of the pending"
        return f"You want to {verb} order {order_id}: {_listed(wish)}. Any difference in price goes over {method}."
    if wish.kind == "modify_pending_order_payment":
        return f"You want order {order_id} to be paid with {method} instead."
    if wish.kind == "question":
        return f"You want to know this: {wish.text.replace('did I pay', 'did you pay')}"
    if wish.kind == "impossible":
        return f"You want to cancel order {order_id}, because it is no longer needed. If that cannot be done, you accept it and want nothing else."
    where = f"order {order_id} to go" if order_id else "the default address of your account changed"
    parts = ", ".join(arguments[part] for part in ("address1", "address2", "city", "state", "zip", "country") if arguments[part])
    return f"You want {where} to {parts}."


def _listed(wish: Wish) -> str:
    return "; ".join(_item(item) for item in wish.words["items"])


def _item(item: Item) -> str:
    options = ", ".join(f"{name}: {value}" for name, value in item.options.items())
    if item.wanted is None:
        return f"{item.name} ({options})"
    wanted = ", ".join(f"{name}: {value}" for name, value in item.wanted.items())
    return f"{item.name} ({options}) for one with {wanted}"
