"""A figure of the paper as one YAML file: rows times columns times seeds, each of them a training
that is opened as any other. A row names a config (or a scenario) and what it sets otherwise; a
column sets the same of every row, such as the estimator.

What is set later holds: the row's config, `set` of the figure, `set` of the row, at `--scale gpu`
what both say under `gpu`, then the column, the rate and the seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

import gem_ma
from gem_ma.config.document import read
from gem_ma.config.loading import Loaded, load
from gem_ma.config.playing import Settings
from gem_ma.config.schema import validate
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.spelling import nearest
from gem_ma.system.files import MOST_JSON
from gem_ma.system.folders import read_named

Overrides = dict[str, Any]  # dotted key -> value


class RowSettings(Settings):
    """One environment, and how it is learned."""

    kind: str = Field(description="What it is grouped by.")
    config: str = Field(description="A config, or a scenario.")
    model: str = Field("table", description="What learns, in words.")
    first: str = Field("", description="The gem-ma command that makes its model.")
    of: str = Field("", description="The row whose trainings are examined here; else its own.")
    exam: str = Field("sampled", description="The exam that is scored.")
    score: str = Field("success", description="The score of it.")
    less: bool = Field(False, description="Whether less of the score is better.")
    trivial: str | float | None = Field(
        None, description="Who plays without skill: a baseline of the scenario, or its score."
    )
    solver: str | float | None = Field(None, description="Who solves it, likewise.")
    minutes: float = Field(1, gt=0, description="What one training takes on one core.")
    set: Overrides = Field(default_factory=dict, description="Dotted key -> value.")
    gpu: Overrides = Field(default_factory=dict, description="The same at --scale gpu.")


class RatesSettings(Settings):
    """A learning rate for each row and column, chosen on seeds that are not reported."""

    factors: list[float] = Field(description="Of the row's own rate.")
    seeds: list[int]


class GpuSettings(Settings):
    """What holds for every row at --scale gpu."""

    policy: dict[str, Any] = Field(default_factory=dict, description="Each policy that learns.")
    set: Overrides = Field(default_factory=dict)
    columns: dict[str, Overrides] = Field(
        default_factory=dict, description="In place of those of a processor."
    )


class FigureSettings(Settings):
    """A figure: one file of configs/paper."""

    title: str
    about: str = ""
    seeds: list[int]
    columns: dict[str, Overrides] = Field(
        default_factory=dict, description="Name -> dotted key -> value; the first is compared with."
    )
    compares: Literal["end", "height"] = Field(
        "end", description="Of columns: the last exam, or the mean height of the curve."
    )
    rates: RatesSettings | None = None
    set: Overrides = Field(default_factory=dict)
    gpu: GpuSettings = GpuSettings()
    rows: dict[str, RowSettings]


class Cell(NamedTuple):
    """One training of a figure. `rate`: the factor of the row's own learning rate, where it is to
    be chosen; `tries`: whether it is run to choose one."""

    row: str
    column: str
    seed: int
    rate: float = 1.0
    tries: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with its origin."""

    name: str
    path: Path
    settings: FigureSettings

    def cells(self) -> Iterator[Cell]:
        """The trainings whose numbers are reported, of rates that are not chosen yet."""
        for row in self.settings.rows:
            for column in self.settings.columns or ("",):
                for seed in self.settings.seeds:
                    yield Cell(row, column, seed)

    def trials(self) -> Iterator[Cell]:
        """The trainings by which a rate is chosen."""
        rates = self.settings.rates
        for row in self.settings.rows if rates is not None else ():
            for column in self.settings.columns or ("",):
                for factor in rates.factors if rates is not None else ():
                    for seed in rates.seeds if rates is not None else ():
                        yield Cell(row, column, seed, factor, tries=True)

    def run_name(self, cell: Cell) -> str:
        """What the run folder of a cell is called after."""
        row = self.settings.rows[cell.row].of or cell.row
        rated = f"x{cell.rate:g}" if cell.rate != 1 else ""
        return "-".join(filter(None, (row, cell.column, rated, str(cell.seed))))

    def load(self, cell: Cell, scale: str = "cpu") -> Loaded:
        """The config of a cell. Raises ConfigError with its faults."""
        settings = self.settings
        row = settings.rows[cell.row]
        row = settings.rows[row.of] if row.of else row
        words = {**settings.set, **row.set}
        if scale == "gpu":
            learning = load(row.config, words, configs_first=True).config.train
            learners = learning.policies if learning is not None else []
            words |= {f"policies.{name}": settings.gpu.policy for name in learners}
            words |= {**settings.gpu.set, **row.gpu}
        of_gpu = settings.gpu.columns if scale == "gpu" else {}
        words |= of_gpu.get(cell.column, settings.columns.get(cell.column, {}))
        words["run.seed"] = cell.seed
        if cell.rate != 1:
            learning = load(row.config, words, configs_first=True).config.train
            if learning is not None:
                words["train.lr"] = learning.lr * cell.rate
        return load(row.config, words, configs_first=True)


def shipped_figures() -> dict[str, Path]:
    """Name -> file, of the figures that come with this library."""
    files = [file for root in gem_ma.__path__ for file in Path(root, "configs", "paper").glob("*")]
    return {file.stem: file for file in sorted(files) if file.suffix == ".yaml"}


def load_figure(path: Path) -> Figure:
    """The figure of a file. Raises ConfigError with every fault and its line."""
    document = read(read_named(path, MOST_JSON).decode("utf-8"), str(path))
    settings = validate(document, FigureSettings)
    document.refuse()
    if settings is None:  # unreachable while every refusal makes a fault
        raise ConfigError(f"{path}: the figure is not valid")
    for name, row in settings.rows.items():
        if row.of and (row.of not in settings.rows or settings.rows[row.of].of):
            raise ConfigError(
                f"{path}: rows.{name}.of: no row that is trained is called {row.of!r}"
            )
    return Figure(path.stem, path, settings)


def chosen_rows(figure: Figure, names: Iterable[str]) -> Figure:
    """The figure with some of its rows alone. Raises ConfigError where it has no such row."""
    rows = figure.settings.rows
    for name in names:
        if name not in rows:
            raise ConfigError(
                f"figure {figure.name}: no row is called {name!r}{nearest(name, rows)}"
            )
    wanted = {other for name in names for other in (name, rows[name].of)}
    kept = {name: row for name, row in rows.items() if name in wanted}
    settings = figure.settings.model_copy(update={"rows": kept})
    return Figure(figure.name, figure.path, settings)
