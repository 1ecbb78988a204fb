"""`gem-ma train`: lets the policies of a config learn, in a run folder that the same command
takes up again."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from gem_ma.cli.completion import sources
from gem_ma.cli.live import Live
from gem_ma.cli.processes import LOST, STARTED, check_ray, follow, joined, spread, worker_options
from gem_ma.cli.runs import report_of, tell_changes
from gem_ma.cli.stopping import Interrupted, Stopping
from gem_ma.cli.terminal import (
    fresh_option,
    json_option,
    out_option,
    progress_line,
    quiet_option,
    tag_option,
    tagged,
)
from gem_ma.cli.trained import play_baselines, show_training, verdict
from gem_ma.config.loading import Loaded, load
from gem_ma.config.sources import trained_by
from gem_ma.engines.base import Policy, asks_person
from gem_ma.kernel.errors import BudgetError, ConfigError, EndpointError
from gem_ma.runs.store import RunFolder, run_path
from gem_ma.runs.worlds import Worlds
from gem_ma.training.processes.teams import LostError, launched
from gem_ma.training.schedule.checks import open_training
from gem_ma.training.train import train

EXAMPLE = """\b
Example:
  gem-ma train configs/kuhn_table.yaml train.steps=100"""


@click.command(epilog=EXAMPLE)
@click.argument("source", shell_complete=sources, metavar="CONFIG")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@tag_option
@out_option
@fresh_option
@json_option
@quiet_option
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes on this machine that train as one.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=2),
    help="Train on so many seeds, from run.seed on; gives their mean and band.",
)
@worker_options
def command(
    source: str,
    overrides: tuple[str, ...],
    tags: tuple[str, ...],
    out: str | None,
    processes: int,
    seeds: int | None,
    **flags: Any,
) -> int:
    """Let the policies that `train.policies` names learn; all others stay as they are.

    The same command again continues from the last checkpoint. Several processes share the plays
    and the updates of every step: --processes here, or any launcher such as `accelerate launch
    --multi_gpu --num_processes 8 -m gem_ma train CONFIG`, whose machines must all see the run
    folder.
    """
    overrides = (*overrides, *tagged(tags))
    loaded = load(source, overrides, configs_first=True, typed=True)
    if loaded.study:
        raise ConfigError(
            f"{source}: this is a study of several cells, which learn nothing; play and compare"
            f" them with: gem-ma study {source}"
        )
    if loaded.config.train is None:
        scenario = loaded.config.scenario
        others = trained_by(scenario.id) if scenario else ""
        raise ConfigError(
            f"{source}: no section `train:`, so nothing can learn; add one, or play it with: gem-ma"
            f" run {source}{others}"
        )
    path = Path(out) if out else run_path(loaded.stem, loaded.identity())
    if seeds is not None:
        return learn_on_seeds(source, overrides, loaded, out, seeds, processes, flags)
    started = launched()  # processes that another launcher has made of this command
    check_ray(flags["ray"], flags["workers"], max(processes, started))
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


def learn_on_seeds(
    source: str,
    overrides: tuple[str, ...],
    loaded: Loaded,
    out: str | None,
    number: int,
    processes: int,
    flags: Mapping[str, Any],
) -> int:
    """Trains the config on several seeds, one after the other, each in a run folder of its own;
    prints means over them. Raises Interrupted after a signal, with the same command."""
    from gem_ma.cli.sweep import Sweep  # most trainings have one seed, and draw no figure

    alone = {"--processes": processes > 1, "--ray": flags["ray"], "--fresh": flags["fresh"]}
    if refused := [option for option, is_set in alone.items() if is_set]:
        raise ConfigError(f"--seeds {number}: trains in this process; leave out {refused[0]}")
    first = loaded.config.run.seed
    seeds = {
        seed: load(source, (*overrides, f"run.seed={seed}"), configs_first=True)
        for seed in range(first, first + number)
    }
    path = Path(out) if out else run_path(f"{loaded.stem}-seeds", loaded.identity())
    words = ["gem-ma", "train", source, *overrides, "--seeds", str(number)]
    again = shlex.join(words + (["--out", out] if out else []))
    sweep = Sweep(path, {seed: path / f"seed-{seed}" for seed in seeds})
    code = 0
    for seed, each in seeds.items():
        done = train_into(each, sweep.folders[seed], resume=again, quiet=flags["quiet"])
        if isinstance(done, int):
            return done
        progress_line(f"seed {seed}: {done.ended} episodes, {done.failed} failed")
        code |= verdict(done.summary, each, done.failed, done.ended, sweep.folders[seed])
    sweep.show(flags["as_json"])
    return code


class Trained(NamedTuple):
    """A training that has ended: its summary, how many episodes it has, how many of them failed,
    and its page."""

    summary: dict[str, Any]
    ended: int
    failed: int
    report: Path | None


def learn(
    loaded: Loaded,
    path: Path,
    *,
    fresh: bool = False,
    resume: str = "",
    as_json: bool = False,
    quiet: bool = False,
    ray: str | None = None,
    workers: int | None = None,
) -> int:
    """Trains in the run folder and prints scores before and after; gives the exit code. `resume`
    is what goes on with it. Raises Interrupted after a signal."""
    done = train_into(
        loaded, path, fresh=fresh, resume=resume, quiet=quiet, ray=ray, workers=workers
    )
    if isinstance(done, int):
        return done
    show_training(done.summary, done.ended, done.failed, path, as_json, done.report)
    return verdict(done.summary, loaded, done.failed, done.ended, path)


def train_into(
    loaded: Loaded,
    path: Path,
    *,
    fresh: bool = False,
    resume: str = "",
    quiet: bool = False,
    ray: str | None = None,
    workers: int | None = None,
    page: bool = True,
) -> Trained | int:
    """Trains in the run folder and plays the baselines beside it; an exit code where a process of
    this training is lost. `page`: whether its page is written. Raises Interrupted after a signal,
    with what goes on (`resume`)."""
    opened = open_training(loaded)
    worlds = opened.worlds
    # before models are opened: every process takes the device of its rank
    with joined(loaded, ray, workers) as teams:
        policies = opened.policies
        resume = resume or f"gem-ma resume {path}"
        resume += f" --processes {teams.play.size}" * _is_started_here()
        resume += f" --ray {ray}" * (ray is not None)
        resume += f" --workers {workers}" * (workers is not None)
        with opened.folder(path, fresh) as folder:
            stopping = Stopping(resume)
            run = _Training(loaded, worlds, policies, folder, stopping)
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
            failed = len(folder.failed())
            ended = len(folder.done())
            if not stopping.signal:
                run.add_baselines(summary, quiet)
    tell_changes(path)
    if stopping.signal:
        raise Interrupted(stopping.code, stopping.resume)
    return Trained(summary, ended, failed, report_of(path, worlds.judge) if page else None)


def _is_started_here() -> bool:
    """Whether `gem-ma train --processes N` started this process, not another launcher."""
    return STARTED in os.environ


class _Training(NamedTuple):
    """One training in its open folder."""

    loaded: Loaded
    worlds: Worlds
    policies: Mapping[str, Policy]
    folder: RunFolder
    stopping: Stopping

    def train(self, teams: Any, quiet: bool) -> dict[str, Any]:
        """Learns until the last step or a signal; gives the summary, {} after a signal. Raises
        BudgetError and EndpointError with how to go on."""
        config = self.loaded.config
        stopping = self.stopping
        summary = dict[str, Any]()
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
                self.worlds,
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
        path = self.folder.path
        with self.stopping:
            scores = play_baselines(self.loaded, self.worlds, path, self.stopping, quiet)
        # after a signal some are missing, and the same command plays the rest
        if scores and not self.stopping.signal:
            summary["baselines"] = scores
            self.folder.write_summary(summary)
