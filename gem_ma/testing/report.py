"""What the kit says: its rules, a finding, and the report of a scenario that keeps them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

RULES: dict[int, str] = {
    1: "determinism",
    2: "global state",
    3: "observation",
    4: "secrecy",
    5: "fuzz",
    6: "ending",
    7: "rewards",
    8: "fork",
    9: "environments agree",
    10: "legal strings",
    11: "liveness",
    12: "suites",
    13: "speed",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule. `message` states the rule and what was seen; `seed` is the smallest
    episode seed that shows it."""

    rule: int
    message: str
    agent: str | None = None
    step: int | None = None
    seed: int | None = None

    @property
    def name(self) -> str:
        return RULES[self.rule]

    def __str__(self) -> str:
        where = [
            f"{key} {value}"
            # 0 is a step and a seed like any other, so that only None is left out
            for key, value in (("agent", self.agent), ("step", self.step), ("seed", self.seed))
            if value is not None
        ]
        place = f" [{', '.join(where)}]" if where else ""
        return f"rule {self.rule} ({self.name}): {self.message}{place}"


@dataclass(frozen=True, slots=True)
class Report:
    """A scenario that breaks no rule. `passed` are the rules that it keeps. `untested` holds, per
    rule, what could not be looked at and why; a skipped rule stands there too."""

    scenario: str
    passed: tuple[int, ...]
    untested: Mapping[int, tuple[str, ...]]
    speed: Mapping[str, float] = field(default_factory=dict)  # microseconds per turn

    @property
    def not_tested(self) -> tuple[int, ...]:
        """The rules of which nobody knows whether it keeps them."""
        return tuple(rule for rule in RULES if rule not in self.passed)

    @property
    def doubts(self) -> list[str]:
        """A line for each of those, with the reason."""
        return [
            f"{self.scenario}: rule {rule} ({RULES[rule]}) was not tested:"
            f" {'; '.join(self.untested.get(rule, ()))}"
            for rule in self.not_tested
        ]

    def __str__(self) -> str:
        rest = f", {len(self.not_tested)} not tested" if self.not_tested else ""
        lines = [f"{self.scenario}: {len(self.passed)} of {len(RULES)} rules kept{rest}"]
        for rule, name in RULES.items():
            outcome = "passed" if rule in self.passed else "not tested"
            lines.append(f"  {rule:2} {name:14} {outcome}")
            lines += [f"       not tested: {reason}" for reason in self.untested.get(rule, ())]
        lines += [f"  {name}: {value:.1f} us per turn" for name, value in self.speed.items()]
        return "\n".join(lines)
