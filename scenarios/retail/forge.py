"""Tasks for the generated shop: composed of requests by a seed, solved with the real tools, kept
only where all proofs hold.

The instruction names nothing that the customer could not know: no item id, no payment id, no
user id.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from gem_ma.scenarios.retail.describe import situation
from gem_ma.scenarios.retail.intents import MAKERS
from gem_ma.scenarios.retail.knobs import QUESTIONS, REFUSALS, WRITES, Knobs
from gem_ma.scenarios.retail.prove import prove
from gem_ma.scenarios.retail.questions import ask
from gem_ma.scenarios.retail.refusals import REFUSED
from gem_ma.scenarios.retail.scene import TOOL_OF, Part, Scene
from gem_ma.scenarios.retail.tasks import identity_of
from gem_ma.scenarios.retail.world import GENERATOR
from gem_ma.scenarios.service.desk.overlay import Base, Overlay
from gem_ma.scenarios.service.desk.task import GoldCall, Slot, Task, Wish
from gem_ma.scenarios.service.grading.proofs import Unproved

# tries for one task; so many in the beginning without even a draft, and the customer has none
TRIES, HOPELESS = 60, 6
DRAWS = 6  # of one request
WEIGHTS = {"return": 3, "exchange": 3, "modify": 3, "cancel": 2, "address": 2, "payment": 2}
# pairs of writes in one talk that only the split `shift` has; there, who wants several writes wants
# such a pair
HELD_OUT = tuple(
    # What stays out of training is the combination, not its parts: each intent alone is learned, so
    # the split tests whether it is put together anew.
    frozenset(pair)
    for pair in (
        ("return", "address"),
        ("exchange", "payment"),
        ("cancel", "default_address"),
        ("modify", "return"),
    )
)


def forge(
    base: Base,
    semantics: str,
    name: str,
    seed: int,
    knobs: Knobs | None = None,
    user_id: str = "",
    shift: bool = False,
    taken: Collection[str] = (),
    rejected: Counter[str] | None = None,
    **fields: Any,
) -> Task | None:
    """The task of a seed, None where the world holds none; `fields` are further ones of Task.

    `user_id`: whose it is ("" = any). `shift`: with held-out combinations and sentences.
    `taken`: contents that the task may not repeat (see `content`). `rejected` counts what was
    thrown away by the name of the proof.
    """
    # The knobs are a part of the seed: other knobs give other tasks, not the same with pieces
    # changed.
    knobs, rejected = knobs or Knobs(), Counter() if rejected is None else rejected
    rng = random.Random(f"retail-task/{GENERATOR}/{seed}/{knobs.digest}")
    drafts = 0
    for attempt in range(TRIES):
        # A customer without orders of the kind never gives a draft; more tries only cost time.
        if attempt == HOPELESS and not drafts and user_id:
            break
        task = _draw(rng, base, name, knobs, user_id, shift)
        if task is None:
            rejected["drawn"] += 1
            continue
        drafts += 1
        task = replace(task, **fields)
        if content(task) in taken:
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


def _draw(
    rng: random.Random, base: Base, name: str, knobs: Knobs, user_id: str, shift: bool
) -> Task | None:
    data = Overlay(base)
    # `[""]`: a world in which nobody has an order holds no task.
    user_id = user_id or rng.choice(
        [key for key, user in base.tables["users"].items() if user["orders"]] or [""]
    )
    if not user_id:
        return None
    scene = Scene(
        rng,
        data,
        user_id,
        data.record("users", user_id),
        # Always drawn, also where the share is 0, so that this knob alone shifts nothing else of
        # the seed.
        knobs,
        forgetful=rng.random() < knobs.unknown,
    )
    parts = _parts(scene, knobs, shift)
    if not parts or not _combined(parts, shift):
        return None
    wishes = tuple(part.wish for part in parts)
    knowledge = _knowledge(scene, wishes)
    # Reads that two requests share are one read; a second one would be a redundant step of the
    # gold.
    actions = (*_found(scene, knowledge), *_once(call for part in parts for call in part.calls))
    goal = "transferred" if any(map(_hands_over, parts)) else "served"
    goal = (
        "refused"
        if goal == "served"
        # Refused only as a whole: with one request that is served the talk ends as served.
        and all(wish.kind == "impossible" and wish.instead is None for wish in wishes)
        else goal
    )
    outputs = tuple(
        output
        for wish in wishes
        for output in wish.outputs or (wish.instead.outputs if wish.instead else ())
    )
    return Task(
        id=name,
        source="generated shop",
        user_id=user_id,
        instruction=situation(knowledge, wishes, rng, shift),
        actions=actions,
        outputs=outputs,
        goal=goal,
        knowledge=knowledge,
        wishes=wishes,
        traits=_traits(rng) if rng.random() < knobs.traits else {},
        # Under tau-bench's scoring doing nothing then passes, so such tasks are listed apart.
        flags=() if any(call.name in _WRITE_TOOLS for call in actions) else ("inaction_passes",),
        difficulty=difficulty(actions, wishes, outputs),
    )


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


# -- requests ------------------------------------------------------------------------------------


def _parts(scene: Scene, knobs: Knobs, shift: bool) -> list[Part]:
    """The requests of one customer, in an order that their dependencies allow, each with `after`
    filled in."""
    rng = scene.rng
    # 1 is in twice, so half of the talks of a wide shop still want just one thing.
    count = rng.choice((1, *range(1, knobs.requests + 1)))
    forced = _held_out_pair(rng, knobs) if shift and count > 1 else []
    parts: list[Part] = []
    # Twice the count: a request may find no order that is free, and the next draw may.
    for attempt in range(2 * count):
        if len(parts) >= count:
            break
        part = (
            _try(scene, MAKERS[forced[attempt]])
            if attempt < len(forced)
            else _any_part(scene, knobs)
        )
        if part is None:
            continue
        # One hand-over at most: it ends the talk, so a second one could never be served.
        if _hands_over(part) and any(_hands_over(other) for other in parts):
            continue
        if (
            part.wish.kind == "impossible"
            and part.before is None
            and not _hands_over(part)
            and rng.random() < knobs.conditional
        ):
            # Writes only. A second choice that is a question or a refusal again would need no yes.
            writes = [_pick(rng, WRITES, knobs) for _ in range(DRAWS)]
            other = next(
                (made for name in writes if name and (made := _try(scene, MAKERS[name]))), None
            )
            if other is not None:
                part = Part(replace(part.wish, instead=other.wish), (*part.calls, *other.calls))
        if part.before is not None:
            parts.append(part.before)
        parts.append(replace(part, before=None))
    if len(parts) == 1 and _hands_over(parts[0]) and knobs.allows_more("beyond_tools"):
        return []  # else who hands over everybody at once would be right
    # after these nothing can be done, of the talk or an order
    parts.sort(key=lambda part: (_hands_over(part), _last(part.wish).intent == "modify"))
    return [
        replace(part, wish=replace(part.wish, after=_after(parts, place)))
        for place, part in enumerate(parts)
    ]


def _hands_over(part: Part) -> bool:
    return part.wish.reason == "beyond_tools"


def _after(parts: Sequence[Part], place: int) -> tuple[int, ...]:
    """The requests that must be settled before this one: all earlier ones of an order whose
    items are changed or exchanged, and all before the talk is handed over."""
    if _hands_over(parts[place]):
        return tuple(range(place))
    wish = _last(parts[place].wish)
    order_id = wish.arguments.get("order_id")
    # A change of items is done once and locks the order; of other writes the order does not matter.
    if wish.intent not in ("modify", "exchange") or order_id is None:
        return ()
    return tuple(
        number
        for number, part in enumerate(parts[:place])
        if _last(part.wish).arguments.get("order_id") == order_id
    )


def _any_part(scene: Scene, knobs: Knobs) -> Part | None:
    rng = scene.rng
    kinds: list[tuple[float, Callable[[], Part | None]]] = []
    asked, refused, writes = (_pick(rng, names, knobs) for names in (QUESTIONS, REFUSALS, WRITES))
    if refused:
        kinds.append(
            (
                # A share of 0 still draws where nothing else is allowed: knobs that name only
                # refusals mean it.
                knobs.infeasible or (0.0 if writes or asked else 1.0),
                lambda: _try(scene, REFUSED[refused]),
            )
        )
    if asked:
        kinds.append(
            (
                knobs.questions or (0.0 if writes or refused else 1.0),
                lambda: _try(scene, lambda scene: ask(scene, asked)),
            )
        )
    share = sum(weight for weight, _ in kinds)
    if writes:
        kinds.append(
            # Questions and refusals take their shares, writes the rest. Shares above 1 leave them
            # nothing.
            (max(0.0, 1 - share) if share < 1 else 0.0, lambda: _try(scene, MAKERS[writes]))
        )
    weights = [weight for weight, _ in kinds]
    # Equal chances where all weights are 0, since `choices` refuses those.
    return rng.choices([make for _, make in kinds], weights if sum(weights) > 0 else None)[0]()


def _pick(rng: random.Random, names: Sequence[str], knobs: Knobs) -> str:
    allowed = [name for name in names if knobs.allows(name) for _ in range(WEIGHTS.get(name, 1))]
    return rng.choice(allowed) if allowed else ""


def _try(scene: Scene, make: Callable[[Scene], Part | None]) -> Part | None:
    """What a maker makes in a few draws; orders that it took for nothing are free again."""
    for _ in range(DRAWS):
        # A maker may take an order and then find no item for it; the sets are copied, as it adds to
        # them.
        before = {key: set(intents) for key, intents in scene.taken.items()}
        part = make(scene)
        if part is not None:
            return part
        scene.taken = before
    return None


def _held_out_pair(rng: random.Random, knobs: Knobs) -> list[str]:
    """A pair of writes that only the split `shift` has, if the knobs allow one."""
    # Sorted, since the pairs are sets and a set of texts has no order that lasts.
    pairs = [sorted(pair) for pair in HELD_OUT if all(knobs.allows(intent) for intent in pair)]
    return rng.choice(pairs) if pairs else []


def _combined(parts: Sequence[Part], shift: bool) -> bool:
    """Whether the split may have this combination of requests."""
    intents = {wish.intent for wish in map(_last, (part.wish for part in parts)) if wish.writes}
    held_out = any(pair <= intents for pair in HELD_OUT)
    # `shift` has a held-out pair or one write alone; the other splits have no such pair.
    return held_out or len(intents) < 2 if shift else not held_out


def _last(wish: Wish) -> Wish:
    """The last resort of a wish: itself, or what is asked for in its place."""
    return wish if wish.instead is None else _last(wish.instead)


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
    said: dict[str, bool] = {}
    for wish in wishes:
        # A second choice may name an order that the first one does not.
        for one in (wish, wish.instead):
            if one is not None and "order_id" in one.arguments:
                order_id = one.arguments["order_id"]
                # Known as soon as one request says its number, whatever the others call it.
                said[order_id] = (
                    said.get(order_id, False) or one.words["order"] == f"order {order_id}"
                )
    return (
        *slots,
        *(
            Slot("order_id", order_id, "opening" if known else "on_ask", known)
            for order_id, known in said.items()
        ),
    )


def _traits(rng: random.Random) -> dict[str, Any]:
    """A character, in the terms of the scripted customer."""
    return {
        "patience": rng.randint(3, 12),
        "verbosity": rng.randint(0, 2),
        "front_load": rng.randint(0, 4) / 4,
        "cooperation": rng.randint(2, 4) / 4,
        # Half of the characters make no mistakes, so a mistake is no habit of all.
        "mistakes": rng.choice((0.0, 0.0, 0.2, 0.4)),
        "scepticism": rng.randint(0, 2),
        "order": rng.choice(("given", "shuffled")),
        "register": rng.choice(("plain", "casual", "formal")),
    }


def _found(scene: Scene, knowledge: Sequence[Slot]) -> tuple[GoldCall, ...]:
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


def _once(calls: Any) -> list[GoldCall]:
    """The calls without repeated reads."""
    found: list[GoldCall] = []
    for call in calls:
        if call not in found:
            found.append(call)
    return found
