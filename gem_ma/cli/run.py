"""`gem-ma run`: plays the plans of a config, appends every episode to a run folder, prints the
score with what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gem_ma.cli.completion import sources
from gem_ma.cli.stopping import Interrupted, Stopping, exit_code
from gem_ma.cli.terminal import (
    OPEN,
    Progress,
    base_url_option,
    concurrency_option,
    fresh_option,
    json_option,
    out_option,
    processes_option,
    progress_line,
    quiet_option,
    tag_option,
    tagged,
    tasks_option,
)
from gem_ma.kernel.errors import ConfigError

if TYPE_CHECKING:
    from gem_ma.config.loading import Loaded
    from gem_ma.runs.open import Opened

EXAMPLE = """\b
Examples:
  gem-ma run configs/dilemma.yaml run.seed=3 -n 100
  gem-ma run retail --assistant openai/gpt-4.1-mini --user openai/gpt-4.1-mini -n 10
  gem-ma run retail --assistant openai/qwen3 --base-url http://127.0.0.1:8000/v1
  gem-ma run retail --assistant openai/A --user openai/B --base-url user=http://127.0.0.1:8001/v1"""


@click.command(epilog=EXAMPLE, context_settings=OPEN)
@click.argument("source", shell_complete=sources, metavar="CONFIG|SCENARIO")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE|--AGENT WHO]...")
@base_url_option
@tasks_option
@concurrency_option
@processes_option("Play in so many processes, one a core at most.")
@click.option(
    "--budget-usd",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop when models behind endpoints have cost so much.",
)
@tag_option
@out_option
@fresh_option
@json_option
@quiet_option
def command(
    source: str,
    overrides: tuple[str, ...],
    base_urls: tuple[str, ...],
    tasks: int | None,
    concurrency: int | None,
    processes: int | None,
    budget_usd: float | None,
    tags: tuple[str, ...],
    out: str | None,
    **flags: Any,
) -> int:
    """Play a config, a shipped config or a scenario, and score it.

    The same command again continues where it stopped, and a larger -n plays only what is new. A
    KEY=VALUE replaces one value of the config, as in run.seed=3. --AGENT is the name of an agent,
    as --assistant or --user of retail: it seats a model (ENGINE/NAME), a behaviour or a person
    (human) there.
    """
    from gem_ma.cli.seats import seated
    from gem_ma.config.loading import load
    from gem_ma.runs.store import run_path

    # options are nothing but overrides, so that the run's digest knows them
    options = {"scenario.tasks": tasks, "run.concurrency": concurrency, "limits.usd": budget_usd}
    options["run.processes"] = processes
    extra = [f"{key}={value}" for key, value in options.items() if value is not None]
    extra += tagged(tags)
    source, overrides = seated(source, overrides, base_urls)
    loaded = load(source, (*overrides, *extra), typed=True).without_training()
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
    resume: str = "",
    as_json: bool = False,
    quiet: bool = False,
    say_score: bool = True,
    opened: Opened | None = None,
) -> int:
    """Plays what is not done yet and prints the score of all (`say_score`); gives the exit code.
    `resume`: what is typed to go on, where that is not `gem-ma resume`; `opened`: the config, where
    it is open already. Raises Interrupted after a signal."""
    from gem_ma.cli.runs import report_of, show_summary, tell_changes
    from gem_ma.engines.base import paces
    from gem_ma.runs.open import open_config
    from gem_ma.runs.playing import play_run

    opened = opened or open_config(loaded)
    for line in paces(opened.policies):
        progress_line(line)
    watch = Watch(resume or f"gem-ma resume {path}", quiet)
    played = play_run(opened, path, fresh=fresh, retry_failed=retry_failed, watch=watch)
    summary = played.summary
    limit = played.limit
    tell_changes(path)
    # a run that never reached its endpoint has no score, only the error below
    if say_score and (summary["episodes"] or as_json or limit is None):
        page = report_of(path, opened.worlds.judge) if played.complete else None
        show_summary(summary, path, as_json, page)
    if watch.signal:
        raise Interrupted(watch.stopping.code, watch.stopping.resume)
    if limit is not None:
        progress_line(f"{limit}\n{watch.stopping.resume}")
        return exit_code(limit)
    return verdict(loaded, summary, path)


class Watch:
    """What the command shows and asks while it plays, as `gem_ma.runs.playing.Silent`."""

    def __init__(self, resume: str, quiet: bool) -> None:
        self.resume = resume
        self.quiet = quiet
        self.stopping: Any = None

    @property
    def signal(self) -> int:
        return int(self.stopping.signal)

    def started(self, path: Path) -> None:
        self.stopping = Stopping(self.resume)

    def note(self, line: str) -> None:
        progress_line(line)

    def until_stopped(self, plans: Any) -> Any:
        return self.stopping.until_stopped(plans)

    @contextmanager
    def playing(self, planned: int, played: int) -> Iterator[Any]:
        with self.stopping, Progress(planned, played, quiet=self.quiet) as progress:
            yield progress

    def run(self, work: Any) -> None:
        self.stopping.run(work)

    def baselines(self, opened: Opened, path: Path) -> dict[str, Any]:
        if not opened.worlds.with_baselines:
            return {}
        from gem_ma.cli.trained import play_baselines

        with self.stopping:
            return play_baselines(opened.loaded, opened.worlds, path, self.stopping, self.quiet)


def verdict(loaded: Loaded, summary: dict[str, Any], path: Path) -> int:
    """0, or 1 and a line about it where a policy never spoke, or more episodes failed
    than the config allows."""
    from gem_ma.scores.unheard import lines_of

    again = f"gem-ma resume {path} --retry-failed"
    # An empty reply is a legal answer, and a full context an end like any other. A model that gives
    # nothing else would end with a score and the code 0.
    unheard = lines_of(summary)
    for line in unheard:
        # only failed plays can be played again in their folder
        redo = f"with: {again}" if summary["failed"] else "by the same command with --fresh"
        progress_line(f"{line}; then redo the plays {redo}")
    if unheard:
        return 1
    # a share of failures is normal with endpoints, and the config says which
    settings = loaded.config.run
    if settings.tolerates(summary["failed"], summary["episodes"]):
        return 0
    progress_line(
        f"{summary['failed']} of {summary['episodes']} episodes failed, {settings.max_failed} are"
        f" allowed (run.max_failed); redo them with: {again}"
    )
    return 1
