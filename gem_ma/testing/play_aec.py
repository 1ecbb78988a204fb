"""One episode on an AEC environment, with everything that can be checked while it is played."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from gem_ma.kernel.parsing import clean
from gem_ma.testing.environment_play import reset
from gem_ma.testing.kit import Kit
from gem_ma.testing.players import Cast
from gem_ma.testing.watch import Played, Watch, messages_of, tools_of


def play_aec(
    kit: Kit,
    env: Any,
    seed: int | None,
    player: str,
    *,
    stream: object = None,
    task_of: int | None = None,
    light: bool = False,
) -> Played:
    """One AEC episode under all checks."""
    number = seed if seed is not None else (task_of or 0)
    reset(kit, env, seed, number)
    cast = Cast(player, stream if stream is not None else seed, kit.agents)
    return _Aec(kit, env, number, light).play(cast)


class _Aec:
    """An AEC episode that has been reset, and what must hold between its steps."""

    def __init__(self, kit: Kit, env: Any, number: int, light: bool) -> None:
        self.kit = kit
        self.env = env
        self.light = light
        self.played = Played(kit.agents)
        self.watch = Watch(kit, env, "AEC", number, light)
        self.group: tuple[str, ...] = ()  # who acts at an open simultaneous decision point
        self.still: dict[str, Any] = {}  # what all could see when it opened
        self.seen: dict[str, Any] = {}  # agent -> what it observes now

    def play(self, cast: Cast) -> Played:
        """Plays on to the end or to the kit's cut."""
        env = self.env
        played = self.played
        watch = self.watch
        possible = list(env.possible_agents)
        self._begun(possible)
        # each agent acts at most once at a decision point, and then has one dead step
        for _ in range((self.kit.cap + 2) * (len(self.kit.agents) + 1)):
            if not env.agents:
                played.complete = True
                break
            agent = env.agent_selection
            if agent not in env.agents:
                watch.fail(6, f"agent_selection names a live agent; got {agent!r} of {env.agents}")
                break
            observation, terminated, truncated, info = self._looked(agent)
            action: str | None = None
            if watch.flags(agent, terminated, truncated):
                if agent in played.ended:
                    watch.fail(6, "each agent ends exactly once", agent)
                played.ended[agent] = "terminated" if terminated else "truncated"
                played.final[agent] = observation
            else:
                action = self._answer(agent, observation, info, cast)
            self._stepped(agent, action)
        if list(env.possible_agents) != possible:
            watch.fail(6, "possible_agents never changes")
        if played.complete and sorted(played.ended) != sorted(self.kit.agents):
            watch.fail(6, f"each agent ends exactly once; ended are {sorted(played.ended)}")
        watch.unchanged()
        played.steps = len(played.turns)
        return played

    def _begun(self, possible: list[str]) -> None:
        """What holds after a reset, before anybody acts."""
        env = self.env
        watch = self.watch
        agents = sorted(self.kit.agents)
        if sorted(env.agents) != agents or sorted(possible) != agents:
            watch.fail(6, f"all agents of the scenario exist from reset on; got {env.agents}")
        # the usual slip: the environment removes an agent from one and empties the other
        if env.agents is env.possible_agents:
            watch.fail(
                6, "agents and possible_agents are two lists: the first shrinks, the second never"
            )
        if any(env.terminations.values()) or any(env.truncations.values()):
            watch.fail(6, "no flag is set after reset")
        if any(env._cumulative_rewards.values()):
            watch.fail(
                7,
                "nothing has been paid after reset; what comes before the first Ask is paid with"
                " the first commit",
            )

    def _looked(self, agent: str) -> tuple[Any, Any, Any, Any]:
        """Checks all that can be seen, counts the reward of `last`, and gives the rest of it."""
        env = self.env
        watch = self.watch
        if not self.light:
            _key_sets(watch, env)
        self.seen = {} if self.light else {other: env.observe(other) for other in env.agents}
        # `last` gives what was paid since this agent's last turn, so that the sum needs no other
        # source
        observation, reward, terminated, truncated, info = env.last()
        active = info.get("active_agents") if isinstance(info, Mapping) else None
        for other, first in self.seen.items():
            # asked a second time: an observation that is consumed by looking would differ
            if env.observe(other) != first or (other == agent and observation != first):
                watch.fail(
                    3,
                    "observe gives the same as often as it is asked, before and after last",
                    other,
                )
            watch.observed(other, first)
            watch.info(other, env.infos[other], active)
        totals = self.played.totals
        totals[agent] = totals.get(agent, 0.0) + watch.reward(agent, reward)
        # rewards of the last step alone, which `last` holds too: they are checked, not counted
        for other, value in env.rewards.items():
            watch.reward(other, value)
        return observation, terminated, truncated, info

    def _answer(self, agent: str, observation: Any, info: Any, cast: Cast) -> str:
        """The action of a live agent, noted as a turn."""
        known = info if isinstance(info, Mapping) else {}
        active = tuple(known.get("active_agents", ()))
        # a later one of the same decision point
        if agent in self.group and active == self.group and self.still:
            _nothing_moved(self.watch, self.env, self.still, agent)
        else:
            self.group = active
            self.still = {}
            if len(active) > 1 and not self.light:
                # copies: an environment that edits what it handed out would move both alike
                infos = copy.deepcopy(dict(self.env.infos))
                self.still = {"seen": copy.deepcopy(self.seen), "infos": infos}
        mask = known.get("action_mask")
        words = cast.say(agent, mask, tools_of(info))
        self.played.turns.append((agent, messages_of(observation), mask, clean(words)))
        # the last of the group commits: what it then sees may have changed
        self.group = self.group if len(self.group) > 1 and agent != self.group[-1] else ()
        self.watch.step = known.get("step", self.watch.step)
        return words

    def _stepped(self, agent: str, action: str | None) -> None:
        """One `step`; nobody may disappear in it but an agent in its dead step."""
        before = set(self.env.agents)
        if self.env.step(action) is not None:
            self.watch.fail(12, "step returns None")
        gone = before - {*self.env.agents, *([agent] if action is None else [])}
        if gone:
            self.watch.fail(
                6,
                "an agent leaves by its dead step only, which carries its last reward",
                sorted(gone)[0],
            )


def _key_sets(watch: Watch, env: Any) -> None:
    for name in ("rewards", "terminations", "truncations", "infos", "_cumulative_rewards"):
        keys = set(getattr(env, name))
        if keys != set(env.agents):
            extra = sorted(keys - set(env.agents))
            watch.fail(
                7 if name in ("rewards", "_cumulative_rewards") and extra else 6,
                f"{name} is keyed by the live agents; got {sorted(keys)}",
            )


def _nothing_moved(watch: Watch, env: Any, still: dict[str, Any], agent: str) -> None:
    """Rule 4: within a simultaneous decision point nothing that anybody can see changes before
    the commit."""
    for other in env.agents:
        if env.observe(other) != still["seen"].get(other):
            watch.fail(
                4, "within a simultaneous step no observation changes before the commit", other
            )
            watch.fail(3, "an observation is frozen until the commit", other)
        if env.infos[other] != still["infos"].get(other):
            watch.fail(4, "within a simultaneous step no info changes before the commit", other)
    if any(env.rewards.values()):
        watch.fail(4, "within a simultaneous step nothing is paid before the commit", agent)
