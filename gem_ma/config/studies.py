"""The sections that make a config a study: `study:`, `grid:`, `cross_play:` and `report:`. All
others are those of its cells.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from gem_ma.config.playing import Settings


class StudySettings(Settings):
    """How the cells of a study are played and compared."""

    name: str | None = Field(
        None, description="What the folder is called; the name of the file where absent."
    )
    design: Literal["grid", "cross_play"] | None = Field(
        None, description="Which section names the cells; the one that is there where absent."
    )
    repeats: int | None = Field(None, ge=1, description="run.episodes_per_task of every cell.")
    # not the repeat: what is sampled in the third try of one cell has nothing in common with
    # another's third
    paired_by: list[Literal["task", "seed", "repeat"]] = Field(
        ["task", "seed"], description="What two episodes share that are compared."
    )
    reference: dict[str, str] = Field(
        default_factory=dict,
        description="By axis: the cell that the others are compared with; else the first.",
    )

    @field_validator("paired_by")
    @classmethod
    def _by_task(cls, value: list[str]) -> list[str]:
        if "task" not in value:
            raise ValueError("must hold `task`: only plays of one task are compared")
        return value


class CrossPlaySettings(Settings):
    """Who may sit where; every combination is a cell."""

    population: dict[str, dict[str, Any] | list[Any]] = Field(
        description="By agent: named seats, or a list of behaviours."
    )


class DifferenceSettings(Settings):
    """How differences are tested."""

    method: Literal["paired_cluster_bootstrap"] = "paired_cluster_bootstrap"
    # the bounds of an interval move by about 1 % of its width from one draw of these to the next
    n: int = Field(10_000, ge=100, le=1_000_000, description="Resamples.")
    correct: Literal["holm", "none"] = "holm"


class StudyReportSettings(Settings):
    """What a study shows."""

    measures: list[str] | None = Field(
        None, description="Scores to print beside the first; the page has all."
    )
    tables: list[Literal["success_matrix", "paired_diff"]] = ["success_matrix", "paired_diff"]
    plots: list[Literal["heatmap", "interaction"]] = ["heatmap", "interaction"]
    tests: DifferenceSettings = DifferenceSettings()


class StudySections(Settings):
    """The sections of a config that make it a study; all others are those of its cells."""

    study: StudySettings = StudySettings()
    grid: dict[str, dict[str, Any] | list[Any]] = Field(
        default_factory=dict, description="Dotted path -> name -> value."
    )
    cross_play: CrossPlaySettings | None = None
    report: StudyReportSettings = StudyReportSettings()
