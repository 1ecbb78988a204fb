"""What a page takes out of one run folder: facts, summary, and the transcripts that find room.

It reads and never writes. A file that is absent, damaged or of another version takes its part
from the page, not the page from its reader.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import GemMaError, StoreError
from gem_ma.pages.static.chosen import Chosen, Leading, causes_of, choose, kinds_of, note, rank
from gem_ma.pages.static.notes import read_notes
from gem_ma.pages.static.transcript import transcript
from gem_ma.runs.store import (
    read_ends,
    read_episodes,
    read_manifest,
    read_media,
    read_resolved,
    read_summary,
)
from gem_ma.scores.judge import Judge
from gem_ma.scores.lost import facts_of, lost_ids

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
    ends = read_ends(path)
    # judging anew reads all episodes; the summary has the same numbers already
    summary = None if learned else stored_summary(path, len(ends), judge)
    if summary is None and not learned:
        # what no episode tells, and only the run that wrote it knew
        beside = {
            key: value for key, value in summary_file(path).items() if key in ("baselines", "costs")
        }
        summary = {**judge.summarise(read_episodes(path)), **beside}
    chosen = choose(ends, summary)
    damaged: list[str] = []
    transcripts = _transcripts(path, chosen, summary, judge, room, damaged.append)
    island = {
        "name": name,
        "note": "; ".join([note(chosen, transcripts, len(ends)), *damaged]),
        "totals": chosen.totals,
        "episodes": transcripts,
    }
    if summary is not None:
        return Loaded(summary, island)
    failed = chosen.totals["failed"]
    ok = sum(end.scored for end in ends.values())
    return Loaded({"ok": ok, "failed": failed, "excluded": len(ends) - ok - failed}, island)


def _transcripts(
    path: Path,
    chosen: Chosen,
    summary: Mapping[str, Any] | None,
    judge: Judge,
    room: int,
    warn: Callable[[str], None],
) -> list[dict[str, Any]]:
    """The first of the chosen episodes that find room, as the page shows them."""
    places = {name: place for place, name in enumerate(chosen.ids)}
    leading = Leading(room)
    notes = read_notes(path, warn)
    # The file is in the order of playing: only one episode is decoded at a time, and what the
    # page has no room for is dropped as soon as that is certain.
    for episode in read_episodes(path, places):
        place = places[episode.id]
        if not leading.open_to(place):
            continue
        verdict = _verdict(episode, chosen, summary, judge)
        lanes = transcript(episode, verdict, lambda digest: _media(path, digest))
        if written := notes.get(lanes["key"]):
            # a tag is a chip, as a cause is, and no reason of the verdict
            causes = lanes["causes"]
            lanes |= {"note": written.text, "reasons": causes, "causes": causes + written.chips}
        leading.add(place, len(json.dumps(lanes)), lanes)
    # of a training run nobody knew before which ones are lost
    return sorted(leading.taken(), key=rank)


def episode_of(
    path: Path, episode: Episode, summary: Mapping[str, Any] | None, judge: Judge
) -> dict[str, Any]:
    """One episode of a run as the page shows it, whichever others stand there."""
    stored = (summary or {}).get("lost") or {"episodes": []}
    rows = {(row["task"], row["seed"], row["repeat"]): row for row in stored["episodes"]}
    characters = sum(len(turn.action.text) for turn in episode.turns)
    unread = characters > MOST_JUDGED and episode.id not in rows
    verdict = _verdict(episode, Chosen([], {}, rows), summary, Judge() if unread else judge)
    if unread:
        verdict["causes"] = {"not judged": [f"{characters:,} characters were said; {SCORE}"]}
    return transcript(episode, verdict, lambda digest: _media(path, digest))


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
        # an older summary names only some of the lost plays: then silence is no success
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
    """summary.json where it is a summary of `evaluation.metrics` of these episodes, else None."""
    stored = summary_file(path)
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
        return read_resolved(path)
    except GemMaError:  # damaged, or of a newer version: the page tells less
        return {}
