"""The figures of the paper, each as tables and one SVG of small multiples: for a page of HTML, and
in Markdown for the docs. Made of records alone (`gem_ma.runs.figures`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gem_ma.config.figures import Figure, RowSettings
from gem_ma.pages.static.multiples import Panel, multiples
from gem_ma.pages.static.page import scrolled
from gem_ma.pages.static.report import PlainTable, Section
from gem_ma.scores.comparison import difference_of
from gem_ma.scores.figures import (
    SCORINGS,
    ExamScore,
    Scoring,
    against_first,
    best_rates,
    by_cell,
    end_of,
    first_of,
    height_of,
    last_of,
    over_seeds,
    rises,
    shared_turns,
)
from gem_ma.scores.groups import finite, interval_text

Records = Sequence[Mapping[str, Any]]
MISSING = "not yet run"


class Table(NamedTuple):
    """A table of plain words."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class Drawn(NamedTuple):
    """A figure as it stands: how far it is, its tables, and its chart (an SVG file)."""

    figure: Figure
    state: str
    tables: Sequence[Table]
    chart: str


def drawn(
    figure: Figure, records: Records, lost: Mapping[tuple[str, str], str] | None = None
) -> Drawn:
    """A figure out of the records of its trainings; `lost`: (row, column) -> why it could not
    be run."""
    wanted = sum(1 for _ in figure.cells())
    there = [record for record in records if not record["tries"]]
    state = f"{len(there)} of {wanted} runs are done."
    # plays that learn nothing have no curves
    learns = not there or any(len(record["curve"]) > 1 for record in there)
    tables = (
        [
            _columns_table(figure, there, lost or {}, learns),
            *_heights(figure, there),
            *_tests(figure, there),
        ]
        if figure.settings.columns
        else [_rows_table(figure, there, lost or {})]
    )
    if not figure.settings.columns:
        risen = [row for row, _, *rest in tables[0].rows if rest[-2] == "yes"]
        state += f" {len(risen)} of {len(tables[0].rows)} rows rise on every seed."
    tables += _rates(figure, records)
    return Drawn(figure, state, tables, _chart(figure, there) if learns else "")


# -- tables ----------------------------------------------------------------------------------------


def _rows_table(figure: Figure, records: Records, lost: Mapping[tuple[str, str], str]) -> Table:
    """A row for each environment: before and after of each seed, who plays beside it, and whether
    it rises."""
    found = by_cell(records)
    seeds = figure.settings.seeds
    rows = []
    for name, row in figure.settings.rows.items():
        held = {record["seed"]: record for record in found.get((name, ""), ())}
        first = next(iter(held.values()), None)
        rows.append(
            [
                name,
                row.kind,
                row.model,
                row.score + (", less is better" if row.less else ""),
                *(_way(held.get(seed)) for seed in seeds),
                _beside(row.trivial, first),
                _beside(row.solver, first),
                _verdict(row, [*held.values()], len(seeds), lost.get((name, ""), "")),
                ", ".join(f"{record['seconds']:.0f}" for record in held.values()),
            ]
        )
    head = ["environment", "kind", "learner", "score", *(f"seed {seed}" for seed in seeds)]
    return Table("", [*head, "trivial", "solver", "rises", "seconds"], rows)


def _way(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return ""
    return f"{_score(first_of(record))} → {_score(last_of(record))}"


def _score(end: ExamScore) -> str:
    told = interval_text(end._asdict()) if end.low is not None else f"{end.mean:.3f}"
    return told.replace(" ", "\u00a0")  # a narrow table breaks between intervals, not within one


def _beside(player: str | float | None, record: Mapping[str, Any] | None) -> str:
    """The score of who plays beside it: a number of the file, or a baseline that was played."""
    if isinstance(player, (int, float)):
        return f"{player:.3f}"
    value = _level(player, record)
    return "" if value is None else f"{value:.3f} ({player})"


def _level(player: str | float | None, record: Mapping[str, Any] | None) -> float | None:
    if isinstance(player, (int, float)):
        return float(player)
    if player is None or record is None or player not in record["baselines"]:
        return None
    return float(record["baselines"][player][0])


def _verdict(row: RowSettings, records: Records, seeds: int, lost: str) -> str:
    if not records:
        return lost or MISSING
    risen = sum(rises(record, row.less) for record in records)
    if len(records) < seeds:
        return f"{risen} of {len(records)} so far"
    return "yes" if risen == seeds else "no" if not risen else f"{risen} of {seeds}"


def _columns_table(
    figure: Figure, records: Records, lost: Mapping[tuple[str, str], str], learns: bool
) -> Table:
    """Rows against columns: the mean over seeds at the turns that all of a row have sampled."""
    found = by_cell(records)
    rows = []
    for name, row in figure.settings.rows.items():
        of_row = [record for (held, _), group in found.items() if held == name for record in group]
        turns = shared_turns(of_row)
        cells = []
        for column in figure.settings.columns:
            group = found.get((name, column), [])
            cells.append(_mean(group, turns) if group else lost.get((name, column), MISSING))
        start = f"{first_of(of_row[0]).mean:.3f}" if of_row else ""
        score = row.score + (", less is better" if row.less else "")
        known = [start, f"{turns:.0f}" if of_row else ""] if learns else []
        rows.append([name, row.kind, score, *known, *cells])
    seeds = len(figure.settings.seeds)
    caption = f"Mean over {seeds} seeds at equal sampled turns, with its 95 % interval over them."
    if seeds == 1:
        caption = "With its 95 % interval over plays."
    known = ["before", "turns"] if learns else []
    return Table(caption, ["row", "kind", "score", *known, *figure.settings.columns], rows)


def _mean(records: Records, turns: float, scored: Scoring = end_of) -> str:
    """The mean over seeds with its interval; of one seed its own."""
    if len(records) == 1:
        return _score(last_of(records[0], turns))
    return interval_text(over_seeds(records, turns, scored)._asdict())


def _heights(figure: Figure, records: Records) -> list[Table]:
    """Where curves are compared by their height: the same table of heights."""
    settings = figure.settings
    if settings.compares != "height" or not records:
        return []
    found = by_cell(records)
    rows = []
    for name in settings.rows:
        groups = {column: found.get((name, column), []) for column in settings.columns}
        turns = shared_turns([record for group in groups.values() for record in group])
        cells = [_mean(group, turns, height_of) if group else MISSING for group in groups.values()]
        rows.append([name, *cells])
    caption = "The mean height of the curve up to those turns: who rises sooner stands higher."
    return [Table(caption, ["row", *settings.columns], rows)]


def _tests(figure: Figure, records: Records) -> list[Table]:
    """Each column against the first one; of one seed there is nothing to pair."""
    settings = figure.settings
    scored = SCORINGS[settings.compares]
    if len(settings.seeds) < 2:
        return []
    # a row of another's trainings brings no pairs of its own
    kinds = {name: row.kind for name, row in settings.rows.items() if not row.of}
    less = {name for name, row in settings.rows.items() if row.less}
    rows = [
        [
            one.what,
            one.column,
            str(one.seeds),
            difference_of(
                one.compared._asdict()
                | {"low": finite(one.compared.low), "high": finite(one.compared.high)}
            ),
            f"{one.compared.p:.4f}",
            f"{one.p_holm:.4f}",
        ]
        for one in against_first(records, [*settings.columns], kinds, less, scored)
    ]
    first = next(iter(settings.columns))
    what = "" if settings.compares == "end" else " of heights"
    caption = f"Each less {first}{what}, paired by environment and seed; above 0 is better."
    head = ["of", "column", "pairs", f"less {first}", "p", "p (Holm)"]
    return [Table(caption, head, rows)] if rows else []


def _rates(figure: Figure, records: Records) -> list[Table]:
    """The learning rates that were chosen."""
    settings = figure.settings
    if settings.rates is None:
        return []
    less = {name: row.less for name, row in settings.rows.items()}
    trials = len(settings.rates.factors) * len(settings.rates.seeds)
    chosen = best_rates(records, less, trials, SCORINGS[settings.compares])
    rows = [
        [
            name,
            *(
                f"{chosen[name, column]:g}" if (name, column) in chosen else MISSING
                for column in settings.columns
            ),
        ]
        for name in settings.rows
    ]
    seeds = ", ".join(map(str, settings.rates.seeds))
    caption = f"The factor of the row's learning rate, chosen on seeds {seeds}."
    return [Table(caption, ["environment", *settings.columns], rows)]


# -- charts ----------------------------------------------------------------------------------------


def _chart(figure: Figure, records: Records) -> str:
    found = by_cell(records)
    panels = []
    for name, row in figure.settings.rows.items():
        held = {
            column: found.get((name, column), []) for column in figure.settings.columns or ("",)
        }
        every = [record for group in held.values() for record in group]
        first = every[0] if every else None
        levels = {"trivial": _level(row.trivial, first), "solver": _level(row.solver, first)}
        panels.append(
            Panel(
                name,
                {
                    column: [[(point[0], point[2]) for point in one["curve"]] for one in group]
                    for column, group in held.items()
                    if group
                },
                {what: level for what, level in levels.items() if level is not None},
                alarms_once(every) if not figure.settings.columns else (),
                MISSING,
            )
        )
    about = "score of exams over steps; grey: trivial player and solver; red: first alarm"
    return multiples(panels, figure.settings.title, about)


def alarms_once(records: Records) -> list[tuple[float, str]]:
    """(step, signal) of each kind of alarm, where it rang first in any of these trainings."""
    first: dict[str, float] = {}
    for step, _, signal in sorted(alarm for one in records for alarm in one["alarms"]):
        first.setdefault(signal, float(step))
    return [(step, signal) for signal, step in first.items()]


# -- pages -----------------------------------------------------------------------------------------


def sections_of(figures: Sequence[Drawn]) -> list[Section]:
    """These figures as sections of a page."""
    return [
        Section(
            f"({one.figure.name}) {one.figure.settings.title}",
            text=f"{one.figure.settings.about}\n\n{one.state}",
            tables=[PlainTable(made.columns, made.rows, made.caption) for made in one.tables],
            figures=[scrolled(one.chart, one.figure.settings.title)] if one.chart else [],
            command=f"gem-ma paper --only {one.figure.name}",
        )
        for one in figures
    ]


def paper_markdown(figures: Sequence[Drawn], pictures: str) -> str:
    """The same in Markdown, with charts as files of the folder `pictures`."""
    parts = []
    for one in figures:
        settings = one.figure.settings
        parts += [f"## ({one.figure.name}) {settings.title}", settings.about, one.state]
        parts.append(f"`gem-ma paper --only {one.figure.name}`")
        picture = f"![{settings.title}]({pictures}/paper_{one.figure.name}.svg)"
        parts.append(picture if one.chart else "")
        for made in one.tables:
            parts += [made.caption, table_markdown(made)]
    return "\n\n".join(filter(None, parts)) + "\n"


def table_markdown(table: Table) -> str:
    """A table in Markdown."""
    rows = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)
