"""Two runs, play by play: which plays turned out otherwise, and which scores differ by more than
chance.

A is the run that B is compared with: every difference is B less A. There are two families of tests,
main scores (success and returns) and measures, so that forty measures do not hide a difference in
success. Within a family p is adjusted (Holm) and the second interval too (Bonferroni). A score that
is equal in every play is not a test: the permutation test keeps the sizes of the differences, and
where all are 0 no flip of their signs could ever be called a finding. So the others do not pay.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.spelling import decimal
from gem_ma.scores.groups import ONE_PLAY, RETURN, SUCCESS, statistics
from gem_ma.scores.studies import (
    NO_PAIR,
    RESAMPLES,
    Cell,
    by_play,
    one_difference,
    paired_difference,
)
from gem_ma.scores.together import WON, apart, is_of_group, shown

PAIRED_BY = ("task", "seed")
SURE = 0.05  # an adjusted p below is called a difference
MAIN = (SUCCESS, RETURN, WON)
FEWEST_TASKS = 6  # of n tasks that all differ one way p is 2 / 2^n at least


def compare_cells(
    first: Cell, second: Cell, scores: Sequence[str] = (), resamples: int = RESAMPLES
) -> dict[str, Any]:
    """The comparison as JSON values; of all scores, less returns of many agents (`shown`), or of
    those that are named, which are then the whole family. Raises ConfigError for a name that
    neither run has.

    Keys: `same_tasks` (both played the same scenario with the same options), `pairs only_a only_b`
    (plays with a score in both, in one), `flips` (`task seed a b`: plays whose success differs,
    those that B lost first), `flipped` (`to_lost to_won`), `scores` (score -> `a b`, means over
    the plays in both, and `difference low high p p_adjusted low_adjusted high_adjusted method
    tasks pairs better main`), `differs` (scores whose adjusted p is below 0.05), `equal` (scores
    without any difference), `left_out` (returns and spreads that are not compared).
    """
    known = _scores(first, second)
    if strange := [name for name in scores if name not in known]:
        listed = ", ".join(known) or "none"
        raise ConfigError(f"no score of these runs is called {strange[0]!r}; there are {listed}")
    # a measure may be called "success without ..."
    measures = {*first.summary.get("measures", ()), *second.summary.get("measures", ())}
    names = [name for name in known if name in scores] if scores else few(known, measures)
    shared = {name: _pairs(first, second, name) for name in names}
    flips = _flips(shared[SUCCESS] if SUCCESS in shared else _pairs(first, second, SUCCESS))
    moved = {name for name, pairs in shared.items() if any(apart(a, b) for _, a, b in pairs)}
    main = {name for name in names if name.startswith(MAIN) and name not in measures}
    # scores that the user names belong to one question, hence to one family
    families = {name: name in main or bool(scores) for name in names}
    rows = _rows(first, second, shared, moved, families, resamples)
    for name, row in rows.items():
        row["main"] = name in main
    played = [{id_[:2] for ids in cell.values.values() for id_ in ids} for cell in (first, second)]
    return {
        "same_tasks": first.world == second.world,
        "pairs": len(played[0] & played[1]),
        "only_a": len(played[0] - played[1]),
        "only_b": len(played[1] - played[0]),
        "flips": flips,
        "flipped": {
            "to_lost": sum(flip["b"] < flip["a"] for flip in flips),
            "to_won": sum(flip["b"] > flip["a"] for flip in flips),
        },
        "scores": rows,
        # a single task gives a p and no interval, and calls nothing a difference
        "differs": [
            name
            for name in names
            if name in moved and rows[name]["low"] is not None and rows[name]["p_adjusted"] < SURE
        ],
        "equal": [name for name in names if shared[name] and name not in moved],
        # who names scores has left out the others
        "left_out": [] if scores else [name for name in known if name not in names],
    }


def few(names: Sequence[str], measures: Container[str]) -> list[str]:
    """The names without returns, and spreads, that are too many for a table."""
    paid = [n for n in names if n.startswith(RETURN) and n not in measures]
    agents = [name for name in paid if not is_of_group(name)]
    few = shown(agents, [name for name in paid if is_of_group(name)])
    left = {name.removeprefix(RETURN) for name in paid if name not in few}
    return [n for n in names if n.partition(" ")[2] not in left or n in measures]


Pair = tuple[tuple[Any, ...], float, float]  # the play, its value in A, in B


def _rows(
    first: Cell,
    second: Cell,
    shared: Mapping[str, list[Pair]],
    moved: Collection[str],
    families: Mapping[str, bool],
    resamples: int,
) -> dict[str, dict[str, Any]]:
    """Each score on both sides, its difference and what tests it. `moved`: the scores that differ
    in any play; `families`: which of the two a score is of."""
    # a play that is copied tells no more than once, on both sides
    copied = {name for name, pairs in shared.items() if first.copies(second, pairs)}
    rows: dict[str, dict[str, Any]] = {}
    for name, pairs in shared.items():
        rows[name] = {"a": None, "b": None, **NO_PAIR, "pairs": len(pairs)}
        rows[name]["better"] = first.kinds.better(name) or None
        if not pairs:
            continue
        rows[name] |= {"a": fmean([a for _, a, _ in pairs]), "b": fmean([b for *_, b in pairs])}
        if name in copied:
            rows[name] |= one_difference(pairs)
            continue
        tests = [other for other in shared if other in moved and other not in copied]
        family = max(1, sum(families[other] == families[name] for other in tests))
        rate = first.kinds.is_rate(name)
        rows[name] |= paired_difference(pairs, resamples, family, rate)
    for of_main in (True, False):
        of = {*moved} - copied
        tested = [row for name, row in rows.items() if name in of and families[name] == of_main]
        for row, p in zip(tested, statistics().holm([row["p"] for row in tested]), strict=True):
            row["p_adjusted"] = p
    return rows


def _scores(first: Cell, second: Cell) -> list[str]:
    """Every score of either run: success, returns, teams that won, then all others in their
    order."""
    names = dict.fromkeys([*first.values, *second.values])
    return sorted(names, key=lambda name: [not name.startswith(begin) for begin in MAIN])


def _pairs(first: Cell, second: Cell, score: str) -> list[Pair]:
    before = by_play(first.values.get(score, {}), PAIRED_BY)
    after = by_play(second.values.get(score, {}), PAIRED_BY)
    return [(key, before[key], after[key]) for key in sorted(before.keys() & after.keys())]


def _flips(pairs: Iterable[Pair]) -> list[dict[str, Any]]:
    """The plays whose success differs, the worst loss first; of several repeats it is their
    mean."""
    flips = [
        {"task": key[0], "seed": key[1], "a": before, "b": after}
        for key, before, after in pairs
        if before != after
    ]
    return sorted(flips, key=lambda flip: flip["b"] - flip["a"])


def bounds_text(row: Mapping[str, Any]) -> str:
    """The interval of one difference, or why it has none."""
    if row["method"] == ONE_PLAY:
        return f"({ONE_PLAY})"
    known = row["low"] is not None and row["high"] is not None
    if not known:
        return f"[{row['method']}: n/a]"
    numbers = (row["low"], row["high"], row["difference"])
    bounds = (decimal(bound, *numbers, plus=True) for bound in numbers[:2])
    return f"[{', '.join(bounds)}]"


def difference_of(row: Mapping[str, Any]) -> str:
    """A difference with its interval; "no shared play" where there is none."""
    if row["difference"] is None:
        return "no shared play"
    difference = decimal(row["difference"], row["low"], row["high"], plus=True)
    return f"{difference} {bounds_text(row)}"


def sides_of(row: Mapping[str, Any]) -> list[str]:
    """The means of A and of B in one form, "" where there is none."""
    pair = row["a"], row["b"]
    return ["" if mean is None else decimal(mean, *pair) for mean in pair]


def both_ways(flips: Sequence[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
    """At most so many of the flips, losses and gains: a long list of one kind would hide the
    other."""
    lost = [flip for flip in flips if flip["b"] < flip["a"]]
    won = [flip for flip in reversed(flips) if flip["b"] > flip["a"]]
    few = lost[: max(most // 2, most - len(won))]
    return [*few, *won[: most - len(few)]]


def outcome(success: float) -> str:
    """The success of a play in a word; of several repeats it is a share."""
    return {0.0: "lost", 1.0: "won"}.get(success, f"{success:.2f}")


def verdict_of(comparison: Mapping[str, Any]) -> str:
    """What came out, in one sentence, and what was left out."""
    left = [name for name in comparison["left_out"] if name.startswith(RETURN)]
    said = _verdict(comparison)
    if not left or not comparison["pairs"]:
        return said
    one = "1 return is" if len(left) == 1 else f"{len(left)} returns are"
    return f"{said}; {one} not compared: gem-ma compare A B --score {left[0]!r} compares one"


def _verdict(comparison: Mapping[str, Any]) -> str:
    differs = comparison["differs"]
    rows = comparison["scores"]
    tested = [row for row in rows.values() if row["p_adjusted"] is not None]
    if not comparison["pairs"]:
        return "the two runs have no play in common"
    if not tested and any(row["method"] == ONE_PLAY for row in rows.values()):
        return f"{ONE_PLAY} in each run, so nothing is tested"
    if not tested:
        which = "that is compared " if comparison["left_out"] else ""
        return f"every score {which}is the same in every play"
    count = f"{len(tested)} {'score' if len(tested) == 1 else 'scores'} tested"
    if differs:
        parts = [f"{name} {decimal(rows[name]['difference'], plus=True)}" for name in differs]
        return f"B differs from A in {', '.join(parts)} ({count})"
    tasks = max(row["tasks"] for row in tested)
    if tasks >= FEWEST_TASKS:
        return f"no difference is shown ({count})"
    many = "1 task is" if tasks == 1 else f"{tasks} tasks are"
    return f"no difference is shown ({count}): {many} too few for any; play {FEWEST_TASKS} or more"
