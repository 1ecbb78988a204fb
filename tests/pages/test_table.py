"""The table of plays of the viewer, steps of a training in its lists, and the way from a list of 200
plays to why one was lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

import msgspec
import pytest

import gem_ma
import gem_ma.pages.live.table as table
from gem_ma.kernel.errors import ConfigError
from gem_ma.pages.live.answers import Asked
from gem_ma.pages.live.run import Run
from gem_ma.pages.live.site import Site, list_page, write_bundle
from gem_ma.pages.live.table import Columns, ordered, parsed, strange
from gem_ma.pages.static.folder import TrainingSteps, training_steps
from gem_ma.pages.static.learning import exam_intervals
from gem_ma.runs.store import index, list_runs
from gem_ma.runs.store.index import written
from gem_ma.scores.columns import Used
from gem_ma.scores.judge import Judge
from gem_ma.scores.rows import PlayRow
from tests.browser import Browser
from tests.command_line import gem_ma as gem_ma_command
from tests.pages.test_hostile_pages import served

NO_STEPS = TrainingSteps([], [], [])
# one that was lost, and one of which nothing is known
LOST: Columns = {
    "verdict": ["lost, cut", None],
    "turns": [9, None],
    "hard violations": [1.0, None],
    "cause": ["a: TRANSFER", None],
}


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("", True),
        ("verdict=lost", True),
        ("verdict=cut", True),
        ("verdict!=lost", False),
        ("verdict=won", False),
        ("turns>8 turns<=9", True),
        ("turns>8 turns<9", False),
        ('"hard violations">=1', True),
        ('cause="a: TRANSFER"', True),
        ("transfer", True),
        ("9", False),  # a word alone is sought in texts
        ("absent=1", False),
        ("absent!=1", True),
        ("turns=many", False),
        ("turns>nan", False),
    ],
)
def test_a_filter_in_words(where: str, holds: bool) -> None:
    held = [condition(LOST) for condition in parsed(where)]
    assert all(lost for lost, _ in held) is holds
    assert all(unknown for _, unknown in held) is (where in ("", "verdict!=lost", "absent!=1"))


def test_a_quote_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="spaces"):
        parsed('"hard violations>1')


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("turns>8 verdict=lost transfer", ""),
        ('"hard violation">1', "did you mean 'hard violations'?"),
        ("absent!=1", "no play has 'absent'"),
        ("turns>many", "turns is a number, and 'many' is none"),
    ],
)
def test_a_filter_that_is_held_against_nothing_is_told(where: str, told: str) -> None:
    found = strange(where, LOST)
    assert told in found and bool(found) is bool(told)


def test_nothing_is_a_number_too(tmp_path: Path) -> None:
    replies = ["policies.main.model=scripted/a", "policies.main.replies=[defect]"]
    seats = ["agents.player_0={behaviour: choices, policy: main}", "policies.main.repeat=true"]
    gem_ma.run("dilemma", [*replies, *seats], out=tmp_path / "asked", n=1)
    gem_ma.run("dilemma", out=tmp_path / "bots", n=2)
    # whose calls nobody has counted
    failed = json.loads((tmp_path / "bots" / "episodes.jsonl").read_bytes().splitlines()[0])
    seed = failed["seed"]  # more digits than a float holds, and it is no text
    failed |= {"id": ["test/0", 1, 0], "seed": 1, "end": "failed", "error": "away"}
    with (tmp_path / "bots" / "episodes.jsonl").open("a") as record:
        record.write(json.dumps(failed) + "\n")
    site = Site(tmp_path)
    for where, count in (
        ("repeat=0", 4),
        (f"seed={seed} seed>9 seed<={seed}", 2),
        (str(seed), 2),
        ('"model calls"=0', 2),
        ('"model calls">0', 1),
        ("absent=0", 0),
    ):
        asked = Asked([], {"where": where}, ["asked", "bots"])
        page = table.plays_page(site, asked).body.decode()
        assert f"{count} of 4 plays" in page
        assert ("no play has &#39;absent&#39;" in page) is (where == "absent=0")
    site.close()


@pytest.mark.parametrize("count", [None, 0, 7])
def test_tokens_that_a_server_did_not_count_are_unknown(count: int | None) -> None:
    used = {"a": [Used("main", 3, 4, None, 0), Used("main", 0, count, None, 0)]}
    sampled, read = (table.TOKENS[name] for name in ("tokens", "tokens read"))
    assert table._tokens(used, sampled) == (None if count is None else 4 + count)
    assert table._tokens(used, read) == 3 and table._tokens({}, read) == 0


def test_plays_without_a_number_come_last_in_either_order() -> None:
    columns: Columns = {"x": [2, None, 10, "b", "a"]}
    assert ordered(columns, range(5), "x") == [0, 2, 4, 3, 1]
    assert ordered(columns, [4, 2, 1, 0], "-x") == [2, 0, 4, 1]
    assert ordered(columns, [2, 0, 1], "") == ordered(columns, [2, 0, 1], "y") == [2, 0, 1]


def test_a_table_follows_its_record_and_has_what_each_run_lacks(tmp_path: Path) -> None:
    gem_ma.run("dilemma", out=tmp_path / "one", n=2)
    gem_ma.run("kuhn_poker", out=tmp_path / "two", n=1)
    site = Site(tmp_path)

    def body(*runs: str, where: str = "") -> str:
        return table.plays_page(site, Asked([], {"where": where}, [*runs])).body.decode()

    assert "2 of 2 plays" in body("one")
    gem_ma.run("dilemma", out=tmp_path / "one", n=3)
    assert "3 of 3 plays" in body("one")
    record = tmp_path / "one" / "episodes.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join(lines[:2]))
    assert "2 of 2 plays" in body("one")
    record.write_bytes(b"".join(lines))
    both = body("one", "two", where='"return player_0">=0 run=one')
    assert "3 of 4 plays" in both and both.count('href="/run/one#/r/one/e/test%2F') == 3
    of_two = body("one", "two", where="run=two")
    assert "1 of 4 plays" in of_two and 'href="/run/two#/r/two/e/test%2F0~' in of_two
    record.unlink()
    assert "episodes.jsonl" in body("one") and "of 3 plays" not in body("one")
    site.close()


GAME = """
from gem_ma import Ask, Reward, Scenario

class Game(Scenario):
    agents = ("a",)

    def play(self, rng, task):
        yield Ask({"a": "?"}, legal=("x", "y"))
        yield Reward({"a": 1.0})

    def success(self, episode):
        return episode.returns()["a"] > 0

    def measures(self, episode):
        return {"kind": 1.0}
"""


def test_a_table_says_what_the_page_of_the_run_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its index a play was neither won nor lost, and code that was named judged nothing."""
    monkeypatch.chdir(tmp_path)
    Path("game.py").write_text(GAME)
    Path("strict.py").write_text(GAME.replace("> 0", "> 5").replace('"kind"', '"other"'))
    gem_ma.run("game.py", {"agents.a": "first_legal"}, out="runs/own", n=2)
    gem_ma.run("kuhn_poker", out="runs/cards", n=2)

    def body(run: str, *columns: str, scenario: str | None = None) -> str:
        site = Site(Path("runs"), (run,) if scenario == "strict.py" else (), scenario=scenario)
        return table.plays_page(site, Asked([], {}, [run], columns)).body.decode()

    assert body("own", "verdict").count("<td>won</td>") == 2
    named = body("own", "verdict", "other", scenario="strict.py")
    assert named.count("<td>lost</td><td>1</td>") == 2 and ">kind<" not in named
    # in a folder of runs the rules that are named judge those of them alone
    wanted = body("cards", "turns", "return player_0")
    assert body("cards", "turns", "return player_0", scenario="game.py") == wanted
    assert body("own", "verdict", scenario="kuhn_poker").count("<td>won</td>") == 2
    Path("runs/cards/index.jsonl").unlink()
    assert body("cards", "turns", "return player_0") == wanted and ">turns<" in wanted


def test_an_open_play_is_judged_by_the_code_that_is_named_as_its_list_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("game.py").write_text(GAME.replace("> 0", "> 5"))
    Path("lax.py").write_text(GAME.replace("1.0}", "2.0}"))
    gem_ma.run("game.py", {"agents.a": "first_legal"}, out="runs/own", n=2)
    site = Site(Path("runs"), ("own",), scenario="lax.py")
    site.answer("/run/own", {})
    (first, _) = json.loads(site.answer("/run/own/list", {}).body)["episodes"]
    opened = json.loads(site.answer("/run/own/episode", {"key": first["key"]}).body)
    assert first["kinds"] == opened["kinds"] == ["won"] and opened["measures"] == [["kind", "2"]]


HARD = ("returns", "measures", "labels")  # mappings of a row, whose keys may be anything


def test_columns_are_the_same_whatever_came_in_which_block() -> None:
    rows = [PlayRow(9, "0", "terminated", f"test/{n % 3}", n // 2, 0, True, {}) for n in range(9)]
    told: list[tuple[dict[str, Any], ...]] = [
        ({"a": 1.0, "b": 2.0}, {"turns": 5.0}, {}),
        ({"a": 3.0}, {"tokens": 7.0}, {"cause": ["x", "y"]}),
        ({"b": 0.0, "c": 1.5}, {'said "no"': 1.0}, {"cause": []}),
        ({}, {}, {}),
    ]
    for row, values in zip(rows, [*told, *told], strict=False):
        for name, value in zip(HARD, values, strict=True):
            setattr(row, name, value)
        row.tally = msgspec.Raw(b"[1,10,5,2]")
    rows[3].tally = msgspec.Raw(b"null")
    rows[5].usages = msgspec.Raw(b'{"a":[["main",3,4,null,0]]}')
    rows[6].error = "ValueError: no\nat all"
    rows[8] = PlayRow(9, "0", "", "test/9", 9, 0)
    lines = written(rows).splitlines(keepends=True)
    whole = table._Gathered()
    whole.add(msgspec.json.Decoder(table._Shown).decode_lines(b"".join(lines)))
    wanted = whole.told(NO_STEPS)
    assert wanted["return c"][2] == 1.5 and wanted['said "no"'][6] == 1 and wanted["tokens"][5] == 4
    assert wanted["tokens read"][4:6] == [0, 3]
    assert wanted["turns"] == [10, 10, 10, None, 10, 10, 10, 10, None]
    for size in (1, 2, 4, 9):
        decoder = table._Decoder()
        some = table._Gathered()
        for at in range(0, 9, size):
            some.add(decoder.rows(b"".join(lines[at : at + size])))
        assert some.ids == whole.ids and len(some) == 9
        assert some.told(NO_STEPS) == wanted


def test_a_table_of_many_blocks_has_the_last_attempts_and_believes_no_damaged_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_BLOCK", 700)
    path = tmp_path / "one"
    gem_ma.run("dilemma", out=path, n=9)
    wanted = table._gathered(path, Judge()).told(NO_STEPS)
    assert len(wanted["task"]) == 9
    # the second one once more: it stands where it stood
    record = path / "episodes.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join([*lines, lines[1]]))
    for _ in range(2):
        again = table._gathered(path, Judge()).told(NO_STEPS)
        assert [*again["seed"]] == [*wanted["seed"]] and len(again["end"]) == 9
        gem_ma.run("dilemma", out=path, n=9)  # with an index of it
    data = (path / "index.jsonl").read_bytes()
    assert data.count(b"player_0") == 10
    # a first row of another line, and damage that is met behind it, or by the digest alone
    first = re.sub(rb'\A(\[\d+,)"\w+"(.*?)player_0', rb'\1"0"\2stranger', data)
    for old in (b'"terminated"', b"player_0"):
        at = first.rindex(old)
        damaged = first[:at] + old.upper() + first[at + len(old) :]
        (path / "index.jsonl").write_bytes(damaged)
        found = table._gathered(path, Judge()).told(NO_STEPS)
        assert found["seed"] == wanted["seed"] and found["end"] == wanted["end"]
        assert b"stranger" in damaged and "return stranger" not in found


# -- a training ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("trained") / "runs"
    settings = ["train.steps=12", "train.episodes=4", "evaluate.every=null", "evaluate.episodes=2"]
    gem_ma.train("referential_table", settings, out=root / "t")
    return root


@pytest.mark.long
def test_a_play_of_a_training_says_its_step_and_its_weights(trained: Path) -> None:
    run = Run(trained / "t")
    run.index.refresh()
    run.load("t", run.path, run.judge, run.learned, 0)
    for entry in run.index:
        stub = run.list.stub(entry)
        played = run.index.episode(entry.id)
        (version,) = {reply.version for turn in played.turns for reply in turn.replies}
        assert stub["weights"] == f"v{version}"
    found = [run.list.found("", [f"step={step}"], 0)["matching"] for step in (1, 11, 12, 13)]
    assert found == [4, 4, 4, 0]


@pytest.mark.long
def test_steps_are_not_told_where_rows_and_plays_do_not_agree(trained: Path) -> None:
    assert training_steps(trained / "t", 48, has_ended=True).of(47)["step"] == "12"
    assert training_steps(trained / "t", 47, has_ended=True).ends == []
    going = training_steps(trained / "t", 50, has_ended=False)
    assert going.of(47)["step"] == "12" and going.of(48) == {}


# -- tags, and a bundle ----------------------------------------------------------------------------


def test_a_tag_is_found_by_lists_and_changes_no_run(tmp_path: Path) -> None:
    tagged = ("run", "dilemma", "-n", "2", "--quiet", "--tag", "pilot", "--tag", "a, b", "--out")
    assert gem_ma_command(*tagged, "runs/one", cwd=tmp_path).returncode == 0
    (one,) = list_runs(tmp_path / "runs")
    assert one["tags"] == ["pilot", "a, b"]
    assert "finished, pilot, a, b" in gem_ma_command("list", "runs", cwd=tmp_path).stdout
    assert "<td>pilot, a, b</td>" in list_page(tmp_path / "runs")
    # another tag is the same run, which goes on and has both
    again = gem_ma_command(*tagged[:5], "--tag", "other", "--out", "runs/one", cwd=tmp_path)
    assert again.returncode == 0
    assert list_runs(tmp_path / "runs")[0]["tags"] == ["pilot", "a, b", "other"]
    resumed = gem_ma_command(*tagged, "runs/one", cwd=tmp_path)
    assert resumed.returncode == 0
    assert list_runs(tmp_path / "runs")[0]["tags"] == ["pilot", "a, b", "other"]
    # the manifest may come from anybody
    file = tmp_path / "runs" / "one" / "manifest.json"
    for damaged, read in (("null", []), ("{}", []), ("[1, null]", ["1", "None"])):
        file.write_text(
            re.sub(r'"tags": \[[^]]*\]', f'"tags": {damaged}', file.read_text(), count=1)
        )
        assert list_runs(tmp_path / "runs")[0]["tags"] == read
        file.write_text(file.read_text().replace(f'"tags": {damaged}', '"tags": []'))


def test_a_bundle_is_a_folder_of_pages_that_lead_to_each_other(tmp_path: Path) -> None:
    gem_ma.run("dilemma", out=tmp_path / "runs" / "a #1", n=2)
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "manifest.json").write_text("{")
    for name in ("lost", "odd"):
        (tmp_path / "runs" / name).mkdir()
        (tmp_path / "runs" / name / "study.json").write_text("{" if name == "lost" else "{}")
    said: list[str] = []
    index = write_bundle(tmp_path / "runs", tmp_path / "out", said.append)
    page = index.read_text()
    (to,) = re.findall(r'<a href="(\./[^"]*)"', page)
    assert (tmp_path / "out" / unquote(to)).is_file() and "<form" not in page
    assert "manifest.json" in page and any("manifest.json" in line for line in said)
    # neither does a broken study keep the others from being shown
    assert sum("study.json" in line for line in said) == 2
    with pytest.raises(ConfigError, match="lies in"):
        write_bundle(tmp_path / "runs", tmp_path / "runs" / "out", said.append)


def test_more_plays_than_memory_holds_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gem_ma.run("dilemma", out=tmp_path / "one", n=3)
    site = Site(tmp_path)
    for most, is_refused in ((2, True), (3, False)):
        monkeypatch.setattr(table, "MOST_PLAYS", most)
        page = table.plays_page(site, Asked([], {}, ["one"])).body.decode()
        assert ("more than 2 plays; choose fewer" in page) is is_refused
    site.close()


def test_intervals_of_exams_may_be_anything(tmp_path: Path) -> None:
    held = {"success": [0.1, 0.2], "a": [None, 1], "b": [1], "c": "12", "d": [True, 1], "e": {}}
    rows: list[dict[str, object]] = [
        {"step": 1, "eval": {"success": 0.1, "intervals": held, "return": 5}},
        {"step": 1, "eval": {"return": {"x": 1}, "intervals": {"return x": [0, 1]}}},
        {"step": None, "eval": {"intervals": {"success": [0, 1]}}},
        {"step": 2, "eval": {"intervals": [["success", 1]]}},
        {"step": 2, "eval": [1]},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert exam_intervals(tmp_path) == {
        "eval/success": {1.0: (0.1, 0.2)},
        "eval/return/x": {1.0: (0, 1)},
    }


# -- in a browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("lost") / "runs"
    hasty = ["agents.assistant=retail_transfers_early"]
    gem_ma.run("retail_scripted", hasty, out=root / "hasty", n=200)
    with served(Site(root)) as port:
        yield f"http://127.0.0.1:{port}/"


@pytest.mark.longest
def test_the_table_filters_sorts_and_leads_to_a_play(browser: Browser, site: str) -> None:
    fields = {"run": "hasty", "where": "verdict=lost turns>4", "sort": "-turns", "column": "turns"}
    browser.visit(f"{site}plays?{urlencode(fields)}")
    turns = browser.run("[...document.querySelectorAll('tbody td')].map((one) => +one.textContent)")
    assert len(turns) > 20 and turns == sorted(turns, reverse=True) and turns[-1] > 4
    heads = browser.run("[...document.querySelectorAll('thead th')].map((one) => one.textContent)")
    assert heads == ["play", "turns"]
    browser.click("tbody th a")
    browser.until("document.querySelector('.verdict')?.textContent.includes('lost at step')")
    browser.visit(site + "plays?run=hasty&where=%22never")
    assert "spaces" in browser.text(".warn")
