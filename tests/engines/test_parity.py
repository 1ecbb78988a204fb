"""The parity check: rounding passes, and each planted fault is found at the first publish, in
every precision."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gem_ma.engines.local.sampling import Source
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Message, Request, Sampling
from gem_ma.training.learner import parity, probes
from gem_ma.training.learner.rows import Row

torch = pytest.importorskip("torch", reason="needs the train extra")

from gem_ma.engines.local.decoding import Decoder  # noqa: E402
from gem_ma.engines.local.transformers import Transformers  # noqa: E402
from gem_ma.training.learner.torch_learner import TorchLearner  # noqa: E402

DTYPES = ("float32", "bfloat16")
TEXTS = tuple(f"Your card is {card}. " * times for card in "JQK" for times in (1, 2, 4))


def opened(
    path: Path, dtype: str, lora: bool, *, apart: bool = False
) -> tuple[Transformers, TorchLearner]:
    """A sampler and its learner, which has played once: so there are probes, and something is
    kept."""
    engine = Transformers(str(path), policy="main", dtype=dtype, lora={"rank": 4} if lora else None)
    learner = TorchLearner(
        engine.twin() if apart else engine, Sampling(max_tokens=8), sampler=engine
    )
    few = Sampling(max_tokens=3)  # what is kept matters here, not how much
    engine.sample_batch(
        [
            Request("a", (Message(text),), conversation=text, seed=at, sampling=few)
            for at, text in enumerate(TEXTS)
        ]
    )
    learner.probes = [engine.chat.render("a", (Message(text),)) for text in TEXTS[:8]]
    return engine, learner


def move(learner: TorchLearner, by: float = 0.1) -> dict[str, Any]:
    """The weights as one update of some size leaves them; gives those of before."""
    generator = torch.Generator().manual_seed(0)
    before = {name: weight.detach().clone() for name, weight in learner.parameters.items()}
    with torch.no_grad():
        for weight in learner.parameters.values():
            weight.add_(torch.randn(weight.shape, generator=generator).to(weight.dtype) * by)
    return before


@pytest.mark.long
@pytest.mark.parametrize(
    "dtype, lora, apart",
    [("float32", False, True), ("bfloat16", False, False), ("bfloat16", True, True)],
)
def test_rounding_is_no_fault(dtype: str, lora: bool, apart: bool, byte_model: Path) -> None:
    _, learner = opened(byte_model, dtype, lora, apart=apart)
    for number in range(3):
        move(learner, 0.02)
        found = learner.publish()
        assert found["version"] == number + 1 and 0 <= found["parity_share"] < 0.7
        assert found["parity_mean"] <= found["parity_gap"] and found["parity_noise"] > 0


def _forgets(name: str) -> Callable[[Transformers, pytest.MonkeyPatch], None]:
    """A sampler that takes all weights but those with this in their name."""

    def plant(engine: Transformers, monkeypatch: pytest.MonkeyPatch) -> None:
        take = engine.take
        kept = {
            at: weight.detach().clone() for at, weight in engine.weights().items() if name in at
        }
        assert kept
        monkeypatch.setattr(engine, "take", lambda weights: take({**weights, **kept}))
        # as where the weights cannot be read
        monkeypatch.setattr(probes, "_unequal", lambda learner: [])

    return plant


def _stale_cache(engine: Transformers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.decoder, "_check", lambda source: None)


def _wrong_adapter(engine: Transformers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transformers, "source", property(lambda self: Source(None, -1, "wrong")))


def _temperature(engine: Transformers, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(self: Decoder, prompt: Any, how: Sampling, *rest: Any, **more: Any) -> Any:
        return plain(
            self, prompt, Sampling(temperature=0.9, max_tokens=how.max_tokens), *rest, **more
        )

    plain = Decoder.draw
    monkeypatch.setattr(Decoder, "draw", draw)


# how, with LoRA, of a sampler apart
FAULTS: dict[str, tuple[Callable[[Transformers, pytest.MonkeyPatch], None], bool, bool]] = {
    "old weights": (_forgets(""), False, True),
    "old head": (_forgets("embed_tokens"), False, True),
    "one layer off": (_forgets("layers.1."), False, True),
    "an adapter's layer off": (_forgets("layers.0."), True, True),
    "stale cache": (_stale_cache, False, False),
    "stale cache of an adapter": (_stale_cache, True, False),
    "wrong adapter": (_wrong_adapter, True, False),
    "another temperature": (_temperature, False, False),
}


@pytest.mark.long
@pytest.mark.parametrize(
    "dtype, fault",
    [
        *(("bfloat16", fault) for fault in FAULTS),
        *(("float32", fault) for fault in ("one layer off", "stale cache", "another temperature")),
    ],
)
def test_each_fault_is_found_at_the_first_publish(
    dtype: str, fault: str, byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, lora, apart = FAULTS[fault]
    engine, learner = opened(byte_model, dtype, lora, apart=apart)
    plant(engine, monkeypatch)
    move(learner)
    with pytest.raises(
        EngineError,
        match=(
            r"policy 'main': sampler and learner differ by [\d.e-]+ nats at version 0 .*not"
            r" published"
        ),
    ):
        learner.publish()
    assert engine.version == 0
    with pytest.raises(EngineError, match="not published"):
        engine.sample_batch([Request("a", (Message("x"),))])


def _route_off(engine: Transformers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token loop samples from the base, whatever adapter it is asked for."""
    monkeypatch.setattr(engine.decoder, "route", nullcontext)


def _old_while_sampling(engine: Transformers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights are right whenever anybody looks, and old while it samples."""
    plain = engine.sample_ids
    old = {name: weight.detach().clone() for name, weight in engine.weights().items()}

    def sample_ids(*asked: Any) -> Any:
        now = {name: weight.detach().clone() for name, weight in engine.weights().items()}
        with torch.no_grad():
            for name, weight in engine.weights().items():
                weight.copy_(old[name])
            drawn = plain(*asked)
            for name, weight in engine.weights().items():
                weight.copy_(now[name])
        return drawn

    monkeypatch.setattr(engine, "sample_ids", sample_ids)


def _one_layer_off(engine: Transformers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer's part of the sampler's adapter is scaled to nothing: no weight differs."""
    parts = [part for name, part in engine.model.named_modules() if "layers.1." in name]
    for part in parts:
        if hasattr(part, "lora_A"):
            monkeypatch.setitem(part.scaling, engine.adapter, 0.0)


def _own_head(engine: Transformers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token loop samples from a module of its own, whose head is a little off."""
    other = copy.deepcopy(engine.model)
    with torch.no_grad():
        other.get_output_embeddings().weight[::7] *= 1.01
    monkeypatch.setattr(engine.decoder, "model", other)


SMALL: dict[str, tuple[Callable[[Transformers, pytest.MonkeyPatch], None], bool]] = {
    "stale cache": (_stale_cache, False),
    "wrong adapter": (_wrong_adapter, False),
    "adapter switched off": (_route_off, False),
    "another head": (_own_head, False),
    "old weights while it samples": (_old_while_sampling, False),
    "one layer off": (_one_layer_off, True),
}
"""How it is planted, and whether in a sampler apart."""


@pytest.mark.longest
@pytest.mark.parametrize("fault", SMALL)
def test_a_fault_far_below_rounding_is_found(
    fault: str, byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, apart = SMALL[fault]
    engine, learner = opened(byte_model, "bfloat16", True, apart=apart)
    assert learner.repeats
    plant(engine, monkeypatch)
    move(learner, 3e-3 if apart else 3e-4)
    if apart:
        engine.take(learner.parameters)
    found = probes.measure(learner).shares
    assert max(found[name] for name in ("the mean", "one reply", "one token", "the slope")) < 0.7
    assert found["the same draws again"] > 1
    with pytest.raises(EngineError, match=r"the same draws again is .* times as far off"):
        learner.publish()


@pytest.mark.long
@pytest.mark.parametrize("fault", ["stale cache", "another head", "one layer off"])
def test_a_glance_finds_it_too_at_the_next_publish(
    fault: str, byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, apart = SMALL[fault]
    engine, learner = opened(byte_model, "bfloat16", True, apart=apart)
    move(learner, 3e-3)
    learner.publish()
    # a play with these weights: what is kept of it is stale after the next step
    engine.sample_ids(learner.probes, [Sampling(max_tokens=4)] * len(learner.probes), range(8))
    plant(engine, monkeypatch)
    move(learner, 3e-3 if apart else 3e-4)
    monkeypatch.setattr(probes, "measure", None)  # the full look is not needed
    with pytest.raises(EngineError, match=r"the same draws again is .* times as far off"):
        learner.publish()


@pytest.mark.long
def test_a_full_look_comes_at_every_eighth_publish_and_a_glance_costs_a_sixth_of_it(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, learner = opened(byte_model, "float32", False)
    scored: list[int] = []
    for name in ("score", "score_again"):
        plain = getattr(learner.scorer, name)

        def score(pairs: Any, *more: Any, plain: Any = plain) -> Any:
            scored[-1] += sum(len(prompt) + len(ids) for prompt, ids in pairs)
            return plain(pairs, *more)

        monkeypatch.setattr(learner.scorer, name, score)
    noises = []
    for _ in range(10):
        scored.append(0)
        move(learner, 0.01)
        noises.append(learner.publish()["parity_noise"])
        learner.noise = 2e-6  # what a glance takes, and a full look measures anew
    full = [0, 8]
    assert all(
        scored[number] < min(scored[at] for at in full) / 6
        for number in range(10)
        if number not in full
    )
    assert [number for number, noise in enumerate(noises) if noise != 2e-6] == full
    files = learner.state()
    _, other = opened(byte_model, "float32", False)
    other.load(files)  # a resumed training looks with the noise that was measured before
    for trained in (learner, other):
        move(trained, 0.01)
    assert other.publish() == learner.publish()


@pytest.mark.longest
@pytest.mark.parametrize("fault", ["wrong adapter", "stale cache"])
def test_what_a_step_moved_shows_what_lags_behind_it_where_no_draw_can_be_repeated(
    fault: str, byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, learner = opened(byte_model, "bfloat16", True)
    learner.repeats = False  # as of a sampler elsewhere
    learner.remember()
    SMALL[fault][0](engine, monkeypatch)
    move(learner, 2e-3)
    found = probes.measure(learner).shares
    assert "the same draws again" not in found
    assert max(found[name] for name in ("the mean", "one reply", "one token", "the slope")) < 1
    assert found["what the last step moved"] > 1


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_that_are_changed_unseen_make_a_cache_stale(dtype: str, byte_model: Path) -> None:
    """No counter of the weights says that they changed, so the cache is kept, and found out."""
    _, learner = opened(byte_model, dtype, True)
    for weight in learner.parameters.values():
        weight.data.add_(1e-3)
    with pytest.raises(EngineError, match="not published"):
        learner.publish()


@pytest.mark.long
@pytest.mark.parametrize("dtype, lora", [("float32", False), ("bfloat16", True)])
def test_plays_between_updates_stop_no_publish(dtype: str, lora: bool, byte_model: Path) -> None:
    """The optimiser writes float32 weights by a kernel of its own, which torch does not count."""
    engine, learner = opened(byte_model, dtype, lora)
    for number in range(2):
        for master in learner.masters.values():
            master.grad = torch.ones_like(master)
        learner.step(1.0, 0.0, [])
        assert learner.publish()["version"] == number + 1
        engine.sample_ids(learner.probes, [Sampling(max_tokens=4)] * len(learner.probes), range(8))


@pytest.mark.long
def test_one_opening_of_all_talks_is_not_all_that_is_looked_at(byte_model: Path) -> None:
    """The unit of noise of one text lies about by a factor of four, and stops good runs."""
    _, learner = opened(byte_model, "bfloat16", True)
    opening, mask = [40, 41, 42, 43], np.repeat([False, True, False, True], 4)
    talks = [
        replace(Row.of(("r", 0, at), opening, [*range(40 + at, 52 + at)]), mask=mask)
        for at in range(6)
    ]
    learner.probe_with(talks)
    assert learner.probes == [
        tuple(opening),
        *(tuple(talks[at].ids[:12].tolist()) for at in range(3)),
    ]
    learner.probe_with([Row.of(("r", 0, 0), opening, [44])] * 6)
    assert learner.probes == [tuple(opening)]
    scored: list[int] = []
    plain = learner.scorer.score_again
    learner.scorer.score_again = lambda pairs: scored.append(len(pairs)) or plain(pairs)
    probes.measure(learner)
    assert scored == [4]  # draws after that one text
    learner.probes = [(40 + at, 41, 42) for at in range(6)]
    probes.measure(learner)
    assert scored == [4, 6]  # one of each


@pytest.mark.long
def test_an_adapter_that_was_changed_for_another_is_found(byte_model: Path) -> None:
    engine, learner = opened(byte_model, "bfloat16", True)
    engine.adapter = engine.beside("another")
    with pytest.raises(EngineError, match=r"differ in .*lora_A.* and \d+ more at version 0"):
        learner.publish()


@pytest.mark.long
def test_the_second_way_keeps_to_the_memory_of_a_pass(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, learner = opened(byte_model, "float32", False)
    pairs = [(prompt, [40, 41, 42]) for prompt in learner.probes] * 4
    whole = learner.scorer.score_again(pairs)
    fed: list[int] = []
    forward = type(learner.scorer.model).forward

    def counted(self: Any, *asked: Any, **given: Any) -> Any:
        fed.append(given["input_ids"].numel())
        return forward(self, *asked, **given)

    monkeypatch.setattr(type(learner.scorer.model), "forward", counted)
    # what does not lie together is multiplied row by row, each with a copy of the whole head
    head, together = learner.scorer.model.get_output_embeddings(), list[bool]()
    head.register_forward_pre_hook(lambda _, given: together.append(given[0].is_contiguous()))
    learner.scorer.pass_tokens = 2 * max(len(prompt) + len(ids) for prompt, ids in pairs)
    parts = learner.scorer.score_again(pairs)
    assert whole is not None and parts is not None and max(fed) <= learner.scorer.pass_tokens
    assert together and all(together)
    np.testing.assert_allclose(np.concatenate(parts), np.concatenate(whole), atol=1e-5)


@pytest.mark.longest
def test_a_cache_of_the_same_weights_may_be_used_again(byte_model: Path) -> None:
    """A publish that changes nothing meets what was kept, which rounds otherwise than afresh."""
    engine, learner = opened(byte_model, "bfloat16", False)
    for number in range(3):
        assert learner.publish()["version"] == number + 1
        engine.sample_batch([Request("a", (Message(text),), conversation=text) for text in TEXTS])


@pytest.mark.long
def test_a_machine_that_does_not_repeat_itself_stops_nobody(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, learner = opened(byte_model, "float32", False)
    plain = probes.cold
    count = itertools.count(1)

    def cold(*asked: Any) -> Any:
        drawn = plain(*asked)
        drawn[0].logprobs[0] += next(count) * 1e-7
        return drawn

    monkeypatch.setattr(probes, "cold", cold)
    move(learner)
    assert learner.publish()["parity_share"] < 1 and not learner.repeats


@pytest.mark.long
@pytest.mark.parametrize("dtype, lora", [("float32", False), ("bfloat16", True)])
def test_a_sampler_of_this_process_is_compared_bit_for_bit(
    dtype: str, lora: bool, byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, learner = opened(byte_model, dtype, lora, apart=True)
    last = sorted(learner.parameters)[-1]
    take = engine.take
    kept = {last: engine.weights()[last].detach().clone()}
    monkeypatch.setattr(engine, "take", lambda weights: take({**weights, **kept}))
    with torch.no_grad():
        weight = learner.parameters[last].flatten()
        # the least that two numbers can differ by
        weight[0] = torch.nextafter(weight[0], weight[0] + 1)
    with pytest.raises(
        EngineError,
        match=rf"policy 'main': sampler and learner differ in {last} at version 0; not published",
    ):
        learner.publish()
    assert engine.unpublished


@pytest.mark.long
def test_the_bound_is_a_setting_of_the_policy(byte_model: Path) -> None:
    engine = Transformers(str(byte_model), policy="main", parity=1e-12)
    learner = TorchLearner(engine, Sampling(max_tokens=8))
    learner.probes = [engine.chat.render("a", (Message(text),)) for text in TEXTS[:8]]
    with pytest.raises(EngineError, match="allowed is 1e-12 in the mean"):
        learner.publish()
    with pytest.raises(ConfigError, match="policy 'main': parity is in nats, above 0; got 0"):
        Transformers(str(byte_model), policy="main", parity=0)


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_noise_is_measured_on_what_was_sampled_and_not_on_what_never_is(
    dtype: str, byte_model: Path
) -> None:
    """Between two turns stand ids that no reply may hold: their log-probability is minus
    infinity on every way."""
    engine, learner = opened(byte_model, dtype, False)
    never = int((engine.banned < 0).nonzero()[0, 0])
    ids = np.array([*learner.probes[0], 40, 41, 42, never, never, 43, 44], np.int64)
    mask = (np.arange(len(ids)) >= len(learner.probes[0])) & (ids != never)
    zeros = np.zeros(len(ids))
    row = Row(
        ("r", 0, 0), ids, mask, zeros, zeros, np.where(mask, 0, -1), np.zeros(len(ids), np.int64)
    )
    found = probes.noise_of(learner, [row, row])
    assert parity.FLOOR[dtype] <= found <= parity.CEILING[dtype]


# -- the statistic alone -------------------------------------------------------------------------


def noisy(
    seed: int, tokens: int = 128, unit: float = 0.03, reply: int = 16
) -> tuple[Any, Any, Any]:
    """Sampled and scored log-probabilities with heavy-tailed noise between them, as bfloat16 has
    on a deep model."""
    rng = np.random.default_rng(seed)
    scored = -rng.gamma(0.5, 2.0, tokens)
    return scored + unit * rng.standard_t(5, tokens), scored, np.arange(tokens) // reply


def noise() -> float:
    """The unit as two ways of scoring would give it."""
    sampled, scored, _ = noisy(99, 4000)
    return parity.unit(parity.evened(sampled - scored, scored), "bfloat16")


@pytest.mark.parametrize("tokens, reply", [(128, 16), (128, 1), (4000, 40)])
def test_heavy_tailed_noise_of_the_measured_size_passes_hundreds_of_times(
    tokens: int, reply: int
) -> None:
    bound = parity.SAME * noise()
    found = [
        parity.gap(*noisy(seed, tokens, reply=reply), bound, "bfloat16").share
        for seed in range(400 if tokens == 128 else 50)
    ]
    assert max(found) < 1


@pytest.mark.parametrize("shift", ["all", "one reply", "one token", "temperature"])
def test_what_is_no_noise_is_found_wherever_it_is(shift: str) -> None:
    sampled, scored, reply = noisy(0)
    where = {
        "all": slice(None),
        "one reply": slice(32, 48),
        "one token": slice(5, 6),
        "temperature": slice(0, 0),
    }[shift]
    sampled[where] -= {"all": 0.12, "one reply": 0.6, "one token": 1.5}.get(shift, 0)
    if shift == "temperature":
        sampled = sampled + 0.1 * (scored - scored.mean())
    found = parity.gap(sampled, scored, reply, parity.SAME * noise(), "bfloat16")
    assert not found.fits
    assert {"all": "the mean", "temperature": "the slope"}.get(shift, shift) in str(found)


def test_one_unlikely_token_makes_no_slope() -> None:
    rng = random.Random(0)
    scored = np.array([-0.1 + 0.01 * rng.random() for _ in range(63)] + [-12.0])
    sampled = scored + np.array([rng.gauss(0, 0.02) for _ in range(63)] + [0.4])
    assert parity.gap(sampled, scored, np.arange(64) // 16, 0.09, "bfloat16").fits


def test_what_is_not_a_number_never_fits() -> None:
    zeros = np.zeros(4)
    assert not parity.gap(
        zeros, np.array([0, 0, np.nan, 0]), np.zeros(4, np.int64), 1.0, "float32"
    ).fits
    assert parity.gap(zeros[:0], zeros[:0], np.zeros(0, np.int64), 1.0, "float32").fits
    assert parity.unit(np.array([np.inf]), "torch.float32") == parity.CEILING["float32"]


@pytest.mark.parametrize("share", [0.0, 0.05])
def test_a_sharp_policy_is_no_fault(share: float) -> None:
    """Certain tokens are off by next to nothing, rare ones by 1e-6 of their nats: the unit,
    found on certain ones, must not forbid a rare one."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        rare = rng.random(64) < share
        rare[0] = True
        scored = np.where(rare, -rng.uniform(15, 25, 64), -1e-6)
        off = np.where(rare, scored * 1e-6, 1e-8) * rng.choice((-1, 1), 64)
        noise = parity.unit(parity.evened(np.full(64, 1e-8), np.full(64, -1e-6)), "float32")
        assert parity.gap(
            scored + off, scored, np.arange(64) // 4, parity.SAME * noise, "float32"
        ).fits


def test_what_one_step_of_an_optimiser_moves_is_still_found_in_float32() -> None:
    rng = np.random.default_rng(0)
    scored = -rng.exponential(1.5, 64)
    moved = scored + rng.normal(0, 3e-5, 64)
    assert not parity.gap(
        moved, scored, np.arange(64) // 16, parity.SAME * parity.FLOOR["float32"], "float32"
    ).fits


def stepped(seed: int, part: float, units: float, tokens: int = 64) -> float:
    """The share of a sampler that lacks this part of a step, which moved so many units of noise."""
    sampled, scored, _ = noisy(seed, tokens)
    rng = np.random.default_rng(seed + 10_000)
    step = rng.normal(0, units * 0.03, tokens)
    seen = step + 0.03 * rng.standard_t(5, tokens)  # it is measured through noise as well
    return parity.lag(sampled - scored + part * step, seen, scored)


def test_a_step_that_was_not_taken_is_found_below_the_rounding_of_a_token() -> None:
    assert min(stepped(seed, 1.0, 3.0, 256) for seed in range(100)) > 1
    assert np.median([stepped(seed, 1.0, 1.8, 512) for seed in range(100)]) > 1


@pytest.mark.parametrize("units", [0.0, 1.8, 50.0])
@pytest.mark.parametrize("tokens", [32, 512])
def test_noise_is_no_lag(tokens: int, units: float) -> None:
    assert max(stepped(seed, 0.0, units, tokens) for seed in range(300)) < 1


def test_one_token_that_a_step_moved_makes_no_lag() -> None:
    step, apart = np.full(64, 1e-6), np.full(64, 1e-3) * np.resize((1, -1), 64)
    step[5], apart[5] = 2.0, 0.5
    assert parity.lag(apart, step, np.full(64, -1.0)) < 1
