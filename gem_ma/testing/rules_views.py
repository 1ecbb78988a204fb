"""Rules 1, 2, 3, 4, 5, 6, 7 and 9 on the AEC and the Parallel view: each shows the play that the kernel plays, in PettingZoo's terms.

A view is made by a factory `Callable[[Scenario], env]`. Where the factory also takes `max_steps`, the driver's limits are tested; the task goes
in by `reset(options={"task": ...})`. Nothing but PettingZoo's public API is used, so that any view can be held to it.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from gem_ma.parsing import clean
from gem_ma.testing.kit import PLAY_S, Failed, Kit, TooSlow, Trace, time_limit
from gem_ma.testing.players import Cast

Factory = Callable[..., Any]
JUNK_FOR_IDLE = "defect call buy yes 1"
EACH = 120  # observations of an episode that are all looked at
RESETS = 8  # in a row; fewer do not say whether those without a seed differ


def accepts(factory: Factory, name: str) -> bool:
    """Whether a factory takes this keyword."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def make_view(factory: Factory, scenario: Any, **wanted: Any) -> Any:
    """A view, with those of the wanted keywords that its factory takes."""
    return factory(scenario, **{name: value for name, value in wanted.items() if accepts(factory, name)})


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
            rule, f"{self.name}: {message}", agent=agent, step=self.step, seed=self.seed, key=(self.name, message[:60], agent if rule == 4 else "")
        )

    def observed(self, agent: str, observation: Any) -> None:
        """Rule 3: in space, JSON, UTF-8, growing by appending, never changed afterwards."""
        self.count += 1
        if self.light or (self.count > EACH and self.count % 16):  # a long play is looked at here and there: each observation holds all before it
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
        messages = _messages(observation)
        before = self.last.get(agent, ())
        if messages is not None:
            if messages[: len(before)] != before:
                self.fail(3, "an observation extends the one before it, messages are only appended", agent)
            self.last[agent] = tuple(dict(message) if isinstance(message, dict) else message for message in messages)
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
        """Rule 9: who must act stands in every info, what is legal only in that of an agent that must."""
        if not isinstance(info, Mapping) or "active_agents" not in info:
            self.fail(9, "infos name the active agents at every step, also at reset", agent)
            return
        if active is not None and list(info["active_agents"]) != list(active):
            self.fail(9, "all infos name the same active agents", agent)
        if "action_mask" in info and (agent not in info["active_agents"] or not info["action_mask"]):
            self.fail(9, "a mask is given to active agents of a closed choice only, and never empty", agent)
        if "tools" in info and (agent not in info["active_agents"] or not info["tools"]):
            self.fail(9, "tools are given to active agents that are offered some, and never empty", agent)

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


def _messages(observation: Any) -> Any:
    return observation.get("messages") if isinstance(observation, dict) else None


def reset(kit: Kit, env: Any, seed: int | None, task_of: int) -> Any:
    """Resets a view to an episode; a task of the kit goes in as an option."""
    return reset_to(kit, env, seed, kit.task(task_of))


def reset_to(kit: Kit, env: Any, seed: int | None, task: Any) -> Any:
    """Resets a view to an episode of this very task."""
    if task is None or isinstance(task, (int, str)):  # by its key: an int would be an index, and without a task the view takes one by the seed
        tasks = kit.scenario.tasks("train")
        known = range(len(tasks) if len(tasks) > 1 else 0)
        task = next((f"train/{number}" for number in known if type(tasks[number]) is type(task) and tasks[number] == task), task)
    return env.reset(seed=seed) if task is None else env.reset(seed=seed, options={"task": task})


def play_aec(kit: Kit, env: Any, seed: int | None, player: str, *, stream: object = None, task_of: int | None = None, light: bool = False) -> Played:
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
        watch.fail(6, "agents and possible_agents are two lists: the first shrinks, the second never")
    if any(env.terminations.values()) or any(env.truncations.values()):
        watch.fail(6, "no flag is set after reset")
    if any(env._cumulative_rewards.values()):
        watch.fail(7, "nothing has been paid after reset; what comes before the first Ask is paid with the first commit")
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
                watch.fail(3, "observe gives the same as often as it is asked, before and after last", other)
            watch.observed(other, first)
            watch.info(other, env.infos[other], info.get("active_agents") if isinstance(info, Mapping) else None)
        played.totals[agent] = played.totals.get(agent, 0.0) + watch.reward(agent, reward)
        for other, value in env.rewards.items():
            watch.reward(other, value)
        if watch.flags(agent, terminated, truncated):
            if agent in done:
                watch.fail(6, "each agent ends exactly once", agent)
            done.append(agent)
            played.ended[agent], played.final[agent] = "terminated" if terminated else "truncated", observation
            action = None
        else:
            active = tuple(info.get("active_agents", ())) if isinstance(info, Mapping) else ()
            if agent in group and active == group and still:  # a later one of the same decision point
                _nothing_moved(watch, env, still, agent)
            else:
                group, still = active, {}
                if len(active) > 1 and not light:
                    still = {"seen": copy.deepcopy(seen), "infos": copy.deepcopy(dict(env.infos))}
            mask = info.get("action_mask") if isinstance(info, Mapping) else None
            text = cast.say(agent, mask, _tools(info))
            played.turns.append((agent, _messages(observation), mask, clean(text)))
            action = text
            group = group if len(group) > 1 and agent != group[-1] else ()
            watch.step = info.get("step", watch.step) if isinstance(info, Mapping) else watch.step
        gone = set(env.agents)
        if env.step(action) is not None:
            watch.fail(12, "step returns None")
        gone -= {*env.agents, *([agent] if action is None else [])}
        if gone:
            watch.fail(6, "an agent leaves by its dead step only, which carries its last reward", sorted(gone)[0])
    if list(env.possible_agents) != possible:
        watch.fail(6, "possible_agents never changes")
    if played.complete and sorted(played.ended) != sorted(agents):
        watch.fail(6, f"each agent ends exactly once; ended are {sorted(played.ended)}")
    watch.unchanged()
    played.steps = _steps(played)
    return played


def _key_sets(watch: Watch, env: Any) -> None:
    for name in ("rewards", "terminations", "truncations", "infos", "_cumulative_rewards"):
        keys = set(getattr(env, name))
        if keys != set(env.agents):
            extra = sorted(keys - set(env.agents))
            watch.fail(7 if name in ("rewards", "_cumulative_rewards") and extra else 6, f"{name} is keyed by the live agents; got {sorted(keys)}")


def _nothing_moved(watch: Watch, env: Any, still: dict[str, Any], agent: str) -> None:
    """Rule 4: within a simultaneous decision point nothing that anybody can see changes before the commit."""
    for other in env.agents:
        if env.observe(other) != still["seen"].get(other):
            watch.fail(4, "within a simultaneous step no observation changes before the commit", other)
            watch.fail(3, "an observation is frozen until the commit", other)
        if env.infos[other] != still["infos"].get(other):
            watch.fail(4, "within a simultaneous step no info changes before the commit", other)
    if any(env.rewards.values()):
        watch.fail(4, "within a simultaneous step nothing is paid before the commit", agent)


class _Offered:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        function = schema.get("function", schema)
        self.name, self.parameters = str(function.get("name")), function.get("parameters")


def _tools(info: Any) -> tuple[_Offered, ...]:
    offered = info.get("tools", ()) if isinstance(info, Mapping) else ()
    return tuple(_Offered(schema) for schema in offered if isinstance(schema, Mapping))


def _steps(played: Played) -> int:
    return len(played.turns)


def play_parallel(
    kit: Kit, env: Any, seed: int | None, player: str, *, stream: object = None, task_of: int | None = None, idle: bool = False, light: bool = False
) -> Played:
    """One Parallel episode under all checks; with `idle`, those who need not act say something too."""
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
                actions[agent] = text = cast.say(agent, mask, _tools(info))
                played.turns.append((agent, _messages(observations.get(agent)), mask, clean(text)))
            elif idle:
                actions[agent] = JUNK_FOR_IDLE
        watch.step += 1
        given_actions = dict(actions)
        result = env.step(actions)
        if actions != given_actions:
            watch.fail(9, "step leaves the dict of actions as its caller made it")
        if not isinstance(result, tuple) or len(result) != 5:
            watch.fail(9, "step gives five values: observations, rewards, terminations, truncations, infos")
            return played
        observations, rewards, terminations, truncations, infos = result
        for name, keys in zip(("observations", "rewards", "terminations", "truncations", "infos"), result, strict=True):
            if set(keys) != set(alive):
                watch.fail(7 if name == "rewards" else 6, f"{name} is keyed by the agents that were alive before the step; got {sorted(keys)}")
        for agent, value in rewards.items():
            played.totals[agent] = played.totals.get(agent, 0.0) + watch.reward(agent, value)
        ended = [agent for agent in alive if watch.flags(agent, terminations.get(agent, False), truncations.get(agent, False))]
        for agent in ended:
            if agent in played.ended:
                watch.fail(6, "each agent ends exactly once", agent)
            played.ended[agent] = "terminated" if terminations[agent] else "truncated"
            played.final[agent] = observations.get(agent)
            if agent in observations:
                watch.observed(agent, observations[agent])
        alive = [agent for agent in alive if agent not in ended]
        if sorted(env.agents) != sorted(alive):
            watch.fail(6, f"agents are those still alive after the step: {alive}; got {list(env.agents)}")
            break
        if not alive:
            played.complete = True
            break
    if list(env.possible_agents) != possible:
        watch.fail(6, "possible_agents never changes")
    watch.unchanged()
    played.steps = _steps(played)
    return played


def _active(watch: Watch, infos: Mapping[str, Any], alive: list[str]) -> tuple[str, ...]:
    active: Any = None
    for agent in alive:
        info = infos.get(agent)
        watch.info(agent, info, active)
        if active is None and isinstance(info, Mapping):
            active = info.get("active_agents")
    return tuple(alive) if active is None else tuple(active)


def views(kit: Kit, factories: Mapping[str, Factory]) -> None:
    """The AEC and the Parallel view against the kernel and against themselves."""
    plays: dict[str, Callable[..., Played]] = {"AEC": play_aec, "Parallel": play_parallel}
    for name, play in plays.items():
        factory = factories[name]
        env: Any = None
        with kit.guarded(f"making the {name} view"):
            env = make_view(factory, kit.played, max_steps=kit.cap)
        if env is None:
            continue
        for seed in kit.within(kit.seeds):
            for player in ("random", "mixed", "fuzz1") if seed in kit.seeds[:4] else ("random", "fuzz0"):
                played = _guarded(kit, play, name, env, seed, player)
                if played is not None:
                    _against_kernel(kit, name, played, seed, player, accepts(factory, "max_steps"))
        _determinism(kit, name, factory, play, env)
        _global_state(kit, name, env)
        _limits(kit, name, factory, play)
        with kit.guarded(f"closing the {name} view", rule=6):
            env.reset(seed=0)
            env.close()
            env.close()
    _idle(kit, factories["Parallel"])


def _guarded(kit: Kit, play: Callable[..., Played], name: str, env: Any, seed: int | None, player: str, **more: Any) -> Played | None:
    if kit.hung:
        return None
    try:
        with time_limit(PLAY_S):
            return play(kit, env, seed, player, **more)
    except (KeyboardInterrupt, Failed):
        raise
    except BaseException as error:
        kit.error(error, f"the {name} view with player {player}", seed=seed)
        return None


def _against_kernel(kit: Kit, name: str, played: Played, seed: int, player: str, limited: bool) -> None:
    """Rules 3, 6, 7 and 9: same turns, same sums, same ends as the kernel under the same seed and words."""
    try:
        known = kit.known(seed, player)
    except Failed:
        return
    if not known.over and not limited:  # the view knows no limit, the kit's own cut the kernel: as far as both went
        del played.turns[len(known.turns) :]
        played.totals, played.ended, played.final, played.complete = {}, {}, {}, True
    compare(kit, name, played, known, seed)
    if not played.complete:
        kit.fail(6, f"{name}: the episode ends when the play does, for all agents", seed=seed, key=(name, "endless"))


def compare(kit: Kit, name: str, played: Played, known: Trace, seed: int) -> None:
    """A view's episode beside the kernel's."""
    for number, (turn, expected) in enumerate(zip(played.turns, known.turns, strict=False)):
        step = known.steps[number]
        if turn[0] != expected[0]:
            message = f"{name}: the agents act in the kernel's order; {turn[0]} acts where {expected[0]} is asked"
            kit.fail(9, message, agent=turn[0], step=step, seed=seed, key=(name, "order"))
            break
        if turn[1] != expected[1]:
            _wrong_observation(kit, name, turn[0], played, known, step, seed)
            break
        if turn[2] != expected[2]:
            message = f"{name}: the mask is what the Ask calls legal; got {turn[2]}, not {expected[2]}"
            kit.fail(9, message, agent=turn[0], step=step, seed=seed, key=(name, "mask"))
            break
    else:
        if len(played.turns) != len(known.turns):
            message = f"{name}: an episode has the kernel's turns; {len(played.turns)} instead of {len(known.turns)}"
            kit.fail(9, message, step=known.length, seed=seed, key=(name, "turns"))
        for agent, observation in played.final.items():
            if _messages(observation) != known.views.get(agent):
                _wrong_observation(kit, name, agent, played, known, known.length, seed)
                break
    totals = known.totals(kit.agents)
    for agent, total in totals.items():
        got = played.totals.get(agent, 0.0)
        if agent in played.totals and abs(got - total) > 1e-9 * max(1.0, abs(total)):
            message = f"{name}: an agent's rewards sum to its entries in the ledger, {total:g}; got {got:g}"
            kit.fail(7, message, agent=agent, seed=seed, key=(name, "sum"))
    for agent, how in played.ended.items():
        expected_end = "terminated" if known.over or agent in known.left else "truncated"
        if how != expected_end:
            message = f"{name}: a play that ends by itself terminates its agents, a limit truncates them; {how}, not {expected_end}"
            kit.fail(6, message, agent=agent, seed=seed, key=(name, "how"))


def _foreign(kit: Kit, name: str, played: Played, known: Trace, seed: int) -> None:
    """Rule 4: whatever is wrong with observations, none holds what only another agent was shown."""
    contents = {agent: {message["content"] for message in view} for agent, view in known.views.items()}
    seen = [(turn[0], turn[1]) for turn in played.turns] + [(agent, _messages(shown)) for agent, shown in played.final.items()]
    for agent, shown in seen:
        foreign = set().union(*(texts for other, texts in contents.items() if other != agent)) - contents.get(agent, set())
        if any(isinstance(message, Mapping) and message.get("content") in foreign for message in shown or ()):
            kit.fail(4, f"{name}: nobody sees what only another is shown", agent=agent, seed=seed, key=(name, "foreign"))
            return


def _wrong_observation(kit: Kit, name: str, agent: str, played: Played, known: Trace, step: int, seed: int) -> None:
    message = f"{name}: an observation is the agent's transcript, nothing more, less or older"
    kit.fail(3, message, agent=agent, step=step, seed=seed, key=(name, "transcript"))
    kit.fail(9, f"{name}: all views show an agent the same", agent=agent, step=step, seed=seed, key=(name, "shown"))
    _foreign(kit, name, played, known, seed)


def _determinism(kit: Kit, name: str, factory: Factory, play: Callable[..., Played], env: Any) -> None:
    """Rule 1: a seed names an episode, on this instance and on a fresh one, also 0; unseeded resets go on from it."""
    for seed in kit.within((0, 7, *kit.seeds[1:2])):
        episodes = []
        for abandoned in (0, 1, 4, None):  # actions of an episode that is left in the middle; None = a fresh view
            if abandoned:
                _abandon(kit, name, env, abandoned)
            target = env if abandoned is not None else None
            with kit.guarded(f"making the {name} view"):
                target = target or make_view(factory, kit.played, max_steps=kit.cap)
            if target is not None and (played := _guarded(kit, play, name, target, seed, "random", task_of=kit.seeds[0], light=True)) is not None:
                episodes.append(played.seen())
        if len(episodes) == 4 and not episodes[0] == episodes[1] == episodes[2]:
            kit.fail(
                1, f"{name}: reset(seed=s) plays the episode of that seed every time, also for 0 and in mid-episode", seed=seed, key=(name, "twice")
            )
        if len(episodes) == 4 and episodes[0] != episodes[3]:
            kit.fail(1, f"{name}: a fresh view with the same seed plays the same episode, also for 0", seed=seed, key=(name, "fresh"))
    player = next((player for player in ("first", "random") if _varies(kit, player)), None)
    runs: list[list[Any]] = [[], []]
    for run in runs:
        for number in kit.within(range(RESETS), 1.0) if run is runs[0] else range(len(runs[0])):  # as far again, however long it takes
            played = _guarded(kit, play, name, env, 7 if number == 0 else None, player or "first", stream=0, task_of=kit.seeds[0], light=True)
            run.append(played.seen() if played is not None else None)
    if runs[0] != runs[1]:
        kit.fail(1, f"{name}: resets without a seed repeat their sequence of episodes after the same seed", seed=7, key=(name, "sequence"))
    if len(runs[0]) < RESETS:
        kit.skip(1, f"{name}: plays take too long to say whether resets without a seed differ")
    elif player and all(episode == runs[0][1] for episode in runs[0][2:]):
        kit.fail(1, f"{name}: resets without a seed play different episodes", seed=7, key=(name, "unseeded"))


def _abandon(kit: Kit, name: str, env: Any, actions: int) -> None:
    """An episode that is left in the middle, as a reset in mid-episode does; what raises here has been found by the plays before."""
    with contextlib.suppress(Exception, TooSlow), time_limit(PLAY_S):
        given, cast = reset(kit, env, 1, kit.seeds[0]), Cast("random", 1, kit.agents)
        infos = {} if name == "AEC" else given[1]
        for _ in range(actions):
            if not env.agents:
                return
            if name == "AEC":
                agent = env.agent_selection
                dead = env.terminations[agent] or env.truncations[agent]
                env.step(None if dead else cast.say(agent, env.infos[agent].get("action_mask")))
            else:
                infos = env.step({agent: cast.say(agent, infos[agent].get("action_mask")) for agent in env.agents})[4]


def _varies(kit: Kit, player: str) -> bool:
    """Whether seeds are seen at all by a player that does not depend on them; many must differ, or eight resets say nothing."""
    plays = []
    for seed in range(40, 52):
        try:
            plays.append(kit.play(seed, player, stream=0, task=kit.task(kit.seeds[0])))
        except Failed:
            return False
    return sum(play != plays[0] for play in plays) >= len(plays) // 3


def _global_state(kit: Kit, name: str, env: Any) -> None:
    import numpy

    kept = random.getstate(), numpy.random.get_state()
    try:
        random.seed(5)
        numpy.random.seed(5)
        before = random.getstate(), repr(numpy.random.get_state())
        with kit.guarded(f"a reset of the {name} view"):
            env.reset(seed=0)
            env.reset()
        if (random.getstate(), repr(numpy.random.get_state())) != before:
            kit.fail(2, f"{name}: a reset touches no global random state", seed=0, key=(name, "global"))
    finally:
        random.setstate(kept[0])
        numpy.random.set_state(kept[1])


def _limits(kit: Kit, name: str, factory: Factory, play: Callable[..., Played]) -> None:
    """Rule 6: a limit cuts exactly there, as truncation; a play that ends on its last allowed step is terminated."""
    if not accepts(factory, "max_steps"):
        kit.skip(6, f"the {name} factory takes no max_steps, so no limit was tried")
        return
    tried = False
    for seed in kit.seeds[:2]:
        try:
            known = kit.known(seed, "random")
        except Failed:
            continue
        for limit in (1, 2, 3):
            if known.length < limit:
                continue
            tried = tried or known.length > limit
            env: Any = None
            with kit.guarded(f"making the {name} view"):
                env = make_view(factory, kit.played, max_steps=limit)
            played = _guarded(kit, play, name, env, seed, "random") if env is not None else None
            if played is None:
                continue
            turns = sum(step < limit for step in known.steps)
            if len(played.turns) != turns or not played.complete:
                message = f"{name}: a limit of {limit} steps cuts the play exactly there"
                kit.fail(6, message, step=limit, seed=seed, key=(name, "limit"))
                continue
            cut = not (known.over and known.length == limit)
            for agent, how in played.ended.items():
                if how == ("terminated" if cut else "truncated") and not (cut and agent in known.left):
                    message = f"{name}: a limit truncates, the rules' own end terminates, also on the last allowed step"
                    kit.fail(6, message, agent=agent, step=limit, seed=seed, key=(name, "cut"))
    if not tried:
        kit.skip(6, f"{name}: no play is longer than one step, so no limit could cut it")


def _idle(kit: Kit, factory: Factory) -> None:
    """Rule 9: what idle agents say has no effect."""
    for seed in kit.within(kit.seeds[:3]):
        with kit.guarded("making the Parallel view"):
            env = make_view(factory, kit.played, max_steps=kit.cap)
            played = _guarded(kit, play_parallel, "Parallel", env, seed, "random", idle=True)
            quiet = _guarded(kit, play_parallel, "Parallel", env, seed, "random")
            if played is not None and (quiet is None or played.seen() != quiet.seen()):
                kit.fail(9, "Parallel: what idle agents send has no effect", seed=seed, key="idle")
