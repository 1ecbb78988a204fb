"""What the plays of a battery say: a score with its interval for each row, beside chance and the
oracle, and the paired differences of two models. It knows values of plays, and no runs.

Values of a row [N] stand in the order of its plans: `plays` of the first task, of the next one, and
so on. All intervals of a scorecard hold together at 95 %, those of differences at 99 %: each
leaves outside the level's part for one of so many rows (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gem_ma.scores.groups import finite
from gem_ma.scores.stats import Estimate, holm, mean_interval, paired

LEVEL = 0.95  # of all scores together
DIFFERENCE_LEVEL = 0.99  # of all differences together


class Gap(NamedTuple):
    """One score less another, with its interval."""

    difference: float
    low: float
    high: float

    @property
    def holds_zero(self) -> bool:
        return self.low <= 0 <= self.high


class RowScore(NamedTuple):
    """One row of a scorecard. `share`: 0 at chance, 1 at the oracle; None where they are equal."""

    score: Estimate
    chance: Estimate
    oracle: Estimate
    from_chance: Gap
    from_oracle: Gap
    share: float | None
    verdict: str


def row_score(
    values: Sequence[float],
    chance: Sequence[float],
    oracle: Sequence[float],
    *,
    plays: int,
    rows: int,
    rate: bool,
) -> RowScore:
    """The score of a row among so many rows; `plays` are those of chance for each task. `rate`:
    values lie in 0..1 by what they are."""
    level = 1 - (1 - LEVEL) / rows
    tasks = [number // plays for number in range(len(chance))]
    mine = mean_interval(values, level=level, rate=rate)
    blind = mean_interval(chance, tasks, level, rate=rate)
    best = mean_interval(oracle, level=level, rate=rate)
    up = gap(mine, blind)
    left = gap(mine, best)
    way = best.mean - blind.mean
    share = (mine.mean - blind.mean) / way if way else None
    return RowScore(mine, blind, best, up, left, share, _verdict(up, left))


def gap(first: Estimate, second: Estimate) -> Gap:
    """The first mean less the second, whose plays are other ones. The interval is made of theirs
    (G. Zou and A. Donner, 2008): each bound is off by the root of two squared distances.

    >>> gap(Estimate(0.5, 0.2, 0.8, "", 9), Estimate(0.5, 0.1, 0.9, "", 9)).low
    -0.5
    """
    difference = first.mean - second.mean
    below = math.hypot(first.mean - first.low, second.high - second.mean)
    above = math.hypot(first.high - first.mean, second.mean - second.low)
    return Gap(difference, difference - below, difference + above)


def _verdict(up: Gap, left: Gap) -> str:
    if up.holds_zero:
        return "chance or oracle" if left.high >= 0 else "chance"
    if up.high < 0:
        return "below chance"
    return "oracle" if left.high >= 0 else "above chance"


def differences(
    pairs: Mapping[str, tuple[Sequence[float], Sequence[float], bool]],
) -> dict[str, dict[str, Any]]:
    """Row -> the second model less the first, task by task: `difference low high p p_adjusted`
    (Holm). `pairs`: row -> (values [N] of the first, of the second, whether they are a rate)."""
    found: dict[str, dict[str, Any]] = {}
    for row, (first, second, rate) in pairs.items():
        # the wide interval is the one that holds for all rows together
        made = paired(
            first, second, range(len(first)), DIFFERENCE_LEVEL, family=len(pairs), rate=rate
        )
        found[row] = {
            "difference": made.difference,
            "low": finite(made.wide_low),
            "high": finite(made.wide_high),
            "p": made.p,
            "tasks": made.tasks,
        }
    adjusted = holm([one["p"] for one in found.values()])
    return {
        row: {**one, "p_adjusted": p} for (row, one), p in zip(found.items(), adjusted, strict=True)
    }
