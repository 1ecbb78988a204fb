"""A policy's way to a server of the Tinker API: its sampling and training clients, token ids in,
numbers out. The only file that knows the client package.

Sampling, scoring and saving are asked again, since the same request gives the same. A gradient or a
step is not: one whose answer is lost may have been taken or not (`Lost`). So the package's own
repeats are taken out of training requests, and the learner goes back to weights that it saved.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from gem_ma.engines.endpoint.endpoint import Secret
from gem_ma.engines.endpoint.envelope import ids_in, logprobs_in
from gem_ma.engines.models.loading import needed
from gem_ma.kernel.errors import ConfigError, EndpointError, EngineError, ModelNotFound
from gem_ma.kernel.types import Attempt, Sampling

# names of exceptions of the client and of what it stands on
DROPPED = frozenset({"APIConnectionError", "APITimeoutError", "RetryableException", "SidecarError"})
EXPIRED = 410  # the server forgot what it was asked
LONGEST = 300  # characters of a server's words


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from."""
    seen: set[int] = set()
    now: BaseException | None = error
    while now is not None and id(now) not in seen:
        seen.add(id(now))
        yield now
        now = now.__cause__ or now.__context__


def status_of(error: BaseException) -> int | None:
    """The HTTP status behind an error, None where there was none."""
    for each in chain(error):
        status = getattr(each, "status_code", None)
        if isinstance(status, int):
            return status
    return None


def kind_of(error: BaseException) -> str:
    """auth | quota | model | refused | rate_limited | server | expired | transport: what went
    wrong; the last four may be asked again."""
    status = status_of(error)
    names = {type(each).__name__ for each in chain(error)}
    named = {base.__name__ for each in chain(error) for base in type(each).__mro__}
    if status == EXPIRED or "RetryableException" in names:
        return "expired"
    if status in (401, 403):
        return "auth"
    if status == 402:
        return "quota"
    if status == 404:
        return "model"
    if status == 429:
        return "rate_limited"
    if status is not None and (status >= 500 or status in (408, 409, 425)):
        return "server"
    if status is not None:
        return "refused"
    if named & DROPPED or isinstance(error, (OSError, TimeoutError)):
        return "transport"
    if isinstance(error, (concurrent.futures.CancelledError, concurrent.futures.TimeoutError)):
        return "transport"
    if "RequestFailedError" in names:  # it was carried out, and failed
        category = getattr(error, "category", None)
        return "refused" if str(getattr(category, "value", category)) == "user" else "server"
    return "refused"


AGAIN = frozenset({"rate_limited", "server", "expired", "transport"})


def attempt_of(error: BaseException, wait_s: float, key: Secret) -> Attempt:
    """A failed attempt, as records keep it."""
    return Attempt(kind_of(error), status_of(error), wait_s, words(error, key))


def words(error: BaseException, key: Secret) -> str:
    """What an error says, in one line and without the key."""
    text = " ".join(str(error).split()) or type(error).__name__
    return key.hide(text)[:LONGEST]


def raised(error: BaseException, where: str, host: str, key: Secret) -> EngineError:
    """The error of this library for one that is not asked again, or was asked often enough."""
    kind = kind_of(error)
    text = words(error, key)
    if kind == "auth":
        return EndpointError(f"{where}: {host} refused the key ({text}); export a valid one")
    if kind == "quota":
        return EndpointError(f"{where}: the account at {host} has no quota left ({text})")
    if kind == "model":
        return ModelNotFound(f"{where}: {host} does not have it ({text})")
    return EngineError(f"{where}: {host}: {text}", retryable=kind in AGAIN)


FINISHES = ("stop", "length")


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was sampled after a prompt, and what was tried in vain before."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str
    failed: tuple[Attempt, ...] = ()


def drawn(answer: Any, failed: Sequence[Attempt]) -> Drawn:
    """The one sequence that was asked for. Raises OSError, which is asked again, for any other
    shape: an older server, a proxy, a fault in a kernel."""
    sequences = _list(getattr(answer, "sequences", None))
    if not sequences:
        raise OSError("no sequence came")
    first = sequences[0]
    tokens, values = (_list(getattr(first, name, None)) for name in ("tokens", "logprobs"))
    # a server that lost some would give every later token the number of another one
    if len(tokens) != len(values):
        raise OSError(f"{len(tokens)} ids came with {len(values)} log-probabilities")
    ids = ids_in(tokens)
    logprobs = logprobs_in(values)
    if len(ids) != len(tokens):
        raise OSError("an id came that is not a number")
    if len(logprobs) != len(values):
        raise OSError("a log-probability came that is not a number")
    reason = getattr(first, "stop_reason", None)
    finish = str(getattr(reason, "value", reason))
    if finish not in FINISHES:
        raise OSError(f"it ended for {finish!r}, which is not one of {', '.join(FINISHES)}")
    return Drawn(ids, logprobs, finish, tuple(failed))


def scored(answer: Any, rows: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float64]]:
    """Of each row [T] the log-probabilities [T - 1] of all ids but its first; the learner looks
    whether they are numbers. Raises ValueError for another shape."""
    outputs = _list(getattr(answer, "loss_fn_outputs", None))
    try:
        scores = [np.array(_list(output["logprobs"]), np.float64) for output in outputs]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("gave no log-probabilities") from error
    if [score.shape for score in scores] != [(len(row) - 1,) for row in rows]:
        raise ValueError("scored other tokens than it was sent")
    return scores


def measured(answer: Any) -> dict[str, float]:
    """The finite numbers that came with a step."""
    told = getattr(answer, "metrics", None)
    pairs = told.items() if isinstance(told, dict) else ()
    return {
        str(name): float(value)
        for name, value in pairs
        if isinstance(value, (int, float)) and math.isfinite(value)
    }


def path_of(answer: Any) -> str:
    """Where something was saved. Raises OSError for no path."""
    path = getattr(answer, "path", None)
    if not isinstance(path, str) or not path:
        raise OSError("it was saved, and no path came")
    return path


def contexts(answer: Any) -> dict[str, int | None]:
    """Tokens of a prompt and its answer, by model; None where the server does not say."""
    known: dict[str, int | None] = {}
    for model in _list(getattr(answer, "supported_models", None)):
        longest = getattr(model, "max_context_length", None)
        fits = type(longest) is int and longest > 0
        known[str(getattr(model, "model_name", None))] = longest if fits else None
    return known


def _list(values: Any) -> list[Any]:
    """What came as a list, a tensor or a tuple; [] for anything else."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    return list(values) if isinstance(values, (list, tuple)) else []


T = TypeVar("T")
Array = NDArray[np.float64]
HOSTED = "the hosted Tinker API"
FIRST_CONTACT_S = 10.0
LONGEST_WAIT_S = 30.0
SEEDS = 1 << 31  # servers read a seed as a signed 32-bit integer


class Lost(EngineError):
    """A gradient or a step whose answer did not come: nobody knows whether it was taken."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)

    def __reduce__(self) -> tuple[object, ...]:
        return (Lost, (str(self),))


@dataclass(frozen=True, slots=True, eq=False)
class Pull:
    """One id sequence [T]: `logprobs` [T] of now, and how much each is to be raised (`pull`
    [T])."""

    ids: NDArray[np.int64]
    logprobs: Array
    pull: Array


@dataclass(frozen=True, slots=True)
class Adam:
    """One step of the server's AdamW; `clip`: the largest norm of the gradient."""

    lr: float
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    decay: float = 0.0
    clip: float = 0.0  # none


def sdk(where: str) -> Any:
    """The client package. Raises ConfigError, one line, where it is missing."""
    os.environ.setdefault("TINKER_TELEMETRY", "0")  # it would report what a run does
    with needed(f"{where}: the tinker engine needs the package tinker", "tinker"):
        import tinker
    return tinker


def aside(ask: Callable[[], T]) -> T:
    """What `ask` gives, in a thread of its own: the package's plain calls want no loop around."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ask).result()


class Clients:
    """What one policy asks of a server, from any thread and loop. `host` names it in messages."""

    def __init__(
        self, where: str, base_url: str | None, key: Secret, timeout_s: float, attempts: int
    ) -> None:
        self.where = where
        self.base_url = base_url
        self.key = key
        self.host = urlsplit(base_url).netloc if base_url else HOSTED
        self.timeout_s = timeout_s
        self.attempts = attempts
        self.sdk = sdk(where)
        self._service: Any = None
        self._opening = threading.Lock()

    # -- opening ----------------------------------------------------------------------------------

    @property
    def service(self) -> Any:
        """The session with the server. Raises EndpointError where nobody answers."""
        with self._opening:
            if self._service is None:
                self._reach()
                address = {} if self.base_url is None else {"base_url": self.base_url}
                key = self.key.value
                self._service = self.repeated(
                    lambda: self.sdk.ServiceClient(api_key=key, max_retries=0, **address)
                )
            return self._service

    def _reach(self) -> None:
        """A connection, before the package waits for minutes for a server that is not there."""
        if self.base_url is None:
            return
        parts = urlsplit(self.base_url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            socket.create_connection((parts.hostname or "", port), FIRST_CONTACT_S).close()
        except OSError as error:
            raise EndpointError(
                f"{self.where}: the server cannot be reached ({error}); start it, or correct"
                f" base_url ({self.base_url})"
            ) from error

    def context(self, base: str) -> int | None:
        """Tokens that a prompt and its answer may have together; None where the server does not
        say. Raises ConfigError where it lacks the base model."""
        known = contexts(self.repeated(lambda: self.service.get_server_capabilities()))
        if known and base not in known:
            listed = ", ".join(list(known)[:8]) + (" ..." if len(known) > 8 else "")
            raise ConfigError(f"{self.where}: {self.host} has no model {base!r}; it has {listed}")
        return known.get(base)

    # -- sampling ---------------------------------------------------------------------------------

    def sampler(self, *, base: str | None = None, path: str | None = None) -> Any:
        """A client that samples a base model, or the weights at a path of the server."""
        named = {"base_model": base} if path is None else {"model_path": path}
        return self.repeated(lambda: self.service.create_sampling_client(**named))

    async def draw(
        self, sampler: Any, prompt: Sequence[int], how: Sampling, seed: int, ends: Sequence[int]
    ) -> Drawn:
        """One answer. Raises EngineError where it failed as often as it may."""
        types = self.sdk.types
        failed = list[Attempt]()
        params = types.SamplingParams(
            max_tokens=how.max_tokens,
            temperature=how.temperature,
            top_p=how.top_p,
            top_k=how.top_k if how.top_k > 0 else -1,
            seed=seed % SEEDS,
            stop=list(ends),
        )
        asked = types.ModelInput.from_ints(list(prompt))
        while True:
            try:
                answer = await asyncio.wait_for(
                    sampler.sample_async(prompt=asked, num_samples=1, sampling_params=params),
                    self.timeout_s,
                )
                return drawn(answer, failed)
            except Exception as error:
                await self._pause(self._wait(error, failed))

    @staticmethod
    async def _pause(seconds: float) -> None:
        await asyncio.sleep(seconds)

    # -- training ---------------------------------------------------------------------------------

    def trainer(self, base: str, rank: int, seed: int) -> Any:
        """A client that trains a new adapter on all layers but the embeddings."""
        return self._once(
            self.repeated(
                lambda: self.service.create_lora_training_client(
                    base_model=base, rank=rank, seed=seed % SEEDS, train_unembed=False
                )
            )
        )

    def restored(self, path: str) -> Any:
        """A client that trains on from a saved state: weights and optimiser."""
        return self._once(
            self.repeated(
                lambda: self.service.create_training_client_from_state_with_optimizer(path)
            )
        )

    def _once(self, trainer: Any) -> Any:
        """The same client without repeats of its own, which may take a gradient twice."""
        holder: Any = getattr(trainer, "holder", None)
        if hasattr(holder, "execute_with_retries"):

            async def once(function: Callable[..., Any], *args: Any, **more: Any) -> Any:
                return await function(*args, **more)

            holder.execute_with_retries = once
        return trainer

    def forward(self, trainer: Any, rows: Sequence[NDArray[np.int64]]) -> list[Array]:
        """Log-probability of every id after its first, given those before it: rows [T] -> [T],
        with 0 at the first. Takes no gradient."""
        if not rows:
            return []
        data = [self._datum(Pull(ids, np.zeros(len(ids)), np.zeros(len(ids)))) for ids in rows]
        done = self.repeated(
            lambda: trainer.forward(data, "importance_sampling").result(self.timeout_s)
        )
        try:
            return [np.concatenate([[0.0], score]) for score in scored(done, rows)]
        except ValueError as error:
            raise EngineError(f"{self.where}: {self.host} {error}") from error

    def gradient(self, trainer: Any, rows: Sequence[Pull]) -> None:
        """Adds the gradient of these pulls to those that wait for a step. Raises Lost."""
        data = [self._datum(row) for row in rows]
        self._unrepeated(
            lambda: trainer.forward_backward(data, "importance_sampling").result(self.timeout_s)
        )

    def step(self, trainer: Any, how: Adam) -> dict[str, float]:
        """One step along the gradients that wait; gives what the server measured. Raises Lost."""
        params = self.sdk.types.AdamParams(
            learning_rate=how.lr,
            beta1=how.betas[0],
            beta2=how.betas[1],
            eps=how.eps,
            weight_decay=how.decay,
            grad_clip_norm=how.clip,
        )
        done = self._unrepeated(lambda: trainer.optim_step(params).result(self.timeout_s))
        return measured(done)

    def _datum(self, row: Pull) -> Any:
        """A row as the API has it: each place predicts the id behind it. The ratio of the server's
        loss is exp(its own log-probability - ours), 1 here, so that the slope is the pull."""
        types = self.sdk.types
        count = len(row.ids) - 1

        def tensor(values: NDArray[Any], dtype: str) -> Any:
            return types.TensorData(data=values.tolist(), dtype=dtype, shape=[count])

        return types.Datum(
            model_input=types.ModelInput.from_ints(row.ids[:-1].tolist()),
            loss_fn_inputs={
                "target_tokens": tensor(row.ids[1:], "int64"),
                "logprobs": tensor(row.logprobs[1:], "float32"),
                "advantages": tensor(row.pull[1:], "float32"),
            },
        )

    # -- saving -----------------------------------------------------------------------------------

    def published(self, trainer: Any, name: str) -> str:
        """Writes the present weights for samplers; gives their path."""
        return self._saved(lambda fresh: trainer.save_weights_for_sampler(fresh), name)

    def saved(self, trainer: Any, name: str) -> str:
        """Writes weights and optimiser; gives their path, from which training goes on."""
        return self._saved(lambda fresh: trainer.save_state(fresh), name)

    def _saved(self, save: Callable[[str], Any], name: str) -> str:
        # a name of its own for each try: one whose answer was lost may have been taken
        def once() -> str:
            return path_of(save(f"{name}-{uuid.uuid4().hex[:8]}").result(self.timeout_s))

        return self.repeated(once)

    def drop(self, path: str) -> None:
        """Deletes weights at the server, where it can: an old version costs its disk."""
        try:
            rest = aside(self.service.create_rest_client)
            aside(lambda: rest.delete_checkpoint_from_tinker_path(path).result(self.timeout_s))
        except Exception:  # no such route, or gone already: nothing depends on it
            return

    # -- repeats ----------------------------------------------------------------------------------

    def repeated(self, ask: Callable[[], T]) -> T:
        """What `ask` gives, asked again after faults that pass. Raises EngineError."""
        failed: list[Attempt] = []
        while True:
            try:
                return aside(ask)
            except EngineError:
                raise
            except Exception as error:
                time.sleep(self._wait(error, failed))

    def _unrepeated(self, ask: Callable[[], T]) -> T:
        try:
            return aside(ask)
        except Exception as error:
            kind = kind_of(error)
            refusal = raised(error, self.where, self.host, self.key)
            # 429 too: some servers say it of an answer that is ready
            raise (Lost(str(refusal)) if kind in AGAIN else refusal) from error

    def _wait(self, error: Exception, failed: list[Attempt]) -> float:
        """Seconds until the next try. Raises EngineError where there is none."""
        wait_s = min(0.5 * 2.0 ** len(failed), LONGEST_WAIT_S)
        failed.append(attempt_of(error, wait_s, self.key))
        if kind_of(error) not in AGAIN or len(failed) >= self.attempts:
            raise raised(error, self.where, self.host, self.key) from error
        return wait_s
