"""`gem-ma study`: plays every cell of a grid as a run of its own, and compares them. What is
done is never played again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gem_ma.cli.completion import Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gem_ma.config.loading import Loaded, LoadedStudy
    from gem_ma.engines.base import Policy
    from gem_ma.evaluation.studies import Cell
    from gem_ma.scenario import Scenario
    from gem_ma.types import Episode

EXAMPLE = """\b
Example:
  gem-ma study configs/retail_matrix.yaml study.repeats=2 -n 50"""


@click.command(epilog=EXAMPLE)
@click.argument("source", type=Source(), metavar="CONFIG")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "-n",
    "--tasks",
    type=click.IntRange(min=1),
    help="How many tasks (or seeds, where the scenario has one task).",
)
@click.option("-j", "--concurrency", type=click.IntRange(min=1), help="Episodes at once.")
@click.option(
    "--measure",
    "measures",
    multiple=True,
    metavar="NAME",
    help="Compare this score too; may be given several times.",
)
@click.option(
    "--out", type=click.Path(), help="The study's folder.  [default: runs/<config>-<digest>]"
)
@click.option(
    "--fresh", is_flag=True, help="Put the old run folders of the cells aside and start anew."
)
@click.option(
    "--json", "as_json", is_flag=True, envvar="GEM_MA_JSON", help="Print one JSON object."
)
@click.option("--quiet", is_flag=True, envvar="GEM_MA_QUIET", help="No progress.")
def command(
    source: str,
    overrides: tuple[str, ...],
    tasks: int | None,
    concurrency: int | None,
    measures: tuple[str, ...],
    out: str | None,
    fresh: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Play every cell of a study and print one table with intervals and paired differences.

    A study is a config with `grid:` (or `cross_play:`): dotted paths, each with named values
    that replace what stands there. Every cell is a run folder below the study's. The same
    command again continues where it stopped, and plays what the grid has gained.
    """
    import shlex
    from pathlib import Path

    from gem_ma.config.loading import load_study

    extra = [f"scenario.tasks={tasks}"] * (tasks is not None) + [
        f"run.concurrency={concurrency}"
    ] * (concurrency is not None)
    loaded = load_study(source, (*overrides, *extra))
    path = Path(out) if out else study_path(loaded)
    again = shlex.join(
        [
            "gem-ma",
            "study",
            source,
            *overrides,
            *(["-n", str(tasks)] if tasks else []),
            *(["--out", out] if out else []),
        ]
    )
    return study(loaded, path, again, measures=measures, fresh=fresh, as_json=as_json, quiet=quiet)


def study_path(loaded: LoadedStudy) -> Path:
    """The folder of a study: named by what all of its cells share, so that a grid that grows
    keeps its folder."""
    from gem_ma.store import run_path

    return run_path(
        loaded.stem, {**loaded.shared, "study": {"repeats": loaded.sections.study.repeats}}
    )


def cell_path(path: Path, names: Sequence[str], loaded: Loaded) -> Path:
    """The run folder of a cell."""
    from gem_ma.store import run_path

    return run_path("-x-".join(names)[:120], loaded.identity(), root=path)


def study(
    loaded: LoadedStudy,
    path: Path,
    again: str,
    *,
    measures: Sequence[str] = (),
    fresh: bool = False,
    as_json: bool = False,
    quiet: bool = False,
) -> int:
    """Plays what is not done yet, compares all; gives the exit code. Raises Interrupted after a
    signal."""
    from gem_ma.cli.exits import Interrupted
    from gem_ma.cli.stopping import Stopping
    from gem_ma.cli.terminal import Progress, progress_line
    from gem_ma.config.plans import count
    from gem_ma.errors import BudgetError, EndpointError
    from gem_ma.evaluation.studies import study_summary
    from gem_ma.store import hold_folder, write_file

    scenarios = _scenarios(loaded)
    planned = {names: count(cell.config, scenarios[names]) for names, cell in loaded.cells.items()}
    policies = Policies(list(loaded.cells.values()))
    chosen = list(dict.fromkeys([*(loaded.sections.report.measures or ()), *measures]))
    _check_measures(chosen, loaded, scenarios)
    found: dict[tuple[str, ...], Cell] = {}
    with hold_folder(path):
        write_file(path / "config.yaml", _written(loaded))
        with Stopping(again) as stopping, Progress(sum(planned.values()), quiet=quiet) as progress:

            async def work() -> None:  # all cells on one loop: they share engines
                for names, cell in loaded.cells.items():
                    playing: dict[str, Any] = {
                        "stopping": stopping,
                        "progress": progress,
                        "measures": chosen,
                        "fresh": fresh,
                    }
                    found[names] = await _play_cell(
                        cell,
                        cell_path(path, names, cell),
                        scenarios[names],
                        policies.of(cell),
                        **playing,
                    )
                    if stopping.signal:
                        return

            try:
                stopping.run(work())
            except (BudgetError, EndpointError) as error:
                raise type(error)(f"{error}\nresume with: {again}") from None
        if stopping.signal:
            progress_line(
                f"{sum(one.summary['episodes'] for one in found.values())} of"
                f" {sum(planned.values())} episodes are played"
            )
            raise Interrupted(stopping.code, stopping.resume)
        settings, report = loaded.sections.study, loaded.sections.report
        summary = study_summary(
            loaded.axes,
            found,
            loaded.reference,
            paired_by=settings.paired_by,
            measures=chosen,
            resamples=report.tests.n,
            correct=report.tests.correct,
        )
        whole = sum(
            max(wanted, found[names].summary["episodes"]) for names, wanted in planned.items()
        )  # an earlier command may have wanted more
        summary = {"schema": 1, "name": loaded.stem, "command": again, "planned": whole, **summary}
        write_file(path / "study.json", _json(summary))
    show_study(summary, path, as_json, _page(loaded, summary, path), loaded.sections.report.tables)
    return _verdict(loaded, summary, path)


def _page(loaded: LoadedStudy, summary: Mapping[str, Any], path: Path) -> Path | None:
    """Writes the page of the study; one that cannot be written costs a line on stderr, not the
    result."""
    from gem_ma.cli.terminal import progress_line
    from gem_ma.errors import StoreError
    from gem_ma.view.study import write_study

    try:
        return write_study(
            path, summary, tables=loaded.sections.report.tables, plots=loaded.sections.report.plots
        )
    except StoreError as error:
        progress_line(f"no report: {error}")
        return None


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
        for gone in [key for key in self.open if key not in needed]:
            del self.open[gone]
        self.left = self.left[1:]
        for name, key in keys.items():
            if key not in self.open:
                alone = loaded.config.model_copy(
                    update={"agents": {}, "policies": {name: loaded.config.policies[name]}}
                )
                with loaded.placing():
                    self.open[key] = open_policies(
                        alone, base=loaded.base, names=[name], budget=self.budget, **self.options
                    )[name]
        return {name: self.open[key] for name, key in keys.items()}

    @staticmethod
    def _keys(loaded: Loaded) -> dict[str, str]:
        """Policy -> everything that decides how it samples."""
        config = loaded.config
        wanted = {
            name
            for seat in config.agents.values()
            for name in (seat.policy, *seat.policies.values())
        }
        retry = config.retry.model_dump_json()
        return {
            name: f"{name} {settings.model_dump_json()} {retry}"
            for name, settings in config.policies.items()
            if name in wanted
        }


def _scenarios(loaded: LoadedStudy) -> dict[tuple[str, ...], Scenario]:
    """The scenario of every cell; cells with the same options share one."""
    from gem_ma.config.plans import scenario_of

    made: dict[str, Scenario] = {}
    found = {}
    for names, cell in loaded.cells.items():
        key = cell.config.scenario.model_copy(update={"split": "", "tasks": None}).model_dump_json()
        if key not in made:
            made[key] = scenario_of(cell.config, base=cell.base)
        found[names] = made[key]
    return found


def _check_measures(
    names: Sequence[str], loaded: LoadedStudy, scenarios: Mapping[tuple[str, ...], Scenario]
) -> None:
    """Raises ConfigError, before anything is played, for a score that no cell will have.

    What a scenario measures is known from a play: one of two decision points, with silent
    agents, which is not kept.
    """
    from gem_ma.config.fit import nearest
    from gem_ma.errors import ConfigError
    from gem_ma.evaluation.judge import Judge
    from gem_ma.evaluation.kinds import SUCCESS

    known: dict[str, None] = {}
    for scenario, cell in (
        {id(one): (one, loaded.cells[at]) for at, one in scenarios.items()}.values()
        if names
        else ()
    ):
        judge = Judge.of(scenario)
        try:
            tried = judge.measures(_tried(scenario, cell)) if judge.measures is not None else {}
        except Exception:
            # the play itself will say what is wrong; the names are checked again at its end
            return
        known |= dict.fromkeys(
            [
                *[SUCCESS] * (judge.success is not None),
                *(f"return {agent}" for agent in scenario.agents),
                *tried,
            ]
        )
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--measure {name}: no cell will have such a score{nearest(name, known)}"
            )


def _tried(scenario: Scenario, loaded: Loaded) -> Episode:
    import asyncio
    from dataclasses import replace

    from gem_ma.config.plans import evaluation_plans
    from gem_ma.rollout import play
    from gem_ma.types import Limits, Seat

    plan = next(evaluation_plans(loaded.config, scenario))
    silent = dict.fromkeys(scenario.agents, Seat("silent"))
    return asyncio.run(play(replace(plan, cast=silent, limits=Limits(max_steps=2)), {}))


async def _play_cell(
    loaded: Loaded,
    path: Path,
    scenario: Scenario,
    policies: Mapping[str, Policy],
    *,
    stopping: Any,
    progress: Any,
    measures: Sequence[str],
    fresh: bool,
) -> Cell:
    """Plays what this cell's run folder lacks and gives what came of it."""
    import json

    from gem_ma.cli.costs import costs_of, other_models
    from gem_ma.cli.playing import play_into
    from gem_ma.cli.runs import open_folder, report_of
    from gem_ma.config.plans import evaluation_plans
    from gem_ma.evaluation.judge import Judge
    from gem_ma.evaluation.studies import cell_of
    from gem_ma.files import make_folder

    config = loaded.config
    make_folder(path, path.parent)  # no link below the study's folder
    with open_folder("run", loaded, scenario, policies, path, fresh) as folder:
        plans, done = list(evaluation_plans(config, scenario)), folder.done()
        left = [plan for plan in plans if plan.id not in done]
        progress.skip(len(plans) - len(left))
        if left:
            await play_into(
                folder,
                stopping.until_stopped(left),
                policies,
                min(config.run.concurrency, len(left)),
                progress,
            )
        world = json.dumps(
            [
                config.scenario.id,
                config.scenario.split,
                config.scenario.options,
                scenario.provenance(),
            ],
            sort_keys=True,
            default=str,
        )
        cell = cell_of(
            folder.episodes(), Judge.of(scenario), world=world, run=path.name, measures=measures
        )
        if not stopping.signal and (left or not (path / "report.html").exists()):
            models = other_models(config, cell.summary)
            counted = {
                "planned": max(len(plans), len(folder.done())),
                **cell.summary,
                **costs_of(config, folder.episodes),
                **models,
            }
            folder.write_summary(counted)
            report_of(path, scenario)
    return cell


def _written(loaded: LoadedStudy) -> str:
    import json

    return "".join(
        [
            loaded.text,
            "\n" * (not loaded.text.endswith("\n")),
            *(f"# override {json.dumps(one)}\n" for one in loaded.overrides),
        ]
    )


def _json(summary: Mapping[str, Any]) -> str:
    import json

    return json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _verdict(loaded: LoadedStudy, summary: Mapping[str, Any], path: Path) -> int:
    """0, or 1 and a line about it where a cell has more failed episodes than its config allows."""
    from gem_ma.cli.terminal import progress_line

    code = 0
    for row, cell in zip(summary["cells"], loaded.cells.values(), strict=True):
        if not cell.config.run.tolerates(row["failed"], row["episodes"]):
            name = " x ".join(row["names"].values())
            again = f"gem-ma resume {path / row['run']} --retry-failed"
            progress_line(
                f"{name}: {row['failed']} of {row['episodes']} episodes failed; redo them with:"
                f" {again}"
            )
            code = 1
    return code


# -- what is printed -----------------------------------------------------------------------------


SHOWN = 12  # names of scores that are not compared
TABLES = ("success_matrix", "paired_diff")


def show_study(
    summary: Mapping[str, Any],
    path: Path,
    as_json: bool,
    report: Path | None = None,
    tables: Sequence[str] = TABLES,
) -> None:
    """Prints one table of each score that is compared."""
    from gem_ma.cli.terminal import columns, emit, emit_json

    if as_json:
        emit_json({"run": str(path), "report": str(report) if report else None, **summary})
        return
    for score in summary["compared"]:
        if len(summary["axes"]) == 2 and "success_matrix" in tables:
            emit(f"{score}: {matrix_title(summary)}\n{columns(*matrix(summary, score))}\n")
        if "paired_diff" not in tables and len(summary["axes"]) == 2:
            continue
        emit(f"{score}, against {' x '.join(summary['reference'].values())}")
        emit(columns(cell_rows(summary, score), cell_head(summary)) + "\n")
    rest = [score for score in summary["scores"] if score not in summary["compared"]]
    told = ", ".join(rest[:SHOWN]) + (f" and {len(rest) - SHOWN} more" if len(rest) > SHOWN else "")
    rows = [("other scores", f"{told} (in study.json; compare one with --measure NAME)")] * bool(
        rest
    )
    emit(columns([*rows, ("study", str(path)), *([("report", str(report))] if report else [])]))


def matrix_title(summary: Mapping[str, Any]) -> str:
    """The two axes of `matrix` in words."""
    rows, columns = (axis.split(".", 1)[-1] for axis in summary["axes"])
    return f"{rows} (rows) x {columns} (columns)"


def matrix(summary: Mapping[str, Any], score: str) -> tuple[list[list[str]], list[str]]:
    """Rows and head of a table with one place per cell of two axes."""
    from gem_ma.evaluation.groups import interval_text

    (rows, row_names), (columns, column_names) = summary["axes"].items()
    found = {
        (cell["names"][rows], cell["names"][columns]): cell["scores"].get(score)
        for cell in summary["cells"]
    }
    body = [
        [
            row,
            *(
                interval_text(one) if (one := found.get((row, column))) else "n/a"
                for column in column_names
            ),
        ]
        for row in row_names
    ]
    return body, ["", *column_names]


def cell_head(summary: Mapping[str, Any]) -> list[str]:
    """The heads of `cell_rows`."""
    p = "p (Holm)" if summary["correct"] == "holm" else "p"
    return [
        *(axis.split(".", 1)[-1] for axis in summary["axes"]),
        "mean (95 % interval)",
        "ok / failed / excluded",
        "difference",
        p,
    ]


def cell_rows(summary: Mapping[str, Any], score: str) -> list[list[str]]:
    """One row per cell: its score, and how it differs from the reference on the same plays."""
    from gem_ma.evaluation.groups import interval_text
    from gem_ma.evaluation.studies import difference_text

    differences = {tuple(row["names"].values()): row for row in summary["comparisons"][score]}
    rows = []
    for cell in summary["cells"]:
        names = tuple(cell["names"].values())
        one, against = cell["scores"].get(score), differences.get(names)
        told = [
            interval_text(one) if one else "n/a",
            f"{cell['ok']} / {cell['failed']} / {cell['excluded']}",
            difference_text(against),
        ]
        told.append(
            ""
            if against is None or against["p_adjusted"] is None
            else f"{against['p_adjusted']:.4f}"
        )
        rows.append([*names, *told])
    return rows
