"""One episode on an AEC or a Parallel environment, with everything that can be checked while it is
played. What several episodes say about each other is the business of `rules_environments`.

An environment is made by a factory `Callable[[Scenario], env]`; the task goes in by
`reset(options={"task": ...})`. Only PettingZoo's public API is used, so that any environment can be
held to it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from gem_ma.kernel.parsing.text import clean
from gem_ma.testing.clock import time_limit
from gem_ma.testing.kit import PLAY_S, Failed, Kit
from gem_ma.testing.players import Cast
from gem_ma.testing.watch import Played, Watch, messages_of, tools_of

Factory = Callable[..., Any]


def accepts(factory: Factory, name: str) -> bool:
    """Whether a factory takes this keyword."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters or any(
        p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()
    )


def make_environment(factory: Factory, scenario: Any, **wanted: Any) -> Any:
    """An environment, with those of the wanted keywords that its factory takes."""
    return factory(
        scenario, **{name: value for name, value in wanted.items() if accepts(factory, name)}
    )


def made(kit: Kit, name: str, factory: Factory, max_steps: int | None = None) -> Any:
    """An environment of the scenario, cut as the kit cuts where no other limit is named; None where
    it cannot be made, which is written down."""
    with kit.guarded(f"making the {name} environment"):
        limit = kit.cap if max_steps is None else max_steps
        return make_environment(factory, kit.played, max_steps=limit)
    return None


def guarded_play(
    kit: Kit,
    play: Callable[..., Played],
    name: str,
    env: Any,
    seed: int | None,
    player: str,
    **more: Any,
) -> Played | None:
    """An episode of an environment; None where it fails, which is written down."""
    if kit.spent:
        raise Failed  # half of a comparison would look like a fault
    if kit.hung:
        return None
    try:
        with time_limit(PLAY_S):
            return play(kit, env, seed, player, **more)
    except (KeyboardInterrupt, Failed):
        raise
    except BaseException as error:
        where = f"the {name} environment with player {player}"
        kit.error(error, where, agent=more.get("agent"), seed=seed)
        return None


def reset(kit: Kit, env: Any, seed: int | None, task_of: int) -> Any:
    """Resets an environment to an episode; a task of the kit goes in as an option."""
    return reset_to(kit, env, seed, kit.task(task_of))


def reset_to(kit: Kit, env: Any, seed: int | None, task: Any) -> Any:
    """Resets an environment to an episode of this very task."""
    # by its key: an int would be an index, and without a task the environment takes one by the seed
    if task is None or isinstance(task, (int, str)):
        tasks = kit.scenario.tasks("train")
        # a split of one task needs no index
        known = range(len(tasks) if len(tasks) > 1 else 0)
        task = next(
            (
                f"train/{number}"
                for number in known
                if type(tasks[number]) is type(task) and tasks[number] == task
            ),
            task,
        )
    return env.reset(seed=seed) if task is None else env.reset(seed=seed, options={"task": task})


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
