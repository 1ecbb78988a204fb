"""The retail scenario: who sees what, what ends a talk, what a bad action is told, and what each
outcome is paid."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.desk.log import Outcome
from gem_ma.scenarios.service_desk.reading.values import tells
from gem_ma.scenarios.service_desk.retail import Retail, RetailStore, Task
from gem_ma.scenarios.service_desk.retail.domain.grading import canonical, changes, gold_state, tau1

from gem_ma import Action, Game, Malformed, Message, Plan, ToolCall, play
from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.errors import ActionError
from gem_ma.testing import check_scenario
from tests.retail_data import ADDRESS, TAU, USER_MOVE, needs_tau, swap, tiny
from tests.small_task import task_of

SHOP = Retail(data="own")
STRICT = Retail(data="own", scoring="tau1")


def task_with(kind: str, shop: Retail = SHOP) -> Task:
    return next(
        task for task in shop.tasks("test") if [wish.kind for wish in task.wishes] == [kind]
    )


CANCEL = task_with("cancel_pending_order")


def end(reason: Any = "settled", text: str = "") -> Action:
    return Action(text, (ToolCall("u1", "end_conversation", {"reason": reason}),))


def use(name: str, text: str = "", **arguments: Any) -> Action:
    return Action(text, (ToolCall("c1", name, arguments),))


def begun(shop: Retail = SHOP) -> Game:
    """A talk in which the customer has said hello."""
    game = Game(shop, CANCEL)
    game.send({"user": "Hello"})
    return game


def solve(game: Game, task: Task) -> None:
    """Plays the solution's calls."""
    for call in task.actions:
        game.send({"assistant": use(call.name, **call.arguments)})


def paid(game: Game) -> dict[str, float]:
    return {entry.agent: entry.value for entry in game.ledger}


def last(game: Game, agent: str) -> str:
    return game.view(agent)[-1].text


def cast(assistant: str) -> dict[str, Seat]:
    return {"assistant": Seat(assistant), "user": Seat("retail_user")}


async def run(scenario: Retail, assistant: str, task: str) -> Episode:
    scenario.id = "retail"
    return await play(Plan(scenario, cast(assistant), task))


# -- the protocol --------------------------------------------------------------------------------


def test_the_user_speaks_first_after_the_greeting_and_each_side_has_its_own_briefing() -> None:
    game = Game(SHOP, CANCEL)
    assert list(game.pending) == ["user"]
    briefing, greeting = game.view("user")
    assert (briefing.sender, greeting.sender, greeting.text) == (
        "system",
        "assistant",
        "Hi! How can I help you today?",
    )
    assert CANCEL.instruction in briefing.text
    assert [tool.name for tool in game.pending["user"].tools] == ["end_conversation"]
    game.send({"user": "Hello, it's me."})
    policy, opening = game.view("assistant")
    assert (policy.sender, opening) == ("system", Message("Hello, it's me.", "user"))
    assert CANCEL.instruction not in policy.text
    assert len(game.pending["assistant"].tools) == 16


def test_a_call_is_answered_to_the_assistant_alone_under_its_id() -> None:
    game = begun()
    seen = game.view("user")
    game.send({"assistant": use("list_all_product_types")})
    assert game.view("assistant")[-1].call_id == "c1"
    assert json.loads(last(game, "assistant"))
    assert game.view("user") == seen
    game.send({"assistant": "How can I help?"})
    assert game.view("user")[-1] == Message("How can I help?", "assistant")


def test_a_solved_task_pays_both_and_stepping_after_the_end_is_refused() -> None:
    game = Game(SHOP, CANCEL)
    game.send({"user": "Please cancel."})
    solve(game, CANCEL)
    game.send({"assistant": "Done."})
    game.send({"user": end()})
    assert game.over
    assert paid(game) == {"assistant": 1.0, "user": 1.0}
    assert {entry.why for entry in game.ledger} == {"outcome"}
    with pytest.raises(ActionError):
        game.send({"assistant": "more"})


STOPS = [
    "###STOP###",
    "###stop###",
    "STOP",
    "###TRANSFER###",
    "###OUT-OF-SCOPE###",
    "**###STOP###**",
    "end_conversation",
    "exit",
    "<|im_end|>",
]
STOPS += ['end_conversation(reason="settled")', "</s>", "bye", '{"reason": "settled"}']


@pytest.mark.parametrize("word", STOPS)
def test_no_word_of_either_side_ends_a_talk(word: str) -> None:
    game = Game(SHOP, CANCEL)
    game.send({"user": word})
    assert list(game.pending) == ["assistant"]
    game.send({"assistant": word})
    assert list(game.pending) == ["user"]
    assert last(game, "user") == word


def test_the_assistant_cannot_end_by_the_users_tool() -> None:
    game = begun()
    game.send({"assistant": end()})
    assert last(game, "assistant") == "Unknown action end_conversation"


def test_the_users_call_may_be_written_as_text() -> None:
    game = begun()
    game.send({"assistant": "Yes?"})
    game.send(
        {
            "user": (
                '<tool_call>{"name": "end_conversation", "arguments": {"reason":'
                ' "gave_up"}}</tool_call>'
            )
        }
    )
    assert game.over


def test_a_yes_that_comes_with_the_end_still_lets_the_write_run() -> None:
    game = Game(SHOP, CANCEL)
    game.send({"user": "Please cancel."})
    for call in CANCEL.actions[:-1]:
        game.send({"assistant": use(call.name, **call.arguments)})
    game.send({"assistant": "Shall I cancel it?"})
    game.send({"user": end(text="Yes, please. Bye.")})
    assert list(game.pending) == ["assistant"]
    assert last(game, "assistant") == "Yes, please. Bye."
    game.send({"assistant": use(CANCEL.actions[-1].name, **CANCEL.actions[-1].arguments)})
    game.send({"assistant": "Done, goodbye."})
    assert game.over
    assert last(game, "user") == "Done, goodbye."
    assert paid(game)["assistant"] == 1.0


def test_a_deferred_end_holds_after_three_actions() -> None:
    game = Game(SHOP, CANCEL)
    game.send({"user": end(text="Yes. Bye.")})
    for _ in range(3):
        assert list(game.pending) == ["assistant"]
        game.send({"assistant": use("think", thought="hm")})
    assert game.over


@pytest.mark.parametrize("reason", [None, [], {"a": 1}, "SETTLED"])
def test_an_end_without_a_known_reason_is_told_so_and_asked_again(reason: Any) -> None:
    game = Game(SHOP, CANCEL)
    game.send({"user": end(reason)})
    assert list(game.pending) == ["user"]
    assert "reason must be one of settled" in last(game, "user")
    game.send({"user": Action("", (ToolCall("x", "end_conversation", None),))})  # type: ignore[arg-type]  # wrong on purpose
    assert list(game.pending) == ["user"]


@pytest.mark.parametrize(
    ("action", "told_so"),
    [
        (use("think", "beside", thought="x"), "one_call"),
        (Action("", (ToolCall("c1", "think", {"thought": "x"}),) * 2), "one_call"),
        (Action("", (Malformed("{", "bad_json: cut"),)), "malformed: bad_json"),
        (Action("  \n"), "empty"),
        (use("nope"), "Unknown action nope"),
        (use("get_order_details", order_id=5), "invalid_arguments"),
        (Action("", (ToolCall("c1", ["x"], None),)), "Unknown action"),  # type: ignore[arg-type]  # wrong on purpose
    ],
)
def test_a_bad_action_of_the_assistant_is_answered_and_reaches_nobody(
    action: Action, told_so: str
) -> None:
    game = begun()
    seen = game.view("user")
    game.send({"assistant": action})
    assert list(game.pending) == ["assistant"]
    assert told_so in last(game, "assistant")
    assert game.view("user") == seen


def test_nothing_runs_when_two_calls_come_at_once_but_strict_mode_runs_the_first() -> None:
    write = ToolCall("c1", "cancel_pending_order", dict(CANCEL.actions[-1].arguments))
    both = Action("", (write, ToolCall("c2", "think", {"thought": "x"})))
    for scenario, status in ((SHOP, "pending"), (STRICT, "cancelled")):
        game = begun(scenario)
        game.send({"assistant": both})
        assert [message.call_id for message in game.new("assistant")] == ["c1", "c2"]
        order_id = CANCEL.actions[-1].arguments["order_id"]
        game.send({"assistant": use("get_order_details", order_id=order_id)})
        assert json.loads(last(game, "assistant"))["status"] == status


def test_bad_actions_of_the_user_are_answered_to_the_user_alone() -> None:
    game = Game(SHOP, CANCEL)
    for action, told_so in (
        (Action(""), "empty"),
        (use("cancel_pending_order"), "Unknown action"),
        (Action("", (Malformed("x", "bad"),)), "malformed"),
    ):
        game.send({"user": action})
        assert list(game.pending) == ["user"]
        assert told_so in last(game, "user")
    assert game.view("assistant") == ()


def test_a_transfer_ends_the_talk_at_its_call() -> None:
    game = begun()
    game.send({"assistant": use("transfer_to_human_agents", summary="x")})
    assert game.over
    assert last(game, "assistant") == "Transfer successful"
    assert paid(game)["assistant"] == 0.0


def test_a_transfer_with_wrong_arguments_ends_only_the_strict_mode_as_the_benchmark_does() -> None:
    for scenario, over in ((SHOP, False), (STRICT, True)):
        game = begun(scenario)
        game.send({"assistant": use("transfer_to_human_agents")})
        assert game.over is over


def test_thirty_actions_of_the_assistant_end_the_talk_unpaid() -> None:
    game = begun(STRICT)
    solve(game, CANCEL)
    while not game.over:
        assert list(game.pending) == ["assistant"]
        game.send({"assistant": use("think", thought="x")})
    assert sum(turn.agent == "assistant" for turn in game.turns) == 30
    assert paid(game)["assistant"] == 0.0


def test_a_user_that_ends_right_after_the_thirtieth_action_is_scored() -> None:
    game = begun(STRICT)
    solve(game, CANCEL)
    for _ in range(30 - len(CANCEL.actions) - 1):
        game.send({"assistant": use("think", thought="x")})
    game.send({"assistant": "Done."})
    game.send({"user": end()})
    assert paid(game)["assistant"] == 1.0


@pytest.mark.parametrize(("assistant", "user"), [("", ""), ("x", "y"), ("", "y"), ("x", "")])
def test_it_ends_within_its_own_bound_whatever_is_said(assistant: str, user: str) -> None:
    scenario = Retail(data="own", max_actions=4, max_user_actions=3)
    game = Game(scenario, CANCEL)
    while not game.over:
        game.send({agent: {"assistant": assistant, "user": user}[agent] for agent in game.pending})
    assert game.step <= scenario.ends_within == 7
    assert paid(game) == {"assistant": 0.0, "user": 0.0}


def test_a_play_without_a_task_is_one_of_the_first_training_task() -> None:
    assert SHOP.tasks("train")[0].instruction in Game(SHOP).view("user")[0].text


@pytest.mark.longest
def test_the_conformance_kit_finds_nothing() -> None:
    scenario = Retail(data="own", max_actions=6, max_user_actions=5)
    scenario.id = "retail"
    check_scenario(scenario, seeds=range(3))


# -- secrets -------------------------------------------------------------------------------------


def test_no_view_holds_an_id_that_no_tool_and_no_user_has_shown() -> None:
    for index, task in enumerate(SHOP.tasks("test")[:20]):
        store, game = RetailStore(SHOP.source.world(task), "fixed"), Game(SHOP, task)
        hidden = {value for call in task.actions for value in _values(call.arguments)} - set(
            _values_of_text(task.instruction)
        )
        hidden = {
            value
            for value in hidden
            if any(char.isdigit() for char in value) and value not in task.instruction
        }
        game.send({"user": f"Hello {index}"})
        game.send({"assistant": "Yes?"})
        shown = " ".join(
            message.text for agent in ("user", "assistant") for message in game.view(agent)
        )
        assert not [value for value in hidden if value in shown], task.id
        assert task.user_id not in game.view("assistant")[0].text
        assert store.digest() not in shown


def _values(arguments: Mapping[str, Any]) -> list[str]:
    return [
        part
        for value in arguments.values()
        for part in (value if isinstance(value, list) else [value])
    ]


def _values_of_text(text: str) -> list[str]:
    return text.replace(",", " ").replace(".", " ").split()


def test_scoring_works_on_a_copy_and_twice_the_same() -> None:
    store = RetailStore(SHOP.source.world(CANCEL), "fixed")
    for call in CANCEL.actions:
        store.call(call.name, dict(call.arguments))
    before, gold = store.digest(), gold_state(store.overlay.base, "fixed", CANCEL)
    first = canonical(CANCEL, store.overlay, gold, Outcome("user", "settled", ("x",)))
    assert first == canonical(CANCEL, store.overlay, gold, Outcome("user", "settled", ("x",)))
    assert (first.reward, store.digest()) == (1.0, before)


# -- grading -------------------------------------------------------------------------------------


def small_task(
    *actions: tuple[str, dict[str, Any]], outputs: tuple[str, ...] = ()
) -> tuple[Task, RetailStore]:
    task = task_of(*actions, outputs=outputs)
    return task, RetailStore(tiny().overlay.base)


def verdicts(task: Task, store: RetailStore, outcome: Outcome) -> tuple[float, float]:
    gold = gold_state(store.overlay.base, "tau1", task)
    return (
        tau1(task, store.overlay, gold, outcome).reward,
        canonical(task, store.overlay, gold, outcome).reward,
    )


SERVED = Outcome("user", "settled", ("All done.",))
EXCHANGE = swap("#W2", ["I1", "I7"], ["I3", "I8"])


def test_float_noise_and_the_order_of_payments_fail_only_the_strict_rule() -> None:
    pay = {"order_id": "#W1", "payment_method_id": "credit_card_1"}
    task, store = small_task(("modify_pending_order_payment", pay))
    store.call("modify_pending_order_payment", pay)
    order = store.overlay.draft("orders", "#W1")
    order["payment_history"] = [order["payment_history"][at] for at in (0, 2, 1)]
    store.overlay.commit({("orders", "#W1"): order})
    assert verdicts(task, store, SERVED) == (0.0, 1.0)
    order["payment_history"] = [
        {**row, "amount": 30.299999999999997} for row in order["payment_history"]
    ]
    store.overlay.commit({("orders", "#W1"): order})
    assert verdicts(task, store, SERVED) == (0.0, 1.0)
    order["payment_history"][1]["amount"] = 30.31
    store.overlay.commit({("orders", "#W1"): order})
    assert verdicts(task, store, SERVED) == (0.0, 0.0)


def test_an_address_that_differs_in_case_and_blanks_fails_only_the_strict_rule() -> None:
    moved = {"user_id": "ann_lee_1", **ADDRESS}
    task, store = small_task((USER_MOVE, moved))
    store.call(USER_MOVE, {**moved, "address1": " 9  hill "})
    assert verdicts(task, store, SERVED) == (0.0, 1.0)
    store.call(USER_MOVE, {**moved, "zip": "05001"})
    assert verdicts(task, store, SERVED) == (0.0, 0.0)


def test_a_wrong_method_item_or_extra_write_fails_both_rules() -> None:
    task, store = small_task(("exchange_delivered_order_items", EXCHANGE))
    store.call("exchange_delivered_order_items", {**EXCHANGE, "payment_method_id": "credit_card_1"})
    assert verdicts(task, store, SERVED) == (0.0, 0.0)
    store.reset()
    store.call("exchange_delivered_order_items", {**EXCHANGE, "new_item_ids": ["I2", "I8"]})
    assert verdicts(task, store, SERVED) == (0.0, 0.0)
    store.reset()
    store.call("exchange_delivered_order_items", EXCHANGE)
    store.call("cancel_pending_order", {"order_id": "#W3", "reason": "no longer needed"})
    assert verdicts(task, store, SERVED) == (0.0, 0.0)


def test_inaction_is_paid_by_the_strict_rule_and_never_by_ours() -> None:
    task, store = small_task(
        ("cancel_pending_order", {"order_id": "#W4", "reason": "no longer needed"})
    )
    assert task.flags == ("gold_write_error", "inaction_passes")
    assert verdicts(task, store, Outcome("user", "gave_up")) == (1.0, 0.0)
    gold = gold_state(store.overlay.base, "tau1", task)
    assert not canonical(task, store.overlay, gold, SERVED).scored


def test_a_talk_cut_by_the_bound_and_a_user_that_gave_up_are_no_success() -> None:
    task, store = small_task(("exchange_delivered_order_items", EXCHANGE))
    store.call("exchange_delivered_order_items", EXCHANGE)
    assert verdicts(task, store, Outcome("limit", texts=("x",))) == (0.0, 0.0)
    assert verdicts(task, store, Outcome("user", "gave_up", ("x",))) == (1.0, 0.0)
    assert verdicts(task, store, Outcome("transfer")) == (1.0, 0.0)


def test_a_due_transfer_is_the_only_right_end_for_ours() -> None:
    task, store = small_task(("transfer_to_human_agents", {"summary": "x"}))
    assert task.goal == "transferred"
    assert verdicts(task, store, Outcome("transfer")) == (1.0, 1.0)
    assert verdicts(task, store, SERVED) == (1.0, 0.0)


def test_a_due_refusal_must_be_said_and_accepted() -> None:
    task, store = small_task(("get_order_details", {"order_id": "#W4"}))
    task = replace(task, goal="refused")
    assert verdicts(task, store, Outcome("user", "refused", ("I cannot do that.",)))[1] == 1.0
    for outcome in (
        Outcome("user", "refused"),
        SERVED,
        Outcome("transfer"),
        Outcome("limit", texts=("x",)),
        Outcome("user", "gave_up", ("x",)),
    ):
        assert verdicts(task, store, outcome)[1] == 0.0


def test_outputs_are_substrings_for_the_strict_rule_and_values_for_ours() -> None:
    task, store = small_task(("get_order_details", {"order_id": "#W1"}), outputs=("10", "625.60"))
    assert verdicts(
        task, store, Outcome("user", "settled", ("There are 10.", "It costs $625.60."))
    ) == (1.0, 1.0)
    assert verdicts(task, store, Outcome("user", "settled", ("Order 1002345 costs 1,625.60",))) == (
        1.0,
        0.0,
    )
    assert verdicts(task, store, Outcome("user", "settled", ("ten", "625.6 dollars"))) == (0.0, 1.0)


COUNTED = "There are 1, 2, 3, 4, 5, 6, 7, 8, 9 or 10."


@pytest.mark.parametrize(
    ("said", "shown", "fits"),
    [
        ((COUNTED,), (), False),
        (("There are two, three, four, five, six, seven or ten.",), (), False),
        (COUNTED.split(","), (), False),
        ((COUNTED,), ('{"count": "1 2 3 4 5 6 7"}',), False),  # ten numbers where one was asked for
        (("One of 3, 4, 5.", "Or 6, 7, 8.", "It is 10."), (), False),
        # what a tool has shown is no guess
        (("One of 3, 4, 5.", "Or 6, 7, 8.", "It is 10."), ('{"count": "3 4 5 6 7 8"}',), True),
        (("I found 7, then 8, then 9: it is 10.",), (), True),
        (("Ten. 1) a 2) b 3) c 4) d 5) e",), (), True),  # marks of a list say nothing
        (("I would\n1. do\n2. this\n3. and\n4. that\nfor 10.",), (), True),
        (("1. a\n2. b\n3. c\n10. d",), (), False),
    ],
)
def test_guessing_many_numbers_tells_none(
    said: Sequence[str], shown: tuple[str, ...], fits: bool
) -> None:
    task, store = small_task(("get_order_details", {"order_id": "#W1"}), outputs=("10",))
    assert verdicts(task, store, Outcome("user", "settled", tuple(said), shown))[1] == fits


def test_what_the_assistant_was_shown_or_told_is_no_guess() -> None:
    task = task_with("question")
    game = Game(SHOP, task)
    game.send({"user": "Is it 101, 102, 103, 104 or 105?"})
    solve(game, task)
    game.send({"assistant": "Not 101, 102, 103, 104 or 105."})
    game.send({"user": "But?"})
    game.send({"assistant": f"It is {' '.join(task.outputs)}."})
    game.send({"user": end()})
    assert paid(game)["assistant"] == 1.0
    game = Game(SHOP, task)
    game.send({"user": "What is it?"})
    solve(game, task)
    game.send({"assistant": f"101, 102, 103, 104, 105 or {' '.join(task.outputs)}."})
    game.send({"user": end()})
    assert paid(game)["assistant"] == 0.0


@pytest.mark.parametrize(
    ("output", "text", "there"),
    [
        ("8276.23", "The total is $8,276.23.", True),
        ("8276.23", "8,276.24", False),
        ("54.04", "154.04", False),
        ("10", "#W10", False),
        ("10", "10.99", False),
        ("10", "10%", False),
        ("10", "(10)", True),
        ("3", "three of them", True),
        ("Polyester", "made of polyester.", True),
        ("cotton", "cottonwood", False),
        ("20 hours", "lasts 20  hours", True),
        ("746342064230", "number 746342064230.", True),
        ("746342064230", "number 7463420642301", False),
        ("943 Maple Drive", "at 943 maple drive, Chicago", True),
    ],
)
def test_values_in_texts_have_boundaries(output: str, text: str, there: bool) -> None:
    assert tells(output, [text]) is there


def test_changes_are_empty_at_the_start_and_after_a_change_and_back() -> None:
    store = tiny()
    assert not changes(store.overlay)
    old = dict(store.overlay.record("users", "ann_lee_1")["address"])
    store.call("modify_user_address", {"user_id": "ann_lee_1", **old, "city": "Oak"})
    assert changes(store.overlay)
    store.call("modify_user_address", {"user_id": "ann_lee_1", **old})
    assert not changes(store.overlay)


# -- tau-bench -----------------------------------------------------------------------------------


@pytest.mark.longest
@needs_tau
@pytest.mark.parametrize(("split", "count", "idle"), [("dev", 20, 1), ("test", 115, 7)])
def test_the_oracle_solves_every_benchmark_task_and_doing_nothing_earns_the_known_number(
    split: str, count: int, idle: int
) -> None:
    strict, ours = Retail(data=str(TAU), scoring="tau1"), Retail(data=str(TAU))

    def successes(scenario: Retail, assistant: str) -> list[bool | None]:
        return [
            scenario.success(asyncio.run(run(scenario, assistant, f"{split}/{index}")))
            for index in range(count)
        ]

    assert successes(strict, "retail_oracle").count(True) == count
    assert successes(strict, "retail_nothing").count(True) == idle
    assert successes(ours, "retail_nothing").count(True) == 0
    canonically = successes(ours, "retail_oracle")
    assert canonically.count(False) == 0
    assert canonically.count(None) == sum(not task.scorable for task in ours.tasks(split))
