"""Loads the tokenizer and the weights of a model folder, in the way that a config names (`How`).

Where a folder comes from, and what must lie in it: `gem_ma.engines.models.model_folder`.
"""

from __future__ import annotations

import gc
import hashlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from time import thread_time
from typing import Any

from gem_ma.engines.base import stable_seed
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.system.extras import install
from gem_ma.system.folders import check_named, read_named


@contextmanager
def needed(what: str, *extras: str) -> Iterator[None]:
    """Around imports of packages that these extras bring. Raises ConfigError for one that is
    missing; `what` says who needs it."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(f"{what} ({error.name or error}): {install(*extras)}") from error


def import_stack() -> tuple[Any, Any]:
    """(torch, transformers), with one thread unless the user chose. Raises ConfigError that
    names the extra."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    new = "transformers" not in sys.modules
    with needed("the transformers engine needs torch and transformers", "train"):
        # what transformers wants of its own: it would fail later, and in other words
        import safetensors  # noqa: F401
        import tokenizers  # noqa: F401
        import torch
        import transformers
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401
    if "OMP_NUM_THREADS" not in os.environ and "MKL_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # small models on a busy machine are many times slower with more
    # a million objects for ever: collections would walk them, a quarter of the time of a rollout
    if new:
        gc.collect()
        gc.freeze()
    return torch, transformers


DTYPES = {
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "auto": "auto",
    "float32": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
}
# The library's loaders of models, by what they take.
READING = "AutoModelForCausalLM"
SEEING = "AutoModelForImageTextToText"
ATTENTION = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")


@dataclass(frozen=True, slots=True)
class How:
    """How weights are loaded, besides from where. `device_map` is accelerate's; without one, all
    goes to `device` (`auto`: a GPU if there is one). `drawn`: the seed that the weights are drawn
    from (`draw`), in place of those of the folder."""

    dtype: str = "float32"
    device: str = "cpu"
    device_map: str | None = None
    attention: str | None = None
    trust_remote_code: bool = False
    drawn: int | None = field(default=None, metadata={"option": False})  # by the engine alone

    def check(self, policy: str) -> How:
        """Itself, with the full name of its dtype. Raises ConfigError for a value out of its
        choice."""
        if self.dtype not in DTYPES:
            raise ConfigError(
                f"policy {policy!r}: dtype is one of auto, float32, bfloat16, float16; got"
                f" {self.dtype!r}"
            )
        if self.attention is not None and self.attention not in ATTENTION:
            raise ConfigError(
                f"policy {policy!r}: attention is one of {', '.join(ATTENTION)}; got"
                f" {self.attention!r}"
            )
        if self.device_map is not None and self.device not in ("cpu", "auto"):
            raise ConfigError(
                f"policy {policy!r}: either device or device_map, not both; device_map:"
                f" {self.device_map} chooses the devices itself"
            )
        # Inputs begin on the processor; accelerate moves them on.
        device = self.device if self.device_map is None else "cpu"
        return replace(self, dtype=DTYPES[self.dtype], device=device)

    def placed(self) -> How:
        """Itself, on a device that is named. Imports torch, which takes seconds."""
        return replace(self, device=best_device()) if self.device == "auto" else self


def best_device() -> str:
    """`cuda` where torch can use a GPU (of several processes that a launcher started each takes
    its own), else `cpu`."""
    torch, _ = import_stack()
    if not torch.cuda.is_available():
        return "cpu"
    rank = os.environ.get("LOCAL_RANK", "")  # torchrun and accelerate set it
    return f"cuda:{int(rank) % torch.cuda.device_count()}" if rank.isdecimal() else "cuda"


def load_model(
    torch: Any,
    transformers: Any,
    folder: Path,
    policy: str,
    how: How,
    auto: str = READING,
) -> tuple[Any, Any]:
    """(tokenizer, model in eval mode without gradients); `auto` names the library's loader. Raises
    DataError, with the cause, for a folder that is damaged or of two models."""
    where = f"policy {policy!r}"
    tokenizer = _tokenizer(transformers, folder, where, how.trust_remote_code)
    loader = getattr(transformers, auto)
    try:
        with quiet(transformers):
            model, report = loader.from_pretrained(
                folder,
                dtype=how.dtype if how.dtype == "auto" else getattr(torch, how.dtype),
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # what mismatches is refused below, by name
                **_loader_options(how),
            )
        _check_whole(model, tokenizer, report)
        # accelerate leaves on no device what fits nowhere, and fails at the first forward pass
        if any(weight.device.type == "meta" for weight in model.parameters()):
            raise ConfigError(
                f"policy {policy!r}: {folder} does not fit the devices of device_map:"
                f" {how.device_map}; take a smaller dtype or model"
            )
        if how.device_map is None:
            model = model.to(how.device)
        if how.drawn is not None:
            draw(model, how.drawn)
        return tokenizer, model.eval().requires_grad_(False)
    except ConfigError:
        raise
    except Exception as error:  # whatever a damaged file makes the loader raise
        raise _explained(error, folder, policy, how, auto) from error


def tokenizer_of(folder: str, where: str, extra: str) -> Any:
    """The tokenizer as it lies in the folder; nothing is fetched. `extra`: what brings all that the
    engine needs, this too. Raises ConfigError, DataError."""
    with needed(f"{where}: transformers is needed for its tokenizer", extra):
        import transformers
    return _tokenizer(transformers, Path(folder), where)


def _tokenizer(transformers: Any, folder: Path, where: str, code: bool | None = None) -> Any:
    try:
        check_named(folder)
        with quiet(transformers):
            return transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=code
            )
    except Exception as error:  # whatever a damaged file makes the loader raise
        if code is not None:
            _refuse_code(folder, where, error)
        raise DataError(
            f"{where}: the tokenizer of {folder} cannot be loaded ({first_line(error)}); copy the"
            " model again"
        ) from error


def read_json(folder: str, file: str, where: str) -> dict[str, Any]:
    """A JSON object of a model's folder. Raises DataError."""
    path = Path(folder) / file
    try:
        read = json.loads(read_named(path))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{where}: {path} cannot be read ({first_line(error)}); name the folder of the model"
            " that is served"
        ) from error
    if not isinstance(read, dict):
        raise DataError(f"{where}: {path} is not a JSON object; copy the model's files again")
    return read


def _loader_options(how: How) -> dict[str, Any]:
    # without local_files_only, versions of the library ask the hub even about a local folder
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": how.trust_remote_code}
    if how.attention is not None:
        options["attn_implementation"] = how.attention
    if how.device_map is not None:
        options["device_map"] = how.device_map
    return options


def _check_whole(model: Any, tokenizer: Any, report: Any) -> None:
    """Raises ValueError where the library would fill in random weights, or where weights and
    tokenizer are of two models. `report`: the library's own on what it loaded."""
    lost = sorted(report["missing_keys"]) + sorted(map(str, report["mismatched_keys"]))
    if lost:
        raise ValueError(f"{len(lost)} weights are missing or of another shape, as {lost[0]}")
    rows = model.get_input_embeddings().num_embeddings
    highest = max(tokenizer.get_vocab().values(), default=0)
    # more rows than ids is usual: embeddings are padded to a multiple of 64 or so
    if highest >= rows:
        raise ValueError(
            f"its tokenizer has ids up to {highest}, its weights know {rows}: they are of two"
            " models"
        )


def _explained(
    error: Exception, folder: Path, policy: str, how: How, auto: str
) -> ConfigError | DataError:
    """What the loader's error means: an option that cannot be used here, or else the folder."""
    _refuse_code(folder, f"policy {policy!r}", error)
    # these two kinds are how the library refuses an option; a damaged file raises others
    of_option = isinstance(error, (ImportError, ValueError))
    words = str(error)
    if how.attention is not None and of_option and "attention" in words.lower():
        return ConfigError(
            f"policy {policy!r}: attention {how.attention!r} cannot be used here"
            f" ({first_line(error)}); sdpa always works"
        )
    about_devices = "device" in words or "accelerate" in words
    if how.device_map is not None and of_option and about_devices:
        return ConfigError(
            f"policy {policy!r}: device_map {how.device_map!r} cannot be used here"
            f" ({first_line(error)}); device: cpu works"
        )
    config = read_named(folder / "config.json").decode("utf-8", "replace")
    if auto == READING and '"vision_config"' in config:
        return ConfigError(
            f"policy {policy!r}: {folder} is a vision-language model; write model: vision/{folder}"
        )
    return DataError(
        f"policy {policy!r}: the model in {folder} cannot be loaded ({first_line(error)}); copy"
        " or make it again"
    )


def _refuse_code(folder: Path, where: str, error: Exception) -> None:
    """Raises ConfigError for a model that brings its own Python code, which is not damaged."""
    if "trust_remote_code" in str(error):
        raise ConfigError(
            f"{where}: {folder} brings Python code of its own, which is not run by"
            " default; read it, then allow it with trust_remote_code: true"
        ) from error


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """No progress bars and no warnings of the library; what matters is raised."""
    logging = transformers.utils.logging
    verbosity = logging.get_verbosity()
    bar = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


def first_line(error: BaseException) -> str:
    """Kind and first line of an error, for a message of one line."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


# How fast this processor multiplies in a dtype, by trial: what it claims may be switched off, and
# without instructions for bfloat16 it may take fifty times as long as in float32.
HALVES = ("bfloat16", "float16")
SLOW = 2.0  # times as long as in float32: well apart from noise, and half the memory is worth some
# a small layer, with the tokens of a batch
ROWS = 64
SIZE = 576
# of a trial of one dtype, and how often at least
SECONDS = 0.1
TIMES = 5


@cache
def speed(dtype: str) -> float:
    """GFLOP/s of one thread of this processor in the products of a layer and of its gradient; once
    in a process."""
    torch, _ = import_stack()
    kind = getattr(torch, dtype)
    rows = torch.ones(ROWS, SIZE, dtype=kind)
    weight = torch.ones(SIZE, SIZE, dtype=kind)
    threads = torch.get_num_threads()
    # of several each waits for the others, which on a busy machine is most of their time
    torch.set_num_threads(1)
    try:
        spent: list[float] = []
        while sum(spent) < SECONDS or len(spent) < TIMES:
            # of this thread, and the least: what else the machine does does not matter
            begun = thread_time()
            slopes = torch.nn.functional.linear(rows, weight)
            slopes.t() @ rows
            spent.append(thread_time() - begun)
    finally:
        torch.set_num_threads(threads)
    return 4 * ROWS * SIZE * SIZE / min(spent) / 1e9


def slowness(dtype: str) -> float:
    """How many times as long as float32 a dtype takes on this processor."""
    return speed("float32") / speed(dtype)


def settled_dtype(folder: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The dtype that `auto` means on this processor for the model in a folder: as stored, or
    float32 where that is slow. {} where it stays as it is: another dtype was asked for, a GPU
    computes, or the folder is not there or says nothing."""
    if DTYPES.get(str(options.get("dtype"))) != "auto" or options.get("device_map") is not None:
        return {}
    stored = stored_in(Path(folder))
    if stored not in HALVES or options.get("device", "cpu") not in ("cpu", "auto"):
        return {}
    torch, _ = import_stack()
    if options.get("device") == "auto" and torch.cuda.is_available():
        return {}
    return {"dtype": "float32" if slowness(stored) > SLOW else stored}


def stored_in(folder: Path) -> str:
    """The dtype of the weights in a model folder; "" where it does not say."""
    try:
        config = json.loads(read_named(folder / "config.json"))
    except (OSError, ValueError, RecursionError):
        # not a model folder, or a damaged one, which is told where it is opened
        return ""
    known = config.get("dtype") or config.get("torch_dtype") if isinstance(config, dict) else None
    return str(known or "")


def pace_line(policy: str, folder: Path, dtype: str, device: str) -> str:
    """A line on a choice that matters on this processor: what `auto` took, or that what was asked
    for is slow; else ""."""
    stored = dtype if dtype in HALVES else stored_in(folder)
    # without a trial in this process nobody left the choice to it
    if device != "cpu" or stored not in HALVES or (dtype not in HALVES and not _tried()):
        return ""
    here = f"{speed(stored):.0f} GFLOP/s in {stored}, {speed('float32'):.0f} in float32"
    if dtype in HALVES and (times := slowness(dtype)) > SLOW:
        return (
            f"policy {policy!r}: dtype: {dtype} is slow on this processor ({here}); dtype: auto"
            f" would take float32, {times:.0f} times as fast"
        )
    return f"policy {policy!r} computes in {dtype}: this processor does {here}"


def _tried() -> bool:
    return speed.cache_info().currsize > 0


# A training draws folders of random weights anew from `run.seed`, so that seeds of a run differ in
# their models too. They are marked by the digest of the file of weights: a folder whose weights
# somebody trained is never taken for an untrained one.
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
