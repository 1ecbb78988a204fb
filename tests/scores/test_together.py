"""What the agents of a play came to together: groups, who won, welfare and equality, in a summary, on
a terminal, on a page and in comparisons."""

from __future__ import annotations

import json
import random
import statistics
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import gem_ma
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.errors import ScenarioError
from gem_ma.kernel.scenario import Scenario
from gem_ma.pages.static.scores import of_groups, scores
from gem_ma.runs.comparing import compare_runs
from gem_ma.scores.columns import COLUMNS
from gem_ma.scores.comparison import compare_cells
from gem_ma.scores.judge import Judge, heads_of, repeating
from gem_ma.scores.rows import PlayRow, table
from gem_ma.scores.stats import mean_interval
from gem_ma.scores.studies import cell_of, score_of
from gem_ma.scores.together import MOST_RETURNS, Group, equality, together, won


class Village(Scenario):
    """Roles and teams are of the deal: a seed says which agent is the wolf."""

    def __init__(self, agents: int = 5) -> None:
        self.agents = tuple(f"player_{number}" for number in range(agents))

    def role(self, episode: Episode, agent: str) -> str:
        return "wolf" if agent == self.agents[episode.seed % len(self.agents)] else "villager"

    def team(self, episode: Episode, agent: str) -> str:
        return "wolves" if self.role(episode, agent) == "wolf" else "village"


def play(seed: int, paid: list[float], end: End = End.TERMINATED, **seats: Seat) -> Episode:
    agents = [f"player_{number}" for number in range(len(paid))]
    cast = {agent: seats.get(agent, Seat("direct", "main")) for agent in agents}
    ledger = tuple(Entry(0, *pair) for pair in zip(agents, paid, strict=True))
    return Episode("toy", 1, seed, "test/0", 0, None, cast, (), (), (), {}, ledger, end)


def plays(count: int, agents: int = 5, seed: int = 3) -> list[Episode]:
    rng = random.Random(seed)
    return [play(n, [rng.choice((0.0, 1.0, 4.0)) for _ in range(agents)]) for n in range(count)]


def judge(**options: Any) -> Judge:
    return Judge.of(Village(**options))


# -- numbers of a play -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_equality_and_spread_are_what_their_formulas_say(seed: int) -> None:
    rng = random.Random(seed)
    paid = [rng.choice((0, 1, 3, 7, rng.randrange(1, 99))) for _ in range(rng.randrange(2, 65))]
    paid[0] = 5
    apart = sum(abs(x - y) for x in paid for y in paid)
    assert equality(paid) == pytest.approx(float(1 - Fraction(apart, 2 * len(paid) * sum(paid))))
    group = Group.of(range(len(paid)), [*map(float, paid)])
    assert group.agents == len(paid) and group.mean == pytest.approx(statistics.fmean(paid))
    assert group.spread == pytest.approx(statistics.pstdev(paid))


def test_equality_says_nothing_below_0_and_of_nothing() -> None:
    assert equality([5.0, -1.0]) is None and equality([-1.0, -1.0]) is None
    assert equality([0.0, 0.0]) is None and equality([0.0, 0.0, 0.0, 8.0]) == 0.25
    assert together({"a": 5.0, "b": -1.0}) == {"welfare": 4.0}
    assert together({"a": 5.0}) == {}


def test_returns_near_the_largest_number_break_nothing() -> None:
    paid = {f"player_{number}": 1.5e308 for number in range(3)}
    assert together(paid) == {"equality": pytest.approx(1.0)}
    group = Group.of(range(3), [*paid.values()])
    assert group.agents == 3 and group.mean == pytest.approx(1.5e308) and group.spread < 1e295


def test_teams_that_share_the_first_place_share_the_win() -> None:
    teams = {
        "team a": Group("3", 3.0, 0.0),
        "team b": Group("1", 3.0, 0.0),
        "team c": Group("1", 1.0, 0.0),
    }
    assert won(teams | {"role x": Group("1", 9.0, 0.0)}) == {
        "team a": 0.5,
        "team b": 0.5,
        "team c": 0.0,
    }
    assert won({"team a": Group("3", 3.0, 0.0)}) == {}
    # paid .9 each, which a mean of six says in another last digit
    sides = {"team a": range(6), "team b": range(6, 8)}
    alike = {name: Group.of(of, [0.9] * 8) for name, of in sides.items()}
    assert alike["team a"].mean != alike["team b"].mean
    assert won(alike) == {"team a": 0.5, "team b": 0.5}


# -- a summary -------------------------------------------------------------------------------------


def test_groups_have_the_intervals_of_one_number_a_play() -> None:
    played = plays(40)
    summary = judge().summarise(played)
    heads = []
    spreads = []
    for one in played:
        wolf = f"player_{one.seed % 5}"
        village = [paid for agent, paid in one.returns().items() if agent != wolf]
        heads.append(statistics.fmean(village))
        spreads.append(statistics.pstdev(village))
    row = summary["groups"]["team village"]
    for estimate, values in ((row, heads), (row["spread"], spreads)):
        wanted = mean_interval(values)
        numbers = [estimate[key] for key in ("mean", "low", "high", "n")]
        assert numbers == pytest.approx([wanted.mean, wanted.low, wanted.high, 40])
    assert row["agents"] == 4 and summary["groups"]["team wolves"]["spread"] is None
    # the role of the village has the same agents, and the policy all of them
    assert list(summary["groups"]) == ["team wolves", "team village"]
    lone = [one.returns()[f"player_{one.seed % 5}"] for one in played]
    shares = [(x > y) + (x == y) / 2 for x, y in zip(lone, heads, strict=True)]
    assert summary["won"]["team wolves"]["mean"] == pytest.approx(statistics.fmean(shares))
    assert summary["won"]["team wolves"]["rate"] is True
    equal = [value for one in played if (value := equality(one.returns().values())) is not None]
    assert summary["together"]["equality"]["mean"] == pytest.approx(statistics.fmean(equal))
    assert summary["together"]["welfare"]["n"] == 40


def test_failed_plays_are_in_no_group_and_a_single_agent_has_none() -> None:
    played = [*plays(6), play(7, [100.0] * 5, End.FAILED), play(8, [100.0] * 5, End.INTERRUPTED)]
    assert judge().summarise(played)["groups"] == judge().summarise(plays(6))["groups"]
    # a record that broke off may lack what a role is read from
    assert judge().rows(strict=True).of(played[-2]).groups == {}
    alone = Judge().summarise([play(n, [float(n)]) for n in range(4)])
    assert alone["groups"] == alone["won"] == alone["together"] == {}


def test_players_that_change_seats_have_their_own_returns() -> None:
    seats = [Seat("direct", "main"), Seat("greedy")]
    played = [
        play(
            n,
            [3.0, 1.0, 1.0][:: 1 if n % 2 else -1],
            player_0=seats[n % 2],
            player_2=seats[1 - n % 2],
        )
        for n in range(1, 9)
    ]
    groups = Judge().summarise(played)["groups"]
    assert groups["policy main"]["mean"] == 1.0 and groups["behaviour greedy"]["mean"] == 3.0


def test_what_the_rules_fix_is_not_summed_up() -> None:
    made = Village()
    made.zero_sum = True
    assert Judge.of(made).summarise(plays(9))["together"] == {}


def test_a_measure_of_the_scenario_comes_before_a_built_in_one() -> None:
    summary = Judge(measures=lambda one: {"welfare": 7.0}).summarise(plays(9))
    assert "welfare" not in summary["together"] and summary["measures"]["welfare"]["mean"] == 7.0
    cell = cell_of(
        [*map(Judge(measures=lambda one: {"equality": 7.0}).rows().of, plays(9))],
        Judge(measures=lambda one: {"equality": 7.0}),
    )
    assert set(cell.values["equality"].values()) == {7.0} and not cell.kinds.is_rate("equality")


@pytest.mark.parametrize("told", ["raises", 7])
def test_a_role_that_is_none_is_told_with_its_play(told: object) -> None:
    class Odd(Village):
        team = Scenario.team

        def role(self, episode: Episode, agent: str) -> Any:
            return told if told == 7 else 1 / 0

    with pytest.raises(ScenarioError, match=r"role\('player_0'\) of task test/0, seed 0"):
        Judge.of(Odd()).summarise(plays(1))
    # while a run is played it costs the row its verdict, and nothing else
    made = Judge.of(Odd()).rows()
    assert not made.suffices(made.of(plays(1)[0]))


def test_two_groups_that_are_paid_alike_are_two() -> None:
    silent = [play(n, [0.0] * 4, player_0=Seat("a"), player_1=Seat("a")) for n in range(6)]
    assert list(Judge().summarise(silent)["groups"]) == ["policy main", "behaviour a"]
    alone = [play(n, [0.0] * 3, player_0=Seat("a")) for n in range(6)]
    # of one agent in every play it is that agent's return
    assert list(Judge().summarise(alone)["groups"]) == ["policy main"]
    judged = Judge.of(Village())
    cell = cell_of([judged.rows().of(play(0, [200.0] * 5))], judged)
    assert "return team village" in cell.values and "return role villager" not in cell.values


def test_what_was_told_of_groups_is_repeated_without_the_scenario() -> None:
    rows = [*map(judge().rows().of, plays(9))]
    told = repeating({row.id: row for row in rows}, json.loads(json.dumps(heads_of(judge()))))
    assert told.summarise(plays(9)) == judge().summarise(plays(9))
    # a row of before there were groups is made again
    rows[0].asked &= 7
    assert not judge().rows().suffices(rows[0]) and Judge().rows().suffices(rows[0])
    assert PlayRow(1, "", "terminated", "test/0", 0, 0).all_groups() == {}


# -- tables ----------------------------------------------------------------------------------------


def of_returns(summary: dict[str, Any]) -> list[str]:
    return [what for what, _ in table(summary) if what.startswith("return ")]


def test_few_agents_have_a_row_each_and_many_have_those_of_their_groups() -> None:
    assert of_returns(judge().summarise(plays(9))) == [
        "return team wolves", "return team village", *(f"return player_{n}" for n in range(5)),
    ]  # fmt: skip
    crowd = judge(agents=64).summarise(plays(9, 64))
    assert of_returns(crowd) == ["return team wolves", "return team village", "return of an agent"]
    assert dict(table(crowd))["return of an agent"] == "that of 64 is in summary.json"
    nameless = Judge().summarise(plays(9, 64))
    assert of_returns(nameless) == ["return policy main", "return of an agent"]
    assert " a head of 64, spread " in dict(table(nameless))["return policy main"]


def test_of_many_groups_the_first_have_rows() -> None:
    class Many(Village):
        def role(self, episode: Episode, agent: str) -> str:
            return f"role {int(agent[7:]) % 12}"

        team = Scenario.team

    summary = Judge.of(Many(24)).summarise(plays(9, 24))
    assert len(summary["groups"]) == 12
    rows = of_returns(summary)
    assert len(rows) == MOST_RETURNS + 2 and rows[MOST_RETURNS:] == [
        "return of others",
        "return of an agent",
    ]
    cells = [cell_of([*map(Judge.of(Many(24)).rows().of, plays(9, 24))], Judge.of(Many(24)))] * 2
    compared = compare_cells(*cells)["scores"]
    assert len([name for name in compared if name.startswith("return ")]) == MOST_RETURNS


def test_equality_of_some_plays_says_of_how_many() -> None:
    played = [*plays(6), play(7, [1.0, 1.0, 1.0, 1.0, -1.0])]
    rows = dict(table(judge().summarise(played)))
    assert rows["equality"].endswith(" of 6") and not rows["welfare"].endswith(" of 7")


def test_a_page_of_64_agents_has_a_table_of_its_groups(tmp_path: Path) -> None:
    run = gem_ma.run("commons", ["scenario.agents=64"], out=tmp_path / "run", n=3)
    page = str(scores({"run": dict(run)}))
    assert page.count("<th") < 20 and "player_63" not in page
    groups = str(of_groups({"run": dict(run)}))
    assert "behaviour" in groups and "welfare" in groups and ">64<" in groups


@pytest.mark.long
def test_two_runs_are_compared_by_group_and_by_welfare(tmp_path: Path) -> None:
    folders = []
    for name in ("random_legal", "first_legal"):
        folders.append(tmp_path / name)
        gem_ma.run("market", [f"agents.seller_*={name}"], out=folders[-1], n=12)
    rows = compare_runs(*folders, print)["scores"]
    assert rows["return role seller"]["pairs"] == rows["welfare"]["pairs"] == 12
    assert rows["return role seller"]["p_adjusted"] is not None
    assert "return seller_0" not in rows and "spread role seller" in rows
    # an agent that is named is compared all the same
    assert list(compare_runs(*folders, print, ["return seller_0"])["scores"]) == ["return seller_0"]


def test_a_study_finds_the_scores_of_groups() -> None:
    cell = cell_of([*map(judge().rows().of, plays(20))], judge())
    for score in cell.values:
        estimate = score_of(cell.summary, score)
        assert estimate is not None, score
        assert estimate["mean"] == pytest.approx(statistics.fmean(cell.values[score].values())), (
            score
        )
    assert {"won team wolves", "equality", "spread team village", "welfare"} <= cell.values.keys()
    assert cell.kinds.is_rate("won team wolves") and not cell.kinds.is_rate("welfare")


def test_a_column_of_many_agents_has_a_line_for_those_alike() -> None:
    column = next(column for column in COLUMNS if column.key == "illegal")
    counts = {f"player_{n}": 0.0 for n in range(60)} | {f"rogue_{n}": 0.1 * n for n in range(1, 12)}
    lines = column.lines(counts)
    assert len(lines) <= 10 and lines[0] == ("player_0 and 59 more", "0.0 %")
    assert lines[-1] == ("of others", "4 more are in summary.json")
    assert len(column.lines({"ann": 0.0, "bob": 0.0})) == 2
