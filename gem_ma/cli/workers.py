"""`--ray ADDRESS` and `--workers N` of `gem-ma train` and `gem-ma resume`: plays on the workers of
a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from gem_ma.config.loading import Loaded
from gem_ma.kernel.errors import ConfigError
from gem_ma.training.processes.ray_workers import ray_pool
from gem_ma.training.processes.teams import Teams, join

F = TypeVar("F", bound=Callable[..., Any])


def worker_options(command: F) -> F:
    """Gives a command both options, as keywords `ray` and `workers`."""
    ray = click.option(
        "--ray", metavar="ADDRESS", help="Play on the workers of a Ray cluster, or `local`."
    )
    number = click.IntRange(min=1)
    workers = click.option(
        "--workers", type=number, help="Of --ray: how many.  [default: one for each core]"
    )
    return ray(workers(command))


def check_ray(ray: str | None, workers: int | None, processes: int) -> None:
    """Raises ConfigError for options that do not go together."""
    if workers is not None and ray is None:
        raise ConfigError(f"--workers {workers}: these are workers of Ray; add --ray local")
    if ray is not None and processes > 1:
        raise ConfigError("--ray: one process learns from what its workers play; train with one")


@contextmanager
def joined(loaded: Loaded, ray: str | None, workers: int | None) -> Iterator[Teams]:
    """The processes of a training: those of a launcher, or one that learns and workers that play.
    However the training ends, no worker plays on. Raises ConfigError, EngineError."""
    if ray is None:
        yield join()
        return
    # absolute: a worker begins in a folder of its own
    base = "" if loaded.base is None else str(loaded.base.resolve())
    pool = ray_pool(ray, loaded.config.model_dump_json(), base, workers)
    try:
        yield Teams(pool=pool)
    finally:
        pool.close()
