"""Finds the folder of a model or an adapter, on this machine or on the hub, and checks that a model
lies in it before anything heavy is imported.

How its weights are loaded: `gem_ma.engines.models.loading`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gem_ma.engines.models.adapter_folder import base_of, is_adapter
from gem_ma.engines.models.loading import first_line, needed
from gem_ma.engines.models.settings import LoraSettings, lora_settings
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.system.folders import check_named, read_named

FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py"]  # of a model on the hub
INDEX = "model.safetensors.index.json"
READ_AS_JSON = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "tokenizer.json",
    INDEX,
)
# any of these makes a tokenizer, by the kind of the model
OF_TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "tokenizer_config.json",
)
_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# pages of the hub, so nobody there is called so
_NO_OWNER = frozenset({"models", "datasets", "spaces", "docs", "api"})
_MAKE_MODEL = 'make one with "gem-ma new model PATH --scenario ID", or name a folder with a model'
_MAKE_ADAPTER = (
    "a training leaves one in models/ of its run folder, and policies with lora: {rank: 8}"
    " begin with a new one"
)


def find_model(name: str, policy: str, kind: str = "model") -> Path:
    """The folder of a model or an adapter (`kind`): `name` itself, or what the hub calls so, from
    its cache or downloaded into it. Raises DataError."""
    if name and Path(name).is_dir():
        return Path(name)
    make = _MAKE_ADAPTER if kind == "adapter" else _MAKE_MODEL
    if not may_be_on_hub(name):
        raise DataError(f"policy {policy!r}: there is no {kind} folder {name!r}; {make}")
    with needed("the transformers engine needs huggingface_hub", "train"):
        import huggingface_hub
        from huggingface_hub import errors
    try:
        # the cache first: a run that has its model must not need a network
        return Path(
            huggingface_hub.snapshot_download(name, local_files_only=True, allow_patterns=FILES)
        )
    except (errors.LocalEntryNotFoundError, OSError, ValueError):
        pass  # not in the cache
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=FILES))
    except errors.GatedRepoError as error:
        raise DataError(
            f"policy {policy!r}: the hub's model {name!r} is gated; accept its terms there, then"
            " log in with: hf auth login"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise DataError(
            f"policy {policy!r}: there is no {kind} folder {name!r}, and no {kind} of this name on"
            f" the hub; {make}"
        ) from error
    except Exception as error:  # the hub raises the errors of its HTTP library
        raise DataError(
            f"policy {policy!r}: there is no {kind} folder {name!r}, and the hub's {kind} of this"
            f" name is not in the cache and cannot be fetched ({first_line(error)}); run"
            f' "hf download {name}" where there is a network, or {make}'
        ) from error


def may_be_on_hub(name: str) -> bool:
    """Whether a name may be one of the hub's; `models/mine` beside `models/` is a typing error."""
    owner = name.partition("/")[0]
    if not _HUB.fullmatch(name) or owner in _NO_OWNER:
        return False
    return not Path(name).exists() and not Path(name).parent.is_dir()


def check_folder(folder: Path, policy: str) -> None:
    """Raises DataError that names what a model folder lacks, or what in it is damaged."""
    where = f"policy {policy!r}: {folder}"
    if not (folder / "config.json").is_file():
        raise DataError(f"{where} has no config.json, so it is not a model folder; {_MAKE_MODEL}")
    try:
        check_named(folder)  # the loaders of the library open what they find
    except OSError as error:
        raise DataError(f"policy {policy!r}: {error}; copy the model again") from error
    for name in READ_AS_JSON:
        if (folder / name).is_file():
            _check_json(folder / name, policy)
    if (folder / INDEX).is_file():
        _check_parts(folder, policy)
    if not any((folder / name).is_file() for name in OF_TOKENIZERS):
        raise DataError(
            f"{where} has no tokenizer (tokenizer.json); copy the model's tokenizer files into it"
        )
    if not any(folder.glob("*.safetensors")):
        raise DataError(
            f"{where} has no weights (*.safetensors); copy the model again, or {_MAKE_MODEL}"
        )


def _check_parts(folder: Path, policy: str) -> None:
    """Raises DataError where weights in several files are not whole: a copy that was broken off."""
    listing: Any = json.loads(read_named(folder / INDEX)).get("weight_map")
    files = listing.values() if isinstance(listing, dict) else [None]
    # a path would lead out of the folder
    if any(not isinstance(file, str) or Path(file).name != file for file in files):
        raise DataError(
            f"policy {policy!r}: {folder / INDEX} does not list files of this folder"
            " (weight_map); copy the model again"
        )
    lost = sorted(file for file in set(files) if not (folder / file).is_file())
    if lost:
        raise DataError(
            f"policy {policy!r}: {folder} lacks {lost[0]}, which {INDEX} names; copy the model"
            " again"
        )


def _check_json(file: Path, policy: str) -> None:
    """Raises DataError for a file that does not hold a JSON object; the library names no file."""
    try:
        value = json.loads(read_named(file))
        if not isinstance(value, dict):
            raise ValueError(f"expected an object, got {type(value).__name__}")
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"policy {policy!r}: {file} cannot be read as JSON ({error}); copy the model again"
        ) from error


@dataclass(frozen=True, slots=True)
class Origin:
    """`name` and `folder` of the base. `adapter`: the folder of one that is opened on it;
    `settings`: those of a new one. Both None: the weights of the base itself."""

    name: str
    folder: Path
    adapter: Path | None
    settings: LoraSettings | None

    @property
    def adapts(self) -> bool:
        """Whether there is an adapter."""
        return self.adapter is not None or self.settings is not None


def origin_of(name: str, lora: dict[str, Any] | str | None, policy: str) -> Origin:
    """What lies behind the name of a model and the option `lora`. Raises ConfigError, and
    DataError for a folder that is not there."""
    # First, since it costs nothing: to find a model may mean to fetch it from the hub.
    settings = None if lora is None or isinstance(lora, str) else lora_settings(lora, policy)
    folder = find_model(name, policy)
    # A name of one's own or of the hub, as a model's; settings in its place make a new adapter.
    adapter = find_model(lora, policy, "adapter") if isinstance(lora, str) else None
    if is_adapter(folder):
        if lora is not None:
            raise ConfigError(
                f"policies.{policy}.lora: {name} is an adapter itself; leave lora out, or name its"
                " base as the model"
            )
        # The adapter's folder names the base that it was trained on; it fits no other.
        adapter = folder
        name = base_of(folder, policy)
        folder = find_model(name, policy)
    return Origin(name, folder, adapter, settings)
