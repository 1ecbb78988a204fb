"""Figures of the paper: cells that are trained once, records that tables and curves are made of,
and the shipped files."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gem_ma.cli.paper as paper_command
from gem_ma import Asked
from gem_ma.cli.main import main
from gem_ma.cli.sweep import Sweep
from gem_ma.config.figures import Cell, Figure, load_figure, shipped_figures
from gem_ma.config.loading import Loaded
from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.kernel.types import Message
from gem_ma.registry import load
from gem_ma.runs.figures import cell_path, read_records
from gem_ma.scores.exams import measured_in
from gem_ma.scores.figures import (
    against_first,
    best_rates,
    end_of,
    height_of,
    last_of,
    over_seeds,
    rises,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"
# written down before the first run; no row ever leaves it
ENVIRONMENTS = """guess_number mastermind minesweeper sudoku fifteen_puzzle hanoi game2048 wordle
    sokoban chain_sum letter_counting number_sorting spell_backward arithmetic arithmetic_python
    questions questions_search code shapes referential dilemma kuhn_poker negotiation
    retail_one_order"""
SMALL = """
title: Two ways over a bridge
seeds: [0, 1]
set:
  train: {policies: [walker], steps: 2, episodes: 8, estimator: {name: rebn}}
  evaluate: {episodes: 8, every: 1}
rows:
  walk: {kind: small, config: stop_or_go, score: return walker, trivial: 0.0, minutes: 0.01}
  far: {kind: small, config: nowhere, minutes: 0.01}
"""
RATED = """
title: Which rate
seeds: [0]
columns: {rebn: {train.estimator.name: rebn}, reinforce: {train.estimator.name: reinforce}}
rates: {factors: [0.5, 1.0], seeds: [7]}
set: {train.steps: 1, train.episodes: 8, train.group_size: 1, evaluate: {episodes: 8}}
rows:
  walk: {kind: small, config: stop_or_go, score: return walker, minutes: 0.01}
"""


def record(**changed: Any) -> dict[str, Any]:
    """The record of a training that rose from .2 to .8 in 100 turns."""
    whole = {"row": "a", "column": "", "seed": 0, "rate": 1.0, "tries": False, "scale": "cpu"}
    curve = [[0, 0, 0.2, 0.1, 0.3], [1, 50, 0.5, 0.4, 0.6], [2, 100, 0.8, 0.7, 0.9]]
    return {**whole, "run": "a-0", "score": "success", "curve": curve, **changed}


@pytest.fixture
def figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A figure of two rows, one of which names a config that is not there, in place of ours."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    monkeypatch.setattr(paper_command, "shipped_figures", lambda: {"small": path})
    monkeypatch.chdir(tmp_path)
    return path


@pytest.mark.long
def test_a_cell_is_trained_once_and_its_record_outlives_its_run_folder(
    figure: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["paper", "--out", "out", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["figures"]
    folders = sorted((tmp_path / "out" / "small").iterdir())
    assert [folder.name[:6] for folder in folders] == ["walk-0", "walk-1"]
    rows = {row[0]: row for row in first["small"]["tables"][0]["rows"]}
    assert "→" in rows["walk"][4] and "nowhere" in rows["far"][-2]
    # without plays and models the records still say all of it, and nothing is trained
    for folder in folders:
        folder.rename(tmp_path / folder.name)
    for words in ([], ["--records", "out"]):
        assert main(["paper", "--out", "out", "--json", *words]) == 0
        told = json.loads(capsys.readouterr().out)["figures"]
        again = {row[0]: row for row in told["small"]["tables"][0]["rows"]}
        assert again["walk"] == rows["walk"]
        assert not list((tmp_path / "out" / "small").iterdir())
    assert "<svg" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.long
def test_a_row_alone_keeps_the_records_of_others(figure: Path, tmp_path: Path) -> None:
    figure.write_text(SMALL.replace("config: nowhere", "config: stop_or_go, score: return walker"))
    for row in ("walk", "far"):
        assert main(["paper", "--only", f"small/{row}", "--out", "out"]) == 0
    records = read_records(tmp_path / "out" / "small.jsonl")
    assert [one["row"] for one in records] == ["walk", "walk", "far", "far"]


@pytest.mark.long
def test_a_setting_that_changes_is_another_training(figure: Path, tmp_path: Path) -> None:
    assert main(["paper", "--only", "small/walk", "--out", "out"]) == 0
    figure.write_text(SMALL.replace("steps: 2", "steps: 1"))
    assert main(["paper", "--only", "small/walk", "--out", "out"]) == 0
    assert len(list((tmp_path / "out" / "small").iterdir())) == 4
    assert len(read_records(tmp_path / "out" / "small.jsonl")) == 2


def test_long_work_is_told_before_it_is_begun(
    figure: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure.write_text(SMALL.replace("minutes: 0.01", "minutes: 30"))
    assert main(["paper", "--out", "out"]) == 0
    printed = capsys.readouterr()
    assert "2:00:00" in printed.err and "--yes" in printed.err
    assert "not yet run" in printed.out and not (tmp_path / "out" / "small").exists()


@pytest.mark.long
def test_the_model_of_a_row_is_made_before_its_settings_are_read(
    figure: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `dtype: auto` means is read off the folder of the model."""
    talks = "{kind: small, config: smollm2_guess_number, first: new model models/smollm2}"
    figure.write_text(f"title: A talk\nseeds: [0]\nrows: {{talk: {talks}}}\n")
    asked = []

    def make_model(words: str, configs: Path) -> None:
        folder = Path("models/smollm2")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text('{"dtype": "bfloat16"}')

    def train_into(loaded: Loaded, *_: Any, **__: Any) -> None:
        asked.append(loaded.config.policies["player"].options["dtype"])
        raise ConfigError("enough")

    monkeypatch.setattr(paper_command, "_make_model", make_model)
    monkeypatch.setattr(paper_command, "train_into", train_into)
    main(["paper", "--out", "out", "--yes"])
    assert asked and "auto" not in asked


def test_the_command_of_a_model_finds_the_configs_wherever_they_lie(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    typed: list[list[str]] = []
    monkeypatch.setattr(paper_command.new, "main", lambda args, **_: typed.append(args))
    words = f"new model {tmp_path}/made --tool search={{configs}}/paper/desks"
    paper_command._make_model(words, Path("/a place/configs"))
    assert typed == [["model", f"{tmp_path}/made", "--tool", "search=/a place/configs/paper/desks"]]


@pytest.mark.long
def test_a_rate_is_chosen_on_other_seeds(figure: Path, tmp_path: Path) -> None:
    figure.write_text(RATED)
    assert main(["paper", "--out", "out"]) == 0
    records = read_records(tmp_path / "out" / "small.jsonl")
    tried = {(one["column"], one["rate"]) for one in records if one["tries"]}
    assert len(tried) == 4 and {one["seed"] for one in records if one["tries"]} == {7}
    assert [(one["column"], one["seed"]) for one in records if not one["tries"]] == [
        ("rebn", 0),
        ("reinforce", 0),
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--only", "smal"], "did you mean 'small'"),
        (["--only", "small/wlak"], "did you mean 'walk'"),
    ],
)
def test_a_figure_that_is_not_there_is_one_line(
    figure: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert main(["paper", *words]) == 2
    assert told in capsys.readouterr().err


def test_a_wrong_figure_is_refused_with_its_line(figure: Path) -> None:
    figure.write_text(SMALL.replace("seeds:", "seed:"))
    with pytest.raises(ConfigError, match=r"small.yaml:3: seed: unknown key .*'seeds'"):
        load_figure(figure)
    figure.write_text(SMALL + "  near: {kind: small, config: stop_or_go, of: far_off}\n")
    with pytest.raises(ConfigError, match=r"rows\.near\.of"):
        load_figure(figure)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"row": "walk"}', "a record without 'column'"),
        ("5", "a record is an object"),
        ('{"row": "walk"', ""),
        ('{"row": NaN}', ""),
    ],
)
def test_a_damaged_record_is_named(line: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(StoreError, match=rf"a\.jsonl:1: .*{told}"):
        read_records(file)


@pytest.mark.parametrize("changed", [{"curve": []}, {"curve": [[0]]}, {"seconds": "x"}])
def test_records_that_are_no_curves_are_one_line(
    changed: dict[str, Any], figure: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = tmp_path / "held"
    held.mkdir()
    rows = [record(row="walk", score="return walker", seed=seed, **changed) for seed in (0, 1)]
    (held / "small.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["paper", "--records", str(held), "--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err
    assert "small.jsonl" in told and "Traceback" not in told and told.count("\n") <= 2


def test_a_row_rises_beyond_both_intervals() -> None:
    assert rises(record())
    assert not rises(record(), less=True)
    near = [[0, 0, 0.2, 0.1, 0.3], [1, 50, 0.35, 0.29, 0.4]]
    assert not rises(record(curve=near))
    exact = [[0, 0, 0.9, None, None], [1, 50, 0.1, None, None]]
    assert rises(record(curve=exact), less=True) and not rises(record(curve=exact))


def test_columns_are_compared_at_equal_turns() -> None:
    """The longer training of the second column may not count beyond the turns of the first."""
    longer = [*record()["curve"][:2], [2, 90, 0.7, 0.6, 0.8], [3, 300, 1.0, 0.9, 1.0]]
    records = [
        record(row=row, column=column, seed=seed, curve=curve)
        for row in "abc"
        for column, curve in (("rebn", record()["curve"]), ("ppo", longer))
        for seed in range(5)
    ]
    assert last_of(records[-1], 100).mean == 0.7
    kinds = {"a": "several turns", "b": "several turns"}  # c stands on the trainings of a
    found = {one.what: one for one in against_first(records, ["rebn", "ppo"], kinds, set())}
    assert [*found] == ["a", "b", "c", "all of several turns"]
    assert found["a"].compared.difference == pytest.approx(-0.1) and found["a"].seeds == 5
    assert found["all of several turns"].seeds == 10
    (turned, *_) = against_first(records, ["rebn", "ppo"], kinds, {"a"})
    assert turned.compared.difference == pytest.approx(0.1)


def test_success_over_seeds_stays_a_rate() -> None:
    ends = [1.0, 1.0, 0.98, 0.25]
    records = [record(seed=seed, curve=[[0, 0, end, 0, 1]]) for seed, end in enumerate(ends)]
    told = over_seeds(records, 0)
    assert (told.low, told.high) == (0.0, 1.0) and told.mean == pytest.approx(0.8075)
    paid = over_seeds([{**one, "score": "return a"} for one in records], 0)
    assert paid.mean == told.mean and paid.high > 1  # of a return nobody knows the end


def test_a_rate_wins_by_the_mean_of_its_trials() -> None:
    def trial(rate: float, seed: int, end: float) -> dict[str, Any]:
        return record(rate=rate, seed=seed, tries=True, curve=[[0, 0, 0, 0, 0], [1, 9, end, 0, 1]])

    trials = [trial(0.5, 7, 0.9), trial(0.5, 8, 0.0), trial(1.0, 7, 0.5), trial(1.0, 8, 0.6)]
    assert best_rates(trials, {"a": False}, 4) == {("a", ""): 1.0}
    assert best_rates(trials, {"a": True}, 4) == {("a", ""): 0.5}
    assert best_rates(trials[:3], {"a": False}, 4) == {}  # not before all are there


def test_of_two_curves_that_end_alike_the_one_that_rose_sooner_stands_higher() -> None:
    late = record(curve=[[0, 0, 0.0, 0, 0], [1, 50, 0.0, 0, 0], [2, 100, 1.0, 1, 1]])
    soon = record(curve=[[0, 0, 0.0, 0, 0], [1, 50, 1.0, 1, 1], [2, 100, 1.0, 1, 1]], column="ppo")
    assert height_of(late, 100) == pytest.approx(0.25)
    assert height_of(soon, 100) == pytest.approx(0.75)
    # up to the middle of an exam's way, and before anything was sampled
    assert height_of(soon, 25) == pytest.approx(0.25)
    assert height_of(record(curve=[[0, 0, 0.3, 0, 0]]), 0) == 0.3
    pairs = [one | {"seed": seed} for seed in range(5) for one in (late | {"column": "rebn"}, soon)]
    for scored, difference in ((end_of, 0.0), (height_of, 0.5)):
        (one, *_) = against_first(pairs, ["rebn", "ppo"], {}, set(), scored)
        assert one.compared.difference == pytest.approx(difference)


# -- what is shipped -------------------------------------------------------------------------------


def test_no_row_leaves_the_list_of_environments() -> None:
    assert [*load_figure(shipped_figures()["a"]).settings.rows] == ENVIRONMENTS.split()


def one_seed(figure: Figure) -> list[Cell]:
    return [cell for cell in figure.cells() if cell.seed == figure.settings.seeds[0]]


def is_playable(figure: Figure, row: str) -> bool:
    """Whether the library of its scenario is installed."""
    settings = figure.settings.rows[row]
    played = settings.set.get("scenario", {}).get("id", settings.config)
    library, colon, _ = played.partition(":")
    return not colon or importlib.util.find_spec(library) is not None


@pytest.mark.long
@pytest.mark.parametrize("scale", ["cpu", "gpu"])
@pytest.mark.parametrize("name", sorted(shipped_figures()))
def test_every_cell_opens(name: str, scale: str) -> None:
    figure = load_figure(shipped_figures()[name])
    for cell in one_seed(figure):
        if is_playable(figure, cell.row):
            assert paper_command.open_cell(figure.load(cell, scale)).worlds.played


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(shipped_figures()))
def test_records_are_of_the_settings_that_are_shipped(name: str, tmp_path: Path) -> None:
    """Else a cell that is set otherwise today would have numbers of another setting."""
    figure = load_figure(shipped_figures()[name])
    cells: dict[tuple[Any, ...], tuple[Cell, str]] = {}
    for one in read_records(DOCS / "paper" / f"{name}.jsonl"):
        cell = Cell(*(one[key] for key in Cell._fields))
        if one["scale"] == "cpu" and is_playable(figure, cell.row):
            # one of all seeds and rates, which are no settings of the files; of rows that are
            # examined by others the training is the same
            trained = figure.settings.rows[cell.row].of or cell.row
            cells[trained, cell.column, cell.tries] = cell, one["run"]
    assert cells
    for cell, run in cells.values():
        assert any(run == name for name in names_of(figure, cell, tmp_path))


def names_of(figure: Figure, cell: Cell, root: Path) -> Iterator[str]:
    """What a cell's run folder may be called: `dtype: auto` is what the processor is fast in, and
    results differ by it."""
    loaded = figure.load(cell)
    rows = figure.settings.rows
    trained = rows[cell.row].of or cell.row
    yield cell_path(root, figure, cell, loaded).name
    auto = [name for name, each in loaded.config.policies.items() if "dtype" in each.options]
    for dtype in ("auto", "float32", "bfloat16") if auto else ():
        set_ = {**rows[trained].set, **{f"policies.{name}.dtype": dtype for name in auto}}
        row = rows[trained].model_copy(update={"set": set_})
        settings = figure.settings.model_copy(update={"rows": {**rows, trained: row}})
        one = replace(figure, settings=settings)
        yield cell_path(root, one, cell, one.load(cell)).name


@pytest.mark.long
def test_several_seeds_in_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "stop_or_go", "train.steps=2", "evaluate.episodes=8", "--quiet"]
    assert main([*words, "--seeds", "2", "--out", "out", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["seeds"] == [0, 1] and len(told["after"]["return walker"]) == 2
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "seed-0",
        "seed-1",
        "report.html",
    }
    assert main([*words, "--seeds", "2", "--processes", "2"]) == 2
    assert "--processes" in capsys.readouterr().err


@pytest.mark.long
def test_a_score_that_some_exams_lack_is_told_of_the_seeds_that_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "kuhn_table", "train.steps=1", "train.episodes=8", "train.save_every=1"]
    words += ["evaluate.episodes=4", "--quiet", "--seeds", "2", "--out", "out"]
    assert main(words) == 0
    capsys.readouterr()
    # what an exam has no views, or no plays, to measure
    for seed, lacking in ((0, ["before", "after"]), (1, ["before"])):
        file = tmp_path / "out" / f"seed-{seed}" / "summary.json"
        summary = json.loads(file.read_text("utf-8"))
        for exam in lacking:
            del summary[exam]["nash_conv"]
        file.write_text(json.dumps(summary), "utf-8")
    last = summary["after"]["nash_conv"]
    sweep = Sweep(tmp_path / "out", {seed: tmp_path / "out" / f"seed-{seed}" for seed in (0, 1)})
    sweep.show(as_json=False)
    (row,) = (
        line for line in capsys.readouterr().out.splitlines() if line.startswith("nash_conv ")
    )
    assert row.split() == [
        *("nash_conv", "n/a", f"{last:.3f}", "of", "1"),
        *("[n/a]", f"{last:.3f}", f"{last:.3f}"),
    ]
    sweep.show(as_json=True)
    assert json.loads(capsys.readouterr().out)["after"]["nash_conv"] == [None, last]


def test_means_over_seeds_have_the_returns_of_groups_where_agents_have_no_room() -> None:
    paid = {f"player_{n}": 1.0 for n in range(9)}
    exam = {"return": paid, "scores": {"return team red": 1.0, "welfare": 9.0}}
    assert measured_in({"sampled": exam}) == {"return team red": ("sampled", "return team red")}


@pytest.mark.parametrize(
    ("question", "right"),
    [
        ("State the final answer to the following arithmetic problem: 4 - 9 =", "-5"),
        ("Spell this word backward (example: sun -> nus): Zep", "peZ"),
        ("Sort these numbers in descending order: 2.0, 5.0\nAs ['-69', '1'].", "['5.0', '2.0']"),
    ],
)
def test_the_reasoner_is_right_unless_it_slips(question: str, right: str) -> None:
    file = DOCS.parent / "configs" / "paper" / "reasoner.py"

    def said(slips: float) -> set[str]:
        player = load("agents", f"{file}:Reasoner")
        one = player("agent_0", None, random.Random(0), slips=slips)
        asked = Asked((), (Message(question),), None, (), 0)
        return {asyncio.run(one.act(asked)).text for _ in range(40)}

    assert said(0.0) == {right}
    assert right in said(0.5) and len(said(0.5)) > 1
