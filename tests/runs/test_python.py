"""gem_ma used from Python: a run is a dict with its plays behind it, what is shown is short, and what
others wrote is text."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gem_ma
from gem_ma.config.settings import Config
from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.kernel.types import Reply, Usage
from gem_ma.runs.playing import wait
from gem_ma.runs.run import Played, Study
from gem_ma.runs.stored import Recorded
from gem_ma.scores.judge import Judge

HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)>\" ' & <!--"
GAME = f"""
from gem_ma import Ask, Reward, Scenario, Tell

class Game(Scenario):
    agents = ("a<b>", "b")

    def play(self, rng, task):
        yield Tell({{"a<b>": {HOSTILE!r}}})
        said = yield Ask({{"a<b>": "Say.", "b": "Say."}})
        yield Reward({{"b": 1.0}}, why={HOSTILE!r})
        yield Tell({{"b": said["a<b>"].text * 500}})
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Shown(HTMLParser):
    """The elements and attributes of a text of HTML, and its words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.names: set[str] = set()
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}

    def handle_comment(self, data: str) -> None:
        self.tags.add("comment")

    def handle_data(self, data: str) -> None:
        self.words += data


def test_a_run_is_a_dict_with_its_plays_behind_it() -> None:
    run = gem_ma.run("retail_one_order", ["scenario.tasks=3", "run.seed=2"])
    assert isinstance(run, gem_ma.Run) and json.loads(json.dumps(run))["episodes"] == 3
    played = list(run.episodes())
    won = [gem_ma.make("retail_one_order").success(episode) for episode in played]
    assert len(played) == 3 and run.success == sum(map(bool, won)) / 3
    assert repr(run) == f"Run({run.path}: 3 episodes, success {run.success:.3g})"
    again = gem_ma.open_run(run.path.name)  # the name below runs/ will do
    assert dict(again) == json.loads(json.dumps(run)) and again.score()["success"] == run["success"]
    with pytest.raises(StoreError):
        gem_ma.open_run("nothing")
    with pytest.raises(StoreError, match="runs: is not a run folder: it has no manifest"):
        gem_ma.open_run("runs")  # a folder of runs, or of a study


def test_overrides_may_be_a_dict_and_the_number_of_plays_an_argument() -> None:
    run = gem_ma.run("dilemma", {"scenario.rounds": 2, "agents.player_0": "first_legal"}, n=3)
    first = next(run.episodes())
    assert (run["episodes"], first.agents) == (3, ("player_0", "player_1"))
    assert first.cast["player_0"].behaviour == "first_legal" and len(first.turns) == 4
    typed = ["scenario.rounds=2", "agents.player_0=first_legal"]
    assert gem_ma.run("dilemma", typed, n=3).path == run.path
    assert gem_ma.run("dilemma", ["scenario.tasks=9"], n=4)["episodes"] == 4
    for value in (Path("x"), gem_ma.Scenario, float("inf"), float("nan"), {"a": {1, 2}}):
        with pytest.raises(
            ConfigError, match=r"^scenario\.rounds: an override is a finite number, .+; got "
        ):
            gem_ma.run("dilemma", {"scenario.rounds": value})
    given = {"run.seed": np.int64(2), "scenario.tasks": np.arange(1)}
    assert gem_ma.load_config("dilemma", given).overrides == (
        "run.seed=2",
        "scenario.tasks=[0]",
    )
    config = Config.model_validate({"scenario": {"id": "dilemma", "rounds": float("inf")}})
    with pytest.raises(ConfigError, match="a config holds finite numbers"):
        gem_ma.load_config(config)
    (cells,) = {gem_ma.open_run(path)["episodes"] for path in _played_cells(n=2)}
    assert cells == 2


def _played_cells(n: int) -> list[Path]:
    Path("s.yaml").write_text(
        "scenario: {id: dilemma}\nagents: {player_1: first_legal}\ngrid:\n  agents.player_0.behaviour: [first_legal, random_legal]\n"
    )
    study = gem_ma.study("s.yaml", n=n)
    return [path.parent for path in Path(study["study"]).rglob("manifest.json")]


def test_an_empty_folder_name_is_none_and_not_the_working_folder(here: Path) -> None:
    assert gem_ma.run("kuhn_poker", ["run.baselines=false"], n=1, out="").path.parent == Path(
        "runs"
    )
    study = here.parent / "pairs.yaml"
    cells = "grid: {scenario.rounds: [1, 2]}\n"
    study.write_text(f"scenario: {{id: dilemma}}\nagents: {{player_*: random_legal}}\n{cells}")
    made = gem_ma.study(str(study), ["run.baselines=false"], n=1, out="")
    assert made["command"].endswith("pairs.yaml', ['run.baselines=false'], n=1, measures=())")
    assert [path.name for path in here.iterdir()] == ["runs"]


def test_what_can_be_typed_is_listed_and_nothing_else() -> None:
    names = [name for name in dir(gem_ma) if not name.startswith("__")]
    assert set(gem_ma.__all__) <= set(names)
    assert not {"Any", "Path", "import_module", "annotations", "_PUBLIC"} & set(names)
    assert {"dilemma", "retail"} <= set(gem_ma.list_scenarios())


@pytest.mark.long
def test_runs_are_compared_and_a_study_is_played(here: Path) -> None:
    runs = [
        gem_ma.run("dilemma", [f"agents.player_0={player}", "scenario.tasks=6"])
        for player in ("first_legal", "random_legal")
    ]
    result = gem_ma.compare(*runs)
    assert result["pairs"] == 6 and result["a"] == runs[0]["run"]
    assert gem_ma.compare(runs[0].path, runs[0].path)["differs"] == []
    with pytest.raises(ConfigError, match="no score of these runs"):
        gem_ma.compare(*runs, scores=["nonsense"])
    # as the command says: the plays of a training are of no one policy
    manifest = runs[0].path / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "command": "train"}))
    with pytest.raises(gem_ma.ConfigError, match="is a training"):
        gem_ma.compare(runs[1], runs[0])
    (here / "study.yaml").write_text(
        "scenario: {id: dilemma, tasks: 2}\nagents: {player_0: first_legal, player_1: first_legal}\n"
        "grid: {agents.player_0: {kind: first_legal, any: random_legal}}\n"
    )
    made = gem_ma.study("study.yaml")
    assert len(made["cells"]) == 2
    cells = [gem_ma.open_run(Path(made["study"]) / row["run"]) for row in made["cells"]]
    assert [cell["episodes"] for cell in cells] == [2, 2]
    # nothing is played again, and the command takes it up
    before = {path: path.read_bytes() for path in Path(made["study"]).rglob("episodes.jsonl")}
    assert gem_ma.study("study.yaml")["cells"] == made["cells"]
    from gem_ma.cli.main import main

    assert main(["study", "study.yaml", "--quiet"]) == 0
    assert before == {path: path.read_bytes() for path in before}


def test_a_study_and_a_comparison_are_tables() -> None:
    Path("s.yaml").write_text(
        "scenario: {id: dilemma, tasks: 4}\nagents: {player_1: first_legal}\n"
        "grid:\n  agents.player_0.behaviour: [first_legal, random_legal]\n"
    )
    study = gem_ma.study("s.yaml")
    rows = {(row["agents.player_0.behaviour"], row["score"]): row for row in study.rows()}
    (listed,) = study["comparisons"].values()
    mine = rows["random_legal", study["compared"][0]]
    assert len({who for who, _ in rows}) == 2 and (mine["difference"], mine["n"]) == (
        listed[0]["difference"],
        4,
    )
    assert rows["first_legal", study["compared"][0]]["p"] is None
    cells = [Path(study["study"], cell["run"]) for cell in study["cells"]]
    compared = gem_ma.compare(*cells)
    assert [row["score"] for row in compared.rows()] == list(compared["scores"])
    hostile = gem_ma.compare(*cells)
    hostile["scores"] = {HOSTILE: next(iter(compared["scores"].values()))}
    shown = hostile._repr_html_()
    assert "<script" not in shown and "&lt;script" in shown
    assert study._repr_html_().count("<tr>") == len(rows) + 1 > 4
    # of a task that lost a try nobody knows how often three in a row succeed
    study["cells"][0]["scores"] = {"pass^3": None}
    assert study.rows()[0]["score"] == "pass^3" and study.rows()[0]["mean"] is None


def test_what_is_shown_is_short_and_every_word_of_others_is_text(here: Path) -> None:
    (here / "game.py").write_text(GAME)
    words = HOSTILE.replace('"', "'")
    (here / "player.py").write_text(
        f"from gem_ma import Action\nclass Player:\n    def __init__(self, agent, sample, rng, task=None): ...\n"
        f"    async def act(self, asked): return Action({words!r})\n"
    )
    seats = ['agents.a<b>="player.py:Player"', 'agents.b="player.py:Player"', "scenario.tasks=1"]
    run = gem_ma.run("game.py", seats)
    (episode,) = run.episodes()
    assert len(repr(episode)) < 200 and "1 turns" not in repr(episode)
    for html in (episode._repr_html_(), run._repr_html_()):
        shown = Shown(html)
        assert shown.tags <= {"div", "p", "code", "table", "tr", "th", "td", "b"}, shown.tags
        assert shown.names <= {"style"} and "a<b>" in shown.words
    lanes = Shown(episode._repr_html_()).words
    assert HOSTILE in lanes and words in lanes and "more characters]" in lanes
    assert len(episode._repr_html_()) < 20_000


def test_a_row_of_a_play_says_who_played_what_was_found_and_whose_fault_it_was() -> None:
    run = gem_ma.run(
        "retail_scripted", ["agents.assistant=retail_transfers_early", "scenario.tasks=4"]
    )
    rows = list(run.rows())
    lost = [row for row in rows if not row["success"]]
    assert len(rows) == 4 and lost
    for row in rows:
        assert row["behaviour assistant"] == "retail_transfers_early"
        assert row["model user"] is None and "cost user" not in row
        assert row["return assistant"] == float(row["success"])
        assert {"measure user turns", "label intent", "turns"} <= row.keys()
    assert {row["blame"] for row in lost} == {"assistant"}
    assert all(row["cause"].startswith("assistant: ") for row in lost)
    assert "blame" not in next(row for row in rows if row["success"])
    assert "fault" not in next(row for row in rows if row["success"])
    for row in lost:
        assert row["fault agent"] == "assistant" and 0 <= row["fault step"] < row["turns"]
        assert row["fault"] == "assistant handed over, but the task can be served"
    # a row a turn is as it was
    assert len(list(run.rows("turns"))) == sum(row["turns"] for row in rows)
    with pytest.raises(ConfigError, match="episodes or turns"):
        run.rows("plays")


def test_a_mean_over_rows_is_that_of_the_summary_where_plays_failed(here: Path) -> None:
    paid = GAME.replace("1.0}", "rng.random()}")
    (here / "game.py").write_text(f"{paid}        assert rng.random() < 0.5\n")
    run = gem_ma.run("game.py", ["agents.*=silent", "scenario.tasks=8"])
    assert 0 < run["failed"] < 7
    returns = [row["return b"] for row in run.rows()]
    assert returns.count(None) == run["failed"]
    known = [value for value in returns if value is not None]
    assert sum(known) / len(known) == pytest.approx(run["returns"]["b"]["mean"])


def test_a_row_names_the_model_and_what_it_cost() -> None:
    priced = "{model: openai/m, price: {input: 1.0, output: 2.0}}"
    config = gem_ma.load_config(
        "dilemma", [f"policies.main={priced}", "agents.player_0={behaviour: direct, policy: main}"]
    )
    run = gem_ma.run("dilemma", ["scenario.tasks=1"])
    (played,) = run.episodes()
    usage = Usage(1_000_000, 500_000)
    reply = Reply("x", policy="main", usage=usage)
    turns = tuple(replace(turn, replies=(reply,)) for turn in played.turns[:2])
    turns = tuple(replace(turn, agent="player_0") for turn in turns)
    cast = {**played.cast, "player_0": gem_ma.Seat("direct", "main")}
    played = replace(played, turns=turns, cast=cast)
    rows = Played(Recorded(run.path, Judge(), config.config))
    rows.models = {"main": "openai/m"}
    row = rows.row(played)
    assert (row["model player_0"], row["policy player_0"]) == ("openai/m", "main")
    assert (row["tokens player_0"], row["cost player_0"]) == (1_000_000, pytest.approx(4.0))
    assert "cost player_1" not in row and row["model player_1"] is None


def test_a_frame_without_pandas_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    run = gem_ma.run("dilemma", ["scenario.tasks=1"])
    monkeypatch.setitem(sys.modules, "pandas", None)
    for frame in (run.to_frame, lambda: gem_ma.to_frame(run)):
        with pytest.raises(ConfigError, match=r"needs pandas: pip install"):
            frame()


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame is its rows; tests/sb3/test_tables.py has pandas."""
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))


@pytest.mark.usefixtures("lists")
def test_one_call_gives_the_plays_of_runs_studies_and_folders_of_them() -> None:
    made = [
        gem_ma.run("dilemma", ["scenario.tasks=2"], out=f"runs/{name}")
        for name in ("a", "study/calm", "study/cross")
    ]
    Path("runs/exports").mkdir()
    wanted = [{"run": run["run"], **row} for run in made for row in run.rows()]
    assert len(wanted) == 6 and gem_ma.to_frame("runs") == wanted
    # by name below runs/, as a run, as a study; what is named twice is taken once
    study = Study({"study": "runs/study"})
    assert gem_ma.to_frame(["a", made[0], "runs/a", study]) == wanted
    assert gem_ma.to_frame(study) == gem_ma.to_frame("study") == wanted[2:]
    turns = gem_ma.to_frame(made, "turns")
    assert turns == [{"run": run["run"], **row} for run in made for row in run.rows("turns")]
    # of what lies in its folder a study compares some: of another grid the cells are no part of it
    Path("runs/study/study.json").write_text('{"cells": [{"run": "calm"}]}')
    assert gem_ma.to_frame(study) == wanted[2:4] and gem_ma.to_frame("runs") == wanted[:4]
    with pytest.raises(ConfigError, match="rows are episodes or turns"):
        gem_ma.to_frame("runs", "plays", on_broken=print)
    for source, words in (("runs/exports", "holds no run folder"), ("gone", "gone: No such file")):
        with pytest.raises(StoreError, match=words):
            gem_ma.to_frame(["runs", source], on_broken=print)


@pytest.mark.usefixtures("lists")
@pytest.mark.parametrize("file", ["manifest.json", "resolved.yaml", "episodes.jsonl"])
def test_a_damaged_run_among_many_is_told_and_gives_no_row(file: str) -> None:
    good, bad = (gem_ma.run("dilemma", ["scenario.tasks=3"], out=f"runs/{name}") for name in "gb")
    lines = (bad.path / file).read_text().splitlines(keepends=True)
    # in the middle; of a play the head stays whole, so that those before it are read
    middle = len(lines) // 2
    lines[middle] = f"{lines[middle][:-2]}]\n" if file == "episodes.jsonl" else "{]\n"
    (bad.path / file).write_text("".join(lines))
    told: list[str] = []
    assert gem_ma.to_frame("runs", on_broken=told.append) == [
        {"run": good["run"], **row} for row in good.rows()
    ]
    assert len(told) == 1 and str(bad.path / file) in told[0] and "\n" not in told[0]
    with pytest.raises(StoreError, match=file):
        gem_ma.to_frame("runs")


def test_a_training_has_the_success_of_its_last_exam() -> None:
    small: list[Any] = ["train.steps=1", "train.episodes=8", "evaluate.episodes=8"]
    trained = gem_ma.train("guess_number_table", small)
    assert trained.success == trained["after"]["sampled"]["success"]
    assert "steps" in gem_ma.open_run(trained.path) and "before" not in repr(trained)


def test_adapters_are_there_as_the_pages_type_them() -> None:
    """`import gem_ma; gem_ma.worlds.wrap(env)`, and nothing is loaded before it is named."""
    code = "import sys, gem_ma; assert 'gem_ma.worlds' not in sys.modules; gem_ma.worlds.wrap"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "adapters" in dir(gem_ma)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_notebook_stops_what_is_played() -> None:
    ends = []

    async def work() -> None:
        try:
            await asyncio.sleep(0.1)  # until the caller waits
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.sleep(3)
            ends.append("played to its end")
        except asyncio.CancelledError:
            ends.append("stopped")
            raise

    async def cell() -> None:
        wait(work())

    loop = asyncio.new_event_loop()  # a kernel's, which takes no signals
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
    finally:
        loop.close()
    assert ends == ["stopped"]


@pytest.mark.parametrize("source", [None, {"scenario": {"id": "dilemma"}}, gem_ma.Scenario, b"x"])
@pytest.mark.parametrize("call", [gem_ma.run, gem_ma.train, gem_ma.study, gem_ma.load_config])
def test_what_is_no_config_is_one_line(call: Any, source: Any) -> None:
    with pytest.raises(ConfigError, match=r"^a config is a file, or the name of one .*; got .+"):
        call(source)
    with pytest.raises(ConfigError, match=r"^overrides are a dict, or a list of texts .*; got \[4"):
        call("dilemma", [4])


@pytest.mark.long
def test_one_name_of_a_score_need_not_be_a_list() -> None:
    first = gem_ma.run("dilemma", n=2)
    assert gem_ma.compare(first, first, "equality")["scores"].keys() >= {"equality"}
    with pytest.raises(ConfigError, match="--measure nope"):
        gem_ma.study("retail_matrix", n=1, measures="nope")
