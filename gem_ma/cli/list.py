"""`gem-ma list`: what can be played, who can play it, what can sample, which configs are
shipped, what has been run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from gem_ma import registry
from gem_ma.cli.terminal import columns, emit, emit_json, progress_line
from gem_ma.driver.behaviour import is_privileged, needs_policy
from gem_ma.engines.capabilities import CAPABILITIES, Trains, declared, declares
from gem_ma.kernel.parsing.text import first_sentence
from gem_ma.kernel.spelling import decimal
from gem_ma.runs.store import list_runs, list_studies
from gem_ma.runs.store.listing import folders_of_runs
from gem_ma.runs.store.used import differing, in_words
from gem_ma.system.options import signature

EXAMPLE = """\b
Examples:
  gem-ma list scenarios --json
  gem-ma list runs --sort success"""


@click.command(epilog=EXAMPLE)
@click.argument(
    "kind",
    type=click.Choice(["scenarios", "agents", "engines", "wrappers", "configs", "runs", "studies"]),
    default="scenarios",
    metavar="[KIND]",  # the seven words would break every line of usage
)
@click.option(
    "--root", type=click.Path(), default="runs", show_default=True, help="Where run folders lie."
)
@click.option(
    "--sort",
    metavar="KEY",
    help="Runs by success, 'return AGENT', episodes or created, the highest first; or by scenario"
    " or name.",
)
@click.option(
    "--json", "as_json", is_flag=True, envvar="GEM_MA_JSON", help="Print a list of JSON objects."
)
def command(kind: str, root: str, sort: str | None, as_json: bool) -> int:
    """List what is there of a kind: scenarios (default), agents (behaviours), engines, wrappers,
    configs (shipped ones), runs or studies."""
    if sort is not None and kind != "runs":
        raise click.UsageError("--sort is for runs; the others stand in the order of their names")
    if kind == "runs":
        entries = list_runs(Path(root))
        entries = entries if sort is None else by(sort, entries)
        if words := changed_runs(entries):
            progress_line(words)
        if inside := ", ".join(map(str, folders_of_runs(Path(root)))):
            progress_line(f"not listed: the runs in {inside}; name such a folder by --root")
    elif kind == "studies":
        entries = list_studies(Path(root))
        for line in filter(None, (entry.get("changed") for entry in entries)):
            progress_line(line)
    else:
        entries = configs() if kind == "configs" else objects(kind)
    if as_json:
        emit_json(entries)
    elif not entries:
        emit(f"no {kind} in {root}" if kind in ("runs", "studies") else f"no {kind}")
    else:
        emit(columns([_row(kind, entry) for entry in entries], _HEADS[kind]))
        if kind == "engines":
            emit("\n" + capability_table(entries))
        if kind == "scenarios":
            emit("\n" + foreign())
    return 0


_HEADS = {
    "scenarios": ("scenario", "agents", "summary"),
    "agents": ("behaviour", "needs", "summary"),
    "engines": ("engine", "learns", "summary"),
    "wrappers": ("wrapper", "options", "summary"),
    "configs": ("config", "type", "what it is"),
    "studies": ("study", "compared", "axes", "cells", "episodes", "scores", "tags"),
    "runs": ("run", "scenario", "created", "episodes", "score", "who plays", "state"),
}


def _row(kind: str, entry: dict[str, Any]) -> tuple[str, ...]:
    if entry.get("error"):
        gap = [""] * (len(_HEADS[kind]) - 2)
        named = entry.get("id") or entry.get("run") or entry["study"]
        return (named, *gap, f"unreadable: {entry['error']}")
    if kind == "scenarios":
        return (entry["id"], ", ".join(entry["agents"]), entry["summary"])
    if kind == "agents":
        needs = ["the task"] * entry["privileged"] + ["a policy"] * entry["needs_policy"]
        return (entry["id"], " and ".join(needs), entry["summary"])
    if kind == "configs":
        return (entry["id"], entry["command"], entry["summary"])
    if kind == "wrappers":
        return (entry["id"], ", ".join(entry["options"]), entry["summary"])
    if kind == "engines":
        return (entry["id"], "yes" if entry["trainable"] else "no", entry["summary"])
    if kind == "studies":
        axes = (f"{len(names)} {axis.split('.', 1)[-1]}" for axis, names in entry["axes"].items())
        failed = f" ({entry['failed']} failed)" if entry["failed"] else ""
        return (
            entry["study"],
            entry["compared"][:16],
            " x ".join(axes),
            str(entry["cells"]),
            f"{entry['episodes']}{failed}",
            ", ".join(entry["scores"]),
            ", ".join(entry["tags"]),
        )
    state = ", ".join(["finished" if entry["finished"] else "open", *entry["tags"]])
    # three digits: a run of some hundred plays knows no more
    score = ", ".join(f"{name} {decimal(value)}" for name, value in entry["score"].items())
    return (
        entry["run"],
        entry["scenario"],
        entry["created"][:16],
        str(entry["episodes"]),
        score,
        players(entry["cast"], entry["models"]),
        state,
    )


def foreign() -> str:
    """How scenarios of other libraries are named, in two lines."""
    prefixes = ", ".join(registry.builtin("worlds"))
    return (
        "A file is a scenario, too: game.py. So is an environment of another library, as"
        f" openspiel:kuhn_poker;\nits prefix is one of {prefixes}. docs/worlds.md lists them."
    )


def capability_table(engines: list[dict[str, Any]]) -> str:
    """Engines x capabilities, as text."""
    # the registry of capabilities is the only list, so that a new one appears here by itself
    names = [capability.__name__ for capability in CAPABILITIES]
    rows = [
        [engine["id"], *("x" if name in engine.get("capabilities", ()) else "-" for name in names)]
        for engine in engines
    ]
    return columns(rows, ["engine", *names])


def players(cast: dict[str, str], models: dict[str, str]) -> str:
    """Who plays, in short: agents that one plays stand together, and a policy is its model."""
    played: dict[str, list[str]] = {}
    for agent, who in cast.items():
        # a model says more than the name that a config gives its policy
        played.setdefault(models.get(who) or who, []).append(agent)
    return ", ".join(f"{' and '.join(agents)}: {who}" for who, agents in played.items())


def objects(kind: str) -> list[dict[str, Any]]:
    """Every scenario, behaviour, engine or wrapper of the catalog; one that cannot be imported has
    an `error`."""
    facts = []
    for name in sorted(registry.catalog(kind)):
        try:
            facts.append(
                {"id": name, **_FACTS[kind](name, registry.load(kind, name)), "error": None}
            )
        except Exception as error:
            # a plugin may raise anything; the others are listed all the same
            fault = f"{type(error).__name__}: {error}"
            facts.append({"id": name, "agents": [], "summary": "", "error": fault})
    return facts


def _scenario(name: str, factory: Any) -> dict[str, Any]:

    # most classes declare their agents; the others have them only once they are made
    made = factory if getattr(factory, "agents", ()) else registry.make(name)
    # what decides which measures and algorithms fit it
    facts = {key: getattr(made, key) for key in ("version", "zero_sum", "cooperative")}
    return {
        "agents": list(made.agents),
        "summary": summary_of(factory),
        **facts,
        "options": option_names(factory),
    }


def _behaviour(name: str, factory: Any) -> dict[str, Any]:

    facts = {"privileged": is_privileged(factory), "needs_policy": needs_policy(name, factory)}
    return {
        "summary": summary_of(factory),
        **facts,
        # these four come from the driver, and no config can set them
        "options": option_names(factory, "agent", "sample", "rng", "task"),
    }


def _engine(name: str, factory: Any) -> dict[str, Any]:

    return {
        "summary": summary_of(factory),
        "trainable": declares(factory, Trains),
        "capabilities": list(declared(factory)),
        "options": option_names(factory, "name", "policy"),
    }


def _wrapper(name: str, factory: Any) -> dict[str, Any]:
    # the scenario inside comes from the config above it
    return {"summary": summary_of(factory), "options": option_names(factory, "inner")}


_FACTS = {
    "scenarios": _scenario,
    "agents": _behaviour,
    "engines": _engine,
    "wrappers": _wrapper,
}


def configs() -> list[dict[str, Any]]:
    """Every shipped config with the command that it is for and the sentence on its first line."""
    # late: a list of runs needs no schema, which takes longer than the list
    from gem_ma.config.grid import DESIGNS
    from gem_ma.config.sources import shipped_configs

    listed = []
    for path in shipped_configs():
        lines = path.read_text(encoding="utf-8").splitlines()
        # comments further down are about the keys below them
        opening = " ".join(line.lstrip("# ") for line in lines[:4] if line.startswith("#"))
        # sections stand at the left edge, so that no YAML needs to be parsed for a list
        sections = {line.partition(":")[0] for line in lines if re.match(r"[a-z_]+:", line)}
        command = "train" if "train" in sections else "run"
        if sections & {*DESIGNS}:
            command = "study"
        summary = re.split(r"(?<=[.:;]) ", opening, maxsplit=1)[0].rstrip(".:;")
        listed.append(
            {
                "id": path.stem,
                "command": f"gem-ma {command} {path.stem}",
                "summary": summary,
                "path": str(path),
                "error": None,
            }
        )
    return listed


def changed_runs(entries: list[dict[str, Any]]) -> str:
    """A line about the runs whose code or data is gone or differs; "" where none is."""
    words = [
        f"{entry['run']}: {changed}"
        for entry in entries
        if not entry.get("error") and (changed := differing(Path(entry["run"]), noted=True))
    ]
    return in_words(words)


def by(key: str, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs by one of their facts: numbers and dates from the highest, texts from a to z; those
    without it come last. Raises UsageError where no run has it."""
    if key in TEXTS:
        return sorted(entries, key=lambda run: (run.get(key) is None, str(run.get(key) or "")))
    values = [_fact(run, key) for run in entries]
    if entries and all(value is None for value in values):
        names = dict.fromkeys(name for run in entries for name in run.get("score", ()))
        known = ", ".join([*names, *NUMBERS, *TEXTS])
        raise click.UsageError(f"--sort {key}: no run has it; there are {known}")
    known_first = [run for run, value in zip(entries, values, strict=True) if value is not None]
    rest = [run for run, value in zip(entries, values, strict=True) if value is None]
    return sorted(known_first, key=lambda run: _fact(run, key), reverse=True) + rest


NUMBERS = ("episodes", "created")
TEXTS = ("scenario", "name")


def _fact(run: dict[str, Any], key: str) -> Any:
    return run.get(key) if key in NUMBERS else run.get("score", {}).get(key)


def summary_of(factory: Any) -> str:
    """The first sentence of a docstring."""
    return first_sentence(factory.__doc__ or "")


def option_names(factory: Any, *fed: str) -> list[str]:
    """The options of a constructor, less what the driver gives."""
    return [
        name
        for name, parameter in (signature(factory, fed) or {}).items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
