"""Which episodes of a run stand in its page, in which order, and what is said about each: lost ones
first.

All lost and FAILED episodes up to `MOST`, then those that were cut, then a spread over the rest,
from first to last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_ma.kernel.episode import End
from gem_ma.runs.store import EpisodeId
from gem_ma.scores.groups import CAUSES, is_cause

EPISODES = 50  # transcripts of one run
MOST = 200  # lost and failed ones, however many others there are
REST = 10  # others that stand beside them at least
# of an episode; it may be lost and cut
KINDS = ("lost", "failed", "cut", "excluded", "won", "ended")

Summary = Mapping[str, Any]


@dataclass(slots=True)
class Chosen:
    """`ids` in the order of the page; `totals`: kind -> episodes of the whole run; `rows`: what
    the summary says about a lost one."""

    ids: list[EpisodeId]
    totals: dict[str, int]
    rows: dict[EpisodeId, Mapping[str, Any]] = field(default_factory=dict)


def choose(ends: Mapping[EpisodeId, End], summary: Summary | None) -> Chosen:
    """`summary`: with `lost` where the episodes were judged (`gem_ma.scores.lost`); None
    where nothing is known but how they ended."""
    stored = (summary or {}).get("lost") or {"count": 0, "episodes": []}
    rows = {(row["task"], row["seed"], row["repeat"]): row for row in stored["episodes"]}
    # a summary may be older than the record, after a failed play was played again
    rows = {id_: row for id_, row in rows.items() if id_ in ends}
    failed = [id_ for id_, end in ends.items() if end is End.FAILED]
    lost = [id_ for id_ in sorted(rows, key=_natural) if ends[id_] is not End.FAILED]
    cut = [
        id_
        for id_, end in ends.items()
        if id_ not in rows and (end.bootstraps or end is End.INTERRUPTED)
    ]
    # an episode stands once, in the first of the kinds that it is of
    taken = {*lost, *failed, *cut}
    rest = [id_ for id_ in ends if id_ not in taken]
    # a small run is shown whole
    whole = len(ends) <= EPISODES
    first = [*lost, *failed] if whole else [*lost, *failed][:MOST]
    # REST others always: lost plays alone say nothing of how a play is won
    room = len(ends) if whole else max(REST, EPISODES - len(first))
    second = cut[: room if whole else max(0, room - REST)]
    return Chosen(
        [*first, *second, *spread(rest, room if whole else max(REST, room - len(second)))],
        {
            # a failed play counts as lost in the summary, and has a chip of its own here
            "lost": max(stored["count"] - len(failed), len(lost)),
            "failed": len(failed),
            "cut": sum(end.bootstraps for end in ends.values()),
            "excluded": sum(end is End.INTERRUPTED for end in ends.values()),
        },
        rows,
    )


def spread(ids: Sequence[EpisodeId], most: int) -> list[EpisodeId]:
    """At most so many of them, from the first to the last.

    >>> [id_[1] for id_ in spread([("t", n, 0) for n in range(10)], 4)]
    [0, 3, 6, 9]
    """
    if len(ids) <= most:
        return list(ids)
    # rounded from both ends, so that the first and the last are always among them
    return [ids[round(at * (len(ids) - 1) / max(1, most - 1))] for at in range(most)]


class Leading:
    """Transcripts that come in any order; the first of the page that fit into `room` bytes stay.

    The first of all stays whatever its size. What cannot fit any more is let go at once, so a
    page of a few megabytes never holds all that was chosen.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._held: dict[int, tuple[int, dict[str, Any]]] = {}  # place -> bytes, transcript
        self._end: float = float("inf")  # from this place on nothing fits

    def open_to(self, place: int) -> bool:
        """Whether a transcript at this place of the page may still fit."""
        return place < self._end

    def add(self, place: int, size: int, shown: dict[str, Any]) -> None:
        """Takes one in, and lets those go that it leaves no room for."""
        self._held[place] = size, shown
        total = 0
        # in the order of the page, whatever order they came in
        for number, known in enumerate(sorted(self._held)):
            total += self._held[known][0]
            # Those still to come stand before or behind it; both only make the sum larger.
            if total > self._room and number > 0:
                self._end = known
                break
        self._held = {spot: held for spot, held in self._held.items() if spot < self._end}

    def taken(self) -> list[dict[str, Any]]:
        """Those that stay, in the order of the page."""
        return [self._held[place][1] for place in sorted(self._held)]


def note(chosen: Chosen, transcripts: Sequence[Mapping[str, Any]], episodes: int) -> str:
    """How many of a run's episodes the page holds, and of which kind some are left out."""
    if len(transcripts) == episodes:
        return f"all {episodes} episodes"
    parts = []
    for kind, total in chosen.totals.items():
        there = sum(kind in one["kinds"] for one in transcripts)
        if total:
            parts.append(
                f"all {total} {kind}"
                if there == total
                else f"{there} of {total} {kind}, {total - there} left out"
            )
    # nobody should take the transcripts of a page for all, or for a random draw
    parts.append("the others spread from first to last")
    return (
        f"{len(transcripts)} of {episodes} episodes: {'; '.join(parts)}. All are in episodes.jsonl;"
        " gem-ma show RUN --episode TASK prints any"
    )


def kinds_of(end: End, success: bool | None) -> list[str]:
    """The chips that find an episode. One that was cut may be lost, too.

    >>> kinds_of(End.MAX_STEPS, False), kinds_of(End.TERMINATED, True), kinds_of(End.FAILED, None)
    (['lost', 'cut'], ['won'], ['failed'])
    """
    if not end.scored:
        return ["failed" if end is End.FAILED else "excluded"]
    judged = ["lost"] if success is False else ["won"] if success else []
    return [*judged, *(["cut"] if end.bootstraps else [])] or ["ended"]


def causes_of(
    labels: Mapping[str, Sequence[str]], summary: Summary | None
) -> tuple[dict[str, Sequence[str]], dict[str, Sequence[str]]]:
    """The labels of an episode that say why it was lost, and the others."""
    known = (summary or {}).get("labels", {})
    causes = {
        name: values
        for name, values in labels.items()
        if name in CAUSES or (name in known and is_cause(name, known[name]))
    }
    return causes, {name: values for name, values in labels.items() if name not in causes}


def rank(transcript: Mapping[str, Any]) -> int:
    """The place of a transcript among the others: lost, failed, cut or excluded, the rest."""
    return next(
        (
            at
            for at, kinds in enumerate(({"lost"}, {"failed"}, {"cut", "excluded"}))
            if kinds & set(transcript["kinds"])
        ),
        3,
    )


def _natural(id_: EpisodeId) -> tuple[str, int, int, int]:
    """Tasks by number: test/9 before test/10."""
    split, _, place = id_[0].rpartition("/")
    return (split, int(place), *id_[1:]) if place.isdecimal() else (id_[0], -1, *id_[1:])
