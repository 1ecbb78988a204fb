"""A page that is made by `places.bin` and one that is made by the index say the same, whatever was
done to either file or to the record."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.errors import StoreError
from gem_ma.kernel.types import Action, Message, Turn
from gem_ma.pages.static import report
from gem_ma.pages.static.report import write_report
from gem_ma.runs.store import (
    RunFolder,
    index,
    lines,
    places,
    read_ends,
    read_episodes,
    read_rows,
    read_verdicts,
    verdicts,
)
from gem_ma.runs.store.lines import read_places, read_plays
from gem_ma.runs.store.places import Places
from gem_ma.runs.stored import open_record
from gem_ma.scores.judge import Judge
from gem_ma.scores.rows import Head, PlayRow

ENDS = (End.TERMINATED, End.MAX_STEPS, End.FAILED, End.INTERRUPTED, End.TIMEOUT)
PLAYS = 66


def episode(number: int, end: End = End.TERMINATED, said: str = "x") -> Episode:
    seats = {"a": Seat("direct")}
    turn = Turn(0, "a", (Message.system("Rules."),), None, (), Action(said))
    paid = (Entry(0, "a", float(number % 3 > 0), "goal"),)
    error = "EngineError: gone" if end is End.FAILED else None
    task = ("naïve", "\u2028", "t")[number % 3]
    return Episode(
        "toy", 1, number % 7, f"{task}/{number}", number % 2, None, seats, (turn,), (), (), {},
        paid, end, error,
    )  # fmt: skip


JUDGE = Judge(
    lambda one: one.returns()["a"] == 1.0,
    lambda one: {"score": one.returns()["a"]},
    lambda one: {} if one.returns()["a"] else {"blame": "a"},
)


def played(folder: Path, batches: list[list[Episode]], **facts: Any) -> Path:
    """A finished run of these plays; each batch by a writer of its own."""
    for batch in batches:
        with RunFolder.open(
            folder,
            config_text="",
            resolved={"scenario": {"id": "toy"}},
            manifest={"command": "run"} | facts,
        ) as run:
            run.rows = JUDGE.rows(compares=run.rows.compares)
            run.append(batch)
            run.write_summary(JUDGE.summary(run.scored(JUDGE), run.episodes), of_all=True)
    return folder


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is a large one."""
    monkeypatch.setattr(places, "LEAST", 0)


@pytest.fixture(params=["plain", "played again", "all failed", "training"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    plays = [episode(n, ENDS[n % 11] if n % 11 < len(ENDS) else ENDS[0]) for n in range(PLAYS)]
    again = [episode(n, said="again") for n in range(0, PLAYS, 9)]
    batches = {
        "plain": [plays],
        # the same ids, some of them twice more, and new ones between
        "played again": [plays[:40], [*again, *plays[40:]], again[::2]],
        "all failed": [[episode(n, End.FAILED) for n in range(PLAYS)]],
        "training": [plays],
    }[request.param]
    facts = {"command": "train"} if request.param == "training" else {}
    return played(tmp_path / "run", batches, **facts)


def page(run: Path) -> bytes | str:
    """The page of a run, or what is said instead."""
    try:
        return write_report(run, run.parent / "page.html", judge=JUDGE).read_bytes()
    except StoreError as error:
        return str(error)


def page_by(run: Path, *, stamped: bool) -> bytes | str:
    """The same of a folder without columns, `stamped`: by its index, else by its lines alone, whose
    rows nobody has judged."""
    held = {name: (run / name).read_bytes() for name in ("places.bin", "index.jsonl")}
    (run / "places.bin").unlink()
    if not stamped:
        (run / "index.jsonl").write_bytes(b"")
    try:
        return page(run)
    finally:
        for name, data in held.items():
            (run / name).write_bytes(data)


@pytest.mark.long
def test_both_readers_say_the_same(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = page_by(run, stamped=True)
    assert isinstance(slow, bytes) and slow == page_by(run, stamped=False)
    with monkeypatch.context() as sealed:
        # no row is decoded, and no line but those of the page
        sealed.setattr(lines, "load_rows", None)
        sealed.setattr(lines, "scan_episodes", None)
        assert page(run) == slow


def test_the_columns_are_what_the_rows_are(run: Path) -> None:
    rows = read_rows(run, Head)
    by_rows, by_columns = Places.of(rows), read_places(run)
    for name in ("ends", "lines", "sizes", "starts"):
        assert list(getattr(by_rows, name)) == list(getattr(by_columns, name))
    assert len(by_columns) == len({row.id for row in rows})
    for row in rows:
        assert by_rows.find(row.id) == by_columns.find(row.id) is not None
    assert by_columns.find(("naïve/1", 10**30, 0)) is by_rows.find(("", 0, 0)) is None
    for end in End:
        assert by_rows.ended({end}) == by_columns.ended({end})
        assert by_rows.count({end}) == by_columns.count([end]) == len(by_rows.ended([end]))
    known = {one.id: one for one in read_episodes(run)}
    found = dict(read_plays(run, by_columns, range(len(by_columns))))
    assert {one.id: one for one in found.values()} == known
    assert [*found.values()] == [*known.values()]  # in the order of the file
    # a row by its place
    data = (run / "index.jsonl").read_bytes()
    for play in range(len(by_columns)):
        line = data[by_columns.rows[play] :].split(b"\n", 1)[0]
        assert index.msgspec.json.decode(line, type=PlayRow).id == found[play].id


def edited(run: Path) -> None:
    """Another word was said: as long as before, in the same inode, with the times set back."""
    file = run / "episodes.jsonl"
    status = file.stat()
    with file.open("r+b") as opened:
        opened.seek(opened.read().rindex(b'"text":"') + len('"text":"'))
        opened.write(b"y")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def cut(run: Path) -> None:
    data = (run / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (run / "episodes.jsonl").write_bytes(b"".join(data[:-3]))


def torn(run: Path) -> None:
    with (run / "episodes.jsonl").open("r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - 5)


def grown(run: Path) -> None:
    with (run / "episodes.jsonl").open("ab") as file:
        file.write((run / "episodes.jsonl").read_bytes().splitlines(keepends=True)[0])


def replaced(run: Path) -> None:
    data = (run / "episodes.jsonl").read_bytes()
    (run / "other").write_bytes(data.replace(b'"Rules."', b'"Other."'))
    os.replace(run / "other", run / "episodes.jsonl")


def broken(run: Path) -> None:
    data = (run / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    data[40] = b"{" + data[40]
    (run / "episodes.jsonl").write_bytes(b"".join(data))


def garbled(run: Path) -> None:
    """A play that failed is one that ended."""
    data = (run / "places.bin").read_bytes()
    (run / "places.bin").write_bytes(b"\0" * 100 + data[100:])


def shorter(run: Path) -> None:
    data = (run / "places.bin").read_bytes()
    (run / "places.bin").write_bytes(data[: len(data) // 2])


def empty(run: Path) -> None:
    (run / "places.bin").write_bytes(b"")


def of_another(run: Path) -> None:
    """The columns of another run, which fit that one."""
    played(run.parent / "other", [[episode(n, End.FAILED) for n in range(PLAYS)]])
    shutil.copy(run.parent / "other/places.bin", run / "places.bin")


def unstamped(run: Path) -> None:
    data = (run / "index.jsonl").read_bytes().splitlines(keepends=True)
    (run / "index.jsonl").write_bytes(b"".join(data[:-1]))


CHANGES = (edited, cut, torn, grown, replaced, broken, garbled, shorter, empty, of_another)


@pytest.mark.long
@pytest.mark.parametrize("run", ["plain", "played again"], indirect=True)
@pytest.mark.parametrize("change", [*CHANGES, unstamped], ids=lambda one: one.__name__)
def test_what_was_changed_is_seen(change: Callable[[Path], None], run: Path) -> None:
    before = page(run)
    change(run)
    wanted = page_by(run, stamped=False)
    assert page_by(run, stamped=True) == page(run) == wanted
    if change in (edited, cut, torn, replaced, broken):
        assert wanted != before
    # whoever goes on makes all anew; a broken line is for people to mend
    if change is not broken:
        played(run, [[]], command=report.manifest(run)["command"])
        assert len(read_places(run)) == len({one.id for one in read_episodes(run)})
        assert page(run) == page_by(run, stamped=False)


def test_columns_behind_a_link_are_one_line(run: Path) -> None:
    (run / "places.bin").rename(run.parent / "away")
    (run / "places.bin").symlink_to(run.parent / "away")
    told = page(run)
    assert isinstance(told, str) and "places.bin: is a link" in told and "\n" not in told


@pytest.mark.long
def test_a_writer_that_dies_before_its_stamp_leaves_a_run_that_is_read_by_its_rows(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(index, "_stamp", lambda *facts: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            played(run, [[episode(PLAYS)]], command=report.manifest(run)["command"])
    assert len(read_places(run)) == PLAYS + 1
    assert page(run) == page_by(run, stamped=False)


def test_a_small_run_has_no_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "LEAST", 4)
    small = played(tmp_path / "small", [[episode(n) for n in range(3)]])
    assert not (small / "places.bin").exists() and len(read_places(small)) == 3
    assert (played(small, [[episode(3)]]) / "places.bin").exists()


def test_a_play_that_is_not_where_its_columns_say_is_named(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read_places(run)
    monkeypatch.setattr(lines, "_episode", lambda *_: episode(10**6))
    number = found.lines[7] + 1
    with pytest.raises(
        StoreError, match=rf"jsonl:{number}: is another play than index\.jsonl says"
    ):
        list(read_plays(run, found, [7]))


def test_an_index_that_was_edited_under_its_writer_is_not_believed(tmp_path: Path) -> None:
    run = played(tmp_path / "run", [[episode(n) for n in range(PLAYS)]])
    with RunFolder.open(
        run, config_text="", resolved={"scenario": {"id": "toy"}}, manifest={"command": "run"}
    ) as folder:
        folder.append([episode(PLAYS)])
        data = (run / "index.jsonl").read_bytes()
        (run / "index.jsonl").write_bytes(data.replace(b'"terminated"', b'"max_steps" ', 1))
    stamp, _ = index.read_stamp(run)
    assert stamp.places == "" and lines.fitting_rows(run / "episodes.jsonl", Head) is None


def said(run: Path) -> dict[Any, PlayRow | None]:
    """What was said of each play when it was played."""
    verdicts = read_verdicts(run)
    ids = list(read_ends(run))
    assert verdicts.get(("", 0, 0)) is None
    found = {id_: verdicts.get(id_) for id_ in ids}
    known = {id_: row for id_, row in found.items() if row is not None}
    assert dict(verdicts) == known and len(verdicts) == len(known)
    return found


def said_by_rows(run: Path) -> dict[Any, PlayRow | None]:
    (run / "places.bin").rename(run.parent / "away")
    try:
        return said(run)
    finally:
        (run.parent / "away").rename(run / "places.bin")


def test_what_was_said_of_a_play_is_read_by_its_place(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = said_by_rows(run)
    with monkeypatch.context() as sealed:
        sealed.setattr(verdicts, "fitting_rows", None)
        known = read_verdicts(run)
        assert {id_: known[id_] for id_ in wanted} == wanted and len(known) == len(wanted)


def test_what_was_said_is_not_read_of_an_index_that_was_changed(run: Path) -> None:
    before = said(run)
    data = (run / "index.jsonl").read_bytes()
    (run / "index.jsonl").write_bytes(data.replace(b'{"a":1.0}', b'{"a":5.0}'))
    assert said(run) == said_by_rows(run) != before
    # of another line of the record: nobody knows what was said of this one
    row = index.msgspec.json.decode(data.splitlines()[-2], type=Head)
    (run / "index.jsonl").write_bytes(data.replace(row.digest.encode(), b"0" * 16))
    assert said(run) == said_by_rows(run)
    assert said(run)[row.id] != before[row.id]


def test_plays_that_nobody_has_judged_and_those_of_older_folders_are_read_as_ever(
    run: Path,
) -> None:
    one = next(iter(said(run)))
    older = json.dumps({"id": ["older", 0, 0], "success": True})
    (run / "verdicts.jsonl").write_text(older)
    assert read_verdicts(run)["older", 0, 0].success and read_verdicts(run)[one].is_whole
    (run / "verdicts.jsonl").unlink()
    command = report.manifest(run)["command"]
    (run / "index.jsonl").unlink()
    with RunFolder.open(
        run, config_text="", resolved={"scenario": {"id": "toy"}}, manifest={"command": command}
    ):
        pass
    stamp, _ = index.read_stamp(run)
    assert stamp.places and not stamp.whole and not any(said(run).values())
    (run / "verdicts.jsonl").write_text(json.dumps({"id": one, "success": True}) + "\n")
    assert read_verdicts(run)[one].success is True and len(read_verdicts(run)) == 1


def test_a_summary_that_was_edited_does_not_stand_and_one_that_is_broken_is_named(
    run: Path,
) -> None:
    (run / "resolved.yaml").write_text("scenario: {id: gone.py:Gone}\n")
    data = json.loads((run / "summary.json").read_text())
    assert lines.standing_summary(run) == data and open_record(run, str).worlds is None
    (run / "summary.json").write_text(json.dumps({**data, "ok": data["ok"] + 1}))
    assert lines.standing_summary(run) is None
    (run / "summary.json").write_text("{")
    with pytest.raises(StoreError, match=r"summary\.json: not JSON"):
        open_record(run, str)
