"""The folder of an adapter, as `peft` writes it, so that its loaders and vLLM read it: beside lies
`base.json`, a mark of the base that the adapter was trained on, and the seed of that base where it
was drawn.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gem_ma.engines.models.loading import first_line
from gem_ma.kernel.errors import DataError
from gem_ma.system.folders import read_named

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
MARK = "base.json"
PREFIX = "base_model.model."  # of every name in an adapter file
# Kinds of adapters that `peft` knows and we do not, and their values that mean "not used". Read
# over in silence, such an adapter would play as another one.
REFUSED: dict[str, tuple[Any, ...]] = {
    "use_dora": (False, None),
    "bias": ("none",),
    "lora_bias": (False, None),
    "modules_to_save": (None, []),
    "trainable_token_indices": (None, []),
    "target_parameters": (None, []),
    "layer_replication": (None, []),
    "alora_invocation_tokens": (None, []),
    **{f"use_{kind}": (False, None) for kind in ("qalora", "bdlora")},
    **{f"{kind}_config": (None,) for kind in ("arrow", "kasa", "velora", "monteclora")},
}


@dataclass(frozen=True, slots=True)
class Stored:
    """An adapter as its folder holds it; `mark` of its base is None where the folder has none."""

    note: dict[str, Any]  # the settings of `peft`
    mark: str | None
    weights: dict[str, Any]  # tensors, by their names in the module


def read_adapter(folder: Path, where: str) -> Stored:
    """The adapter in a folder. Raises DataError where it is missing, damaged, or of a kind that
    cannot be mixed with others."""
    try:
        note = json.loads(read_named(folder / CONFIG))
        # adapters that others made have no mark
        marked = os.path.lexists(folder / MARK)
        mark = json.loads(read_named(folder / MARK))["mark"] if marked else None
        from safetensors.torch import load

        weights = {
            name.removeprefix(PREFIX): weight
            for name, weight in load(read_named(folder / WEIGHTS)).items()
        }
    except FileNotFoundError as error:
        raise DataError(
            f"{where} has no {Path(str(error.filename)).name}; an adapter folder holds {CONFIG}"
            f" and {WEIGHTS}"
        ) from error
    except Exception as error:  # safetensors raises its own kinds
        raise DataError(f"{where} cannot be read ({first_line(error)}); copy it again") from error
    if not isinstance(note, dict) or note.get("peft_type") != "LORA":
        kind = note.get("peft_type") if isinstance(note, dict) else "nothing"
        raise DataError(f"{where} is not a LoRA adapter; {CONFIG} says {kind}")
    for name, unused in REFUSED.items():
        if name in note and note[name] not in unused:
            raise DataError(
                f"{where} uses {name}, which cannot be mixed with other adapters; merge it into"
                " its base and name that folder"
            )
    return Stored(note, mark, weights)


def write_adapter(
    folder: Path,
    settings: Mapping[str, Any],
    weights: Mapping[str, Any],
    mark: Mapping[str, Any] | None = None,
) -> None:
    """Writes an adapter folder. `settings` are those of `peft`, `weights` are named as in the
    module; `mark` is of their base."""
    from safetensors.torch import save

    folder.mkdir(parents=True, exist_ok=True)
    note = {
        # sets have no order of their own, and the same adapter shall be the same bytes
        name: sorted(value) if isinstance(value, set) else value
        for name, value in settings.items()
    }
    named = {PREFIX + name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    # some loaders refuse weights without this entry
    (folder / WEIGHTS).write_bytes(save(named, metadata={"format": "pt"}))
    (folder / CONFIG).write_text(
        json.dumps(note, indent=2, sort_keys=True, default=str) + "\n", encoding="utf-8"
    )
    if mark is not None:
        (folder / MARK).write_text(json.dumps(dict(mark)) + "\n", encoding="utf-8")


def base_of(folder: Path, policy: str) -> str:
    """The model that an adapter folder names as its base: a folder, or a name on the hub. Raises
    DataError where that cannot be read."""
    try:
        named = json.loads(read_named(folder / CONFIG))["base_model_name_or_path"]
        if not isinstance(named, str) or not named:
            raise ValueError("base_model_name_or_path is empty")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"policy {policy!r}: {folder / CONFIG} names no base ({first_line(error)}); open the"
            f" base with lora: {folder}"
        ) from error
    beside = Path(os.path.normpath(folder.resolve() / named))
    if not beside.is_dir():
        return named
    # below the working folder the short form, as a user would type it
    return os.path.relpath(beside) if Path.cwd() in beside.parents else str(beside)


def relative_base(base: str, folder: Path) -> str:
    """How an adapter folder names its base: a model folder by the way from here to there, so that
    both can move together; a name on the hub as it is."""
    path = Path(base)
    return os.path.relpath(path.resolve(), folder.resolve()) if path.is_dir() else base


def seed_of(folder: Path) -> int:
    """The seed that the base of an adapter was drawn from, 0 where that is the base as it lies
    in its folder, or where the mark is damaged, which is refused later."""
    try:
        seed = json.loads(read_named(folder / MARK)).get("seed", 0)
        return seed if isinstance(seed, int) else 0
    except (OSError, ValueError, AttributeError, RecursionError):
        return 0


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter and no model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()
