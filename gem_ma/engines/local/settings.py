"""Options of the transformers engine by subject: the memory that it takes, and what of its weights
learns. Values and their checks; nothing is opened here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gem_ma.kernel.errors import ConfigError

PADDED_TOKENS = 65_536  # of one forward pass, padding included


@dataclass(frozen=True, slots=True)
class Memory:
    """`padded_tokens`: the most that a batch holds, padding included. `kv_tokens`: tokens whose KV
    is kept for the next turn, 0 = none, by default by the size of the memory."""

    padded_tokens: int = PADDED_TOKENS
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
    """What a learner of these weights trains. `lora`: a new adapter as {rank: 8, alpha: 16,
    targets: [q_proj, v_proj]}, or the folder of one; None = all weights. `parity`: nats that what
    is sampled may differ from what the learner computes, in the mean over tokens; by default
    measured (`gem_ma.training.learner.parity`). `seed`: random weights are drawn from it, those of
    an untrained folder and the random half of a new adapter; 0 = as they lie in the folder, and
    by the policy's name."""

    lora: dict[str, Any] | str | None = None
    parity: float | None = None
    seed: int = 0

    def check(self, policy: str) -> None:
        """Raises ConfigError for a value out of range."""
        # Infinity would switch the check off, and NaN is above nothing.
        if self.parity is not None and not 0 < self.parity < float("inf"):
            raise ConfigError(f"policy {policy!r}: parity is in nats, above 0; got {self.parity}")
        # True is an int in Python; in a config it is a slip.
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise ConfigError(f"policy {policy!r}: seed is a whole number; got {self.seed!r}")
