"""`constrain: legal`: only legal strings are sampled, the learner sees the same mask, and a
model without a warm start learns from the first step."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gem_ma import credit
from gem_ma.config.training import WarmStartSettings
from gem_ma.engines.base import Policy, open_engine
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Message, Request, Sampling, Tool

torch = pytest.importorskip("torch", reason="needs the train extra")

from gem_ma.scores.exploitability import TokenStrategy  # noqa: E402
from gem_ma.training.learner import Demonstration  # noqa: E402
from gem_ma.training.learner.rows import rows  # noqa: E402
from gem_ma.training.learner.torch_learner import TorchLearner  # noqa: E402
from tests import plays  # noqa: E402
from tests.asking import at_once  # noqa: E402
from tests.plays import learn  # noqa: E402

CHOICES = ("check", "bet", "call the bet")
ASKED = (Message("Kuhn poker. Your card is J. Choose."),)


def opened(model: Path, **options: Any) -> Any:
    return open_engine("main", f"transformers/{model}", **{"constrain": "legal", **options})


def request(
    seed: int, legal: tuple[str, ...] | None = CHOICES, max_tokens: int = 20, **sampling: Any
) -> Request:
    how = Sampling(max_tokens=max_tokens, **sampling)
    return Request(
        "player_0",
        ASKED,
        legal=legal,
        seed=seed,
        sampling=how,
        conversation=f"{seed}",
        policy="main",
    )


def hands(engine: Any, count: int = 64, first: int = 0) -> list[Episode]:
    return plays.hands(Policy("main", engine, Sampling(max_tokens=20)), count=count, first=first)


def chances(learner: TorchLearner, legal: Sequence[str] = CHOICES) -> list[float]:
    return TokenStrategy(learner)("player_0", ASKED, tuple(legal))


@pytest.mark.long
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_every_answer_is_legal_and_as_probable_as_the_learner_says(
    byte_model: Path, temperature: float
) -> None:
    engine = opened(byte_model).engine
    learner = TorchLearner(engine, Sampling(temperature=temperature))
    replies = engine.sample_batch([request(seed, temperature=temperature) for seed in range(300)])
    assert {reply.text for reply in replies} == set(CHOICES)
    assert {reply.finish for reply in replies} == {"stop"}
    scored = learner.score(
        [(reply.prompt_ids, reply.token_ids) for reply in replies], [CHOICES] * len(replies)
    )
    assert (
        max(
            float(np.abs(ours - np.array(reply.logprobs)).max())
            for ours, reply in zip(scored, replies, strict=True)
        )
        < 1e-5
    )
    expected = dict(zip(CHOICES, chances(learner), strict=True))
    # no mass is left for an unreadable answer
    assert sum(expected.values()) == pytest.approx(1, abs=1e-5)
    for choice, p in expected.items():
        share = sum(reply.text == choice for reply in replies) / len(replies)
        assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / len(replies))


@pytest.mark.long
def test_the_mask_is_that_of_the_turn_and_not_of_its_batch(byte_model: Path) -> None:
    engine, free = opened(byte_model).engine, opened(byte_model, constrain=None).engine
    mixed = engine.sample_batch([request(1, None), request(2), request(3, ("x", "y")), request(4)])
    assert mixed[0].token_ids == free.sample_batch([request(1, None)])[0].token_ids
    assert (mixed[1].text in CHOICES, mixed[2].text in "xy", mixed[3].text in CHOICES) == (
        True,
        True,
        True,
    )
    assert [reply.text for reply in engine.sample_batch([request(2), request(4)])] == [
        mixed[1].text,
        mixed[3].text,
    ]
    likeliest = {
        reply.text
        for reply in engine.sample_batch([request(seed, temperature=0.0) for seed in range(3)])
    }
    assert len(likeliest) == 1 and likeliest < set(CHOICES)


def test_a_stop_string_inside_a_legal_one_cuts_nothing(byte_model: Path) -> None:
    legal = ("stop here now", "go on", "go", "")
    replies = opened(byte_model).engine.sample_batch(
        [request(seed, legal, stop=("here", "o")) for seed in range(60)]
    )
    assert {(reply.text, reply.finish) for reply in replies} == {(text, "stop") for text in legal}


def test_what_cannot_be_spelled_is_told_before_anything_is_sampled(
    byte_model: Path, thin_model: Path
) -> None:
    with pytest.raises(
        ConfigError, match=r"max_tokens is 3, and the longest of its legal strings has \d+ tokens"
    ):
        opened(byte_model).engine.sample_batch([request(0, max_tokens=3)])
    with pytest.raises(ConfigError, match="no word for the legal string 'zebra'"):
        opened(thin_model).engine.sample_batch([request(0, ("check", "zebra"))])
    with pytest.raises(ConfigError, match=r"the legal string '\\ud800' would be read back as '\?'"):
        opened(byte_model).engine.sample_batch([request(0, ("x", "\ud800"))])
    with pytest.raises(
        ConfigError, match="constrain is `auto`, `legal`, `tools` or null; got 'json'"
    ):
        opened(thin_model, constrain="json")
    with pytest.raises(ConfigError, match="kv_tokens must be 0"):
        opened(thin_model, kv_tokens=-1)


def test_a_context_without_room_for_the_longest_legal_string_is_full(byte_model: Path) -> None:
    engine = opened(byte_model).engine
    engine.decoder.positions = len(engine.chat.render("player_0", ASKED)) + 3
    reply = engine.sample_batch([request(0)])[0]
    assert (reply.finish, reply.token_ids) == ("context_overflow", ())


@pytest.mark.long
def test_rows_carry_what_each_token_was_chosen_among_and_the_update_agrees(
    thin_model: Path,
) -> None:
    engine = opened(thin_model)
    learner = TorchLearner(engine.engine, Sampling(max_tokens=20))
    played = hands(engine)
    assert all(
        turn.action.parsed in turn.legal
        for episode in played
        for turn in episode.turns
        if turn.legal
    )
    table = credit.turns(played, "main")
    made = rows(table, np.zeros(len(table.turns)), "main", engine.engine.binding.allowed)
    for row in made.rows:
        assert len(row.allowed) == int(row.mask.sum())
        assert all(
            token in among
            for token, among in zip(row.ids[row.mask].tolist(), row.allowed, strict=True)
        )
    stats = learn(learner, table, np.ones(len(table.turns)), lr=1e-3)
    assert stats["logprob_gap"] < 1e-5
    assert 0 < stats["entropy"] < math.log(2)  # two choices, then nothing but the end of turn
    blind = rows(table, np.zeros(len(table.turns)), "main")
    assert {row.allowed for row in blind.rows} == {()}


@pytest.mark.longest
def test_a_model_without_a_warm_start_learns_from_the_first_step_and_never_says_anything_illegal(
    thin_model: Path,
) -> None:
    engine = opened(thin_model)
    learner = TorchLearner(engine.engine, Sampling(max_tokens=20))
    wanted = {"check": 1.0, "bet": 0.0, "call": 0.0, "fold": 1.0}
    shares = []
    for step in range(8):
        played = hands(engine, 48, 1000 * step)
        turns = credit.turns(played, "main")
        said = [turn.action.parsed for turn in turns.turns]
        assert None not in said
        paid = np.array([wanted[str(one)] for one in said])
        shares.append(float(paid.mean()))
        learn(learner, turns, paid - paid.mean(), lr=3e-3, seed=step)
        assert learner.publish()["parity_gap"] < 1e-5
    assert shares[0] < 0.75 and shares[-1] > 0.95


def test_cloning_sees_the_mask_too(thin_model: Path) -> None:
    engine = opened(thin_model)
    learner = TorchLearner(engine.engine, Sampling(max_tokens=20))
    legal = ("check", "bet")
    shown = [Demonstration(request(0, legal), "bet")]
    # the other tokens are certain
    expected = -math.log(chances(learner, legal)[1]) / len(engine.engine.chat.answer("bet"))
    assert learner.clone(shown, WarmStartSettings(cast={}, steps=1, batch=1))[
        "loss_first"
    ] == pytest.approx(expected, abs=1e-4)


def test_without_the_option_nothing_is_constrained(thin_model: Path) -> None:
    engine = opened(thin_model, constrain=None)
    assert engine.engine.binding.allowed(CHOICES, engine.engine.chat.answer("bet")) is None
    replies = engine.engine.sample_batch([request(seed, ("check", "bet"), 3) for seed in range(40)])
    assert any(reply.text not in ("check", "bet") for reply in replies)


def test_an_error_of_one_request_is_its_own(thin_model: Path) -> None:
    engine = opened(thin_model)
    asked = [request(number, ("check", "zebra" if number == 2 else "bet")) for number in (1, 2, 3)]
    first, second, third = at_once(*((engine, one) for one in asked), failing=True)
    assert isinstance(second, ConfigError | EngineError)
    assert {first.text, third.text} <= {"check", "bet"}


# -- auto: bound where nothing speaks against it -------------------------------------------------

THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1]"
    " }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% if"
    " enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{%"
    " endif %}"
)


@pytest.mark.long
def test_auto_binds_a_closed_choice_and_the_learner_sees_the_same_mask(byte_model: Path) -> None:
    engine, typed = opened(byte_model, constrain="auto").engine, opened(byte_model).engine
    assert [r.token_ids for r in engine.sample_batch([request(n) for n in range(8)])] == [
        r.token_ids for r in typed.sample_batch([request(n) for n in range(8)])
    ]
    ids = engine.sample_batch([request(0)])[0].token_ids
    assert engine.binding.allowed(CHOICES, ids) == typed.binding.allowed(CHOICES, ids) is not None


@pytest.mark.long
@pytest.mark.parametrize("case", ["tools", "thinking", "unspelled", "unread", "none"])
def test_auto_leaves_free_what_cannot_or_should_not_be_bound_and_so_does_the_learner(
    case: str, byte_model: Path, thin_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, legal, tools = byte_model, CHOICES, ()
    if case == "tools":
        tools = (Tool("look", "Looks."),)
    elif case == "thinking":
        model = tmp_path / "thinker"
        shutil.copytree(byte_model, model)
        (model / "chat_template.jinja").write_text(THINKING)
    elif case == "unspelled":
        model, legal = thin_model, ("check", "zebra")
    elif case == "unread":
        legal = ("x", "\ud800")
    engine, free = opened(model, constrain="auto").engine, opened(model, constrain=None).engine
    asked = replace(request(3, None if case == "none" else legal), tools=tools)
    reply, other = (one.sample_batch([asked])[0] for one in (engine, free))
    assert reply.token_ids == other.token_ids
    # also where a free answer happens to be a legal one
    for ids in (reply.token_ids, engine.chat.answer(legal[0])):
        assert engine.binding.allowed(asked.legal, ids, tools) is None
    engine.sample_batch([asked])
    # one note, however often it is asked
    assert len(caplog.records) == (case in ("unspelled", "unread"))


def test_thinking_that_is_switched_off_leaves_the_choice_bound(
    byte_model: Path, tmp_path: Path
) -> None:
    model = tmp_path / "thinker"
    shutil.copytree(byte_model, model)
    (model / "chat_template.jinja").write_text(THINKING)
    engine = opened(model, constrain="auto", template={"enable_thinking": False}).engine
    assert engine.binding.binds(CHOICES)
    assert not opened(model, constrain="auto").engine.binding.binds(CHOICES)
    assert {reply.text for reply in engine.sample_batch([request(n) for n in range(6)])} <= set(
        CHOICES
    )


def test_auto_cuts_where_the_tokens_end_as_a_free_answer_is_cut(byte_model: Path) -> None:
    engine = opened(byte_model, constrain="auto").engine
    replies = engine.sample_batch([request(seed, max_tokens=3) for seed in range(12)])
    assert {len(reply.token_ids) for reply in replies} <= {1, 2, 3}
    assert "length" in {reply.finish for reply in replies}
    for reply in replies:
        assert len(engine.binding.allowed(CHOICES, reply.token_ids) or ()) == len(reply.token_ids)
