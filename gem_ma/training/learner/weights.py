"""The files of a learner in a checkpoint: weights, optimiser, version, and of rounded weights
their float32 masters. Loading them resumes exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gem_ma.kernel.errors import DataError
from gem_ma.training.learner.probes import check
from gem_ma.training.learner.shards import read_shards, shapes_of
from gem_ma.training.learner.trained import Trained


def saved(learner: Trained) -> dict[str, bytes]:
    """Files of a checkpoint: model.safetensors, optimizer.safetensors, learner.json, of rounded
    weights masters.safetensors (float32)."""
    from safetensors.torch import save

    moments = {key: value.detach().cpu().contiguous() for key, value in _moments(learner).items()}
    tensors = {"model.safetensors": learner.parameters, "reference.safetensors": learner.reference}
    tensors["masters.safetensors"] = {name: learner.masters[name] for name in learner.rounded}
    files = {
        name: save({key: weight.detach().cpu().contiguous() for key, weight in part.items()})
        for name, part in tensors.items()
        if part
    }
    return {**files, "optimizer.safetensors": save(moments), "learner.json": note_of(learner)}


def note_of(learner: Trained) -> bytes:
    """What a learner has beside tensors, as JSON."""
    # by name, not by place as torch has them: a model may list its weights in another order
    states = {name: learner.optimizer.state.get(it, {}) for name, it in learner.masters.items()}
    note = {
        "version": learner.version,
        "unpublished": learner.sampler.unpublished,
        "optimizer_steps": {name: float(it["step"]) for name, it in states.items() if it},
        "probes": [list(p) for p in learner.probes],
        "noise": learner.noise,  # most publishes look with that of an earlier one
    }
    return json.dumps(note, sort_keys=True).encode()


def tensors_of(learner: Trained) -> dict[str, Any]:
    """Masters, moments and reference weights, by names that tell them apart."""
    return {
        **{f"model/{name}": weight.detach() for name, weight in learner.masters.items()},
        **_moments(learner),
        **{f"reference/{name}": weight for name, weight in learner.reference.items()},
    }


def _moments(learner: Trained) -> dict[str, Any]:
    return {
        f"{key}/{name}": value.detach()
        for name, weight in learner.masters.items()
        for key, value in learner.optimizer.state.get(weight, {}).items()
        if key != "step"
    }


@dataclass(frozen=True, slots=True)
class _Files:
    """What the files of a checkpoint hold, read."""

    counts: Mapping[str, float]  # optimiser steps by name of the weight
    version: int
    unpublished: bool
    probes: list[tuple[int, ...]]
    noise: float | None  # None too in checkpoints of before it was kept
    weights: Mapping[str, Any] = field(default_factory=dict)
    masters: Mapping[str, Any] = field(default_factory=dict)
    reference: Mapping[str, Any] = field(default_factory=dict)
    moments: Mapping[str, Any] = field(default_factory=dict)  # `exp_avg/NAME`, `exp_avg_sq/NAME`


def restore(learner: Trained, files: Mapping[str, bytes], shards: Sequence[Path] = ()) -> None:
    """Puts weights, optimiser and version back. Raises DataError, with nothing changed, where a
    file is missing, damaged or of another model. `shards`: files that several processes wrote."""
    import torch

    read = _read(learner, files) if not shards else _read_shards(learner, files, shards)
    _check_shapes(learner, read)
    optimizer = _optimizer(learner, read)
    # all is checked: from here on nothing is refused
    with learner.engine.lock, torch.no_grad():
        for name, weight in learner.parameters.items():
            weight.copy_(learner.placed(name, read.weights[name]))
            learner.masters[name].copy_(learner.placed(name, read.masters[name]))
        learner.optimizer = optimizer
        learner.probes = read.probes
        learner.reference = {
            name: learner.placed(name, weight) for name, weight in read.reference.items()
        }
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
        weights = load(files["model.safetensors"])
        moments = load(files["optimizer.safetensors"])
        reference = load(files["reference.safetensors"]) if "reference.safetensors" in files else {}
        masters = {**weights, **(load(files["masters.safetensors"]) if learner.rounded else {})}
    except Exception as error:  # safetensors raises its own kinds
        raise _damaged(learner, error) from error
    return replace(
        _note(learner, files),
        weights=weights,
        masters=masters,
        reference=reference,
        moments=moments,
    )


def _note(learner: Trained, files: Mapping[str, bytes]) -> _Files:
    """What learner.json says; without tensors."""
    try:
        note = json.loads(files["learner.json"])
        return _Files(
            counts=dict(note["optimizer_steps"]),
            version=int(note["version"]),
            unpublished=bool(note["unpublished"]),
            probes=[tuple(map(int, probe)) for probe in note["probes"]],
            noise=None if note.get("noise") is None else float(note["noise"]),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(learner, error) from error


def _damaged(learner: Trained, error: Exception) -> DataError:
    return DataError(
        f"policy {learner.policy!r}: its checkpoint cannot be read ({type(error).__name__}:"
        f" {error})"
    )


def _read_shards(learner: Trained, files: Mapping[str, bytes], shards: Sequence[Path]) -> _Files:
    """The same of files that several processes have written."""
    import torch

    prefix = f"{learner.policy}/"
    shapes = {
        name.removeprefix(prefix): shape
        for name, shape in sorted(shapes_of(shards).items())
        if name.startswith(prefix)
    }
    room = {}
    for name, shape in shapes.items():
        like = learner.masters.get(name.partition("/")[2])
        if like is None or tuple(like.shape) != shape:
            raise DataError(
                f"policy {learner.policy!r}: its checkpoint is of another model than"
                f" {learner.engine.path}: {name} differs"
            )
        room[name] = torch.empty_like(like, requires_grad=False)
    read_shards(shards, {prefix + name: tensor for name, tensor in room.items()}, learner.group)
    kinds: dict[str, dict[str, Any]] = {"model": {}, "reference": {}}
    for name, tensor in room.items():
        kind, _, of = name.partition("/")
        kinds.setdefault(kind, {})[of] = tensor
    masters = kinds["model"]
    dtypes = {name: weight.dtype for name, weight in learner.parameters.items()}
    note = _note(learner, files)
    return replace(
        note,
        masters=masters,
        weights={name: weight.to(dtypes[name]) for name, weight in masters.items()},
        reference={name: weight.to(dtypes[name]) for name, weight in kinds["reference"].items()},
        moments={
            f"{kind}/{name}": tensor
            for kind, tensors in kinds.items()
            if kind not in ("model", "reference")
            for name, tensor in tensors.items()
        },
    )


def _shapes(weights: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in weights.items()}


def _check_shapes(learner: Trained, read: _Files) -> None:
    shapes = _shapes(read.weights)
    expected = _shapes(learner.parameters)
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

    device = learner.engine.device
    expected = _shapes(learner.parameters)
    optimizer = learner.new_optimizer(0.0)
    for name, count in read.counts.items():
        moments = {
            key.partition("/")[0]: value
            for key, value in read.moments.items()
            if key.partition("/")[2] == name
        }
        shape = expected.get(name, ())
        shapes = {"exp_avg": shape, "exp_avg_sq": shape}
        if name not in expected or _shapes(moments) != shapes:
            raise DataError(
                f"policy {learner.policy!r}: its checkpoint's optimizer does not fit the model:"
                f" {name}"
            )
        # fused AdamW counts its steps on the device
        step = torch.tensor(count, dtype=torch.float32, device=device)
        placed = {key: learner.placed(name, value) for key, value in moments.items()}
        optimizer.state[learner.masters[name]] = {"step": step, **placed}
    return optimizer
