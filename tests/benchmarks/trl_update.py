"""The learner's update beside the one of TRL's GRPOTrainer: the same tiny model, the same token rows, the same rewards and settings, in one run.

    pip install trl; python tests/benchmarks/trl_update.py [--size nano|tiny|word] [--episodes 64] [--steps 6] [--batch 16]

Both take one GRPO step over the same ragged talks of many turns: groups of 8 on one opening, advantages over the group's standard deviation, token
ratio, clip .2, no KL, AdamW, gradient clip 1, one optimiser step a batch, float32. TRL is given the rows as its `rollout_func` allows: ids, a mask
of what the policy sampled, log-probabilities; so neither side samples here, and each update is timed from finished episodes to moved weights,
TRL's own metrics and our publication with its parity check included. TRL takes the batch in parts of `--batch` rows, since one part would
be padded to the longest of all (`--batch 64` shows it). The two take turns; the first update of each is not counted, and the median is shown.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from gem_ma import credit
from gem_ma.engines.tiny import make_model
from gem_ma.estimators import estimate
from gem_ma.settings import LossSettings
from gem_ma.training.rows import Row, rows
from gem_ma.types import Episode
from tests.benchmarks.learner import open_learner, talks

GROUP, LR = 8, 1e-4


def ours(folder: str, batches: list[list[Episode]]) -> Iterator[float]:
    """Seconds of each update of gem_ma."""
    learner = open_learner(folder)
    for episodes in batches:
        start = time.perf_counter()
        table = credit.turns(episodes, "main")
        advantages, _ = estimate("grpo", table)
        learner.update(table, advantages, lr=LR, settings=LossSettings(minibatches=1, aggregation="token_mean"), rng=random.Random(0))
        learner.publish()
        yield time.perf_counter() - start


def theirs(folder: str, batches: list[list[Episode]], part: int, scratch: str) -> Iterator[float]:
    """Seconds of each update of GRPOTrainer, taken at the ends of its optimiser steps, without the time of its `rollout_func`."""
    import transformers
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    transformers.utils.logging.set_verbosity_error()
    os.environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "WANDB_MODE": "disabled"}
    count, waiting, clock = len(batches[0]), iter(batches), {"start": 0.0}
    go: Queue[bool] = Queue()
    done: Queue[float | Exception] = Queue()
    current: list[Row] = []

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        go.get()
        episodes = next(waiting)
        table = credit.turns(episodes, "main")
        current[:] = rows(table, table.ret, "main").rows
        starts = [int(row.mask.argmax()) for row in current]
        given = {
            "prompt_ids": [row.ids[:at].tolist() for row, at in zip(current, starts, strict=True)],
            "completion_ids": [row.ids[at:].tolist() for row, at in zip(current, starts, strict=True)],
            "logprobs": [row.logprob[at:].tolist() for row, at in zip(current, starts, strict=True)],
            "env_mask": [row.mask[at:].astype(int).tolist() for row, at in zip(current, starts, strict=True)],
            "paid": [sum(entry.value for entry in episode.ledger) for episode in episodes],
        }
        clock["start"] = time.perf_counter()
        return given

    class Ended(transformers.TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            done.put(time.perf_counter() - clock["start"])

    settings = GRPOConfig(
        output_dir=scratch, max_steps=len(batches), per_device_train_batch_size=part, gradient_accumulation_steps=count // part,
        num_generations=GROUP, learning_rate=LR, lr_scheduler_type="constant", beta=0.0, epsilon=0.2, loss_type="dapo",
        scale_rewards="group", max_grad_norm=1.0, adam_beta1=0.9, adam_beta2=0.95, weight_decay=0.0, temperature=1.0, max_completion_length=4096,
        shuffle_dataset=False, use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=False, report_to=[],
        save_strategy="no", logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    tokenizer = transformers.AutoTokenizer.from_pretrained(f"{folder}/model")
    model = transformers.AutoModelForCausalLM.from_pretrained(f"{folder}/model", dtype="float32")
    trainer = GRPOTrainer(
        model=model, processing_class=tokenizer, args=settings, train_dataset=Dataset.from_list([{"prompt": "x"}] * count), rollout_func=rollout,
        reward_funcs=lambda paid, **_: paid, callbacks=[Ended()],
    )  # fmt: skip

    def run() -> None:
        try:
            trainer.train()
        except Exception as error:  # told by the thread that waits
            done.put(error)

    threading.Thread(target=run, daemon=True).start()
    for _ in batches:
        go.put(True)
        took = done.get()
        if isinstance(took, Exception):
            raise took
        yield took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="nano", choices=("word", "nano", "tiny"))
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=16)
    given = parser.parse_args()
    try:
        import trl
    except ImportError:
        print("trl is not installed, so there is nothing to compare with: pip install trl")
        return
    with tempfile.TemporaryDirectory() as name:
        make_model(Path(name, "model"), "referential", size=given.size)
        allowed = (open_learner(name).engine.banned == 0).nonzero()[:, 0].tolist()
        batches = [talks(given.episodes, GROUP, allowed, seed) for seed in range(given.steps)]
        pairs = list(zip(ours(name, batches), theirs(name, batches, given.batch, f"{name}/trl"), strict=True))[1:]
        trained = [rows(table, table.ret, "main").tokens for table in (credit.turns(episodes, "main") for episodes in batches[1:])]
    print(f"\n{given.size} model, {given.episodes} episodes an update, about {statistics.mean(trained):.0f} trained tokens\n")
    print("| update of | median, s | trained tokens/s | against TRL |\n| --- | ---: | ---: | ---: |")
    medians = {"gem_ma": statistics.median(ours for ours, _ in pairs), f"TRL {trl.__version__}": statistics.median(theirs for _, theirs in pairs)}
    for label, seconds in medians.items():
        print(f"| {label} | {seconds:.2f} | {statistics.mean(trained) / seconds:.0f} | {list(medians.values())[1] / seconds:.2f} |")


if __name__ == "__main__":
    main()
