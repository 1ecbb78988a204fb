"""Matrix games: what is paid, told and measured, and their equilibria."""

from __future__ import annotations

import itertools

import pytest
from gem_ma.scenarios.parties.equilibria import certain, mixed, nash_conv, pure, symmetric
from gem_ma.scenarios.parties.matrix import Matrix
from gem_ma.scenarios.parties.payoffs import CROWDS, PAIRS

from gem_ma import Game, Plan, Seat, make
from gem_ma.kernel.errors import ConfigError
from tests.plays import played_all

OUTCOMES = tuple(itertools.product(("cooperate", "defect", "what?"), repeat=2))


def paid(scenario, rounds):
    """The ledger of a play in which all say these words, and what they were told."""
    game = Game(scenario, seed=1)
    for words in rounds:
        game.send(dict(zip(scenario.agents, words, strict=True)))
    return [(entry.step, entry.agent, entry.value, entry.why) for entry in game.ledger], game


def heard(game, agent):
    return [message.text for message in game.view(agent) if message.sender != agent]


@pytest.mark.parametrize("briefing", [True, False])
def test_the_preset_dilemma_is_dilemma(briefing):
    options = {"rounds": 2, "briefing": briefing}
    for one, other in itertools.product(OUTCOMES, repeat=2):
        plays = [paid(make(name, **options), (one, other)) for name in ("dilemma", "matrix")]
        assert plays[0][0] == plays[1][0] and len(plays[0][0]) == 4
        for agent in ("player_0", "player_1"):
            told, also = (heard(game, agent) for _, game in plays)
            assert told == also and len(told) == 5 - (not briefing)
    scenario = make("dilemma")
    assert (scenario.version, scenario.ends_within, scenario.chance) == (2, 5, False)
    assert [scenario.baselines[f"all {name} (mean return)"] for name in OUTCOMES[1]] == [15.0, 5.0]


def test_the_bare_form_says_nothing_of_payments():
    plays = {
        briefing: paid(make("dilemma", rounds=1, briefing=briefing), [("cooperate", "defect")])[1]
        for briefing in (True, False)
    }
    briefing, _, told = heard(plays[True], "player_0")
    for line in ("cooperate, cooperate: 3, 3", "cooperate, defect: 0, 5", "defect, defect: 1, 1"):
        assert line in briefing
    assert "You are player_0." in briefing and "as many points as you can get" in briefing
    assert told == "The other chose to defect: you get 0."
    assert heard(plays[False], "player_0") == [
        "Round 1 of 1: cooperate or defect?",
        "The other chose to defect.",
    ]
    for preset in ("stag_hunt", "guess_two_thirds", "pennies"):
        game = Game(make("matrix", preset=preset, briefing=False), seed=1)
        game.send({agent: asked.legal[1] for agent, asked in game.pending.items()})
        assert not [m for m in game.view("player_0") if "you get" in m.text or "points" in m.text]


def test_measures_of_the_dilemma_count_rounds():
    cast = {"player_0": Seat("tit_for_tat"), "player_1": Seat("always_defect")}
    scenario = make("dilemma", rounds=4)
    (episode,) = played_all([Plan(scenario, cast, seed=1)])
    # of four rounds tit for tat cooperates in the first
    wanted = {"cooperation": 1 / 8, "mutual": 0.0, "first defection": 1.0}
    assert scenario.measures(episode) == wanted
    (episode,) = played_all([Plan(scenario, dict.fromkeys(scenario.agents, Seat("grim")), seed=1)])
    wanted = {"cooperation": 1.0, "mutual": 1.0, "first defection": None}
    assert scenario.measures(episode) == wanted


def test_what_is_told_before_and_after():
    scenario = make("matrix", preset="chicken", rounds=1)
    _, game = paid(scenario, [("swerve", "straight")])
    texts = [message.text for message in game.view("player_0")]
    assert "swerve, straight: -1, 1" in texts[0] and texts[1] == "Round 1 of 1: swerve or straight?"
    assert texts[-1] == "The other chose straight: you get -1."
    bare = paid(make("matrix", briefing=False, rounds=1), [("defect", "defect")])[1]
    assert bare.view("player_0")[0].text.startswith("Round 1")


def test_a_crowd_is_told_numbers_and_a_table_names():
    ledger, game = paid(
        make("matrix", preset="stag_hunt", agents=3, rounds=1), [("stag", "stag", "hare")]
    )
    assert [value for _, _, value, _ in ledger] == [0.0, 0.0, 3.0]
    assert game.view("player_0")[-1].text == "The others chose 1 stag, 1 hare: you get 0."
    cube = [[[[1, 2, 3], [4, 5, 6]]], [[[0, 0, 0], [7, 8, 9]]]]
    scenario = make(
        "matrix", payoff=cube, choices=[["up", "down"], ["only"], ["left", "right"]], rounds=1
    )
    ledger, game = paid(scenario, [("down", "only", "right")])
    assert [value for _, _, value, _ in ledger] == [7, 8, 9]
    told = "The others chose player_0 down, player_1 only: you get 9."
    assert game.view("player_2")[-1].text == told


@pytest.mark.parametrize(
    ("guesses", "points"),
    [
        (("0", "100", "50"), (0, 0, 1)),  # two thirds of the mean: 33.3
        (("10", "10", "90"), (0.5, 0.5, 0)),
        (("30", "40", "0"), (1, 0, 0)),
        (("7", "7", "7"), (1 / 3, 1 / 3, 1 / 3)),
    ],
)
def test_the_nearest_to_two_thirds_of_the_mean_is_paid(guesses, points):
    assert CROWDS["guess_two_thirds"](3).pays(guesses) == pytest.approx(points)


def test_a_bar_is_crowded_above_six_of_ten():
    pays = CROWDS["bar"](5).pays
    assert list(pays(("go",) * 3 + ("stay",) * 2)) == [2, 2, 2, 1, 1]
    assert list(pays(("go",) * 4 + ("stay",))) == [0, 0, 0, 0, 1]


def test_a_function_pays_as_well():
    scenario = Matrix(
        payoff=lambda moves: [float(move == "b") * moves.count("a") for move in moves],
        choices=["a", "b"],
        agents=3,
        rounds=1,
    )
    assert [entry[2] for entry in paid(scenario, [("a", "b", "a")])[0]] == [0, 2, 0]


def test_an_end_by_chance_comes_when_it_should():
    scenario = make("matrix", continuation=0.75, rounds=50)
    assert scenario.chance and scenario.ends_within == 50
    lengths = []
    for seed in range(1500):
        game = Game(scenario, seed=seed)
        while game.pending:
            game.send(dict.fromkeys(scenario.agents, "defect"))
        lengths.append(game.step)
    # the mean is 4, the standard deviation of a geometric length 3.46: .09 of the mean of 1,500
    assert abs(sum(lengths) / len(lengths) - 4) < 3 * 0.09
    assert scenario.baselines["all defect (mean return)"] == pytest.approx(4, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"preset": "poker"}, "scenario.preset"),
        ({"preset": "chicken", "agents": 3}, "scenario.agents: a whole number from 2 to 2; got 3"),
        ({"preset": "bar", "agents": 65}, "scenario.agents"),
        ({"rounds": 0}, "scenario.rounds"),
        ({"rounds": True}, "scenario.rounds"),
        ({"continuation": 0}, "scenario.continuation"),
        ({"continuation": float("nan")}, "scenario.continuation"),
        ({"talk": "loud"}, "scenario.talk"),
        ({"briefing": "no"}, "scenario.briefing: true or false; got 'no'"),
        ({"choices": ["a", "b"]}, "scenario.choices: names those of a payoff"),
        ({"payoff": [[1, 2], [3, 4]]}, "scenario.payoff: for N agents"),
        ({"payoff": [[[1, 2], [3]], [[1, 2], [3, 4]]]}, "scenario.payoff: 2 numbers"),
        ({"payoff": [[[1, 2], ["x", 3]]]}, "scenario.payoff: 2 numbers"),
        ({"payoff": [[[1, float("inf")]]]}, "scenario.payoff: 2 numbers"),
        ({"payoff": [[[1, 2]]], "preset": "bar"}, "scenario.payoff: instead of a preset"),
        ({"payoff": [[[1, 2]]], "agents": 3}, "scenario.agents: payoff is of 2"),
        ({"payoff": [[[1, 2]]], "choices": ["a", "a"]}, "scenario.choices: names that differ"),
        ({"payoff": 7}, "scenario.payoff"),
    ],
)
def test_options_that_make_no_game_are_refused(options, named):
    with pytest.raises(ConfigError, match=named.replace("(", r"\(")):
        make("matrix", **options)


# -- equilibria ------------------------------------------------------------------------------------


@pytest.mark.longest
@pytest.mark.parametrize(
    ("preset", "agents", "expected"),
    [
        ("dilemma", 2, ["defect defect"]),
        ("chicken", 2, ["swerve straight", "straight swerve"]),
        ("battle_of_the_sexes", 2, ["opera opera", "football football"]),
        ("pennies", 2, []),
        ("stag_hunt", 2, ["stag stag", "hare hare"]),
        ("stag_hunt", 3, ["stag stag stag", "hare hare hare"]),
        ("bar", 2, ["go stay", "stay go"]),
        ("bar", 3, ["go stay stay", "stay go stay", "stay stay go"]),
        ("volunteer", 2, ["volunteer wait", "wait volunteer"]),
        ("volunteer", 3, ["volunteer wait wait", "wait volunteer wait", "wait wait volunteer"]),
        ("guess_two_thirds", 2, ["0 0"]),
        pytest.param("guess_two_thirds", 3, ["0 0 0"], marks=pytest.mark.long),
    ],
)
def test_pure_equilibria(preset, agents, expected):
    payoff = make("matrix", preset=preset, agents=agents).payoff
    found = pure(payoff)
    assert [" ".join(moves) for moves in found] == expected
    assert all(nash_conv(payoff, certain(moves)) <= 1e-12 for moves in found)


@pytest.mark.parametrize(
    ("preset", "first", "second"),
    [
        ("chicken", 0.9, 0.9),
        ("battle_of_the_sexes", 0.6, 0.4),
        ("pennies", 0.5, 0.5),
        ("stag_hunt", 0.75, 0.75),
        ("bar", 0.5, 0.5),
        ("volunteer", 0.5, 0.5),
    ],
)
def test_mixed_equilibria_of_two(preset, first, second):
    payoff = make("matrix", preset=preset, agents=2).payoff
    profile = mixed(payoff)
    assert [next(iter(mixture.values())) for mixture in profile] == [first, second]
    assert nash_conv(payoff, profile) <= 1e-12
    # it is not all games that are at rest everywhere
    assert nash_conv(payoff, certain([names[0] for names in payoff.choices])) > 0 or preset in (
        "battle_of_the_sexes",
        "stag_hunt",
    )
    assert mixed(PAIRS["dilemma"](2)) is None


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("stag_hunt", 0.75**0.5),
        ("bar", 1 - 0.5**0.5),
        ("volunteer", 1 - 0.5**0.5),  # nobody else does it: (cost / value) to the power 1 / (N - 1)
    ],
)
def test_symmetric_equilibria_of_three(preset, expected):
    payoff = make("matrix", preset=preset, agents=3).payoff
    (mixture,) = symmetric(payoff)
    assert next(iter(mixture.values())) == pytest.approx(expected, abs=1e-12)
    assert nash_conv(payoff, [mixture] * 3) <= 1e-12


def test_no_equilibrium_is_asked_of_what_is_too_large():
    with pytest.raises(ConfigError, match="of 2 or 3 agents; got 4"):
        pure(CROWDS["bar"](4))
    with pytest.raises(ConfigError, match="at most"):
        nash_conv(CROWDS["bar"](30), [{"go": 0.5, "stay": 0.5}] * 30)
