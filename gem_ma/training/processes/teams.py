"""Several processes that train as one: who takes which share, and how parts are brought together.
Knows no scenario, no policy and no loss.

Every process holds the same weights and does the same steps. Each plays its share of a step's plans
and takes its share of the passes of an update; episodes go round as JSON (nothing is pickled),
numbers and gradients are summed. So all decide alike, and process 0 alone writes.

Playing and learning may go on at the same time (`train.overlap`), so each has a group of its
own: collectives of one never meet those of the other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gem_ma import errors
from gem_ma.codec import dump_episode, load_episode
from gem_ma.episode import Episode
from gem_ma.errors import ConfigError, EngineError
from gem_ma.installing import install
from gem_ma.rollout import Plan

LAUNCHED = ("RANK", "WORLD_SIZE")  # what every launcher sets
T = TypeVar("T")


class Team:
    """The processes of one training. Alone (`SOLO`) every share is the whole, and every sum is
    what was given."""

    def __init__(self, rank: int = 0, size: int = 1, group: Any = None) -> None:
        self.rank, self.size, self.group = rank, size, group

    @property
    def first(self) -> bool:
        """Whether this process writes."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """This process's part; the parts of all are all, `merge` brings them back into order."""
        return items[self.rank :: self.size]

    def merge(self, parts: Sequence[Sequence[T]]) -> list[T]:
        """The inverse of `share`, of the parts in the order of their processes."""
        merged: list[T | None] = [None] * sum(map(len, parts))
        for rank, part in enumerate(parts):
            merged[rank :: self.size] = part
        return merged  # type: ignore[return-value]  # every place is filled

    def gather(self, data: bytes) -> list[bytes]:
        """What every process gave, in their order."""
        if self.size == 1:
            return [data]
        import torch

        with _lost():
            sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
            torch.distributed.all_gather(sizes, torch.tensor([len(data)]), group=self.group)
            longest = max(1, *(int(size) for size in sizes))
            padded = torch.zeros(longest, dtype=torch.uint8)
            padded[: len(data)] = (
                torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else padded[:0]
            )
            parts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
            torch.distributed.all_gather(parts, padded, group=self.group)
        return [
            part[: int(size)].numpy().tobytes() for part, size in zip(parts, sizes, strict=True)
        ]

    def agree(self, value: Any) -> Any:
        """What process 0 says, as JSON values."""
        return (
            value
            if self.size == 1
            else json.loads(self.gather(json.dumps(value).encode() if self.first else b"")[0])
        )

    def sum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum over the processes, elementwise; the same bits everywhere."""
        if self.size == 1:
            return values
        import torch

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
        with _lost():
            flat = torch.cat(
                [
                    (torch.zeros_like(w) if w.grad is None else w.grad).flatten().float().cpu()
                    for w in listed
                ]
            )
            torch.distributed.all_reduce(flat, group=self.group)
        at = 0
        for weight in listed:
            part, at = flat[at : at + weight.numel()].view_as(weight), at + weight.numel()
            weight.grad = part.to(weight.device, weight.dtype).clone()

    def same(self, facts: Callable[[], Mapping[str, str]], what: str) -> None:
        """Raises EngineError, in every process, where these differ between processes."""
        if self.size == 1:
            return
        found = [json.loads(part) for part in self.gather(json.dumps(dict(facts())).encode())]
        odd = sorted(
            {name for one in found for name in found[0] if one.get(name) != found[0][name]}
        )
        if odd:
            raise EngineError(
                f"{what} of {', '.join(odd)} differ between the processes, so they train no longer"
                " as one; resume from the checkpoint"
            )


SOLO = Team()


class Teams:
    """One group for playing and one for learning; `close` when all is done."""

    def __init__(self, play: Team = SOLO, learn: Team = SOLO, state: Any = None) -> None:
        self.play, self.learn, self._state = play, learn, state

    def close(self) -> None:
        """Leaves the others."""
        if self._state is not None:
            self._state.destroy_process_group()
            self._state = None


ALONE = Teams()


def launched() -> int:
    """How many processes a launcher started this one among; 1 without a launcher."""
    try:
        return (
            int(os.environ.get("WORLD_SIZE", "1"))
            if all(name in os.environ for name in LAUNCHED)
            else 1
        )
    except ValueError:
        return 1


def join() -> Teams:
    """Meets the processes that the launcher started (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT);
    `ALONE` where there is no launcher.

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
        state = PartialState(cpu=not torch.cuda.is_available())
        rank = int(state.process_index)
        play, learn = (torch.distributed.new_group(backend="gloo") for _ in range(2))
    except (RuntimeError, ValueError, OSError) as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise EngineError(
            f"the {size} processes of this training did not meet ({line}); are all of them started?"
        ) from error
    return Teams(Team(rank, size, play), Team(rank, size, learn), state)


async def together(
    team: Team, plans: Sequence[Plan], play: Callable[[Sequence[Plan]], Awaitable[list[Episode]]]
) -> list[Episode]:
    """The episodes of these plans in their order: each process plays its share, and all get all
    of them. What fails in one ends all."""
    if team.size == 1:
        return await play(plans)
    report: dict[str, Any] = {"kind": "", "fault": ""}
    try:
        report["lines"] = [dump_episode(episode) for episode in await play(team.share(plans))]
    except Exception as error:  # the others wait for this share: they must hear of it
        report |= {"kind": type(error).__name__, "fault": str(error), "lines": []}
    parts = [json.loads(part) for part in team.gather(json.dumps(report).encode())]
    failed = next((part for part in parts if part["kind"]), None)
    if failed is not None:  # process 0 says it for all
        raise (
            _again(failed["kind"], failed["fault"])
            if team.first
            else LostError("see the error of process 0")
        )
    return team.merge([[load_episode(line) for line in part["lines"]] for part in parts])


def _again(kind: str, fault: str) -> Exception:
    """The error of another process."""
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, errors.GemMaError):
        return known(fault)
    return EngineError(f"{kind}: {fault}")


@contextmanager
def _lost() -> Iterator[None]:
    """What breaks when another process is gone."""
    try:
        yield
    except RuntimeError as error:
        raise LostError(
            "another process of this training has ended; what it says tells why, and the last"
            " checkpoint holds"
        ) from error


class LostError(EngineError):
    """Another process has gone. Its own message is the one that counts."""
