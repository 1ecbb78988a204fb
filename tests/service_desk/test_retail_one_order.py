"""The one-order shop: its tasks and their proofs, its few words, what guessing is worth, and
that a tiny model can sit in either seat."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from gem_ma.scenarios.service_desk.agents.retail_counter import Clerk
from gem_ma.scenarios.service_desk.retail.compact import (
    ANSWERS,
    ASSISTANT_WORDS,
    HEARD,
    OPENINGS,
    SAYS,
    USER_WORDS,
    WHAT,
)
from gem_ma.scenarios.service_desk.retail.counter import RetailOneOrder
from gem_ma.scenarios.service_desk.retail.one_order import (
    COLOURS,
    SIZES,
    never_looking,
    world,
    write,
)

from gem_ma import Game
from gem_ma.cli.main import main
from gem_ma.driver.behaviour import behaviour_rng
from gem_ma.driver.rollout import Plan
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.errors import ConfigError
from tests.plays import played_all

CONFIGS = Path(__file__).parents[2] / "configs"
SHOP = RetailOneOrder()
BY_WISH = {
    "change": ("pending", "delivered", "processed"),
    "question": ("pending",),
    "cancel": ("pending", "delivered"),
}


def order_of(task):
    return next(iter(world(task.world).tables["orders"].values()))


def a_task(wish, status):
    return next(
        task
        for task in SHOP.tasks("test")
        if task.knows("wish") == wish and order_of(task)["status"] == status
    )


def success(task, assistant, user):
    """What the outcome is when the two say these words."""
    game, said = Game(SHOP, task, 0), {"assistant": iter(assistant), "user": iter(user)}
    while game.pending:
        game.send({agent: next(said[agent]) for agent in game.pending})
    return sum(entry.value for entry in game.ledger if entry.agent == "assistant")


def played(assistant, count=300, **options):
    plans = [
        Plan(
            SHOP,
            {"assistant": Seat(assistant, None, options), "user": Seat("one_order_customer")},
            f"test/{n}",
            n,
        )
        for n in range(count)
    ]

    return played_all(plans)


def mean_success(assistant, **options):
    found = [SHOP.success(episode) for episode in played(assistant, **options)]
    return sum(found) / len(found)


# -- tasks ---------------------------------------------------------------------------------------


def test_each_task_has_a_world_of_one_order_and_was_proved_in_it():
    for task in SHOP.tasks("train")[:40]:
        tables = world(task.world).tables
        assert [len(tables[name]) for name in ("users", "orders", "products")] == [1, 1, 1]
        (product,), (order,) = tables["products"].values(), tables["orders"].values()
        assert len(product["variants"]) == 16 and all(
            variant["available"] for variant in product["variants"].values()
        )
        assert order["payment_history"][0]["amount"] == order["items"][0]["price"]
        assert task.proof["solvable"] >= 2 and task.proof["idle"] >= 5
        assert not task.actions[1:] or task.proof["sharp"] > 0
        assert task.goal == ("refused" if len(task.actions) == 1 and not task.outputs else "served")


@pytest.mark.long
def test_the_same_task_is_made_again_and_splits_share_no_world():
    again = RetailOneOrder()
    assert again.tasks("test")[7] == SHOP.tasks("test")[7]
    seeds = {
        split: {task.world for task in SHOP.tasks(split)[:100]}
        for split in ("train", "val", "test")
    }
    assert (
        not seeds["train"] & seeds["test"]
        and not seeds["train"] & seeds["val"]
        and not seeds["val"] & seeds["test"]
    )
    with pytest.raises(ConfigError, match="one-order shop has train, val, test"):
        again.tasks("dev")


@pytest.mark.long
def test_wishes_and_statuses_are_mixed_as_declared():
    tasks = SHOP.tasks("train")[:300]
    wishes = Counter(task.knows("wish") for task in tasks)
    statuses = Counter(order_of(task)["status"] for task in tasks)
    assert abs(wishes["change"] / 300 - 0.7) < 0.05 and abs(wishes["question"] / 300 - 0.2) < 0.04
    assert abs(statuses["pending"] / 300 - 0.45) < 0.05
    assert abs(statuses["processed"] / 300 - 0.1) < 0.03


# -- words ---------------------------------------------------------------------------------------


def test_every_sentence_has_its_own_words_and_no_word_is_said_by_both_for_different_things():
    assert len(HEARD) == len(SAYS) + len(OPENINGS) + len(ANSWERS)
    assert len(set(ASSISTANT_WORDS)) == len(ASSISTANT_WORDS) and len(set(USER_WORDS)) == len(
        USER_WORDS
    )
    assert WHAT not in HEARD.values()


def test_a_change_serves_where_colour_and_size_and_tool_are_right():
    task = a_task("change", "delivered")
    colour, size = task.knows("colour"), order_of(task)["items"][0]["options"]["size"]
    other = next(name for name in SIZES if name != size)
    user = ["change colour", colour, "bye"]
    assert success(task, ["look", "ask colour", f"exchange {colour} {size}", "done"], user) == 1
    assert (
        success(
            task,
            ["ask colour", f"modify {colour} {size}", f"exchange {colour} {size}", "done"],
            user,
        )
        == 1
    )
    assert success(task, ["look", "ask colour", f"exchange {colour} {other}", "done"], user) == 0
    assert success(task, ["look", "ask colour", f"modify {colour} {size}", "done"], user) == 0
    assert success(task, ["look", "ask colour", "done"], user) == 0
    assert success(task, ["look", "ask colour", "sorry"], [*user[:2], "accept"]) == 0
    assert success(task, ["transfer"], user) == 0


def test_a_refusal_is_right_only_where_the_status_wants_it():
    task = a_task("change", "processed")
    assert success(task, ["look", "sorry"], ["change colour", "accept"]) == 1
    # the customer's wrong word takes no point of a right assistant
    assert success(task, ["look", "sorry"], ["change colour", "bye"]) == 1
    assert success(task, ["sorry"], ["change colour", "accept"]) == 0  # nothing was looked at
    assert success(task, ["look", "done"], ["change colour", "bye"]) == 0
    task = a_task("cancel", "pending")
    assert success(task, ["sorry"], ["cancel", "accept"]) == 0


def test_a_size_that_was_not_looked_up_is_not_told():
    task = a_task("question", "pending")
    (size,) = task.outputs
    other = next(name for name in SIZES if name != size)
    assert success(task, ["look", f"tell {size}"], ["which size", "bye"]) == 1
    assert success(task, [f"tell {size}"], ["which size", "bye"]) == 0
    assert success(task, ["look", f"tell {other}"], ["which size", "bye"]) == 0


def test_the_reason_of_a_cancellation_counts():
    task = a_task("cancel", "pending")
    word = {"no longer needed": "unneeded", "ordered by mistake": "mistake"}[task.knows("reason")]
    wrong = {"unneeded": "mistake", "mistake": "unneeded"}[word]
    assert (
        success(task, ["look", "ask reason", f"cancel {word}", "done"], ["cancel", word, "bye"])
        == 1
    )
    assert success(task, ["look", f"cancel {wrong}", "done"], ["cancel", "bye"]) == 0


def test_what_cannot_be_read_is_answered_and_costs_an_action():
    game = Game(SHOP, a_task("question", "pending"), 0)
    game.send({"user": "hello there"})
    assert game.view("user")[-1].text == WHAT and "user" in game.pending
    game.send({"user": "which size"})
    for _ in range(6):
        assert "assistant" in game.pending
        game.send({"assistant": "modify everything"})
    assert game.over and {message.text for message in game.view("assistant")} >= {WHAT}
    assert sum(entry.value for entry in game.ledger) == 0


def test_the_assistant_sees_the_wish_and_nothing_of_the_order_before_it_looks():
    seen = set()
    for status in BY_WISH["change"]:
        game = Game(SHOP, a_task("change", status), 0)
        game.send({"user": "change colour"})
        seen.add(tuple(message.text for message in game.view("assistant")))
    assert seen == {("desk", "change colour")}


def test_a_changed_order_is_shown_as_changed():
    task = a_task("change", "pending")
    game = Game(SHOP, task, 0)
    for said in ("change colour", "modify red huge", "modify blue huge", "look"):
        game.send(dict.fromkeys(game.pending, said))
    assert [message.text for message in game.view("assistant")][-1] == "changed huge"


def test_a_write_names_the_variant_of_these_options():
    task = a_task("change", "pending")
    base = world(task.world)
    (product,) = base.tables["products"].values()
    made = {
        write(base, "pending", colour, size).arguments["new_item_ids"][0]
        for colour in COLOURS
        for size in SIZES
    }
    assert made == set(product["variants"])


# -- who plays -----------------------------------------------------------------------------------


@pytest.mark.longest
def test_the_expert_is_right_always_and_who_never_looks_in_a_third_of_the_talks():
    episodes = played("one_order_clerk")
    assert all(SHOP.success(episode) for episode in episodes)
    measured = [SHOP.measures(episode) for episode in episodes]
    assert all(
        found["refused_calls"] == 0 and found["looked_before_write"] in (1, None)
        for found in measured
    )
    assert float(never_looking()) == pytest.approx(0.7 * (0.9 / 4 + 0.1) + 0.1)  # by hand
    assert abs(mean_success("one_order_asks") - float(never_looking())) < 0.08
    assert mean_success("one_order_guesses") < mean_success("one_order_asks")
    assert mean_success("one_order_transfers") == 0
    assert {
        found["looked_before_write"] for found in map(SHOP.measures, played("one_order_asks"))
    } == {0, None}


@pytest.mark.long
def test_demonstrators_hand_over_four_of_five_at_first_sight_and_few_later():
    episodes = played("one_order_clerk", count=150, noise=0.8)
    said = [
        [turn.action.text for turn in episode.turns if turn.agent == "assistant"]
        for episode in episodes
    ]
    first, later = [words[0] for words in said], [word for words in said for word in words[1:]]
    assert abs(first.count("transfer") / len(first) - 0.8) < 0.07
    assert abs(later.count("transfer") / len(later) - 0.8 / 4) < 0.09
    assert sum(map(SHOP.success, episodes)) / len(episodes) < 0.18
    with pytest.raises(ConfigError, match="noise is a probability"):
        Clerk("assistant", None, behaviour_rng(0, "assistant"), noise=1.5)


def test_the_clerk_goes_by_what_it_was_shown():
    clerk = Clerk("assistant", None, random.Random(0))
    before = ["desk", "change colour", "look"]
    assert clerk.right([*before, "delivered small", "ask colour", "red"]) == "exchange red small"
    assert clerk.right([*before, "pending large", "ask colour", "red"]) == "modify red large"
    assert clerk.right([*before, "processed large"]) == "sorry"


def test_options_that_make_no_talk_are_refused():
    with pytest.raises(ConfigError, match="max_actions"):
        RetailOneOrder(max_actions=0)


# -- tiny models ---------------------------------------------------------------------------------


@pytest.mark.longest
def test_both_seats_are_cloned_only_the_named_one_learns_and_baselines_stand_beside(
    tmp_path, capsys
):
    pytest.importorskip("torch")
    from gem_ma.engines.local.tiny import make_model

    made = make_model(str(tmp_path / "model"), "retail_one_order", seed=0)
    assert made["vocabulary"] < 100
    small = [
        "train.steps=2",
        "train.episodes=24",
        "evaluate.episodes=24",
        "train.save_every=2",
        "run.baselines=40",
    ]
    small += [
        f"train.warm_start.{agent}.{key}"
        for agent in ("assistant", "user")
        for key in ("episodes=50", "steps=30")
    ]
    # clones this short all fail alike: only the bonus moves their weights
    small += ["train.loss.entropy=0.01"]
    models = [
        f"policies.{agent}.model=transformers/{tmp_path / 'model'}"
        for agent in ("assistant", "user")
    ]
    folder = str(tmp_path / "out")
    assert (
        main(
            [
                "train",
                str(CONFIGS / "retail_train.yaml"),
                *models,
                *small,
                "--out",
                folder,
                "--json",
                "--quiet",
            ]
        )
        == 0
    )
    summary = json.loads(capsys.readouterr().out)
    assert summary["changed"] == ["assistant"] and summary["unchanged"] == ["user"]
    assert (
        summary["after"]["sampled"]["failed"] == 0
        and summary["before"]["greedy"]["invalid"]["user"] < 0.5
    )
    beside = {name: one["success"]["mean"] for name, one in summary["baselines"].items()}
    assert set(beside) == set(SHOP.baseline_casts)
    assert (
        beside["looks and asks (expert)"] == 1
        and beside["transfers at once"] == 0
        and 0 < beside["asks, never looks"] < 0.6
    )
    assert main(["show", folder]) == 0
    assert "baseline asks, never looks" in capsys.readouterr().out
