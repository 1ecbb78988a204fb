"""`gem-ma show`: one scenario with its agents, options and first question, or one run with its
score."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gem_ma import registry
from gem_ma.cli.completion import run_names
from gem_ma.cli.runs import lost_rows, run_folder, show_summary
from gem_ma.cli.terminal import columns, emit, emit_json, json_option, progress_line
from gem_ma.kernel.episode import End
from gem_ma.kernel.errors import GemMaError
from gem_ma.kernel.scenario import Game
from gem_ma.runs.store import read_manifest, read_summary
from gem_ma.runs.store.lines import older_summary, read_places, standing_summary
from gem_ma.runs.store.summaries import check_training
from gem_ma.runs.store.used import differing, is_as_played
from gem_ma.scores.judge import Judge
from gem_ma.system.files import damage, kind
from gem_ma.system.options import signature

EXAMPLE = """\b
Examples:
  gem-ma show scenario kuhn_poker
  gem-ma show runs/dilemma-01616cee
  gem-ma show runs/retail_scripted-2ee0fd2f --episode lost"""
SPLITS = ("train", "val", "dev", "test", "shift")


@click.command(epilog=EXAMPLE)
@click.argument(
    "what", shell_complete=run_names, nargs=-1, required=True, metavar="scenario ID | RUN"
)
@click.option(
    "--episode",
    metavar="WHICH",
    help=(
        "One play of the run in lanes: a task (test/153), a seed, or won, lost, failed or cut for"
        " the first such."
    ),
)
@click.option(
    "--scenario",
    metavar="NAME|FILE",
    help="Judge the plays by this scenario: code that you name is run.",
)
@click.option("--full", is_flag=True, help="With --episode: long briefings and texts, too.")
@click.option("--all", "whole", is_flag=True, help="Every measure and group of a run's score.")
@json_option
def command(
    what: tuple[str, ...],
    episode: str | None,
    scenario: str | None,
    full: bool,
    whole: bool,
    as_json: bool,
) -> int:
    """Show a scenario (its agents, options, tasks and first question), a run (its score and which
    plays were lost), or one play of a run."""
    if len(what) == 2 and what[0] == "scenario" and episode is scenario is None:
        show_scenario(what[1], as_json)
    elif len(what) == 1 and what[0] != "scenario":
        show_run(what[0], episode, as_json, whole, full, scenario)
    else:
        raise click.UsageError("name one run folder, or a scenario: `scenario ID`")
    return 0


def show_scenario(name: str, as_json: bool) -> None:
    """Prints what a scenario declares and what it asks first."""
    facts = scenario_facts(name)
    if as_json:
        emit_json(facts)
        return
    tasks = ", ".join(f"{split} {count}" for split, count in facts["tasks"].items())
    rows = [
        ("scenario", f"{facts['id']} (version {facts['version']})"),
        ("", facts["summary"]),
        ("agents", ", ".join(facts["agents"])),
        *_row("default cast", _cast_text(facts["default_cast"])),
        ("facts", ", ".join(facts["facts"]) or "none declared"),
        ("success", "yes or no" if facts["success"] else "rewards only"),
        # a world outside of the package has tasks only where its data lie
        ("tasks", tasks or "none here; its data may be missing"),
        *((f"option {option}", text) for option, text in facts["options"].items()),
        *((f"baseline {name}", f"{score:g}") for name, score in facts["baselines"].items()),
        *_row("plays beside", ", ".join(facts["baseline_casts"])),
        *((f"examiners of {who}", _cast_text(cast)) for who, cast in facts["examiners"].items()),
    ]
    for agent, opening in facts["example"].items():
        rows += [
            # the start is enough to know it: some openings are pages of rules
            (f"first asked {agent}", "; ".join(opening["shown"])[:300]),
            *_row(f"legal {agent}", ", ".join(opening["legal"])),
            *_row(f"tools {agent}", ", ".join(opening["tools"])),
        ]
    emit(columns(rows))


def _row(name: str, text: str) -> list[tuple[str, str]]:
    """The row, or none where there is nothing to say."""
    return [(name, text)] if text else []


def _cast_text(cast: Mapping[str, str]) -> str:
    return ", ".join(f"{agent}: {behaviour}" for agent, behaviour in cast.items())


def scenario_facts(name: str) -> dict[str, Any]:
    """Everything that a scenario declares, as JSON values; `example` is its first decision point
    on `test/0`, seed 0."""
    scenario = registry.make(name)
    tasks: dict[str, int] = {}
    for split in SPLITS:
        try:
            tasks[split] = len(scenario.tasks(split))
        except (GemMaError, LookupError, ValueError):  # it has no such split
            continue
    example: dict[str, Any] = {}
    # the split that is scored comes first; its first question is the typical one
    held = [split for split in ("test", "dev", "train") if tasks.get(split)]
    if held:
        # tools are not run: some of them cost, or change a world
        game = Game(scenario, scenario.tasks(held[0])[0], 0, defer_calls=True)
        for agent, asked in game.pending.items():
            tools = [tool.name for tool in asked.tools]
            example[agent] = {
                "shown": [message.text for message in game.view(agent)],
                "legal": list(asked.legal or ()),
                "tools": tools,
            }
        game.close()
    options = {
        key: _option(parameter)
        for key, parameter in (signature(registry.load("scenarios", name)) or {}).items()
    }
    # those that are true: an undeclared one promises nothing
    declared = [fact for fact in ("zero_sum", "cooperative", "chance") if getattr(scenario, fact)]
    declared += [f"ends within {scenario.ends_within} decision points"] * (
        scenario.ends_within is not None
    )
    if scenario.limits is not None:
        declared.append(f"cut after {scenario.limits.max_steps} decision points")
    return {
        "id": scenario.id,
        "version": scenario.version,
        "summary": scenario.summary,
        "agents": list(scenario.agents),
        "default_cast": dict(scenario.default_cast),
        "facts": declared,
        "success": Judge.of(scenario).success is not None,
        "tasks": tasks,
        "options": options,
        "baselines": dict(scenario.baselines),
        "baseline_casts": {name: dict(cast) for name, cast in scenario.baseline_casts.items()},
        "examiners": {agent: dict(cast) for agent, cast in scenario.examiners.items()},
        "example": example,
    }


def _option(parameter: inspect.Parameter) -> str:
    """Type and default of an option, as in `int = 5`."""
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    kind = parameter.annotation
    if kind is parameter.empty:
        return default
    # a string under `from __future__ import annotations`, else a class
    return (kind if isinstance(kind, str) else getattr(kind, "__name__", "")) + default


def show_run(
    run: str,
    which: str | None,
    as_json: bool,
    whole: bool = False,
    is_full: bool = False,
    scenario: str | None = None,
) -> None:
    """Prints the score of a run, read from its record; for a training run, what learning changed;
    or one of its episodes.

    Nothing that the folder names is imported: a scenario that is not installed does not judge
    its run unless the user names it as `scenario`, and what was recorded is shown.
    """
    path: Path = run_folder(run)
    # late here and below: a score that stands needs neither the config nor a judge, whose imports
    # take longer than all the rest
    if which is not None:
        from gem_ma.cli.episode import show_episode
        from gem_ma.runs.stored import open_record

        judge = open_record(path, progress_line, scenario).judge
        # a line that reads as JSON may still hold nonsense, which breaks whoever computes with it
        with damage(path / "episodes.jsonl"):
            show_episode(path, which, judge, as_json, is_full, anew=scenario is not None)
        return
    # a link could lead anywhere, and is not passed off as the run's page
    report = path / "report.html" if kind(path / "report.html") == "a file" else None
    trained = read_summary(path) if read_manifest(path).get("command") == "train" else None
    if trained is None:
        show_played(path, as_json, report, whole, scenario)
        return
    from gem_ma.cli.trained import show_training

    if words := differing(path):
        progress_line(f"{words}; what was recorded is shown")
    summary = check_training(trained, path / "summary.json")
    places = read_places(path)
    with damage(path / "summary.json"):
        show_training(
            summary,
            len(places),
            places.count([End.FAILED]),
            path,
            as_json,
            report,
        )


def show_played(
    path: Path, as_json: bool, report: Path | None, whole: bool, scenario: str | None
) -> None:
    """Prints the score of a run that plays, or of the episodes that a training has played so
    far, and its lost plays."""
    summary = standing_summary(path) if scenario is None and is_as_played(path) else None
    if summary is None:
        from gem_ma.runs.stored import open_record, run_summary

        record = open_record(path, progress_line, scenario)
        with damage(path / "episodes.jsonl"):
            summary = run_summary(path, record, scenario)
    with damage(path / "summary.json"):
        if "baselines" not in summary:  # those of plays that were scored anew
            summary |= {"baselines": (read_summary(path) or {}).get("baselines", {})}
        more = lost_rows(summary, path)
        # how many are wanted is known by code that is not run here
        if "planned" not in summary and older_summary(path) is None:
            more.append(("not finished", f"as far as it was played: gem-ma resume {path}"))
        show_summary(summary, path, as_json, report, whole=whole, more=more)
