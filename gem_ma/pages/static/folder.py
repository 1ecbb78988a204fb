"""What a page takes out of one run folder: facts, summary, and the transcripts that find room: all
lost and FAILED episodes up to `MOST`, then those that were cut, then a spread over the rest.

It reads and never writes. A file that is absent, damaged or of another version takes its part
from the page, not the page from its reader.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import GemMaError, StoreError
from gem_ma.pages.static.explained import Found, read_explained, why_of
from gem_ma.pages.static.notes import read_notes
from gem_ma.pages.static.transcript import transcript
from gem_ma.runs.store import (
    older_summary,
    read_episodes,
    read_manifest,
    read_media,
    read_settings,
    read_summary,
    rows_by,
    standing_summary,
)
from gem_ma.runs.store.lines import read_metrics, read_places, read_plays
from gem_ma.runs.store.places import Places
from gem_ma.scores.groups import CAUSES, Id, facts_of, is_cause, lost_ids, lost_rows
from gem_ma.scores.judge import Judge

# -- which episodes stand in the page --------------------------------------------------------------

EPISODES = 50  # transcripts of one run
MOST = 200  # lost and failed ones, however many others there are
REST = 10  # others that stand beside them at least
# of an episode; it may be lost and cut
KINDS = ("lost", "failed", "cut", "excluded", "won", "ended")

Summary = Mapping[str, Any]


@dataclass(slots=True)
class Chosen:
    """`plays` by their numbers in `Places`, in the order of the page; `totals`: kind -> episodes of
    the whole run; `rows`: what the summary says about a lost one."""

    plays: list[int]
    totals: dict[str, int]
    rows: dict[Id, Mapping[str, Any]] = field(default_factory=dict)


def choose(places: Places, summary: Summary | None) -> Chosen:
    """`summary`: with `lost` where the episodes were judged (`gem_ma.scores.groups`); None
    where nothing is known but how they ended."""
    rows = lost_rows(summary)
    stored = (summary or {}).get("lost") or {"count": 0}
    found = {id_: places.find(id_) for id_ in rows}
    # a summary may be older than the record, after a failed play was played again
    known = {id_: play for id_, play in found.items() if play is not None}
    failed = places.ended({End.FAILED})
    # an episode stands once, in the first of the kinds that it is of
    taken = set(failed)
    lost = [known[id_] for id_ in sorted(known, key=_natural) if known[id_] not in taken]
    taken.update(lost)
    are_cut = {end for end in End if end.bootstraps}
    cut = [play for play in places.ended({*are_cut, End.INTERRUPTED}) if play not in taken]
    taken.update(cut)
    left = bytearray(b"\1") * len(places)
    for play in taken:
        left[play] = 0
    rest = list(compress(range(len(places)), left))
    # a small run is shown whole
    whole = len(places) <= EPISODES
    first = [*lost, *failed] if whole else [*lost, *failed][:MOST]
    # REST others always: lost plays alone say nothing of how a play is won
    room = len(places) if whole else max(REST, EPISODES - len(first))
    second = cut[: room if whole else max(0, room - REST)]
    return Chosen(
        [*first, *second, *spread(rest, room if whole else max(REST, room - len(second)))],
        {
            # a failed play counts as lost in the summary, and has a chip of its own here
            "lost": max(stored["count"] - len(failed), len(lost)),
            "failed": len(failed),
            "cut": places.count(are_cut),
            "excluded": places.count({End.INTERRUPTED}),
        },
        {id_: rows[id_] for id_ in known},
    )


def spread(plays: Sequence[int], most: int) -> list[int]:
    """At most so many of them, from the first to the last.

    >>> spread(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(plays) <= most:
        return list(plays)
    # rounded from both ends, so that the first and the last are always among them
    return [plays[round(at * (len(plays) - 1) / max(1, most - 1))] for at in range(most)]


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


def _natural(id_: Id) -> tuple[str, int, int, int]:
    """Tasks by number: test/9 before test/10."""
    split, _, place = id_[0].rpartition("/")
    return (split, int(place), *id_[1:]) if place.isdecimal() else (id_[0], -1, *id_[1:])


# characters said in a play that its rules read while a page waits: a second or two of retail's
MOST_JUDGED = 1_000_000
SCORE = "gem-ma score RUN reads them all"


class Loaded(NamedTuple):
    """A run as a page has it: its summary, and the part of the page's data that holds its
    transcripts (`name`, `note`, `totals`, `episodes`)."""

    summary: Mapping[str, Any]
    island: dict[str, Any]


def load(name: str, path: Path, judge: Judge, learned: bool, room: int) -> Loaded:
    """A run's summary, and its transcripts in the order of the page, at most `room` bytes of them.

    `learned`: a training run, whose summary is only counted: no scenario judges what a policy
    tried while it learned. Raises StoreError where the episodes cannot be read.
    """
    places = read_places(path)
    summary = None if learned else stored_summary(path, len(places), judge)
    if summary is None and not learned:
        # what no episode tells, and only the run that wrote it knew
        beside = {
            key: value for key, value in summary_file(path).items() if key in ("baselines", "costs")
        }
        rows = rows_by(path, judge)
        summary = {**judge.summary(rows, lambda: read_episodes(path)), **beside}
    chosen = choose(places, summary)
    damaged: list[str] = []
    transcripts = _transcripts(path, chosen, summary, judge, room, damaged.append, places)
    island = {
        "name": name,
        "note": "; ".join([note(chosen, transcripts, len(places)), *damaged]),
        "totals": chosen.totals,
        "episodes": transcripts,
    }
    if summary is not None:
        return Loaded(summary, island)
    failed = chosen.totals["failed"]
    ok = places.count(end for end in End if end.scored)
    return Loaded({"ok": ok, "failed": failed, "excluded": len(places) - ok - failed}, island)


def _transcripts(
    path: Path,
    chosen: Chosen,
    summary: Mapping[str, Any] | None,
    judge: Judge,
    room: int,
    warn: Callable[[str], None],
    places: Places,
) -> list[dict[str, Any]]:
    """The first of the chosen episodes that find room, as the page shows them."""
    order = {play: place for place, play in enumerate(chosen.plays)}
    leading = Leading(room)
    notes = read_notes(path, warn)
    explained = read_explained(path, warn)
    # what is not judged here was played while something learned
    steps = training_steps(path, len(places), has_ended=bool(summary_file(path)))
    # The file is in the order of playing: only one episode is decoded at a time, and what the
    # page has no room for is dropped as soon as that is certain.
    for play, episode in read_plays(path, places, chosen.plays):
        place = order[play]
        if not leading.open_to(place):
            continue
        verdict = _verdict(episode, chosen, summary, judge)
        lanes = transcript(episode, verdict, lambda digest: _media(path, digest))
        lanes |= steps.of(play) | _why(episode, verdict, judge, explained.get(episode.id, ()))
        if written := notes.get(lanes["key"]):
            # a tag is a chip, as a cause is, and no reason of the verdict
            causes = lanes["causes"]
            lanes |= {"note": written.text, "reasons": causes, "causes": causes + written.chips}
        leading.add(place, len(json.dumps(lanes)), lanes)
    # of a training run nobody knew before which ones are lost
    return sorted(leading.taken(), key=rank)


def _why(
    episode: Episode, verdict: Mapping[str, Any], judge: Judge, explained: Sequence[Found]
) -> Any:
    """Why a play came out so (`gem_ma.pages.static.explained`)."""
    faults = judge.faults if _characters(episode) <= MOST_JUDGED else None
    return why_of(episode, "lost" in verdict["kinds"], faults, explained)


def _characters(episode: Episode) -> int:
    return sum(len(turn.action.text) for turn in episode.turns)


def episode_of(
    path: Path,
    episode: Episode,
    summary: Mapping[str, Any] | None,
    judge: Judge,
    explained: Sequence[Found] = (),
) -> dict[str, Any]:
    """One episode of a run as the page shows it, whichever others stand there. `explained`: what
    was found of it by forks."""
    rows = lost_rows(summary)
    characters = _characters(episode)
    unread = characters > MOST_JUDGED and episode.id not in rows
    verdict = _verdict(episode, Chosen([], {}, rows), summary, Judge() if unread else judge)
    if unread:
        verdict["causes"] = {"not judged": [f"{characters:,} characters were said; {SCORE}"]}
    why = _why(episode, verdict, judge, explained)
    return transcript(episode, verdict, lambda digest: _media(path, digest)) | why


def _verdict(
    episode: Episode, chosen: Chosen, summary: Mapping[str, Any] | None, judge: Judge
) -> dict[str, Any]:
    """As `_judged`. Rules of today may not know a play of another version; its talk is shown all
    the same, with what they said."""
    try:
        return _judged(episode, chosen, summary, judge)
    except GemMaError as error:
        fault = {"not judged": [str(error).splitlines()[0]]}
        kinds = kinds_of(episode.end, None)
        return {"kinds": kinds, "causes": fault, "labels": {}, "measures": {}}


def _judged(
    episode: Episode, chosen: Chosen, summary: Mapping[str, Any] | None, judge: Judge
) -> dict[str, Any]:
    """Verdict, causes, labels and measures of one episode: as the summary has them, else asked
    of the scenario where it is at hand."""
    row = chosen.rows.get(episode.id)
    success: bool | None = None
    if row is not None:
        success = False
    elif judge.success is not None and episode.end.scored:
        success = judge.success(episode)
    elif summary is not None and summary["success"] and "lost" in summary:
        ids, named_all = lost_ids(summary)
        # an older summary names only some of the lost plays: then silence is not success
        won = True if named_all and summary["success"]["n"] == summary["ok"] else None
        success = False if episode.id in ids else won
    words = row if row is not None else facts_of(episode, judge.measures, judge.labels, judge.kinds)
    causes, labels = causes_of(words["labels"], summary)
    return {
        "kinds": kinds_of(episode.end, success),
        "causes": causes,
        "labels": labels,
        "measures": words["measures"],
    }


def summary_file(path: Path) -> dict[str, Any]:
    try:
        return read_summary(path) or {}
    # a damaged file costs its part of the page
    except StoreError:
        return {}


def stored_summary(path: Path, episodes: int, judge: Judge) -> dict[str, Any] | None:
    """summary.json where it is what so many plays, as they lie here now, come to; else None."""
    try:
        stored = standing_summary(path, of_all=False) or older_summary(path) or {}
    except StoreError:
        return None
    # an older version wrote none
    wanted = {"measures"} if judge.measures or judge.labels else set()
    wanted |= {"lost"} if judge.success else set()
    wanted |= {"ok", "failed", "excluded", "returns", "success", "score", "turns", "ends"}
    whole = wanted <= stored.keys() and stored.get("episodes") == episodes
    return stored if whole and (stored["success"] is not None or judge.success is None) else None


def _media(path: Path, digest: str) -> bytes | None:
    try:
        return read_media(path, digest)
    except StoreError:
        return None


def manifest(path: Path) -> dict[str, Any]:
    return read_manifest(path) if (path / "manifest.json").exists() else {}


def resolved(path: Path) -> dict[str, Any]:
    try:
        return read_settings(path)
    except GemMaError:  # damaged, or of a newer version: the page tells less
        return {}


# -- the steps of a training ----------------------------------------------------------------------


class TrainingSteps(NamedTuple):
    """The steps of a training: `ends[k]` plays stand in its record when step `names[k]` is done,
    and `weights[k]` played it: `v3`, or `speaker v3, listener v1`; "" where several versions
    did."""

    ends: list[int]
    names: list[str]
    weights: list[str]

    def of(self, place: int) -> dict[str, str]:
        """`step` and `weights` of the play at this place of the record; neither where a step has
        not ended, or is not known."""
        at = bisect_right(self.ends, place)
        if at == len(self.ends):
            return {}
        return {"step": self.names[at], "weights": self.weights[at]}


def training_steps(path: Path, plays: int, *, has_ended: bool) -> TrainingSteps:
    """Of a run folder with so many plays. A step's plays lie together in the record, and the row of
    its update counts them; where the rows count others than there are, nothing is told."""
    found = TrainingSteps([], [], [])
    versions: dict[str, int] = {}
    try:
        rows = [row for row in read_metrics(path) if row.get("kind") == "train"]
        for row in rows:
            found.ends.append((found.ends or [0])[-1] + int(row["episodes"]))
            found.names.append(str(row["step"]))
            taught = row["policies"]
            # an update publishes one version; what is given is the one that it made
            now = {name: int(one["version"]) for name, one in taught.items()}
            lags = any(one.get("lag") for one in taught.values())
            played = {name: versions.get(name, version - 1) for name, version in now.items()}
            versions = now
            found.weights.append("" if lags else _versions(played))
    except (StoreError, KeyError, TypeError, ValueError, AttributeError):  # damaged, or older
        return TrainingSteps([], [], [])
    whole = (found.ends or [0])[-1]
    fits = whole == plays if has_ended else whole <= plays
    return found if fits else TrainingSteps([], [], [])


def _versions(played: Mapping[str, int]) -> str:
    if len(set(played.values())) < 2:
        return "".join(f"v{version}" for version in {*played.values()})
    return ", ".join(f"{name} v{version}" for name, version in played.items())
