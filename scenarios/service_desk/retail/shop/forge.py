"""Tasks for the generated shop: composed of requests by a seed, solved with the real tools, kept
only where all proofs hold.

The instruction names nothing that the customer could not know: no item id, no payment id, no
user id.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gem_ma.scenarios.service_desk.desk.overlay import Base, Overlay
from gem_ma.scenarios.service_desk.desk.task import GoldCall, Slot, Task, Wish
from gem_ma.scenarios.service_desk.grading.proofs import Unproved
from gem_ma.scenarios.service_desk.retail.shop.describe import situation
from gem_ma.scenarios.service_desk.retail.shop.knobs import Knobs
from gem_ma.scenarios.service_desk.retail.shop.prove import prove
from gem_ma.scenarios.service_desk.retail.shop.requests import combined, hands_over, requests_of
from gem_ma.scenarios.service_desk.retail.shop.scene import TOOL_OF, Scene
from gem_ma.scenarios.service_desk.retail.shop.world import GENERATOR
from gem_ma.scenarios.service_desk.retail.store.tasks import identity_of

# tries for one task; so many in the beginning without even a draft, and the customer has none
TRIES, HOPELESS = 60, 6


@dataclass(frozen=True, slots=True)
class Commission:
    """What task is wanted: of which `seed`, under which `name`, of whom.

    `user_id`: whose it is ("" = any). `shift`: with held-out combinations and sentences.
    `taken`: contents that the task may not repeat (see `content`).
    """

    name: str
    seed: int
    knobs: Knobs = Knobs()
    user_id: str = ""
    shift: bool = False
    taken: Collection[str] = ()


def forge(
    base: Base, semantics: str, wanted: Commission, rejected: Counter[str], **fields: Any
) -> Task | None:
    """The task that is wanted, None where the world holds none; `fields` are further ones of Task.

    `rejected` counts what was thrown away by the name of the proof.
    """
    # The knobs are a part of the seed: other knobs give other tasks, not the same with pieces
    # changed.
    rng = random.Random(f"retail-task/{GENERATOR}/{wanted.seed}/{wanted.knobs.digest}")
    drafts = 0
    for attempt in range(TRIES):
        # A customer without orders of the kind never gives a draft; more tries only cost time.
        if attempt == HOPELESS and not drafts and wanted.user_id:
            break
        task = _draw(rng, base, wanted)
        if task is None:
            rejected["drawn"] += 1
            continue
        drafts += 1
        task = replace(task, **fields)
        if content(task) in wanted.taken:
            rejected["new"] += 1
            continue
        # Proofs come last: they play the task many times, and cost more than all that is before.
        try:
            proof = prove(task, base, semantics)
        except Unproved as fault:
            rejected[fault.proof] += 1
            continue
        rejected["kept"] += 1
        return replace(task, proof=proof)
    return None


def content(task: Task) -> str:
    """What makes a task another one, whatever its words."""
    writes = [
        (call.name, sorted(call.arguments.items()))
        # By name, since only what changes something or what is wanted makes a task another one.
        for call in task.actions
        if not call.name.startswith(("get_", "find_", "list_"))
    ]
    wishes = [
        (wish.intent, wish.reason, sorted(wish.arguments.items()), wish.words.get("product"))
        for wish in task.wishes
    ]
    return repr((task.user_id, writes, wishes))


def _draw(rng: random.Random, base: Base, wanted: Commission) -> Task | None:
    knobs, data = wanted.knobs, Overlay(base)
    # `[""]`: a world in which nobody has an order holds no task.
    user_id = wanted.user_id or rng.choice(
        [key for key, user in base.tables["users"].items() if user["orders"]] or [""]
    )
    if not user_id:
        return None
    # Always drawn, also where the share is 0, so that this knob alone shifts nothing else of the
    # seed.
    forgetful = rng.random() < knobs.unknown
    scene = Scene(rng, data, user_id, data.record("users", user_id), knobs, forgetful)
    parts = requests_of(scene, knobs, wanted.shift)
    if not parts or not combined(parts, wanted.shift):
        return None
    wishes = tuple(part.wish for part in parts)
    knowledge = _knowledge(scene, wishes)
    # Reads that two requests share are one read; a second one would be a redundant step of the
    # gold.
    actions = (*_look_ups(scene, knowledge), *_once(call for part in parts for call in part.calls))
    outputs = tuple(
        output
        for wish in wishes
        for output in wish.outputs or (wish.instead.outputs if wish.instead else ())
    )
    # Under tau-bench's scoring doing nothing passes then, so such tasks are listed apart.
    idle = not any(call.name in _WRITE_TOOLS for call in actions)
    return Task(
        id=wanted.name,
        source="generated shop",
        user_id=user_id,
        instruction=situation(knowledge, wishes, rng, wanted.shift),
        actions=actions,
        outputs=outputs,
        goal="transferred" if any(map(hands_over, parts)) else _goal(wishes),
        knowledge=knowledge,
        wishes=wishes,
        traits=_traits(rng) if rng.random() < knobs.traits else {},
        flags=("inaction_passes",) if idle else (),
        difficulty=difficulty(actions, wishes, outputs),
    )


def _goal(wishes: Sequence[Wish]) -> str:
    """Refused only as a whole: with one request that is served the talk ends as served."""
    refused = all(wish.kind == "impossible" and wish.instead is None for wish in wishes)
    return "refused" if refused else "served"


_WRITE_TOOLS = frozenset(TOOL_OF.values())


def difficulty(
    actions: Sequence[GoldCall], wishes: Sequence[Wish], outputs: Sequence[str]
) -> dict[str, int]:
    """Reads, writes and facts that the solution needs, and how often its customer has to speak:
    the opening, one turn for each request that follows another, a yes before each write, and one
    more for each change of mind and each second choice."""
    writes = sum(call.name in _WRITE_TOOLS for call in actions)
    # The opening speaks of the first request, and each other one needs a turn; a yes is one each.
    turns = len(wishes) + writes
    for wish in wishes:
        turns += wish.before_change is not None
        if wish.instead is not None:
            turns += 1 + (wish.instead.before_change is not None)
    return {"reads": len(actions) - writes, "writes": writes, "facts": len(outputs), "turns": turns}


# -- who -----------------------------------------------------------------------------------------


def _knowledge(scene: Scene, wishes: Sequence[Wish]) -> tuple[Slot, ...]:
    """What the customer knows: name, e-mail address or postal code or both, and the numbers of
    its orders unless they are forgotten."""
    # "" twice as rare as one of them: who knows both can be found either way.
    hidden = scene.rng.choice(("zip", "email", ""))
    slots = [
        # Said at the opening; what is hidden is not known at all.
        replace(slot, reveal="opening", known=slot.name != hidden)
        for slot in identity_of(scene.data.base, scene.user_id)
    ]
    numbers: dict[str, bool] = {}  # of the orders: whether the customer knows each
    # A second choice may name an order that the first one does not.
    choices = [each for wish in wishes for each in (wish, wish.instead) if each is not None]
    for wish in choices:
        if "order_id" in wish.arguments:
            order_id = wish.arguments["order_id"]
            # Known as soon as one request says its number, whatever the others call it.
            by_number = wish.words["order"] == f"order {order_id}"
            numbers[order_id] = numbers.get(order_id, False) or by_number
    orders = (
        Slot("order_id", order_id, "opening" if known else "on_ask", known)
        for order_id, known in numbers.items()
    )
    return (*slots, *orders)


def _traits(rng: random.Random) -> dict[str, Any]:
    """A character, in the terms of the scripted customer."""
    return {
        "patience": rng.randint(3, 12),
        "verbosity": rng.randint(0, 2),
        "front_load": rng.randint(0, 4) / 4,
        "cooperation": rng.randint(2, 4) / 4,
        # Half of the characters make no mistakes, so a mistake is not a habit of all.
        "mistakes": rng.choice((0.0, 0.0, 0.2, 0.4)),
        "scepticism": rng.randint(0, 2),
        "order": rng.choice(("given", "shuffled")),
        "register": rng.choice(("plain", "casual", "formal")),
    }


def _look_ups(scene: Scene, knowledge: Sequence[Slot]) -> tuple[GoldCall, ...]:
    """The calls by which the customer is found, and its orders where it has forgotten a number."""
    known = {slot.name: slot.value for slot in knowledge if slot.known}
    if "email" in known:
        find = GoldCall("find_user_id_by_email", {"email": known["email"]})
    else:
        find = GoldCall(
            "find_user_id_by_name_zip",
            {name: known[name] for name in ("first_name", "last_name", "zip")},
        )
    # Only who forgot a number makes the assistant look through all orders.
    searched = (
        scene.user["orders"]
        if any(not slot.known for slot in knowledge if slot.name == "order_id")
        else []
    )
    looks = (GoldCall("get_order_details", {"order_id": order_id}) for order_id in searched)
    return (find, GoldCall("get_user_details", {"user_id": scene.user_id}), *looks)


def _once(calls: Iterable[GoldCall]) -> list[GoldCall]:
    """The calls without repeated reads."""
    distinct: list[GoldCall] = []
    for call in calls:
        if call not in distinct:
            distinct.append(call)
    return distinct
