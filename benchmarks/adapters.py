"""Prints what two policies on one base save: bytes of weights, and sampled tokens a second in
common batches against batches of their own.

Run it with one thread: OMP_NUM_THREADS=1 python benchmarks/adapters.py [size]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gem_ma.engines.local.tiny import make_model
from gem_ma.engines.local.transformers import Transformers
from gem_ma.kernel.types import Message, Request, Sampling

ROWS, TOKENS, REPEATS = 16, 48, 5


def asked(engine: Transformers) -> list[tuple[Transformers, Request]]:
    """Requests of one policy, of several lengths."""
    how = Sampling(max_tokens=TOKENS)
    return [
        (
            engine,
            Request(
                "a",
                (Message("hello there " * (4 + n % 5)),),
                seed=n,
                policy=engine.policy,
                sampling=how,
            ),
        )
        for n in range(ROWS)
    ]


def best(work: Callable[[], int]) -> float:
    """Tokens a second of the fastest of a few repeats."""
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        found.append(work() / (time.perf_counter() - began))
    return max(found)


def sampled(batch: list[tuple[Transformers, Request]]) -> int:
    """Samples a batch; its tokens."""
    return sum(len(reply.token_ids) for reply in Transformers.sample_mixed(batch))  # type: ignore[union-attr]


def main() -> None:
    size = sys.argv[1] if len(sys.argv) > 1 else "nano"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        make_model(path, "kuhn_poker", size=size)
        whole = [Transformers(str(path), policy=name) for name in ("one", "two")]
        adapted = [
            Transformers(str(path), policy=name, lora={"rank": 8}) for name in ("one", "two")
        ]

        held = [
            sum({w.data_ptr(): w.nbytes for e in group for w in e.model.parameters()}.values())
            for group in (whole, adapted)
        ]
        print(
            f"{size}: two policies with all their weights {held[0] / 1e6:.2f} MB; two adapters on"
            f" one base {held[1] / 1e6:.2f} MB"
        )
        together = [
            row for pair in zip(*(asked(engine) for engine in adapted), strict=True) for row in pair
        ]
        apart = [asked(engine) for engine in adapted]
        plain = [asked(engine) for engine in whole]
        rates = {
            "without adapters, a batch each": best(lambda: sum(map(sampled, plain))),
            "adapters, a batch each": best(lambda: sum(map(sampled, apart))),
            "adapters, one common batch": best(lambda: sampled(together)),
        }
        for name, rate in rates.items():
            print(
                f"  {name:<32} {rate:8.0f} tokens/s  {rate / rates['adapters, a batch each']:.2f}"
            )


if __name__ == "__main__":
    main()
