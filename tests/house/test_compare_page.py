"""The page of two or more runs: what `gem-ma compare` says, both plays of every flip, one line where
runs cannot be compared; and that no play is judged for it again."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from gem_ma.pages.live import compared
from gem_ma.pages.live.run import Run
from gem_ma.pages.live.site import Site
from gem_ma.runs.comparing import compare_runs, judged_cell
from gem_ma.runs.store import lines
from gem_ma.scores.stats import MANY, paired
from tests.command_line import gem_ma

PLAYS = 30


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same plays by two guessers, another game, and a training."""
    home = tmp_path_factory.mktemp("compared")
    small = ("train.steps=1", "train.episodes=4", "evaluate.episodes=2", "--quiet")
    commands = [
        ("run", "guess_number", "-n", PLAYS, "agents.player=number_guesser", "--out", "runs/a"),
        (
            "run",
            "guess_number",
            "-n",
            PLAYS,
            "agents.player=number_guesser_without_repeats",
            "--out",
            "runs/b",
        ),
        ("run", "dilemma", "-n", 2, "run.seed=5", "--out", "runs/other"),
        ("train", "referential_table", *small, "--out", "runs/learned"),
    ]
    for words in commands:
        done = gem_ma(*words, "--quiet", cwd=home)
        assert done.returncode == 0, done.stderr
    manifest = home / "runs" / "a" / "manifest.json"
    facts = json.loads(manifest.read_text("utf-8"))
    manifest.write_text(json.dumps({**facts, "created": "2020-01-01T00:00:00"}), "utf-8")
    return home / "runs"


def shown(site: Site, *runs: str, **query: str) -> str:
    answer = site.answer("/compare", query, runs)
    assert (answer.status, answer.kind[:9]) == (200, "text/html")
    return answer.body.decode()


@pytest.mark.long
def test_the_page_says_what_the_command_says_and_links_both_plays(runs: Path) -> None:
    site, wanted = Site(runs), compare_runs(runs / "a", runs / "b", print)
    page = shown(site, "a", "b")
    flips = wanted["flips"]
    assert flips and f"{wanted['flipped']['to_won']} that it won instead" in page
    for row in wanted["scores"].values():
        assert f"{row['difference']:+.3f}" in page and f"{row['p_adjusted']:.4f}" in page
    for run in ("a", "b"):
        links = re.findall(rf'href="/run/{run}(#/r/{run}/e/[^"]+)"', page)
        keys = {link.rpartition("/")[2] for link in links}
        assert keys == {f"{flip['task'].replace('/', '%2F')}~{flip['seed']}" for flip in flips}
        ids = {(id_[0], id_[1]) for id_ in site.run([run])[0].index.entries}
        assert {(flip["task"], flip["seed"]) for flip in flips} <= ids


def test_the_run_that_was_begun_first_is_a_where_the_list_asks(runs: Path) -> None:
    assert "<h1>a and b</h1>" in shown(Site(runs), "b", "a", order="begun")
    assert "<h1>b and a</h1>" in shown(Site(runs), "b", "a")
    boxes = re.findall(r'type="checkbox" name="run" value="(\w+)"', _list(runs))
    assert sorted(boxes) == ["a", "b", "learned", "other"]


def _list(runs: Path) -> str:
    return Site(runs).answer("/", {}).body.decode()


@pytest.mark.parametrize(
    ("picked", "words"),
    [
        ((), "choose 2 to 8 runs"),
        (("a",), "choose 2 to 8 runs"),
        (("a", "a"), "choose 2 to 8 runs"),
        (tuple(f"r{n}" for n in range(9)), "choose 2 to 8 runs"),
        (("a", "other"), "only runs of one scenario are compared"),
        (("a", "learned"), "learned: this run is a training"),
        (("a", ""), "no such run folder"),
        (("a", "../a"), "no such run folder"),
        (("a", "b/x"), "b/x: no such run folder"),
    ],
)
def test_what_cannot_be_compared_is_one_line_on_the_page(
    runs: Path, picked: tuple[str, ...], words: str
) -> None:
    (line,) = re.findall(r'<p class="warn">(.*?)</p>', shown(Site(runs), *picked))
    assert words in line and "\n" not in line


def test_of_three_runs_one_that_does_not_fit_hides_no_other(runs: Path) -> None:
    page = shown(Site(runs), "a", "b", "other")
    assert "only runs of one scenario are compared" in page and "that it won instead" in page


def test_runs_are_compared_by_what_was_said_of_their_plays_when_they_ended(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of the plays is decoded, and what stands there is what judging gives."""
    for name in ("a", "b"):
        run = Run(runs / name)
        now = judged_cell(run.path, run.judge, anew=True)
        monkeypatch.setattr(lines, "load_episode", None)
        assert judged_cell(run.path, run.judge).values == now.values and "success" in now.values
        monkeypatch.undo()
    site = Site(runs)
    assert "that it won instead" in shown(site, "a", "b")
    # and kept until more come
    assert site.run(["a"])[0].cell is not None
    monkeypatch.setattr(compared, "judged_cell", None)
    shown(site, "a", "b")


@pytest.mark.long
def test_values_that_repeat_are_resampled_by_counting() -> None:
    """The same interval and p as of values that are all a little different, drawn one by one."""
    tasks = range(2 * MANY)
    signs = [(-1.0 if n % 5 == 0 else 1.0) * (n % 9 == 0) for n in tasks]
    jittered = [value + 1e-9 * n for n, value in enumerate(signs)]
    zeros = [0.0] * len(signs)
    counted, drawn = (paired(zeros, values, list(tasks)) for values in (signs, jittered))
    assert counted.difference == pytest.approx(drawn.difference, abs=1e-5)
    width = drawn.high - drawn.low
    assert counted.low == pytest.approx(drawn.low, abs=width / 50)
    assert counted.high == pytest.approx(drawn.high, abs=width / 50)
    # a difference that chance often makes
    few = [1.0] * (MANY + 30) + [-1.0] * (MANY - 30)
    ps = [
        paired(zeros, values, list(tasks)).p
        for values in (few, [value + 1e-9 * n for n, value in enumerate(few)])
    ]
    assert ps[0] == pytest.approx(ps[1], abs=0.02) and 0.05 < ps[0] < 0.5


def test_sums_that_are_no_numbers_are_a_line(runs: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(runs / name, tmp_path / name)
        file = tmp_path / name / "episodes.jsonl"
        value = "1e308" if name == "a" else "-1e308"
        file.write_text(re.sub(r'"value":[-\d.]+', f'"value":{value}', file.read_text()))
    (line,) = re.findall(r'<p class="warn">(.*?)</p>', shown(Site(tmp_path), "a", "b"))
    assert "add up to inf" in line or "episodes.jsonl: line 1" in line
