"""Numbers beside an axis: readable and whole on a phone, whatever their size."""

from __future__ import annotations

from pathlib import Path

import pytest

from gem_ma.pages.static.figures import Curves, chart, short, ticks
from gem_ma.pages.static.page import page
from tests.browser import Browser

SPANS = [
    (low * size, high * size)
    for size in (1e-6, 1e-3, 1, 1e3, 1e5, 1e8, 1e11)
    for low, high in ((0, 1), (-1.23, 1.23), (-6, 0), (0, 9.99), (1, 2))
]


@pytest.mark.parametrize("span", SPANS, ids=str)
def test_ticks_are_short_and_tell_each_other_apart(span: tuple[float, float]) -> None:
    words = [short(tick) for tick in ticks(*span, 5)]
    assert len(set(words)) == len(words) and max(map(len, words)) <= 6


@pytest.mark.longest
def test_no_number_of_a_chart_is_cut_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    charts = [
        chart(Curves(str(span), {"line": [list(zip(span, span, strict=True))]})) for span in SPANS
    ]
    (tmp_path / "page.html").write_text(
        page("ticks", f"<main><section>{''.join(charts)}</section></main>", {"runs": []})
    )
    for width in (390, 1280):
        browser.size(width)
        browser.open(tmp_path / "page.html")
        cut = browser.run(
            "[...document.querySelectorAll('.tick')].map((one) => one.getBoundingClientRect())"
            ".filter((box) => box.left < 0 || box.right > innerWidth).length"
        )
        assert cut == 0 and browser.run("document.documentElement.scrollWidth <= innerWidth")
    browser.size(390)
    browser.picture(tmp_path / "ticks.png")
