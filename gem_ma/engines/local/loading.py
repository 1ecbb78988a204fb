"""Reads a model folder, or a model of the hub: what must lie in it, the tokenizer and the
weights. Knows neither sampling nor learning."""

from __future__ import annotations

import gc
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gem_ma.engines.local.untrained import draw
from gem_ma.errors import ConfigError, DataError
from gem_ma.folders import check_named, read_named
from gem_ma.installing import install


def import_stack() -> tuple[Any, Any]:
    """(torch, transformers), with one thread unless the user chose. Raises ConfigError that
    names the extra."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    new = "transformers" not in sys.modules
    try:
        import torch
        import transformers
        from transformers import (
            AutoModelForCausalLM,  # noqa: F401
            AutoTokenizer,  # noqa: F401
        )
    except ImportError as error:
        raise ConfigError(
            f"the transformers engine needs torch and transformers ({error.name or error}):"
            f" {install('train')}"
        ) from error
    if "OMP_NUM_THREADS" not in os.environ and "MKL_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # small models on a busy machine are many times slower with more
    # about a million objects that live for ever: each later collection would walk them, a quarter
    # of the time of a rollout
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
ATTENTION = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py"]  # of a model on the hub
_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# pages of the hub, so nobody there is called so
_NO_OWNER = frozenset({"models", "datasets", "spaces", "docs", "api"})


@dataclass(frozen=True, slots=True)
class How:
    """How weights are loaded, besides from where. `device_map` is accelerate's; without one, all
    goes to `device` (`auto`: a GPU if there is one).

    `drawn`: the seed that the weights are drawn from, in place of those of the folder; see
    `gem_ma.engines.local.untrained`.
    """

    dtype: str = "float32"
    device: str = "cpu"
    device_map: str | None = None
    attention: str | None = None
    trust_remote_code: bool = False
    drawn: int | None = field(default=None, metadata={"option": False})  # by the engine alone

    def check(self, policy: str) -> How:
        """Itself, with the full name of its dtype. Raises ConfigError for what is no dtype and
        no attention."""
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
                f"policy {policy!r}: either device or device_map; device_map: {self.device_map}"
                " chooses the devices itself"
            )
        device = (
            "cpu"
            if self.device_map is not None
            else best_device()
            if self.device == "auto"
            else self.device
        )
        return replace(self, dtype=DTYPES[self.dtype], device=device)


def best_device() -> str:
    """`cuda` where torch can use a GPU (of several processes that a launcher started each takes
    its own), else `cpu`."""
    torch, _ = import_stack()
    if not torch.cuda.is_available():
        return "cpu"
    rank = os.environ.get("LOCAL_RANK", "")
    return f"cuda:{int(rank) % torch.cuda.device_count()}" if rank.isdecimal() else "cuda"


def find_model(name: str, policy: str, kind: str = "model") -> Path:
    """The folder of a model or an adapter (`kind`): `name` itself, or what the hub calls so, from
    its cache or downloaded into it.

    Raises DataError that says what to do where there is neither.
    """
    make = 'make one with "gem-ma new model PATH --scenario ID", or name a folder with a model'
    if kind == "adapter":
        make = (
            "a training leaves one in models/ of its run folder, and policies with lora: {rank: 8}"
            " begin with a new one"
        )
    if name and Path(name).is_dir():
        return Path(name)
    if (
        not _HUB.fullmatch(name)
        or name.partition("/")[0] in _NO_OWNER
        or Path(name).exists()
        or Path(name).parent.is_dir()
    ):
        raise DataError(f"policy {policy!r}: there is no {kind} folder {name!r}; {make}")
    try:
        import huggingface_hub
        from huggingface_hub.errors import (
            GatedRepoError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
        )
    except ImportError as error:
        raise ConfigError(
            f"the transformers engine needs huggingface_hub ({error.name or error}):"
            f" {install('train')}"
        ) from error
    try:
        return Path(
            huggingface_hub.snapshot_download(name, local_files_only=True, allow_patterns=FILES)
        )
    except (LocalEntryNotFoundError, OSError, ValueError):
        pass  # not in the cache
    get = (
        f"there is no {kind} folder {name!r}, and the hub's {kind} of this name is not in the cache"
    )
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=FILES))
    except GatedRepoError as error:
        raise DataError(
            f"policy {policy!r}: the hub's model {name!r} is gated; accept its terms there, then"
            " log in with: hf auth login"
        ) from error
    except RepositoryNotFoundError as error:
        raise DataError(
            f"policy {policy!r}: there is no {kind} folder {name!r}, and no {kind} of this name on"
            f" the hub; {make}"
        ) from error
    except Exception as error:  # the hub raises the errors of its HTTP library
        do = f'run "hf download {name}" where there is a network, or {make}'
        raise DataError(
            f"policy {policy!r}: {get}, nor can it be fetched ({first_line(error)}); {do}"
        ) from error


def check_folder(folder: Path, policy: str) -> None:
    """Missing parts are named before anything heavy is imported."""
    make = 'make one with "gem-ma new model PATH --scenario ID", or name a folder with a model'
    if not (folder / "config.json").is_file():
        raise DataError(
            f"policy {policy!r}: {folder} has no config.json, so it is no model folder; {make}"
        )
    try:
        check_named(folder)  # the loaders of the library open what they find
    except OSError as error:
        raise DataError(f"policy {policy!r}: {error}; copy the model again") from error
    index = "model.safetensors.index.json"
    for config in (
        "config.json",
        "generation_config.json",
        "tokenizer_config.json",
        "tokenizer.json",
        index,
    ):
        if (folder / config).is_file():
            try:
                read = json.loads(read_named(folder / config))
                if not isinstance(read, dict):
                    raise ValueError(f"expected an object, got {type(read).__name__}")
            except (OSError, ValueError, RecursionError) as error:
                raise DataError(
                    f"policy {policy!r}: {folder / config} cannot be read as JSON ({error}); copy"
                    " the model again"
                ) from error
    if not any(
        (folder / file).is_file()
        for file in (
            "tokenizer.json",
            "tokenizer.model",
            "vocab.json",
            "vocab.txt",
            "tokenizer_config.json",
        )
    ):
        raise DataError(
            f"policy {policy!r}: {folder} has no tokenizer (tokenizer.json); copy the model's"
            " tokenizer files into it"
        )
    if not any(folder.glob("*.safetensors")):
        raise DataError(
            f"policy {policy!r}: {folder} has no weights (*.safetensors); copy the model again, or"
            f" {make}"
        )
    if (folder / index).is_file():
        parts = json.loads(read_named(folder / index)).get("weight_map")
        listed = parts.values() if isinstance(parts, dict) else [None]
        if any(not isinstance(part, str) or Path(part).name != part for part in listed):
            raise DataError(
                f"policy {policy!r}: {folder / index} does not list files of this folder"
                " (weight_map); copy the model again"
            )
        lost = sorted(part for part in set(listed) if not (folder / part).is_file())
        if lost:
            raise DataError(
                f"policy {policy!r}: {folder} lacks {lost[0]}, which {index} names; copy the model"
                " again"
            )


def load_model(
    torch: Any,
    transformers: Any,
    folder: Path,
    policy: str,
    how: How,
    auto: str = "AutoModelForCausalLM",
) -> tuple[Any, Any]:
    """(tokenizer, model in eval mode without gradients); `auto` names the library's loader of this
    kind of model.

    Raises DataError, with the cause, for a folder that is damaged or of two models.
    """
    given: dict[str, Any] = {"local_files_only": True, "trust_remote_code": how.trust_remote_code}
    try:
        with quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **given)
    except Exception as error:  # whatever a damaged file makes the loader raise
        _refuse_code(folder, policy, error)
        raise DataError(
            f"policy {policy!r}: the tokenizer of {folder} cannot be loaded ({first_line(error)});"
            " copy the model again"
        ) from error
    if how.attention is not None:
        given["attn_implementation"] = how.attention
    if how.device_map is not None:
        given["device_map"] = how.device_map
    try:
        with quiet(transformers):
            model, info = getattr(transformers, auto).from_pretrained(
                folder,
                dtype=how.dtype if how.dtype == "auto" else getattr(torch, how.dtype),
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # what mismatches is refused below, by name
                **given,
            )
        lost = sorted(info["missing_keys"]) + sorted(map(str, info["mismatched_keys"]))
        if lost:
            raise ValueError(f"{len(lost)} weights are missing or of another shape, as {lost[0]}")
        known, highest = (
            model.get_input_embeddings().num_embeddings,
            max(tokenizer.get_vocab().values(), default=0),
        )
        if highest >= known:
            raise ValueError(
                f"its tokenizer has ids up to {highest}, its weights know {known}: they are of two"
                " models"
            )
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
    except Exception as error:
        _refuse_code(folder, policy, error)
        if (
            how.attention is not None
            and isinstance(error, (ImportError, ValueError))
            and "attention" in str(error).lower()
        ):
            raise ConfigError(
                f"policy {policy!r}: attention {how.attention!r} cannot be used here"
                f" ({first_line(error)}); sdpa always works"
            ) from error
        if (
            how.device_map is not None
            and isinstance(error, (ImportError, ValueError))
            and ("device" in str(error) or "accelerate" in str(error))
        ):
            raise ConfigError(
                f"policy {policy!r}: device_map {how.device_map!r} cannot be used here"
                f" ({first_line(error)}); device: cpu works"
            ) from error
        if auto == "AutoModelForCausalLM" and '"vision_config"' in read_named(
            folder / "config.json"
        ).decode("utf-8", "replace"):
            raise ConfigError(
                f"policy {policy!r}: {folder} is a vision-language model; write model:"
                f" vision/{folder} to play it"
            ) from error
        raise DataError(
            f"policy {policy!r}: the model in {folder} cannot be loaded ({first_line(error)}); copy"
            " or make it again"
        ) from error


def _refuse_code(folder: Path, policy: str, error: Exception) -> None:
    """A model that brings its own Python code is told from a damaged one."""
    if "trust_remote_code" in str(error):
        raise ConfigError(
            f"policy {policy!r}: {folder} brings Python code of its own, which is not run by"
            " default; read it, then allow it with trust_remote_code: true"
        ) from error


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
