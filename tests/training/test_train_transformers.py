"""The same loop with token policies: a tiny language model learns, resumes bit for bit, and
stays as it is where it is frozen."""

from __future__ import annotations

import pytest

from gem_ma import config
from gem_ma.training.train import run_training

pytest.importorskip("torch")

from tests.broken_runs import broken_and_whole, for_both, of_models, steps_of

SMALL = (
    "train.steps=4",
    "train.episodes=32",
    "train.save_every=2",
    "evaluate.episodes=32",
    "run.concurrency=32",
)
WARM = for_both("train.warm_start.AGENT.episodes=64", "train.warm_start.AGENT.steps=8")


@pytest.mark.longest
def test_a_killed_run_of_language_models_ends_bit_for_bit_as_an_unbroken_one(
    tmp_path, referential_model
):
    settings = of_models(referential_model, *SMALL, *WARM)

    summary = broken_and_whole(tmp_path, settings)
    assert summary["changed"] == ["speaker", "listener"]
    for line in steps_of(tmp_path / "whole"):
        for learned in line["policies"].values():
            assert learned["logprob_gap"] < 1e-5
            assert learned["parity_gap"] < 1e-5


@pytest.mark.longest
def test_a_killed_run_whose_turns_reuse_kept_kv_ends_as_an_unbroken_one_beside_a_frozen_policy_too(
    tmp_path,
):
    """A cached beginning differs from a computed one in the last bits, and a frozen policy keeps
    its version: neither may show in the record."""
    from gem_ma.engines.local.tiny import make_model

    make_model(str(tmp_path / "kuhn"), "kuhn_poker")
    policy = f"{{model: transformers/{tmp_path / 'kuhn'}, constrain: legal, max_tokens: 4}}"
    changes = [f"policies.{name}={policy}" for name in ("main", "other")]
    changes += [
        "agents.player_1.policy=other",
        "train.steps=4",
        "train.episodes=16",
        "train.save_every=2",
        "train.lr=0.01",
        "evaluate.episodes=16",
    ]
    settings = config.load("kuhn_table", changes).config

    summary = broken_and_whole(tmp_path, settings)
    assert summary["unchanged"] == ["other"]
    assert '"cached_tokens":' in (tmp_path / "whole" / "episodes.jsonl").read_text()
    steps = steps_of(tmp_path / "whole")
    assert all(line["policies"]["main"]["logprob_gap"] < 1e-5 for line in steps)


@pytest.mark.longest
def test_a_frozen_language_model_stays_bit_equal_while_its_partner_learns(referential_model):
    summary = run_training(of_models(referential_model, *SMALL, *WARM, "train.policies=[listener]"))
    assert (summary["changed"], summary["unchanged"]) == (["listener"], ["speaker"])


@pytest.mark.longest
def test_self_play_of_a_language_model_is_scored_exactly(tmp_path):
    from gem_ma.engines.local.tiny import make_model

    make_model(str(tmp_path / "kuhn"), "kuhn_poker")
    small = ("train.steps=1", "train.episodes=8", "evaluate.episodes=8", "train.lr=0.001")
    demonstrators = "{player_0: {behaviour: noisy_kuhn}, player_1: {behaviour: noisy_kuhn}}"
    warm = (
        f"train.warm_start={{main: {{cast: {demonstrators}, episodes: 64, steps: 60, batch: 32}}}}"
    )
    loaded = config.load(
        "kuhn_table",
        [f"policies.main={{model: transformers/{tmp_path / 'kuhn'}, max_tokens: 4}}", warm, *small],
    )
    after = run_training(loaded.config)["after"]
    assert 0 < after["nash_conv"] < 2
    assert 0 < after["nash_conv_averaged"] < 2


@pytest.mark.learning
def test_two_language_models_begin_to_understand_each_other(referential_model):
    """A few updates of one seed; `make test-learning` asks for the whole of it."""
    warm = for_both("train.warm_start.AGENT.episodes=256", "train.warm_start.AGENT.batch=32")
    warm += ["train.warm_start.speaker.steps=100", "train.warm_start.listener.steps=160"]
    summary = run_training(
        of_models(
            referential_model,
            *warm,
            "train.steps=10",
            "train.lr_final=0.5",
            "evaluate.episodes=128",
        )
    )
    before, after = (summary[when]["sampled"]["success"] for when in ("before", "after"))
    assert before <= 0.30
    assert after >= before + 0.15
