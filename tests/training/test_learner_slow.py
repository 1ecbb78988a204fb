"""The whole loss of an update against a loop over single tokens: every ratio, every aggregation,
with clipping, weights, reference and entropy.

The slow side reads turns and replies, never rows or packs, and takes its own optimiser steps.
Old log-probabilities are those before the first of two steps, so that in the second one the
ratios are not 1 and some are clipped.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gem_ma import Ask, Scenario, credit, make
from gem_ma.config.learning import LossSettings
from gem_ma.credit.table import TurnTable
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy, open_engine
from gem_ma.engines.batching import Batched
from gem_ma.engines.small.table import Table
from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.types import Sampling, Turn
from gem_ma.training.learner.losses import AGGREGATIONS, RATIOS
from gem_ma.training.learner.table_learner import TableLearner

torch = pytest.importorskip("torch", reason="needs the train extra")

from gem_ma.training.learner.torch_learner import TorchLearner  # noqa: E402
from tests.plays import learn, played_all  # noqa: E402

CLIP, ENTROPY, KL, CAP, LONGEST = 0.02, 0.03, 0.2, 1.15, 4
# each with the keys that it may disturb
MORE: tuple[dict[str, Any], ...] = (
    {"clip_high": 0.05},
    {"surrogate": "cispo", "clip_high": 0.03},
)


def learner_of(path: Path) -> TorchLearner:
    engine: Any = open_engine("main", f"transformers/{path}")
    learner = TorchLearner(engine.engine, Sampling(max_tokens=LONGEST))
    # so that a step is the gradient itself
    learner.optimizer = torch.optim.SGD(learner.parameters.values(), lr=1.0)
    return learner


def played(policy: Policy, scenario: Scenario, count: int) -> list[Episode]:
    cast = {agent: Seat("direct", "main") for agent in scenario.agents}

    plans = [Plan(scenario, cast, seed=seed) for seed in range(count)]

    return played_all(plans, {"main": policy}, deterministic=True)


def batch(
    learner: TorchLearner, scenario: Scenario, count: int = 5
) -> tuple[TurnTable, np.ndarray[Any, Any]]:
    """Turns whose engine was off by a noise of its own at every token, and an advantage for
    each."""
    table = credit.turns(
        played(
            Policy("main", Batched(learner.engine), Sampling(max_tokens=LONGEST)), scenario, count
        ),
        "main",
    )
    rng = np.random.default_rng(0)

    def off(turn: Turn) -> Turn:
        shifted = tuple(
            replace(
                reply,
                logprobs=tuple(np.array(reply.logprobs) + rng.normal(0, 0.1, len(reply.logprobs))),
            )
            for reply in turn.replies
        )
        return replace(turn, replies=shifted)

    return replace(table, turns=tuple(off(turn) for turn in table.turns)), rng.normal(
        size=len(table)
    )


def gradient_of(
    learner: TorchLearner, table: Any, advantages: Any, lr: float = 1.0, **settings: Any
) -> dict[str, Any]:
    """What one update takes off the weights."""
    before = {name: weight.detach().clone() for name, weight in learner.parameters.items()}
    how = LossSettings(minibatches=1, grad_clip=1e9, **settings)
    learner.update(table, np.asarray(advantages), lr=lr, settings=how, rng=random.Random(0))
    return {name: before[name] - weight.detach() for name, weight in learner.parameters.items()}


# -- the slow side -------------------------------------------------------------------------------


def distributions(learner: TorchLearner, turn: Turn) -> list[tuple[Any, Any]]:
    """(log-probability of the sampled id, entropy of all ids) of each token of a turn, by one
    forward pass per reply: no padding, no packing, no cache."""
    found = []
    for reply in turn.replies:
        read = [*reply.prompt_ids, *reply.token_ids[:-1]]
        logits = learner.engine.model(torch.tensor([read]), use_cache=False).logits[0]
        after = logits[len(reply.prompt_ids) - 1 :] + learner.engine.banned
        for logprobs, token in zip(after.log_softmax(-1), reply.token_ids, strict=True):
            allowed = logprobs[torch.isfinite(logprobs)]
            found.append((logprobs[token], -(allowed.exp() * allowed).sum()))
    return found


def slow_loss(
    table: Any,
    advantages: Any,
    now: list[list[tuple[Any, Any]]],
    old: list[list[float]],
    start: list[list[float]],
    how: LossSettings,
) -> Any:
    ratio, aggregation = how.ratio, how.aggregation
    high = how.clip if how.clip_high is None else how.clip_high
    parts: dict[Any, list[int]] = {}
    for n, (episode, turn) in enumerate(zip(table.episodes, table.turns, strict=True)):
        parts.setdefault((episode.id, turn.agent), []).append(n)
    mine = {n: turns for turns in parts.values() for n in turns}
    sampled = [[p for reply in turn.replies for p in reply.logprobs] for turn in table.turns]

    def unit(n: int, token: int) -> list[tuple[int, int]]:
        """The tokens whose ratio is taken together with this one's."""
        whole = {"token": [], "episode": mine[n], "episode_mean": mine[n]}.get(ratio, [n])
        return [(m, at) for m in whole for at in range(len(old[m]))] or [(n, token)]

    def ratio_of(tokens: Sequence[tuple[int, int]], above: Any, below: Any) -> Any:
        drift = sum(above(m, at) - below(m, at) for m, at in tokens)
        return (drift / len(tokens) if ratio.endswith("mean") else drift).exp()

    def objective(n: int, token: int) -> Any:
        tokens = unit(n, token)
        rho = ratio_of(tokens, lambda m, at: now[m][at][0], lambda m, at: old[m][at])
        weight = min(
            float(
                ratio_of(
                    tokens, lambda m, at: torch.tensor(old[m][at]), lambda m, at: sampled[m][at]
                )
            ),
            CAP,
        )
        worth = float(advantages[n]) * weight
        if how.surrogate == "cispo":
            drift = sum(now[m][at][0] - (ratio != "token") * old[m][at] for m, at in tokens)
            length = len(tokens) if ratio.endswith("mean") else 1
            return rho.detach().clamp(max=1 + high) * worth * drift / length
        return torch.minimum(rho * worth, rho.clamp(1 - how.clip, 1 + high) * worth)

    terms = [[objective(n, token) for token in range(len(old[n]))] for n in range(len(old))]
    count, tokens = len(terms), sum(map(len, terms))
    if ratio != "token":  # a turn counts once
        total = sum(one[0] for one in terms) / count
    elif aggregation == "turn_mean":
        total = sum(sum(one) / len(one) for one in terms) / count
    else:
        below = {
            "turn_sum": count,
            "token_mean": tokens,
            "constant": count * LONGEST,
            "episode_sum": len(parts),
        }[aggregation]
        total = sum(sum(one) for one in terms) / below
    spread = sum(entropy for one in now for _, entropy in one) / tokens
    gaps = [start[n][at] - lp for n, one in enumerate(now) for at, (lp, _) in enumerate(one)]
    away = sum(gap.exp() - gap - 1 for gap in gaps) / tokens
    return -total - ENTROPY * spread + KL * away


@pytest.mark.long
@pytest.mark.parametrize(
    ("ratio", "aggregation"),
    [*(("token", one) for one in AGGREGATIONS), *((one, "turn_sum") for one in RATIOS[1:])],
)
def test_two_steps_of_every_ratio_and_aggregation_equal_a_loop_over_tokens(
    ratio: str, aggregation: str, thin_model: Path
) -> None:
    two_steps(ratio, aggregation, {}, thin_model)


@pytest.mark.long
@pytest.mark.parametrize("how", [("turn_mean", "turn_sum"), ("token", "turn_mean")], ids=str)
def test_turns_of_many_tokens_are_weighed_as_such(how: tuple[str, str], byte_model: Path) -> None:
    two_steps(*how, {}, byte_model)


@pytest.mark.long
@pytest.mark.parametrize("more", MORE, ids=lambda keys: "-".join(keys))
@pytest.mark.parametrize("ratio", ["token", "turn_sum", "episode_mean"])
def test_two_steps_of_every_other_loss_equal_a_loop_over_tokens(
    ratio: str, more: dict[str, Any], thin_model: Path
) -> None:
    two_steps(ratio, "turn_sum", more, thin_model)


def two_steps(ratio: str, aggregation: str, more: dict[str, Any], model: Path) -> None:
    fast, slow = learner_of(model), learner_of(model)
    table, advantages = batch(fast, make("kuhn_poker"))
    lr = 0.3 if ratio == "token" and aggregation in ("token_mean", "turn_mean", "constant") else 0.1
    how: Any = {
        "ratio": ratio,
        "aggregation": aggregation,
        "clip": CLIP,
        "tis": CAP,
        "entropy": ENTROPY,
        "kl": KL,
        "epochs": 2,
        "minibatches": 1,
        **more,
    }
    old: list[list[float]] = []
    losses = []
    for _ in range(2):
        now = [distributions(slow, turn) for turn in table.turns]
        old = old or [[float(logprob.detach()) for logprob, _ in turn] for turn in now]
        loss = slow_loss(table, advantages, now, old, old, LossSettings(**how))
        losses.append(float(loss.detach()))
        loss.backward()
        slow.optimizer.param_groups[0]["lr"] = lr
        slow.optimizer.step()
        slow.optimizer.zero_grad()
    metrics = learn(fast, table, advantages, lr=lr, grad_clip=1e9, **how)
    assert metrics["loss"] == pytest.approx(sum(losses) / 2, abs=1e-6, rel=1e-6)
    # the second step is not at ratio 1
    assert metrics["clip_fraction"] > 0.05 and metrics["kl_reference"] > 1e-6
    for name, weight in fast.parameters.items():
        assert torch.allclose(weight, slow.parameters[name], atol=1e-6), name


# -- sums and denominators -----------------------------------------------------------------------


class Round(Scenario):
    """Three agents speak in turn, the second twice as often."""

    agents = ("a", "b", "c")

    def play(self, rng: random.Random, task: Any) -> Iterator[Any]:
        for agent in ("a", "b", "c", "b"):
            yield Ask({agent: f"Card {rng.randrange(9)}?"})


@pytest.mark.long
@pytest.mark.parametrize(
    "aggregation", ["turn_sum", "token_mean", "turn_mean", "constant", "episode_sum"]
)
def test_the_gradient_of_three_agents_rows_is_the_sum_of_those_of_single_rows(
    aggregation: str, byte_model: Path
) -> None:
    learner = learner_of(byte_model)
    table, advantages = batch(learner, Round(), 2)
    assert set(table.agent.tolist()) == {"a", "b", "c"}
    start = {name: weight.detach().clone() for name, weight in learner.parameters.items()}
    tokens = np.array([sum(len(reply.token_ids) for reply in turn.replies) for turn in table.turns])
    counted = {
        "token_mean": tokens,
        "episode_sum": 1 / np.array([2.0 if agent == "b" else 1.0 for agent in table.agent]),
    }
    share = counted.get(aggregation, np.ones(len(table)))  # what a turn adds to the denominator
    whole = gradient_of(learner, table, advantages, aggregation=aggregation)
    total = {name: torch.zeros_like(change) for name, change in whole.items()}
    for part in sorted(set(zip(table.episode.tolist(), table.agent.tolist(), strict=True))):
        row = (table.episode == part[0]) & (table.agent == part[1])
        with torch.no_grad():
            for name, weight in learner.parameters.items():
                weight.copy_(start[name])
        for name, change in gradient_of(
            learner, table.take(row), advantages[row], aggregation=aggregation
        ).items():
            total[name] += change * float(share[row].sum() / share.sum())
    for name, change in whole.items():
        assert torch.allclose(change, total[name], atol=1e-6), name


def test_turns_without_advantage_count_in_every_denominator(thin_model: Path) -> None:
    one, other = learner_of(thin_model), learner_of(thin_model)
    table, _ = batch(one, make("kuhn_poker"))
    worth = np.zeros(len(table))
    worth[3] = 1.5
    alone = gradient_of(other, table.take([3]), worth[3:4])
    for name, change in gradient_of(one, table, worth).items():
        assert torch.allclose(change * len(table), alone[name], atol=1e-5), name


@pytest.mark.long
def test_the_mismatch_counts_every_trained_token_whatever_its_advantage(thin_model: Path) -> None:
    learner = learner_of(thin_model)
    table, advantages = batch(learner, make("kuhn_poker"))
    old = np.concatenate(
        learner.score(
            [(reply.prompt_ids, reply.token_ids) for turn in table.turns for reply in turn.replies]
        )
    )
    sampled = np.array(
        [p for turn in table.turns for reply in turn.replies for p in reply.logprobs]
    )
    for worth in (advantages, np.zeros(len(table))):
        metrics = learn(learner, table, worth, lr=0.0, tis=None)
        assert metrics["mismatch_kl"] == pytest.approx(
            float((np.exp(old - sampled) - (old - sampled) - 1).mean()), abs=1e-6
        )
        assert metrics["logprob_gap"] == pytest.approx(float(np.abs(old - sampled).max()), abs=1e-6)
        learner.publish()


# -- a softmax table, where everything has a closed form -----------------------------------------


@pytest.mark.parametrize("cap", [None, 1.2, 9.0])
def test_an_engine_that_is_off_by_a_known_noise_has_the_weights_and_the_divergence_of_the_formula(
    cap: float | None,
) -> None:
    engine = Table(policy="main", optimizer="sgd")
    episodes = played(Policy("main", engine), make("kuhn_poker"), 12)
    table = credit.turns(episodes, "main")
    # what the engine said less than the learner finds
    noise = np.random.default_rng(1).normal(0, 0.4, len(table))
    turns = tuple(
        replace(
            turn,
            replies=tuple(
                replace(reply, logprobs=(reply.logprobs[0] - noise[n],)) for reply in turn.replies
            ),
        )
        for n, turn in enumerate(table.turns)
    )
    learner = TableLearner(engine)
    advantages = np.random.default_rng(2).normal(size=len(table))
    how = LossSettings(minibatches=1, grad_clip=1e9, tis=cap)
    metrics = learner.update(
        replace(table, turns=turns), advantages, lr=1.0, settings=how, rng=random.Random(0)
    )
    assert metrics["mismatch_kl"] == pytest.approx(float(np.mean(np.exp(noise) - noise - 1)))
    assert metrics["logprob_gap"] == pytest.approx(float(np.abs(noise).max()))
    weights = np.ones(len(table)) if cap is None else np.minimum(np.exp(noise), cap)
    expected: dict[int, Any] = {}
    for n, turn in enumerate(table.turns):
        reply, legal = turn.replies[0], len(turn.legal or ())
        step = expected.setdefault(reply.prompt_ids[0], np.zeros(legal))
        # untrained: uniform
        step += (
            advantages[n]
            * weights[n]
            / len(table)
            * ((np.arange(legal) == reply.token_ids[0]) - 1 / legal)
        )
    for view, step in expected.items():
        assert learner.weights[view] == pytest.approx(step, abs=1e-12)


@pytest.mark.parametrize("ratio", RATIOS)
def test_an_engine_that_says_what_the_learner_finds_has_weights_of_one(ratio: Any) -> None:
    engine = Table(policy="main", optimizer="sgd")
    table = credit.turns(played(Policy("main", engine), make("kuhn_poker"), 6), "main")
    found = []
    for cap in (None, 1.0):
        learner = TableLearner(engine)
        how = LossSettings(tis=cap, ratio=ratio)
        metrics = learner.update(
            table, np.arange(len(table)) - 3.0, lr=0.5, settings=how, rng=random.Random(0)
        )
        assert metrics["mismatch_kl"] == 0.0
        found.append({view: row.tolist() for view, row in learner.weights.items()})
    assert found[0] == found[1]
