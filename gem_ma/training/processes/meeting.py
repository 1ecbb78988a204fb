"""Where the processes of a training meet, so that those of one machine listen nowhere but on
loopback. What they meet at otherwise, a TCP store of torch, listens on all interfaces, whatever
address it is given (`torch.distributed.TCPStore` binds none).
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

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
