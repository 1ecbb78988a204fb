"""The kernel: effects, faults of authors, forks, replays, closing."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_ma.kernel.effects import Pending
from gem_ma.kernel.episode import CallResult, Entry
from gem_ma.kernel.errors import ActionError, CallError, ReplayError, ScenarioError
from gem_ma.kernel.scenario import Ask, Call, Game, Leave, Reward, Scenario, Tell, replay
from gem_ma.kernel.types import Action, Image, Malformed, Message, Reply, Tool, ToolCall
from gem_ma.kernel.views import read
from gem_ma.registry import make


def scenario(play: Callable[..., Any], agents: Any = ("a", "b"), **facts: Any) -> Scenario:
    """A scenario out of a generator function of (rng, task)."""
    return type(
        "Made",
        (Scenario,),
        {"play": lambda self, rng, task: play(rng, task), "agents": agents, "id": "made", **facts},
    )()


def steps(*effects: Any) -> Scenario:
    def play(rng: random.Random, task: Any) -> Any:
        for effect in effects:  # noqa: UP028  # not `yield from`: a tuple has no send()
            yield effect

    return scenario(play)


def finish(game: Game, text: str = "x") -> Game:
    while game.pending:
        game.send(dict.fromkeys(game.pending, text))
    return game


def texts(game: Game, agent: str) -> list[str]:
    return [message.text for message in game.view(agent)]


# -- playing -------------------------------------------------------------------------------------


def test_an_agent_sees_what_it_is_asked_and_told_and_its_own_actions_in_order() -> None:
    game = finish(
        Game(
            steps(
                Tell({"a": "hello"}),
                Ask({"a": "one"}),
                Tell({"a": "aside", "b": "secret"}),
                Ask({"b": "two"}),
                Tell({"a": "end"}),
            )
        )
    )
    assert texts(game, "a") == ["hello", "one", "x", "aside", "end"]
    assert texts(game, "b") == ["secret", "two", "x"]
    assert [[message.text for message in turn.observed] for turn in game.turns] == [
        ["hello", "one"],
        ["secret", "two"],
    ]
    assert [message.text for message in game.new("a")] == ["aside", "end"] and game.new("b") == ()
    assert game.over and game.closed and game.pending == {}


def test_the_answer_to_an_ask_is_a_mapping_even_for_one_agent() -> None:
    got = []

    def play(rng: random.Random, task: Any) -> Any:
        got.append((yield Ask({"a": "?"}, legal=("yes", "no"))))
        got.append((yield Ask({"a": "?", "b": "?"})))
        got.append((yield Tell({"a": "!"})))

    game = Game(scenario(play))
    game.send({"a": "YES"})
    game.send({"a": Action("1"), "b": "2"})
    assert got == [{"a": Action("YES", (), "yes")}, {"a": Action("1"), "b": Action("2")}, None]


def test_simultaneous_actions_share_a_step_and_are_not_seen_before_all_are_in() -> None:
    game = Game(steps(Ask({"b": "?", "a": "?"}), Ask({"a": "?"})))
    assert list(game.pending) == ["b", "a"]
    game.send({"a": "1", "b": "2"})
    assert [(turn.step, turn.agent, turn.action.text) for turn in game.turns] == [
        (0, "b", "2"),
        (0, "a", "1"),
    ]
    assert texts(game, "a") == ["?", "1", "?"]


def test_rewards_carry_the_last_committed_step_and_minus_one_before_the_first() -> None:
    game = finish(
        Game(
            steps(
                Reward({"a": 1}),
                Ask({"a": "?"}),
                Reward({"b": 2.5}, why="bonus"),
                Ask({"b": "?"}),
                Reward({"a": -1, "b": 0}),
            )
        )
    )
    assert game.ledger == [
        Entry(-1, "a", 1.0),
        Entry(0, "b", 2.5, "bonus"),
        Entry(1, "a", -1.0),
        Entry(1, "b", 0.0),
    ]
    assert all(type(entry.value) is float for entry in game.ledger)


def test_numbers_of_any_kind_are_paid_as_floats() -> None:
    numpy = pytest.importorskip("numpy")
    game = Game(
        steps(
            *(
                Reward({"a": value})
                for value in (Fraction(1, 2), Decimal("0.25"), numpy.float32(2), numpy.int64(3))
            ),
            Ask({"a": "?"}),
        )
    )
    assert [entry.value for entry in game.ledger] == [0.5, 0.25, 2.0, 3.0]


def test_legal_and_tools_are_one_value_for_all_or_one_per_agent() -> None:
    look = Tool("look")
    assert Game(
        steps(Ask({"a": "?", "b": "?"}, legal=["x", "y"], tools=[look]))
    ).pending == dict.fromkeys("ab", Pending(("x", "y"), (look,)))
    mixed = Game(
        steps(Ask({"a": "?", "b": "?"}, legal={"a": ("x",)}, tools={"b": (look,)}))
    ).pending
    assert mixed == {"a": Pending(("x",)), "b": Pending(None, (look,))}


def test_what_is_shown_may_be_text_messages_images_or_a_tuple_of_these() -> None:
    image = Image.of(b"png")
    shown = (
        "plain",
        Message.system("rules"),
        Message("from b", sender="b"),
        Message(("look", image)),
        Message.tool("call_0", "result"),
    )
    game = Game(steps(Tell({"a": shown}), Ask({"a": ()})))
    assert [(message.role("a"), message.text) for message in game.view("a")] == [
        ("user", "plain"), ("system", "rules"), ("user", "from b"), ("user", "look"), ("tool", "result"),
    ]  # fmt: skip
    assert game.view("a")[3].content == ("look", image)
    game.send({"a": "mine"})
    assert game.view("a")[-1].role("a") == "assistant" and game.view("a")[-1].role("b") == "user"


class Word(StrEnum):
    """A text of a class of its own, as those of numpy are."""

    A = "a"


def test_texts_of_other_classes_are_plain_wherever_they_enter() -> None:
    a: Any = Word.A
    game = Game(steps(Tell({a: a}), Ask({a: Message((a,))}, legal=(a,)), Reward({a: 1}, why=a)))
    game.send({"a": a})
    told, asked, done = game.view("a")
    entered = [told.content, asked.content[0], done.content, game.ledger[0].why]
    assert [(type(text), text) for text in entered] == [(str, "a")] * 4


def test_lone_surrogates_are_replaced_wherever_text_enters() -> None:
    tool_call = ToolCall("call_0", "f", {})
    game = Game(
        steps(
            Tell({"a": "\ud800"}),
            Ask({"a": Message(("\udfff", Image.of(b"")), "b")}),
            Reward({"a": 1}, why="\ud800"),
            Ask({"a": "?"}),
            Ask({"a": "?"}),
        )
    )
    game.send({"a": "\ud83d"})
    game.send({"a": Action("\ud83d", (tool_call,))})
    assert texts(game, "a") == ["?", "?", "?", "?", "?", "?"]
    assert game.ledger[0].why == "?" and game.turns[1].action.tool_calls == (tool_call,)


def test_an_agent_that_left_keeps_its_view_and_the_others_go_on() -> None:
    game = finish(Game(steps(Ask({"a": "?"}), Leave("a"), Ask({"b": "?"}), Reward({"b": 1}))))
    assert game.over and game.left == {"a"} and texts(game, "a") == ["?", "x"]


def test_a_turn_keeps_what_was_sampled_for_it() -> None:
    reply = Reply("x", token_ids=(1,))
    game = Game(steps(Ask({"a": "?", "b": "?"})))
    game.send({"a": "x", "b": "y"}, {"a": [reply]})
    assert [turn.replies for turn in game.turns] == [(reply,), ()]


def test_a_scenario_may_keep_settings_and_two_plays_of_one_object_interleave() -> None:
    kuhn = make("kuhn_poker")
    alone = [finish(Game(kuhn, seed=seed), "bet") for seed in range(6)]
    games = [Game(kuhn, seed=seed) for seed in range(6)]
    while any(game.pending for game in games):
        for game in games:
            if game.pending:
                game.send(dict.fromkeys(game.pending, "bet"))
    assert [(game.turns, game.ledger) for game in games] == [
        (game.turns, game.ledger) for game in alone
    ]


def test_the_global_generator_is_neither_used_nor_touched() -> None:
    random.seed(1)
    before = random.getstate()
    one = finish(Game(make("kuhn_poker"), seed=3))
    assert random.getstate() == before
    random.seed(2)
    assert finish(Game(make("kuhn_poker"), seed=3)).turns == one.turns


# -- faults of the author ------------------------------------------------------------------------


def endless(rng: random.Random, task: Any) -> Any:
    yield Ask({"a": "?"})
    while True:
        yield Tell({"a": "more"})


def endless_calls(rng: random.Random, task: Any) -> Any:
    while True:
        yield Call(int)


def divides(rng: random.Random, task: Any) -> Any:
    yield Ask({"a": "?"})
    yield Ask({"a": 1 // 0})


def exits(rng: random.Random, task: Any) -> Any:
    raise SystemExit(3)
    yield


ASK = Ask({"a": "?"})
NO_NUMBERS: list[Any] = [float("nan"), float("inf"), None, "1", b"1", True, 1j, 10**400, [1]]
FAULTS: list[tuple[Any, int, str]] = [
    (steps(Ask({})), 0, "asks nobody"),
    (steps(Ask({"c": "?"})), 0, "Ask names 'c'; its agents are a, b"),
    (steps(ASK, Tell({"c": "?"})), 1, "Tell names 'c'"),
    (steps(ASK, Reward({"c": 1})), 1, "Reward names 'c'"),
    (steps(ASK, Leave("c")), 1, "Leave names 'c'"),
    (steps(ASK, Leave("a"), ASK), 1, "Ask names 'a', which has left"),
    (steps(ASK, Leave("a"), Tell({"a": "?"})), 1, "Tell names 'a', which has left"),
    (steps(ASK, Leave("a"), Reward({"a": 1})), 1, "Reward names 'a', which has left"),
    (steps(ASK, Leave("a"), Leave("a")), 1, "Leave names 'a', which has left"),
    (steps(Leave("a"), Ask({"b": "?"})), 0, "lets a leave before the first Ask"),
    (steps(), 0, "ended without asking anybody"),
    (steps(Tell({"a": "?"}), Reward({"a": 1})), 0, "ended without asking anybody"),
    (scenario(endless), 1, "more than 10000 effects"),
    (scenario(endless_calls), 0, "more than 10000 effects"),
    (scenario(divides), 1, "ZeroDivisionError: integer division"),
    (scenario(exits), 0, "SystemExit: 3"),
    (steps(ASK, "ask a"), 1, "yielded 'ask a'; the effects are"),
    (steps(None), 0, "yielded None"),
    (steps(ASK, Ask), 1, "the effects are"),
    (steps(Ask("a")), 0, "Ask takes {agent: what it is shown}; got 'a'"),  # type: ignore[arg-type]
    (steps(Tell([("a", "?")])), 0, "Tell takes"),  # type: ignore[arg-type]
    (steps(Reward(1)), 0, "Reward takes"),  # type: ignore[arg-type]
    (steps(Leave(["a"])), 0, "malformed Leave"),  # type: ignore[arg-type]
    (steps(Ask({"a": 3})), 0, "shows 3 to a"),  # type: ignore[dict-item]
    (steps(Ask({"a": None})), 0, "shows None to a"),  # type: ignore[dict-item]
    (steps(Ask({"a": ("x", 3)})), 0, "what is shown is a str"),  # type: ignore[list-item]
    (steps(Ask({"a": Message(("x", 3))})), 0, "what is shown is a str"),  # type: ignore[arg-type]
    (steps(Ask({"a": Message(None)})), 0, "what is shown is a str"),  # type: ignore[arg-type]
    (steps(Ask({"a": "?"}, legal=())), 0, "legal must be a non-empty tuple of strings"),
    (
        steps(Ask({"a": "?"}, legal="yes")),
        0,
        "legal must be a non-empty tuple of strings; got 'yes'",
    ),
    (steps(Ask({"a": "?"}, legal=("x", 1))), 0, "legal must be"),  # type: ignore[arg-type]
    (steps(Ask({"a": "?"}, legal=("x", []))), 0, "malformed Ask"),  # type: ignore[arg-type]
    (steps(Ask({"a": "?"}, legal={"x", "y"})), 0, "legal must be"),  # type: ignore[arg-type]
    (steps(Ask({"a": "?"}, legal=3)), 0, "malformed Ask"),  # type: ignore[arg-type]
    (steps(Ask({"a": "?"}, legal={"c": ("x",)})), 0, "names 'c'"),
    (steps(Ask({"a": "?"}, tools=("look",))), 0, "tools must be a tuple of Tool"),  # type: ignore[arg-type]
    (steps(ASK, Call(object)), 1, "not a JSON value"),
    (steps(ASK, Call(float, "nan")), 1, "not a JSON value"),
    (steps(ASK, Call(int, "x")), 1, "CallError: ValueError: invalid literal"),
    *((steps(ASK, Reward({"a": value})), 1, "a reward is a finite number") for value in NO_NUMBERS),
    (scenario(lambda rng, task: None), 0, "must be a generator"),
    (scenario(lambda rng, task: 1 // 0), 0, "ZeroDivisionError"),
    (scenario(endless, agents=()), 0, "agents must be a tuple of names"),
    (scenario(endless, agents="ab"), 0, "agents must be a tuple of names"),
    (scenario(endless, agents=("a", 3)), 0, "agents must be a tuple of names"),
    (scenario(endless, agents=("a", "a")), 0, "distinct names"),
    (scenario(endless, agents=("a", "system")), 0, "other than ['scenario', 'system', 'tool']"),
]


@pytest.mark.parametrize(
    ("faulty", "step", "words"),
    FAULTS,
    ids=[f"{number}: {words}"[:50] for number, (_, _, words) in enumerate(FAULTS)],
)
@pytest.mark.parametrize("defer", [False, True])
def test_a_fault_of_the_author_is_one_scenario_error_with_scenario_seed_step_and_cause(
    faulty: Scenario, step: int, words: str, defer: bool
) -> None:
    with pytest.raises(ScenarioError) as caught:
        game = Game(faulty, seed=41, defer_calls=defer)
        while True:
            while game.waiting:
                game.answer(*game.waiting.run())
            finish(game)
    assert words in str(caught.value) and f"made (seed 41, step {step}): " in str(caught.value)
    if "Error: " in words or "Exit: " in words or "malformed" in words:
        assert caught.value.__cause__ is not None


def test_an_error_of_our_own_tree_raised_by_the_author_is_wrapped_as_well() -> None:
    def play(rng: random.Random, task: Any) -> Any:
        yield Ask({"a": "?"})
        raise ScenarioError("inner")

    with pytest.raises(
        ScenarioError, match=r"made \(seed 0, step 1\): raised ScenarioError: inner"
    ):
        finish(Game(scenario(play)))


def test_after_a_fault_the_play_is_closed_and_its_finally_has_run() -> None:
    closed = []

    def play(rng: random.Random, task: Any) -> Any:
        try:
            yield Ask({"a": "?"})
            yield Tell({"nobody": "?"})
        finally:
            closed.append(True)

    game = Game(scenario(play))
    with pytest.raises(ScenarioError):
        finish(game)
    assert closed == [True] and game.closed and not game.over and not game.pending
    with pytest.raises(ActionError):
        game.send({"a": "x"})
    game.close()
    assert len(game.turns) == 1  # the committed turn stays on record


def test_the_limit_on_effects_counts_between_two_questions() -> None:
    def play(rng: random.Random, task: Any) -> Any:
        for _ in range(3):
            for _ in range(4000):
                yield Tell({"a": "more"})
            yield Ask({"a": "?"})

    assert finish(Game(scenario(play))).over


def test_an_interrupt_from_the_keyboard_is_not_a_fault() -> None:
    def play(rng: random.Random, task: Any) -> Any:
        yield Ask({"a": "?"})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finish(Game(scenario(play)))


# -- faults of the caller ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ({"a": "x"}, r"asked are a, b; missing \['b'\], not asked \[\]"),
        ({"a": "x", "b": "x", "c": "x"}, r"not asked \['c'\]"),
        ({}, r"missing \['a', 'b'\]"),
        ({"a": "x", "b": None}, "agent 'b': an action is a str or an Action; got NoneType"),
        ({"a": 3, "b": "x"}, "agent 'a': an action is a str or an Action; got int"),
        ({"a": Action(None), "b": "x"}, "agent 'a': an Action has a text"),  # type: ignore[arg-type]
        ("x", "actions are {agent: action}, got str"),
    ],
)
def test_a_wrong_send_names_the_agent_and_changes_nothing(actions: Any, words: str) -> None:
    game = Game(steps(Ask({"a": "?", "b": "?"})))
    with pytest.raises(ActionError, match=words):
        game.send(actions)
    assert game.step == 0 and not game.turns and list(game.pending) == ["a", "b"]
    game.send({"a": "x", "b": "y"})
    assert game.over
    with pytest.raises(ActionError, match="the play is over"):
        game.send({"a": "x", "b": "y"})


def test_looking_at_an_unknown_agent_names_the_known_ones() -> None:
    with pytest.raises(ActionError, match="agent 'c' is not in made; its agents are a, b"):
        Game(steps(ASK)).view("c")


def test_what_a_behaviour_says_it_parsed_is_checked() -> None:
    game = Game(steps(*[Ask({"a": "?"}, legal=("yes", "no"))] * 4, Ask({"a": "?"})))
    for action in (
        Action("I take [no]", (), "maybe"),
        Action("thinking ...", (), "yes"),
        Action("no"),
        Action("perhaps", (), "perhaps"),
        Action("yes", (), "yes"),
    ):
        game.send({"a": action})
    assert [turn.action.parsed for turn in game.turns] == ["no", "yes", "no", None, None]


def test_tool_calls_given_as_a_list_are_kept_as_a_tuple() -> None:
    game = Game(steps(ASK))
    game.send({"a": Action("", [Malformed("x", "bad_json")])})  # type: ignore[arg-type]
    assert game.turns[0].action.tool_calls == (Malformed("x", "bad_json"),)


# -- closing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(5))
def test_a_play_may_be_closed_at_every_step(at: int) -> None:
    closed = []

    def play(rng: random.Random, task: Any) -> Any:
        try:
            for _ in range(4):
                yield Ask({"a": "?"})
        finally:
            closed.append(True)

    game = Game(scenario(play))
    for _ in range(at):
        game.send({"a": "x"})
    game.close()
    game.close()
    assert closed == [True] and game.closed and game.over == (at == 4) and not game.pending
    with pytest.raises(ActionError):
        game.send({"a": "x"})


def yields_in_finally(rng: random.Random, task: Any) -> Any:
    try:
        yield Ask({"a": "?"})
    finally:
        yield Tell({"a": "bye"})


def swallows(rng: random.Random, task: Any) -> Any:
    try:
        yield Ask({"a": "?"})
    except BaseException:
        yield Ask({"a": "still here"})


def raises_when_closed(rng: random.Random, task: Any) -> Any:
    try:
        yield Ask({"a": "?"})
    finally:
        raise SystemExit("no")


@pytest.mark.parametrize(
    ("play", "words"),
    [
        (yields_in_finally, "ignored GeneratorExit"),
        (swallows, "ignored GeneratorExit"),
        (raises_when_closed, "SystemExit: no"),
    ],
)
def test_a_scenario_that_resists_closing_is_at_fault(play: Any, words: str) -> None:
    game = Game(scenario(play))
    with pytest.raises(ScenarioError, match=words):
        game.close()
    assert game.closed


# -- calls ---------------------------------------------------------------------------------------


class World:
    """Outside work that counts how often it was done, and never gives the same twice."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def ask(self, what: str) -> Any:
        self.done.append(what)
        if what == "fail":
            raise OSError(f"attempt {len(self.done)}")
        return {"what": what, "count": len(self.done), "pair": (1, 2)}


def caller(world: World) -> Scenario:
    def play(rng: random.Random, task: Any) -> Any:
        start = yield Call(world.ask, "start")
        yield Tell({"a": f"{start}"})
        for step in range(4):
            said = yield Ask({"a": f"{step}: {rng.randrange(100)}"})
            for _ in range(step):  # no call after step 0, one after step 1, ...
                got = yield Call(world.ask, said["a"].text)
                got["count"] += 1000  # the scenario may edit what it got; the record may not change
                yield Tell({"a": f"{got} {rng.randrange(100)}"})
            try:
                yield Call(world.ask, "fail")
            except CallError as error:
                yield Tell({"a": str(error)})

    return scenario(play)


def test_call_results_are_json_values_recorded_by_step_errors_included() -> None:
    game = finish(Game(caller(World())))
    assert [call.step for call in game.calls] == [-1, 0, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    assert game.calls[0] == CallResult(-1, {"what": "start", "count": 1, "pair": [1, 2]})
    assert game.calls[1] == CallResult(0, None, "OSError: attempt 2")
    assert "'pair': [1, 2]" in texts(game, "a")[0] and "OSError: attempt 2" in texts(game, "a")
    assert game.calls[2].value["count"] == 3  # not 1003


@pytest.mark.parametrize("at", range(5))
def test_a_fork_repeats_no_call_and_replays_none_from_after_the_fork(at: int) -> None:
    world = World()
    game = finish(Game(caller(world)))
    done = list(world.done)
    fork = game.fork(at)
    assert world.done == done
    assert fork.turns == game.turns[: fork.step] and fork.step == at
    assert fork.calls == [call for call in game.calls if call.step < at]
    finish(fork)
    # lived on, for real
    assert world.done[len(done) :] == [
        what for call, what in zip(game.calls, done, strict=True) if call.step >= at
    ]


def test_a_whole_replay_repeats_no_call() -> None:
    world = World()
    game = finish(Game(caller(world)))
    count, recorded = len(world.done), deepcopy(game.calls)
    again = replay(game.scenario, None, 0, game.turns, game.calls, game.forks)
    # though the scenario edits what it gets
    assert len(world.done) == count and again.over and game.calls == recorded
    assert (again.turns, again.ledger, again.calls, again.view("a")) == (
        game.turns,
        game.ledger,
        game.calls,
        game.view("a"),
    )


def test_a_record_that_was_cut_inside_a_call_replays_up_to_it_and_does_not_run_it() -> None:
    world = World()
    game = Game(caller(world), defer_calls=True)
    game.answer(1)
    game.send({"a": "x"})
    assert game.waiting
    again = replay(game.scenario, None, 0, game.turns, game.calls)
    assert again.waiting and world.done == [] and again.view("a") == game.view("a")
    forked = game.fork(seed="other")
    assert forked.waiting and forked.forks == []
    forked.answer(None, "OSError: x")
    assert forked.forks == [(1, "other")]


def test_a_deferred_call_waits_for_its_answer() -> None:
    world = World()
    game = Game(caller(world), defer_calls=True)
    assert game.waiting is not None and not game.pending and world.done == []
    with pytest.raises(ActionError, match="waiting for a call"):
        game.send({"a": "x"})
    game.answer(*game.waiting.run())
    assert list(game.pending) == ["a"] and game.calls[0].value["count"] == 1
    with pytest.raises(ActionError, match="no call is waiting"):
        game.answer(1)


def test_a_scenario_that_makes_other_calls_than_on_record_is_no_replay() -> None:
    world = World()
    game = finish(Game(caller(world)))
    fewer = game.calls[:3] + game.calls[4:]
    with pytest.raises(ReplayError, match="a call that the record does not hold"):
        replay(game.scenario, None, 0, game.turns, fewer)
    more = [*game.calls[:3], CallResult(1, {"count": 0}), *game.calls[3:]]
    with pytest.raises(ReplayError):
        replay(game.scenario, None, 0, game.turns, more)
    assert len(world.done) == len(game.calls)


# -- forks and replays ---------------------------------------------------------------------------


def draws(rng: random.Random, task: Any) -> Any:
    """Draws before, between and after its questions."""
    for step in range(6):
        agent = "ab"[rng.randrange(2)]
        said = yield Ask({agent: f"{step}: {rng.random()}"}, legal=("left", "right"))
        yield Reward({agent: rng.random() * (1 if said[agent].parsed == "left" else -1)})
        yield Tell({"a": f"told {rng.random()}"})


def state(game: Game) -> Any:
    views = [game.view(agent) for agent in game.scenario.agents]
    return (
        game.turns,
        game.ledger,
        game.calls,
        game.forks,
        game.left,
        game.pending,
        game.step,
        game.over,
        game.rng.getstate(),
        views,
    )


@pytest.mark.parametrize("name", ["draws", "kuhn_poker", "dilemma"])
def test_a_fork_at_every_step_equals_the_play_as_it_was_there(name: str) -> None:
    played = scenario(draws) if name == "draws" else make(name)
    for seed in range(5):
        chooser = random.Random(seed)
        game, were = Game(played, seed=seed), []
        while game.pending:
            were.append(state(game.fork()))
            assert state(game) == were[-1]
            game.send(
                {
                    agent: chooser.choice(asked.legal or ("x",))
                    for agent, asked in game.pending.items()
                }
            )
        were.append(state(game))
        assert [state(game.fork(step)) for step in range(game.step + 1)] == were
        for step in range(game.step):
            fork = game.fork(step)
            for at in range(step, game.step):
                fork.send({turn.agent: turn.action for turn in game.turns if turn.step == at})
            assert state(fork) == state(game)


def test_a_fork_shares_nothing_with_its_parent() -> None:
    game = Game(scenario(draws), seed=1)
    fork = game.fork()
    before = state(game)
    finish(fork)
    assert state(game) == before and game.rng is not fork.rng


def test_reseeded_forks_differ_and_replay_from_their_forks_alone() -> None:
    game = Game(scenario(draws), seed=1)
    game.send(dict.fromkeys(game.pending, "left"))
    game.send(dict.fromkeys(game.pending, "left"))
    group = [finish(game.fork(seed=f"1/fork/{member}")) for member in range(4)]
    assert len({str(member.ledger) for member in group}) == 4
    for member in group:
        assert member.turns[:2] == game.turns and len(member.forks) == 1
        assert state(
            replay(member.scenario, None, 1, member.turns, member.calls, member.forks)
        ) == state(member)
    assert game.forks == []


@pytest.mark.parametrize(
    ("first", "second"), [(0, 0), (0, 6), (6, 0), (3, 3), (2, 5), (5, 2), (6, 6)]
)
def test_forks_of_forks_replay_from_their_forks_alone(first: int, second: int) -> None:
    game = finish(Game(scenario(draws), seed=2), "left")
    child = finish(game.fork(first, seed="x"), "right")
    grandchild = finish(child.fork(second, seed="y"), "left")
    assert grandchild.forks == (
        [(first, "x"), (second, "y")] if first <= second else [(second, "y")]
    )
    again = replay(game.scenario, None, 2, grandchild.turns, (), grandchild.forks)
    assert state(again) == state(grandchild)
    for step in range(7):
        assert state(again.fork(step)) == state(grandchild.fork(step))


def test_a_fork_at_the_start_keeps_what_was_drawn_before_the_first_question() -> None:
    game = Game(scenario(draws), seed=3)
    fork = game.fork(0, seed="other")
    assert fork.view("a") == game.view("a") and fork.view("b") == game.view("b")
    assert fork.rng.getstate() == random.Random("other").getstate()


@pytest.mark.parametrize("at", [-1, 3, 99])
def test_a_fork_outside_the_play_is_refused(at: int) -> None:
    game = Game(scenario(draws))
    game.send(dict.fromkeys(game.pending, "left"))
    with pytest.raises(ActionError, match=f"cannot fork at step {at}; 1 decision points"):
        game.fork(at)


def test_the_scenario_may_edit_the_arguments_of_a_tool_call_and_the_record_stays() -> None:
    seen = []

    def play(rng: random.Random, task: Any) -> Any:
        for _ in range(2):
            said = yield Ask({"a": "?"}, tools=(Tool("f"),))
            (call,) = said["a"].tool_calls
            seen.append(call.arguments.pop("x"))
            call.arguments["y"] = [1]

    game = Game(scenario(play))
    for value in ([1], [2]):
        game.send({"a": Action("", (ToolCall("call_0", "f", {"x": value}),))})
    assert [turn.action.tool_calls[0].arguments for turn in game.turns] == [{"x": [1]}, {"x": [2]}]  # type: ignore[union-attr]
    game.fork()
    assert seen == [[1], [2], [1], [2]]


def test_the_task_reaches_the_play_and_its_forks() -> None:
    def play(rng: random.Random, task: Any) -> Any:
        yield Ask({"a": task})

    game = Game(scenario(play), task="the task")
    assert texts(game, "a") == texts(game.fork(), "a") == ["the task"]


@dataclass
class Impure(Scenario):
    """Changes with every play."""

    how: str = ""
    plays: int = 0

    def __post_init__(self) -> None:
        self.agents, self.id = ("a", "b"), "impure"

    def play(self, rng: random.Random, task: Any) -> Any:
        self.plays += 1
        other = self.plays > 1
        yield Ask({"a": "first"})
        if self.how == "ends" and other:
            return
        if self.how == "both" and other:
            yield Ask({"a": "second", "b": "second"})
        elif self.how == "order":
            yield Ask(dict.fromkeys(("b", "a") if other else ("a", "b"), "second"))
        else:
            agent = "b" if self.how == "agent" and other else "a"
            legal = ("y",) if self.how == "legal" and other else ("x",)
            tools = (Tool("t"),) if self.how == "tools" and other else ()
            yield Ask(
                {agent: "2nd" if self.how == "text" and other else "second"},
                legal=legal,
                tools=tools,
            )


@pytest.mark.parametrize("how", ["ends", "both", "order", "agent", "legal", "tools", "text"])
def test_a_replay_that_differs_names_the_step(how: str) -> None:
    game = finish(Game(Impure(how)))
    with pytest.raises(
        ReplayError, match=r"impure \(seed 0\): the replay differs from the record at step 1: "
    ):
        game.fork(2)
    assert game.fork(0).pending  # nothing to compare yet


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.text(max_size=12), min_size=6, max_size=6),
    st.integers(0, 6),
    st.integers(0, 6),
)
def test_any_text_and_any_forks_replay_exactly(
    seed: int, said: list[str], first: int, second: int
) -> None:
    game = Game(scenario(draws), seed=seed)
    for text in said:
        game.send(dict.fromkeys(game.pending, text))
    assert game.over
    fork = finish(game.fork(first, seed="x").fork(min(first, second), seed="y"), "left")
    assert state(replay(fork.scenario, None, seed, fork.turns, fork.calls, fork.forks)) == state(
        fork
    )


def test_a_replay_of_edited_turns_takes_another_way_only_where_the_scenario_listens() -> None:
    game = finish(Game(make("kuhn_poker"), seed=4), "check")
    edited = [replace(game.turns[0], action=Action("bet", (), "bet")), *game.turns[1:]]
    with pytest.raises(ReplayError):
        replay(game.scenario, None, 4, edited)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_play_that_cannot_be_copied_says_what_to_do_instead(copied: Any) -> None:
    with pytest.raises(
        TypeError, match=r"kuhn_poker: a play .* cannot be copied or pickled; use fork\(\)"
    ):
        copied(Game(make("kuhn_poker"), seed=1))


@pytest.mark.parametrize(
    "text",
    [
        "bet",
        r"\boxed{bet}",
        r"I think, so \boxed{ BET }",
        r"not \boxed{bet}",
        "check or bet",
        "nothing of that",
        r"<think>check</think>\boxed{bet}",
        "bet\ud800",
        r"\boxed{bet}" + "." * 100,
    ],
)
def test_an_answer_that_was_given_before_is_read_as_it_was_the_first_time(text: str) -> None:
    asked = Pending(("check", "bet"))
    for action in (text, Action(text), Action(text, (), text)):
        for limit in (None, 100, 9):
            first = read(action, Pending(("check", "bet")), limit)
            # the second time it may be remembered, whoever said it at whatever limit before
            assert read(action, asked, limit) == first
            assert read(action, asked, limit) == first
    assert all(len(said) <= 64 and "<think" not in said for said in asked.sayings)


def test_answers_are_remembered_in_a_closed_choice_alone_and_not_without_end() -> None:
    call = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    with_tools = Pending(("x",), (Tool("look"),))
    assert read(call, with_tools) is not read(call, with_tools)
    for asked in (with_tools, Pending()):
        read("I say y", asked)
        assert not asked.sayings
    asked = Pending(("x",))
    for number in range(1000):
        read(f"no {number}", asked)
    assert len(asked.sayings) == 256
    assert read("x", asked) == Action("x", (), "x")
