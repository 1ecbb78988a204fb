"""What a batch of episodes says: counts, means of returns, success, turns and unreadable answers;
of several worlds all together and each by itself.

Reads records. Failed episodes stand beside every mean; success is what the scenario declares,
apart from reward.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.scenario import Scenario
from gem_ma.kernel.types import Reply, Turn
from gem_ma.runs.worlds import Worlds
from gem_ma.scores.groups import verdict_of
from gem_ma.scores.ratings import player_of

# The most players whose returns `measures` lists one by one; a larger league has ratings instead.
MOST_PLAYERS = 4


def measures(episodes: Sequence[Episode], scenario: Scenario | Worlds) -> dict[str, Any]:
    """`measures_of` these episodes; of several worlds all together, and each by itself under
    `worlds`."""
    if isinstance(scenario, Scenario):
        return measures_of(episodes, scenario)
    if not scenario.several:
        return measures_of(episodes, scenario.played[0].scenario)
    parts = {w.name: measures_of(w.among(episodes), w.scenario) for w in scenario.played}
    return {**_together(episodes, scenario, parts), "worlds": parts}


def _together(
    episodes: Sequence[Episode], worlds: Worlds, parts: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The measures of all worlds: counts are summed, means are over all plays, and what is by
    agent is by world and agent."""
    scored = [episode for episode in episodes if episode.end.scored]
    keys = ("episodes", "ok", "failed", "cut")
    counts = {key: sum(part[key] for part in parts.values()) for key in keys}
    means: dict[str, Any] = {
        key: {
            f"{name} {a}": value for name, part in parts.items() for a, value in part[key].items()
        }
        for key in ("return", "invalid")
    }
    # of the plays that are judged: a world may know no success
    means["success"] = mean([won for one in scored if (won := worlds.success(one)) is not None])
    means["turns"] = mean([len(episode.turns) for episode in scored])
    return {**counts, **means}


def measures_of(episodes: Sequence[Episode], scenario: Scenario) -> dict[str, Any]:
    """Means over the scored episodes: `return` by agent, `success` (None where the scenario knows
    none), turns, share of unreadable answers.

    `ok`, `failed`, `cut` count episodes; `invalid` is by agent, over turns with a closed choice.
    Where at most four players change seats, `players` has the mean return of each at each agent.
    """
    # a failed episode has no return; it is counted beside every mean and never in it
    scored = [episode for episode in episodes if episode.end.scored]
    paid = [episode.returns() for episode in scored]
    verdicts = [verdict_of(scenario.success, episode) for episode in scored]
    judged = [verdict for verdict in verdicts if verdict is not None]
    asked = {
        agent: [t for e in scored for t in e.turns if t.agent == agent and t.legal is not None]
        for agent in scenario.agents
    }
    result = {
        "episodes": len(episodes),
        "ok": len(scored),
        "failed": len(episodes) - len(scored),
        "cut": sum(episode.end.bootstraps for episode in scored),
        "return": {agent: mean([total[agent] for total in paid]) for agent in scenario.agents},
        "success": mean(judged),
        "turns": mean([len(episode.turns) for episode in scored]),
        "invalid": {
            agent: mean([turn.illegal for turn in turns]) for agent, turns in asked.items()
        },
    }
    # where the seating is always the same, the return of an agent is that of its player already
    seated = {tuple(map(player_of, episode.cast.values())) for episode in scored}
    few = len({player for players in seated for player in players}) <= MOST_PLAYERS
    return result | _players(scored) if len(seated) > 1 and few else result


def _players(episodes: Sequence[Episode]) -> dict[str, Any]:
    """`players`: mean return by player and agent, where not all episodes seat the same players."""
    paid: dict[str, dict[str, list[float]]] = {}
    for episode in episodes:
        # by agent too: in most games the seats are not worth the same
        for agent, value in episode.returns().items():
            paid.setdefault(player_of(episode.cast[agent]), {}).setdefault(agent, []).append(value)
    means = {name: {a: mean(values) for a, values in sides.items()} for name, sides in paid.items()}
    return {"players": means}


def mean(values: Sequence[float]) -> float | None:
    return float(sum(values)) / len(values) if values else None


# What one policy did in the episodes of an update. Gradients and losses come from the learner,
# entropies and shares of actions from `gem_ma.training.selfplay.signs`.


COMPONENTS = 12  # kinds of reward listed per agent; the smaller ones are summed as `other`
LAGS = 8  # versions counted one by one; older ones are counted together


def policy_measures(
    episodes: Sequence[Episode], policy: str, judge: Scenario | Worlds, version: int | None = None
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
    played = [e for e in episodes if any(seat.policy == policy for seat in e.cast.values())]
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
    numbers["tokens_per_episode"] = sum(reply.sampled or 0 for reply in replies) / len(scored)
    numbers["cut_by_limits"] = sum(episode.end.bootstraps for episode in scored) / len(scored)
    if replies:
        cut = sum(reply.finish in ("length", "context_overflow") for reply in replies)
        numbers["cut_by_length"] = cut / len(replies)
    lags = Counter[int]()  # by tokens, since tokens are what is learned from
    for reply in replies if version is not None else ():
        lags[(version or 0) - reply.version] += reply.sampled or 0
    if total := lags.total():
        numbers["lag"] = float(max(lag for lag, count in lags.items() if count))
        folded = Counter[str]()
        for lag, count in sorted(lags.items()):
            folded[str(lag) if lag < LAGS else f"{LAGS}+"] += count
        numbers["lag_share"] = {lag: count / total for lag, count in folded.items()}
    return numbers


def tokens_of(episodes: Sequence[Episode]) -> int:
    turns = (turn for episode in episodes for turn in episode.turns)
    return sum(reply.sampled or 0 for turn in turns for reply in turn.replies)


def _paid(scored: Sequence[Episode], policy: str, judge: Scenario | Worlds) -> dict[str, Any]:
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
    numbers: dict[str, Any] = {"return": {whose: mean(paid) for whose, paid in returns.items()}}
    if verdicts:
        numbers["success"] = {whose: mean(values) for whose, values in verdicts.items()}
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
