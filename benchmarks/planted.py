"""Does a play's decisive turn find a planted fault? Assistants of `retail` that are careful but for
one act, by which the task is lost for good: the step of that act beside the turn that forks find.

    python benchmarks/planted.py [--talks 25] [--plays 8]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gem_ma.scenarios.service_desk.agents.retail_moves import Form, Lookup, Move
from gem_ma.scenarios.service_desk.agents.retail_scripted import RetailScripted
from gem_ma.scenarios.service_desk.agents.retail_talk import use

from gem_ma import Action, Plan, Scenario, Seat, attribution, make, play
from gem_ma.scores.forked import Forks

AGENT = "assistant"
BETTER = "retail_scripted"
CHANGED = {  # what is done in place of an agreed change, by the state of the order
    "modify_pending_order_items": "cancel_pending_order",
    "modify_pending_order_address": "cancel_pending_order",
    "modify_pending_order_payment": "cancel_pending_order",
    "exchange_delivered_order_items": "return_delivered_order_items",
}
# the act in place of an agreed one, None where the fault cannot show
Fault = Callable[["Planted", Move], Generator[Action, str, Action | None]]


class Planted(RetailScripted):
    """The careful assistant, but for its first agreed change at which the fault can show."""

    def __init__(self, fault: Fault, agent: str, rng: random.Random) -> None:
        super().__init__(agent, None, rng)
        self.fault = fault
        self.planted: Action | None = None

    def write(self, form: Form, move: Move, heard: str) -> Lookup:
        if self.planted is None:
            self.planted = yield from self.fault(self, move)
            if self.planted is not None:
                result = yield self.planted
                if not result.startswith("Error"):
                    # it goes on as if it had made the agreed change
                    self.forms.remove(form)
                    self.untold.append("what we agreed on")
                    self.hear((yield from self.tell_changes()))
                    return
        yield from super().write(form, move, heard)


def wrong_variant(self: Planted, move: Move) -> Generator[Action, str, Action | None]:
    """Another available variant of the product than the one that was agreed."""
    if "new_item_ids" not in move.arguments:
        return None
    order = json.loads((yield use("get_order_details", order_id=move.arguments["order_id"])))
    old = move.arguments["item_ids"][0]
    product_id = next(item["product_id"] for item in order["items"] if item["item_id"] == old)
    product = json.loads((yield use("get_product_details", product_id=product_id)))
    agreed = move.arguments["new_item_ids"]
    others = [
        key
        for key, variant in product["variants"].items()
        if variant["available"] and key not in (old, *agreed)
    ]
    if not others:
        return None
    return use(move.tool, **{**move.arguments, "new_item_ids": [others[0], *agreed[1:]]})


def wrong_method(self: Planted, move: Move) -> Generator[Action, str, Action | None]:
    """Another payment method of the customer than the one that was agreed."""
    yield from ()
    agreed = move.arguments.get("payment_method_id")
    others = [key for key in self.account.user["payment_methods"] if key != agreed]
    if agreed is None or not others:
        return None
    # a refund goes to the method that paid, or to a gift card
    cards = [key for key in others if key.startswith("gift_card")]
    is_refund = move.tool == "return_delivered_order_items"
    if is_refund and not cards:
        return None
    return use(move.tool, **{**move.arguments, "payment_method_id": (cards or others)[0]})


def other_change(self: Planted, move: Move) -> Generator[Action, str, Action | None]:
    """The order is cancelled or sent back where a change was agreed."""
    yield from ()
    tool = CHANGED.get(move.tool)
    if tool is None:
        return None
    if tool == "cancel_pending_order":
        return use(tool, order_id=move.arguments["order_id"], reason="no longer needed")
    kept = ("order_id", "item_ids", "payment_method_id")
    return use(tool, **{key: move.arguments[key] for key in kept})


def wrong_order(self: Planted, move: Move) -> Generator[Action, str, Action | None]:
    """Another order of the customer is cancelled or sent back, which nobody asked for."""
    for order_id in self.account.user["orders"]:
        if order_id == move.arguments.get("order_id"):
            continue
        order = json.loads((yield use("get_order_details", order_id=order_id)))
        if order["status"] == "pending":
            return use("cancel_pending_order", order_id=order_id, reason="no longer needed")
        if order["status"] == "delivered":
            return use(
                "return_delivered_order_items",
                order_id=order_id,
                item_ids=[order["items"][0]["item_id"]],
                payment_method_id=order["payment_history"][0]["payment_method_id"],
            )
    return None


def hand_over(self: Planted, move: Move) -> Generator[Action, str, Action | None]:
    """The customer is handed over to a human."""
    yield from ()
    return use("transfer_to_human_agents", summary="The customer wants a change.")


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (wrong_variant, wrong_method, other_change, wrong_order, hand_over)
}


def played(scenario: Scenario, fault: Fault, number: int) -> tuple[Forks, int | None]:
    """A talk with the fault, and the step at which it shows; None where it does not."""
    players: list[Planted] = []

    def factory(agent: str, sample: Any, rng: random.Random, task: Any = None) -> Planted:
        players.append(Planted(fault, agent, rng))
        return players[-1]

    cast = {agent: Seat(name) for agent, name in scenario.default_cast.items()}
    cast[AGENT] = Seat("planted")
    plan = Plan(scenario, cast, task=f"test/{number}")
    episode = asyncio.run(play(plan, {}, {AGENT: factory}))
    assert episode.end.scored, episode.error
    act = players[0].planted
    step = next((turn.step for turn in episode.turns if turn.action == act), None)
    return Forks(scenario, episode, behaviours={AGENT: factory}), step


class Found(NamedTuple):
    """Of the first talks that a fault `lost`: how often the decisive turn was `right`; `planted`:
    the talks in which it showed; `cost`: CPU ms a fork."""

    planted: int
    lost: int
    right: int
    cost: float


def found(scenario: Scenario, name: str, talks: int, plays: int) -> Found:
    right = lost = planted = forks_made = 0
    taken = 0.0
    for number in range(len(scenario.tasks("test"))):
        if lost == talks:
            break
        forks, step = played(scenario, FAULTS[name], number)
        planted += step is not None
        if step is None or scenario.success(forks.episode) is not False:
            continue
        careful = replace(forks, cast={**forks.seats, AGENT: Seat(BETTER)}, behaviours={})
        whole = asyncio.run(careful.play(careful.plan("1"), {}))
        # who never wins decides no turn
        if not scenario.success(whole):
            continue
        lost += 1
        start = time.process_time()
        turn, tried = asyncio.run(
            attribution.decisive_turn(forks, AGENT, BETTER, success=scenario.success, plays=plays)
        )
        taken += time.process_time() - start
        forks_made += plays * len(tried)
        right += turn is not None and turn.step == step
    return Found(planted, lost, right, 1e3 * taken / max(1, forks_made))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--talks", type=int, default=25)
    parser.add_argument("--plays", type=int, default=8)
    chosen = parser.parse_args()
    scenario = make("retail")
    print("| planted act | talks with it | decisive turn at it | CPU ms a fork |")
    print("| --- | ---: | ---: | ---: |")
    for name in FAULTS:
        row = found(scenario, name, chosen.talks, chosen.plays)
        cells = (name, row.planted, f"{row.right} of {row.lost}", f"{row.cost:.1f}")
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
