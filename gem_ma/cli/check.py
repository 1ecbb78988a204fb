"""`gem-ma check`: a config against its schema, scenario and models, or a scenario against its
own declarations. Nothing that costs is played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from gem_ma.cli.completion import sources
from gem_ma.cli.endpoints import estimate, estimate_rows, ping, remote
from gem_ma.cli.examine import examine as examined
from gem_ma.cli.runs import run_folder
from gem_ma.cli.seats import seated
from gem_ma.cli.stopping import exit_code
from gem_ma.cli.terminal import (
    OPEN,
    base_url_option,
    columns,
    emit,
    emit_json,
    json_option,
    progress_line,
    quiet_option,
)
from gem_ma.config.loading import Loaded, load, load_study
from gem_ma.engines.base import Policy
from gem_ma.kernel.errors import ConformanceError
from gem_ma.runs.cells import Policies, open_cells
from gem_ma.runs.open import Opened, open_config
from gem_ma.runs.worlds import Worlds
from gem_ma.testing import check_scenario
from gem_ma.testing.report import Report
from gem_ma.training.schedule.checks import open_training, remarks, seeds
from gem_ma.wrappers.around import rules_of

# seeds that the rules are played with: all that there is of a scenario alone; a config's scenario
# has been checked by its author, and a check of a config should take seconds
SCENARIO_SEEDS = 12
CONFIG_SEEDS = 3
EXAMINED_TASKS = 20

EXAMPLE = """\b
Examples:
  gem-ma check configs/dilemma.yaml
  gem-ma check kuhn_poker
  gem-ma check configs/retail_scripted.yaml --examine user -n 20 --at-least 0.9"""


@click.command(epilog=EXAMPLE, context_settings=OPEN)
@click.argument("source", shell_complete=sources, metavar="CONFIG|SCENARIO")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE|--AGENT WHO]...")
@base_url_option
@click.option(
    "--examine",
    metavar="AGENT",
    help="Play this agent's seat with the scenario's examiners: their success is its ceiling.",
)
@click.option(
    "-n",
    "--tasks",
    type=click.IntRange(min=1),
    help="How many tasks, as for run; of an examination 20 where absent.",
)
@click.option("--at-least", type=float, help="Exit with 1 where the ceiling is below.")
@click.option("--record", metavar="RUN", help="Keep the examination in this run's manifest.")
@click.option(
    "--offline", is_flag=True, help="Send nothing to models behind an endpoint, and read no key."
)
@click.option("--strict", is_flag=True, help="Exit with 1 where a rule could not be tested.")
@quiet_option
@json_option
def command(
    source: str,
    overrides: tuple[str, ...],
    base_urls: tuple[str, ...],
    examine: str | None,
    tasks: int | None,
    at_least: float | None,
    record: str | None,
    offline: bool,
    strict: bool,
    **output: bool,
) -> int:
    """Check a config (schema, agents, models, number of episodes) and the rules of its scenario, or
    a scenario alone.

    The rules are played by scripted bots: same seed, same play; what is declared holds; nobody
    sees another's secrets. Of a study every cell is checked. A model behind an endpoint gets one
    tiny request, and its tokens and cost are guessed by plays with filling instead of answers.
    An examination plays episodes, with whatever model the examined seat has.
    """
    source, typed = seated(source, overrides, base_urls)
    overrides = (*typed, *([f"scenario.tasks={tasks}"] if tasks is not None else ()))
    if examine is not None:
        into = run_folder(record) if record is not None else None  # before anything is played
        loaded = load(source, overrides, typed=True)
        tasks = tasks or EXAMINED_TASKS
        return examined(loaded, examine, tasks, at_least=at_least, record=into, **output)
    if at_least is not None or record is not None:
        raise click.UsageError("--at-least and --record need --examine AGENT")

    loaded = load(source, overrides, typed=True)
    facts, answers, worlds = _facts(source, overrides, loaded, offline)

    seeds = range(SCENARIO_SEEDS if _is_alone(loaded) else CONFIG_SEEDS)
    # two blocks may be one scenario with other tasks
    scenarios = list({id(rules_of(one.scenario)): one.scenario for one in worlds.examined}.values())
    try:
        reports = [check_scenario(scenario, seeds=seeds) for scenario in scenarios]
    except ConformanceError as error:
        # `main` prints it as one text; JSON lists the findings one by one
        if not output["as_json"]:
            raise
        emit_json(facts | {"ok": False, "findings": [str(finding) for finding in error.findings]})
        return 1
    doubts = _doubts(reports) if strict else []
    if output["as_json"]:
        _emit_json(facts, answers, reports, is_ok=not doubts)
    else:
        _emit(source, loaded, facts, answers, reports)
    return _refusal(answers) or bool(doubts)


def _doubts(reports: Sequence[Report]) -> list[str]:
    """The rules that could not be tested, which are told."""
    doubts = [line for report in reports for line in report.doubts]
    for line in doubts:
        progress_line(f"--strict: {line}")
    return doubts


def _facts(
    source: str, overrides: tuple[str, ...], loaded: Loaded, offline: bool
) -> tuple[dict[str, Any], dict[str, str | Exception], Worlds]:
    """What the config comes to, the answer of each endpoint (or what stands in its way), and the
    worlds. Cheap faults are raised before models are opened."""
    config = loaded.config
    open_one = open_config if config.train is None else open_training
    opened = open_one(loaded, seats=not _is_alone(loaded), offline=offline)
    worlds = opened.worlds
    ids = list(dict.fromkeys(world.scenario.id for world in worlds.examined))
    facts: dict[str, Any] = {
        "scenario": ", ".join(ids),
        "episodes": worlds.count(),
        "findings": [],
    }
    if loaded.study:
        facts |= _cells(source, overrides, offline)
    if _is_alone(loaded):  # it has no models
        return facts, {}, worlds
    more, answers = _models(opened, offline)
    agents = {
        world.named(agent): seat.policy or seat.behaviour
        for world in worlds.played
        for agent, seat in world.config.agents.items()
    }
    return facts | {"config": source, "agents": agents} | more, answers, worlds


def _is_alone(loaded: Loaded) -> bool:
    """Whether a scenario is checked and no config: nobody was seated who costs anything."""
    return loaded.path is None and not loaded.config.policies


def _models(opened: Opened, offline: bool) -> tuple[dict[str, Any], dict[str, str | Exception]]:
    """What is known once the models are open, and the answers of those at an endpoint."""
    loaded = opened.loaded
    worlds = opened.worlds
    policies = opened.policies
    facts: dict[str, Any] = {"policies": sorted(policies)}
    answers: dict[str, str | Exception] = {}
    if engines := remote(policies):
        # one tiny request finds a wrong key or a wrong model name before thousands are sent
        answers = {} if offline else ping(engines)
        # a guess needs no answer of the model, so that it is made offline too
        facts["endpoints"] = {name: str(answer) for name, answer in answers.items()}
        facts["estimate"] = estimate(worlds.plans(), policies, worlds.count())
    if implied := _implied(loaded, policies):
        facts["implied"] = implied
    return facts, answers


def _implied(loaded: Loaded, policies: Mapping[str, Policy]) -> dict[str, str]:
    """What `train:` implies and does not say: a word -> a line."""
    config = loaded.config
    if config.train is None:
        return {}
    # wrappers, as for a budget, hide what an engine can do
    engines = {name: policy.core for name, policy in policies.items()}
    return {**remarks(config.train), "seeds": seeds(config, engines)}


def _cells(source: str, overrides: tuple[str, ...], offline: bool) -> dict[str, Any]:
    """What a study would play. Raises ConfigError with the faults of all cells."""
    study = load_study(source, overrides, typed=True)
    policies = Policies(list(study.cells.values()))
    episodes = 0
    for cell in open_cells(study, offline=offline).values():
        episodes += cell.worlds.count()
        policies.of(cell)  # opens them: a model that is not there is a fault of its cell
    axes = {axis: list(names) for axis, names in study.axes.items()}
    return {
        "cells": len(study.cells),
        "study_episodes": episodes,
        "axes": axes,
        "reference": " x ".join(study.reference),
    }


def _refusal(answers: Mapping[str, str | Exception]) -> int:
    """The exit code of the first endpoint that does not answer, 0 where all do."""
    errors = [answer for answer in answers.values() if isinstance(answer, Exception)]
    # one code for all: the first is as good as any, and each has its line
    return exit_code(errors[0]) if errors else 0


def _emit_json(
    facts: dict[str, Any],
    answers: Mapping[str, str | Exception],
    reports: Sequence[Report],
    *,
    is_ok: bool,
) -> None:

    results = [
        {
            "rules": {
                "passed": list(report.passed),
                "untested": {str(rule): list(why) for rule, why in report.untested.items()},
            },
            "speed": dict(report.speed),
        }
        for report in reports
    ]
    # of several scenarios a list, in the order of `scenario`
    rules: dict[str, Any] = results[0] if len(results) == 1 else {"scenarios": results}
    emit_json(facts | {"ok": is_ok and not _refusal(answers)} | rules)


def _emit(
    source: str,
    loaded: Loaded,
    facts: Mapping[str, Any],
    answers: Mapping[str, str | Exception],
    reports: Sequence[Report],
) -> None:
    """Prints a table of the facts and the rules' report; on stderr, what an endpoint refused."""
    rows = [("scenario", f"{facts['scenario']}: no rule is broken")]
    if not _is_alone(loaded):
        rows = [("config", f"{source}: no fault"), *rows, *_config_rows(loaded, facts, answers)]
    emit(columns(rows))
    for report in reports:
        emit(str(report))
    errors = (str(answer) for answer in answers.values() if isinstance(answer, Exception))
    for line in dict.fromkeys(errors):  # several policies may share an endpoint
        progress_line(line)


def _config_rows(
    loaded: Loaded, facts: Mapping[str, Any], answers: Mapping[str, str | Exception]
) -> list[tuple[str, str]]:

    config = loaded.config
    rows = [("plays", f"{facts['episodes']} episodes")]
    for name, block in config.scenarios.items():
        rows.append((f"scenario {name}", f"{block.id}, weight {block.weight:g}"))
    for agent, seat in config.agents.items():
        policy = f" with policy {seat.policy}" if seat.policy else ""
        names = ", ".join(tool.named[0] for tool in seat.tools)
        rows.append((agent, f"{seat.behaviour}{policy}{names and f', tools: {names}'}"))
    rows += [
        (f"endpoint {name}", answer) for name, answer in answers.items() if isinstance(answer, str)
    ]
    rows += estimate_rows(facts.get("estimate", {}), config.limits.usd)
    if config.train is not None and config.train.policies:
        rows.append(("learns", ", ".join(config.train.policies)))
    rows += facts.get("implied", {}).items()
    if loaded.study:
        rows.append(("study", f"{facts['cells']} cells, {facts['study_episodes']} episodes"))
        rows.append(("reference", facts["reference"]))
        rows += [(f"axis {axis}", ", ".join(names)) for axis, names in facts["axes"].items()]
    return rows
