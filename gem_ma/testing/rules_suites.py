"""Rules 12 and 13: the suites of PettingZoo and Gymnasium, as they are, several times each; and
how long a turn takes."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from gem_ma.testing.clock import time_limit
from gem_ma.testing.environment_play import Factory, accepts, make_environment
from gem_ma.testing.kit import Kit
from gem_ma.testing.players import Cast
from gem_ma.testing.rules_gym import Gym

# runs of each suite; after so many seconds two runs are enough
RUNS = 10
BUDGET_S = 1.5
CYCLES = 60
# Gymnasium takes that for a fault; where others act first, a limit of decision points may do so
CUT_AT_ONCE = "Environment truncates after 1 step"
# Warnings that any chat environment gets, word by word what the suites say about observations and
# actions that are not arrays.
EXPECTED = (
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be",
    "Action space for each agent probably should be",
    "We recommend agents to be named in the format",
    "Not able to test alternative render modes",
    "No render fps was declared",
)


def suites(kit: Kit, factories: Mapping[str, Factory]) -> None:
    """Rule 12: no suite fails, and none warns of anything but the form of the spaces."""
    from gymnasium.utils.env_checker import check_env
    from pettingzoo.test import (
        api_test,
        parallel_api_test,
        parallel_seed_test,
        render_test,
        seed_test,
    )

    def aec(**more: Any) -> Any:
        return make_environment(factories["AEC"], kit.played, max_steps=kit.cap, **more)

    def parallel() -> Any:
        return make_environment(factories["Parallel"], kit.played, max_steps=kit.cap)

    _repeat(kit, "api_test", lambda: api_test(aec(), num_cycles=CYCLES))
    _repeat(kit, "seed_test", lambda: seed_test(aec, num_cycles=CYCLES))
    _repeat(kit, "parallel_api_test", lambda: parallel_api_test(parallel(), num_cycles=CYCLES))
    _repeat(kit, "parallel_seed_test", lambda: parallel_seed_test(parallel, num_cycles=CYCLES))
    if accepts(factories["AEC"], "render_mode"):
        _repeat(kit, "render_test", lambda: render_test(aec))
    else:
        kit.skip(12, "the AEC factory takes no render_mode, so render_test was left out")
    seats = Gym(kit, factories["Gymnasium"])
    for agent in seats.agents():
        _repeat(kit, "check_env", lambda agent=agent: check_env(seats.make(agent)), agent)  # type: ignore[misc]


def _repeat(kit: Kit, name: str, suite: Callable[[], Any], agent: str | None = None) -> None:
    started = time.process_time()
    for run in range(RUNS):
        if kit.spent or (run >= 2 and time.process_time() - started > BUDGET_S):
            return
        try:
            with (
                warnings.catch_warnings(record=True) as caught,
                # the suites print that they have passed
                contextlib.redirect_stdout(io.StringIO()),
                time_limit(60),
            ):
                # by default Python shows a warning once, and nine of ten runs would look clean
                warnings.simplefilter("always")
                suite()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if name == "check_env" and CUT_AT_ONCE in str(error) and kit.scenario.limits:
                kit.skip(12, f"check_env: the scenario's own limit cuts {agent} at its first turn")
            else:
                kit.error(error, name, agent=agent, rule=12)
            return
        for warning in caught:
            text = str(warning.message)
            foreign = "pettingzoo" in warning.filename or "gymnasium" in warning.filename
            if foreign and not any(expected in text for expected in EXPECTED):
                kit.fail(
                    12,
                    f"{name} passes without warning of more than the form of the spaces; it warns:"
                    f" {text}",
                    agent=agent,
                )


def speed(kit: Kit, factories: Mapping[str, Factory]) -> dict[str, float]:
    """Rule 13: microseconds per turn of random play, of the kernel and of the AEC and Parallel
    environments. A report, never a finding."""
    figures = {}
    for name, play in (("kernel", _kernel), ("AEC", _aec), ("Parallel", _parallel)):
        times = []
        # whatever fails here has been found by the rules before
        with contextlib.suppress(Exception):
            if kit.hung or kit.spent:
                break
            env: Any = None
            if name != "kernel":
                env = make_environment(factories[name], kit.scenario, max_steps=kit.cap)
            # the first play of each is slower than all others
            for seed in [*list(kit.seeds)[:1], *list(kit.seeds)[:6]]:
                started = time.perf_counter()
                turns = play(kit, env, seed)
                times.append((time.perf_counter() - started) / max(turns, 1) * 1e6)
        if times:
            # the quickest: whatever else the machine did made the others slower
            figures[name] = min(times)
    return figures


def _kernel(kit: Kit, env: Any, seed: int) -> int:
    # as a driver does it: the kit's own limit on time would cost more than the turn
    game = kit.game(kit.played, kit.task(seed), seed)
    cast = Cast("random", seed, kit.agents)
    while game.pending and game.step < kit.cap:
        asked = game.pending.items()
        game.send({agent: cast.say(agent, one.legal, one.tools) for agent, one in asked})
    game.close()
    return len(game.turns)


def _aec(kit: Kit, env: Any, seed: int) -> int:
    env.reset(seed=seed)
    cast = Cast("random", seed, kit.agents)
    turns = 0
    for agent in env.agent_iter((kit.cap + 2) * (len(kit.agents) + 1)):
        _, _, terminated, truncated, info = env.last()
        if terminated or truncated:
            env.step(None)
            continue
        env.step(cast.say(agent, info.get("action_mask")))
        turns += 1
    return turns


def _parallel(kit: Kit, env: Any, seed: int) -> int:
    _, infos = env.reset(seed=seed)
    cast = Cast("random", seed, kit.agents)
    turns = 0
    for _ in range(kit.cap + 2):
        if not env.agents:
            break
        active = infos[env.agents[0]]["active_agents"]
        turns += len(active)
        infos = env.step(
            {agent: cast.say(agent, infos[agent].get("action_mask")) for agent in active}
        )[4]
    return turns
