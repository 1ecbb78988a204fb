"""What the records of a figure say: does a row rise, which rate is chosen, which column is better.
It knows records (`gem_ma.runs.figures`) and no runs.

A row rises where, on every seed, the interval of the last exam lies beyond that of the first. A
score that is computed exactly has no interval: it rises by being better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

from gem_ma.scores.groups import SUCCESS
from gem_ma.scores.stats import Comparison, Estimate, holm, mean_interval, paired

Record = Mapping[str, Any]
Key = tuple[str, str]  # row, column
Scoring = Callable[[Record, float], float]  # (record, sampled turns) -> what is compared


class ExamScore(NamedTuple):
    """The score of one exam; bounds are None where it is exact."""

    mean: float
    low: float | None
    high: float | None


def first_of(record: Record) -> ExamScore:
    """The exam before the first update."""
    return ExamScore(*record["curve"][0][2:])


def last_of(record: Record, turns: float | None = None) -> ExamScore:
    """The last exam, or the last one up to so many sampled turns."""
    held = [point for point in record["curve"] if turns is None or point[1] <= turns]
    return ExamScore(*(held or record["curve"][:1])[-1][2:])


def height_of(record: Record, turns: float) -> float:
    """The mean height of the curve over so many sampled turns, straight between exams; its start
    where `turns` is 0. Of two that end alike, the one that rose sooner stands higher."""
    known = [(point[1], point[2]) for point in record["curve"]]
    area = 0.0
    for (start, low), (end, high) in pairwise(known):
        part = min(end, turns) - start
        if part > 0:
            area += part * (low + (high - low) * part / (end - start) / 2)
    return area / turns if turns else float(known[0][1])


def end_of(record: Record, turns: float) -> float:
    """The score of the last exam up to so many sampled turns."""
    return last_of(record, turns).mean


SCORINGS: Mapping[str, Scoring] = {"end": end_of, "height": height_of}


def rises(record: Record, less: bool = False) -> bool:
    """Whether the last exam is better than the first, beyond both of their intervals."""
    before = first_of(record)
    after = last_of(record)
    if less:
        before, after = after, before
    low = after.mean if after.low is None else after.low
    high = before.mean if before.high is None else before.high
    return low > high


def by_cell(records: Iterable[Record], *, tries: bool = False) -> dict[Key, list[Record]]:
    """The records of each row and column, by seed; those of trials or the others."""
    found: dict[Key, list[Record]] = {}
    for record in sorted(records, key=lambda record: record["seed"]):
        if record["tries"] == tries:
            found.setdefault((record["row"], record["column"]), []).append(record)
    return found


def best_rates(
    records: Iterable[Record], less: Mapping[str, bool], trials: int, scored: Scoring = end_of
) -> dict[Key, float]:
    """The rate of each row and column whose trials are all done (so many): the best mean over their
    seeds of what is compared; of equal ones the first."""
    chosen = {}
    for key, tried in by_cell(records, tries=True).items():
        if len(tried) < trials:
            continue
        turns = shared_turns(tried)
        ends: dict[float, list[float]] = {}
        for record in sorted(tried, key=lambda record: record["rate"]):
            ends.setdefault(record["rate"], []).append(scored(record, turns))
        sign = -1.0 if less[key[0]] else 1.0
        chosen[key] = max(ends, key=lambda rate: sign * fmean(ends[rate]))
    return chosen


def shared_turns(records: Iterable[Record]) -> float:
    """The turns that every one of these trainings has sampled."""
    return min((record["curve"][-1][1] for record in records), default=0.0)


def over_seeds(records: Sequence[Record], turns: float, scored: Scoring = end_of) -> Estimate:
    """The mean over seeds of what is compared, with the interval over seeds that fits: success is a
    rate, which stays within 0..1."""
    values = [scored(record, turns) for record in records]
    is_rate = all(record["score"] == SUCCESS for record in records)
    # the height of a curve at 1 may be above it by rounding
    known = [min(max(value, 0.0), 1.0) for value in values] if is_rate else values
    return mean_interval(known, rate=is_rate)


class Against(NamedTuple):
    """A column against the first one: over the seeds of one row, or of all rows of a kind. `p_holm`
    counts all comparisons of the figure."""

    what: str
    column: str
    seeds: int
    compared: Comparison
    p_holm: float


def against_first(
    records: Iterable[Record],
    columns: Sequence[str],
    kinds: Mapping[str, str],
    less: set[str],
    scored: Scoring = end_of,
) -> list[Against]:
    """Each column less the first, paired by row and seed, at equal sampled turns: by row, and of
    the rows of `kinds` by kind and together. Less is better in the rows of `less`, whose sign is
    turned."""
    found = by_cell(records)
    rows = list(dict.fromkeys(row for row, _ in found))
    groups = {row: [row] for row in rows}
    for kind in dict.fromkeys(kinds.values()):
        groups[f"all of {kind}"] = [row for row in rows if kinds.get(row) == kind]
    groups["all"] = [row for row in rows if row in kinds]
    # what a single row says is said already, and so is that of a single kind
    alike = [of for name, of in groups.items() if name not in rows and name != "all"]
    groups = {
        name: of
        for name, of in groups.items()
        if name in rows or (len(of) > 1 and not (name == "all" and of in alike))
    }
    plain = []
    for what, members in groups.items():
        for column in columns[1:]:
            pairs = [
                pair
                for row in members
                for pair in _pairs(found, row, (columns[0], column), less, scored)
            ]
            if len(pairs) > 1:
                first, second, units = zip(*pairs, strict=True)
                plain.append((what, column, len(pairs), paired(first, second, units)))
    adjusted = holm([compared.p for *_, compared in plain])
    return [Against(*about, p) for about, p in zip(plain, adjusted, strict=True)]


def _pairs(
    found: Mapping[Key, Sequence[Record]],
    row: str,
    columns: tuple[str, str],
    less: set[str],
    scored: Scoring,
) -> list[tuple[float, float, str]]:
    """(score of the first column, score of the second, unit) for each seed that both have."""
    one, other = (
        {record["seed"]: record for record in found.get((row, column), ())} for column in columns
    )
    both = [record for held in (one, other) for record in held.values()]
    turns = shared_turns(both)
    sign = -1.0 if row in less else 1.0
    return [
        (
            sign * scored(one[seed], turns),
            sign * scored(other[seed], turns),
            f"{row} {seed}",
        )
        for seed in one
        if seed in other
    ]
