"""Of the section `train:`: against whom a policy learns, and which of its snapshots are kept for
it. `gem_ma.training.selfplay` plays them.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from gem_ma.config.playing import Settings


class OpponentSettings(Settings):
    """Against whom a learner plays, as shares of the starts; they sum to 1. Opponents are never
    trained on."""

    latest: float = Field(
        0.0, ge=0, le=1, description="Whoever has the seat, with the present weights."
    )
    uniform: float = Field(0.0, ge=0, le=1, description="A snapshot of the pool, all alike.")
    prioritised: float = Field(
        0.0,
        ge=0,
        le=1,
        description="A snapshot, drawn by how the learner does against it (train.pool).",
    )
    anchors: dict[str, float] = Field(
        default_factory=dict,
        description=(
            "Share by behaviour or policy; 0 = met in exams only. One number is the share of"
            " random_legal."
        ),
    )

    @field_validator("anchors", mode="before")
    @classmethod
    def _one_anchor(cls, value: Any) -> Any:
        return (
            {"random_legal": value}
            if isinstance(value, (int, float)) and not isinstance(value, bool)
            else value
        )

    @field_validator("anchors")
    @classmethod
    def _shares(cls, value: dict[str, float]) -> dict[str, float]:
        if any(not 0 <= share <= 1 for share in value.values()):
            raise ValueError("every share lies between 0 and 1")
        return value

    @model_validator(mode="after")
    def _whole(self) -> OpponentSettings:
        total = self.latest + self.uniform + self.prioritised + sum(self.anchors.values())
        if abs(total - 1) > 1e-6:  # 0.1 + 0.2 + 0.7 is not 1 in floats
            raise ValueError(
                "the shares of latest, uniform, prioritised and anchors sum to 1; here to"
                f" {total:g}"
            )
        return self


class PoolSettings(Settings):
    """The snapshots that a learner may meet. They lie in the run folder and are never deleted;
    `size` bounds who is still drawn."""

    every: int = Field(
        10,
        ge=1,
        description="Training steps between snapshots; the weights at the start are the first.",
    )
    size: int = Field(
        50, ge=1, description="The newest so many snapshots of a policy are drawn from."
    )
    loaded: int = Field(
        8,
        ge=1,
        description="Snapshots in memory at once: a step's opponents are so many draws at most.",
    )
    # prioritised fictitious self-play, as in AlphaStar (Vinyals et al., 2019)
    prioritised: Literal["hard", "even"] = Field(
        "hard",
        description=(
            "Weight at win rate p: hard (1-p)^2, the ones it loses to; even p(1-p), the ones like"
            " itself."
        ),
    )
