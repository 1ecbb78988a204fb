"""The sections of `train:` that make an update out of rewards: `credit:`, `estimator:`, `loss:` and
`critic:`. Each may differ by policy. Who learns, and from which plays, is in `training`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator

from gem_ma.config.playing import Settings
from gem_ma.kernel.spelling import near

# These are the only lists: who computes reads them off (`credit`, `estimators.moving`,
# `training.learner.losses`), so a name that a config may say is one that is computed.
Rule = Literal["until_next_turn", "own_step", "terminal_to_last"]  # and team_mix(w)
Truncated = Literal["zero", "drop"]
Form = Literal["margin", "quality"]
Divergence = Literal["k3", "k2"]
Ratio = Literal["token", "turn_sum", "turn_mean", "episode", "episode_mean"]
Share = Annotated[float, Field(ge=0, lt=1)]
Aggregation = Literal["turn_sum", "token_mean", "turn_mean", "constant", "episode_sum"]
SCHEDULE = frozenset({"from", "to", "steps"})  # the keys that make a mapping a schedule
# possessive: a long row of digits that is not a number must not be tried in every split
_MIX = re.compile(r"team_mix\(\s*((?:\d++(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?)\s*\)")


def mix_of(rule: str) -> float:
    """The share w of `team_mix(w)`, 0 for every other credit rule. Raises ValueError for what is
    no rule."""
    names: tuple[str, ...] = get_args(Rule)
    if rule in names:
        return 0.0
    mixed = _MIX.fullmatch(rule)
    if mixed is not None and float(mixed[1]) <= 1:
        return float(mixed[1])
    close = near(rule, names, 1)
    raise ValueError(
        f"wants {', '.join(names)}, or team_mix(w) with w in 0..1"
        + (f" (did you mean {close[0]!r}?)" if close else "")
    )


class CreditSettings(Settings):
    """Ledger -> per-turn rewards -> returns."""

    # text, not Literal, because of the number inside of team_mix(w)
    rule: str = Field(
        "until_next_turn",
        description=f"{', '.join(get_args(Rule))}, or team_mix(w) with w in 0..1.",
    )
    team: list[str] | Literal["teams"] | None = Field(
        None,
        description=(
            "The agents that share under team_mix, all where absent; or teams: each of the"
            " scenario's teams shares what it is paid."
        ),
    )
    gamma: float | dict[str, float | dict[str, float]] = Field(
        1.0,
        description=(
            "Discount over the agent's own turns: a number, or {from: 0.9, to: 1.0, steps: 60}; for"
            " all, or one per agent."
        ),
    )
    truncated: Truncated = Field(
        "zero",
        description=(
            "Of episodes that the driver cut: nothing follows (a critic says what would), or they"
            " teach nothing."
        ),
    )
    cut: Literal["learn", "skip"] = Field(
        "learn",
        description=(
            "Turns whose reply was cut by its token limit: learned from as any, or with advantage"
            " 0, while they still count among their group."
        ),
    )

    @field_validator("rule")
    @classmethod
    def _a_rule(cls, value: str) -> str:
        mix_of(value)
        return value

    @field_validator("team")
    @classmethod
    def _some_agents(cls, value: list[str] | str | None) -> list[str] | str | None:
        if isinstance(value, list) and (not value or len(set(value)) < len(value)):
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


def _check_discount(value: float | dict[str, float], whose: str) -> None:
    """Raises ValueError for what is neither a number in 0..1 nor a schedule between two."""
    if isinstance(value, dict):
        if value.keys() != SCHEDULE:
            raise ValueError(
                f"the schedule{whose} has the keys from, to and steps; here"
                f" {', '.join(value) or 'none'}"
            )
        # the schema reads all three as numbers; and a schedule of one step has no end to come to
        if value["steps"] < 2 or value["steps"] != int(value["steps"]):
            raise ValueError(f"steps of the schedule{whose} is a whole number, 2 or more")
    # above 1 late rewards would grow without end
    for discount in (value["from"], value["to"]) if isinstance(value, dict) else (value,):
        if not 0 <= discount <= 1:
            raise ValueError(f"the discount{whose} lies in 0..1")


class ShapingSettings(Settings):
    """Rewards shaped by the agent's own past, before the estimator. What is learned for changes;
    records and evaluation stay raw."""

    form: Form = Field(
        description=(
            "margin: R + alpha (R - Q); quality: R + alpha (Q R - (1-Q)(1-R)); Q = mean return so"
            " far."
        )
    )
    alpha: float = Field(description="Weight of the shaping.")


class EstimatorSettings(Settings):
    """Returns -> advantages."""

    name: str = Field("rebn", description="docs/training.md has the table of them.")
    key: str | list[str] | None = Field(
        None, description="Columns that form a group, as in [policy, scenario, agent]; or global."
    )
    # rewards of two worlds have two units: their means and spreads compare nothing
    groups: Literal["scenario", "all"] = Field(
        "scenario",
        description=(
            "Of several scenarios: every group is of one, or `all`: the column scenario is taken"
            " out of the key."
        ),
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


class LossSettings(Settings):
    """The policy-gradient loss and its optimiser steps."""

    surrogate: str = Field(
        "clipped",
        description=(
            "What is maximised of a ratio and an advantage, by its name in"
            " gem_ma.training.learner.losses.SURROGATES."
        ),
    )
    # of DPO (arXiv 2305.18290), whose usual value it is
    pair_beta: float = Field(
        0.1,
        gt=0,
        description=(
            "Of the surrogates of pairs, dpo and ipo: how much the reference counts against what"
            " was preferred."
        ),
    )
    # PPO (Schulman et al., 2017)
    clip: float = Field(0.2, gt=0, description="Bound of the ratio: 1 - clip to 1 + clip.")
    clip_high: float | None = Field(
        None,
        gt=0,
        description=(
            "How far a ratio may rise, where that is another than how far it may fall (DAPO);"
            " absent = clip."
        ),
    )
    ratio: Ratio = Field(
        "token",
        description=(
            "Over what the importance ratio is taken: each token, all of a turn, their geometric"
            " mean, all of an episode, their geometric mean."
        ),
    )
    aggregation: Aggregation = Field(
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
        0.0,
        ge=0,
        description="Weight of the divergence from the reference: the weights at the start.",
    )
    reference: str | None = Field(
        None,
        description=(
            "A frozen policy that is the reference in place of the weights at the start, such as a"
            " teacher: on-policy distillation."
        ),
    )
    kl_form: Divergence = Field(
        "k3",
        description=(
            "How the loss estimates the divergence. The mean gradient of k2 is that of KL(policy ||"
            " reference), that of k3 of KL(reference || policy)."
        ),
    )
    kl_in: Literal["loss", "reward"] = Field(
        "loss",
        description=(
            "Where the divergence counts: as a term of the loss, or taken off the reward of each"
            " turn, so that earlier turns answer for it too."
        ),
    )
    entropy: float = Field(0.0, ge=0, description="Weight of the bonus for entropy.")
    epochs: int = Field(1, ge=1, description="Passes over the turns of a step.")
    # of all rows of a step; pass_tokens splits each further where memory wants it
    minibatches: int = Field(4, ge=1, description="Updates of a pass.")
    target_kl: float | None = Field(
        None,
        gt=0,
        description="Where a policy is so many nats from the one that played, the step ends.",
    )
    grad_clip: float = Field(1.0, gt=0, description="Norm that gradients are cut to.")
    # a list, which is what YAML has
    betas: list[Share] = Field(
        [0.9, 0.95],
        min_length=2,
        max_length=2,
        description="What Adam keeps of its two moments from step to step.",
    )
    eps: float = Field(1e-8, gt=0, description="Of Adam.")
    weight_decay: float = Field(
        0.0, ge=0, description="Of AdamW: what a step takes off every weight, times lr."
    )
    pass_tokens: int = Field(
        16_384,
        ge=1,
        description=(
            "Padded tokens of one forward and backward pass, at most; fewer on a CPU, of a model"
            " that would keep more than 3 GB of them. The gradients of a step's passes add up, so"
            " memory alone changes."
        ),
    )

    recompute: bool = Field(
        False,
        description=(
            "Compute a layer's activations again in the backward pass, instead of keeping them:"
            " memory alone changes, for a third more computing."
        ),
    )


class CriticSettings(Settings):
    """A critic for each learned policy: one value per turn, from what the agent had seen."""

    lr: float = Field(1e-3, gt=0, description="Learning rate of the critic.")
    epochs: int = Field(2, ge=1, description="Passes over the returns of a step.")
    minibatches: int = Field(4, ge=1, description="Updates of a pass.")
    grad_clip: float = Field(1.0, gt=0, description="Norm that gradients are cut to.")
    step: float = Field(
        0.2,
        gt=0,
        le=1,
        description="Of a table: how far a view's value moves to the mean of its targets.",
    )
