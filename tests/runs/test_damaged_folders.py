"""Every file of a run folder, damaged in every way: one line and exit 1 or 2, or it is as good
as before; never a bug of ours, never a hang."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gem_ma.cli.main import main
from gem_ma.training.loop.checkpoint import latest_checkpoint
from tests.hostile import Folders, entries, make, one_line

Spoil = Callable[[bytes, random.Random], bytes]


def _in_json(change: Callable[[Any, random.Random], Any]) -> Spoil:
    """Changes a value somewhere inside, of JSON on one of the lines; text of another kind is
    cut."""

    def spoil(data: bytes, rng: random.Random) -> bytes:
        lines = data.split(b"\n")
        places = [at for at, line in enumerate(lines) if line.strip()]
        at = rng.choice(places) if places else 0
        try:
            if (whole := _loaded(data)) is not None:
                return json.dumps(_changed(whole, change, rng)).encode()
            lines[at] = json.dumps(_changed(json.loads(lines[at]), change, rng)).encode()
        except (ValueError, IndexError):
            lines[at : at + 1] = []
        return b"\n".join(lines)

    return spoil


def _loaded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _changed(value: Any, change: Callable[[Any, random.Random], Any], rng: random.Random) -> Any:
    """The value with one thing inside changed, at any depth."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(sorted(value))
        return {**value, key: _changed(value[key], change, rng)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        return [*value[:at], _changed(value[at], change, rng), *value[at + 1 :]]
    return change(value, rng)


OTHER: list[Any] = [
    None,
    True,
    -1,
    0,
    2**70,
    10**400,
    1.5,
    "",
    "x",
    [],
    {},
    [1],
    {"a": 1},
    [[]],
    "\ud800",
    "../../x",
]
DAMAGE: dict[str, Spoil] = {
    "empty": lambda data, rng: b"",
    "cut": lambda data, rng: data[: rng.randrange(len(data) or 1)],
    "binary": lambda data, rng: rng.randbytes(300),
    "an object": lambda data, rng: b"{}",
    "a list and a newline": lambda data, rng: b"[1]\n",
    "deep inside": (
        lambda data, rng: (
            b'{"schema": 1, "a": ' + b'{"a": ' * 100_000 + b"1" + b"}" * 100_001 + b"\n"
        )
    ),
    "not a number": lambda data, rng: b'{"schema": 1, "a": NaN}\n',
    "huge": lambda data, rng: b'{"schema": 1, "a": ' + b"9" * 5000 + b"}\n",
    "no text": lambda data, rng: b'{"schema": 1, "a": "\xff\xfe"}\n' + data,
    "a mark of its encoding": lambda data, rng: b"\xef\xbb\xbf" + data,
    "two bytes a letter": lambda data, rng: data.decode("utf-8", "replace").encode("utf-16"),
    "newer": (
        lambda data, rng: data.replace(b'"schema": 1', b'"schema": 99').replace(
            b'"schema":1', b'"schema":99'
        )
    ),
    "zeros": lambda data, rng: data + b"\0" * 500,
    "a key less": _in_json(
        lambda value, rng: dict(list(value.items())[1:]) if isinstance(value, dict) else None
    ),
    "another key": _in_json(lambda value, rng: {"odd": value}),
    "another value": _in_json(lambda value, rng: rng.choice(OTHER)),
    "a value that is no number": _in_json(lambda value, rng: float("nan")),
}
# files of a folder that a damage is tried on; all of them with 99
PICKED = int(os.environ.get("GEM_MA_TEST_PICKED", "3"))
READ = (".json", ".yaml", ".jsonl", "DONE", "main", "main.averaged", "main@0")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return make(tmp_path_factory.mktemp("whole"))


def digested(checkpoint: Path) -> None:
    """Makes DONE of a checkpoint fit what lies beside it, as somebody would who wrote it on
    purpose."""
    import hashlib

    files = [file for file in sorted(checkpoint.iterdir()) if file.name != "DONE"]
    listing = {
        file.name: {
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
            "size": file.stat().st_size,
        }
        for file in files
    }
    (checkpoint / "DONE").write_text(
        json.dumps({"schema": 1, "step": int(checkpoint.name[5:]), "files": listing})
    )


@pytest.mark.long
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["run", "train"])
def test_damage_of_any_kind_is_one_line(
    whole: Folders, tmp_path: Path, name: str, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    rng = random.Random(f"{name} {damage} {os.environ.get('GEM_MA_TEST_SEED', '')}")
    read = [
        entry
        for entry in entries(whole.root / name)
        if entry.endswith(READ) and (whole.root / name / entry).is_file()
    ]
    read = [entry for entry in read if not entry.startswith("checkpoints/step-000000")]
    for number, entry in enumerate(rng.sample(read, min(PICKED, len(read)))):
        here = tmp_path / str(number)
        shutil.copytree(whole.root / name, here / name)
        shutil.copy(whole.root / "train.yaml", here)
        file = here / name / entry
        file.write_bytes(DAMAGE[damage](file.read_bytes(), rng))
        if "checkpoints/step-" in entry and file.name != "DONE":
            (
                shutil.rmtree(here / name / "checkpoints" / "step-000002")
                if "step-000001" in entry
                else None
            )
            digested(file.parent)
        for words in Folders(here).commands(name)[: 4 if name == "run" else 3]:
            one_line(capsys, words)
        for words in _reading(here / name):
            one_line(capsys, words)
        shutil.rmtree(here)


def _reading(run: Path) -> list[list[str]]:
    """What else reads a folder."""
    path, out = str(run), str(run.parent / "out.jsonl")
    others = [["report", path], ["compare", path, path], ["score", path]]
    return [*others, ["export", path, "--to", "messages", "-o", out]]


@pytest.mark.long
@pytest.mark.parametrize("payment", [1.7e308, -1.7e308])
def test_payments_whose_sum_is_not_finite_are_told_with_their_file(
    whole: Folders, tmp_path: Path, payment: float, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole.root / "run", tmp_path / "run")
    plays = tmp_path / "run" / "episodes.jsonl"
    lines = [json.loads(line) for line in plays.read_text().splitlines()]
    for line in lines:
        paid = {"step": 0, "agent": "player", "value": payment, "why": ""}
        line["ledger"] = [{**entry, "value": payment} for entry in line["ledger"] or [paid]]
        line["ledger"] *= 2
    plays.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "run" / "summary.json").unlink()
    for words in [*Folders(tmp_path).commands("run")[1:4], *_reading(tmp_path / "run")]:
        one_line(capsys, words)


@pytest.mark.long
@pytest.mark.parametrize("summary", ["[]", '{"episodes": "x", "baselines": [3], "returns": 3}'])
def test_a_summary_of_another_shape_is_one_line_or_made_anew(
    whole: Folders, tmp_path: Path, summary: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("run", "train"):
        shutil.copytree(whole.root / name, tmp_path / name)
        (tmp_path / name / "summary.json").write_text(summary)
        for words in [*Folders(tmp_path).commands(name)[:2], *_reading(tmp_path / name)]:
            one_line(capsys, words)


@pytest.mark.parametrize(
    ("form", "line"),
    [("jsonl", '{"x": 1}'), ("jsonl", "null"), ("sft", "{"), ("tau1", "{"), ("preference", "{")],
)
def test_an_export_names_the_file_that_is_damaged(
    whole: Folders, tmp_path: Path, line: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole.root / "run", tmp_path / "run")
    (tmp_path / "run" / "episodes.jsonl").write_text(line + "\n")
    words = ["export", str(tmp_path / "run"), "--to", form, "-o", str(tmp_path / "out")]
    assert main(words) == 1
    assert f"{tmp_path}/run/episodes.jsonl:1: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_a_checkpoint_that_was_made_up_names_its_folder(
    whole: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole.root / "train", tmp_path / "train")
    (tmp_path / "train/summary.json").unlink()
    newest = tmp_path / "train/checkpoints/step-000002"
    (newest / "trainer.json").write_text("{}")
    digested(newest)
    assert latest_checkpoint(tmp_path / "train/checkpoints") is not None
    assert one_line(capsys, ["resume", str(tmp_path / "train"), "--quiet"]) == 1
    shutil.rmtree(newest)  # what the message advises
    assert one_line(capsys, ["resume", str(tmp_path / "train"), "--quiet"]) == 0
