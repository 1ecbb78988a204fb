"""How far an agent of a config lets the others get: it plays with its scenario's examiners,
whose success with it is its ceiling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from gem_ma.config.loading import Loaded
    from gem_ma.evaluation.judge import Judge
    from gem_ma.types import Episode

SHOWN = 20  # lost episodes that are printed


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
    from gem_ma.cli.stopping import Stopping
    from gem_ma.cli.terminal import Progress
    from gem_ma.config.casts import cast_with
    from gem_ma.config.plans import cast_of, evaluation_plans, open_policies, scenario_of
    from gem_ma.engines.small.human import asks_person
    from gem_ma.errors import ConfigError
    from gem_ma.evaluation.judge import Judge
    from gem_ma.store import read_manifest
    from gem_ma.store.folder import note_in_manifest

    scenario = scenario_of(loaded.config, base=loaded.base)
    if agent not in scenario.agents:
        from gem_ma.config.fit import nearest

        raise ConfigError(
            f"--examine {agent}: no agent of {scenario.id} is called"
            f" so{nearest(agent, scenario.agents)}"
        )
    cast = scenario.examiners.get(agent)
    if cast is None:
        there = (
            f"it has some for {', '.join(scenario.examiners)}"
            if scenario.examiners
            else "it names none for any agent"
        )
        raise ConfigError(
            f"--examine {agent}: {scenario.id} names no examiners of {agent!r}; {there}"
        )
    if record is not None:
        read_manifest(record)  # before anything is played
    seat = loaded.config.agents[agent]
    others = cast_with(loaded.config, scenario, {**cast, agent: "silent"})
    config = loaded.config.model_copy(update={"agents": {**others, agent: seat}, "train": None})
    policies = open_policies(config, base=loaded.base)
    run = config.run.model_copy(update={"episodes_per_task": 1})
    plans = list(evaluation_plans(config.model_copy(update={"run": run}), scenario))[:tasks]
    episodes: list[Episode] = []
    people = bool(asks_person(policies))
    concurrency = 1 if people else min(config.run.concurrency, len(plans))
    again = f"the same command; an examination of {tasks} tasks is not kept"
    with Stopping(again) as stopping, Progress(len(plans), quiet=quiet or people) as progress:
        stopping.run(
            _play(stopping.until_stopped(plans), policies, concurrency, episodes, progress)
        )
    judge = Judge.of(scenario)
    summary = judge.summarise(episodes)
    score = "success" if summary["success"] is not None else f"return {agent}"
    ceiling = (
        summary["success"] if summary["success"] is not None else summary["returns"].get(agent)
    )
    order = {plan.id: at for at, plan in enumerate(plans)}
    lost = [
        _told(episode, judge)
        for episode in sorted(episodes, key=lambda one: order[one.id])
        if _is_lost(episode, judge)
    ]
    result = {
        "agent": agent,
        "seat": seat.model_dump(mode="json"),
        "examiners": {
            other: one.behaviour for other, one in cast_of(config).items() if other != agent
        },
        "scenario": {
            "id": scenario.id,
            "version": scenario.version,
            "split": config.scenario.split,
        },
        "score": score,
        "ceiling": ceiling,
        **{
            key: summary[key]
            for key in ("episodes", "ok", "failed", "excluded", "measures", "labels", "errors")
        },
        "at_least": at_least,
        "lost": lost,
    }
    if stopping.signal:
        from gem_ma.cli.exits import Interrupted

        raise Interrupted(stopping.code, stopping.resume)
    if record is not None:
        note_in_manifest(
            record,
            f"examination {agent}",
            {key: value for key, value in result.items() if key != "labels"},
        )
    _show(result, summary, record, as_json)
    return _verdict(result, at_least)


async def _play(
    plans: Any, policies: Any, concurrency: int, episodes: list[Episode], progress: Any
) -> None:
    from contextlib import aclosing

    from gem_ma.rollout import play_many

    played: Any = play_many(plans, policies, concurrency=concurrency, started=progress.start)
    async with aclosing(played):
        async for episode in played:
            episodes.append(episode)
            progress.end(
                "failed"
                if episode.end.value == "failed"
                else "ok"
                if episode.end.scored
                else "excluded"
            )


def _is_lost(episode: Episode, judge: Judge) -> bool:
    if not episode.end.scored:
        return True
    return judge.success is not None and judge.success(episode) is False


def _told(episode: Episode, judge: Judge) -> dict[str, Any]:
    from gem_ma.evaluation.groups import labels_of

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
    from gem_ma.cli.terminal import columns, emit, emit_json
    from gem_ma.evaluation.groups import group_rows
    from gem_ma.evaluation.metrics import interval_text

    if as_json:
        emit_json({**result, "record": str(record) if record else None})
        return
    seat = result["seat"]
    plays = (
        f"{seat['behaviour']} with policy {seat['policy']}" if seat["policy"] else seat["behaviour"]
    )
    rows = [("examined", f"{result['agent']}: {plays}")]
    rows += [
        (
            "with",
            ", ".join(f"{agent}: {behaviour}" for agent, behaviour in result["examiners"].items()),
        )
    ]
    rows += [
        (
            "episodes",
            f"{result['ok']} ok / {result['failed']} failed / {result['excluded']} excluded",
        )
    ]
    rows += [
        (
            f"ceiling ({result['score']})",
            interval_text(result["ceiling"]) if result["ceiling"] else "n/a",
        )
    ]
    rows += group_rows(summary)
    for one in result["lost"][:SHOWN]:
        labels = "".join(f"; {name} {', '.join(values)}" for name, values in one["labels"].items())
        rows.append(
            (
                "lost",
                (
                    f"{one['task']} seed {one['seed']}, {one['turns']} turns, {one['end']}:"
                    f" {one['why'] or 'no word why'}{labels}"
                ),
            )
        )
    if len(result["lost"]) > SHOWN:
        rows.append(("lost", f"and {len(result['lost']) - SHOWN} more; --json has all"))
    rows += [("recorded in", f"{record}/manifest.json")] * (record is not None)
    emit(columns(rows))


def _verdict(result: dict[str, Any], at_least: float | None) -> int:
    """1 where the ceiling is below what is wanted, or where nothing could be scored; failed
    episodes count as lost."""
    from gem_ma.cli.terminal import progress_line

    mean = result["ceiling"]["mean"] if result["ceiling"] else None
    if at_least is None:
        return 0 if mean is not None else 1
    scored = result["ceiling"]["n"] if result["ceiling"] else 0
    total = scored + result["failed"]
    worst = (
        mean * scored / total
        if mean is not None and result["score"] == "success" and total
        else mean
    )
    if worst is not None and worst >= at_least:
        return 0
    told = (
        "nothing could be scored"
        if worst is None
        else (
            f"{result['score']}"
            f" {worst:.3f}{', failed episodes as lost,' if result['failed'] else ''}"
        )
    )
    progress_line(f"{result['agent']}: {told} is below {at_least:g}")
    return 1
