"""A run's plays as data for others: what comes back is what was played, rewards sum to returns, and
nothing half-written stays behind."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gem_ma
from gem_ma.cli.export import FORMATS as TYPED
from gem_ma.cli.main import main
from gem_ma.kernel.episode import Entry, Seat
from gem_ma.kernel.types import Action, Reply, Turn, Usage
from gem_ma.runs.export.tables import harmless, turn_rows, write_csv
from gem_ma.runs.export.writing import FORMATS, pairs
from tests.hostile import one_line
from tests.plays import recorded

GAME = """
from gem_ma import Ask, Reward, Scenario, Tell

class Game(Scenario):
    agents = ("player_0", "player_1")

    def tasks(self, split):
        return ("cat", "dog", "owl", "fox")

    def play(self, rng, task):
        yield Reward({"player_1": 0.5}, why="for being here")
        for number in (1, 2):
            said = yield Ask({"player_1": f"{task}, {number}"}, legal=("x", "y"))
            yield Reward({"player_1": float(said["player_1"].parsed == "x")})
        yield Ask({"player_0": "And you?"}, legal=("well", "ill"))
        yield Reward({"player_1": 0.25})
"""


def played(path: Path) -> Iterator[Path]:
    """A run of a shop, and one of a game with tokens and repeats."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        (path / "game.py").write_text(GAME)
        shop = [
            "agents.assistant.behaviour=retail_forgets_to_confirm",
            "run.seed=3",
            "run.baselines=false",
        ]
        assert main(["run", "retail_scripted", "-n", "8", *shop, "--out", "shop", "--quiet"]) == 0
        game = ["policies.player_1={model: table/softmax}", "agents.player_1={policy: player_1}"]
        repeats = ["agents.player_0=first_legal", "run.episodes_per_task=6"]
        assert main(["run", "game.py", *game, *repeats, "-n", "4", "--out", "game", "--quiet"]) == 0
        yield path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield from played(tmp_path_factory.mktemp("export"))


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


def exported(out: Path, run: str, form: str, *more: str) -> Path:
    assert main(["export", run, "--to", form, "-o", str(out), *more]) == 0
    return out


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_command_offers_every_format_and_each_is_one_line_of_help() -> None:
    assert tuple(FORMATS) == TYPED


@pytest.mark.long
def test_a_missing_pyarrow_is_one_line_and_leaves_nothing(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for form in ("parquet", "hf"):
        typed = ["export", "shop", "--to", form, "-o", str(tmp_path / form)]
        assert one_line(capsys, typed, most=1) == 2
    assert not list(tmp_path.iterdir())


def test_what_is_imitated_was_won_and_ends_with_a_word_of_its_speaker(
    here: Path, tmp_path: Path
) -> None:
    won = json.loads((here / "shop/summary.json").read_text())["success"]
    out = exported(tmp_path / "a.jsonl", "shop", "sft", "--agent", "assistant")
    assert len(rows(out)) == round(won["mean"] * won["n"]) < 8
    assert all(row["success"] and row["messages"][-1]["role"] == "assistant" for row in rows(out))
    assert all(row["tools"] for row in rows(out))
    lost = exported(tmp_path / "b.jsonl", "shop", "messages", "--only", "lost", "--agent", "user")
    assert len(rows(lost)) == 8 - len(rows(out))


def test_of_two_acts_in_one_view_the_one_that_led_to_more_is_preferred(
    here: Path, tmp_path: Path
) -> None:
    out = exported(tmp_path / "a.jsonl", "game", "preference", "--agent", "player_1")
    made = rows(out)
    assert made
    plays = {(e.id[0], str(e.seed), e.repeat): e for e in gem_ma.read_episodes("game")}
    for row in made:
        better = plays[row["task"], row["seed"], row["repeat"]]
        worse = plays[row["task"], row["rejected_seed"], row["rejected_repeat"]]
        gap = better.returns()["player_1"] - worse.returns()["player_1"]
        assert row["margin"] == gap > 0
        assert row["chosen"] != row["rejected"] and row["prompt"][-1]["role"] != "assistant"
        assert len(row["chosen"]) == len(row["rejected"]) == 1
    # plays of one start that went alike prefer nothing
    same = [next(gem_ma.read_episodes("game"))] * 2
    assert not list(pairs(same, lambda episode: None))


def test_what_cannot_be_judged_is_in_no_pair_with_what_can(here: Path) -> None:
    start = [next(gem_ma.read_episodes("game"))] * 3
    acts = [replace(start[0].turns[0], action=Action(text)) for text in "abc"]
    plays = [replace(one, repeat=n, turns=(acts[n],)) for n, one in enumerate(start)]
    plays[2] = replace(plays[2], ledger=(Entry(0, acts[0].agent, 9.0),))
    (pair,) = pairs(plays, lambda episode: (True, False, None)[episode.repeat], [acts[0].agent])
    assert (pair["repeat"], pair["rejected_repeat"], pair["margin"]) == (0, 1, 1.0)


def test_talks_are_written_as_the_benchmarks_store_them(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = json.loads(exported(tmp_path / "1.json", "shop", "tau1").read_text())
    second = json.loads(exported(tmp_path / "2.json", "shop", "tau2").read_text())
    summary = json.loads((here / "shop/summary.json").read_text())
    for results in (first, [run["reward_info"] for run in second["simulations"]]):
        mean = sum(result["reward"] for result in results) / len(results)
        assert mean == pytest.approx(summary["success"]["mean"])
    for episode, run in zip(gem_ma.read_episodes("shop"), second["simulations"], strict=True):
        calls = [c for m in run["messages"] for c in m.get("tool_calls") or ()]
        answered = {m["id"] for m in run["messages"] if m["role"] == "tool"}
        assert {call["id"] for call in calls} >= answered and answered
        said = [m["content"] or "" for m in run["messages"] if m["role"] in ("assistant", "user")]
        assert said == [turn.action.text for turn in episode.turns]
    assert one_line(capsys, ["export", "game", "--to", "tau2", "-o", str(tmp_path / "3")]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.json", "2.json"]


@pytest.mark.long
def test_a_folder_gets_the_file_and_a_strange_agent_none(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "shop", "--to", "messages", "-o", str(tmp_path)]) == 0
    assert main(["report", "shop", "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"shop-messages.jsonl", "report.html"}
    before = Path("shop/report.html").read_bytes()
    assert one_line(capsys, ["report", "game", "--out", "shop"]) == 1
    assert Path("shop/report.html").read_bytes() == before
    # of a run whose rules may not be asked, too
    shutil.copytree("shop", tmp_path / "own")
    resolved = tmp_path / "own/resolved.yaml"
    resolved.write_text(resolved.read_text().replace("id: retail", "id: code.py:Shop"))
    assert one_line(capsys, ["export", f"{tmp_path}/own", "--to", "messages", "--agent", "x"]) == 2


@pytest.mark.parametrize(
    "more",
    [["--agent", "nobody"], ["--only", "won"], ["-o", "shop"], ["--to", "xml"]],
    ids=lambda words: " ".join(words),
)
def test_what_cannot_be_exported_is_one_line(
    here: Path, tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = "game" if "--only" in more else "shop"
    typed = ["export", run, "--to", "messages", "-o", str(tmp_path / "x"), *more]
    assert one_line(capsys, typed) == 2
    assert not list(tmp_path.iterdir())


MIXED = """
from gem_ma import Ask, Scenario

class Half(Scenario):
    agents = ("ann",)

    def tasks(self, split):
        return (False, True)

    def play(self, rng, task):
        yield Ask({"ann": "?"}, legal=("x",))
        if task:
            raise ValueError("in the middle")
"""


@pytest.mark.long
def test_what_broke_in_the_middle_is_nothing_to_imitate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "half.py").write_text(MIXED)
    assert main(["run", "half.py", "-n", "2", "--out", "half", "--quiet"]) == 1
    kept = rows(exported(tmp_path / "a.jsonl", "half", "sft"))
    assert [row["end"] for row in kept] == ["terminated"]
    assert "1 rows of 1 episodes, chosen of 2 (--only all" in capsys.readouterr().out
    assert len(rows(exported(tmp_path / "b.jsonl", "half", "sft", "--only", "all"))) == 2
    assert not rows(exported(tmp_path / "c.jsonl", "half", "preference"))
    assert "run.episodes_per_task=4" in capsys.readouterr().out


@pytest.mark.long
def test_agents_of_a_pattern_are_named_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.yaml").write_text(
        "scenarios: {a: {id: dilemma, tasks: 1}, b: {id: kuhn_poker, tasks: 1}}\n"
        "agents: {'*': random_legal}\n"
    )
    assert main(["run", "two.yaml", "--out", "two", "--quiet"]) == 0
    out = exported(tmp_path / "a.jsonl", "two", "messages", "--agent", "player_0")
    assert [row["agent"] for row in rows(out)] == ["player_0"] * 2
    exported(tmp_path / "b.jsonl", "two", "messages", "--agent", "zoe")
    assert "in none of them zoe has a row" in capsys.readouterr().out


def test_a_table_of_any_name_is_read_back(here: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for name in ("plays", "plays.pq"):
        out = exported(tmp_path / name, "game", "parquet")
        assert list(gem_ma.read_episodes(out)) == list(gem_ma.read_episodes("game"))


def test_what_cannot_be_written_is_told_by_the_name_that_was_typed(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".a.jsonl.part").mkdir()  # where the hidden file would be
    assert main(["export", "game", "--to", "jsonl", "-o", str(tmp_path / "a.jsonl")]) == 1
    assert main(["export", "game", "--to", "jsonl", "-o", "-"]) == 2
    told = capsys.readouterr().err
    assert f"{tmp_path / 'a.jsonl'}: Is a directory" in told and ".part" not in told


def test_a_csv_has_every_row_of_the_frame_and_every_column(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "plays.csv"
    assert main(["export", str(folder / "shop"), "--to", "csv", "-o", str(out)]) == 0
    with out.open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    rows = list(gem_ma.open_run(folder / "shop").rows())
    assert len(table) == len(rows) == 8
    # a play has columns that others have not
    assert set(table[0]) == set().union(*rows) and any(set(row) != set(table[0]) for row in rows)
    for cells, row in zip(table, rows, strict=True):
        known = {name: "" if value is None else str(value) for name, value in row.items()}
        assert {name: cell for name, cell in cells.items() if cell or name in known} == known


FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1", '=HYPERLINK("x")')


def test_no_cell_of_a_csv_is_a_formula_and_numbers_stay_numbers(tmp_path: Path) -> None:
    rows = [{"plain": text, text: -0.5} for text in FORMULAS] + [{"plain": "a=1\n=2\r=3"}]
    assert write_csv(rows, tmp_path / "x.csv") == len(rows)
    with (tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        head, *table = csv.reader(file)
    cells = [*head, *(cell for row in table for cell in row)]
    begun = tuple("=+-@\t\r\uff1d")
    assert {cell for cell in cells if cell.startswith(begun)} == {"-0.5"}
    # nothing else is touched
    assert [row[0] for row in table] == [f"'{text}" for text in FORMULAS] + ["a=1\n=2\r=3"]
    assert harmless(-1) == -1 and harmless("'=1") == "'=1"


def test_tokens_of_a_turn_are_its_ids_or_what_a_server_counted() -> None:
    replies = Reply("a", token_ids=(4, 5)), Reply("b", usage=Usage(9, 3)), Reply("c")
    turns = tuple(Turn(0, "a", (), None, (), Action("x"), replies[:many]) for many in (1, 2, 3))
    rows = turn_rows(recorded({"a": Seat()}, turns), lambda episode: None)
    assert [row["tokens"] for row in rows] == [2, 5, None]
