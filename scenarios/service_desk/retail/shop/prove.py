"""The proofs of `service.grading.proofs` for retail tasks: near misses of each write, and what
makes an answer the only one.

`prove(task)` makes all proofs again from the task alone; for tasks of a data folder, or to save
the making of a world, give its tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product as combinations
from typing import Any

from gem_ma.scenarios.service_desk.desk.log import Outcome, Store
from gem_ma.scenarios.service_desk.desk.overlay import Base, Overlay
from gem_ma.scenarios.service_desk.desk.task import GoldCall, Task, Wish
from gem_ma.scenarios.service_desk.grading import proofs
from gem_ma.scenarios.service_desk.grading.goals import goals_of
from gem_ma.scenarios.service_desk.grading.grader import canonical
from gem_ma.scenarios.service_desk.retail.domain.domain import RETAIL
from gem_ma.scenarios.service_desk.retail.domain.grading import changes
from gem_ma.scenarios.service_desk.retail.domain.kinds import ADDRESS
from gem_ma.scenarios.service_desk.retail.shop.describe import audit, every
from gem_ma.scenarios.service_desk.retail.shop.intents import ANY_METHOD
from gem_ma.scenarios.service_desk.retail.shop.questions import QUESTIONS
from gem_ma.scenarios.service_desk.retail.shop.scene import TOOL_OF, candidates, contents, described
from gem_ma.scenarios.service_desk.retail.shop.world import Sizes, tables_of
from gem_ma.scenarios.service_desk.retail.store.store import RetailStore
from gem_ma.scenarios.service_desk.retail.store.tasks import method_words
from gem_ma.scenarios.service_desk.retail.store.tools import REASONS

from gem_ma.kernel.errors import DataError

# Enough to tell a task from its neighbours; the full product of wrong values takes minutes a task.
MOST_MISSES = 3  # of each argument


def prove(task: Task, base: Base | None = None, semantics: str = "fixed") -> dict[str, int]:
    """How many cases each proof of a generated task went through. `base`: its world; None makes it.

    Raises `proofs.Unproved` (a DataError) where one fails, DataError where the task does not say
    its world.
    """
    return proofs.prove(trial(task, world_of(task) if base is None else base, semantics))


def world_of(task: Task) -> Base:
    """The world of a generated task, made again. Raises DataError for a task that has none."""
    sizes = task.raw.get("sizes")
    if task.world is None or not isinstance(sizes, Mapping):
        raise DataError(f"task {task.id}: it does not say its world; give the tables")
    return Base(tables_of(task.world, Sizes(**sizes)))


def trial(task: Task, base: Base, semantics: str = "fixed") -> proofs.Trial:
    """What retail brings to the proofs of one task."""

    # A new store each time: a proof writes, and must find the world untouched.
    def opened() -> RetailStore:
        return RetailStore(base, semantics)

    goals = goals_of(task, lambda: (opened(), None), RETAIL)
    return proofs.Trial(
        task=task,
        opened=opened,
        changed=lambda store: changes(store.overlay),
        judge=lambda done, outcome: _judge(task, done, goals, outcome),
        goals=goals,
        # An overlay of its own too, since near misses are drawn from the state before any write.
        misses=lambda call: _misses(Overlay(base), task, call),
        turned=_turned,
        unique=lambda end: _unique(task, Overlay(base), end),
        reads_back=lambda: audit(task),
    )


def _judge(
    task: Task, done: proofs.Facts, goals: tuple[proofs.Facts, ...], outcome: Outcome
) -> bool:
    return canonical(task, done, goals, outcome, RETAIL).reward == 1


# -- near misses ---------------------------------------------------------------------------------


def _misses(data: Overlay, task: Task, call: GoldCall) -> Iterator[GoldCall]:
    """The write with one argument wrong, in every way that a hasty assistant might."""
    for name, value in call.arguments.items():
        for other in _wrong(data, task, call.arguments, name, value):
            yield GoldCall(call.name, {**call.arguments, name: other})


def _wrong(
    data: Overlay, task: Task, arguments: Mapping[str, Any], name: str, value: Any
) -> list[Any]:
    user = data.record("users", task.user_id)
    if name == "order_id":
        # Only orders of the same status: another one would be refused, and prove nothing.
        status = data.record("orders", value)["status"]
        return [
            key
            for key in user["orders"]
            if key != value and data.record("orders", key)["status"] == status
        ][:MOST_MISSES]
    if name == "payment_method_id":
        return [key for key in user["payment_methods"] if key != value]
    if name == "reason":
        return [reason for reason in REASONS if reason != value]
    if name == "user_id":
        # One other user stands for all.
        return [key for key in data.base.tables["users"] if key != value][:1]
    if name in ADDRESS:
        # A digit more is a value that cannot be any other right one.
        return [f"{value}9"]
    if name == "item_ids":
        held = [item["item_id"] for item in data.record("orders", arguments["order_id"])["items"]]
        others = [item_id for item_id in dict.fromkeys(held) if item_id not in value]
        swapped = [
            [*value[:place], other, *value[place + 1 :]]
            for place in range(len(value))
            for other in others[:MOST_MISSES]
        ]
        # With new items a shorter list would no longer pair with them.
        if "new_item_ids" in arguments:
            return swapped
        fewer = [[*value[:place], *value[place + 1 :]] for place in range(len(value))]
        return [*swapped, *fewer, *([*value, other] for other in others[:MOST_MISSES])]
    if name == "new_item_ids":
        products = {
            item["item_id"]: item["product_id"]
            for item in data.record("orders", arguments["order_id"])["items"]
        }
        swaps = []
        for place, old in enumerate(arguments["item_ids"]):
            keys = [
                entry.key
                for entry in candidates(data, products[old])
                if entry.key not in (old, value[place])
            ]
            swaps += [[*value[:place], key, *value[place + 1 :]] for key in keys[:MOST_MISSES]]
        return swaps
    return []


def _turned(call: GoldCall) -> Iterator[GoldCall]:
    """The write with its items in other orders, pairs kept: turned around, and moved on by one."""
    # Only lists are turned; a call without any yields nothing.
    lists = {name: value for name, value in call.arguments.items() if isinstance(value, list)}
    count = max((len(value) for value in lists.values()), default=0)
    orders = [list(reversed(range(count)))] if count > 1 else []
    orders += [[*range(1, count), 0]] if count > 2 else []
    for order in orders:
        yield GoldCall(
            call.name,
            {
                **call.arguments,
                **{name: [value[place] for place in order] for name, value in lists.items()},
            },
        )


# -- the only answer -----------------------------------------------------------------------------


def _unique(task: Task, start: Overlay, end: Store) -> str:
    # Told before anything is read by this id.
    if not start.has("users", task.user_id):
        return f"there is no user {task.user_id}"
    # Both ways: a task that hands over must want what no tool does, and the other way round.
    if (task.goal == "transferred") != any(
        wish.reason == "beyond_tools" for wish in every(task.wishes)
    ):
        return f"what the wishes come to is not {task.goal}"
    # Second choices and first minds count: the customer may be asked about each.
    for wish in every(task.wishes):
        fault = _named(task, start, wish)
        if not fault and wish.kind == "question":
            fault = _answered(task, start, end.overlay, wish)
        elif not fault and wish.kind == "impossible":
            fault = _due(task, start, end, wish)
        elif not fault:
            fault = _wanted(start, wish)
        if fault:
            return fault
    return ""


def _named(task: Task, data: Overlay, wish: Wish) -> str:
    """Whether the customer's words for order, items and method fit only what is meant."""
    user, words, order_id = (
        data.record("users", task.user_id),
        wish.words,
        wish.arguments.get("order_id"),
    )
    # The words are checked where they are not numbers.
    if order_id is not None and words.get("order") != f"order {order_id}":
        orders = [data.record("orders", key) for key in user["orders"]]
        fitting = [
            order["order_id"] for order in orders if _fits(words.get("order"), contents(order))
        ]
        if fitting != [order_id]:
            return f"{words.get('order')!r} fits {len(fitting)} orders"
    if "items" in words:
        for item, item_id in zip(words["items"], wish.arguments["item_ids"], strict=True):
            held = data.record("orders", order_id or "")["items"]
            # Ids are a set: two equal items of one order are both meant by the words.
            fits = {
                entry["item_id"]
                for entry in held
                if entry["name"] == item.name and entry["options"] == item.options
            }
            if fits != {item_id}:
                return f"{item.name} with {dict(item.options)} fits {len(fits)} items"
    method = words.get("method", ANY_METHOD)
    if method != ANY_METHOD and wish.writes:
        # Of a refused wish the method may be one that the account does not have.
        methods = user["payment_methods"]
        meant = [key for key in methods if method_words(methods, key) == method]
        if meant != [wish.arguments["payment_method_id"]]:
            return f"{method!r} fits {len(meant)} payment methods"
    return ""


def _fits(words: Any, names: list[str]) -> bool:
    """Whether an order of these products is described by these words."""
    # Either article may stand there.
    parts = [
        part.removeprefix("a ").removeprefix("an ")
        for part in str(words).removeprefix(described(())).split(" and ")
    ]
    return set(parts) <= set(names)


def _wanted(data: Overlay, wish: Wish) -> str:
    """Whether the preferences allow just the accepted swaps."""
    if "new_item_ids" not in wish.arguments:
        return ""
    order = data.record("orders", wish.arguments["order_id"])
    best = []
    for item, old in zip(wish.words["items"], wish.arguments["item_ids"], strict=True):
        product_id = next(
            entry["product_id"] for entry in order["items"] if entry["item_id"] == old
        )
        # To keep the item is not a swap, so it is not a candidate.
        variants = [entry for entry in candidates(data, product_id) if entry.key != old]
        best.append(item.program.best(item.options, variants))
    right = set(combinations(*best))
    accepted = {tuple(entry["new_item_ids"]) for entry in (wish.arguments, *wish.choices)}
    return (
        ""
        if right == accepted
        else f"what is wanted fits {len(right)} swaps, {len(accepted)} are accepted"
    )


def _answered(task: Task, start: Overlay, end: Overlay, wish: Wish) -> str:
    """Whether the answer is what the data say, before all changes and after them."""
    answer = QUESTIONS[wish.intent].answer
    # Both states: the customer may ask first or last, and must get one answer.
    answers = {answer(data, task.user_id, wish) for data in (start, end)}
    return (
        ""
        if answers == set(wish.outputs) and len(wish.outputs) == 1
        else f"{wish.intent} has the answers {sorted(answers)}, not {wish.outputs}"
    )


def _due(task: Task, data: Overlay, end: Store, wish: Wish) -> str:
    """Whether what must be refused really cannot be done, or must not."""
    if wish.reason == "beyond_tools":  # no call does it
        return "" if task.goal == "transferred" else "what no tool can do is handed over"
    if data.record("orders", wish.arguments["order_id"])["user_id"] != task.user_id:
        return "" if wish.reason == "not_yours" else "the order is somebody else's"
    # Played on a copy of the end, so that a refusal holds after everything else has been done.
    tried = RetailStore(end.overlay.base, end.semantics)  # type: ignore[attr-defined]
    tried.overlay = end.overlay.copy()
    answer = tried.call(TOOL_OF[wish.intent], dict(wish.arguments))
    return (
        "" if answer.startswith("Error: ") else f"what is to be refused ({wish.reason}) can be done"
    )
