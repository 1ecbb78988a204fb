"""The generated shop: its invariants, the same bytes everywhere, and tasks that prove right when they are solved again."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from gem_ma.scenarios.retail import Retail, Task
from gem_ma.scenarios.retail.grading import canonical, gold_state
from gem_ma.scenarios.retail.tasks import replay_gold
from gem_ma.scenarios.retail.world import build_tables
from gem_ma.scenarios.service.overlay import Overlay
from gem_ma.scenarios.service.talk import Outcome

from gem_ma.errors import ConfigError

SHOP = Retail(data="own")
VAL = list(SHOP.tasks("val"))


def digest() -> str:
    """All bytes of a world and of the first tasks of each split."""
    shop = Retail(data="own")
    tasks = [repr(task) for split in ("train", "val", "test") for task in shop.tasks(split)[:15]]
    return hashlib.sha256(json.dumps([build_tables(3), tasks]).encode()).hexdigest()


@pytest.mark.parametrize("seed", range(12))
def test_a_world_has_the_invariants_of_the_real_data(seed: int) -> None:
    tables = build_tables(seed)
    users, orders, products = tables["users"], tables["orders"], tables["products"]
    assert (len(users), len(orders), len(products)) == (40, 80, 20)
    variants = {key: variant for product in products.values() for key, variant in product["variants"].items()}
    assert len(variants) == sum(len(product["variants"]) for product in products.values())
    for order_id, order in orders.items():
        user = users[order["user_id"]]
        assert order["order_id"] == order_id
        assert order_id in user["orders"]
        assert re.fullmatch(r"#W\d{7}", order_id)
        assert all(row["payment_method_id"] in user["payment_methods"] for row in order["payment_history"])
        assert order["payment_history"][0]["amount"] == round(sum(item["price"] for item in order["items"]), 2)
        assert len(order["payment_history"]) == (2 if order["status"] == "cancelled" else 1)
        for item in order["items"]:
            variant = products[item["product_id"]]["variants"][item["item_id"]]
            assert (item["price"], item["options"], item["name"]) == (variant["price"], variant["options"], products[item["product_id"]]["name"])
    for user_id, user in users.items():
        assert re.fullmatch(r"[a-z]+_[a-z]+_\d{4}", user_id)
        assert all(orders[order_id]["user_id"] == user_id for order_id in user["orders"])
        assert all(re.fullmatch(rf"{method['source']}_\d{{7}}", key) and method["id"] == key for key, method in user["payment_methods"].items())
    assert len({user["email"] for user in users.values()}) == len(users)
    for product in products.values():
        options = [json.dumps(variant["options"], sort_keys=True) for variant in product["variants"].values()]
        assert len(set(options)) == len(options)
        assert sum(variant["available"] for variant in product["variants"].values()) >= 3
    assert json.dumps(tables).isascii()


def test_the_same_seed_gives_the_same_bytes_whatever_the_string_hashes() -> None:
    root = Path(__file__).resolve().parents[1]
    code = "from tests.test_retail_world import digest; print(digest())"
    found = set()
    for hashes in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": str(root)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=root)
        found.add(done.stdout.strip())
    assert found == {digest()}


def test_the_bytes_are_those_of_this_generator() -> None:
    assert digest() == GOLDEN, "what a seed gives has changed: raise GENERATOR in world.py, and put the new digest here"


GOLDEN = "0e26cbc9ea22120ad6dfb259f05be95c082bd6b1aa817a6779a61ed536818f11"


def test_splits_share_neither_tasks_nor_worlds_and_no_id_stands_twice() -> None:
    splits = {split: SHOP.tasks(split) for split in ("train", "val", "test")}
    seeds = {split: {tasks.first + index for index in range(len(tasks))} for split, tasks in splits.items()}  # type: ignore[attr-defined]
    assert not seeds["train"] & seeds["val"] | seeds["train"] & seeds["test"] | seeds["val"] & seeds["test"]
    worlds = {split: {task.world for task in list(tasks)[:200]} for split, tasks in splits.items()}
    assert not worlds["train"] & worlds["val"] | worlds["train"] & worlds["test"] | worlds["val"] & worlds["test"]
    ids = [task.id for tasks in splits.values() for task in list(tasks)[:200]]
    assert len(set(ids)) == len(ids)


def test_every_kind_of_wish_occurs() -> None:
    kinds = Counter(wish.kind for task in VAL for wish in task.wishes)
    assert set(kinds) == {
        "cancel_pending_order",
        "return_delivered_order_items",
        "exchange_delivered_order_items",
        "modify_pending_order_items",
        "modify_pending_order_address",
        "modify_user_address",
        "modify_pending_order_payment",
        "question",
        "impossible",
    }
    assert any(len(task.wishes) > 1 for task in VAL)


def test_every_task_proves_right_when_it_is_solved_again() -> None:
    for task in VAL:
        base = SHOP.source.world(task)
        end, answers = replay_gold(base, "fixed", task.actions)
        assert not [answer for answer in answers if answer.startswith(("Error", "Unknown"))], task.id
        gold, said = gold_state(base, "fixed", task), (" and ".join(task.outputs) or "done",)
        right = Outcome("user", "refused" if task.goal == "refused" else "settled", said)
        assert canonical(task, end.overlay, gold, right).reward == 1.0
        for outcome in (Outcome("user", "settled"), Outcome("user", "gave_up", ("x",)), Outcome("transfer"), Outcome("limit", said=said)):
            assert canonical(task, Overlay(base), gold, outcome).reward == 0.0, (task.id, outcome)
        for number, call in enumerate(task.actions):
            if end.mutates(call.name):
                less, _ = replay_gold(base, "fixed", task.actions[:number] + task.actions[number + 1 :])
                assert canonical(task, less.overlay, gold, right).reward == 0.0


def _ids(value: Any) -> set[str]:
    return set(re.findall(r"\b\d{10}\b|\b(?:credit_card|gift_card|paypal)_\d+\b|\b[a-z]+_[a-z]+_\d{4}\b", json.dumps(value)))


def test_every_wish_says_what_it_is_about_and_why_it_is_refused() -> None:
    for task in VAL:
        assert all(wish.intent for wish in task.wishes)
        assert all((wish.reason == "order_status") == (wish.kind == "impossible") for wish in task.wishes)
        assert all((wish.outputs != ()) == (wish.kind == "question") for wish in task.wishes)
        assert [output for wish in task.wishes for output in wish.outputs] == list(task.outputs)


def test_the_instruction_tells_every_known_slot_and_no_hidden_id() -> None:
    for task in VAL:
        assert not _ids(task.instruction), task.id
        orders = {slot.value for slot in task.knowledge if slot.name == "order_id"}
        assert orders == {wish.arguments["order_id"] for wish in task.wishes if "order_id" in wish.arguments}
        known = {slot.name: slot.value for slot in task.knowledge if slot.known and slot.name != "order_id"}
        assert known.keys() in ({"first_name", "last_name", "email"}, {"first_name", "last_name", "zip"})
        assert all(value in task.instruction.split(" You want")[0] for value in known.values())
        for wish in task.wishes:
            assert wish.arguments.get("order_id", "") in task.instruction
            for item in wish.words.get("items", ()):
                assert item.name in task.instruction
                assert all(value in task.instruction for value in (*item.options.values(), *(item.wanted or {}).values()))
            assert not any(output in task.instruction for output in task.outputs if len(output) > 3)


def test_tasks_are_a_sequence_made_when_asked_for() -> None:
    tasks = Retail(data="own").tasks("test")
    assert len(tasks) == 200
    assert isinstance(tasks[-1], Task)
    assert tasks[-1] == tasks[199] == tasks[198:][1]
    with pytest.raises(IndexError):
        tasks[200]


def test_even_the_smallest_shop_holds_tasks() -> None:
    tasks = Retail(data="own", users=1, orders=1, products=1).tasks("val")
    assert len({tasks[index].instruction for index in range(0, 200, 20)}) == 10


def test_a_split_that_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match=r"train, val, test; got 'dev'"):
        SHOP.tasks("dev")


def test_our_world_plays_under_the_benchmarks_tools_too() -> None:
    shop = Retail(data="own", semantics="tau1", scoring="tau1")
    task = shop.tasks("test")[2]
    base = shop.source.world(task)
    end, _ = replay_gold(base, "tau1", task.actions)
    assert end.overlay.equals(gold_state(base, "tau1", task))
