"""The tasks of a split, each made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from gem_ma.scenarios.service_desk.desk.task import Task


class Lazy(Sequence[Task]):
    """`size` tasks; `make(place)` makes one, once. A slice is a list."""

    def __init__(self, size: int, make: Callable[[int], Task]) -> None:
        self.size, self.make = size, make
        self._made: dict[int, Task] = {}

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> list[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | list[Task]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(self.size))]
        # `range` raises IndexError out of bounds, and counts negative places from the end.
        place = range(self.size)[index]
        if place not in self._made:
            self._made[place] = self.make(place)
        return self._made[place]
