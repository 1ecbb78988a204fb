"""What the rules say of a play is the same whatever stands around them: wrappers that pay
otherwise, tools that cost, answers that had to be said again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from gem_ma.scenarios import CATALOG

from gem_ma import Action, Asked, Message, Plan, Scenario, Seat, Tool, make, play
from gem_ma.driver.behaviour import as_factory
from gem_ma.driver.behaviour import seat as seated
from gem_ma.kernel.types import ToolCall
from gem_ma.scores.judge import Judge
from gem_ma.tools.belt import Equipment, Use, WithTools

PAID = ({"reward": {"scale": 0.5}}, {"reward": {"per_step": -0.01}}, {"reward": "final"})
AGAIN = ({"retry": {"times": 1, "penalty": 0.25}},)
NO_CHOICE = "qqq"


class Nothing(Use):
    def plan(self, name: str, arguments: Mapping[str, Any]) -> None: ...

    def run(self) -> Any:
        return "nothing"


class Costly(Equipment):
    tools, uses, reward = (Tool("costly"),), 2, -0.25

    def open(self) -> Use:
        return Nothing()


class Player:
    """Plays as the behaviour of this name does, which sees nothing of what stands around."""

    def __init__(self, agent: str, sample: Any, rng: Any, task: Any = None, name: str = "") -> None:
        self.inner = seated(as_factory(name), agent, sample, rng, task)
        self.new: list[Message] = []  # since it last played
        self.wasted = 0

    async def act(self, asked: Asked) -> Any:
        self.new += filter(of_the_rules, asked.new)
        if (waste := self.waste(asked)) is not None:
            self.wasted += 1
            return waste
        new, self.new = tuple(self.new), []
        seen = tuple(filter(of_the_rules, asked.transcript))
        tools = tuple(tool for tool in asked.tools if tool.name != "costly")
        step = asked.step - self.wasted
        return await self.inner.act(
            replace(asked, new=new, transcript=seen, tools=tools, step=step)
        )

    def waste(self, asked: Asked) -> Any:
        return None


def of_the_rules(message: Message) -> bool:
    around = message.text in ("nothing", NO_CHOICE) or message.text.startswith("That is none")
    return not around and all(call.name != "costly" for call in message.tool_calls)


class CallsFirst(Player):
    def waste(self, asked: Asked) -> Any:
        if any(tool.name == "costly" for tool in asked.tools):
            return Action("", (ToolCall(f"c{asked.step}", "costly", {}),))
        return None


class BabblesFirst(Player):
    def waste(self, asked: Asked) -> Any:
        return NO_CHOICE if asked.legal and not self.wasted else None


def verdict(scenario: Scenario, kind: Callable[..., Any], cast: Mapping[str, str]) -> list[Any]:
    """Success, measures and labels of a play."""
    factories = {agent: partial(kind, name=name) for agent, name in cast.items()}
    for factory in factories.values():
        factory.privileged = True  # type: ignore[attr-defined]
    plan = Plan(scenario, {agent: Seat(name) for agent, name in cast.items()}, task="test/0")
    episode = asyncio.run(play(plan, behaviours=factories))
    assert episode.error is None, episode.error
    judge = Judge.of(scenario)
    hooks = (judge.success, judge.measures, judge.labels)
    return [hook and hook(episode) for hook in hooks]


# nobody is paid for a draw
DRAW = dict.fromkeys("xo", "tic_tac_toe_perfect")


@pytest.mark.parametrize(
    ("name", "cast"), [*((name, {}) for name in CATALOG), ("tic_tac_toe", DRAW)]
)
def test_the_rules_judge_a_play_as_if_nothing_stood_around_them(
    name: str, cast: dict[str, str]
) -> None:
    rules = make(name)
    cast = cast or dict(rules.default_cast) or dict.fromkeys(rules.agents, "random_legal")
    bare = verdict(rules, Player, cast)
    assert verdict(make(name, wrappers=PAID), Player, cast) == bare
    equipped = WithTools(rules, {agent: [Costly()] for agent in rules.agents})
    assert verdict(equipped, CallsFirst, cast) == bare
    assert verdict(make(name, wrappers=AGAIN), BabblesFirst, cast) == bare
