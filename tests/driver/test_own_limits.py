"""A time limit of the world's own: it cuts the play everywhere, and what is cut bootstraps."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from gem_ma import (
    Ask,
    Limits,
    Plan,
    Reward,
    Scenario,
    aec_env,
    check_scenario,
    gym_env,
    parallel_env,
    play,
)
from gem_ma.kernel.episode import End, Seat
from gem_ma.kernel.errors import ConformanceError


class Corridor(Scenario):
    """Walks on until its world has had enough."""

    agents = ("ann",)
    chance = False
    limits = Limits(max_steps=7)

    def play(self, rng: Any, task: Any) -> Any:
        for number in count():
            yield Ask({"ann": f"Door {number}"}, legal=("on",))
            yield Reward({"ann": 1.0})


@pytest.mark.parametrize(("typed", "steps"), [(None, 7), (3, 3), (50, 7)])
def test_whichever_limit_comes_first_cuts_the_play(typed: int | None, steps: int) -> None:
    plan = Plan(Corridor(), {"ann": Seat("first_legal")}, limits=Limits(max_steps=typed))
    episode = asyncio.run(play(plan))
    assert (len(episode.turns), episode.end) == (steps, End.MAX_STEPS) and episode.end.bootstraps
    env = gym_env(Corridor, agent="ann", max_steps=typed)
    env.reset(seed=0)
    ends = [env.step("on")[2:4] for _ in range(steps)]
    assert ends == [(False, False)] * (steps - 1) + [(False, True)]


@pytest.mark.parametrize("make", [aec_env, parallel_env])
def test_the_views_truncate(make: Any) -> None:
    env = make(Corridor)
    env.reset(seed=0)
    for _ in range(7):
        assert env.agents == ["ann"] and not any(getattr(env, "truncations", {}).values())
        stepped = env.step({"ann": "on"} if make is parallel_env else "on")
    assert (stepped[3] if stepped else env.truncations) == {"ann": True}


@pytest.mark.longest
def test_the_kit_passes_it_and_refuses_what_a_world_cannot_count() -> None:
    check_scenario(Corridor, seeds=range(3))
    for limits in (7, Limits(max_tokens=9), Limits(max_steps=0), Limits(max_steps=True)):
        wrong = type("Wrong", (Corridor,), {"limits": limits, "__module__": __name__})
        with pytest.raises(ConformanceError, match=r"rule 6 .*limits is Limits\(max_steps=N\)"):
            check_scenario(wrong(), seeds=range(1), skip=set(range(1, 14)) - {6})
