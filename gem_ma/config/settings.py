"""One YAML shape for run, train and study, as validated models. `gem_ma.config` reads files into
them.

Unknown keys are errors everywhere. `scenario:` and `policies.<name>:` also take the options of
the scenario's and the engine's constructor.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from gem_ma.types import MAX_SAID, Limits, Sampling, Seat


class Settings(BaseModel):
    """Base of all sections: strict keys, frozen values."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ScenarioSettings(Settings):
    """What is played. Further keys are options of the scenario's constructor."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    id: str = Field(description="A registered id, or package.module:Class.")
    split: str = Field("test", description="Which tasks.")
    tasks: int | list[int] | None = Field(
        None,
        description=(
            "The first n tasks, or these indices; all of the split where absent. Where a split is"
            " one task: n episodes with n seeds."
        ),
    )

    @field_validator("tasks")
    @classmethod
    def _some_tasks(cls, value: int | list[int] | None) -> int | list[int] | None:
        if value == [] or (isinstance(value, int) and value < 1):
            raise ValueError("names no task")
        if isinstance(value, list) and len(set(value)) < len(value):
            raise ValueError("names a task twice; use run.episodes_per_task")
        return value

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


class AgentSettings(Settings):
    """Who plays one agent."""

    behaviour: str = Field("direct", description="Id of a behaviour, or package.module:factory.")
    policy: str | None = Field(None, description="The policy that the behaviour samples from.")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the behaviour.")
    policies: dict[str, str] = Field(
        default_factory=dict,
        description="Further policies, by what the behaviour calls them: {judge: NAME}.",
    )

    @model_serializer(mode="wrap")
    def _without_none(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """No further policies are no key: the config keeps the run folder that it had before
        there were any."""
        return {key: value for key, value in handler(self).items() if key != "policies" or value}

    @property
    def seat(self) -> Seat:
        return Seat(self.behaviour, self.policy, dict(self.options), policies=dict(self.policies))


class PolicySettings(Settings):
    """Weights and how they are sampled. Further keys are options of the engine's constructor."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    model: str = Field(description="<engine>/<name>, as in table/softmax or transformers/PATH.")
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0, description="0 = off.")
    max_tokens: int = Field(256, ge=1, description="Per model call.")
    stop: list[str] = Field(default_factory=list)

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_p, self.top_k, self.max_tokens, tuple(self.stop))

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


class RunSettings(Settings):
    """How episodes are played. The limits are the driver's: they cut a play and are recorded as
    truncation."""

    episodes_per_task: int = Field(1, ge=1)
    seed: int = 0
    concurrency: int = Field(64, ge=1, le=10_000)
    max_steps: int | None = Field(None, ge=1)
    max_turns: int | None = Field(None, ge=1)
    max_tokens: int | None = Field(None, ge=1)
    max_said: int | None = Field(
        MAX_SAID,
        ge=16,
        description=(
            "Characters of one saying, and of its calls; what is beyond is cut off and counted."
        ),
    )
    episode_timeout_s: float | None = Field(None, gt=0)
    call_timeout_s: float | None = Field(60.0, gt=0)
    baselines: bool | int = Field(
        True,
        description="Play the scenario's trivial casts beside; a number: on so many tasks at most.",
    )
    max_failed: int | str = Field(
        0,
        description="Failed episodes that still give exit code 0: a number, or a share such as 2%.",
    )

    @field_validator("baselines")
    @classmethod
    def _none_or_some(cls, value: bool | int) -> bool | int:
        if value is not True and value is not False and value < 1:
            raise ValueError("should be true, false, or how many tasks at most")
        return value

    @field_validator("max_failed")
    @classmethod
    def _a_number_or_share(cls, value: int | str) -> int | str:
        share = re.fullmatch(r"(\d{1,3}(?:\.\d+)?)\s*%", value) if isinstance(value, str) else None
        if not (
            value >= 0 if isinstance(value, int) else share is not None and float(share[1]) <= 100
        ):
            raise ValueError("should be a number of episodes, or a share such as 2%")
        return value

    def tolerates(self, failed: int, total: int) -> bool:
        """Whether so many failed episodes of so many still count as a run that is done."""
        if isinstance(self.max_failed, int):
            return failed <= self.max_failed
        return failed * 100 <= float(self.max_failed.rstrip("% ")) * total

    @property
    def limits(self) -> Limits:
        return Limits(
            self.max_steps, self.max_turns, self.max_tokens, self.episode_timeout_s, self.max_said
        )


class LimitSettings(Settings):
    """What one command may spend on models behind an endpoint, all policies together. Reached,
    the run stops and can be resumed."""

    usd: float | None = Field(
        None, gt=0, description="Needs a price of every policy at an endpoint."
    )
    tokens: int | None = Field(None, ge=1, description="Read and sampled.")


class RetrySettings(Settings):
    """How patient a request to an endpoint is, where its policy does not say otherwise."""

    attempts: int | None = Field(None, ge=1)
    wall_s: float | None = Field(
        None, gt=0, description="Seconds of one request, all attempts together."
    )
    timeout_s: float | None = Field(None, gt=0, description="Seconds of one attempt.")

    @property
    def options(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


SCHEDULE = frozenset({"from", "to", "steps"})  # the keys that make a mapping a schedule
OVERLAP_TIS = 2.0  # loss.tis of tokens that older weights sampled, where a config says nothing


class CreditSettings(Settings):
    """Ledger -> per-turn rewards -> returns."""

    rule: str = Field(
        "until_next_turn",
        description="until_next_turn, own_step, terminal_to_last, or team_mix(w) with w in 0..1.",
    )
    team: list[str] | None = Field(
        None, description="The agents that share under team_mix; all where absent."
    )
    gamma: float | dict[str, float | dict[str, float]] = Field(
        1.0,
        description=(
            "Discount over the agent's own turns: a number, or {from: 0.9, to: 1.0, steps: 60}; for"
            " all, or one per agent."
        ),
    )
    truncated: Literal["zero", "drop"] = Field(
        "zero",
        description=(
            "Of episodes that the driver cut: nothing follows (a critic says what would), or they"
            " teach nothing."
        ),
    )

    @field_validator("rule")
    @classmethod
    def _a_rule(cls, value: str) -> str:
        names = ("until_next_turn", "own_step", "terminal_to_last")
        mixed = re.fullmatch(
            r"team_mix\(\s*((?:\d++(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?)\s*\)", value
        )
        if value not in names and not (mixed is not None and float(mixed[1]) <= 1):
            near = get_close_matches(value, names, n=1, cutoff=0.5)
            raise ValueError(
                f"wants {', '.join(names)}, or team_mix(w) with w in 0..1"
                + (f" (did you mean {near[0]!r}?)" if near else "")
            )
        return value

    @field_validator("team")
    @classmethod
    def _some_agents(cls, value: list[str] | None) -> list[str] | None:
        if value is not None and (not value or len(set(value)) < len(value)):
            raise ValueError("names an agent twice" if value else "names no agent")
        return value

    @field_validator("gamma")
    @classmethod
    def _discounts(cls, value: float | dict[str, Any]) -> float | dict[str, Any]:
        several = isinstance(value, dict) and not SCHEDULE & value.keys()
        for agent, one in value.items() if isinstance(value, dict) and several else [("", value)]:
            _check_discount(one, f" of {agent}" if agent else "")
        if value == {}:
            raise ValueError("names no agent")
        return value

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Later keys are written only where they say something: a config keeps the run folder
        that it had before there were any."""
        return {
            key: value
            for key, value in handler(self).items()
            if (key, value) not in (("team", None), ("truncated", "zero"))
        }


def _check_discount(value: float | dict[str, float], whose: str) -> None:
    """Raises ValueError for what is neither a number in 0..1 nor a schedule between two."""
    if isinstance(value, dict):
        if value.keys() != SCHEDULE:
            raise ValueError(
                f"the schedule{whose} has the keys from, to and steps; here"
                f" {', '.join(value) or 'none'}"
            )
        if value["steps"] < 2 or value["steps"] != int(value["steps"]):
            raise ValueError(f"steps of the schedule{whose} is a whole number, 2 or more")
    for discount in (value["from"], value["to"]) if isinstance(value, dict) else (value,):
        if not 0 <= discount <= 1:
            raise ValueError(f"the discount{whose} lies in 0..1")


class ShapingSettings(Settings):
    """Rewards shaped by the agent's own past, before the estimator. What is learned for changes;
    records and evaluation stay raw."""

    form: Literal["margin", "quality"] = Field(
        description=(
            "margin: R + alpha (R - Q); quality: R + alpha (Q R - (1-Q)(1-R)); Q = mean return so"
            " far."
        )
    )
    alpha: float = Field(description="Weight of the shaping.")


class EstimatorSettings(Settings):
    """Returns -> advantages."""

    name: str = "rebn"
    key: str | list[str] | None = Field(
        None, description="Columns that form a group, as in [policy, scenario, agent]; or global."
    )
    options: dict[str, float | bool] = Field(
        default_factory=dict, description="Parameters of the estimator, as in {lam: 0.95}."
    )
    shaping: ShapingSettings | None = Field(
        None,
        description=(
            "Adaptive shaping of its rewards, as in {form: margin, alpha: 0.5}; absent = none."
        ),
    )

    @model_serializer(mode="wrap")
    def _without_none(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """No shaping is no key: the config keeps its run folder."""
        return {
            key: value
            for key, value in handler(self).items()
            if key != "shaping" or value is not None
        }


class LossSettings(Settings):
    """The clipped policy-gradient loss and its optimiser steps."""

    clip: float = Field(0.2, gt=0)
    ratio: Literal["token", "turn_sum", "turn_mean", "episode"] = Field(
        "token",
        description=(
            "Over what the importance ratio is taken: each token, all of a turn, their geometric"
            " mean, all of an episode."
        ),
    )
    aggregation: Literal["turn_sum", "token_mean", "turn_mean", "constant", "episode_sum"] = Field(
        "turn_sum",
        description="Weights of the tokens under the token ratio; the others count each turn once.",
    )
    tis: float | None = Field(
        None,
        gt=0,
        description=(
            "Cap of the truncated importance weight between engine and learner; null = none."
            " Absent: 2 under overlap, else null."
        ),
    )
    kl: float = Field(
        0.0, ge=0, description="Weight of the divergence from the weights at the start of training."
    )
    entropy: float = Field(0.0, ge=0)
    epochs: int = Field(1, ge=1)
    minibatches: int = Field(4, ge=1)
    target_kl: float | None = Field(None, gt=0)
    grad_clip: float = Field(1.0, gt=0)
    pass_tokens: int = Field(
        16_384,
        ge=1,
        description=(
            "Padded tokens of one forward and backward pass; the gradients of a step's passes add"
            " up, so memory alone changes."
        ),
    )

    pass_logits: int = Field(
        1 << 25,
        ge=1,
        description=(
            "Logits (tokens x vocabulary) that stand in memory at once, two float32 copies of them;"
            " memory alone changes."
        ),
    )

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A pass size that is not set is no key: the config keeps its run folder."""
        usual = {("pass_tokens", 16_384), ("pass_logits", 1 << 25)}
        return {
            key: value
            for key, value in handler(self).items()
            if key not in ("pass_tokens", "pass_logits") or (key, value) not in usual
        }


class CriticSettings(Settings):
    """A critic for each learned policy: one value per turn, from what the agent had seen."""

    lr: float = Field(1e-3, gt=0)
    epochs: int = Field(2, ge=1)
    minibatches: int = Field(4, ge=1)
    grad_clip: float = Field(1.0, gt=0)
    step: float = Field(
        0.2,
        gt=0,
        le=1,
        description="Of a table: how far a view's value moves to the mean of its targets.",
    )


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
        0.0, ge=0, le=1, description="Whoever has the seat, with the weights of now."
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
        if abs(total - 1) > 1e-6:
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
    prioritised: Literal["hard", "even"] = Field(
        "hard",
        description=(
            "Weight at win rate p: hard (1-p)^q, the ones it loses to; even p(1-p), the ones like"
            " itself."
        ),
    )
    q: float = Field(2.0, ge=0)
    prior: float = Field(2.0, gt=0, description="Drawn games that every win rate starts from.")
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

    @model_serializer(mode="wrap")
    def _without_none(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """No bound is no key: the config keeps its run folder."""
        return {
            key: value
            for key, value in handler(self).items()
            if key != "max_policy_lag" or value is not None
        }


class ForkSettings(Settings):
    """Group sampling from the middle of an episode: continuations of one recorded prefix that
    form a group."""

    width: int = Field(
        ge=2, le=64, description="Continuations of each decision point that is forked."
    )
    at: Literal["random", "every"] | int = Field(
        "random",
        description="A drawn decision point, this one (or the next of a learner), or each.",
    )
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
    lr: float = Field(3e-3, gt=0)
    lr_final: float = Field(
        1.0, ge=0, le=1, description="Share of lr left at the last step, reached linearly."
    )
    lr_warmup: int = Field(0, ge=0, description="Steps over which lr rises from 0.")
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
    seats: Literal["fixed", "swap", "random"] = Field(
        "fixed",
        description=(
            "Who sits where: as agents: says; every start once from each side; or drawn for every"
            " start."
        ),
    )
    opponents: OpponentSettings | None = Field(
        None, description="Against whom; absent: whoever agents: seats, with the weights of now."
    )
    pool: PoolSettings = PoolSettings()
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

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Later keys are written only where they say something: a config keeps the run folder
        that it had before there were any."""
        none = (
            ("overlap", False),
            ("max_policy_lag", None),
            ("checkpoints", {"keep": None, "every": None}),
        )
        return {key: value for key, value in handler(self).items() if (key, value) not in none}

    @model_validator(mode="before")
    @classmethod
    def _weighed(cls, value: Any) -> Any:
        """What is played with older weights is weighed by what they said, unless `tis` says
        otherwise; the config then holds the cap itself."""
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
        return [value] if isinstance(value, str) else value

    @field_validator("alternate")
    @classmethod
    def _some_steps(cls, value: dict[str, int]) -> dict[str, int]:
        if any(steps < 1 for steps in value.values()):
            raise ValueError("every policy learns for at least 1 step")
        return value


class EvaluateSettings(Settings):
    """Evaluation during and after training."""

    every: int | None = Field(None, ge=1, description="Training steps between evaluations.")
    episodes: int = Field(256, ge=1)
    seed: int = Field(
        1_000_000, ge=0, description="First seed of evaluation; disjoint from training seeds."
    )


class Config(Settings):
    """A whole config file."""

    scenario: ScenarioSettings
    agents: dict[str, AgentSettings] = Field(default_factory=dict)
    policies: dict[str, PolicySettings] = Field(default_factory=dict)
    run: RunSettings = RunSettings()
    limits: LimitSettings = LimitSettings()
    retry: RetrySettings = RetrySettings()
    train: TrainSettings | None = None
    evaluate: EvaluateSettings = EvaluateSettings()


class StudySettings(Settings):
    """How the cells of a study are played and compared."""

    name: str | None = Field(
        None, description="What the folder is called; the name of the file where absent."
    )
    design: Literal["grid", "cross_play"] | None = Field(
        None, description="Which section names the cells; the one that is there where absent."
    )
    repeats: int | None = Field(None, ge=1, description="run.episodes_per_task of every cell.")
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
            raise ValueError("pairs within a task: it holds task")
        return value


class CrossPlaySettings(Settings):
    """Who may sit where; every combination is a cell."""

    population: dict[str, dict[str, Any] | list[Any]] = Field(
        description="By agent: named seats, or a list of behaviours."
    )


class DifferenceSettings(Settings):
    """How differences are tested."""

    method: Literal["paired_cluster_bootstrap"] = "paired_cluster_bootstrap"
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
