"""`constrain: tools`: a call that is opened is well-formed, free text is free, and the learner
sees the same mask."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gem_ma import credit
from gem_ma.config.training import WarmStartSettings
from gem_ma.engines.base import open_engine
from gem_ma.kernel.episode import Entry, Seat
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.parsing import MAX_CALLS
from gem_ma.kernel.types import (
    Action,
    Malformed,
    Message,
    Reply,
    Request,
    Sampling,
    Tool,
    ToolCall,
    Turn,
)
from gem_ma.system.extras import install
from tests.chat_templates import XML

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("llguidance", reason="needs the grammar extra")

from gem_ma.engines.local.tiny import make_model  # noqa: E402
from gem_ma.engines.local.tool_grammar import arguments_schema, grammar_of  # noqa: E402
from gem_ma.training.learner import Demonstration  # noqa: E402
from gem_ma.training.learner.rows import rows  # noqa: E402
from gem_ma.training.learner.torch_learner import TorchLearner  # noqa: E402
from tests.plays import learn, recorded  # noqa: E402

LOOK = Tool(
    "look",
    "Looks.",
    {"type": "object", "properties": {"at": {"enum": ["door", 'grün "x"']}}, "required": ["at"]},
)
MOVE = Tool(
    "move",
    "Moves.",
    {
        "type": "object",
        "properties": {
            "steps": {"type": "integer", "minimum": 1, "maximum": 40},
            "pace": {"type": "number", "minimum": 0, "maximum": 2},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 2},
        },
        "required": ["steps"],
        "$defs": {"tag": {"type": "string", "maxLength": 3}},
    },
)
TOOLS = (LOOK, MOVE)
ASKED = (Message("What now?"),)


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untrained, but it opens a call about every second time that the question of this file is
    put, and mostly ends after it."""
    path = tmp_path_factory.mktemp("caller") / "model"
    make_model(path, "kuhn_poker", size="nano", tied=False)
    engine = opened(path, constrain=None)
    prompt = engine.chat.render("x", ASKED, TOOLS)
    tag = engine.tokenizer.convert_tokens_to_ids("<tool_call>")
    called = engine.chat.answer("", (ToolCall("", "look", {"at": "door"}),), TOOLS)[:-1]
    with torch.no_grad():
        head = engine.model.get_output_embeddings().weight
        for ids, token, more in (
            ((*prompt, *called), min(engine.vocabulary.ends), 3),
            (prompt, tag, 0),
        ):
            hidden = engine.model.base_model(torch.tensor([ids])).last_hidden_state[0, -1]
            head[token] = 0
            head[token] = hidden * (
                ((head @ hidden + engine.banned).logsumexp(0) + more) / (hidden @ hidden)
            )
    engine.save(path)
    return path


def opened(model: Path, **options: Any) -> Any:
    return open_engine("main", f"transformers/{model}", **{"constrain": "tools", **options}).engine


def request(
    seed: int, tools: tuple[Tool, ...] = TOOLS, max_tokens: int = 400, **sampling: Any
) -> Request:
    how = Sampling(max_tokens=max_tokens, **sampling)
    return Request(
        "x", ASKED, tools, seed=seed, sampling=how, conversation=f"{seed}", policy="main"
    )


def fits(call: ToolCall) -> bool:
    """Whether the arguments are as the schemas above say, by hand."""
    given: Mapping[str, Any] = call.arguments
    if call.name == "look":
        return dict(given) in ({"at": "door"}, {"at": 'grün "x"'})
    steps, pace, tags = given["steps"], given.get("pace", 0), given.get("tags", [])
    numbers = (
        type(steps) is int and 1 <= steps <= 40 and type(pace) in (int, float) and 0 <= pace <= 2
    )
    words = len(tags) <= 2 and all(isinstance(tag, str) and len(tag) <= 3 for tag in tags)
    return call.name == "move" and set(given) <= {"steps", "pace", "tags"} and numbers and words


def played(replies: Sequence[Reply]) -> Any:
    """One episode per reply, each of one turn that offered the tools, as the table that a
    learner takes."""
    seats = {"x": Seat("direct", "main")}
    turns = [
        Turn(0, "x", ASKED, None, TOOLS, Action(reply.text, reply.tool_calls), (reply,))
        for reply in replies
    ]
    made = [
        recorded(seats, (turn,), (Entry(0, "x", 1.0),), scenario="s", seed=n, task="test/0")
        for n, turn in enumerate(turns)
    ]
    return credit.turns(made, "main")


@pytest.mark.longest
def test_every_call_is_of_an_offered_tool_with_arguments_of_its_schema(caller: Path) -> None:
    engine = opened(caller)
    replies = engine.sample_batch([request(seed) for seed in range(100)])
    first = [next((call for call in reply.tool_calls), None) for reply in replies]
    whole = [call for reply in replies for call in reply.tool_calls if isinstance(call, ToolCall)]
    cut = [call for reply in replies for call in reply.tool_calls if isinstance(call, Malformed)]
    assert len(whole) > 30
    assert all(map(fits, whole))
    assert {call.name for call in whole} == {"look", "move"}
    assert all(call.reason.startswith("truncated_call") for call in cut) and len(cut) < 3
    assert sum(call is None for call in first) > 20  # free text
    broken = opened(caller, constrain=None).sample_batch([request(seed) for seed in range(20)])
    assert any(isinstance(call, Malformed) for reply in broken for call in reply.tool_calls)


@pytest.mark.longest
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_every_token_is_as_probable_as_the_learner_says(caller: Path, temperature: float) -> None:
    engine = opened(caller)
    learner = TorchLearner(engine, Sampling(temperature=temperature))
    replies = engine.sample_batch(
        [request(seed, temperature=temperature, max_tokens=150) for seed in range(40)]
    )
    asked = [(reply.prompt_ids, reply.token_ids) for reply in replies]
    scored = learner.score(asked, tools=[TOOLS] * len(replies))
    assert (
        max(
            float(np.abs(ours - np.array(reply.logprobs)).max())
            for ours, reply in zip(scored, replies, strict=True)
        )
        < 1e-5
    )
    blind = learner.score(asked)
    assert (
        max(
            float(np.abs(ours - np.array(reply.logprobs)).max())
            for ours, reply in zip(blind, replies, strict=True)
        )
        > 0.5
    )


@pytest.mark.longest
def test_the_same_seed_says_the_same_alone_and_in_a_batch(caller: Path) -> None:
    engine = opened(caller)
    batch = engine.sample_batch([request(1), request(2, ()), request(3), request(4, (LOOK,))])
    for one, (seed, tools) in zip(
        batch, ((1, TOOLS), (2, ()), (3, TOOLS), (4, (LOOK,))), strict=True
    ):
        assert engine.sample_batch([request(seed, tools)])[0].token_ids == one.token_ids


@pytest.mark.long
def test_free_text_is_free(caller: Path) -> None:
    bound, free = opened(caller), opened(caller, constrain=None)
    asked = [request(seed, max_tokens=30) for seed in range(40)]
    plain = [
        (one, reply)
        for one, reply in zip(asked, free.sample_batch(asked), strict=True)
        if "<tool_call>" not in free.vocabulary.cut(reply.token_ids)
    ]
    assert len(plain) > 10
    assert [reply.token_ids for reply in bound.sample_batch([one for one, _ in plain])] == [
        r.token_ids for _, r in plain
    ]
    assert all(
        bound.binding.allowed(None, reply.token_ids, TOOLS) == (None,) * len(reply.token_ids)
        for _, reply in plain
    )
    without = [replace(one, tools=()) for one in asked]
    assert [reply.token_ids for reply in bound.sample_batch(without)] == [
        reply.token_ids for reply in free.sample_batch(without)
    ]


@pytest.mark.longest
def test_rows_carry_the_mask_and_the_update_agrees(caller: Path) -> None:
    engine = opened(caller)
    learner = TorchLearner(engine, Sampling())
    replies = engine.sample_batch([request(seed, max_tokens=100) for seed in range(24)])
    table = played(replies)
    made = rows(table, np.zeros(len(replies)), "main", engine.binding.allowed)
    assert (
        sum(bool(row.allowed) for row in made.rows)
        == sum(bool(reply.tool_calls) for reply in replies)
        > 5
    )
    for row in made.rows:
        pairs = zip(row.ids[row.mask].tolist(), row.allowed, strict=True) if row.allowed else ()
        assert all(among is None or token in among for token, among in pairs)
    different = {id(among) for row in made.rows for among in row.allowed if among is not None}
    # sets that come again are the same object
    assert len(different) < sum(len(row.allowed) for row in made.rows) / 2
    stats = learn(learner, table, np.ones(len(replies)), lr=1e-4)
    assert stats["logprob_gap"] < 1e-5
    words = replace(replies[0], text="<tool_call> was asked for in words", tool_calls=())
    assert {
        row.allowed
        for row in rows(played([words]), np.zeros(1), "main", engine.binding.allowed).rows
    } == {()}


@pytest.mark.long
def test_cloning_sees_the_mask_of_a_call(caller: Path) -> None:
    engine = opened(caller)
    learner = TorchLearner(engine, Sampling())
    call = ToolCall("", "look", {"at": "door"})
    prompt, target = engine.chat.render("x", ASKED, TOOLS), engine.chat.answer("", (call,), TOOLS)
    expected = -float(learner.score([(prompt, target)], tools=[TOOLS])[0].mean())
    assert expected < -float(learner.score([(prompt, target)])[0].mean()) - 1
    shown = [Demonstration(request(0), "", (call,))]
    assert learner.clone(shown, WarmStartSettings(cast={}, steps=1, batch=1))[
        "loss_first"
    ] == pytest.approx(expected, abs=1e-4)


def ids_of(engine: Any, text: str, *, spelled: bool = False) -> list[int]:
    """The ids of a text; `spelled` writes tags letter by letter."""
    if spelled:
        return [token for letter in text for token in ids_of(engine, letter)]
    return list(engine.tokenizer(text, add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize("spelled", [False, True])
def test_where_a_call_begins_and_ends_however_its_tags_are_written(
    byte_model: Path, spelled: bool
) -> None:
    engine = opened(byte_model)
    end = min(engine.vocabulary.ends)
    before, call, after = (
        "Well <tool <tool_call>",
        '\n{"name": "look", "arguments": {"at": "grün \\"x\\""}}\n</tool_call>',
        " done",
    )
    ids = [ids_of(engine, part, spelled=spelled) for part in (before, call, after)]
    allowed = engine.binding.allowed(None, [*ids[0], *ids[1], *ids[2], end], TOOLS)
    assert [among is None for among in allowed] == [True] * len(ids[0]) + [False] * len(ids[1]) + [
        True
    ] * (len(ids[2]) + 1)
    assert not any(end in among for among in allowed if among is not None)  # no end inside a call
    for wrong in (
        '{"name": "run"',
        '{"name": "look", "arguments": {"at": 3',
        '{"arguments"',
        "well",
    ):
        assert (
            engine.binding.allowed(None, [*ids[0], *ids_of(engine, wrong, spelled=True)], TOOLS)
            is None
        )
    thought = ids_of(engine, "<think> <tool_call> is a tag </think>", spelled=spelled)
    assert engine.binding.allowed(None, thought, TOOLS) == (None,) * len(thought)
    assert (
        engine.binding.allowed(None, [*thought, *ids_of(engine, "<tool_call>"), end], TOOLS) is None
    )


@pytest.mark.long
def test_no_more_calls_are_opened_than_are_read(byte_model: Path) -> None:
    engine = opened(byte_model)
    call = ids_of(engine, '<tool_call>{"name":"look","arguments":{"at":"door"}}</tool_call>')
    assert engine.binding.allowed(None, call * MAX_CALLS, TOOLS) is not None
    for more in (call, ids_of(engine, "<tool_call>", spelled=True)):
        assert engine.binding.allowed(None, [*call * MAX_CALLS, *more], TOOLS) is None


@pytest.mark.long
def test_what_cannot_be_bound_is_told_in_one_line(
    byte_model: Path, kuhn_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path(shutil.copytree(byte_model, tmp_path / "model"))
    (other / "chat_template.jinja").write_text(XML)
    with pytest.raises(ConfigError, match="knows the tool format hermes; this policy's is xml"):
        opened(other)
    with pytest.raises(ConfigError, match="the grammar cannot read this tokenizer"):
        opened(kuhn_model, tool_format="hermes")
    engine = opened(byte_model)
    odd = Tool(
        "odd", "", {"type": "object", "properties": {"x": {"type": "array", "uniqueItems": True}}}
    )
    with pytest.raises(
        ConfigError, match=r"the schema of tool 'odd' cannot be a grammar: .*uniqueItems"
    ):
        engine.sample_batch([request(0, (LOOK, odd))])
    with pytest.raises(ConfigError, match="a stop string would cut a tool call in two"):
        engine.sample_batch([request(0, stop=("x",))])
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(
        ConfigError, match=r"needs llguidance \(.*\): " + re.escape(install("grammar"))
    ):
        opened(byte_model)


def test_arguments_are_closed_and_bounded_unless_the_schema_says_otherwise() -> None:
    number = {"type": "number"}
    assert arguments_schema(
        {
            "type": "object",
            "properties": {
                "x": number,
                "y": {"enum": [1]},
                "z": {"type": ["integer", "null"], "minimum": 2**60},
            },
        }
    ) == {
        "type": "object",
        "properties": {
            "x": {**number, "minimum": -1e15, "maximum": 1e15},
            "y": {"enum": [1]},
            "z": {"type": ["integer", "null"], "minimum": 2**60},
        },
        "additionalProperties": False,
    }
    opening = {
        "type": "object",
        "properties": {"x": {"type": "string"}},
        "additionalProperties": True,
    }
    assert arguments_schema(opening) == opening
    parts = {
        "allOf": [
            {"type": "object", "properties": {"x": {"type": "string"}}},
            {"type": "object", "properties": {"y": {"type": "string"}}},
        ]
    }
    # each part would refuse the other's property
    assert arguments_schema(parts) == {**parts, "type": "object"}
    assert arguments_schema({}) == {"type": "object"}
    assert '"\\"a\\\\\\"b\\""' in grammar_of([Tool('a"b')], '"</tool_call>"')
