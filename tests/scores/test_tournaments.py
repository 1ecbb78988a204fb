"""Ratings of players from the sides of their plays, and which pair plays next."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from gem_ma.scores.ratings import Match
from gem_ma.scores.sides import halves_text, tournament_rows
from gem_ma.scores.together import Group
from gem_ma.scores.tournaments import (
    Standing,
    elo,
    halves,
    matches_of,
    next_pair,
    plackett_luce,
    played,
    results_of,
    tournament_table,
    wins_of,
)

STORED = json.loads((Path(__file__).parent / "openskill.json").read_text())
PLAY = ("test/0", 7, 0)


def test_plackett_luce_has_openskill_s_own_numbers_for_teams_ranks_and_ties() -> None:
    found = plackett_luce(
        [(tuple(side), float(score)) for side, score in play] for play in STORED["plays"]
    )
    assert found.keys() == STORED["skills"].keys()
    for name, (mu, sigma) in STORED["skills"].items():
        assert found[name] == pytest.approx((mu, sigma), abs=1e-9)


def test_sides_of_different_sizes_begin_alike_and_a_side_alone_tells_nothing() -> None:
    won, lost = (
        plackett_luce([[(("a", "b"), score), (("c", "d", "e", "f"), 0.5)]])["a"].mu
        for score in (1.0, 0.0)
    )
    # neither result is more of a surprise
    assert won - 25 == pytest.approx(25 - lost) and won > 25
    assert plackett_luce([[(("a", "b"), 1.0)]]) == {}
    # who sits on both sides, as often on each, neither wins nor loses
    both = plackett_luce([[(("a", "b"), 1.0), (("a", "b"), 0.0)]])
    assert both["a"].mu == pytest.approx(25) and both["a"].sigma < Standing().sigma


def test_hundreds_of_points_between_sides_do_not_overflow() -> None:
    plays = [[(("a",) * 32, 1.0), (("b",) * 32, 0.0)]] * 200
    found = plackett_luce(plays)
    assert all(math.isfinite(number) for skill in found.values() for number in skill)
    assert found["a"].mu > found["b"].mu and found["a"].sigma > 0


def row(agents: dict[str, float], teams: dict[str, list[str]], scored: bool = True) -> object:
    places = {agent: n for n, agent in enumerate(agents)}
    paid = [*agents.values()]
    groups = {
        f"team {name}": Group.of([places[x] for x in members], paid)
        for name, members in teams.items()
    }
    groups |= {"role any": Group.of([0, 1], paid)}
    ended = {"is_scored": scored, "end": "terminated" if scored else "failed"}
    return SimpleNamespace(id=PLAY, returns=agents, groups=groups, **ended)


def test_team_mates_are_never_opponents() -> None:
    agents = dict.fromkeys("abcdef", -1.0) | {"b": 1.0, "e": 1.0}
    teams = {"wolves": ["b", "e"], "village": ["a", "c", "d"]}
    (sides,) = results_of([row(agents, teams)]).values()
    assert sides == [(("b", "e"), 1.0), (("a", "c", "d"), -1.0), (("f",), -1.0)]
    seated = dict(zip("abcdef", ("x", "x", "y", "z", "y", "w"), strict=True))
    (sides,) = played({PLAY: sides}, seated).values()
    met = Counter((match.players, match.score) for match in matches_of(PLAY, sides))
    # x, y won as wolves; of x, y, z in the village nobody meets another one of it, or itself, and
    # x and y, who both won and lost, do not meet
    assert met == {
        (("x", "z"), 1.0): 1,
        (("y", "z"), 1.0): 1,
        (("x", "w"), 1.0): 1,
        (("y", "w"), 1.0): 1,
        # the village and who has no team were paid alike
        (("x", "w"), 0.5): 1,
        (("y", "w"), 0.5): 1,
        (("z", "w"), 0.5): 1,
    }


def test_without_teams_each_agent_is_a_side_and_what_failed_or_has_no_player_is_left_out() -> None:
    assert results_of([row({"a": 1.0, "b": 2.0}, {}, scored=False)]) == {}
    found = results_of([row({"a": 1.0, "b": 2.0, "c": 3.0}, {})])
    assert played(found, {"a": "x", "c": "y"}) == {PLAY: [(("x",), 1.0), (("y",), 3.0)]}


def match(first: str, second: str, score: float, n: int = 0) -> Match:
    pair = (first, second)
    return Match((f"t/{n}", 0), pair, pair, (score, 1 - score), (False, False))


def test_elo_moves_by_what_was_not_expected() -> None:
    assert elo([match("a", "b", 0.5)]) == {"a": 0.0, "b": 0.0}
    many = elo([match("a", "b", 1.0)] * 500)
    assert many["a"] == -many["b"] > 200
    assert elo([match("a", "b", 1.0), match("b", "a", 1.0)])["b"] > 0


def test_the_next_pair_is_the_one_whose_outcome_is_least_known() -> None:
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    assert next_pair([], pairs) == ("a", "b")
    # met least
    once = [match("a", "b", 1.0), match("a", "b", 0.0), match("a", "c", 1.0), match("a", "c", 0.0)]
    assert next_pair([wins_of(once)], pairs) == ("b", "c")
    # who always loses tells nothing more
    lopsided = [match("a", "b", n % 2) for n in range(20)]
    lopsided += [match(x, "c", 1.0) for x in "ab" for _ in range(20)]
    assert next_pair([wins_of(lopsided)], pairs) == ("a", "b")
    # players that are no longer asked about are still compared with
    assert next_pair([wins_of(lopsided)], [("a", "c"), ("b", "c")]) == ("a", "c")


def test_pairs_that_are_chosen_tell_close_players_apart_sooner() -> None:
    """Of six players, two of which are far below: the width of what is unsure among the others."""
    strength = {"a": 300.0, "b": 250.0, "c": 200.0, "d": 150.0, "e": -500.0, "f": -900.0}
    pairs = [(x, y) for x in strength for y in strength if x < y]
    rng = random.Random(3)
    met: Counter[tuple[str, str]] = Counter()
    for _ in range(90):
        first, second = next_pair([met], pairs)
        chance = 1 / (1 + 10 ** ((strength[second] - strength[first]) / 400))
        won = sum(rng.random() < chance for _ in range(5))
        met += Counter({(first, second): won, (second, first): 5 - won})
    # alike they would have 30 each
    assert met["a", "f"] + met["f", "a"] <= 15 < 40 <= met["a", "b"] + met["b", "a"]


def test_a_table_says_its_plays_and_nothing_of_what_is_not_known() -> None:
    plays = {("test/0", n, 0): [(("a",), float(n % 3)), (("b",), 1.0)] for n in range(9)}
    found = tournament_table({("a", "b"): plays, ("b", "a"): {}}, copied=False)
    assert found["plays"] == 9 and [pair["plays"] for pair in found["pairs"]] == [9, 0]
    assert {one["name"]: one["plays"] for one in found["players"]} == {"a": 9, "b": 9}
    assert found["players"][0]["rating"]["low"] is not None
    once = tournament_table({("a", "b"): plays, ("b", "a"): {}}, copied=True)
    assert "deterministic: 1 play" in tournament_rows(once)[0][0][1]
    apart = tournament_table({("a", "b"): plays, ("c", "d"): plays}, copied=False)
    assert len(apart["players"]) == 4
    nothing = tournament_table({("a", "b"): {}, ("b", "a"): {}}, copied=False)
    assert [one["rating"] for one in nothing["players"]] == [None, None]
    # points of a rating are not those of a skill, which begins at 25
    unheard = tournament_table({("c", "a"): {}, ("a", "b"): plays}, copied=False)["players"]
    assert [one["name"] for one in unheard][2] == "c"
    assert tournament_rows(nothing)[0][0][1] == "n/a"
    # teams in which both sit alike do not tell them apart; they were said to be equal for sure
    mixed = {play: [(("a", "b"), 1.0), (("b", "a"), 0.0)] for play in plays}
    alike = tournament_table({("a", "b"): mixed}, copied=False)
    assert [one["rating"] for one in alike["players"]] == [None, None]
    # of two players with the same plays in another order, the order of a file decides nothing
    gaps = halves({PLAY: 3.0, ("test/1", 8, 0): 1.0}, {PLAY: 2.0, ("test/2", 8, 0): 5.0})
    assert gaps == [(("test/0", 7), 1.0)]
    more = [(("t/0", n), 1.0 + n % 2) for n in range(8)]
    told = tournament_table({("a", "b"): plays}, False, more)["halves"]
    assert told["mean"] == 1.5 and 1 < told["low"] < 1.5 < told["high"] < 2
    assert tournament_table({("a", "b"): plays}, True, more)["halves"]["low"] is None
    assert found["halves"] is None and halves_text(found) == ""
    turned = dict(reversed(plays.items()))
    assert tournament_table({("a", "b"): turned, ("b", "a"): {}}, copied=False) == found
