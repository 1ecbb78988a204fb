"""Returns of many agents in few rows, on a terminal and on a page."""

import gem_ma
from gem_ma.pages.static.scores import scores
from gem_ma.scores.columns import COLUMNS
from gem_ma.scores.summary_rows import MOST_RETURNS, returns_together


def interval(mean):
    return {"mean": mean, "low": mean, "high": mean, "n": 4, "method": "t", "rate": False}


def test_agents_that_are_called_alike_share_a_row():
    returns = {f"buyer_{n}": interval(float(n)) for n in range(32)}
    returns |= {"broker": interval(2.0), "seller_0": interval(None)}
    assert returns_together(returns) == [
        ("buyer_* (32 agents)", "15.500 a head (0.000 to 31.000 by agent)"),
        ("broker", "2.000 a head (2.000 to 2.000 by agent)"),
        ("seller_0", "n/a"),
    ]


def test_of_many_groups_the_first_are_named_and_the_rest_counted():
    returns = {name: interval(1.0) for name in "abcdefghijkl"}
    rows = returns_together(returns)
    assert len(rows) == MOST_RETURNS + 1
    assert rows[-1] == ("of others", "4 more are in summary.json")


def test_a_page_of_64_agents_has_one_column_of_their_returns(tmp_path):
    run = gem_ma.run("commons", ["scenario.agents=64"], out=tmp_path / "run", n=3)
    page = str(scores({"run": dict(run)}))
    assert page.count("<th") < 20 and "(64 agents)" in page


def test_a_column_of_many_agents_has_a_line_for_those_alike():
    column = next(column for column in COLUMNS if column.key == "illegal")
    counts = {f"player_{n}": 0.0 for n in range(60)} | {f"rogue_{n}": 0.1 * n for n in range(1, 12)}
    lines = column.lines(counts)
    assert len(lines) <= 10 and lines[0] == ("player_0 and 59 more", "0.0 %")
    assert lines[-1] == ("of others", "4 more are in summary.json")
    assert len(column.lines({"ann": 0.0, "bob": 0.0})) == 2
