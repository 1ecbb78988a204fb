"""The report: one file, no request, every text shown as it is, numbers below every plot."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import weakref
from collections.abc import Sequence
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError

from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.errors import StoreError
from gem_ma.kernel.types import Action, Image, Message, Reply, Tool, ToolCall, Turn
from gem_ma.pages.static.figures import Curves, Mark, chart, interval_mark, line_chart, line_of
from gem_ma.pages.static.folder import EPISODES, Leading
from gem_ma.pages.static.learning import learning_curves
from gem_ma.pages.static.page import Html, render, table
from gem_ma.pages.static.plots import whisker_chart
from gem_ma.pages.static.report import PlainTable, Section, write_report
from gem_ma.pages.static.transcript import transcript
from gem_ma.record.codec import load_episode
from gem_ma.runs.store import RunFolder
from gem_ma.scores.metrics import summarise
from tests.payloads import PAYLOADS, held, hostile
from tests.plays import recorded


class Parsed(HTMLParser):
    """All tags with their attributes, and the text outside of scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self._inside = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append(data)
        elif self._inside != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    @property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(self.scripts[0]))


def parse(path: Path) -> Parsed:
    return Parsed(path.read_text("utf-8"))


def episode(
    number: int, value: float = 1.0, end: End = End.TERMINATED, words: str = "hello"
) -> Episode:
    call = ToolCall("call_0", "lookup", {"id": "7"})
    turns = (
        Turn(0, "user", (Message.system("You want a refund."),), None, (), Action(words)),
        Turn(
            1,
            "assistant",
            (Message(words, "user"),),
            None,
            (Tool("lookup"),),
            Action("", (call,)),
            (Reply("", token_ids=(1, 2), policy="main"),),
        ),
        Turn(
            2, "assistant", (Message.tool("call_0", '{"found": true}'),), None, (), Action("Done.")
        ),
    )
    cast = {"assistant": Seat("direct", "main"), "user": Seat("scripted")}
    ledger = (Entry(2, "assistant", value, "database equals the goal"), Entry(2, "user", value))
    error = "EngineError: gone" if end is End.FAILED else None
    return recorded(
        cast,
        turns,
        ledger,
        task=f"test/{number}",
        final={"user": (Message("Done.", "assistant"),)},
        end=end,
        error=error,
    )


def run_of(path: Path, episodes: Sequence[Episode], metrics: Sequence[dict[str, Any]] = ()) -> Path:
    with RunFolder.open(
        path, config_text="", resolved={"scenario": {"id": "toy"}}, manifest={"command": "run"}
    ) as folder:
        folder.append(episodes)
        for row in metrics:
            folder.log(row)
    return path


def hostile_page(folder: Path) -> Path:
    """All payloads in all fields of one page, names of runs and charts included."""
    run = run_of(
        folder / "run <img src=x onerror=alert(1)>",
        [hostile(p) for p in PAYLOADS],
        [{"step": i, **dict.fromkeys(PAYLOADS, i)} for i in range(3)],
    )
    every = " ".join(PAYLOADS)
    curves = [
        Curves(p, {p: [[(0.0, 0.0), (1.0, 1.0)]]}, x_label=p, y_label=p, note=p) for p in PAYLOADS
    ]
    section = Section(
        every, every, {every: run}, curves, [PlainTable([every], [[every]], every)], command=every
    )
    return write_report([run], folder / "page.html", every, sections=[section])


# -- what stands in it ---------------------------------------------------------------------------


def test_the_page_lies_in_the_run_folder_and_shows_counts_scores_and_transcripts(
    tmp_path: Path,
) -> None:
    run = run_of(
        tmp_path / "run",
        [*(episode(i) for i in range(8)), episode(8, -1.0), episode(9, end=End.FAILED)],
    )
    path = write_report(run, success=lambda one: one.returns()["assistant"] > 0)
    assert path == run / "report.html"
    page = parse(path)
    assert "9 /" in page.text and "0.889 [" in page.text  # 8 of the 9 that were scored
    assert "0.800" in page.text  # with the failed one as 0
    (shown,) = page.data["runs"]
    assert len(shown["episodes"]) == 10 and shown["note"] == "all 10 episodes"
    first = shown["episodes"][0]
    assert first["kinds"] == ["lost"] and first["task"] == "test/8"  # what went wrong stands first
    assert first["turns"][1]["calls"] == [{"name": "lookup", "arguments": [["id", "7"]]}]
    assert first["ledger"][0]["why"] == "database equals the goal"
    assert first["turns"][0]["observed"][0]["parts"] == ["You want a refund."]
    assert shown["episodes"][1]["error"] == "EngineError: gone" and shown["episodes"][1][
        "kinds"
    ] == ["failed"]
    assert [one["kinds"] for one in shown["episodes"][2:]] == [["won"]] * 8


def test_a_summary_of_the_writer_is_shown_as_it_is_and_that_of_somebody_else_is_not(
    tmp_path: Path,
) -> None:
    run = run_of(tmp_path / "run", [episode(i) for i in range(4)])
    stored = summarise([episode(i) for i in range(4)], lambda one: one.task == "test/0")
    with RunFolder.open(run, config_text="", resolved={"scenario": {"id": "toy"}}) as folder:
        folder.write_summary(stored)
    assert "0.250 [" in parse(write_report(run)).text
    for other in (json.dumps({**stored, "ok": 3}), '{"before": {}, "after": {}}'):
        (run / "summary.json").write_text(other)
        assert (
            "4 /" in parse(write_report(run)).text
            and "0.250 [" not in parse(write_report(run)).text
        )


def test_curves_of_a_training_run_have_their_numbers_below(tmp_path: Path) -> None:
    rows = [
        {
            "kind": "train",
            "step": s,
            "return": {"a": s / 8, "b": None if s == 2 else 0.5},
            "policies": {"main": {"kl": 0.01 * s, "lr": 0.1}},
        }
        for s in range(5)
    ]
    rows.append({"kind": "evaluation", "step": 0, "sampled": {"success": 0.25}})
    rows.append({"kind": "evaluation", "step": 4, "sampled": {"success": 0.875}})
    html = write_report(run_of(tmp_path / "run", [episode(0)], rows)).read_text()
    assert html.count('<svg class="chart"') == 3  # return, success, kl
    for number in ("0.125", "0.375", "0.875", "0.03"):
        assert f">{number}<" in html
    assert "lr main 0.1" in html  # never changes: a line of text, no plot
    assert html.index("<h3>Updates</h3>") < html.index("KL to the old policy")


def test_the_intervals_of_exams_stand_in_their_curves(tmp_path: Path) -> None:
    def exam(step: int, mean: float, ends: Sequence[float | None]) -> dict[str, Any]:
        numbers = {
            "success": mean,
            "return": {"a": mean},
            "scores": {"welfare": mean, "return a": 9.0},
            "intervals": {"success": ends, "return a": ends, "welfare": ends},
        }
        return {"kind": "evaluation", "step": step, "sampled": numbers}

    exams = [exam(0, 0.25, [0.125, 0.5]), exam(4, 0.75, [None, None])]
    folder = run_of(tmp_path / "train", [], exams)
    html = write_report(folder).read_text()
    assert html.count("points: exams; 95 % intervals") == 3
    assert html.count('class="leader whiskers') == 3 * 2
    # an interval that is not known is left out, and a score of the name of a return has none
    assert html.count(">0.25 [0.125, 0.5]<") == 3
    assert html.count(">0.75<") == 3 and "9 [" not in html


def test_a_training_run_shows_its_scores_before_and_after(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunFolder.open(run, config_text="", resolved={}, manifest={"command": "train"}) as folder:
        folder.append([episode(0)])
        exams = [
            {
                "sampled": {
                    "success": score,
                    "return": {"a": 1.0},
                    "ok": 9,
                    "failed": 0,
                    "turns": 2.0,
                }
            }
            for score in (0.125, 0.875)
        ]
        rate = {"mean": 0.25, "low": 0.1, "high": 0.5, "n": 8, "method": "wilson"}
        idle = {
            "cast": {"a": "silent"},
            "ok": 8,
            "failed": 0,
            "excluded": 0,
            "success": rate,
            "returns": {"a": rate},
            "tasks": 8,
            "of": 8,
        }
        folder.write_summary(
            {
                "before": exams[0],
                "after": exams[1],
                "learned": ["main"],
                "baselines": {"idle": idle},
            }
        )
    html = write_report(run).read_text()
    assert (
        "trivial players beside it" in html
        and "0.250 [0.100, 0.500]" in html
        and "a: silent" in html
    )
    assert '<th scope="row">sampled: success</th><td>0.125</td><td>0.875</td>' in html
    assert (
        "learned: main" in html
        and "run played 1 / 0 / 0 (ok / failed / excluded) episodes while it learned" in html
    )


def test_curves_of_several_seeds_are_a_mean_with_a_band_and_of_two_are_not(tmp_path: Path) -> None:
    runs = [
        run_of(
            tmp_path / f"seed-{n}",
            [episode(0)],
            [{"step": s, "sampled": {"success": s / 4 + n / 10}} for s in range(3)],
        )
        for n in range(3)
    ]
    many = learning_curves({"both": runs, "none": runs[:1]}, "sampled/success", "Who learns?")
    page = write_report(
        [], tmp_path / "page.html", "Study", sections=[Section("Referential", curves=[many])]
    )
    html = page.read_text()
    assert html.count('class="band') == 1
    assert "0.35 [0.25, 0.45]" in html  # x = 1: 0.25, 0.35, 0.45
    two = learning_curves({"both": runs[:2]}, "sampled/success", "Two")
    assert (
        'class="band'
        not in write_report(
            [], tmp_path / "two.html", sections=[Section("s", curves=[two])]
        ).read_text()
    )


def test_a_long_run_shows_some_transcripts_spread_over_it_failed_ones_too_and_says_so(
    tmp_path: Path,
) -> None:
    run = run_of(
        tmp_path / "run",
        [episode(i, end=End.FAILED if i == 77 else End.TERMINATED) for i in range(400)],
    )
    (shown,) = parse(write_report(run)).data["runs"]
    names = [one["id"] for one in shown["episodes"]]
    assert (
        len(names) == EPISODES
        and names[:2] == ["test/77 · seed 0", "test/0 · seed 0"]
        and names[-1] == "test/399 · seed 0"
    )
    assert shown["note"].startswith(
        "50 of 400 episodes: all 1 failed; the others spread from first to last"
    )


class Watched(Episode):
    """An episode of which can be said whether anybody still holds it."""

    __slots__ = ("__weakref__",)


class Shown(dict[str, Any]):
    """A transcript of which can be said the same."""


def test_a_page_never_holds_more_than_it_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = Turn(0, "assistant", (), None, (), Action("x" * 400))
    lost = [replace(episode(i, end=End.FAILED), turns=(turn,) * 5) for i in range(60)]
    run = run_of(tmp_path / "run", lost)
    held: dict[type, list[weakref.ref[Any]]] = {Watched: [], Shown: []}
    most = {Watched: 0, Shown: 0}

    def watched(value: Any) -> Any:
        kind = type(value)
        held[kind].append(weakref.ref(value))
        most[kind] = max(most[kind], sum(ref() is not None for ref in held[kind]))
        return value

    def decoded(line: bytes) -> Episode:
        read = load_episode(line)
        return watched(Watched(*(getattr(read, each.name) for each in fields(read))))

    monkeypatch.setattr("gem_ma.pages.static.report.MAX_BYTES", 20_000)
    monkeypatch.setattr("gem_ma.runs.store.lines.load_episode", decoded)
    monkeypatch.setattr(
        "gem_ma.pages.static.folder.transcript", lambda *of: watched(Shown(transcript(*of)))
    )
    page = write_report(run)
    (shown,) = parse(page).data["runs"]
    assert len(held[Watched]) >= 60 and 1 < len(shown["episodes"]) < 20
    assert most[Watched] <= 3 and most[Shown] <= len(shown["episodes"]) + 2


@pytest.mark.parametrize("seed", range(20))
def test_the_first_that_fit_stay_in_whatever_order_they_come(seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.randrange(1, 40) for _ in range(30)]
    wanted = [0]  # the first of all, however long it is
    for place in range(1, 30):
        if sum(sizes[: place + 1]) > 100:
            break
        wanted.append(place)
    leading = Leading(100)
    for place in draw.sample(range(30), 30):
        if leading.open_to(place):
            leading.add(place, sizes[place], {"place": place})
    assert [one["place"] for one in leading.taken()] == wanted


def test_long_texts_and_long_plays_are_cut_and_say_so(tmp_path: Path) -> None:
    long, short = (
        Turn(0, "assistant", (), None, (), Action(text)) for text in ("y" * 100_000, "y")
    )
    many = recorded({"assistant": Seat()}, (long, *(short,) * 999), task="test/0")
    path = write_report(run_of(tmp_path / "run", [many]))
    (shown,) = parse(path).data["runs"][0]["episodes"]
    assert shown["cut"] == "the last 600 of 1000 turns are left out"
    assert shown["turns"][0]["text"].endswith("[92000 more characters are left out]")


def test_images_of_the_run_are_embedded_and_others_are_named(tmp_path: Path) -> None:
    png = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    known, unknown = Image.of(png), Image("1" * 64)
    turn = Turn(0, "assistant", (Message(("look", known, unknown)),), None, (), Action("ok"))
    seen = recorded({"assistant": Seat()}, (turn,), task="test/0")
    (shown,) = parse(write_report(run_of(tmp_path / "run", [seen]))).data["runs"][0]["episodes"]
    parts = shown["turns"][0]["observed"][0]["parts"]
    assert base64.b64decode(parts[1]["data"]) == png and parts[2]["data"] == ""


def test_an_empty_run_and_a_page_without_runs_are_pages_too(tmp_path: Path) -> None:
    assert "0 /" in parse(write_report(run_of(tmp_path / "run", []))).text
    assert (
        "Only text"
        in parse(write_report([], tmp_path / "page.html", sections=[Section("Only text")])).text
    )


def test_a_path_that_is_no_run_or_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="run folder"):
        write_report(tmp_path / "absent")
    with pytest.raises(StoreError, match="needs a path"):
        write_report([])
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"page\.html") as caught:
        write_report([], tmp_path / "file" / "page.html", sections=[Section("x")])
    assert "\n" not in str(caught.value)


def test_a_run_cannot_be_changed_by_its_report(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [episode(0)])
    before = {p.name: p.read_bytes() for p in run.iterdir()}
    write_report(run)
    assert {p.name: p.read_bytes() for p in run.iterdir() if p.name != "report.html"} == before


# -- safety --------------------------------------------------------------------------------------


def test_the_policy_allows_exactly_this_script_and_this_style_and_no_request(
    tmp_path: Path,
) -> None:
    path = write_report(run_of(tmp_path / "run", [episode(0)]))
    html, page = path.read_text("utf-8"), parse(path)
    policy = next(
        attributes["content"]
        for tag, attributes in page.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert (
        policy is not None
        and "default-src 'none'" in policy
        and "unsafe" not in policy
        and "http" not in policy
    )
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None
    for inline in (page.scripts[1], style[1]):
        assert base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode() in policy
    assert len(page.scripts) == 2 and len(page.scripts[1]) + len(style[1]) < 300_000
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new"
        r" Function|fetch\(|XMLHttpRequest|import\(",
        page.scripts[1],
    )
    assert not re.search(r"url\(|@import", style[1])


@pytest.mark.long
def test_hostile_text_makes_no_element_and_no_attribute(tmp_path: Path) -> None:
    page, plain = (
        parse(hostile_page(tmp_path)),
        parse(write_report(run_of(tmp_path / "plain", [episode(0)]), tmp_path / "plain.html")),
    )
    tags = {tag for tag, _ in page.tags}
    drawn = {
        "svg",
        "title",
        "line",
        "polyline",
        "circle",
        "text",
        "figure",
        "figcaption",
        "details",
        "summary",
        "h3",
        "ul",
        "li",
        "polygon",
    }
    assert tags <= {tag for tag, _ in plain.tags} | drawn
    assert sum(tag == "script" for tag, _ in page.tags) == 2 and len(page.scripts) == 2
    for tag, attributes in page.tags:
        assert not [
            name
            for name in attributes
            if name.startswith("on") or name in ("style", "srcdoc", "action")
        ], (tag, attributes)
        link = attributes.get("href") or attributes.get("src") or ""
        assert link == "" or link.startswith(("#", "data:,")), link
    assert not re.search("[<>&\u2028\u2029]", page.scripts[0])


@pytest.mark.long
def test_hostile_text_is_shown_word_for_word(tmp_path: Path) -> None:
    page = parse(hostile_page(tmp_path))
    for payload in PAYLOADS:
        if not re.search("[\x00-\x1f]", payload):
            assert payload in page.text, payload
    named = [one["scenario"] for one in page.data["runs"][0]["episodes"]]
    assert named == [held(payload, "scenario") for payload in PAYLOADS]


# -- plots ---------------------------------------------------------------------------------------


def test_a_line_is_the_mean_of_its_seeds_where_all_have_a_value() -> None:
    line = line_of(
        "x", [[(0, 1.0), (1, 2.0), (2, float("nan"))], [(0, 3.0), (1, 6.0), (2, 1.0), (3, 1.0)]]
    )
    assert (line.x, line.mean, line.low, line.high, line.seeds) == (
        (0.0, 1.0),
        (2.0, 4.0),
        (1.0, 2.0),
        (3.0, 6.0),
        2,
    )


def test_a_chart_of_nothing_is_nothing_and_of_one_point_or_one_height_is_drawn() -> None:
    assert line_chart([line_of("x", [])], title="t", x_label="x", y_label="y") == ""
    for points in (
        [(0.0, 1.0)],
        [(0.0, 2.0), (9.0, 2.0)],
        [(0.0, -1e30), (1.0, 1e30)],
        [(1e9, 1e-12), (2e9, 2e-12)],
    ):
        svg = line_chart([line_of("x", [points])], title="t", x_label="x", y_label="y")
        assert "nan" not in svg and "inf" not in svg and "<polyline" in svg


@pytest.mark.parametrize("draw", [line_chart, whisker_chart])
def test_a_legend_names_every_line_whole(draw: Any) -> None:
    """Nothing of a chart lies beyond its right edge, where long names used to be cut."""
    labels = [f"speaker episodes, greedy, of the policy number {n}" for n in range(6)]
    if draw is line_chart:
        curves = Curves("t", {label: [[(0.0, 0.0), (1.0, n)]] for n, label in enumerate(labels)})
        html: str = chart(curves)
    else:
        html = whisker_chart(
            {label: [Mark(0.5)] for label in labels}, ["x"], title="t", x_label="x", y_label="y"
        )
    assert re.findall(r"</svg>(speaker[^<]*)</li>", html) == labels
    svg = html[html.index('<svg class="chart"') :]
    assert all(float(x) <= 720 for x in re.findall(r' x[12]?="([\d.]+)"', svg))


def test_an_interval_mark_stays_on_its_scale() -> None:
    svg = interval_mark({"mean": 5.0, "low": -5.0, "high": 9.0}, 0.0, 1.0)
    assert all(4 <= float(x) <= 116 for x in re.findall(r'(?:x1|x2|cx)="([\d.]+)"', svg))
    assert interval_mark({"mean": None, "low": None, "high": None}, 0, 1) == ""


def test_a_template_escapes_what_it_is_given_and_wants_every_field() -> None:
    rows = [["<b>", Html("<i>ready</i>")], ["it's \x00 \u202e", 'a "b" & c']]
    made = table(("<x>", "n"), rows, caption="<c>")
    assert "<b>" not in made and "<x>" not in made and "<c>" not in made
    assert "<i>ready</i>" in made and "&lt;b&gt;" in made and "&amp; c" in made
    assert "\x00" not in made and "\ufffd" in made
    with pytest.raises(UndefinedError, match="rows"):
        render("table", columns=(), caption="", numbers=False)
