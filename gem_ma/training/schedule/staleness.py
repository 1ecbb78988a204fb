"""How old the weights are that an episode was played with, and which episodes are too old to learn
from.

The lag of an episode for a policy: the number of publishes since the oldest turn that this policy
sampled in it. An episode that is too old is left out as a whole: dropping single turns would leave
only the late turns of long episodes. Longer episodes tend to be older, so what is dropped is
counted by length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gem_ma.kernel.episode import Episode

WARN = 0.05  # share of dropped episodes above which the user is warned


class Fresh(NamedTuple):
    """The episodes that a policy may learn from, and what is logged."""

    episodes: list[Episode]
    metrics: Mapping[str, Any]


def lag(episode: Episode, policy: str, version: int) -> int | None:
    """Publishes of the policy up to `version` since its oldest reply in this episode; None where
    it sampled nothing in it."""
    seen = [
        reply.version for turn in episode.turns for reply in turn.replies if reply.policy == policy
    ]
    # the oldest turn decides: an episode may go on while its policy is published
    return version - min(seen) if seen else None


def fresh(episodes: Sequence[Episode], policy: str, version: int, bound: int | None) -> Fresh:
    """Leaves out what is older than `bound` publishes (None: nothing).

    Metrics: `lags` (episodes by lag), and with a bound `dropped_stale` (episodes) and
    `dropped_turns` (those by the policy's turns in them).
    """
    usable = []
    lags = Counter[int]()
    dropped = Counter[int]()
    for episode in episodes:
        age = lag(episode, policy, version)
        # None: only others sampled in it, so it is never too old, and counted nowhere
        if age is not None:
            lags[age] += 1
        if age is not None and bound is not None and age > bound:
            dropped[
                sum(any(reply.policy == policy for reply in turn.replies) for turn in episode.turns)
            ] += 1
        else:
            usable.append(episode)
    # keys as text: the record is JSON, and a resume compares what it reads with what it writes
    metrics: dict[str, Any] = {"lags": {str(age): count for age, count in sorted(lags.items())}}
    if bound is not None:
        by_length = {str(turns): count for turns, count in sorted(dropped.items())}
        metrics |= {"dropped_stale": dropped.total(), "dropped_turns": by_length}
    return Fresh(usable, metrics)


def warning(policy: str, metrics: Mapping[str, Any], bound: int | None) -> str | None:
    """One line where more than WARN of a step's episodes were too old."""
    sampled = sum(metrics["lags"].values())
    dropped = metrics.get("dropped_stale", 0)
    if not dropped or dropped <= WARN * sampled:
        return None
    what = (
        f"policy {policy}: {dropped} of {sampled} episodes were played with weights more than"
        f" {bound} publishes old and are not learned from"
    )
    return f"{what}, long ones first; raise train.max_policy_lag, or set train.overlap: false"
