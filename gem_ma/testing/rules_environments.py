"""Rules 1, 2, 3, 4, 5, 6, 7 and 9 on the AEC and the Parallel environment: each shows the play that
the kernel plays.

Where an environment's factory also takes `max_steps`, the driver's limits are tested.
"""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from gem_ma.testing.clock import TooSlow, time_limit
from gem_ma.testing.kit import PLAY_S, Failed, Kit
from gem_ma.testing.play_environments import (
    Factory,
    accepts,
    guarded_play,
    made,
    make_environment,
    play_aec,
    play_parallel,
    reset,
)
from gem_ma.testing.players import Cast
from gem_ma.testing.rules_gym import Gym
from gem_ma.testing.rules_repeat import random_states, restored_random, seeded_random
from gem_ma.testing.same_play import compare
from gem_ma.testing.watch import Played

# Rules 12 and 13: the suites of PettingZoo and Gymnasium, as they are, several times each; and how
# long a turn takes.

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


RESETS = 8  # in a row; fewer do not say whether those without a seed differ


def environments(kit: Kit, factories: Mapping[str, Factory]) -> None:
    """The AEC and the Parallel environment against the kernel and against themselves."""
    plays: dict[str, Callable[..., Played]] = {"AEC": play_aec, "Parallel": play_parallel}
    for name, play in plays.items():
        factory = factories[name]
        env = made(kit, name, factory)
        if env is None:
            continue
        # more players for the first seeds: most faults show at once
        for seed in kit.within(kit.seeds):
            for player in (
                ("random", "mixed", "fuzz1") if seed in kit.seeds[:4] else ("random", "fuzz0")
            ):
                played = guarded_play(kit, play, name, env, seed, player)
                if played is not None:
                    _against_kernel(kit, name, played, seed, player, accepts(factory, "max_steps"))
        # on the environment that has been played, since a reset must forget all of that
        _determinism(kit, name, factory, play, env)
        _global_state(kit, name, env)
        _limits(kit, name, factory, play)
        with kit.guarded(f"closing the {name} environment", rule=6):
            env.reset(seed=0)
            env.close()
            env.close()
    _idle(kit, factories["Parallel"])


def _against_kernel(
    kit: Kit, name: str, played: Played, seed: int, player: str, limited: bool
) -> None:
    """Rules 3, 6, 7 and 9: same turns, same sums, same ends as the kernel under the same seed
    and words."""
    try:
        known = kit.known(seed, player)
    except Failed:
        return
    # the environment knows no limit, the kit's own cut the kernel: as far as both went
    if not known.over and not limited:
        # sums and ends are of different moments then, so that they are not compared
        del played.turns[len(known.turns) :]
        played.totals = {}
        played.ended = {}
        played.final = {}
        played.complete = True
    compare(kit, name, played, known, seed)
    if not played.complete:
        kit.fail(
            6,
            f"{name}: the episode ends when the play does, for all agents",
            seed=seed,
            key=(name, "endless"),
        )


def _determinism(
    kit: Kit, name: str, factory: Factory, play: Callable[..., Played], env: Any
) -> None:
    """Rule 1: a seed names an episode, on this instance and on a fresh one, also 0; unseeded
    resets go on from it."""
    # 0 is a seed like any other, and false in Python
    for seed in kit.within((0, 7, *kit.seeds[1:2])):
        episodes = []
        # actions of an episode that is left in the middle; None = a fresh environment
        for abandoned in (0, 1, 4, None):
            if abandoned:
                _abandon(kit, name, env, abandoned)
            target = env if abandoned is not None else made(kit, name, factory)
            if target is None:
                continue
            start = kit.seeds[0]
            played = guarded_play(
                kit, play, name, target, seed, "random", task_of=start, light=True
            )
            if played is not None:
                episodes.append(played.seen())
        if len(episodes) == 4 and not episodes[0] == episodes[1] == episodes[2]:
            kit.fail(
                1,
                f"{name}: reset(seed=s) plays the episode of that seed every time, also for 0 and"
                " in mid-episode",
                seed=seed,
                key=(name, "twice"),
            )
        if len(episodes) == 4 and episodes[0] != episodes[3]:
            kit.fail(
                1,
                f"{name}: a fresh environment with the same seed plays the same episode, 0 too",
                seed=seed,
                key=(name, "fresh"),
            )
    _unseeded(kit, name, play, env)


def _unseeded(kit: Kit, name: str, play: Callable[..., Played], env: Any) -> None:
    """Resets without a seed: they go on from the last seed, and differ from each other."""
    player = next((player for player in ("first", "random") if _varies(kit, player)), None)
    runs: list[list[Any]] = [[], []]
    for run in runs:
        # as far again, however long it takes
        for number in kit.within(range(RESETS), 1.0) if run is runs[0] else range(len(runs[0])):
            played = guarded_play(
                kit,
                play,
                name,
                env,
                7 if number == 0 else None,
                player or "first",
                stream=0,
                task_of=kit.seeds[0],
                light=True,
            )
            run.append(played.seen() if played is not None else None)
    if runs[0] != runs[1]:
        kit.fail(
            1,
            f"{name}: resets without a seed repeat their sequence of episodes after the same seed",
            seed=7,
            key=(name, "sequence"),
        )
    if len(runs[0]) < RESETS:
        kit.skip(1, f"{name}: plays take too long to say whether resets without a seed differ")
    # the first was seeded; where no seed can be seen, nothing can be said
    elif player and all(episode == runs[0][1] for episode in runs[0][2:]):
        kit.fail(
            1,
            f"{name}: resets without a seed play different episodes",
            seed=7,
            key=(name, "unseeded"),
        )


def _abandon(kit: Kit, name: str, env: Any, actions: int) -> None:
    """An episode that is left in the middle, as a reset in mid-episode does; what raises here
    has been found by the plays before."""
    with contextlib.suppress(Exception, TooSlow), time_limit(PLAY_S):
        given = reset(kit, env, 1, kit.seeds[0])
        cast = Cast("random", 1, kit.agents)
        infos = {} if name == "AEC" else given[1]
        for _ in range(actions):
            if not env.agents:
                return
            if name == "AEC":
                agent = env.agent_selection
                dead = env.terminations[agent] or env.truncations[agent]
                env.step(None if dead else cast.say(agent, env.infos[agent].get("action_mask")))
            else:
                infos = env.step(
                    {
                        agent: cast.say(agent, infos[agent].get("action_mask"))
                        for agent in env.agents
                    }
                )[4]


def _varies(kit: Kit, player: str) -> bool:
    """Whether seeds are seen at all by a player that does not depend on them; many must differ,
    or eight resets say nothing."""
    plays = []
    # seeds that no other rule plays: nothing of these plays is remembered
    for seed in range(40, 52):
        try:
            plays.append(kit.play(seed, player, stream=0, task=kit.task(kit.seeds[0])))
        except Failed:
            return False
    # less the reasons of payments, which no environment shows
    seen = [(play.views, [entry[:3] for entry in play.ledger]) for play in plays]
    return sum(one != seen[0] for one in seen) >= len(seen) // 3


def _global_state(kit: Kit, name: str, env: Any) -> None:
    with restored_random():
        before = seeded_random(5)
        with kit.guarded(f"a reset of the {name} environment"):
            env.reset(seed=0)
            env.reset()
        if random_states() != before:
            kit.fail(
                2, f"{name}: a reset touches no global random state", seed=0, key=(name, "global")
            )


def _limits(kit: Kit, name: str, factory: Factory, play: Callable[..., Played]) -> None:
    """Rule 6: a limit cuts exactly there, as truncation; a play that ends on its last allowed
    step is terminated."""
    if not accepts(factory, "max_steps"):
        kit.skip(6, f"the {name} factory takes no max_steps, so no limit was tried")
        return
    tried = False
    for seed in kit.seeds[:2]:
        try:
            known = kit.known(seed, "random")
        except Failed:
            continue
        # a play of exactly this length ends by its own rules, not by the limit
        for limit in (1, 2, 3):
            if known.length < limit:
                continue
            tried = tried or known.length > limit
            env = made(kit, name, factory, limit)
            played = guarded_play(kit, play, name, env, seed, "random") if env is not None else None
            if played is None:
                continue
            turns = sum(step < limit for step in known.steps)
            if len(played.turns) != turns or not played.complete:
                message = f"{name}: a limit of {limit} steps cuts the play exactly there"
                kit.fail(6, message, step=limit, seed=seed, key=(name, "limit"))
                continue
            cut = not (known.over and known.length == limit)
            for agent, how in played.ended.items():
                if how == ("terminated" if cut else "truncated") and not (
                    (cut and agent in known.left) or agent in known.cut
                ):
                    message = (
                        f"{name}: a limit truncates, the rules' own end terminates, also on the"
                        " last allowed step"
                    )
                    kit.fail(6, message, agent=agent, step=limit, seed=seed, key=(name, "cut"))
    if not tried:
        kit.skip(6, f"{name}: no play is longer than one step, so no limit could cut it")


def _idle(kit: Kit, factory: Factory) -> None:
    """Rule 9: what idle agents say has no effect."""
    for seed in kit.within(kit.seeds[:3]):
        env = made(kit, "Parallel", factory)
        if env is None:
            continue
        played = guarded_play(kit, play_parallel, "Parallel", env, seed, "random", idle=True)
        quiet = guarded_play(kit, play_parallel, "Parallel", env, seed, "random")
        if played is not None and (quiet is None or played.seen() != quiet.seen()):
            kit.fail(9, "Parallel: what idle agents send has no effect", seed=seed, key="idle")
