"""docs/findings.md and its pictures hold what experiments/studies holds, to the digit."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from benchmarks import studies


@pytest.mark.parametrize("name", sorted(file.stem for file in studies.KEPT.glob("*.json")))
def test_the_page_and_the_picture_are_made_of_what_is_kept(name: str) -> None:
    kept = json.loads((studies.KEPT / f"{name}.json").read_text("utf-8"))
    assert len(kept["seeds"]) >= studies.STUDIES[name].seeds
    for row in kept["arms"]:
        assert all(
            len(row[number]) == len(kept["seeds"]) for number in studies.STUDIES[name].numbers
        )
    picture = (studies.PICTURES / f"study_{name}.svg").read_text("utf-8")
    assert picture == studies.picture(name, kept)
    page = studies.PAGE.read_text("utf-8")
    assert page == studies.told(page)
    assert f"pictures/study_{name}.svg" in page and f"studies.py {name}`" in page


@pytest.mark.longest
def test_a_table_of_a_study_learns_anew_to_the_digit() -> None:
    kept = json.loads((studies.KEPT / "sizes.json").read_text("utf-8"))
    arms = {(row["world"], row["arm"]): row["solved"] for row in kept["arms"]}
    # three scripts and a table that learned, in a ring of two
    for world, arm, found in islice(studies.sizes(kept["seeds"][0]), 4):
        assert round(found["solved"], 6) == arms[world, arm][0]
