"""The commons: what is taken and what grows, exactly; the measures; who earns most among whom."""

from __future__ import annotations

import pytest
from gem_ma.scenarios.parties.checked import equality
from gem_ma.scenarios.parties.commons import harvest, remaining, sustainable

from gem_ma import Game, Plan, Seat, make
from tests.plays import played_all

NAMES = tuple(f"player_{number}" for number in range(5))


def of_all(behaviour, **others):
    return {name: Seat(others.get(name, behaviour)) for name in NAMES}


def played(cast, count=1, **options):
    scenario = make("commons", **options)
    episodes = played_all([Plan(scenario, cast, seed=seed) for seed in range(count)])
    assert not [episode.error for episode in episodes if episode.error]
    return scenario, episodes


def only(cast, **options):
    scenario, (episode,) = played(cast, end="known", **options)
    return episode.returns(), scenario.measures(episode), scenario.success(episode)


def test_equal_shares_are_gone_in_a_month_and_half_of_the_stock_lasts():
    returns, measures, success = only(of_all("commons_share"))
    assert set(returns.values()) == {20.0} and not success
    assert measures["months"] == 1 and measures["over-usage"] == 1 and measures["survival"] == 0
    returns, measures, success = only(of_all("commons_half"))
    assert set(returns.values()) == {120.0} and success
    assert measures == {
        "survival": 1.0,
        "months": 12.0,
        "gain": 120.0,
        "efficiency": 1.0,
        "equality": 1.0,
        "over-usage": 0.0,
    }


def test_one_who_takes_its_share_of_all_ruins_five():
    returns, measures, success = only(of_all("commons_half", player_0="commons_share"))
    # by hand: shares of 20, 16, 12, 9 ... of a stock of 100, 80, 64, 56 ...
    stock = 100
    greedy = 0
    other = 0
    months = 0
    while stock >= 5:
        taken = stock // 5 + 4 * (stock // 10)
        greedy += stock // 5
        other += stock // 10
        months += 1
        if stock - taken < 5:
            break
        stock = min(100, 2 * (stock - taken))
        if months == 12:
            break
    assert returns == {"player_0": greedy} | dict.fromkeys(NAMES[1:], other)
    assert measures["months"] == months and success == (months == 12)


def test_all_of_it_is_shared_by_what_was_asked_for():
    taken = harvest(100, {"a": 100, "b": 10, "c": 10})
    assert taken == pytest.approx({"a": 100 / 1.2, "b": 10 / 1.2, "c": 10 / 1.2})
    assert harvest(100, {"a": 60, "b": 40}) == {"a": 60, "b": 40}
    assert remaining(100, harvest(100, {"a": 99, "b": 98, "c": 97})) == 0
    assert [sustainable(stock, 2) for stock in (100, 99, 5, 1)] == [50, 49, 2, 0]
    assert sustainable(100, 3) == 66


def test_equality_is_one_less_gini():
    assert equality([5, 5, 5]) == 1.0
    assert equality([0, 0, 0, 8]) == pytest.approx(1 / 4)
    assert equality([1, 3]) == pytest.approx(3 / 4)
    assert equality([0, 0]) is None


@pytest.mark.longest
def test_an_unknown_end_comes_after_twelve_months_in_the_mean():
    scenario = make("commons", agents=2)
    months = []
    for seed in range(4000):
        game = Game(scenario, None, seed)
        while game.pending:
            game.send({"player_0": "10", "player_1": "10"})
        months.append(game.step)
    # geometric: sd = sqrt(12 * 11) = 11.5
    assert abs(sum(months) / 4000 - 12) < 3 * 11.5 / 4000**0.5
    assert min(months) == 1 and max(months) > 40
    # the length belongs to the seed, not to what is done
    scenario, others = played(of_all("commons_half", player_0="silent"), 50)
    assert [scenario.measures(episode)["months"] for episode in others] == months[:50]


def test_who_says_nothing_takes_nothing():
    returns, measures, _ = only(of_all("commons_half", player_0="silent"))
    assert returns["player_0"] == 0.0
    assert measures["equality"] == pytest.approx(0.8)


def test_in_the_last_known_month_it_pays_to_take_all():
    game = Game(make("commons", months=2, end="known"))
    game.send(dict.fromkeys(NAMES, "10"))
    game.send({**dict.fromkeys(NAMES, "10"), "player_0": "60"})
    assert sum(entry.value for entry in game.ledger if entry.agent == "player_0") == 70.0


@pytest.mark.parametrize("end, asked", [("unknown", False), ("known", True)])
def test_a_question_says_the_month_only_where_it_says_how_many_are_left(end, asked):
    game = Game(make("commons", end=end))
    assert game.view("player_0")[-1].text.startswith("Month 1.") == asked
    assert "100 tons. How many do you take?" in game.view("player_0")[-1].text


def test_talk_comes_after_the_harvest_and_is_heard():
    game = Game(make("commons", months=2, end="known", talk="signals"))
    game.send(dict.fromkeys(NAMES, "10"))
    assert set(game.pending["player_0"].legal) == {"take less", "stay as we are", "take more"}
    game.send(dict.fromkeys(NAMES, "take less"))
    assert game.view("player_1")[-2].text == "take less"
    game.send(dict.fromkeys(NAMES, "10"))
    assert game.over  # nobody is asked to talk where nothing follows
    free = Game(make("commons", talk="free"))
    free.send(dict.fromkeys(NAMES, "10"))
    assert free.over or free.pending["player_0"].legal is None


def test_who_matches_turns_when_somebody_took_more():
    _, (episode,) = played(of_all("commons_match", player_0="commons_share"), end="known")
    first = [t.action.parsed for t in episode.turns if t.agent == "player_1"][:2]
    assert first == ["10", "16"]


def test_a_small_stock_has_a_bound_too():
    assert make("commons", agents=2, stock=2).collapse == 1
