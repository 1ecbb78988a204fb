"""`gem-ma serve`: seats for programs of somebody else. Plays a config as `run` does, or learns as
`train` does, with one or more seats taken over HTTP."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from gem_ma.cli.completion import sources
from gem_ma.cli.run import play
from gem_ma.cli.terminal import (
    concurrency_option,
    fresh_option,
    json_option,
    out_option,
    progress_line,
    quiet_option,
)
from gem_ma.cli.train import learn
from gem_ma.config.loading import Loaded, load
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.spelling import in_quotes
from gem_ma.runs.playing import places_of
from gem_ma.runs.store import run_path
from gem_ma.serving.desk import DESK, PATIENCE_S, Desk
from gem_ma.system.loopback import library

PORT = 8765
EXAMPLE = """\b
Example:
  gem-ma serve configs/retail_scripted.yaml --seat assistant -n 5
  gem-ma serve configs/retail_train.yaml --seat assistant --train"""


@click.command(epilog=EXAMPLE)
@click.argument("source", shell_complete=sources, metavar="CONFIG")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--seat", "seats", multiple=True, required=True, help="The agent to take; several are allowed."
)
@click.option("--train", "learns", is_flag=True, help="Let the policies of the config learn.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: a free one."
)
@click.option("--key-env", metavar="NAME", help="The variable with the key that clients send.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds of silence until a program counts as gone.  [default: 300]",
)
@click.option("-n", "--tasks", type=click.IntRange(min=1), help="How many tasks (or seeds).")
@concurrency_option
@out_option
@fresh_option
@click.option("--retry-failed", is_flag=True, help="Play failed episodes once more.")
@json_option
@quiet_option
def command(
    source: str,
    overrides: tuple[str, ...],
    seats: tuple[str, ...],
    learns: bool,
    tasks: int | None,
    concurrency: int | None,
    out: str | None,
    **options: Any,
) -> int:
    """Let a program play one of the agents: it takes the seat over HTTP, play after play, and
    calls the seat's policy as a model that speaks chat completions.

    Programs in Python do so by gem_ma.trainers.seat, all others as docs/serve.md says. The
    same command again continues where it stopped.
    """
    changes = {"scenario.tasks": tasks, "run.concurrency": concurrency}
    # a program in place of the behaviour, whose options nobody reads then; the run's digest knows
    before = load(source, overrides, configs_first=True, typed=True)
    extra = [
        word
        for seat in seats
        for key in places_of(seat, before) or (f"agents.{in_quotes(seat)}",)
        for word in (f"{key}.behaviour=program", f"{key}.options={{}}")
    ]
    extra += [f"{key}={value}" for key, value in changes.items() if value is not None]
    loaded = load(source, (*overrides, *extra), configs_first=True, typed=True)
    check(loaded, seats, learns)
    if not learns:
        loaded = loaded.without_training()
    path = Path(out) if out else run_path(loaded.stem, loaded.identity())
    return _serve(loaded, path, seats, learns, options)


def _serve(
    loaded: Loaded, path: Any, seats: Sequence[str], learns: bool, options: dict[str, Any]
) -> int:

    library("gem-ma serve", "serve")

    retry = options.pop("retry_failed")
    if retry and learns:
        raise ConfigError(
            "--retry-failed: the failed episodes of a training are part of what it has learned;"
            " leave it out"
        )
    desk = Desk(seats, patience_s=options.pop("patience") or PATIENCE_S, note=progress_line)
    key = _key(options.pop("key_env"))
    # behind `library`, which says what to type where uvicorn is missing
    from gem_ma.serving.door import Door

    door = Door(desk, host=options.pop("host"), port=options.pop("port"), key=key)
    token = DESK.set(desk)
    try:
        with door:
            progress_line(
                f"seat {', '.join(seats)} is free at {door.address} (POST /episodes takes it)"
            )
            again = "the same command"
            if learns:
                return learn(loaded, path, resume=again, **options)
            return play(loaded, path, retry_failed=retry, resume=again, **options)
    finally:
        DESK.reset(token)


def _key(name: str | None) -> str | None:
    """The key in the variable of this name. Raises ConfigError."""
    if name is None:
        return None
    if not os.environ.get(name):
        raise ConfigError(f"--key-env {name}: the variable is not set")
    return os.environ[name]


def check(loaded: Loaded, seats: Sequence[str], learns: bool) -> None:
    """Raises ConfigError for what cannot be served."""
    config = loaded.config
    train = loaded.config.train
    if loaded.study:
        raise ConfigError(f"{loaded.path}: this is a study of several cells; serve a config of one")
    if config.run.episode_timeout_s is not None:
        raise ConfigError(
            "run.episode_timeout_s counts from before a program takes its seat; set it to null, and"
            " take --patience"
        )
    if not learns:
        return
    if train is None:
        raise ConfigError(f"{loaded.stem}: no section train:, so nothing can learn")
    if train.fork is not None:
        raise ConfigError(
            "train.fork: a program cannot be set back to an earlier turn; take it out"
        )
    places = (place for seat in seats for place in places_of(seat, loaded).values())
    for policy in dict.fromkeys(place.policy for place in places):
        # its prompts are its own, so nothing says what an id was chosen among
        if policy in train.policies and config.policies[policy].options.get("constrain"):
            raise ConfigError(
                f"policies.{policy}.constrain: a program asks as it likes, so what it samples is"
                f" bound to nothing; set policies.{in_quotes(policy)}.constrain=null"
            )
