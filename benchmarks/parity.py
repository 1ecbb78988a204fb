"""The parity check on a model: how far rounding goes, and how small a fault it finds.

    python benchmarks/parity.py [MODEL] [--dtype float32 bfloat16] [--rates 1e-3 1e-5]
    [--nulls 8] [--lora 8] [--elsewhere]

For each precision and each learning rate a learner takes one step of the optimiser, and is
published to a sampler with weights of its own: first rightly, then with each fault planted. The
fault is as large as that one step, so a small rate says how small a difference is found: `moved`
is how far the step moved the log-probabilities of the probes, in nats and in units of noise.
`share` is what the check found, in parts of what it allows: above 1 the weights are refused, and
what found it stands beside. Without a model a tiny one is made. Rows of `right` are false alarms
where they lie above 1. The row after it is what a look costs. With --elsewhere the sampler is looked at as one at a server: its weights
cannot be read, and its draws cannot be repeated.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from gem_ma.config.learning import LossSettings
from gem_ma.engines.local.sampling import Source
from gem_ma.engines.local.tiny import make_model
from gem_ma.engines.local.transformers import Transformers
from gem_ma.kernel.types import Message, Sampling
from gem_ma.training.learner import probes
from gem_ma.training.learner.probes import glance, measure
from gem_ma.training.learner.rows import Row
from gem_ma.training.learner.torch_learner import TorchLearner

FAULTS = (
    "old weights",
    "one layer off",
    "old head",
    "layers shifted",
    "stale cache",
    "temperature .95",
)
OF_ADAPTERS = ("wrong adapter", "adapter switched off", "another adapter")
SENTENCES = (
    "Guess a number between 1 and {}. Answer with the number alone.",
    "You are in room {}. There is a door to the north and a window to the east. What do you do?",
    (
        "The customer of order {} wants another colour and a refund of the difference. Answer in"
        " one sentence."
    ),
    "Name {} animals, and say which of them can fly.",
)


def prompts(engine: Transformers, seed: int, count: int = 8) -> list[tuple[int, ...]]:
    """Openings of several lengths."""
    rng = random.Random(seed)
    texts = [
        " ".join(rng.choice(SENTENCES).format(rng.randint(2, 99)) for _ in range(rng.randint(1, 4)))
        for _ in range(count)
    ]
    return [engine.chat.render("a", (Message(text),)) for text in texts]


def step(learner: TorchLearner, rate: float, seed: int) -> None:
    """One step of the optimiser on what the sampler says, with advantages by chance."""
    rng, engine, made = random.Random(seed), learner.engine, []
    for at, draw in enumerate(
        learner.sampler.sample_ids(
            learner.probes,
            [Sampling(max_tokens=16)] * len(learner.probes),
            range(len(learner.probes)),
        )
    ):
        ids = np.array([*learner.probes[at], *draw.ids], np.int64)
        mask = np.arange(len(ids)) >= len(learner.probes[at])
        zeros = np.zeros(len(ids))
        made.append(
            Row(
                ("p", 0, at),
                ids,
                mask,
                mask * rng.choice((-1.0, 1.0)),
                zeros,
                np.where(mask, at, -1),
                np.zeros(len(ids), np.int64),
            )
        )
    for group in learner.optimizer.param_groups:
        group["lr"] = rate
    with engine.lock:
        worth = np.concatenate([row.advantage[row.mask] for row in made])
        for pack in learner.scorer.packs(made):
            learner.scorer.learn(
                pack,
                lambda scored: -(scored.logprobs * learner.tensor(worth[scored.order])).sum(),
                added=learner.gather,
            )
    learner.step(LossSettings().grad_clip, 0.0, made)


@contextlib.contextmanager
def planted(fault: str, learner: TorchLearner, before: dict[str, Any]) -> Iterator[None]:
    """Inside, the sampler has the fault; its weights are else those of the learner."""
    sampler: Any = learner.sampler
    weights, layers = learner.parameters, int(sampler.model.config.num_hidden_layers)

    def is_old(name: str) -> bool:
        head = (
            "embed" in name
            or "lm_head" in name
            or (learner.engine.adapter is not None and f".layers.{layers - 1}." in name)
        )
        return {
            "old weights": True,
            "old head": head,
            "one layer off": f".layers.{layers // 2}." in name,
        }.get(fault, False)

    def another(name: str) -> str:
        """The name of the weight that stands where this one belongs: the layers are all one
        place too far up."""
        if fault != "layers shifted":
            return name
        return re.sub(
            r"\.layers\.(\d+)\.", lambda found: f".layers.{(int(found[1]) + 1) % layers}.", name
        )

    if fault == "stale cache":  # all that was computed before is kept over the change
        sampler.take(before)
        sampler.sample_ids(
            learner.probes,
            [Sampling(max_tokens=1)] * len(learner.probes),
            range(len(learner.probes)),
        )
        check = sampler.decoder._check
        sampler.decoder._check = lambda source: None
    sampler.take(
        {name: before[name] if is_old(name) else weights[another(name)] for name in weights}
    )
    adapter, temperature = sampler.adapter, learner.temperature
    source = type(sampler).source
    if fault == "wrong adapter":
        type(sampler).source = property(
            lambda self: Source(None if self is sampler else self.adapter, -1, "wrong")
        )  # type: ignore[assignment]
    route = sampler.decoder.route
    if fault == "adapter switched off":
        sampler.decoder.route = contextlib.nullcontext
    if fault == "another adapter":
        sampler.adapter = sampler.beside("another")
        sampler.take(
            {
                name: weight + 0.02 * weight.std() * (-1) ** at
                for at, (name, weight) in enumerate(weights.items())
            }
        )
    if fault == "temperature .95":
        draw = sampler.decoder.draw
        sampler.decoder.draw = lambda prompt, how, *rest, **more: draw(
            prompt, Sampling(temperature=0.95, max_tokens=how.max_tokens), *rest, **more
        )
    try:
        yield
    finally:
        type(sampler).source, sampler.adapter, learner.temperature = source, adapter, temperature  # type: ignore[assignment]
        sampler.decoder.route = route
        if fault == "stale cache":
            sampler.decoder._check = check
        if fault == "temperature .95":
            sampler.decoder.draw = draw
        sampler.forget()


def opened(
    model: str, dtype: str, lora: dict[str, Any] | None, *, elsewhere: bool = False
) -> TorchLearner:
    """A learner and a sampler apart from it."""
    engine = Transformers(model, policy="main", dtype=dtype, lora=lora)
    learner = TorchLearner(engine.twin(), Sampling(max_tokens=16), sampler=engine)
    if elsewhere:
        learner.repeats = False
    return learner


def table(
    learner: TorchLearner, dtype: str, rates: list[float], nulls: int, lora: dict[str, Any] | None
) -> None:
    """Prints the rows of one precision."""
    engine: Any = learner.sampler
    kind = "all weights" if lora is None else f"LoRA of rank {lora['rank']}"
    for rate in rates:
        learner.remember()
        learner.probes = prompts(engine, 0)
        before = {name: weight.detach().clone() for name, weight in learner.parameters.items()}
        draws = engine.sample_ids(learner.probes, [Sampling(max_tokens=16)] * 8, range(100, 108))
        pairs = [(prompt, draw.ids) for prompt, draw in zip(learner.probes, draws, strict=True)]
        old = np.concatenate(learner.scorer.score(pairs))
        step(learner, rate, seed=1)
        moved = float(np.abs(np.concatenate(learner.scorer.score(pairs)) - old).mean())
        found = []
        full: list[float] = []
        quick: list[float] = []
        for seed in range(nulls):
            learner.probes, learner.sampler.version = prompts(engine, seed), seed
            with planted("none", learner, before):
                started = time.process_time()
                found.append((measure(learner), learner.noise or 0.0))
                full.append(time.process_time() - started)
                started = time.process_time()
                if glance(learner) is not None:  # None: its draws cannot be repeated
                    quick.append(time.process_time() - started)
        right, means = [gap.share for gap, _ in found], [gap.mean / noise for gap, noise in found]
        noise = float(np.median([noise for _, noise in found]))
        where = f"| {dtype}, {kind} | {rate:g} | {moved:.2g} ({moved / noise:.1f} units)"
        spread = (
            f"{np.median(right):.2f}, at most {max(right):.2f} of {nulls}; mean gap"
            f" {np.median(means):.2f} units, at most {max(means):.2f}"
        )
        print(f"{where} | right | {spread} |", flush=True)
        costs = f"a full look {np.median(full):.2f} CPU s"
        costs += f", a glance {np.median(quick):.2f}" if quick else ""
        print(f"{where} | right | {costs} |", flush=True)
        learner.probes = prompts(engine, 0)
        for fault in [*FAULTS, *(OF_ADAPTERS if lora else [])]:
            with planted(fault, learner, before):
                shares = measure(learner).shares
            by = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
            print(f"{where} | {fault} | {max(shares.values()):.2f}: {by} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="a folder; absent = a tiny one, made for this")
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--rates", nargs="+", type=float, default=[1e-3, 1e-5])
    parser.add_argument("--nulls", type=int, default=8)
    parser.add_argument("--lora", type=int, default=0, help="rank of an adapter; 0 = all weights")
    parser.add_argument(
        "--elsewhere",
        action="store_true",
        help="as a sampler at a server: nothing is compared to the last bit",
    )
    given = parser.parse_args()
    start = time.process_time()
    if given.elsewhere:
        probes._unequal = lambda learner: []
    print(
        "| precision, what learns | rate | moved, nats | sampler | share of what is allowed |\n|"
        " --- | ---: | ---: | --- | --- |"
    )
    with tempfile.TemporaryDirectory() as folder:
        if given.model is None:
            make_model(Path(folder, "tiny"), "guess_number", size="tiny")
        for dtype in given.dtype:
            lora = {"rank": given.lora} if given.lora else None
            learner = opened(
                given.model or f"{folder}/tiny", dtype, lora, elsewhere=given.elsewhere
            )
            table(learner, dtype, given.rates, given.nulls, lora)
    print(f"\n{time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()
