"""The requests of one generated customer: how many, of which kinds, in which order, and which of
them may come together.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from gem_ma.scenarios.service_desk.desk.task import Wish
from gem_ma.scenarios.service_desk.retail.shop.intents import MAKERS
from gem_ma.scenarios.service_desk.retail.shop.knobs import QUESTIONS, REFUSALS, WRITES, Knobs
from gem_ma.scenarios.service_desk.retail.shop.questions import ask
from gem_ma.scenarios.service_desk.retail.shop.refusals import REFUSED
from gem_ma.scenarios.service_desk.retail.shop.scene import Part, Scene

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


def requests_of(scene: Scene, knobs: Knobs, shift: bool) -> list[Part]:
    """The requests of one customer, in an order that their dependencies allow, each with `after`
    filled in."""
    rng = scene.rng
    # 1 is in twice: where up to three are allowed, half of the customers want one thing.
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
        if hands_over(part) and any(hands_over(other) for other in parts):
            continue
        if (
            part.wish.kind == "impossible"
            and part.before is None
            and not hands_over(part)
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
    if len(parts) == 1 and hands_over(parts[0]) and knobs.allows_more("beyond_tools"):
        return []  # else who hands over everybody at once would be right
    # after these nothing can be done, of the talk or an order
    parts.sort(key=lambda part: (hands_over(part), _last(part.wish).intent == "modify"))
    return [
        replace(part, wish=replace(part.wish, after=_after(parts, place)))
        for place, part in enumerate(parts)
    ]


def hands_over(part: Part) -> bool:
    return part.wish.reason == "beyond_tools"


def _after(parts: Sequence[Part], place: int) -> tuple[int, ...]:
    """The requests that must be settled before this one: all earlier ones of an order whose
    items are changed or exchanged, and all before the talk is handed over."""
    if hands_over(parts[place]):
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


def combined(parts: Sequence[Part], shift: bool) -> bool:
    """Whether the split may have this combination of requests."""
    intents = {wish.intent for wish in map(_last, (part.wish for part in parts)) if wish.writes}
    held_out = any(pair <= intents for pair in HELD_OUT)
    # `shift` has a held-out pair or one write alone; the other splits have no such pair.
    return held_out or len(intents) < 2 if shift else not held_out


def _last(wish: Wish) -> Wish:
    """The last resort of a wish: itself, or what is asked for in its place."""
    return wish if wish.instead is None else _last(wish.instead)
