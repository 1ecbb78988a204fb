"""Rule 4: two plays that differ only in one agent's secret look the same to all others while the
actions are the same.

Declared hidden: what `deal(rng, task)` gives each agent, and the task's fields in `private =
{agent: (field, ...)}`. A scenario that shows its hands in mid-play says so: `reveals_after` =
decision points after which nothing is secret any more. The last outcome is not compared.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import random
from collections.abc import Mapping
from typing import Any

from gem_ma.kernel.scenario import Scenario
from gem_ma.testing.calls import remembering
from gem_ma.testing.clock import TooSlow, time_limit
from gem_ma.testing.kit import PLAY_S, Failed, Kit, differing
from gem_ma.testing.play_environments import Factory, make_environment, reset_to
from gem_ma.testing.players import PLAYERS
from gem_ma.wrappers.around import rules_of

DEALS = 400
PAIRS = 6


def secrecy(kit: Kit) -> None:
    """Deals and private fields."""
    deal = kit.scenario.deal
    # the base class's own hides nothing; a test may put a plain function in its place
    declared = getattr(rules_of(kit.scenario).deal, "__func__", None) is not Scenario.deal
    if declared:
        for agent in kit.agents:
            _dealt(kit, deal, agent)
    private = kit.scenario.private
    if private:
        _private(kit, private)
    if not declared and not private:
        kit.skip(4, "the scenario declares no hidden information: it has no deal(rng, task)")


def _dealt(kit: Kit, deal: Any, agent: str) -> None:
    deals: dict[str, tuple[int, Any]] = {}
    task = kit.tasks[0]
    with kit.guarded("deal()"):
        for seed in range(DEALS):
            secrets = deal(random.Random(seed), task)
            if not isinstance(secrets, Mapping):
                kit.fail(
                    4, f"deal() gives {{agent: secret}}; got {type(secrets).__name__}", seed=seed
                )
                return
            # by content: many seeds deal the same hands
            deals.setdefault(repr(sorted(secrets.items(), key=str)), (seed, secrets))
    if not any(agent in secrets for _, secrets in deals.values()):
        return
    groups: dict[str, list[tuple[int, Any]]] = {}
    for seed, secrets in deals.values():
        groups.setdefault(
            repr(sorted(((k, v) for k, v in secrets.items() if k != agent), key=str)), []
        ).append((seed, secrets))
    pairs = [
        pair
        for group in groups.values()
        for pair in itertools.islice(itertools.combinations(group, 2), 3)
    ]
    if not pairs:
        kit.skip(4, f"no two of {DEALS} deals differ only in the secret of {agent}")
        return
    # some of all kinds, the smallest seeds first, since a finding names the smallest
    random.Random(0).shuffle(pairs)
    drawn = sorted(pairs[: PAIRS * 2], key=lambda pair: pair[0][0])[:PAIRS]
    for (seed, first), (_, other) in drawn:
        try:
            memory: dict[Any, Any] = {}
            scenarios = [
                remembering(_dealing(kit.scenario, deal, secrets), memory)
                for secrets in (first, other)
            ]
        except TypeError:
            kit.skip(
                4,
                "the scenario object takes no further attributes, so its deals could not be"
                " exchanged",
            )
            return
        # one pair is enough for the environments: what the kernel shows was looked at with all of
        # them
        kit.swapped.setdefault(agent, (scenarios, (task, task), seed))
        for player in ("first", "random", "last", "mixed"):
            try:
                _alike(kit, scenarios, (task, task), agent, seed, player)
            except Failed:
                continue


def _dealing(scenario: Scenario, deal: Any, secrets: Any) -> Scenario:
    def dealt(rng: random.Random, task: Any) -> Any:
        deal(rng, task)  # the same draws, whatever is dealt
        # a play may edit its hands
        return copy.deepcopy(secrets)

    return differing(scenario, deal=dealt)


def _alike(
    kit: Kit, scenarios: list[Scenario], tasks: tuple[Any, Any], owner: str, seed: int, player: str
) -> None:
    """Both plays in step: the owner plays what is legal in both, the others see and may do the
    same."""
    games = [
        kit.start(seed, scenario=scenario, task=task)
        for scenario, task in zip(scenarios, tasks, strict=True)
    ]
    streams = {agent: random.Random(f"{seed}/{agent}/secrecy") for agent in kit.agents}
    reveals = kit.scenario.reveals_after
    first, second = games
    while (
        first.pending
        and second.pending
        and first.step < kit.cap
        and (reveals is None or first.step < reveals)
    ):
        if _told_apart(kit, first, second, owner, seed):
            return
        actions = {}
        for agent, asked in first.pending.items():
            legal = asked.legal
            if agent == owner and legal is not None:
                # what only one of the two may do would tell them apart by itself
                twin = second.pending[agent].legal or ()
                legal = tuple(choice for choice in legal if choice in twin)
                if not legal:
                    return
            actions[agent] = PLAYERS[player](legal, asked.tools, streams[agent], first.step)
        for game in games:
            kit.send(game, actions, "the same play with another secret")
    for game in games:
        with kit.guarded("closing the play", seed=seed, rule=6):
            game.close()


def _told_apart(kit: Kit, first: Any, second: Any, owner: str, seed: int) -> bool:
    """Whether anybody but the owner sees, at the open step, which of the two plays it is in: by
    what is shown, by who is asked, or by what may be done. It is a finding."""

    def fail(message: str, agent: str, key: tuple[str, ...]) -> bool:
        words = f"nobody sees another's secret; {message}"
        kit.fail(4, words, agent=agent, step=first.step, seed=seed, key=key)
        return True

    for agent in kit.agents:
        if agent != owner and first.view(agent) != second.view(agent):
            left, right = (
                next(m.text for m, _ in _unequal(a.view(agent), b.view(agent)))
                for a, b in ((first, second), (second, first))
            )
            message = (
                f"{agent} is shown {left[:100]!r} or {right[:100]!r}, by the secret of {owner}"
            )
            return fail(message, agent, ("shown", agent, owner))
    # an order of asking that follows a hand tells it as well as a text does
    if list(first.pending) != list(second.pending):
        message = (
            f"who is asked ({', '.join(first.pending)} or {', '.join(second.pending)}) depends on"
            f" that of {owner}"
        )
        return fail(message, owner, ("asked", owner))
    for agent, asked in first.pending.items():
        twin = second.pending[agent]
        tools, others = ([tool.name for tool in ask.tools] for ask in (asked, twin))
        if agent != owner and (asked.legal != twin.legal or tools != others):
            message = (
                f"what {agent} may do ({asked.legal} or {twin.legal}) depends on that of {owner}"
            )
            return fail(message, agent, ("legal", agent, owner))
    return False


def in_environments(kit: Kit, factories: Mapping[str, Factory]) -> None:
    """The same pairs of plays through the AEC and the Parallel environment: neither observations
    nor infos of the others depend on the secret."""
    for owner, (scenarios, tasks, seed) in kit.swapped.items():
        for name in ("AEC", "Parallel"):
            if not kit.hung and not any(finding.rule == 4 for finding in kit.findings.values()):
                # what raises has been found by the plays before
                with contextlib.suppress(Exception, TooSlow), time_limit(PLAY_S):
                    envs = [
                        make_environment(factories[name], scenario, max_steps=kit.cap)
                        for scenario in scenarios
                    ]
                    _environments_alike(kit, name, envs, tasks, owner, seed)


def _environments_alike(
    kit: Kit, name: str, envs: list[Any], tasks: tuple[Any, Any], owner: str, seed: int
) -> None:
    aec = name == "AEC"
    streams = {agent: random.Random(f"{seed}/{agent}/secrecy") for agent in kit.agents}
    # of each environment (observations, infos); an AEC environment is asked for them instead
    results = [reset_to(kit, env, seed, task) for env, task in zip(envs, tasks, strict=True)]
    reveals = kit.scenario.reveals_after
    while all(env.agents for env in envs):
        first, second = (
            env.infos if aec else result[1] for env, result in zip(envs, results, strict=True)
        )
        step = first[owner].get("step", 0)
        active = first[owner].get("active_agents", ())
        # nothing is secret any more, by the scenario's own word
        if reveals is not None and step >= reveals:
            return
        for agent in envs[0].agents:
            left, right = (
                env.observe(agent) if aec else result[0][agent]
                for env, result in zip(envs, results, strict=True)
            )
            if agent != owner and (left != right or first[agent] != second[agent]):
                differ = [
                    key
                    for key in {**first[agent], **second[agent]}
                    if first[agent].get(key) != second[agent].get(key)
                ]
                message = (
                    f"{name}: nobody sees another's secret;"
                    f" {', '.join(differ) or 'the observation'} of {agent} depends on that of"
                    f" {owner}"
                )
                kit.fail(
                    4, message, agent=agent, step=step, seed=seed, key=("info", name, agent, owner)
                )
                return
        # found on the kernel already, and the two plays are out of step
        if active != second[owner].get("active_agents", ()):
            return
        actions = {}
        for agent in [envs[0].agent_selection] if aec else active:
            mask = first[agent].get("action_mask")
            if agent == owner and mask is not None:
                twin = second[agent].get("action_mask", ())
                mask = tuple(choice for choice in mask if choice in twin)
                if not mask:
                    return
            actions[agent] = PLAYERS["random"](mask, (), streams[agent], step)
        results = [env.step(*actions.values()) if aec else env.step(dict(actions)) for env in envs]
        results = [result if aec else (result[0], result[4]) for result in results]
        if any(_somebody_ended(kit, env, aec) for env in envs):
            return  # the outcome is not compared


def _somebody_ended(kit: Kit, env: Any, aec: bool) -> bool:
    if aec:
        return any({**env.terminations, **env.truncations}.values())
    return set(env.agents) != set(kit.agents)


def _unequal(left: Any, right: Any) -> Any:
    # where one is longer, the other's last message stands for what it lacks
    last = (left[-1:] or right[-1:])[0]
    pairs = itertools.zip_longest(left, right, fillvalue=last)
    return [(m, n) for m, n in pairs if m != n] or [(last, last)]


def _private(kit: Kit, private: Mapping[str, Any]) -> None:
    if len(kit.tasks) < 2:
        kit.skip(4, "fewer than two tasks: their private fields could not be exchanged")
        return
    task = kit.tasks[0]
    other = kit.tasks[1]
    for agent, fields in private.items():
        swapped = _with_fields(task, other, (fields,) if isinstance(fields, str) else tuple(fields))
        if swapped is None:
            kit.skip(4, f"tasks of type {type(task).__name__} have no fields to exchange")
            continue
        kit.swapped.setdefault(agent, ([kit.played, kit.played], (task, swapped), kit.seeds[0]))
        for seed in kit.seeds[:3]:
            for player in ("first", "random"):
                try:
                    _alike(kit, [kit.played, kit.played], (task, swapped), agent, seed, player)
                except Failed:
                    continue


def _with_fields(task: Any, other: Any, fields: tuple[str, ...]) -> Any:
    if isinstance(task, Mapping) and isinstance(other, Mapping):
        # as a new object: tasks are never edited in place
        return {**task, **{name: copy.deepcopy(other[name]) for name in fields if name in other}}
    if dataclasses.is_dataclass(task) and not isinstance(task, type):
        return dataclasses.replace(
            task, **{name: copy.deepcopy(getattr(other, name)) for name in fields}
        )
    return None
