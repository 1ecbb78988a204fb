"""Options of the tinker engine by subject: the server and its key, and which weights are meant.
Values and their check; nothing is opened here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from gem_ma.engines.endpoint.endpoint import Endpoint, Secret
from gem_ma.engines.models.settings import LoraSettings, check_parity, lora_settings
from gem_ma.kernel.errors import ConfigError

USUAL_KEY = "TINKER_API_KEY"
NO_KEY = "tml-none"  # what a server without keys is sent: the client wants this beginning
FIXED = ("alpha", "targets")  # of an adapter: the server decides


@dataclass(frozen=True, slots=True)
class Access:
    """A server of the Tinker API, and the patience with it.

    `base_url`: its address; None = the hosted one. `api_key_env`: the NAME of the variable that
    holds the key, by default TINKER_API_KEY; a server with an address needs none. `timeout_s` cuts
    one attempt, `attempts` one request. A server that compiles needs minutes for its first answers.
    """

    base_url: str | None = None
    api_key_env: str | None = None
    timeout_s: float = 600.0
    attempts: int = 6

    def checked(self, where: str) -> tuple[str | None, Secret]:
        """(the address in its plain form, the key). Raises ConfigError for a number that is not
        above 0, an address that cannot be read, and a key that is not set."""
        for name in ("timeout_s", "attempts"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ConfigError(f"{where}: {name} must be above 0; got {value}")
        usual = USUAL_KEY if self.base_url is None or os.environ.get(USUAL_KEY) else ""
        endpoint = Endpoint(base_url=self.base_url, api_key_env=self.api_key_env)
        address = None
        if self.base_url is not None:
            address = str(endpoint.checked(where, "/api/v1").base_url)
        named = endpoint.key_name(usual)
        return address, endpoint.key(where, usual) if named else Secret(NO_KEY)


@dataclass(frozen=True, slots=True)
class Weights:
    """Which weights are sampled, and which learn.

    `lora: {rank, seed}`: a new adapter that learns. `weights`: a path of the server,
    `tinker://...`, of an adapter that is sampled and does not learn. `tokenizer`: the folder or
    the name on the hub of the tokenizer, by default the model's. `context`: tokens that prompt and
    answer may have together, by default what the server or the folder says. `parity`: nats that
    sampler and learner may differ in, in the mean over tokens; by default measured at opening.
    """

    lora: dict[str, Any] | None = None
    weights: str | None = None
    tokenizer: str | None = None
    context: int | None = None
    parity: float | None = None

    def checked(self, where: str) -> Weights:
        """The same. Raises ConfigError for what does not fit together or lies out of its range."""
        if self.weights is not None and not self.weights.startswith("tinker://"):
            raise ConfigError(f"{where}: weights is a path of the server, tinker://...")
        if self.weights is not None and self.lora is not None:
            raise ConfigError(
                f"{where}: weights names an adapter that is there, lora a new one; keep one"
            )
        check_parity(self.parity, where)
        if self.context is not None and self.context < 2:
            raise ConfigError(f"{where}: context is a number of tokens, 2 or more")
        return self


def adapter_of(written: dict[str, Any] | None, policy: str) -> LoraSettings:
    """The adapter that learns. Raises ConfigError where there is none, since the API trains
    nothing else, and for what the server decides."""
    where = f"policies.{policy}"
    if written is None:
        raise ConfigError(
            f"{where}: the Tinker API trains adapters, not all weights; add lora: {{rank: 32}}"
        )
    settings = lora_settings(written, policy)
    for key in FIXED:
        if key in settings.model_fields_set:
            raise ConfigError(f"{where}.lora.{key}: the server decides it; leave it out")
    return settings
