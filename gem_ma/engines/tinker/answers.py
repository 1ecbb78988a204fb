"""What the server of a Tinker API answers -> values, or one error that says what is wrong.

An answer may have any shape: an older server, a proxy, a fault in a kernel. Anything that is not a
number here would be recorded, learned from, or end the run with an error of somebody else's code.
OSError is for what is asked again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_ma.engines.api.envelope import ids_in, logprobs_in
from gem_ma.kernel.types import Attempt

FINISHES = ("stop", "length")


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was sampled after a prompt: ids [n], log-probabilities [n], why it ended, and what was
    tried in vain before."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str
    failed: tuple[Attempt, ...] = ()


def drawn(answer: Any, failed: Sequence[Attempt]) -> Drawn:
    """The one sequence that was asked for. Raises OSError for ids, log-probabilities or an end that
    are none."""
    sequences = _list(getattr(answer, "sequences", None))
    if not sequences:
        raise OSError("no sequence came")
    first = sequences[0]
    tokens, values = (_list(getattr(first, name, None)) for name in ("tokens", "logprobs"))
    # a server that lost some would give every later token the number of another one
    if len(tokens) != len(values):
        raise OSError(f"{len(tokens)} ids came with {len(values)} log-probabilities")
    ids = ids_in(tokens)
    logprobs = logprobs_in(values)
    if len(ids) != len(tokens):
        raise OSError("an id came that is none")
    if len(logprobs) != len(values):
        raise OSError("a log-probability came that is none")
    reason = getattr(first, "stop_reason", None)
    finish = str(getattr(reason, "value", reason))
    if finish not in FINISHES:
        raise OSError(f"it ended for {finish!r}, which is none of {', '.join(FINISHES)}")
    return Drawn(ids, logprobs, finish, tuple(failed))


def scored(answer: Any, rows: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float64]]:
    """Of each row [T] the log-probabilities [T - 1] of all ids but its first; they may be no
    numbers, which the learner says with its episodes. Raises ValueError for another shape."""
    outputs = _list(getattr(answer, "loss_fn_outputs", None))
    try:
        scores = [np.array(_list(output["logprobs"]), np.float64) for output in outputs]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("gave no log-probabilities") from error
    if [score.shape for score in scores] != [(len(row) - 1,) for row in rows]:
        raise ValueError("scored other tokens than it was sent")
    return scores


def measured(answer: Any) -> dict[str, float]:
    """The finite numbers that came with a step."""
    told = getattr(answer, "metrics", None)
    pairs = told.items() if isinstance(told, dict) else ()
    return {
        str(name): float(value)
        for name, value in pairs
        if isinstance(value, (int, float)) and math.isfinite(value)
    }


def path_of(answer: Any) -> str:
    """Where something was saved. Raises OSError for no path."""
    path = getattr(answer, "path", None)
    if not isinstance(path, str) or not path:
        raise OSError("it was saved, and no path came")
    return path


def contexts(answer: Any) -> dict[str, int | None]:
    """Tokens of a prompt and its answer, by model; None where the server does not say."""
    known: dict[str, int | None] = {}
    for model in _list(getattr(answer, "supported_models", None)):
        longest = getattr(model, "max_context_length", None)
        fits = type(longest) is int and longest > 0
        known[str(getattr(model, "model_name", None))] = longest if fits else None
    return known


def _list(values: Any) -> list[Any]:
    """What came as a list, a tensor or a tuple; [] for anything else."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    return list(values) if isinstance(values, (list, tuple)) else []
