"""`gem-ma check`: a config against its schema, scenario and models, or a scenario against its
own declarations. Nothing that costs is played."""

from __future__ import annotations

from typing import Any

import click

from gem_ma.cli.completion import Source

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
    quiet: bool,
    as_json: bool,
) -> int:
    """Check a config (schema, agents, models, number of episodes) and the rules of its scenario, or
    a scenario alone.

    The rules are played by scripted bots: same seed, same play; what is declared holds; nobody
    sees another's secrets. Of a study every cell is checked. A model behind an endpoint gets one
    tiny request, and its tokens and cost are guessed by plays with filling instead of answers.
    An examination plays episodes, with whatever model the examined seat has.
    """
    if examine is not None:
        from gem_ma.cli.examine import examine as play_examination
        from gem_ma.cli.runs import run_folder
        from gem_ma.config.loading import load

        into = run_folder(record) if record is not None else None
        loaded = load(
            source, (*overrides, *([f"scenario.tasks={tasks}"] if tasks is not None else []))
        )
        return play_examination(
            loaded,
            examine,
            tasks or 20,
            at_least=at_least,
            record=into,
            as_json=as_json,
            quiet=quiet,
        )
    if tasks is not None or at_least is not None or record is not None:
        raise click.UsageError("-n, --at-least and --record belong to --examine AGENT")
    from gem_ma.cli.endpoints import estimate, estimate_rows, ping, remote
    from gem_ma.cli.terminal import columns, emit, emit_json, progress_line
    from gem_ma.config.loading import load
    from gem_ma.config.plans import count, evaluation_plans, open_policies, scenario_of, try_seats
    from gem_ma.errors import ConformanceError

    loaded = load(source, overrides)
    config = loaded.config
    scenario = scenario_of(config, base=loaded.base)
    implied: dict[str, str] = {}
    if config.train is not None:
        from gem_ma.training.schedule.checks import checked, remarks
        from gem_ma.training.schedule.discounts import check_discounts

        with loaded.placing():
            check_discounts(config, checked(config, config.policies), scenario)
        implied = remarks(config.train)
    if loaded.path is not None:
        try_seats(config, scenario)
    facts: dict[str, Any] = {
        "scenario": scenario.id,
        "episodes": count(config, scenario),
        "findings": [],
    }
    if loaded.study:
        facts |= _cells(source, overrides, offline)
    said: dict[str, Any] = {}
    if loaded.path is not None:
        with loaded.placing():
            policies = open_policies(config, base=loaded.base, offline=offline)
        if config.train is not None:
            from gem_ma.training.schedule.checks import seeds

            implied["seeds"] = seeds(
                config, {name: policy.core for name, policy in policies.items()}
            )
        if engines := remote(policies):
            said = {} if offline else ping(engines)
            facts["endpoints"] = {name: str(answer) for name, answer in said.items()}
            facts["estimate"] = estimate(
                evaluation_plans(config, scenario), policies, facts["episodes"]
            )
        facts |= {
            "config": source,
            "policies": sorted(policies),
            "agents": {a: seat.policy or seat.behaviour for a, seat in config.agents.items()},
        }
        facts |= {"implied": implied} if implied else {}
    from gem_ma.testing import check_scenario  # after the cheap faults: it imports the views

    try:
        report = check_scenario(scenario, seeds=range(12 if loaded.path is None else 3))
    except ConformanceError as error:
        if not as_json:
            raise
        emit_json(facts | {"ok": False, "findings": [str(finding) for finding in error.findings]})
        return 1
    if as_json:
        rules = {
            "passed": list(report.passed),
            "untested": {str(rule): list(why) for rule, why in report.untested.items()},
        }
        emit_json(facts | {"ok": not _refused(said), "rules": rules, "speed": dict(report.speed)})
        return _refused(said)
    rows = [("scenario", f"{scenario.id}: its rules hold")]
    if loaded.path is not None:
        rows = [
            ("config", f"{source}: no fault"),
            *rows,
            ("plays", f"{facts['episodes']} episodes"),
        ]
        rows += [
            (
                agent,
                f"{seat.behaviour} with policy {seat.policy}" if seat.policy else seat.behaviour,
            )
            for agent, seat in config.agents.items()
        ]
        rows += [
            (f"endpoint {name}", answer) for name, answer in said.items() if isinstance(answer, str)
        ]
        rows += estimate_rows(facts.get("estimate", {}), config.limits.usd)
        learned = config.train.policies if config.train is not None else []
        rows += [("learns", ", ".join(learned))] * bool(learned)
        rows += implied.items()
        if loaded.study:
            rows += [
                ("study", f"{facts['cells']} cells, {facts['study_episodes']} episodes"),
                ("reference", facts["reference"]),
            ]
            rows += [(f"axis {axis}", ", ".join(names)) for axis, names in facts["axes"].items()]
    emit(columns(rows))
    emit(str(report))
    for refusal in dict.fromkeys(
        str(answer) for answer in said.values() if isinstance(answer, Exception)
    ):
        progress_line(refusal)
    return _refused(said)


def _refused(said: dict[str, Any]) -> int:
    """The exit code of the first endpoint that does not answer, 0 where all do."""
    from gem_ma.cli.exits import exit_code

    return next((exit_code(answer) for answer in said.values() if isinstance(answer, Exception)), 0)


def _cells(source: str, overrides: tuple[str, ...], offline: bool) -> dict[str, Any]:
    """What a study would play. Raises ConfigError with the faults of all cells."""
    from gem_ma.cli.study import Policies
    from gem_ma.config.loading import load_study
    from gem_ma.config.plans import count, scenario_of

    study = load_study(source, overrides)
    policies, episodes = Policies(list(study.cells.values()), offline=offline), 0
    for cell in study.cells.values():
        episodes += count(cell.config, scenario_of(cell.config, base=cell.base))
        policies.of(cell)
    axes = {axis: list(names) for axis, names in study.axes.items()}
    return {
        "cells": len(study.cells),
        "study_episodes": episodes,
        "axes": axes,
        "reference": " x ".join(study.reference),
    }
