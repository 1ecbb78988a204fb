"""Losses of pairs (DPO, IPO): pairs, gradients and minibatches against slow loops, for tables and
language models alike; both agents of a play in one run."""

from __future__ import annotations

import asyncio
import random
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gem_ma import config
from gem_ma.config.learning import LossSettings
from gem_ma.config.settings import Config
from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.plans import open_policies
from gem_ma.runs.worlds import worlds_of
from gem_ma.training.learner.losses import PAIRED, Pairs, Slope, pair_pull
from gem_ma.training.learner.rows import minibatches, rows
from gem_ma.training.loop.updates import check_anchored
from gem_ma.training.processes.teams import ALONE
from gem_ma.training.schedule.checks import check_loss, checked
from gem_ma.training.train import open_parts, run_training
from tests.broken_runs import broken_and_whole

torch = pytest.importorskip("torch", reason="needs the train extra")

SMALL = ("train.on_collapse=off", "evaluate.every=null", "run.baselines=false")
PLAYS = ("train.estimator={name: dr_grpo}", "train.group_size=4", "train.episodes=16")
BETA = 0.3


def slow_loss(name: str, margins: list[Any]) -> Any:
    """The mean over pairs, as the papers write it."""
    if name == "dpo":
        losses = [-torch.log(torch.sigmoid(BETA * margin)) for margin in margins]
    else:
        losses = [(margin - 1 / (2 * BETA)) ** 2 for margin in margins]
    return torch.stack(losses).mean()


@pytest.mark.parametrize("name", PAIRED)
@pytest.mark.parametrize("seed", range(3))
def test_pairs_and_their_pull_are_those_of_a_loop_over_all_parts(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    part = rng.permutation(rng.integers(0, 12, 60))
    group, worth = np.array([0, 0, 0, 1, 1, 1, 1, 2, 3, 3, 3, 3])[part], rng.integers(0, 3, 12)
    worth[8:] = 1.0  # all alike
    away = torch.tensor(rng.normal(size=60), requires_grad=True)
    there = sorted(set(part.tolist()))
    start = {n: int(group[part == n][0]) for n in there}
    wanted = [
        (a, b) for a, b in product(there, there) if start[a] == start[b] and worth[a] > worth[b]
    ]
    pairs = Pairs.of(worth[part].astype(float), part, group)
    found = [(there[a], there[b]) for a, b in zip(pairs.better, pairs.worse, strict=True)]
    assert sorted(found) == sorted(wanted) and len(wanted) > 3
    leads = [
        away[torch.tensor(part == a)].sum() - away[torch.tensor(part == b)].sum() for a, b in wanted
    ]
    loss = slow_loss(name, leads)
    loss.backward()
    pull = pair_pull(name, away.detach().numpy(), pairs, BETA)
    assert away.grad is not None
    assert pull.loss == pytest.approx(float(loss.detach()), rel=1e-12)
    assert pull.slope == pytest.approx(away.grad.numpy(), rel=1e-9, abs=1e-12)


def test_a_pair_that_is_far_apart_overflows_nothing() -> None:
    far = Slope.of(np.array([-2000.0, 0.0, 2000.0])).softplus()
    assert far.value.tolist() == [0.0, pytest.approx(np.log(2)), 2000.0]
    assert far.slope.tolist() == [0.0, 0.5, 1.0]


def test_without_a_pair_nothing_is_pulled() -> None:
    part = np.array([0, 0, 1])
    pairs = Pairs.of(np.ones(3), part, np.zeros(3, np.int64))
    assert pair_pull("dpo", np.ones(3), pairs, BETA).slope.tolist() == [0.0, 0.0, 0.0]


# -- learners ------------------------------------------------------------------------------------


def kuhn(kind: str, model: Path, *words: str) -> Config:
    """Self-play: one policy on two agents, whose returns are never compared with each other."""
    if kind == "table":
        return config.load("kuhn_table", [*SMALL, *PLAYS, "evaluate.episodes=4", *words]).config
    # else an untrained model hardly ever names a move, and all are paid alike
    more = (
        "train.warm_start={}",
        "policies.main.constrain=legal",
        f"policies.main.model=transformers/{model}",
    )
    return config.load("kuhn_tiny", [*SMALL, *PLAYS, "evaluate.episodes=4", *more, *words]).config


def begun(settings: Config) -> tuple[Any, Any, Any]:
    """(the learner, the turns of the first step, their advantages)."""
    parts = open_parts(settings, worlds_of(settings), open_policies(settings), None, ALONE)
    played = asyncio.run(parts.collector.planned(0, parts.players)())
    turns = parts.updates.prepare(played, ["main"])[0].turns
    return parts.learners["main"], turns, turns.total  # in the order of any that is centred


def slow_margins(turns: Any, said: Any) -> list[Any]:
    """Of every two plays of one start in which an agent came to more and to less. `said(reply)`:
    log p - log p reference of the tokens of a reply, summed."""
    parts: dict[Any, list[Any]] = {}
    for episode, turn in zip(turns.episodes, turns.turns, strict=True):
        of_start = (episode.group, turn.agent)
        key = (of_start, episode.returns()[turn.agent], episode.id)
        parts.setdefault(key, []).extend(said(reply) for reply in turn.replies)
    return [
        sum(parts[better]) - sum(parts[worse])
        for better, worse in product(parts, parts)
        if better[0] == worse[0] and better[1] > worse[1]
    ]


@pytest.mark.parametrize("name", PAIRED)
def test_a_table_is_pulled_as_a_loop_over_pairs_says(name: str, thin_model: Path) -> None:
    learner, turns, worth = begun(kuhn("table", thin_model))
    rng = np.random.default_rng(1)
    learner.hold()
    views = {reply.prompt_ids[0]: len(turn.legal) for turn in turns.turns for reply in turn.replies}
    for key, size in views.items():  # away from the reference, which is uniform
        learner.weights[key] = rng.normal(size=size)
    logits = {key: torch.tensor(learner.weights[key], requires_grad=True) for key in views}

    def said(reply: Any) -> Any:
        key = reply.prompt_ids[0]
        return logits[key].log_softmax(0)[reply.token_ids[0]] + np.log(views[key])

    margins = slow_margins(turns, said)
    slow_loss(name, margins).backward()
    before = {key: learner.weights[key].copy() for key in views}
    learner.engine.optimizer = "sgd"
    how = LossSettings(surrogate=name, pair_beta=BETA, minibatches=1, grad_clip=1e9)
    numbers = learner.update(turns, worth, lr=1.0, settings=how, rng=random.Random(0))
    for key in views:
        moved = before[key] - learner.weights[key]
        assert moved == pytest.approx(logits[key].grad.numpy(), abs=1e-12), key
    # two plays of the same choices are apart by nothing
    right = [0.5 if abs(m) < 1e-12 else float(m > 0) for m in (float(m.detach()) for m in margins)]
    assert numbers["pairs"] == len(margins) > 10
    assert numbers["pairs_right"] == pytest.approx(np.mean(right))


@pytest.mark.long
@pytest.mark.parametrize("name", PAIRED)
def test_a_language_model_is_pulled_as_a_loop_over_pairs_says(name: str, thin_model: Path) -> None:
    words = ("train.episodes=8", f"train.loss.surrogate={name}")
    learner, turns, worth = begun(kuhn("torch", thin_model, *words))
    learner.hold()
    torch.manual_seed(1)
    with torch.no_grad():  # away from the reference
        for weight in learner.parameters.values():
            weight += 0.02 * torch.randn_like(weight)
    weights = list(learner.parameters.values())

    legal = {reply: turn.legal for turn in turns.turns for reply in turn.replies}

    def tokens(reply: Any) -> Any:
        """The log-probability of all its ids, one place after the other."""
        ids = torch.tensor([[*reply.prompt_ids, *reply.token_ids]])
        logits = learner.engine.model(ids, use_cache=False).logits[0]
        bound = learner.engine.binding.allowed(legal[reply], reply.token_ids, ())
        total = 0.0
        for at, token in enumerate(reply.token_ids):
            may = torch.full((logits.shape[-1],), -torch.inf)
            may[list(bound[at])] = 0.0
            total += (logits[len(reply.prompt_ids) - 1 + at] + may).log_softmax(-1)[token]
        return total

    with learner.holding(learner.reference), torch.no_grad():
        held = {reply: tokens(reply) for reply in legal}
    margins = slow_margins(turns, lambda reply: tokens(reply) - held[reply])
    wanted = torch.autograd.grad(slow_loss(name, margins), weights)
    before = {key: weight.detach().clone() for key, weight in learner.parameters.items()}
    learner.optimizer = torch.optim.SGD(weights, lr=1.0)
    how = LossSettings(surrogate=name, pair_beta=BETA, minibatches=1, grad_clip=1e9)
    numbers = learner.update(turns, worth, lr=1.0, settings=how, rng=random.Random(0))
    size = max(float(slow.abs().max()) for slow in wanted)
    for (key, old), slow in zip(before.items(), wanted, strict=True):
        moved = old - learner.parameters[key].detach()
        assert torch.allclose(moved, slow, atol=1e-4 * size), key
    assert numbers["pairs"] == len(margins) > 3


@pytest.mark.parametrize("kind", ["table", "torch"])
def test_a_minibatch_holds_all_plays_of_a_start(
    kind: str, thin_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = kuhn(kind, thin_model, "train.loss.surrogate=dpo")
    learner, turns, worth = begun(settings)
    how = LossSettings(surrogate="dpo", minibatches=3)
    if kind == "torch":
        made = rows(turns, worth, "main").rows
        cut = [{made[n].start for n in one} for one in minibatches(made, how, random.Random(0))]
    else:
        from gem_ma.training.learner.table_rows import TableRows

        seen: list[set[int]] = []
        plain = TableRows.gradient

        def gradient(self: Any, batch: Any, mask: Any, *more: Any) -> Any:
            seen.append(set(batch.start[mask].tolist()))
            return plain(self, batch, mask, *more)

        monkeypatch.setattr(TableRows, "gradient", gradient)
        learner.update(turns, worth, lr=0.1, settings=how, rng=random.Random(0))
        cut = seen
    assert len(cut) == 3 and sum(map(len, cut)) == len(set().union(*cut)) == 4


# -- runs ----------------------------------------------------------------------------------------

BOTH = (
    "train.estimator={name: grpo}",
    "train.group_size=8",
    "train.loss.surrogate=dpo",
    "evaluate.episodes=128",
)


@pytest.mark.longest
def test_both_agents_of_a_play_learn_by_pairs() -> None:
    """The same run without learning stays at .19: half of the words drawn at random."""
    told: list[Any] = []
    settings = config.load("referential_table", [*SMALL, *BOTH, "train.steps=14"]).config
    summary = run_training(settings, on_step=lambda step, row: told.append(row["policies"]))
    before, after = (summary[when]["sampled"]["success"] for when in ("before", "after"))
    print(f"sampled success {before:.2f} -> {after:.2f} by DPO of both agents, 14 steps")
    assert after > before + 0.15 and summary["changed"] == ["speaker", "listener"]
    for name in ("speaker", "listener"):
        assert told[0][name]["loss"] == pytest.approx(np.log(2), abs=0.05)
        assert told[0][name]["pairs_right"] == 0.5 < told[-1][name]["pairs_right"]
        assert told[0][name]["pairs"] > 100


@pytest.mark.longest
@pytest.mark.parametrize("kind", ["table", "lora"])
def test_a_killed_run_ends_as_an_unbroken_one(tmp_path: Path, kind: str, thin_model: Path) -> None:
    words = ["train.loss={surrogate: dpo}", "train.steps=4", "train.save_every=1"]
    if kind == "lora":
        words += ["policies.main.lora={rank: 2}", "train.overlap=true", "train.episodes=8"]
    settings = kuhn("torch" if kind == "lora" else kind, thin_model, *words)
    broken_and_whole(tmp_path, settings)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("train.group_size=1", "train.estimator.key=[task, agent]"),
            "compares plays of one start",
        ),
        (("train.estimator={name: rebn}",), "rebn scores turns; .* grpo, dr_grpo, rloo"),
        (("train.estimator={name: gigpo}",), "gigpo scores turns"),
        (("train.fork={width: 2}",), "begin in the middle"),
        (("train.credit.cut=skip",), "cannot leave out single turns"),
        (("train.loss.ratio=turn_sum",), "knows no ratio: turn_sum"),
        (("train.loss.clip_high=0.3",), "knows no clip_high"),
        (("train.loss.kl=1", "train.loss.kl_in=reward"), "knows no kl_in: reward"),
        (("train.loss.surrogate=clipped", "train.loss.pair_beta=1"), "pair_beta: does nothing"),
        (("train.loss.pair_beta=0",), "pair_beta"),
    ],
)
def test_what_does_not_fit_pairs_is_one_line(words: Any, line: str, thin_model: Path) -> None:
    with pytest.raises(ConfigError, match=line) as refused:
        settings = kuhn("table", thin_model, "train.loss.surrogate=dpo", *words)
        checked(settings, settings.policies)
    assert "\n" not in str(refused.value)


def test_pairs_take_a_frozen_policy_for_a_reference_and_no_learner_without_one() -> None:
    from types import SimpleNamespace

    settings = kuhn("table", Path(), "train.loss={surrogate: ipo, reference: main}")
    with pytest.raises(ConfigError, match="'main' learns itself"):
        check_loss(settings, settings.train, "train.loss")  # type: ignore[arg-type]
    bare: Any = SimpleNamespace(policy="main")
    with pytest.raises(ConfigError, match=r"keeps no reference weights.*surrogate: dpo"):
        check_anchored(SimpleNamespace(loss=LossSettings(surrogate="dpo")), bare)  # type: ignore[arg-type]
