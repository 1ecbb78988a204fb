"""Logits in chunks: the gradients of whole logits, for every family, whatever the head does; and
no more memory than the setting says."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gem_ma.config.learning import LossSettings
from gem_ma.engines.local.sampling import IdSet
from gem_ma.kernel.types import Sampling
from gem_ma.training.learner.losses import Sampled
from gem_ma.training.learner.rows import Row, Tokens

torch = pytest.importorskip("torch", reason="needs the train extra")

from gem_ma.engines.local.transformers import Transformers  # noqa: E402
from gem_ma.training.learner.forward import (  # noqa: E402
    Choice,
    Scored,
    chosen,
)
from gem_ma.training.learner.torch_learner import (  # noqa: E402
    Objective,
    TorchLearner,
)

SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
FAMILIES: dict[str, dict[str, Any]] = {  # what stands behind the trunk
    "qwen3": {"head_dim": 16, "tie_word_embeddings": True},
    "llama": {"tie_word_embeddings": False},
    "gemma2": {"head_dim": 16, "final_logit_softcapping": 0.5, "sliding_window": 4},  # caps
    "granite": {"logits_scaling": 8.0, "tie_word_embeddings": True},  # divides
    "cohere": {"logit_scale": 0.25},  # multiplies
    # another name of the trunk
    "gpt2": {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 128},
    "phi": {"tie_word_embeddings": False},  # a head with bias
    "gemma3_text": {"head_dim": 16, "final_logit_softcapping": 0.5},
}


@pytest.fixture(scope="module")
def families(byte_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Makes the model of a family once."""
    import transformers

    made: dict[str, Path] = {}

    def of(kind: str) -> Path:
        if kind not in made:
            tokenizer = transformers.AutoTokenizer.from_pretrained(byte_model)
            ends = {
                "vocab_size": len(tokenizer),
                "eos_token_id": tokenizer.eos_token_id,
                "pad_token_id": tokenizer.pad_token_id,
            }
            shape = FAMILIES[kind] if kind == "gpt2" else {**SHAPE, **FAMILIES[kind]}
            torch.manual_seed(0)
            model = transformers.AutoModelForCausalLM.from_config(
                transformers.AutoConfig.for_model(kind, **shape, **ends)
            )
            with torch.no_grad():
                for weight in model.parameters():  # far from uniform, and biases that are not 0
                    weight.add_(torch.randn(weight.shape) * 0.05)
            made[kind] = shutil.copytree(byte_model, tmp_path_factory.mktemp("families") / kind)
            (made[kind] / "model.safetensors").unlink()
            model.save_pretrained(made[kind])
        return made[kind]

    return of


def entropy(logprobs: Any) -> Any:
    """In nats of distributions [n, V]; -inf (an id that is never sampled) counts 0."""
    return -(logprobs.exp() * logprobs.clamp(min=-1e30)).sum(-1)


def some_rows(engine: Transformers, bound: bool = False) -> list[Row]:
    """Rows of two turns and of one, two of them equal, and some with one prompt; every third
    place bound to a few ids where `bound`."""
    rng = random.Random(0)
    usual = (engine.banned == 0).nonzero()[:, 0].tolist()
    made: list[Row] = []
    opening = rng.choices(usual, k=9)
    mask_of_ids = np.zeros(engine.vocabulary.size, np.bool_)
    mask_of_ids[usual] = True
    for number in range(6):
        ids = [
            *(opening if number % 2 else rng.choices(usual, k=12)),
            *rng.choices(usual, k=5 + number),
        ]
        mask = np.arange(len(ids)) >= len(ids) - 5 - number
        mask[-3] = number % 3 != 0  # an observation between two turns
        allowed: list[Any] = [None] * int(mask.sum())
        if bound:
            for at, token in enumerate(np.array(ids)[mask]):
                allowed[at] = (None, tuple({int(token), usual[0], usual[1]}), IdSet(mask_of_ids))[
                    at % 3
                ]
        worth = np.where(mask, rng.gauss(0, 1), 0.0)
        zeros, turn = np.zeros(len(ids)), np.where(mask, number, -1)
        made.append(
            Row(
                ("r", 0, number),
                np.array(ids, np.int64),
                mask,
                worth,
                zeros - 1.0,
                turn,
                np.zeros(len(ids), np.int64),
                tuple(allowed) if bound else (),
            )
        )
    return [*made, made[0]]


def gradients(learner: TorchLearner, rows: list[Row], settings: LossSettings) -> dict[str, Any]:
    """Of one minibatch by the passes of the learner."""
    tokens = Tokens.of(rows)
    old = learner.scorer.logprobs(rows) + 0.05 * np.sin(np.arange(len(tokens.turn)))
    anchor = old - 0.1 if settings.kl else None
    goal = Objective(
        Sampled(tokens.advantage, tokens.logprob, tokens.turn, tokens.turn),
        old,
        settings,
        learner.tensor,
        fresh=False,
        anchor=anchor,
        longest=8,
    )
    for pack in learner.scorer.packs(rows):
        learner.scorer.learn(pack, goal, spread=bool(settings.entropy), added=learner.gather)
    found = {
        name: weight.grad.double().clone()
        for name, weight in learner.masters.items()
        if weight.grad is not None
    }
    learner.forget()
    return found


def plain_gradients(
    learner: TorchLearner, rows: list[Row], settings: LossSettings
) -> dict[str, Any]:
    """The same by autograd alone, over whole logits of single rows: no chunks, no packing, no
    own formula."""
    engine, tokens = learner.engine, Tokens.of(rows)
    old = learner.scorer.logprobs(rows) + 0.05 * np.sin(np.arange(len(tokens.turn)))
    goal = Objective(
        Sampled(tokens.advantage, tokens.logprob, tokens.turn, tokens.turn),
        old,
        settings,
        learner.tensor,
        fresh=False,
        anchor=old - 0.1 if settings.kl else None,
        longest=8,
    )
    at = 0
    for row in rows:
        places = np.flatnonzero(row.mask) - 1
        with engine.active():
            logits = (
                engine.model(torch.from_numpy(row.ids)[None], use_cache=False)
                .logits[0, places]
                .float()
            )
        may = torch.ones(logits.shape, dtype=torch.bool)
        for place, ids in enumerate(row.allowed):
            if ids is not None:
                may[place] = (
                    torch.from_numpy(ids.mask)
                    if isinstance(ids, IdSet)
                    else torch.zeros(engine.vocabulary.size, dtype=torch.bool).index_fill(
                        0, torch.tensor(ids), True
                    )
                )
        scores = (logits + engine.banned).masked_fill(~may, -torch.inf)
        distribution = (scores / learner.temperature).log_softmax(-1)
        said = distribution.gather(1, torch.from_numpy(row.ids[row.mask])[:, None])[:, 0]
        goal(Scored(said, entropy(distribution), np.arange(at, at + len(said)))).backward()
        learner.gather()
        at += len(said)
    found = {
        name: weight.grad.double().clone()
        for name, weight in learner.masters.items()
        if weight.grad is not None
    }
    learner.forget()
    return found


def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The largest relative distance of the gradients of a weight."""
    assert one.keys() == other.keys()
    size = max(float(grad.norm()) for grad in other.values())
    return max(
        float((one[name] - other[name]).norm()) / max(float(other[name].norm()), 1e-3 * size)
        for name in other
    )


@pytest.mark.long
@pytest.mark.parametrize("kind", FAMILIES)
def test_gradients_in_chunks_are_those_of_whole_logits_in_every_family(
    kind: str, families: Any
) -> None:
    learner = TorchLearner(
        Transformers(str(families(kind)), policy="main"), Sampling(max_tokens=8, temperature=0.8)
    )
    assert learner.scorer.selects
    rows, settings = some_rows(learner.engine, bound=True), LossSettings(entropy=0.05, kl=0.1)
    expected = plain_gradients(learner, rows, settings)
    for places in (1, 3, 1 << 20):
        learner.scorer.pass_logits = places * learner.engine.vocabulary.size
        assert apart(gradients(learner, rows, settings), expected) < 2e-6, places
    learner.scorer.recompute = True
    assert apart(gradients(learner, rows, settings), expected) < 2e-6


ADAPTED = ["q_proj", "down_proj"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("targets", "settings"),
    [
        (None, {"entropy": 0.05}),
        (None, {"aggregation": "token_mean"}),
        (ADAPTED, {}),
        (ADAPTED, {"entropy": 0.05, "kl": 0.1}),
    ],
    ids=str,
)
def test_chunks_change_no_gradient(
    targets: list[str] | None, settings: dict[str, Any], families: Any
) -> None:
    lora = {"rank": 4, "targets": targets} if targets else None
    learner = TorchLearner(
        Transformers(str(families("llama")), policy="main", lora=lora), Sampling(max_tokens=8)
    )
    with torch.no_grad():
        for name, weight in learner.parameters.items():
            if "lora_B" in name:  # 0 in a new adapter
                weight.add_(0.1)
    rows, how = some_rows(learner.engine), LossSettings(**settings)
    whole = gradients(learner, rows, how)
    learner.scorer.pass_logits = 2 * learner.engine.vocabulary.size
    assert apart(gradients(learner, rows, how), whole) < 1e-6
    learner.scorer.recompute = True
    assert apart(gradients(learner, rows, how), whole) < 1e-6
    assert apart(plain_gradients(learner, rows, how), whole) < 2e-6
    assert all(bool(grad.any()) for grad in whole.values())


@pytest.mark.long
def test_chunks_of_rounded_weights_add_up_in_float32(families: Any) -> None:
    """A head in bfloat16 gets a gradient from each chunk: added up rounded, many chunks would be
    worse than one."""
    exact = TorchLearner(
        Transformers(str(families("llama")), policy="main"), Sampling(max_tokens=8)
    )
    learner = TorchLearner(
        Transformers(str(families("llama")), policy="main", dtype="bfloat16"),
        Sampling(max_tokens=8),
    )
    with torch.no_grad():
        for name, weight in exact.parameters.items():
            weight.copy_(learner.parameters[name])
    rows, how = some_rows(learner.engine), LossSettings()
    true = gradients(exact, rows, how)
    errors = []
    for places in (1 << 20, 1):
        learner.scorer.pass_logits = places * learner.engine.vocabulary.size
        errors.append(
            float(
                (gradients(learner, rows, how)["lm_head.weight"] - true["lm_head.weight"]).norm()
                / true["lm_head.weight"].norm()
            )
        )
    assert errors[1] < 1.2 * errors[0] < 0.1


@pytest.mark.parametrize("spread", [None, False, True])
def test_what_is_chosen_and_how_sure_it_was(spread: bool | None) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 11, generator=generator) * 3
    target = torch.tensor([1, 2, 3, 4, 0])
    may = torch.ones(5, 11, dtype=torch.bool)
    may[1] = torch.arange(11) < 4
    found, uncertain = chosen(
        logits.clone(), target, Choice(torch.tensor([0, 7]), may, 0.7), spread
    )
    scores = logits.clone()
    scores[:, [0, 7]] = -torch.inf
    expected = (scores.masked_fill(~may, -torch.inf) / 0.7).log_softmax(-1)
    assert torch.allclose(found[:4], expected.gather(1, target[:, None])[:4, 0], atol=1e-6)
    assert found[4] == -torch.inf  # never sampled, so it has no probability
    assert torch.allclose(
        uncertain, entropy(expected) if spread is not None else torch.zeros(5), atol=1e-6
    )


def test_no_more_logits_stand_than_the_setting_allows(families: Any) -> None:
    """Whatever the length of a reply."""
    learner = TorchLearner(
        Transformers(str(families("llama")), policy="main"), Sampling(max_tokens=8)
    )
    learner.scorer.pass_logits = 4 * learner.engine.vocabulary.size
    ids = np.arange(5, 105, dtype=np.int64)
    mask = np.arange(100) >= 1
    long = Row(("r", 0, 0), ids, mask, mask * 1.0, mask * -1.0, mask - 1, np.zeros(100, np.int64))
    seen: list[int] = []
    head = learner.engine.model.get_output_embeddings()
    head.register_forward_hook(lambda module, given, out: seen.append(out.shape[-2]))
    gradients(learner, [long], LossSettings(entropy=0.1))
    # before, and with gradient: no logits are computed twice for it
    assert max(seen) == 4 and sum(seen) == 2 * 99


def test_a_pass_on_a_cpu_keeps_what_a_laptop_holds() -> None:
    """A pass of SmolLM2-135M took 23 GB, and the system killed the training without a word."""
    from types import SimpleNamespace

    from transformers import GPT2Config, LlamaConfig

    from gem_ma.training.learner.forward import most_tokens

    def tokens(config: Any, device: str = "cpu") -> int:
        return most_tokens(SimpleNamespace(config=config, device=torch.device(device)))

    smollm2 = LlamaConfig(hidden_size=576, intermediate_size=1536, num_hidden_layers=30)
    assert tokens(smollm2) == pytest.approx(3e9 / 1.43e6, rel=0.02)  # 1.43 MB a token: measured
    assert 1000 < tokens(GPT2Config()) < 4000  # which names its sizes otherwise
    assert tokens(smollm2, "meta") > 1 << 20
    tiny = LlamaConfig(hidden_size=64, intermediate_size=256, num_hidden_layers=2)
    assert tokens(tiny) > 1 << 17


@pytest.mark.longest
def test_every_config_of_transformers_bounds_a_pass_or_leaves_it_unbounded() -> None:
    """Some list a size for each layer, some have no name for it, some hold two texts."""
    from types import SimpleNamespace

    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    from gem_ma.training.learner.forward import most_tokens

    configs = []
    for kind in MODEL_FOR_CAUSAL_LM_MAPPING:
        with contextlib.suppress(Exception):  # a few want arguments
            configs.append(kind())
    assert len(configs) > 100
    for config in configs:
        model = SimpleNamespace(config=config, device=torch.device("cpu"))
        assert most_tokens(model) > 0, type(config)


def test_a_learner_and_its_critic_pass_no_more_than_a_cpu_holds(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gem_ma.training.learner import forward
    from gem_ma.training.learner.torch_critic import TorchCritic

    engine = Transformers(str(byte_model), policy="main")
    monkeypatch.setattr(
        forward, "PASS_BYTES", 100 * forward.PASS_BYTES / forward.most_tokens(engine.model)
    )
    learner, critic = TorchLearner(engine, Sampling(max_tokens=8)), TorchCritic(engine)
    assert learner.scorer.pass_tokens == critic.pass_tokens == 100
    for one in (learner, critic):
        one.bound(LossSettings(pass_tokens=200))
    assert learner.scorer.pass_tokens == critic.pass_tokens == 100


def test_cloning_and_critic_have_the_memory_that_the_loss_sets(byte_model: Path) -> None:
    from gem_ma.config.settings import Config
    from gem_ma.training.learner.torch_critic import TorchCritic
    from gem_ma.training.loop.updates import Updates

    engine = Transformers(str(byte_model), policy="main")
    learner, critic = TorchLearner(engine, Sampling(max_tokens=8)), TorchCritic(engine)
    settings = Config.model_validate(
        {
            "scenario": {"id": "kuhn_poker"},
            "agents": {"player_0": {"policy": "main"}, "player_1": {"policy": "main"}},
            "policies": {"main": {"model": f"transformers/{byte_model}"}},
            "train": {
                "policies": ["main"],
                "steps": 1,
                "loss": {"pass_tokens": 64, "recompute": True},
            },
        }
    )
    assert settings.train is not None
    Updates(settings, settings.train, None, {"main": learner}, {"main": critic}, {})  # type: ignore[arg-type]
    assert (learner.scorer.pass_tokens, critic.pass_tokens) == (64, 64)
    assert learner.scorer.recompute and critic.recompute
