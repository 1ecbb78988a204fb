"""How every environment of a library is tried: made, played to its end by random legal play, forked,
forked again when nothing is remembered, and held to the rules of the kit as far as some CPU seconds
go."""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import pytest

from gem_ma import registry
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.kernel.types import Turn
from gem_ma.testing import check_scenario, fresh
from gem_ma.worlds import line
from tests.worlds import kept

LONGEST = 200  # decision points of a play; some games would take thousands
KIT_CPU_S = 6.0  # of the kit for an environment; the dearer ones are held to what it sees by then
WORKS: set[str] = set()  # ids that played and forked
KEPT: dict[str, bool] = {}  # ids that keep the rules of the kit, and whether its time was enough


def opened(name: str, **options: Any) -> Scenario:
    """The environment of an id. One that is refused, in one line, is skipped: for data to be
    fetched, a key, a server, a package that its library does not bring."""
    try:
        return registry.make(name, **options)
    except ConfigError as error:
        assert "\n" not in str(error) and name.partition("-")[0] in str(error)
        pytest.skip(str(error)[:200])


def plays_and_forks(
    name: str,
    *,
    longest: int = LONGEST,
    texts: Sequence[str] = (),
    seeds: Sequence[int] = (1,),
    **options: Any,
) -> None:
    """Asserts that random plays of an environment fork exactly, that a zero-sum one pays nothing
    in all, and that the caller's random state is untouched."""
    before = random.getstate()
    for seed in seeds:
        game = played(opened(name, **options), seed, longest, texts)
        forks_exactly(game)
        keeps_its_sum(game)
    line.forget()
    WORKS.add(name)
    assert random.getstate() == before


def keeps_the_rules(
    name: str, seeds: Sequence[int] = range(3), skip: Sequence[int] = (), **options: Any
) -> None:
    """Asserts that the kit finds nothing. Its report says what its time did not reach."""
    scenario = opened(name, **options)
    with patch.object(fresh, "_answers", kept.answers):
        report = check_scenario(scenario, seeds=seeds, skip=skip, cpu_s=KIT_CPU_S)
    line.forget()
    print(report)
    KEPT[name] = not any("CPU" in why for reasons in report.untested.values() for why in reasons)


def installed(module: str) -> bool:
    """Whether this is the environment of that library."""
    return find_spec(module) is not None


def played(
    scenario: Scenario,
    seed: int = 1,
    longest: int = LONGEST,
    texts: Sequence[str] = (),
    task: Any = None,
) -> Game:
    """Random legal play; `texts`, in turn at random, where the library reads for itself."""
    rng, game = random.Random(seed), Game(scenario, task, seed)
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
