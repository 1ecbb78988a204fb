"""Rules 1, 3, 5, 7, 9 and 12 on the Gymnasium environment of each agent: the kernel's play as one
seat lives it.

Where the factory takes `agent` and `others` (as `gem_ma.gym_env` does), every seat is tried and
the others are played by the kit's own players, so that the episode can be held against the
kernel. Otherwise the environment is taken as it comes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.types import Asked
from gem_ma.testing.clock import TooSlow, time_limit
from gem_ma.testing.kit import PLAY_S, Failed, Kit
from gem_ma.testing.play_environments import (
    Factory,
    accepts,
    guarded_play,
    make_environment,
    reset,
)
from gem_ma.testing.players import Cast
from gem_ma.testing.same_play import compare
from gem_ma.testing.traces import trace
from gem_ma.testing.watch import Played, Watch, messages_of, tools_of


class Seated:
    """A kit player in a seat that a behaviour fills; it starts anew with each episode."""

    def __init__(self, cast: Cast, agent: str) -> None:
        self.cast = cast
        self.agent = agent

    async def act(self, asked: Asked) -> str:
        return self.cast.say(self.agent, asked.legal, asked.tools)


class Gym:
    """The seats of a scenario, each with its environment."""

    def __init__(self, kit: Kit, factory: Factory) -> None:
        self.kit = kit
        self.factory = factory
        self.seated = accepts(factory, "agent") and accepts(factory, "others")
        # set before each reset: partners are made anew with the episode
        self.player = "random"
        self.stream = object()

    def agents(self) -> list[str | None]:
        """Whose seats are tried: of many that are called alike but for a number, three."""
        alike: dict[str, list[str]] = {}
        for agent in self.kit.agents:
            alike.setdefault(agent.rstrip("0123456789"), []).append(agent)
        tried = {
            same[place] for same in alike.values() for place in (0, len(same) // 2, len(same) - 1)
        }
        return [agent for agent in self.kit.agents if agent in tried] if self.seated else [None]

    def make(self, agent: str | None) -> Any:
        """An environment of this seat; its partners play `self.player` with `self.stream`."""
        if agent is None:
            return make_environment(self.factory, self.kit.played, max_steps=self.kit.cap)
        others = {other: self._partner(other) for other in self.kit.agents if other != agent}
        return make_environment(
            self.factory, self.kit.played, max_steps=self.kit.cap, agent=agent, others=others
        )

    def _partner(self, other: str) -> Any:
        def factory(agent: str, sample: Any, rng: Any, task: Any = None) -> Seated:
            return Seated(Cast(self.player, self.stream, (other,)), other)

        return factory


def gym(kit: Kit, factory: Factory) -> None:
    """Every seat for some seeds."""
    seats = Gym(kit, factory)
    for agent in seats.agents():
        env: Any = None
        with kit.guarded("making the Gymnasium environment"):
            env = seats.make(agent)
        if env is None:
            continue
        seat = agent or _own_seat(kit, env)
        for seed in kit.within(kit.seeds[:6]):
            for player in ("random", "mixed", "fuzz1"):
                seats.player = player
                seats.stream = seed
                played = guarded_play(kit, play_gym, "Gymnasium", env, seed, player, agent=seat)
                if played is not None:
                    _against_kernel(kit, env, seat, seed, player, played, seats.seated)
        # 0 is a seed like any other, and false in Python
        for seed in (0, 7):
            seats.player = "random"
            seats.stream = seed
            episodes = []
            for abandoned in (0, 2):  # actions of an episode that is left in the middle
                _abandon(env, abandoned)
                episodes.append(
                    guarded_play(kit, play_gym, "Gymnasium", env, seed, "random", agent=seat)
                )
            # None is an episode that failed, which was found where it was played
            if all(episodes) and episodes[0].seen() != episodes[1].seen():  # type: ignore[union-attr]
                message = (
                    "Gymnasium: the same seed and actions give the same episode; partners draw from"
                    " streams of the episode's seed"
                )
                for rule in (1, 12):
                    kit.fail(rule, message, agent=seat, seed=seed, key=("gym", "twice"))
        with kit.guarded("closing the Gymnasium environment", rule=6):
            env.close()
            env.close()


def _abandon(env: Any, actions: int) -> None:
    """What raises here has been found by the plays before."""
    with contextlib.suppress(Exception, TooSlow), time_limit(PLAY_S):
        info = env.reset(seed=1)[1]
        for _ in range(actions):
            info = env.step(info.get("action_mask", ("hello",))[0])[4]


def _own_seat(kit: Kit, env: Any) -> str:
    """The agent of an environment that was made without naming one."""
    agent = getattr(getattr(env, "unwrapped", env), "agent", None)
    return agent if agent in kit.agents else "?"


class _Spaced:
    """A Gymnasium environment with PettingZoo's way of asking for a space, for the checks of
    `Watch`."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def observation_space(self, agent: str) -> Any:
        return self.env.observation_space


def play_gym(kit: Kit, env: Any, seed: int, player: str, *, agent: str) -> Played:
    """One episode of one seat under all checks."""
    played = Played((agent,))
    watch = Watch(kit, _Spaced(env), "Gymnasium", seed)
    cast = Cast(player, seed, (*kit.agents, agent))
    start = reset(kit, env, seed, seed)
    if not isinstance(start, tuple) or len(start) != 2:
        watch.fail(12, "reset gives an observation and an info")
        return played
    observation, info = start
    for _ in range(kit.cap + 2):
        watch.observed(agent, observation)
        # an environment whose seat is unknown cannot be held to the infos of one
        if agent != "?":
            watch.info(agent, info, None)
        if not isinstance(info, Mapping):
            watch.fail(9, "an info is a dict")
            return played
        mask = info.get("action_mask")
        active = info.get("active", True)
        # a seat that is not asked still has to be stepped; what it sends then has no effect
        text = cast.say(agent, mask, tools_of(info)) if active else ""
        if active:
            played.turns.append((agent, messages_of(observation), mask, clean(text)))
        watch.step += 1
        result = env.step(text)
        if not isinstance(result, tuple) or len(result) != 5:
            watch.fail(
                9, "step gives five values: observation, reward, terminated, truncated, info"
            )
            return played
        observation, reward, terminated, truncated, info = result
        # a reward must belong to somebody, or the check of it would fail for the name
        value = watch.reward(agent if agent in kit.agents else kit.agents[0], reward)
        played.totals[agent] += value
        if watch.flags(agent, terminated, truncated):
            watch.observed(agent, observation)
            played.ended[agent] = "terminated" if terminated else "truncated"
            played.final[agent] = observation
            played.complete = True
            break
    watch.unchanged()
    return played


def _against_kernel(
    kit: Kit, env: Any, agent: str, seed: int, player: str, played: Played, seated: bool
) -> None:
    # partners unknown: the environment's own game, where it shows one, holds the ledger
    if not seated:
        game = getattr(getattr(env, "unwrapped", env), "game", None)
        ledger = getattr(game, "ledger", None)
        if ledger is not None and agent in kit.agents:
            total = sum(entry.value for entry in ledger if entry.agent == agent)
            if abs(total - played.totals[agent]) > 1e-9 * max(1.0, abs(total)):
                message = (
                    f"Gymnasium: the rewards sum to the agent's entries in the ledger, {total:g};"
                    f" got {played.totals[agent]:g}"
                )
                kit.fail(7, message, agent=agent, seed=seed, key=("Gymnasium", "sum"))
            if played.complete and messages_of(played.final[agent]) != trace(game).views[agent]:
                message = "Gymnasium: the last observation is the agent's whole transcript"
                kit.fail(3, message, agent=agent, seed=seed, key=("Gymnasium", "transcript"))
        return
    try:
        known = kit.known(seed, player)
    except Failed:
        return
    # the kernel's play as this seat alone sees it
    mine = [number for number, turn in enumerate(known.turns) if turn[0] == agent]
    alone = replace(
        known,
        turns=tuple(known.turns[number] for number in mine),
        steps=tuple(known.steps[number] for number in mine),
        tools=tuple(known.tools[number] for number in mine),
        actions=tuple(known.actions[number] for number in mine),
    )
    compare(kit, "Gymnasium", played, alone, seed)
