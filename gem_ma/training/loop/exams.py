"""Scores during training: an exam on seeds that are never trained on, sampled and greedy, in every
world that the config names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import variance
from typing import Any

from gem_ma.config.settings import Config
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Exact
from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario
from gem_ma.registry import task_of
from gem_ma.runs.plans import cast_of, exam_tasks
from gem_ma.runs.worlds import World, Worlds
from gem_ma.scores.exams import exam_cell, scores_in
from gem_ma.scores.exploitability import (
    ScoresTexts,
    Strategy,
    TokenStrategy,
    engine_strategy,
    exploitability,
)
from gem_ma.scores.groups import SUCCESS, interval, verdict_of
from gem_ma.scores.judge import Judge
from gem_ma.scores.stats import best_of_k, pass_at_k
from gem_ma.scores.studies import Cell
from gem_ma.training.loop.local import check_some
from gem_ma.training.loop.measures import mean, measures
from gem_ma.training.loop.roles import KeepsAverage, Players
from gem_ma.training.schedule.plans import anchor_seat, casts, plan_of
from gem_ma.training.selfplay.averaging import Averages, exact
from gem_ma.training.selfplay.signs import PROBES, first_share, private_effect


def exam_plans(
    config: Config, scenario: Scenario, sides: Sequence[Mapping[str, Seat]] = ()
) -> list[Plan]:
    """`evaluate.episodes` plays of the tasks that `scenario:` names, on seeds `evaluate.seed`
    and following, each with all of these casts: by default from each side under `swap`. They lie
    below 2^62, all others above, so no exam can ask what was trained on."""
    tasks = exam_tasks(config, scenario)
    sides = sides or seatings(config)
    # rounded up; the last start may lack a side, so that an exam has exactly `episodes` plays
    starts = range(-(-config.evaluate.episodes // len(sides)))
    plans = []
    for n in starts:
        task = tasks[n % len(tasks)]
        plan = plan_of(config, scenario, cast_of(config), task, config.evaluate.seed + n)
        plans += [replace(plan, cast=cast, repeat=side) for side, cast in enumerate(sides)]
    return plans[: config.evaluate.episodes]


def tried(config: Config, plans: list[Plan]) -> list[Plan]:
    """These plans `evaluate.tries` times over, told apart by `repeat`; luck alone differs, since
    seeds stay."""
    sides = len(seatings(config))
    return [
        replace(plan, repeat=plan.repeat + number * sides)
        for number in range(config.evaluate.tries)
        for plan in plans
    ]


def seatings(config: Config) -> list[dict[str, Seat]]:
    """The casts of an exam: each rotation of the players where they exchange sides and are not
    all the same, else the one of the config."""
    cast = cast_of(config)
    swapped = (
        config.train is not None
        and config.train.seats == "swap"
        and len(set(map(str, cast.values()))) > 1  # among equals each rotation is the same play
    )
    return casts(cast, "swap" if swapped else "fixed", 0, 0)


def tries_of(episodes: Sequence[Episode], scenario: Scenario, tries: int) -> dict[str, Any]:
    """Of several tries of each start: `pass_at`, k -> pass@k, where the scenario knows success;
    `best_of`, agent -> k -> the mean over starts of the best return of k tries. {} of one try.

    k are the powers of two and the most tries that every start has; failed tries are left out.
    """
    if tries == 1:
        return {}
    starts: dict[tuple[object, ...], list[Episode]] = {}
    for episode in episodes:
        if episode.end.scored:
            # who sits where is part of a start: under `swap` the sides are worth different things
            seats = tuple(map(str, episode.cast.values()))
            starts.setdefault((*episode.id[:2], seats), []).append(episode)
    if not starts:
        return {}
    counts = [len(start) for start in starts.values()]
    ks = sorted({1 << n for n in range(min(counts).bit_length())} | {min(counts)})
    numbers: dict[str, Any] = {}
    judged = [
        [verdict_of(scenario.success, episode) for episode in start] for start in starts.values()
    ]
    if all(verdict is not None for verdicts in judged for verdict in verdicts):
        won = [sum(map(bool, verdicts)) for verdicts in judged]
        numbers["pass_at"] = {str(k): pass_at_k(won, counts, k) for k in ks}
    paid = {
        agent: [[episode.returns()[agent] for episode in start] for start in starts.values()]
        for agent in scenario.agents
    }
    numbers["best_of"] = {
        agent: {str(k): best_of_k(returns, k) for k in ks} for agent, returns in paid.items()
    }
    return numbers


async def exam(
    worlds: Worlds,
    players: Players,
    policies: Mapping[str, Policy],
    learners: Mapping[str, Any],
    averages: Averages | None = None,
    cells: dict[str, Cell] | None = None,
) -> dict[str, Any]:
    """Plays `evaluate.episodes` on `evaluate.seed`, ...: `sampled` as configured and `greedy`
    (temperature 0), each as `measures`, with `scores` and `intervals` (`gem_ma.scores.exams`).
    `cells` is filled with what these are made of.

    Adds `against NAME` for every anchor. Where the game is small and zero-sum and all
    probabilities are known, adds the exact `nash_conv` and `exploitability` of the last weights,
    and of their average (`..._averaged`) where a learner or `averages` keeps one; with several
    policies also what each gets, and what its best reply would get.

    Every world has its own exam, and with a name its own keys (`sampled kuhn`); `sampled` and
    `greedy` are of those together that are trained on.
    """
    trained = {world.name for world in worlds.played}
    home = Worlds(tuple(w for w in worlds.examined if w.name in trained), worlds.examined)
    settings = worlds.played[0].config.train
    once = {w.name: exam_plans(w.config, w.scenario) for w in worlds.examined}
    plans = [p for w in worlds.examined for p in w.placing(once[w.name])]
    again = [p for w in worlds.examined for p in w.placing(tried(w.config, once[w.name]))]
    result: dict[str, Any] = {}
    named: dict[str, Any] = {}
    signs: dict[str, float] = {}
    cells = {} if cells is None else cells
    # the same plans twice, but for further tries: what differs is the temperature alone
    for name, temperature, asked in (("sampled", None, again), ("greedy", 0.0, plans)):
        # of all worlds at once: where one of them only fails, the others have their exam
        episodes = check_some(await players.play(asked, temperature=temperature))
        result[name] = _of_all([e for e in episodes if e.world in trained], home)
        for world in worlds.examined:
            tries = world.config.evaluate.tries if temperature is None else 1
            row = tries_of(world.among(episodes), world.scenario, tries)
            cells[world.label(name)] = cell = _cell(world, episodes, temperature == 0)
            row |= scores_in(cell)
            if world.name:
                named[world.label(name)] = measures(world.among(episodes), world.scenario) | row
            else:
                result[name] |= row
        if temperature is None and settings is not None and settings.on_collapse != "off":
            signs = _signs_of(home, policies, learners, episodes)
    # keys after the scores: rows of the record are printed in their order
    result |= named | signs
    for world in home.played:
        against = await _against_anchors(world, players)
        result |= {world.label(key): value for key, value in against.items()}
    for world in worlds.examined:
        scores = _exact(world.config, world.scenario, policies, learners, averages)
        result |= {world.label(key): value for key, value in scores.items()}
    return result


def _of_all(episodes: Sequence[Episode], worlds: Worlds) -> dict[str, Any]:
    """The measures of the worlds together; of several success alone has one unit, and so an
    interval."""
    row = measures(episodes, worlds)
    row.pop("worlds", None)
    if worlds.several:
        bounds = scores_in(exam_cell(episodes, Judge(worlds.success)))["intervals"]
        row["intervals"] = {score: of for score, of in bounds.items() if score == SUCCESS}
    return row


def _cell(world: World, episodes: Sequence[Episode], greedy: bool) -> Cell:
    """The scores of the world's plays, under their names in this world."""
    alone = [replace(episode, world="") for episode in world.among(episodes)]
    return exam_cell(alone, Judge.of(world.scenario), greedy=greedy)


def _signs_of(
    worlds: Worlds,
    policies: Mapping[str, Policy],
    learners: Mapping[str, Any],
    episodes: Sequence[Episode],
) -> dict[str, float]:
    """The signs of each world that is trained on; of an effect also the least of all worlds, which
    the detectors judge."""
    signs: dict[str, float] = {}
    for world in worlds.played:
        found = _signs(world.config, world.scenario, policies, learners, world.among(episodes))
        signs |= {world.label(key): value for key, value in found.items()}
        for key, value in found.items():
            # the share of the first agent is that of one game
            if world.name and key != "first_share":
                signs[key] = min(value, signs.get(key, value))
    return signs


def _signs(
    config: Config,
    scenario: Scenario,
    policies: Mapping[str, Policy],
    learners: Mapping[str, Any],
    episodes: Sequence[Episode],
) -> dict[str, float]:
    """What the collapse detectors want of an exam: `first_share` of mirror play, and, where
    probabilities of legal strings are known, `private_effect NAME` of policies played by `direct`.
    """
    signs: dict[str, float] = {}
    if (
        scenario.zero_sum
        # mirror play: against anybody else a share far from a half is skill, not collapse
        and len({seat.policy or seat.behaviour for seat in config.agents.values()}) == 1
    ):
        share = first_share(episodes)
        signs |= {"first_share": share[0]} if share is not None else {}
    found = effects_of(config, policies, learners, episodes)
    return signs | {f"private_effect {name}": effect for name, effect in found.items()}


def effects(
    worlds: Worlds,
    policies: Mapping[str, Policy],
    learners: Mapping[str, Any],
    episodes: Sequence[Episode],
    probes: int,
) -> dict[str, float]:
    """`private_effect` by policy, the least of all worlds."""
    least: dict[str, float] = {}
    for world in worlds.played:
        found = effects_of(world.config, policies, learners, world.among(episodes), probes)
        least |= {name: min(value, least.get(name, value)) for name, value in found.items()}
    return least


def effects_of(
    config: Config,
    policies: Mapping[str, Policy],
    learners: Mapping[str, Any],
    episodes: Sequence[Episode],
    probes: int = PROBES,
) -> dict[str, float]:
    """`private_effect` by policy, of those whose probabilities are known."""
    by_policy: dict[str, float] = {}
    for name in policies:
        # under `direct` a recorded view is what the model saw; another behaviour rewrites it
        seats = {agent: seat for agent, seat in config.agents.items() if seat.policy == name}
        agents = [a for a, seat in seats.items() if seat.behaviour == "direct" and not seat.memory]
        strategy = _strategy(name, policies, learners) if agents else None
        if strategy is None:
            continue
        scored = (episode for episode in episodes if episode.end.scored)
        played = [e for e in scored if all(e.cast[agent].policy == name for agent in agents)]
        effect = private_effect(strategy, played, agents, probes)
        by_policy |= {name: effect} if effect is not None else {}
    return by_policy


async def _against_anchors(world: World, players: Players) -> dict[str, Any]:
    """`against NAME` for every anchor: each learned seat in turn plays against it on the same
    seeds; return and standard error by policy."""
    config = world.config
    scenario = world.scenario
    train = config.train
    anchors = train.opponents.anchors if train is not None and train.opponents is not None else {}
    taught = train.policies if train is not None else []
    learned = [agent for agent, seat in config.agents.items() if seat.policy in taught]
    result = {}
    for anchor in anchors if learned and len(config.agents) > 1 else ():
        # all other seats are the anchor's, or a second learner would blur the comparison
        sides = [
            {
                a: seat if a == agent else anchor_seat(seat, anchor, config.policies)
                for a, seat in cast_of(config).items()
            }
            for agent in learned
        ]
        plans = exam_plans(config, scenario, sides)
        episodes = check_some(await players.play(list(world.placing(plans))))
        played: dict[str, tuple[list[float], list[Episode]]] = {}
        for episode in episodes:
            if episode.end.scored:
                agent = learned[episode.repeat]  # the seeds are shared, so luck is too
                values, plays = played.setdefault(config.agents[agent].policy or "", ([], []))
                values.append(episode.returns()[agent])
                plays.append(episode)
        paid = {name: values for name, (values, _) in played.items()}
        # by policy: the detectors compare an exam with the best one, and need its error
        spread = {
            name: (variance(values) / len(values)) ** 0.5 if len(values) > 1 else None
            for name, values in paid.items()
        }
        means = {name: mean(values) for name, values in paid.items()}
        row = measures(episodes, scenario) | {"return": means, "standard_error": spread}
        row["intervals"] = {f"return {name}": _bounds(*of) for name, of in played.items()}
        result[f"against {anchor}"] = row
    return result


def _bounds(values: list[float], plays: list[Episode]) -> list[float | None]:
    estimate = interval(values, plays, rate=False)
    return [estimate["low"], estimate["high"]]


def _exact(
    config: Config,
    scenario: Scenario,
    policies: Mapping[str, Policy],
    learners: Mapping[str, Any],
    averages: Averages | None,
) -> dict[str, float]:
    """The exact scores of an exam; {} where the game cannot be listed."""
    if not exact(config, scenario):
        return {}
    owners = {seat.policy or "" for seat in config.agents.values()}
    last = {name: _strategy(name, policies, learners) for name in owners}
    strategies = {name: strategy for name, strategy in last.items() if strategy is not None}
    if len(strategies) < len(owners):
        return {}  # the probabilities of some policy are unknown
    means = {
        name: engine_strategy(learner.average())
        for name in strategies
        if isinstance(learner := learners.get(name), KeepsAverage)
    }
    for name, mixture in averages.mixtures.items() if averages is not None else ():
        if mixture.size:
            means[name] = mixture.strategy()
    casts = [
        {agent: seat.policy or "" for agent, seat in cast.items()} for cast in seatings(config)
    ]
    tasks = [task_of(scenario, task) for task in exam_tasks(config, scenario)]
    try:
        scores = _exploited(scenario, casts, strategies, tasks)
        if means:
            # a policy without an average plays its last weights beside the averages of others
            averaged = _exploited(scenario, casts, {**strategies, **means}, tasks)
            for key in ("nash_conv", "exploitability"):
                scores[f"{key}_averaged"] = averaged[key]
    except ConfigError:  # chance that cannot be listed, or too large a game: no exact score
        return {}
    return scores


def _exploited(
    scenario: Scenario,
    casts: Sequence[Mapping[str, str]],  # agent -> policy, for each way to seat them
    strategies: Mapping[str, Strategy],
    tasks: Sequence[Any],
) -> dict[str, float]:
    """How far these strategies are from an equilibrium: the mean over the ways to seat them."""
    seated = [{agent: strategies[name] for agent, name in cast.items()} for cast in casts]
    results = [exploitability(scenario, each, tasks) for each in seated]
    scores = {
        "nash_conv": _over(result.nash_conv for result in results),
        "exploitability": _over(result.exploitability for result in results),
    }
    owners = sorted({name for cast in casts for name in cast.values()})
    # what a policy gets, and what the best reply to the others would get in its place
    for name in owners if len(owners) > 1 else ():
        pairs = zip(results, casts, strict=True)
        seats = [(result, a) for result, cast in pairs for a in cast if cast[a] == name]
        scores[f"exact_return {name}"] = _over(result.values[agent] for result, agent in seats)
        best = [result.best_responses[agent] for result, agent in seats]
        scores[f"best_return {name}"] = _over(best)
    return scores


def _over(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def _strategy(
    name: str, policies: Mapping[str, Policy], learners: Mapping[str, Any]
) -> Strategy | None:
    """The strategy of a policy, where its probabilities are known."""
    policy = policies.get(name)
    learner = learners.get(name)
    # the engine first: it is what plays, and a table's learner does not know texts
    if policy is not None and isinstance(policy.engine, Exact):
        return engine_strategy(policy.engine, policy.sampling)
    return TokenStrategy(learner) if isinstance(learner, ScoresTexts) else None
