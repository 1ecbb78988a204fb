"""How far an agent of a config lets the others get: it plays with its scenario's examiners,
whose success with it is its ceiling."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from gem_ma.cli.stopping import Interrupted, Stopping
from gem_ma.cli.terminal import Progress, columns, emit, emit_json, progress_line
from gem_ma.config.loading import Loaded
from gem_ma.config.seats import seats_of
from gem_ma.config.settings import Config
from gem_ma.driver.rollout import play_many
from gem_ma.engines.base import asks_person
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario
from gem_ma.kernel.spelling import nearest
from gem_ma.runs.open import open_config
from gem_ma.runs.plans import cast_with, evaluation_plans
from gem_ma.runs.playing import outcome
from gem_ma.runs.store import read_manifest
from gem_ma.runs.store.manifest import note_in_manifest
from gem_ma.scores.groups import group_rows, interval_text, labels_of
from gem_ma.scores.judge import Judge

MOST_LOST = 20  # lost episodes that are printed


def examine(
    loaded: Loaded,
    agent: str,
    tasks: int = 20,
    *,
    at_least: float | None = None,
    record: Path | None = None,
    as_json: bool = False,
    quiet: bool = False,
) -> int:
    """Plays the first so many tasks of a config with examiners in all seats but the agent's, prints
    its ceiling, gives the exit code.

    `record`: a run folder whose manifest keeps the result. Raises ConfigError where the scenario
    has no examiners for this agent.
    """
    loaded.config.only  # noqa: B018 (refuses several: an agent may have another part in each)
    opened = open_config(loaded, seats=False)
    world = opened.worlds.played[0]
    # seats by name, also where the config has patterns
    loaded, scenario = replace(loaded, config=world.config), world.scenario
    config = _examination(loaded, scenario, agent)
    if record is not None:
        read_manifest(record)  # before anything is played: a folder that is none refuses here
    policies = opened.of_policies(config)
    plans = list(evaluation_plans(config, scenario))[:tasks]
    episodes: list[Episode] = []
    people = bool(asks_person(policies))
    # two plays at once would mix on one screen
    concurrency = 1 if people else min(config.run.concurrency, len(plans))
    again = f"the same command; an examination of {tasks} tasks is not kept"
    with Stopping(again) as stopping, Progress(len(plans), quiet=quiet or people) as progress:
        stopping.run(
            _play(stopping.until_stopped(plans), policies, concurrency, episodes, progress)
        )
    if stopping.signal:
        raise Interrupted(stopping.code, stopping.resume)
    # a table in the order of the tasks can be compared with another one
    order = {plan.id: number for number, plan in enumerate(plans)}
    episodes.sort(key=lambda episode: order[episode.id])  # they end in any order
    judge = Judge.of(scenario)
    summary = judge.summarise(episodes)
    result = _result(agent, config, scenario, summary, at_least)
    result["lost"] = [_loss(episode, judge) for episode in episodes if _is_lost(episode, judge)]
    if record is not None:
        kept = {key: value for key, value in result.items() if key != "labels"}
        note_in_manifest(record, f"examination {agent}", kept)
    _show(result, summary, record, as_json)
    return _verdict(result, at_least)


def _examination(loaded: Loaded, scenario: Scenario, agent: str) -> Config:
    """The config with examiners in all seats but the agent's, one try each. Raises ConfigError
    where there are none."""
    if agent not in scenario.agents:
        raise ConfigError(
            f"--examine {agent}: no agent of {scenario.id} has this"
            f" name{nearest(agent, scenario.agents)}"
        )
    cast = scenario.examiners.get(agent)
    if cast is None:
        others = ", ".join(scenario.examiners)
        hint = f"it has some for {others}" if others else "it has none for any agent"
        raise ConfigError(
            f"--examine {agent}: {scenario.id} names no examiners of {agent!r}; {hint}"
        )
    # `silent` keeps the place of the examined seat, which may need a policy
    seats = cast_with(loaded.config, scenario, {**cast, agent: "silent"})
    agents = {**seats, agent: seats_of(scenario.agents, loaded.config.agents)[agent]}
    run = loaded.config.run.model_copy(update={"episodes_per_task": 1})
    return loaded.config.model_copy(update={"agents": agents, "run": run, "train": None})


def _result(
    agent: str,
    config: Config,
    scenario: Scenario,
    summary: Mapping[str, Any],
    at_least: float | None,
) -> dict[str, Any]:
    """What the examination found, as JSON values: what a run's manifest keeps. `lost` follows."""
    success = summary["success"]
    counts = ("episodes", "ok", "failed", "excluded", "measures", "labels", "errors")
    return {
        "agent": agent,
        "seat": config.agents[agent].model_dump(mode="json"),
        "examiners": {
            other: seat.behaviour for other, seat in config.agents.items() if other != agent
        },
        "scenario": {
            "id": scenario.id,
            "version": scenario.version,
            "split": config.only.split,
        },
        "score": "success" if success is not None else f"return {agent}",
        "ceiling": success if success is not None else summary["returns"].get(agent),
        **{key: summary[key] for key in counts},
        "at_least": at_least,
    }


async def _play(
    plans: Any, policies: Any, concurrency: int, episodes: list[Episode], progress: Any
) -> None:

    played: Any = play_many(plans, policies, concurrency=concurrency, started=progress.start)
    # a signal leaves plays open; they are closed here, while their loop still runs
    async with aclosing(played):
        async for episode in played:
            episodes.append(episode)
            progress.end(outcome(episode.end))


def _is_lost(episode: Episode, judge: Judge) -> bool:
    if not episode.end.scored:
        return True
    return judge.success is not None and judge.success(episode) is False


def _loss(episode: Episode, judge: Judge) -> dict[str, Any]:
    """Which episode was lost and why, in short."""
    # the last reason stands nearest to the verdict
    why = next((entry.why for entry in reversed(episode.ledger) if entry.why), "")
    first = (episode.error or "").split("\n", 1)[0]
    labels = (
        {name: list(values) for name, values in labels_of(episode, judge.labels).items()}
        if judge.labels is not None
        else {}
    )
    return {
        "task": episode.task,
        "seed": episode.seed,
        "end": episode.end.value,
        "turns": len(episode.turns),
        "why": first or why,
        "labels": labels,
    }


def _show(
    result: dict[str, Any], summary: dict[str, Any], record: Path | None, as_json: bool
) -> None:

    if as_json:
        emit_json({**result, "record": str(record) if record else None})
        return
    seat = result["seat"]
    counts = result
    policy = f" with policy {seat['policy']}" if seat["policy"] else ""
    examiners = (f"{agent}: {behaviour}" for agent, behaviour in result["examiners"].items())
    ceiling = interval_text(result["ceiling"]) if result["ceiling"] else "n/a"
    rows = [
        ("examined", f"{result['agent']}: {seat['behaviour']}{policy}"),
        ("with", ", ".join(examiners)),
        (
            "episodes",
            f"{counts['ok']} ok / {counts['failed']} failed / {counts['excluded']} excluded",
        ),
        (f"ceiling ({result['score']})", ceiling),
        *group_rows(summary),
        *(("lost", _loss_text(loss)) for loss in result["lost"][:MOST_LOST]),
    ]
    if len(result["lost"]) > MOST_LOST:
        rows.append(("lost", f"and {len(result['lost']) - MOST_LOST} more; --json has all"))
    if record is not None:
        rows.append(("recorded in", f"{record}/manifest.json"))
    emit(columns(rows))


def _loss_text(loss: Mapping[str, Any]) -> str:
    labels = "".join(f"; {name} {', '.join(values)}" for name, values in loss["labels"].items())
    return (
        f"{loss['task']} seed {loss['seed']}, {loss['turns']} turns, {loss['end']}:"
        f" {loss['why'] or 'no reason recorded'}{labels}"
    )


def _verdict(result: dict[str, Any], at_least: float | None) -> int:
    """1 where the ceiling is below what is wanted, or where nothing could be scored; failed
    episodes count as lost."""
    mean = result["ceiling"]["mean"] if result["ceiling"] else None
    if at_least is None:
        return 0 if mean is not None else 1
    scored = result["ceiling"]["n"] if result["ceiling"] else 0
    # counted here alone: elsewhere a failed episode is nobody's loss
    total = scored + result["failed"]
    worst = mean
    # a return has no worst value that a failed play could stand for
    if mean is not None and result["score"] == "success" and total:
        worst = mean * scored / total  # an examinee that fails its plays is not spared their loss
    if worst is not None and worst >= at_least:
        return 0
    if worst is None:
        progress_line(f"{result['agent']}: no episode could be scored; {at_least:g} is wanted")
        return 1
    lost = " (failed episodes count as lost)" if result["failed"] else ""
    progress_line(f"{result['agent']}: {result['score']} {worst:.3f}{lost} is below {at_least:g}")
    return 1
