"""Alpha-rank and Nash averaging, against OpenSpiel's numbers (`make rankings` writes them) and what
holds of any table."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from gem_ma.scores.populations import alpha_rank, nash_average
from gem_ma.scores.sides import seats_text, standing_rows
from gem_ma.scores.standings import standings

STORED = json.loads((Path(__file__).parent / "rankings.json").read_text())


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gem_ma.scores.standings.RESAMPLES", 150)


@pytest.mark.parametrize("name", STORED)
def test_both_are_openspiels_numbers(name: str) -> None:
    tables = [np.array(one) for one in STORED[name]["tables"]]
    for row in STORED[name]["alpha_rank"]:
        shares = alpha_rank(
            tables[0] if len(tables) == 1 else tables,
            alpha=row["alpha"] or math.inf,
            agents=row["agents"],
            noise=row["noise"] or 0.01,
        )
        np.testing.assert_allclose(shares, row["shares"], rtol=0, atol=1e-6, err_msg=str(row))
    if "nash" in STORED[name]:
        ours = nash_average(tables[0])
        np.testing.assert_allclose(ours.weights, STORED[name]["nash"]["weights"], rtol=0, atol=1e-6)
        np.testing.assert_allclose(ours.skills, STORED[name]["nash"]["skills"], rtol=0, atol=1e-6)


def cyclic(rng: np.random.Generator, count: int) -> np.ndarray:
    upper = np.triu(rng.integers(-3, 4, (count, count)).astype(float), 1)
    return upper - upper.T


def test_an_alpha_beyond_all_numbers_is_the_limit_of_no_noise() -> None:
    # of a table without ties: e^-alpha is 0 in floating point, and a chain of such moves falls apart
    table = np.array([[0.0, 2.0, -1.0], [-2.0, 0.0, 3.0], [1.0, -3.0, 0.0]])
    for alpha in (50.0, 1e5, 1e6):
        np.testing.assert_allclose(alpha_rank(table, alpha=alpha), 1 / 3, atol=1e-9)
        # two conventions: from alpha 1 on the way between them is below the rounding of 1
        both = alpha_rank([np.eye(2), np.eye(2)], alpha=alpha)
        np.testing.assert_allclose(both, np.eye(2) / 2, atol=1e-9)
    order = np.subtract.outer(np.arange(4.0), np.arange(4.0))
    for options in ({"alpha": 1e5}, {"noise": 1e-300}):
        shares = alpha_rank(order, **options)
        assert np.isfinite(shares).all() and shares[3] == pytest.approx(1.0)


def test_many_tables_at_once_are_each_alone_and_names_do_not_matter() -> None:
    rng = np.random.default_rng()
    one, two = rng.normal(size=(2, 5, 3, 4))
    for at, shares in enumerate(alpha_rank([one, two])):
        np.testing.assert_allclose(shares, alpha_rank([one[at], two[at]]), atol=1e-12)
        assert shares.sum() == pytest.approx(1) and shares.min() > 0
    order = rng.permutation(4)
    table = rng.normal(size=(4, 4))
    moved = table[np.ix_(order, order)]
    np.testing.assert_allclose(alpha_rank(moved), alpha_rank(table)[order], atol=1e-12)


@pytest.mark.long
def test_nobody_gains_against_a_nash_average_and_a_copy_changes_no_skill() -> None:
    rng = np.random.default_rng()
    for count in (*range(1, 12), *range(1, 12)):
        table = cyclic(rng, count)
        weights, skills = nash_average(table)
        assert weights.min() >= 0 and weights.sum() == pytest.approx(1)
        assert skills.max() < 1e-7, table
        twice = [*range(count), 0]
        copied = nash_average(table[np.ix_(twice, twice)])
        assert copied.weights[0] == pytest.approx(copied.weights[-1], abs=1e-6)
        # what is held stays unbeaten, so a strategy that is beaten stays beaten
        assert copied.skills.max() < 1e-7


def test_a_copy_shares_the_weight_of_a_cycle() -> None:
    cycle = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    twice = [0, 1, 2, 2]
    found = nash_average(cycle[np.ix_(twice, twice)])
    np.testing.assert_allclose(found.weights, [1 / 3, 1 / 3, 1 / 6, 1 / 6], atol=1e-9)
    np.testing.assert_allclose(found.skills, 0, atol=1e-9)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: alpha_rank(np.ones((2, 3))), "a table of one population"),
        (lambda: alpha_rank(np.array([[0.0, math.nan], [0.0, 0.0]])), "finite"),
        (lambda: alpha_rank([np.ones((2, 3)), np.ones((3, 2))]), "tables of one shape"),
        (lambda: alpha_rank([]), "tables of one shape"),
        (lambda: alpha_rank(np.zeros((2, 2)), alpha=0.0), "alpha is above 0"),
        (lambda: alpha_rank(np.zeros((2, 2)), noise=0.0), "noise"),
        (lambda: alpha_rank(np.zeros((2, 2)), agents=1), "agents 2 or more"),
        (lambda: alpha_rank([np.eye(2), np.eye(2)], alpha=1e300), "lose their digits"),
        (lambda: nash_average(np.array([[0.0, 1.0], [1.0, 0.0]])), "antisymmetric"),
        (lambda: nash_average(np.zeros((0, 0))), "a table of one population"),
    ],
)
def test_what_is_not_a_table_is_refused(make, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


# -- the population of a study ---------------------------------------------------------------------

SEATS = {"x": ("rock", "paper", "scissors"), "o": ("paper", "scissors", "rock")}


def played(edge: float, tasks: int, spread: float = 0.0) -> tuple[list[np.ndarray], dict]:
    """Returns of two seats, of which x is paid `edge` more, as `standings` takes them."""
    rng = np.random.default_rng()
    beats = {("paper", "rock"), ("scissors", "paper"), ("rock", "scissors")}
    paid = [np.zeros((3, 3, tasks)) for _ in SEATS]
    returns = {}
    for i, mine in enumerate(SEATS["x"]):
        for j, other in enumerate(SEATS["o"]):
            margin = float((mine, other) in beats) - float((other, mine) in beats)
            noise = spread * rng.normal(size=tasks)
            paid[0][i, j] = margin + edge + noise
            paid[1][i, j] = -margin - noise
            plays = [(f"test/{task}", task, 0) for task in range(tasks)]
            returns[mine, other] = {
                agent: dict(zip(plays, one[i, j].tolist(), strict=True))
                for agent, one in zip(SEATS, paid, strict=True)
            }
    return paid, returns


@pytest.mark.long
def test_a_cycle_has_no_best_player_whatever_a_seat_is_worth() -> None:
    paid, returns = played(edge=0.25, tasks=40)
    found = standings(SEATS, paid, returns, copied=False)
    for row in found["players"]:
        assert row["alpha_rank"]["mean"] == pytest.approx(1 / 3)
        assert row["nash"]["mean"] == pytest.approx(1 / 3)
        assert row["skill"]["mean"] == pytest.approx(0, abs=1e-9)
        assert row["rating"]["mean"] == pytest.approx(0, abs=1e-6)
    assert found["seats"]["agents"] == ["x", "o"]
    assert found["seats"]["mean"] == pytest.approx(0.25)
    assert "x is paid 0.250" in seats_text(found)
    rows, head = standing_rows(found)
    assert head == ["player", "alpha-rank", "Nash weight", "Nash skill", "rating (points)"]
    assert len(rows) == 3


@pytest.mark.long
def test_intervals_hold_what_was_played_and_copies_have_none() -> None:
    paid, returns = played(edge=0.0, tasks=30, spread=0.5)
    for row in standings(SEATS, paid, returns, copied=False)["players"]:
        for key in ("alpha_rank", "nash", "skill"):
            assert row[key]["low"] - 1e-9 <= row[key]["mean"] <= row[key]["high"] + 1e-9
    found = standings(SEATS, paid, returns, copied=True)
    assert found["resamples"] == 0 and found["seats"]["low"] is None
    for row in found["players"]:
        assert {row[key]["low"] for key in ("alpha_rank", "nash", "skill", "rating")} == {None}


@pytest.mark.long
def test_a_name_is_one_player_wherever_it_stands_in_the_lists_of_the_seats() -> None:
    strength = {"weak": 0.0, "middle": 1.0, "strong": 3.0}
    seats = {"x": ("weak", "middle", "strong"), "o": ("strong", "weak", "middle")}
    margin = np.array([[strength[a] - strength[b] for b in seats["o"]] for a in seats["x"]])
    paid = [sign * margin[:, :, None] * np.ones(10) for sign in (1, -1)]
    returns = {
        (a, b): {
            agent: {(f"test/{n}", n, 0): sign * (strength[a] - strength[b]) for n in range(10)}
            for agent, sign in (("x", 1), ("o", -1))
        }
        for a in seats["x"]
        for b in seats["o"]
    }
    found = standings(seats, paid, returns, copied=False)["players"]
    assert [row["name"] for row in found] == ["strong", "middle", "weak"]
    assert [row["skill"]["mean"] for row in found] == pytest.approx([0.0, -2.0, -3.0])
    assert [row["nash"]["mean"] for row in found] == pytest.approx([1.0, 0.0, 0.0])
    points = [row["rating"]["mean"] for row in found]
    assert points == sorted(points, reverse=True) and points[0] > points[1] > points[2]


def test_returns_that_differ_by_rounding_are_a_tie_in_a_rating() -> None:
    pay = {("a", "b"): (0.1 + 0.2, 0.3), ("b", "a"): (0.3, 0.1 + 0.2)}
    seats = {"x": ("a", "b"), "o": ("a", "b")}
    tables = [np.full((2, 2, 4), 0.3), np.full((2, 2, 4), 0.3)]
    plays = [("test/0", n, 0) for n in range(4)]
    returns = {
        names: {agent: dict.fromkeys(plays, value) for agent, value in zip("xo", paid, strict=True)}
        for names, paid in pay.items()
    }
    rated = standings(seats, tables, returns, copied=False)["players"]
    assert [row["rating"]["mean"] for row in rated] == [0.0, 0.0]


def test_conventions_that_meet_nobody_elses_have_a_gap_between_self_play_and_cross_play() -> None:
    seats = {"x": ("left", "right", "middle"), "o": ("middle", "left", "right")}
    luck = np.arange(12.0)
    alike = np.array([[float(a == b) for b in seats["o"]] for a in seats["x"]])
    paid = [alike[:, :, None] * 3 + luck, alike[:, :, None] * 1 + luck]
    found = standings(seats, paid, {}, copied=False)
    means = {key: one["mean"] for key, one in found["cross_play"].items()}
    # what both seats are paid, in the mean; the luck of a start is in both
    assert means == pytest.approx({"self": 5.5 + 2, "cross": 5.5, "gap": 2})
    gap = found["cross_play"]["gap"]
    assert gap["low"] == pytest.approx(2) and gap["high"] == pytest.approx(2)
    assert "with others (cross-play) 5.500" in seats_text(found)
    copied = standings(seats, paid, {}, copied=True)["cross_play"]["gap"]
    assert copied["low"] is None and copied["method"] == "deterministic: 1 play"
    zero_sum = standings(seats, [paid[0], -paid[0]], {}, copied=False)
    assert zero_sum["cross_play"] is None and "cross-play" not in seats_text(zero_sum)


def test_seats_with_players_of_their_own_are_populations_of_their_own() -> None:
    pennies = np.array([[1.0, -1.0], [-1.0, 1.0]])[:, :, None] * np.ones(20)
    seats = {"x": ("heads", "tails"), "o": ("left", "right")}
    found = standings(seats, [pennies, -pennies], {}, copied=False)
    assert [(row["agent"], row["name"]) for row in found["players"]] == [
        (agent, name) for agent, names in seats.items() for name in names
    ]
    assert all(row["alpha_rank"]["mean"] == pytest.approx(0.5) for row in found["players"])
    # x gains by tails whatever o does, and o nothing by anything
    gains = np.array([[0.0, 0.0], [1.0, 1.0]])[:, :, None] * np.ones(20)
    better = standings(seats, [gains, 0 * gains], {}, copied=False)["players"]
    assert [row["alpha_rank"]["mean"] for row in better] == pytest.approx([0.01, 0.99, 0.5, 0.5])
    assert found["seats"] is None and seats_text(found) == ""
    assert standing_rows(found)[1] == ["seat", "player", "alpha-rank"]
