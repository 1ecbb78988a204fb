"""Parquet files and folders for Hugging Face's datasets: what comes back is what was played."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gem_ma
from gem_ma.kernel.errors import StoreError
from gem_ma.record.codec import dump_episode, load_episode
from gem_ma.runs.export.tables import episode_row
from gem_ma.runs.export.writing import Wish, export
from gem_ma.runs.store.tables import table_files
from gem_ma.scores.judge import Judge
from tests.drawn_plays import Drawn
from tests.runs.test_export import exported, played

pytestmark = pytest.mark.sb3
parquet = pytest.importorskip("pyarrow.parquet", reason="make test-sb3 has it")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield from played(tmp_path_factory.mktemp("tables"))


@pytest.mark.parametrize(("form", "name"), [("parquet", "a.parquet"), ("hf", "a")])
def test_tables_come_back_as_they_were(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, name: str
) -> None:
    monkeypatch.chdir(runs)
    for run in ("shop", "game"):
        out = exported(tmp_path / run / name, run, form)
        plays = list(gem_ma.read_episodes(run))
        assert list(map(dump_episode, gem_ma.read_episodes(out))) == list(map(dump_episode, plays))
        assert list(gem_ma.read_episodes(out, only={plays[1].id})) == [plays[1]]
        file = next(out.rglob("*.parquet")) if form == "hf" else out
        table = parquet.read_table(file).to_pylist()
        for row, episode in zip(table, plays, strict=True):
            assert len(row["turns"]) == len(episode.turns)
            ids = [reply["token_ids"] for turn in row["turns"] for reply in turn["replies"]]
            assert ids == [list(r.token_ids) for turn in episode.turns for r in turn.replies]
            assert {one["agent"]: one["value"] for one in row["returns"]} == episode.returns()


@pytest.mark.parametrize("form", ["parquet", "hf"])
@pytest.mark.parametrize("seed", range(10))
def test_whatever_a_play_holds_comes_back(tmp_path: Path, form: str, seed: int) -> None:
    episodes = Drawn(seed).run(30)
    source, out = tmp_path / "run.jsonl", tmp_path / f"out.{form}"
    source.write_text("".join(dump_episode(one) + "\n" for one in episodes), encoding="utf-8")
    result = export(source, out, Judge(), Wish(form))
    assert result["rows"] == len(episodes)
    again = {episode.id: dump_episode(episode) for episode in gem_ma.read_episodes(out)}
    assert again == {episode.id: dump_episode(episode) for episode in episodes}
    for file in table_files(out):
        for row in parquet.read_table(file).to_pylist():
            play = load_episode(row["record"])
            # but for how long lists of numbers are held, a row is what was written
            assert {**episode_row(play, lambda one: None), "record": row["record"]} == row


def test_datasets_opens_every_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="make test-sb3 has it")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    episodes = Drawn(1).run(40)
    source, out = tmp_path / "run.jsonl", tmp_path / "set"
    source.write_text("".join(dump_episode(one) + "\n" for one in episodes), encoding="utf-8")
    export(source, out, Judge(), Wish("hf"))
    opened = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    assert len(opened) == len({one.task.partition("/")[0] for one in episodes})
    records = [record for split in opened.values() for record in split["record"]]
    assert sorted(records) == sorted(map(dump_episode, episodes))


@pytest.mark.parametrize("parts", [False, True])
def test_questions_are_asked_out_of_a_saved_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: bool
) -> None:
    datasets = pytest.importorskip("datasets", reason="make test-sb3 has it")
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"{number} + 1?", "answer": str(number + 1)} for number in range(20)]
    made = datasets.Dataset.from_list(rows)
    (made.train_test_split(0.25, seed=0) if parts else made).save_to_disk("exam")
    run = gem_ma.run("questions", ["scenario.data=exam", "scenario.split=test"], out="run")
    assert run["failed"] == 0 and (run["episodes"] == 5 or not parts)


def test_a_table_of_others_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"no table")
    with pytest.raises(StoreError, match="cannot be read as parquet"):
        list(gem_ma.read_episodes(tmp_path / "x.parquet"))
    made = "import pyarrow as pa; from pyarrow import parquet as p; p.write_table(pa.table({'a': [1]}), 'y.parquet')"
    subprocess.run([sys.executable, "-c", made], cwd=tmp_path, check=True)
    with pytest.raises(StoreError, match="gem-ma export did not write it"):
        list(gem_ma.read_episodes(tmp_path / "y.parquet"))


def test_a_frame_has_a_row_for_each_play_or_turn(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    run = gem_ma.open_run("shop")
    plays, turns = run.to_frame(), run.to_frame("turns")
    assert plays["success"].mean() == run.success
    assert plays["return assistant"].sum() == sum(e.returns()["assistant"] for e in run.episodes())
    assert len(turns) == sum(plays["turns"]) and set(turns["agent"]) == {"assistant", "user"}
    sampled = gem_ma.open_run("game").to_frame("turns").query("agent == 'player_1'")
    assert (sampled["tokens"] == 1).all() and set(sampled["policy"]) == {"player_1"}
    both = gem_ma.to_frame(runs)
    assert both["run"].nunique() == 2 and len(both) == len(plays) + len(
        gem_ma.open_run("game").to_frame()
    )
