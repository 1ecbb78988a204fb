"""`gem-ma view`: the index of a file of episodes, the pages, what is refused, and a real Chromium on
them."""

import http.client
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gem_ma.cli.main import main
from gem_ma.kernel.episode import End, Episode
from gem_ma.kernel.errors import ConfigError
from gem_ma.pages.live import index as live_index
from gem_ma.pages.live import run as viewed
from gem_ma.pages.live.run import Index, id_of
from gem_ma.pages.live.site import Site
from gem_ma.pages.static.folder import MOST_JUDGED
from gem_ma.record.codec import load_episode
from gem_ma.runs.store import lines, read_episodes
from tests.browser import Browser
from tests.command_line import gem_ma
from tests.pages.test_chosen import episode as plain
from tests.pages.test_chosen import page_of
from tests.served import served

JSON, TOKEN = "application/json", "a token"
# in a text of a model; without a quote, so that it fits into a recorded line
NASTY = "<img src=x onerror=alert(1)>\u202e</script><script>alert(2)</script>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A played run, and a training of two policies."""
    home = tmp_path_factory.mktemp("viewer")
    small = ("train.steps=3", "train.episodes=16", "evaluate.episodes=8", "--quiet")
    assert not gem_ma(
        "run", "dilemma", "-n", 4, "--out", "runs/one", "--quiet", cwd=home
    ).returncode
    learned = gem_ma("train", "referential_table", *small, "--out", "runs/two", cwd=home)
    assert learned.returncode == 0, learned.stderr
    return home / "runs"


def asked(site: Site, path: str, **query: str) -> object:
    answer = site.answer(path, query)
    assert answer.status == 200, answer.body
    return json.loads(answer.body) if answer.kind == "application/json" else answer.body.decode()


@pytest.fixture
def copied(runs: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "one"
    folder.mkdir()
    for file in (runs / "one").iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_an_index_says_of_each_episode_what_its_record_says(runs: Path) -> None:
    for name in ("one", "two"):
        index = Index(runs / name)
        index.refresh()
        recorded = list(read_episodes(runs / name))
        assert [entry.id for entry in index] == [episode.id for episode in recorded]
        for entry, episode in zip(index, recorded, strict=True):
            assert (entry.end, entry.totals) == (episode.end, episode.returns())
            assert index.episode(entry.id) == episode


def test_an_index_grows_with_its_file_and_waits_for_the_end_of_a_line(copied: Path) -> None:
    file = copied / "episodes.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + lines[1][:50])
    index = Index(copied)
    index.refresh()
    assert len(index.entries) == 1
    file.write_bytes(b"".join(lines))
    index.refresh()
    assert len(index.entries) == len(lines)
    # played again: the last line counts, as for every reader
    file.write_bytes(
        b"".join([*lines, lines[0].replace(b'"end":"terminated"', b'"end":"interrupted"')])
    )
    index.refresh()
    assert len(index.entries) == len(lines) and next(iter(index)).end.value == "interrupted"
    file.write_bytes(lines[2])
    index.refresh()
    assert len(index.entries) == 1


@pytest.mark.parametrize(
    "damage",
    [b"no json", b"{}", b"[]", b'{"schema":1,"id":["a",1]}', b"\xff", b"", b'{"schema":99,"id":1}'],
)
def test_a_damaged_line_is_named_and_costs_its_episode_alone(damage: bytes, copied: Path) -> None:
    lines = (copied / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (copied / "episodes.jsonl").write_bytes(b"".join([lines[0], damage + b"\n", *lines[1:]]))
    index = Index(copied)
    index.refresh()
    index.refresh()
    assert len(index.entries) == len(lines) and len(index.damaged) == 1
    recorded = [load_episode(line) for line in lines]
    assert [index.episode(entry.id) for entry in index] == recorded
    site = Site(copied.parent)
    assert "episodes.jsonl: line 2: " in str(asked(site, "/run/one"))
    # a comparison of fewer plays than were played is none
    shutil.copytree(copied, copied.parent / "two")
    assert "episodes.jsonl" in site.answer("/compare", {}, ["one", "two"]).body.decode()
    # mended, and read anew
    (copied / "episodes.jsonl").write_bytes(b"".join(lines))
    assert "episodes.jsonl: line" not in str(asked(site, "/run/one"))


def test_a_file_full_of_damage_makes_a_page_that_can_be_read(copied: Path) -> None:
    (copied / "episodes.jsonl").write_bytes(b"no json\n" * 1_000)
    page = str(asked(Site(copied.parent), "/run/one"))
    assert page.count("episodes.jsonl: line") == 5 and "and 995 more" in page


@pytest.mark.parametrize(
    ("name", "damage", "own"),
    [
        ("summary.json", b"x\n", False),
        ("summary.json", b"[1]\n", True),
        ("summary.json", b'{"lost": 5, "step": NaN}\n', False),
        ("summary.json", b'{"lost": 5, "step": NaN}\n', True),
        ("summary.json", b"\xff\n", True),
        ("metrics.jsonl", b"[1]\n", False),
        ("metrics.jsonl", b'{"lost": 5, "step": NaN}\n', True),
        ("metrics.jsonl", b"\xff\n", False),
    ],
)
def test_a_damaged_file_takes_its_part_from_the_page_and_not_the_page(
    name: str, damage: bytes, own: bool, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`own`: the rules are a file of the run's, so that nothing but the record judges."""
    (copied / name).write_bytes(damage)
    if own:
        resolved = copied / "resolved.yaml"
        resolved.write_text(re.sub(r"\bid: \w+", "id: code.py:Game", resolved.read_text()))
    page = str(asked(Site(copied.parent), "/run/one"))
    assert main(["report", str(copied)]) == 0
    static, told = (copied / "report.html").read_text(), capsys.readouterr().err
    if name == "metrics.jsonl":
        assert "metrics.jsonl" in page and "metrics.jsonl" in static
    elif own:
        assert "summary.json" in page and "summary.json" in told


def test_a_run_whose_rules_are_not_there_is_read_once_and_its_damage_is_told(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = copied / "resolved.yaml"
    resolved.write_text(re.sub(r"\bid: \w+", "id: gone.py:Game", resolved.read_text()))
    opened: list[str] = []
    for module in (lines, live_index):
        monkeypatch.setattr(module, "open_parts", _noted(opened, module.open_parts))
    # a copy: each line is compared with its row, by the list and by who repeats verdicts
    run = Site(copied.parent).run(["one"])[0]
    run.refresh()
    assert opened.count("episodes.jsonl") == 3 and len(run.index.entries) == 4
    with (copied / "episodes.jsonl").open("ab") as file:
        file.write(b"{}\n")
    assert "gem-ma resume" in "".join(Site(copied.parent).run(["one"])[0].damage())


def _noted(opened: list[str], real: Any) -> Any:
    def noted(path: Path, *rest: Any, **more: Any) -> Any:
        opened.append(path.name)
        return real(path, *rest, **more)

    return noted


@pytest.mark.parametrize("hook", ["success", "measures", "labels"])
def test_a_play_that_its_rules_cannot_judge_is_shown_with_what_they_say(
    hook: str, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(copied.parent)
    run = site.run(["one"])[0]
    run.refresh()

    def refuse(episode: Episode) -> Any:
        raise ConfigError("no such task in this version\nand more")

    run.judge = replace(run.judge, **{hook: refuse})
    (copied / "summary.json").unlink()
    key = "~".join(map(str, next(iter(run.index)).id))
    shown = run.episode(id_of(key))
    (cause,) = shown["causes"]
    assert cause.startswith("not judged: ") and cause.endswith("no such task in this version")
    assert shown["turns"]
    assert "won" not in shown["kinds"] and "lost" not in shown["kinds"]


def test_a_page_does_not_wait_until_the_rules_have_read_millions_of_characters(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = copied / "episodes.jsonl"
    first, *others = file.read_text().splitlines()
    record = json.loads(first)
    record["turns"][0]["action"]["text"] = "x" * MOST_JUDGED
    said = sum(len(turn["action"]["text"]) for turn in record["turns"])
    file.write_text("\n".join([json.dumps(record, separators=(",", ":")), *others, ""]))
    (copied / "summary.json").unlink()
    monkeypatch.setattr(viewed, "JUDGED_BYTES", MOST_JUDGED)
    run = Site(copied.parent).run(["one"])[0]
    run.refresh()
    judged: list[Any] = []
    run.judge = replace(run.judge, success=lambda play: not judged.append(play))  # type: ignore[func-returns-value]
    loaded = run.load("one", copied, run.judge, False, 0)
    assert loaded.summary.keys() == {"ok", "failed", "excluded"}
    ids = [entry.id for entry in run.index]
    assert run.episode(ids[0])["causes"] == [
        f"not judged: {said:,} characters were said; gem-ma score RUN reads them all"
    ]
    assert not judged and run.episode(ids[1])["kinds"] and len(judged) == 1


def test_a_place_that_is_no_number_is_the_beginning(runs: Path) -> None:
    for typed in ("x", "-1", "1e3", "9" * 5_000, "\u0663", ""):
        since = Site(runs).answer("/run/one/since", {"from": typed})
        assert since.status == 200


def test_the_pages_hold_all_episodes_and_read_them_when_asked(runs: Path) -> None:
    site = Site(runs)
    listed = asked(site, "/")
    assert "/run/one" in listed and "/run/two" in listed
    page = asked(site, "/run/two")
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    (shown,) = data["runs"]
    assert len(shown["episodes"]) == 48 and "turns" not in shown["episodes"][0]
    whole = asked(site, "/run/two/episode", key=shown["episodes"][5]["key"])
    assert whole["turns"] and whole["learned"] == ["speaker", "listener"]


def test_the_page_of_a_run_with_lost_and_failed_plays_names_them(tmp_path: Path) -> None:
    ends = {1: End.FAILED, 2: End.MAX_STEPS}
    page_of(tmp_path / "lost", [plain(n, n > 3, ends.get(n, End.TERMINATED)) for n in range(9)])
    page = asked(Site(tmp_path), "/run/lost")
    assert "EngineError: gone" in page and "faults 2" in page and "cause: a: failed" in page
    assert "3 lost, 1 failed. Each opens its transcript." in page


@pytest.mark.long
def test_tokens_have_the_advantages_that_were_learned_from(runs: Path) -> None:
    from gem_ma import credit
    from gem_ma.credit import estimators

    site, recorded = Site(runs), list(read_episodes(runs / "two"))
    # the plays of the second step, by the weights of the first update
    batch = [e for e in recorded if e.turns[0].replies[0].version == 2]
    assert len(batch) == 16
    table = credit.turns(batch, "listener")
    wanted = estimators.estimate("rebn", table)[0]
    for number, episode in enumerate(batch):
        key = "~".join(map(str, episode.id))
        (turn,) = asked(site, "/run/two/tokens", key=key, policy="listener")["turns"]
        assert turn["advantage"] == pytest.approx(wanted[number])
        reply = episode.turns[1].replies[0]
        assert turn["tokens"] == [[reply.text, round(reply.logprobs[0], 5)]]


def test_only_what_a_folder_lists_is_opened(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link").symlink_to(runs / "one")
    (tmp_path / "secret").write_text("secret")
    for place in ("/run/..", "/run/../runs/one", "/run/one/..", "/run/one/manifest.json", "/x"):
        assert Site(runs).answer(place, {}).status == 404, place
    for place in ("/run/link", "/run/", "/run/link/episode"):
        assert Site(tmp_path / "other").answer(place, {}).status == 404, place
    assert Site(runs, ("two",)).answer("/run/one", {}).status == 404
    assert b"/run/one" not in Site(runs, ("two",)).answer("/", {}).body
    for key in ("", "x", "a~b~c", "a~1~2", "~~"):
        assert Site(runs).answer("/run/one/episode", {"key": key}).status == 404


# -- by a real socket ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def port(runs: Path):
    (runs / "nasty").mkdir()
    for file in (runs / "one").iterdir():
        if file.is_file():
            text = file.read_text(encoding="utf-8").replace("cooperate", NASTY)
            (runs / "nasty" / file.name).write_text(text, encoding="utf-8")
    site = Site(runs)
    site.token = TOKEN
    with served(site) as number:
        yield number


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 200),
        ("GET", {"Host": "evil.example"}, 403),
        ("GET", {"Host": "127.0.0.1"}, 403),
        ("GET", {"Origin": "http://evil.example"}, 403),
        ("GET", {"Origin": "null"}, 403),
        ("GET", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("POST", {}, 403),
        ("POST", {"Origin": "OURS"}, 403),
        ("POST", {"Origin": "OURS", "x-gem-ma-token": "TOKEN"}, 403),
        ("POST", {"Origin": "OURS", "content-type": "application/json"}, 403),
        ("POST", {"x-gem-ma-token": "TOKEN", "content-type": "application/json"}, 403),
        ("POST", {"Origin": "OURS", "x-gem-ma-token": "x", "content-type": JSON}, 403),
        ("POST", {"Origin": "null", "x-gem-ma-token": "TOKEN", "content-type": JSON}, 403),
        ("POST", {"Origin": "OURS", "x-gem-ma-token": "TOKEN", "content-type": JSON}, 400),
        ("DELETE", {}, 405),
    ],
)
def test_who_may_ask(port: int, method: str, headers: dict[str, str], status: int) -> None:
    asks = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    words = {"OURS": f"http://127.0.0.1:{port}", "TOKEN": TOKEN}
    asks.request(method, "/", headers={key: words.get(of, of) for key, of in headers.items()})
    answer = asks.getresponse()
    assert answer.status == status
    if status == 200:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert b"default-src 'none'" in answer.read()


@pytest.mark.longest
def test_the_pages_work_in_a_browser_and_show_texts_as_texts(
    browser: Browser, port: int, runs: Path
) -> None:
    site = f"http://127.0.0.1:{port}"
    browser.visit(f"{site}/run/two")
    browser.until("!!document.querySelector('.lanes')")
    assert browser.text("#chips").startswith("all 48")
    browser.run("document.querySelector('details.tokens').open = true")
    browser.until("!!document.querySelector('.sampled span')")
    assert "advantages by rebn over 16 plays" in browser.text("details.tokens")
    key = quote("~".join(map(str, next(iter(read_episodes(runs / "nasty"))).id)), safe="")
    browser.visit(f"{site}/run/nasty#/r/nasty/e/{key}")
    browser.until("!!document.querySelector('.lanes')")
    assert NASTY in browser.text("#episode")
    browser.size(390)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    elsewhere = [fault for fault in browser.faults() if not fault.startswith(site)]
    assert elsewhere == []
