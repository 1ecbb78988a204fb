"""Why a play was lost: the sentence, the marked card and what was found by forks, in the static
page, in the viewer and at a terminal."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from gem_ma.cli.main import main
from gem_ma.kernel.episode import Entry, Episode, Seat
from gem_ma.kernel.types import Action, Malformed, Message, ToolCall, Turn
from gem_ma.pages.live.site import Site
from gem_ma.pages.static.explained import acts_of, read_explained, reasons, why_of
from gem_ma.pages.static.notes import EXPLAINED, add_row
from gem_ma.pages.static.report import write_report
from gem_ma.scores.judge import Judge
from tests.browser import Browser
from tests.pages.test_chosen import page_of
from tests.payloads import PAYLOADS
from tests.plays import recorded
from tests.served import served

LOST = 153
ID = [f"test/{LOST}", 7, 0]


def talk(task: int, won: bool) -> Episode:
    """Six acts of two agents; the ledger says whether it was won."""
    said = [Action(f"{task} says {step}") for step in range(6)]
    heard = (Message.system("Rules."), Message.tool("c", "line\n" * 99), Message("x " * 2_000, "z"))
    turns = tuple(Turn(step, "ab"[step % 2], heard, None, (), act) for step, act in enumerate(said))
    ledger = (Entry(5, "a", float(won), "outcome"),)
    cast = {"a": Seat("direct"), "b": Seat("direct")}
    return recorded(cast, turns, ledger, seed=7, task=f"test/{task}")


def success(episode: Episode) -> bool:
    return episode.returns()["a"] == 1.0


def fault(episode: Episode) -> tuple[int | None, str, str] | None:
    return None if success(episode) else (4, "a", "a <b>folded</b> the better hand")


JUDGE = Judge(success, faults=fault)


def value(step: int, mean: float | None, low: float | None, high: float | None) -> dict[str, Any]:
    return {"step": step, "agent": "ab"[step % 2], "mean": mean, "low": low, "high": high}


def turns_row(given: str = "state", scale: float = 1.0, **more: Any) -> dict[str, Any]:
    values = [
        value(0, 0.1 * scale, -0.2 * scale, 0.4 * scale),
        value(2, -0.5 * scale, -0.8 * scale, -0.2 * scale),
        value(4, None, None, None),
    ]
    return {"episode": ID, "what": "turns", "given": given, "values": values, **more}


def decisive(**more: Any) -> dict[str, Any]:
    tried = [{"step": 4, "won": 1, "plays": 8}, {"step": 2, "won": 7, "plays": 8}]
    fork = [{"step": 2, "agent": "a", "text": "a <b>better</b> word"}]
    found = {"agent": "a", "step": 2, "tried": tried, "fork": fork, **more}
    return turns_row(against="better", decisive=found)


def messages_row() -> dict[str, Any]:
    estimate = {"mean": 0.25, "low": 0.125, "high": 0.375}
    said = {"step": 1, "agent": "b", "values": {"a": estimate, "b": estimate}}
    row = {"episode": ID, "what": "messages", "given": "state", "instead": "silence"}
    return {**row, "values": [said]}


def agents_row() -> dict[str, Any]:
    values = {name: {"mean": 1.0, "low": 0.5, "high": 1.5} for name in "ab"}
    row = {"episode": ID, "what": "agents", "given": "state", "against": "random_legal"}
    return {**row, "values": values}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    page_of(tmp_path / "runs" / "one", [talk(n, n != LOST) for n in (1, LOST)], JUDGE)
    return tmp_path / "runs" / "one"


def lost_of(run: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run and its lost episode as the page's script has them."""
    html = write_report(run, judge=JUDGE).read_text("utf-8")
    data = json.loads(html.split('id="data">')[1].split("</script>")[0])["runs"][0]
    (found,) = [one for one in data["episodes"] if "lost" in one["kinds"]]
    return data, found


# -- what the page holds ---------------------------------------------------------------------------


def test_a_lost_play_alone_says_at_which_step_and_the_others_nothing(run: Path) -> None:
    data, found = lost_of(run)
    (why,) = found["why"]
    assert (why["step"], why["agent"], why["head"]) == (4, "a", "lost at step 4")
    assert why["rest"] == ": a <b>folded</b> the better hand"
    assert [("why" in one) for one in data["episodes"]] == [True, False]
    html = (run / "report.html").read_text("utf-8")
    # in the table of lost plays, too, with the way to the step
    link = f"#/r/one/e/test%2F{LOST}~7~0/t/4"
    assert f'<a href="{link}">lost at step 4</a>: a &lt;b&gt;folded&lt;/b&gt; the better' in html


@pytest.mark.parametrize(
    "said", [(9, "a", "x"), (4, "c", "x"), (4, "a"), "x", (4, "a", None), [4, "a", "x"]]
)
def test_a_fault_that_is_not_of_the_record_is_told_and_not_shown(said: Any) -> None:
    (reason,) = reasons(talk(LOST, False), lambda _: said, ())
    assert reason.step is None and not reason.mark
    assert reason.sentence.startswith("lost; why is not told: toy: fault() of task test/153")


def test_a_scenario_that_raises_costs_the_sentence_alone(run: Path) -> None:
    def broken(episode: Episode) -> None:
        raise ZeroDivisionError("of mine")

    (reason,) = reasons(talk(LOST, False), broken, ())
    assert "raised ZeroDivisionError: of mine" in reason.sentence


def test_the_decisive_turn_is_a_second_sentence_and_the_last_answer_counts(run: Path) -> None:
    add_row(run / EXPLAINED, decisive(step=None))
    add_row(run / EXPLAINED, decisive())
    _, found = lost_of(run)
    told = [one["head"] + one["rest"] for one in found["why"]]
    assert told[1] == (
        "decided at step 2: with better in place of a from there on 7 of 8 are still won, from"
        " step 4 on 1 of 8"
    )
    assert len(told) == 2 and found["why"][1]["step"] == 2
    assert found["why"][1]["fork"] == [["2", "a", "a <b>better</b> word"]]


def test_values_of_both_conditions_are_scaled_each_by_its_widest(run: Path) -> None:
    add_row(run / EXPLAINED, turns_row())
    add_row(run / EXPLAINED, turns_row("view", 100.0))
    _, found = lost_of(run)
    assert [one["name"] for one in found["values"]] == ["as it lay", "as the agent could know"]
    lay, know = (one["turns"] for one in found["values"])
    assert [one["bar"] for one in lay] == [[-0.25, 0.125, 0.5], [-1.0, -0.625, -0.25], None]
    assert [one["bar"] for one in know] == [one["bar"] for one in lay]
    assert [one["sure"] for one in lay] == [False, True, False]
    assert [one["text"] for one in lay] == [
        "0.100 [-0.200, 0.400], may be 0",
        "-0.500 [-0.800, -0.200]",
        "no value",
    ]


def test_a_turn_that_is_asked_again_replaces_its_value_and_no_other(run: Path) -> None:
    add_row(run / EXPLAINED, turns_row())
    again = {**turns_row(), "values": [value(2, 3.0, 2.0, 4.0)]}
    add_row(run / EXPLAINED, again)
    _, found = lost_of(run)
    (condition,) = found["values"]
    assert [one["text"] for one in condition["turns"]] == [
        "0.100 [-0.200, 0.400], may be 0",
        "3.000 [2.000, 4.000]",
        "no value",
    ]


def test_messages_and_agents_are_tables(run: Path) -> None:
    add_row(run / EXPLAINED, messages_row())
    add_row(run / EXPLAINED, agents_row())
    _, found = lost_of(run)
    said, shares = found["tables"]
    assert said["caption"] == "messages, as it lay, against silence; 95 % intervals"
    assert said["columns"] == ["step", "agent", "for a", "for b"]
    assert said["rows"] == [["1", "b", "0.250 [0.125, 0.375]", "0.250 [0.125, 0.375]"]]
    assert shares["caption"] == "agents, as it lay, random_legal instead; 95 % intervals"
    assert shares["rows"] == [["a", "1.000 [0.500, 1.500]"], ["b", "1.000 [0.500, 1.500]"]]
    # what was asked of others stays: of another agent's messages, of another return
    (message,) = messages_row()["values"]
    add_row(run / EXPLAINED, {**messages_row(), "values": [{**message, "step": 0, "agent": "a"}]})
    add_row(run / EXPLAINED, {**agents_row(), "whose": "b"})
    said, mean, of_one = lost_of(run)[1]["tables"]
    assert [row[:2] for row in said["rows"]] == [["0", "a"], ["1", "b"]]
    assert mean == shares and "random_legal instead, of the return of b;" in of_one["caption"]


def test_what_was_found_of_an_attempt_is_not_told_of_the_next_one(run: Path) -> None:
    """A play that failed was explained, and played again."""
    add_row(run / EXPLAINED, {**turns_row(), "acts": acts_of(talk(LOST + 1, False))})
    assert "values" not in lost_of(run)[1]
    add_row(run / EXPLAINED, {**turns_row(), "acts": acts_of(talk(LOST, False))})
    assert lost_of(run)[1]["values"]
    # acts without a word differ by what they call
    calls = [
        (),
        (ToolCall("1", "f", {"n": 10**30}),),
        (ToolCall("1", "g", {}),),
        (Malformed("{", ""),),
    ]
    turns = [Turn(0, "a", (), None, (), Action("", call)) for call in calls]
    assert len({acts_of(recorded({"a": Seat()}, (turn,), ())) for turn in turns}) == len(calls)


def test_a_message_that_one_of_many_felt_is_told_of_that_one(run: Path) -> None:
    """The page had the first eight alone, for whom it was `0, no difference seen`."""
    nothing, much = ({"mean": x, "low": x, "high": x} for x in (0.0, -2.0))
    felt = {f"p{n}": much if n == 30 else nothing for n in range(40)}
    said = {"step": 1, "agent": "p20", "values": felt}
    add_row(run / EXPLAINED, {**messages_row(), "values": [said]})
    (table,) = lost_of(run)[1]["tables"]
    assert table["columns"] == ["step", "agent", "for itself", "for whom most", ""]
    assert table["rows"] == [
        ["1", "p20", "0, no difference seen", "p30", "-2.000 [-2.000, -2.000]"]
    ]


BAD = [
    "{",
    "[]",
    "7",
    '{"episode": ["test/153", 7, 0]}',
    json.dumps({**turns_row(), "what": "wishes"}),
    json.dumps({**turns_row(), "given": "later"}),
    json.dumps({**turns_row(), "values": [{"step": "2"}]}),
    json.dumps({**turns_row(), "episode": ["test/153", "7", 0]}),
    json.dumps({**decisive(), "decisive": {"agent": "a", "step": 2, "tried": 3}}),
    json.dumps(turns_row()).replace("-0.5", "1e999"),
    json.dumps(turns_row()).replace("-0.5", "1" + "0" * 400),
]


@pytest.mark.parametrize("line", BAD)
def test_a_damaged_line_is_told_by_its_number_and_the_others_are_read(run: Path, line: str) -> None:
    (run / EXPLAINED).write_text(f"{line}\n{json.dumps(messages_row())}\n")
    data, found = lost_of(run)
    assert "explained.jsonl: line 1" in data["note"] and len(found["tables"]) == 1
    assert "values" not in found
    site = Site(run.parent)
    assert "explained.jsonl: line 1" in site.answer("/run/one", {}).body.decode()


@pytest.mark.long
def test_a_line_of_anything_never_breaks_a_page(run: Path) -> None:
    """Fields replaced at random by values of other kinds: told or shown, never raised."""
    seed = random.SystemRandom().getrandbits(32)
    rng = random.Random(seed)
    odd = [None, True, -1, 2**70, 0.5, "x", "", [], {}, [[]], {"a": 1}, "\u2028</script>"]
    (run / EXPLAINED).write_text("")
    for _ in range(300):
        row = deepcopy(rng.choice([turns_row, decisive, messages_row, agents_row])())
        place: Any = row
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = rng.choice(keys)
            if not isinstance(place[key], (dict, list)) or not place[key] or rng.random() < 0.3:
                place[key] = deepcopy(rng.choice(odd))
                break
            place = place[key]
        add_row(run / EXPLAINED, row)
    told: list[str] = []
    for rows in read_explained(run, told.append).values():
        made = why_of(talk(LOST, False), True, fault, rows)
        json.dumps(made, allow_nan=False)
    assert told, seed


# -- in the viewer, read anew ----------------------------------------------------------------------


def test_the_viewer_reads_the_file_anew_when_it_changes(run: Path) -> None:
    site = Site(run.parent)
    asked = {"key": f"test/{LOST}~7~0"}

    def episode() -> dict[str, Any]:
        return dict(json.loads(site.answer("/run/one/episode", asked).body))

    assert "values" not in episode()
    add_row(run / EXPLAINED, turns_row())
    assert len(episode()["values"]) == 1
    add_row(run / EXPLAINED, turns_row("view"))
    assert len(episode()["values"]) == 2


# -- at a terminal ---------------------------------------------------------------------------------


@pytest.mark.long
def test_one_command_says_who_which_step_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    weak = "agents.assistant.behaviour=retail_transfers_early"
    assert main(["run", "retail", weak, "-n", "4", "--out", "out", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["show", "out", "--episode", "lost"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("lost at step ")
    assert lines[0].endswith(": assistant handed over, but the task can be served")
    step = lines[0].split(":")[0].split()[-1]
    marked = next(number for number, line in enumerate(lines) if "^ lost here" in line)
    block = next(line for line in reversed(lines[:marked]) if line[:1].isdigit())
    assert block.split()[0] == step
    assert main(["show", "out", "--episode", "lost", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["why"] == [lines[0]] and told["verdict"]["verdict"] == "lost"
    # a play that was won has no such line
    assert main(["show", "out", "--episode", "won"]) == 0
    assert capsys.readouterr().out.startswith("episode ")


# -- in a browser ----------------------------------------------------------------------------------

CARD = "document.querySelector('.act.marked')"


def in_sight(browser: Browser, selector: str) -> bool:
    top, bottom, height = browser.run(
        f"(() => {{ const box = document.querySelector({json.dumps(selector)})"
        ".getBoundingClientRect(); return [box.top, box.bottom, innerHeight]; })()"
    )
    return bool(-1 <= top < height and bottom > 0)


@pytest.mark.long
def test_of_200_plays_two_clicks_tell_who_which_step_and_why(
    browser: Browser, tmp_path: Path
) -> None:
    page_of(tmp_path / "run", [talk(n, n != LOST) for n in range(200)], JUDGE)
    browser.open(tmp_path / "run" / "report.html")
    browser.click(".lost a", f"test/{LOST}")
    browser.until(f"document.querySelector('#episode h3').textContent.includes('test/{LOST} ')")
    first = browser.text(".verdict > :first-child")
    assert first == "lost at step 4: a <b>folded</b> the better hand"
    browser.click(".verdict a", "lost at step 4")
    browser.until("document.querySelector('.here')?.dataset.step === '4'")
    assert browser.run("location.hash").endswith("/t/4")
    assert browser.text(".act.marked .bad") == "lost here: a <b>folded</b> the better hand"
    assert f"{LOST} says 4" in browser.text(".act.marked")
    assert in_sight(browser, ".act.marked") and browser.run(
        "document.querySelectorAll('.act.marked').length === 1"
        " && document.activeElement.closest('[data-step]').dataset.step === '4'"
    )
    # back by scrolling, and once more by the same link
    browser.run("scrollTo(0, 0)")
    assert not in_sight(browser, ".act.marked")
    browser.click(".verdict a", "lost at step 4")
    browser.until(f"{CARD}.getBoundingClientRect().top < innerHeight")
    assert browser.faults() == []


def test_bars_and_toggles_by_keys_and_in_words(browser: Browser, run: Path) -> None:
    known = {**turns_row("view"), "values": [value(2, 0.5, 0.2, 0.8)]}
    for row in (turns_row(), known, decisive(), messages_row(), agents_row()):
        add_row(run / EXPLAINED, row)
    write_report(run, judge=JUDGE)
    browser.open(run / "report.html", f"#/r/one/e/test%2F{LOST}~7~0")
    shown = "[...document.querySelectorAll('.worth')].map((one) => one.textContent)"
    assert browser.run(shown) == [
        "value 0.100 [\u22120.200, 0.400], may be 0",
        "value \u22120.500 [\u22120.800, \u22120.200]",
        "no value",
    ]
    # a negative bar lies left of the middle, and a doubtful one is grey
    assert browser.run(
        "[...document.querySelectorAll('.worth rect')].map((one) => [one.getAttribute('x'),"
        " getComputedStyle(one).fill === getComputedStyle(one.closest('.worth')).color])"
    ) == [["0", True], ["-31.25", False]]
    assert browser.text(".act.marked .bad").startswith("decided here: with better")
    assert browser.text(".act.marked .won-fork div") == "2 a a <b>better</b> word"
    browser.run("document.querySelectorAll('.found .bar button')[1].focus()")
    browser.press("Enter")
    browser.until(f"{shown}[0] === 'value 0.500 [0.200, 0.800]'")
    pressed = (
        "[...document.querySelectorAll('.found [aria-pressed]')].map((one) => one.ariaPressed)"
    )
    assert browser.run(pressed) == ["false", "true", "false"]
    assert browser.run("document.activeElement.textContent") == "as the agent could know"
    tables = browser.run(
        "[...document.querySelectorAll('.found details')].map((one) => one.textContent)"
    )
    assert len(tables) == 2 and tables[1].startswith("agents, as it lay, random_legal instead")
    assert browser.faults() == []


@pytest.mark.long
def test_no_text_of_the_file_becomes_markup(browser: Browser, run: Path) -> None:
    def sentence(payload: str) -> tuple[int, str, str]:
        return 4, "a", payload

    for payload in PAYLOADS:
        row = {**messages_row(), "instead": payload}
        row["values"][0]["values"] = {payload: {"mean": 1.0, "low": 0.0, "high": 2.0}}
        add_row(run / EXPLAINED, row)
        add_row(run / EXPLAINED, {**decisive(agent=payload), "against": payload})
    for payload in PAYLOADS[::4]:
        judge = Judge(success, faults=lambda _, said=payload: sentence(said))
        write_report(run, judge=judge)
        browser.open(run / "report.html", f"#/r/one/e/test%2F{LOST}~7~0")
        assert browser.run("document.querySelectorAll('.reason').length") == 2
        assert browser.run(
            "[...document.querySelectorAll('.verdict *, .found *, .lost *, .act *')].every((one) =>"
            " !['script', 'img', 'iframe', 'style'].includes(one.localName)"
            " && ![...one.attributes].some((each) => /^on/.test(each.name)))"
        )
        assert browser.faults() == []


@pytest.mark.longest
def test_the_open_page_of_the_viewer_shows_what_was_explained_meanwhile(
    browser: Browser, run: Path
) -> None:
    with served(Site(run.parent)) as port:
        browser.visit(f"http://127.0.0.1:{port}/run/one#/r/one/e/test%2F{LOST}~7~0")
        browser.until("document.querySelector('.act') !== null")
        assert browser.text(".worth") == ""
        add_row(run / EXPLAINED, turns_row())
        browser.run("dispatchEvent(new Event('focus'))")
        browser.until("document.querySelector('.worth') !== null")
        assert browser.text(".worth").startswith("value 0.100")
