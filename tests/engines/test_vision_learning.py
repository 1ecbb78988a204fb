"""Rows with images reach the learner: sampler and learner agree on what an image makes likely, whole
or by an adapter, packed, published, resumed and in several processes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gem_ma import Ask, Reward, Scenario, credit
from gem_ma.config.learning import CriticSettings, LossSettings
from gem_ma.config.training import WarmStartSettings
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy, open_engine
from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Image, Message, Request, Sampling
from gem_ma.record.codec import dump_episode, load_episode
from gem_ma.record.shapes import shown_in, with_bytes
from gem_ma.training.learner import Demonstration
from gem_ma.training.learner.rows import pictures_of, rows
from tests.plays import played_all

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("PIL.Image", reason="needs the vision extra")


from gem_ma.engines.local.tiny import make_model  # noqa: E402
from gem_ma.engines.local.transformers import Vision  # noqa: E402
from gem_ma.training.learner.cloning import listens  # noqa: E402
from gem_ma.training.learner.torch_critic import TorchCritic  # noqa: E402
from gem_ma.training.learner.torch_learner import TorchLearner  # noqa: E402

HOW = Sampling(max_tokens=4)


def picture(number: int, size: tuple[int, int] = (16, 16)) -> Image:
    pixels = np.random.default_rng(number).integers(0, 256, (*size, 3)).astype(np.uint8)
    return Image.drawn(pixels)


class Look(Scenario):
    """Two questions about pictures, of other sizes, one behind the other; the first one is free."""

    agents = ("viewer",)

    def play(self, rng: random.Random, task: Any) -> Iterator[Any]:
        first = picture(rng.randrange(3))
        yield Ask({"viewer": Message((first, "red or blue?"))}, legal=("red", "blue"))
        second = Message(("and these?", picture(7, (16, 40)), picture(rng.randrange(3))))
        yield Ask({"viewer": second}, legal=("red", "blue", "red blue"))
        yield Reward({"viewer": rng.random()}, why="luck")


@pytest.fixture(scope="module")
def eye(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "eye"
    make_model(folder, Look(), architecture="qwen2-vl", positions=256)
    return folder


def learner_of(eye: Path, **options: Any) -> TorchLearner:
    return TorchLearner(Vision(str(eye), policy="eye", **options), HOW)


def episodes(learner: TorchLearner, count: int = 8) -> list[Episode]:
    policies = {"eye": Policy("eye", open_engine_of(learner), HOW)}
    plans = [Plan(Look(), {"viewer": Seat("direct", "eye")}, seed=n) for n in range(count)]
    played = played_all(plans, policies, deterministic=True)
    # a play that failed is data, and would be learned from by nobody
    assert [episode.error for episode in played] == [None] * count
    return played


def open_engine_of(learner: TorchLearner) -> Any:
    from gem_ma.engines.batching import Batched

    return Batched(learner.engine)


def update(learner: TorchLearner, played: list[Episode], **options: Any) -> dict[str, float]:
    table = credit.turns(played, "eye")
    noise = np.random.default_rng(0).normal(size=len(table))
    settings = LossSettings(**options)
    return learner.update(table, noise, lr=1e-2, settings=settings, rng=random.Random(0))


OPTIONS: list[dict[str, Any]] = [
    {},
    {"constrain": "legal"},
    {"lora": {"rank": 4}},
    {"dtype": "bfloat16"},
]


@pytest.mark.longest
@pytest.mark.parametrize("options", OPTIONS)
def test_what_is_sampled_is_scored_alike_learned_and_published(
    eye: Path, options: dict[str, Any]
) -> None:
    learner = learner_of(eye, **options)
    start = {name: weight.detach().clone() for name, weight in learner.parameters.items()}
    most = 0.1 if "dtype" in options else 1e-5
    for _ in range(2):
        metrics = update(learner, episodes(learner), minibatches=2)
        assert metrics["logprob_gap"] < most and metrics["tokens"] > 16
        # the second question goes on from the first answer, with a picture behind it
        assert metrics["forks"] == 0 and metrics["rows"] == 8
        assert learner.publish()["parity_gap"] < most
    moved = {name for name, weight in learner.parameters.items() if not weight.equal(start[name])}
    assert any("visual" in name for name in moved) and any("language" in name for name in moved)


@pytest.mark.long
def test_a_batch_samples_what_its_rows_sample_alone(eye: Path) -> None:
    engine = Vision(str(eye), policy="eye")
    messages = [(picture(0),), ("words alone",), (picture(1, (40, 16)), "x", picture(2)), ("y",)]
    asked = [
        Request("a", (Message(content),), seed=seed, sampling=Sampling(max_tokens=6))
        for seed, content in enumerate(messages)
    ]
    together = engine.sample_batch(asked)
    for request, reply in zip(asked, together, strict=True):
        (alone,) = engine.sample_batch([request])
        assert alone.token_ids == reply.token_ids
        assert np.allclose(alone.logprobs, reply.logprobs, rtol=0, atol=1e-5)
        assert reply.images == tuple(
            part.digest for part in request.messages[0].content if isinstance(part, Image)
        )


@pytest.mark.long
def test_rows_share_a_prompt_only_where_they_saw_the_same(eye: Path) -> None:
    """Prompts of equal ids in the record, of which some show another image."""
    learner = learner_of(eye)
    played = episodes(learner, 12)
    table = credit.turns(played, "eye")
    learner.look(table)
    made = rows(table, np.zeros(len(table)), "eye", sight=learner.sight).rows
    recorded = {turn.replies[0].prompt_ids for turn in table.turns if turn.step == 0}
    assert len(recorded) == 1
    prompts = {tuple(row.ids[: int(row.mask.argmax())]) for row in made}
    assert (
        len(prompts) == len({turn.replies[0].images for turn in table.turns if turn.step == 0}) == 3
    )
    whole = learner.scorer.logprobs(made)
    assert learner.scorer.branches and learner.scorer.selects
    learner.scorer.branches = learner.scorer.selects = False
    apart = np.concatenate([learner.scorer.logprobs([row]) for row in made])
    assert np.allclose(whole, apart, rtol=0, atol=1e-5)
    assert np.allclose(whole, np.concatenate([row.logprob[row.mask] for row in made]), atol=1e-5)


@pytest.mark.long
def test_another_image_of_the_same_size_is_another_prompt(eye: Path) -> None:
    learner = learner_of(eye)
    sight: Any = learner.sight
    turn = episodes(learner, 1)[0].turns[0]
    shown = sight.open([picture(0), picture(50)])
    prompts = [sight.seen(turn.replies[0].prompt_ids, [one.image.digest]) for one in shown]
    first, second = learner.score([(prompt, turn.replies[0].token_ids) for prompt in prompts])
    assert np.abs(first - second).max() > 1e-4
    with pytest.raises(EngineError, match="image tokens"):
        sight.seen(turn.replies[0].prompt_ids, [one.image.digest for one in shown])


@pytest.mark.long
def test_an_image_without_bytes_is_refused_in_one_line(eye: Path) -> None:
    played = episodes(learner_of(eye), 2)
    read, learner = [load_episode(dump_episode(one)) for one in played], learner_of(eye)
    with pytest.raises(EngineError, match="digest only") as refused:
        update(learner, read)
    assert "\n" not in str(refused.value)


@pytest.mark.long
def test_a_record_that_was_read_is_learned_from_with_its_images(eye: Path) -> None:
    learner = learner_of(eye)
    played = episodes(learner, 4)
    stored = {image.digest: image.data for episode in played for image in shown_in(episode)}
    read = [with_bytes(load_episode(dump_episode(one)), stored.__getitem__) for one in played]
    assert read == played
    again = learner_of(eye)
    assert update(learner, played) == update(again, read)
    assert learner.fingerprint() == again.fingerprint()


@pytest.mark.long
def test_images_are_held_as_long_as_rows_are(eye: Path) -> None:
    learner = learner_of(eye)
    played = episodes(learner, 3)
    sight: Any = learner.sight
    sight.images._recent.clear()
    table = credit.turns(played, "eye")
    with pytest.raises(EngineError, match="no message of the play"):
        rows(table, np.zeros(len(table)), "eye", sight=sight)
    held = pictures_of(table, "eye", sight)
    sight.images._recent.clear()
    assert len(rows(table, np.zeros(len(table)), "eye", sight=sight).rows) == 3
    del held


@pytest.mark.longest
def test_a_critic_sees_what_the_policy_saw(eye: Path) -> None:
    for options in ({}, {"lora": {"rank": 2}}):
        learner = learner_of(eye, **options)
        critic, table = TorchCritic(learner.engine), credit.turns(episodes(learner), "eye")
        settings = CriticSettings(lr=1e-2, epochs=4)
        first = critic.fit(table, table.ret, settings, random.Random(0))
        assert (
            critic.fit(table, table.ret, settings, random.Random(0))["value_loss"]
            < first["value_loss"]
        )
        assert len(set(np.round(critic.values(table), 5))) > 2


@pytest.mark.longest
def test_a_clone_of_what_is_shown_listens(eye: Path) -> None:
    """An answer that depends on the picture alone is learned from demonstrations."""
    learner = learner_of(eye)
    examples = [
        Demonstration(
            Request("viewer", (Message((picture(number), "red or blue?")),), legal=("red", "blue")),
            ("red", "blue")[number % 2],
        )
        for number in range(6)
    ]
    numbers: Any = {"steps": 60, "batch": 6, "lr": 3e-3, "seed": 0}
    clone = learner.clone(examples, WarmStartSettings(cast={}, **numbers))
    assert clone["loss"] < 0.2 < clone["loss_first"]
    learner.publish()
    effect = listens(learner, examples)
    assert effect is not None and effect > 0.5


@pytest.mark.long
def test_policies_with_adapters_share_a_base_and_are_sampled_apart(eye: Path) -> None:
    learner, other = learner_of(eye, lora={"rank": 2}), Vision(str(eye), lora={"rank": 2})
    assert learner.engine.base is other.base and other.shares is None
    before = other.fingerprint()
    update(learner, episodes(learner, 4))
    learner.publish()
    assert other.fingerprint() == before


@pytest.mark.long
def test_a_saved_model_opens_again_and_says_the_same(eye: Path, tmp_path: Path) -> None:
    learner = learner_of(eye)
    update(learner, episodes(learner, 4))
    learner.publish()
    learner.engine.save(tmp_path / "saved")
    again = Vision(str(tmp_path / "saved"), policy="eye")
    assert again.fingerprint() == learner.fingerprint()
    asked = [Request("a", (Message((picture(3), "x")),), sampling=HOW)]
    assert again.sample_batch(asked) == [
        replace(reply, version=0) for reply in learner.engine.sample_batch(asked)
    ]


@pytest.mark.long
def test_options_that_vision_cannot_keep_are_refused_in_one_line(eye: Path) -> None:
    with pytest.raises(ConfigError, match="kv_tokens") as refused:
        Vision(str(eye), policy="eye", kv_tokens=100)
    assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError, match="write model: vision/"):
        open_engine("eye", f"transformers/{eye}")
