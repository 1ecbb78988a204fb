"""`python -m gem_ma.scenarios.service_desk.retail prove`: all proofs of generated tasks once more.
`... write FOLDER`: tasks and tables as files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from gem_ma.scenarios.service_desk.grading.proofs import PROOFS, Unproved
from gem_ma.scenarios.service_desk.retail.shop.prove import prove as prove_task
from gem_ma.scenarios.service_desk.retail.shop.render import FORMS, write_world
from gem_ma.scenarios.service_desk.retail.shop.shop import SPLITS, OwnWorld

from gem_ma.kernel.errors import ConfigError, DataError


def _knobs(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> Mapping[str, Any] | None:
    try:
        # None and not {}: a shop without knobs is the one whose tasks the documents count, and an
        # empty object is checked as knobs are.
        return None if value is None else json.loads(value)
    except ValueError as error:
        raise click.UsageError(f"--knobs: not JSON: {error}") from error


def _shop(knobs: Mapping[str, Any] | None) -> OwnWorld:
    try:
        return OwnWorld(knobs=knobs)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


_SPLIT = click.option("--split", type=click.Choice(list(SPLITS)), default="test", show_default=True)
_TASKS = click.option(
    "--tasks",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="So many, from the first on.",
)
_KNOBS = click.option(
    "--knobs", callback=_knobs, metavar="JSON", help="As scenario.knobs in a config."
)


@click.group()
def main() -> None:
    """Tasks of the generated shop."""


@main.command()
@_SPLIT
@_TASKS
@_KNOBS
def prove(split: str, tasks: int, knobs: Mapping[str, Any] | None) -> None:
    """Makes tasks, proves each once more from itself, and tells which share of all that was
    drawn each proof threw away."""
    shop = _shop(knobs)
    made = shop.tasks(split)[:tasks]
    lost = []
    for task in made:
        try:
            # From the task alone, in tables that are made again: a proof that only held while the
            # task was drawn would be worth nothing to whoever gets the file.
            prove_task(task, shop.world(task))
        except Unproved as fault:
            lost.append(str(fault))
    drawn = sum(shop.rejected.values())
    for name in PROOFS:
        cases = sum(task.proof[name] for task in made)
        click.echo(
            f"{name:10} {shop.rejected[name] / drawn:6.1%} of {drawn} drawn were thrown away;"
            f" {cases} cases in the tasks kept"
        )
    for line in lost:
        click.echo(line)
    click.echo(f"{len(made) - len(lost)} of {len(made)} tasks of {split} hold all proofs")
    # An exit code, so that a build stops at a task whose proof fails now.
    if lost:
        raise SystemExit(1)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--form", type=click.Choice(list(FORMS)), default="own", show_default=True)
@_SPLIT
@_TASKS
@_KNOBS
def write(folder: Path, form: str, split: str, tasks: int, knobs: Mapping[str, Any] | None) -> None:
    """Writes tasks with their tables into FOLDER, for tau-bench's loader, tau2-bench's, or as
    our own JSON."""
    try:
        for written in write_world(folder, form, _shop(knobs).tasks(split)[:tasks]):
            click.echo(written)
    # A usage error, not a traceback: the folder and the knobs are what was typed.
    except (ConfigError, DataError) as error:
        raise click.UsageError(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m gem_ma.scenarios.service_desk.retail")
