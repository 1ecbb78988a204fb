"""The page in a real Chromium: clicks, search, keys, links, phone width, what it asks the
network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gem_ma
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.types import Action, Message, Reply, ToolCall, Turn
from gem_ma.pages.static.report import Section, write_report
from gem_ma.runs.store import RunFolder
from tests.browser import Browser
from tests.pages.test_chosen import JUDGE, page_of
from tests.pages.test_chosen import episode as plain
from tests.plays import recorded

RESULT = (
    '{"id": 12345678901234567890, "total": 1.0, "name": "a, {b} \\"c\\"", "id": 7, "none": {},'
    ' "list": [1e3, [ ], [2.50]]}'
)
LONG_NAME = "a_very_long_argument_name_that_nobody_would_want_to_read_at_all"
BRIEFING = "You are the customer. " * 40


def talk(task: int, won: bool, **more: Any) -> Episode:
    call = ToolCall("c", "lookup", {LONG_NAME: "W" * 60, "id": 12345678901234567890, "share": 1.0})
    drafts = (
        Reply("first draft", policy="main"),
        Reply("the judge says 3", policy="judge"),
        Reply("Hello, I lost it", policy="main"),
    )
    turns = (
        Turn(
            0,
            "user",
            (Message.system(BRIEFING), Message("Hi!", "assistant")),
            None,
            (),
            Action("Hello, I lost it"),
            drafts,
        ),
        Turn(1, "assistant", (Message("Hello, I lost it", "user"),), None, (), Action("", (call,))),
        Turn(2, "assistant", (Message.tool("c", RESULT),), None, (), Action(f"Done with {task}.")),
    )
    ledger = (Entry(2, "assistant", float(won), "outcome"), Entry(2, "a", float(won)))
    cast = {"user": Seat("user_llm", "main"), "assistant": Seat("direct"), "a": Seat("silent")}
    return (
        plain(task, won, cast=cast, turns=turns, ledger=ledger, **more)
        if "cast" in more
        else recorded(
            cast,
            turns,
            ledger,
            seed=7,
            task=f"test/{task}",
            final={"user": (Message("Bye " + "b" * 300, "assistant"),)},
        )
    )


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 talks: 153 and 20 are lost, 60 FAILED, 61 was cut and won."""
    ends = {60: End.FAILED, 61: End.MAX_STEPS}
    played = [
        (
            plain(n, n not in (20, 60), ends.get(n, End.TERMINATED))
            if n in (20, 60, 61)
            else talk(n, n != 153)
        )
        for n in range(200)
    ]
    folder = tmp_path_factory.mktemp("lost") / "run <i>1</i>"
    page_of(folder, played)
    return folder / "report.html"


def listed(browser: Browser) -> list[str]:
    return list(
        browser.run("[...document.querySelectorAll('#list .id')].map((one) => one.textContent)")
    )


def test_chips_show_what_they_count_and_each_cause_is_one(browser: Browser, lost: Path) -> None:
    browser.open(lost)
    chips = dict.fromkeys(
        browser.run("[...document.querySelectorAll('.chip')].map((one) => one.textContent)")
    )
    assert {
        "all 50",
        "lost 2",
        "failed 1",
        "cut 1",
        "blame: a 3",
        "cause: a: terminated 2",
        "cause: a: failed 1",
    } <= chips.keys()
    for chip, tasks in (
        ("lost 2", ["test/20", "test/153"]),
        ("failed 1", ["test/60"]),
        ("cut 1", ["test/61"]),
        ("cause: a: failed", ["test/60"]),
    ):
        browser.click(".chip", chip)
        assert listed(browser) == tasks and browser.text("#episode h3").startswith(tasks[0])
    browser.click(".chip", "cause: a: failed")  # again: all
    assert len(listed(browser)) == 50


@pytest.mark.parametrize(
    ("words", "tasks"),
    [
        ("lost blame", ["test/20", "test/153"]),
        ("max_steps", ["test/61"]),
        ("EngineError: gone", ["test/60"]),
        ("test/153~7~0", ["test/153"]),
        ("Done with 153.", ["test/153"]),
        ("faults 2", ["test/20", "test/153"]),
        ("no such word at all", []),
    ],
)
def test_a_search_finds_the_words_that_are_shown(
    browser: Browser, lost: Path, words: str, tasks: list[str]
) -> None:
    browser.open(lost)
    browser.press("/")
    browser.type(words)
    assert listed(browser) == tasks
    assert browser.text("#count") == f"{len(tasks)} of 50 match"


def test_every_word_of_a_list_entry_is_found_by_the_search(browser: Browser, lost: Path) -> None:
    browser.open(lost)
    buttons = "[...document.querySelectorAll('#list button')]"
    entries = browser.run(
        f"{buttons}.slice(0, 6).map((one) => [one.dataset.at, one.innerText.split(/\\s+/).join('"
        " ')])"
    )
    for at, words in entries:
        find = f"box.value = {json.dumps(words)}; box.dispatchEvent(new Event('input'));"
        browser.run(f"(() => {{ const box = document.querySelector('#words'); {find} }})()")
        assert at in browser.run(f"{buttons}.map((one) => one.dataset.at)"), words


def test_keys_go_to_the_next_lost_one_the_next_view_the_help_and_back(
    browser: Browser, lost: Path
) -> None:
    browser.open(lost)
    assert "test/20 " in browser.text("#episode h3")
    browser.press("n")
    assert "test/153 " in browser.text("#episode h3")
    browser.press("n", "n")
    assert "test/60 " in browser.text("#episode h3")  # the last of them
    browser.press("p")
    assert "test/153 " in browser.text("#episode h3")
    browser.press("v")
    assert browser.text('.bar [aria-pressed="true"]') == "What did user see?"
    browser.press("j", "k", "?")
    assert browser.run(
        "document.querySelector('#help').open"
    ) and "next lost or failed" in browser.text("#help")
    browser.press("j")
    assert "test/153 " in browser.text("#episode h3")  # nothing moves below the help
    browser.press("Escape")
    assert not browser.run("document.querySelector('#help').open")


def test_the_first_tab_skips_to_the_transcripts_and_the_list_is_one_stop(
    browser: Browser, lost: Path
) -> None:
    browser.open(lost)
    browser.press("Tab")
    assert browser.run("document.activeElement.className") == "skip"
    assert (
        browser.run(
            "[...document.querySelectorAll('#list button')].filter((one) => one.tabIndex ==="
            " 0).length"
        )
        == 1
    )
    browser.run("document.querySelector('#list [tabindex=\"0\"]').focus()")
    browser.press("ArrowDown")
    assert (
        "test/153 " in browser.text("#episode h3")
        and browser.run("document.activeElement.getAttribute('aria-current')") == "true"
    )


def test_a_link_names_an_episode_and_a_step_and_opens_both_again(
    browser: Browser, lost: Path
) -> None:
    browser.open(lost)
    browser.press("n")
    link = browser.run("location.hash")
    assert "test%2F153~7~0" in link
    browser.open(lost, link)
    assert "test/153 " in browser.text("#episode h3")
    browser.open(lost, link + "/t/2")
    assert browser.run("document.querySelector('.here').dataset.step") == "2"
    assert browser.run("document.querySelector('.here').getBoundingClientRect().top") < 400
    for other, task in (
        ("#/r/0/e/1", "test/153 "),
        ("#/r/0/e/test%2F60", "test/60 "),
        ("#/r/none/e/none", "test/20 "),
        ("#/r/%E0%A4%A/e/0", "test/20 "),
    ):
        browser.open(lost, other)  # by position as older pages wrote it, by task alone, of nothing
        assert task in browser.text("#episode h3")
    assert browser.faults() == []


def test_recorded_json_and_arguments_stand_word_for_word(browser: Browser, lost: Path) -> None:
    browser.open(lost, "#/r/0/e/test%2F153")
    assert browser.text("#episode .result.json") == RESULT
    # laid out by boxes; {} and [ ] stay in their line
    assert browser.run("document.querySelectorAll('#episode .result.json .deeper').length") == 3
    values = browser.run(
        "[...document.querySelectorAll('#episode .call dd')].map((one) => one.textContent)"
    )
    assert values == ["W" * 60, "12345678901234567890", "1.0"]
    wide = browser.run(
        "[...document.querySelectorAll('#episode .call dd')].map((one) =>"
        " one.getBoundingClientRect().width)"
    )
    assert min(wide) > 80  # a long name leaves room for the values


@pytest.mark.parametrize(
    "text",
    [
        "[" * 300 + "]" * 300,
        json.dumps({"a": [{}, [], {"b": {}}, "}{][,"], "c" * 70: '\\\\"', "d": [[1, 2], [3]]}),
        json.dumps([{"k": n} for n in range(40)], indent=3),
        '{"open": ' + "1" * 80,
        '{"a": "\\\\", "b": "' + "x" * 80 + '"}   ',
    ],
)
def test_any_result_is_shown_as_it_is(browser: Browser, tmp_path: Path, text: str) -> None:
    turn = Turn(0, "a", (Message.tool("c", text),), None, (), Action("x"))
    page_of(tmp_path / "run", [plain(0, turns=(turn,))])
    browser.open(tmp_path / "run" / "report.html")
    assert browser.text("#episode .result") == text and browser.faults() == []


def test_briefings_and_drafts_are_folded_and_say_how_much_they_hold(
    browser: Browser, lost: Path
) -> None:
    browser.open(lost, "#/r/0/e/test%2F153")
    assert browser.text("#episode .briefing summary") == "briefing, 160 words"
    assert not browser.run("document.querySelector('#episode .briefing').open")
    assert browser.text("#episode .drafts summary") == "3 replies of the model"
    browser.click("#episode .drafts summary")
    shown = browser.run("document.querySelector('#episode .drafts').innerText")
    assert "first draft" in shown and "the judge says 3" in shown


@pytest.mark.long
def test_at_phone_width_nothing_overflows_every_card_names_its_speaker_and_charts_can_be_read(
    browser: Browser, lost: Path, tmp_path: Path
) -> None:
    rows = [{"kind": "evaluation", "step": s, "sampled": {"success": s / 8}} for s in range(3)]
    rows += [{"kind": "train", "step": s, "success": s / 9} for s in range(9)]
    with RunFolder.open(
        tmp_path / "run",
        config_text="",
        resolved={"scenario": {"id": "toy"}},
        manifest={"command": "train"},
    ) as folder:
        folder.append([talk(0, True)])
        for row in rows:
            folder.log(row)
    page = write_report(
        out=tmp_path / "both.html",
        sections=[
            Section("x" * 200, runs=[lost.parent], judge=JUDGE),
            Section("y", runs=[folder.path]),
        ],
    )
    try:
        browser.size(390, 844)
        for path, fragment in ((lost, "#/r/0/e/test%2F153"), (page, "")):
            browser.open(path, fragment)
            assert browser.run("document.documentElement.scrollWidth") <= 390
        drawn = (
            "[...document.querySelectorAll('svg.chart text')].map((one) =>"
            " one.getBoundingClientRect().height)"
        )
        sizes = [height for height in browser.run(drawn) if height]
        assert sizes and min(sizes) >= 10
        # and it says that it scrolls
        assert browser.run("document.querySelectorAll('.scroll.wide').length") > 0
        browser.open(lost, "#/r/0/e/test%2F153")
        speakers = (
            "[...document.querySelectorAll('.act')].map((one) => one.querySelector('.speaker'))"
        )
        named = browser.run(f"{speakers}.map((one) => [one.textContent, one.offsetHeight > 0])")
        assert named == [["user", True], ["assistant", True], ["assistant", True]]
        cells = "[...document.querySelectorAll('.lanes .cell')]"
        empty = browser.run(
            f"{cells}.filter((one) => !one.textContent && one.offsetHeight > 0).length"
        )
        assert empty == 0
    finally:
        browser.size(1280)


@pytest.mark.long
def test_a_table_is_sorted_by_a_click_on_its_head_and_back(browser: Browser, lost: Path) -> None:
    browser.open(lost)
    # any table with numbers
    first = "document.querySelector('#part-0 .lost').previousElementSibling"
    assert browser.run(f"{first} !== null")
    column = (
        "[...document.querySelectorAll('figure')].find((one) =>"
        " one.textContent.startsWith('measures'))"
    )
    names = f"[...{column}.querySelectorAll('tbody th')].map((one) => one.textContent)"
    before = browser.run(names)
    browser.click("figure button.sort", "mean")
    down = browser.run(names)
    browser.click("figure button.sort", "mean")
    assert (
        browser.run(names) == down[::-1] and sorted(down) == sorted(before) and down != before
    ) or len(before) < 3
    browser.click("figure button.sort", "mean")
    assert browser.run(names) == before


@pytest.mark.longest
def test_a_play_of_many_agents_has_no_lane_of_a_few_letters(
    browser: Browser, tmp_path: Path
) -> None:
    gem_ma.run("network", ["scenario.agents=16"], out=tmp_path / "run", n=2)
    browser.open(write_report(tmp_path / "run"))
    browser.until("!!document.querySelector('.lanes.many .cell')")
    cells = "[...document.querySelectorAll('.lanes.many > .cell:not(.stepno):not(.pay)')]"
    assert min(browser.run(f"{cells}.map((one) => one.clientWidth)")) > 150
    # whoever is paid alike shares a row, and the list has one number a play
    assert browser.run("document.querySelectorAll('.verdict dl > div').length") < 10
    assert "a head" in browser.run("document.querySelector('#list .score').textContent")
    head = "document.querySelector('#episode h3')"
    assert "seed" in browser.run(f"{head}.title") and "seed" not in browser.run(
        f"{head}.textContent"
    )
    browser.run(
        "(() => { const one = document.querySelector('.bar select'); one.value = 'node_3';"
        " one.dispatchEvent(new Event('change')); })()"
    )
    assert browser.run("!!document.querySelector('.private') && !document.querySelector('.lanes')")
