"""How far two policies are apart, by their log-probabilities: tensors, `Slope` or numpy alike where
an operation allows it. The estimators are those of http://joschu.net/blog/kl-approx.html."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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


def entropy(logprobs: Any) -> Any:
    """Entropy [n] in nats of distributions given as log-probabilities [n, V]; -inf (an id that
    is never sampled) counts 0."""
    return -(logprobs.exp() * logprobs.clamp(min=-1e30)).sum(-1)
