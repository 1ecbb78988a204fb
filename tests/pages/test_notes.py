"""Notes and tags on episodes of the viewer: kept beside the record, found by chips and search."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import gem_ma
from gem_ma.pages.live.site import Site
from gem_ma.pages.static.report import write_report
from tests.browser import Browser
from tests.pages.test_chosen import episode, page_of
from tests.served import served

KEY = "test/1~7~0"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    page_of(tmp_path / "runs" / "one", [episode(number) for number in range(3)])
    return tmp_path / "runs"


def stub(site: Site) -> dict[str, Any]:
    page = site.answer("/run/one", {}).body.decode()
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    return next(one for one in data["runs"][0]["episodes"] if one["key"] == KEY)


def note(site: Site, **more: Any) -> int:
    wish = {"key": KEY, "text": " seen <b>twice</b> ", "tags": ["odd", " odd", "", "x y"], **more}
    return site.change("/run/one/note", wish).status


def test_a_note_is_kept_beside_the_record_and_the_last_one_counts(runs: Path) -> None:
    before = {file: file.read_bytes() for file in (runs / "one").iterdir() if file.is_file()}
    assert note(Site(runs), text="first") == 200 and note(Site(runs)) == 200
    assert {file: file.read_bytes() for file in before} == before
    found = stub(Site(runs))
    assert (found["note"], found["causes"]) == ("seen <b>twice</b>", ["tag: odd", "tag: x y"])
    assert note(Site(runs), text="", tags=[]) == 200
    assert (stub(Site(runs))["note"], stub(Site(runs))["causes"]) == ("", [])


def test_the_static_page_has_notes_and_tags_too(runs: Path) -> None:
    note(Site(runs))
    page = write_report(runs / "one").read_text()
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    first, second, _ = data["runs"][0]["episodes"]
    assert "note" not in first and second["note"] == "seen <b>twice</b>"
    # a chip, and no reason of the verdict
    assert second["causes"] == ["tag: odd", "tag: x y"] and second["reasons"] == []
    # a damaged file takes its part from the page, and not the page
    (runs / "one" / "notes.jsonl").write_text("x\n")
    assert "tag: odd" not in write_report(runs / "one").read_text()


@pytest.mark.parametrize(
    ("wish", "status"),
    [
        ({"key": "test/9~7~0"}, 409),
        ({"key": "x"}, 409),
        ({"text": "x" * 10_001}, 409),
        ({"tags": ["x" * 61]}, 409),
        ({"tags": [str(number) for number in range(21)]}, 409),
        ({"tags": None}, 400),
    ],
)
def test_what_is_no_note_is_refused(runs: Path, wish: dict[str, Any], status: int) -> None:
    assert note(Site(runs), **wish) == status
    assert not (runs / "one" / "notes.jsonl").exists()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("notes.jsonl", b"no json"),
        ("notes.jsonl", b"[]"),
        ("notes.jsonl", b'{"episode": 1, "text": 1}'),
        ("notes.jsonl", b"\xff"),
        ("notes.jsonl", b""),
        ("forks.jsonl", b"{}"),
        ("forks.jsonl", b"NaN"),
    ],
)
def test_a_damaged_line_beside_a_run_is_named_and_the_page_opens(
    runs: Path, line: bytes, name: str
) -> None:
    assert note(Site(runs), text="first") == 200
    path = runs / "one" / name
    before = path.read_bytes() if path.exists() else b""
    path.write_bytes(before + line + b"\n")
    site, number = Site(runs), before.count(b"\n") + 1
    answer = site.answer("/run/one", {})
    named = re.findall(rf"{name}: line (\d+): .*?</p>", answer.body.decode())
    assert answer.status == 200 and named == [str(number)]
    assert stub(site)["note"] == "first"
    # and a line that is added leaves the others as they are
    assert note(site, text="second") == 200
    assert path.read_bytes().startswith(before + line + b"\n")
    assert stub(Site(runs))["note"] == "second"
    if name == "notes.jsonl":
        assert "notes.jsonl: line 2: " in write_report(runs / "one").read_text()


@pytest.mark.parametrize("name", ["notes.jsonl", "forks.jsonl"])
def test_what_is_no_file_beside_a_run_closes_no_page_and_is_not_written(
    runs: Path, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (runs / "one" / name).symlink_to(outside)
    answer = Site(runs).answer("/run/one", {})
    assert answer.status == 200 and b"is a link" in answer.body
    assert note(Site(runs)) == (409 if name == "notes.jsonl" else 200)
    assert outside.read_text() == "mine"


@pytest.mark.parametrize("cut", [1, 2, 9, 40])
def test_a_note_whose_writer_was_stopped_closes_no_page_and_the_next_takes_its_place(
    runs: Path, cut: int
) -> None:
    path = runs / "one" / "notes.jsonl"
    assert note(Site(runs), text="first") == 200 and note(Site(runs), text="second") == 200
    path.write_bytes(path.read_bytes()[:-cut])
    # an editor takes the end of the last line away, and no letter of it
    left = ["first", "second"] if cut == 1 else ["first"]
    assert stub(Site(runs))["note"] == left[-1]
    assert note(Site(runs), text="third") == 200
    texts = [json.loads(line)["text"] for line in path.read_text().splitlines()]
    assert texts == [*left, "third"] and stub(Site(runs))["note"] == "third"


@pytest.mark.long
def test_two_viewers_that_write_at_once_lose_no_note(runs: Path) -> None:
    sites = [Site(runs), Site(runs)]

    def write(number: int) -> int:
        return note(sites[number % 2], text=str(number))

    with ThreadPoolExecutor(8) as many:
        assert set(many.map(write, range(100))) == {200}
    lines = (runs / "one" / "notes.jsonl").read_text().splitlines()
    assert sorted(int(json.loads(line)["text"]) for line in lines) == [*range(100)]


@pytest.mark.long
def test_a_note_is_written_in_the_browser_and_its_tag_is_a_chip(
    browser: Browser, runs: Path
) -> None:
    with served(Site(runs)) as port:
        browser.visit(f"http://127.0.0.1:{port}/run/one")
        browser.until("!!document.querySelector('#episode .lanes')")
        browser.run("document.querySelector('#episode details.note').open = true")
        browser.run("document.querySelector('#episode input').focus()")
        browser.type("njk <i>")
        browser.press("Enter")
        browser.until("document.querySelector('#episode [role=status]').textContent === 'kept'")
        # by its own click: the page may still scroll to where was typed
        browser.run("document.querySelector('[data-chip=\"tag: njk <i>\"]').click()")
        assert browser.text("#count") == "1 of 3 match"
        assert [one for one in browser.faults() if not one.startswith("http://127")] == []


@pytest.mark.longest
def test_what_changes_on_the_disk_is_there_when_the_page_is_loaded_again(runs: Path) -> None:
    site, path = Site(runs), runs / "one" / "notes.jsonl"
    assert note(site, text="first") == 200
    path.write_text(path.read_text() + "no json\n")
    assert b"notes.jsonl: line 2" in site.answer("/run/one", {}).body
    # mended, and with a note of another viewer
    path.write_text(path.read_text().replace("no json\n", ""))
    assert note(Site(runs), text="second") == 200
    assert b"notes.jsonl: line" not in site.answer("/run/one", {}).body
    assert stub(site)["note"] == "second"
    # another run under the same name: deleted, and played anew
    page_of(runs / "two", [episode(number) for number in range(5)])
    shutil.rmtree(runs / "one")
    assert site.answer("/run/one", {}).status == 404
    (runs / "two").rename(runs / "one")
    assert stub(site)["note"] == "" and len(site.runs[runs / "one"].index.entries) == 5


def test_a_fork_of_one_scenario_of_several_is_called_after_it(tmp_path: Path) -> None:
    config = tmp_path / "several.yaml"
    config.write_text(
        "scenarios: {k: {id: kuhn_poker, tasks: 1}, d: {id: dilemma, tasks: 1}}\n"
        "agents: {player_0: first_legal, player_1: first_legal}\nrun: {baselines: false}\n"
    )
    run = gem_ma.run(str(config), out=tmp_path / "runs/one")
    for played in run.episodes():
        turn = played.turns[0]
        wish = {"key": "~".join(map(str, played.id)), "who": {}, "text": turn.action.text}
        wish |= {"step": turn.step, "agent": turn.agent}
        forked = Site(tmp_path / "runs").change("/run/one/fork", wish)
        assert json.loads(forked.body)["id"].startswith(f"{played.world}/test/0 · fork ")
