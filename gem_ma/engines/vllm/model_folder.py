"""What the vllm engine reads of a model's folder without its weights: config, tokenizer, the ids
that end a turn, the rows of the head, and which adapter there is.

vLLM reads the same folder on its side, and the learner's engine opens it too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gem_ma.engines.local.adapter_settings import lora_settings
from gem_ma.engines.local.loading import first_line, quiet
from gem_ma.engines.local.origin import origin_of
from gem_ma.engines.local.vocabulary import end_ids
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.system.extras import install
from gem_ma.system.folders import check_named, read_named

Lora = dict[str, Any] | str | None  # settings of a new adapter, the folder of one, or none


def base_and_lora(name: str, lora: Lora, policy: str) -> tuple[str, Lora]:
    """(folder of the base model, adapter) behind the name of a model, which may be an adapter on
    one. Raises ConfigError."""
    origin = origin_of(name, lora, policy)
    # Settings stay as they are written: the learner's engine reads them again.
    adapter = lora if origin.adapter is None else str(origin.adapter)
    return str(origin.folder), adapter


def read_json(folder: str, file: str, where: str) -> dict[str, Any]:
    """A JSON object of the folder. Raises DataError."""
    path = Path(folder) / file
    try:
        read = json.loads(read_named(path))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{where}: {path} cannot be read ({first_line(error)}); name the folder of the model"
            " that vLLM serves"
        ) from error
    if not isinstance(read, dict):
        raise DataError(f"{where}: {path} is no JSON object; copy the model's files again")
    return read


def tokenizer_of(folder: str, where: str, extra: str = "train") -> Any:
    """The tokenizer as it lies in the folder; nothing is fetched. `extra`: what brings all that the
    engine needs, this too. Raises ConfigError, DataError."""
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(
            f"{where}: transformers is needed for its tokenizer ({error}): {install(extra)}"
        ) from error
    try:
        check_named(Path(folder))
        with quiet(transformers):
            return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # whatever a damaged file makes the loader raise
        raise DataError(
            f"{where}: the tokenizer of {folder} cannot be loaded ({first_line(error)}); copy the"
            " model's files again"
        ) from error


def end_ids_of(folder: str, tokenizer: Any, where: str) -> frozenset[int]:
    """Ids that end a turn. Raises DataError where none is named."""
    file = "generation_config.json"
    # Many folders have none; then the tokenizer's end token is all.
    present = (Path(folder) / file).is_file()
    configured = read_json(folder, file, where).get("eos_token_id") if present else None
    return end_ids(tokenizer, configured, folder, where)


def head_rows(config: Mapping[str, Any], folder: str, where: str) -> int:
    """Rows of the output head, those without a token included. Raises DataError."""
    # A model that sees as well keeps the settings of its language model apart.
    inner = config.get("text_config")
    size = config.get("vocab_size", inner.get("vocab_size") if isinstance(inner, dict) else None)
    if not isinstance(size, int) or size < 1:
        raise DataError(f"{where}: {folder}/config.json names no vocab_size")
    return size


def rank_and_alpha(lora: dict[str, Any] | str, policy: str) -> tuple[int, float]:
    """Of an adapter that will be made, or of one that lies in a folder."""
    if isinstance(lora, str):
        config = read_json(lora, "adapter_config.json", f"policies.{policy}.lora")
        return int(config.get("r", 0)), float(config.get("lora_alpha", 0))
    settings = lora_settings(lora, policy)
    return settings.rank, settings.alpha
