"""What is told of a run folder without reading its plays is never what it was before: of records
that were edited, cut, exchanged, copied or added to; and an index that does not fit is made anew."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gem_ma.cli import score
from gem_ma.cli.main import main
from gem_ma.pages.live.site import Site
from gem_ma.pages.static.report import write_report
from gem_ma.runs import stored
from gem_ma.runs.run import Run
from gem_ma.runs.store import index, lines, list_runs, read_ends, read_episodes, read_rows
from gem_ma.runs.store.index import read_stamp
from gem_ma.runs.stored import open_record
from gem_ma.scores.judge import Judge
from gem_ma.scores.rows import Head, PlayRow
from tests.command_line import gem_ma

PLAYS = 12


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("made")
    words = ("run", "guess_number", "-n", PLAYS, "agents.player=random_legal", "--out", "runs/one")
    assert gem_ma(*map(str, words), "run.baselines=false", "--quiet", cwd=home).returncode == 0
    return home / "runs/one"


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy that a writer has closed, so that its times fit."""
    shutil.copytree(made, tmp_path / "runs/one")
    assert gem_ma("resume", "runs/one", "--quiet", cwd=tmp_path).returncode == 0
    return tmp_path / "runs/one"


def anew(run: Path) -> dict[str, Any]:
    """The score of the plays as they lie there, each judged now."""
    return open_record(run, print).summary()


def told(run: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What every reader says of the plays, which all say the same."""
    monkeypatch.chdir(run.parent.parent)
    shown = json.loads(gem_ma("show", str(run), "--json", cwd=run.parent.parent).stdout)
    page = write_report(run, run.parent / "page.html", judge=open_record(run, print).judge)
    assert f"{shown['ok']} / {shown['failed']} / {shown['excluded']}" in re.sub(
        "<[^>]+>", "", page.read_text("utf-8")
    )
    (listed,) = list_runs(run.parent)
    if listed["score"]:
        assert listed["score"]["success"] == shown["success"]["mean"]
    python = Run.of(run)
    assert python["success"] == shown["success"] and python["ends"] == shown["ends"]
    site = Site(run.parent)
    assert site.answer("/run/one", {}).status == 200
    viewer = site.run(["one"])[0]
    kinds = [viewer.list.kinds(entry) for entry in viewer.index]
    assert sum("won" in kind for kind in kinds) == round(shown["success"]["mean"] * shown["ok"])
    return dict(shown)


def first_won(run: Path) -> tuple[int, bytes]:
    """The place of a won play in the record, and its line."""
    rows = read_rows(run, PlayRow)
    number = next(number for number, row in enumerate(rows) if row.success)
    return number, (run / "episodes.jsonl").read_bytes().splitlines(keepends=True)[number]


def edit(run: Path) -> None:
    """A won play is lost: another word in its place, of equal length, with the times set back."""
    file = run / "episodes.jsonl"
    status = file.stat()
    _, line = first_won(run)
    other = json.loads(line)
    other["end"], other["error"] = "failed", "x"
    data = json.dumps(other, separators=(",", ":")).encode()
    file.write_bytes(file.read_bytes().replace(line, data + b"\n"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def edit_in_place(run: Path) -> None:
    """As long as before, in the same inode, with the times set back."""
    file = run / "episodes.jsonl"
    status = file.stat()
    with file.open("r+b") as opened:
        data = opened.read()
        opened.seek(data.index(b'"end":"terminated"'))
        opened.write(b'"end":"max_steps" ')
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def cut(run: Path) -> None:
    lines = (run / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (run / "episodes.jsonl").write_bytes(b"".join(lines[:-3]))


def torn(run: Path) -> None:
    with (run / "episodes.jsonl").open("r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - 5)


def added(run: Path) -> None:
    """A play that was played again, and failed."""
    _, line = first_won(run)
    with (run / "episodes.jsonl").open("ab") as file:
        file.write(line.replace(b'"end":"terminated"', b'"end":"failed"'))


def exchanged(run: Path) -> None:
    """The record of another run, at the place of this one."""
    shutil.copy(run / "episodes.jsonl", run / "other")
    edit(run)
    os.replace(run / "episodes.jsonl", run / "third")
    os.replace(run / "third", run / "episodes.jsonl")


def in_other_order(run: Path) -> None:
    lines = (run / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (run / "episodes.jsonl").write_bytes(b"".join(reversed(lines)))


CHANGES = (edit, edit_in_place, cut, torn, added, exchanged, in_other_order)


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_no_reader_says_what_was_before(
    change: Callable[[Path], None], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = told(run, monkeypatch)
    change(run)
    now = anew(run)
    shown = told(run, monkeypatch)
    assert {key: shown[key] for key in now} == json.loads(json.dumps(now))
    if change is not in_other_order:
        assert any(before[key] != shown[key] for key in ("ends", "success"))
    # a file that was added to is read on, and one that was edited is read anew, by who goes on
    # a failed play is told by its exit code
    assert gem_ma("resume", str(run), "--quiet", cwd=run.parent).returncode in (0, 1)
    assert told(run, monkeypatch)["episodes"] == PLAYS and read_stamp(run)


def test_what_has_not_changed_is_told_without_the_plays(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = json.loads((run / "summary.json").read_text())
    with monkeypatch.context() as sealed:
        sealed.setattr(lines, "load_episode", None)
        sealed.setattr(lines, "_whole_lines", None)
        sealed.setattr(stored, "rows_by", None)
        record = open_record(run, print)
        assert stored.run_summary(run, record) == wanted
        assert Run.of(run) == {**wanted, "run": str(run)}
        assert len(read_ends(run)) == PLAYS
    # one play, by its place
    last = [*read_ends(run)][-1]
    with monkeypatch.context() as sealed:
        sealed.setattr(lines, "_whole_lines", None)
        (found,) = read_episodes(run, {last})
    assert found.id == last


@pytest.mark.parametrize("is_writable", [True, False])
def test_a_copy_is_believed_once_its_lines_are_those_of_its_index(
    is_writable: bool, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copies/one"
    shutil.copytree(run, copy)
    held = {file.name: file.read_bytes() for file in copy.iterdir()}
    if not is_writable:
        copy.chmod(0o500)
    with monkeypatch.context() as sealed:
        sealed.setattr(lines, "load_episode", None)
        assert Run.of(copy)["success"] == Run.of(run)["success"]
        assert len(read_rows(copy, PlayRow)) == PLAYS and read_rows(copy, PlayRow)[0].is_whole
    # whoever reads writes nothing
    assert held == {file.name: file.read_bytes() for file in copy.iterdir()}
    copy.chmod(0o700)
    edit_in_place(copy)
    assert Run.of(copy)["ends"] == anew(copy)["ends"] != Run.of(run)["ends"]


def garbled(data: bytes) -> bytes:
    return data.replace(b"true", b"null", 1)


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "absent": lambda data: None,
    "empty": lambda data: b"",
    "of another form": lambda data: data.replace(b'{"form":1', b'{"form":9'),
    "a row less": lambda data: data.split(b"\n", 1)[1],
    "a verdict less": garbled,
    "torn": lambda data: data[: len(data) // 2],
    "no JSON": lambda data: b"\x00" * len(data),
    "the stamp alone": lambda data: data.splitlines(keepends=True)[-1],
    "another end": lambda data: data.replace(b'"terminated"', b'"ended"', 1),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_index_that_does_not_fit_is_not_believed_and_made_anew(
    damage: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = anew(run)
    rows = (run / "index.jsonl").read_bytes()
    data = DAMAGES[damage](rows)
    (run / "index.jsonl").unlink()
    if data is not None:
        (run / "index.jsonl").write_bytes(data)
    assert [*map(repr, read_episodes(run))] and len(read_ends(run)) == PLAYS
    if damage != "a verdict less":  # which a row without a stamp could not tell
        shown = told(run, monkeypatch)
        assert {key: shown[key] for key in wanted} == json.loads(json.dumps(wanted))
    assert gem_ma("resume", str(run), "--quiet", cwd=run.parent).returncode == 0
    made = (run / "index.jsonl").read_bytes().splitlines()
    assert len(made) == PLAYS + 1 and read_stamp(run) is not None
    kept = [json.loads(line)[:7] for line in rows.splitlines()[:-1]]
    if damage != "a verdict less":
        assert [json.loads(line)[:7] for line in made[:-1]] == kept


def test_a_verdict_that_was_changed_in_a_stamped_index_is_seen(run: Path) -> None:
    (run / "index.jsonl").write_bytes(garbled((run / "index.jsonl").read_bytes()))
    assert lines.fitting_rows(run / "episodes.jsonl", Head) is None


@pytest.mark.parametrize("name", ["index.jsonl", "episodes.jsonl"])
def test_an_index_behind_a_link_or_a_pipe_is_one_line(name: str, run: Path, tmp_path: Path) -> None:
    (run / name).rename(tmp_path / "away")
    (run / name).symlink_to(tmp_path / "away")
    for words in (["show", str(run)], ["resume", str(run)]):
        done = gem_ma(*words, cwd=tmp_path)
        assert done.returncode in (1, 2) and "is a link" in done.stderr
        assert len(done.stderr.strip().splitlines()) <= 2


def test_the_record_of_a_large_file_is_not_believed_within_a_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file of more than two MB the middle is known by its time alone."""
    waited: list[float] = []
    monkeypatch.setattr(index.time, "sleep", waited.append)
    monkeypatch.setattr(index, "_END", 10)
    (tmp_path / "episodes.jsonl").write_bytes(b"x" * 100)
    index._stamp(tmp_path, 0, "", ("", False), ("", False))
    assert waited and 0 <= waited[0] <= 0.02


def test_rows_of_a_judge_that_raises_are_asked_again_when_all_is_summed_up(run: Path) -> None:
    judge = Judge(lambda episode: 1 / 0 > 0)
    (episode, *_) = read_episodes(run)
    row = judge.rows().of(episode)
    assert row.returns and not judge.rows().suffices(row)
    with pytest.raises(ZeroDivisionError):
        judge.rows(strict=True).of(episode)


def test_a_score_of_a_large_run_says_first_how_long_it_takes(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", str(run)]) == 0 and "plays anew" not in capsys.readouterr().err
    monkeypatch.setattr(score, "LARGE", 100)
    assert main(["score", str(run)]) == 0
    assert f"judges {PLAYS} plays anew, about 0 s" in capsys.readouterr().err
