"""Behaviour cloning: the warm start of a language model on what scripted behaviours were asked and
answered. Knows demonstrations, no rewards."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gem_ma.config.training import WarmStartSettings
from gem_ma.kernel.errors import ConfigError
from gem_ma.training.learner import Demonstration
from gem_ma.training.learner.forward import Scored
from gem_ma.training.learner.rows import Row
from gem_ma.training.learner.trained import Trained

# Decay, unlike in the updates of reinforcement: hundreds of steps on few examples overfit.
CLONING_DECAY = 0.01
CLONING_WARMUP = 20


def clone(
    learner: Trained, demonstrations: Sequence[Demonstration], settings: WarmStartSettings
) -> dict[str, float]:
    """Maximises the mean log-probability of the demonstrated ids, the end of turn included, by
    AdamW. Metrics: loss (mean over the last tenth), loss_first, demonstrations, tokens (per pass
    over all). Raises ConfigError for no demonstrations, or words that the tokenizer lacks.
    """
    if not demonstrations:
        raise ConfigError(
            f"policy {learner.policy!r}: there are no demonstrations to clone; does its cast seat"
            " its agents?"
        )
    examples = [_example(learner, one) for one in demonstrations]
    # the publish that follows has seen no update yet, so it has no other prompts to check
    learner.probe_with(examples)
    # moments of its own: those of the clone would push the first updates on in its direction
    optimizer = learner.optimizer
    learner.optimizer = learner.new_optimizer(CLONING_DECAY)
    rng = random.Random(f"clone/{settings.seed}")
    losses: list[float] = []
    queue: list[Row] = []
    try:
        with learner.engine.lock:
            for step in range(settings.steps):
                # shuffled decks one after another: every example is learned equally often
                while len(queue) < settings.batch:
                    queue += rng.sample(examples, len(examples))
                batch = queue[: settings.batch]
                queue = queue[settings.batch :]
                for group in learner.optimizer.param_groups:
                    group["lr"] = settings.lr * _cosine(step, settings.steps)
                losses.append(_imitate(learner, batch))
    finally:
        learner.optimizer = optimizer
    return {
        "loss": float(np.mean(losses[-max(1, len(losses) // 10) :])),
        "loss_first": losses[0],
        "demonstrations": float(len(examples)),
        "tokens": float(sum(int(row.mask.sum()) for row in examples)),
    }


def listens(learner: Trained, examples: Sequence[Demonstration]) -> float | None:
    """By how many nats a clone finds a demonstrated answer likelier after its own observation than
    after another one; None where no two demonstrations can be compared.

    Observations are exchanged between demonstrations of one agent at one turn with the same legal
    strings and tools, whose answers differ: what is public mostly agrees there. At 0 the clone is
    deaf to what it is shown. Meant for demonstrations that were not cloned.
    """
    kinds: dict[object, list[Demonstration]] = {}
    for example in examples:
        asked = example.request
        turn = sum(message.sender == asked.agent for message in asked.messages)
        kinds.setdefault((asked.agent, turn, asked.legal, asked.tools), []).append(example)
    pairs = []
    for alike in kinds.values():
        for number, example in enumerate(alike):
            # the next one that was answered otherwise, round the list: each is used about as often
            others = alike[number + 1 :] + alike[:number]
            said = (example.text, example.calls)
            other = next((one for one in others if (one.text, one.calls) != said), None)
            if other is not None:
                # the same answer after both observations, so its length and wording cancel
                asked_other = replace(example, request=other.request)
                pairs += [_example(learner, example), _example(learner, asked_other)]
    if not pairs:
        return None
    scores = learner.score(
        [(row.ids[: int(row.mask.argmax())].tolist(), row.ids[row.mask].tolist()) for row in pairs]
    )
    right, wrong = (np.array([row.sum() for row in scores[start::2]]) for start in (0, 1))
    return float((right - wrong).mean())


def _imitate(learner: Trained, batch: list[Row]) -> float:
    """One step on a batch; its loss, in nats a token."""
    # of the whole batch, not of a chunk: chunks must add up to one mean
    count = sum(int(row.mask.sum()) for row in batch)
    total = 0.0

    def loss(scored: Scored) -> Any:
        nonlocal total
        part = -scored.logprobs.sum() / count
        total += float(part.detach())
        return part

    for pack in learner.scorer.packs(batch):
        learner.scorer.learn(pack, loss, added=learner.gather)
    # each process had a share of the packs; the gradients are summed in `step`
    (total,) = learner.scorer.team.sum(np.array([total])).tolist()
    learner.step(1.0, total, batch)
    return total


def _example(learner: Trained, demonstration: Demonstration) -> Row:
    """A demonstration as a row, whose answer is trained. Raises ConfigError where it does not fit
    the model."""
    request = demonstration.request
    chat = learner.engine.chat
    prompt = chat.render(request.agent, request.messages, request.tools)
    prompt = learner.with_pictures(prompt, request.messages)
    target = chat.answer(demonstration.text, demonstration.calls, request.tools)
    if bool((learner.engine.banned[list(target)] < 0).any()):
        said = demonstration.text or str(demonstration.calls)
        raise ConfigError(
            f"policy {learner.policy!r}: the tokenizer of {learner.engine.path} has no word for"
            f" part of {said!r}; make the model for what it plays: gem-ma new model PATH"
            " --scenario ID --tool NAME"
        )
    if len(prompt) + len(target) > learner.engine.positions:
        raise ConfigError(
            f"policy {learner.policy!r}: a demonstration has {len(prompt) + len(target)} tokens,"
            f" the model has {learner.engine.positions} positions"
        )
    bound = learner.engine.binding.allowed(request.legal, target, request.tools)
    # the name of a request, in place of an episode's: messages name what was not finite
    return Row.of((request.conversation, request.seed, request.turn), prompt, target, bound)


def _cosine(step: int, steps: int) -> float:
    """Share of the rate at a step: a short rise, since Adam's first steps are as long as its later
    ones and know least; then it falls to 0 along a cosine."""
    warmup = min(CLONING_WARMUP, steps // 2)  # a short clone must still fall
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))
