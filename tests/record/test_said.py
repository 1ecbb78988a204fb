"""What an agent says is cut at a limit, whoever says it and wherever it is played; the record
and the score say how much."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gem_ma import (
    Action,
    Ask,
    Game,
    Limits,
    Malformed,
    Message,
    Plan,
    Reply,
    Reward,
    Scenario,
    ToolCall,
    aec_env,
    gym_env,
    make_vec,
    parallel_env,
    play,
)
from gem_ma.driver.forks import Branch
from gem_ma.engines.base import Policy
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.parsing.bounds import bounded, size
from gem_ma.kernel.types import MAX_SAID, Asked, Request, Sampling
from gem_ma.kernel.views import Transcript
from gem_ma.record.codec import dump_episode, load_episode
from gem_ma.scores.metrics import summarise
from gem_ma.scores.rows import table

LONG = 10_000_000


class Echo(Scenario):
    """Two talk; what one says is shown to the other."""

    id, version, agents = "echo", 1, ("a", "b")

    def play(self, rng: Any, task: Any) -> Iterator[Any]:
        said: Any = ""
        for turn in range(4):
            agent, other = self.agents[turn % 2], self.agents[1 - turn % 2]
            said = (yield Ask({agent: said or "go"}))[agent].text
            yield Reward({other: float(len(said) <= 2 * MAX_SAID)})


class Talker:
    """An engine, or a behaviour, that says `words`."""

    def __init__(self, words: Any) -> None:
        self.words = words

    async def sample(self, request: Request) -> Reply:
        return Reply(self.words) if isinstance(self.words, str) else replace(self.words)


def played(words: Any, limits: Limits | None = None, model: bool = False) -> Any:
    limits = limits or Limits()
    if model:
        policy = Policy("main", Talker(words), Sampling())
        return asyncio.run(
            play(
                Plan(Echo(), dict.fromkeys(Echo.agents, Seat("direct", "main")), limits=limits),
                {"main": policy},
            )
        )

    def factory(*_: Any, **__: Any) -> Any:
        class Says:
            async def act(self, asked: Asked) -> Any:
                return words

        return Says()

    cast = dict.fromkeys(Echo.agents, Seat("anything"))
    return asyncio.run(
        play(Plan(Echo(), cast, limits=limits), behaviours=dict.fromkeys(Echo.agents, factory))
    )


@pytest.mark.parametrize(
    "words",
    [
        "x" * LONG,
        "漢" * LONG,
        Action("y" * LONG),
        Action("W1 " * 10**6),
    ],
)
def test_a_saying_of_ten_megabytes_is_cut_and_counted(words: Any) -> None:
    episode = played(words)
    text = words if isinstance(words, str) else words.text
    lost = len(text.encode()) - len(text[:MAX_SAID].encode())
    assert episode.error is None and {turn.action.cut for turn in episode.turns} == {lost}
    assert all(turn.action.text == text[:MAX_SAID] for turn in episode.turns)
    assert all(entry.value == 1 for entry in episode.ledger)  # the scenario saw what is on record
    line = dump_episode(episode)
    assert len(line.encode()) < 40 * MAX_SAID and load_episode(line) == episode
    summary = summarise([episode])
    assert summary["cut"]["a"] == {"sayings": 2, "of": 2, "bytes": 2 * lost}
    assert ("cut sayings a", f"2 of 2, {2 * lost} bytes (run.max_said)") in table(summary)


def test_an_answer_of_a_model_stands_cut_on_its_reply_too() -> None:
    episode = played("z" * LONG, model=True)
    assert episode.error is None
    for turn in episode.turns:
        assert len(turn.action.text) == MAX_SAID and len(turn.replies[0].text) == 8 * MAX_SAID
        assert turn.action.cut + turn.replies[0].cut == LONG - MAX_SAID
    assert len(dump_episode(episode)) < 60 * MAX_SAID


def test_what_fits_is_left_alone_and_none_is_no_limit() -> None:
    assert [turn.action.cut for turn in played("short").turns] == [0] * 4
    assert [
        len(turn.action.text) for turn in played("y" * 100_000, Limits(max_said=None)).turns
    ] == [100_000] * 4
    assert [turn.action for turn in played("y" * 100, Limits(max_said=20)).turns] == [
        Action("y" * 20, cut=80)
    ] * 4
    assert "cut" not in json.loads(dump_episode(played("short")))["turns"][0]["action"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"text": "v" * LONG},
        {"list": ["v" * 100] * 1000},
        {"number": 7 ** (10**5)},
        {"v" * 100 + str(n): None for n in range(1000)},
        {"deep": json.loads("[" * 900 + '"' + "v" * LONG + '"' + "]" * 900)},
    ],
    ids=["text", "texts", "number", "keys", "deep"],
)
def test_a_call_that_is_too_long_is_one_that_cannot_be_read(arguments: dict[str, Any]) -> None:
    short = ToolCall("call_0", "look", {"id": 1})
    text, calls, cut = bounded(
        "hello", (short, ToolCall("call_1", "write", arguments), short), MAX_SAID
    )
    assert (
        text == "hello"
        and calls[0] == short
        and len(calls) == 2
        and isinstance(calls[1], Malformed)
    )
    assert (
        calls[1].reason.startswith("too_large: more than 32768 characters of arguments in 2 calls")
        and cut > MAX_SAID
    )
    assert played(Action("hello", (ToolCall("call_1", "write", arguments),))).turns[
        0
    ].action.cut == size(ToolCall("call_1", "write", arguments))


def test_a_million_small_calls_are_too_many() -> None:
    calls = tuple(ToolCall("", "", {}) for _ in range(50_000))
    kept, cut = bounded("", calls, MAX_SAID)[1:]
    assert len(kept) <= MAX_SAID // 2 + 1 and cut > 0


def test_the_views_cut_alike() -> None:
    said = "x" * 100_000
    aec: Any = aec_env(Echo)
    aec.reset(seed=1)
    aec.step(said)
    assert aec.observe("b")["messages"][-1]["content"] == "x" * MAX_SAID
    side: Any = parallel_env(Echo)
    side.reset(seed=1)
    observations, *_ = side.step({"a": said})
    assert observations["b"]["messages"][-1]["content"] == "x" * MAX_SAID
    one: Any = gym_env(Echo, agent="a", others={"b": lambda messages, legal, rng: said})
    one.reset(seed=1)
    observation, *_ = one.step(said)
    assert observation["messages"][-1]["content"] == "x" * MAX_SAID
    limited: Any = aec_env(Echo, limits=Limits(max_said=30))
    limited.reset(seed=1)
    limited.step(said)
    assert limited.observe("b")["messages"][-1]["content"] == "x" * 30


@pytest.mark.parametrize("most", [None, MAX_SAID + 5])
def test_the_views_cut_no_sooner_than_the_limit_says(most: int | None) -> None:
    limits = Limits(max_said=most)
    said = "x" * (MAX_SAID + 9)
    aec: Any = aec_env(Echo, limits=limits)
    aec.reset(seed=1)
    aec.step(said)
    others = {"b": lambda messages, legal, rng: "y"}
    several = make_vec(Echo, 1, agent="a", others=others, limits=limits)
    several.reset()
    several.step({0: said})
    for game in (aec.game, several.game(0)):
        assert len(game.turns[0].action.text) == (most or len(said))


def test_a_fork_keeps_what_was_cut_and_goes_on_under_the_limit() -> None:
    game = Game(Echo())
    game.max_said = 50
    for agent in ("a", "b"):
        game.send({agent: "x" * 80})
    other = game.fork(1)
    assert other.turns == game.turns[:1] and other.turns[0].action.cut == 30
    other.send({"b": "y" * 80})
    assert other.turns[1].action == Action("y" * 50, cut=30)
    episode = played("x" * 80, Limits(max_said=50), model=True)
    plan = Plan(
        Echo(),
        dict.fromkeys(Echo.agents, Seat("direct", "main")),
        limits=Limits(max_said=50),
        branch=Branch(episode, 2, "s", 0),
    )
    again = asyncio.run(play(plan, {"main": Policy("main", Talker("x" * 80), Sampling())}))
    assert again.error is None and again.turns == episode.turns


def test_a_transcript_is_the_part_of_a_growing_list_that_it_was_made_of() -> None:
    messages = [Message("a"), Message("b")]
    seen = Transcript(messages)
    messages.append(Message("c"))
    assert (len(seen), seen[-1], seen[1:], list(seen)) == (
        2,
        Message("b"),
        (Message("b"),),
        messages[:2],
    )
    assert (
        seen == tuple(messages[:2])
        and tuple(messages[:2]) == seen
        and seen != tuple(messages)
        and hash(seen) == hash(tuple(messages[:2]))
    )
    with pytest.raises(IndexError):
        seen[2]
