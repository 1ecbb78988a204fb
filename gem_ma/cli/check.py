"""`gem-ma check`: a config against its schema, scenario and models, or a scenario against its
own declarations. Nothing that costs is played."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gem_ma.cli.completion import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gem_ma.config.loading import Loaded
    from gem_ma.engines.base import Policy
    from gem_ma.scenario import Scenario
    from gem_ma.testing.report import Report

# seeds that the rules are played with: all that there is of a scenario alone; a config's scenario
# has been checked by its author, and a check of a config should take seconds
SCENARIO_SEEDS, CONFIG_SEEDS = 12, 3
EXAMINED_TASKS = 20

EXAMPLE = """\b
Examples:
  gem-ma check configs/dilemma.yaml
  gem-ma check kuhn_poker
  gem-ma check configs/retail_scripted.yaml --examine user -n 20 --at-least 0.9"""


@click.command(epilog=EXAMPLE)
@click.argument("source", type=Source(), metavar="CONFIG|SCENARIO")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--examine",
    metavar="AGENT",
    help="Play this agent's seat with the scenario's examiners: their success is its ceiling.",
)
@click.option(
    "-n", "--tasks", type=click.IntRange(min=1), help="Tasks of an examination.  [default: 20]"
)
@click.option("--at-least", type=float, help="Exit with 1 where the ceiling is below.")
@click.option("--record", metavar="RUN", help="Keep the examination in this run's manifest.")
@click.option(
    "--offline", is_flag=True, help="Send nothing to models behind an endpoint, and read no key."
)
@click.option("--quiet", is_flag=True, envvar="GEM_MA_QUIET", help="No progress.")
@click.option(
    "--json", "as_json", is_flag=True, envvar="GEM_MA_JSON", help="Print one JSON object."
)
def command(
    source: str,
    overrides: tuple[str, ...],
    examine: str | None,
    tasks: int | None,
    at_least: float | None,
    record: str | None,
    offline: bool,
    **output: bool,
) -> int:
    """Check a config (schema, agents, models, number of episodes) and the rules of its scenario, or
    a scenario alone.

    The rules are played by scripted bots: same seed, same play; what is declared holds; nobody
    sees another's secrets. Of a study every cell is checked. A model behind an endpoint gets one
    tiny request, and its tokens and cost are guessed by plays with filling instead of answers.
    An examination plays episodes, with whatever model the examined seat has.
    """
    if examine is not None:
        limit = [f"scenario.tasks={tasks}"] if tasks is not None else []
        return _examine(
            source,
            (*overrides, *limit),
            examine,
            tasks or EXAMINED_TASKS,
            at_least=at_least,
            record=record,
            **output,
        )
    if tasks is not None or at_least is not None or record is not None:
        raise click.UsageError("-n, --at-least and --record need --examine AGENT")
    from gem_ma.cli.terminal import emit_json
    from gem_ma.config.loading import load
    from gem_ma.errors import ConformanceError

    loaded = load(source, overrides)
    facts, answers, scenario = _facts(source, overrides, loaded, offline)
    from gem_ma.testing import check_scenario  # after the cheap faults: it imports the views

    seeds = range(SCENARIO_SEEDS if loaded.path is None else CONFIG_SEEDS)
    try:
        report = check_scenario(scenario, seeds=seeds)
    except ConformanceError as error:
        # `main` prints it as one text; JSON lists the findings one by one
        if not output["as_json"]:
            raise
        emit_json(facts | {"ok": False, "findings": [str(finding) for finding in error.findings]})
        return 1
    if output["as_json"]:
        _emit_json(facts, answers, report)
    else:
        _emit(source, loaded, facts, answers, report)
    return _refusal(answers)


def _examine(
    source: str,
    overrides: tuple[str, ...],
    agent: str,
    tasks: int,
    *,
    at_least: float | None,
    record: str | None,
    **output: bool,
) -> int:
    from gem_ma.cli.examine import examine
    from gem_ma.cli.runs import run_folder
    from gem_ma.config.loading import load

    into = run_folder(record) if record is not None else None  # before anything is played
    loaded = load(source, overrides)
    return examine(loaded, agent, tasks, at_least=at_least, record=into, **output)


def _facts(
    source: str, overrides: tuple[str, ...], loaded: Loaded, offline: bool
) -> tuple[dict[str, Any], dict[str, str | Exception], Scenario]:
    """What the config comes to, the answer of each endpoint (or what stands in its way), and the
    scenario. Cheap faults are raised before models are opened."""
    from gem_ma.config.plans import count, scenario_of, try_seats
    from gem_ma.running.learning import checked_scenario

    config = loaded.config
    with loaded.placing():  # a tool that cannot be had is named by its key
        if config.train is None:
            scenario = scenario_of(config, base=loaded.base)
        else:
            scenario = checked_scenario(loaded)
    if loaded.path is not None:
        try_seats(config, scenario)
    facts: dict[str, Any] = {
        "scenario": scenario.id,
        "episodes": count(config, scenario),
        "findings": [],
    }
    if loaded.study:
        facts |= _cells(source, overrides, offline)
    if loaded.path is None:  # a scenario alone has no models
        return facts, {}, scenario
    more, answers = _models(loaded, scenario, facts["episodes"], offline)
    agents = {agent: seat.policy or seat.behaviour for agent, seat in config.agents.items()}
    return facts | {"config": source, "agents": agents} | more, answers, scenario


def _models(
    loaded: Loaded, scenario: Scenario, episodes: int, offline: bool
) -> tuple[dict[str, Any], dict[str, str | Exception]]:
    """What is known once the models are open, and the answers of those at an endpoint."""
    from gem_ma.cli.endpoints import estimate, ping, remote
    from gem_ma.config.plans import evaluation_plans, open_policies

    with loaded.placing():
        policies = open_policies(loaded.config, base=loaded.base, offline=offline)
    facts: dict[str, Any] = {"policies": sorted(policies)}
    answers: dict[str, str | Exception] = {}
    if engines := remote(policies):
        # one tiny request finds a wrong key or a wrong model name before thousands are sent
        answers = {} if offline else ping(engines)
        # a guess needs no answer of the model, so that it is made offline too
        plans = evaluation_plans(loaded.config, scenario)
        facts["endpoints"] = {name: str(answer) for name, answer in answers.items()}
        facts["estimate"] = estimate(plans, policies, episodes)
    if implied := _implied(loaded, policies):
        facts["implied"] = implied
    return facts, answers


def _implied(loaded: Loaded, policies: Mapping[str, Policy]) -> dict[str, str]:
    """What `train:` implies and does not say: a word -> a line."""
    from gem_ma.training.schedule.checks import remarks, seeds

    config = loaded.config
    if config.train is None:
        return {}
    # wrappers, as for a budget, hide what an engine can do
    engines = {name: policy.core for name, policy in policies.items()}
    return {**remarks(config.train), "seeds": seeds(config, engines)}


def _cells(source: str, overrides: tuple[str, ...], offline: bool) -> dict[str, Any]:
    """What a study would play. Raises ConfigError with the faults of all cells."""
    from gem_ma.cli.cells import Policies
    from gem_ma.config.loading import load_study
    from gem_ma.config.plans import count, scenario_of

    study = load_study(source, overrides)
    policies, episodes = Policies(list(study.cells.values()), offline=offline), 0
    for cell in study.cells.values():
        episodes += count(cell.config, scenario_of(cell.config, base=cell.base))
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
    from gem_ma.cli.exits import exit_code

    errors = [answer for answer in answers.values() if isinstance(answer, Exception)]
    # one code for all: the first is as good as any, and each has its line
    return exit_code(errors[0]) if errors else 0


def _emit_json(
    facts: dict[str, Any], answers: Mapping[str, str | Exception], report: Report
) -> None:
    from gem_ma.cli.terminal import emit_json

    rules = {
        "passed": list(report.passed),
        "untested": {str(rule): list(why) for rule, why in report.untested.items()},
    }
    emit_json(facts | {"ok": not _refusal(answers), "rules": rules, "speed": dict(report.speed)})


def _emit(
    source: str,
    loaded: Loaded,
    facts: Mapping[str, Any],
    answers: Mapping[str, str | Exception],
    report: Report,
) -> None:
    """Prints a table of the facts and the rules' report; on stderr, what an endpoint refused."""
    from gem_ma.cli.terminal import columns, emit, progress_line

    rows = [("scenario", f"{facts['scenario']}: its rules hold")]
    if loaded.path is not None:
        rows = [("config", f"{source}: no fault"), *rows, *_config_rows(loaded, facts, answers)]
    emit(columns(rows))
    emit(str(report))
    errors = (str(answer) for answer in answers.values() if isinstance(answer, Exception))
    for line in dict.fromkeys(errors):  # several policies may share an endpoint
        progress_line(line)


def _config_rows(
    loaded: Loaded, facts: Mapping[str, Any], answers: Mapping[str, str | Exception]
) -> list[tuple[str, str]]:
    from gem_ma.cli.endpoints import estimate_rows

    config = loaded.config
    rows = [("plays", f"{facts['episodes']} episodes")]
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
