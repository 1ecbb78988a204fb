"""The files of a learner in a checkpoint: weights, optimiser, version, and of rounded weights
their float32 masters. Loading them resumes exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping

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
    }
    held = {"model.safetensors": learner.parameters, "reference.safetensors": learner.reference}
    held["masters.safetensors"] = {name: learner.masters[name] for name in learner.rounded}
    files = {
        name: save({key: weight.detach().cpu().contiguous() for key, weight in one.items()})
        for name, one in held.items()
        if one
    }
    return {
        **files,
        "optimizer.safetensors": save(moments),
        "learner.json": json.dumps(note, sort_keys=True).encode(),
    }


def restore(learner: Trained, files: Mapping[str, bytes]) -> None:
    """Puts weights, optimiser and version back. Raises DataError, with nothing changed, where a
    file is missing, damaged or of another model."""
    import torch
    from safetensors.torch import load

    try:
        weights, moments = load(files["model.safetensors"]), load(files["optimizer.safetensors"])
        reference = load(files["reference.safetensors"]) if "reference.safetensors" in files else {}
        masters = {**weights, **(load(files["masters.safetensors"]) if learner.rounded else {})}
        note = json.loads(files["learner.json"])
        version, unpublished, counts = (
            int(note["version"]),
            bool(note["unpublished"]),
            dict(note["optimizer_steps"]),
        )
        probes = [tuple(map(int, probe)) for probe in note["probes"]]
    except Exception as error:  # safetensors raises its own kinds
        raise DataError(
            f"policy {learner.policy!r}: its checkpoint cannot be read ({type(error).__name__}:"
            f" {error})"
        ) from error
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    expected = {name: tuple(weight.shape) for name, weight in learner.parameters.items()}
    if shapes != expected:
        wrong = sorted(
            name
            for name in shapes.keys() | expected.keys()
            if shapes.get(name) != expected.get(name)
        )
        raise DataError(
            f"policy {learner.policy!r}: its checkpoint is of another model than"
            f" {learner.engine.path}: {wrong[0]} differs"
        )
    if {name: tuple(weight.shape) for name, weight in masters.items()} != expected:
        raise DataError(
            f"policy {learner.policy!r}: its checkpoint's float32 weights do not fit the model"
        )
    optimizer = learner.new_optimizer(0.0)
    for name, count in counts.items():
        kept = {
            key.partition("/")[0]: value
            for key, value in moments.items()
            if key.partition("/")[2] == name
        }
        if (
            name not in expected
            or set(kept) != {"exp_avg", "exp_avg_sq"}
            or any(tuple(v.shape) != expected[name] for v in kept.values())
        ):
            raise DataError(
                f"policy {learner.policy!r}: its checkpoint's optimizer does not fit the model:"
                f" {name}"
            )
        step = torch.tensor(count, dtype=torch.float32, device=learner.engine.device)
        optimizer.state[learner.masters[name]] = {
            "step": step,
            **{key: value.to(learner.engine.device) for key, value in kept.items()},
        }
    with learner.engine.lock, torch.no_grad():
        for name, weight in learner.parameters.items():
            weight.copy_(weights[name])
            learner.masters[name].copy_(masters[name])
        learner.optimizer, learner.probes = optimizer, probes
        learner.reference = {
            name: weight.to(learner.engine.device) for name, weight in reference.items()
        }
        learner.sampler.version = version
        if learner.sampler is not learner.engine:
            learner.sampler.take(learner.parameters)
            check(learner)
        learner.sampler.unpublished = unpublished
        learner.remember()
