"""Reads a model folder: what must lie in it, the tokenizer and the weights. Knows neither sampling nor learning."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gem_ma.errors import ConfigError, DataError


def import_stack() -> tuple[Any, Any]:
    """(torch, transformers), with one thread unless the user chose. Raises ConfigError that names the extra."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    new = "transformers" not in sys.modules
    try:
        import torch
        import transformers
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401  (loaded lazily by the library; here, so that it counts)
    except ImportError as error:
        raise ConfigError(f'the transformers engine needs torch and transformers ({error.name or error}): pip install "gem-ma[train]"') from error
    if "OMP_NUM_THREADS" not in os.environ and "MKL_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # small models on a busy machine are many times slower with more
    if new:  # about a million objects that live for ever: each later collection would walk them, a quarter of the time of a rollout
        gc.collect()
        gc.freeze()
    return torch, transformers


def check_folder(name: str, policy: str) -> None:
    """Missing parts are named before anything heavy is imported."""
    folder, make = Path(name), 'make one with "gem-ma new model PATH --scenario ID", or name a folder with a model'
    if not name or not folder.is_dir():
        raise DataError(f"policy {policy!r}: there is no model folder {name!r}; {make}")
    if not (folder / "config.json").is_file():
        raise DataError(f"policy {policy!r}: {name} has no config.json, so it is no model folder; {make}")
    for config in ("config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"):
        if (folder / config).is_file():
            try:
                json.loads((folder / config).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise DataError(f"policy {policy!r}: {folder / config} cannot be read as JSON ({error}); copy the model again") from error
    if not any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tokenizer_config.json")):
        raise DataError(f"policy {policy!r}: {name} has no tokenizer (tokenizer.json); copy the model's tokenizer files into it")
    if not any(folder.glob("*.safetensors")):
        raise DataError(f"policy {policy!r}: {name} has no weights (*.safetensors); copy the model again, or {make}")


def load_model(torch: Any, transformers: Any, name: str, policy: str, dtype: str, device: str) -> tuple[Any, Any]:
    """(tokenizer, model in eval mode without gradients). Raises DataError, with the cause, for a folder that is damaged or of two models."""
    try:
        with quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(name, local_files_only=True)
    except Exception as error:  # whatever a damaged file makes the loader raise
        raise DataError(f"policy {policy!r}: the tokenizer of {name} cannot be loaded ({first_line(error)}); copy the model again") from error
    try:
        with quiet(transformers):
            model, info = transformers.AutoModelForCausalLM.from_pretrained(
                name, local_files_only=True, dtype=getattr(torch, dtype), output_loading_info=True, ignore_mismatched_sizes=True
            )  # what mismatches is refused below, by name
        lost = sorted(info["missing_keys"]) + sorted(map(str, info["mismatched_keys"]))
        if lost:
            raise ValueError(f"{len(lost)} weights are missing or of another shape, as {lost[0]}")
        known, highest = model.get_input_embeddings().num_embeddings, max(tokenizer.get_vocab().values(), default=0)
        if highest >= known:
            raise ValueError(f"its tokenizer has ids up to {highest}, its weights know {known}: they are of two models")
        return tokenizer, model.to(device).eval().requires_grad_(False)
    except Exception as error:
        raise DataError(f"policy {policy!r}: the model in {name} cannot be loaded ({first_line(error)}); copy or make it again") from error


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """No progress bars and no warnings of the library; what matters is raised."""
    logging = transformers.utils.logging
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


def first_line(error: Exception) -> str:
    """Kind and first line of an error, for a message of one line."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
