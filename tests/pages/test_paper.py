"""The pages on paper and without scripts: nothing stands there that does nothing, and nothing is cut."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gem_ma.kernel.types import Action, Message, Turn
from gem_ma.pages.live.answers import page_address
from gem_ma.pages.live.site import Site
from tests.browser import Browser
from tests.pages.test_browser import talk
from tests.pages.test_chosen import page_of
from tests.served import served

PAPER = 718  # pixels between the margins of A4
SEEN = "const seen = (one) => one.checkVisibility() && one.getBoundingClientRect().height > 0;"
CONTROLS = (
    f"(() => {{ {SEEN} return [...document.querySelectorAll('button, input, select, textarea')]"
    ".filter((one) => !one.closest('noscript') && !one.matches('.sort') && seen(one))"
    ".map((one) => one.outerHTML.slice(0, 80)); })()"
)
CUT = (
    f"(() => {{ {SEEN} return [...document.querySelectorAll('.result, pre, .body')].filter((one) =>"
    " seen(one) && one.scrollHeight > one.clientHeight + 2).map((one) => one.className); })()"
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("paper")
    long = Message.tool("c", "\n".join(f"line {line}" for line in range(99)))
    turns = (*talk(0, False).turns, Turn(3, "assistant", (long,), None, (), Action("x")))
    page_of(root / "one", [replace(talk(0, False), turns=turns), talk(1, True)])
    page_of(root / "two", [talk(0, True), talk(1, True)])
    return root


@pytest.fixture
def site(root: Path, browser: Browser) -> Iterator[str]:
    made = Site(root)
    with served(made) as port:
        yield f"http://127.0.0.1:{port}"
    made.close()
    browser.ask("Emulation.setEmulatedMedia", media="")
    browser.ask("Emulation.setScriptExecutionDisabled", value=False)


PAGES = ["/", "/run/one", "/play?scenario=kuhn_poker", page_address("compare", ["one", "two"])]


@pytest.mark.long
@pytest.mark.parametrize("path", PAGES)
def test_on_paper_nothing_is_to_click_and_nothing_is_cut(
    browser: Browser, site: str, path: str
) -> None:
    browser.size(PAPER)
    browser.visit(site + path)
    if path.startswith("/run"):
        browser.until("!!document.querySelector('.lanes')")
        assert browser.run(CUT) != []  # on a screen the long result scrolls
    browser.ask("Emulation.setEmulatedMedia", media="print")
    assert browser.run(CONTROLS) == [] and browser.run(CUT) == []
    wide = "[...document.querySelectorAll('body *')].filter((one) => one.getBoundingClientRect().right > innerWidth + 1)"
    assert browser.run(f"{wide}.map((one) => one.outerHTML.slice(0, 90))") == []
    # the tables and the talk are still there
    text = browser.run("document.body.innerText")
    assert re.search(
        {"/": r"one", "/run/one": r"line 98", PAGES[3]: r"Flips"}.get(path, "Play"), text
    )


@pytest.mark.long
@pytest.mark.parametrize("path", ["/run/one", "/play?scenario=kuhn_poker", "file"])
def test_without_scripts_there_is_no_control_that_does_nothing(
    browser: Browser, site: str, root: Path, path: str
) -> None:
    browser.size(1280)
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    if path == "file":
        browser.open(root / "one" / "report.html")
    else:
        browser.visit(site + path)
    assert browser.run(CONTROLS) == []
    if path.startswith("/play"):
        assert browser.run("document.querySelectorAll('noscript button').length") == 2
