"""What lost a play, as its scenario says (`Scenario.fault`): a step, an agent and a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ScenarioError

Faults = Callable[[Episode], tuple[int | None, str, str] | None]


class Fault(NamedTuple):
    """`step` is None, and `agent` "", where no turn and no agent is to blame."""

    step: int | None
    agent: str
    why: str


def fault_of(episode: Episode, faults: Faults | None) -> Fault | None:
    """What lost the play; None where nobody can say. Raises ScenarioError where the hook raises,
    or names what the record does not hold."""
    if faults is None or not episode.end.scored:
        return None
    try:
        said: Any = faults(episode)
    except Exception as error:
        # an author's code may raise anything; which episode it was is worth more than a traceback
        raise ScenarioError(f"{_where(episode)} raised {type(error).__name__}: {error}") from error
    if said is None:
        return None
    fault = Fault(*said) if isinstance(said, tuple) and len(said) == 3 else None
    if (
        fault is None
        or fault.agent not in ("", *episode.cast)
        or fault.step not in {None, *(turn.step for turn in episode.turns)}
        or not isinstance(fault.why, str)
    ):
        raise ScenarioError(
            f"{_where(episode)} returned {said!r}; (step of a turn or None, agent or '', sentence)"
            " is wanted"
        )
    return fault


def _where(episode: Episode) -> str:
    return f"{episode.scenario}: fault() of task {episode.id[0]}, seed {episode.seed}"
