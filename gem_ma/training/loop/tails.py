"""The values of what would have followed where a play was cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.scenario import Scenario, replay
from gem_ma.registry import task_of


def still_here(
    scenario_of: Callable[[Episode], Scenario],
    episodes: Sequence[Episode],
    tails: Mapping[tuple[int, str], float],
) -> dict[tuple[int, str], float]:
    """The values of what follows, without those of agents whose part was over (`Leave`) before the
    driver cut the play: nothing follows for them.

    A record says whom the world cut, not who has left, so plays that the driver cut are replayed
    from it.
    """
    gone: dict[int, set[str]] = {}
    # once per episode: several agents of one play share a replay
    for index in dict.fromkeys(i for i, agent in tails if agent not in episodes[i].cut):
        cut = episodes[index]
        scenario = scenario_of(cut)
        game = replay(
            scenario, task_of(scenario, cut.task), cut.seed, cut.turns, cut.calls, cut.forks
        )
        gone[index] = game.left - game.cut.keys()
        game.close()  # a scenario may hold files or processes
    return {
        (index, agent): value
        for (index, agent), value in tails.items()
        if agent not in gone.get(index, ())
    }
