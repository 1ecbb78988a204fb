"""The learner's update beside the one of TRL's GRPOTrainer: the same tiny model, the same token
rows, the same rewards and settings, in one run.

    make benchmark-trl python benchmarks/trl_update.py [--rows ragged even single] [--rounds
    5] [--size nano|tiny|word] [--batch 16]

Both take one GRPO step over the same rows: groups of 8 on one opening, advantages over the group's
standard deviation, token ratio, clip .2, no KL, AdamW, gradient clip 1, one optimiser step a batch,
float32. Three kinds of rows, since what is fast on one is not on another:

- ragged: 64 talks of 1 to 12 turns. Here TRL pays for padding: it pads every part of a batch to the
  longest row of the whole batch, whatever `--batch` is, and computes logits at all positions after
  the prompt.
- even: 64 talks of 6 turns, all words of one length, so that nobody pads.
- single: 8 replies of 256 tokens after a prompt, over a vocabulary of 151,936: here all is in the
  logits.

TRL is given the rows as its `rollout_func` allows: ids, a mask of what the policy sampled,
log-probabilities; so neither side samples, and each update is measured from finished episodes to
moved weights, TRL's own metrics and our publication with its parity check included. The two take
turns; the first update of each is not counted, and medians are shown: of CPU seconds of the
process, since others use the machine, and of wall.
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

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.learner import talks
from gem_ma import credit
from gem_ma.config.learning import LossSettings
from gem_ma.credit.estimators import estimate
from gem_ma.engines.base import open_engine
from gem_ma.engines.local.tiny import make_model
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.types import Action, Reply, Turn
from gem_ma.training.learner.rows import rows
from gem_ma.training.learner.torch_learner import TorchLearner

GROUP, LR, WIDE = 8, 1e-4, 151_936
Time = tuple[float, float]  # CPU seconds of the process, wall seconds


def now() -> Time:
    return time.process_time(), time.perf_counter()


def since(start: Time) -> Time:
    return time.process_time() - start[0], time.perf_counter() - start[1]


def regular(
    count: int, vocabulary: list[int], seed: int, turns: int, heard: int, words: int
) -> list[Episode]:
    """Talks of one shape: at each of `turns` turns `heard` ids to read and `words` to say."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        if number % GROUP == 0:
            opening = tuple(rng.choices(vocabulary, k=heard))
        prompt, done = opening, []
        for step in range(turns):
            ids = tuple(rng.choices(vocabulary, k=words))
            reply = Reply(
                "",
                prompt_ids=prompt,
                token_ids=ids,
                logprobs=tuple(rng.uniform(-9, -6) for _ in ids),
                finish="stop",
                policy="main",
            )
            done.append(Turn(step, "a", (), None, (), Action(""), (reply,)))
            prompt = (*prompt, *ids, *rng.choices(vocabulary, k=heard))
        ledger = (Entry(turns - 1, "a", rng.gauss(0, 1), "played"),)
        seat, shared = {"a": Seat("direct", "main")}, f"{number // GROUP}"
        made.append(
            Episode(
                "talks",
                1,
                number,
                "train/0",
                0,
                shared,
                seat,
                tuple(done),
                (),
                (),
                {},
                ledger,
                End.TERMINATED,
            )
        )
    return made


def widened(folder: Path, vocabulary: int) -> None:
    """Gives the model of a folder so many ids, as pretrained ones have. Its tokenizer has no
    words for most of them; see `opened`."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    model.resize_token_embeddings(vocabulary, mean_resizing=False)
    model.save_pretrained(folder)


def opened(folder: str, dtype: str = "float32") -> TorchLearner:
    """A learner of the model in a folder. Ids that its tokenizer has no word for count as words,
    or there would be no wide vocabulary."""
    engine: Any = open_engine("main", f"transformers/{folder}/model", dtype=dtype)
    engine.engine.banned[len(engine.engine.tokenizer) :] = 0
    return TorchLearner(engine.engine)


def settings() -> LossSettings:
    return LossSettings(minibatches=1, aggregation="token_mean")


def ours(folder: str, batches: list[list[Episode]]) -> Iterator[Time]:
    """What each update of gem_ma takes."""
    learner = opened(folder)
    for episodes in batches:
        start = now()
        table = credit.turns(episodes, "main")
        advantages, _ = estimate("grpo", table)
        learner.update(table, advantages, lr=LR, settings=settings(), rng=random.Random(0))
        learner.publish()
        yield since(start)


def as_rollout(episodes: list[Episode]) -> dict[str, Any]:
    """What `rollout_func` gives TRL for these talks: a row of tokens each, and what was paid."""
    table = credit.turns(episodes, "main")
    rows_of_talks = rows(table, table.ret, "main").rows
    cut = [(row, int(row.mask.argmax())) for row in rows_of_talks]
    return {
        "prompt_ids": [row.ids[:at].tolist() for row, at in cut],
        "completion_ids": [row.ids[at:].tolist() for row, at in cut],
        "logprobs": [row.logprob[at:].tolist() for row, at in cut],
        "env_mask": [row.mask[at:].astype(int).tolist() for row, at in cut],
        "paid": [sum(entry.value for entry in episode.ledger) for episode in episodes],
    }


def theirs(folder: str, batches: list[list[Episode]], part: int, scratch: str) -> Iterator[Time]:
    """What each update of GRPOTrainer takes, measured at the ends of its optimiser steps,
    without the time of its `rollout_func`."""
    import transformers
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    transformers.utils.logging.set_verbosity_error()
    os.environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "WANDB_MODE": "disabled"}
    count, waiting, clock = len(batches[0]), iter(batches), {"start": (0.0, 0.0)}
    go: Queue[bool] = Queue()
    done: Queue[Time | Exception] = Queue()

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        go.get()
        episodes = next(waiting)
        given = as_rollout(episodes)
        clock["start"] = now()
        return given

    class Ended(transformers.TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            done.put(since(clock["start"]))

    how = GRPOConfig(
        output_dir=scratch, max_steps=len(batches), per_device_train_batch_size=part, gradient_accumulation_steps=count // part,
        num_generations=GROUP, learning_rate=LR, lr_scheduler_type="constant", beta=0.0, epsilon=0.2, loss_type="dapo",
        scale_rewards="group", max_grad_norm=1.0, adam_beta1=0.9, adam_beta2=0.95, weight_decay=0.0, temperature=1.0, max_completion_length=4096,
        shuffle_dataset=False, use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=False, report_to=[],
        save_strategy="no", logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    tokenizer = transformers.AutoTokenizer.from_pretrained(f"{folder}/model")
    model = transformers.AutoModelForCausalLM.from_pretrained(f"{folder}/model", dtype="float32")
    trainer = GRPOTrainer(
        model=model, processing_class=tokenizer, args=how, train_dataset=Dataset.from_list([{"prompt": "x"}] * count), rollout_func=rollout,
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


def batches_of(kind: str, allowed: list[int], count: int) -> list[list[Episode]]:
    """The rows of every round."""
    if kind == "ragged":
        return [talks(64, GROUP, allowed, seed) for seed in range(count)]
    if kind == "even":
        return [regular(64, allowed, seed, turns=6, heard=50, words=22) for seed in range(count)]
    return [regular(GROUP, allowed, seed, turns=1, heard=50, words=256) for seed in range(count)]


def compared(kind: str, size: str, rounds: int, part: int) -> str:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as name:
        make_model(Path(name, "model"), "referential", size=size)
        if kind == "single":
            widened(Path(name, "model"), WIDE)
        allowed = (opened(name).engine.banned == 0).nonzero()[:, 0].tolist()
        batches = batches_of(kind, allowed, rounds + 1)
        one, other = ours(name, batches), theirs(name, batches, part, f"{name}/trl")
        pairs = [
            (next(other), next(one))[::-1] if at % 2 else (next(one), next(other))
            for at in range(len(batches))
        ][1:]
        trained = [
            rows(table, table.ret, "main").tokens
            for table in (credit.turns(episodes, "main") for episodes in batches[1:])
        ]
    cpu, wall = (
        [statistics.median(times[which] for times in side) for side in zip(*pairs, strict=True)]
        for which in (0, 1)
    )
    factor = statistics.median(theirs[0] / ours[0] for ours, theirs in pairs)
    tokens = f"{statistics.mean(trained):.0f}"
    return (
        f"| {kind} | {tokens} | {cpu[0]:.2f} | {cpu[1]:.2f} | **{factor:.2f}** | {wall[0]:.2f} |"
        f" {wall[1]:.2f} | {wall[1] / wall[0]:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows",
        nargs="+",
        default=["ragged", "even", "single"],
        choices=("ragged", "even", "single"),
    )
    parser.add_argument("--size", default="nano", choices=("word", "nano", "tiny"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--batch",
        type=int,
        default=16,
        help="rows of one part of TRL; 4 at most over the wide vocabulary",
    )
    given = parser.parse_args()
    try:
        import trl
    except ImportError:
        print(
            "trl is not installed, so there is nothing to compare with: make benchmark-trl makes an"
            " environment for it"
        )
        return
    print(
        f"{given.size} model, medians of {given.rounds} rounds that take turns, TRL"
        f" {trl.__version__}; one update, seconds\n"
    )
    print(
        "| rows | trained tokens | gem_ma, CPU s | TRL, CPU s | TRL / gem_ma | gem_ma, wall s |"
        " TRL, wall s | TRL / gem_ma |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for kind in given.rows:
        print(
            compared(
                kind,
                given.size,
                given.rounds,
                min(given.batch, 4) if kind == "single" else given.batch,
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
