"""The generated shop, or tau-bench's data, as tau2-bench would hold them: the same tasks on typed tables, their faults found anew by its rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, overload

from gem_ma.scenarios.retail.tasks import flags_of
from gem_ma.scenarios.retail.tau2 import typed_base
from gem_ma.scenarios.retail.tau2_tools import TAU2
from gem_ma.scenarios.service.overlay import Base
from gem_ma.scenarios.service.task import Task


class Source(Protocol):
    """Where tasks come from."""

    def world(self, task: Task) -> Base: ...

    def tasks(self, split: str) -> Sequence[Task]: ...

    def policy(self) -> str | None: ...

    def provenance(self) -> dict[str, Any]: ...


class AsTau2:
    """A source whose tables are of tau-bench's form, seen as tau2-bench's."""

    semantics = "tau2"

    def __init__(self, source: Source) -> None:
        self.source = source
        self._splits: dict[str, _Tasks] = {}

    def __repr__(self) -> str:
        return f"AsTau2({self.source!r})"

    def world(self, task: Task) -> Base:
        """The typed tables that a task plays on. Raises DataError where they cannot be typed."""
        return typed_base(self.source.world(task))

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split; raises what the source raises."""
        if split not in self._splits:
            self._splits[split] = _Tasks(self, self.source.tasks(split))
        return self._splits[split]

    def policy(self) -> str | None:
        """The source's own policy text."""
        return self.source.policy()

    def provenance(self) -> dict[str, Any]:
        """That of the source, and the form."""
        return {**self.source.provenance(), "form": "tau2"}


class _Tasks(Sequence[Task]):
    """The tasks of one split, each made when first asked for."""

    def __init__(self, view: AsTau2, tasks: Sequence[Task]) -> None:
        self.view, self.given = view, tasks
        self._made: dict[int, Task] = {}

    def __len__(self) -> int:
        return len(self.given)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> list[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | list[Task]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        if place not in self._made:
            task = self.given[place]
            actions = tuple(call for call in task.actions if call.name in TAU2)  # there is no tool for thinking
            self._made[place] = replace(task, actions=actions, flags=flags_of(self.view.world(task), self.view.semantics, actions))
        return self._made[place]
