"""Which checkpoints stay, what a run does whose record lost lines, and how it goes on with more
steps than it was made with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gem_ma import config
from gem_ma.cli.main import main
from gem_ma.config.settings import Config
from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.runs.store import RunFolder, read_manifest
from gem_ma.runs.store.names import run_path
from gem_ma.training.loop.checkpoint import latest_checkpoint, prune_checkpoints, write_checkpoint
from gem_ma.training.train import run_training
from tests.broken_runs import Killed, truth
from tests.command_line import latest

SMALL = (
    "train.steps=6",
    "train.episodes=8",
    "train.save_every=1",
    "evaluate.episodes=4",
    "evaluate.every=~",
    "train.on_collapse=off",
    "train.lr_final=1",
)


def kuhn(*overrides: str) -> Config:
    return config.load("kuhn_table", [*SMALL, *overrides]).config


def trained(
    path: Path, settings: Config, *, resuming: bool = False, killed_at: int = 0
) -> list[str]:
    """Trains in this folder; the notes of the run."""
    import asyncio

    from gem_ma.runs.plans import open_policies, scenario_of
    from gem_ma.training.train import train

    notes: list[str] = []

    def kill(step: int, metrics: Any) -> None:
        if step == killed_at:
            raise Killed

    with RunFolder.open(
        path, config_text="", resolved=settings.model_dump(mode="json"), resuming=resuming
    ) as folder:
        asyncio.run(
            train(
                settings,
                scenario_of(settings),
                open_policies(settings),
                folder,
                on_step=kill,
                on_note=notes.append,
            )
        )
    return notes


def steps_on_disk(path: Path) -> list[int]:
    return sorted(int(one.name.removeprefix("step-")) for one in (path / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps with a checkpoint after each, never interrupted."""
    path = tmp_path_factory.mktemp("whole") / "run"
    trained(path, kuhn())
    return path


# -- which stay ----------------------------------------------------------------------------------

KEPT = {
    (): [0, 1, 2, 3, 4, 5, 6],
    ("keep: 1",): [6],
    ("keep: 2",): [5, 6],
    ("keep: 1", "every: 3"): [0, 3, 6],
    ("every: 3",): [0, 1, 2, 3, 4, 5, 6],
}


@pytest.mark.long
@pytest.mark.parametrize("keep", KEPT)
def test_what_stays_is_what_was_asked_for_and_a_killed_run_ends_as_an_unbroken_one(
    keep: tuple[str, ...], whole: Path, tmp_path: Path
) -> None:
    settings = kuhn(f"train.checkpoints={{{', '.join(keep)}}}")
    with pytest.raises(Killed):
        trained(tmp_path / "run", settings, killed_at=4)
    trained(tmp_path / "run", settings)
    assert steps_on_disk(tmp_path / "run") == KEPT[keep]
    assert truth(tmp_path / "run") == truth(whole)


def test_the_setting_changes_no_result_so_the_folder_stays_the_same() -> None:
    plain, kept = (
        kuhn(*more).model_dump(mode="json") for more in ((), ("train.checkpoints.keep=2",))
    )
    assert run_path("kuhn", plain) == run_path("kuhn", kept)
    with pytest.raises(
        ConfigError, match=r"train.checkpoints.keep: should be greater than or equal to 1"
    ):
        kuhn("train.checkpoints.keep=0")


def test_newer_checkpoints_than_the_one_just_written_stay(tmp_path: Path) -> None:
    for step in (0, 1, 2, 5):
        write_checkpoint(tmp_path, step, {"a": b"x"})
    prune_checkpoints(tmp_path, 2, 1, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000005"]


# -- lost lines ----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "left"), [("episodes.jsonl", 0.35), ("episodes.jsonl", 0.75), ("metrics.jsonl", 0.6)]
)
def test_a_record_that_lost_lines_falls_back_to_a_checkpoint_that_fits(
    name: str, left: float, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    data = (run / name).read_bytes()
    (run / name).write_bytes(data[: int(left * len(data))])
    notes = trained(run, kuhn())
    assert notes[0].startswith("step-000006 was passed over: ")
    assert "the file lost lines" in notes[0]
    assert truth(run) == truth(whole)


def test_where_no_checkpoint_fits_the_message_says_what_to_do(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "metrics.jsonl").write_bytes(b"")
    for settings in (kuhn(), kuhn()):  # nothing is changed by the refusal
        with pytest.raises(
            StoreError,
            match=(
                r"metrics.jsonl: has 0 bytes.*put the lost lines back from a copy, or start anew"
                r" with --fresh"
            ),
        ):
            trained(run, settings)
    assert (run / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()


# -- more steps ----------------------------------------------------------------------------------

SHAPES = {
    "plain": (),
    "played ahead": ("train.overlap=true",),
    "an exam is due": ("evaluate.every=2",),
    "a critic and forks": ("train.estimator={name: gae, key: [policy]}", "train.fork={width: 2}"),
    "a league": ("train.opponents={latest: 0.5, uniform: 0.5}", "train.pool={every: 2, loaded: 2}"),
    "all at once": (
        "train.overlap=true",
        "evaluate.every=2",
        "train.checkpoints={keep: 2}",
        "train.on_collapse=warn",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_that_is_given_more_steps_ends_as_one_that_had_them_from_its_start(
    shape: str, tmp_path: Path
) -> None:
    trained(tmp_path / "whole", kuhn(*SHAPES[shape]))
    trained(tmp_path / "run", kuhn(*SHAPES[shape], "train.steps=4"))
    notes = trained(tmp_path / "run", kuhn(*SHAPES[shape]), resuming=True)
    assert "train.steps is 6 now; 4 are done" in notes
    assert truth(tmp_path / "run") == truth(tmp_path / "whole")


@pytest.mark.long
@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("train.lr_final=0.1",), "the 4 done followed a steeper one"),
        (("train.overlap=true", "train.checkpoints.keep=1"), "differs from a run that had 6"),
    ],
)
def test_where_it_cannot_end_alike_it_goes_on_and_says_so(
    overrides: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    trained(tmp_path / "run", kuhn(*overrides, "train.steps=4"))
    notes = trained(tmp_path / "run", kuhn(*overrides), resuming=True)
    assert any(said in note for note in notes), notes
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 6


@pytest.mark.long
def test_more_steps_are_typed_at_resume_and_fewer_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    assert (
        main(["train", "kuhn_table", *latest(*SMALL, "train.steps=2"), "--out", run, "--quiet"])
        == 0
    )
    assert main(["resume", run, "train.steps=4", "--quiet"]) == 0
    assert read_manifest(Path(run))["resumed"][0]["changed"] == {"train.steps": [2, 4]}
    found = latest_checkpoint(Path(run, "checkpoints"))
    assert found is not None and found.step == 4
    assert main(["resume", run, "--quiet"]) == 0  # it has ended
    capsys.readouterr()
    assert main(["resume", run, "train.steps=3", "--quiet"]) == 2
    assert "train.steps (was 4, now 3)" in capsys.readouterr().err
    assert len(read_manifest(Path(run))["resumed"]) == 1
    assert (
        main(["train", "kuhn_table", *latest(*SMALL, "train.steps=9"), "--out", run, "--quiet"])
        == 2
    )
    assert (
        f"train.steps (was 4, now 9) (set them back, type it at gem-ma resume {run} KEY=VALUE, or"
        " start" in capsys.readouterr().err
    )
    assert (
        main(
            [
                "train",
                "kuhn_table",
                *latest(*SMALL, "train.steps=9", "run.seed=3"),
                "--out",
                run,
                "--quiet",
            ]
        )
        == 2
    )
    assert "type it at" not in capsys.readouterr().err
    assert run_training(kuhn("train.steps=1"))["steps"] == 1
