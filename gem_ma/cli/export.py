"""`gem-ma export`: a run's plays as data for other tools, or what it has trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gem_ma.cli.completion import run_names
from gem_ma.cli.runs import run_folder
from gem_ma.cli.terminal import emit, emit_json, json_option, progress_line
from gem_ma.config.seats import key_of, seats_in
from gem_ma.kernel.errors import ConfigError
from gem_ma.pages.static.study_file import png_of, study_svg
from gem_ma.runs.export.model import export_model
from gem_ma.runs.export.tables import write_csv
from gem_ma.runs.export.taus import SIDES
from gem_ma.runs.export.writing import FORMATS as ENDINGS
from gem_ma.runs.export.writing import Wish, export, has_images
from gem_ma.runs.run import Played
from gem_ma.runs.store import is_study, read_manifest, since_compared
from gem_ma.runs.store.lines import read_resolved
from gem_ma.runs.stored import open_record
from gem_ma.scores.sides import flat_rows
from gem_ma.system.files import damage, read_json

# as in gem_ma.runs.export.writing, which takes numpy to import
FORMATS = ("jsonl", "parquet", "hf", "csv", "messages", "sft", "preference", "tau1", "tau2")
OF_STUDIES = ("csv", "svg", "png")
EXAMPLE = """\b
Examples:
  gem-ma export runs/dilemma-01616cee --to jsonl
  gem-ma export runs/retail-5e0f71b2 --to sft --agent assistant -o train.jsonl
  gem-ma export runs/guess_number-2c1f09ab --to model --merged -o published
  gem-ma export runs/who-3f1c02aa --to svg --score "return player_0\""""


@click.command(epilog=EXAMPLE)
@click.argument("run", shell_complete=run_names)
@click.option(
    "--to",
    "form",
    type=click.Choice([*FORMATS, "model", "svg", "png"]),
    required=True,
    help="The format.",
)
@click.option(
    "-o", "--out", type=click.Path(), help="The new file or folder.  [default: RUN-FORMAT here]"
)
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME",
    help="Whose conversations; may be given again.  [default: those that a policy plays, else all]",
)
@click.option(
    "--only",
    type=click.Choice(["all", "won", "lost"]),
    help="Which plays.  [default: all; for sft those that are won or, where success is not judged,"
    " ended without an error]",
)
@click.option(
    "--scenario",
    metavar="NAME|FILE",
    help="Judge by this scenario: code that you name is run.",
)
@click.option(
    "--score",
    metavar="NAME",
    help="Of the figure of a study; `pass^k` draws all k.  [default: the first that is compared]",
)
@click.option(
    "--policy", metavar="NAME", help="Of a training: whose weights, where several learned."
)
@click.option("--merged", is_flag=True, help="Of a model: an adapter as weights of its base.")
@json_option
def command(
    run: str,
    form: str,
    out: str | None,
    agents: tuple[str, ...],
    only: str | None,
    scenario: str | None,
    score: str | None,
    policy: str | None,
    merged: bool,
    as_json: bool,
) -> int:
    """Write the plays of RUN as data, a policy that it has trained as a model, or the cells of a
    study as a table or a figure. Per-turn rewards and sampled tokens are kept.

    \b
    jsonl, parquet, hf   whole episodes, which gem_ma.read_episodes reads back without loss;
                         parquet is a folder of plays, turns and calls (NAME.parquet: one file)
    csv                  a row for each play: how it came out, who played, measures, fault, cost
    messages             what one agent saw and said in one play, in the chat form
    sft                  the same of won plays, up to its last word
    preference           one prompt, and two acts of which one led to more
    tau1, tau2           talks of assistant and user, as those benchmarks store results

    \b
    Of a training: model is a folder that transformers or peft loads, with a card of scores and
    digests. `hf upload OWNER/NAME FOLDER` puts it on the hub.

    \b
    Of a study: csv has a row for each cell, svg and png (by cairosvg) a figure of one score.
    """
    if out == "-":  # it would become the name of a file
        raise click.UsageError("--out names a file or a folder; nothing is written to stdout")
    if form != "model" and (policy or merged):
        raise click.UsageError("--policy and --merged are for --to model")
    study = next((path for path in (Path(run), Path("runs", run)) if is_study(path)), None)
    if study is not None:
        if agents or only or scenario:
            raise click.UsageError("--agent, --only and --scenario are for runs; this is a study")
        return _study(study, form, out, score, as_json)
    path = run_folder(run)
    if form == "model":
        if agents or only or scenario or score:
            raise click.UsageError("--agent, --only, --scenario and --score are not for --to model")
        return _model(path, Path(out or f"{path.resolve().name}-model"), policy, merged, as_json)
    if form in ("svg", "png") or score is not None:
        raise click.UsageError(f"{path}: svg, png and --score are for studies; this is a run")
    return _plays(path, form, out, agents, (only, scenario), as_json)


def _plays(
    path: Path,
    form: str,
    out: str | None,
    agents: tuple[str, ...],
    chosen: tuple[str | None, str | None],
    as_json: bool,
) -> int:
    """Writes the plays of a run; `chosen`: which of them, and the scenario that judges."""
    only, scenario = chosen
    record = open_record(path, progress_line, scenario)
    seated = sorted({agent for _, agent, _ in seats_in(read_resolved(path))})
    is_listed = bool(seated) and "*" not in "".join(seated)  # a pattern may mean any agent
    # a play without the named agent is not a fault of the record
    if is_listed and (strange := [name for name in agents if name not in seated]):
        names = ", ".join(seated)
        raise ConfigError(f"{path}: no agent is called {strange[0]!r}; its agents are {names}")
    name = f"{path.resolve().name}-{form}{ENDINGS[form]}"
    target = Path(out or name)
    # a run folder holds its own files alone
    if out and target.is_dir() and not (target / "manifest.json").exists():
        target /= name
    with damage(path / "episodes.jsonl"):
        played = Played(record)
        wish = Wish(form, only, agents, _facts(path), played.row, played)
        made = export(path, target, record.judge, wish)
    if has_images(path) and form != "hf":
        progress_line(f"images are named by their digests; their bytes stay in {path / 'media'}")
    if as_json:
        emit_json({"run": str(path), **made})
    else:
        told = f"{made['out']}: {made['rows']} rows of {made['episodes']} episodes"
        emit(told + _why_few(made, agents))
    return 0


def _model(path: Path, out: Path, policy: str | None, merged: bool, as_json: bool) -> int:
    """Writes what a policy has learned as a folder for others."""
    with damage(path / "summary.json"):
        made = export_model(path, out, policy, merged=merged)
    if as_json:
        emit_json({"run": str(path), **made})
    else:
        emit(f"{out}: {made['kind']} of policy {made['policy']}; README.md says what it can do")
    return 0


def _study(path: Path, form: str, out: str | None, score: str | None, as_json: bool) -> int:
    """Writes the cells of a study as a table or a figure."""
    if form not in OF_STUDIES:
        raise click.UsageError(
            f"{path}: a study is written as {', '.join(OF_STUDIES)}; --to {form} is for a run, as"
            " each of its cells is"
        )
    if form == "csv" and score is not None:
        raise click.UsageError("--score is for a figure; --to csv has every score")
    summary = read_json(path / "study.json", path)
    with damage(path / "study.json"):
        if line := since_compared(path, summary):
            progress_line(line)
        rows = flat_rows(summary)
        svg = "" if form == "csv" else study_svg(summary, score)
    target = Path(out or f"{path.resolve().name}.{form}")
    target = target / f"{path.resolve().name}.{form}" if target.is_dir() else target
    if form == "csv":
        write_csv(rows, target)
    else:
        target.write_bytes(png_of(svg) if form == "png" else svg.encode())
    if as_json:
        emit_json({"study": str(path), "out": str(target), "format": form, "cells": len(rows)})
    else:
        emit(f"{target}: {len(rows)} cells")
    return 0


def _why_few(made: dict[str, Any], agents: tuple[str, ...]) -> str:
    """Why there are fewer rows than somebody may expect: the end of a line, or nothing."""
    if made["episodes"] < made["of"]:
        return f", chosen of {made['of']} (--only all takes every one)"
    if agents and not made["rows"]:
        return f"; in none of them {' or '.join(agents)} has a row"
    if made["format"] == "preference" and not made["rows"]:
        return (
            "; a pair wants two plays of one start, as run.episodes_per_task=4 makes them where a"
            " scenario has several tasks, and groups of a training in any"
        )
    return ""


def _facts(path: Path) -> dict[str, Any]:
    """What a format says of the whole run."""
    manifest = read_manifest(path)
    resolved = read_resolved(path)
    policies = resolved.get("policies") or {}
    seats = resolved.get("agents") or {}
    return {
        "created": manifest.get("created"),
        "commit": (manifest.get("git") or {}).get("commit"),
        "seed": (resolved.get("run") or {}).get("seed"),
        "models": {
            agent: (policies.get(seats[key].get("policy")) or {}).get("model")
            for agent in SIDES
            if (key := key_of(agent, seats)) is not None
        },
    }
