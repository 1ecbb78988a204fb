"""The learner's update beside a naive padded loop, on ragged episodes of many turns.

    python benchmarks/learner.py [--size nano|tiny|word] [--scenario retail] [--episodes 64]
    [--repeats 3]

Both compute the same update: clipped policy gradient at a token ratio, 4 minibatches cut by
episode, log-probabilities of before recomputed once, AdamW, gradient clip 1; the loss of both is
compared. The naive loop is what is written first: a batch padded to its longest row, logits and
log-softmax over every position. `a row an episode` gives it rows that grow with the talk; `a row
a turn` has each turn read its whole prompt again, as trainers of single turns do. Loops take
turns in one run; the best of the repeats counts.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from gem_ma import credit
from gem_ma.config.learning import LossSettings
from gem_ma.engines.base import open_engine
from gem_ma.engines.local.tiny import make_model
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.types import Action, Reply, Turn
from gem_ma.training.learner.rows import Row, rows
from gem_ma.training.learner.torch_learner import TorchLearner

MINIBATCHES = 4


def talks(count: int, group: int, vocabulary: Sequence[int], seed: int) -> list[Episode]:
    """Ragged talks of 1 to 12 turns, `group` of them on one opening: 20 to 80 ids to read and 4
    to 40 to say at each turn."""
    rng = random.Random(seed)

    def ids(low: int, high: int) -> tuple[int, ...]:
        return tuple(rng.choices(vocabulary, k=rng.randint(low, high)))

    made = []
    for number in range(count):
        if number % group == 0:
            opening = ids(20, 80)
        prompt, turns = opening, []
        for step in range(rng.randint(1, 12)):
            said = ids(4, 40)
            reply = Reply(
                "",
                prompt_ids=prompt,
                token_ids=said,
                logprobs=tuple(rng.uniform(-9, -6) for _ in said),
                finish="stop",
                policy="main",
            )
            turns.append(Turn(step, "a", (), None, (), Action(""), (reply,)))
            prompt = (*prompt, *said, *ids(20, 80))
        ledger = (Entry(len(turns) - 1, "a", rng.gauss(0, 1), "played"),)
        seat, shared = {"a": Seat("direct", "main")}, f"{number // group}"
        made.append(
            Episode(
                "talks",
                1,
                number,
                "train/0",
                0,
                shared,
                seat,
                tuple(turns),
                (),
                (),
                {},
                ledger,
                End.TERMINATED,
            )
        )
    return made


def naive(
    learner: TorchLearner,
    chosen: Sequence[Row],
    settings: LossSettings,
    order: Sequence[Sequence[int]],
    lr: float,
) -> float:
    """The update over padded batches; the mean loss of its minibatches."""
    torch = learner.torch
    for group in learner.optimizer.param_groups:
        group["lr"] = lr

    def padded(batch: Sequence[Row]) -> tuple[Any, Any, Any]:
        width = max(len(row.ids) for row in batch)
        filled = [np.zeros((len(batch), width), kind) for kind in (np.int64, np.bool_, np.float32)]
        for at, row in enumerate(batch):
            for target, values in zip(filled, (row.ids, row.mask, row.advantage), strict=True):
                target[at, : len(row.ids)] = values
        return tuple(map(torch.from_numpy, filled))

    def logprobs(ids: Any) -> Any:
        logits = (
            learner.engine.model(ids, use_cache=False).logits[:, :-1].float()
            + learner.engine.banned
        )
        return logits.log_softmax(-1).gather(2, ids[:, 1:, None])[:, :, 0]

    batches = [padded([chosen[at] for at in part]) for part in order]
    with torch.no_grad():
        old = [logprobs(ids) for ids, _, _ in batches]
    losses = []
    for (ids, mask, advantage), before, part in zip(batches, old, order, strict=True):
        turns = len({int(turn) for at in part for turn in chosen[at].turn[chosen[at].mask]})
        trained = mask[:, 1:]
        ratio, worth = (logprobs(ids) - before)[trained].exp(), advantage[:, 1:][trained]
        loss = (
            -torch.minimum(
                ratio * worth, ratio.clamp(1 - settings.clip, 1 + settings.clip) * worth
            ).sum()
            / turns
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learner.parameters.values(), settings.grad_clip)
        learner.optimizer.step()
        learner.optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
    return float(np.mean(losses))


def cut_by_turn(chosen: Sequence[Row]) -> list[Row]:
    """Each turn a row of its own, with all that lies before it as its prompt."""
    made = []
    for row in chosen:
        for turn in dict.fromkeys(row.turn[row.mask].tolist()):
            own = row.turn == turn
            end = int(np.flatnonzero(own)[-1]) + 1
            columns = (
                np.where(own, row.advantage, 0.0),
                row.logprob,
                np.where(own, row.turn, -1),
                row.version,
            )
            made.append(
                Row(row.episode, row.ids[:end], own[:end], *(column[:end] for column in columns))
            )
    return made


def by_episode(chosen: Sequence[Row], rng: random.Random) -> list[list[int]]:
    """The minibatches that the learner cuts."""
    owners: dict[Any, list[int]] = {}
    for at, row in enumerate(chosen):
        owners.setdefault(row.episode, []).append(at)
    episodes = list(owners)
    rng.shuffle(episodes)
    return [
        [at for episode in episodes[part::MINIBATCHES] for at in owners[episode]]
        for part in range(MINIBATCHES)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", default="nano", choices=("word", "nano", "tiny"))
    parser.add_argument(
        "--scenario",
        default="retail",
        help="whose words the tokenizer knows; decides the size of the vocabulary",
    )
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    settings, lr = LossSettings(minibatches=MINIBATCHES), 1e-3
    with tempfile.TemporaryDirectory() as name:
        make_model(Path(name, "model"), given.scenario, size=given.size)
        allowed = (open_learner(name).engine.banned == 0).nonzero()[:, 0].tolist()
        table = credit.turns(talks(given.episodes, given.group, allowed, 0), "main")
        advantages = table.ret - table.ret.mean()
        whole = rows(table, advantages, "main")
        loops: dict[str, Callable[[TorchLearner], float]] = {
            "padded, a row a turn": lambda one: padded_update(
                one, cut_by_turn(whole.rows), settings, lr
            ),
            "padded, a row an episode": lambda one: padded_update(one, whole.rows, settings, lr),
            "packed": lambda one: one.update(
                table, advantages, lr=lr, settings=settings, rng=random.Random(0)
            )["loss"],
        }
        best: dict[str, float] = {}
        losses: dict[str, float] = {}
        for _ in range(given.repeats):
            for label, loop in loops.items():
                learner = open_learner(name)
                start = time.process_time()
                losses[label] = loop(learner)
                best[label] = min(best.get(label, float("inf")), time.process_time() - start)
    read, longest = sum(len(row.ids) for row in whole.rows), max(len(row.ids) for row in whole.rows)
    print(
        f"\n{given.size} model, {len(allowed)} words; {given.episodes} episodes, {len(table.turns)}"
        " turns, ",
        end="",
    )
    print(f"{whole.tokens} trained tokens of {read}; longest row {longest}\n")
    print(
        "| loop | CPU s an update | trained tokens/s | of the packed | loss |\n| --- | ---: | ---:"
        " | ---: | ---: |"
    )
    for label, seconds in best.items():
        print(
            f"| {label} | {seconds:.2f} | {whole.tokens / seconds:.0f} |"
            f" {best['packed'] / seconds:.2f} | {losses[label]:.5f} |"
        )


def padded_update(
    learner: TorchLearner, chosen: Sequence[Row], settings: LossSettings, lr: float
) -> float:
    """The naive update on the minibatches that the learner would cut."""
    return naive(learner, chosen, settings, by_episode(chosen, random.Random(0)), lr)


def open_learner(folder: str) -> TorchLearner:
    """A learner of the model in a folder, with fresh weights."""
    engine: Any = open_engine("main", f"transformers/{folder}/model")
    return TorchLearner(engine.engine)


if __name__ == "__main__":
    main()
