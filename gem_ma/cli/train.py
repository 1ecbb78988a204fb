"""`gem-ma train`: lets the policies of a config learn, in a run folder that the same command
takes up again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gem_ma.cli.completion import Source

if TYPE_CHECKING:
    from pathlib import Path

    from gem_ma.config.loading import Loaded

EXAMPLE = """\b
Example:
  gem-ma train configs/kuhn_table.yaml train.steps=100"""


@click.command(epilog=EXAMPLE)
@click.argument("source", type=Source(), metavar="CONFIG")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--out", type=click.Path(), help="The run folder.  [default: runs/<config>-<digest>]")
@click.option("--fresh", is_flag=True, help="Put an old run folder aside and start anew.")
@click.option(
    "--json", "as_json", is_flag=True, envvar="GEM_MA_JSON", help="Print one JSON object."
)
@click.option("--quiet", is_flag=True, envvar="GEM_MA_QUIET", help="No progress.")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes on this machine that train as one.",
)
def command(
    source: str, overrides: tuple[str, ...], out: str | None, processes: int, **flags: bool
) -> int:
    """Let the policies that `train.policies` names learn; all others stay as they are.

    The same command again continues from the last checkpoint. Several processes share the plays
    and the updates of every step: --processes here, or any launcher such as `accelerate launch
    --multi_gpu --num_processes 8 -m gem_ma train CONFIG`, whose machines must all see the run
    folder.
    """
    import os
    from pathlib import Path

    from gem_ma.cli.processes import follow, spread
    from gem_ma.config.loading import load
    from gem_ma.errors import ConfigError
    from gem_ma.store import run_path
    from gem_ma.training.processes.teams import launched

    loaded = load(source, overrides, configs_first=True)
    if loaded.study:
        raise ConfigError(
            f"{source}: this is a study of several cells, which learn nothing; play and compare"
            f" them with: gem-ma study {source}"
        )
    if loaded.config.train is None:
        raise ConfigError(
            f"{source}: no section `train:`, so nothing can learn; add one, or play it with: gem-ma"
            f" run {source}"
        )
    path = Path(out) if out else run_path(loaded.stem, loaded.identity())
    started = launched()
    if processes > 1 and started > 1:
        raise ConfigError(
            f"a launcher has started {started} processes already; leave --processes {processes}"
            " away"
        )
    if processes > 1:
        words = {"--fresh": flags["fresh"], "--json": flags["as_json"], "--quiet": flags["quiet"]}
        return spread(
            [
                source,
                *overrides,
                "--out",
                str(path),
                *(word for word, given in words.items() if given),
            ],
            processes,
        )
    return (
        follow(loaded)
        if started > 1 and os.environ["RANK"] != "0"
        else learn(loaded, path, **flags)
    )


def learn(
    loaded: Loaded, path: Path, *, fresh: bool = False, as_json: bool = False, quiet: bool = False
) -> int:
    """Trains in the run folder and prints scores before and after; gives the exit code. Raises
    Interrupted after a signal."""
    import os

    from gem_ma.cli.baselines import play_baselines
    from gem_ma.cli.live import Live
    from gem_ma.cli.main import Interrupted
    from gem_ma.cli.processes import LOST, STARTED
    from gem_ma.cli.run import open_folder, report_of
    from gem_ma.cli.stopping import Stopping
    from gem_ma.cli.terminal import progress_line
    from gem_ma.config.plans import open_policies, scenario_of, try_seats
    from gem_ma.engines.small.human import asks_person
    from gem_ma.errors import BudgetError, EndpointError
    from gem_ma.training.entry import train
    from gem_ma.training.processes.teams import LostError, join
    from gem_ma.training.schedule.checks import checked
    from gem_ma.training.schedule.discounts import check_discounts

    config = loaded.config
    with loaded.placing():  # before a folder is made
        settings = checked(config, config.policies)
        scenario = scenario_of(config, base=loaded.base)
        check_discounts(config, settings, scenario)
    try_seats(config, scenario)
    teams = join()
    policies = open_policies(config, base=loaded.base)
    summary: dict[str, Any] = {}
    resume = f"gem-ma resume {path}" + (
        f" --processes {teams.play.size}" if STARTED in os.environ else ""
    )
    with open_folder("train", loaded, scenario, policies, path, fresh) as folder:
        live = Live(settings.steps, settings.policies, quiet=quiet or bool(asks_person(policies)))
        with Stopping(resume) as stopping, live:

            def on_step(step: int, metrics: dict[str, Any]) -> None:
                if stopping.signal:
                    stopping.cancel()

            async def work() -> None:
                told: dict[str, Any] = {
                    "on_step": on_step,
                    "on_note": progress_line,
                    "watchers": {"live": live},
                }
                summary.update(await train(config, scenario, policies, folder, teams=teams, **told))

            try:
                stopping.run(work())
            except (BudgetError, EndpointError) as error:
                raise type(error)(f"{error}\nresume with: {resume}") from None
            except LostError:
                if not stopping.signal:
                    if STARTED in os.environ:  # who started the processes tells what happened
                        return LOST
                    raise
        teams.close()
        failed, ended = len(folder.failed()), len(folder.done())
        if not stopping.signal:
            with Stopping(resume) as stopping:
                found = play_baselines(loaded, scenario, path, stopping, quiet)
            if found and not stopping.signal:
                summary["baselines"] = found
                folder.write_summary(summary)
    if stopping.signal:
        raise Interrupted(stopping.code, stopping.resume)
    show_training(summary, ended, failed, path, as_json, report_of(path, scenario))
    for line in (idle := summary.get("learned_nothing", {})).values():
        progress_line(line)
    if config.run.tolerates(failed, ended):
        return 1 if idle else 0
    progress_line(
        f"{failed} of {ended} training episodes failed, {config.run.max_failed} are allowed"
        f" (run.max_failed); see them with: gem-ma show {path}"
    )
    return 1


def show_training(
    summary: dict[str, Any],
    ended: int,
    failed: int,
    path: Path,
    as_json: bool,
    report: Path | None = None,
) -> None:
    """Prints what learning changed: each measure before and after."""
    from gem_ma.cli.terminal import columns, emit, emit_json
    from gem_ma.evaluation.metrics import baseline_rows

    # an interrupted episode is never recorded
    counts = {"episodes": ended, "ok": ended - failed, "failed": failed, "excluded": 0}
    if as_json:
        emit_json(
            {"run": str(path), "report": str(report) if report else None, **counts, **summary}
        )
        return
    before, after = _measures(summary["before"]), _measures(summary["after"])
    emit(
        columns(
            [(name, before.get(name, "n/a"), value) for name, value in after.items()],
            ("measure", "before", "after"),
        )
    )
    rows = [
        ("training episodes", f"{ended - failed} ok / {failed} failed / 0 excluded"),
        ("steps", str(summary["steps"])),
    ]
    rows += baseline_rows(summary)
    rated = summary.get("league", {}).get("ratings", {})
    if isinstance(rated, dict) and rated:
        rows.append(
            ("ratings", ", ".join(f"{name} {value:.0f}" for name, value in list(rated.items())[:8]))
        )
    rows += [(f"alarms of {name}", str(count)) for name, count in summary.get("alarms", {}).items()]
    rows += [
        ("learned", ", ".join(summary["learned"]) or "none"),
        ("unchanged", ", ".join(summary["unchanged"]) or "none"),
    ]
    rows += [
        (f"model {name}", f"{model['engine']}/{path / model['path']}")
        for name, model in summary["models"].items()
    ]
    rows += [
        (f"averaged {name}", f"{model['engine']}/{path / model['path']}")
        for name, model in summary.get("averaged", {}).items()
    ]
    emit(
        columns([*rows, ("run folder", str(path)), *([("report", str(report))] if report else [])])
    )


def _measures(scores: dict[str, Any]) -> dict[str, str]:
    """Name -> value of one evaluation, flat."""
    flat: dict[str, str] = {}
    for name, one in scores.items():
        if not isinstance(one, dict):
            flat[name] = _number(one)
            continue
        flat[f"{name}: episodes"] = f"{one['ok']} ok / {one['failed']} failed / 0 excluded"
        if one.get("success") is not None:
            flat[f"{name}: success"] = _number(one["success"])
        for agent, value in one["return"].items():
            flat[f"{name}: return {agent}"] = _number(value)
    return flat


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"
