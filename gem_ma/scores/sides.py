"""Studies in which players share the seats of one world: what each side is paid a head, what a
player would gain by changing sides, and two returns of a cell beside each other.

A *side* is the agents that one player takes in a cell: those of a player of a mix, the focal ones
or the background. Its return in a play is the mean over its agents (per capita, as in Melting Pot,
Leibo et al. 2021), so that `return SIDE` is a score as any other.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from gem_ma.kernel.spelling import decimal
from gem_ma.scores.groups import RETURN, as_json, as_one_play, interval_text, statistics, units
from gem_ma.scores.studies import (
    NO_PAIR,
    RESAMPLES,
    Cell,
    Names,
    agent_of,
    by_play,
    difference_text,
    one_difference,
    paired_difference,
)

Sides = Mapping[str, Sequence[str]]  # side -> its agents
PAIRED_BY = ("task", "seed")
MIX_NOTE = (
    "Returns a head, by how many seats the counted player has (a Schelling diagram). The gain is"
    " what one of the others is paid more as one of it, all else as it is, paired by task and seed."
    " Stable: both neighbouring changes lose for sure."
)


def with_sides(cell: Cell, sides: Sides) -> Cell:
    """The cell with the return of each side that takes a seat, in its values and, as `sides`, in
    its summary."""
    values: dict[str, Any] = {}
    told: dict[str, Any] = {}
    for side, agents in sides.items():
        paid = [cell.values.get(f"{RETURN}{agent}", {}) for agent in agents]
        shared = [play for play in paid[0] if all(play in one for one in paid)] if paid else []
        if not shared:
            continue
        means = {play: fmean(one[play] for one in paid) for play in shared}
        rate = cell.kinds.is_rate(f"{RETURN}{side}")
        found = statistics().mean_interval([*means.values()], units(means), rate=rate)
        values[f"{RETURN}{side}"] = means
        told[side] = as_json(found, len(means), rate)
    told = as_one_play(told) if cell.one_play else told
    return replace(cell, values={**cell.values, **values}, summary={**cell.summary, "sides": told})


def mix_table(
    cells: Mapping[Names, Cell], players: Sequence[str], *, resamples: int = RESAMPLES
) -> dict[str, Any]:
    """What it pays to be of the first player, by how many others are (a Schelling diagram), as JSON
    values.

    `cells`: those of 0, 1, ..., N seats of the first of two `players`, in this order. Keys:
    `players`; `rows`, each with `count` of the first player, the interval of `first` and of
    `second` (None where it has no seat), `change`: what one of the second is paid more as one of
    the first, all others as they are, paired by task and seed (None for the last), and `stable`:
    whether nobody gains by changing sides, None where the intervals do not tell.
    """
    listed = [*cells.values()]
    first, second = players
    changes = [
        _change(before, f"{RETURN}{second}", after, f"{RETURN}{first}", resamples)
        for before, after in pairwise(listed)
    ]
    signs = [_sign(change) for change in changes]
    rows = []
    for count, cell in enumerate(listed):
        # what one of the second gains, and what one of the first would lose by going back
        gains = [*(signs[count : count + 1]), *(-sign for sign in signs[count - 1 : count][:count])]
        stable = None if any(map(math.isnan, gains)) else all(sign < 0 for sign in gains)
        rows.append(
            {
                "count": count,
                "first": cell.summary["sides"].get(first),
                "second": cell.summary["sides"].get(second),
                "change": changes[count] if count < len(changes) else None,
                # one that gains for sure is enough to leave
                "stable": False if any(sign > 0 for sign in gains) else stable,
            }
        )
    return {"players": list(players), "rows": rows}


def _change(before: Cell, of: str, after: Cell, to: str, resamples: int) -> dict[str, Any]:
    """A score of one cell less another score of the cell before, as in `paired_difference`."""
    old = by_play(before.values.get(of, {}), PAIRED_BY)
    new = by_play(after.values.get(to, {}), PAIRED_BY)
    pairs = [(key, old[key], new[key]) for key in sorted(old.keys() & new.keys())]
    if not pairs:
        return {**NO_PAIR, "same_tasks": True}
    if before.one_play and after.one_play:
        return {**one_difference(pairs), "same_tasks": True}
    found = paired_difference(pairs, resamples, 1, before.kinds.is_rate(of))
    return {**found, "same_tasks": before.world == after.world}


def _sign(change: Mapping[str, Any]) -> float:
    """1 or -1 where the interval leaves 0 out, or where a single play has none; else NaN."""
    low, high = change["low"], change["high"]
    if low is None and change["difference"]:
        low = high = change["difference"] if change["tasks"] == 1 else None
    if low is None or high is None or low <= 0 <= high:
        return float("nan")
    return 1.0 if low > 0 else -1.0


def mix_rows(found: Mapping[str, Any]) -> tuple[list[list[str]], list[str]]:
    """Rows and head of a table of `mix_table`, as text."""
    first, second = found["players"]
    words = {True: "stable", False: "", None: "unsure"}
    rows = [
        [
            str(row["count"]),
            *(interval_text(row[key]) if row[key] else "" for key in ("first", "second")),
            difference_text(row["change"]) if row["change"] else "",
            words[row["stable"]],
        ]
        for row in found["rows"]
    ]
    count = len(found["rows"]) - 1
    head = [f"{first} of {count}", f"{RETURN}{first}", f"{RETURN}{second}"]
    return rows, [*head, f"one more {first} gains", "nobody gains"]


# -- what is printed of a tournament, and of the seats of a mix ------------------------------------

RATED_NOTE = (
    "The rating (Bradley-Terry) is over all pairs of opponents, with percentiles over resampled"
    " starts. Plackett-Luce and Elo go play after play, so the last plays count most in them."
    " Members of one team are never opponents."
)


def halves_text(found: Mapping[str, Any]) -> str:
    """What the first half of the seats is paid more, in a tournament or a mix; "" where nothing was
    played."""
    gap = found.get("halves")
    if not gap:
        return ""
    alike = ", where all are of one player" if "rows" in found else ""
    return f"the first half of the seats is paid {interval_text(gap)} more, a head{alike}"


def tournament_rows(found: Mapping[str, Any]) -> tuple[list[list[str]], list[str]]:
    """Rows and head of a table of `tournament_table`, as text."""
    rows = [
        [
            row["name"],
            interval_text(row["rating"]) if row["rating"] else "n/a",
            f"{decimal(row['mu'])} ({decimal(row['sigma'])})",
            f"{row['elo']:.0f}",
            str(row["plays"]),
        ]
        for row in found["players"]
    ]
    return rows, ["player", "rating (points)", "Plackett-Luce mu (sigma)", "Elo", "plays"]


def not_told(summary: Mapping[str, Any]) -> str:
    """Why a study of several axes says nothing of its rows, columns and players: a sentence, "" of
    one that does."""
    if len(summary["axes"]) < 2 or summary.get("tournament"):
        return ""  # a tournament has no cell of a player and itself
    if not summary["compared"] or summary["margins"][summary["compared"][0]]:
        return ""
    empty = [" x ".join(cell["names"].values()) for cell in summary["cells"] if not cell["ok"]]
    more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
    which = f" (none in {empty[0]}{more})" if empty else ""
    return f"no task has a score in every cell{which}, so rows, columns and players have none"


# -- what is printed of the population of seats ----------------------------------------------------

STANDINGS_NOTE = (
    "alpha-rank: the share of time that a population which imitates what pays more stays at a"
    " player; it keeps a cycle as a cycle. Nash weight and skill: the equilibrium of largest"
    " entropy of the table of margins, and the margin against it. A rating counts wins, the others"
    " count returns. Intervals: percentiles over resampled tasks."
)


def standing_rows(found: Mapping[str, Any]) -> tuple[list[list[str]], list[str]]:
    """Rows and head of a table of the players, as text."""
    keys = {"alpha_rank": "alpha-rank", "nash": "Nash weight", "skill": "Nash skill"}
    keys |= {"rating": "rating (points)"}
    shown = [key for key in keys if any(row.get(key) for row in found["players"])]
    in_seats = any(row["agent"] for row in found["players"])
    rows = [
        [
            *([row["agent"]] if in_seats else []),
            row["name"],
            *(interval_text(row[key]) if row.get(key) else "n/a" for key in shown),
        ]
        for row in found["players"]
    ]
    return rows, [*(["seat"] if in_seats else []), "player", *(keys[key] for key in shown)]


def seats_text(found: Mapping[str, Any]) -> str:
    """What the first seat is paid more, and what players are paid more with themselves; "" where
    each seat has players of its own."""
    gap = found["seats"]
    if gap is None:
        return ""
    first, second = gap["agents"]
    words = f"{first} is paid {interval_text(gap)} more than {second}, over all pairs"
    # an older study has none
    if met := found.get("cross_play"):
        told = {key: interval_text(one) for key, one in met.items()}
        words += (
            f"; return a seat with oneself {told['self']}, with others (cross-play)"
            f" {told['cross']}, gap {told['gap']}"
        )
    return words


# -- two returns of a cell -------------------------------------------------------------------------


def two_returns(summary: Mapping[str, Any]) -> tuple[str, str] | None:
    """The scores of a bimatrix: the returns of the two seats, or sides, that are the axes. None of
    other studies, and where the one follows from the other in each cell."""
    first, *others = (f"{RETURN}{agent_of(axis) or axis}" for axis in summary["axes"])
    if len(others) != 1 or not {first, *others} <= {*summary["scores"]}:
        return None
    pairs = [
        (cell["scores"].get(first), cell["scores"].get(others[0])) for cell in summary["cells"]
    ]
    means = [(one["mean"], other["mean"]) for one, other in pairs if one and other]
    is_told = any(one != other for one, other in means) and any(a + b for a, b in means)
    return (first, others[0]) if is_told else None


def two_means(cell: Mapping[str, Any], scores: tuple[str, str]) -> str:
    """Two means of a cell, `30.3 / 9.9`; n/a for one that it has not."""
    found = [cell["scores"].get(score) for score in scores]
    known = [one["mean"] for one in found if one and one["mean"] is not None]
    return " / ".join(decimal(one["mean"], *known) if one else "n/a" for one in found)


def axis_names(axes: Iterable[str], taken: Container[str] = ()) -> list[str]:
    """What the columns of these axes are called: without the section, unless another axis, or a
    column that is `taken`, is called so.

    >>> axis_names(["agents.user", "scenario.seed", "run.seed"])
    ['user', 'scenario.seed', 'run.seed']
    """
    listed = list(axes)
    short = [axis.split(".", 1)[-1] for axis in listed]
    is_free = [short.count(name) == 1 and name not in taken for name in short]
    return [name if free else axis for axis, name, free in zip(listed, short, is_free, strict=True)]


def flat_rows(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A flat row for each cell: its names, counts, both returns where they are a bimatrix, mean and
    bounds of every score, and of those that are compared how they differ from the reference."""
    pair = two_returns(summary)
    counts = ("run", "episodes", "ok", "failed", "excluded")
    heads = axis_names(summary["axes"], {*counts, *summary["scores"]})
    rows = []
    for cell in summary["cells"]:
        row = dict(zip(heads, cell["names"].values(), strict=True))
        row |= {key: cell[key] for key in counts}
        row |= {" / ".join(pair): two_means(cell, pair)} if pair else {}
        curve = enumerate(cell.get("pass_hat_k_intervals", ()), 1)
        told = {**cell["scores"], **{f"pass^{k}": one for k, one in curve}}
        for score in dict.fromkeys([*summary["scores"], *told]):
            one = told.get(score) or {}
            # a measure may be called like a count
            row[f"measure {score}" if score in counts else score] = one.get("mean")
            row |= {f"{score}: {bound}": one.get(bound) for bound in ("low", "high")}
        for score, against in summary["comparisons"].items():
            (other,) = [one for one in against if one["names"] == cell["names"]] or [{}]
            for key in ("difference", "low", "high", "p", "p_adjusted"):
                name = key if key == "difference" else f"difference {key}"
                row[f"{score}: {name}"] = other.get(key)
        rows.append(row)
    return rows


def pass_k_rows(summary: Mapping[str, Any]) -> tuple[list[list[str]], list[str]]:
    """Rows and head of a table of pass^k of each cell, as text; no rows where no task has a second
    try."""
    curves = {
        tuple(cell["names"].values()): cell.get("pass_hat_k_intervals", ())
        for cell in summary["cells"]
    }
    most = max(map(len, curves.values()), default=0)
    rows = [
        [*names, *(interval_text(one) for one in curve), *[""] * (most - len(curve))]
        for names, curve in curves.items()
    ]
    head = [*axis_names(summary["axes"]), *(f"pass^{k}" for k in range(1, most + 1))]
    return rows if most > 1 else [], head
