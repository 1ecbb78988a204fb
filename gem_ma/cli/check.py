"""`gem-ma check`: a config against its schema, scenario and models, or a scenario against its own declarations. Nothing that costs is played."""

from __future__ import annotations

from typing import Any

import click

EXAMPLE = """\b
Examples:
  gem-ma check configs/dilemma.yaml
  gem-ma check kuhn_poker"""


@click.command(epilog=EXAMPLE)
@click.argument("source", metavar="CONFIG|SCENARIO")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--json", "as_json", is_flag=True, envvar="GEM_MA_JSON", help="Print one JSON object.")
def command(source: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """Check a config (schema, agents, models, number of episodes) and the rules of its scenario, or a scenario alone.

    The rules are played by scripted bots: same seed, same play; what is declared holds; nobody sees another's secrets.
    """
    from gem_ma.cli.terminal import columns, emit, emit_json
    from gem_ma.config import load
    from gem_ma.errors import ConformanceError
    from gem_ma.plans import count, open_policies, scenario_of

    loaded = load(source, overrides)
    config = loaded.config
    scenario = scenario_of(config, base=loaded.base)
    facts: dict[str, Any] = {"scenario": scenario.id, "episodes": count(config, scenario), "findings": []}
    if loaded.path is not None:
        policies = open_policies(config, base=loaded.base)
        facts |= {"config": source, "policies": sorted(policies), "agents": {a: seat.policy or seat.behaviour for a, seat in config.agents.items()}}
    from gem_ma.testing import check_scenario  # after the cheap faults: it imports the views

    try:
        report = check_scenario(scenario, seeds=range(12 if loaded.path is None else 3))
    except ConformanceError as error:
        if not as_json:
            raise
        emit_json(facts | {"ok": False, "findings": [str(finding) for finding in error.findings]})
        return 1
    if as_json:
        rules = {"passed": list(report.passed), "untested": {str(rule): list(why) for rule, why in report.untested.items()}}
        emit_json(facts | {"ok": True, "rules": rules, "speed": dict(report.speed)})
        return 0
    rows = [("scenario", f"{scenario.id}: its rules hold")]
    if loaded.path is not None:
        rows = [("config", f"{source}: no fault"), *rows, ("plays", f"{facts['episodes']} episodes")]
        rows += [(agent, f"{seat.behaviour} with policy {seat.policy}" if seat.policy else seat.behaviour) for agent, seat in config.agents.items()]
        learned = config.train.policies if config.train is not None else []
        rows += [("learns", ", ".join(learned))] * bool(learned)
    emit(columns(rows))
    emit(str(report))
    return 0
