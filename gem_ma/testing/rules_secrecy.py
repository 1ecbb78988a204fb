"""Rule 4: two plays that differ only in what is hidden look the same to all who do not hold it,
while the actions are the same.

Declared hidden: what `deal(rng, task)` gives each agent, and the task's fields in `private =
{agent: (field, ...)}`. Two deals are set beside each other, for each agent that holds a secret:

- two of many that differ in its secret alone;
- where there are none, and the secrets of every deal are the same ones in another order (roles,
  cards of a small deck): a deal, and the same one with its secret and another agent's exchanged.
  Who took over a secret acts as the one who held it, wherever the two may do different things;
- else a deal, and the same one with its secret from another deal, or from another task where every
  deal of a task gives the same.

What a play reveals on its way it says itself: `Tell(..., reveals=(owner,))` to these hearers,
`reveals_after` = decision points after which nothing is secret any more. The last outcome is not
compared.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import random
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gem_ma.kernel.effects import Ask, Effect, Scenario, Tell
from gem_ma.testing.calls import remembering
from gem_ma.testing.clock import TooSlow, time_limit
from gem_ma.testing.kit import PLAY_S, Failed, Kit, differing
from gem_ma.testing.play_environments import Factory, make_environment, reset_to
from gem_ma.testing.players import PLAYERS
from gem_ma.wrappers.around import Around, layers_of, relay

DEALS = 400
PAIRS = 6  # of an agent
MOST_PAIRS = 48  # of all agents


def secrecy(kit: Kit) -> None:
    """Deals and private fields."""
    deal = kit.scenario.deal
    # the base class's own hides nothing; a test may put a plain function in its place
    own = (Scenario.deal, Around.deal)  # a wrapper may deal too
    declared = any(getattr(x.deal, "__func__", None) not in own for x in layers_of(kit.scenario))
    if declared:
        _dealt(kit, deal)
    private = kit.scenario.private
    if private:
        _private(kit, private)
    if not declared and not private:
        kit.skip(4, "the scenario declares no hidden information: it has no deal(rng, task)")


class Pair(NamedTuple):
    """Two plays that differ in what these owners hold, and nothing else."""

    scenarios: list[Scenario]
    tasks: tuple[Any, Any]
    seed: int
    owners: tuple[str, ...]
    # of each of the two: (hearer, owner) as they were revealed in its latest play
    revealed: tuple[set[tuple[str, str]], set[tuple[str, str]]]

    def unaware(self, agents: Iterable[str]) -> list[str]:
        """Those who may not tell the two plays apart."""
        told = self.revealed[0] | self.revealed[1]
        return [
            agent
            for agent in agents
            if agent not in self.owners and not any((agent, owner) in told for owner in self.owners)
        ]


def _dealt(kit: Kit, deal: Any) -> None:
    deals: dict[str, tuple[int, dict[str, Any]]] = {}
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
            deals.setdefault(repr(sorted(secrets.items(), key=str)), (seed, dict(secrets)))
    _drawn_first(kit, deal, task)
    if not any(secrets for _, secrets in deals.values()):
        kit.skip(4, f"{DEALS} deals hide nothing")
    for agent in kit.agents:
        pairs = _pairs(list(deals.values()), agent) or _lent(kit, deal, deals.values(), agent)
        if not pairs:
            if any(agent in secrets for _, secrets in deals.values()):
                kit.skip(4, f"{DEALS} deals give {agent} one secret, which could not be exchanged")
            continue
        # of many agents each is tested, with fewer pairs
        for seed, first, other in pairs[: max(1, MOST_PAIRS // len(kit.agents))]:
            pair = _pair(kit, deal, (first, other), (task, task), seed)
            if pair is None:
                return
            # one pair is enough for the environments: what the kernel shows was looked at with all
            # of them; where two owners change places, the kernel alone is looked at
            if len(pair.owners) == 1:
                kit.swapped.setdefault(agent, pair)
            for player in ("first", "random", "last", "mixed"):
                with contextlib.suppress(Failed):
                    _alike(kit, pair, player)


def _drawn_first(kit: Kit, deal: Any, task: Any) -> None:
    """A play deals once, and before it draws: `gem_ma.dealt` finds its secrets in this way."""
    seed = kit.seeds[0]
    states: list[Any] = []

    def noted(rng: random.Random, task: Any) -> Any:
        states.append(rng.getstate())
        return deal(rng, task)

    try:
        game = kit.start(seed, scenario=differing(kit.scenario, deal=noted), task=task)
    except (Failed, TypeError):
        return
    kit.close(game)
    if states != [random.Random(seed).getstate()]:
        what = f"deals {len(states)} times" if len(states) != 1 else "draws before it deals"
        kit.fail(4, f"play() deals once, before it draws anything else; it {what}", seed=seed)


def _pairs(
    deals: list[tuple[int, dict[str, Any]]], agent: str
) -> list[tuple[int, dict[str, Any], dict[str, Any]]]:
    """(seed, a deal, one that differs in the secret of `agent`); the smallest seeds first, since
    a finding names the smallest."""
    drawn = random.Random(0)
    held = [(seed, secrets) for seed, secrets in deals if agent in secrets]
    groups: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for seed, secrets in deals:
        groups.setdefault(_text({k: v for k, v in secrets.items() if k != agent}), []).append(
            (seed, secrets)
        )
    pairs = [
        (seed, first, other)
        for group in groups.values()
        for (seed, first), (_, other) in itertools.islice(itertools.combinations(group, 2), 3)
        if agent in first or agent in other
    ]
    if not pairs and len({tuple(sorted(map(repr, each.values()))) for _, each in deals}) == 1:
        for seed, secrets in held[: PAIRS * 2]:
            others = [x for x in secrets if repr(secrets[x]) != repr(secrets[agent])]
            if others:
                mate = drawn.choice(others)
                pairs.append(
                    (seed, secrets, {**secrets, agent: secrets[mate], mate: secrets[agent]})
                )
    elif not pairs:
        for (seed, secrets), (_, other) in itertools.pairwise(held):
            if repr(secrets[agent]) != repr(other[agent]):
                pairs.append((seed, secrets, {**secrets, agent: other[agent]}))
    drawn.shuffle(pairs)  # some of all kinds
    return sorted(pairs[: PAIRS * 2], key=lambda pair: pair[0])[:PAIRS]


def _lent(
    kit: Kit, deal: Any, deals: Iterable[tuple[int, dict[str, Any]]], agent: str
) -> list[tuple[int, dict[str, Any], dict[str, Any]]]:
    """The same, where the task says the secret: in its place the one of another task."""
    pairs = []
    for seed, secrets in itertools.islice(deals, PAIRS):
        for task in kit.tasks[1:] if agent in secrets else ():
            lent = deal(random.Random(seed), task).get(agent)
            if repr(lent) != repr(secrets[agent]):
                pairs.append((seed, secrets, {**secrets, agent: lent}))
    return pairs[:PAIRS]


def _text(secrets: Mapping[str, Any]) -> str:
    return repr(sorted(secrets.items(), key=str))


def _pair(
    kit: Kit, deal: Any, deals: tuple[dict[str, Any], dict[str, Any]], tasks: Any, seed: int
) -> Pair | None:
    """The two plays of two deals; None, noted, where the scenario cannot be given deals."""
    first, other = deals
    owners = tuple(x for x in {**first, **other} if repr(first.get(x)) != repr(other.get(x)))
    revealed: tuple[set[tuple[str, str]], set[tuple[str, str]]] = (set(), set())
    memory: dict[Any, Any] = {}
    try:
        scenarios = [
            _revealing(remembering(_dealing(kit.scenario, deal, secrets), memory), told)
            for secrets, told in zip(deals, revealed, strict=True)
        ]
    except TypeError:
        kit.skip(
            4,
            "the scenario object takes no further attributes, so its deals could not be exchanged",
        )
        return None
    return Pair(scenarios, tasks, seed, owners, revealed)


def _dealing(scenario: Scenario, deal: Any, secrets: Any) -> Scenario:
    def dealt(rng: random.Random, task: Any) -> Any:
        deal(rng, task)  # the same draws, whatever is dealt
        # a play may edit its hands
        return copy.deepcopy(secrets)

    return differing(scenario, deal=dealt)


def _revealing(scenario: Scenario, told: set[tuple[str, str]]) -> Scenario:
    """The scenario, which notes in `told` who was told whose secret in its latest play."""
    play = scenario.play

    def handle(effect: Effect) -> Any:
        if isinstance(effect, (Ask, Tell)) and effect.reveals:
            told.update(itertools.product(effect.to, effect.reveals))
        return (yield effect)

    def noting(rng: random.Random, task: Any) -> Any:
        told.clear()
        inner = play(rng, task)
        # a `play` that is not a generator goes through as it is, so that the kernel names the fault
        return relay(inner, handle) if hasattr(inner, "send") else inner

    return differing(scenario, play=noting)


def _alike(kit: Kit, pair: Pair, player: str) -> None:
    """Both plays in step: owners play what is legal in both, the others see and may do the same."""
    seed = pair.seed
    games = [
        kit.start(seed, scenario=scenario, task=task)
        for scenario, task in zip(pair.scenarios, pair.tasks, strict=True)
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
        if not pair.unaware(kit.agents) or _told_apart(kit, pair, first, second):
            break
        acts = _acts(pair, first, second, player, streams)
        if acts is None:
            break
        for game, actions in zip(games, acts, strict=True):
            kit.send(game, actions, "the same play with another secret")
    for game in games:
        kit.close(game)


def _acts(
    pair: Pair, first: Any, second: Any, player: str, streams: Mapping[str, random.Random]
) -> tuple[dict[str, str], dict[str, str]] | None:
    """What is done in either play; None where the two cannot go on alike."""
    if set(first.pending) != set(second.pending):
        return None
    places = {agent: agent for agent in first.pending}
    asked = [agent for agent in pair.owners if agent in places]
    if len(asked) == 2 and any(
        first.pending[agent].legal != second.pending[agent].legal for agent in asked
    ):
        places[asked[0]], places[asked[1]] = asked[1], asked[0]
    acts: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for agent, twin in places.items():
        legal = first.pending[agent].legal
        if legal is not None:
            # what only one of the two may do would tell them apart by itself
            others = second.pending[twin].legal or ()
            legal = tuple(choice for choice in legal if choice in others)
            if not legal:
                return None
        tools = first.pending[agent].tools
        said = PLAYERS[player](legal, tools, streams[agent], first.step)
        acts[0][agent] = said
        acts[1][twin] = said
    return acts


def _told_apart(kit: Kit, pair: Pair, first: Any, second: Any) -> bool:
    """Whether anybody who should not sees, at the open step, which of the two plays it is in: by
    what is shown, by who is asked, or by what may be done. It is a finding."""
    owner = " and ".join(pair.owners)

    def fail(message: str, agent: str, key: tuple[str, ...]) -> bool:
        words = f"nobody sees another's secret; {message}"
        kit.fail(4, words, agent=agent, step=first.step, seed=pair.seed, key=key)
        return True

    unaware = pair.unaware(kit.agents)
    for agent in unaware:
        if first.view(agent) != second.view(agent):
            left, right = (
                next(m for m, _ in _unequal(a.view(agent), b.view(agent)))
                for a, b in ((first, second), (second, first))
            )
            shown = [left.text[:100], right.text[:100]]
            if shown[0] == shown[1]:  # the sender differs, or what lies beyond
                shown = [f"{m.sender}: {m.text[-100:]}" for m in (left, right)]
            message = f"{agent} is shown {shown[0]!r} or {shown[1]!r}, by the secret of {owner}"
            return fail(message, agent, ("shown", agent, owner))
    # an order of asking that follows a hand tells it as well as a text does
    if list(first.pending) != list(second.pending):
        message = (
            f"who is asked ({', '.join(first.pending)} or {', '.join(second.pending)}) depends on"
            f" that of {owner}"
        )
        return fail(message, pair.owners[0], ("asked", owner))
    for agent, asked in first.pending.items():
        twin = second.pending[agent]
        tools, others = ([tool.name for tool in ask.tools] for ask in (asked, twin))
        if agent in unaware and (asked.legal != twin.legal or tools != others):
            message = (
                f"what {agent} may do ({asked.legal} or {twin.legal}) depends on that of {owner}"
            )
            return fail(message, agent, ("legal", agent, owner))
    return False


def in_environments(kit: Kit, factories: Mapping[str, Factory]) -> None:
    """The same pairs of plays through the AEC and the Parallel environment: neither observations
    nor infos of the others depend on the secret."""
    for pair in kit.swapped.values():
        for name in ("AEC", "Parallel"):
            if not kit.hung and not any(finding.rule == 4 for finding in kit.findings.values()):
                # what raises has been found by the plays before
                with contextlib.suppress(Exception, TooSlow), time_limit(PLAY_S):
                    envs = [
                        make_environment(factories[name], scenario, max_steps=kit.cap)
                        for scenario in pair.scenarios
                    ]
                    _environments_alike(kit, name, envs, pair)


def _environments_alike(kit: Kit, name: str, envs: list[Any], pair: Pair) -> None:
    aec = name == "AEC"
    (owner,) = pair.owners
    seed = pair.seed
    streams = {agent: random.Random(f"{seed}/{agent}/secrecy") for agent in kit.agents}
    # of each environment (observations, infos); an AEC environment is asked for them instead
    results = [reset_to(kit, env, seed, task) for env, task in zip(envs, pair.tasks, strict=True)]
    reveals = kit.scenario.reveals_after
    while all(env.agents for env in envs):
        first, second = (
            env.infos if aec else result[1] for env, result in zip(envs, results, strict=True)
        )
        step = first[owner].get("step", 0)
        active = first[owner].get("active_agents", ())
        # nothing is secret any more, by the scenario's own word
        unaware = pair.unaware(envs[0].agents)
        if (reveals is not None and step >= reveals) or not unaware:
            return
        for agent in envs[0].agents:
            left, right = (
                env.observe(agent) if aec else result[0][agent]
                for env, result in zip(envs, results, strict=True)
            )
            if agent in unaware and (left != right or first[agent] != second[agent]):
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
        return any(env.terminations.values()) or any(env.truncations.values())
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
        told: tuple[set[tuple[str, str]], set[tuple[str, str]]] = (set(), set())
        try:
            scenarios = [_revealing(kit.played, each) for each in told]
        except TypeError:
            scenarios = [kit.played, kit.played]
        pair = Pair(scenarios, (task, swapped), kit.seeds[0], (agent,), told)
        kit.swapped.setdefault(agent, pair)
        for seed in kit.seeds[:3]:
            for player in ("first", "random"):
                with contextlib.suppress(Failed):
                    _alike(kit, pair._replace(seed=seed), player)


def _with_fields(task: Any, other: Any, fields: tuple[str, ...]) -> Any:
    if isinstance(task, Mapping) and isinstance(other, Mapping):
        # as a new object: tasks are never edited in place
        return {**task, **{name: copy.deepcopy(other[name]) for name in fields if name in other}}
    if dataclasses.is_dataclass(task) and not isinstance(task, type):
        return dataclasses.replace(
            task, **{name: copy.deepcopy(getattr(other, name)) for name in fields}
        )
    return None
