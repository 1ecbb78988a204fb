"""The weights of a training as models that any run can name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gem_ma.engines.base import Policy
from gem_ma.engines.capabilities import Weighs
from gem_ma.runs.store import RunFolder
from gem_ma.system.files import place
from gem_ma.training.learner.capabilities import KeepsAverage
from gem_ma.training.loop.roles import Learner
from gem_ma.training.selfplay.averaging import Averages, as_table


def export(
    folder: RunFolder,
    policies: Mapping[str, Policy],
    learners: Mapping[str, Learner],
    averages: Averages,
) -> dict[str, Any]:
    """Writes the weights of all learners and their averages; gives `models` and `averaged` of the
    summary: policy -> engine and path."""
    cores = {name: policies[name].core for name in learners}
    models = {
        name: write_model(folder, name, engine)
        for name, engine in cores.items()
        if isinstance(engine, Weighs)
    }
    means: dict[str, Weighs] = {
        name: learner.average()
        for name, learner in learners.items()
        if isinstance(learner, KeepsAverage)
    }
    for name, mixture in averages.mixtures.items():
        if mixture.size:  # 0: nothing was published, so there is nothing to average
            means[name] = as_table(mixture, name)
    averaged = {name: write_model(folder, f"{name}.averaged", mean) for name, mean in means.items()}
    return {"models": models, "averaged": averaged}


def write_model(folder: RunFolder, name: str, engine: Weighs) -> dict[str, str]:
    """Writes the weights as a model that any run can name as `<engine>/<run folder>/<path>`."""
    path = Path("models", name)  # from the run folder, which may be moved
    place(folder.path / path, folder.path, engine.save)
    return {"engine": engine.exports, "path": str(path)}
