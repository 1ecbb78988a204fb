"""A softmax table under an update: the logits of the views that a batch has met, as one matrix.

Knows choices and their loss; knows neither episodes nor checkpoints. Axes: V views of a batch, C
choices (padded with -inf), N choices sampled in it. The gradient of log p(a) by the logits z of its
view is (onehot(a) - p) / temperature.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gem_ma.config.learning import LossSettings
from gem_ma.training.learner.adam import Moments
from gem_ma.training.learner.divergences import DIVERGENCES, k3
from gem_ma.training.learner.losses import pull
from gem_ma.training.learner.slopes import Slope
from gem_ma.training.learner.table_batch import Batch

Array = NDArray[np.float64]
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
        cls, weights: Mapping[int, Array], moments: Mapping[int, Moment], batch: Batch
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

    def scatter(self, weights: dict[int, Array], moments: dict[int, Moment], batch: Batch) -> None:
        """Puts the rows back."""
        past = self.moments
        for v, key in enumerate(batch.keys):
            size = len(weights[key])
            weights[key] = self.logits[v, :size].copy()
            if past.steps[v, 0]:
                first = past.first[v, :size].copy()
                second = past.second[v, :size].copy()
                moments[key] = (first, second, float(past.steps[v, 0]))

    def chances(self, temperature: float) -> Array:
        """Probabilities [V, C]."""
        # the largest logit is taken off first: exp of it would overflow
        scaled = np.exp((self.logits - self.logits.max(axis=1, keepdims=True)) / temperature)
        return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))

    def logprobs(self, batch: Batch, temperature: float) -> Array:
        """Log-probability [N] of each choice of the batch."""
        return np.asarray(np.log(self.chances(temperature)[batch.view, batch.choice]))

    def gradient(
        self,
        batch: Batch,
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
