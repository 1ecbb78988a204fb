"""The files of a learner in a checkpoint: weights, optimiser, version, and of rounded weights
their float32 masters. Loading them resumes exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gem_ma.errors import DataError
from gem_ma.training.learner.probes import check
from gem_ma.training.learner.trained import Trained


def saved(learner: Trained) -> dict[str, bytes]:
    """Files of a checkpoint: model.safetensors, optimizer.safetensors, learner.json, of rounded
    weights masters.safetensors (float32).

    Loading them resumes exactly.
    """
    from safetensors.torch import save

    moments, counts = {}, {}
    # by name, not by place as torch has them: a model may list its weights in another order
    for name, weight in learner.masters.items():
        for key, value in learner.optimizer.state.get(weight, {}).items():
            if key == "step":
                counts[name] = float(value)
            else:
                moments[f"{key}/{name}"] = value.detach().cpu().contiguous()
    note = {
        "version": learner.version,
        "unpublished": learner.sampler.unpublished,
        "optimizer_steps": counts,
        "probes": [list(p) for p in learner.probes],
        "noise": learner.noise,  # most publishes look with that of an earlier one
    }
    tensors = {"model.safetensors": learner.parameters, "reference.safetensors": learner.reference}
    tensors["masters.safetensors"] = {name: learner.masters[name] for name in learner.rounded}
    files = {
        name: save({key: weight.detach().cpu().contiguous() for key, weight in part.items()})
        for name, part in tensors.items()
        if part
    }
    return {
        **files,
        "optimizer.safetensors": save(moments),
        "learner.json": json.dumps(note, sort_keys=True).encode(),
    }


@dataclass(frozen=True, slots=True)
class _Files:
    """What the files of a checkpoint hold, read."""

    weights: Mapping[str, Any]
    masters: Mapping[str, Any]
    reference: Mapping[str, Any]
    moments: Mapping[str, Any]  # `exp_avg/NAME`, `exp_avg_sq/NAME`
    counts: Mapping[str, float]  # optimiser steps by name of the weight
    version: int
    unpublished: bool
    probes: list[tuple[int, ...]]
    noise: float | None  # None too in checkpoints of before it was kept


def restore(learner: Trained, files: Mapping[str, bytes]) -> None:
    """Puts weights, optimiser and version back. Raises DataError, with nothing changed, where a
    file is missing, damaged or of another model."""
    import torch

    read = _read(learner, files)
    _check_shapes(learner, read)
    optimizer = _optimizer(learner, read)
    device = learner.engine.device
    # all is checked: from here on nothing is refused
    with learner.engine.lock, torch.no_grad():
        for name, weight in learner.parameters.items():
            weight.copy_(read.weights[name])
            learner.masters[name].copy_(read.masters[name])
        learner.optimizer, learner.probes = optimizer, read.probes
        learner.reference = {name: weight.to(device) for name, weight in read.reference.items()}
        learner.sampler.version = read.version
        # a copy or a server knows nothing of what was just loaded
        if learner.sampler is not learner.engine:
            learner.sampler.take(learner.parameters)
            check(learner)
        learner.noise = read.noise if read.noise is not None else learner.noise
        learner.sampler.unpublished = read.unpublished
        learner.remember()


def _read(learner: Trained, files: Mapping[str, bytes]) -> _Files:
    from safetensors.torch import load

    try:
        weights, moments = load(files["model.safetensors"]), load(files["optimizer.safetensors"])
        reference = load(files["reference.safetensors"]) if "reference.safetensors" in files else {}
        masters = {**weights, **(load(files["masters.safetensors"]) if learner.rounded else {})}
        note = json.loads(files["learner.json"])
        return _Files(
            weights=weights,
            masters=masters,
            reference=reference,
            moments=moments,
            counts=dict(note["optimizer_steps"]),
            version=int(note["version"]),
            unpublished=bool(note["unpublished"]),
            probes=[tuple(map(int, probe)) for probe in note["probes"]],
            noise=None if note.get("noise") is None else float(note["noise"]),
        )
    except Exception as error:  # safetensors raises its own kinds
        raise DataError(
            f"policy {learner.policy!r}: its checkpoint cannot be read ({type(error).__name__}:"
            f" {error})"
        ) from error


def _shapes(weights: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in weights.items()}


def _check_shapes(learner: Trained, read: _Files) -> None:
    shapes, expected = _shapes(read.weights), _shapes(learner.parameters)
    if shapes != expected:
        names = sorted(shapes.keys() | expected.keys())
        wrong = next(name for name in names if shapes.get(name) != expected.get(name))
        raise DataError(
            f"policy {learner.policy!r}: its checkpoint is of another model than"
            f" {learner.engine.path}: {wrong} differs"
        )
    if _shapes(read.masters) != expected:
        raise DataError(
            f"policy {learner.policy!r}: its checkpoint's float32 weights do not fit the model"
        )


def _optimizer(learner: Trained, read: _Files) -> Any:
    """A new optimiser with the moments of the checkpoint."""
    import torch

    device, expected = learner.engine.device, _shapes(learner.parameters)
    optimizer = learner.new_optimizer(0.0)
    for name, count in read.counts.items():
        moments = {
            key.partition("/")[0]: value
            for key, value in read.moments.items()
            if key.partition("/")[2] == name
        }
        fits = name in expected and moments.keys() == {"exp_avg", "exp_avg_sq"}
        if not fits or any(tuple(value.shape) != expected[name] for value in moments.values()):
            raise DataError(
                f"policy {learner.policy!r}: its checkpoint's optimizer does not fit the model:"
                f" {name}"
            )
        # fused AdamW counts its steps on the device
        step = torch.tensor(count, dtype=torch.float32, device=device)
        placed = {key: value.to(device) for key, value in moments.items()}
        optimizer.state[learner.masters[name]] = {"step": step, **placed}
    return optimizer
