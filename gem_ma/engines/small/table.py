"""The engine `table`: a softmax over the legal strings of each view, in numpy. It learns without
torch, in seconds, through the same loop.

A *view key* is a 63-bit digest of what the agent has seen and said (its own lines marked as own, so
that two seats with the same history share a row), and of the legal strings. A reply's `prompt_ids`
is that key, its one `token_ids` the index of the choice in `legal`: a learner needs nothing else.
An unknown view is uniform.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gem_ma.kernel.errors import ConfigError, DataError, EngineError
from gem_ma.kernel.types import Message, Reply, Request, Sampling, Usage
from gem_ma.registry import load
from gem_ma.system.folders import read_named

Array = NDArray[np.float64]
SCHEMA = 1
_MOST_VIEWS = 100_000  # views whose probabilities are kept ready
_ONE_TOKEN = Usage(prompt_tokens=1, completion_tokens=1)


class Table:
    """Softmax logits per view. `table/softmax` starts empty; any other name is a file written by
    `encode`. `optimizer` is for the learner. Raises DataError for a file that cannot be read."""

    exports = "table"

    def __init__(
        self, name: str = "softmax", *, policy: str, optimizer: Literal["sgd", "adam"] = "sgd"
    ) -> None:
        # asked here and not by the learner: a config is checked before anything is played
        if optimizer not in ("sgd", "adam"):
            raise ConfigError(f"policy {policy!r}: optimizer is sgd or adam; got {optimizer!r}")
        self.policy = policy
        self.optimizer = optimizer
        self.logits: dict[int, Array] = {}
        self.version = 0
        # cumulative and log-probabilities
        self._known: dict[tuple[int, int, Sampling], tuple[list[float], list[float]]] = {}
        if name not in ("", "softmax"):
            try:
                data = read_named(Path(name))
            except OSError as error:
                raise DataError(
                    f"policy {policy!r}: table/{name}: {error.strerror or error}; table/softmax"
                    " starts an empty table"
                ) from error
            self.logits = decode(data, f"policy {policy!r}: {name}")

    async def sample(self, request: Request) -> Reply:
        """Draws one of `request.legal` by `request.seed`; temperature 0 takes the most probable.
        Raises EngineError where the choice is open."""
        legal = _closed(request, self.policy)
        key = view_key(request.agent, request.messages, legal)
        known = self._known.get((key, len(legal), request.sampling))
        if known is None:
            # all at once: keeping an order would cost every request, and this is rare
            if len(self._known) > _MOST_VIEWS:
                self._known.clear()
            chances = self._chances(key, len(legal), request.sampling)
            with np.errstate(divide="ignore"):  # a choice that top_k cut has log-probability -inf
                known = self._known[key, len(legal), request.sampling] = (
                    np.cumsum(chances).tolist(),
                    np.log(chances).tolist(),
                )
        cumulative, logprobs = known
        # times the last sum, which rounding leaves a little off 1: no draw falls behind the end.
        # From the right: a choice of probability 0 is never drawn
        index = bisect.bisect_right(
            cumulative, random.Random(request.seed).random() * cumulative[-1]
        )
        return Reply(
            legal[index],
            (),
            (key,),
            (index,),
            (logprobs[index],),
            policy=self.policy,
            version=self.version,
            usage=_ONE_TOKEN,
        )

    def publish(self, logits: Mapping[int, Array], version: int) -> None:
        """Takes a copy of these weights."""
        # a copy: the learner goes on with its own rows while these are sampled from
        self.logits = {key: row.copy() for key, row in logits.items()}
        self.version = version
        self._known.clear()

    def pinned(self) -> Table:
        """See `Pins`."""
        other = copy(self)
        # `publish` puts other rows in their place, and writes into none
        other._known = {}
        return other

    def carried(self) -> bytes:
        """See `Carries`: a line with the version, then the file of the weights."""
        return f"{self.version}\n".encode() + encode(self.logits)

    def carry(self, data: bytes) -> None:
        """See `Carries`."""
        version, _, weights = data.partition(b"\n")
        self.publish(decode(weights, f"policy {self.policy!r}"), int(version))

    def learner(self, sampling: Sampling, *, apart: bool = False) -> Any:
        """See `Trains`. It learns on a table of its own either way."""
        return load("learners", "table")(self, sampling)

    def probabilities(self, request: Request) -> Array:
        """See `Exact`."""
        legal = _closed(request, self.policy)
        return self._chances(
            view_key(request.agent, request.messages, legal), len(legal), request.sampling
        )

    def fingerprint(self) -> str:
        """SHA-256 of the weights."""
        return fingerprint(self.logits)

    def save(self, path: str | Path) -> None:
        """Writes the weights as a file that `table/<path>` reads."""
        Path(path).write_bytes(encode(self.logits))

    def _chances(self, key: int, choices: int, sampling: Sampling) -> Array:
        logits = self.logits.get(key)
        return softmax(np.zeros(choices) if logits is None else logits, sampling)


def view_key(agent: str, messages: Sequence[Message], legal: Sequence[str]) -> int:
    """The digest of one view, the same in every process."""
    seen = [
        ["" if message.sender == agent else message.sender, message.text] for message in messages
    ]
    digest = hashlib.blake2b(json.dumps([seen, list(legal)]).encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "big") >> 1  # as an id, it fits 64 bits with a sign


def softmax(logits: Array, sampling: Sampling = Sampling()) -> Array:  # noqa: B008  (frozen)
    """Probabilities [choices] under temperature, top_k and top_p, in this order; temperature 0
    is all on the first maximum."""
    if sampling.temperature == 0:
        return np.eye(len(logits))[int(np.argmax(logits))]
    scaled = (logits - logits.max()) / sampling.temperature  # the greatest is 0: exp stays finite
    chances: Array = np.exp(scaled)
    chances /= chances.sum()
    if sampling.top_k or sampling.top_p < 1:
        # stable, so that equals are cut in their order on every machine
        order = np.argsort(-chances, kind="stable")
        # the mass in front of a choice counts, so the one that crosses top_p stays
        before = np.cumsum(chances[order]) - chances[order]
        places = np.arange(len(order))
        likely = (before < sampling.top_p) & (places < (sampling.top_k or len(order)))
        chances[order[~likely]] = 0.0
        chances /= chances.sum()
    return chances


def fingerprint(logits: Mapping[int, Array]) -> str:
    """SHA-256 of a table's logits, whatever the order of its views."""
    digest = hashlib.sha256()
    for key in sorted(logits):  # views come in the order of play, which is chance
        digest.update(f"{key}:".encode() + logits[key].tobytes())
    return digest.hexdigest()


def encode(logits: Mapping[int, Array]) -> bytes:
    """The table as JSON; floats survive bit for bit."""
    return json.dumps(
        {"schema": SCHEMA, "logits": {str(key): logits[key].tolist() for key in sorted(logits)}}
    ).encode()


def decode(data: bytes, where: str) -> dict[int, Array]:
    """Reads what `encode` wrote. Raises DataError naming `where`."""
    try:
        logits = {
            int(key): np.array(row, np.float64) for key, row in json.loads(data)["logits"].items()
        }
    except Exception as error:  # whatever a damaged file makes of it
        raise DataError(
            f"{where}: not a table of logits ({type(error).__name__}: {error})"
        ) from error
    # JSON of Python reads NaN, and a row of another shape would fail at some later draw
    if any(row.ndim != 1 or not len(row) or not np.isfinite(row).all() for row in logits.values()):
        raise DataError(f"{where}: a row of logits is empty or not finite")
    return logits


def _closed(request: Request, policy: str) -> tuple[str, ...]:
    if not request.legal:
        raise EngineError(
            f"policy {policy!r}: the table engine needs a closed choice, and agent"
            f" {request.agent!r} was asked without legal strings; use another engine for this"
            " agent, or a scenario whose Ask names `legal`"
        )
    return request.legal
