"""Options of the vllm engine by subject: what vLLM serves, and how the weights of a learner come to
it. Values and their check; nothing is opened here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gem_ma.engines.local.loading import read_json
from gem_ma.engines.local.model_folder import origin_of
from gem_ma.engines.local.settings import check_parity, lora_settings
from gem_ma.kernel.errors import ConfigError

Lora = dict[str, Any] | str | None  # settings of a new adapter, the folder of one, or none
DTYPES = ("float32", "bfloat16", "float16")
ROUTES = ("adapter", "full", "nccl")  # see `gem_ma.engines.vllm.engine`
WHOLE = ("full", "nccl")  # those of all weights


@dataclass(frozen=True, slots=True)
class Serving:
    """What vLLM serves. `served_model`: the model's name at the server, None = the only one.
    `allow_http`: a key and all texts may travel unencrypted to another machine. `engine`:
    `AsyncEngineArgs` of a vLLM that is started in this process. `dtype`: what vLLM computes in,
    and the learner."""

    served_model: str | None = None
    allow_http: bool = False
    engine: dict[str, Any] | None = None
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Publishing:
    """How the weights of a learner come to vLLM.

    `lora: {rank, alpha, targets}` trains an adapter, or is the folder of one. `route`: how it is
    published, see `gem_ma.engines.vllm.engine`; by default as `lora` says. `adapters`: a folder
    that this process and the server both see, by default a temporary one. `parity`: nats that vLLM
    and the learner may differ in, in the mean over tokens; by default measured
    (`gem_ma.training.learner.parity`). `device`: of the learner.
    """

    lora: Lora = None
    route: str | None = None
    adapters: str | None = None
    parity: float | None = None
    device: str = "cpu"


def check(serving: Serving, publishing: Publishing, where: str) -> None:
    """Raises ConfigError for a value out of its choice or range."""
    if serving.dtype not in DTYPES:
        choice = ", ".join(DTYPES)
        raise ConfigError(f"{where}: dtype is one of {choice}; got {serving.dtype!r}")
    check_parity(publishing.parity, where)
    route = publishing.route
    if route is not None and route not in ROUTES:
        raise ConfigError(f"{where}: route is one of {', '.join(ROUTES)}; got {route!r}")


def route_of(publishing: Publishing, lora: Lora, where: str, here: bool) -> str:
    """How weights are published. Raises ConfigError where that does not fit the adapter, or a
    vLLM in this process (`here`)."""
    route = publishing.route or ("full" if lora is None else "adapter")
    if (route in WHOLE) == (lora is not None):
        remedy = (
            "needs lora: {rank: 8}" if lora is None else "publishes all weights; leave lora out"
        )
        raise ConfigError(f"{where}: route {route} {remedy}")
    if route == "nccl" and here:
        raise ConfigError(
            f"{where}: route: nccl sends weights to a server; set base_url, or route: full"
        )
    return route


def base_and_lora(name: str, lora: Lora, policy: str) -> tuple[str, Lora]:
    """(folder of the base model, adapter) behind the name of a model, which may be an adapter on
    one. Raises ConfigError."""
    origin = origin_of(name, lora, policy)
    # Settings stay as they are written: the learner's engine reads them again.
    adapter = lora if origin.adapter is None else str(origin.adapter)
    return str(origin.folder), adapter


def rank_and_alpha(lora: dict[str, Any] | str, policy: str) -> tuple[int, float]:
    """Of an adapter that will be made, or of one that lies in a folder."""
    if isinstance(lora, str):
        config = read_json(lora, "adapter_config.json", f"policies.{policy}.lora")
        return int(config.get("r", 0)), float(config.get("lora_alpha", 0))
    settings = lora_settings(lora, policy)
    return settings.rank, settings.alpha
