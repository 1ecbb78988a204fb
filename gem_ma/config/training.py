"""The section `train:`: which policies learn, from which plays, against whom, for how long. What an
update is made of is in `learning`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from gem_ma.config.learning import (
    CreditSettings,
    CriticSettings,
    EstimatorSettings,
    LossSettings,
)
from gem_ma.config.playing import AgentSettings, Settings

Seating = Literal["fixed", "swap", "random"]  # `training.selfplay.seats` plays them
OVERLAP_TIS = 2.0  # loss.tis of tokens that older weights sampled, where a config says nothing


class WarmStartSettings(Settings):
    """Behaviour cloning of one policy on episodes of scripted behaviours, before step 0."""

    cast: dict[str, AgentSettings] = Field(
        description="Who plays the demonstrations; the policy's own agents are cloned."
    )
    episodes: int = Field(256, ge=1)
    steps: int = Field(200, ge=1)
    batch: int = Field(48, ge=1)
    lr: float = Field(3e-3, gt=0)
    seed: int = Field(0, description="Of the demonstrations and their order; absent: run.seed.")


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
            "Weight at win rate p: hard (1-p)^q, the ones it loses to; even p(1-p), the ones like"
            " itself."
        ),
    )
    q: float = Field(2.0, ge=0)
    prior: float = Field(2.0, gt=0, description="Drawn games that every win rate starts from.")
    # old games tell little of a learner that has changed since
    decay: float = Field(
        0.98, gt=0, le=1, description="What a game counts for one step later, in these win rates."
    )


class PolicyTrainSettings(Settings):
    """What one learned policy does in its own way; sections hold only the keys that differ."""

    lr: float | None = Field(None, gt=0)
    lr_final: float | None = Field(None, ge=0, le=1)
    lr_warmup: int | None = Field(None, ge=0)
    credit: dict[str, Any] = Field(default_factory=dict)
    estimator: dict[str, Any] = Field(
        default_factory=dict, description="With a name, the estimator as a whole."
    )
    loss: dict[str, Any] = Field(default_factory=dict)
    critic: dict[str, Any] = Field(default_factory=dict)
    max_policy_lag: int | None = Field(None, ge=0)


class ForkSettings(Settings):
    """Group sampling from the middle of an episode: continuations of one recorded prefix that
    form a group."""

    # one continuation alone has none to be compared with
    width: int = Field(
        ge=2, le=64, description="Continuations of each decision point that is forked."
    )
    at: Literal["random", "every"] | int = Field(
        "random",
        description="A drawn decision point, this one (or the next of a learner), or each.",
    )
    # each fork plays `width` rests of the play, so that the cost of a step grows with it
    depth: int | None = Field(
        None,
        ge=1,
        le=32,
        description="Forks of a play at most, one after the other; absent: 1, under `every` 8.",
    )
    selector: Literal["random", "policy", "greedy"] = Field(
        "random",
        description=(
            "Which play is forked next: a drawn branch, the play itself, or the best branch"
            " (off-policy)."
        ),
    )

    @field_validator("at")
    @classmethod
    def _a_point(cls, value: str | int) -> str | int:
        if isinstance(value, int) and value < 0:
            raise ValueError("decision points count from 0")
        return value

    @property
    def levels(self) -> int:
        return self.depth or (8 if self.at == "every" else 1)


class CheckpointSettings(Settings):
    """Which checkpoints stay on the disk; the newest always does, so that a run resumes exactly.
    Members of a league are no checkpoints."""

    # all by default: a checkpoint that was deleted cannot be asked for later
    keep: int | None = Field(
        None,
        ge=1,
        description=(
            "The newest so many; 2 or more can fall back where one is damaged. Absent: all."
        ),
    )
    every: int | None = Field(
        None,
        ge=1,
        description="Besides those, every checkpoint of a step that is a multiple of this.",
    )


class TrainSettings(Settings):
    """Which policies learn, from what, for how long."""

    policies: list[str] = Field(description="Any subset of `policies:`; all others stay frozen.")
    credit: CreditSettings = CreditSettings()
    estimator: EstimatorSettings = EstimatorSettings()
    loss: LossSettings = LossSettings()
    critic: CriticSettings = CriticSettings()
    warm_start: dict[str, WarmStartSettings] = Field(default_factory=dict, description="By policy.")
    steps: int = Field(60, ge=1)
    episodes: int = Field(128, ge=1, description="Per step.")
    # estimators with a baseline of their own need no group
    group_size: int = Field(
        1,
        ge=1,
        description=(
            "How many of a step's episodes share one start; they form a group for grpo and its kin."
        ),
    )
    fork: ForkSettings | None = Field(
        None, description="Further plays that go on from decision points of these; absent = none."
    )
    split: str = "train"
    # of tables and tiny models; configs of larger ones name their own
    lr: float = Field(3e-3, gt=0)
    lr_final: float = Field(
        1.0, ge=0, le=1, description="Share of lr left at the last step, reached linearly."
    )
    lr_warmup: int = Field(0, ge=0, description="Steps over which lr rises from 0.")
    # what a crash may cost, in steps
    save_every: int = Field(10, ge=1)
    checkpoints: CheckpointSettings = CheckpointSettings()
    log: list[str] | dict[str, dict[str, Any]] = Field(
        default_factory=list,
        description=(
            "Who else gets the numbers of metrics.jsonl: tensorboard, wandb, trackio; a list, or"
            " name -> options."
        ),
    )
    per_policy: dict[str, PolicyTrainSettings] = Field(
        default_factory=dict, description="What a policy does otherwise than these settings say."
    )
    alternate: dict[str, int] = Field(
        default_factory=dict,
        description="Policies that learn in turn, each for so many steps; the others always do.",
    )
    seats: Seating = Field(
        "fixed",
        description=(
            "Who sits where: as agents: says; every start once from each side; or drawn for every"
            " start."
        ),
    )
    opponents: OpponentSettings | None = Field(
        None, description="Against whom; absent: whoever agents: seats, with the present weights."
    )
    pool: PoolSettings = PoolSettings()
    # a warning changes nothing of a run, so that it may be the default
    on_collapse: Literal["off", "warn", "rollback", "mix_pool"] = Field(
        "warn",
        description=(
            "When a detector fires: say so; go back to the last healthy weights at half the lr; or"
            " give half of `latest` to the pool."
        ),
    )

    overlap: bool = Field(
        False,
        description="Play the next step while this one is learned from: off-policy by one update.",
    )
    max_policy_lag: int | None = Field(
        None,
        ge=0,
        description=(
            "A policy does not learn from episodes with a turn older than so many of its publishes;"
            " absent = no bound."
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _weighed(cls, value: Any) -> Any:
        """What is played with older weights is weighed by what they said, unless `tis` says
        otherwise; the config then holds the cap itself."""
        # the schema has not looked at it yet: anything may stand here
        if not isinstance(value, dict) or value.get("overlap") is not True:
            return value
        loss = value.get("loss", {})
        if isinstance(loss, dict) and "tis" not in loss:
            return {**value, "loss": {**loss, "tis": OVERLAP_TIS}}
        if isinstance(loss, LossSettings) and "tis" not in loss.model_fields_set:
            return {**value, "loss": loss.model_copy(update={"tis": OVERLAP_TIS})}
        return value

    @field_validator("log", mode="before")
    @classmethod
    def _one_tracker(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: {} if options is None else options for name, options in value.items()}
        # a single name is what most configs want
        return [value] if isinstance(value, str) else value

    @field_validator("alternate")
    @classmethod
    def _some_steps(cls, value: dict[str, int]) -> dict[str, int]:
        if any(steps < 1 for steps in value.values()):
            raise ValueError("every policy learns for at least 1 step")
        return value
