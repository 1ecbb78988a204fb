"""LoRA adapters on one base: memory, mixed batches, seeds, folders that peft reads, refusals."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gem_ma import make
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy, open_engine
from gem_ma.engines.batching import Batched
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.errors import ConfigError, DataError, EngineError
from gem_ma.kernel.types import Message, Reply, Request, Sampling
from gem_ma.system.extras import install
from tests.asking import at_once
from tests.plays import played_all

torch = pytest.importorskip("torch", reason="needs the train extra")
peft = pytest.importorskip("peft", reason="needs the train extra")
transformers = pytest.importorskip("transformers", reason="needs the train extra")

from gem_ma.engines.local.transformers import Transformers  # noqa: E402


def moved(engine: Transformers, seed: int = 0) -> Transformers:
    """The engine with an adapter that changes what its base says."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in engine.weights().items():
            if ".lora_B." in name:
                weight.copy_(torch.empty(weight.shape).normal_(0, 0.5, generator=generator))
    return engine


@pytest.fixture(scope="module")
def kuhn_model(kuhn_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this file's own: engines of one folder share a base, and memory is counted."""
    return Path(shutil.copytree(kuhn_model, tmp_path_factory.mktemp("adapters") / kuhn_model.name))


@pytest.fixture(scope="module")
def three(kuhn_model: Path) -> list[Transformers]:
    """Two adapters of different shapes, and their base as a frozen policy."""
    model = str(kuhn_model)
    one = moved(Transformers(model, policy="one", lora={"rank": 4}), 1)
    two = moved(
        Transformers(
            model, policy="two", lora={"rank": 2, "alpha": 4, "targets": ["q_proj", "down_proj"]}
        ),
        2,
    )
    return [one, two, Transformers(model, policy="base", frozen=True)]


def request(policy: str, number: int = 0, **sampling: Any) -> Request:
    text = "Your card is K . " * (1 + number % 4)
    return Request(
        "player_0",
        (Message(text),),
        seed=number,
        conversation=f"{policy}/{number}",
        policy=policy,
        sampling=Sampling(**sampling),
    )


def asked(engines: Sequence[Transformers], count: int = 5) -> list[tuple[Transformers, Request]]:
    """Requests of all policies, interleaved, of several lengths; rows end at different tokens."""
    return [
        (engine, request(engine.policy, number, max_tokens=2 + 3 * number))
        for number in range(count)
        for engine in engines
    ]


def logits(engine: Transformers, ids: Sequence[int]) -> Any:
    with torch.no_grad(), engine.active():
        return engine.model(torch.tensor([list(ids)]), use_cache=False).logits[0]


# -- memory --------------------------------------------------------------------------------------


@pytest.mark.long
def test_two_adapters_and_a_frozen_policy_have_the_memory_of_one_base_and_their_adapters(
    kuhn_model: Path, three: list[Transformers]
) -> None:
    one, two, base = three
    alone = Transformers(str(kuhn_model), policy="alone")
    held = {
        weight.data_ptr(): weight.nbytes for engine in three for weight in engine.model.parameters()
    }
    adapters = sum(weight.nbytes for engine in (one, two) for weight in engine.weights().values())
    assert (
        sum(held.values()) == sum(weight.nbytes for weight in alone.model.parameters()) + adapters
    )
    assert [w.data_ptr() for w in one.base.weights().values()] == [
        w.data_ptr() for w in two.base.weights().values()
    ]
    # a policy that may learn all has its own
    assert not {weight.data_ptr() for weight in alone.model.parameters()} & held.keys()
    assert adapters < 0.2 * sum(weight.nbytes for weight in alone.model.parameters())
    # names do not tell of the adapters of others
    assert list(base.weights()) == list(alone.weights())


@pytest.mark.longest
def test_fifty_snapshots_are_fifty_small_files_on_one_base_and_their_memory_is_given_back(
    kuhn_model: Path, tmp_path: Path
) -> None:
    learned = Transformers(str(kuhn_model), policy="main", lora={"rank": 1, "targets": ["q_proj"]})
    for weight in learned.weights().values():
        weight.requires_grad_(True)
    before = sum(1 for _ in learned.model.parameters())
    for version in range(50):
        moved(learned, version).save(tmp_path / f"main@{version}")
    size = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert size < 50 * 10_000
    pool = [
        Transformers(str(tmp_path / f"main@{version}"), policy=f"main@{version}")
        for version in range(50)
    ]
    assert all(member.base is learned.base for member in pool)
    assert len({member.fingerprint() for member in pool}) == 50
    assert pool[-1].fingerprint() == learned.fingerprint()
    assert sum(1 for _ in learned.model.parameters()) == before + 50 * len(learned.weights())
    # what is learned stays so, whoever comes and goes
    assert all(weight.requires_grad for weight in learned.weights().values())
    assert not any(weight.requires_grad for member in pool for weight in member.weights().values())
    pool.clear()
    gc.collect()
    Transformers(str(tmp_path / "main@3"), policy="again")
    assert sum(1 for _ in learned.model.parameters()) == before + len(learned.weights())
    assert all(weight.requires_grad for weight in learned.weights().values())


@pytest.mark.long
def test_a_base_is_let_go_with_its_last_policy_and_read_anew_when_its_files_change(
    kuhn_model: Path, tmp_path: Path
) -> None:
    from gem_ma.engines.local.shared_model import _SHARED

    folder = shutil.copytree(kuhn_model, tmp_path / "model")
    gc.collect()
    before = len(_SHARED)
    first, second = (Transformers(str(folder), policy="x", frozen=True) for _ in range(2))
    assert first.base is second.base
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert Transformers(str(folder), policy="x", frozen=True).base is not first.base
    assert (
        Transformers(str(folder), policy="x", frozen=True, dtype="bfloat16").base is not first.base
    )
    del first, second
    gc.collect()
    assert len(_SHARED) == before


# -- what an adapter is --------------------------------------------------------------------------


@pytest.mark.long
def test_a_new_adapter_changes_nothing_and_is_drawn_from_its_policys_name_or_its_seed(
    kuhn_model: Path,
) -> None:
    model, state = str(kuhn_model), torch.get_rng_state()
    plain = Transformers(model, policy="plain")
    a, same, b = (Transformers(model, policy=name, lora={"rank": 4}) for name in ("a", "a", "b"))
    seeded, other = (
        Transformers(model, policy=name, lora={"rank": 4, "seed": 7}) for name in ("a", "b")
    )
    assert torch.equal(torch.get_rng_state(), state)  # no draw from the global generator
    assert torch.equal(logits(a, range(3, 20)), logits(plain, range(3, 20)))
    digests = [engine.fingerprint() for engine in (a, same, b, seeded, other)]
    assert digests[0] == digests[1] and digests[3] == digests[4] and len(set(digests)) == 3
    down = next(weight for name, weight in a.weights().items() if ".lora_A." in name)
    # uniform in +-1/sqrt(64)
    assert down.shape == (4, 64) and 0.11 < float(down.abs().max()) <= 0.125
    assert not any(weight.requires_grad for weight in a.model.parameters())


@pytest.mark.long
def test_rows_of_a_mixed_batch_are_those_of_each_policy_alone(three: list[Transformers]) -> None:
    together = Transformers.sample_mixed(asked(three))
    alone = [engine.sample_batch([what])[0] for engine, what in asked(three)]
    for mixed, single, (engine, _) in zip(together, alone, asked(three), strict=True):
        assert isinstance(mixed, Reply) and isinstance(single, Reply)
        assert (mixed.token_ids, mixed.policy) == (single.token_ids, engine.policy)
        assert max(abs(a - b) for a, b in zip(mixed.logprobs, single.logprobs, strict=True)) < 1e-5
    at = [
        [reply for reply in together if isinstance(reply, Reply) and reply.policy == engine.policy][
            2
        ]
        for engine in three
    ]
    assert len({reply.token_ids for reply in at}) > 1  # the same prompt and seed, other weights


def test_a_mixed_batch_gives_what_peft_gives_for_each_row(
    kuhn_model: Path, three: list[Transformers], tmp_path: Path
) -> None:
    one, two, base = three
    one.save(tmp_path / "one")
    two.save(tmp_path / "two")
    theirs = peft.PeftModel.from_pretrained(
        transformers.AutoModelForCausalLM.from_pretrained(kuhn_model),
        tmp_path / "one",
        adapter_name="one",
    )
    theirs.load_adapter(tmp_path / "two", adapter_name="two")
    ids = torch.tensor([list(range(3, 15))] * 4)
    names = ["two", "__base__", "one", "two"]
    with torch.no_grad():
        wanted = theirs.eval()(ids, adapter_names=names).logits
        with one.decoder.route(
            [{"one": one, "two": two, "__base__": base}[name].source for name in names]
        ):
            ours = one.model(ids).logits
    assert float((ours - wanted).abs().max()) < 1e-5
    assert float((wanted[0] - wanted[1]).abs().max()) > 0.1
    assert torch.equal(ours[0], ours[3])


def test_outside_of_a_policy_the_module_is_its_base_bit_for_bit(
    kuhn_model: Path, three: list[Transformers]
) -> None:
    plain = Transformers(str(kuhn_model), policy="plain")
    ids = torch.tensor([list(range(3, 20))])
    with torch.no_grad():
        assert torch.equal(three[0].model(ids).logits, plain.model(ids).logits)
    assert three[2].fingerprint() == plain.fingerprint() != three[0].fingerprint()


# -- common batches ------------------------------------------------------------------------------


class Counted:
    """Notes who was in each batch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[set[str]] = []
        plain = Transformers.sample_mixed

        def counted(asked: Sequence[tuple[Transformers, Request]]) -> list[Reply | Exception]:
            self.batches.append({engine.policy for engine, _ in asked})
            return plain(asked)

        monkeypatch.setattr(Transformers, "sample_mixed", staticmethod(counted))


def episodes(engines: Sequence[Transformers], **how: Any) -> list[tuple[Any, ...]]:
    policies = {
        engine.policy: Policy(engine.policy, Batched(engine), Sampling(max_tokens=4))
        for engine in engines
    }
    seats = {
        agent: Seat("direct", engine.policy)
        for agent, engine in zip(("player_0", "player_1"), engines, strict=True)
    }
    turned = dict(zip(seats, reversed(list(seats.values())), strict=True))
    plans = [
        Plan(make("kuhn_poker"), cast, seed=seed) for seed in range(8) for cast in (seats, turned)
    ]
    return sorted(
        (e.seed, e.cast["player_0"].policy, tuple(r.token_ids for t in e.turns for r in t.replies))
        for e in played_all(plans, policies, concurrency=16, **how)
    )


@pytest.mark.long
def test_under_a_gate_policies_on_one_base_are_one_batch(
    three: list[Transformers], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    first = episodes(three[:2], deterministic=True)
    assert counted.batches and counted.batches[0] == {"one", "two"}
    steps = len(counted.batches)
    assert steps <= 4  # one batch a step of the game, not one a policy
    assert episodes(three[:2], deterministic=True) == first == episodes(three[:2])


@pytest.mark.longest
def test_free_batches_hold_several_policies_and_answer_each_with_its_own(
    three: list[Transformers],
) -> None:
    policies = [Batched(engine) for engine in three]
    found = at_once(*((policies[three.index(one)], what) for one, what in asked(three, 8)))
    alone = [engine.sample_batch([what])[0] for engine, what in asked(three, 8)]
    assert [(reply.policy, reply.token_ids) for reply in found] == [
        (r.policy, r.token_ids) for r in alone if isinstance(r, Reply)
    ]
    assert policies[0].lane is policies[1].lane is policies[2].lane


def test_policies_with_weights_of_their_own_are_batches_of_their_own(kuhn_model: Path) -> None:
    first, second = (Batched(Transformers(str(kuhn_model), policy=name)) for name in "ab")
    assert first.lane is not second.lane


@pytest.mark.long
def test_broken_or_unpublished_weights_of_one_policy_are_not_the_fault_of_others(
    kuhn_model: Path,
) -> None:
    fine, broken, late = (
        Transformers(str(kuhn_model), policy=name, lora={"rank": 1})
        for name in ("fine", "broken", "late")
    )
    with torch.no_grad():
        next(iter(broken.weights().values())).fill_(float("nan"))
    late.unpublished = True
    answers = Transformers.sample_mixed(asked([fine, broken, late], 2))
    for answer, (engine, what) in zip(answers, asked([fine, broken, late], 2), strict=True):
        if engine is fine:
            assert (
                isinstance(answer, Reply)
                and answer.token_ids == fine.sample_batch([what])[0].token_ids
            )  # type: ignore[union-attr]
        else:
            assert isinstance(answer, EngineError)
            assert f"policy {engine.policy!r}" in str(answer)
            assert ("NaN" in str(answer)) == (engine is broken)


# -- folders -------------------------------------------------------------------------------------


@pytest.mark.long
def test_an_adapter_folder_opens_on_its_base_wherever_both_are_moved(
    kuhn_model: Path, tmp_path: Path
) -> None:
    shutil.copytree(kuhn_model, tmp_path / "here" / "models" / "base")
    engine = moved(Transformers(str(tmp_path / "here" / "models" / "base"), policy="main", lora={}))
    engine.save(tmp_path / "here" / "runs" / "x" / "main")
    assert (
        json.loads((tmp_path / "here/runs/x/main/adapter_config.json").read_text())[
            "base_model_name_or_path"
        ]
        == "../../../models/base"
    )
    (tmp_path / "here").rename(tmp_path / "there")
    again: Any = open_engine("again", f"transformers/{tmp_path / 'there' / 'runs' / 'x' / 'main'}")
    assert again.engine.fingerprint() == engine.fingerprint()
    assert torch.equal(logits(again.engine, range(3, 12)), logits(engine, range(3, 12)))
    named = Transformers(
        str(tmp_path / "there/models/base"),
        policy="named",
        lora=str(tmp_path / "there/runs/x/main"),
    )
    assert named.fingerprint() == engine.fingerprint() and named.base is again.engine.base


def test_adapters_that_peft_wrote_are_opened(kuhn_model: Path, tmp_path: Path) -> None:
    wrapped = peft.get_peft_model(
        transformers.AutoModelForCausalLM.from_pretrained(kuhn_model),
        peft.LoraConfig(
            r=3,
            lora_alpha=5,
            target_modules=r".*layers\.1\..*(q|v)_proj",
            lora_dropout=0.1,
            use_rslora=True,
            init_lora_weights=False,
        ),
    ).eval()
    wrapped.save_pretrained(tmp_path / "theirs")
    ours = Transformers(str(kuhn_model), policy="main", lora=str(tmp_path / "theirs"))
    ids = torch.tensor([list(range(3, 15))])
    with torch.no_grad():
        assert float((logits(ours, range(3, 15)) - wrapped(ids).logits[0]).abs().max()) < 1e-5
    assert len(ours.weights()) == 4


def adapter(kuhn_model: Path, folder: Path) -> Path:
    Transformers(str(kuhn_model), policy="made", lora={"rank": 2, "targets": ["q_proj"]}).save(
        folder
    )
    return folder


def rewrite(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (
            lambda folder: (folder / "adapter_model.safetensors").unlink(),
            "has no adapter_model.safetensors",
        ),
        (
            lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"nothing"),
            "cannot be read",
        ),
        (
            lambda folder: (folder / "adapter_config.json").write_text("{"),
            "cannot be read|names no base",
        ),
        (
            lambda folder: rewrite(folder / "adapter_config.json", peft_type="IA3"),
            "is not a LoRA adapter; adapter_config.json says IA3",
        ),
        (
            lambda folder: rewrite(folder / "adapter_config.json", use_dora=True),
            "uses use_dora, which cannot be mixed",
        ),
        (
            lambda folder: rewrite(folder / "adapter_config.json", modules_to_save=["lm_head"]),
            "uses modules_to_save",
        ),
        (
            lambda folder: rewrite(folder / "adapter_config.json", r=3),
            r"does not fit this base: .*lora_A.weight is \(2, 64\) there, here \(3, 64\)",
        ),
        (
            lambda folder: rewrite(folder / "adapter_config.json", target_modules=["nowhere"]),
            "does not fit this base",
        ),
        (lambda folder: rewrite(folder / "base.json", mark="0"), "was trained on another base"),
    ],
)
def test_a_damaged_or_foreign_adapter_is_one_line_that_names_it(
    kuhn_model: Path, tmp_path: Path, damage: Callable[[Path], Any], named: str
) -> None:
    folder = adapter(kuhn_model, tmp_path / "adapter")
    damage(folder)
    with pytest.raises(DataError, match=named) as caught:
        Transformers(str(kuhn_model), policy="main", lora=str(folder))
    assert str(folder) in str(caught.value)
    assert "'main'" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.long
def test_an_adapter_of_another_base_is_refused_by_its_shapes_or_by_its_weights(
    kuhn_model: Path, byte_model: Path, tmp_path: Path
) -> None:
    from gem_ma.engines.local.tiny import make_model

    folder = adapter(kuhn_model, tmp_path / "adapter")
    make_model(tmp_path / "twin", "kuhn_poker", seed=2)  # the same shapes, other weights
    with pytest.raises(DataError, match="trained on another base"):
        Transformers(str(tmp_path / "twin"), policy="main", lora=str(folder))
    (folder / "base.json").unlink()
    Transformers(str(tmp_path / "twin"), policy="main", lora=str(folder))
    rewrite(folder / "adapter_config.json", target_modules=["down_proj"])
    with pytest.raises(DataError, match="does not fit this base"):
        Transformers(str(byte_model), policy="main", lora=str(folder))
    # what was refused has left no trace
    assert Transformers(str(kuhn_model), policy="main", lora={"rank": 1}).base.adapters.mixes


def test_a_base_that_is_gone_is_named(kuhn_model: Path, tmp_path: Path) -> None:
    base = shutil.copytree(kuhn_model, tmp_path / "base")
    Transformers(str(base), policy="made", lora={"rank": 1}).save(tmp_path / "adapter")
    base.rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"there is no model folder '\.\./base'"):
        Transformers(str(tmp_path / "adapter"), policy="main")


# -- the key lora --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lora", "named"),
    [
        ({"rank": 0}, r"policies\.main\.lora\.rank: wants a whole number, 1 or more; got 0"),
        ({"rank": 2.5}, r"lora\.rank: wants a whole number"),
        ({"alpha": 0}, r"lora\.alpha: wants a number above 0; got 0"),
        ({"rnak": 2}, r"lora\.rnak: unknown key \(did you mean 'rank'\?\)"),
        ({"dropout": 0.1}, r"lora\.dropout: there is none: under dropout"),
        (
            {"targets": ["q_porj"]},
            r"lora\.targets: this model has no linear layer 'q_porj' \(did you mean 'q_proj'\?\)",
        ),
        ({"targets": ["lm_head"]}, r"no linear layer 'lm_head'"),
        ({"targets": []}, r"lora\.targets: names no layer"),
        ({"targets": "most"}, r"lora\.targets: wants all-linear, or a list"),
        (8, r"policies\.main\.lora: wants keys such as rank"),
    ],
)
def test_a_wrong_key_of_lora_is_one_line(kuhn_model: Path, lora: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        Transformers(str(kuhn_model), policy="main", lora=lora)
    assert "\n" not in str(caught.value)


def test_an_adapter_folder_takes_no_lora_beside_and_a_missing_one_is_named(
    kuhn_model: Path, tmp_path: Path
) -> None:
    folder = adapter(kuhn_model, tmp_path / "adapter")
    with pytest.raises(ConfigError, match="is an adapter itself; leave lora out"):
        Transformers(str(folder), policy="main", lora={"rank": 2})
    with pytest.raises(DataError, match=r"no adapter folder .*nowhere'; a training leaves one"):
        Transformers(str(kuhn_model), policy="main", lora=str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"has no adapter_config\.json"):
        Transformers(str(kuhn_model), policy="main", lora=str(kuhn_model))


def test_without_peft_one_line_names_the_extra_and_plain_policies_still_open(
    kuhn_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(
        ConfigError,
        match=r"policies\.main\.lora: adapters need peft.*" + re.escape(install("train")),
    ):
        Transformers(str(kuhn_model), policy="main", lora={})
    Transformers(str(kuhn_model), policy="main", frozen=True)
