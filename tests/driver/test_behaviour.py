"""What plays an agent: ids, factories, plain functions, ready objects."""

from __future__ import annotations

import asyncio
import inspect
import random
from functools import partial
from typing import Any

import pytest
from gem_ma.agents import CATALOG

import gem_ma
from gem_ma.driver.behaviour import (
    FromFunction,
    act_of,
    as_factory,
    behaviour_rng,
    is_privileged,
    no_policy,
    seat,
)
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.errors import ActionError, ConfigError, EngineError
from gem_ma.kernel.types import Action, Asked, Message, Reply, Tool, ToolCall
from gem_ma.registry import load
from gem_ma.system.options import SEAT, signature

LEGAL = ("check", "bet")
SAMPLE = no_policy("a")


def asked(legal: tuple[str, ...] | None = LEGAL, tools: tuple[Tool, ...] = ()) -> Asked:
    message = (Message("?"),)
    return Asked(message, message, legal, tools, 0)


def act(given: Any, question: Asked, sample: Any = SAMPLE, **options: Any) -> Any:
    return asyncio.run(
        seat(as_factory(given), "a", sample, random.Random(0), "the task", **options).act(question)
    )


PROBABILITIES = [
    (name, option)
    for name in CATALOG
    for option in inspect.signature(load("agents", name)).parameters
    if option in ("noise", "guesses", "slips")
]


@pytest.mark.parametrize(("name", "option"), PROBABILITIES)
def test_a_probability_is_checked_alike_everywhere(name: str, option: str) -> None:
    for value in (-0.1, 1.5, float("nan"), True, "0.5", None, [0.5]):
        with pytest.raises(ConfigError) as caught:
            seat(as_factory(name), "a", SAMPLE, random.Random(0), None, **{option: value})
        assert str(caught.value) == f"agent 'a': {option} is a probability; got {value!r}"
    for value in (0, 0.25, 1):
        seat(as_factory(name), "a", SAMPLE, random.Random(0), None, **{option: value})


def test_an_id_is_a_registered_behaviour() -> None:
    assert act("first_legal", asked()) == Action("check", (), "check")
    with pytest.raises(
        ConfigError, match=r"no behaviour is called 'first_legl' \(did you mean 'first_legal'"
    ):
        as_factory("first_legl")


def test_a_plain_function_of_messages_legal_and_rng_is_parsed_by_the_one_parser() -> None:
    def says(messages: Any, legal: Any, rng: random.Random) -> str:
        return (
            f"[{legal[1]}] after {len(messages)}"
            if legal
            else '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
        )

    assert act(says, asked()) == Action("[bet] after 1", (), "bet")
    assert act(says, asked(None, (Tool("f"),))) == Action("", (ToolCall("call_0", "f", {}),))
    assert isinstance(seat(as_factory(says), "a", SAMPLE, random.Random(0), None), FromFunction)


def test_a_plain_function_may_be_async_or_give_an_action_and_nothing_else() -> None:
    async def waits(messages: Any, legal: Any, rng: random.Random) -> str:
        await asyncio.sleep(0)
        return "[bet]"

    assert act(waits, asked()) == Action("[bet]", (), "bet")
    assert act(lambda messages, legal, rng: Action("x"), asked()) == Action("x")
    assert act(lambda messages, legal, rng, **_: legal[0], asked()) == Action("check", (), "check")
    assert act(lambda *given: given[1][0], asked()) == Action("check", (), "check")
    with pytest.raises(ActionError, match="gives a str; got NoneType"):
        act(lambda messages, legal, rng: None, asked())


def test_a_factory_is_called_with_agent_sample_rng_and_options() -> None:
    got = []

    def factory(
        agent: str, sample: Any, rng: random.Random, task: Any = None, *, size: int = 0
    ) -> Any:
        got.append((agent, task, size))
        return as_factory("silent")(agent, sample, rng)

    assert act(factory, asked(), size=3) == Action("") and got == [("a", None, 3)]
    with pytest.raises(
        ConfigError, match=r"agent 'a': behaviour factory: .*'sise'.*did you mean 'size'"
    ):
        act(factory, asked(), sise=3)


def test_a_type_error_inside_a_factory_is_its_own() -> None:
    def factory(agent: str, sample: Any, rng: random.Random, task: Any = None) -> Any:
        return len(3)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len"):
        act(factory, asked())


def test_only_a_privileged_factory_is_given_the_task() -> None:
    class Oracle:
        privileged = True

        def __init__(self, agent: str, sample: Any, rng: random.Random, task: Any = None) -> None:
            self.task = task

        async def act(self, question: Asked) -> str:
            return str(self.task)

    class Honest(Oracle):
        privileged = False

    assert (act(Oracle, asked()), act(Honest, asked())) == ("the task", "None")
    assert is_privileged(Oracle)
    assert not is_privileged(Honest)
    assert not is_privileged(as_factory("silent"))


class Last:
    """Its first parameter is not called `agent`."""

    def __init__(
        self, me: str, sample: Any, rng: random.Random, task: Any = None, *, back: int = 1
    ):
        self.back = back

    def act(self, asked: Asked) -> str:
        assert asked.legal
        return asked.legal[-self.back]


def last(me: str, sample: Any, rng: random.Random, task: Any = None, *, back: int = 1) -> Last:
    return Last(me, sample, rng, back=back)


@pytest.mark.parametrize("given", [Last, last, partial(Last, back=2)])
def test_what_makes_a_behaviour_may_call_its_parameters_as_it_likes(given: Any) -> None:
    first = seat(as_factory(given), "a", SAMPLE, random.Random(0), None, back=2)
    assert asyncio.run(act_of(first, asked())) == "check"
    assert list(signature(given, SEAT) or ()) == ["back"]


@pytest.mark.parametrize(
    "given",
    [Last("player_0", SAMPLE, random.Random(0)), "first_legal", lambda m, legal, r: legal[0]],
)
def test_a_play_takes_whatever_plays_an_agent(given: Any) -> None:
    plan = gem_ma.Plan(gem_ma.make("dilemma"), dict.fromkeys(("player_0", "player_1"), Seat("?")))
    players = dict.fromkeys(plan.cast, given)
    episode = asyncio.run(gem_ma.play(plan, behaviours=players))
    assert (episode.error, len(episode.turns)) == (None, 10)


def test_a_ready_object_with_act_sits_in_every_seat() -> None:
    ready = FromFunction(lambda messages, legal, rng: "bet", random.Random(0))
    assert act(ready, asked()).parsed == "bet"


class Plain:
    """Its act is no coroutine."""

    def act(self, asked: Asked) -> str:
        return "defect"


def test_an_act_that_is_no_coroutine_plays_as_it_does_in_an_environment() -> None:
    cast = {"player_0": Seat("plain"), "player_1": Seat("first_legal")}
    plan = gem_ma.Plan(gem_ma.make("dilemma"), cast)
    episode = asyncio.run(gem_ma.play(plan, behaviours={"player_0": lambda *_, **__: Plain()}))
    assert episode.error is None
    assert {turn.action.text for turn in episode.turns if turn.agent == "player_0"} == {"defect"}


@pytest.mark.parametrize("wrong", [3, None, ["first_legal"]])
def test_what_is_no_behaviour_is_refused(wrong: Any) -> None:
    with pytest.raises(
        ConfigError, match="a behaviour is an id, a factory, a function or an object with act"
    ):
        as_factory(wrong)


def test_a_seat_without_a_policy_says_what_is_missing() -> None:
    with pytest.raises(EngineError, match=r"agent 'a': .* its seat names none"):
        act("direct", asked())


def test_the_direct_behaviour_takes_the_reply_as_the_action() -> None:
    replies = [Reply("[bet]"), Reply("Look.", (ToolCall("call_0", "f", {}),))]

    async def sample(messages: Any, **fields: Any) -> Reply:
        return replies.pop(0)

    assert act("direct", asked(), sample) == Action("[bet]", (), "bet")
    assert act("direct", asked(None, (Tool("f"),)), sample) == Action(
        "Look.", (ToolCall("call_0", "f", {}),)
    )


def test_streams_of_agents_are_apart_and_repeatable() -> None:
    draws = {
        (seed, agent): behaviour_rng(seed, agent).random() for seed in range(3) for agent in "ab"
    }
    assert len(set(draws.values())) == 6 and draws[1, "a"] == behaviour_rng(1, "a").random()


def test_the_bots() -> None:
    assert {
        act(
            lambda agent, sample, rng, task=None, n=n: as_factory("random_legal")(
                agent, sample, random.Random(n)
            ),
            asked(),
        ).parsed
        for n in range(9)
    } == set(LEGAL)
    assert act("random_legal", asked(None)).text
    assert act("first_legal", asked(None)).parsed is None
    assert act("silent", asked()) == Action("")
