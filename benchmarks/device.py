"""How near sampling and learning come to what a device can multiply.

    python benchmarks/device.py [--device cuda] [--dtype bfloat16] [--size medium | --model
    FOLDER] [--lora 8] [--episodes 256]

The limit is the best of a few square matrix products of the same type on the same device,
measured here, before and after. On a processor seconds are those of the processor, so a busy
machine may be measured. An update is counted as its products with weights alone: 6 operations a
weight and read position, 4 where the weights are frozen under an adapter (they want no gradient,
and the adapter's own work is not counted), those of the head at trained positions only.
Sampling's as 2 a weight and token, the prompt once. Attention is left out of both, so the share is
a lower bound. Read positions are those that the passes computed: shared prompts once, padding not.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.learner import talks
from gem_ma import credit
from gem_ma.config.learning import LossSettings
from gem_ma.engines.base import open_engine, stable_seed
from gem_ma.engines.local.tiny import make_model
from gem_ma.kernel.types import Sampling
from gem_ma.training.learner.rows import rows
from gem_ma.training.learner.torch_learner import TorchLearner


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
    """Seconds, once all work of the device is done; of a processor those that it worked for us."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


@dataclass(frozen=True, slots=True)
class Parts:
    """Weights of a model by what is computed with them, an adapter's left out: `head` where a
    position is read out, `trunk` everywhere; an embedding is looked up, not multiplied by.
    `frozen`: under an adapter."""

    whole: int
    trunk: int
    head: int
    frozen: bool

    @classmethod
    def of(cls, learner: Any) -> Parts:
        """Of the model that a learner trains."""
        model = learner.engine.model
        trained = sum(weight.numel() for weight in learner.parameters.values())
        whole = sum(weight.numel() for weight in model.parameters())
        head = model.get_output_embeddings().weight.numel()
        frozen = trained < whole
        whole -= trained if frozen else 0
        return cls(
            whole, whole - head * (1 if model.config.tie_word_embeddings else 2), head, frozen
        )

    def of_update(self, read: int, trained: int) -> int:
        """Operations of an update over so many read and trained positions."""
        return (4 if self.frozen else 6) * (self.trunk * read + self.head * trained)

    def of_sampling(self, prompts: int, sampled: int) -> int:
        """Operations of sampling so many tokens after prompts of so many in all."""
        return 2 * (self.trunk * (sampled + prompts) + self.head * sampled)


def updated(
    learner: Any, table: Any, returns: Any, settings: LossSettings, repeats: int
) -> tuple[float, int]:
    """(seconds of the fastest of some updates after the first, positions that one read)."""
    best, device = float("inf"), str(learner.engine.device)
    for repeat in range(repeats + 1):  # the first is not counted
        start = clock(learner.torch, device)
        learner.update(table, returns, lr=1e-5, settings=settings, rng=random.Random(0))
        learned = clock(learner.torch, device) - start
        best = min(best, learned if repeat else float("inf"))
    return best, learner.scorer.used


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--size", default="nano")
    parser.add_argument("--model", help="a folder, instead of a tiny model of that size")
    parser.add_argument("--lora", type=int, help="rank of an adapter, which then learns alone")
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64, help="sampled after each prompt")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if given.model is None:
            make_model(Path(name, "model"), "referential", size=given.size)
        folder = given.model or f"{name}/model"
        adapter = {"lora": {"rank": given.lora}} if given.lora else {}
        engine: Any = open_engine(
            "main", f"transformers/{folder}", device=given.device, dtype=given.dtype, **adapter
        )
        model = engine.engine
        learner = TorchLearner(model)
        allowed = (model.banned == 0).nonzero()[:, 0].tolist()
        table = credit.turns(talks(given.episodes, 8, allowed, 0), "main")
        made = rows(table, table.ret, "main").rows
        parts = Parts.of(learner)
        prompts = [tuple(row.ids[:64].tolist()) for row in made]
        ceiling = limit(model.torch, given.device, given.dtype)
        settings = LossSettings(
            minibatches=1, pass_tokens=131_072 if given.device != "cpu" else 16_384
        )
        trained = sum(int(row.mask.sum()) for row in made)
        sampling, sampled = float("inf"), 0
        # before the updates: weights that are not published are not sampled from
        how = [Sampling(max_tokens=given.tokens)] * len(prompts)
        for repeat in range(given.repeats + 1):
            seeds = [stable_seed(repeat, at) for at in range(len(prompts))]
            model.decoder.forget()  # what is kept would leave nothing to do
            start = clock(model.torch, given.device)
            draws = model.sample_ids(prompts, how, seeds)
            took = clock(model.torch, given.device) - start
            if repeat and took < sampling:
                sampling, sampled = took, sum(len(draw.ids) for draw in draws)
        update, read = updated(learner, table, table.ret, settings, given.repeats)
        ceiling = max(ceiling, limit(model.torch, given.device, given.dtype))
    what = f"{given.model or given.size}" + (f", LoRA of rank {given.lora}" if given.lora else "")
    print(
        f"\n{what}: {parts.whole:,} parameters, {given.dtype} on {given.device}; limit"
        f" {ceiling / 1e9:.0f} Giga-operations/s; {len(made)} rows, {read} positions, {trained} trained\n"
    )
    print("| what | seconds | tokens/s | Giga-operations/s | share of the limit |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, seconds, tokens, operations in (
        ("update", update, read, parts.of_update(read, trained)),
        ("sampling", sampling, sampled, parts.of_sampling(64 * len(prompts), sampled)),
    ):
        done = operations / seconds
        speeds = f"{tokens / seconds:.0f} | {done / 1e9:.0f} | {done / ceiling:.0%}"
        print(f"| {name} | {seconds:.1f} | {speeds} |")


if __name__ == "__main__":
    main()
