"""`gem-ma train`: lets the policies of a config learn, in a run folder that the same command
takes up again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gem_ma.cli.completion import Source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gem_ma.cli.stopping import Stopping
    from gem_ma.config.loading import Loaded
    from gem_ma.engines.base import Policy
    from gem_ma.scenario import Scenario
    from gem_ma.store import RunFolder

RATED = 8  # members of a league whose ratings are printed; the page has all
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
    started = launched()  # processes that another launcher has made of this command
    if processes > 1 and started > 1:
        raise ConfigError(
            f"--processes {processes}: a launcher has started {started} processes already; leave"
            " this option out"
        )
    if processes > 1:
        words = {"--fresh": flags["fresh"], "--json": flags["as_json"], "--quiet": flags["quiet"]}
        typed = [word for word, is_set in words.items() if is_set]
        # the folder is named for all: each would else make the same name once more
        return spread([source, *overrides, "--out", str(path), *typed], processes)
    # RANK is what torchrun and accelerate set, after torch.distributed
    if started > 1 and os.environ["RANK"] != "0":
        return follow(loaded)
    return learn(loaded, path, **flags)


def learn(
    loaded: Loaded, path: Path, *, fresh: bool = False, as_json: bool = False, quiet: bool = False
) -> int:
    """Trains in the run folder and prints scores before and after; gives the exit code. Raises
    Interrupted after a signal."""
    from gem_ma.cli.exits import Interrupted
    from gem_ma.cli.processes import LOST
    from gem_ma.cli.runs import report_of
    from gem_ma.cli.stopping import Stopping
    from gem_ma.config.plans import open_policies, try_seats
    from gem_ma.running.folder import open_folder
    from gem_ma.running.learning import checked_scenario
    from gem_ma.training.processes.teams import LostError, join

    config = loaded.config
    scenario = checked_scenario(loaded)
    try_seats(config, scenario)
    # before models are opened: every process takes the device of its rank
    teams = join()
    policies = open_policies(config, base=loaded.base)
    resume = f"gem-ma resume {path}"
    if _is_started_here():
        resume += f" --processes {teams.play.size}"
    with open_folder("train", loaded, scenario, policies, path, fresh) as folder:
        stopping = Stopping(resume)
        run = _Training(loaded, scenario, policies, folder, stopping)
        try:
            summary = run.train(teams, quiet)
        except LostError:
            # whoever started the processes prints the error of the one that failed
            if not stopping.signal and _is_started_here():
                return LOST
            if not stopping.signal:
                raise
            summary = {}
        teams.close()
        failed, ended = len(folder.failed()), len(folder.done())
        if not stopping.signal:
            run.add_baselines(summary, quiet)
    if stopping.signal:
        raise Interrupted(stopping.code, stopping.resume)
    show_training(summary, ended, failed, path, as_json, report_of(path, scenario))
    return _verdict(summary, loaded, failed, ended, path)


def _is_started_here() -> bool:
    """Whether `gem-ma train --processes N` started this process, not another launcher."""
    import os

    from gem_ma.cli.processes import STARTED

    return STARTED in os.environ


class _Training(NamedTuple):
    """One training in its open folder."""

    loaded: Loaded
    scenario: Scenario
    policies: Mapping[str, Policy]
    folder: RunFolder
    stopping: Stopping

    def train(self, teams: Any, quiet: bool) -> dict[str, Any]:
        """Learns until the last step or a signal; gives the summary, {} after a signal. Raises
        BudgetError and EndpointError with how to go on."""
        from gem_ma.cli.live import Live
        from gem_ma.cli.terminal import progress_line
        from gem_ma.engines.small.human import asks_person
        from gem_ma.errors import BudgetError, EndpointError
        from gem_ma.training.entry import train

        config, stopping, summary = self.loaded.config, self.stopping, dict[str, Any]()
        assert config.train is not None  # `command` has refused it
        # a table that is drawn anew would erase what a person types
        hidden = quiet or bool(asks_person(self.policies))
        live = Live(config.train.steps, config.train.policies, quiet=hidden)

        def on_step(step: int, metrics: dict[str, Any]) -> None:
            # between two steps everything is on the disk: nothing is gained by draining longer
            if stopping.signal:
                stopping.cancel()

        async def work() -> None:
            result = await train(
                config,
                self.scenario,
                self.policies,
                self.folder,
                teams=teams,
                on_step=on_step,
                on_note=progress_line,
                watchers={"live": live},
            )
            summary.update(result)

        with stopping, live:
            try:
                stopping.run(work())
            except (BudgetError, EndpointError) as error:
                # the same class, since the exit code follows from it
                raise type(error)(f"{error}\n{stopping.resume}") from None
        return summary

    def add_baselines(self, summary: dict[str, Any], quiet: bool) -> None:
        """Plays the scenario's baselines and writes their scores into the run's summary."""
        from gem_ma.cli.baselines import play_baselines

        path = self.folder.path
        with self.stopping:
            scores = play_baselines(self.loaded, self.scenario, path, self.stopping, quiet)
        # after a signal some are missing, and the same command plays the rest
        if scores and not self.stopping.signal:
            summary["baselines"] = scores
            self.folder.write_summary(summary)


def _verdict(
    summary: Mapping[str, Any], loaded: Loaded, failed: int, ended: int, path: Path
) -> int:
    """0, or 1 and a line about it where a policy learned nothing, or more episodes failed than the
    config allows."""
    from gem_ma.cli.terminal import progress_line

    idle = summary.get("learned_nothing", {})
    # a learner that never got a gradient has a loss curve like any other
    for line in idle.values():
        progress_line(line)
    settings = loaded.config.run
    if settings.tolerates(failed, ended):
        return 1 if idle else 0
    progress_line(
        f"{failed} of {ended} training episodes failed, {settings.max_failed} are allowed"
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
    from gem_ma.cli.runs import place_rows
    from gem_ma.cli.terminal import columns, emit, emit_json
    from gem_ma.evaluation.summary_rows import baseline_rows

    # an interrupted episode is never recorded
    counts = {"episodes": ended, "ok": ended - failed, "failed": failed, "excluded": 0}
    if as_json:
        emit_json(
            {"run": str(path), "report": str(report) if report else None, **counts, **summary}
        )
        return
    before, after = _measures(summary["before"]), _measures(summary["after"])
    scores = [(name, before.get(name, "n/a"), value) for name, value in after.items()]
    emit(columns(scores, ("measure", "before", "after")))
    rows = [
        ("training episodes", f"{ended - failed} ok / {failed} failed / 0 excluded"),
        ("steps", str(summary["steps"])),
        *baseline_rows(summary),
        *_league_rows(summary),
        ("learned", ", ".join(summary["learned"]) or "none"),
        ("unchanged", ", ".join(summary["unchanged"]) or "none"),
    ]
    # engine/path, as `model:` of a config takes it
    for word, models in (("model", summary["models"]), ("averaged", summary.get("averaged", {}))):
        rows += [
            (f"{word} {name}", f"{model['engine']}/{path / model['path']}")
            for name, model in models.items()
        ]
    emit(columns([*rows, *place_rows(path, report)]))


def _league_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Ratings of the league's members and alarms of its guard, where there are any."""
    rows = []
    ratings = summary.get("league", {}).get("ratings", {})
    if isinstance(ratings, dict) and ratings:
        # ratings are on the scale of Elo, where a point is nothing
        listed = [f"{name} {value:.0f}" for name, value in list(ratings.items())[:RATED]]
        rows.append(("ratings", ", ".join(listed)))
    alarms = summary.get("alarms", {})
    return [*rows, *((f"alarms of {name}", str(count)) for name, count in alarms.items())]


def _measures(scores: dict[str, Any]) -> dict[str, str]:
    """Name -> value of one evaluation, flat."""
    flat: dict[str, str] = {}
    for name, score in scores.items():
        if not isinstance(score, dict):
            flat[name] = _number(score)
            continue
        flat[f"{name}: episodes"] = f"{score['ok']} ok / {score['failed']} failed / 0 excluded"
        if score.get("success") is not None:
            flat[f"{name}: success"] = _number(score["success"])
        for agent, value in score["return"].items():
            flat[f"{name}: return {agent}"] = _number(value)
    return flat


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"
