"""Model folders and models of the hub: architectures, shards, heads, dtypes, devices, attention,
foreign code; each sampled, learned and adapted."""

from __future__ import annotations

import json
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from gem_ma import config, credit
from gem_ma.engines.base import open_engine
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.kernel.types import Message, Reply, Request, Sampling
from tests.training.test_learner import episodes, update

torch = pytest.importorskip("torch", reason="needs the train extra")
transformers = pytest.importorskip("transformers", reason="needs the train extra")
hub = pytest.importorskip("huggingface_hub", reason="needs the train extra")

from gem_ma.engines.local.transformers import Transformers  # noqa: E402
from gem_ma.engines.models import loading  # noqa: E402
from gem_ma.training.learner.torch_learner import TorchLearner  # noqa: E402

SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
}
KINDS: dict[str, dict[str, Any]] = {
    "qwen3": {"tie_word_embeddings": False},
    "llama": {"tie_word_embeddings": True},
    "gemma2": {"sliding_window": 8, "query_pre_attn_scalar": 16},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt2": {},
}


def model_of(kind: str, byte_model: Path, folder: Path, **saved: Any) -> Path:
    """A tiny model of another architecture, with the tokenizer and template of the byte-level
    one."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(byte_model)
    shape: dict[str, Any] = (
        {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 512} if kind == "gpt2" else SHAPE
    )
    known = {
        "vocab_size": len(tokenizer),
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    torch.manual_seed(0)
    made = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(kind, **shape, **known, **KINDS[kind])
    )
    shutil.copytree(byte_model, folder)
    (folder / "model.safetensors").unlink()
    made.to(saved.pop("dtype", torch.float32)).save_pretrained(folder, **saved)
    return folder


def requests(policy: str, count: int = 6) -> list[Request]:
    return [
        Request(
            "a",
            (Message("hello " * (1 + 3 * n)),),
            seed=n,
            policy=policy,
            sampling=Sampling(max_tokens=3 + n),
        )
        for n in range(count)
    ]


@pytest.mark.longest
@pytest.mark.parametrize("kind", KINDS)
def test_every_architecture_is_sampled_learned_and_adapted(
    kind: str, byte_model: Path, tmp_path: Path
) -> None:
    folder = model_of(kind, byte_model, tmp_path / kind)
    full = TorchLearner(Transformers(str(folder), policy="full"), Sampling(max_tokens=4))
    assert update(full, credit.turns(episodes([full], 4), "full"))["logprob_gap"] < 1e-5
    both = [
        TorchLearner(
            Transformers(str(folder), policy=name, lora={"rank": 2}), Sampling(max_tokens=4)
        )
        for name in "ab"
    ]
    for learner in both:
        metrics = update(learner, credit.turns(episodes([learner], 4), learner.policy), lr=3e-2)
        assert metrics["logprob_gap"] < 1e-5 and metrics["grad_norm"] > 0
        assert learner.publish()["parity_gap"] < 1e-5
    engines = [learner.engine for learner in both] + [
        Transformers(str(folder), policy="base", frozen=True)
    ]
    asked = [
        (engine, one)
        for pair in zip(*(requests(e.policy) for e in engines), strict=True)
        for engine, one in zip(engines, pair, strict=True)
    ]
    for mixed, (engine, one) in zip(Transformers.sample_mixed(asked), asked, strict=True):
        alone = engine.sample_batch([one])[0]
        assert (
            isinstance(mixed, Reply)
            and isinstance(alone, Reply)
            and mixed.token_ids == alone.token_ids
        )
        assert max(abs(x - y) for x, y in zip(mixed.logprobs, alone.logprobs, strict=True)) < 1e-5
    engines[0].save(tmp_path / "adapter")
    assert (
        Transformers(str(tmp_path / "adapter"), policy="again").fingerprint()
        == engines[0].fingerprint()
    )


@pytest.mark.long
@pytest.mark.parametrize("tied", [True, False])
def test_a_model_in_shards_is_the_same_model(tied: bool, byte_model: Path, tmp_path: Path) -> None:
    kind = "llama" if tied else "qwen3"
    whole, parts = (
        model_of(kind, byte_model, tmp_path / "whole"),
        model_of(kind, byte_model, tmp_path / "parts", max_shard_size="30KB"),
    )
    assert len(list(parts.glob("*.safetensors"))) > 2
    one, two = Transformers(str(whole), policy="x"), Transformers(str(parts), policy="x")
    assert one.fingerprint() == two.fingerprint()
    head, words = one.model.get_output_embeddings().weight, one.model.get_input_embeddings().weight
    assert (head.data_ptr() == words.data_ptr()) == tied
    lost = sorted(parts.glob("*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(
        DataError,
        match=f"lacks {lost.name}, which model.safetensors.index.json names; copy the model again",
    ):
        Transformers(str(parts), policy="x")
    index = parts / "model.safetensors.index.json"
    outside = str(byte_model / "model.safetensors")
    for listing in ({"a": f"../{lost.name}"}, {"a": outside}, {"a": 3}, ["a"], None):
        index.write_text(json.dumps({"weight_map": listing}))
        with pytest.raises(DataError, match="does not list files of this folder"):
            Transformers(str(parts), policy="x")


# -- how it is loaded ----------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("dtype", "loaded"),
    [
        ("auto", "bfloat16"),
        ("bf16", "bfloat16"),
        ("fp16", "float16"),
        ("fp32", "float32"),
        ("float32", "float32"),
    ],
)
def test_dtypes_are_as_asked_or_as_stored_and_adapters_stay_in_full_precision(
    dtype: str, loaded: str, byte_model: Path, tmp_path: Path
) -> None:
    folder = model_of("qwen3", byte_model, tmp_path / "model", dtype=torch.bfloat16)
    engine = Transformers(str(folder), policy="x", dtype=dtype, lora={"rank": 2})
    assert {str(weight.dtype) for weight in engine.base.weights().values()} == {f"torch.{loaded}"}
    assert {weight.dtype for weight in engine.weights().values()} == {torch.float32}
    learner = TorchLearner(engine, Sampling(max_tokens=4))
    gap = update(learner, credit.turns(episodes([learner], 4), "x"), lr=1e-2)["logprob_gap"]
    assert (
        gap < {"float32": 1e-5, "bfloat16": 0.1, "float16": 0.02}[loaded]
        and learner.publish()["parity_share"] <= 1
    )


@pytest.fixture
def half(byte_model: Path, tmp_path: Path) -> Path:
    return model_of("qwen3", byte_model, tmp_path / "half", dtype=torch.bfloat16)


def speeds(monkeypatch: pytest.MonkeyPatch, **gflops: float) -> None:
    """A processor that multiplies so fast."""
    tried = lru_cache(lambda dtype: {"float16": 2.0, **gflops}[dtype])
    monkeypatch.setattr(loading, "speed", tried)


def typed(folder: Path, *overrides: str) -> dict[str, Any]:
    words = [f"policies.player.model=transformers/{folder}", "policies.player.dtype=auto"]
    loaded = config.load("smollm2_guess_number", [*words, *overrides])
    return loaded.resolved()["policies"]["player"]


@pytest.mark.parametrize(
    ("bfloat16", "taken", "said"),
    [
        (
            400.0,
            "bfloat16",
            "computes in bfloat16: this processor does 400 GFLOP/s in bfloat16, 70",
        ),
        (60.0, "bfloat16", "computes in bfloat16"),  # a little slower, and half the memory
        (1.3, "float32", "computes in float32: this processor does 1 GFLOP/s in bfloat16, 70"),
    ],
)
def test_auto_is_what_this_processor_multiplies_fast_and_the_record_holds_it(
    bfloat16: float, taken: str, said: str, half: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds(monkeypatch, float32=70.0, bfloat16=bfloat16)
    section = typed(half, "policies.player.device=cpu")
    assert section["dtype"] == taken
    engine = Transformers(str(half), policy="player", dtype=section["dtype"])
    assert str(engine.model.dtype) == f"torch.{taken}" and said in engine.pace()


def test_a_dtype_that_is_typed_is_taken_and_warned_of_where_it_is_slow(
    half: Path, byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds(monkeypatch, float32=70.0, bfloat16=1.4)
    engine = Transformers(str(half), policy="player", dtype="bfloat16")
    assert engine.pace() == (
        "policy 'player': dtype: bfloat16 is slow on this processor (1 GFLOP/s in bfloat16, 70 in"
        " float32); dtype: auto would take float32, 50 times as fast"
    )
    # nothing was chosen, so nothing is said
    assert Transformers(str(byte_model), policy="player").pace() == ""


@pytest.mark.parametrize(
    "case", ["float32 in the folder", "no folder", "damaged", "cuda", "device_map", "typed"]
)
def test_auto_stays_where_there_is_nothing_to_choose(
    case: str, half: Path, byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds(monkeypatch, float32=70.0, bfloat16=1.0)
    options: dict[str, Any] = {"dtype": "auto", "device": "cpu"}
    folder = byte_model if case == "float32 in the folder" else half
    if case == "no folder":
        folder = half / "nowhere"
    if case == "damaged":
        (half / "config.json").write_text("[1]")
    options |= {"device": "cuda"} if case == "cuda" else {}
    options |= {"device_map": "auto"} if case == "device_map" else {}
    options |= {"dtype": "bfloat16"} if case == "typed" else {}
    assert loading.settled_dtype(str(folder), options) == {}


def test_the_trial_measures_this_processor() -> None:
    assert loading.speed("float32") > 0.1 and loading.speed("float32") == loading.speed("float32")


@pytest.mark.long
def test_device_map_and_attention_change_no_reply(kuhn_model: Path) -> None:
    pytest.importorskip("accelerate", reason="needs the train extra")
    plain = [
        reply.token_ids
        for reply in Transformers(str(kuhn_model), policy="x").sample_batch(requests("x"))
    ]  # type: ignore[union-attr]
    for options in (
        {"device_map": "auto"},
        {"device_map": "cpu"},
        {"attention": "eager"},
        {"attention": "sdpa"},
    ):
        engine: Any = Transformers(str(kuhn_model), policy="x", **options)  # type: ignore[arg-type]
        assert [reply.token_ids for reply in engine.sample_batch(requests("x"))] == plain
        attention = engine.model.config._attn_implementation
        assert attention == options.get("attention", attention)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"attention": "telepathy"}, "attention is one of eager, sdpa"),
        ({"attention": "flash_attention_2"}, "attention 'flash_attention_2' cannot be used here"),
        ({"device_map": "auto", "device": "cuda"}, "either device or device_map"),
        ({"device_map": "somewhere"}, "device_map 'somewhere' cannot be used here"),
        ({"dtype": "int4"}, "dtype is one of auto, float32"),
    ],
)
def test_a_way_of_loading_that_does_not_exist_here_is_one_line(
    kuhn_model: Path, options: Any, named: str
) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        Transformers(str(kuhn_model), policy="main", **options)
    assert "\n" not in str(caught.value) and "'main'" in str(caught.value)


def test_code_that_a_model_brings_is_never_run_unless_the_config_says_so(
    kuhn_model: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(kuhn_model, tmp_path / "model")
    (folder / "own.py").write_text(
        "from pathlib import Path\nPath(__file__).parents[1].joinpath('ran').touch()\n"
        "from transformers import Qwen3Config as OwnConfig, Qwen3ForCausalLM as OwnModel\n"
    )
    note = json.loads((folder / "config.json").read_text()) | {
        "model_type": "own",
        "auto_map": {"AutoConfig": "own.OwnConfig"},
    }
    (folder / "config.json").write_text(json.dumps(note))
    with pytest.raises(
        ConfigError,
        match=(
            r"brings Python code of its own, which is not run by default.*trust_remote_code: true"
        ),
    ) as caught:
        Transformers(str(folder), policy="main")
    assert "\n" not in str(caught.value) and not list(tmp_path.rglob("ran"))


# -- the hub -------------------------------------------------------------------------------------


def cached(model: Path, cache: Path, name: str) -> None:
    """The model as a download would have left it."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    home = cache / f"models--{name.replace('/', '--')}"
    shutil.copytree(model, home / "snapshots" / commit)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no network."""
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hub"


@pytest.mark.long
def test_a_name_on_the_hub_is_opened_from_the_cache_and_an_adapter_on_it_says_so(
    kuhn_model: Path, cache: Path, tmp_path: Path
) -> None:
    cached(kuhn_model, cache, "someone/Tiny-0.1M")
    plain = Transformers(str(kuhn_model), policy="x")
    engine: Any = open_engine("x", "transformers/someone/Tiny-0.1M", frozen=True)
    assert engine.engine.fingerprint() == plain.fingerprint()
    adapted = Transformers("someone/Tiny-0.1M", policy="x", lora={"rank": 1})
    assert adapted.base is engine.engine.base
    adapted.save(tmp_path / "adapter")
    assert (
        json.loads((tmp_path / "adapter/adapter_config.json").read_text())[
            "base_model_name_or_path"
        ]
        == "someone/Tiny-0.1M"
    )
    assert Transformers(str(tmp_path / "adapter"), policy="y").base is adapted.base


def test_a_name_that_is_neither_a_folder_nor_cached_says_what_to_do(cache: Path) -> None:
    with pytest.raises(
        DataError,
        match=(
            r"no model folder 'Qwen/Qwen3-0\.6B', and the hub's model .* not in the cache.*hf"
            r" download Qwen/Qwen3-0\.6B"
        ),
    ) as caught:
        Transformers("Qwen/Qwen3-0.6B", policy="main")
    assert "\n" not in str(caught.value)
    # no names of models on the hub: nothing is fetched
    for name in ("models/referential", "nowhere", "a/b/c", "../x", "/no/where"):
        with pytest.raises(
            DataError, match=r"there is no model folder .*gem-ma new model"
        ) as caught:
            Transformers(name, policy="main")
        assert "hub's" not in str(caught.value)
