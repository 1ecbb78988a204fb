"""The tables that benchmarks print, read back: one JSON of all, and two commits beside each other."""

from __future__ import annotations

import pytest

from benchmarks.compare import compared, numbers
from benchmarks.tables import known, number, ratios, tables_of

PRINTED = """left out: a row (no such module)
| what | us a turn | note |
| --- | ---: | --- |
| kernel | 5.0 | plain |
| view | 12.5 | - |
| view | 1,000.0 | **3.5** |

text | with a bar
| other | share |
|---|---:|
| x | 94.9% |
"""


def test_tables_of_what_a_benchmark_printed_are_read_with_ratios_to_their_first_row() -> None:
    first, second = tables_of(PRINTED)
    assert list(first) == ["kernel", "view", "view again"]
    assert first["view again"] == {"us a turn": "1,000.0", "note": "**3.5**"}
    assert second == {"x": {"share": "94.9%"}}
    assert ratios(first)["view"] == {"us a turn": 2.5}
    assert ratios(first)["view again"] == {"us a turn": 200.0, "note": 1.0}


@pytest.mark.parametrize("cell", ["plain", "-", "", "1 to 2", "0.4 [0.3, 0.5]", "1.2.3"])
def test_a_cell_that_is_more_than_a_number_is_none(cell: str) -> None:
    assert number(cell) is None


def test_two_commits_are_compared_in_numbers_that_both_print_in_each_round() -> None:
    table = "| what | us |\n| --- | ---: |\n| kernel | {} |\n"
    rounds = [[numbers("kernel", table.format(us)) for us in side] for side in ((4, 5), (2, 10))]
    rounds[0][0]["kernel 1", "old", "us"] = 3.0
    assert compared(*rounds) == ["| kernel 1 | kernel | us | 4.5 | 6 | 1.25 | 0.50 to 2.00 |"]


def test_a_name_that_is_no_benchmark_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        known(["kernl"], ("kernel",))
    assert error.value.code == 2
    assert capsys.readouterr().out.startswith("no benchmark is called 'kernl'; there are kernel,")
