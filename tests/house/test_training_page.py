"""docs/training.md: every command is one that training takes, and the table of estimators is the
registry's."""

import re
from pathlib import Path

from gem_ma.credit.estimators import ESTIMATORS, columns

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "training.md").read_text(encoding="utf-8")


def test_the_table_of_estimators_is_the_registry() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.splitlines()
        if line.startswith("| `") and line.count("|") == 9
    ]
    table = {row[0].strip("`"): row[2:] for row in rows}
    assert list(table) == list(ESTIMATORS)
    where = {
        "ret": "turns",
        "reward": "turns",
        "rows": "turns",
        "gae": "turns",
        "total": "episodes",
        "": "",
    }
    words = {True: "yes", False: "no"}
    for name, found in ESTIMATORS.items():
        key, options, zero, offset, scale, unbiased = table[name]
        assert key == (", ".join(columns(found.key)) or "none"), name
        assert options.strip("`") == ", ".join(found.options), name
        assert zero == where[found.centred], name
        assert (offset, scale, unbiased) == (
            words[found.offset],
            words[found.scale],
            words[found.unbiased],
        ), name
    loud = re.search(r"exact zeros, except under ([^.]+)\.", PAGE)
    assert loud is not None and re.findall(r"`(\w+)`", loud[1]) == [
        name for name, found in ESTIMATORS.items() if not found.silent and not found.critic
    ]
