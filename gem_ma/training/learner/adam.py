"""Adam's numbers, for all learners, and its step in numpy. Knows gradients; knows no policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

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
