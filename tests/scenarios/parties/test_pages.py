"""Pages of docs/parties: their tables are what their command prints, and each has a picture."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from benchmarks.party_players import BEGIN, END, HEAD, ROWS, earned, line, table
from gem_ma.registry import builtin

ROOT = Path(__file__).resolve().parents[3]
PAGES = ROOT / "docs" / "parties"
WORLDS = [name for name, target in builtin("scenarios").items() if ".scenarios.parties." in target]
_CELL = re.compile(r"`(\w+)` (-?[\d.]+)(?: \[(-?[\d.e-]+), (-?[\d.e-]+)\])?")


def page(world):
    return (PAGES / f"{world}.md").read_text("utf-8")


def printed(world):
    _, _, rest = page(world).partition(f"{BEGIN}\n")
    return rest.partition(f"\n{END}")[0].splitlines()


def cells(text):
    """(game, background, [(mover, low, high)], verdict) of a line."""
    game, background, *movers, verdict = [part.strip() for part in text.strip("| ").split(" | ")]
    found = []
    for mover in movers:
        name, mean, low, high = _CELL.fullmatch(mover).groups()
        found.append((name, float(low or mean), float(high or mean)))
    return game, background.strip("`"), found, verdict


@pytest.mark.parametrize("world", [*WORLDS, "hanabi"])
def test_a_page_has_rules_numbers_players_and_sources(world):
    text = page(world)
    for part in ("## Rules", "## Numbers", "## Sources", f"party_players.py {world}`"):
        assert part in text, part
    assert f"parties/{world}.md" in (ROOT / "mkdocs.yml").read_text("utf-8")
    assert f"parties/{world}.md" in (ROOT / "docs" / "index.md").read_text("utf-8")
    if world != "hanabi":
        (picture,) = re.findall(r"!\[.{20,}\]\(\.\./pictures/(\w+)\.svg\)", text)
        assert picture == world and (ROOT / "docs" / "pictures" / f"{world}.svg").exists()


@pytest.mark.parametrize("world", ROWS)
def test_a_table_says_which_intervals_lie_apart(world):
    lines = printed(world)
    assert "\n".join(lines[:2]) == HEAD and len(lines) == 2 + len(ROWS[world])
    for row, text in zip(ROWS[world], lines[2:], strict=True):
        game, background, movers, verdict = cells(text)
        assert (game, background) == (row.game, row.background or "the same")
        assert tuple(name for name, _, _ in movers) == row.movers
        apart = all(low[2] < high[1] for low, high in itertools.pairwise(movers))
        assert verdict == ("yes" if apart else "no")
        if not apart:
            assert re.search(r"\bno (?:such )?order|has none of|order is turned", page(world))


@pytest.mark.parametrize(
    "world", ["bargain", "commons", "hidden_profile", "matrix", "public_goods"]
)
def test_the_tables_that_cost_little_are_what_is_printed(world):
    assert list(table(world)) == ["\n".join(printed(world)[:2]), *printed(world)[2:]]


@pytest.mark.long
@pytest.mark.parametrize(
    "world", ["auction", "market", "negotiation", "network", "twenty_questions", "werewolf"]
)
def test_the_others_too(world):
    assert list(table(world)) == ["\n".join(printed(world)[:2]), *printed(world)[2:]]


def test_the_mover_takes_each_seat_in_turn():
    row = ROWS["public_goods"][1]
    assert earned("public_goods", row, "goods_selfish") == [440.0] * row.plays
    trust = ROWS["bargain"][1]
    assert earned("bargain", trust, "bargain_fair")[:4] == [13.0, 7.0, 13.0, 7.0]
    assert line("bargain", trust) in page("bargain")
