"""How fast this processor multiplies in a dtype, by trial: what a processor claims may be switched
off (`ONEDNN_MAX_CPU_ISA`), or be slower than what it does without.

Without instructions of its own for bfloat16 a processor may take fifty times as long as in float32.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from time import thread_time
from typing import Any

from gem_ma.engines.local.loading import DTYPES, import_stack
from gem_ma.system.folders import read_named

HALVES = ("bfloat16", "float16")
SLOW = 2.0  # times as long as in float32: well apart from noise, and half the memory is worth some
# a small layer, with the tokens of a batch
ROWS = 64
SIZE = 576
# of a trial of one dtype, and how often at least
SECONDS = 0.1
TIMES = 5


@cache
def speed(dtype: str) -> float:
    """GFLOP/s of one thread of this processor in the products of a layer and of its gradient; once
    in a process."""
    torch, _ = import_stack()
    kind = getattr(torch, dtype)
    rows = torch.ones(ROWS, SIZE, dtype=kind)
    weight = torch.ones(SIZE, SIZE, dtype=kind)
    threads = torch.get_num_threads()
    # of several each waits for the others, which on a busy machine is most of their time
    torch.set_num_threads(1)
    try:
        spent: list[float] = []
        while sum(spent) < SECONDS or len(spent) < TIMES:
            # of this thread, and the least: what else the machine does is no matter
            begun = thread_time()
            slopes = torch.nn.functional.linear(rows, weight)
            slopes.t() @ rows
            spent.append(thread_time() - begun)
    finally:
        torch.set_num_threads(threads)
    return 4 * ROWS * SIZE * SIZE / min(spent) / 1e9


def slowness(dtype: str) -> float:
    """How many times as long as float32 a dtype takes on this processor."""
    return speed("float32") / speed(dtype)


def settled(folder: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The dtype that `auto` means on this processor for the model in a folder: as stored, or
    float32 where that is slow. {} where it stays as it is: another dtype was asked for, a GPU
    computes, or the folder is not there or says nothing."""
    if DTYPES.get(str(options.get("dtype"))) != "auto" or options.get("device_map") is not None:
        return {}
    stored = stored_in(Path(folder))
    if stored not in HALVES or options.get("device", "cpu") not in ("cpu", "auto"):
        return {}
    torch, _ = import_stack()
    if options.get("device") == "auto" and torch.cuda.is_available():
        return {}
    return {"dtype": "float32" if slowness(stored) > SLOW else stored}


def stored_in(folder: Path) -> str:
    """The dtype of the weights in a model folder; "" where it does not say."""
    try:
        config = json.loads(read_named(folder / "config.json"))
    except (OSError, ValueError, RecursionError):
        # not a model folder, or a damaged one, which is told where it is opened
        return ""
    known = config.get("dtype") or config.get("torch_dtype") if isinstance(config, dict) else None
    return str(known or "")


def line(policy: str, folder: Path, dtype: str, device: str) -> str:
    """A line on a choice that matters on this processor: what `auto` took, or that what was asked
    for is slow; else ""."""
    stored = dtype if dtype in HALVES else stored_in(folder)
    # without a trial in this process nobody left the choice to it
    if device != "cpu" or stored not in HALVES or (dtype not in HALVES and not _tried()):
        return ""
    here = f"{speed(stored):.0f} GFLOP/s in {stored}, {speed('float32'):.0f} in float32"
    if dtype in HALVES and (times := slowness(dtype)) > SLOW:
        return (
            f"policy {policy!r}: dtype: {dtype} is slow on this processor ({here}); dtype: auto"
            f" would take float32, {times:.0f} times as fast"
        )
    return f"policy {policy!r} computes in {dtype}: this processor does {here}"


def _tried() -> bool:
    return speed.cache_info().currsize > 0
