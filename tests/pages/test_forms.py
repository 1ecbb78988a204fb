"""Play in the browser without scripts: forms that a browser sends by itself, and no other page."""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from gem_ma.pages.live.plays import begin_wish
from gem_ma.pages.live.site import Site
from tests.browser import Browser
from tests.driver.test_plays import SECRET, WHISPERS, Client, asked, over, record
from tests.served import served

FORM = "application/x-www-form-urlencoded"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    file = tmp_path / "whispers.py"
    file.write_text(WHISPERS)
    made = Site(tmp_path / "runs", scenario=str(file))
    yield made
    made.close()


def sent(site: Site, path: str, **fields: str) -> tuple[int, str, str]:
    answer = site.submit(path, fields)
    return answer.status, answer.to, answer.body.decode()


def look_until(browser: Browser, script: str) -> None:
    """Waits as a person does whose page says that the others play: by its link."""
    until = time.monotonic() + 60.0
    while not browser.run(script):
        assert time.monotonic() < until, script
        if browser.run("document.body?.textContent.includes('look again')"):
            browser.visit(browser.run("location.href"))
        time.sleep(0.05)


@pytest.mark.long
def test_a_whole_play_without_scripts(browser: Browser, site: Site, tmp_path: Path) -> None:
    with served(site) as port:
        here = f"http://127.0.0.1:{port}"
        browser.ask("Emulation.setScriptExecutionDisabled", value=True)
        browser.size(390)
        browser.visit(f"{here}/play?scenario={quote(str(site.scenario), safe='')}&agent=a")
        browser.click("form[method=post] button", "begin")
        look_until(browser, "document.querySelector('noscript textarea') !== null")
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        browser.run("document.querySelector('noscript textarea').focus()")
        browser.type("a <b>word</b>")
        browser.click("button", "send")
        look_until(browser, "document.querySelector('.moves button') !== null")
        assert "a <b>word</b>" in browser.text("pre") and SECRET not in browser.text("body")
        browser.click("form:has(textarea) button", "send")
        browser.until("document.querySelector('noscript .bad') !== null")
        assert "none of the moves" in browser.text("noscript .bad")
        browser.click(".moves button", "right")
        look_until(browser, "document.body?.textContent.includes('The play is over')")
        name = browser.run("location.pathname.split('/')[2]")
        browser.click("a", "the whole play")
        browser.until("location.pathname.startsWith('/run/')")
    mine = [one.action.text for one in record(tmp_path, name).turns if one.agent == "a"]
    assert mine == ["a <b>word</b>", "right"]


def test_a_form_of_another_page_does_nothing(site: Site, tmp_path: Path) -> None:
    fields = {"scenario": "tic_tac_toe", "agent": "x", "seed": "", "token": site.token}
    with served(site) as port:
        ours = f"http://127.0.0.1:{port}"
        good = {"origin": ours, "content-type": FORM}

        def begun(changed: dict[str, str | None], path: str = "/play/begin", **more: str) -> int:
            headers = {key: to for key, to in {**good, **changed}.items() if to is not None}
            asks = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            asks.request("POST", path, urlencode({**fields, **more}), headers)
            return asks.getresponse().status

        refused: list[dict[str, str | None]] = [
            {"origin": None},
            {"origin": "null"},
            {"origin": "http://evil.example"},
            {"origin": f"http://127.0.0.1:{port + 1}"},
            {"host": f"evil.example:{port}"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
            {"content-type": "text/plain"},
            {"content-type": "multipart/form-data; boundary=x"},
            {"content-type": f"{FORM}, text/plain"},
        ]
        for headers in refused:
            assert begun(headers) == 403, headers
        for token in ("", "x", site.token[:-1], site.token + "\u00e4"):
            assert begun({}, token=token) == 403
        # what scripts alone may do is none of a form's business
        assert begun({}, "/run/x/note", key="a~0~0", text="x", tags="") == 404
        assert not (tmp_path / "runs").exists()
        assert begun({}) == 303
        asks = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        asks.request("POST", "/play/begin", "&" * 2_000 + urlencode(fields), good)
        assert asks.getresponse().status == 400


def test_a_form_that_is_wrong_is_told_and_leaves_the_play(site: Site, tmp_path: Path) -> None:
    begin = {"scenario": "tic_tac_toe", "agent": "x", "seed": "3", "who.o": "first_legal"}
    for wrong, words in (
        ({"seed": "-1"}, "whole number"),
        ({"who.o": "os:system"}, "no behaviour that is built in"),
        ({"agent": "nobody"}, "no agent is called"),
        ({"scenario": "os:system"}, "is offered here"),
    ):
        status, _, page = sent(site, "/play/begin", **{**begin, **wrong})
        assert (status, words in page) == (200, True), page
    for field in ("scenario", "agent", "seed"):
        left = {key: to for key, to in begin.items() if key != field}
        assert sent(site, "/play/begin", **left)[0] == 400
    assert not (tmp_path / "runs").exists()
    # who one is oneself stands among the seats, and cannot be chosen
    status, play, _ = sent(site, "/play/begin", **begin, **{"who.x": "silent"})
    assert status == 303
    client = Client(site)
    client.until(play, asked)
    for fields, words in (
        ({"turn": "1", "move": "9"}, "no such move"),
        ({"turn": "1", "move": "-1"}, "no such move"),
        ({"turn": "2", "move": "0"}, "this turn is over already"),
        ({"turn": "7", "text": "1"}, "this turn is over already"),
        ({"turn": "1", "text": "north"}, "none of the moves"),
    ):
        status, _, page = sent(site, f"{play}/answer", **fields)
        assert status == 200 and words in page, fields
    for fields in ({}, {"turn": "x"}, {"turn": "1", "move": "x"}):
        assert sent(site, f"{play}/answer", **fields)[0] == 400, fields
    for path in ("/play", f"{play}", f"{play}/state", "/play/none/answer", f"{play}/answer/x"):
        assert sent(site, path, turn="1", move="0")[0] == 409, path
    assert client.get(f"{play}/state")["asked"]["turn"] == 1
    assert sent(site, f"{play}/answer", turn="1", move="8")[:2] == (303, play)
    assert sent(site, f"{play}/end")[:2] == (303, play)
    assert client.get(f"{play}/state")["end"]["error"]
    assert record(tmp_path, play).turns[0].action.parsed == "9"


def test_a_hostile_move_is_text_and_comes_back_as_it_is(tmp_path: Path) -> None:
    moves = ("</noscript><script>alert(1)</script>", "two  blanks", "\u202eabc", '"&amp;')
    file = tmp_path / "odd.py"
    file.write_text(
        "from gem_ma import Ask, Scenario\n\n\nclass Odd(Scenario):\n    agents = ('a',)\n\n"
        f"    def play(self, rng, task):\n        for _ in range({len(moves)}):\n"
        f"            yield Ask({{'a': 'x'}}, legal={{'a': {moves!r}}})\n"
    )
    site = Site(tmp_path / "runs", scenario=str(file))
    _, play, _ = sent(site, "/play/begin", scenario=str(file), agent="a", seed="1")
    client = Client(site)
    for turn in range(len(moves)):
        client.until(play, asked)
        page = site.answer(play, {}).body.decode()
        assert "</noscript><script>" not in page and page.count("</noscript>") == 1
        assert len(re.findall('name="move"', page)) == len(moves)
        status, _, body = sent(site, f"{play}/answer", turn=str(turn + 1), move=str(turn))
        assert status == 303, body
    client.until(play, over)
    site.close()
    assert len(record(tmp_path, play).turns) == len(moves)


@pytest.mark.long
@pytest.mark.parametrize("name", ["seed", "agent", "scenario", "who.", "token"])
def test_an_agent_may_have_the_name_of_a_field(name: str) -> None:
    chosen = {"scenario": "mine", "agent": "ann", "seed": "3"}
    fields = {f"who.{name}": " bot ", "who.ann": "other", **chosen}
    assert begin_wish(fields) == {**chosen, "who": {name: "bot"}}
