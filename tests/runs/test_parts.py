"""A record in parts is read, cut, resumed and damaged as one file is."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gem_ma.engines.small.replay import read as replayed
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.errors import DataError, StoreError
from gem_ma.kernel.types import Action, Message, Turn
from gem_ma.pages.live.index import Index
from gem_ma.runs.store import RunFolder, list_runs, manifest, read_ends, read_episodes, read_rows
from gem_ma.runs.store.index import fits, read_stamp
from gem_ma.scores.rows import Head
from gem_ma.system import parts
from gem_ma.system.parts import closed_parts, open_parts
from tests.plays import recorded

RESOLVED: dict[str, Any] = {"scenario": {"id": "toy"}, "run": {"seed": 7}}
PLAYS = 12
RECORD = "episodes.jsonl"


def episode(task: int) -> Episode:
    turn = Turn(0, "a", (Message("go"),), None, (), Action(f"hello {task}" * 9))
    ledger = (Entry(0, "a", 1.0),)
    return recorded({"a": Seat()}, (turn,), ledger, seed=7, task=f"test/{task}", end=End.TERMINATED)


def opened(path: Path, packs: bool = False) -> RunFolder:
    folder = RunFolder.open(path, config_text="", resolved=RESOLVED)
    folder.packs = packs
    return folder


@pytest.fixture(params=[False, True], ids=["plain", "zstd"])
def packs(request: pytest.FixtureRequest) -> bool:
    if request.param:
        pytest.importorskip("zstandard")
    return bool(request.param)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packs: bool) -> Path:
    """Parts of three plays, in frames of less than one."""
    monkeypatch.setattr(manifest, "PART", 1300)
    monkeypatch.setattr(parts, "_FRAME", 300)
    with opened(tmp_path / "run", packs) as folder:
        for task in range(PLAYS):
            folder.append([episode(task)])
    assert 2 < len(closed_parts(tmp_path / "run" / RECORD)) < PLAYS
    return tmp_path / "run"


def names(path: Path) -> list[str]:
    return [one.task for one in read_episodes(path)]


def whole(path: Path) -> bytes:
    with open_parts(path / RECORD, path) as record:
        return record.read()


TASKS = [f"test/{task}" for task in range(PLAYS)]


def test_every_reader_sees_one_file(run: Path, packs: bool) -> None:
    lines = whole(run).splitlines(keepends=True)
    assert len(lines) == PLAYS and {b"%d" % PLAYS} == {b"%d" % len(read_rows(run, Head))}
    assert all((part.suffix == ".zst") is packs for part in closed_parts(run / RECORD))
    found = read_stamp(run)
    assert found is not None and fits(found[0], run) and found[0].size == len(b"".join(lines))
    assert names(run) == TASKS == [one.task for one in replayed(run)]
    (chosen,) = read_episodes(run, {("test/7", 7, 0)})
    assert chosen == [*read_episodes(run)][7]
    index = Index(run)
    index.refresh()
    assert [entry.id[0] for entry in index] == TASKS
    assert index.episode(("test/5", 7, 0)).task == "test/5"
    assert list_runs(run.parent)[0]["episodes"] == PLAYS
    (run / "index.jsonl").unlink()
    assert names(run) == TASKS and list_runs(run.parent)[0]["episodes"] == PLAYS


@pytest.mark.long
def test_a_viewer_reads_on_where_a_part_is_closed(tmp_path: Path, run: Path, packs: bool) -> None:
    index = Index(run)
    index.refresh()
    with opened(run, packs) as folder:
        for task in range(PLAYS, 2 * PLAYS):
            folder.append([episode(task)])
            index.refresh()
            assert [*index][-1].id[0] == f"test/{task}" and len([*index]) == task + 1
    reader = read_episodes(run)
    first = next(reader)
    with opened(run, packs) as folder:  # while it reads
        for task in range(2 * PLAYS, 3 * PLAYS):
            folder.append([episode(task)])
    read = [first, *reader]
    assert [one.task for one in read] == [f"test/{task}" for task in range(len(read))]
    assert len(read) >= 2 * PLAYS


@pytest.mark.long
def test_a_kill_at_any_byte_loses_the_play_that_was_written(
    run: Path, packs: bool, tmp_path: Path
) -> None:
    record = whole(run)
    last = (run / RECORD).read_bytes()
    for cut in range(0, len(last), 97):
        copy = tmp_path / f"at{cut}"
        shutil.copytree(run, copy)
        (copy / RECORD).write_bytes(last[: len(last) - cut])
        with opened(copy, packs) as folder:
            done = len(folder.done())
            assert PLAYS - 3 <= done <= PLAYS and (done == PLAYS) == (not cut)
            for task in range(done, PLAYS):
                folder.append([episode(task)])
        assert whole(copy) == record and names(copy) == TASKS


@pytest.mark.parametrize("leave", ["no last", "both", "no index"])
def test_a_kill_between_two_files_loses_nothing(leave: str, run: Path, packs: bool) -> None:
    record = whole(run)
    if leave == "no last":  # closed, and the next one is not there yet
        parts.close_part(run / RECORD, run)
    elif leave == "both":
        part = closed_parts(run / RECORD)[0]
        with parts.open_parts_of([part], run) as source:
            data = source.read()
        (run / part.name.removesuffix(".zst")).write_bytes(data)
    else:
        (run / "index.jsonl").unlink()
    with opened(run, packs) as folder:
        assert len(folder.done()) == PLAYS
        for task in range(PLAYS, PLAYS + 4):
            folder.append([episode(task)])
    assert whole(run).startswith(record) and len(read_ends(run)) == PLAYS + 4


@pytest.mark.long
def test_a_run_is_taken_back_across_parts(run: Path, packs: bool) -> None:
    record = whole(run)
    ends = [place + 1 for place, byte in enumerate(record) if byte == 10]
    for done in (11, 8, 7, 3, 0):
        with opened(run, packs) as folder:
            mark = folder.mark()
            assert mark["episodes"] == len(whole(run))
            folder.rewind({**mark, "episodes": [0, *ends][done]})
            assert len(folder.done()) == done
        assert whole(run) == record[: [0, *ends][done]] and names(run) == TASKS[:done]
    torn = (run / "episodes.torn").read_bytes()
    assert sorted(torn.splitlines()) == sorted(record.splitlines())
    with opened(run, packs) as folder:
        for task in range(PLAYS):
            folder.append([episode(task)])
    assert whole(run) == record


def remove(part: Path) -> None:
    part.unlink()


@pytest.mark.parametrize("state", ["closed", "killed", "no index"])
def test_the_last_closed_part_is_missed_by_every_reader(state: str, run: Path, packs: bool) -> None:
    if state == "killed":  # a writer at work has no stamp
        with opened(run, packs) as folder:
            for task in range(PLAYS, PLAYS + 7):
                folder.append([episode(task)])
            folder._free()
    elif state == "no index":
        (run / "index.jsonl").unlink()
    part = closed_parts(run / RECORD)[-1]
    part.unlink()
    named = re.escape(part.name.removesuffix(".zst"))
    index = Index(run)
    for reader in (names, lambda path: read_rows(path, Head), replayed, lambda _: index.refresh()):
        with pytest.raises((StoreError, DataError), match=rf"{named}: is missing"):
            list(reader(run))
    with pytest.raises(StoreError, match=named), opened(run, packs):
        pass


def halve(part: Path) -> None:
    part.write_bytes(part.read_bytes()[: part.stat().st_size // 3])


def spoil(part: Path) -> None:
    data = part.read_bytes()
    part.write_bytes(data[:300] + b"\0\0\0\0" + data[304:])


@pytest.mark.parametrize("damage", [remove, halve, spoil])
def test_damage_in_a_closed_part_is_one_line_that_names_it(
    damage: Callable[[Path], None], run: Path, packs: bool
) -> None:
    part = closed_parts(run / RECORD)[1]
    damage(part)
    with pytest.raises(StoreError, match=r"episodes-0002\.jsonl") as told:
        names(run)
    assert "\n" not in str(told.value)
    with pytest.raises(StoreError, match=r"episodes-0002\.jsonl"), opened(run, packs):
        pass


def test_a_run_that_was_begun_as_one_file_stays_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "PART", None)  # as an older version, which wrote no such key
    for first in (0, PLAYS):
        with opened(tmp_path) as folder:
            for task in range(first, first + PLAYS):
                folder.append([episode(task)])
        monkeypatch.setattr(manifest, "PART", 700)
    assert not closed_parts(tmp_path / RECORD) and len(read_ends(tmp_path)) == 2 * PLAYS


def test_parts_in_zstd_without_its_library_are_one_line(
    run: Path, packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not packs:
        return
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(Exception, match=r"parts of a record in zstd need zstandard: pip install"):
        names(run)
