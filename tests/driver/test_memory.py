"""What a model is shown of a long play: windows and summaries, and that a learner trains on
exactly that."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gem_ma import Action, Ask, Message, Plan, Scenario, Seat, Tool, ToolCall, credit, make, play
from gem_ma.config import load
from gem_ma.config.document import write
from gem_ma.driver.forks import Branch
from gem_ma.driver.seats import HEAD, Memory
from gem_ma.engines.base import Policy, open_engine
from gem_ma.engines.batching import Batched
from gem_ma.engines.small.scripted import Scripted
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Request, Sampling
from gem_ma.record.codec import dump_episode, load_episode
from gem_ma.runs.plans import cast_of, open_policies, scenario_of
from gem_ma.training.learner.rows import rows
from tests.plays import played_all

CONFIG = """
scenario: {{id: guess_number, numbers: 30, turns: 8, tasks: 1}}
agents:
  player: {{{seat}}}
policies:
  main: {{model: scripted/first_legal}}
"""


class Desk(Scenario):
    """A briefing, then small talk; the agent has a tool of the rules."""

    agents = ("clerk",)

    def play(self, rng: random.Random, task: Any) -> Any:
        shown: Any = (Message.system("Be kind."), "customer 0")
        for number in range(1, 7):
            said = yield Ask({"clerk": shown}, tools=(Tool("look"),))
            call = [c for c in said["clerk"].tool_calls if isinstance(c, ToolCall)]
            shown = Message.tool(call[0].id, "seen") if call else f"customer {number}"


class Noted:
    """An engine that notes what it is shown."""

    def __init__(self, name: str = "main", *, calls: bool = False) -> None:
        self.prompts: list[list[str]] = []
        self.name, self.calls = name, calls

    def policy(self) -> Policy:
        return Policy(self.name, Scripted("x", policy=self.name, replies=self.answer))

    def answer(self, request: Request) -> Any:
        self.prompts.append([message.text for message in request.messages])
        number = len(self.prompts)
        if request.conversation.endswith("/summary"):
            return f"summary {number}"
        return f"answer {number}"


def played(memory: dict[str, Any], scenario: Scenario | None = None) -> tuple[Noted, Any]:
    noted = Noted()
    seat = Seat("direct", "main", memory=memory)
    rules = scenario or Desk()
    plan = Plan(rules, {rules.agents[0]: seat})
    episode = asyncio.run(play(plan, {"main": noted.policy()}))
    assert episode.error is None
    return noted, episode


@pytest.mark.parametrize(
    ("memory", "last"),
    [
        ({"window": 3}, ["Be kind.", "customer 4", "answer 5", "customer 5"]),
        ({"window": 1}, ["Be kind.", "customer 5"]),
        ({"window": 3, "first": 0}, ["customer 4", "answer 5", "customer 5"]),
        ({"window": 1, "first": 2}, ["Be kind.", "customer 0", "customer 5"]),
        ({"turns": 1}, ["Be kind.", "customer 4", "answer 5", "customer 5"]),
        ({"turns": 0, "first": 0}, ["customer 5"]),
        # behind a briefing somebody else begins, or templates refuse
        ({"window": 2}, ["Be kind.", "customer 5"]),
    ],
)
def test_a_model_sees_the_window_and_the_record_is_whole(
    memory: dict[str, Any], last: list[str]
) -> None:
    noted, episode = played(memory)
    assert noted.prompts[0] == ["Be kind.", "customer 0"][-len(noted.prompts[0]) :]
    assert noted.prompts[-1] == last
    assert len(episode.transcript("clerk")) == 1 + 6 * 2
    # the record says how the seat saw, and reads back
    again = load_episode(dump_episode(episode))
    assert again == episode and again.cast["clerk"].memory == memory


def test_a_window_that_holds_everything_changes_nothing() -> None:
    whole, _ = played({})
    for memory in ({"window": 100}, {"turns": 50}, {"window": 100, "summary": "main"}):
        assert played(memory)[0].prompts == whole.prompts


def test_a_result_is_never_shown_without_its_call() -> None:
    talk = [
        Message.system("s"),
        Message("hello"),
        Message("", "me", (ToolCall("1", "f", {}), ToolCall("2", "f", {}))),
        Message.tool("1", "a"),
        Message.tool("2", "b"),
        Message("", "me", (ToolCall("3", "f", {}),)),
        Message.tool("3", "c"),
    ]
    for settings in [
        {"window": size, "first": first} for size in range(1, 8) for first in range(5)
    ]:
        window = Memory.of("me", settings).window_of("me", talk)
        calls = [call.id for message in window for call in message.tool_calls]
        assert [message.call_id for message in window if message.call_id] == calls, settings


def test_a_function_says_what_falls_out(tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text(
        "def count(messages):\n    return f'{len(messages)} lines'\n"
    )
    noted, _ = played({"window": 1, "summary": f"{tmp_path}/notes.py:count"})
    assert noted.prompts[0] == ["Be kind.", "customer 0"]
    assert noted.prompts[-1] == ["Be kind.", HEAD + "10 lines", "customer 5"]


def test_a_policy_writes_the_summary_and_reads_the_one_before() -> None:
    noted, episode = played({"window": 2, "summary": "main"})
    orders = [prompt for prompt in noted.prompts if prompt[0].startswith("You keep the memory")]
    shown = [prompt for prompt in noted.prompts if prompt not in orders]
    assert len(shown) == 6 and 2 <= len(orders) <= 5
    assert "customer 0" in orders[0][1] and "The memory so far" not in orders[0][1]
    assert "The memory so far:\nsummary" in orders[1][1] and "customer 0" not in orders[1][1]
    assert shown[-1][0] == "Be kind." and shown[-1][1].startswith(HEAD + "summary")
    assert shown[-1][-1] == "customer 5"
    # each call of the model is on record, in the turn that made it
    assert sum(len(turn.replies) for turn in episode.turns) == len(noted.prompts)


def test_where_no_summary_came_the_messages_stay() -> None:
    """As of a model that has no room left after its thoughts."""
    noted = Noted()
    answer = noted.answer
    noted.answer = lambda request: "" if "/summary" in request.conversation else answer(request)
    seat = Seat("direct", "main", memory={"window": 2, "summary": "main"})
    asyncio.run(play(Plan(Desk(), {"clerk": seat}), {"main": noted.policy()}))
    assert noted.prompts[-1][:2] == ["Be kind.", "customer 0"] and len(noted.prompts[-1]) == 12


def test_a_summary_is_repeated_from_the_record_by_a_branch() -> None:
    noted, episode = played({"window": 2, "summary": "main"})
    before = len(noted.prompts)
    branch = Branch(episode, 4, "again", 0)
    plan = Plan(Desk(), {"clerk": Seat("direct", "main", memory={"window": 2, "summary": "main"})})
    forked = asyncio.run(play(replace(plan, branch=branch), {"main": noted.policy()}))
    assert forked.error is None and forked.turns[:4] == episode.turns[:4]
    assert 2 <= len(noted.prompts) - before <= 4  # the last two turns alone asked a model
    assert noted.prompts[-1][1].startswith(HEAD)


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        ({"windows": 3}, "has no 'windows'"),
        ({"window": 0}, "window is at least 1"),
        ({"window": 2, "turns": 2}, "either"),
        ({"first": 1}, "either"),
        ({"window": True}, "window is at least 1"),
        ({"window": 2, "summary": "nobody"}, "no policy is called 'nobody'"),
    ],
)
def test_what_is_no_memory_is_one_line(memory: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        played(memory)


@pytest.mark.parametrize(
    ("seat", "message"),
    [
        ("policy: main, memory: {window: 0}", r"memory\.window: .*at least 1|greater"),
        ("policy: main, memory: {first: 2}", r"memory: .*either window"),
        ("policy: main, memory: {windw: 3}", r"memory\.windw: unknown key.*window"),
        ("policy: main, memory: {window: 3, summary: mian}", r"memory\.summary: .*'main'"),
        ("policy: main, memory: {window: 3, summary: no.py:f}", r"memory\.summary: .*no\.py"),
        ("behaviour: random_legal, memory: {window: 3}", r"memory: it shortens what a policy"),
    ],
)
def test_a_config_names_the_key(tmp_path: Path, seat: str, message: str) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG.format(seat=seat))
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path / "c.yaml")
    assert len(str(caught.value).splitlines()) == 1


def test_a_config_gives_a_memory_and_its_record_loads_again(tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text("def short(messages):\n    return 'much'\n")
    seat = "policy: main, memory: {window: 2, summary: notes.py:short}"
    (tmp_path / "c.yaml").write_text(CONFIG.format(seat=seat))
    loaded = load(tmp_path / "c.yaml")
    (tmp_path / "again.yaml").write_text(write(loaded.resolved()))
    again = load(tmp_path / "again.yaml")
    assert again.config == loaded.config
    memory = cast_of(again.config)["player"].memory
    assert memory["window"] == 2 and memory["summary"].endswith("notes.py:short")
    plan = Plan(scenario_of(again.config), cast_of(again.config))
    assert asyncio.run(play(plan, open_policies(again.config))).error is None
    (tmp_path / "bare.yaml").write_text(CONFIG.format(seat="policy: main"))
    assert "memory" not in load(tmp_path / "bare.yaml").identity()["agents"]["player"]


def learned(episodes: Sequence[Any]) -> Any:
    table = credit.turns(episodes, "main")
    return table, rows(table, np.ones(len(table)), "main")


def sampled(model: Path, memory: dict[str, Any]) -> tuple[Any, list[Any]]:
    engine: Any = open_engine("main", f"transformers/{model}")
    policy = Policy("main", Batched(engine.engine), Sampling(max_tokens=6))
    scenario = make("guess_number", numbers=9, turns=6)
    plans = [
        Plan(scenario, {"player": Seat("direct", "main", memory=memory)}, seed=s) for s in (1, 2)
    ]

    return engine.engine, played_all(plans, {"main": policy}, deterministic=True)


@pytest.mark.long
@pytest.mark.parametrize("memory", [{"window": 3}, {"turns": 1}, {"window": 2, "summary": "main"}])
def test_what_the_model_saw_is_what_is_learned(byte_model: Path, memory: dict[str, Any]) -> None:
    pytest.importorskip("torch", reason="needs the train extra")
    from gem_ma.training.learner.torch_learner import TorchLearner

    engine, episodes = sampled(byte_model, memory)
    table, made = learned(episodes)
    replies = [reply for turn in table.turns for reply in turn.replies]
    # a prompt that lost its front is a row of its own, and each sampled id stands in one of them
    assert made.restarts > 2 and made.tokens == sum(len(reply.token_ids) for reply in replies)
    longest = max(len(reply.prompt_ids) for reply in replies)
    whole = engine.chat.render("player", episodes[0].transcript("player"))
    assert longest < len(whole)
    learner = TorchLearner(engine, Sampling(max_tokens=6))
    again = learner.scorer.logprobs(made.rows)
    as_sampled = np.concatenate([row.logprob[row.mask] for row in made.rows])
    assert np.abs(again - as_sampled).max() < 2e-4


@pytest.mark.long
def test_a_whole_view_is_one_row(byte_model: Path) -> None:
    pytest.importorskip("torch", reason="needs the train extra")
    _, episodes = sampled(byte_model, {})
    assert learned(episodes)[1].restarts == 0


def test_other_behaviours_remember_alike() -> None:
    noted = Noted()
    plan = Plan(
        Desk(),
        {"clerk": Seat("tool_calling", "main", {"instructions": "Short."}, memory={"window": 1})},
    )
    assert asyncio.run(play(plan, {"main": noted.policy()})).error is None
    assert noted.prompts[-1] == ["Be kind.\n\nShort.", "customer 5"]


def test_an_action_is_no_part_of_this() -> None:
    """A behaviour without a model keeps its own view."""
    seen: list[int] = []

    def bot(messages: Sequence[Message], legal: Any, rng: random.Random) -> Action:
        seen.append(len(messages))
        return Action("hm")

    plan = Plan(Desk(), {"clerk": Seat("bot", "main", memory={"window": 1})})
    asyncio.run(
        play(plan, {"main": Noted().policy()}, {"clerk": lambda agent, *_, **__: _Bot(bot)})
    )
    assert seen == [2, 4, 6, 8, 10, 12]


class _Bot:
    def __init__(self, function: Any) -> None:
        self.function = function

    async def act(self, asked: Any) -> Action:
        return self.function(asked.transcript, asked.legal, random.Random(0))
