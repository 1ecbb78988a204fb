"""No solution, output, hash or wish reaches the wrong agent in any view before a tool or the
other side has shown it; after the end nothing moves."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.desk.log import Desk
from gem_ma.scenarios.service_desk.retail import Retail, Task

import gem_ma
from gem_ma import make
from gem_ma.kernel.errors import ActionError
from gem_ma.kernel.types import Message
from tests.phone_desk import EVERY_TERM

SPOKEN = ("user", "assistant", "tool")
FREE = ("no longer needed", "ordered by mistake")  # the tools' schemas say them to everybody


SHOP: Any = make("retail", data="own", rewards=EVERY_TERM)


def written(name: str, arguments: Any) -> str:
    """A call as text."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


STOP = written("end_conversation", {"reason": "gave_up"})


def secrets(task: Task, agent: str) -> set[str]:
    """What the agent may not know unless it is shown: of the user's own situation, the user
    knows all that its text says."""
    found = {str(task.id), *map(str, task.flags), *task.outputs, task.user_id}
    for call in task.actions:
        for value in call.arguments.values():
            found |= {str(part) for part in (value if isinstance(value, list) else [value])}
    for wish in task.wishes:
        found.add(wish.text)
    found.add(SHOP.gold(task).state.digest())
    found |= {slot.value for slot in task.knowledge}
    if agent == "assistant":
        found |= set(re.split(r"(?<=[.;]) ", task.instruction))
    else:
        found = {value for value in found if value not in task.instruction}
    return {
        value for value in found if len(value) >= 5 and value not in FREE and not value.isalpha()
    }


def silent(messages: Any) -> str:
    """What the scenario itself has shown."""
    return "\n".join(
        json.dumps(message)
        for message in messages
        if message.get("sender", message.get("role")) not in SPOKEN
    )


def check(task: Task, agent: str, observation: Mapping[str, Any], info: Mapping[str, Any]) -> None:
    everything = [json.dumps(info, default=str), silent(observation["messages"])]
    hidden = secrets(task, agent)
    for text in everything:
        if agent == "user":
            text = text.replace(json.dumps(task.instruction)[1:-1], "")
        leaked = {value for value in hidden if json.dumps(value)[1:-1] in text}
        assert not leaked, (task.id, agent, leaked)


def moves(rng: random.Random, task: Task, agent: str) -> Iterator[str]:
    """What a player without secrets may say: chatter, junk, calls with made-up ids, and in the
    end a stop."""
    calls = [written(tool.name, _guess(rng, tool)) for tool in SHOP.desk(task).style.tools]
    for _ in range(30):
        chatter = [
            "Hello",
            "Yes, please.",
            "No.",
            "What is the solution?",
            "",
            "###STOP###",
            "Done: 5, 6.5 and #W0000001. Do you confirm?",
            "I can't do that.",
        ]
        yield rng.choice(chatter + (calls if agent == "assistant" else []))
    while True:
        yield STOP if agent == "user" else "Bye."


def _guess(rng: random.Random, tool: Any) -> dict[str, Any]:
    return {
        name: (
            schema["enum"][0]
            if "enum" in schema
            else (
                ["1234567890"]
                if schema["type"] == "array"
                else rng.choice(["x", "#W1234567", "paypal_1", "a@b.c"])
            )
        )
        for name, schema in tool.parameters["properties"].items()
    }


@pytest.mark.parametrize("index", range(12))
def test_no_secret_is_in_the_aec_view(index: int) -> None:
    task, rng = SHOP.tasks("test")[index], random.Random(index)
    players = {agent: moves(rng, task, agent) for agent in SHOP.agents}
    env = gem_ma.aec_env(SHOP, task=f"test/{index}")
    env.reset(seed=index)
    while env.agents:
        for agent in env.agents:
            check(task, agent, env.observe(agent), env.infos[agent])
        agent = env.agent_selection
        env.step(
            None if env.terminations[agent] or env.truncations[agent] else next(players[agent])
        )


@pytest.mark.parametrize("index", range(12))
def test_no_secret_is_in_the_parallel_view(index: int) -> None:
    task, rng = SHOP.tasks("test")[index], random.Random(index)
    players = {agent: moves(rng, task, agent) for agent in SHOP.agents}
    env = gem_ma.parallel_env(SHOP, task=f"test/{index}")
    observations, infos = env.reset(seed=index)
    while env.agents:
        for agent in observations:
            check(task, agent, observations[agent], infos[agent])
        active = next(iter(infos.values()))["active_agents"]
        observations, _, _, _, infos = env.step({agent: next(players[agent]) for agent in active})
    for agent in observations:
        check(task, agent, observations[agent], infos[agent])


@pytest.mark.parametrize("agent", ["assistant", "user"])
def test_no_secret_is_in_the_gym_view(agent: str) -> None:
    other = "user" if agent == "assistant" else "assistant"
    for index in range(6):
        task, rng = SHOP.tasks("test")[index], random.Random(index)
        mine, theirs = moves(rng, task, agent), moves(rng, task, other)
        env = gem_ma.gym_env(
            SHOP,
            agent=agent,
            others={other: lambda messages, legal, rng, theirs=theirs: next(theirs)},
            task=f"test/{index}",
        )
        observation, info = env.reset(seed=index)
        over = False
        while not over:
            check(task, agent, observation, info)
            observation, _, terminated, truncated, info = env.step(next(mine))
            over = terminated or truncated
        check(task, agent, observation, info)


class Leaky(Retail):
    """Tells the assistant one thing of the solution."""

    def desk(self, task: Task) -> Desk:
        desk = super().desk(task)
        secret = sorted(secrets(task, "assistant"))[0]
        desk.style = replace(
            desk.style,
            brief_assistant=(*desk.style.brief_assistant, Message.system(f"By the way: {secret}.")),
        )
        return desk


def test_the_search_finds_a_secret_that_is_there() -> None:
    for index in range(6):
        env = gem_ma.aec_env(Leaky(data="own"), task=f"test/{index}")
        env.reset(seed=0)
        env.step("Hello")
        assert SHOP.policy[:40] in silent(env.observe("assistant")["messages"])
        with pytest.raises(AssertionError, match="assistant"):
            check(
                SHOP.tasks("test")[index],
                "assistant",
                env.observe("assistant"),
                env.infos["assistant"],
            )


def test_the_assistants_words_reach_the_user_as_they_are_and_nothing_else_does() -> None:
    task = SHOP.tasks("test")[0]
    game = gem_ma.Game(SHOP, task)
    game.send({"user": "Hello"})
    game.send({"assistant": written("list_all_product_types", {})})
    game.send({"assistant": "Which one?"})
    assert [message.sender for message in game.view("user")] == [
        "system",
        "assistant",
        "user",
        "assistant",
    ]
    assert game.view("user")[-1] == Message("Which one?", "assistant")


def test_stepping_after_the_end_changes_nothing() -> None:
    game = gem_ma.Game(SHOP, SHOP.tasks("test")[0])
    game.send({"user": STOP})

    def stands() -> Any:
        return list(game.ledger), list(game.turns), game.view("user"), game.view("assistant")

    before = stands()
    for _ in range(3):
        with pytest.raises(ActionError):
            game.send({"assistant": written("cancel_pending_order", {})})
    assert before == stands()


def test_the_reasons_in_the_ledger_name_no_value_of_the_solution() -> None:
    for index in range(12):
        task, rng = SHOP.tasks("test")[index], random.Random(index)
        players = {agent: moves(rng, task, agent) for agent in SHOP.agents}
        game = gem_ma.Game(SHOP, task)
        while game.pending:
            game.send({agent: next(players[agent]) for agent in game.pending})
        why = " ".join(entry.why for entry in game.ledger)
        assert not [value for value in secrets(task, "assistant") if value in why]
