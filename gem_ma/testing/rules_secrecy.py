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

from gem_ma.scenario import Scenario
from gem_ma.testing.calls import remembering
from gem_ma.testing.kit import PLAY_S, Failed, Kit, TooSlow, differing, time_limit
from gem_ma.testing.players import PLAYERS
from gem_ma.testing.view_play import Factory, make_view, reset_to

DEALS, PAIRS = 400, 6


def secrecy(kit: Kit) -> None:
    """Deals and private fields."""
    deal = kit.scenario.deal
    # the base class's own hides nothing; a test may put a plain function in its place
    declared = getattr(deal, "__func__", None) is not Scenario.deal
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
            given = deal(random.Random(seed), task)
            if not isinstance(given, Mapping):
                kit.fail(
                    4, f"deal() gives {{agent: secret}}; got {type(given).__name__}", seed=seed
                )
                return
            deals.setdefault(repr(sorted(given.items(), key=str)), (seed, given))
    if not any(agent in given for _, given in deals.values()):
        return
    groups: dict[str, list[tuple[int, Any]]] = {}
    for seed, given in deals.values():
        groups.setdefault(
            repr(sorted(((k, v) for k, v in given.items() if k != agent), key=str)), []
        ).append((seed, given))
    pairs = [
        pair
        for group in groups.values()
        for pair in itertools.islice(itertools.combinations(group, 2), 3)
    ]
    if not pairs:
        kit.skip(4, f"no two of {DEALS} deals differ only in the secret of {agent}")
        return
    random.Random(0).shuffle(pairs)
    for (seed, one), (_, other) in sorted(pairs[: PAIRS * 2], key=lambda pair: pair[0][0])[:PAIRS]:
        try:
            memory: dict[Any, Any] = {}
            scenarios = [
                remembering(_dealing(kit.scenario, deal, given), memory) for given in (one, other)
            ]
        except TypeError:
            kit.skip(
                4,
                "the scenario object takes no further attributes, so its deals could not be"
                " exchanged",
            )
            return
        kit.swapped.setdefault(agent, (scenarios, (task, task), seed))
        for player in ("first", "random", "last", "mixed"):
            try:
                _alike(kit, scenarios, (task, task), agent, seed, player)
            except Failed:
                continue


def _dealing(scenario: Scenario, deal: Any, given: Any) -> Scenario:
    def dealt(rng: random.Random, task: Any) -> Any:
        deal(rng, task)  # the same draws, whatever is dealt
        return copy.deepcopy(given)

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
    others = [agent for agent in kit.agents if agent != owner]
    reveals = kit.scenario.reveals_after
    one, two = games
    while (
        one.pending
        and two.pending
        and one.step < kit.cap
        and (reveals is None or one.step < reveals)
    ):
        for agent in others:
            if one.view(agent) != two.view(agent):
                left, right = (
                    next(m.text for m, n in _unequal(a.view(agent), b.view(agent)))
                    for a, b in (games, games[::-1])
                )
                message = (
                    f"nobody sees another's secret; {agent} is shown {left[:100]!r} or"
                    f" {right[:100]!r}, by the secret of {owner}"
                )
                kit.fail(
                    4, message, agent=agent, step=one.step, seed=seed, key=("shown", agent, owner)
                )
                return
        if list(one.pending) != list(two.pending):
            message = (
                f"nobody sees another's secret; who is asked ({', '.join(one.pending)} or"
                f" {', '.join(two.pending)}) depends on that of {owner}"
            )
            kit.fail(4, message, agent=owner, step=one.step, seed=seed, key=("asked", owner))
            return
        said = {}
        for agent, asked in one.pending.items():
            legal, twin = asked.legal, two.pending[agent]
            if agent != owner and (
                legal != twin.legal
                or [tool.name for tool in asked.tools] != [tool.name for tool in twin.tools]
            ):
                message = (
                    f"nobody sees another's secret; what {agent} may do ({legal} or {twin.legal})"
                    f" depends on that of {owner}"
                )
                kit.fail(
                    4, message, agent=agent, step=one.step, seed=seed, key=("legal", agent, owner)
                )
                return
            if agent == owner and legal is not None:
                legal = tuple(choice for choice in legal if choice in (twin.legal or ()))
                if not legal:
                    return
            said[agent] = PLAYERS[player](legal, asked.tools, streams[agent], one.step)
        for game in games:
            kit.send(game, said, "the same play with another secret")
    for game in games:
        with kit.guarded("closing the play", seed=seed, rule=6):
            game.close()


def in_views(kit: Kit, factories: Mapping[str, Factory]) -> None:
    """The same pairs of plays through the AEC and the Parallel view: neither observations nor
    infos of the others depend on the secret."""
    for owner, (scenarios, tasks, seed) in kit.swapped.items():
        for name in ("AEC", "Parallel"):
            if not kit.hung and not any(finding.rule == 4 for finding in kit.findings.values()):
                # what raises has been found by the plays before
                with contextlib.suppress(Exception, TooSlow), time_limit(PLAY_S):
                    envs = [
                        make_view(factories[name], scenario, max_steps=kit.cap)
                        for scenario in scenarios
                    ]
                    _views_alike(kit, name, envs, tasks, owner, seed)


def _views_alike(
    kit: Kit, name: str, envs: list[Any], tasks: tuple[Any, Any], owner: str, seed: int
) -> None:
    aec = name == "AEC"
    streams = {agent: random.Random(f"{seed}/{agent}/secrecy") for agent in kit.agents}
    given = [reset_to(kit, env, seed, task) for env, task in zip(envs, tasks, strict=True)]
    reveals = kit.scenario.reveals_after
    while all(env.agents for env in envs):
        infos = [env.infos if aec else shown[1] for env, shown in zip(envs, given, strict=True)]
        one, two = infos
        step, active = one[owner].get("step", 0), one[owner].get("active_agents", ())
        if reveals is not None and step >= reveals:
            return
        for agent in envs[0].agents:
            seen = [
                env.observe(agent) if aec else shown[0][agent]
                for env, shown in zip(envs, given, strict=True)
            ]
            if agent != owner and (seen[0] != seen[1] or one[agent] != two[agent]):
                differ = [
                    key
                    for key in {**one[agent], **two[agent]}
                    if one[agent].get(key) != two[agent].get(key)
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
        if active != two[owner].get("active_agents", ()):
            return
        said = {}
        for agent in [envs[0].agent_selection] if aec else active:
            mask = one[agent].get("action_mask")
            if agent == owner and mask is not None:
                mask = tuple(
                    choice for choice in mask if choice in two[agent].get("action_mask", ())
                )
                if not mask:
                    return
            said[agent] = PLAYERS["random"](mask, (), streams[agent], step)
        given = [env.step(*said.values()) if aec else env.step(dict(said)) for env in envs]
        given = [shown if aec else (shown[0], shown[4]) for shown in given]
        over = [
            (
                {**env.terminations, **env.truncations}
                if aec
                else dict.fromkeys(set(kit.agents) - set(env.agents), True)
            )
            for env in envs
        ]
        if any(any(flags.values()) for flags in over):
            return  # the outcome is not compared


def _unequal(left: Any, right: Any) -> Any:
    nothing = left[-1:] or right[-1:]
    return [
        (m, n) for m, n in itertools.zip_longest(left, right, fillvalue=nothing[0]) if m != n
    ] or [(nothing[0], nothing[0])]


def _private(kit: Kit, private: Mapping[str, Any]) -> None:
    if len(kit.tasks) < 2:
        kit.skip(4, "fewer than two tasks: their private fields could not be exchanged")
        return
    one, other = kit.tasks[0], kit.tasks[1]
    for agent, fields in private.items():
        swapped = _with_fields(one, other, (fields,) if isinstance(fields, str) else tuple(fields))
        if swapped is None:
            kit.skip(4, f"tasks of type {type(one).__name__} have no fields to exchange")
            continue
        kit.swapped.setdefault(agent, ([kit.played, kit.played], (one, swapped), kit.seeds[0]))
        for seed in kit.seeds[:3]:
            for player in ("first", "random"):
                try:
                    _alike(kit, [kit.played, kit.played], (one, swapped), agent, seed, player)
                except Failed:
                    continue


def _with_fields(task: Any, other: Any, fields: tuple[str, ...]) -> Any:
    if isinstance(task, Mapping) and isinstance(other, Mapping):
        return {**task, **{name: copy.deepcopy(other[name]) for name in fields if name in other}}
    if dataclasses.is_dataclass(task) and not isinstance(task, type):
        return dataclasses.replace(
            task, **{name: copy.deepcopy(getattr(other, name)) for name in fields}
        )
    return None
