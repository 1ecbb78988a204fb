"""Files by which weights travel to a vLLM: an adapter folder in peft's format, or a model
folder. Knows names of weights and nothing of sampling."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gem_ma.kernel.errors import EngineError

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."  # of every name in an adapter file
DOWN = ".lora_A.weight"


def write_adapter(folder: Path, weights: Mapping[str, Any], alpha: float, base: str) -> None:
    """Writes `...lora_A.weight` [rank, inputs] and `...lora_B.weight` [outputs, rank], by name,
    as an adapter folder. Raises EngineError."""
    from safetensors.torch import save_file

    ranks = {int(weight.shape[0]) for name, weight in weights.items() if name.endswith(DOWN)}
    if len(ranks) != 1 or not all(".lora_A." in name or ".lora_B." in name for name in weights):
        raise EngineError(
            f"these weights are no LoRA of one rank: {', '.join(sorted(weights)[:3])} ..."
        )
    targets = sorted(
        {name.removesuffix(DOWN).rsplit(".", 1)[-1] for name in weights if name.endswith(DOWN)}
    )
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": ranks.pop(),
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": targets,
        "base_model_name_or_path": base,
        "inference_mode": True,
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {PREFIX + name: weight.detach().cpu().contiguous() for name, weight in weights.items()},
        folder / WEIGHTS,
        metadata={"format": "pt"},
    )
    (folder / CONFIG).write_text(
        json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8"
    )


def write_weights(folder: Path, weights: Mapping[str, Any], model: str) -> None:
    """Writes these weights as the model folder `folder`, with the other files of the folder
    `model`."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    for file in Path(model).iterdir():
        if file.is_file() and "safetensors" not in file.name:
            shutil.copy(file, folder / file.name)
    save_file(
        {name: weight.detach().cpu().contiguous() for name, weight in weights.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )


def plain_name(policy: str) -> str:
    """The policy's name with letters that every path and URL takes."""
    return (
        "".join(
            char if char.isascii() and (char.isalnum() or char in "-_") else "_" for char in policy
        )
        or "policy"
    )
