"""One episode on a Parallel environment, with everything that can be checked while it is played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_ma.kernel.parsing import clean
from gem_ma.testing.environment_play import reset
from gem_ma.testing.kit import Kit
from gem_ma.testing.players import Cast
from gem_ma.testing.watch import Played, Watch, messages_of, tools_of

# legal words of several games: an environment that listens to idle agents plays them
JUNK_FOR_IDLE = "defect call buy yes 1"


def play_parallel(
    kit: Kit,
    env: Any,
    seed: int | None,
    player: str,
    *,
    stream: object = None,
    task_of: int | None = None,
    idle: bool = False,
    light: bool = False,
) -> Played:
    """One Parallel episode under all checks; with `idle`, those who need not act say something
    too."""
    number = seed if seed is not None else (task_of or 0)
    played = Played(kit.agents)
    watch = Watch(kit, env, "Parallel", number, light)
    start = reset(kit, env, seed, number)
    if not isinstance(start, tuple) or len(start) != 2:
        watch.fail(9, "reset gives observations and infos")
        return played
    cast = Cast(player, stream if stream is not None else seed, kit.agents)
    _Parallel(kit, env, played, watch).play(start, cast, idle)
    return played


class _Parallel:
    """A Parallel episode that has been reset, and what must hold between its steps."""

    def __init__(self, kit: Kit, env: Any, played: Played, watch: Watch) -> None:
        self.kit = kit
        self.env = env
        self.played = played
        self.watch = watch
        self.alive = list(env.agents)

    def play(self, start: tuple[Any, Any], cast: Cast, idle: bool) -> None:
        """Plays on to the end or to the kit's cut, from what `reset` gave."""
        env = self.env
        played = self.played
        watch = self.watch
        observations, infos = start
        possible = list(env.possible_agents)
        if sorted(self.alive) != sorted(self.kit.agents) or env.agents is env.possible_agents:
            watch.fail(6, f"all agents of the scenario exist from reset on; got {self.alive}")
        for _ in range(self.kit.cap + 2):
            for agent, observation in observations.items():
                watch.observed(agent, observation)
            result = self._stepped(self._actions(observations, infos, cast, idle))
            if result is None:
                return
            observations = result[0]
            infos = result[4]
            self._ended(observations, result[2], result[3])
            if sorted(env.agents) != sorted(self.alive):
                watch.fail(
                    6,
                    f"agents are those still alive after the step: {self.alive}; got"
                    f" {list(env.agents)}",
                )
                break
            if not self.alive:
                played.complete = True
                break
        if list(env.possible_agents) != possible:
            watch.fail(6, "possible_agents never changes")
        watch.unchanged()
        played.steps = len(played.turns)

    def _actions(self, observations: Any, infos: Any, cast: Cast, idle: bool) -> dict[str, Any]:
        """What everybody sends: those who must act first, in their order."""
        active = _active(self.watch, infos, self.alive)
        actions: dict[str, Any] = {}
        for agent in active:
            info = infos.get(agent, {})
            mask = info.get("action_mask")
            actions[agent] = words = cast.say(agent, mask, tools_of(info))
            observed = messages_of(observations.get(agent))
            self.played.turns.append((agent, observed, mask, clean(words)))
        for agent in self.alive if idle else ():
            actions.setdefault(agent, JUNK_FOR_IDLE)
        return actions

    def _stepped(self, actions: dict[str, Any]) -> Any:
        """The five values of one `step`, with the rewards counted; None where they are not
        five."""
        watch = self.watch
        totals = self.played.totals
        watch.step += 1
        # a training loop may send the same dict again
        sent = dict(actions)
        result = self.env.step(actions)
        if actions != sent:
            watch.fail(9, "step leaves the dict of actions as its caller made it")
        if not isinstance(result, tuple) or len(result) != 5:
            watch.fail(
                9, "step gives five values: observations, rewards, terminations, truncations, infos"
            )
            return None
        names = ("observations", "rewards", "terminations", "truncations", "infos")
        for name, keys in zip(names, result, strict=True):
            if set(keys) != set(self.alive):
                watch.fail(
                    7 if name == "rewards" else 6,
                    f"{name} is keyed by the agents that were alive before the step; got"
                    f" {sorted(keys)}",
                )
        for agent, value in result[1].items():
            totals[agent] = totals.get(agent, 0.0) + watch.reward(agent, value)
        return result

    def _ended(self, observations: Any, terminations: Any, truncations: Any) -> None:
        """Takes those out whose flags are set, with how they ended and what they saw last."""
        played = self.played
        watch = self.watch
        ended = [
            agent
            for agent in self.alive
            if watch.flags(agent, terminations.get(agent, False), truncations.get(agent, False))
        ]
        for agent in ended:
            if agent in played.ended:
                watch.fail(6, "each agent ends exactly once", agent)
            played.ended[agent] = "terminated" if terminations[agent] else "truncated"
            played.final[agent] = observations.get(agent)
            if agent in observations:
                watch.observed(agent, observations[agent])
        self.alive = [agent for agent in self.alive if agent not in ended]


def _active(watch: Watch, infos: Mapping[str, Any], alive: list[str]) -> tuple[str, ...]:
    active: Any = None
    for agent in alive:
        info = infos.get(agent)
        watch.info(agent, info, active)
        if active is None and isinstance(info, Mapping):
            active = info.get("active_agents")
    return tuple(alive) if active is None else tuple(active)
