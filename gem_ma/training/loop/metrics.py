"""What one policy did in the episodes of an update: what it was paid and for what, how much it
said, what was cut, how stale its tokens were.

Reads records. Every value is a function of them, so a resumed run measures the same. Gradients and
losses come from the learner, entropies and shares of actions from
`gem_ma.training.selfplay.signs`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Reply, Turn

COMPONENTS = 12  # kinds of reward listed per agent; the smaller ones are summed as `other`
LAGS = 8  # versions counted one by one; older ones are counted together


class Judging(Protocol):
    """Whoever says whether a play succeeded: a scenario, or the worlds of a config."""

    def success(self, episode: Episode) -> bool | None: ...


def policy_measures(
    episodes: Sequence[Episode], policy: str, judge: Judging, version: int | None = None
) -> dict[str, Any]:
    """The measures of one policy; {} where it played in none of the episodes. Means are over its
    scored episodes.

    `return` and `success` by agent (`<scenario> <agent>` where several scenarios were played;
    success only where the scenario judges), `components`: what was paid per episode by agent and
    reason, numbers in a reason read as `#`; `turns_per_episode`, `tokens_per_episode` of the
    policy, `cut_by_length`: share of its replies that ran out of tokens, `cut_by_limits`: share
    of the episodes that the driver cut, `dropped`: episodes that are not scored. With the
    `version` that learns: `lag`, the most versions that a reply lies behind, and `lag_share`,
    tokens by their lag.
    """
    played = [
        episode
        for episode in episodes
        if any(seat.policy == policy for seat in episode.cast.values())
    ]
    if not played:
        return {}
    scored = [episode for episode in played if episode.end.scored]
    numbers: dict[str, Any] = {"dropped": len(played) - len(scored)}
    if not scored:
        return numbers
    numbers |= _paid(scored, policy, judge)
    # failed episodes are `dropped`: they end anywhere, and would make every mean shorter
    turns = [[turn for turn in episode.turns if _replies(turn, policy)] for episode in scored]
    replies = [reply for played in turns for turn in played for reply in _replies(turn, policy)]
    numbers["turns_per_episode"] = sum(map(len, turns)) / len(scored)
    numbers["tokens_per_episode"] = sum(map(sampled_tokens, replies)) / len(scored)
    numbers["cut_by_limits"] = sum(episode.end.bootstraps for episode in scored) / len(scored)
    if replies:
        numbers["cut_by_length"] = sum(
            reply.finish in ("length", "context_overflow") for reply in replies
        ) / len(replies)
    lags = Counter[int]()  # by tokens, since tokens are what is learned from
    for reply in replies if version is not None else ():
        lags[(version or 0) - reply.version] += sampled_tokens(reply)
    if total := lags.total():
        numbers["lag"] = float(max(lag for lag, count in lags.items() if count))
        folded = Counter[str]()
        for lag, count in sorted(lags.items()):
            folded[str(lag) if lag < LAGS else f"{LAGS}+"] += count
        numbers["lag_share"] = {lag: count / total for lag, count in folded.items()}
    return numbers


def sampled_tokens(reply: Reply) -> int:
    """How many tokens a reply has: its ids, or what the server counted."""
    return len(reply.token_ids) or reply.usage.completion_tokens or 0


def tokens_of(episodes: Sequence[Episode]) -> int:
    """All tokens that were sampled in these episodes, whoever sampled them."""
    return sum(
        sampled_tokens(reply)
        for episode in episodes
        for turn in episode.turns
        for reply in turn.replies
    )


def _paid(scored: Sequence[Episode], policy: str, judge: Judging) -> dict[str, Any]:
    # agents of different scenarios may share a name, and their returns have different units
    several = len({episode.scenario for episode in scored}) > 1
    returns: dict[str, list[float]] = {}
    verdicts: dict[str, list[float]] = {}
    reasons: dict[str, dict[str, float]] = {}
    for episode in scored:
        paid = episode.returns()
        verdict = judge.success(episode)
        for agent, seat in episode.cast.items():
            if seat.policy != policy:
                continue
            whose = episode.whose(agent)
            if several and not episode.world:
                whose = f"{episode.scenario} {agent}"
            returns.setdefault(whose, []).append(paid[agent])
            if verdict is not None:
                verdicts.setdefault(whose, []).append(float(verdict))
            for entry in episode.ledger:
                if entry.agent == agent:
                    sums = reasons.setdefault(whose, {})
                    sums[_reason(entry.why)] = sums.get(_reason(entry.why), 0.0) + entry.value
    numbers: dict[str, Any] = {
        "return": {whose: _mean(values) for whose, values in returns.items()}
    }
    if verdicts:
        numbers["success"] = {whose: _mean(values) for whose, values in verdicts.items()}
    if reasons:
        numbers["components"] = {
            whose: _shares(sums, len(returns[whose])) for whose, sums in reasons.items()
        }
    return numbers


def _reason(why: str) -> str:
    """A reason without what changes from one episode to the next: `round 3` is `round #`."""
    # no slash: it parts the words of a tracker's names
    text = re.sub(r"\d+(?:\.\d+)?", "#", " ".join(why.split())).replace("/", " ")
    return text[:40].strip() or "unnamed"


def _shares(sums: Mapping[str, float], episodes: int) -> dict[str, float]:
    """Means per episode; the largest by name, the rest together."""
    # by size, penalties too; ties by name, so that a resumed run lists the same ones
    largest = sorted(sums, key=lambda why: (-abs(sums[why]), why))[:COMPONENTS]
    means = {why: sums[why] / episodes for why in sorted(largest)}
    rest = sum(value for why, value in sums.items() if why not in means)
    return means | ({"other": rest / episodes} if len(sums) > len(largest) else {})


def _replies(turn: Turn, policy: str) -> list[Reply]:
    return [reply for reply in turn.replies if reply.policy == policy]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
