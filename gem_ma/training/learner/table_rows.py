"""A softmax table under an update: the logits of the views that a batch has met, as one matrix.

Knows choices and their loss; knows neither episodes nor checkpoints. Axes: V views of a batch, C
choices (padded with -inf), N choices sampled in it. The gradient of log p(a) by the logits z of its
view is (onehot(a) - p) / temperature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import LossSettings
from gem_ma.engines.small.table import Array, softmax
from gem_ma.kernel.errors import EngineError
from gem_ma.kernel.types import Sampling
from gem_ma.training.learner import Turns
from gem_ma.training.learner.losses import DIVERGENCES, Sampled, Slope, k3, pull, start_of

# Adam's numbers, for all learners, and its step in numpy.

# the second is below the usual .999: a policy's gradients change within tens of steps
BETAS = (0.9, 0.95)
EPSILON = 1e-8


class Moments:
    """The moments of rows [V, C] that are visited unevenly: `steps` [V, 1] counts each row's own
    visits."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.first = np.zeros(shape)
        self.second = np.zeros(shape)
        self.steps = np.zeros((shape[0], 1))

    def step(
        self,
        gradient: Array,
        lr: float,
        betas: Sequence[float] = BETAS,
        epsilon: float = EPSILON,
    ) -> Array:
        """Takes a gradient [V, C] in; gives the step [V, C] along it, of about `lr` an entry. A
        row without gradient was not visited: it keeps its moments and stays."""
        # as if each view had an Adam of its own: otherwise a view that is not met would drift on
        # by its old moments, and these would fade
        visited = np.abs(gradient).sum(axis=1, keepdims=True) > 0
        self.steps += visited
        first = betas[0] * self.first + (1 - betas[0]) * gradient
        second = betas[1] * self.second + (1 - betas[1]) * gradient**2
        self.first = np.where(visited, first, self.first)
        self.second = np.where(visited, second, self.second)
        # the bias correction of Kingma and Ba (arXiv 1412.6980, algorithm 1): both start at 0
        count = np.maximum(self.steps, 1)
        mean = self.first / (1 - betas[0] ** count)
        square = self.second / (1 - betas[1] ** count)
        return np.where(visited, lr * mean / (np.sqrt(square) + epsilon), 0.0)


# The average of all versions that a table published. Version v has weight v times the agent's own
# reach of the view, which equals drawing one version per episode (later ones are likelier) and
# playing it throughout. In self-play this average approaches an equilibrium; the last iterate does
# not. It is exact because a view holds all that its agent saw and did.

Path = tuple[tuple[int, int], ...]  # the agent's own (view key, choice) pairs that lead to a view
LEAST = 1e-300  # a probability of 0 has no logarithm


def accumulate(
    sums: dict[int, Array],
    weights: Mapping[int, Array],
    paths: Mapping[int, Path],
    version: int,
    sampling: Sampling,
) -> None:
    """Adds what these weights play, in place; `sums` hold version times reach times probabilities
    by view."""
    chances = {key: softmax(row, sampling) for key, row in weights.items()}
    for key, row in chances.items():
        # of the agent's own choices alone: those of others weigh all its versions alike
        reach = 1.0
        for view, choice in paths.get(key, ()):
            reach *= float(chances[view][choice])
        sums[key] = sums.get(key, 0.0) + version * reach * row


def averaged(weights: Mapping[int, Array], sums: Mapping[int, Array]) -> dict[int, Array]:
    """Logits that play the average; a view that no version reached keeps its present ones."""
    logits = {}
    for key, row in weights.items():
        total: Any = sums.get(key)
        reached = total is not None and total.sum() > 0
        logits[key] = np.log(np.maximum(total / total.sum(), LEAST)) if reached else row.copy()
    return logits


# first and second moments of adam, and the number of steps, of one view
Moment = tuple[Array, Array, float]
LONGEST = 1  # tokens of a reply of the table engine


class TableRows:
    """The logits [V, C] of a batch's views, with the moments of adam."""

    def __init__(self, logits: Array) -> None:
        self.logits = logits
        self.moments = Moments((logits.shape[0], logits.shape[1]))

    @classmethod
    def gather(
        cls, weights: Mapping[int, Array], moments: Mapping[int, Moment], batch: ChoiceBatch
    ) -> TableRows:
        """The rows of these weights that the batch has met."""
        widest = max(len(weights[key]) for key in batch.keys)
        rows = cls(np.full((len(batch.keys), widest), -np.inf))
        past = rows.moments
        for v, key in enumerate(batch.keys):
            size = len(weights[key])
            rows.logits[v, :size] = weights[key]
            if key in moments:
                past.first[v, :size], past.second[v, :size], past.steps[v, 0] = moments[key]
        return rows

    def scatter(
        self, weights: dict[int, Array], moments: dict[int, Moment], batch: ChoiceBatch
    ) -> None:
        """Puts the rows back."""
        past = self.moments
        for v, key in enumerate(batch.keys):
            size = len(weights[key])
            weights[key] = self.logits[v, :size].copy()
            if steps := float(past.steps[v, 0]):
                moments[key] = (past.first[v, :size].copy(), past.second[v, :size].copy(), steps)

    def chances(self, temperature: float) -> Array:
        """Probabilities [V, C]."""
        # the largest logit is taken off first: exp of it would overflow
        scaled = np.exp((self.logits - self.logits.max(axis=1, keepdims=True)) / temperature)
        return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))

    def logprobs(self, batch: ChoiceBatch, temperature: float) -> Array:
        """Log-probability [N] of each choice of the batch."""
        return np.asarray(np.log(self.chances(temperature)[batch.view, batch.choice]))

    def gradient(
        self,
        batch: ChoiceBatch,
        mask: NDArray[np.bool_],  # [N] the choices of this minibatch
        old: Array,  # [N] log-probabilities before the update
        anchor: Array | None,  # [N] those of the reference
        temperature: float,
        how: LossSettings,
    ) -> tuple[Array, dict[str, float]]:
        """(direction [V, C] in which the loss falls, its norm limited to `grad_clip`; metrics)."""
        view = batch.view[mask]
        choice = batch.choice[mask]
        tokens = batch.tokens().take(mask)
        chances = self.chances(temperature)
        logs = np.log(np.where(chances > 0, chances, 1.0))  # a padded choice adds p log p = 0
        entropy = -(chances * logs).sum(axis=1)
        new = logs[view, choice]
        before = old[mask]
        held = anchor[mask] if anchor is not None else None
        step = pull(new, before, tokens, how, LONGEST, held)
        slope = step.slope
        loss = step.loss
        metrics = {
            "entropy": float(entropy[view].mean()),
            "kl": float(k3(Slope.of(before), new).value.mean()),
            "clip_fraction": float(step.clipped.mean()),
        }
        if held is not None:
            away = DIVERGENCES[how.kl_form](Slope.of(new), held)
            # a loss of pairs has its anchor for itself, and kl is 0
            slope = slope + how.kl * away.slope / len(new)
            loss += how.kl * float(away.value.mean())
            # in nats whatever the form
            metrics["kl_reference"] = float(k3(Slope.of(new), held).value.mean())
        gradient = np.zeros_like(chances)
        # a view is met several times, so the pulls on it add up: plain indexing would keep one
        np.add.at(gradient, (view, choice), -slope)
        # the - p of onehot(a) - p, which is the same for all choices of a view
        gradient -= chances * np.bincount(view, -slope, len(chances))[:, None]
        if how.entropy:
            # a mean over tokens, as language models have it: the aggregation is of what was paid
            share = np.bincount(view, minlength=len(chances)) / len(new)
            # d entropy / d logit = - p (log p + entropy)
            gradient -= how.entropy * share[:, None] * chances * (logs + entropy[:, None])
        gradient /= temperature
        norm = float(np.sqrt((gradient**2).sum()))  # over all views together, as torch clips
        if norm > how.grad_clip:
            gradient *= how.grad_clip / norm
        return gradient, {"loss": loss, "grad_norm": norm, **metrics}

    def step(self, gradient: Array, lr: float, optimizer: str, how: LossSettings) -> None:
        """One step along the gradient, of `sgd` or `adam`. Weight decay, as that of AdamW, takes
        its share of the views that this step met."""
        if optimizer == "sgd":
            moved = lr * gradient
        else:
            moved = self.moments.step(gradient, lr, how.betas, how.eps)
        if how.weight_decay:
            met = (gradient != 0).any(axis=1, keepdims=True) & np.isfinite(self.logits)
            self.logits *= np.where(met, 1 - lr * how.weight_decay, 1.0)
        self.logits += moved


class ChoiceBatch(NamedTuple):
    """Recorded replies of the table engine, each one choice: `keys` names the V views, the arrays
    are [N]; `turn` counts the rows of the turn table."""

    keys: list[int]
    view: NDArray[np.int64]
    choice: NDArray[np.int64]
    sampled: Array
    advantage: Array
    episode: NDArray[np.int64]
    part: NDArray[np.int64]  # one agent's part in one episode
    turn: NDArray[np.int64]
    version: NDArray[np.int64]
    start: NDArray[np.int64]
    group: NDArray[np.int64]  # the parts of one agent from one start

    def tokens(self) -> Sampled:
        """The columns that a loss sees: each choice is one token."""
        return Sampled(self.advantage, self.sampled, self.turn, self.part, self.group)


def checked_advantages(policy: str, table: Turns, advantages: Array) -> Array:
    """The advantages [N]. Raises ValueError where they do not fit or are not finite."""
    worth = np.asarray(advantages, np.float64)
    if worth.shape != (len(table.turns),):
        raise ValueError(
            f"there must be one advantage per turn; got shape {worth.shape} for"
            f" {len(table.turns)} turns"
        )
    if not np.isfinite(worth).all():
        bad = sorted({table.episodes[n].id for n in np.flatnonzero(~np.isfinite(worth))})
        raise ValueError(f"policy {policy!r}: advantages are not finite in episodes {bad[:5]}")
    return worth


def batch_of(
    policy: str,
    table: Turns,
    advantages: Array,
    weights: dict[int, Array],
    paths: dict[int, Path],
) -> ChoiceBatch | None:
    """The choices that this policy made in these turns; None where it made none.

    A view that is met for the first time gets logits of 0 in `weights`, and in `paths` the agent's
    choices before it. Raises EngineError for a reply that the table engine did not sample.
    """
    choices: list[tuple[Any, ...]] = []
    histories: dict[tuple[int, str], list[tuple[int, int]]] = {}
    parts: dict[tuple[int, str], int] = {}
    starts: dict[str, int] = {}
    groups: dict[tuple[str, str], int] = {}
    once = {id(episode): episode for episode in table.episodes}
    numbers = {key: number for number, key in enumerate(once)}
    # in the order of play, so that a history is complete when its view is met
    for n in sorted(range(len(table.turns)), key=lambda n: table.turns[n].step):
        turn = table.turns[n]
        number = numbers[id(table.episodes[n])]
        history = histories.setdefault((number, turn.agent), [])
        part = parts.setdefault((number, turn.agent), len(parts))
        for reply in (reply for reply in turn.replies if reply.policy == policy):
            if {len(reply.prompt_ids), len(reply.token_ids), len(reply.logprobs)} != {1}:
                raise EngineError(
                    f"policy {policy!r}: a reply of episode {table.episodes[n].id} was not"
                    " sampled by the table engine"
                )
            key = reply.prompt_ids[0]
            choice = reply.token_ids[0]
            # a recorded turn may lack its legal strings; then as many as its choice needs
            if key not in weights:
                weights[key] = np.zeros(len(turn.legal or ()) or choice + 1)
            paths.setdefault(key, tuple(history))
            history.append((key, choice))
            sampled = (reply.logprobs[0], advantages[n], number, part, n, reply.version)
            name = start_of(table.episodes[n])
            start = starts.setdefault(name, len(starts))
            group = groups.setdefault((name, turn.agent), len(groups))
            choices.append((key, choice, *sampled, start, group))
    if not choices:
        return None
    keys, *columns = zip(*choices, strict=True)
    names = sorted(set(keys))
    rows = {key: row for row, key in enumerate(names)}
    return ChoiceBatch(names, np.array([rows[key] for key in keys]), *map(np.array, columns))
