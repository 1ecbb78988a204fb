"""Every behaviour that comes with gem_ma goes on after an act that it did not choose: a fork at
each step of a play in its own world, and seats that somebody else had before."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.agents.retail_scripted import RetailScripted

from gem_ma import Action, Asked, Episode, Limits, Malformed, Plan, Scenario, Seat, ToolCall, make
from gem_ma.driver.forks import Branch, scripted
from gem_ma.driver.rollout import play
from gem_ma.engines.base import Policy
from gem_ma.engines.small.scripted import Scripted
from gem_ma.kernel.types import Request, Turn
from gem_ma.record.codec import dump_episode
from gem_ma.registry import builtin

GAMES = [
    name
    for name, target in builtin("scenarios").items()
    if ".scenarios.games." in target or ".scenarios.parties." in target
]
PARTS = ["lowest", "low", "middle", "high", "highest"]
DESK = {"assistant": "retail_scripted", "user": "retail_user"}
COUNTER = {"assistant": "one_order_clerk", "user": "one_order_customer"}
# behaviour -> its worlds; of those that play anywhere a game, a talk and a game of two
ANYWHERE = ("guess_number", "retail", "dilemma")
# a world of its own for each pattern: what a member is asked differs
TEAMS: dict[str, dict[str, Any]] = {
    "propose_review questions": {"pattern": "propose_review"},
    "debate_judge guess_number": {"pattern": "debate_judge", "assigned": True},
    "plan_execute guess_number": {"pattern": "plan_execute", "every": 1},
    "teach guess_number": {"pattern": "teach", "talk": "signals", "signals": PARTS},
    "vote questions": {"pattern": "vote", "rounds": 2},
}
WORLDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("choices", "direct", "random_legal", "first_legal", "silent"), ANYWHERE),
    **dict.fromkeys(("tool_calling", "act", "react", "few_shot"), ANYWHERE),
    **dict.fromkeys(
        ("number_guesser", "number_guesser_without_repeats", "number_halver"), ("guess_number",)
    ),
    **dict.fromkeys(("tic_tac_toe_perfect", "tic_tac_toe_by_board"), ("tic_tac_toe",)),
    **dict.fromkeys(("noisy_listener", "noisy_speaker"), ("referential",)),
    "number_taught": ("teach guess_number",),
    "calculator": ("arithmetic",),
    **dict.fromkeys(
        ("always_cooperate", "always_defect", "tit_for_tat", "grim", "pavlov", "generous"),
        ("dilemma", "matrix"),
    ),
    "noisy_kuhn": ("kuhn_poker",),
    **dict.fromkeys(("team_member", "team_expert"), tuple(TEAMS)),
}
PREFIXES = {
    **{f"{game}_": game for game in GAMES},
    "goods_": "public_goods",
    "retail_": "retail",
    "user_": "retail",
    "one_order_": "retail_one_order",
    "question_": "questions",
    "code_": "code",
    "terminal_": "terminal",
}
ASKS_MODEL = {
    "choices",
    "direct",
    "tool_calling",
    "act",
    "react",
    "few_shot",
    "tic_tac_toe_by_board",
}
# whatever it remembers is kept by somebody else's program; worlds of others have tests of their own
OUTSIDE = {"program", "hanabi_simple", "hanabi_strong"}
MOST = 10  # steps of a play, of those whose model never ends it


def worlds_of(behaviour: str) -> tuple[str, ...]:
    found = [world for prefix, world in PREFIXES.items() if behaviour.startswith(prefix)]
    return WORLDS.get(behaviour) or tuple(found[:1])


CASES = [(name, world) for name in builtin("agents") for world in worlds_of(name)]


def test_every_behaviour_has_a_world_to_be_forked_in() -> None:
    assert {name for name, _ in CASES} == set(builtin("agents")) - OUTSIDE


@cache
def world(name: str) -> Scenario:
    wrappers = [{"teamwork": TEAMS[name]}] if name in TEAMS else []
    options = {"data": "own"} if name == "retail" else {}
    scenario = make(name.split()[-1], wrappers=wrappers, **options)
    scenario.id = name
    return scenario


def says(request: Request) -> str:
    """A model that says something of each form that a behaviour reads, and now and then a move."""
    rng = random.Random(request.seed)
    forms = (
        "Thought: x\nResponse: Yes, please.",
        'Action: {"name": "respond", "arguments": {"content": "hello"}}',
        '<tool_call>{"name": "list_all_product_types", "arguments": {}}</tool_call>',
        "yes",
    )
    return rng.choice(request.legal if request.legal and rng.random() < 0.8 else forms)


POLICIES = {"main": Policy("main", Scripted.of(says, policy="main"))}


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """For each world a file with one play that paid its agents."""
    files = {}
    for name in ANYWHERE:
        who = {"guess_number": "number_halver"}.get(name, "first_legal")
        players = DESK if name == "retail" else dict.fromkeys(world(name).agents, who)
        cast = {agent: Seat(who) for agent, who in players.items()}
        tries = (played(name, cast, "train/0", seed, 40) for seed in range(100))
        paid = next(e for e in tries if all(value > 0 for value in e.returns().values()))
        files[name] = str(tmp_path_factory.mktemp("shown") / f"{name}.jsonl")
        Path(files[name]).write_text(dump_episode(replace(paid, task="train/0")) + "\n")
    return files


def cast_of(behaviour: str, name: str, shown: Mapping[str, str]) -> dict[str, Seat]:
    """The behaviour in its seats, and who plays the others."""
    others = {"retail": DESK, "retail_one_order": COUNTER}.get(name, {})
    asks = behaviour in ASKS_MODEL or behaviour.startswith(("user_", "retail_user_"))
    options = {"demonstrations": shown[name], "shots": 1} if behaviour == "few_shot" else {}
    seat = Seat(behaviour, "main" if asks else None, options=options)
    user = behaviour.startswith(("user_", "retail_user")) or behaviour.endswith("_customer")
    mine = ("user" if user else "assistant",) if others else world(name).agents
    return {agent: seat if agent in mine else Seat(others[agent]) for agent in world(name).agents}


def played(
    name: str, cast: Mapping[str, Seat], task: str = "train/0", seed: int = 1, most: int = MOST
) -> Episode:
    plan = Plan(world(name), cast, task, seed, limits=Limits(max_steps=most))
    return asyncio.run(play(plan, POLICIES))


def forked(
    base: Episode, turn: Turn, act: Action | str, limits: Limits, seated: Mapping[str, str] = {}
) -> Episode:
    """A play that goes on otherwise from a turn, as a page has it forked."""
    cast = {name: Seat(seated[name]) if name in seated else one for name, one in base.cast.items()}
    scripts: dict[str, dict[int, Any]] = {name: {} for name in cast}
    for one in base.turns:
        if one.step == turn.step or (one.agent in seated and one.step < turn.step):
            scripts[one.agent][one.step] = one.action
    scripts[turn.agent][turn.step] = act
    plan = Plan(
        world(base.scenario),
        cast,
        base.task,
        base.seed,
        limits=limits,
        branch=Branch(base, turn.step, f"fork {turn.step}", 0),
    )
    players = {name: scripted(one.behaviour, scripts[name]) for name, one in cast.items()}
    return asyncio.run(play(plan, POLICIES, players))


def foreign(turn: Turn) -> Iterator[Action | str]:
    """Acts that a behaviour would not have chosen: words, nothing, no move, other moves, and calls
    of each tool, of none, of two, and one that cannot be read."""
    yield from ("One moment please.", "", "no such move 999", "1")
    yield from dict.fromkeys(turn.legal[:1] + turn.legal[-1:] if turn.legal else ())
    for tool in turn.tools:
        arguments = {
            name: schema["enum"][0]
            if "enum" in schema
            else ["1"]
            if schema.get("type") == "array"
            else "1 + 1"
            for name, schema in tool.parameters.get("properties", {}).items()
        }
        yield Action("", (ToolCall("call_9", tool.name, arguments),))
    if turn.tools:
        twice = (ToolCall("call_9", turn.tools[0].name, {}),) * 2
        yield Action("", (ToolCall("call_9", "no_such_tool", {}),))
        yield Action("", (Malformed("{", "bad_json"),))
        yield Action("hm", twice)


@pytest.mark.parametrize(("behaviour", "name"), CASES)
def test_a_behaviour_goes_on_after_an_act_that_it_did_not_choose(
    behaviour: str, name: str, request: pytest.FixtureRequest
) -> None:
    shown = request.getfixturevalue("demonstrations") if behaviour == "few_shot" else {}
    base = played(name, cast_of(behaviour, name, shown))
    assert base.error is None, base.error
    # forks of a play at most; those of models are checked by a ledger, those of a shell run it
    few = 3 if behaviour.startswith(("retail_user_", "user_", "terminal_")) else 6
    pairs = [(turn, act) for turn in base.turns for act in foreign(turn)]
    stride = max(1, len(pairs) // few)
    # a stride that shares no factor with the number of acts takes another one at each step
    for turn, act in pairs[:: stride + (stride > 1 and stride % 2 == 0)]:
        episode = forked(base, turn, act, Limits(max_steps=MOST + 4))
        assert episode.error is None, (turn.step, turn.agent, act, episode.error)
        assert episode.turns[: turn.step] == base.turns[: turn.step]


LADDER = [name for name, _ in CASES if name.startswith("retail_") and "user" not in name]
LADDER += ["retail_trusts_the_user"]


@pytest.mark.parametrize("behaviour", LADDER)
def test_an_assistant_of_the_shop_goes_on_after_any_call_at_each_of_its_first_steps(
    behaviour: str,
) -> None:
    """Each takes a quarter of the acts, its neighbours on the ladder the others."""
    base = played("retail", cast_of(behaviour, "retail", {}), "test/5")
    mine = (turn for turn in base.turns[:5] if turn.agent == "assistant")
    pairs = [(turn, act) for turn in mine for act in foreign(turn)]
    for turn, act in pairs[LADDER.index(behaviour) % 4 :: 4]:
        episode = forked(base, turn, act, Limits(max_steps=MOST + 4))
        assert episode.error is None, (turn.step, act, episode.error)


DID_NOT_CHOOSE: dict[str, Any] = {
    "words": "One moment please.",
    "nothing": "",
    "a list": Action("", (ToolCall("x", "list_all_product_types", {}),)),
    "a number": Action("", (ToolCall("x", "calculate", {"expression": "1 + 1"}),)),
    "an unknown tool": Action("", (ToolCall("x", "no_such_tool", {}),)),
}


@pytest.mark.parametrize("what", DID_NOT_CHOOSE)
@pytest.mark.parametrize("assistant", ["retail_scripted", "retail_oracle"])
def test_an_assistant_serves_the_customer_all_the_same(assistant: str, what: str) -> None:
    """Nothing is lost by an idle act at any step, nor does a change stay untold."""
    for task in (0, 5):
        cast = {"assistant": Seat(assistant), "user": Seat("retail_user")}
        base = asyncio.run(play(Plan(world("retail"), cast, f"test/{task}", task)))
        for turn in base.turns:
            if turn.agent == "assistant":
                episode = forked(base, turn, DID_NOT_CHOOSE[what], Limits())
                assert world("retail").success(episode), (task, turn.step, episode.error)


@pytest.mark.long
@pytest.mark.parametrize("heir", ["retail_scripted", "retail_oracle"])
def test_who_takes_a_seat_in_the_middle_goes_on_from_there(heir: str) -> None:
    """What was found and changed before is known, and no change is made twice."""
    for task in (0, 5, 7):
        cast = {"assistant": Seat("retail_scripted"), "user": Seat("retail_user")}
        base = asyncio.run(play(Plan(world("retail"), cast, f"test/{task}", task)))
        for turn in base.turns:
            if turn.agent == "assistant":
                episode = forked(base, turn, turn.action, Limits(), {"assistant": heir})
                assert world("retail").success(episode), (task, turn.step, episode.error)


def test_a_write_that_somebody_typed_is_told_and_not_made_again() -> None:
    cast = {"assistant": Seat("retail_scripted"), "user": Seat("retail_user")}
    base = asyncio.run(play(Plan(world("retail"), cast, "test/0", 0)))
    write = next(
        call
        for turn in base.turns
        for call in turn.action.tool_calls
        if isinstance(call, ToolCall) and call.name == "cancel_pending_order"
    )
    for turn in base.turns:
        if turn.agent == "assistant":
            episode = forked(base, turn, Action("", (write,)), Limits())
            calls = [call for one in episode.turns for call in one.action.tool_calls]
            told = [one.action.text for one in episode.turns if one.agent == "assistant"]
            if turn.step < 7:  # before it was made in the record
                assert sum(getattr(call, "name", "") == write.name for call in calls) == 1
                assert any(text.startswith("This has been done: cancel order") for text in told)


@pytest.mark.long
def test_what_a_customer_said_is_heard_where_somebody_typed_for_it() -> None:
    for task in (0, 3, 7):
        cast = {"assistant": Seat("retail_scripted"), "user": Seat("retail_user")}
        base = asyncio.run(play(Plan(world("retail"), cast, f"test/{task}", task)))
        for turn in base.turns:
            if turn.agent == "user":
                for act in (turn.action, "One moment please."):
                    assert world("retail").success(forked(base, turn, act, Limits())), turn.step


class Reworded(RetailScripted):
    """Says the same in other words, as somebody does who wraps a behaviour."""

    async def act(self, asked: Asked) -> Action:
        done = await super().act(asked)
        return replace(done, text=f"Certainly! {done.text}") if done.text else done


def test_a_text_that_a_wrapper_rewords_is_still_the_behaviours_own() -> None:
    cast = {"assistant": Seat("retail_scripted"), "user": Seat("retail_user")}
    for task in range(4):
        plan = Plan(world("retail"), cast, f"test/{task}", task)
        plain = asyncio.run(play(plan))
        reworded = asyncio.run(play(plan, None, {"assistant": Reworded}))
        assert [one.action.tool_calls for one in reworded.turns] == [
            one.action.tool_calls for one in plain.turns
        ]
