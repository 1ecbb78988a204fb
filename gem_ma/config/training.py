"""The section `train:`: which policies learn, from which plays, for how long, and against whom.
What an update is made of is in `learning`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from gem_ma.config.learning import (
    CreditSettings,
    CriticSettings,
    EstimatorSettings,
    LossSettings,
)
from gem_ma.config.playing import AgentSettings, Settings


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


Seating = Literal["fixed", "swap", "random"]  # `training.schedule.plans` plays them
MOST_AHEAD = 64  # steps; each may hold a copy of the weights that play it
OVERLAP_TIS = 2.0  # loss.tis of tokens that older weights sampled, where a config says nothing


class WarmStartSettings(Settings):
    """Behaviour cloning of one policy on episodes of scripted behaviours, before step 0."""

    cast: dict[str, AgentSettings] = Field(
        description="Who plays the demonstrations; the policy's own agents are cloned."
    )
    episodes: int = Field(256, ge=1, description="Plays that are copied.")
    steps: int = Field(200, ge=1, description="Updates by cloning.")
    batch: int = Field(48, ge=1, description="Turns of an update.")
    lr: float = Field(3e-3, gt=0, description="Learning rate of cloning.")
    seed: int = Field(0, description="Of the demonstrations and their order; absent: run.seed.")


class PolicyTrainSettings(Settings):
    """What one learned policy does in its own way; sections hold only the keys that differ."""

    lr: float | None = Field(None, gt=0, description="As `train.lr`.")
    lr_final: float | None = Field(None, ge=0, le=1, description="As `train.lr_final`.")
    lr_warmup: int | None = Field(None, ge=0, description="As `train.lr_warmup`.")
    credit: dict[str, Any] = Field(default_factory=dict, description="As `train.credit`.")
    estimator: dict[str, Any] = Field(
        default_factory=dict, description="With a name, the estimator as a whole."
    )
    loss: dict[str, Any] = Field(default_factory=dict, description="As `train.loss`.")
    critic: dict[str, Any] = Field(default_factory=dict, description="As `train.critic`.")
    max_policy_lag: int | None = Field(None, ge=0, description="As `train.max_policy_lag`.")


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

    @field_validator("at")
    @classmethod
    def _a_point(cls, value: str | int) -> str | int:
        if isinstance(value, int) and value < 0:
            raise ValueError("decision points count from 0")
        return value

    @property
    def levels(self) -> int:
        return self.depth or (8 if self.at == "every" else 1)


class CurriculumSettings(Settings):
    """Which tasks a step plays, by how often plays of them succeeded so far: those that are neither
    mastered nor out of reach."""

    explore: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="Share of the starts that take the tasks in turn, as all do without it.",
    )


class CheckpointSettings(Settings):
    """Which checkpoints stay on the disk; the newest always does, so that a run resumes exactly.
    Members of a league are not checkpoints."""

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
    best: str | None = Field(
        None,
        description=(
            "A score of exams, as in sampled.success: the weights of the best exam are kept as"
            " models/NAME.best; absent = none are."
        ),
    )


class TrainSettings(Settings):
    """Which policies learn, from what, for how long."""

    policies: list[str] = Field(description="Any subset of `policies:`; all others stay frozen.")
    credit: CreditSettings = CreditSettings()
    estimator: EstimatorSettings = EstimatorSettings()
    loss: LossSettings = LossSettings()
    critic: CriticSettings = CriticSettings()
    warm_start: dict[str, WarmStartSettings] = Field(default_factory=dict, description="By policy.")
    steps: int = Field(60, ge=1, description="Updates: one step plays, learns, publishes.")
    episodes: int = Field(128, ge=1, description="Per step.")
    # estimators with a baseline of their own need no group
    group_size: int = Field(
        1,
        ge=1,
        description=(
            "How many of a step's episodes share one start; they form a group for grpo and its kin."
        ),
    )
    # DAPO (arXiv 2503.14476); each time costs at most as many plays as the step has
    refill: int = Field(
        0,
        ge=0,
        le=16,
        description=(
            "How often another start is played in the place of one whose plays teach nothing,"
            " since all of them were paid alike; 0 = never."
        ),
    )
    fork: ForkSettings | None = Field(
        None, description="Further plays that go on from decision points of these; absent = none."
    )
    split: str = Field("train", description="The tasks that are trained on.")
    curriculum: CurriculumSettings | None = Field(
        None,
        description="Tasks that are neither mastered nor out of reach first; absent = all in turn.",
    )
    # of tables and tiny models; configs of larger ones name their own
    lr: float = Field(3e-3, gt=0, description="Learning rate.")
    lr_final: float = Field(
        1.0, ge=0, le=1, description="Share of lr left at the last step, reached linearly."
    )
    lr_decay: Literal["linear", "cosine"] = Field(
        "linear", description="The way from lr to its last share."
    )
    lr_warmup: int = Field(0, ge=0, description="Steps over which lr rises from 0.")
    # what a crash may cost, in steps
    save_every: int = Field(10, ge=1, description="Steps between checkpoints.")
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
    on_collapse: Literal["off", "warn"] = Field(
        "warn", description="When a detector fires: say so, with what to try."
    )

    # true is 1, and stays what it was in the folders of older runs
    overlap: bool | int = Field(
        False,
        description=(
            "Play so many steps ahead while this one is learned from (true: one): off-policy by so"
            " many updates."
        ),
    )
    admission: Literal["step", "continuous"] = Field(
        "step",
        description=(
            "When plays of a step that is played ahead begin: once those of the step before have"
            " ended; or where any play leaves one of run.concurrency places."
        ),
    )
    shard: bool = Field(
        False,
        description=(
            "Of several processes each holds a part of the weights that learn, of their gradients"
            " and of the optimiser."
        ),
    )
    chunk: int | None = Field(
        None,
        ge=1,
        description=(
            "Plays that are played together, one such chunk after the other or each by another"
            " worker of --ray, which takes 16 where this is absent; absent = all of a step."
        ),
    )
    max_policy_lag: int | None = Field(
        None,
        ge=0,
        description=(
            "A policy does not learn from episodes with a turn older than so many of its publishes;"
            " absent = no bound."
        ),
    )

    @property
    def references(self) -> set[str]:
        """The policies that learners are held to (`loss.reference`), which need no seat."""
        # raw: what a policy says otherwise is read as a section by whoever merges it
        special = {name: changes.loss.get("reference") for name, changes in self.per_policy.items()}
        own = {special.get(name) or self.loss.reference for name in self.policies}
        return {name for name in own if isinstance(name, str)}

    @model_validator(mode="before")
    @classmethod
    def _weighed(cls, value: Any) -> Any:
        """What is played with older weights is weighed by what they said, unless `tis` says
        otherwise; the config then holds the cap itself."""
        # the schema has not looked at it yet: anything may stand here
        overlap = value.get("overlap") if isinstance(value, dict) else None
        if not isinstance(overlap, int) or overlap < 1:
            return value
        loss = value.get("loss", {})
        if isinstance(loss, dict) and "tis" not in loss:
            return {**value, "loss": {**loss, "tis": OVERLAP_TIS}}
        if isinstance(loss, LossSettings) and "tis" not in loss.model_fields_set:
            return {**value, "loss": loss.model_copy(update={"tis": OVERLAP_TIS})}
        return value

    @field_validator("admission")
    @classmethod
    def _ahead(cls, value: str, others: ValidationInfo) -> str:
        # a fault in `overlap` is told by itself
        if value == "continuous" and not others.data.get("overlap", True):
            raise ValueError("continuous mixes plays of several steps: set train.overlap: 1")
        return value

    @field_validator("overlap")
    @classmethod
    def _steps_ahead(cls, value: bool | int) -> bool | int:
        if not 0 <= value <= MOST_AHEAD:
            raise ValueError(f"how many steps are played ahead: 0 to {MOST_AHEAD}, or true for 1")
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
