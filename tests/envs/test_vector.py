"""Many environments without a barrier: seeds, stragglers, failures, final observations."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gem_ma
from gem_ma import Ask, Call, Game, Leave, Limits, Reward, Scenario, Seat
from gem_ma.driver.limits import CALL_THREAD
from gem_ma.envs.vector import Transition, Vector, make_vec
from gem_ma.kernel.errors import ActionError, ConfigError


class Count(Scenario):
    """Counts to three; `slow` rounds wait for an event of the outside."""

    agents = ("me",)
    chance = False

    def __init__(self, gate: threading.Event | None = None, fail: str = "") -> None:
        self.gate, self.fail = gate, fail

    def play(self, rng: random.Random, task: Any) -> Any:
        if self.fail == "reset":
            raise ValueError("at the start")
        for number in range(3):
            if self.gate is not None and number:
                yield Call(lambda: self.gate is not None and self.gate.wait(30))
            said = yield Ask({"me": f"round {number}"}, ("on", "off"))
            if self.fail == "step" and number == 1:
                raise ValueError("in the middle")
            yield Reward({"me": float(said["me"].parsed == "on")})


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a call waits for; no call waits on when the test is over."""
    event = threading.Event()
    yield event
    event.set()
    while any(thread.name == CALL_THREAD for thread in threading.enumerate()):
        time.sleep(0.01)


class Pair(Scenario):
    """Two agents at once, twice; then one leaves."""

    agents = ("a", "b")

    def play(self, rng: random.Random, task: Any) -> Any:
        for _ in range(2):
            says = yield Ask({"a": "go", "b": "go"}, ("x", "y"))
            yield Reward({"a": float(says["b"].parsed == "x")})
        yield Leave("a")
        yield Ask({"b": "alone"}, ("x", "y"))


def everything(vector: Vector, action: str = "on") -> dict[int, list[Transition]]:
    """All steps of one episode of each."""
    steps: dict[int, list[Transition]] = {number: [] for number in range(len(vector))}
    ready = vector.reset()
    while ready:
        for number, step in ready.items():
            steps[number].append(step)
        ready = vector.step(dict.fromkeys(vector.asked, action))
    return steps


def test_each_plays_as_it_would_alone() -> None:
    vector = make_vec(
        [
            "guess_number",
            {"id": "kuhn_poker", "agent": "player_1", "others": {"player_0": "random_legal"}},
        ],
        6,
        seed=5,
    )
    ready, steps = vector.reset(), {number: [] for number in range(6)}
    while ready:
        for number, step in ready.items():
            steps[number].append(step)
        ready = vector.step(
            {n: step.info["action_mask"][0] for n, step in ready.items() if not step.done}
        )
    for number in range(6):
        alone = (
            gem_ma.gym_env("kuhn_poker", agent="player_1", others={"player_0": "random_legal"})
            if number % 2
            else gem_ma.gym_env("guess_number", agent="player")
        )
        observation, info = alone.reset(seed=5 + number)
        assert steps[number][0][:2] == (observation, 0.0) and steps[number][0].info == info
        for step in steps[number][1:]:
            assert tuple(step) == alone.step(info["action_mask"][0])
            info = step.info
        assert steps[number][-1].done


def test_a_straggler_holds_nobody(gate: threading.Event) -> None:
    vector = make_vec([Count(gate), Count(), Count()])
    ready = vector.reset()
    assert list(ready) == [0, 1, 2]
    played = 0
    while set(vector.ended) != {1, 2}:
        ready = vector.step(dict.fromkeys(vector.asked, "on"))
        assert 0 not in ready
        played += len(ready)
    assert played == 6 and vector.step(timeout_s=0.01) == {}
    gate.set()
    [step] = vector.step().values()
    assert step.observation["messages"][-1]["content"] == "round 1" and vector.asked == (0,)


def test_so_many_as_are_wanted_are_waited_for(gate: threading.Event) -> None:
    threading.Timer(0.05, gate.set).start()
    vector = make_vec([Count(gate), Count()])
    vector.reset()
    assert set(vector.step({0: "on", 1: "on"}, least=2)) == {0, 1}


def test_one_that_fails_is_alone_in_it_and_can_be_reset() -> None:
    vector = make_vec([Count(fail="step"), Count(), Count(fail="reset")])
    steps = everything(vector)
    assert [len(steps[number]) for number in range(3)] == [3, 4, 1]
    broken = steps[0][-1]
    assert broken.truncated and not broken.terminated and broken.reward == 0
    assert "ValueError: in the middle" in broken.info["error"]
    assert broken.observation["messages"][-1]["content"] == "round 1"
    assert "at the start" in steps[2][0].info["error"]
    assert [step.reward for step in steps[1]] == [0, 1, 1, 1]
    assert vector.ended == (0, 1, 2)
    assert list(vector.reset([0])) == [0] and vector.asked == (0,)


def test_what_a_behaviour_does_in_another_seat_waits_beside(gate: threading.Event) -> None:

    class Slow:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        async def act(self, asked: Any) -> str:
            await asyncio.to_thread(gate.wait, 30)
            return "x"

    vector = make_vec(
        [
            {"id": Pair(), "others": {"b": lambda agent, *_, **__: Slow()}},
            {"id": Pair(), "others": {"b": "first_legal"}},
        ],
        agent="a",
    )
    vector.reset()
    assert list(vector.step({0: "x", 1: "x"})) == [1]
    [last] = vector.step({1: "y"}).values()
    assert last.terminated and last.reward == 1 and vector.ended == (1,)
    gate.set()
    assert vector.step()[0].reward == 1


def test_a_behaviour_that_fails_is_a_failure_of_its_own_environment() -> None:
    def broken(messages: Any, legal: Any, rng: Any) -> str:
        raise RuntimeError("no idea")

    entries = [{"id": Pair(), "others": {"b": player}} for player in (broken, "first_legal")]
    vector = make_vec(entries, agent="a")
    vector.reset()
    ready = vector.step({0: "x", 1: "x"}, least=2)
    assert "no idea" in ready[0].info["error"] and not ready[1].done


def test_nothing_starts_again_unasked_and_final_steps_are_given() -> None:
    vector = make_vec(Count(), 2)
    assert everything(vector)[0][-1].terminated
    assert vector.step() == {} and vector.ended == (0, 1)
    again = make_vec(Count(), 2, autoreset=True)
    again.reset()
    for _ in range(2):
        again.step({0: "on", 1: "off"})
    final = again.step({0: "on", 1: "on"})
    assert all(step.terminated and step.reward == 1 for step in final.values())
    assert len(final[0].observation["messages"]) == 6
    first = again.step()
    assert [len(step.observation["messages"]) for step in first.values()] == [1, 1]
    assert again.asked == (0, 1)


def test_seeds_differ_repeat_and_go_on_by_themselves() -> None:
    def numbers(**how: Any) -> list[int]:
        vector = make_vec("guess_number", 3, **how)
        vector.reset()
        first = [vector.game(number).seed for number in range(3)]
        vector.reset([1])
        return [*first, vector.game(1).seed]

    assert numbers(seed=7)[:3] == [7, 8, 9] and numbers(seed=7) == numbers(seed=7)
    assert numbers(seed=[4, 4, 2])[:3] == [4, 4, 2]
    assert numbers() != numbers(seed=1)
    vector = make_vec("guess_number", 2)
    vector.reset(seed=30)
    assert [vector.game(number).seed for number in range(2)] == [30, 31]


def test_limits_and_options_reach_each_of_them() -> None:
    vector = make_vec(
        "dilemma",
        2,
        agent="player_0",
        others={"player_1": "first_legal"},
        rounds=9,
        limits=Limits(max_steps=2),
    )
    vector.reset()
    vector.step(dict.fromkeys((0, 1), "cooperate"))
    assert all(step.truncated for step in vector.step(dict.fromkeys((0, 1), "cooperate")).values())
    wrapped = make_vec("guess_number", 1, wrappers=[{"retry": 1}])
    wrapped.reset()
    assert "none of the choices" in wrapped.step({0: "?"})[0].observation["messages"][-1]["content"]


def test_a_refused_action_changes_nothing() -> None:
    vector = make_vec(Count(), 2)
    with pytest.raises(ActionError, match=r"environment 0 .* never reset"):
        vector.step({0: "on"})
    vector.reset([0])
    for actions, message in [
        ({0: "on", 7: "on"}, "no environment is 7; they are 0 to 1"),
        ({0: "on", 1: "on"}, "never reset"),
        ({0: 3}, "environment 0 .*: an action is a str"),
        ({True: "on"}, "no environment is True"),
    ]:
        with pytest.raises(ActionError, match=message):
            vector.step(actions)
        assert vector.game(0).step == 0
    for _ in range(3):
        vector.step({0: "on"})
    with pytest.raises(ActionError, match="has ended: reset it"):
        vector.step({0: "on"})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"ids": []}, "1 environment or more"),
        ({"ids": "guess_number", "n": 0}, "1 environment or more"),
        ({"ids": "kuhn_poker"}, r"say which agent is yours .*player_0, player_1"),
        ({"ids": "kuhn_poker", "agent": "player_0"}, "nobody plays 'player_1'"),
        ({"ids": "gues_number"}, "did you mean 'guess_number'"),
        ({"ids": "guess_number", "n": 2, "seed": [1]}, "2 environments and 1 seeds"),
        ({"ids": [{"agent": "x"}]}, "an entry has an id"),
        ({"ids": "guess_number", "numbrs": 3}, "numbrs"),
        ({"ids": None}, "takes an id, or a list of them in order; got None"),
        ({"ids": {"guess_number"}}, "takes an id, or a list of them in order"),
        ({"ids": "guess_number", "limits": 3}, "limits is a gem_ma.Limits"),
        ({"ids": "guess_number", "call_timeout_s": float("nan")}, "a number of seconds"),
        *(
            ({"ids": "guess_number", "n": 2, "seed": seed}, "a seed is an integer; got")
            for seed in (0.5, "12", b"12", {1, 2}, {1: 2, 3: 4}, [1, 2.0], object(), float("inf"))
        ),
    ],
)
def test_what_cannot_be_made_is_one_line(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make_vec(**asked)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("seed", "seeds"),
    [
        (10**40, [10**40, 10**40 + 1]),
        (np.uint8(255), [255, 256]),
        (np.array(3), [3, 4]),
        (np.array([5, 3]), [5, 3]),
        (range(7, 9), [7, 8]),
        ([2, 10**40], [2, 10**40]),
    ],
)
def test_any_natural_numbers_are_seeds(seed: Any, seeds: list[int]) -> None:
    with make_vec(Count(), 2, seed=seed) as vector:
        vector.reset()
        assert [vector.game(number).seed for number in range(2)] == seeds
        vector.step({np.int64(0): "on"})
        if np.ndim(seed) == 0:
            vector.reset(np.array([1]), seed=seed)
            assert vector.game(1).seed == seeds[1]


def test_without_a_seed_each_draws_one() -> None:
    drawn = set()
    for seed in (None, [None, None]):
        with make_vec(Count(), 2, seed=seed) as vector:
            vector.reset()
            drawn |= {vector.game(number).seed for number in range(2)}
    assert len(drawn) == 4


def test_what_is_no_number_of_an_environment_or_no_dict_is_one_line() -> None:
    vector = make_vec(Count(), 2)
    vector.reset()
    for ask, message in [
        (lambda: vector.step(["on", "on"]), "actions by number, as {0: ACTION}; got list"),  # type: ignore[arg-type]
        (lambda: vector.reset(3), "numbers of environments, as"),  # type: ignore[arg-type]
        (lambda: vector.reset(seed="x"), "a seed is an integer; got 'x'"),  # type: ignore[arg-type]
        (lambda: vector.step(least="x"), "least is a number"),  # type: ignore[arg-type]
        (lambda: vector.step(timeout_s="x"), "timeout_s is a number of seconds"),  # type: ignore[arg-type]
    ]:
        with pytest.raises((ActionError, ConfigError), match=message):
            ask()


def test_closing_ends_the_plays_and_leaves_what_hangs(gate: threading.Event) -> None:
    closed: list[int] = []

    class Careful(Count):
        def play(self, rng: random.Random, task: Any) -> Any:
            try:
                yield from super().play(rng, task)
            finally:
                closed.append(1)

    with make_vec([Careful(gate), Careful()]) as vector:
        vector.reset()
        vector.step({0: "on", 1: "on"})
    assert len(closed) == 2
    vector.close()


def test_what_is_closed_is_asked_nothing_and_says_so() -> None:
    vector = make_vec(Count(), np.int64(2))
    vector.reset([0])
    vector.close()
    for number, state in ((0, "is closed: reset it"), (1, "was never reset")):
        with pytest.raises(ActionError, match=state):
            vector.step({number: "on"})
    assert (vector.asked, vector.step()) == ((), {})
    assert vector.reset([0]).keys() == {0} and vector.step({0: "on"})


def test_an_interrupted_play_has_ended_and_can_be_reset() -> None:
    class Interrupted(Count):
        def play(self, rng: random.Random, task: Any) -> Any:
            yield Ask({"me": "go"}, ("on", "off"))
            raise KeyboardInterrupt

    vector = make_vec([Count(), Interrupted()])
    vector.reset()
    with pytest.raises(KeyboardInterrupt):
        vector.step({0: "on", 1: "on"})
    assert (vector.asked, vector.ended) == ((0,), (1,))
    assert vector.reset([1]).keys() == {1} and vector.asked == (0, 1)


def test_a_call_that_hangs_is_given_up(gate: threading.Event) -> None:
    vector = make_vec(Count(gate), call_timeout_s=0.05)
    vector.reset()
    [step] = vector.step({0: "on"}).values()
    assert "TimeoutError" in step.info["error"]


def test_a_seat_may_have_options_and_a_play_can_be_looked_at() -> None:
    others = {"player_1": Seat("random_legal")}
    vector = make_vec("kuhn_poker", 2, agent="player_0", others=others)
    vector.reset()
    assert isinstance(vector.game(1), Game) and vector.game(1).pending
