"""Several processes that train as one: how the work is shared, and how the parts are joined. Knows
no scenario, no policy and no loss.

Every process holds the same weights, plays a share of a step's plans and computes a share of the
passes of an update. Episodes are exchanged as JSON (nothing is pickled), numbers and gradients are
summed. So all reach the same decisions, and process 0 alone writes.

Playing and learning may run at the same time (`train.overlap`), so each has a process group of its
own: collectives of the two must never meet.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gem_ma.driver.rollout import Plan
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, EngineError, GemMaError
from gem_ma.system.extras import install
from gem_ma.training.processes.chunks import WorkerPool, episodes_of, error_of, reported

LAUNCHED = ("RANK", "WORLD_SIZE")  # what every launcher sets
GONE = (
    "another process of this training has ended; its own message says why. The last checkpoint is"
    " intact"
)
# what the libraries below say of it
_BROKEN = re.compile(r"gloo|nccl|connection (reset|closed|refused)|socket", re.IGNORECASE)
T = TypeVar("T")


class Team:
    """The processes of one training. In a team of one (`SOLO`) a share is the whole, and a sum is
    the value itself. `led`: the first has the whole too, and the others nothing."""

    def __init__(
        self, rank: int = 0, size: int = 1, group: Any = None, *, led: bool = False
    ) -> None:
        self.rank = rank
        self.size = size
        self.group = group
        self.led = led

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """This process's part of the items; `merge` puts the parts together again."""
        if self.led:
            return items if self.first else items[:0]
        # every n-th, not a block: plays of one start lie together and take about as long
        return items[self.rank :: self.size]

    def merge(self, parts: Sequence[Sequence[T]]) -> list[T]:
        """The inverse of `share`, of the parts in the order of their processes."""
        if self.led:
            return list(parts[0])
        merged: list[T | None] = [None] * sum(map(len, parts))
        for rank, part in enumerate(parts):
            merged[rank :: self.size] = part
        return merged  # type: ignore[return-value]  # every place is filled

    def gather(self, data: bytes) -> list[bytes]:
        """The data of every process, in their order."""
        if self.size == 1:
            return [data]  # without torch: a table trains where it is not installed
        import torch

        with _lost():
            sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
            torch.distributed.all_gather(sizes, torch.tensor([len(data)]), group=self.group)
            # gloo gathers tensors of one size only, and none of size 0
            longest = max(1, *(int(size) for size in sizes))
            padded = torch.zeros(longest, dtype=torch.uint8)
            if data:
                padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            parts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
            torch.distributed.all_gather(parts, padded, group=self.group)
        pairs = zip(parts, sizes, strict=True)
        return [part[: int(size)].numpy().tobytes() for part, size in pairs]

    def agree(self, value: Any) -> Any:
        """The value of process 0, in every process; JSON values."""
        if self.size == 1:
            return value
        # a gather, not a broadcast: one collective less to get right
        return json.loads(self.gather(json.dumps(value).encode() if self.first else b"")[0])

    def sum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum over the processes, elementwise; the same bits everywhere."""
        if self.size == 1:
            return values
        import torch

        # a copy: all_reduce writes into its argument
        total = torch.from_numpy(np.array(values, np.float64))
        with _lost():
            torch.distributed.all_reduce(total, group=self.group)
        return np.asarray(total.numpy(), np.float64)

    def sum_gradients(self, weights: Iterable[Any]) -> None:
        """Replaces the gradient of every weight (torch, float32) by its sum over the processes;
        a missing one counts 0."""
        if self.size == 1:
            return
        import torch

        listed = list(weights)
        # one collective for all weights: there are hundreds, and each call waits for all processes
        with _lost():
            flat = torch.cat([_gradient(weight) for weight in listed])
            torch.distributed.all_reduce(flat, group=self.group)
        parts = flat.split([weight.numel() for weight in listed])
        for weight, part in zip(listed, parts, strict=True):
            # a clone: otherwise every gradient would keep the whole of `flat` alive
            weight.grad = part.view_as(weight).to(weight.device, weight.dtype).clone()

    def same(self, facts: Callable[[], Mapping[str, str]], what: str) -> None:
        """Raises EngineError, in every process, where the facts differ between processes."""
        if self.size == 1:
            return
        first, *others = map(json.loads, self.gather(json.dumps(dict(facts())).encode()))
        odd = sorted({name for other in others for name in first if other.get(name) != first[name]})
        if odd:
            raise EngineError(
                f"{what} of {', '.join(odd)} differ between the processes, so they no longer train"
                " as one; resume from the checkpoint"
            )


def _gradient(weight: Any) -> Any:
    """The gradient of a weight as a flat float32 tensor of the CPU."""
    # a process whose share did not touch the weight still takes part in the sum, with zeros
    grad = weight.new_zeros(weight.shape) if weight.grad is None else weight.grad
    return grad.flatten().float().cpu()


SOLO = Team()


class Teams:
    """One group for playing and one for learning; `close` when all is done. `pool`: workers that
    play and do not learn."""

    def __init__(
        self,
        play: Team = SOLO,
        learn: Team = SOLO,
        state: Any = None,
        pool: WorkerPool | None = None,
    ) -> None:
        self.play = play
        self.learn = learn
        self.pool = pool
        self._state = state

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()
        if self._state is not None:
            self._state.destroy_process_group()
            self._state = None


ALONE = Teams()


def launched() -> int:
    """The number of processes that a launcher started; 1 without a launcher."""
    # both names: one of them alone may be left over from another tool
    if not all(name in os.environ for name in LAUNCHED):
        return 1
    try:
        return int(os.environ["WORLD_SIZE"])
    except ValueError:
        return 1


def join() -> Teams:
    """Meets the processes that the launcher started (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT);
    `ALONE` without a launcher.

    Call before any policy is opened: it gives this process its device. Raises ConfigError
    without the train extra, EngineError where the others do not come.
    """
    size = launched()
    if size < 2:
        return ALONE
    try:
        import torch
        from accelerate import PartialState
    except ImportError as error:
        raise ConfigError(f"several processes need accelerate: {install('train')}") from error
    try:
        meet(torch)
        state = PartialState(cpu=not torch.cuda.is_available())
        rank = int(state.process_index)
        # gloo also on GPUs: what is exchanged lies on the CPU, and NCCL takes CUDA tensors alone
        play, learn = (torch.distributed.new_group(backend="gloo") for _ in range(2))
    except (RuntimeError, ValueError, OSError) as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise EngineError(
            f"the {size} processes of this training did not meet ({line}); were all of them"
            " started?"
        ) from error
    return Teams(Team(rank, size, play), Team(rank, size, learn), state)


async def together(
    team: Team, plans: Sequence[Plan], play: Callable[[Sequence[Plan]], Awaitable[list[Episode]]]
) -> list[Episode]:
    """The episodes of these plans in their order: each process plays a share, and every process
    gets all of them. An error in one process ends all of them."""
    if team.size == 1:
        return await play(plans)
    # the others wait for this share, so an error must reach them too, whatever it is
    report = await reported(play(team.share(plans)))
    parts = [json.loads(part) for part in team.gather(json.dumps(report).encode())]
    failed = next((part for part in parts if part["kind"]), None)
    if failed is not None:
        if team.first:  # so that one process prints the error, not every one of them
            raise error_of(failed)
        raise LostError("see the error of process 0")
    return team.merge([episodes_of(part) for part in parts])


@contextmanager
def _lost() -> Iterator[None]:
    """Inside, a collective that fails because another process has ended raises LostError."""
    try:
        yield
    except RuntimeError as error:  # all that torch says of a lost connection
        raise LostError(GONE) from error


@contextmanager
def lost() -> Iterator[None]:
    """The same around work of which collectives are a part: other faults of torch stay what they
    are."""
    try:
        yield
    except (LostError, GemMaError):
        raise
    except Exception as error:
        if not _BROKEN.search(str(error)):
            raise
        raise LostError(GONE) from error


class LostError(EngineError):
    """Another process has ended. Its own message is the one that counts."""


# Where the processes of a training meet. A TCP store of torch listens on all interfaces, whatever
# address it is given, so those of one machine meet at a file, or at a socket that is bound here.

MEET = "GEM_MA_MEET"  # a file that the processes of `gem-ma train --processes N` meet at
LOOPBACK = ("127.0.0.1", "localhost", "::1")
AGENT = "TORCHELASTIC_USE_AGENT_STORE"  # torchrun has opened the store itself, before us


def at_home() -> dict[str, str]:
    """Variables by which the collectives of processes of one machine listen on loopback."""
    name = "lo0" if sys.platform == "darwin" else "lo"
    return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name}


def meet(torch: Any) -> None:
    """Joins the processes of one machine: through a file, where their launcher names one, or
    through a store on loopback, where it names that as the address. Others join later, as their
    launcher wants it."""
    home = os.environ.get("MASTER_ADDR") in LOOPBACK
    if home:
        for name, value in at_home().items():
            os.environ.setdefault(name, value)
    if file := os.environ.get(MEET):
        where: dict[str, Any] = {"init_method": f"file://{file}"}
    elif home and os.environ.get(AGENT) != "True":
        where = {"store": _store(torch, *_place())}
    else:
        return
    rank, size = _place()
    backend = "cuda:nccl,cpu:gloo" if torch.cuda.is_available() else "gloo"
    torch.distributed.init_process_group(backend, rank=rank, world_size=size, **where)


def _place() -> tuple[int, int]:
    """The number of this process, and how many there are. Raises ValueError where the launcher
    does not say."""
    return _number("RANK"), _number("WORLD_SIZE")


def _number(name: str) -> int:
    typed = os.environ.get(name, "")
    if not typed.isdecimal():
        raise ValueError(f"{name} is {typed!r}, and wants a whole number")
    return int(typed)


def _store(torch: Any, rank: int, size: int) -> Any:
    """The store at MASTER_ADDR and MASTER_PORT, which process 0 opens."""
    host = os.environ["MASTER_ADDR"]
    port = _number("MASTER_PORT")
    if port > 65535:
        raise ValueError(f"MASTER_PORT is {port}; the largest is 65535")
    kind = torch.distributed.TCPStore
    if rank != 0:
        return kind(host, port, size, is_master=False)
    # a socket of ours, since the store would bind one to all interfaces
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family)
    # it waits for nobody: whoever does not come is missed by the first collective
    return kind(
        host,
        port,
        size,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listening.detach(),
    )
