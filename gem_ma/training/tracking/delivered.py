"""Which rows of a run a tracker has, so that a resume sends it only those that it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Delivered:
    """Which rows a tracker has: all before `step`, and of `step` those with these labels."""

    step: int = -1
    labels: set[str] = field(default_factory=set)

    def wants(self, step: int, label: str) -> bool:
        """Whether the tracker lacks this row."""
        # steps never decrease, so one number tells of all rows before it
        return step > self.step or (step == self.step and label not in self.labels)

    def got(self, step: int, label: str) -> None:
        """Notes that the tracker has this row."""
        if step > self.step:
            self.step = step
            self.labels = set()
        self.labels.add(label)

    def state(self) -> dict[str, Any]:
        """As JSON values, for tracking.json."""
        return {"step": self.step, "labels": sorted(self.labels)}

    @classmethod
    def read(cls, delivered: Any, name: str) -> Delivered:
        """Of one tracker in tracking.json; a note that is damaged says nothing, so all is sent."""
        state = delivered.get(name) if isinstance(delivered, dict) else None
        if (
            not isinstance(state, dict)
            or not isinstance(state.get("step"), int)
            or not isinstance(state.get("labels"), list)
        ):
            return cls()
        return cls(state["step"], set(map(str, state["labels"])))


def label_of(row: Mapping[str, Any]) -> str:
    """What sets a row apart from the others of its step."""
    return "/".join(str(row[key]) for key in ("kind", "policy", "signal") if key in row) or "time"
