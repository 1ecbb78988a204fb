"""Pages of docs/parties: their tables are what their command prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.party_players import BEGIN, END, ROWS, earned, line, table

ROOT = Path(__file__).resolve().parents[3]
PAGES = ROOT / "docs" / "parties"


def page(world):
    return (PAGES / f"{world}.md").read_text("utf-8")


def printed(world):
    _, _, rest = page(world).partition(f"{BEGIN}\n")
    return rest.partition(f"\n{END}")[0].splitlines()


@pytest.mark.long
@pytest.mark.parametrize("world", ["bargain", "public_goods"])
def test_the_tables_that_cost_little_are_what_is_printed(world):
    assert list(table(world)) == ["\n".join(printed(world)[:2]), *printed(world)[2:]]


@pytest.mark.longest
@pytest.mark.parametrize("world", sorted({*ROWS} - {"bargain", "public_goods", "hanabi"}))
def test_the_others_too(world):
    assert list(table(world)) == ["\n".join(printed(world)[:2]), *printed(world)[2:]]


@pytest.mark.long
def test_the_mover_takes_each_seat_in_turn():
    row = ROWS["public_goods"][1]
    assert earned("public_goods", row, "goods_selfish") == [440.0] * row.plays
    trust = ROWS["bargain"][1]
    assert earned("bargain", trust, "bargain_fair")[:4] == [13.0, 7.0, 13.0, 7.0]
    assert line("bargain", trust) in page("bargain")
