"""The cells of a study at play: their scenarios, the engines that they share, and one run folder
for each. What is done is never played again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from gem_ma.config.loading import Loaded, LoadedStudy
    from gem_ma.engines.base import Policy
    from gem_ma.episode import Episode
    from gem_ma.evaluation.studies import Cell
    from gem_ma.rollout import Plan
    from gem_ma.scenario import Scenario

Names = tuple[str, ...]  # of a cell, one per axis


def cell_path(path: Path, names: Sequence[str], loaded: Loaded) -> Path:
    """The run folder of a cell."""
    from gem_ma.store import run_path

    # a file system takes 255 bytes a name; the digest tells apart what is cut alike
    return run_path("-x-".join(names)[:120], loaded.identity(), root=path)


class Policies:
    """Open policies of the cells: the same model with the same options is opened once, and kept
    while a later cell needs it."""

    def __init__(self, cells: Sequence[Loaded], *, offline: bool = False) -> None:
        """`offline`: nothing will be sampled, so no key is read."""
        from gem_ma.config.plans import budget_of

        self.open: dict[str, Policy] = {}
        self.options: dict[str, Any] = {"offline": True} if offline else {}
        # what each cell that is still to come needs
        self.left = [set(self._keys(cell).values()) for cell in cells]
        self.budget = budget_of(cells[0].config) if cells else None  # one for all cells

    def of(self, loaded: Loaded) -> dict[str, Policy]:
        """The policies that this cell samples from, the next of the cells."""
        from gem_ma.config.plans import open_policies

        keys = self._keys(loaded)
        needed = set().union(*self.left)
        # what no later cell needs gives its memory back before the next one is opened
        self.open = {key: policy for key, policy in self.open.items() if key in needed}
        self.left = self.left[1:]
        for name, key in keys.items():
            if key not in self.open:
                alone = loaded.config.model_copy(
                    update={"agents": {}, "policies": {name: loaded.config.policies[name]}}
                )
                # each alone: the others may be open already, for an earlier cell
                with loaded.placing():
                    self.open[key] = open_policies(
                        alone, base=loaded.base, names=[name], budget=self.budget, **self.options
                    )[name]
        return {name: self.open[key] for name, key in keys.items()}

    @staticmethod
    def _keys(loaded: Loaded) -> dict[str, str]:
        """Policy -> everything that decides how it samples."""
        config = loaded.config
        # a policy that no seat of the cell uses costs no memory
        wanted = {
            name
            for seat in config.agents.values()
            for name in (seat.policy, *seat.policies.values())
        }
        # how patient a request is belongs to the engine, so that it decides whether one is shared
        retry = config.retry.model_dump_json()
        return {
            name: f"{name} {settings.model_dump_json()} {retry}"
            for name, settings in config.policies.items()
            if name in wanted
        }


def scenarios_of(loaded: LoadedStudy) -> dict[Names, Scenario]:
    """The scenario of every cell; cells with the same options share one, and its data."""
    from gem_ma.config.plans import scenario_of

    by_options: dict[str, Scenario] = {}
    scenarios = {}
    for names, cell in loaded.cells.items():
        # which tasks are played makes no other scenario
        options = cell.config.scenario.model_copy(update={"split": "", "tasks": None})
        key = options.model_dump_json()
        if key not in by_options:
            by_options[key] = scenario_of(cell.config, base=cell.base)
        scenarios[names] = by_options[key]
    return scenarios


def check_measures(
    names: Sequence[str], loaded: LoadedStudy, scenarios: Mapping[Names, Scenario]
) -> None:
    """Raises ConfigError, before anything is played, for a score that no cell will have.

    What a scenario measures is known from a play: one of two decision points, with silent
    agents, which is not kept.
    """
    from gem_ma.config.spelling import nearest
    from gem_ma.errors import ConfigError

    if not names:
        return
    known: dict[str, None] = {}
    # cells that share a scenario have the same scores, so one play of it is enough
    different = {id(scenario): at for at, scenario in scenarios.items()}
    for cell in different.values():
        try:
            known |= dict.fromkeys(_scores_of(scenarios[cell], loaded.cells[cell]))
        except Exception:
            # the play itself will say what is wrong; the names are checked again at its end
            return
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--measure {name}: no cell will have such a score{nearest(name, known)}"
            )


def _scores_of(scenario: Scenario, loaded: Loaded) -> list[str]:
    """The names of the scores that plays of a cell will have."""
    from gem_ma.evaluation.judge import Judge
    from gem_ma.evaluation.kinds import SUCCESS

    judge = Judge.of(scenario)
    measures = judge.measures(_tried(scenario, loaded)) if judge.measures is not None else {}
    returns = [f"return {agent}" for agent in scenario.agents]
    return [*[SUCCESS] * (judge.success is not None), *returns, *measures]


def _tried(scenario: Scenario, loaded: Loaded) -> Episode:
    import asyncio
    from dataclasses import replace

    from gem_ma.config.plans import evaluation_plans
    from gem_ma.episode import Limits, Seat
    from gem_ma.rollout import play

    plan = next(evaluation_plans(loaded.config, scenario))
    silent = dict.fromkeys(scenario.agents, Seat("silent"))
    return asyncio.run(play(replace(plan, cast=silent, limits=Limits(max_steps=2)), {}))


class Playing:
    """What all cells of one command share while they are played."""

    def __init__(self, stopping: Any, progress: Any, measures: Sequence[str], fresh: bool) -> None:
        self.stopping, self.progress = stopping, progress
        self.measures, self.fresh = measures, fresh

    async def cell(
        self, loaded: Loaded, path: Path, scenario: Scenario, policies: Mapping[str, Policy]
    ) -> Cell:
        """Plays what this cell's run folder lacks and gives what came of it."""
        from gem_ma.cli.runs import report_of
        from gem_ma.config.plans import evaluation_plans
        from gem_ma.evaluation.judge import Judge
        from gem_ma.evaluation.studies import cell_of
        from gem_ma.files import make_folder
        from gem_ma.running.folder import open_folder
        from gem_ma.running.playing import play_into

        make_folder(path, path.parent)  # no link below the study's folder
        with open_folder("run", loaded, scenario, policies, path, self.fresh) as folder:
            plans, done = list(evaluation_plans(loaded.config, scenario)), folder.done()
            left = [plan for plan in plans if plan.id not in done]
            self.progress.skip(len(plans) - len(left))
            if left:
                going: Iterable[Plan] = self.stopping.until_stopped(left)
                concurrency = min(loaded.config.run.concurrency, len(left))
                await play_into(folder, going, policies, concurrency, self.progress)
            # from the folder, since earlier commands have played some of it
            cell = cell_of(
                folder.episodes(),
                Judge.of(scenario),
                world=_world(loaded, scenario),
                run=path.name,
                measures=self.measures,
            )
            # a cell that was finished before keeps its page: a large study is taken up in seconds
            if not self.stopping.signal and (left or not (path / "report.html").exists()):
                planned = max(len(plans), len(folder.done()))
                folder.write_summary(_summary(cell, loaded, folder.episodes, planned))
                report_of(path, scenario)
        return cell


def _world(loaded: Loaded, scenario: Scenario) -> str:
    """Which tasks and data a cell plays on: only cells of the same world are compared by task."""
    import json

    settings = loaded.config.scenario
    # the provenance holds digests: a split of other data is another world
    facts = [settings.id, settings.split, settings.options, scenario.provenance()]
    return json.dumps(facts, sort_keys=True, default=str)


def _summary(cell: Cell, loaded: Loaded, episodes: Any, planned: int) -> dict[str, Any]:
    from gem_ma.running.costs import costs_of, other_models

    return {
        "planned": planned,
        **cell.summary,
        **costs_of(loaded.config, episodes),
        **other_models(loaded.config, cell.summary),
    }
