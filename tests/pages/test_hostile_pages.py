"""Every page of the viewer and the static report in a real Chromium, with a hostile text in every
field that a model, a user, a config, data or a name on the disk controls: no dialog, no request
beyond the page's, no element or attribute of theirs, every text as it was recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest

from gem_ma.pages.live.run import Run
from gem_ma.pages.live.site import Site
from gem_ma.pages.static.notes import Note, write_note
from gem_ma.pages.static.report import write_report
from gem_ma.scores.together import MOST_RETURNS
from tests.browser import Browser
from tests.payloads import (
    PAYLOADS,
    SHOWN,
    compared_runs,
    folder_name,
    held,
    hostile_league,
    hostile_run,
    hostile_study,
)
from tests.served import served

# all that our own code makes; what else stands in a page was made of a text
OURS = """a article b body br button caption circle code dd details dialog div dl dt figcaption
    figure footer form g h1 h2 h3 head header html img input kbd label li line link main meta nav
    noscript optgroup option p path polygon polyline pre rect script section select small span strong style
    summary svg table tbody td text textarea th thead time title tr ul"""
# what is in the page now: all text but that of scripts, and everything that a text could become
LOOK = r"""(() => {
  const all = [...document.querySelectorAll("*")], texts = [];
  const walk = document.createTreeWalker(document, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    if (!["SCRIPT", "STYLE"].includes(walk.currentNode.parentNode.nodeName)) {
      texts.push(walk.currentNode.data);
    }
  }
  const bad = [];
  for (const one of all) for (const { name, value } of one.attributes) {
    const link = ["href", "src", "action", "formaction", "ping", "srcset", "data"].includes(name);
    const known = /^(#|\/|\?|data:image\/|data:,$|[\w%-]+\/report\.html$)/.test(value);
    if (/^on|srcdoc|xlink/.test(name) || (link && (!known || value.startsWith("//")))) {
      bad.push(name + "=" + value);
    }
    if (name === "style" && /url|expression|import/.test(value)) bad.push(value);
  }
  return { texts: texts.join("\n"), bad, tags: [...new Set(all.map((one) => one.localName))],
    scripts: document.scripts.length, styles: document.styleSheets.length,
    metas: document.querySelectorAll("meta").length };
})()"""
# opens each episode of the list in turn, unfolds all of it, looks; then what each agent saw
SWEEP = """(async () => {
  const seen = [];
  const until = async (done) => { while (!done()) await new Promise((on) => setTimeout(on, 1)); };
  for (const button of [...document.querySelectorAll("#list button")]) {
    button.click();
    await until(() => document.querySelector("#episode .lanes"));
    for (const fold of document.querySelectorAll("#episode details")) fold.open = true;
    if (document.querySelector("#episode .fork")) {
      await until(() => document.querySelector("#episode .fork form"));
    }
    if (document.querySelector("#episode .calls")) {
      await until(() => document.querySelector("#episode .calls pre"));
    }
    if (document.querySelector("#episode .tokens")) {
      await until(() => document.querySelector("#episode .sampled span"));
    }
    const one = [LOOK];
    for (let at = 1; at < document.querySelectorAll(".bar button").length; at++) {
      document.querySelectorAll(".bar button")[at].click();
    }
    document.querySelector(".bar button").click();
    seen.push(one[0]);
  }
  return seen;
})()""".replace("LOOK", LOOK)
_HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def printed(text: str) -> str:
    """A text as markup can hold it: NUL and its kind cannot stand there."""
    return _HIDDEN.sub("\ufffd", text)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run with all payloads, and a folder for each of their names."""
    root = tmp_path_factory.mktemp("hostile") / "runs"
    noted = hostile_run(root / folder_name(PAYLOADS[1]))
    for payload in PAYLOADS:
        note = Note(held(payload, "note"), (held(payload, "tag"),))
        write_note(noted, f"{held(payload, 'task')}~0~0", note)
    for payload in PAYLOADS[:1] + PAYLOADS[2:]:
        hostile_run(root / folder_name(payload), episodes=False)
    return root


@pytest.fixture
def site(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The viewer; of its plays each payload learned, and names the tokens that it sampled."""
    recorded = Run.episode

    def episode(run: Run, id_: Any) -> dict[str, Any]:
        return {**recorded(run, id_), "learned": [held(PAYLOADS[4], "learned")]}

    def tokens(run: Run, id_: Any, policy: str) -> dict[str, Any]:
        texts = [[held(payload, "token"), -0.5] for payload in PAYLOADS]
        turn = {"step": 0, "agent": held(policy, "seat"), "version": 1, "reward": 0.0, "return": 1}
        turns = [{**turn, "advantage": 0.5, "tokens": texts}]
        return {"turns": turns, "note": held(policy, "note")}

    monkeypatch.setattr(Run, "episode", episode)
    monkeypatch.setattr(Run, "tokens", tokens)
    # nothing is recorded that would be a config; the page asks for tokens all the same
    settings = SimpleNamespace(train=None)
    monkeypatch.setattr(Run, "config", property(lambda run: settings, lambda *_: None), False)
    # and offers forks, whose form shows moves and seats
    monkeypatch.setattr(Run, "worlds", property(lambda run: True, lambda *_: None), False)
    with served(Site(runs)) as port:
        yield f"http://127.0.0.1:{port}"


def harmless(browser: Browser, seen: dict[str, Any], site: str = "file:") -> None:
    """Nothing that was recorded became an element, a script, a dialog or a request."""
    assert seen["bad"] == []
    assert {*seen["tags"]} <= {*OURS.split()}, {*seen["tags"]} - {*OURS.split()}
    assert (seen["scripts"], seen["styles"], seen["metas"]) == (2, 1, 5)
    asked = [fault for fault in browser.faults() if not fault.startswith(site)]
    assert asked == []
    browser.events.clear()


def whole(browser: Browser, looked: list[dict[str, Any]], site: str) -> None:
    """All fields of every play stand word for word."""
    assert len(looked) == len(PAYLOADS)
    of = {
        payload: one["texts"]
        for payload in PAYLOADS
        for one in looked
        if held(payload, "said") in one["texts"]
    }
    for payload in PAYLOADS:
        gone = [field for field in SHOWN if held(payload, field) not in of[payload]]
        assert not gone, (payload, gone)
    for one in looked:
        harmless(browser, one, site)


@pytest.mark.longest
def test_the_static_report(browser: Browser, runs: Path, tmp_path: Path) -> None:
    run = runs / folder_name(PAYLOADS[1])
    page = write_report(run, tmp_path / "report.html")
    browser.open(page)
    first = browser.run(LOOK)
    harmless(browser, first)
    for payload in PAYLOADS:
        for field in ("number", "override", "its value", "model", "cause"):
            assert printed(held(payload, field)) in first["texts"], (payload, field)
    whole(browser, browser.run(SWEEP), "file:")


@pytest.mark.longest
def test_the_pages_of_the_viewer(browser: Browser, runs: Path, site: str) -> None:
    browser.visit(site)
    first = browser.run(LOOK)
    harmless(browser, first, site)
    for payload in PAYLOADS:
        assert printed(folder_name(payload)) in first["texts"], payload
        assert printed(held(payload, "model")) in first["texts"], payload
    # every link leads to the run that it names, whatever letters the name has
    links = browser.run(
        "Promise.all([...document.querySelectorAll('td a, th a')].map(async (one) =>"
        " [one.textContent, (await fetch(one.href)).status]))"
    )
    assert dict(links) == {printed(folder_name(payload)): 200 for payload in PAYLOADS}
    browser.click("th a", folder_name(PAYLOADS[1]))
    browser.until("location.pathname.startsWith('/run/') && document.readyState === 'complete'")
    browser.until("!!document.querySelector('.lanes')")
    harmless(browser, browser.run(LOOK), site)
    looked = browser.run(SWEEP)
    for payload in PAYLOADS:
        assert held(payload, "token") in looked[0]["texts"]
        assert f"tag: {held(payload, 'tag')}" in looked[0]["texts"]
    assert held(held(PAYLOADS[4], "learned"), "note") in looked[0]["texts"]
    whole(browser, looked, site)


@pytest.fixture(scope="module")
def gathered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """A viewer of two runs that can be compared, and their names."""
    root = tmp_path_factory.mktemp("gathered") / "runs"
    names = compared_runs(root)
    hostile_study(root)
    hostile_league(root)
    with served(Site(root)) as port:
        yield f"http://127.0.0.1:{port}", names


@pytest.mark.longest
def test_runs_are_compared_by_keys_alone(browser: Browser, gathered: tuple[str, list[str]]) -> None:
    site, names = gathered
    browser.visit(site)
    for name in names:
        boxes = "[...document.forms[0].elements.run]"
        box = f"{boxes}.find((one) => one.value === {json.dumps(name)})"
        browser.run(f"({box}).focus()")
        browser.press(" ")
        assert browser.run(f"({box}).checked")
    browser.press("Enter")
    browser.until("location.pathname === '/compare' && document.readyState === 'complete'")
    seen = browser.run(LOOK)
    harmless(browser, seen, site)
    for payload in PAYLOADS:
        assert printed(held(payload, "task")) in seen["texts"], payload
    # of many agents the first have a row, "other" among them; a sentence names one that has none
    told = [payload for payload in PAYLOADS if f"return {printed(payload)}" in seen["texts"]]
    assert len(told) == MOST_RETURNS
    assert all(printed(name) in seen["texts"] for name in names)
    assert held(PAYLOADS[0], "setting") in seen["texts"]
    # a flip leads to its play, whatever letters the task has
    browser.run("document.querySelector('td a[href*=\"#/r/\"]').click()")
    browser.until("!!document.querySelector('.lanes')")
    assert browser.run("location.hash.startsWith('#/r/')")


def test_curves_of_runs_are_drawn_and_saved(
    browser: Browser, gathered: tuple[str, list[str]]
) -> None:
    site, names = gathered
    fields = [("run", name) for name in names] + [("y", held(PAYLOADS[0], "number"))]
    browser.visit(f"{site}/curves?{urlencode(fields)}")
    seen = browser.run(LOOK)
    harmless(browser, seen, site)
    numbers = browser.run("[...document.querySelectorAll('option')].map((one) => one.value)")
    assert {printed(held(payload, "number")) for payload in PAYLOADS} <= {*numbers}
    # without a file on the disk: what would be saved is looked at
    browser.run("HTMLAnchorElement.prototype.click = function () { window.saved = this.href; }")
    browser.click("#png")
    browser.until("!!window.saved")
    assert browser.run("saved").startswith("data:image/png;base64,iVBOR")
    browser.size(390)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    browser.size(1280)
    # keys alone: the smoothing is chosen and drawn
    browser.run("document.querySelector('select[name=smooth]').focus()")
    browser.press("ArrowDown")
    browser.run("document.querySelector('form button').focus()")
    browser.press("Enter")
    browser.until("location.search.includes('smooth=0.5') && !!document.querySelector('.raw')")
    asked = [fault for fault in browser.faults() if not fault.startswith(site)]
    assert asked == []
    browser.events.clear()


@pytest.mark.long
def test_a_study_and_a_league_with_hostile_names(
    browser: Browser, gathered: tuple[str, list[str]]
) -> None:
    site = gathered[0]
    browser.visit(site)
    browser.click("main a", "study")
    browser.until("location.pathname.startsWith('/study/') && document.readyState === 'complete'")
    seen = browser.run(LOOK)
    harmless(browser, seen, site)
    assert browser.run("!!document.querySelector('.heatmap')")
    for payload in (*PAYLOADS[::8], *PAYLOADS[4::16]):
        assert printed(payload) in seen["texts"]
    browser.visit(site)
    browser.click("th a", "league")
    browser.until("location.pathname.startsWith('/run/') && document.readyState === 'complete'")
    browser.click("nav a", "League")
    browser.until("location.pathname.startsWith('/league/') && document.readyState === 'complete'")
    seen = browser.run(LOOK)
    harmless(browser, seen, site)
    assert browser.run("!!document.querySelector('.heatmap')")
    for payload in PAYLOADS:
        assert printed(held(payload, "player")) in seen["texts"], payload
    for width in (390, 1280):
        browser.size(width)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")


PLAY = """
from gem_ma import Ask, Scenario, Tell, Tool
from tests.payloads import PAYLOADS

class Hostile(Scenario):
    agents = ("me", "<img src=x onerror=alert(1)>")

    def play(self, rng, task):
        for text in PAYLOADS:
            yield Tell({"me": text + " @told"})
        tools = tuple(Tool(f"tool_{n}", text + " @tool", {}) for n, text in enumerate(PAYLOADS))
        yield Ask({"me": "Your word?"}, tools={"me": tools})
        yield Ask({"me": "Your move?"}, legal={"me": tuple(text + " @move" for text in PAYLOADS)})
        raise ValueError(PAYLOADS[4] + " @error")
"""


@pytest.mark.long
def test_the_page_of_a_play(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "hostile.py").write_text(PLAY)
    site = Site(tmp_path / "runs", scenario=str(tmp_path / "hostile.py"))
    wish = {"scenario": site.scenario, "agent": "me", "seed": "1", "who": {}}
    with served(site) as port:
        here = f"http://127.0.0.1:{port}"
        browser.visit(f"{here}/play/{site.plays.change(['begin'], wish)['name']}")
        browser.until("document.querySelectorAll('.tool').length > 60")
        asked = browser.run(LOOK)
        harmless(browser, asked, here)
        browser.run("document.querySelector('#turn textarea').focus()")
        browser.type(held(PAYLOADS[0], "mine"))
        browser.press("Enter")
        browser.until("document.querySelectorAll('.moves button').length > 60")
        moving = browser.run(LOOK)
        harmless(browser, moving, here)
        browser.type("1")
        browser.press("Enter")
        browser.until("!!document.querySelector('#end a')")
        ended = browser.run(LOOK)
        harmless(browser, ended, here)
    site.close()
    for payload in PAYLOADS:
        assert held(payload, "told") in asked["texts"] and held(payload, "tool") in asked["texts"]
        assert held(payload, "move") in moving["texts"]
    assert held(PAYLOADS[0], "mine") in moving["texts"]
    assert held(PAYLOADS[4], "error") in ended["texts"]


# what a text would do if it did become markup: the policy of the page stops each of these
SMUGGLED = """(async () => {
  const stopped = [];
  addEventListener("securitypolicyviolation", (event) => stopped.push(event.effectiveDirective));
  const add = (tag, more) => document.body.append(Object.assign(document.createElement(tag), more));
  document.body.insertAdjacentHTML("beforeend", "<i id=x style='color:red' onclick='hit = 1'></i>");
  document.getElementById("x").click();
  add("script", { textContent: "window.hit = 1" });
  add("img", { src: "http://127.0.0.1:9/x" });
  add("iframe", { src: "http://127.0.0.1:9/x" });
  add("link", { rel: "stylesheet", href: "http://127.0.0.1:9/x" });
  add("object", { data: "http://127.0.0.1:9/x" });
  add("form", { action: "http://127.0.0.1:9/x" });
  [...document.forms].at(-1).submit();
  add("base", { href: "http://127.0.0.1:9/" });
  await fetch("http://127.0.0.1:9/x").catch(() => 0);
  // each is told when the browser comes to it, and a busy machine takes its time
  for (let n = 0; n < 100 && new Set(stopped).size < 10; n++)
    await new Promise((on) => setTimeout(on, 100));
  return [[...new Set(stopped)].sort(), window.hit === undefined];
})()"""
STOPPED = ["base-uri", "connect-src", "form-action", "frame-src", "img-src", "object-src"]
STOPPED += ["script-src-attr", "script-src-elem", "style-src-attr", "style-src-elem"]


@pytest.mark.longest
def test_the_policy_of_a_page_stops_what_a_text_may_not_do(
    browser: Browser, runs: Path, site: str, tmp_path: Path
) -> None:
    page = write_report(runs / folder_name(PAYLOADS[1]), tmp_path / "report.html")
    for open_ in (lambda: browser.open(page), lambda: browser.visit(site)):
        open_()
        assert browser.run(SMUGGLED) == [STOPPED, True]
    browser.events.clear()


@pytest.mark.longest
def test_what_is_no_page_may_do_nothing(site: str) -> None:
    from urllib.error import HTTPError
    from urllib.request import urlopen

    with pytest.raises(HTTPError) as found:
        urlopen(site + "/run/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    headers = found.value.headers
    assert headers["content-type"].startswith("text/plain") and headers["x-content-type-options"]
    assert headers["content-security-policy"].startswith("default-src 'none'")
