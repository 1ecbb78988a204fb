"""Options of the transformers engine by subject: a new adapter, the memory that it takes, and what
of its weights learns. Values and their checks; nothing is opened here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.spelling import nearest

WANTED = {  # the library's own words name its types, which users do not know
    "rank": "a whole number, 1 or more",
    "alpha": "a number above 0",
    "targets": "all-linear, or a list of names of linear layers",
    "seed": "a whole number",
}


class LoraSettings(BaseModel):
    """A new LoRA adapter: low-rank changes of linear layers, the only weights of its policy that
    learn."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    rank: int = Field(8, ge=1)
    alpha: float = Field(16.0, gt=0, description="What the adapter adds is scaled by alpha / rank.")
    targets: Literal["all-linear"] | list[str] = Field(
        "all-linear", description="Names of linear layers, as in [q_proj, v_proj]."
    )
    seed: int | None = Field(
        None, description="Of the random half; from the policy's name where absent."
    )


def lora_settings(written: Any, policy: str) -> LoraSettings:
    """The settings in the value of `lora`. Raises ConfigError, with the key, for anything else."""
    where = f"policies.{policy}.lora"
    if not isinstance(written, Mapping):
        raise ConfigError(
            f"{where}: wants keys such as rank and targets, or the folder of an adapter; got"
            f" {written!r}"
        )
    # other libraries have the key, so people write it; it deserves more than "unknown key"
    if "dropout" in written:
        raise ConfigError(
            f"{where}.dropout: there is none: under dropout the learner would not see the"
            " probabilities that were sampled from"
        )
    for key in written:
        if key not in LoraSettings.model_fields:
            raise ConfigError(
                f"{where}.{key}: unknown key{nearest(str(key), LoraSettings.model_fields)}"
            )
    try:
        settings = LoraSettings.model_validate(dict(written))
    except ValidationError as error:
        # one fault in one line; the next shows when this one is mended
        problem = error.errors(include_url=False)[0]
        key = str(problem["loc"][0])
        raise ConfigError(f"{where}.{key}: wants {WANTED[key]}; got {written[key]!r}") from error
    if settings.targets == []:
        raise ConfigError(f"{where}.targets: names no layer; leave it out for all linear layers")
    return settings


def check_parity(parity: float | None, where: str) -> None:
    """Raises ConfigError for a bound that is not above 0, or switches the check off."""
    if parity is not None and not 0 < parity < float("inf"):
        raise ConfigError(f"{where}: parity is in nats, above 0; got {parity}")


@dataclass(frozen=True, slots=True)
class Memory:
    """`padded_tokens`: the most that a batch holds, padding included. `kv_tokens`: tokens whose KV
    is kept for the next turn, 0 = none, by default by the size of the memory."""

    padded_tokens: int = 65_536
    kv_tokens: int | None = None

    def check(self, policy: str) -> None:
        """Raises ConfigError for a number out of range."""
        if self.padded_tokens < 1:
            raise ConfigError(
                f"policy {policy!r}: padded_tokens must be at least 1; got {self.padded_tokens}"
            )
        if self.kv_tokens is not None and self.kv_tokens < 0:
            raise ConfigError(
                f"policy {policy!r}: kv_tokens must be 0 (off) or more; got {self.kv_tokens}"
            )


@dataclass(frozen=True, slots=True)
class Learning:
    """What a learner of these weights trains. `lora`: a new adapter, or the folder of one; None =
    all weights. `parity`: nats that what is sampled may differ from what the learner computes, in
    the mean over tokens; by default measured (`gem_ma.training.learner.parity`). `seed`: random
    weights are drawn from it, those of an untrained folder and the random half of a new adapter;
    0 = as they lie in the folder, and by the policy's name."""

    lora: dict[str, Any] | str | None = None
    parity: float | None = None
    seed: int = 0
