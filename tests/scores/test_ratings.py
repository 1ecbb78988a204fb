"""Ratings and payoffs, against numbers worked by hand and a second slow fit."""

from __future__ import annotations

import math
import random

import pytest

from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.errors import DataError
from gem_ma.kernel.types import Action, Turn
from gem_ma.scores.ratings import Match, games, payoffs, points, ratings, table


def game(first, second, score, key=0, fouls=(False, False)):
    return Match((f"train/{key}", 7), ("x", "o"), (first, second), (score, 1 - score), fouls)


def episode(cast, paid, seed=0, end=End.TERMINATED, unread=()):
    turns = tuple(
        Turn(n, agent, (), ("a", "b"), (), Action("?") if agent in unread else Action("a", (), "a"))
        for n, agent in enumerate(cast)
    )
    ledger = tuple(Entry(1, agent, value) for agent, value in paid.items())
    return Episode("s", 1, seed, "train/0", 0, None, cast, turns, (), (), {}, ledger, end)


def slow_fit(played, rounds=40_000, step=20.0):
    """Maximum likelihood by plain gradient ascent, game by game."""
    names = sorted({name for one in played for name in one.players})
    points = dict.fromkeys(names, 0.0)
    for _ in range(rounds):
        pull = dict.fromkeys(names, 0.0)
        for one in played:
            a, b = one.players
            gap = one.score - 1 / (1 + 10 ** ((points[b] - points[a]) / 400))
            pull[a] += gap
            pull[b] -= gap
        if max(map(abs, pull.values())) < 1e-9:
            break
        points = {name: points[name] + step * pull[name] for name in names}
    mean = sum(points.values()) / len(points)
    return {name: value - mean for name, value in points.items()}


def test_three_wins_to_one_are_190_points():
    played = [game("a", "b", float(n > 0), n) for n in range(4)]
    found = ratings(played, prior=0)
    assert found["a"].points - found["b"].points == pytest.approx(400 * math.log10(3))
    assert found["a"].points == -found["b"].points


def test_ratings_equal_a_second_slow_fit_and_do_not_depend_on_order_or_side():
    rng = random.Random(3)
    strength = {"a": 0, "b": 100, "c": 250}
    played = []
    for n in range(60):
        one, two = rng.sample(sorted(strength), 2)
        chance = 1 / (1 + 10 ** ((strength[two] - strength[one]) / 400))
        score = 0.5 if rng.random() < 0.2 else float(rng.random() < chance)
        played.append(game(one, two, score, n))
    found = ratings(played, prior=0, resamples=5)
    assert {name: rating.points for name, rating in found.items()} == pytest.approx(
        slow_fit(played), abs=1e-3
    )
    turned = [
        Match(g.key, g.agents, g.players[::-1], g.returns[::-1], g.fouls[::-1])
        for g in reversed(played)
    ]
    again = ratings(turned, prior=0, resamples=5)
    assert {name: rating.points for name, rating in again.items()} == pytest.approx(
        {name: rating.points for name, rating in found.items()}, abs=1e-6
    )
    assert list(found) == sorted(found, key=lambda name: -found[name].points)


def test_the_anchor_has_no_points_and_ties_pull_together():
    won = [game("a", "b", 1.0, n) for n in range(4)]
    tied = [game("a", "b", 0.5, 10 + n) for n in range(4)]
    assert ratings([*won, *tied], anchor="b")["b"].points == 0
    assert 0 < ratings([*won, *tied])["a"].points < ratings(won)["a"].points
    assert f"{ratings(tied)['a'].points}" == "0.0"
    # a and c are mirrors of each other around b: what the fit leaves open is no rating
    mirrored = [game("a", "b", 1.0), game("b", "c", 1.0), game("a", "c", 1.0)] * 3
    middle = ratings(mirrored)["b"]
    assert [f"{x}" for x in (middle.points, middle.low, middle.high)] == ["0.0"] * 3
    assert (ratings([*won, *tied])["a"].games, ratings([*won, *tied])["a"].ties) == (8, 4)


def test_an_interval_holds_the_rating_and_narrows_with_more_keys_not_with_repeats():
    few = [game("a", "b", float(n % 4 > 0), n) for n in range(12)]
    many = [game("a", "b", float(n % 4 > 0), n) for n in range(120)]
    repeated = [one for one in few for _ in range(10)]
    width = {}
    for name, played in (("few", few), ("many", many), ("repeated", repeated)):
        rating = ratings(played)["a"]
        assert rating.low < rating.points < rating.high
        width[name] = rating.high - rating.low
    assert width["many"] < 0.5 * width["repeated"]  # ten times the same start is not ten starts
    assert ratings(few) == ratings(few)


@pytest.mark.parametrize("opponents", ["the next", "all"])
def test_an_interval_holds_the_rating_where_few_games_lie_between_the_best_and_the_worst(opponents):
    names = [f"p{n:02}" for n in range(50 if opponents == "the next" else 12)]
    reach = 1 if opponents == "the next" else len(names)
    met = [(a, b) for n, a in enumerate(names) for b in names[n + 1 : n + 1 + reach]]
    played = [
        game(a, b, float(n != 0 or reach > 1), n)
        for a, b in met
        for n in range(4 if reach == 1 else 100)
    ]
    found = ratings(played, prior=0 if reach == 1 else 1, resamples=10)
    if reach == 1:  # each won three of four against the next
        apart = found["p00"].points - found["p49"].points
        assert apart == pytest.approx(49 * 400 * math.log10(3))
    assert all(one.low <= one.points <= one.high for one in found.values())


def test_players_that_no_chain_of_games_compares_are_refused_in_a_sentence():
    with pytest.raises(
        DataError,
        match=(
            r"no chain of games compares 'a' with 'c', so their ratings cannot be compared;"
            r" apart: c, d"
        ),
    ):
        ratings([game("a", "b", 1.0), game("c", "d", 0.0)])
    bridged = ratings([game("a", "b", 1.0), game("c", "d", 0.0), game("b", "c", 0.5)])
    assert set(bridged) == {"a", "b", "c", "d"}
    with pytest.raises(DataError, match="no games between different players"):
        ratings([])
    with pytest.raises(DataError, match="'z' played no game"):
        ratings([game("a", "b", 1.0)], anchor="z")
    with pytest.raises(DataError, match="no chain of games compares 'a' with 'c'"):
        points({("a", "b"): 1.0, ("c", "d"): 2.0})
    with pytest.raises(DataError, match="no games"):
        points({})


def test_counts_give_the_ratings_of_their_games():
    played = [
        game("a", "b", 1.0),
        game("b", "c", 0.5),
        game("c", "a", 0.0),
        game("a", "b", 0.0),
        game("b", "a", 0.5),
    ]
    counts = {("a", "b"): 1.5, ("b", "a"): 1.5, ("b", "c"): 0.5, ("c", "b"): 0.5, ("a", "c"): 1.0}
    assert points(counts) == pytest.approx(
        {name: rating.points for name, rating in ratings(played, resamples=2).items()}
    )


def test_who_never_lost_has_a_rating_only_with_a_prior():
    with pytest.raises(DataError, match="no chain of wins leads from 'b' to 'a'"):
        ratings([game("a", "b", 1.0)], prior=0)
    found = ratings([game("a", "b", 1.0)], prior=1)  # 1.5 wins to 0.5
    assert found["a"].points - found["b"].points == pytest.approx(400 * math.log10(3))


def test_games_are_read_from_scored_episodes_of_different_players():
    new, old, bot = Seat(policy="main"), Seat(policy="main@3"), Seat("random_legal")
    played = games(
        [
            episode({"x": new, "o": old}, {"x": 1.0, "o": -1.0}),
            episode({"x": old, "o": new}, {"x": 0.0, "o": 0.0}, unread=("x",)),
            episode({"x": new, "o": new}, {"x": 1.0, "o": -1.0}),
            episode({"x": new, "o": bot}, {"x": 1.0, "o": -1.0}, end=End.FAILED),
            episode({"x": new, "o": bot}, {"o": 2.0}),
        ]
    )
    assert [(g.players, g.score, g.fouls) for g in played] == [
        (("main", "main@3"), 1.0, (False, False)),
        (("main@3", "main"), 0.5, (True, False)),
        (("main", "random_legal"), 0.0, (False, False)),
    ]
    cells = payoffs(played)
    assert cells["main", "main@3", "x"].wins == 1 and cells["main", "main@3", "x"].payoff == 1.0
    assert cells["main", "main@3", "o"].ties == 1 and cells["main", "main@3", "o"].other_fouls == 1
    assert cells["main@3", "main", "x"].fouls == 1 and cells["main@3", "main", "x"].score == 0.5
    assert (
        cells["main", "random_legal", "x"].losses == 1
        and cells["main", "random_legal", "x"].payoff == 0.0
    )
    assert sum(cell.games for cell in cells.values()) == 2 * len(played)
    assert ("main", "main@3", "o", "1", "0/1/0", "0/1", "0.000") in table(cells)


def test_three_agents_make_a_game_of_every_pair():
    cast = {"a": Seat(policy="p"), "b": Seat(policy="q"), "c": Seat(policy="q")}
    played = games([episode(cast, {"a": 1.0, "b": 0.0, "c": 2.0})])
    assert [(g.agents, g.score) for g in played] == [(("a", "b"), 1.0), (("a", "c"), 0.0)]


def team(one: Episode, agent: str) -> str:
    return {"w": "wolves", "v": "village"}.get(agent[0], "")


def test_team_mates_do_not_meet_and_teams_win_by_their_means():
    cast = {
        "w1": Seat("old"),
        "w2": Seat("new"),
        "v1": Seat("old"),
        "v2": Seat("new"),
        "v3": Seat("new"),
    }
    # the village has the better mean, though a wolf has the best return
    paid = {"w1": 5.0, "w2": -9.0, "v1": 0.0, "v2": 0.0, "v3": 0.0}
    found = games([episode(cast, paid)], team=team)
    # every pair of players of the two teams meets once, however many seats they have
    assert [(one.players, one.agents) for one in found] == [
        (("old", "new"), ("w1", "v2")),
        (("new", "old"), ("w2", "v1")),
    ]
    assert all(one.score == 0.0 and one.returns == (-2.0, 0.0) for one in found)
    assert len(games([episode(cast, paid)])) == 6  # without teams all pairs of players do


def test_who_has_no_team_meets_everybody_and_rounding_is_no_win():
    cast = {f"w{n}": Seat("old") for n in range(6)} | {f"v{n}": Seat("new") for n in range(2)}
    cast |= {"guest": Seat("third")}
    found = games([episode(cast, dict.fromkeys(cast, 0.9))], team=team)
    assert [one.players for one in found] == [("old", "new"), ("old", "third"), ("new", "third")]
    assert all(one.score == 0.5 for one in found)


def test_a_foul_is_that_of_any_seat_of_the_player_in_the_team():
    cast = {"w1": Seat("old"), "v1": Seat("new"), "v2": Seat("new")}
    (found,) = games([episode(cast, dict.fromkeys(cast, 0.0), unread=("v2",))], team=team)
    assert found.fouls == (False, True)
