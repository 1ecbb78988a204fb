"""Run folders whose names are no text, or hold what no page can show: every link and box of the
viewer leads to them all the same."""

from __future__ import annotations

import json
import os
import re
import shutil
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from gem_ma.pages.live.answers import episode_address, meant, page_address, run_address
from gem_ma.pages.live.site import Site
from tests.browser import Browser
from tests.house.test_compare_page import runs as compared_runs  # noqa: F401 (a fixture)
from tests.served import served

ODD = [
    b"byte \xff",
    b"half \xe2\x82 sign",
    b"bell \x07",
    b"line \xe2\x80\xa8",
    b"100% ?#\\",
    "Läufe".encode(),
]


@pytest.fixture(scope="module")
def odd(compared_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    root = tmp_path_factory.mktemp("odd") / "runs"
    for name in ODD:
        shutil.copytree(compared_runs / "a", root / os.fsdecode(name))
    shutil.copytree(compared_runs / "b", root / "b")
    return root


def page_of(site: Site, path: str, *named: str) -> str:
    answer = site.answer(path, {}, named)
    assert answer.status == 200, answer.body
    return answer.body.decode()


@pytest.mark.long
def test_every_link_and_every_box_of_the_list_leads_to_its_run(odd: Path) -> None:
    site = Site(odd)
    listed = page_of(site, "/")
    links = [unescape(one) for one in re.findall(r'href="(/run/[^"]*)"', listed)]
    boxes = [unescape(one) for one in re.findall(r'name="run" value="([^"]*)"', listed)]
    assert len(links) == len(boxes) == len(ODD) + 1
    # as a server decodes it
    paths = [unquote(urlsplit(one).path) for one in links]
    assert all("finished" in page_of(site, path) for path in paths)
    assert {site.folder(path.split("/")[2:])[0] for path in paths} == {*odd.iterdir()}
    for box in boxes:
        assert "plays in both" in page_of(site, "/compare", "b", box) or box == "b"
        assert site.answer(unquote(run_address(box)), {}).status == 200


def test_two_names_that_arrive_alike_are_told_and_neither_is_opened(
    odd: Path, tmp_path: Path
) -> None:
    for name in (b"x\xff", b"x\xfe"):
        shutil.copytree(odd / "b", tmp_path / os.fsdecode(name))
    found = Site(tmp_path).answer(unquote(run_address(os.fsdecode(b"x\xff"))), {})
    assert found.status == 404 and b"2 folders look like this; rename one of them" in found.body


def test_a_name_that_is_there_is_never_taken_for_another() -> None:
    names = ["x?", "x\ufffd", os.fsdecode(b"x\xff")]
    assert [meant(name, names) for name in names] == names
    assert meant("y?", names) == meant("..", names) == meant("", names) == ""


def test_a_study_of_such_a_name_is_found(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"grid \xff")
    folder.mkdir()
    (folder / "study.json").write_text("{}")
    (link,) = re.findall(r'href="(/study/[^"]*)"', page_of(Site(tmp_path), "/"))
    answer = Site(tmp_path).answer(unquote(unescape(link)), {})
    assert answer.status == 200 and b"study.json: damaged" in answer.body


@pytest.mark.longest
def test_from_the_list_to_a_flip_of_such_runs_in_a_browser(browser: Browser, odd: Path) -> None:
    names = [os.fsdecode(name) for name in (ODD[0], ODD[2], ODD[4])]
    with served(Site(odd)) as port:
        here = f"http://127.0.0.1:{port}"
        for name in names:
            browser.visit(here)
            browser.run(
                f"[...document.querySelectorAll('main a')].find((one) => one.getAttribute('href') === {json.dumps(run_address(name))}).click()"
            )
            browser.until(
                "location.pathname.startsWith('/run/') && !!document.querySelector('.lanes')"
            )
            browser.visit(here + page_address("compare", [name, "b"]))
            flip = browser.run(
                "[...document.querySelectorAll('td a:not([href^=\"/run/b#\"])[href*=\"#/r/\"]')].at(-1).getAttribute('href')"
            )
            browser.visit(here + flip)
            browser.until("!!document.querySelector('.lanes')")
            # the play that the link names, not the first of the list
            place = "[...document.querySelectorAll('#list button')].findIndex"
            at = browser.run(f"{place}((one) => one.getAttribute('aria-current') === 'true')")
            assert at > 0, name
    assert episode_address(names[0], "t", 1).endswith("/e/t~1")
