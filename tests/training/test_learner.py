"""The torch learner: parity, exact gradients, frozen weights, exact resume, cloning that
listens, refusals."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gem_ma import credit
from gem_ma.config.training import WarmStartSettings
from gem_ma.engines.base import Policy, open_engine
from gem_ma.engines.batching import Batched
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, DataError, EngineError
from gem_ma.kernel.types import Message, Request, Sampling, ToolCall

torch = pytest.importorskip("torch", reason="needs the train extra")

from gem_ma.training.learner import Demonstration  # noqa: E402
from gem_ma.training.learner.rows import rows  # noqa: E402
from gem_ma.training.learner.torch_learner import TorchLearner  # noqa: E402
from tests.plays import hands, learn  # noqa: E402

CARDS = {card: f"Kuhn poker. Your card is {card}." for card in "JQK"}
FIRST = "Moves so far: none. Choose check or bet."


def learner_of(path: Path, policy: str = "main", **sampling: Any) -> TorchLearner:
    engine: Any = open_engine(policy, f"transformers/{path}")
    return TorchLearner(engine.engine, Sampling(**sampling))


def episodes(
    learners: Sequence[TorchLearner], count: int = 24, first: int = 0, **sampling: Any
) -> list[Episode]:
    """Hands of Kuhn between two policies, or of one with itself."""
    how = Sampling(**{"max_tokens": 4, **sampling})
    policies = [Policy(one.policy, Batched(one.engine), how) for one in learners]
    return hands(*policies, count=count, first=first)


def noise(table: Any, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([random.Random(f"{seed}/{at}").gauss(0, 1) for at in range(len(table.turns))])


def update(
    learner: TorchLearner, table: Any, seed: int = 0, lr: float = 1e-3, **settings: Any
) -> dict[str, float]:
    return learn(learner, table, noise(table, seed), lr=lr, seed=seed, **settings)


def plain(learner: TorchLearner, prompt: Sequence[int], ids: Sequence[int]) -> Any:
    """Log-probabilities [len(ids)] by one forward pass per token: no padding, no packing, no
    cache."""
    result = []
    for at, token in enumerate(ids):
        logits = learner.engine.model(torch.tensor([[*prompt, *ids[:at]]]), use_cache=False).logits[
            0, -1
        ]
        result.append(
            ((logits + learner.engine.banned) / learner.temperature).log_softmax(-1)[token]
        )
    return torch.stack(result)


# -- parity --------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("model", "temperature"), [("thin_model", 1.0), ("byte_model", 0.7)])
def test_the_learner_gives_sampled_tokens_the_probability_they_were_sampled_with(
    model: str, temperature: float, request: pytest.FixtureRequest
) -> None:
    learner = learner_of(request.getfixturevalue(model), temperature=temperature)
    texts = ["Your card is J. " * (1 + 3 * seed % 7) for seed in range(24)]
    how = Sampling(temperature=temperature, max_tokens=9)
    asked = [Request("a", (Message(text),), seed=at, sampling=how) for at, text in enumerate(texts)]
    replies = learner.engine.sample_batch(asked)
    scored = learner.score([(reply.prompt_ids, reply.token_ids) for reply in replies])
    for ours, reply in zip(scored, replies, strict=True):
        assert np.abs(ours - np.array(reply.logprobs)).max() < 1e-5
    for ours, reply in zip(scored[:7], replies, strict=False):  # a prompt of each length
        with torch.no_grad():
            alone = plain(learner, reply.prompt_ids, reply.token_ids).numpy()
        assert np.abs(ours - alone).max() < 1e-5


@pytest.mark.long
@pytest.mark.parametrize("model", ["thin_model", "byte_model"])
def test_rollouts_of_several_turns_are_rescored_within_the_tolerance_and_never_fork(
    model: str, request: pytest.FixtureRequest
) -> None:
    learner = learner_of(request.getfixturevalue(model))
    played = episodes([learner], 40)
    assert any(len([t for t in e.turns if t.agent == "player_0"]) == 2 for e in played)
    metrics = update(learner, credit.turns(played, "main"))
    assert 0 <= metrics["logprob_gap"] < 1e-5
    assert metrics["mismatch_kl"] < 1e-9
    assert metrics["forks"] == 0
    assert metrics["rows"] == 80
    assert metrics["tokens"] == sum(
        len(reply.token_ids) for e in played for t in e.turns for reply in t.replies
    )


@pytest.mark.long
@pytest.mark.parametrize("kind", ["gemma2", "llama"])
def test_another_architecture_is_learned_with_the_logits_it_samples_from(
    kind: str, byte_model: Path, tmp_path: Path
) -> None:
    import transformers

    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
    }
    tokenizer = transformers.AutoTokenizer.from_pretrained(byte_model)
    shape |= {
        "vocab_size": len(tokenizer),
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    # caps its logits after the head, and every second layer sees four tokens only
    if kind == "gemma2":
        model: Any = transformers.Gemma2ForCausalLM(
            transformers.Gemma2Config(**shape, final_logit_softcapping=0.5, sliding_window=4)
        )
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape))
    folder = shutil.copytree(byte_model, tmp_path / kind)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder)
    learner = learner_of(folder)
    metrics = update(learner, credit.turns(episodes([learner], 8), "main"))
    assert metrics["logprob_gap"] < 1e-5
    assert learner.publish()["parity_gap"] < 1e-5
    assert (learner.scorer.selects, learner.scorer.branches) == (True, kind != "gemma2")


@pytest.mark.parametrize("model", ["thin_model", "byte_model"])
def test_our_own_architecture_is_learned_by_the_fast_path(
    model: str, request: pytest.FixtureRequest
) -> None:
    learner = learner_of(request.getfixturevalue(model))
    # a wrong fast path would only turn itself off
    assert (learner.scorer.selects, learner.scorer.branches) == (True, True)


# -- gradients -----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("ratio", ["token", "episode"])
def test_small_passes_add_up_to_the_same_step(thin_model: Path, ratio: str) -> None:
    whole, cut = learner_of(thin_model), learner_of(thin_model)
    table = credit.turns(episodes([whole]), "main")
    told = []
    for learner, tokens in ((whole, 16_384), (cut, 64)):
        learner.optimizer = torch.optim.SGD(learner.parameters.values(), lr=1.0)
        told.append(
            update(
                learner,
                table,
                lr=0.1,
                minibatches=1,
                pass_tokens=tokens,
                ratio=ratio,
                entropy=0.01,
                kl=0.1,
            )
        )
    assert len(list(cut.scorer.packs(rows(table, noise(table), "main").rows))) > 4
    assert told[0] == pytest.approx(told[1], abs=1e-6)
    for name, weight in whole.parameters.items():
        assert torch.allclose(weight, cut.parameters[name], atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("ratio", ["token", "turn_sum"])
def test_the_log_probabilities_of_before_are_of_before_whichever_minibatch_measures_them(
    ratio: str, thin_model: Path
) -> None:
    table = credit.turns(episodes([learner_of(thin_model)]), "main")
    for minibatches, epochs in ((1, 1), (4, 1), (4, 3)):
        found = update(
            learner_of(thin_model),
            table,
            lr=0.05,
            ratio=ratio,
            minibatches=minibatches,
            epochs=epochs,
        )
        assert found["optimizer_steps"] == minibatches * epochs
        # the same weights sampled them; lr .05 moves them by nats
        assert found["logprob_gap"] < 1e-5 and found["mismatch_kl"] < 1e-9
        assert (found["kl"] > 1e-3) == (minibatches > 1)


@pytest.mark.long
def test_a_single_minibatch_costs_one_pass_and_no_other_ahead_of_it(
    thin_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learner_of(thin_model)
    table = credit.turns(episodes([learner]), "main")
    passes = []
    learner.noise = 1e-6  # as after a publish, which measures it
    ahead = learner.scorer._ahead
    monkeypatch.setattr(
        learner.scorer, "_ahead", lambda pack: passes.append(torch.is_grad_enabled()) or ahead(pack)
    )
    update(learner, table, minibatches=1)
    alone = len(list(learner.scorer.packs(rows(table, noise(table), "main").rows)))
    assert passes == [True] * alone
    passes.clear()
    update(learner, table, ratio="turn_sum", minibatches=1)
    assert passes == [False] * 2 * alone + [True] * alone  # before, now, and the gradient


def test_the_sampled_end_of_turn_is_trained(thin_model: Path) -> None:
    learner = learner_of(thin_model)
    prompt, said = (
        learner.engine.chat.render("a", (Message(FIRST),)),
        learner.engine.chat.answer("bet"),
    )
    assert said[-1] in learner.engine.vocabulary.ends
    before = learner.score([(prompt, said)])[0]
    table = credit.turns(episodes([learner], 1), "main").take([0])
    reply = replace(
        table.turns[0].replies[0],
        prompt_ids=prompt,
        token_ids=said,
        logprobs=tuple(before),
        finish="stop",
    )
    table = replace(table, turns=(replace(table.turns[0], replies=(reply,)),))
    learn(learner, table, np.ones(1), lr=1e-3)
    assert (learner.score([(prompt, said)])[0] > before + 0.01).all()


@pytest.mark.long
def test_words_of_others_are_never_trained(thin_model: Path) -> None:
    mine, other = learner_of(thin_model, "mine"), learner_of(thin_model, "other")
    played = episodes([mine, other], 16)
    table = credit.turns(played, "mine")
    assert {turn.agent for turn in table.turns} == {"player_0"}
    update(mine, table)
    swapped = learner_of(thin_model, "mine")
    louder = [
        replace(
            e, turns=tuple(t if t.agent == "player_0" else replace(t, replies=()) for t in e.turns)
        )
        for e in played
    ]
    update(swapped, credit.turns(louder, "mine"))
    # what the other said weighs nothing in the step
    assert swapped.fingerprint() == mine.fingerprint()


# -- versions, frozen weights, resume ------------------------------------------------------------


@pytest.mark.long
def test_learning_one_policy_leaves_the_other_bit_equal_though_they_share_a_folder(
    thin_model: Path,
) -> None:
    mine, frozen = (
        learner_of(thin_model, "mine"),
        open_engine("frozen", f"transformers/{thin_model}").engine,
    )  # type: ignore[attr-defined]
    before = frozen.fingerprint()
    assert mine.fingerprint() == before
    update(mine, credit.turns(episodes([mine], 16), "mine"))
    mine.publish()
    assert frozen.fingerprint() == before != mine.fingerprint()
    assert not any(weight.requires_grad for weight in frozen.model.parameters())


@pytest.mark.long
def test_nothing_is_sampled_between_an_update_and_its_publish(thin_model: Path) -> None:
    learner = learner_of(thin_model)
    request = Request("a", (Message(FIRST),), sampling=Sampling(max_tokens=2))
    assert learner.engine.sample_batch([request])[0].version == 0
    update(learner, credit.turns(episodes([learner], 8), "main"))
    with pytest.raises(EngineError, match=r"'main'.*publish"):
        learner.engine.sample_batch([request])
    assert learner.publish()["parity_gap"] < 1e-5
    assert (learner.version, learner.engine.sample_batch([request])[0].version) == (1, 1)


@pytest.mark.long
def test_a_sampler_that_disagrees_is_not_published(
    thin_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learner_of(thin_model)
    update(learner, credit.turns(episodes([learner], 8), "main"))
    forward: Callable[..., Any] = learner.engine.decoder._forward

    def stale(*args: Any) -> Any:  # what keeping an old cache or an old head looks like
        out = forward(*args)
        out.logits = out.logits + 0.01 * torch.arange(out.logits.shape[-1])
        return out

    monkeypatch.setattr(learner.engine.decoder, "_forward", stale)
    with pytest.raises(EngineError, match=r"'main'.*differ by .* nats"):
        learner.publish()
    assert learner.version == 0
    with pytest.raises(EngineError, match="publish"):
        learner.engine.sample_batch([Request("a", (Message(FIRST),))])


@pytest.mark.longest
def test_a_resumed_learner_ends_bit_equal_to_one_that_was_never_stopped(thin_model: Path) -> None:
    def steps(learner: TorchLearner, numbers: Sequence[int]) -> list[dict[str, float]]:
        result = []
        for number in numbers:
            result.append(
                update(
                    learner,
                    credit.turns(episodes([learner], 12, first=100 * number), "main"),
                    number,
                    epochs=2,
                )
            )
            result[-1] |= learner.publish()
        return result

    straight = learner_of(thin_model)
    expected = steps(straight, range(4))
    stopped = learner_of(thin_model)
    steps(stopped, range(2))
    files = stopped.state()
    assert all(isinstance(data, bytes) for data in files.values())
    again = learner_of(thin_model)
    again.load(files)
    assert (again.version, again.fingerprint()) == (2, stopped.fingerprint())
    assert again.state() == files
    assert steps(again, range(2, 4)) == expected[2:]
    assert again.fingerprint() == straight.fingerprint()
    assert again.state() == straight.state()


@pytest.mark.long
@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda files: files.pop("optimizer.safetensors"), "optimizer.safetensors"),
        (
            lambda files: files.update({"model.safetensors": files["model.safetensors"][:1000]}),
            "cannot be read",
        ),
        (lambda files: files.update({"learner.json": b"{"}), "cannot be read"),
        (
            lambda files: files.update({"optimizer.safetensors": files["model.safetensors"]}),
            "optimizer",
        ),
    ],
)
def test_a_damaged_checkpoint_is_refused_and_changes_nothing(
    thin_model: Path, damage: Callable[[dict[str, bytes]], Any], named: str
) -> None:
    learner = learner_of(thin_model)
    update(learner, credit.turns(episodes([learner], 4), "main"))
    files = learner.state()
    damage(files)
    fresh = learner_of(thin_model)
    before = fresh.state()
    with pytest.raises(DataError, match=named):
        fresh.load(files)
    assert fresh.state() == before


def test_a_checkpoint_of_another_model_is_refused(thin_model: Path, byte_model: Path) -> None:
    with pytest.raises(DataError, match="another model"):
        learner_of(byte_model).load(learner_of(thin_model).state())


# -- steps and refusals --------------------------------------------------------------------------


@pytest.mark.long
def test_the_same_update_twice_gives_the_same_weights(thin_model: Path) -> None:
    one, two = learner_of(thin_model), learner_of(thin_model)
    table = credit.turns(episodes([one]), "main")
    assert update(one, table, epochs=2) == update(two, table, epochs=2)
    assert one.fingerprint() == two.fingerprint()


@pytest.mark.long
def test_target_kl_ends_an_update_that_runs_away(thin_model: Path) -> None:
    calm, wild = learner_of(thin_model), learner_of(thin_model)
    table = credit.turns(episodes([calm]), "main")
    assert update(calm, table, lr=1e-6, epochs=3, target_kl=0.02)["optimizer_steps"] == 12
    stopped = update(wild, table, lr=0.05, epochs=3, target_kl=0.02)
    assert stopped["stopped"] == 1
    assert 1 <= stopped["optimizer_steps"] < 12


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_number_that_is_not_finite_is_refused_with_its_episode(
    thin_model: Path, bad: float
) -> None:
    learner = learner_of(thin_model)
    table = credit.turns(episodes([learner], 6), "main")
    advantages = noise(table)
    advantages[3] = bad
    before = learner.fingerprint()
    with pytest.raises(EngineError, match="not finite") as caught:
        learn(learner, table, advantages, lr=1e-3)
    assert str(table.episodes[3].id) in str(caught.value)
    assert str(table.episodes[-1].id) not in str(caught.value)
    assert learner.fingerprint() == before


def test_nothing_to_learn_from_takes_no_step(thin_model: Path) -> None:
    learner = learner_of(thin_model)
    before = learner.fingerprint()
    assert update(learner, credit.turns([], "main"))["optimizer_steps"] == 0
    assert learner.fingerprint() == before
    assert learner.publish()["version"] == 1


@pytest.mark.parametrize("sampling", [{"top_p": 0.9}, {"top_k": 5}, {"temperature": 0.0}])
def test_a_policy_that_is_filtered_or_greedy_cannot_learn(
    thin_model: Path, sampling: dict[str, float]
) -> None:
    with pytest.raises(ConfigError, match=next(iter(sampling))):
        learner_of(thin_model, **sampling)


# -- cloning -------------------------------------------------------------------------------------


def demonstrations(bets: dict[str, float], count: int = 256) -> list[Demonstration]:
    rng = random.Random(0)
    return [
        Demonstration(
            Request("player_0", (Message(CARDS[card]), Message(FIRST))),
            "bet" if rng.random() < bets[card] else "check",
        )
        for card in rng.choices("JQK", k=count)
    ]


def bet_probability(learner: TorchLearner) -> dict[str, float]:
    chat = learner.engine.chat
    pairs = [
        (chat.render("player_0", (Message(CARDS[card]), Message(FIRST))), chat.answer("bet"))
        for card in "JQK"
    ]
    return dict(
        zip("JQK", (math.exp(scored.sum()) for scored in learner.score(pairs)), strict=True)
    )


def clone(
    path: Path, bets: dict[str, float], steps: int = 80
) -> tuple[TorchLearner, dict[str, float]]:
    learner = learner_of(path)
    metrics = learner.clone(demonstrations(bets), WarmStartSettings(cast={}, steps=steps, batch=48))
    return learner, {**metrics, **learner.publish()}


@pytest.mark.longest
def test_a_cloned_policy_depends_on_what_it_observes(thin_model: Path) -> None:
    wanted = {"J": 0.15, "Q": 0.5, "K": 0.85}
    learner, metrics = clone(thin_model, wanted)
    bets = bet_probability(learner)
    mean = sum(bets.values()) / 3
    assert max(abs(p - mean) for p in bets.values()) > 0.1
    assert bets == pytest.approx(wanted, abs=0.15)
    assert metrics["loss"] < 0.6 * metrics["loss_first"]
    # the check can fail: blind demonstrations teach a deaf policy
    deaf, _ = clone(thin_model, dict.fromkeys("JQK", 0.5))
    blind = bet_probability(deaf)
    assert max(abs(p - sum(blind.values()) / 3) for p in blind.values()) < 0.1


@pytest.mark.long
def test_cloning_twice_from_the_same_seed_gives_the_same_weights(thin_model: Path) -> None:
    bets = {"J": 0.0, "Q": 0.5, "K": 1.0}
    assert (
        clone(thin_model, bets, 10)[0].fingerprint() == clone(thin_model, bets, 10)[0].fingerprint()
    )


@pytest.mark.longest
def test_a_rewarded_action_becomes_likelier_for_the_card_it_was_rewarded_with(
    thin_model: Path,
) -> None:
    learner, _ = clone(thin_model, {"J": 0.3, "Q": 0.5, "K": 0.7})
    before = bet_probability(learner)
    for step in range(8):
        table = credit.turns(episodes([learner], 48, first=1000 * step), "main")
        table = table.take(["bet" in (turn.legal or ()) for turn in table.turns])
        good = [
            (turn.action.parsed == "bet") == ("card is K" in turn.observed[0].text)
            for turn in table.turns
        ]
        learn(learner, table, np.where(good, 1.0, -1.0), lr=2e-3, seed=step)
        learner.publish()
    after = bet_probability(learner)
    assert after["K"] > before["K"] + 0.15
    assert after["J"] < before["J"] - 0.15


def test_demonstrations_that_cannot_be_cloned_are_refused(thin_model: Path) -> None:
    learner, settings = learner_of(thin_model), WarmStartSettings(cast={}, steps=2)
    before = learner.fingerprint()
    with pytest.raises(ConfigError, match="no demonstrations"):
        learner.clone([], settings)
    with pytest.raises(ConfigError, match=r"no word for part of 'pass the salt'.*gem-ma new model"):
        learner.clone([Demonstration(Request("a", (Message(FIRST),)), "pass the salt")], settings)
    calls = (ToolCall("call_0", "ask", {"query": "pass the salt"}),)
    with pytest.raises(ConfigError, match=r"no word for part of .*pass the salt"):
        learner.clone([Demonstration(Request("a", (Message(FIRST),)), "", calls)], settings)
    with pytest.raises(ConfigError, match="4096 positions"):
        learner.clone([Demonstration(Request("a", (Message("bet " * 5000),)), "bet")], settings)
    assert learner.fingerprint() == before


# -- ratios, reference, correction ---------------------------------------------------------------


@pytest.mark.longest
@pytest.mark.parametrize("ratio", ["token", "turn_sum"])
def test_the_divergence_from_the_start_is_zero_at_the_start_and_pulls_back_later(
    ratio: str, thin_model: Path
) -> None:
    learner = learner_of(thin_model)
    table = credit.turns(episodes([learner]), "main")
    first = update(learner, table, lr=3e-3, kl=1.0, minibatches=1, ratio=ratio)
    assert first["kl_reference"] == pytest.approx(0.0, abs=1e-9)
    second = update(learner, table, lr=3e-3, kl=1.0, minibatches=1, ratio=ratio)
    assert second["kl_reference"] > 1e-6
    free = learner_of(thin_model)
    held = learner_of(thin_model)
    for _ in range(12):
        update(free, table, lr=3e-3, minibatches=1, kl=1e-9, ratio=ratio)
        update(held, table, lr=3e-3, minibatches=1, kl=10.0, ratio=ratio)
    away = [
        update(one, table, lr=0.0, minibatches=1, kl=1e-9, ratio=ratio)["kl_reference"]
        for one in (free, held)
    ]
    assert away[1] < away[0] / 2


@pytest.mark.long
def test_the_reference_survives_a_resume(thin_model: Path) -> None:
    learner, other = learner_of(thin_model), learner_of(thin_model)
    table = credit.turns(episodes([learner]), "main")
    update(learner, table, lr=3e-3, kl=0.5)
    other.load(learner.state())
    for one in (learner, other):
        update(one, table, seed=1, lr=3e-3, kl=0.5)
    assert learner.fingerprint() == other.fingerprint()
    assert all(
        torch.equal(weight, other.reference[name]) for name, weight in learner.reference.items()
    )
