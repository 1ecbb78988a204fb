"""The list of all runs: what is read once, what is read again, and what damage costs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gem_ma.runs.store import list_runs, listing
from tests.command_line import gem_ma
from tests.runs.test_store import episode, opened


def copies(tmp_path: Path, count: int, config: str = "") -> Path:
    with opened(tmp_path / "run-0") as folder:
        folder.append([episode(1)])
    if config:
        (tmp_path / "run-0/resolved.yaml").write_text(config)
    for number in range(1, count):
        shutil.copytree(tmp_path / "run-0", tmp_path / f"run-{number}")
    return tmp_path


def test_a_list_that_is_kept_reads_only_the_folders_that_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies(tmp_path, 5)
    read: list[str] = []
    real = listing._listed
    monkeypatch.setattr(listing, "_listed", lambda path: read.append(path.name) or real(path))
    kept: listing.Listing = {}
    first = list_runs(tmp_path, kept)
    assert len(read) == 5 and list_runs(tmp_path, kept) == first and len(read) == 5
    # what a reader does to a row is not there the next time
    first[0]["name"] = "another"
    changes = {
        "summary.json": '{"success": {"mean": 0.5}}',
        "manifest.json": '{"schema": 1, "created": "2020"}',
        "resolved.yaml": "scenario: {id: other}\nagents: {}\n",
        "episodes.jsonl": "{}\n{}\n{}\n",
    }
    for number, (name, text) in enumerate(changes.items()):
        (tmp_path / f"run-{number}" / name).write_text(text)
    (tmp_path / "run-4/manifest.json").unlink()
    del read[:]
    runs = {run["name"]: run for run in list_runs(tmp_path, kept)}
    assert read == ["run-0", "run-1", "run-2", "run-3"] and runs.keys() == {*read}
    assert list(runs.values()) == list_runs(tmp_path)
    # nobody knows whether another summary is of these plays
    assert not runs["run-0"]["score"] and runs["run-1"]["created"] == "2020"
    assert runs["run-2"]["scenario"] == "other" and runs["run-3"]["episodes"] == 3


def test_a_folder_that_could_not_be_read_is_tried_again(tmp_path: Path) -> None:
    copies(tmp_path, 1)
    kept: listing.Listing = {}
    file, away = tmp_path / "run-0/episodes.jsonl", tmp_path / "away"
    file.rename(away)
    assert list_runs(tmp_path, kept)[0]["error"]
    away.rename(file)
    assert list_runs(tmp_path, kept)[0]["error"] is None


SEATS = "scenario:\n  id: toy\nscenarios: {}\nagents:\n  a:\n    policy: main\npolicies:\n  main:\n    model: x/y\n"
ODD_ORDERS = {
    "as it is written": SEATS + "run:\n  seed: 1\n",
    "scenario behind": SEATS.replace("scenario:\n  id: toy\n", "")
    + "run:\n  seed: 1\nscenario:\n  id: toy\n",
    "a quoted key behind": SEATS.replace("agents:\n  a:\n    policy: main\n", "")
    + 'run: {}\n"agents":\n  a:\n    policy: main\n',
    "a wide key behind": SEATS.replace("agents:\n  a:\n    policy: main\n", "")
    + "run: {}\nagents :\n  a:\n    policy: main\n",
    "all of it behind": "run: {}\n" + SEATS,
    "in one line": "{scenario: {id: toy},\nagents: {a: {policy: main}}, policies: {main: {model: x/y}},\nrun: {}}",
    "lines of Windows": (SEATS + "run:\n  seed: 1\n").replace("\n", "\r\n"),
    "a mark in front": "\ufeff" + SEATS + "run: {}\n",
}


@pytest.mark.parametrize("order", ODD_ORDERS)
def test_a_list_says_the_same_of_a_config_in_any_order(order: str, tmp_path: Path) -> None:
    copies(tmp_path, 2, ODD_ORDERS[order])
    for run in list_runs(tmp_path):
        assert run["error"] is None
        assert (run["scenario"], run["cast"], run["models"]) == (
            "toy",
            {"a": "main"},
            {"main": "x/y"},
        )


@pytest.mark.parametrize(
    "config",
    ["scenario: [\nrun: {}\n", "a: \udcff\nrun: {}\n", "- 1\nrun: 2"],
)
def test_a_damaged_config_is_named_in_the_list(config: str, tmp_path: Path) -> None:
    copies(tmp_path, 1)
    (tmp_path / "run-0/resolved.yaml").write_bytes(config.encode("utf-8", "surrogateescape"))
    (run,) = list_runs(tmp_path)
    assert str(tmp_path / "run-0/resolved.yaml") in run["error"] and "\n" not in run["error"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        "3",
        "[" * 100_000,
        '{"success": {"mean": NaN}}',
        '{"success": {"mean": 1e999}}',
        '{"success": {"mean": 1' + "0" * 400 + "}}",
        "\udcff",
    ],
)
def test_a_damaged_summary_takes_its_score_alone_from_the_list(text: str, tmp_path: Path) -> None:
    copies(tmp_path, 1)
    (tmp_path / "run-0/summary.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    (run,) = list_runs(tmp_path)
    assert run["score"] == {} and run["error"] is None


def test_a_run_has_ended_where_its_summary_is_of_all_plays_that_were_asked_for(
    tmp_path: Path,
) -> None:
    def finished(planned: int) -> bool:
        with opened(tmp_path / "run") as folder:
            folder.write_summary({"planned": planned, "episodes": 1}, of_all=True)
        (run,) = list_runs(tmp_path)
        return bool(run["finished"])

    with opened(tmp_path / "run") as folder:
        folder.append([episode(1)])
    # stopped before the second, and one more play of a run that was killed then
    assert finished(1) and not finished(2) and finished(1)
    with opened(tmp_path / "run") as folder:
        folder.append([episode(2)])
    assert not list_runs(tmp_path)[0]["finished"]


def test_a_list_of_runs_says_where_more_lie_and_whose_settings_were_edited(tmp_path: Path) -> None:
    def said() -> str:
        return gem_ma("list", "runs", "--root", "r", cwd=tmp_path).stderr

    for place in ("run", "seeds/seed-0", "bench/random/rules", "too/deep/for/us"):
        opened(tmp_path / "r" / place).close()
    (tmp_path / "r/notes.txt").write_text("x")
    (tmp_path / "r/empty").mkdir()
    (tmp_path / "r/nowhere").symlink_to("gone")
    line = "not listed: the runs in r/bench, r/seeds; name such a folder by --root\n"
    assert said() == line
    file = tmp_path / "r/run/resolved.yaml"
    file.write_text(file.read_text() + "\nedited: true\n")
    assert said() == f"r/run: resolved.yaml was edited since the run began\n{line}"
