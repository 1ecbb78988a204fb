"""Files of a run folder that are huge, or hold numbers that nobody can calculate with: one line, little memory, nothing played on settings that nobody chose."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gem_ma.kernel.errors import StoreError
from gem_ma.kernel.parsing.strict_json import dump_json, load_json
from gem_ma.system import files
from tests.hostile import Folders, make, one_line

READ = ("manifest.json", "resolved.yaml", "summary.json", "episodes.jsonl", "metrics.jsonl")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return make(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def run(whole: Folders, tmp_path: Path) -> Folders:
    for name in ("run", "train"):
        shutil.copytree(whole.root / name, tmp_path / name)
    shutil.copy(whole.root / "train.yaml", tmp_path)
    return Folders(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("folder", "name"),
    [*(("run", name) for name in READ), ("train", "metrics.jsonl"), ("train", "summary.json")],
)
def test_a_file_of_nothing_but_zeros_behind_its_end_is_one_line(
    run: Folders,
    folder: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Blocks that are not on the disk, as an archive may hold them: sizes are cut down here."""
    monkeypatch.setattr(files, "MOST_JSON", 1 << 20)
    for module in (
        "gem_ma.runs.store.listing",
        "gem_ma.runs.playing",
        "gem_ma.system.files",
    ):
        monkeypatch.setattr(f"{module}.MOST_LINE", 1 << 20)
    file = run.root / folder / name
    size = file.stat().st_size
    os.truncate(file, 1 << 40)
    codes = {words[0]: one_line(capsys, words) for words in run.commands(folder)[:3]}
    assert file.stat().st_size == 1 << 40 or codes["resume"] == 0
    assert codes["resume"] or name == "summary.json"
    os.truncate(file, size)
    assert one_line(capsys, run.commands(folder)[2]) == 0


def test_what_is_read_has_an_end(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b"[1]\n" + b" " * 100)
    assert files.read(file, most=104) == files.read(file) and files.read_json(file) == [1]
    with pytest.raises(StoreError, match="more than 103 bytes"):
        files.read(file, most=103)
    with open(file, "rb") as opened:
        assert list(files.lines(opened, file)) == [b"[1]\n", b" " * 100]


def test_numbers_beyond_the_range_of_floats_are_refused_where_they_are_calculated_with() -> None:
    for digits, fits in (("9" * 300, True), ("9" * 310, False), ("-" + "9" * 400, False)):
        if fits:
            assert load_json(digits, bounded=True) == int(digits)
        else:
            with pytest.raises(StoreError, match="more than 300 digits"):
                load_json(digits, bounded=True)
    assert load_json(dump_json([2**63])) == [2**63]


@pytest.mark.long
@pytest.mark.parametrize("where", [("returns", "player", "mean"), ("ends", "terminated")])
def test_a_summary_with_such_a_number_is_one_line(
    run: Folders, where: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for file in [run.root / "run/summary.json", *run.root.glob("run/baselines/*/summary.json")]:
        summary: Any = json.loads(file.read_text())
        at = summary
        for key in where[:-1]:
            at = at[key]
        at[where[-1]] = 10**400
        file.write_text(json.dumps(summary))
    for words in run.commands("run")[:4]:
        one_line(capsys, words)


@pytest.mark.parametrize("key", ["run.seed", "agents.player.behaviour", "", "run.seed=5 #"])
def test_what_a_manifest_says_to_have_changed_is_what_may_change(
    run: Folders, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run.root / "run/manifest.json"
    manifest = json.loads(file.read_text())
    changed = [{"at": "", "changed": {key: [0, 4]}}]
    file.write_text(json.dumps({**manifest, "resumed": changed}))
    before = (run.root / "run/episodes.jsonl").read_bytes()
    (run.root / "run/episodes.jsonl").write_bytes(b"")
    assert one_line(capsys, run.commands("run")[2])
    assert (run.root / "run/episodes.jsonl").read_bytes() == b"" != before
