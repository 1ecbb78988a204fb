"""How every environment of a library is tried: played to its end by random legal play, forked, and
forked again when nothing is remembered."""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib.util import find_spec

from gem_ma.adapters import line
from gem_ma.scenario import Game, Scenario
from gem_ma.types import Turn

LONGEST = 200  # decision points of a play; some games would take thousands


def installed(module: str) -> bool:
    """Whether this is the environment of that library."""
    return find_spec(module) is not None


def played(
    scenario: Scenario, seed: int = 1, longest: int = LONGEST, texts: Sequence[str] = ()
) -> Game:
    """Random legal play; `texts`, in turn at random, where the library reads for itself."""
    rng, game = random.Random(seed), Game(scenario, None, seed)
    while game.pending and game.step < longest:
        game.send({a: rng.choice(asked.legal or texts) for a, asked in game.pending.items()})
    return game


def finished(fork: Game, parent: Game) -> Game:
    """The fork after its parent's actions."""
    while fork.pending and fork.step < parent.step:
        fork.send({turn.agent: turn.action for turn in parent.turns if turn.step == fork.step})
    return fork


def seen(game: Game) -> tuple[list[Turn], list[object]]:
    """Everything that a play left."""
    return game.turns, list(game.ledger)


def forks_exactly(game: Game) -> None:
    """Asserts that forks from the middle and the start become their parent, by what is remembered
    and by stepping anew."""
    for step in (game.step // 2, 0):
        assert seen(finished(game.fork(step), game)) == seen(game), f"remembered, from {step}"
    line.forget()
    assert seen(finished(game.fork(game.step // 2), game)) == seen(game), "stepped anew"


def keeps_its_sum(game: Game) -> None:
    """Asserts that a zero-sum play that is over pays nothing in all."""
    if game.over and game.scenario.zero_sum:
        assert abs(sum(entry.value for entry in game.ledger)) < 1e-6


def forfeits(scenario: Scenario) -> None:
    """Asserts that an unreadable first answer ends the play, and pays its agent no more than any
    other."""
    game = Game(scenario, None, 1)
    offender = next(iter(game.pending))
    game.send({a: "?" if a == offender else p.legal[0] for a, p in game.pending.items()})
    paid = dict.fromkeys(scenario.agents, 0.0)
    for entry in game.ledger:
        paid[entry.agent] += entry.value
    assert game.over and paid[offender] == min(paid.values())
    keeps_its_sum(game)
