"""TRL trains on plays of this library: per-turn advantages reach its loss, and what it would lose
is refused. In an environment of its own: make test-trl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.trl
pytest.importorskip("trl", reason="make test-trl has it")

import torch  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from gem_ma import credit  # noqa: E402
from gem_ma.credit.estimators import estimate  # noqa: E402
from gem_ma.engines.base import open_engine  # noqa: E402
from gem_ma.kernel.errors import ConfigError, DataError  # noqa: E402
from gem_ma.kernel.types import Sampling  # noqa: E402
from gem_ma.trainers.trl import Rollouts, TurnTrainer  # noqa: E402
from gem_ma.training.learner.positions import make_warm_model  # noqa: E402
from gem_ma.training.learner.rows import rows  # noqa: E402
from gem_ma.training.learner.torch_learner import TorchLearner  # noqa: E402

WIDTH = 64  # max_completion_length, by which dr_grpo divides


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of a noisy player: it reads its hints, and can be better."""
    path = tmp_path_factory.mktemp("trl") / "model"
    make_warm_model(path, "guess_number", {"player": "number_guesser"}, steps=100, episodes=512)
    return path


def overrides(model: Path) -> list[str]:
    return [
        f"policies.player.model=transformers/{model}",
        "policies.player.constrain=null",
        "policies.player.temperature=1.0",
        "train.warm_start={}",
        "train.credit.gamma=.7",
    ]


def config(folder: Path, **more: Any) -> GRPOConfig:
    return GRPOConfig(
        **{
            "output_dir": str(folder),
            "per_device_train_batch_size": 32,
            "num_generations": 8,
            "max_steps": 1,
            "learning_rate": 3e-3,
            "lr_scheduler_type": "constant",
            "max_completion_length": WIDTH,
            "report_to": [],
            "save_strategy": "no",
            "use_cpu": True,
            "beta": 0.0,
            "loss_type": "dr_grpo",
            "disable_tqdm": True,
            "logging_steps": 1,
            "gradient_checkpointing": False,
            "bf16": False,  # its default rounds log-probabilities by .01
            "seed": 0,
            **more,
        }
    )


def trainer(model: Path, folder: Path, *words: str, **more: Any) -> Any:
    rollouts = Rollouts("guess_number", [*overrides(model), *words])
    return TurnTrainer(
        model=str(model),
        reward_funcs=rollouts.total,
        args=config(folder, **more),
        train_dataset=rollouts.dataset(640),
        rollout_func=rollouts,
    )


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The episodes that were played."""
    from gem_ma.trainers.course import Course

    found: list[Any] = []
    play = Course.play

    def watched(self: Course, starts: Any) -> Any:
        episodes, ids = play(self, starts)
        found.extend(episodes)
        return episodes, ids

    monkeypatch.setattr(Course, "play", watched)
    yield found


def test_the_gradient_is_that_of_our_learner_on_the_same_rows(
    model: Path, tmp_path: Path, caught: list[Any]
) -> None:
    made = trainer(model, tmp_path)
    batch = next(iter(made.get_train_dataloader()))
    scored = made._generate_and_score_completions(batch)
    assert scored["advantages"].shape == scored["completion_ids"].shape
    values = [set(row[row != 0].tolist()) for row in scored["advantages"]]
    assert any(len(row) > 1 for row in values)  # one a turn, and not one an episode
    made.model.eval()  # no dropout on either side
    made._compute_loss(made.model, scored).backward()
    theirs = {name: weight.grad for name, weight in made.model.named_parameters()}

    engine: Any = open_engine("player", f"transformers/{model}")
    learner = TorchLearner(engine.engine, Sampling(max_tokens=8))
    table = credit.turns(caught, "player", gamma=0.7)
    advantages, _ = estimate("rebn", table, made.rollout_func.course.settings.estimator.key)
    ours = rows(table, advantages, "player").rows
    worth = np.concatenate([row.advantage[row.mask] for row in ours])
    for pack in learner.scorer.packs(ours):
        learner.scorer.learn(
            pack,
            lambda done: -(done.logprobs * learner.tensor(worth[done.order])).sum(),
            added=learner.gather,
        )
    scale = len(ours) * WIDTH  # dr_grpo divides the sum by rows times columns
    largest = max(float(weight.grad.abs().max()) for weight in learner.parameters.values())
    assert largest > 1e-2
    for name, weight in learner.parameters.items():
        gap = float((theirs[name] * scale - weight.grad).abs().max())
        assert gap <= 1e-5 * max(largest, 1.0), name


def test_what_was_sampled_is_what_trl_scores(model: Path, tmp_path: Path) -> None:
    made = trainer(model, tmp_path)
    scored = made._generate_and_score_completions(next(iter(made.get_train_dataloader())))
    ids = torch.cat([scored["prompt_ids"], scored["completion_ids"]], 1)
    seen = torch.cat([scored["prompt_mask"], scored["completion_mask"]], 1)
    width = scored["completion_ids"].size(1)
    with torch.no_grad():
        logprobs, *_ = made._get_per_token_logps_and_entropies(made.model, ids, seen, width)
    mask = scored["tool_mask"].bool() & scored["completion_mask"].bool()
    gap = (logprobs - scored["sampling_per_token_logps"]).abs()[mask]
    assert len(gap) > 50 and float(gap.max()) < 1e-4


def test_the_example_learns_in_twelve_steps(tmp_path: Path) -> None:
    """Each step costs, and only the last pays: an advantage a turn that looks ahead learns to go."""
    from examples.with_trl import learn

    paid = learn(tmp_path)
    assert len(paid) == 12
    assert np.mean(paid[:2]) < 0.35 and np.mean(paid[-2:]) > 0.7, paid
    # ids that are never sampled were taken out of the scores alone: what is saved is a model
    before: Any = open_engine("walker", f"transformers/{tmp_path / 'model'}")
    after: Any = open_engine("walker", f"transformers/{tmp_path / 'learned'}")
    assert before.engine.weights().keys() == after.engine.weights().keys()
    assert before.engine.fingerprint() != after.engine.fingerprint()


def test_a_play_that_fails_is_a_row_without_tokens_and_without_a_reward(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from gem_ma.kernel.episode import End
    from gem_ma.trainers.course import Course

    play = Course.play

    def broken(self: Course, starts: Any) -> Any:
        episodes, ids = play(self, starts)
        return [replace(episodes[0], end=End.FAILED, error="x"), *episodes[1:]], ids

    monkeypatch.setattr(Course, "play", broken)
    made = trainer(model, tmp_path)
    scored = made._generate_and_score_completions(next(iter(made.get_train_dataloader())))
    trained = (scored["tool_mask"] * scored["completion_mask"]).sum(1)
    assert int((trained == 0).sum()) == 1
    assert not scored["advantages"][trained == 0].any()
    assert torch.isfinite(made._compute_loss(made.model, scored))
    assert [*made._metrics["train"].values(), *made._metrics["eval"].values()].count([1 / 32]) == 1


def test_the_divergence_from_the_reference_is_finite_and_begins_at_nothing(
    model: Path, tmp_path: Path
) -> None:
    """Ids that are never sampled stand in the prompts: under one of the two models alone they would
    be infinitely far apart."""
    made = trainer(model, tmp_path, max_steps=2, beta=0.1)
    made.train()
    divergences = [row["kl"] for row in made.state.log_history if "kl" in row]
    assert divergences[0] == pytest.approx(0, abs=1e-6) and 0 < divergences[1] < 1


def few(model: Path, folder: Path, *, exam: bool = False, **more: Any) -> Any:
    """A trainer that meets its two starts at every step, with a baseline that moves."""
    words = ["train.estimator.name=rae", "train.credit.gamma={from: .5, to: 1, steps: 4}"]
    rollouts = Rollouts("guess_number", [*overrides(model), *words])
    both = {"per_device_train_batch_size": 8, "num_generations": 4, "max_steps": 4, **more}
    return TurnTrainer(
        model=str(model),
        reward_funcs=rollouts.total,
        args=config(folder, **both),
        train_dataset=rollouts.dataset(2),
        rollout_func=rollouts,
        **({"eval_dataset": rollouts.dataset(2)} if exam else {}),
    )


def assert_alike(made: Any, other: Any) -> None:
    """The same plays and the same weights; to rounding, for TRL deals the rows of a batch by torch's
    global generator, which an evaluation draws from too."""
    rewards, others = (
        [row["reward"] for row in one.state.log_history if "reward" in row] for one in (made, other)
    )
    assert len(rewards) == 4 and rewards == pytest.approx(others, abs=1e-6)
    theirs = dict(other.model.named_parameters())
    for name, weight in made.model.named_parameters():
        assert torch.allclose(weight, theirs[name], rtol=0, atol=1e-5), name


def test_a_training_with_evaluations_is_the_training_without(model: Path, tmp_path: Path) -> None:
    plain, examined = few(model, tmp_path / "a"), few(
        model, tmp_path / "b", exam=True, eval_strategy="steps", eval_steps=1,
        per_device_eval_batch_size=8,
    )  # fmt: skip
    plain.train()
    examined.train()
    assert sum("eval_reward" in row for row in examined.state.log_history) == 4
    assert_alike(examined, plain)


def test_a_checkpoint_of_trl_goes_on_as_if_it_had_never_stopped(
    model: Path, tmp_path: Path
) -> None:
    save = {"save_strategy": "steps", "save_steps": 2}
    whole = few(model, tmp_path, **save)
    whole.train()
    again = few(model, tmp_path, **save)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert_alike(again, whole)


def refused(model: Path, folder: Path, word: str, kind: type = TurnTrainer, **more: Any) -> None:
    rollouts = Rollouts("guess_number", overrides(model))
    made = kind(
        model=str(model),
        reward_funcs=rollouts.total,
        args=config(folder, **more),
        train_dataset=rollouts.dataset(64),
        rollout_func=rollouts,
    )
    with pytest.raises(ConfigError, match=word):
        made.train()


def test_what_trl_would_silently_lose_is_refused(model: Path, tmp_path: Path) -> None:
    refused(model, tmp_path, "temperature=0.5", temperature=0.5)
    refused(model, tmp_path, "one advantage an episode", kind=GRPOTrainer)
    for words, word in (
        (["policies.player.constrain=legal"], "constrain=null"),
        (["policies.player.top_p=.9"], "top_p"),
    ):
        with pytest.raises(ConfigError, match=word):
            Rollouts("guess_number", [*overrides(model), *words])


def test_one_reward_an_episode_is_for_trls_own_trainer(model: Path, tmp_path: Path) -> None:
    rollouts = Rollouts("guess_number", overrides(model), per_turn=False)
    made = GRPOTrainer(
        model=str(model),
        reward_funcs=rollouts.total,
        args=config(tmp_path),
        train_dataset=rollouts.dataset(64),
        rollout_func=rollouts,
    )
    made.train()
    assert any("reward" in row for row in made.state.log_history)


def test_a_history_that_was_rewritten_has_no_place(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from gem_ma.trainers.course import Course

    learn = Course.learn

    def two(self: Course, episodes: Any) -> Any:
        return [replace(sample, parts=2) for sample in learn(self, episodes)]

    monkeypatch.setattr(Course, "learn", two)
    made = trainer(model, tmp_path)
    with pytest.raises(DataError, match="takes one a prompt"):
        made.train()
