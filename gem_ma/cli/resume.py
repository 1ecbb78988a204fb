"""`gem-ma resume`: continues a run folder with the settings that it was made with."""

from __future__ import annotations

import json
from typing import Any

import click

from gem_ma.cli.completion import run_names
from gem_ma.cli.processes import check_ray, spread, worker_options
from gem_ma.cli.run import play
from gem_ma.cli.runs import run_folder
from gem_ma.cli.terminal import (
    concurrency_option,
    json_option,
    processes_option,
    quiet_option,
)
from gem_ma.cli.train import learn
from gem_ma.config.loading import load
from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.store import read_manifest
from gem_ma.runs.store.names import recorded_changes

EXAMPLE = """\b
Example:
  gem-ma resume runs/dilemma-01616cee --retry-failed
  gem-ma resume runs/retail-5e0f71b2 limits.usd=5"""


@click.command(epilog=EXAMPLE)
@click.argument("run", shell_complete=run_names)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--retry-failed", is_flag=True, help="Play failed episodes once more; the new attempt counts."
)
@concurrency_option
@json_option
@quiet_option
@processes_option("Processes that go on with it: of a training as one, of a run beside each other.")
@worker_options
def command(
    run: str,
    overrides: tuple[str, ...],
    retry_failed: bool,
    concurrency: int | None,
    as_json: bool,
    quiet: bool,
    processes: int | None,
    ray: str | None,
    workers: int | None,
) -> int:
    """Continue RUN, a run folder or the name of one below runs/, where it stopped. What is done is
    never played again.

    A KEY=VALUE replaces one setting that no result so far depends on, as in run.concurrency=4.
    Code that its config names is run.
    """
    path = run_folder(run)
    manifest = read_manifest(path)
    # it has every default written out, so that a version with other defaults goes on alike
    source = path / "resolved.yaml"
    typed = [*overrides, *[f"run.concurrency={concurrency}"] * (concurrency is not None)]
    is_training = manifest.get("command") == "train"
    typed += [f"run.processes={processes}"] * (processes is not None and not is_training)
    changes = [*_earlier(manifest, typed), *typed]
    loaded = load(source, changes, typed=True)
    if is_training:
        processes = processes or 1
        check_ray(ray, workers, processes)
        if retry_failed:
            raise ConfigError(
                f"{path}: --retry-failed is for runs that only play; the failed episodes of a"
                " training are part of what it has learned; leave the option out"
            )
        if processes > 1:
            flags = [*["--json"] * as_json, *["--quiet"] * quiet]
            return spread([str(source), *changes, "--out", str(path), *flags], processes)
        # a checkpoint knows the number of steps done, so that nothing more is handed over
        return learn(loaded, path, as_json=as_json, quiet=quiet, ray=ray, workers=workers)
    if ray is not None:
        raise ConfigError(f"{path}: this run only plays; leave out --ray, or type --processes N")
    return play(loaded, path, retry_failed=retry_failed, as_json=as_json, quiet=quiet)


def _earlier(manifest: dict[str, Any], typed: list[str]) -> list[str]:
    """What earlier resumes changed, which still holds, but for what is typed now."""
    replaced = tuple(f"{override.partition('=')[0].strip()}." for override in typed)
    changes = recorded_changes(manifest.get("resumed")).items()
    return [
        f"{key}={json.dumps(value)}" for key, value in changes if not f"{key}.".startswith(replaced)
    ]
