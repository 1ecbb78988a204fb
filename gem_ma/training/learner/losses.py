"""The policy-gradient loss over trained tokens, as pure functions: for language models and tables
alike, so a new loss is one function here.

Axis: n trained tokens. `turn` names the turn of each token, `part` one agent's part in one episode.
The loss of one optimiser step is

    loss = - sum_t w_t v_t surrogate(rho_t, A_t) - c mean_t H_t + b mean_t d(policy || reference)

with rho_t = exp(logprob_t - old_t) and weights w_t by aggregation (`token_weights`), counted
over the whole step, so micro-batches add up to the step as one batch would. v_t = min(exp(old_t
- sampled_t), C) corrects for an engine whose numbers differ from the learner's (truncated
importance sampling); without C it is 1.

A surrogate is written in operations that tensors and `Slope` share. The torch learner calls it on a
chunk of tokens and differentiates it backwards; `pull` gives the gradient of a whole step itself,
which tables use, and torch where a ratio is of a whole turn or episode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import Aggregation, LossSettings, Ratio
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError

Array = NDArray[np.float64]
Index = NDArray[np.int64]


class Slope:
    """Values [n], each with its derivative [n] by a variable of its own (forward mode), so that a
    loss written for tensors gives its gradient in numpy too. The methods are those of a tensor, as
    far as losses need them.

    >>> x = Slope.of(np.array([0.0, 1.0]))
    >>> ((x * 2).exp() - 1).slope.round(3).tolist()
    [2.0, 14.778]
    """

    __array_ufunc__ = None  # numpy leaves `array * slope` to `__rmul__`
    __slots__ = ("slope", "value")

    def __init__(self, value: Array, slope: Array) -> None:
        self.value = value
        self.slope = slope

    @classmethod
    def of(cls, value: Array) -> Slope:
        return cls(value, np.ones_like(value))

    def _with(self, other: Any) -> tuple[Array, Array]:
        """Value and slope of another operand; a plain number or array is constant."""
        if isinstance(other, Slope):
            return other.value, other.slope
        constant = np.asarray(other, np.float64)
        return constant, np.zeros_like(constant)

    def __add__(self, other: Any) -> Slope:
        value, slope = self._with(other)
        return Slope(self.value + value, self.slope + slope)

    def __sub__(self, other: Any) -> Slope:
        value, slope = self._with(other)
        return Slope(self.value - value, self.slope - slope)

    def __rsub__(self, other: Any) -> Slope:
        return -self + other

    def __mul__(self, other: Any) -> Slope:
        # apart from the product rule: it would add 0 * inf, which is not a number
        if not isinstance(other, Slope):
            return Slope(self.value * other, self.slope * other)
        return Slope(self.value * other.value, self.slope * other.value + self.value * other.slope)

    def __truediv__(self, other: Any) -> Slope:
        if not isinstance(other, Slope):
            return Slope(self.value / other, self.slope / other)
        slope = (self.slope - self.value / other.value * other.slope) / other.value
        return Slope(self.value / other.value, slope)

    def __neg__(self) -> Slope:
        return Slope(-self.value, -self.slope)

    __radd__ = __add__
    __rmul__ = __mul__

    # comparisons count clipped tokens; they have no slope
    def __lt__(self, other: Any) -> NDArray[np.bool_]:
        return np.asarray(self.value < self._with(other)[0])

    def __gt__(self, other: Any) -> NDArray[np.bool_]:
        return np.asarray(self.value > self._with(other)[0])

    def exp(self) -> Slope:
        power = np.exp(self.value)
        return Slope(power, self.slope * power)

    def expm1(self) -> Slope:
        # exp(x) - 1 would lose all digits of a small x, and `k3` could turn negative
        return Slope(np.expm1(self.value), self.slope * np.exp(self.value))

    def softplus(self) -> Slope:
        """log(1 + exp(x)); tensors have it as a function alone."""
        # by logaddexp: exp(x) itself overflows for x above 709
        return Slope(
            np.logaddexp(0, self.value), self.slope * np.exp(-np.logaddexp(0, -self.value))
        )

    def clamp(self, min: float = -np.inf, max: float = np.inf) -> Slope:
        """Outside of the bounds nothing changes any more; on them it does, as for a tensor."""
        inside = (self.value >= min) & (self.value <= max)
        return Slope(np.clip(self.value, min, max), np.where(inside, self.slope, 0.0))

    def minimum(self, other: Any) -> Slope:
        # of equals this one's slope; torch takes half of each, and where a loss clips they agree
        value, slope = self._with(other)
        return Slope(np.minimum(self.value, value), np.where(value < self.value, slope, self.slope))

    def maximum(self, other: Any) -> Slope:
        value, slope = self._with(other)
        return Slope(np.maximum(self.value, value), np.where(value > self.value, slope, self.slope))

    def detach(self) -> Slope:
        return Slope(self.value, np.zeros_like(self.value))


class Pull(NamedTuple):
    """What a step does to each log-probability: d loss / d logprob [n]; the loss; and which tokens
    are clipped [n]."""

    slope: Array
    loss: float
    clipped: NDArray[np.bool_]


AGGREGATIONS: tuple[str, ...] = get_args(Aggregation)
RATIOS: tuple[str, ...] = get_args(Ratio)


def token_weights(
    turn: Index,
    aggregation: str,
    part: Index | None = None,
    longest: int | None = None,
) -> Array:
    """Weight [n] of each trained token, given its turn [n].

    turn_sum: 1 / turns, the gradient of one action per turn. token_mean: 1 / tokens. turn_mean: 1 /
    (turns * tokens of the turn), which favours short right and long wrong turns. constant: 1 /
    (turns * `longest`), `longest` = the token limit of a turn (Dr. GRPO, arXiv 2503.20783).
    episode_sum: 1 / parts, given for each token the agent's `part` [n] in an episode.

    >>> token_weights(np.array([0, 0, 1]), "turn_sum").tolist()
    [0.5, 0.5, 0.5]
    >>> token_weights(np.array([0, 0, 1]), "turn_mean").tolist()
    [0.25, 0.25, 0.5]
    """
    _, index, counts = np.unique(turn, return_inverse=True, return_counts=True)
    if aggregation == "turn_mean":
        return np.asarray(1.0 / (len(counts) * counts[index]), np.float64)
    turns = max(len(counts), 1)  # a step may have no token at all
    shares = {
        "turn_sum": turns,
        "token_mean": max(len(turn), 1),
        # by a constant, not by the turn's own length: no reason to be short or long is left
        "constant": turns * (longest or int(counts.max(initial=1))),
        "episode_sum": max(len(np.unique(turn if part is None else part)), 1),
    }
    return np.full(len(turn), 1.0 / shares[aggregation])


def truncated_weight(
    gap: Array,
    turn: Index,
    part: Index,
    ratio: str,
    cap: float | None,
) -> Array:
    """Truncated importance weight [n] between engine and learner, over the unit of the ratio:
    min(exp(gap), cap); 1 without a cap.

    gap [n] = learner's less engine's log-probability of a token, both before the update.  (verl's
    TIS; cap 2 is usual.)

    >>> turn, part = np.array([0, 1]), np.array([0, 0])
    >>> truncated_weight(np.log([1.5, 4.0]), turn, part, "token", 2.0).round(6).tolist()
    [1.5, 2.0]
    """
    if cap is None:
        return np.ones(len(gap))
    # over the unit of the loss's own ratio: the two multiply, and must speak of one event
    if ratio != "token":
        of = part if ratio.startswith("episode") else turn
        _, unit, length = np.unique(of, return_inverse=True, return_counts=True)
        drift = np.bincount(unit, gap).astype(np.float64)
        gap = np.asarray((drift / length if ratio.endswith("mean") else drift)[unit], np.float64)
    return np.asarray(np.minimum(np.exp(gap), cap))


class Sampled(NamedTuple):
    """Trained tokens [n] as they were sampled: advantage, log-probability, turn and part; `group`:
    the parts that a loss of pairs compares, None where there is none."""

    advantage: Array
    logprob: Array
    turn: Index
    part: Index
    group: Index | None = None

    def take(self, index: NDArray[Any]) -> Sampled:
        group = None if self.group is None else self.group[index]
        advantage, logprob, turn, part = (column[index] for column in self[:4])
        return Sampled(advantage, logprob, turn, part, group)

    def worth(self, old: Array, how: LossSettings) -> Array:
        """The advantages [n], corrected for a sampler whose numbers are not the learner's `old`."""
        gap = old - self.logprob  # learner to engine; under overlap also newer to older weights
        weight = truncated_weight(gap, self.turn, self.part, how.ratio, how.tis)
        return self.advantage * weight

    def pairs(self) -> Pairs:
        assert self.group is not None
        return Pairs.of(self.advantage, self.part, self.group)

    def weights(self, how: LossSettings, longest: int) -> Array:
        return token_weights(self.turn, how.aggregation, self.part, longest)


def start_of(episode: Episode) -> str:
    """The name of a start: all plays with it can be compared with each other."""
    return episode.group or str(episode.id)


# Losses of pairs: of two plays of one start the better one shall become likelier than the worse
# one, compared with what a reference says of both. Axis: P pairs. A *part* is what one agent said
# in one play; the parts of one agent from one start are a *group*. Which of two is better follows
# from their advantages, which an estimator of whole plays keeps in the order of their returns.


def dpo(margin: Slope, beta: float) -> Slope:
    """-log sigmoid(beta margin), of DPO (arXiv 2305.18290, eq. 7). margin [P]: log (p / p
    reference) of the better part less that of the worse, summed over the tokens of each."""
    return (-margin * beta).softplus()


def ipo(margin: Slope, beta: float) -> Slope:
    """(margin - 1 / (2 beta))^2, of IPO (arXiv 2310.12036, eq. 17): a pair that is far enough apart
    is pulled no further."""
    away = margin - 1 / (2 * beta)
    return away * away


# (margin [P], loss.pair_beta) -> loss [P]
PAIRED: dict[str, Callable[[Slope, float], Slope]] = {"dpo": dpo, "ipo": ipo}


class Pairs(NamedTuple):
    """All pairs (better, worse) of a batch, as numbers of its parts [P]; `owner` [n] is the part
    of each token."""

    better: Index
    worse: Index
    owner: Index

    @classmethod
    def of(cls, advantage: Array, part: Index, group: Index) -> Pairs:
        _, first, owner = np.unique(part, return_index=True, return_inverse=True)
        worth = advantage[first]
        start = group[first]
        better = [np.zeros(0, np.int64)]
        worse = [np.zeros(0, np.int64)]
        # by group, not over all parts at once: a batch has thousands of parts, a group a few
        ends = np.flatnonzero(np.diff(np.sort(start))) + 1
        for mine in np.split(np.argsort(start, kind="stable"), ends):
            ahead, behind = np.nonzero(worth[mine][:, None] > worth[mine][None, :])
            better.append(mine[ahead])
            worse.append(mine[behind])
        return cls(np.concatenate(better), np.concatenate(worse), owner)

    def margin(self, away: Array) -> Array:
        lead = np.bincount(self.owner, away).astype(np.float64)
        return np.asarray(lead[self.better] - lead[self.worse])


def pair_pull(name: str, away: Array, pairs: Pairs, beta: float) -> Pull:
    """The mean loss of these pairs, and its slope by the log-probability of each token [n]; `away`
    as in `Pairs.margin`."""
    loss = PAIRED[name](Slope.of(pairs.margin(away)), beta)
    count = max(len(pairs.better), 1)
    parts = int(pairs.owner.max(initial=-1)) + 1
    # a part stands in as many pairs as there are others of its group that came to more or less
    pull = np.bincount(pairs.better, loss.slope / count, parts)
    pull = pull - np.bincount(pairs.worse, loss.slope / count, parts)
    clipped = np.zeros(len(away), np.bool_)
    slope = np.asarray(pull[pairs.owner], np.float64)
    return Pull(slope, float(loss.value.sum()) / count, clipped)


def ranking(away: Array, pairs: Pairs) -> dict[str, float]:
    """What is logged: how many pairs there are, and the share whose better part has become
    likelier than the worse one; equals count half."""
    margin = pairs.margin(away)
    right = (margin > 0) + 0.5 * (margin == 0)
    share = {"pairs_right": float(right.mean())} if len(margin) else {}
    return {"pairs": float(len(margin)), **share}


def unit_pull(
    new: Array,
    old: Array,
    advantage: Array,
    turn: Index,
    part: Index,
    ratio: str,
    clip: Any,
    objective: Callable[[Any, Any, Any, Any], tuple[Any, Any]],
) -> Pull:
    """The loss with one ratio per turn or per episode; a token is clipped where its turn is.

    Each turn u counts once: loss = - mean_u surrogate(rho_u, A_u). turn_sum: rho = exp(sum over
    the turn's tokens of new - old), the exact ratio of the action; turn_mean: its geometric mean
    per token, as in GSPO (arXiv 2507.18071); episode: the ratio of all tokens of the agent's
    `part` [n] in the episode; episode_mean: its geometric mean per token, GSPO over the whole
    conversation.
    """
    _, first, turn_of = np.unique(turn, return_index=True, return_inverse=True)
    whole = ratio.startswith("episode")
    unit = np.unique(part, return_inverse=True)[1] if whole else turn_of
    drift: Array = np.bincount(unit, new - old).astype(np.float64)
    length = np.bincount(unit) if ratio.endswith("mean") else np.ones(len(drift))
    drift = drift / length
    drift_of_turn = drift[unit[first]]  # [u]: turns of one episode may share a ratio
    gain, cut = objective(Slope.of(drift_of_turn), np.zeros(len(first)), advantage[first], clip)
    count = max(len(first), 1)
    # a token of an episode's ratio moves the ratio of every turn in it
    slope = (np.bincount(unit[first], gain.slope / count, len(drift)) / length)[unit]
    return Pull(np.asarray(-slope, np.float64), -float(gain.value.sum()) / count, cut[turn_of])


class Clip(NamedTuple):
    """How far a ratio may go: down to 1 - low, up to 1 + high."""

    low: float
    high: float

    @classmethod
    def of(cls, how: LossSettings) -> Clip:
        high = how.clip if how.clip_high is None else how.clip_high
        return cls(how.clip, high)


# (logprobs, old, advantages, clip), all [n] but the last -> (objective [n] to be maximised, whether
# a token is clipped [n]). Of a ratio of whole turns, `logprobs` is what a turn's moved by, `old` 0.
Surrogate = Callable[[Any, Any, Any, Clip], tuple[Any, Any]]


def clipped(logprobs: Any, old: Any, advantages: Any, clip: Clip) -> tuple[Any, Any]:
    """min(rho A, clip(rho, 1 - low, 1 + high) A) with rho = exp(logprobs - old), of PPO (arXiv
    1707.06347, eq. 7): no token gains by going further than the clip. A `high` above `low` is of
    DAPO (arXiv 2503.14476): a rare token may rise further than a likely one may fall."""
    ratio = (logprobs - old).exp()
    # a minimum, not the clipped one alone: a token that has gone the wrong way is still pulled back
    free = ratio * advantages
    bound = ratio.clamp(1 - clip.low, 1 + clip.high) * advantages
    return free.minimum(bound), bound < free


def cispo(logprobs: Any, old: Any, advantages: Any, clip: Clip) -> tuple[Any, Any]:
    """sg(min(rho, 1 + high)) A logprob, of MiniMax-M1 (arXiv 2506.13585, eq. 4 and 5): the weight
    is clipped and no gradient goes through it, so that a clipped token is still learned from.
    It is not bounded below, as in the paper."""
    ratio = (logprobs - old).exp().detach()
    return ratio.clamp(max=1 + clip.high) * advantages * logprobs, ratio > 1 + clip.high


def none(logprobs: Any, old: Any, advantages: Any, clip: Clip) -> tuple[Any, Any]:
    """0: what was paid teaches nothing. The divergence alone is learned from, as in on-policy
    distillation (arXiv 2306.13649), or the entropy bonus."""
    return logprobs * 0.0, advantages != advantages


SURROGATES: dict[str, Surrogate] = {"clipped": clipped, "cispo": cispo, "none": none}


def whole(how: LossSettings) -> bool:
    """Whether a token's pull depends on other tokens than itself, so that a chunk is not enough."""
    return how.ratio != "token" or how.surrogate in PAIRED


def surrogate(name: str) -> Surrogate:
    """A surrogate by name. Raises ConfigError."""
    if name not in SURROGATES:
        raise ConfigError(
            f"no surrogate is called {name!r}; surrogates are {', '.join((*SURROGATES, *PAIRED))}"
        )
    return SURROGATES[name]


def pull(
    new: Array,
    old: Array,
    tokens: Sampled,
    how: LossSettings,
    longest: int,
    anchor: Array | None = None,
) -> Pull:
    """What a whole step is pulled by, under any ratio. `longest`: the token limit of a turn.
    `anchor` [n]: log-probabilities of the reference, for losses of pairs."""
    if how.surrogate in PAIRED:
        assert anchor is not None
        return pair_pull(how.surrogate, new - anchor, tokens.pairs(), how.pair_beta)
    worth = tokens.worth(old, how)
    clip = Clip.of(how)
    objective = surrogate(how.surrogate)
    if how.ratio == "token":
        weight = tokens.weights(how, longest)
        gain, cut = objective(Slope.of(new), old, worth, clip)
        return Pull(-gain.slope * weight, -float((gain.value * weight).sum()), cut)
    return unit_pull(new, old, worth, tokens.turn, tokens.part, how.ratio, clip, objective)


# How far two policies are apart, by their log-probabilities: tensors, `Slope` or numpy alike where
# an operation allows it. The estimators are those of http://joschu.net/blog/kl-approx.html.


def k3(sampled_from: Any, other: Any) -> Any:
    """Estimate [n] of KL(sampled_from || other) from log-probabilities, tensors or `Slope`: exp(d)
    - d - 1 with d = other - sampled_from. By expm1 it is never negative, however small d is."""
    difference = other - sampled_from  # d; its expectation under `sampled_from` is -KL
    return difference.expm1() - difference


def k2(sampled_from: Any, other: Any) -> Any:
    """d^2 / 2 [n] with d = sampled_from - other: its gradient is d times that of the policy's
    log-probability, whose mean over what the policy sampled is the gradient of KL(policy || other)
    itself. That of `k3` is in the mean the gradient of KL(other || policy)."""
    difference = sampled_from - other
    return difference * difference / 2


DIVERGENCES: dict[str, Callable[[Any, Any], Any]] = {"k3": k3, "k2": k2}
