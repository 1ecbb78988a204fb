"""Opens what the vllm engine samples with: a vLLM in this process, a server, or several.

Each is imported when it is opened, since one needs an extra that the others do without.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gem_ma.engines.api.budget import Budget, Price
from gem_ma.engines.api.endpoint import EACH, Endpoint, single
from gem_ma.engines.vllm.backend import Backend, Parameters
from gem_ma.engines.vllm.process import Process
from gem_ma.engines.vllm.replicas import Replicas
from gem_ma.engines.vllm.server import Server
from gem_ma.engines.vllm.settings import Serving
from gem_ma.kernel.errors import ConfigError

# nats that two servers may be apart on the same draws (`probing.apart`): some ten times what their
# kernels round by, and far below what other weights do
BOUNDS = {"float32": 1e-4, "bfloat16": 0.05, "float16": 0.01}


@dataclass(frozen=True, slots=True)
class Bills:
    """What tokens cost, and what may be spent."""

    price: Price | None
    budget: Budget | None


def process_of(
    where: str, path: str, parameters: Parameters, serving: Serving, rank: int
) -> Backend:
    """The vLLM of this process. Raises ConfigError for options of a server."""
    if serving.served_model is not None:
        raise ConfigError(
            f"{where}: served_model is the name of a model at a server, and there is no base_url"
        )

    options = {"dtype": serving.dtype, **(serving.engine or {})}
    return Process(where, path, parameters, options, rank)


def servers_of(
    where: str,
    endpoint: Endpoint,
    serving: Serving,
    parameters: Parameters,
    tokenizer: Any,
    bills: Bills,
) -> list[Server]:
    """The servers of all addresses, not opened. Raises ConfigError for options of a process, and
    for addresses that do not do."""
    if serving.engine:
        raise ConfigError(
            f"{where}: engine starts vLLM in this process; with base_url, give these options to the"
            " server"
        )

    return [
        Server(
            where,
            each,
            parameters,
            tokenizer,
            served_model=serving.served_model,
            allow_http=serving.allow_http,
            price=bills.price,
            budget=bills.budget,
        )
        for each in single(endpoint, where)
    ]


def replicas_of(
    where: str, policy: str, servers: Sequence[Server], endpoint: Endpoint, bound: float
) -> Backend:
    """These servers as one, see `replicas`. `endpoint` tells how patiently a request is tried."""

    # a request is tried as often as at a single server, over all of them
    tries = math.ceil(endpoint.attempts / EACH) if len(servers) > 1 else 1
    return Replicas(where, policy, servers, wall_s=endpoint.wall_s, tries=tries, bound=bound)
