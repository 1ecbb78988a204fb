"""Where the weights of a policy come from: the base behind a model's name, and the adapter on it.

A name may be that of an adapter, which knows its base. Knows folders and settings; opens no
weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gem_ma.engines.local.adapter_folder import base_of, is_adapter
from gem_ma.engines.local.adapter_settings import LoraSettings, lora_settings
from gem_ma.engines.local.model_folder import find_model
from gem_ma.kernel.errors import ConfigError


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
