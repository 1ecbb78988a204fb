"""Several tries of each start of an exam (`evaluate.tries`): the chance that one of k succeeds,
and what the best of k is paid. Reads records; failed tries are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.scenario import Scenario
from gem_ma.scores.stats import best_of_k, pass_at_k


def tries_of(episodes: Sequence[Episode], scenario: Scenario, tries: int) -> dict[str, Any]:
    """`pass_at`: k -> pass@k, where the scenario knows success; `best_of`: agent -> k -> the mean
    over starts of the best return of k tries. {} of one try.

    k are the powers of two and the most tries that every start has.
    """
    if tries == 1:
        return {}
    starts: dict[tuple[object, ...], list[Episode]] = {}
    for episode in episodes:
        if episode.end.scored:
            # who sits where is part of a start: under `swap` the sides are worth different things
            seats = tuple(map(str, episode.cast.values()))
            starts.setdefault((*episode.id[:2], seats), []).append(episode)
    if not starts:
        return {}
    counts = [len(start) for start in starts.values()]
    ks = sorted({1 << n for n in range(min(counts).bit_length())} | {min(counts)})
    numbers: dict[str, Any] = {}
    judged = [[scenario.success(episode) for episode in start] for start in starts.values()]
    if all(verdict is not None for verdicts in judged for verdict in verdicts):
        won = [sum(map(bool, verdicts)) for verdicts in judged]
        numbers["pass_at"] = {str(k): pass_at_k(won, counts, k) for k in ks}
    paid = {
        agent: [[episode.returns()[agent] for episode in start] for start in starts.values()]
        for agent in scenario.agents
    }
    numbers["best_of"] = {
        agent: {str(k): best_of_k(returns, k) for k in ks} for agent, returns in paid.items()
    }
    return numbers
