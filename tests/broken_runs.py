"""A training that is broken off and taken up again, beside one that never was: both must leave
the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gem_ma import config
from gem_ma.config.settings import Config
from gem_ma.runs.store import RunFolder
from gem_ma.training.train import run_training

SMALL = (
    "train.steps=6",
    "train.episodes=8",
    "train.save_every=2",
    "evaluate.episodes=8",
    "evaluate.every=3",
)
WARM = ("train.warm_start.speaker.episodes=8", "train.warm_start.listener.episodes=8")


def small(*overrides: str, name: str = "referential_table") -> Config:
    """A training of six short steps."""
    return config.load(
        name, [*SMALL, *(WARM if name == "referential_table" else ()), *overrides]
    ).config


class Killed(BaseException):
    """Stands for a kill."""


def opened(path: Path, settings: Config) -> RunFolder:
    """The run folder of a config."""
    return RunFolder.open(path, config_text="", resolved=settings.model_dump(mode="json"))


def trained(path: Path, settings: Config, **options: Any) -> dict[str, Any]:
    """Trains in a run folder, or goes on there; the summary."""
    with opened(path, settings) as folder:
        return run_training(settings, folder, **options)


def killed_and_resumed(path: Path, settings: Config) -> None:
    """Trains with a kill after step 3, and goes on to the end."""

    def kill(step: int, metrics: Any) -> None:
        if step == 3:
            raise Killed

    with pytest.raises(Killed):
        trained(path, settings, on_step=kill)
    trained(path, settings)


def truth(path: Path) -> dict[str, bytes]:
    """What must not differ: record, metrics, summary, last checkpoint, models and league."""
    folders = [path / "models", path / "league", *sorted(path.glob("checkpoints/step-*"))[-1:]]
    files = [path / name for name in ("episodes.jsonl", "metrics.jsonl", "summary.json")]
    files += [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def broken_and_whole(folder: Path, settings: Config) -> dict[str, Any]:
    """Trains 4 steps in `folder/whole`, and again in `folder/broken` with a kill after step 3;
    the summary of both, which are the same."""
    summary = trained(folder / "whole", settings)
    killed_and_resumed(folder / "broken", settings)
    assert len(truth(folder / "whole")) > 3
    assert truth(folder / "broken") == truth(folder / "whole")
    return summary
