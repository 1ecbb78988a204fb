"""One episode on an AEC or a Parallel view, in PettingZoo's terms, with everything that can be
checked while it is played.

A view is made by a factory `Callable[[Scenario], env]`; the task goes in by
`reset(options={"task": ...})`. Nothing but PettingZoo's public API is used, so that any view can
be held to it. What the episodes of several views say about each other is the business of
`rules_views`.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from gem_ma.parsing import clean
from gem_ma.testing.kit import Kit
from gem_ma.testing.players import Cast

Factory = Callable[..., Any]
JUNK_FOR_IDLE = "defect call buy yes 1"
EACH = 120  # observations of an episode that are all looked at


def accepts(factory: Factory, name: str) -> bool:
    """Whether a factory takes this keyword."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters or any(
        p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()
    )


def make_view(factory: Factory, scenario: Any, **wanted: Any) -> Any:
    """A view, with those of the wanted keywords that its factory takes."""
    return factory(
        scenario, **{name: value for name, value in wanted.items() if accepts(factory, name)}
    )


class Played:
    """One episode as a view shows it."""

    def __init__(self, agents: tuple[str, ...]) -> None:
        self.turns: list[tuple[str, Any, Any, str]] = []
        self.totals = dict.fromkeys(agents, 0.0)
        self.ended: dict[str, str] = {}  # agent -> terminated | truncated
        self.final: dict[str, Any] = {}
        self.steps = 0
        self.complete = False

    def seen(self) -> list[Any]:
        """What a deterministic view repeats."""
        return [self.turns, self.totals, self.ended, self.final]


class Watch:
    """The checks that every observation, reward and info of a view must stand, in one episode."""

    def __init__(self, kit: Kit, env: Any, name: str, seed: int, light: bool = False) -> None:
        self.kit, self.env, self.name, self.seed, self.light = kit, env, name, seed, light
        self.kept: list[tuple[str, Any, Any]] = []
        self.last: dict[str, Any] = {}
        self.step = self.count = 0

    def fail(self, rule: int, message: str, agent: str | None = None) -> None:
        self.kit.fail(
            rule,
            f"{self.name}: {message}",
            agent=agent,
            step=self.step,
            seed=self.seed,
            key=(self.name, message[:60], agent if rule == 4 else ""),
        )

    def observed(self, agent: str, observation: Any) -> None:
        """Rule 3: in space, JSON, UTF-8, growing by appending, never changed afterwards."""
        self.count += 1
        # a long play is looked at here and there: each observation holds all before it
        if self.light or (self.count > EACH and self.count % 16):
            return
        if not self.env.observation_space(agent).contains(observation):
            self.fail(3, "an observation lies in its space", agent)
        try:
            text = json.dumps(observation, allow_nan=False)
            json.dumps(observation, ensure_ascii=False).encode("utf-8")
            if json.loads(text) != _listed(observation):
                self.fail(3, "an observation survives a JSON round trip", agent)
        except (TypeError, ValueError) as error:
            self.fail(3, f"an observation is JSON and UTF-8; {error}", agent)
        messages = messages_of(observation)
        before = self.last.get(agent, ())
        if messages is not None:
            if messages[: len(before)] != before:
                self.fail(
                    3, "an observation extends the one before it, messages are only appended", agent
                )
            self.last[agent] = tuple(
                dict(message) if isinstance(message, dict) else message for message in messages
            )
        self.kept.append((agent, observation, repr(observation)))

    def reward(self, agent: str, value: Any) -> float:
        """Rule 7: a finite number for an agent that is known."""
        if agent not in self.kit.agents:
            self.fail(7, f"rewards name agents of the scenario, not {agent!r}")
            return 0.0
        try:
            number = float(value)
            wrong = isinstance(value, (str, bytes, bool)) or number - number != 0
        except (TypeError, ValueError):
            number, wrong = 0.0, True
        if wrong:
            self.fail(7, f"rewards are finite numbers; got {value!r}", agent)
            return 0.0
        return number

    def info(self, agent: str, info: Any, active: Any) -> None:
        """Rule 9: who must act stands in every info, what is legal only in that of an agent that
        must."""
        if not isinstance(info, Mapping) or "active_agents" not in info:
            self.fail(9, "infos name the active agents at every step, also at reset", agent)
            return
        if active is not None and list(info["active_agents"]) != list(active):
            self.fail(9, "all infos name the same active agents", agent)
        if "action_mask" in info and (
            agent not in info["active_agents"] or not info["action_mask"]
        ):
            self.fail(
                9,
                "a mask is given to active agents of a closed choice only, and never empty",
                agent,
            )
        if "tools" in info and (agent not in info["active_agents"] or not info["tools"]):
            self.fail(
                9, "tools are given to active agents that are offered some, and never empty", agent
            )

    def flags(self, agent: str, terminated: Any, truncated: Any) -> bool:
        """Rule 6: Python bools, never both True."""
        if type(terminated) is not bool or type(truncated) is not bool:
            self.fail(6, f"flags are True or False; got {terminated!r} and {truncated!r}", agent)
        if terminated and truncated:
            self.fail(6, "a part ends by termination or by truncation, never by both", agent)
        return bool(terminated or truncated)

    def unchanged(self) -> None:
        """Rule 3: what was handed out stays as it was."""
        for agent, observation, copied in self.kept[:: max(1, len(self.kept) // 40)]:
            if repr(observation) != copied:
                self.fail(3, "an observation that was handed out never changes afterwards", agent)
                return


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, (tuple, list)) else value


def messages_of(observation: Any) -> Any:
    return observation.get("messages") if isinstance(observation, dict) else None


def reset(kit: Kit, env: Any, seed: int | None, task_of: int) -> Any:
    """Resets a view to an episode; a task of the kit goes in as an option."""
    return reset_to(kit, env, seed, kit.task(task_of))


def reset_to(kit: Kit, env: Any, seed: int | None, task: Any) -> Any:
    """Resets a view to an episode of this very task."""
    # by its key: an int would be an index, and without a task the view takes one by the seed
    if task is None or isinstance(task, (int, str)):
        tasks = kit.scenario.tasks("train")
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
    agents = kit.agents
    at = seed if seed is not None else (task_of or 0)
    played, watch = Played(agents), Watch(kit, env, "AEC", at, light)
    reset(kit, env, seed, at)
    cast = Cast(player, stream if stream is not None else seed, agents)
    possible = list(env.possible_agents)
    if sorted(env.agents) != sorted(agents) or sorted(possible) != sorted(agents):
        watch.fail(6, f"all agents of the scenario exist from reset on; got {env.agents}")
    if env.agents is env.possible_agents:
        watch.fail(
            6, "agents and possible_agents are two lists: the first shrinks, the second never"
        )
    if any(env.terminations.values()) or any(env.truncations.values()):
        watch.fail(6, "no flag is set after reset")
    if any(env._cumulative_rewards.values()):
        watch.fail(
            7,
            "nothing has been paid after reset; what comes before the first Ask is paid with the"
            " first commit",
        )
    done: list[str] = []
    group: tuple[str, ...] = ()
    still: dict[str, Any] = {}
    for _ in range((kit.cap + 2) * (len(agents) + 1)):
        if not env.agents:
            played.complete = True
            break
        agent = env.agent_selection
        if agent not in env.agents:
            watch.fail(6, f"agent_selection names a live agent; got {agent!r} of {env.agents}")
            break
        if not light:
            _key_sets(watch, env)
        seen = {} if light else {other: env.observe(other) for other in env.agents}
        observation, reward, terminated, truncated, info = env.last()
        for other, first in seen.items():
            if env.observe(other) != first or (other == agent and observation != first):
                watch.fail(
                    3,
                    "observe gives the same as often as it is asked, before and after last",
                    other,
                )
            watch.observed(other, first)
            watch.info(
                other,
                env.infos[other],
                info.get("active_agents") if isinstance(info, Mapping) else None,
            )
        played.totals[agent] = played.totals.get(agent, 0.0) + watch.reward(agent, reward)
        for other, value in env.rewards.items():
            watch.reward(other, value)
        if watch.flags(agent, terminated, truncated):
            if agent in done:
                watch.fail(6, "each agent ends exactly once", agent)
            done.append(agent)
            played.ended[agent], played.final[agent] = (
                ("terminated" if terminated else "truncated"),
                observation,
            )
            action = None
        else:
            active = tuple(info.get("active_agents", ())) if isinstance(info, Mapping) else ()
            # a later one of the same decision point
            if agent in group and active == group and still:
                _nothing_moved(watch, env, still, agent)
            else:
                group, still = active, {}
                if len(active) > 1 and not light:
                    still = {"seen": copy.deepcopy(seen), "infos": copy.deepcopy(dict(env.infos))}
            mask = info.get("action_mask") if isinstance(info, Mapping) else None
            text = cast.say(agent, mask, tools_of(info))
            played.turns.append((agent, messages_of(observation), mask, clean(text)))
            action = text
            group = group if len(group) > 1 and agent != group[-1] else ()
            watch.step = info.get("step", watch.step) if isinstance(info, Mapping) else watch.step
        gone = set(env.agents)
        if env.step(action) is not None:
            watch.fail(12, "step returns None")
        gone -= {*env.agents, *([agent] if action is None else [])}
        if gone:
            watch.fail(
                6,
                "an agent leaves by its dead step only, which carries its last reward",
                sorted(gone)[0],
            )
    if list(env.possible_agents) != possible:
        watch.fail(6, "possible_agents never changes")
    if played.complete and sorted(played.ended) != sorted(agents):
        watch.fail(6, f"each agent ends exactly once; ended are {sorted(played.ended)}")
    watch.unchanged()
    played.steps = steps_of(played)
    return played


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


class _Offered:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        function = schema.get("function", schema)
        self.name, self.parameters = str(function.get("name")), function.get("parameters")


def tools_of(info: Any) -> tuple[_Offered, ...]:
    offered = info.get("tools", ()) if isinstance(info, Mapping) else ()
    return tuple(_Offered(schema) for schema in offered if isinstance(schema, Mapping))


def steps_of(played: Played) -> int:
    return len(played.turns)


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
    agents = kit.agents
    at = seed if seed is not None else (task_of or 0)
    played, watch = Played(agents), Watch(kit, env, "Parallel", at, light)
    given = reset(kit, env, seed, at)
    if not isinstance(given, tuple) or len(given) != 2:
        watch.fail(9, "reset gives observations and infos")
        return played
    observations, infos = given
    cast = Cast(player, stream if stream is not None else seed, agents)
    possible, alive = list(env.possible_agents), list(env.agents)
    if sorted(alive) != sorted(agents) or env.agents is env.possible_agents:
        watch.fail(6, f"all agents of the scenario exist from reset on; got {alive}")
    for _ in range(kit.cap + 2):
        for agent, observation in observations.items():
            watch.observed(agent, observation)
        active = _active(watch, infos, alive)
        actions: dict[str, Any] = {}
        for agent in (*active, *(agent for agent in alive if agent not in active)):
            info = infos.get(agent, {})
            if agent in active:
                mask = info.get("action_mask")
                actions[agent] = text = cast.say(agent, mask, tools_of(info))
                played.turns.append(
                    (agent, messages_of(observations.get(agent)), mask, clean(text))
                )
            elif idle:
                actions[agent] = JUNK_FOR_IDLE
        watch.step += 1
        given_actions = dict(actions)
        result = env.step(actions)
        if actions != given_actions:
            watch.fail(9, "step leaves the dict of actions as its caller made it")
        if not isinstance(result, tuple) or len(result) != 5:
            watch.fail(
                9, "step gives five values: observations, rewards, terminations, truncations, infos"
            )
            return played
        observations, rewards, terminations, truncations, infos = result
        for name, keys in zip(
            ("observations", "rewards", "terminations", "truncations", "infos"), result, strict=True
        ):
            if set(keys) != set(alive):
                watch.fail(
                    7 if name == "rewards" else 6,
                    f"{name} is keyed by the agents that were alive before the step; got"
                    f" {sorted(keys)}",
                )
        for agent, value in rewards.items():
            played.totals[agent] = played.totals.get(agent, 0.0) + watch.reward(agent, value)
        ended = [
            agent
            for agent in alive
            if watch.flags(agent, terminations.get(agent, False), truncations.get(agent, False))
        ]
        for agent in ended:
            if agent in played.ended:
                watch.fail(6, "each agent ends exactly once", agent)
            played.ended[agent] = "terminated" if terminations[agent] else "truncated"
            played.final[agent] = observations.get(agent)
            if agent in observations:
                watch.observed(agent, observations[agent])
        alive = [agent for agent in alive if agent not in ended]
        if sorted(env.agents) != sorted(alive):
            watch.fail(
                6, f"agents are those still alive after the step: {alive}; got {list(env.agents)}"
            )
            break
        if not alive:
            played.complete = True
            break
    if list(env.possible_agents) != possible:
        watch.fail(6, "possible_agents never changes")
    watch.unchanged()
    played.steps = steps_of(played)
    return played


def _active(watch: Watch, infos: Mapping[str, Any], alive: list[str]) -> tuple[str, ...]:
    active: Any = None
    for agent in alive:
        info = infos.get(agent)
        watch.info(agent, info, active)
        if active is None and isinstance(info, Mapping):
            active = info.get("active_agents")
    return tuple(alive) if active is None else tuple(active)
