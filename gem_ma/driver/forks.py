"""Branches: a play that goes on from a step of a recorded one. The scenario is replayed, and the
behaviours act again on recorded replies until they stand where the recorded ones stood.

No model is asked for what is on record. What does not repeat itself is refused (ReplayError).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gem_ma.driver.seats import Seats
from gem_ma.kernel.effect_values import Pending
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ReplayError
from gem_ma.kernel.parsing.reasoning import split_reasoning
from gem_ma.kernel.scenario import Game, Scenario, replay
from gem_ma.kernel.types import Action, Asked, Message, Turn, spoken
from gem_ma.kernel.views import Transcript, read


@dataclass(frozen=True, slots=True)
class Branch:
    """Where a play goes on from a recorded one: its decision points before `step` are taken over,
    then scenario and behaviours are reseeded.

    `first` is the repeat of the play that the chain of branches began with: its behaviours drew
    from it.
    """

    of: Episode
    step: int
    seed: str
    first: int


def branched_game(scenario: Scenario, branch: Branch, task: Any) -> Game:
    """The recorded play up to the branch, as `Game.fork` would give it. Raises ReplayError where
    the scenario does not repeat it."""
    turns = [turn for turn in branch.of.turns if turn.step < branch.step]
    calls = [call for call in branch.of.calls if call.step < branch.step]
    forks = [pair for pair in branch.of.forks if pair[0] <= branch.step]
    # behind those on record: the last seed at a step is the one that counts
    forks.append((branch.step, branch.seed))
    game = replay(scenario, task, branch.of.seed, turns, calls, forks, defer_calls=True)
    # over before the branch: the record ended earlier than its caller believes
    if not game.pending and not game.waiting:
        raise ReplayError(
            f"{scenario.id}: the record has no decision point {branch.step} to go on from"
        )
    return game


async def take_over(seats: Seats, turns: Sequence[Turn], branch: Branch) -> None:
    """Brings the behaviours to where the recorded ones stood, by letting them act again on
    recorded replies; then reseeds them. Raises ReplayError where one acts otherwise."""
    views: dict[str, list[Message]] = {agent: [] for agent in seats.players}
    reseedings = dict(branch.of.forks)
    for place, turn in enumerate(turns):
        # a recorded play may itself be a branch: it was reseeded on its way
        _reseed(seats, reseedings, turn.step)
        view = views[turn.agent]
        view += turn.observed
        before: list[Turn] = []
        if seats.cast[turn.agent].privileged:
            before = [each for each in turns[:place] if each.step < turn.step]
        asked = Asked(turn.observed, Transcript(view), turn.legal, turn.tools, turn.step, before)
        answer = await seats.repeat(turn.agent, asked, turn.replies)
        action = read(answer, Pending(turn.legal, turn.tools), seats.max_said)
        # a clock, a global generator or a hidden counter: then what follows is not a branch
        if action not in (turn.action, _without_thought(turn.action, action.parsed)):
            raise ReplayError(
                f"agent {turn.agent!r}, step {turn.step}: its behaviour does not repeat what it"
                " did, so its play cannot be forked"
            )
        view.append(spoken(turn.agent, turn.action))
    _reseed(seats, {**reseedings, branch.step: branch.seed}, branch.step)


def _without_thought(action: Action, parsed: str | None) -> Action:
    """An action of an older record, in which a thought was said aloud and moves were read out of
    it."""
    return replace(action, text=split_reasoning(action.text)[1], parsed=parsed)


def _reseed(seats: Seats, reseedings: dict[int, str], step: int) -> None:
    """Takes the reseedings until `step` out of the list, and gives them to every behaviour."""
    for due in [number for number in reseedings if number <= step]:
        seed = reseedings.pop(due)
        for agent, rng in seats.rngs.items():
            # each its own stream, or all behaviours would draw alike
            rng.seed(f"{seed}/{agent}")
