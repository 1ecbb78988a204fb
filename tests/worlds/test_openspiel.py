"""Every game of OpenSpiel that it can load by name alone (`make test-worlds`)."""

from __future__ import annotations

import random

import pytest

from gem_ma import registry
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Game
from gem_ma.scores.exploitability import exploitability
from gem_ma.worlds import line
from tests.worlds.playing import forfeits, installed, keeps_the_rules, played, plays_and_forks

pytestmark = pytest.mark.worlds
EVERY = 10**6  # legal strings: random play wants the whole list
# a game of games wants to be told which one, crossword has no list of moves
REFUSED = {
    "add_noise", "cached_tree", "crossword", "efg_game", "mfg_crowd_modelling",
    "mfg_crowd_modelling_2d", "mfg_dynamic_routing", "mfg_garnet", "misere", "nfg_game",
    "normal_form_extensive_game", "repeated_game", "repeated_poker", "restricted_nash_response",
    "start_at", "turn_based_simultaneous_game", "zerosum",
}  # fmt: skip


def names() -> list[str]:
    if not installed("pyspiel"):
        return []
    import pyspiel

    return pyspiel.registered_names()


GAMES = [name for name in names() if name not in REFUSED]


@pytest.mark.skipif(not GAMES, reason="needs the openspiel extra")
def test_all_the_games_that_load_by_name_are_here():
    assert len(GAMES) >= 108
    for name in REFUSED:
        with pytest.raises(ConfigError) as fault:
            registry.make(f"openspiel:{name}")
        assert "\n" not in str(fault.value) and name in str(fault.value)


@pytest.mark.parametrize("name", GAMES)
def test_random_legal_play_forks_exactly(name):
    plays_and_forks(f"openspiel:{name}", listed=EVERY)


@pytest.mark.parametrize("name", GAMES)
def test_what_is_paid_in_all_is_what_the_library_says(name):
    world = registry.make(f"openspiel:{name}", listed=EVERY)
    stop = world.stop
    states = []
    world.stop = lambda state: (states.append(state), stop(state))[1]
    for seed in (1, 2):
        line.forget()
        game = played(world, seed)
        paid = [sum(e.value for e in game.ledger if e.agent == agent) for agent in world.agents]
        if game.over:
            assert paid == pytest.approx(states[-1].returns())


@pytest.mark.parametrize("name", GAMES)
def test_an_unreadable_answer_forfeits(name):
    forfeits(registry.make(f"openspiel:{name}", listed=EVERY))


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker"])
def test_exploitability_is_that_of_openspiel(name):
    import pyspiel
    from open_spiel.python.algorithms.exploitability import nash_conv
    from open_spiel.python.policy import TabularPolicy

    game = pyspiel.load_game(name)
    policy, rng = TabularPolicy(game), random.Random(0)
    for row, legal in zip(policy.action_probability_array, policy.legal_actions_mask, strict=True):
        weights = [rng.random() * bool(one) for one in legal]
        row[:] = [weight / sum(weights) for weight in weights]

    names = {"Pass": 0, "Bet": 1, "Fold": 0, "Call": 1, "Raise": 2}

    def same(agent, view, legal):
        # the information state is the last that an agent was shown; the turn is part of its name
        row = policy.policy_for_key(view[-1].text)
        return [row[names[choice]] for choice in legal]

    found = exploitability(registry.make(f"openspiel:{name}"), same)
    assert found.nash_conv == pytest.approx(nash_conv(game, policy), abs=1e-9)


def test_kuhn_is_our_own_kuhn():
    from gem_ma.scores.exploitability import uniform_strategy

    theirs = exploitability(registry.make("openspiel:kuhn_poker"), uniform_strategy)
    ours = exploitability(registry.make("kuhn_poker"), uniform_strategy)
    assert theirs.nash_conv == pytest.approx(ours.nash_conv, abs=1e-9)
    assert theirs.values == pytest.approx(ours.values, abs=1e-9)


def test_a_player_is_shown_its_own_cards_alone():
    views = set()
    for seed in range(30):
        game = Game(registry.make("openspiel:kuhn_poker"), None, seed)
        views.add(tuple(message.text for message in game.view("player_0")))
    assert len(views) == 3  # one for each of its own cards, whatever the other holds


def test_parameters_are_options_and_a_wrong_one_is_named():
    assert registry.make("openspiel:goofspiel", num_cards=4, players=3).agents[2] == "player_2"
    with pytest.raises(ConfigError, match="num_cards"):
        registry.make("openspiel:goofspiel", cards=4)
    with pytest.raises(ConfigError, match="did you mean kuhn_poker"):
        registry.make("openspiel:kuhn_pokr")
    with pytest.raises(ConfigError, match=r"ends its process .signal 11. with numPlayers: 1"):
        registry.make("openspiel:universal_poker", numPlayers=1)


@pytest.mark.parametrize("name", GAMES)
def test_it_keeps_the_rules_of_the_kit(name):
    # nothing is drawn in the first steps of this one, so that rule 1 sees no chance in it
    keeps_the_rules(f"openspiel:{name}", skip=(1,) if name == "stones_and_gems" else ())
