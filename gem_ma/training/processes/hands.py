"""Workers that play for a training, and how weights come to them. What they are asked is in
`gem_ma.training.loop.remote`; those of Ray are in `gem_ma.training.processes.ray_workers`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gem_ma.training.processes.chunks import Worker

# a chunk's order as JSON text, and the weights that it names
Job = tuple[str, Sequence[Any]]


class Hands:
    """Workers of other processes. `put` hands weights over once for all of them, and gives what a
    job names them by."""

    def __init__(
        self, workers: Sequence[Worker[Job, str]], put: Callable[[bytes], Any] = lambda data: data
    ) -> None:
        self.workers = workers
        self.put = put

    def close(self) -> None:
        """Lets the workers go."""
