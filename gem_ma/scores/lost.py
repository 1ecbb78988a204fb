"""The lost episodes of a run, one row each: which they are, what the scenario says about them, what
they were paid.

An episode is lost where it was judged and did not succeed, and where it FAILED. Pages about a run
read these rows, so they need no scenario.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gem_ma.kernel.episode import End, Episode
from gem_ma.scores.groups import Kinds, Labels, Measures, labels_if_any, labels_of, values_of

Id = tuple[str, int, int]  # task, seed, repeat
MOST = 1_000  # rows of one run; `count` counts all
OTHERS = 50_000  # of the rest the ids alone, so that every play is known as won or lost


def lost_episodes(
    failed: Sequence[Episode],
    judged: Iterable[tuple[Episode, bool]],
    measures: Measures | None,
    labels: Labels | None,
    kinds: Kinds,
) -> dict[str, Any]:
    """`{count, episodes}`; judged ones first. Each row: `task seed repeat end returns labels
    measures error`. Where there are more than rows, `others`: [task, seed, repeat] of the next."""
    # judged ones first: under `MOST` it is failures that are cut off, which say least about agents
    lost = [episode for episode, won in judged if not won] + list(failed)
    rows = [{**identity(one), **facts_of(one, measures, labels, kinds)} for one in lost[:MOST]]
    others = [list(one.id) for one in lost[MOST:OTHERS]]
    return {"count": len(lost), "episodes": rows, **({"others": others} if others else {})}


def lost_ids(summary: Mapping[str, Any]) -> tuple[set[Id], bool]:
    """The ids of the lost episodes that a summary names, and whether these are all there are.
    Raises KeyError, TypeError or ValueError where the summary is damaged."""
    lost = summary.get("lost") or {"count": 0, "episodes": []}
    ids = {(row["task"], row["seed"], row["repeat"]) for row in lost["episodes"]}
    ids |= {(task, seed, repeat) for task, seed, repeat in lost.get("others", ())}
    return ids, len(ids) == lost["count"]


def identity(episode: Episode) -> dict[str, Any]:
    """What names an episode in its run, and how it ended."""
    return {
        "task": episode.id[0],
        "seed": episode.seed,
        "repeat": episode.repeat,
        "end": episode.end.value,
    }


def facts_of(
    episode: Episode, measures: Measures | None, labels: Labels | None, kinds: Kinds
) -> dict[str, Any]:
    """`returns`, `labels`, `measures` and the first line of the `error` of one episode. Raises
    ScenarioError.

    Measures that are 0 are left out, but for those of which more is better. What speaks against
    the play comes first.
    """
    failed = episode.end is End.FAILED
    named: Mapping[str, Sequence[str]] = {}
    # a play that broke off may lack what the scenario reads, so it is asked with care
    if labels is not None:
        named = labels_if_any(episode, labels) if failed else labels_of(episode, labels)
    measured = values_of(episode, measures) if measures is not None and episode.end.scored else {}
    better = {name: kinds.better(name) for name in measured}
    # twenty kinds of fault that never happened would hide the one that did
    shown_measures = {
        name: value for name, value in measured.items() if value or better[name] == "more"
    }
    against = [
        name
        for name, value in shown_measures.items()
        if (not value if better[name] == "more" else better[name] == "less")
    ]
    return {
        "returns": episode.returns(),
        "labels": {name: list(values) for name, values in named.items()},
        "measures": {
            name: shown_measures[name] for name in dict.fromkeys([*against, *shown_measures])
        },
        "error": (episode.error or "").split("\n", 1)[0][:500],
    }
