"""The training loop: play, credit, estimate, update, publish, record. One loop for one learner or
many; it knows no algorithm by name.

Everything of a step is a function of (config, step, weights), so a run that was killed goes on
from its last checkpoint and ends with the same weights, episodes and metrics, bit for bit. Wall
times are in `timings.jsonl`, apart from `metrics.jsonl`, because they differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gem_ma.engines.base import Policy
from gem_ma.engines.table import Table
from gem_ma.errors import ConfigError, EngineError, StoreError
from gem_ma.estimators import estimator
from gem_ma.files import place
from gem_ma.plans import budget_of, open_policies, scenario_of
from gem_ma.scenario import Scenario
from gem_ma.settings import Config, TrainSettings
from gem_ma.store import RunFolder, read_summary
from gem_ma.store.summaries import check_training
from gem_ma.tracking import Tracker, Tracking
from gem_ma.training.alternation import learning, settings_of
from gem_ma.training.averaging import Averages, as_table
from gem_ma.training.checkpoint import read_checkpoint
from gem_ma.training.checks import checked
from gem_ma.training.collapse import ADVICE
from gem_ma.training.critic import Critic, TableCritic, TorchCritic
from gem_ma.training.discounts import check_discounts
from gem_ma.training.exams import exam, measures
from gem_ma.training.forking import cost, grow
from gem_ma.training.guard import Guard
from gem_ma.training.league import League
from gem_ma.training.learner import Learner, TorchLearner
from gem_ma.training.measured import tokens_of
from gem_ma.training.overlap import Played, beside
from gem_ma.training.phases import Phases
from gem_ma.training.processes import ALONE, PLAYERS, SOLO, Team, Teams
from gem_ma.training.run import Run, newest
from gem_ma.training.schedule import demonstrations, play_all, training_plans
from gem_ma.training.table_learner import TableLearner
from gem_ma.training.taught import Taught, cut_note
from gem_ma.training.updates import Lesson, Updates

OnStep = Callable[[int, dict[str, Any]], None]
# the keys of summary.json
SUMMARY = ("steps", "learned", "before", "after", "changed", "unchanged", "weights")


def run_training(
    config: Config,
    folder: RunFolder | None = None,
    *,
    base: Path | None = None,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Opens the scenario and the policies of a config (paths from `base`) and trains; see
    `train`. `folder` None keeps no record."""
    policies = open_policies(config, base=base)
    return asyncio.run(
        train(config, scenario_of(config, base=base), policies, folder, on_step=on_step)
    )


async def train(
    config: Config,
    scenario: Scenario,
    policies: Mapping[str, Policy],
    folder: RunFolder | None,
    *,
    on_step: OnStep | None = None,
    on_note: Callable[[str], None] | None = None,
    watchers: Mapping[str, Tracker] | None = None,
    teams: Teams = ALONE,
) -> dict[str, Any]:
    """Trains `config.train.policies` and gives the summary, which is also summary.json: scores
    before and after, sampled and greedy.

    `on_step(step, metrics)` is called after every step, `on_note(line)` for each damaged
    checkpoint that was passed over and for what forks cost. Where the folder holds a checkpoint,
    goes on from it. Raises ConfigError for a policy that cannot learn, EngineError where all
    episodes of a step failed or a publication does not pass its parity check. Of several
    processes (`teams`) all call this with the same config, and the first one alone has a folder.
    `watchers` get every row of numbers, beside the trackers that `train.log` names; their faults
    cost the run nothing.
    """
    settings = checked(config, policies)
    with Tracking(
        folder,
        settings.log,
        watchers=watchers,
        settings=config.model_dump(mode="json"),
        on_note=on_note,
    ) as tracking:
        sharing = PLAYERS.set(teams.play)
        try:
            return await _train(
                config,
                settings,
                scenario,
                policies,
                folder,
                tracking,
                teams,
                on_step=on_step,
                on_note=on_note,
            )
        finally:
            PLAYERS.reset(sharing)


async def _train(
    config: Config,
    settings: TrainSettings,
    scenario: Scenario,
    policies: Mapping[str, Policy],
    folder: RunFolder | None,
    tracking: Tracking,
    teams: Teams,
    *,
    on_step: OnStep | None,
    on_note: Callable[[str], None] | None,
) -> dict[str, Any]:
    check_discounts(config, settings, scenario)
    check_processes(config, teams.play.size, policies)
    learning_ones = dict.fromkeys((*settings.policies, *settings.warm_start))
    learners = {
        name: open_learner(policies[name], apart=settings.overlap, team=teams.learn)
        for name in learning_ones
    }
    critical = [
        name
        for name in settings.policies
        if estimator(settings_of(settings, name).estimator.name).critic
    ]
    critics = {name: open_critic(policies[name]) for name in critical}
    found, notes = newest(folder, config, settings)
    # where nothing learns, only the exams are held
    total = settings.steps if settings.policies else 0
    ended = (
        _summary(folder)
        if folder is not None and found is not None and found.step == total
        else None
    )
    shared = teams.play.agree(
        {
            "root": str(folder.path.absolute()) if folder is not None else None,
            "checkpoint": str(found.path.absolute()) if found is not None else None,
            "ended": ended is not None,
        }
    )
    if not teams.play.first and shared["checkpoint"] is not None:
        found = read_checkpoint(Path(shared["checkpoint"]))
    root = Path(shared["root"]) if shared["root"] is not None else None
    league = League(config, settings, policies, root, writes=teams.play.first or root is None)
    guard = Guard(config, settings, scenario, learners, league)
    averages = Averages(config, scenario, learners)
    run = Run(
        learners,
        critics,
        {name: {} for name in settings.policies},
        league,
        guard,
        averages,
        Taught(config, settings.policies),
    )
    updates = Updates(config, settings, scenario, learners, critics, run.states, guard)

    async def examine(step: int) -> dict[str, Any]:
        """Holds an exam, logs it, and lets the detectors see it."""
        scores = await exam(config, scenario, policies, learners, averages)
        _log(tracking, {"kind": "evaluation", "step": step, **scores})
        _log(tracking, league.standing(step) if step else {})
        guard.after_exam(scores, step)
        return scores

    if on_note is not None:
        for note in (*notes, *([said] if (said := cost(settings)) else [])):
            on_note(note)
        if teams.play.size > 1:
            on_note(f"{teams.play.size} processes train as one")
    if shared["ended"]:
        return ended or {}
    step, first, ahead = run.resume(folder, found)
    tracking.start(step)
    if first is None:
        for name, warm in settings.warm_start.items():
            learners[name].clone(await demonstrations(config, scenario, policies, name, warm), warm)
            learners[name].publish()
        averages.take(settings.policies)
        first = {"scores": await examine(0), "weights": fingerprints(policies)}
        league.snapshot(0)
        guard.settle(0)
        run.save(folder, 0, first, None, settings)

    drawn_as_configured = {name: replace(policies[name], learns=True) for name in settings.policies}

    async def play(step: int) -> Played:
        """The plays of a step and their branches, with what is published now."""
        plans = training_plans(
            config, settings, scenario, step, league.opponents(step, learning(settings, step))
        )
        teams.play.agree(None)  # what process 0 wrote of the pool is there
        players = {**policies, **drawn_as_configured, **league.opened(plans)}
        plays = await play_all(config, plans, players)
        if settings.fork is None:
            return Played(step, tuple(plays))
        grown = await grow(config, settings, step, plans, plays, players)
        return Played(step, tuple(plays), grown.episodes, grown.metrics)

    blind = [
        name
        for name in settings.policies
        if name not in critics and settings_of(settings, name).credit.truncated == "zero"
    ]
    warned = set[str]()
    while step < total:
        phases = Phases()
        played = ahead if ahead is not None else await play(step)  # 1 play
        ahead, episodes = None, played.episodes
        phases.lap("play")
        league.note(played.plays)
        metrics: dict[str, Any] = {
            "kind": "train",
            "step": step + 1,
            **measures(played.plays, scenario),
            "policies": {},
        }
        if on_note is not None and (cut := cut_note(step + 1, played.plays, blind)):
            on_note(cut)
            blind = []  # once is enough
        if played.forks is not None:
            metrics["forks"] = played.forks
        lessons = updates.prepare(played, learning(settings, step))  # 2 credit
        if on_note is not None:
            for line in (
                lesson.warning
                for lesson in lessons
                if lesson.warning and lesson.policy not in warned
            ):
                on_note(f"step {step + 1}, {line}")
            warned |= {lesson.policy for lesson in lessons if lesson.warning}
        phases.lap("credit")

        def teach(lessons: Sequence[Lesson] = lessons, phases: Phases = phases) -> dict[str, Any]:
            return {lesson.policy: updates.teach(lesson, phases) for lesson in lessons}

        if settings.overlap and step + 1 < total:
            metrics["policies"], ahead = await beside(teach, play(step + 1))
        else:
            # 3 update: all learn from the same recorded batch, then all publish
            metrics["policies"] = teach()
        for name, measured in metrics["policies"].items():
            run.taught.note(name, episodes, measured)
        if on_note is not None and step == 0:  # many steps may follow
            for line in run.taught.speechless():
                on_note(f"step 1: so far {line}")
        now = [lesson.policy for lesson in lessons if not lesson.stale]
        for lesson in lessons:
            told = learners[lesson.policy].publish() if not lesson.stale else {}
            # 4 weights
            metrics["policies"][lesson.policy] |= {
                **told,
                "version": learners[lesson.policy].version,
            }
        averages.take(now)
        for name, measured in guard.after_update(
            episodes, metrics["return"], list(metrics["policies"])
        ).items():
            metrics["policies"][name] |= measured
        phases.lap("publish")
        step += 1
        if folder is not None:  # 5 record
            folder.append(episodes)
        _log(tracking, metrics)
        if config.evaluate.every and step % config.evaluate.every == 0 and step < total:
            await examine(step)
        alarms = guard.settle(step)
        if ahead is not None and (back := [alarm for alarm in alarms if "rolled_back_to" in alarm]):
            for alarm in back:  # they were played with the weights that are gone
                alarm["discarded"] = len(ahead.episodes)
            ahead = None
        _warn(tracking, alarms, on_note)
        league.snapshot(step)
        if step % settings.save_every == 0 or step == total:
            teams.play.same(lambda: fingerprints(policies), "the weights")
            run.save(folder, step, first, ahead, settings)
        phases.lap("record")
        learned = sum(metrics["policies"][name].get("tokens", 0) for name in now)
        padding = {
            name: share
            for name in now
            if (share := getattr(learners[name], "padding", None)) is not None
        }
        tracking.time(
            {
                **phases.row(tokens_of(episodes), learned),
                **({"padding": padding} if padding else {}),
            },
            step,
        )
        if on_step is not None:
            on_step(step, metrics)
    scores = await examine(step)
    _warn(tracking, guard.settle(step, last=True), on_note)
    league.close()
    after = fingerprints(policies)
    changed = [name for name, digest in after.items() if digest != first["weights"].get(name)]
    moved = [name for name in changed if name not in settings.policies]
    if moved:
        raise EngineError(
            f"the weights of {', '.join(moved)} changed although only"
            f" {', '.join(settings.policies) or 'none'} learn"
        )
    summary = {
        "steps": step,
        "learned": list(settings.policies),
        "before": first["scores"],
        "after": scores,
        "changed": changed,
    }
    summary |= {"unchanged": [name for name in after if name not in changed], "weights": after}
    if league.active:
        summary["league"] = league.standing(step)
    if nothing := run.taught.nothing():
        summary["learned_nothing"] = nothing
    if guard.told:
        summary["alarms"] = guard.told
    if folder is not None:
        summary["models"] = {name: _export(folder, name, policies[name].core) for name in learners}
        means = {
            name: learner.average()
            for name, learner in learners.items()
            if isinstance(learner, TableLearner)
        }
        means |= {
            name: as_table(mixture, name)
            for name, mixture in averages.mixtures.items()
            if mixture.size
        }
        summary["averaged"] = {
            name: _export(folder, f"{name}.averaged", mean) for name, mean in means.items()
        }
        folder.write_summary(summary)
    return summary


def open_learner(policy: Policy, *, apart: bool = False, team: Team = SOLO) -> Learner:
    """The learner that fits the policy's engine; `apart`: with weights of its own, so that the
    engine may be sampled from while it learns.

    Raises ConfigError where it has none.
    """
    engine = policy.core
    if not getattr(engine, "trainable", False):
        raise ConfigError(
            f"policy {policy.name!r} cannot learn: its engine {type(engine).__name__} is not"
            " trainable"
        )
    if isinstance(engine, Table):
        return TableLearner(engine, policy.sampling)
    if hasattr(engine, "trained"):  # it samples elsewhere
        learner = TorchLearner(engine.trained(), policy.sampling, sampler=engine)
        engine.begin(learner.parameters)
        learner.check()  # what is served is what will be trained
    else:
        learner = (
            TorchLearner(engine.twin(), policy.sampling, sampler=engine)
            if apart
            else TorchLearner(engine, policy.sampling)
        )
    learner.scorer.team = team
    return learner


def check_processes(config: Config, processes: int, policies: Mapping[str, Policy]) -> None:
    """Raises ConfigError for what several processes cannot share."""
    if processes == 1:
        return
    if budget_of(config) is not None:
        raise ConfigError(
            f"limits: each of {processes} processes would spend them on its own; train with one"
            " process, or take limits away"
        )
    learned = config.train.policies if config.train is not None else []
    for name in learned:
        if hasattr(policies[name].core, "trained"):
            raise ConfigError(
                f"policies.{name}: only one process can publish to where it is sampled; train with"
                " one process, or sample it in process"
            )


def open_critic(policy: Policy) -> Critic:
    """The critic that fits the policy's engine."""
    engine = policy.core
    return (
        TableCritic()
        if isinstance(engine, Table)
        else TorchCritic(engine.trained() if hasattr(engine, "trained") else engine)
    )


def _export(folder: RunFolder, name: str, engine: Any) -> dict[str, str]:
    """Writes the weights as a model that any run can name as `<engine>/<run folder>/<path>`;
    gives engine and path."""
    path = Path("models", name)
    place(folder.path / path, folder.path, engine.save)
    return {"engine": getattr(engine, "exports", engine.kind), "path": str(path)}


def fingerprints(policies: Mapping[str, Policy]) -> dict[str, str]:
    """SHA-256 of the weights of every policy whose engine holds weights."""
    engines = {name: policy.core for name, policy in policies.items()}
    return {
        name: engine.fingerprint()
        for name, engine in engines.items()
        if hasattr(engine, "fingerprint")
    }


def _summary(folder: RunFolder) -> dict[str, Any] | None:
    """What a training that has ended wrote; None where that is missing or damaged, so that it is
    made again."""
    try:
        found = read_summary(folder.path, SUMMARY)
        return None if found is None else check_training(found, folder.path / "summary.json")
    except StoreError:
        return None


def _log(tracking: Tracking, values: Mapping[str, Any]) -> None:
    if values:
        tracking.log(values, values["step"])


def _warn(
    tracking: Tracking, alarms: Sequence[Mapping[str, Any]], on_note: Callable[[str], None] | None
) -> None:
    """Alarms as lines of the record and as notes to the user."""
    for alarm in alarms:
        _log(tracking, alarm)
        if on_note is not None:
            back = (
                f"; back to the weights of step {alarm['rolled_back_to']} at half the learning rate"
                if "rolled_back_to" in alarm
                else ""
            )
            mixed = (
                "; half of its games against itself go to the pool" if "mixed_pool" in alarm else ""
            )
            advice = ADVICE.get(alarm["signal"], "").format(policy=alarm["policy"])
            try_this = f"; try: {advice}" if advice and not back and not mixed else ""
            on_note(
                f"step {alarm['step']}, policy {alarm['policy']}:"
                f" {alarm['text']}{back}{mixed}{try_this}"
            )
