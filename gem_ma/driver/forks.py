"""Branches: a play that goes on from a step of a recorded one. The scenario is replayed, and the
behaviours act again on recorded replies until they stand where the recorded ones stood.

No model is asked for what is on record. What does not repeat itself is refused (ReplayError).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gem_ma.driver.behaviour import (
    Behaviour,
    Factory,
    Sample,
    act_of,
    as_factory,
    is_privileged,
    seat,
    waits,
)
from gem_ma.driver.seats import Seats
from gem_ma.kernel.effects import Pending
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
    from it. The agents in `kept` do at the step what they did there.
    """

    of: Episode
    step: int
    seed: str
    first: int
    kept: tuple[str, ...] = ()


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


async def take_over(
    seats: Seats, turns: Sequence[Turn], branch: Branch
) -> dict[str, list[Message]]:
    """Brings the behaviours to where the recorded ones stood, by letting them act again on
    recorded replies, at the branch too where their act is kept; then reseeds them. Gives what each
    has seen. Raises ReplayError where one acts otherwise."""
    views: dict[str, list[Message]] = {agent: [] for agent in seats.players}
    reseedings = dict(branch.of.forks)
    kept = [turn for turn in branch.of.turns if turn.step == branch.step]
    kept = [turn for turn in kept if turn.agent in branch.kept]
    if len(kept) < len(branch.kept):
        raise ReplayError(f"step {branch.step}: not all of {', '.join(branch.kept)} act there")
    for place, turn in enumerate((*turns, *kept)):
        if turn.agent not in views:
            continue
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
    seats.kept = {turn.agent: (turn.action, turn.replies) for turn in kept}
    _reseed(seats, {**reseedings, branch.step: branch.seed}, branch.step)
    return views


async def act_again(seats: Seats, branch: Branch, turn: Turn) -> Action:
    """What an agent that sits `alone` does at the branch, where it is asked as in this turn. The
    rules and the others are not needed for it, so it costs a small part of a play."""
    before = [each for each in branch.of.turns if each.step < branch.step]
    views = await take_over(seats, before, branch)
    asked = Asked(
        turn.observed,
        Transcript([*views[turn.agent], *turn.observed]),
        turn.legal,
        turn.tools,
        branch.step,
        before if seats.cast[turn.agent].privileged else (),
    )
    answer = await seats.repeat(turn.agent, asked, turn.replies)
    return read(answer, Pending(turn.legal, turn.tools), seats.max_said)


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


@dataclass
class StandIn:
    """Who acts at a step in place of a player: `behaviour` (None: the player itself) on random
    numbers apart, those of `seed`. Afterwards `drew` says whether it took any of them."""

    step: int
    behaviour: Any
    seed: str
    drew: bool = True


class Scripted:
    """A behaviour that does what its `script` says at the steps of the script, without asking the
    player, and lets the player act at all others. The player sees those acts in its transcript and
    has no memory of them.

    At the step of `stand_in` the `actor` acts instead: whatever it draws, the player goes on with
    the random numbers that it would have had.
    """

    def __init__(
        self,
        player: Behaviour,
        script: Mapping[int, Action | str],
        rng: random.Random,
        stand_in: StandIn | None = None,
        actor: Behaviour | None = None,
    ) -> None:
        self.player = player
        self.script = script
        self.rng = rng
        self.stand_in = stand_in
        self.actor = actor or player

    async def act(self, asked: Asked) -> Action | str:
        # an empty text may have been typed, too
        if asked.step in self.script:
            return self.script[asked.step]
        stand_in = self.stand_in
        if stand_in is None or stand_in.step != asked.step:
            return await act_of(self.player, asked)
        state = self.rng.getstate()
        self.rng.seed(stand_in.seed)
        fresh = self.rng.getstate()
        try:
            return await act_of(self.actor, asked)
        finally:
            stand_in.drew = self.rng.getstate() != fresh
            self.rng.setstate(state)


def scripted(
    behaviour: Any, script: Mapping[int, Action | str], stand_in: StandIn | None = None
) -> Factory:
    """A factory of `Scripted` around a behaviour (an id or a factory)."""
    inner = as_factory(behaviour)
    named = None if stand_in is None else stand_in.behaviour
    other = None if named is None else as_factory(named)

    def made(
        agent: str, sample: Sample, rng: random.Random, task: Any = None, **options: Any
    ) -> Behaviour:
        player = seat(inner, agent, sample, rng, task, **options)
        actor = None if other is None else seat(other, agent, sample, rng, task)
        return Scripted(player, script, rng, stand_in, actor)

    made.privileged = any(map(is_privileged, (inner, other or inner)))  # type: ignore[attr-defined]
    made.waits = any(map(waits, (inner, other or inner)))  # type: ignore[attr-defined]
    return made
