"""What the vllm engine asks of a vLLM, wherever it runs; and the sampling parameters that both ways
send.

Every field is sent, since a server takes what is missing from the model's
generation_config.json. Ids that are never sampled get a bias of -100 before the temperature,
which leaves them less than e^-50 of the mass at temperature 2, the highest that vLLM takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from gem_ma.kernel.types import Reply, Sampling

# the most that vLLM takes off a logit; its highest temperature
BIAS = -100.0
HOTTEST = 2.0


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA in a folder, under the one name that it is ever loaded by."""

    name: str
    folder: str


@dataclass(frozen=True, slots=True)
class Draw:
    """One thing to sample: after these ids, so many tokens at most, with the weights of `adapter`
    (None: the base alone).

    `salt` keeps what is cached for it apart from other versions of the same name; "" = shared.
    `conversation`: whose next turn it is; of several servers, the same one is asked.
    """

    prompt: tuple[int, ...]
    sampling: Sampling
    seed: int
    room: int
    adapter: Adapter | None = None
    salt: str = ""
    conversation: str = ""


class Backend(Protocol):
    """A running vLLM. `context`: tokens that prompt and answer may have together, known once it
    is open."""

    context: int

    async def open(self) -> None:
        """Checks that it samples as is needed. Raises ConfigError that names what is missing."""

    async def draw(self, wanted: Draw) -> Reply:
        """prompt_ids, token_ids, logprobs, finish, usage and attempts."""

    async def probe(self, wanted: Sequence[Draw]) -> list[Reply]:
        """The answers to the draws [B] of a parity check; of several servers, of one for all that
        agree with it."""

    async def load(self, adapter: Adapter, *, in_place: bool = False) -> None:
        """Takes an adapter from its folder; `in_place` over one of the same name."""

    async def unload(self, adapter: Adapter) -> None:
        """Forgets an adapter; one that is not there is forgotten already."""

    def unshare(self) -> None:
        """All weights will be published here: from now on they are shared with no other policy.
        Raises ConfigError where that cannot be."""

    async def reload(self, folder: str) -> None:
        """Takes full weights from a model folder and drops what is cached."""


@runtime_checkable
class Several(Protocol):
    """A backend of several servers with the same weights: see `replicas`."""

    async def transfer(self, transfer: Any, weights: Mapping[str, Any]) -> None: ...
    def spare(self) -> bool: ...
    def numbers(self) -> dict[str, float]: ...
    def carried(self) -> dict[str, Any]: ...
    def carry(self, values: dict[str, Any]) -> None: ...


class Parameters:
    """Sampling parameters under the names that vLLM has for them. `banned`: ids that are never
    sampled; `ends`: those that end a turn."""

    def __init__(self, banned: Sequence[int], ends: frozenset[int]) -> None:
        self.ends = sorted(ends)
        self.bias = {int(token): BIAS for token in banned}

    def of(self, wanted: Draw) -> dict[str, Any]:
        """Keywords of `SamplingParams`, and fields of a completion request."""
        how = wanted.sampling
        return {
            "max_tokens": wanted.room,
            "temperature": how.temperature,
            "top_p": how.top_p,
            "top_k": how.top_k,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "seed": wanted.seed,
            "stop": list(how.stop),
            "stop_token_ids": self.ends,
            "logprobs": 0,  # of the sampled id alone
            "skip_special_tokens": False,
            "logit_bias": self.bias,
        }
