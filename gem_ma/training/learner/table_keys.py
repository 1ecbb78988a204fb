"""Which keys of a loss a table cannot follow."""

from __future__ import annotations

from gem_ma.config.learning import LossSettings
from gem_ma.kernel.errors import ConfigError

OF_ADAM = ("betas", "eps")


def check_table_keys(policy: str, optimizer: str, settings: LossSettings) -> None:
    """Raises ConfigError for a key that would change nothing."""
    for key in OF_ADAM if optimizer == "sgd" else ():
        if getattr(settings, key) != LossSettings.model_fields[key].default:
            raise ConfigError(
                f"train.loss.{key}: is of Adam, and policy {policy!r} learns by sgd; set"
                f" policies.{policy}.optimizer=adam, or remove it"
            )
