"""Every page of the viewer, and the static report, by axe-core in a real Chromium: no serious and no
critical finding, light and dark. The script of axe-core comes with a package of the dev extra."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gem_ma.kernel.episode import End
from gem_ma.kernel.types import Action, Message, Turn
from gem_ma.pages.live.site import Site
from gem_ma.pages.static.notes import EXPLAINED, Note, add_row, write_note
from gem_ma.runs.store import read_episodes
from tests.browser import Browser
from tests.command_line import gem_ma
from tests.hostile import STUDY
from tests.pages.test_browser import talk
from tests.pages.test_chosen import episode as plain
from tests.pages.test_chosen import page_of
from tests.pages.test_why import agents_row, decisive, messages_row, turns_row
from tests.served import served

# either: the second brings a newer one, and playwright, which nothing here needs
PACKAGES = ("axe_core_python", "axe_playwright_python")
# unfolds everything, so that what is folded is looked at, too
RUN = """(async (rules) => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
  await new Promise((on) => setTimeout(on, 50));
  const only = rules ? { runOnly: { type: "rule", values: rules } } : {};
  const { violations } = await axe.run({ resultTypes: ["violations"], ...only });
  return violations.filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => one.id + ": " + one.help + ": " + one.nodes.slice(0, 3).map((node) =>
      node.target + " " + node.html.slice(0, 120)).join(" | "));
})"""
LINKS = "[...document.querySelectorAll('a[href^=\"/\"]')].map((one) => one.pathname + one.search)"
MOST_PAGES = 30


def script() -> str | None:
    """axe-core, where a package has it."""
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            return (Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8")
    return None


AXE = script()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with notes and a fork, a training, and a study, with their static pages."""
    home = tmp_path_factory.mktemp("accessible")
    (home / "study.yaml").write_text(STUDY)
    small = ("train.steps=1", "train.episodes=8", "evaluate.episodes=4")
    for words in (
        ("run", "guess_number", "-n", 1, "--out", "runs/one"),
        ("train", "referential_table", *small, "--out", "runs/two"),
        ("study", "study.yaml", "--out", "runs/three"),
    ):
        done = gem_ma(*words, "--quiet", cwd=home)
        assert done.returncode == 0, done.stderr
    # tools, drafts, a result that scrolls, a lost and a failed play
    long = Message.tool("c", "\n".join(f"line {line}" for line in range(99)))
    turns = (*talk(0, False).turns, Turn(3, "assistant", (long,), None, (), Action("x")))
    talks = [replace(talk(0, False), turns=turns), plain(1, False, End.FAILED), talk(2, True)]
    page_of(home / "runs" / "four", talks)
    for row in (turns_row("view"), decisive(), messages_row(), agents_row()):
        add_row(home / "runs" / "four" / EXPLAINED, {**row, "episode": list(talks[0].id)})
    episode = next(iter(read_episodes(home / "runs" / "one")))
    key = "~".join(map(str, episode.id))
    write_note(home / "runs" / "one", key, Note("look again", ("odd",)))
    turn = episode.turns[0]
    wish = {"key": key, "step": 0, "agent": turn.agent, "text": turn.legal[0]}
    assert Site(home / "runs").change("/run/one/fork", wish).status == 200
    return home


def faults(browser: Browser) -> list[str]:
    """What axe finds on the open page; in the dark only colours are others."""
    assert AXE, "axe-core is missing; it comes with the dev extra"
    browser.run(f"{AXE}; 0")
    browser.scheme("light")
    light = browser.run(f"{RUN}(null)")
    browser.scheme("dark")
    dark = browser.run(f"{RUN}(['color-contrast', 'link-in-text-block'])")
    browser.scheme("light")
    return [*light, *(f"dark: {fault}" for fault in dark)]


@pytest.mark.longest
def test_the_static_pages(browser: Browser, home: Path) -> None:
    wrong: dict[str, Any] = {}
    for name in ("three", "four"):
        browser.open(home / "runs" / name / "report.html")
        wrong[name] = faults(browser)
    assert not any(wrong.values()), wrong


@pytest.mark.longest
def test_every_page_that_a_link_of_the_viewer_leads_to(browser: Browser, home: Path) -> None:
    site = Site(home / "runs")
    begun = {"scenario": "tic_tac_toe", "agent": "x", "seed": "1", "who": {}}
    play = f"/play/{site.plays.change(['begin'], begun)['name']}"
    wrong: dict[str, list[str]] = {}
    left = ["/", play]
    with served(site) as port:
        while left and len(wrong) < MOST_PAGES:
            path, _, query = left.pop(0).partition("?")
            # the same parts stand in other pages; a picture or a table alone is not a page
            known = path in wrong or path.startswith(("/run/three/", "/run/four", "/run/play"))
            if known or "." in path:
                continue
            browser.visit(f"http://127.0.0.1:{port}{path}?{query}")
            # a script fills the page
            if path.startswith("/run"):
                browser.until("!!document.querySelector('.lanes')")
            if browser.run("!!document.querySelector('details.calls')"):
                browser.run("document.querySelector('details.calls').open = true")
                browser.until("!!document.querySelector('.calls pre')")
            if f"{path}/".startswith("/play/"):
                browser.until("!!document.querySelector('.moves button, #cast select')")
            left += browser.run(LINKS)
            wrong[path] = faults(browser)
    site.close()
    assert {"/", "/play", play, "/run/one", "/run/two"} <= wrong.keys()
    assert not any(wrong.values()), wrong
