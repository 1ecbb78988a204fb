"""`gem-ma run`: plays the plans of a config, appends every episode to a run folder, prints the
score with what it leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gem_ma.cli.completion import Source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gem_ma.config.loading import Loaded
    from gem_ma.engines.base import Policy
    from gem_ma.scenario import Scenario
    from gem_ma.store import RunFolder

EXAMPLE = """\b
Example:
  gem-ma run configs/dilemma.yaml run.seed=3 -n 100"""


@click.command(epilog=EXAMPLE)
@click.argument("source", type=Source(), metavar="CONFIG|SCENARIO")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "-n",
    "--tasks",
    type=click.IntRange(min=1),
    help="How many tasks (or seeds, where the scenario has one task).",
)
@click.option("-j", "--concurrency", type=click.IntRange(min=1), help="Episodes at once.")
@click.option(
    "--budget-usd",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop when models behind endpoints have cost so much.",
)
@click.option("--out", type=click.Path(), help="The run folder.  [default: runs/<config>-<digest>]")
@click.option("--fresh", is_flag=True, help="Put an old run folder aside and start anew.")
@click.option(
    "--json", "as_json", is_flag=True, envvar="GEM_MA_JSON", help="Print one JSON object."
)
@click.option("--quiet", is_flag=True, envvar="GEM_MA_QUIET", help="No progress.")
def command(
    source: str,
    overrides: tuple[str, ...],
    tasks: int | None,
    concurrency: int | None,
    budget_usd: float | None,
    out: str | None,
    **flags: bool,
) -> int:
    """Play a config, a shipped config or a scenario, and score it.

    The same command again continues where it stopped. A KEY=VALUE replaces one value of the
    config, as in run.seed=3.
    """
    from pathlib import Path

    from gem_ma.config.loading import load
    from gem_ma.errors import ConfigError
    from gem_ma.store import run_path

    options = {"scenario.tasks": tasks, "run.concurrency": concurrency, "limits.usd": budget_usd}
    extra = [f"{key}={value}" for key, value in options.items() if value is not None]
    loaded = load(source, (*overrides, *extra)).without_training()
    if loaded.study:
        raise ConfigError(
            f"{source}: this is a study of several cells; play and compare them with: gem-ma study"
            f" {source}"
        )
    path = Path(out) if out else run_path(loaded.stem, loaded.identity())
    return play(loaded, path, **flags)


def play(
    loaded: Loaded,
    path: Path,
    *,
    fresh: bool = False,
    retry_failed: bool = False,
    as_json: bool = False,
    quiet: bool = False,
) -> int:
    """Plays what is not done yet and prints the score of all; gives the exit code. Raises
    Interrupted after a signal."""
    from gem_ma.cli.baselines import play_baselines
    from gem_ma.cli.costs import costs_of, other_models
    from gem_ma.cli.main import Interrupted, exit_code
    from gem_ma.cli.stopping import Stopping
    from gem_ma.cli.terminal import Progress, progress_line
    from gem_ma.config.plans import count, evaluation_plans, open_policies, scenario_of, try_seats
    from gem_ma.errors import BudgetError, EndpointError
    from gem_ma.evaluation.judge import Judge

    config = loaded.config
    scenario = scenario_of(config, base=loaded.base)
    try_seats(config, scenario)
    with loaded.placing():  # before the folder is made: what cannot be opened leaves nothing behind
        policies = open_policies(config, base=loaded.base)
    with open_folder("run", loaded, scenario, policies, path, fresh) as folder:
        done = folder.done() - (folder.failed() if retry_failed else set())
        planned = count(config, scenario)
        if len(done) > planned:
            progress_line(
                f"{path} holds {len(done)} episodes already; all of them are scored, not only the"
                f" {planned} asked for now"
            )
        left = planned - (
            sum(plan.id in done for plan in evaluation_plans(config, scenario)) if done else 0
        )
        stopped, halted = 0, None
        if left:
            plans = (plan for plan in evaluation_plans(config, scenario) if plan.id not in done)
            with (
                Stopping(f"gem-ma resume {path}") as stopping,
                Progress(planned, planned - left, quiet=quiet) as progress,
            ):
                try:
                    stopping.run(
                        play_into(
                            folder,
                            stopping.until_stopped(plans),
                            policies,
                            min(config.run.concurrency, left),
                            progress,
                        )
                    )
                except (BudgetError, EndpointError) as error:
                    halted = error
            stopped = stopping.code if stopping.signal else 0
        summary = {
            "planned": max(planned, len(folder.done())),
            **Judge.of(scenario).summarise(folder.episodes()),
            **costs_of(config, folder.episodes),
        }
        summary |= other_models(config, summary)
        if not stopped and not halted:
            with Stopping(f"gem-ma resume {path}") as stopping:
                summary["baselines"] = play_baselines(loaded, scenario, path, stopping, quiet)
            stopped = stopping.code if stopping.signal else 0
        if not stopped and not halted:
            folder.write_summary(summary)
    if summary["episodes"] or as_json or not halted:
        show_summary(
            summary, path, as_json, None if stopped or halted else report_of(path, scenario)
        )
    if stopped:
        raise Interrupted(stopped, stopping.resume)
    if halted:
        progress_line(f"{halted}\nresume with: gem-ma resume {path}")
        return exit_code(halted)
    return verdict(loaded, summary, path)


async def play_into(
    folder: RunFolder, plans: Any, policies: Any, concurrency: int, progress: Any
) -> None:
    """Plays the plans and appends every episode as it ends.

    Raises EndpointError where a model cannot be reached. Once `limits:` are reached no plan is
    begun, what runs may end, and BudgetError follows. Replies of an endpoint are kept as they
    come (`interrupted.jsonl`) until their play has ended: whatever stops it, SIGKILL too,
    playing on buys none of them twice.
    """
    import asyncio
    from contextlib import aclosing
    from dataclasses import replace
    from functools import partial
    from itertools import takewhile

    from gem_ma.engines.small.human import asks_person
    from gem_ma.engines.small.replay import Remembered
    from gem_ma.errors import BudgetError
    from gem_ma.rollout import play_many
    from gem_ma.store.interrupted import forget_replies, keep_reply, read_replies, remove_replies
    from gem_ma.types import End

    async def heartbeat() -> None:
        while True:
            await asyncio.sleep(1.0)
            progress.tick()

    refused, people = "", asks_person(policies)
    # a bar that is drawn anew would erase what they type, and two plays at once would mix on one
    # screen
    if people:
        progress.hide()
        concurrency = 1
    bought = {name: policy for name, policy in policies.items() if hasattr(policy.engine, "budget")}
    if bought:
        known, keep = read_replies(folder.path), partial(keep_reply, folder.path)
        policies = policies | {
            name: replace(policy, engine=Remembered(policy.engine, known, keep))
            for name, policy in bought.items()
        }
    beating = asyncio.ensure_future(heartbeat())
    try:
        going = takewhile(lambda _: not refused, plans)
        # a person reads how a play ended before the next one asks
        several = ([plan] for plan in going) if people else [going]
        episodes: Any = _one_after_another(
            partial(play_many, policies=policies, concurrency=concurrency, started=progress.start),
            several,
        )
        async with aclosing(episodes):
            async for episode in episodes:
                if episode.end is End.INTERRUPTED:  # by the budget: it is played again
                    refused = refused or str(episode.error).removeprefix("BudgetError: ")
                    continue
                folder.append([episode])
                if bought:
                    forget_replies(folder.path, episode.id)
                for person in people:
                    person.show_end(episode)
                progress.end(
                    "failed"
                    if episode.end.value == "failed"
                    else "ok"
                    if episode.end.scored
                    else "excluded"
                )
    finally:
        beating.cancel()
    if refused:
        raise BudgetError(refused)
    remove_replies(folder.path)


async def _one_after_another(play: Any, several: Any) -> Any:
    """The episodes of these lists of plans; a list is begun when those of the list before have
    been taken."""
    from contextlib import aclosing

    for plans in several:
        async with aclosing(play(plans)) as episodes:
            async for episode in episodes:
                yield episode


# -- shared with train, resume and show ----------------------------------------------------------


def open_folder(
    command: str,
    loaded: Loaded,
    scenario: Scenario,
    policies: Mapping[str, Policy],
    path: Path,
    fresh: bool,
) -> RunFolder:
    """The run folder, made or taken up. Its manifest holds digests of data and weights: a run
    may not go on with others."""
    from hashlib import sha256

    from gem_ma.folders import read_named
    from gem_ma.registry import file_of
    from gem_ma.store import RunFolder

    config = loaded.config
    facts: dict[str, Any] = {
        "command": command,
        "overrides": list(loaded.overrides),
        "seeds": {"run": config.run.seed, "evaluate": config.evaluate.seed},
    }
    facts["scenario"] = {"id": scenario.id, "version": scenario.version}
    if hasattr(scenario, "provenance"):
        facts["data"] = scenario.provenance()
    if (code := file_of(scenario.id)) is not None:  # rules that were edited are other rules
        facts["data"] = {
            **facts.get("data", {}),
            "rules": {"source": str(code), "digest": sha256(read_named(code)).hexdigest()},
        }
    engines = {name: policy.core for name, policy in policies.items()}
    facts["models"] = {
        name: {
            "model": config.policies[name].model,
            "digest": engine.fingerprint() if hasattr(engine, "fingerprint") else None,
        }
        for name, engine in engines.items()
    }
    # its own settings, with overrides on the command line
    resuming = loaded.path is not None and loaded.path == path / "resolved.yaml"
    return RunFolder.open(
        path,
        config_text=loaded.written(),
        resolved=loaded.resolved(),
        manifest=facts,
        fresh=fresh,
        resuming=resuming,
    )


def success_of(scenario: Scenario) -> Any:
    """The scenario's notion of success, or None where it has none."""
    from gem_ma.scenario import Scenario as Base

    return scenario.success if type(scenario).success is not Base.success else None


def report_of(path: Path, scenario: Scenario) -> Path | None:
    """Writes the page of a run; a page that cannot be written costs a line on stderr, not the
    result."""
    from gem_ma.cli.terminal import progress_line
    from gem_ma.errors import StoreError
    from gem_ma.evaluation.judge import Judge
    from gem_ma.view.report import write_report

    try:
        return write_report(path, judge=Judge.of(scenario))
    except StoreError as error:
        progress_line(f"no report: {error}")
        return None


def show_summary(
    summary: dict[str, Any], path: Path, as_json: bool, report: Path | None = None
) -> None:
    """Prints a score."""
    from gem_ma.cli.terminal import columns, emit, emit_json
    from gem_ma.evaluation.costs import cost_rows
    from gem_ma.evaluation.metrics import table

    if as_json:
        emit_json({"run": str(path), "report": str(report) if report else None, **summary})
    else:
        missing = summary.get("planned", 0) - summary["episodes"]
        rows = [
            *table(summary),
            *cost_rows(summary.get("costs", {})),
            *([("not played yet", str(missing))] if missing > 0 else []),
        ]
        emit(
            columns(
                [*rows, ("run folder", str(path)), *([("report", str(report))] if report else [])]
            )
        )


def verdict(loaded: Loaded, summary: dict[str, Any], path: Path) -> int:
    """0, or 1 and a line about it where a policy never said a thing, or more episodes failed
    than the config allows."""
    from gem_ma.cli.terminal import progress_line

    for name, one in summary["empty"].items():
        if one["empty"] == one["replies"]:
            said = f"policy {name!r} said nothing: each of its {one['replies']} replies was empty"
            progress_line(
                f"{said}; look at its model and its max_tokens, then redo the plays with: gem-ma"
                f" resume {path} --retry-failed"
            )
            return 1
    if loaded.config.run.tolerates(summary["failed"], summary["episodes"]):
        return 0
    counts = (
        f"{summary['failed']} of {summary['episodes']} episodes failed,"
        f" {loaded.config.run.max_failed} are allowed (run.max_failed)"
    )
    progress_line(f"{counts}; redo them with: gem-ma resume {path} --retry-failed")
    return 1
