"""Kuhn poker: what the options pay, and that they leave the game as it is."""

from __future__ import annotations

import pytest

from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Game
from gem_ma.registry import make
from gem_ma.scores.exploitability import exploitability, uniform_strategy


def played(moves, **options):
    """What both get in a hand with these answers, and the whys of the ledger."""
    game = Game(make("kuhn_poker", **options), seed=3)
    for move in moves:
        ((agent, _),) = game.pending.items()
        game.send({agent: move})
    assert not game.pending
    paid = {
        agent: sum(entry.value for entry in game.ledger if entry.agent == agent)
        for agent in ("player_0", "player_1")
    }
    return paid, [entry.why for entry in game.ledger]


def test_a_foul_costs_its_agent_and_the_other_gets_it():
    plain, _ = played(["check", "check"])
    for first, second, fouls in (
        ("what", "check", (1, 0)),
        ("check", "what", (0, 1)),
        ("what", "what", (1, 1)),
    ):
        paid, whys = played([first, second], foul=0.5)
        assert paid["player_0"] == plain["player_0"] - 0.5 * fouls[0] + 0.5 * fouls[1]
        assert sum(paid.values()) == 0 and whys.count("foul") == 2 * sum(fouls)
    # words around a move are forgiven, but not where a foul costs something
    assert played(["I bet.", "fold"])[1][0] == "bf"
    paid, whys = played(["I bet.", "check"], foul=0.5)
    assert paid["player_0"] == plain["player_0"] - 0.5 and whys == ["foul", "foul", "cc", "cc"]
    assert played(["what", "check"]) == played(["check", "check"])  # by default it is a check


def test_a_foul_changes_nothing_for_who_is_readable():
    with_foul, without = (
        exploitability(make("kuhn_poker", **options), uniform_strategy)
        for options in ({"foul": 1.0}, {})
    )
    assert with_foul == without
    half = lambda agent, view, legal: [0.25, 0.5]  # noqa: E731  (a quarter unreadable)
    assert (
        exploitability(make("kuhn_poker", foul=1.0), half).nash_conv
        > exploitability(make("kuhn_poker"), half).nash_conv + 0.3
    )


@pytest.mark.parametrize("foul", [-1, True, "much", float("inf")])
def test_a_foul_that_is_no_price_is_refused(foul):
    with pytest.raises(ConfigError, match=r"scenario\.foul: chips of 0 or more"):
        make("kuhn_poker", foul=foul)
