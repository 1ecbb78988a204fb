"""The values of what would have followed where the driver cut a play."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gem_ma.episode import Episode
from gem_ma.registry import task_of
from gem_ma.scenario import Scenario, replay


def still_here(
    scenario_of: Callable[[Episode], Scenario],
    episodes: Sequence[Episode],
    tails: Mapping[tuple[int, str], float],
) -> dict[tuple[int, str], float]:
    """The values of what follows, without those of agents whose part was over (`Leave`) before the
    driver cut the play: nothing follows for them.

    No record says who has left, so the plays are replayed from it.
    """
    gone: dict[int, set[str]] = {}
    # once per episode: several agents of one play share a replay
    for index in dict.fromkeys(index for index, _ in tails):
        cut = episodes[index]
        scenario = scenario_of(cut)
        game = replay(
            scenario, task_of(scenario, cut.task), cut.seed, cut.turns, cut.calls, cut.forks
        )
        gone[index] = set(game.left)
        game.close()  # a scenario may hold files or processes
    return {
        (index, agent): value for (index, agent), value in tails.items() if agent not in gone[index]
    }
