"""Model folders that hold nothing but random weights: how they are marked, and how their weights
are drawn, from which seed.

A training draws the folders of `gem-ma new model` anew from `run.seed`, so that seeds of a run
differ in their models too. The mark names the file of weights by its digest: a folder whose weights
somebody trained is never taken for an untrained one.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from gem_ma.engines.base import stable_seed
from gem_ma.system.folders import read_named

NOTE = "gem_ma.json"
MARK = "untrained"
WEIGHTS = "model.safetensors"
SEEDS = 1 << 32  # torch's generator tells no more apart


def weights_digest(folder: Path) -> str:
    """SHA-256 of the file that holds the weights."""
    return hashlib.sha256(read_named(folder / WEIGHTS)).hexdigest()


def first_seed(folder: Path) -> int | None:
    """The seed that the weights of an untrained folder were drawn from; None for any other."""
    try:
        note = json.loads(read_named(folder / NOTE))
        if not isinstance(note, dict) or not isinstance(note.get("seed"), int) or MARK not in note:
            return None
        return int(note["seed"]) if note[MARK] == weights_digest(folder) else None
    except (OSError, ValueError, RecursionError):
        return None


def draw(model: Any, seed: int) -> None:
    """Fills the parameters of a model: norms with 1, biases with 0, embeddings with a spread of
    .02, all others with .7 / sqrt(inputs). A function of the names, the shapes and the seed alone:
    drawn in float32 by the processor, then rounded to the dtype of each weight."""
    import torch

    # a generator of its own: the global stream of the caller stays where it was
    generator = torch.Generator().manual_seed(
        seed if 0 <= seed < SEEDS else stable_seed("weights", seed) % SEEDS
    )
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if weight.ndim == 1:
                weight.fill_(0.0 if name.endswith("bias") else 1.0)  # the others are norms
                continue
            # variances stay about the same from layer to layer; small embeddings, which often read
            # out too, make an untrained model nearly uniform
            embeds = "embed" in name and weight.ndim == 2  # patches are embedded by a convolution
            spread = 0.02 if embeds else 0.7 / math.sqrt(math.prod(weight.shape[1:]))
            weight.copy_(
                torch.empty(weight.shape, dtype=torch.float32).normal_(
                    0.0, spread, generator=generator
                )
            )
