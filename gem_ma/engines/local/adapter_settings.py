"""The key `lora` of a policy: what a config may say of a new adapter, and what is refused.

Knows values and their check; knows no modules and no weights.
"""

from __future__ import annotations

from collections.abc import Mapping
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
