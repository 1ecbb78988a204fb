"""What a batch of episodes says: counts, means of returns, success, turns and unreadable answers;
of several worlds all together and each by itself.

Reads records. Failed episodes stand beside every mean; success is what the scenario declares,
apart from reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.scenario import Scenario
from gem_ma.runs.worlds import Worlds
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
    counts = {
        key: sum(part[key] for part in parts.values())
        for key in ("episodes", "ok", "failed", "cut")
    }
    means: dict[str, Any] = {
        key: {
            f"{name} {agent}": value
            for name, part in parts.items()
            for agent, value in part[key].items()
        }
        for key in ("return", "invalid")
    }
    # of the plays that are judged: a world may know no success
    means["success"] = _mean([won for one in scored if (won := worlds.success(one)) is not None])
    means["turns"] = _mean([len(episode.turns) for episode in scored])
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
    judged = [verdict for episode in scored if (verdict := scenario.success(episode)) is not None]
    asked = {
        agent: [t for e in scored for t in e.turns if t.agent == agent and t.legal is not None]
        for agent in scenario.agents
    }
    result = {
        "episodes": len(episodes),
        "ok": len(scored),
        "failed": len(episodes) - len(scored),
        "cut": sum(episode.end.bootstraps for episode in scored),
        "return": {agent: _mean([total[agent] for total in paid]) for agent in scenario.agents},
        "success": _mean(judged),
        "turns": _mean([len(episode.turns) for episode in scored]),
        "invalid": {
            agent: _mean([turn.action.parsed is None for turn in turns])
            for agent, turns in asked.items()
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
    return {
        "players": {
            name: {agent: _mean(values) for agent, values in sides.items()}
            for name, sides in paid.items()
        }
    }


def _mean(values: Sequence[float]) -> float | None:
    return float(sum(values)) / len(values) if values else None
