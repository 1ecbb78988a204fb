"""Bad input through the real command line: one clear line, the right exit code, and what was
there stays as it was."""

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import SLOWLY, environment, gem_ma

DATA = ("users.json", "orders.json", "products.json")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder; the lock's text changes with its holder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def one_line(done: subprocess.CompletedProcess[str], code: int, *said: str) -> None:
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.endswith("\n"), done.stderr
    for part in said:
        assert part in done.stderr


@pytest.fixture
def played(tmp_path: Path) -> Path:
    """A finished run of 20 hands in `out`."""
    assert gem_ma("run", "kuhn_poker", "-n", 20, "--out", "out", cwd=tmp_path).returncode == 0
    return tmp_path / "out"


# -- configs and data ----------------------------------------------------------------------------


def test_a_missing_data_folder(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        "scenario:\n  id: retail\n  data: nowhere\nagents:\n  assistant: {behaviour: silent}\n "
        " user: {behaviour: silent}\n"
    )
    one_line(gem_ma("run", "shop.yaml", cwd=tmp_path), 2, "shop.yaml:3: scenario.data: ", "nowhere")
    one_line(
        gem_ma("run", "retail", "scenario.data=nowhere", cwd=tmp_path),
        2,
        "command line: scenario.data: ",
        "nowhere",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["shop.yaml"]


def test_a_missing_data_folder_named_by_the_environment(tmp_path: Path) -> None:
    one_line(
        gem_ma("run", "retail", cwd=tmp_path, TAU_BENCH_PATH=str(tmp_path / "nowhere")),
        2,
        "nowhere",
    )


def test_truncated_json_in_a_data_folder(tmp_path: Path) -> None:
    data = tmp_path / "shop"
    data.mkdir()
    for name in DATA:
        (data / name).write_text(
            "{}" if name != "orders.json" else '{"#W1": {"order_id": "#W1", "us'
        )
    before = contents(data)
    one_line(
        gem_ma("run", "retail", "scenario.data=shop", cwd=tmp_path),
        2,
        "command line: scenario.data: ",
        "orders.json",
    )
    assert contents(data) == before and [path.name for path in tmp_path.iterdir()] == ["shop"]


def test_an_unknown_agent_and_a_task_out_of_range_are_told_together(tmp_path: Path) -> None:
    text = (
        "scenario: {id: kuhn_poker, tasks: [0, 7]}\nagents:\n  player_0: {behaviour: silent}\n "
        " player1: {behaviour: silent}\n"
    )
    (tmp_path / "run.yaml").write_text(text)
    done = gem_ma("run", "run.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        (
            "run.yaml:1: scenario.tasks[1]: no task 7; split 'test' has 1 (0 to 0)\nrun.yaml:2:"
            " agents: no seat for 'player_1'; the agents of kuhn_poker are player_0,"
            " player_1\nrun.yaml:4: agents.player1: no agent of kuhn_poker has this name (did you"
            " mean 'player_1'?)\n"
        ),
    )
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]


def test_a_model_folder_without_tokenizer_or_not_there(tmp_path: Path, kuhn_model: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(kuhn_model, model)
    for file in model.glob("tokenizer*"):
        file.unlink()
    before = contents(model)
    run = ("run", "referential", "agents.speaker.model=transformers/model")
    one_line(gem_ma(*run, cwd=tmp_path), 2, "policies.speaker: ", "tokenizer")
    one_line(
        gem_ma(*run[:2], "agents.speaker.model=transformers/nowhere", cwd=tmp_path),
        2,
        "policies.speaker: ",
        "nowhere",
    )
    assert contents(model) == before and [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "- 1",
        "a: *b",
        "a: !!python/object/apply:os.system [id]",
        "{" * 5000,
        "\x00",
        "x: " + "y" * 300_000,
    ],
)
def test_a_config_that_is_no_config(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.yaml").write_text(text)
    one_line(
        gem_ma("run", "run.yaml", cwd=tmp_path),
        2,
        "run.yaml:" if text not in ("", "\x00") else "run.yaml: ",
    )


# -- run folders ---------------------------------------------------------------------------------


def test_a_run_folder_of_a_newer_schema(played: Path) -> None:
    manifest = json.loads((played / "manifest.json").read_text())
    (played / "manifest.json").write_text(json.dumps(manifest | {"schema": 99}))
    before = contents(played)
    for command in (
        ("run", "kuhn_poker", "-n", 20, "--out", "out"),
        ("resume", "out"),
        ("show", "out"),
    ):
        one_line(gem_ma(*command, cwd=played.parent), 2, "schema 99 is newer than")
    assert contents(played) == before


@pytest.mark.parametrize(("name", "code"), [("manifest.json", 1), ("resolved.yaml", 1)])
def test_a_damaged_run_folder_is_named_and_left_alone(played: Path, name: str, code: int) -> None:
    whole = (played / name).read_bytes()
    (played / name).write_bytes(whole[: len(whole) // 2] + b"\n{")
    before = contents(played)
    one_line(
        gem_ma("run", "kuhn_poker", "-n", 20, "--out", "out", cwd=played.parent),
        code,
        f"out/{name}",
    )
    assert contents(played) == before


def test_a_run_that_only_plays_asks_no_cluster(played: Path) -> None:
    before = contents(played)
    one_line(
        gem_ma("resume", "out", "--ray", "local", cwd=played.parent),
        2,
        "out: this run only plays; leave out --ray, or type --processes N",
    )
    assert contents(played) == before


def test_a_file_where_the_run_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    for out in ("out", "out/deeper"):
        one_line(
            gem_ma("run", "kuhn_poker", "--out", out, cwd=tmp_path), 1, f"{out}: ", "another folder"
        )
    assert (tmp_path / "out").read_text() == "mine"


# -- disks ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own in a folder; skips where this process may not mount."""
    disk = folder / "disk"
    disk.mkdir()
    if (
        shutil.which("mount") is None
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], capture_output=True
        ).returncode
    ):
        pytest.skip(
            "this process may not mount a file system; the limit on file size is tested below"
        )
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.long
def test_a_full_disk_keeps_whole_lines_and_the_run_goes_on_when_there_is_space(
    tmp_path: Path,
) -> None:
    run = ("run", "kuhn_poker", "-n", 1500, "--quiet", "--out", "disk/out")
    with mounted(tmp_path, "600k") as disk:
        one_line(
            gem_ma(*run, cwd=tmp_path),
            1,
            "disk/out/episodes.jsonl: No space left on device",
            "type the same command again",
        )
        kept = (disk / "out" / "episodes.jsonl").read_bytes()
        assert (
            0 < kept.count(b"\n") < 1500
            and kept.endswith(b"\n")
            and all(json.loads(line) for line in kept.splitlines())
        )
        subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
        done = gem_ma(*run, cwd=tmp_path)
        assert done.returncode == 0 and "1500 ok / 0 failed / 0 excluded" in done.stdout
        assert (disk / "out" / "episodes.jsonl").read_bytes().startswith(kept)


def test_a_read_only_run_folder(tmp_path: Path) -> None:
    with mounted(tmp_path, "4m") as disk:
        assert (
            gem_ma("run", "kuhn_poker", "-n", 5, "--out", "disk/out", cwd=tmp_path).returncode == 0
        )
        before = contents(disk)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        one_line(
            gem_ma("run", "kuhn_poker", "-n", 5, "--out", "disk/out", cwd=tmp_path),
            1,
            "Read-only file system",
            "another folder",
        )
        one_line(
            gem_ma("run", "kuhn_poker", "-n", 5, "--out", "disk/new", cwd=tmp_path),
            1,
            "disk/new",
            "Read-only file system",
            "another folder",
        )
        assert contents(disk) == before
        assert gem_ma("show", "disk/out", cwd=tmp_path).returncode == 0


@pytest.mark.skipif(
    os.geteuid() == 0, reason="root may write anywhere; the read-only mount above is its test"
)
def test_a_run_folder_without_permission(played: Path) -> None:
    played.chmod(0o500)
    try:
        one_line(
            gem_ma("run", "kuhn_poker", "-n", 20, "--out", "out", cwd=played.parent, TMPDIR="/tmp"),
            1,
            "Permission denied",
        )
    finally:
        played.chmod(0o700)


@pytest.mark.longest
def test_a_limit_on_file_size_is_met_as_a_full_disk_is(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "gem_ma",
        "run",
        "kuhn_poker",
        "-n",
        "300",
        "--quiet",
        "--out",
        "out",
    ]

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=limited,
    )
    one_line(done, 1, "out/episodes.jsonl: File too large", "type the same command again")
    kept = (tmp_path / "out" / "episodes.jsonl").read_bytes()
    assert len(kept) <= 100_000 and kept.endswith(b"\n")
    assert "300 ok / 0 failed / 0 excluded" in gem_ma("resume", "out", cwd=tmp_path).stdout
    assert (tmp_path / "out" / "episodes.jsonl").read_bytes().startswith(kept)


# -- scenarios and behaviours of a user ----------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("mine:Missing", "module mine has no 'Missing'"),
        ("mine:slow", "'mine:slow' is no Scenario"),
        ("mine:Slow", "'mine:Slow' is no Scenario"),
        ("torn:Quiz", "cannot be imported: SyntaxError"),
        ("raising:Quiz", "cannot be imported: ZeroDivisionError"),
        ("nowhere:Quiz", "there is no module 'nowhere'"),
    ],
)
def test_a_module_that_does_not_hold_a_scenario(tmp_path: Path, source: str, said: str) -> None:
    (tmp_path / "mine.py").write_text(SLOWLY + "\nslow = Slow\n")
    (tmp_path / "torn.py").write_text(
        SLOWLY[: SLOWLY.index("for _") if "for _" in SLOWLY else 150] + "\nclass ("
    )
    (tmp_path / "raising.py").write_text("1 / 0\n")
    one_line(gem_ma("run", source, cwd=tmp_path), 2, said)


@pytest.mark.parametrize("module", ["raising.py", "raising:Quiz", "lacking.py"])
@pytest.mark.parametrize(
    "words", [("new", "config", "mine", "--scenario"), ("new", "model", "mine", "--scenario")]
)
def test_code_of_a_user_that_raises_while_it_is_imported_is_no_bug_of_ours(
    tmp_path: Path, module: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "raising.py").write_text("1 / 0\n")
    (tmp_path / "lacking.py").write_text("import nothing_that_is_there\n")
    raised = "ZeroDivisionError" if "raising" in module else "ModuleNotFoundError"
    done = gem_ma(*words, module, cwd=tmp_path)
    one_line(done, 2, f"scenario {module!r} cannot be imported: {raised}: ")
