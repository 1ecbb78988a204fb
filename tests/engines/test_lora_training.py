"""Learning adapters: several learners on one base, reference, critic, checkpoints, whole runs
and leagues."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gem_ma import config, credit
from gem_ma.config.learning import CriticSettings
from gem_ma.kernel.types import Sampling
from gem_ma.runs.store import read_episodes
from tests.training.test_learner import episodes, noise, update

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")

from gem_ma.engines.local.transformers import Transformers  # noqa: E402
from gem_ma.training.learner.torch_critic import TorchCritic  # noqa: E402
from gem_ma.training.learner.torch_learner import TorchLearner  # noqa: E402
from gem_ma.training.train import run_training  # noqa: E402
from tests.broken_runs import (  # noqa: E402
    broken_and_whole,
    for_both,
    of_models,
    steps_of,
)

CONFIGS = Path(__file__).parents[2] / "configs"


def learner_of(path: Path, policy: str, rank: int = 4) -> TorchLearner:
    return TorchLearner(
        Transformers(str(path), policy=policy, lora={"rank": rank}), Sampling(max_tokens=4)
    )


def weights(learner: TorchLearner) -> dict[str, Any]:
    return {name: weight.detach().clone() for name, weight in learner.parameters.items()}


def steps(learners: list[TorchLearner], tables: dict[str, Any], count: int = 3) -> None:
    """Updates in turns, from the same recorded plays."""
    for step in range(count):
        for learner in learners:
            update(learner, tables[learner.policy], seed=step, lr=3e-3, kl=0.1)
        for learner in learners:
            learner.publish()


@pytest.mark.longest
def test_two_learners_on_one_base_learn_as_each_does_alone(thin_model: Path) -> None:
    both = [learner_of(thin_model, "a"), learner_of(thin_model, "b", rank=2)]
    frozen = Transformers(str(thin_model), policy="frozen", frozen=True)
    assert both[0].engine.base is both[1].engine.base is frozen.base
    played = episodes(both, 24)
    tables = {name: credit.turns(played, name) for name in "ab"}
    base = frozen.fingerprint()
    steps(both, tables)
    assert frozen.fingerprint() == base == Transformers(str(thin_model), policy="new").fingerprint()
    for rank, together in zip((4, 2), both, strict=True):
        alone = learner_of(thin_model, together.policy, rank)
        start = weights(alone)
        steps([alone], tables)
        for name, weight in weights(together).items():
            assert torch.allclose(weight, alone.parameters[name], rtol=0, atol=1e-6)
            assert not torch.equal(weight, start[name])
        assert alone.engine.fingerprint() != both[0].engine.fingerprint() or rank == 4
    assert {
        name for name, weight in both[0].engine.model.named_parameters() if weight.grad is not None
    } == set()


@pytest.mark.long
def test_only_the_adapter_that_learns_gets_gradients_and_moves(thin_model: Path) -> None:
    learner, other = learner_of(thin_model, "a"), learner_of(thin_model, "b")
    table = credit.turns(episodes([learner], 12), "a")
    before = other.fingerprint()
    pack = next(iter(learner.scorer.packs(_rows(learner, table))))
    learner.scorer.learn(pack, lambda scored: scored.logprobs.sum())
    touched = {
        weight.data_ptr() for weight in learner.engine.model.parameters() if weight.grad is not None
    }
    assert touched == {weight.data_ptr() for weight in learner.parameters.values()}
    learner.forget()
    update(learner, table, lr=1e-2)
    assert other.fingerprint() == before


def _rows(learner: TorchLearner, table: Any) -> Any:
    from gem_ma.training.learner.rows import rows

    return rows(table, noise(table), learner.policy).rows


@pytest.mark.longest
def test_what_is_sampled_in_mixed_batches_is_rescored_within_the_tolerance_and_published_with_parity(
    thin_model: Path,
) -> None:
    both = [learner_of(thin_model, "a"), learner_of(thin_model, "b")]
    for round_ in range(2):
        played = episodes(both, 24, first=100 * round_)
        for learner in both:
            metrics = update(learner, credit.turns(played, learner.policy), lr=1e-2)
            assert metrics["logprob_gap"] < 1e-5 and metrics["forks"] == 0
        for learner in both:
            assert learner.publish()["parity_gap"] < 1e-5
    assert [learner.version for learner in both] == [2, 2]


@pytest.mark.long
def test_the_reference_of_a_new_adapter_is_its_base_without_a_second_copy(thin_model: Path) -> None:
    learner, plain = (
        learner_of(thin_model, "a"),
        TorchLearner(Transformers(str(thin_model), policy="a"), Sampling(max_tokens=4)),
    )
    table = credit.turns(episodes([learner], 16), "a")
    first = update(learner, table, lr=1e-2, kl=0.1, minibatches=1)
    assert first["kl_reference"] == pytest.approx(0, abs=1e-9)
    chosen = _rows(learner, table)
    assert np.allclose(learner._anchor(chosen), plain.scorer.logprobs(chosen), rtol=0, atol=1e-6)
    assert update(learner, table, lr=1e-2, kl=0.1)["kl_reference"] > 1e-6
    assert sum(weight.nbytes for weight in learner.reference.values()) == sum(
        weight.nbytes for weight in learner.parameters.values()
    )


@pytest.mark.long
def test_a_checkpoint_holds_the_adapter_alone_and_resumes_bit_for_bit(thin_model: Path) -> None:
    from safetensors.torch import load

    straight = learner_of(thin_model, "a")
    table = credit.turns(episodes([straight], 16), "a")
    update(straight, table, lr=3e-3, kl=0.1)
    straight.publish()
    files = straight.state()
    assert {name: tuple(w.shape) for name, w in load(files["model.safetensors"]).items()} == {
        n: tuple(w.shape) for n, w in straight.parameters.items()
    }
    whole = sum(weight.nbytes for weight in straight.engine.base.weights().values())
    # adapter, reference, two moments; of all weights it would be four times this
    assert sum(map(len, files.values())) < 1.2 * whole
    again = learner_of(thin_model, "a")
    again.load(files)
    for learner in (straight, again):
        update(learner, table, seed=1, lr=3e-3, kl=0.1)
        learner.publish()
    assert again.fingerprint() == straight.fingerprint() and again.version == straight.version == 2
    assert again.state() == straight.state()


@pytest.mark.long
def test_a_frozen_policy_that_is_asked_to_learn_all_its_weights_takes_its_own(
    thin_model: Path,
) -> None:
    frozen, other = (Transformers(str(thin_model), policy=name, frozen=True) for name in ("x", "y"))
    learner = TorchLearner(frozen, Sampling(max_tokens=4))
    assert frozen.base is not other.base
    update(learner, credit.turns(episodes([learner], 8), "x"), lr=1e-2)
    assert (
        other.fingerprint()
        == Transformers(str(thin_model), policy="new").fingerprint()
        != learner.fingerprint()
    )


@pytest.mark.long
@pytest.mark.parametrize("lora", [None, {"rank": 2}])
def test_a_twin_learns_apart_and_its_weights_are_taken_back(thin_model: Path, lora: Any) -> None:
    engine = Transformers(str(thin_model), policy="a", lora=lora)
    learner = TorchLearner(engine.twin(), Sampling(max_tokens=4), sampler=engine)
    assert (learner.engine.base is engine.base) == (lora is not None)
    assert learner.engine.lock is not engine.lock
    table = credit.turns(episodes([TorchLearner(engine)], 8), "a")
    before = engine.fingerprint()
    assert learner.fingerprint() == before
    update(learner, table, lr=1e-2)
    assert engine.fingerprint() == before != learner.fingerprint()
    assert learner.publish()["parity_gap"] < 1e-5
    assert engine.fingerprint() == learner.fingerprint()


@pytest.mark.longest
def test_the_critic_of_an_adapter_is_an_adapter_and_learns_values_without_touching_base_or_policy(
    thin_model: Path,
) -> None:
    # adapters of earlier tests on the same base: their memory must not be taken again below
    gc.collect()
    learner = learner_of(thin_model, "a")
    engine = learner.engine
    base, policy, held = (
        engine.base.fingerprint(),
        engine.fingerprint(),
        {w.data_ptr() for w in engine.model.parameters()},
    )
    critic = TorchCritic(engine)
    new = {w.data_ptr(): w.nbytes for w in engine.model.parameters() if w.data_ptr() not in held}
    assert sum(new.values()) == sum(weight.nbytes for weight in learner.parameters.values())
    table = credit.turns(episodes([learner], 32), "a")
    targets = np.array([1.0 if "card is K" in str(turn.observed) else -1.0 for turn in table.turns])
    assert not critic.values(table).any()
    losses = [
        critic.fit(table, targets, CriticSettings(lr=1e-2, epochs=4), random.Random(step))[
            "value_loss"
        ]
        for step in range(6)
    ]
    assert losses[0] == pytest.approx(1.0) and losses[-1] < 0.5
    assert (engine.base.fingerprint(), engine.fingerprint()) == (base, policy)
    again = TorchCritic(learner_of(thin_model, "a").engine)
    again.load(critic.state())
    assert np.array_equal(again.values(table), critic.values(table))


# -- whole runs ----------------------------------------------------------------------------------


@pytest.mark.longest
def test_a_killed_run_of_two_adapters_ends_bit_for_bit_as_an_unbroken_one_and_its_models_are_adapters(
    tmp_path: Path, referential_model: Path
) -> None:
    small = (
        "train.steps=4",
        "train.episodes=16",
        "train.save_every=2",
        "evaluate.episodes=8",
        "run.concurrency=16",
    )
    warm = for_both("train.warm_start.AGENT.episodes=32", "train.warm_start.AGENT.steps=4")
    adapters = for_both("policies.AGENT.lora={rank: 4}")
    settings = of_models(referential_model, *adapters, *small, *warm, "train.loss.kl=0.01")
    summary = broken_and_whole(tmp_path, settings)
    assert summary["changed"] == ["speaker", "listener"]
    for line in steps_of(tmp_path / "whole"):
        for learned in line["policies"].values():
            assert learned["logprob_gap"] < 1e-5
            assert learned["parity_gap"] < 1e-5
    for agent in ("speaker", "listener"):
        assert {file.name for file in (tmp_path / "whole" / "models" / agent).iterdir()} == {
            "adapter_config.json",
            "adapter_model.safetensors",
            "base.json",
        }
    options = "constrain: null, max_tokens: 8"
    found = {name: tmp_path / "whole" / model["path"] for name, model in summary["models"].items()}
    names = [
        f"policies.{name}={{model: transformers/{folder}, {options}}}"
        for name, folder in found.items()
    ]
    again = run_training(
        config.load(
            CONFIGS / "referential.yaml",
            [*names, "train.policies=[]", "train.warm_start={}", "evaluate.episodes=8"],
        ).config
    )
    assert again["before"]["sampled"] == summary["after"]["sampled"]


@pytest.mark.longest
def test_a_league_of_adapters_is_adapter_folders_that_play_on_the_one_base(
    thin_model: Path, tmp_path: Path
) -> None:
    settings = config.load(
        "kuhn_table",
        [
            f"policies.main.model=transformers/{thin_model}",
            "policies.main.lora={rank: 2, targets: [q_proj, v_proj]}",
            "policies.main.max_tokens=4",
            "train.steps=4",
            "train.episodes=8",
            "train.lr=0.01",
            "train.save_every=1",
            "train.estimator={name: gae, key: [policy]}",
            "train.opponents={latest: 0.4, uniform: 0.6}",
            "train.pool.every=1",
            "train.pool.loaded=2",
            "evaluate.episodes=4",
        ],
    ).config

    summary = broken_and_whole(tmp_path, settings)
    assert summary["changed"] == ["main"] and summary["league"]["members"] == 5
    played = list(read_episodes(tmp_path / "whole"))
    assert any("@" in (seat.policy or "") for episode in played for seat in episode.cast.values())
    for member in (tmp_path / "whole" / "league").iterdir():
        assert {file.name for file in member.iterdir()} == {
            "adapter_config.json",
            "adapter_model.safetensors",
            "base.json",
        }
        assert sum(file.stat().st_size for file in member.iterdir()) < 20_000


@pytest.mark.long
def test_a_config_names_adapters_beside_itself_and_frozen_policies_share_their_base(
    thin_model: Path, tmp_path: Path
) -> None:
    from gem_ma.runs.plans import open_policies

    Transformers(str(thin_model), policy="made", lora={"rank": 2}).save(
        tmp_path / "adapters" / "mine"
    )
    (tmp_path / "run.yaml").write_text(
        "scenario: {id: kuhn_poker}\nagents: {player_0: {policy: main}, player_1: {policy:"
        f" rival}}}}\npolicies:\n  main: {{model: transformers/{thin_model}, lora: adapters/mine,"
        f" max_tokens: 4}}\n  rival: {{model: transformers/{thin_model}, max_tokens: 4}}\ntrain:"
        " {policies: [main]}\n"
    )
    loaded = config.load(tmp_path / "run.yaml")
    policies = open_policies(loaded.config, base=loaded.base)
    main, rival = (policies[name].engine.engine for name in ("main", "rival"))  # type: ignore[attr-defined]
    assert main.base is rival.base and main.adapter is not None and rival.adapter is None
    both = config.load(tmp_path / "run.yaml", ["train.policies=[main, rival]"])
    main, rival = (
        policy.engine.engine for policy in open_policies(both.config, base=both.base).values()
    )  # type: ignore[attr-defined]
    assert main.base is not rival.base  # it learns all its weights, so they are its own


@pytest.mark.long
def test_what_is_learned_is_not_changed_by_entropy_or_ratio_of_turns(thin_model: Path) -> None:
    learner = learner_of(thin_model, "a")
    table = credit.turns(episodes([learner], 16), "a")
    for ratio in ("turn_sum", "episode"):
        found = update(learner, table, ratio=ratio, entropy=0.01)  # type: ignore[arg-type]
        assert found["entropy"] > 0 and np.isfinite(found["loss"])
        learner.publish()
