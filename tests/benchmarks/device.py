"""How near sampling and learning come to what a device can multiply.

    python tests/benchmarks/device.py [--device cuda] [--dtype bfloat16] [--size medium] [--episodes
    256]

The limit is the best of a few square matrix products of the same type on the same device,
measured here. An update's work is counted as 6 operations a parameter and read position, and 2
for each pass without gradient; sampling's as 2 a parameter and token, the prompt once. Attention
is left out of both, so the share is a lower bound. Read positions are those of the rows, without
padding.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from gem_ma import credit
from gem_ma.config.learning import LossSettings
from gem_ma.engines.base import stable_seed
from gem_ma.engines.local.tiny import make_model
from gem_ma.engines.opening import open_engine
from gem_ma.training.learner.rows import rows
from gem_ma.training.learner.torch_learner import TorchLearner
from gem_ma.types import Sampling
from tests.benchmarks.learner import talks


def limit(torch: Any, device: str, dtype: str) -> float:
    """Operations a second of a square matrix product, the best of some widths."""
    best = 0.0
    for width in (2048, 4096, 8192) if device != "cpu" else (512, 1024):
        left, right = (
            torch.randn(width, width, device=device, dtype=getattr(torch, dtype)) for _ in range(2)
        )
        for _ in range(3):
            left @ right
        times = 10
        start = clock(torch, device)
        for _ in range(times):
            left @ right
        best = max(best, 2 * width**3 * times / (clock(torch, device) - start))
    return best


def clock(torch: Any, device: str) -> float:
    """Seconds, once all work of the device is done."""
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--size", default="nano")
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64, help="sampled after each prompt")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        make_model(Path(name, "model"), "referential", size=given.size)
        engine: Any = open_engine(
            "main", f"transformers/{name}/model", device=given.device, dtype=given.dtype
        )
        model = engine.engine
        learner = TorchLearner(model)
        allowed = (model.banned == 0).nonzero()[:, 0].tolist()
        table = credit.turns(talks(given.episodes, 8, allowed, 0), "main")
        made = rows(table, table.ret, "main").rows
        parameters, read = (
            sum(weight.numel() for weight in learner.parameters.values()),
            sum(len(row.ids) for row in made),
        )
        prompts = [tuple(row.ids[:64].tolist()) for row in made]
        ceiling = limit(model.torch, given.device, given.dtype)
        settings = LossSettings(
            minibatches=1, pass_tokens=131_072 if given.device != "cpu" else 16_384
        )
        best = {"update": float("inf"), "sampling": float("inf")}
        sampled = 0
        for repeat in range(given.repeats + 1):  # the first is not counted
            start = clock(model.torch, given.device)
            learner.update(table, table.ret, lr=1e-5, settings=settings, rng=random.Random(0))
            learned = clock(model.torch, given.device) - start
            learner.publish()
            how, seeds = (
                [Sampling(max_tokens=given.tokens)] * len(prompts),
                [stable_seed(repeat, at) for at in range(len(prompts))],
            )
            start = clock(model.torch, given.device)
            draws = model.sample_ids(prompts, how, seeds)
            took = clock(model.torch, given.device) - start
            if repeat:
                best["update"] = min(best["update"], learned)
                if took < best["sampling"]:
                    best["sampling"], sampled = took, sum(len(draw.ids) for draw in draws)
    print(
        f"\n{given.size} model, {parameters:,} parameters, {given.dtype} on {given.device}; limit"
        f" {ceiling / 1e12:.2f} Tera-operations/s\n"
    )
    print(
        "| what | tokens/s | Tera-operations/s | share of the limit |\n| --- | ---: | ---: | ---: |"
    )
    work = {
        "update": (read, 8 * parameters * read),
        "sampling": (sampled, 2 * parameters * (sampled + 64 * len(prompts))),
    }
    for what, (tokens, operations) in work.items():
        done = operations / best[what]
        print(f"| {what} | {tokens / best[what]:.0f} | {done / 1e12:.3f} | {done / ceiling:.1%} |")


if __name__ == "__main__":
    main()
