"""A training that is broken off and taken up again, beside one that never was: both must leave
the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gem_ma import config
from gem_ma.config.settings import Config
from gem_ma.runs.store import RunFolder, read_metrics
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


def for_both(*words: str) -> list[str]:
    """Each of these words for the speaker and for the listener, whose name stands for AGENT."""
    return [word.replace("AGENT", name) for name in ("speaker", "listener") for word in words]


def of_models(model: Path, *overrides: str) -> Config:
    """The referential game of two language models, each begun from this folder."""
    models = for_both(f"policies.AGENT.model=transformers/{model}")
    path = Path(__file__).parents[1] / "configs" / "referential.yaml"
    return config.load(path, [*models, *overrides]).config


class Killed(BaseException):
    """Stands for a kill."""


def opened(path: Path, settings: Config) -> RunFolder:
    """The run folder of a config."""
    return RunFolder.open(path, config_text="", resolved=settings.model_dump(mode="json"))


def trained(path: Path, settings: Config, **options: Any) -> dict[str, Any]:
    """Trains in a run folder, or goes on there; the summary."""
    with opened(path, settings) as folder:
        return run_training(settings, folder, **options)


def steps_of(path: Path) -> list[dict[str, Any]]:
    """The lines of its metrics that are of steps."""
    return [line for line in read_metrics(path) if line["kind"] == "train"]


def break_off(path: Path, settings: Config, at: int) -> None:
    """Trains until a kill after this step."""

    def kill(step: int, metrics: Any) -> None:
        if step == at:
            raise Killed

    with pytest.raises(Killed):
        trained(path, settings, on_step=kill)


def truth(path: Path) -> dict[str, bytes]:
    """What must not differ: record, metrics, summary, last checkpoint, models and league."""
    folders = [path / "models", path / "league", *sorted(path.glob("checkpoints/step-*"))[-1:]]
    files = [path / name for name in ("episodes.jsonl", "metrics.jsonl", "summary.json")]
    files += [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def broken_and_whole(folder: Path, settings: Config, *kills: int) -> dict[str, Any]:
    """Trains in `folder/whole`, and again in `folder/broken` with a kill after each of these steps
    (3); the summary of both, which are the same."""
    summary = trained(folder / "whole", settings)
    for at in kills or (3,):
        break_off(folder / "broken", settings, at)
    trained(folder / "broken", settings)
    assert len(truth(folder / "whole")) > 3
    assert truth(folder / "broken") == truth(folder / "whole")
    return summary
