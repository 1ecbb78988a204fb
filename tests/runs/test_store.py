"""A run folder: what is in it survives, what is damaged is named, what is newer is left alone."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.errors import ConfigError, DataError, SchemaError, StoreError
from gem_ma.kernel.types import Action, Image, Message, Turn
from gem_ma.record.codec import dump_episode
from gem_ma.runs.store import (
    RunFolder,
    hold_folder,
    list_runs,
    read_episodes,
    read_manifest,
    read_media,
    read_metrics,
    result_digest,
    run_path,
)
from gem_ma.training.loop.checkpoint import latest_checkpoint, write_checkpoint
from tests import unsynced
from tests.plays import recorded

ROOT = Path(__file__).resolve().parents[2]
RESOLVED: dict[str, Any] = {
    "scenario": {"id": "toy", "split": "test"},
    "agents": {"a": {"behaviour": "direct", "policy": "main"}},
    "policies": {"main": {"model": "table/softmax", "temperature": 1e-05, "api_key": None}},
    "run": {"seed": 7, "concurrency": 8, "max_failed": 0},
}


def episode(task: int, end: End = End.TERMINATED, text: str = "hello") -> Episode:
    turn = Turn(0, "a", (Message("go"),), None, (), Action(text))
    error = "EngineError: gone" if end is End.FAILED else None
    return recorded(
        {"a": Seat()},
        (turn,),
        (Entry(0, "a", 1.0),),
        seed=7,
        task=f"test/{task}",
        end=end,
        error=error,
    )


def opened(path: Path, resolved: dict[str, Any] = RESOLVED, **more: Any) -> RunFolder:
    return RunFolder.open(path, config_text="scenario: {id: toy}\n", resolved=resolved, **more)


def changed(**run: Any) -> dict[str, Any]:
    return {**RESOLVED, "run": {**RESOLVED["run"], **run}}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    with opened(tmp_path / "run") as folder:
        yield folder


# -- the folder ----------------------------------------------------------------------------------


def test_a_new_folder_says_what_was_asked_for(tmp_path: Path) -> None:
    with opened(tmp_path / "deep" / "run", manifest={"seeds": {"run": 7}}) as folder:
        assert folder.done() == set()
    path = tmp_path / "deep" / "run"
    assert (path / "config.yaml").read_text() == "scenario: {id: toy}\n"
    manifest = read_manifest(path)
    assert manifest["schema"] == 1 and manifest["seeds"] == {"run": 7}
    assert {"gem_ma", "python"} <= manifest["versions"].keys() and manifest["created"]
    assert "&id" not in (path / "resolved.yaml").read_text()


def test_shared_values_are_written_without_yaml_aliases(tmp_path: Path) -> None:
    shared = ["x", "y"]
    with opened(tmp_path / "run", {"scenario": {"id": "toy"}, "first": shared, "second": shared}):
        pass
    assert "&" not in (tmp_path / "run" / "resolved.yaml").read_text()


def test_episodes_come_back_in_order_and_count_as_done(run: RunFolder) -> None:
    run.append([episode(1), episode(2, End.FAILED)])
    run.append([])
    run.append([episode(3)], fsync=True)
    assert run.done() == {("test/1", 7, 0), ("test/2", 7, 0), ("test/3", 7, 0)}
    assert run.failed() == {("test/2", 7, 0)}
    assert [one.task for one in run.episodes()] == ["test/1", "test/2", "test/3"]


def test_the_same_command_again_takes_the_folder_up(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as first:
        first.append([episode(1)])
    before = (tmp_path / "run" / "episodes.jsonl").read_bytes()
    with opened(tmp_path / "run") as second:
        assert second.done() == {("test/1", 7, 0)}
        second.append([episode(2)])
    assert (tmp_path / "run" / "episodes.jsonl").read_bytes().startswith(before)


def test_a_later_attempt_replaces_a_failed_one_and_the_line_stays(run: RunFolder) -> None:
    run.append([episode(1, End.FAILED), episode(2)])
    run.append([episode(1)])
    assert [(one.task, one.end) for one in run.episodes()] == [
        ("test/2", End.TERMINATED),
        ("test/1", End.TERMINATED),
    ]
    assert run.failed() == set() and len(run.done()) == 2
    assert len((run.path / "episodes.jsonl").read_bytes().splitlines()) == 3


def test_an_episode_that_json_cannot_hold_leaves_the_file_alone(run: RunFolder) -> None:
    run.append([episode(1)])
    with pytest.raises(StoreError, match=r"options\.x"):
        run.append([episode(2), replace(episode(3), options={"x": float("nan")})])
    assert [one.task for one in run.episodes()] == ["test/1"] and len(run.done()) == 1


def test_images_lie_beside_the_lines_under_their_digest(run: RunFolder) -> None:
    image = Image.of(b"some png")
    shown = replace(episode(1), final={"a": (Message(("see", image)),)})
    run.append([shown, shown])
    assert run.media(image.digest) == b"some png" == read_media(run.path, image.digest)
    (run.path / "media" / image.digest).write_bytes(b"other")
    with pytest.raises(StoreError, match="differ from its name"):
        run.media(image.digest)
    for digest in ("../manifest.json", "0" * 63, "/etc/passwd"):
        with pytest.raises(StoreError, match="no SHA-256"):
            run.media(digest)


def test_an_image_cannot_name_a_file_outside(run: RunFolder, tmp_path: Path) -> None:
    evil = Image("../../evil", "image/png", b"x")
    shown = replace(episode(1), final={"a": (Message((evil,)),)})
    with pytest.raises(StoreError, match="no SHA-256"):
        run.append([shown])
    assert not (tmp_path / "evil").exists()


def test_metrics_are_lines_and_numbers_that_are_not_finite_are_null(run: RunFolder) -> None:
    numpy = pytest.importorskip("numpy")
    run.log(
        {
            "step": 0,
            "kl": float("nan"),
            "loss": numpy.float32(0.5),
            "by": {"a": [numpy.int64(3), float("inf")]},
        }
    )
    run.log({"step": 1})
    assert list(run.metrics()) == [
        {"step": 0, "kl": None, "loss": 0.5, "by": {"a": [3, None]}},
        {"step": 1},
    ]
    assert list(read_metrics(run.path)) == list(run.metrics())


def test_the_summary_is_replaced_in_one_step(run: RunFolder) -> None:
    run.write_summary({"score": 0.5})
    run.write_summary({"score": 0.75, "worst": float("-inf")})
    assert json.loads((run.path / "summary.json").read_text()) == {"score": 0.75, "worst": None}
    assert not list(run.path.glob(".*.tmp"))


# -- same run or another -------------------------------------------------------------------------


def test_settings_that_change_results_may_not_change_and_are_named(tmp_path: Path) -> None:
    opened(tmp_path / "run").close()
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir() if p.name != ".lock"}
    other = {**changed(seed=8, max_steps=5), "scenario": {"id": "toy", "split": "train"}}
    with pytest.raises(ConfigError) as caught:
        opened(tmp_path / "run", other)
    text = str(caught.value)
    for part in (
        "run.seed (was 7, now 8)",
        "run.max_steps (was null, now 5)",
        'scenario.split (was "test", now "train")',
        "--fresh",
    ):
        assert part in text
    assert "concurrency" not in text and "\n" not in text
    assert {
        p.name: p.read_bytes() for p in (tmp_path / "run").iterdir() if p.name != ".lock"
    } == before
    opened(tmp_path / "run").close()  # the refusal left no lock behind


def test_settings_that_change_no_result_may_change(tmp_path: Path) -> None:
    opened(tmp_path / "run").close()
    free = {
        **changed(concurrency=64, max_failed="2%"),
        "limits": {"usd": 5.0},
        "retry": {"attempts": 3},
    }
    free["policies"] = {"main": {**RESOLVED["policies"]["main"], "api_key": "x"}}
    opened(tmp_path / "run", free).close()


def test_the_folders_name_depends_on_what_changes_results_only() -> None:
    assert run_path("kuhn", RESOLVED) == Path("runs") / f"kuhn-{result_digest(RESOLVED)}"
    assert (
        result_digest(changed(concurrency=1))
        == result_digest(RESOLVED)
        != result_digest(changed(seed=8))
    )
    assert result_digest(dict(reversed(RESOLVED.items()))) == result_digest(RESOLVED)
    assert len(result_digest(RESOLVED)) == 8 and int(result_digest(RESOLVED), 16) >= 0
    assert run_path("../my pkg:Class", {}, Path("out")).parent == Path("out")


def test_fresh_puts_the_old_folder_aside_and_deletes_nothing(tmp_path: Path) -> None:
    for seed in (7, 8, 9):
        with opened(tmp_path / "run", changed(seed=seed), fresh=True) as folder:
            assert folder.done() == set()
            folder.append([episode(seed)])
    assert {p.name for p in tmp_path.iterdir()} == {"run", "run.old-1", "run.old-2"}
    assert [one.task for one in read_episodes(tmp_path / "run.old-1")] == ["test/7"]
    assert [one.task for one in read_episodes(tmp_path / "run")] == ["test/9"]


def test_fresh_refuses_to_move_a_folder_that_is_in_use(run: RunFolder) -> None:
    with pytest.raises(StoreError, match="in use"):
        opened(run.path, fresh=True)
    assert not run.path.with_name("run.old-1").exists()


def test_other_data_or_models_at_resume_are_an_error_and_another_path_is_not(
    tmp_path: Path,
) -> None:
    opened(
        tmp_path / "run",
        manifest={"data": {"source": "/a", "digest": "1"}, "models": {"main": {"digest": "9"}}},
    ).close()
    opened(tmp_path / "run", manifest={"data": {"source": "/b", "digest": "1"}}).close()
    with pytest.raises(DataError, match="data changed since the run began"):
        opened(tmp_path / "run", manifest={"data": {"source": "/a", "digest": "2"}})
    with pytest.raises(DataError, match="models changed"):
        opened(
            tmp_path / "run",
            manifest={"data": {"digest": "1"}, "models": {"main": {"digest": "8"}}},
        )
    with pytest.raises(DataError, match="data changed since the run began"):
        opened(tmp_path / "run", manifest={"models": {"main": {"digest": "9"}}})


# -- torn and damaged ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tail",
    [
        b'{"schema":1,"id":["te',
        b"\x00" * 300,
        b'{"schema":1}\n',
        b"garbage\n",
        b"\xff\xfe",
        dump_episode(episode(3)).encode(),
    ],
)
def test_a_torn_tail_moves_aside_and_its_episode_is_not_done(tmp_path: Path, tail: bytes) -> None:
    with opened(tmp_path / "run") as folder:
        folder.append([episode(1), episode(2)])
    file = tmp_path / "run" / "episodes.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + tail)
    with opened(tmp_path / "run") as folder:
        assert len(folder.done()) == 2
        assert file.read_bytes() == whole
        assert (tmp_path / "run" / "episodes.torn").read_bytes() == tail.rstrip(b"\n") + b"\n"
        folder.append([episode(3)])
        assert len(list(folder.episodes())) == 3


@pytest.mark.long
def test_every_cut_of_the_last_line_is_repaired(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as folder:
        folder.append([episode(1), episode(2)])
    file = tmp_path / "run" / "episodes.jsonl"
    whole = file.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole), 7):
        file.write_bytes(whole[:length])
        with opened(tmp_path / "run") as folder:
            assert folder.done() == {("test/1", 7, 0)}
        assert file.read_bytes() == whole[:first]


def test_a_reader_passes_over_the_line_that_a_writer_is_writing(run: RunFolder) -> None:
    run.append([episode(1)])
    with open(run.path / "episodes.jsonl", "ab") as other:
        other.write(b'{"schema":1,"id":["test/2",')
    assert [one.task for one in read_episodes(run.path)] == ["test/1"]


@pytest.mark.parametrize("line", [b"garbage", b"", b'{"schema":1,"id":["a",1,0],"end":"exploded"}'])
def test_damage_in_the_middle_is_named_and_nothing_is_touched(tmp_path: Path, line: bytes) -> None:
    with opened(tmp_path / "run") as folder:
        folder.append([episode(1), episode(2), episode(3)])
    file = tmp_path / "run" / "episodes.jsonl"
    lines = file.read_bytes().split(b"\n")
    lines[1] = line
    file.write_bytes(b"\n".join(lines) + b"torn")
    before = file.read_bytes()
    with pytest.raises(StoreError, match=r"episodes.jsonl:2: "):
        opened(tmp_path / "run")
    assert file.read_bytes() == before and not (tmp_path / "run" / "episodes.torn").exists()
    with pytest.raises(StoreError, match=r"episodes.jsonl:2: "):
        list(read_episodes(tmp_path / "run"))


def test_torn_metrics_are_repaired_too(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as folder:
        folder.log({"step": 0})
    with open(tmp_path / "run" / "metrics.jsonl", "ab") as file:
        file.write(b'{"step":')
    with opened(tmp_path / "run") as folder:
        folder.log({"step": 1})
        assert [row["step"] for row in folder.metrics()] == [0, 1]
    assert (tmp_path / "run" / "metrics.torn").exists()


@pytest.mark.parametrize("name", ["manifest.json", "episodes.jsonl"])
def test_a_newer_schema_is_refused_and_left_as_it_is(tmp_path: Path, name: str) -> None:
    with opened(tmp_path / "run") as folder:
        folder.append([episode(1)])
    file = tmp_path / "run" / name
    file.write_bytes(
        file.read_bytes()
        .replace(b'"schema":2', b'"schema":3')
        .replace(b'"schema": 1', b'"schema": 3')
        + (b"{" if name[0] == "e" else b"")
    )
    before = file.read_bytes()
    with pytest.raises(SchemaError, match="schema 3 is newer than"):
        opened(tmp_path / "run")
    assert file.read_bytes() == before and not (tmp_path / "run" / "episodes.torn").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", b'{"schema": 1'),
        ("manifest.json", b"[]"),
        ("resolved.yaml", b"{a: [b"),
        ("resolved.yaml", b"7"),
    ],
)
def test_a_damaged_file_of_the_folder_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    opened(tmp_path / "run").close()
    (tmp_path / "run" / name).write_bytes(content)
    with pytest.raises(StoreError, match=name) as caught:
        opened(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_episodes_without_a_manifest_are_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "episodes.jsonl").write_text(dump_episode(episode(1)) + "\n")
    with pytest.raises(StoreError, match=r"no manifest.json"):
        opened(tmp_path / "run")
    with opened(tmp_path / "run", fresh=True) as folder:
        assert folder.done() == set()


def test_a_folder_whose_making_was_cut_short_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("half")
    with opened(tmp_path / "run") as folder:
        folder.append([episode(1)])
    assert (tmp_path / "run" / "config.yaml").read_text() == "scenario: {id: toy}\n"


def test_a_path_that_is_no_run_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is .* a run folder"):
        read_episodes(tmp_path)
    with pytest.raises(StoreError):
        read_episodes(tmp_path / "absent")
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="file: "):
        opened(tmp_path / "file")


def test_a_device_in_place_of_the_lines_is_refused(tmp_path: Path) -> None:
    opened(tmp_path / "run").close()
    (tmp_path / "run" / "episodes.jsonl").unlink()
    (tmp_path / "run" / "episodes.jsonl").symlink_to("/dev/full")
    with pytest.raises(StoreError, match="no regular file"):
        opened(tmp_path / "run")


def test_a_run_folder_of_the_first_schema_still_opens(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[1] / "golden" / "run-schema-1", tmp_path / "run")
    with opened(tmp_path / "run") as folder:
        assert folder.done() == {("test/1", 7, 0), ("test/2", 7, 0)} and folder.failed() == {
            ("test/2", 7, 0)
        }
        assert list(folder.episodes()) == [episode(1), episode(2, End.FAILED)]
        assert list(folder.metrics()) == [{"step": 0, "return": {"a": 0.5}}]


def test_a_folder_goes_on_in_the_schema_in_which_it_was_begun(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[1] / "golden" / "run-schema-1", tmp_path / "old")
    before = (tmp_path / "old/episodes.jsonl").read_bytes()
    for name in ("old", "new"):
        for number in (3, 4):
            with opened(tmp_path / name) as folder:
                folder.append([episode(number)])
    old, new = ((tmp_path / name / "episodes.jsonl").read_bytes() for name in ("old", "new"))
    assert old == before + b"".join(
        dump_episode(episode(number), 1).encode() + b"\n" for number in (3, 4)
    )
    assert [line[:12] for line in old.splitlines()] == [b'{"schema":1,'] * 4
    assert [line[:12] for line in new.splitlines()] == [b'{"schema":2,'] * 2
    assert list(read_episodes(tmp_path / "old"))[2:] == list(read_episodes(tmp_path / "new"))


# -- marks ---------------------------------------------------------------------------------------


def test_rewind_moves_what_came_after_the_mark_aside(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as folder:
        folder.append([episode(1)])
        folder.log({"step": 0})
        mark = json.loads(json.dumps(folder.mark()))
        whole = (folder.path / "episodes.jsonl").read_bytes()
        folder.append([episode(2), episode(3)])
        folder.log({"step": 1})
    with opened(tmp_path / "run") as folder:
        folder.rewind(mark)
        assert folder.done() == {("test/1", 7, 0)} and list(folder.metrics()) == [{"step": 0}]
        assert (folder.path / "episodes.jsonl").read_bytes() == whole
        assert (folder.path / "episodes.torn").read_bytes() == b"".join(
            dump_episode(episode(i)).encode() + b"\n" for i in (2, 3)
        )
        folder.append([episode(2)])
        assert len(folder.done()) == 2
        folder.rewind(folder.mark())
        assert len(folder.done()) == 2


def test_a_mark_of_another_file_is_refused(run: RunFolder) -> None:
    run.append([episode(1)])
    end = run.mark()["episodes"]
    for mark in (
        {"episodes": end + 1, "metrics": 0},
        {"episodes": end - 1, "metrics": 0},
        {"episodes": 0},
        {"episodes": -1, "metrics": 0},
        {},
    ):
        with pytest.raises(StoreError):
            run.rewind(mark)
    assert len(run.done()) == 1


# -- one writer ----------------------------------------------------------------------------------

HOLD = """
import sys, time
from pathlib import Path
from gem_ma.runs.store import RunFolder
folder = RunFolder.open(Path(sys.argv[1]), config_text="", resolved={"scenario": {"id": "toy"}})
MORE
print("open", flush=True)
time.sleep(60)
"""


def hold(path: Path, more: str = "") -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.replace("MORE", more), str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None and process.stdout.readline() == "open\n"
    return process


@pytest.mark.long
def test_a_second_writer_is_refused_by_pid_and_host_and_a_dead_one_is_forgotten(
    tmp_path: Path,
) -> None:
    process = hold(tmp_path / "run")
    try:
        with pytest.raises(
            StoreError, match=f"process {process.pid} on host {os.uname().nodename}"
        ):
            opened(tmp_path / "run", {"scenario": {"id": "toy"}})
        list(read_episodes(tmp_path / "run"))  # readers need no lock
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    opened(tmp_path / "run", {"scenario": {"id": "toy"}}).close()
    assert json.loads((tmp_path / "run" / ".lock").read_text())["pid"] == os.getpid()


@pytest.mark.long
def test_a_forked_child_does_not_keep_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    more = (
        "import os\npid = os.fork()\nif pid == 0:\n    time.sleep(30)\n    os._exit(0)\nprint(pid,"
        " file=sys.stderr, flush=True)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.replace("MORE", more), str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stderr is not None and process.stdout is not None
    child = int(process.stderr.readline())
    process.stdout.readline()
    process.kill()
    process.wait()
    try:
        os.kill(child, 0)  # it lives on
        # it may not have come to its fork handler yet, for which a writer waits
        opened(tmp_path / "run", {"scenario": {"id": "toy"}}).close()
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.long
def test_a_command_that_a_killed_writer_was_starting_locks_nobody_out(tmp_path: Path) -> None:
    # `fork` of the C library, as `subprocess` does it: no hook of Python's runs in the child, which
    # keeps the open files until it becomes the command; here that takes half a second
    more = (
        "import ctypes, os\npid = ctypes.PyDLL(None).fork()\nif pid == 0:\n    time.sleep(0.5)\n"
        "    os._exit(0)"
    )
    process = hold(tmp_path / "run", more)
    process.kill()
    process.wait()
    opened(tmp_path / "run", {"scenario": {"id": "toy"}}).close()


@pytest.mark.parametrize(
    "holder",
    [
        "",
        "{",
        "[]",
        '{"pid": "x", "host": "HOST"}',
        '{"pid": 1e99, "host": "HOST"}',
        '{"pid": 99999999999999999999, "host": "HOST"}',
        '{"pid": 1, "host": "elsewhere"}',
    ],
)
def test_a_lock_whose_holder_is_not_told_is_a_refusal(tmp_path: Path, holder: str) -> None:
    with hold_folder(tmp_path) as folder:
        (folder / ".lock").write_text(holder.replace("HOST", os.uname().nodename))
        with pytest.raises(StoreError, match="in use by"):
            opened(folder, {"scenario": {"id": "toy"}})


def test_a_closed_folder_refuses_and_frees_the_lock(tmp_path: Path) -> None:
    folder = opened(tmp_path / "run")
    folder.close()
    folder.close()
    with pytest.raises(StoreError, match="closed"):
        folder.append([episode(1)])
    opened(tmp_path / "run").close()


# -- a disk that refuses -------------------------------------------------------------------------


def test_a_write_that_the_disk_takes_half_of_leaves_no_half_line(run: RunFolder) -> None:
    run.append([episode(1)])
    size = (run.path / "episodes.jsonl").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    # the kernel writes 100 bytes and refuses the rest, as a full disk does
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
    try:
        with pytest.raises(StoreError, match=r"episodes.jsonl: .*type the same command again"):
            run.append([episode(2), episode(3)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert (run.path / "episodes.jsonl").stat().st_size == size
    assert run.done() == {("test/1", 7, 0)}
    run.append([episode(2)])  # there is space again
    assert len(list(run.episodes())) == 2


def test_a_half_line_that_cannot_be_cut_back_is_a_torn_tail_for_the_next_writer(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.append([episode(1)])
    real = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[:-50])

    def no_cut(descriptor: int, length: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        patch.setattr(os, "ftruncate", no_cut)
        with pytest.raises(StoreError, match="No space left"):
            run.append([episode(2)])
    with pytest.raises(StoreError, match="open it again"):
        run.append([episode(3)])
    run.close()
    with opened(run.path) as again:
        assert again.done() == {("test/1", 7, 0)}


def test_a_sync_that_fails_stops_the_writer(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(StoreError, match="Input/output error"):
            run.append([episode(1)], fsync=True)
    with pytest.raises(StoreError, match="unsure"):
        run.append([episode(2)])


def test_lines_are_synced_every_32_episodes_and_at_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = opened(tmp_path / "run")
    synced = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: (synced.append(descriptor), unsynced.real(descriptor))[1]
    )
    monkeypatch.setattr("gem_ma.runs.store.folder.SYNC_S", 1e9)
    for number in range(31):
        folder.append([episode(number)])
    assert not synced
    folder.append([episode(31)])
    assert synced
    count = len(synced)
    folder.append([episode(32)])
    folder.close()
    assert len(synced) > count


def test_one_append_is_one_write_on_an_append_only_descriptor(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    writes: list[tuple[int, bytes]] = []
    real = os.write
    monkeypatch.setattr(
        os,
        "write",
        lambda descriptor, data: (writes.append((descriptor, bytes(data))), real(descriptor, data))[
            1
        ],
    )
    run.append([episode(1), episode(2)])
    # the other one is that of their rows in the index
    assert len(writes) == 2 and writes[0][1].count(b"\n") == 2 and writes[0][1].endswith(b"\n")
    assert fcntl.fcntl(writes[0][0], fcntl.F_GETFL) & os.O_APPEND


@pytest.mark.skipif(
    os.geteuid() == 0, reason="root may write anywhere; the next test drops its rights"
)
def test_a_read_only_folder_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="Permission denied"):
        opened(tmp_path / "run")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become nobody")
@pytest.mark.parametrize("existing", [False, True])
def test_a_read_only_folder_is_one_line_also_for_nobody(tmp_path: Path, existing: bool) -> None:
    path = tmp_path / "run"
    if existing:
        opened(path).close()
        before = {p.name: p.read_bytes() for p in path.iterdir()}
        path.chmod(0o555)
    child = os.fork()
    if child == 0:  # rights are dropped without importing anything afterwards
        code = 1
        try:
            os.setuid(65534)
            opened(path)
        except StoreError as error:
            code = 0 if "Permission denied" in str(error) and "\n" not in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if existing:
        assert {p.name: p.read_bytes() for p in path.iterdir()} == before


# -- listing -------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first_and_a_broken_one_is_named(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with opened(tmp_path / name) as folder:
            folder.append([episode(1), episode(2)])
    # as an older version wrote it
    folder.path.joinpath("index.jsonl").unlink()
    folder.path.joinpath("summary.json").write_text('{"success": null}')
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "manifest.json").write_text("{")
    (tmp_path / "nothing").mkdir()
    runs = {run["name"]: run for run in list_runs(tmp_path)}
    assert runs.keys() == {"one", "two", "bad"}
    assert (
        runs["two"]["episodes"],
        runs["two"]["finished"],
        runs["two"]["scenario"],
        runs["one"]["finished"],
    ) == (2, True, "toy", False)
    assert "manifest.json" in runs["bad"]["error"]
    assert list_runs(tmp_path / "absent") == []


LISTED: dict[str, tuple[Any, dict[str, float]]] = {
    "judged": ({"success": {"mean": 0.5}, "returns": {"a": {"mean": 2.0}}}, {"success": 0.5}),
    "paid": (
        {"success": None, "returns": {"a": {"mean": 2.0}, "b": {"mean": -1}}},
        {"return a": 2.0, "return b": -1.0},
    ),
    "learned": (
        {"after": {"sampled": {"success": None, "return": {"a": 0.25}}}},
        {"return a": 0.25},
    ),
    "learned to win": (
        {"after": {"sampled": {"success": 1.0, "return": {"a": 0.25}}}},
        {"success": 1.0},
    ),
    "nothing": ({"success": None, "returns": {}}, {}),
    **{
        f"of another shape {one!r}": (one, {})
        for one in (
            {"success": 1, "returns": [1]},
            {"after": 3},
            {"after": {"sampled": {"return": "x"}}},
        )
    },
    **{
        f"of odd values {one!r}": (
            {"success": {"mean": one}, "returns": {"a": one, "b": {"mean": one}}},
            {},
        )
        for one in ("x", None, True, [1])
    },
}


@pytest.mark.parametrize("which", LISTED)
def test_a_listed_run_says_its_score_whatever_its_summary_is(which: str, tmp_path: Path) -> None:
    summary, score = LISTED[which]
    with opened(tmp_path / "one") as folder:
        folder.append([episode(1)])
    # as a folder of an older version has it: it has no index
    folder.path.joinpath("index.jsonl").unlink()
    folder.path.joinpath("summary.json").write_text(json.dumps(summary))
    (run,) = list_runs(tmp_path)
    assert run["score"] == score and run["finished"] and run["error"] is None


@pytest.mark.parametrize("odd", ["x", {"a": 3}, {"a": {"policy": ["x"]}}])
def test_a_listed_run_says_who_played_whatever_its_config_is(odd: Any, tmp_path: Path) -> None:
    with opened(tmp_path / "one") as folder:
        folder.append([episode(1)])
    resolved = {
        "scenario": {"id": "toy"},
        "agents": {"a": {"behaviour": "direct", "policy": "main"}},
        "policies": {"main": {"model": "openai/x"}},
    }
    folder.path.joinpath("resolved.yaml").write_text(json.dumps(resolved))
    (run,) = list_runs(tmp_path)
    assert (run["cast"], run["models"]) == ({"a": "main"}, {"main": "openai/x"})
    folder.path.joinpath("resolved.yaml").write_text(
        json.dumps({**resolved, "agents": odd, "policies": odd})
    )
    (run,) = list_runs(tmp_path)
    assert run["error"] is None and all(isinstance(who, str) for who in run["cast"].values())


# -- checkpoints --------------------------------------------------------------------------------------------------------------------

FILES = {"main.safetensors": b"\x00\x01weights", "trainer.json": b'{"step": 20}'}


def test_the_newest_checkpoint_is_found_with_its_bytes(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "checkpoints") is None
    for step in (20, 40, 100):
        path = write_checkpoint(
            tmp_path / "checkpoints", step, {**FILES, "step": str(step).encode()}
        )
    assert path.name == "step-000100"
    found = latest_checkpoint(tmp_path / "checkpoints")
    assert found is not None and (found.step, found.fell_back) == (100, ())
    assert (
        found.read("step") == b"100" and found.read("main.safetensors") == FILES["main.safetensors"]
    )
    assert set(found.files) == {*FILES, "step"} and found.files["step"].read_bytes() == b"100"
    with pytest.raises(StoreError, match=r"no file 'absent'; it holds main.safetensors"):
        found.read("absent")


@pytest.mark.parametrize(
    "damage", ["flip", "short", "no file", "no DONE", "half DONE", "DONE outside"]
)
def test_a_damaged_checkpoint_is_passed_over_and_said(tmp_path: Path, damage: str) -> None:
    write_checkpoint(tmp_path, 20, FILES)
    path = write_checkpoint(tmp_path, 40, FILES)
    weights, done = path / "main.safetensors", path / "DONE"
    if damage == "flip":
        weights.write_bytes(b"\x00\x01weighty")
    elif damage == "short":
        weights.write_bytes(b"\x00")
    elif damage == "no file":
        weights.unlink()
    elif damage == "no DONE":
        done.unlink()
    elif damage == "half DONE":
        done.write_bytes(done.read_bytes()[:40])
    else:
        done.write_text(
            json.dumps({"schema": 1, "files": {"../../secret": {"size": 0, "sha256": ""}}})
        )
    found = latest_checkpoint(tmp_path)
    assert found is not None and found.step == 20
    assert len(found.fell_back) == 1 and found.fell_back[0].startswith(
        "step-000040 was passed over: "
    )


def test_bytes_that_change_after_the_check_are_noticed_at_reading(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 20, FILES)
    found = latest_checkpoint(tmp_path)
    (path / "trainer.json").write_bytes(b'{"step": 99}')
    with pytest.raises(StoreError, match="damaged"):
        assert found is not None
        found.read("trainer.json")


def test_a_newer_checkpoint_schema_is_refused(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 20, FILES)
    (path / "DONE").write_text((path / "DONE").read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(SchemaError, match="newer"):
        latest_checkpoint(tmp_path)


def test_a_half_written_checkpoint_is_none_and_is_cleared_away(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 20, FILES)
    (tmp_path / "step-000040.tmp-99999").mkdir()
    (tmp_path / "step-000040.tmp-99999" / "main.safetensors").write_bytes(b"half")
    found = latest_checkpoint(tmp_path)
    assert found is not None and (found.step, found.fell_back) == (20, ())
    write_checkpoint(tmp_path, 40, FILES)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000020", "step-000040"]


def test_a_failed_checkpoint_leaves_the_earlier_ones_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path, 20, FILES)

    def refuse(*names: object, **folders: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(StoreError, match="No space left"):
            write_checkpoint(tmp_path, 40, FILES)
    assert [p.name for p in tmp_path.iterdir()] == ["step-000020"]


def test_writing_a_step_again_keeps_equal_bytes_and_puts_others_aside(tmp_path: Path) -> None:
    first = write_checkpoint(tmp_path, 20, FILES)
    stamp = (first / "DONE").stat().st_mtime_ns
    assert (
        write_checkpoint(tmp_path, 20, FILES) == first
        and (first / "DONE").stat().st_mtime_ns == stamp
    )
    write_checkpoint(tmp_path, 20, {**FILES, "trainer.json": b"{}"})
    found = latest_checkpoint(tmp_path)
    assert (
        found is not None
        and found.read("trainer.json") == b"{}"
        and (tmp_path / "step-000020.old-1").is_dir()
    )


@pytest.mark.parametrize("name", ["../x", "", "DONE", ".hidden", "/etc/passwd"])
def test_a_checkpoint_file_cannot_have_such_a_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError):
        write_checkpoint(tmp_path, 1, {name: b""})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ledger": (Entry(0, "stranger", 1.0),)}, "ledger[0]: 'stranger' is not in the cast"),
        ({"ledger": (Entry(10**30, "a", 1.0),)}, "ledger[0]: no play has a step 1000"),
        ({"ledger": (Entry(-2, "a", 1.0),)}, "ledger[0]: no play has a step -2"),
        ({"turns": ((0, "stranger"),)}, "turns[0]: 'stranger' is not in the cast"),
        ({"turns": ((1, "a"), (0, "a"))}, "turns[1]: 'a' acts at step 0, behind step 1"),
        ({"turns": ((-1, "a"),)}, "turns[0]: 'a' acts at step -1"),
        ({"turns": ((10**30, "a"),)}, "turns[0]: 'a' acts at step 1000"),
    ],
)
def test_a_play_that_no_game_can_have_is_told_with_its_line(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    """A stranger's record was scored as if it were one of ours."""
    if "turns" in change:
        acts = [Turn(step, who, (), None, (), Action("x")) for step, who in change["turns"]]
        change = {"turns": tuple(acts)}
    cast = {"a": Seat("silent"), "b": Seat("silent")}
    both = tuple(Turn(0, who, (), None, (), Action("x")) for who in cast)
    good = recorded(cast, both, (Entry(-1, "b", 1.0),), task="t/0")
    file = tmp_path / "plays.jsonl"
    file.write_text(f"{dump_episode(good)}\n{dump_episode(replace(good, seed=1, **change))}\n")
    read = read_episodes(file)
    assert next(read) == good
    with pytest.raises(StoreError) as told:
        next(read)
    assert f"{file}:2: {said}" in str(told.value)
