"""Fork from here: a recorded play goes on otherwise from an action that somebody types."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from gem_ma import open_run
from gem_ma.pages.live.answers import Answer
from gem_ma.pages.live.site import Site
from gem_ma.runs.store import read_episodes
from tests.browser import Browser
from tests.command_line import gem_ma
from tests.served import served

# three turns or more, so that there is something before and behind a fork
NIM = ("run", "guess_number", "-n", 3, "--quiet")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("forks")
    played = gem_ma(*NIM, "--out", "runs/one", cwd=home)
    assert played.returncode == 0, played.stderr
    return home


@pytest.fixture
def runs(home: Path, tmp_path: Path) -> Path:
    """A copy, since a fork adds a file."""
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    for file in (home / "runs" / "one").iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    return tmp_path / "runs"


def longest(runs: Path) -> Any:
    return max(read_episodes(runs / "one"), key=lambda one: len(one.turns))


def fork(site: Site, key: str, step: int, agent: str, text: str, **more: Any) -> Answer:
    wish = {"key": key, "step": step, "agent": agent, "text": text, **more}
    return site.change("/run/one/fork", wish)


def whole(site: Site, answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.body
    found = site.answer("/run/one/episode", {"key": json.loads(answer.body)["key"]})
    return dict(json.loads(found.body))


def test_a_fork_keeps_what_was_and_goes_on_from_what_is_typed(runs: Path) -> None:
    episode, site = longest(runs), Site(runs)
    before = {file: file.read_bytes() for file in (runs / "one").iterdir()}
    last = episode.turns[-1]
    other = next(move for move in last.legal if move != last.action.parsed)
    key = "~".join(map(str, episode.id))
    made = whole(site, fork(site, key, last.step, last.agent, other))
    assert made["error"] is None and made["fork"]["of"] == key
    said = [turn["text"] for turn in made["turns"]]
    assert said[: len(episode.turns) - 1] == [turn.action.text for turn in episode.turns[:-1]]
    assert said[len(episode.turns) - 1] == other
    # the record stays as it was; the fork lies beside it, and is there again
    assert {file: file.read_bytes() for file in before} == before
    again = Site(runs)
    listed = json.loads(
        again.answer("/run/one", {}).body.decode().split('id="data">')[1].split("</")[0]
    )
    (kept,) = [one for one in listed["runs"][0]["episodes"] if "fork" in one]
    assert kept["key"] == made["key"]
    # a fork of a fork goes back to what was typed, too
    deeper = made["turns"][-1]
    twice = whole(again, fork(again, made["key"], deeper["step"], deeper["agent"], deeper["text"]))
    assert twice["error"] is None
    assert [turn["text"] for turn in twice["turns"]][: len(said)] == said


def test_no_count_of_a_run_holds_its_forks(runs: Path, tmp_path: Path) -> None:
    """Neither the page's head, tables and list, nor any command, export or frame."""
    site, folder = Site(runs), runs / "one"
    plays = len(list(read_episodes(folder)))

    copytree(folder, runs / "other")

    def told() -> list[Any]:
        pair = ("compare", folder, runs / "other")
        asked = [("show", folder), ("score", folder), ("list", "runs"), pair]
        said = [gem_ma(*map(str, words), cwd=runs.parent) for words in asked]
        made = gem_ma("export", str(folder), "--to", "jsonl", "-o", "x.jsonl", cwd=tmp_path)
        page = gem_ma("report", str(folder), "-o", "page.html", cwd=tmp_path)
        assert not [one.stderr for one in (*said, made, page) if one.returncode]
        files = [(tmp_path / name).read_bytes() for name in ("x.jsonl", "page.html")]
        (tmp_path / "x.jsonl").unlink()
        return [*(one.stdout for one in said), *files, len(list(open_run(folder).episodes()))]

    def page() -> str:
        body = site.answer("/run/one", {}).body.decode()
        assert len(json.loads(body.split('id="data">')[1].split("</")[0])["runs"][0]["episodes"])
        return body.split('<script type="application/json"')[0]

    before, head = told(), page()
    episode = longest(runs)
    for turn in episode.turns[:2]:
        made = fork(site, "~".join(map(str, episode.id)), turn.step, turn.agent, "no such move")
        stub = json.loads(made.body)
        assert stub["kinds"] == ["fork"] and stub["causes"] == []
    assert told() == before and page() == head
    # what the viewer has read since is counted by its plays alone
    since = json.loads(site.answer("/run/one/since", {"from": "1"}).body)["episodes"]
    assert len(since) == plays - 1 and not any("fork" in one for one in since)


def test_whoever_is_chosen_plays_on(runs: Path) -> None:
    episode, site = longest(runs), Site(runs)
    first, key = episode.turns[0], "~".join(map(str, episode.id))
    seat = {first.agent: "random_legal"}
    made = whole(site, fork(site, key, 0, first.agent, first.legal[0], who=seat))
    assert made["error"] is None and made["agents"][0]["plays"] == "random_legal"


@pytest.mark.parametrize(
    ("wish", "status", "words"),
    [
        ({"key": "x"}, 409, "no such episode"),
        ({"step": 99}, 409, "did nothing at step 99"),
        ({"agent": "nobody"}, 409, "did nothing"),
        ({"step": "x"}, 400, "missing or wrong"),
        ({"who": {"nobody": "silent"}}, 409, "no agent is called"),
        ({"who": {"AGENT": "os:system"}}, 409, "no behaviour that is built in"),
        ({"who": {"AGENT": "evil.py"}}, 409, "no behaviour that is built in"),
        ({"who": {"AGENT": "direct"}}, 409, "needs a model"),
        ({"who": ["x"]}, 400, "missing or wrong"),
    ],
)
def test_what_cannot_be_forked_is_told(
    runs: Path, wish: dict[str, Any], status: int, words: str
) -> None:
    episode, site = longest(runs), Site(runs)
    turn = episode.turns[0]
    wish = json.loads(json.dumps(wish).replace("AGENT", turn.agent))
    asked = {"key": "~".join(map(str, episode.id)), "step": 0, "agent": turn.agent, "text": "x"}
    answer = site.change("/run/one/fork", {**asked, **wish})
    assert (answer.status, words in answer.body.decode()) == (status, True), answer.body
    assert not (runs / "one" / "forks.jsonl").exists()
    for path in ("/", "/run/one", "/run/../x/fork", "/run/one/episodes.jsonl"):
        assert site.change(path, {}).status in (404, 409)


@pytest.mark.parametrize(
    "seat", ["{behaviour: evil:Spy}", "{behaviour: direct, policy: main}", "{tools: [python]}"]
)
def test_nothing_that_a_folder_names_is_run_unless_it_is_trusted(runs: Path, seat: str) -> None:
    episode = longest(runs)
    turn, file = episode.turns[0], runs / "one" / "resolved.yaml"
    text = file.read_text()
    head, _, rest = text.partition("agents:")
    lines = rest.splitlines()
    behind = next(at for at, line in enumerate(lines) if line and not line.startswith(" "))
    policies = "policies: {main: {model: openai/x, base_url: http://127.0.0.1:9}}"
    rest = "\n".join(line for line in lines[behind:] if not line.startswith("policies"))
    file.write_text(f"{head}agents: {{{turn.agent}: {seat}}}\n{policies}\n{rest}\n")
    answer = fork(Site(runs), "~".join(map(str, episode.id)), 0, turn.agent, "5")
    assert answer.status == 409, answer.body
    assert b"--trust" in answer.body or b"may not be asked" in answer.body


@pytest.mark.longest
def test_a_fork_by_keys_in_the_browser(browser: Browser, runs: Path) -> None:
    with served(Site(runs)) as port:
        browser.visit(f"http://127.0.0.1:{port}/run/one")
        browser.until("!!document.querySelector('.fork summary')")
        browser.run("document.querySelector('.fork summary').focus()")
        browser.press("Enter")
        browser.until("!!document.querySelector('.fork textarea')")
        browser.run("document.querySelector('.fork textarea').select()")
        browser.press("Tab")
        browser.run("document.querySelector('.fork textarea').select()")
        browser.type("1")
        browser.run("document.querySelector('.fork [type=submit]').focus()")
        browser.press("Enter")
        browser.until("location.hash.includes('~1000')")
        browser.until("document.querySelector('#episode').textContent.includes('a fork: ')")
        # its own chip, and none of the others counts it
        assert browser.text("#chips [aria-pressed=true]") == "fork 1"
        assert browser.text("#chips button") == "all 3"
        browser.run("document.querySelector('#chips button').click()")
        assert browser.run("document.querySelectorAll('#list li').length") == 3
        browser.run("document.querySelector('#chips [data-chip=fork]').click()")
        assert browser.text('#list [aria-current="true"] .id').startswith("fork 1, ")
        assert [one for one in browser.faults() if not one.startswith("http://127")] == []
