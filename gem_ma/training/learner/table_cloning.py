"""Behaviour cloning of a table: maximum likelihood in closed form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gem_ma.engines.small.table import Array, view_key
from gem_ma.kernel.parsing import parse_legal
from gem_ma.training.learner.rows import Demonstration


def shares_of_choices(
    demonstrations: Sequence[Demonstration],
) -> tuple[dict[int, Array], dict[str, float]]:
    """(logits by view: the log of each choice's share, with one uniform choice added; metrics).
    Texts that name no legal string are counted in `unreadable`."""
    counts: dict[int, Array] = {}
    unreadable = 0
    for demonstration in demonstrations:
        request = demonstration.request
        choice = parse_legal(demonstration.text, request.legal) if request.legal else None
        if request.legal is None or choice is None:
            unreadable += 1
            continue
        key = view_key(request.agent, request.messages, request.legal)
        # without the added choice one that nobody showed would have a logit of minus infinity
        counts.setdefault(key, np.full(len(request.legal), 1 / len(request.legal)))[
            request.legal.index(choice)
        ] += 1
    logits = {}
    loss = 0.0
    for key, row in counts.items():
        logits[key] = np.log(row / row.sum())
        # the added choice was not demonstrated, so it is taken off again
        loss -= float(((row - 1 / len(row)) * logits[key]).sum())
    cloned = len(demonstrations) - unreadable
    return logits, {
        "demonstrations": float(cloned),
        "unreadable": float(unreadable),
        "views": float(len(counts)),
        "nll": loss / max(1, cloned),
    }
