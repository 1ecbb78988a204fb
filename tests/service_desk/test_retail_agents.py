"""The scripted sides of retail: a user that says yes only to what it wants, a careful assistant,
an oracle, and baselines that earn nothing."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.agents.retail_user import RetailUser
from gem_ma.scenarios.service_desk.agents.user_ledger import events_of
from gem_ma.scenarios.service_desk.reading.values import tells
from gem_ma.scenarios.service_desk.retail import Retail, Task
from gem_ma.scenarios.service_desk.retail.domain.language import RETAIL

from gem_ma import Asked, Game, Message, Plan, ToolCall, play
from gem_ma.driver.behaviour import is_privileged
from gem_ma.kernel.episode import End, Episode, Seat
from gem_ma.kernel.errors import ConfigError
from gem_ma.registry import load
from gem_ma.wrappers.hide_names import HideNames
from tests.heard import Heard, ended
from tests.retail_data import TAU, needs_tau

SHOP = Retail(data="own")
SHOP.id = "retail"
TESTS = SHOP.tasks("test")  # made when asked for
WRITES = ("cancel_", "modify_", "return_", "exchange_")


def run(
    assistant: str, index: int, split: str = "test", seed: int = 0, scenario: Retail = SHOP
) -> Episode:
    cast = {"assistant": Seat(assistant), "user": Seat("retail_user")}
    return asyncio.run(play(Plan(scenario, cast, f"{split}/{index}", seed)))


def first_with(kind: str) -> Task:
    return next(task for task in TESTS if [wish.kind for wish in task.wishes] == [kind])


# -- the user ------------------------------------------------------------------------------------


def slots(task: Any) -> SimpleNamespace:
    return SimpleNamespace(**{slot.name: slot.value for slot in task.knowledge})


def test_the_user_gives_its_identity_as_its_instruction_has_it() -> None:
    for task in TESTS[:20]:
        customer = Heard(task)
        again = customer.hear(
            "Could you tell me your e-mail address or your name and zip code?"
        ).text
        assert f"{slots(task).first_name} {slots(task).last_name}" in again
        for slot in task.knowledge:
            if slot.name in ("email", "zip"):
                assert (slot.value in again) == slot.known == (slot.value in task.instruction)
                assert slot.value not in customer.opening or slot.reveal == "opening"


def test_the_user_says_no_hidden_id() -> None:
    for task in TESTS[:60]:
        said = " ".join(
            RETAIL.request(wish, RETAIL.details(wish), lambda *ways: ways[0])
            for wish in task.wishes
        )
        hidden = {
            value
            for wish in task.wishes
            for name in ("item_ids", "new_item_ids")
            for value in wish.arguments.get(name, ())
        }
        hidden |= {
            wish.arguments["payment_method_id"]
            for wish in task.wishes
            if "payment_method_id" in wish.arguments
        } | {task.user_id}
        assert not [value for value in hidden if value in said]


@pytest.mark.long
def test_the_user_asks_why_before_it_accepts_a_refusal_without_the_reason() -> None:
    customer = Heard(
        next(
            task
            for task in TESTS
            if [(wish.kind, wish.reason) for wish in task.wishes]
            == [("impossible", "order_status")]
        )
    )
    assert "?" in customer.hear("I am sorry, this is not possible.").text
    assert ended(customer.hear("I am sorry, it is simply not possible.")) == "refused"


def test_the_user_wants_the_right_answer_before_it_leaves() -> None:
    task = next(
        task
        for task in TESTS
        if [wish.kind for wish in task.wishes] == ["question"] and "." in task.outputs[0]
    )
    customer = Heard(task)
    assert ended(customer.hear("It is 1.23. Anything else?")) == ""
    assert ended(customer.hear(f"It is ${task.outputs[0]}. Anything else?")) == "settled"


@pytest.mark.parametrize(
    "output",
    [
        "625.60",
        "1288.65",
        "7",
        "10",
        "20",
        "746342064230",
        "polyester",
        "20 hours",
        "943 Maple Drive",
    ],
)
@pytest.mark.parametrize(
    "said",
    [
        *(
            "$625.60",
            "625.6",
            "1,625.60",
            "625.61",
            "$1,288.65",
            "1288.650",
            "7",
            "7.0",
            "7.5",
            "17",
            "seven",
            "Seventeen",
            "ten",
            "often",
            "twenty",
            "10.",
        ),
        *(
            "#W10",
            "746342064230",
            "7463420642301",
            "Polyester",
            "polyesters",
            "20 hours",
            "120 hours",
            "943 maple drive",
            "zero",
        ),
    ],
)
def test_the_user_and_the_grader_agree_on_what_was_told(output: str, said: str) -> None:
    question = next(task for task in TESTS if [wish.kind for wish in task.wishes] == ["question"])
    text = f"As far as I see: {said}, that is all."
    wish = replace(question.wishes[0], outputs=(output,))
    heard = ended(Heard(replace(question, outputs=(output,), wishes=(wish,))).hear(text))
    # how large a thing is answers no count, although the number is told
    measure = (output, said) == ("20", "20 hours")
    assert tells(output, [text]) if measure else True
    assert heard == ("settled" if tells(output, [text]) and not measure else "")


@pytest.mark.parametrize(
    "options",
    [{"task": None}, {"task": TESTS[0], "patience": 0}, {"task": TESTS[0], "patience": "4"}],
)
def test_a_user_without_a_task_or_patience_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="agent 'user'"):
        RetailUser("user", None, random.Random(0), **options)


# -- the assistants ------------------------------------------------------------------------------


def asked_for(episode: Episode) -> list[tuple[str, str]]:
    """(write, the user's last message before it) of every write call."""
    found, heard = [], ""
    for turn in episode.turns:
        if turn.agent == "user":
            heard = turn.action.text
        for call in turn.action.tool_calls:
            if isinstance(call, ToolCall) and call.name.startswith(WRITES):
                found.append((call.name, heard))
    return found


def test_who_the_other_side_is_need_not_be_known_by_its_name() -> None:
    episode = run("retail_oracle", 0, scenario=HideNames(SHOP))
    assert HideNames(SHOP).success(episode)
    talk = (Message("Hi", "user"), Message("Hello", "opponent_1"), Message("{}", "tool"))
    assert [event.agent for event in events_of(talk, "user", "end")] == ["user", "assistant"]


@pytest.mark.long
def test_the_oracle_solves_every_task_and_writes_only_after_a_yes() -> None:
    for index in range(0, 200, 8):
        episode = run("retail_oracle", index)
        assert SHOP.success(episode), TESTS[index].id
        assert all(heard.startswith("Yes") for _, heard in asked_for(episode))


@pytest.mark.longest
def test_the_careful_assistant_solves_at_least_97_percent_and_writes_only_after_a_yes() -> None:
    episodes = [run("retail_scripted", index, "val") for index in range(200)]
    assert sum(SHOP.success(episode) is True for episode in episodes) >= 194
    for episode in episodes:
        assert episode.end is End.TERMINATED
        writes = asked_for(episode)
        assert all(heard.startswith("Yes") for _, heard in writes)
        assert len(writes) <= sum(
            turn.agent == "user" and turn.action.text.startswith("Yes") for turn in episode.turns
        )


@pytest.mark.parametrize(
    "assistant",
    ["retail_nothing", "retail_transfer", "retail_echo", "retail_refuse", "silent", "random_legal"],
)
def test_assistants_that_serve_nobody_earn_nothing_but_the_due_refusals(assistant: str) -> None:
    for index in range(0, 200, 10):
        success = SHOP.success(run(assistant, index))
        assert not success or (assistant == "retail_refuse" and TESTS[index].goal == "refused"), (
            TESTS[index].id
        )


@pytest.mark.longest
def test_published_baselines_are_what_the_baselines_earn() -> None:
    assert len(SHOP.baselines) == 4
    for name, score in SHOP.baselines.items():
        earned = [SHOP.success(run(name, index)) for index in range(200)]
        assert sum(bool(success) for success in earned) / 200 == pytest.approx(score, abs=1e-9)


def test_the_careful_assistant_refuses_an_order_of_somebody_else() -> None:
    task = first_with("cancel_pending_order")
    base = SHOP.source.world(task)
    foreign = next(
        key
        for key, order in base.tables["orders"].items()
        if order["user_id"] != task.user_id and order["status"] == "pending"
    )
    assistant = load("agents", "retail_scripted")("assistant", None, random.Random(0))
    game, who = Game(SHOP, task), slots(task)
    game.send(
        {
            "user": (
                f"My e-mail is {who.email}. Please cancel order {foreign}, it is no longer needed."
            )
        }
    )
    while "assistant" in game.pending:
        asked = Asked(game.new("assistant"), game.view("assistant"), None, (), game.step)
        game.send({"assistant": asyncio.run(assistant.act(asked))})
    assert "does not belong to your account" in game.view("user")[-1].text


def test_the_careful_assistant_asks_who_is_there_until_the_account_is_found() -> None:
    task = TESTS[0]
    assistant = load("agents", "retail_scripted")("assistant", None, random.Random(0))
    game, who = Game(SHOP, task), slots(task)
    said = [
        "Hello, I need help",
        "My e-mail is nobody@example.com",
        f"I am {who.first_name} {who.last_name}, 99999",
        f"My e-mail is {who.email}.",
    ]
    for text in said:
        game.send({"user": text})
        while "assistant" in game.pending:
            asked = Asked(game.new("assistant"), game.view("assistant"), None, (), game.step)
            game.send({"assistant": asyncio.run(assistant.act(asked))})
    calls = [
        call.name
        for turn in game.turns
        for call in turn.action.tool_calls
        if isinstance(call, ToolCall)
    ]
    assert calls == [
        "find_user_id_by_email",
        "find_user_id_by_name_zip",
        "find_user_id_by_email",
        "get_user_details",
    ]


def test_only_the_oracle_and_the_user_are_given_the_task() -> None:
    names = (
        "retail_user",
        "retail_oracle",
        "retail_scripted",
        "retail_nothing",
        "retail_transfer",
        "retail_refuse",
        "retail_echo",
    )
    assert [name for name in names if is_privileged(load("agents", name))] == [
        "retail_user",
        "retail_oracle",
    ]


@pytest.mark.long
@needs_tau
def test_the_careful_assistant_solves_the_benchmarks_dev_tasks() -> None:
    scenario = Retail(data=str(TAU), scoring="tau1")
    scenario.id = "retail"
    assert (
        sum(
            bool(scenario.success(run("retail_scripted", index, "dev", scenario=scenario)))
            for index in range(20)
        )
        >= 18
    )
