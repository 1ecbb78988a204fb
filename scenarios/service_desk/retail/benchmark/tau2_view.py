"""The generated shop, or tau-bench's data, as tau2-bench would hold them: the same tasks on
typed tables, their faults found anew by its rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from gem_ma.scenarios.service_desk.desk.lazy import Lazy
from gem_ma.scenarios.service_desk.desk.overlay import Base
from gem_ma.scenarios.service_desk.desk.task import Task
from gem_ma.scenarios.service_desk.retail.store.tasks import flags_of
from gem_ma.scenarios.service_desk.retail.store.tau2 import typed_base
from gem_ma.scenarios.service_desk.retail.store.tau2_tools import TAU2


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
        self._splits: dict[str, Lazy] = {}

    def __repr__(self) -> str:
        return f"AsTau2({self.source!r})"

    def world(self, task: Task) -> Base:
        """The typed tables that a task plays on. Raises DataError where they cannot be typed."""
        return typed_base(self.source.world(task))

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split; raises what the source raises."""
        if split not in self._splits:
            given = self.source.tasks(split)
            self._splits[split] = Lazy(len(given), lambda place: self._seen(given[place]))
        return self._splits[split]

    def _seen(self, task: Task) -> Task:
        # a tool for thinking is missing
        actions = tuple(call for call in task.actions if call.name in TAU2)
        return replace(
            task, actions=actions, flags=flags_of(self.world(task), self.semantics, actions)
        )

    def policy(self) -> str | None:
        """The source's own policy text."""
        return self.source.policy()

    def provenance(self) -> dict[str, Any]:
        """That of the source, and the form."""
        return {**self.source.provenance(), "form": "tau2"}
