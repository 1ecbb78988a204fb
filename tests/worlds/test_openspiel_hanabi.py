"""Hanabi through OpenSpiel: what its players read, that nobody sees its own cards, and who scores
more (`make test-worlds-openspiel`)."""

from __future__ import annotations

import random

import pytest
from gem_ma.agents.hanabi import Simple, Strong, _Table

from benchmarks.party_players import table
from gem_ma import Game, check_scenario, registry
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Asked, Message
from tests.driver import test_forked_players as forks
from tests.scenarios.parties.test_pages import printed
from tests.worlds.playing import installed

# red 1 is out; of red 2 one copy lies with the other and one in the discards
VIEW = """Life tokens: 2
Info tokens: {tokens}
Fireworks: R1 Y0 G0 W0 B0{space}
Hands:
Cur player
XX || X{hint}|RYGWB{ranks}
XX || XX|RYGWB12345
-----
Y1 || {told}|Y12345
R2 || XX|RYGWB12345
Deck size: 30
Discards: R2 G4"""
PLAYS = ("(Play 0)", "(Play 1)")
HINTS = ("(Reveal player +1 color Y)", "(Reveal player +1 color R)", "(Reveal player +1 rank 1)",
         "(Reveal player +1 rank 2)")  # fmt: skip
DROPS = ("(Discard 0)", "(Discard 1)")


def view(hint="X", ranks="12345", told="XX", tokens=4):
    return VIEW.format(hint=hint, ranks=ranks, told=told, tokens=tokens, space=" ")


async def chosen(kind, text, legal):
    told = (Message(text, "scenario"),)
    asked = Asked(told, told, legal, (), 0)
    return (await kind("player_0", None, random.Random(1)).act(asked)).parsed


def act(kind, text, legal=PLAYS + HINTS + DROPS):
    coroutine = chosen(kind, text, legal)
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    return done.value.value


def test_cards_that_lie_open_are_none_of_mine():
    table = _Table(view("2", "2"))
    assert table.may_be(table.own[0]) == [("Y", 2), ("G", 2), ("W", 2), ("B", 2)]
    assert ("R", 3) in table.may_be(table.own[1]) and ("R", 1) in table.may_be(table.own[1])
    with pytest.raises(ConfigError, match="no table of Hanabi is shown; got 'hello'"):
        _Table("hello")


def test_what_is_sure_is_played_and_what_fits_is_hinted_at():
    ones = view("1", "1").replace("R1 Y0", "R0 Y0")
    assert act(Strong, ones) == act(Simple, ones) == "(Play 0)"
    # a one may be the red one again
    assert act(Strong, view("1", "1")) == "(Reveal player +1 rank 1)"
    assert act(Strong, view(told="X1")) == "(Reveal player +1 color Y)"
    assert act(Strong, view(told="Y1")) == "(Reveal player +1 rank 2)"
    assert act(Simple, view()) in HINTS


def test_of_no_hint_and_of_no_use_is_discarded_first():
    assert act(Strong, view("3", "3"), PLAYS + DROPS) == "(Discard 1)"
    dead = view("1", "1").replace("R1 Y0 G0 W0 B0", "R1 Y1 G1 W1 B1")
    assert act(Strong, dead, PLAYS + DROPS) == "(Discard 0)"


def openspiel(test):
    """For the environment of that library alone."""
    return pytest.mark.worlds(
        pytest.mark.skipif(not installed("pyspiel"), reason="OpenSpiel")(test)
    )


COPIES = (3, 2, 2, 2, 1) * 5  # of each card in the deck, by its number in OpenSpiel


def turns_of(scenario, owner, rng):
    """What `owner` is shown at each of its turns and may do, in two plays that differ in its own
    hand alone, until somebody must do what depends on that hand."""
    deck = [card for card, copies in enumerate(COPIES) for _ in range(copies)]
    rng.shuffle(deck)
    size = 5 if len(scenario.agents) < 4 else 4
    cards = [deck.pop() for _ in range(size * len(scenario.agents))]
    own = slice(owner * size, (owner + 1) * size)
    states = [scenario.opened(0), scenario.opened(0)]
    for state, hand in zip(states, (cards[own], rng.sample(deck, size)), strict=True):
        for card in [*cards[: own.start], *hand, *cards[own.stop :]]:
            state.apply_action(card)
    while not any(state.is_terminal() for state in states):
        if states[0].is_chance_node():  # a card is drawn that lies in both decks
            drawn = [dict(state.chance_outcomes()) for state in states]
            moves = sorted(drawn[0].keys() & drawn[1].keys())
        else:
            stops = [scenario.stop(state) for state in states]
            (agent,) = stops[0].asks
            seat = scenario.agents.index(agent)
            if seat == owner:
                yield [(stop.asks[agent], stop.moves[agent]) for stop in stops]
            toward = f"+{(owner - seat) % len(scenario.agents)} "
            common = stops[0].moves[agent].keys() & stops[1].moves[agent].keys()
            # hints at these cards tell of them, and so does playing them
            names = [x for x in common if toward not in x and (seat != owner or "+" in x)]
            moves = [stops[0].moves[agent][name] for name in sorted(names)]
        if not moves:
            return
        move = rng.choice(moves)
        for state in states:
            state.apply_action(move)


@openspiel
@pytest.mark.parametrize("players", [2, 3, 4, 5])
def test_nobody_sees_its_own_cards(players):
    """The kit's rule of secrecy, for what is hidden from its own holder and from nobody else."""
    scenario = registry.make("openspiel:hanabi", players=players)
    for owner in range(players):
        looks = [look for n in range(5) for look in turns_of(scenario, owner, random.Random(n))]
        assert len(looks) >= 10
        assert all(left == right for left, right in looks)


@openspiel
def test_cards_that_are_seen_are_told_apart():
    """The test above can fail: where all hands lie open, each play shows another one."""
    scenario = registry.make("openspiel:hanabi", players=3, observation_type="seer")
    looks = list(turns_of(scenario, 1, random.Random(0)))
    assert looks and all(left != right for left, right in looks)


@openspiel
@pytest.mark.parametrize("players", [2, 3, 5])
def test_the_kit_finds_nothing(players):
    report = check_scenario(registry.make("openspiel:hanabi", players=players), seeds=range(3))
    # a hand is hidden from its own holder and from nobody else, so it is nobody's secret
    assert report.not_tested == (4,) and len(report.passed) == 12


@openspiel
def test_a_lost_game_scores_nothing():
    scenario = registry.make("openspiel:hanabi")
    rng = random.Random(0)
    for seed in range(20):
        game = Game(scenario, None, seed)
        while game.pending:
            game.send({agent: rng.choice(asked.legal) for agent, asked in game.pending.items()})
        paid = [entry for entry in game.ledger if entry.agent == "player_0"]
        assert sum(entry.value for entry in paid) == 0 and game.step > 3
        assert all(entry.value == 1 for entry in paid[:-1])


@openspiel
def test_the_table_of_the_page_is_what_is_printed():
    lines = printed("hanabi")
    assert list(table("hanabi")) == ["\n".join(lines[:2]), *lines[2:]]
    assert all(line.endswith("| yes |") for line in lines[2:])


@openspiel
@pytest.mark.parametrize("behaviour", ["hanabi_simple", "hanabi_strong"])
def test_a_player_goes_on_after_an_act_that_it_did_not_choose(behaviour, request):
    forks.test_a_behaviour_goes_on_after_an_act_that_it_did_not_choose(
        behaviour, "openspiel:hanabi", request
    )
