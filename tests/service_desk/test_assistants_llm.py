"""Assistants over any engine: tools, text protocols and demonstrations; and people at the
terminal or from a record in either seat."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gem_ma.agents.labels import action

from gem_ma import (
    End,
    Episode,
    Limits,
    Malformed,
    Plan,
    Request,
    Scenario,
    Seat,
    ToolCall,
    make,
    play,
)
from gem_ma.driver.behaviour import as_factory
from gem_ma.engines.base import Policy, open_engine
from gem_ma.engines.small.human import Human
from gem_ma.engines.small.replay import Replay
from gem_ma.engines.small.scripted import Scripted
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.kernel.types import Sampling
from gem_ma.record.codec import dump_episode
from tests.fault_server import FaultServer, says
from tests.small_talk import LOOK, Model, SmallTalk, acts, bye, calls, clerk, guest, talk, texts

LOOKED = '<tool_call>{"name": "look_up", "arguments": {"word": "seat"}}</tool_call>'
ACTION = 'Action: {"name": "look_up", "arguments": {"word": "seat"}}'
SAY = 'Action: {"name": "respond", "arguments": {"content": "There is one."}}'
SEAT = ("look_up", {"word": "seat"})


# -- tools ---------------------------------------------------------------------------------------


def test_a_turn_is_the_first_call_alone_and_what_stood_beside_it_was_never_said() -> None:
    model = Model(f"I will look. {LOOKED}{LOOKED}", "There is one.")
    episode = clerk("tool_calling", model)
    assert [(action.text, len(action.tool_calls)) for action in acts(episode, "clerk")][:2] == [
        ("", 1),
        ("There is one.", 0),
    ]
    assert calls(episode, "clerk") == [SEAT] and texts(episode, "clerk")[1:] == [
        "There is one.",
        "There is one.",
    ]
    assert "I will look" not in model.last and model.requests[0].tools == (LOOK,)
    passed_on = clerk("direct", Model(f"I will look. {LOOKED}{LOOKED}", "There is one."))
    assert (
        acts(passed_on, "clerk")[0].text == "I will look."
        and len(acts(passed_on, "clerk")[0].tool_calls) == 2
    )


def test_a_malformed_call_is_passed_on_as_data_and_thinking_in_tags_is_not() -> None:
    model = Model(
        'Hm. <tool_call>{"name": 3}</tool_call>', f"<think>look_up? {LOOKED}</think>None is left."
    )
    episode = clerk("tool_calling", model)
    assert [str(call).split(":")[0] for call in calls(episode, "clerk")][:1] == ["missing_name"]
    assert acts(episode, "clerk")[0].text == ""
    thinking = clerk("tool_calling", Model("<think>none</think>None is left."))
    assert texts(thinking, "clerk")[0] == "None is left."


def test_instructions_stand_at_the_end_of_the_briefing() -> None:
    model = Model("Hello.")
    clerk("tool_calling", model, instructions="Be brief.")
    assert model.requests[0].messages[0].text == "You are a clerk.\n\nBe brief."


@pytest.mark.parametrize("behaviour", ["tool_calling", "act", "react"])
def test_every_assistant_plays_a_game_of_legal_choices_too(behaviour: str) -> None:
    kuhn = make("kuhn_poker")

    def bets(request: Request) -> str:
        choice = request.legal[-1] if request.legal else ""
        return choice if behaviour == "tool_calling" else f"Thought: hm\nAction: {choice}"

    episode = talk(
        dict.fromkeys(kuhn.agents, Seat(behaviour, "main")), {"main": bets}, scenario=kuhn
    )
    assert episode.end is End.TERMINATED and all(
        turn.action.parsed == (turn.legal or ("",))[-1] for turn in episode.turns
    )


# -- text ----------------------------------------------------------------------------------------


def test_actions_in_text_become_calls_and_messages() -> None:
    model = Model(f"Thought: I look it up.\n{ACTION}", f"Thought: I tell.\n{SAY}", SAY)
    episode = clerk("react", model)
    assert calls(episode, "clerk") == [SEAT] and texts(episode, "clerk") == [
        "",
        "There is one.",
        "There is one.",
    ]
    assert all(request.tools == () for request in model.requests)
    briefing = model.requests[0].messages[0].text
    assert (
        json.dumps(LOOK.schema["function"]) in briefing
        and briefing.startswith("You are a clerk.")
        and "Thought:" in briefing
    )
    shown = [(message.sender, message.text) for message in model.requests[1].messages[1:]]
    assert shown == [
        ("guest", "I want a seat."),
        ("clerk", f"Thought: I look it up.\n{ACTION}"),
        ("scenario", "Observation: look_up seat: found"),
    ]
    assert "Thought" not in "\n".join(message.text for message in episode.transcript("guest"))
    # prompts grow by appending
    assert (
        model.requests[2].messages[: len(model.requests[1].messages)] == model.requests[1].messages
    )


def test_the_act_protocol_wants_no_thought() -> None:
    model = Model(ACTION, SAY)
    assert (
        calls(clerk("act", model), "clerk") == [SEAT]
        and "Thought" not in model.requests[0].messages[0].text
    )


def test_what_a_model_invents_behind_its_action_is_cut_off() -> None:
    model = Model(f"Thought: a\n{ACTION}\nObservation: five seats\nThought: b\n{SAY}", SAY)
    episode = clerk("react", model)
    assert calls(episode, "clerk") == [SEAT] and "five seats" not in model.last
    assert model.requests[1].messages[2].text == f"Thought: a\n{ACTION}"


def test_an_unreadable_action_is_asked_for_again_twice_and_then_malformed() -> None:
    model = Model(
        "Let me see.",
        'Action: {"name": "look_up", arguments: {}}',
        SAY,
        "one",
        "two",
        'Action: {"name": "respond", "arguments": {}}',
        SAY,
    )
    episode = clerk("react", model)
    assert [len(turn.replies) for turn in episode.turns if turn.agent == "clerk"] == [3, 3, 1]
    assert texts(episode, "clerk") == ["There is one.", "", "There is one."]
    assert str(calls(episode, "clerk")[0]).startswith("bad_arguments: respond takes content")
    assert (
        "bad_json" in model.requests[1].messages[-1].text
        and "Let me see." not in model.requests[3].messages[2].text
    )
    only = clerk("act", Model("Hello!"))
    assert str(calls(only, "clerk")[0]) == "bad_json: there is no line `Action: {...}`"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('Action: {"name": "a", "arguments": {}}', "a"),
        ('**Action:** {"name": "a", "arguments": {"x": "}"}}', "a"),
        ('Action:\n```json\n{"name": "a", "arguments": {}}\n```', "a"),
        ('Action: <tool_call>{"name": "a", "arguments": {}}</tool_call>', "a"),
        ('{"name": "a", "arguments": {}}', "a"),
        (
            (
                'Action: soon\nAction: {"name": "a", "arguments": {}}\nAction: {"name": "b",'
                ' "arguments": {}}'
            ),
            "a",
        ),
        ("Action: run away", "bad_json"),
        ('Action: {"name": "a", "arguments": [1]}', "bad_arguments"),
        ('Action: {"name": "a", "name": "b", "arguments": {}}', "bad_json"),
        ("Reactions: none", None),
        ("", None),
    ],
)
def test_the_first_readable_action_counts(text: str, name: str | None) -> None:
    call, kept = action(text)
    found = (
        None
        if call is None
        else call.name
        if isinstance(call, ToolCall)
        else call.reason.split(":")[0]
    )
    assert found == name and text.startswith(kept)


def test_a_huge_or_deep_action_is_data() -> None:
    for text in (
        "Action: " + "[" * 100_000,
        'Action: {"name": "a", "arguments": ' + '{"a":' * 5000,
        "Action: {" * 3000,
        "Action:" + "\n" * 100_000,
    ):
        call, _ = action(text)
        assert isinstance(call, Malformed)


# -- demonstrations ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with an unpaid episode, two paid ones, another one of the same task, and one
    of the test split."""
    folder = tmp_path_factory.mktemp("shown")
    seats = {"guest": Seat("direct", "guest"), "clerk": Seat("direct", "clerk")}

    def one(word: str, task: str, leaves: bool = True, seed: int = 0) -> Episode:
        looked = f'<tool_call>{{"name": "look_up", "arguments": {{"word": "{word}"}}}}</tool_call>'
        models = {
            "guest": Model(f"A {word}, please.", bye() if leaves else "More."),
            "clerk": Model(looked, f"Here is a {word}."),
        }
        return talk(seats, models, scenario=Tasks(), task=task, seed=seed)

    episodes = [
        one("lamp", "train/2", leaves=False),
        one("chair", "train/0"),
        one("vase", "test/0"),
        one("stool", "train/0", seed=1),
        one("spoon", "train/1"),
    ]
    (folder / "episodes.jsonl").write_text(
        "".join(dump_episode(episode) + "\n" for episode in episodes), encoding="utf-8"
    )
    return folder


class Tasks(SmallTalk):
    """Small talk with a few tasks."""

    def tasks(self, split: str) -> Any:
        return range(3)


def test_demonstrations_are_shown_as_conversations(shown: Path) -> None:
    model = Model("Hello.")
    clerk("few_shot", model, demonstrations=str(shown / "episodes.jsonl"), shots=1, split="test")
    assert (
        model.requests[0]
        .messages[0]
        .text.endswith(
            "Example 1:\n"
            "guest: A vase, please.\n"
            'clerk calls {"name": "look_up", "arguments": {"word": "vase"}}\n'
            "tool: look_up vase: found\n"
            "clerk: Here is a vase."
        )
    )


def test_only_paid_episodes_of_the_split_are_shown_one_per_task(shown: Path) -> None:
    model = Model("Hello.")
    clerk("few_shot", model, demonstrations=str(shown), shots=2)
    briefing = model.requests[0].messages[0].text
    assert [word in briefing for word in ("chair", "spoon", "lamp", "vase", "stool")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    for options, what in (
        ({"shots": 3}, r"2 of 3 demonstrations of split 'train'.*it holds episodes of test, train"),
        ({"split": "dev"}, "0 of 2"),
    ):
        with pytest.raises(ConfigError, match=what):
            clerk("few_shot", model, **({"demonstrations": str(shown)} | options))


@pytest.mark.parametrize(("protocol", "says"), [("tools", "Hi."), ("act", SAY), ("react", SAY)])
def test_after_the_demonstrations_any_protocol_goes_on(
    shown: Path, protocol: str, says: str
) -> None:
    model = Model(says)
    episode = clerk("few_shot", model, demonstrations=str(shown), shots=1, protocol=protocol)
    assert texts(episode, "clerk")[0] == ("Hi." if protocol == "tools" else "There is one.")
    assert ("You act by text" in model.requests[0].messages[0].text) == (protocol != "tools")


def test_a_missing_file_of_demonstrations_ends_the_run_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"agent 'clerk': demonstrations: .*nowhere"):
        clerk("few_shot", Model(""), demonstrations=str(tmp_path / "nowhere"))
    for options, what in (
        ({"shots": -1}, "shots is a whole number"),
        ({"protocol": "xml"}, "protocol is one of tools, act, react"),
    ):
        with pytest.raises(ConfigError, match=what):
            as_factory("few_shot")("clerk", None, random.Random(0), demonstrations="x", **options)


# -- engines -------------------------------------------------------------------------------------

EVERY = [
    ("user_llm", "tool_calling", {}),
    ("user_react", "react", {}),
    ("user_verify", "act", {"drafts": 2}),
    ("user_reflection", "tool_calling", {"drafts": 2}),
    ("user_llm", "react", {"stop": "word", "gate": "audit", "drafts": 2}),
]


@pytest.mark.long
@pytest.mark.parametrize(("user", "assistant", "options"), EVERY[2::2])
def test_all_play_over_a_local_model(
    byte_model: Path, user: str, assistant: str, options: dict[str, Any]
) -> None:
    policy = Policy(
        "main", open_engine("main", f"transformers/{byte_model}"), Sampling(max_tokens=8)
    )
    seats = {
        "guest": Seat(user, "main", {"end_tool": "leave"} | options),
        "clerk": Seat(assistant, "main"),
    }
    episode = asyncio.run(
        play(Plan(SmallTalk(turns=2), seats, limits=Limits(max_steps=4)), {"main": policy})
    )
    assert episode.error is None and episode.end in (End.MAX_STEPS, End.TERMINATED)
    assert all(
        reply.token_ids and len(reply.token_ids) == len(reply.logprobs)
        for turn in episode.turns
        for reply in turn.replies
    )
    assert all(turn.replies for turn in episode.turns)


@pytest.mark.long
def test_a_users_own_words_are_never_encoded_again(byte_model: Path) -> None:
    policy = Policy(
        "main", open_engine("main", f"transformers/{byte_model}"), Sampling(max_tokens=8)
    )
    policies = {"main": policy, "clerk": Policy("clerk", Scripted.of(Model("Certainly.")))}
    seats, grown = (
        {
            "guest": Seat("user_llm", "main", {"end_tool": "leave"}),
            "clerk": Seat("direct", "clerk"),
        },
        0,
    )
    for seed in range(3):
        episode = asyncio.run(play(Plan(SmallTalk(turns=3), seats, seed=seed), policies))
        mine = [turn for turn in episode.turns if turn.agent == "guest"]
        for before, after in itertools.pairwise(mine):
            if len(before.replies) == len(after.replies) == 1 and not before.action.tool_calls:
                ids = before.replies[0].prompt_ids + before.replies[0].token_ids
                grown += 1
                assert after.replies[0].prompt_ids[: len(ids)] == ids
    assert grown


def test_all_play_over_http() -> None:
    def answer(asked: Any) -> Any:
        body = asked.body
        names = [tool["function"]["name"] for tool in body.get("tools", ())]
        turns = sum(message["role"] == "assistant" for message in body["messages"])
        system = body["messages"][0]["content"]
        if "You check a draft" in system:
            return says("Reason: fine\nVerdict: true")
        if "You act by text" in system:
            return says(SAY)
        if "leave" in names and turns:
            return says(
                "Thank you.", calls=[("c1", "leave", '{"why": "settled"}')], finish="tool_calls"
            )
        if "look_up" in names and not turns:
            return says(
                "I look.", calls=[("c1", "look_up", '{"word": "seat"}')], finish="tool_calls"
            )
        return says(
            "Thought: x\nResponse: A seat, please."
            if "two labelled parts" in system
            else "A seat, please."
        )

    with FaultServer(answer) as server:
        for user, assistant, options in EVERY[:4]:
            policy = Policy("main", open_engine("main", "openai/some-model", base_url=server.url))
            seats = {
                "guest": Seat(user, "main", {"end_tool": "leave"} | options),
                "clerk": Seat(assistant, "main"),
            }
            episode = asyncio.run(play(Plan(SmallTalk(), seats), {"main": policy}))
            assert episode.error is None and calls(episode, "guest") == [
                ("leave", {"why": "settled"})
            ]
            assert texts(episode, "guest")[0] == "A seat, please."
            assert all(
                reply.usage.completion_tokens == 3
                for turn in episode.turns
                for reply in turn.replies
            )


# -- people and records --------------------------------------------------------------------------


def typed(lines: str) -> tuple[Policy, io.StringIO]:
    output = io.StringIO()
    return (
        Policy("me", Human("me", policy="me", force=True, input=io.StringIO(lines), output=output)),
        output,
    )


def desk(
    seats: Mapping[str, Seat],
    policies: Mapping[str, Policy],
    scenario: Scenario | None = None,
    index: int = 0,
) -> Episode:
    return asyncio.run(
        play(
            Plan(scenario or make("retail", data="own"), dict(seats), f"test/{index}", 1), policies
        )
    )


@pytest.fixture(scope="module")
def recorded() -> list[Episode]:
    """Talks of the scripted customer with the scripted assistant."""
    seats = {"assistant": Seat("retail_scripted"), "user": Seat("retail_user")}
    episodes = [desk(seats, {}, index=index) for index in range(3)]
    assert all(turn.replies == () for episode in episodes for turn in episode.turns)
    return episodes


def line(act: Any) -> str:
    """An action as a person types it."""
    if not act.tool_calls:
        return act.text.replace("\n", " ") + "\n"
    call = act.tool_calls[0]
    plain = all(isinstance(value, str) and "'" not in value for value in call.arguments.values())
    if plain:
        return (
            " ".join(
                [f"/{call.name}", *(f"'{key}={value}'" for key, value in call.arguments.items())]
            )
            + "\n"
        )
    return json.dumps({"name": call.name, "arguments": call.arguments}) + "\n"


@pytest.mark.parametrize("side", ["assistant", "user"])
def test_a_person_may_take_either_side_of_the_service_desk(
    recorded: list[Episode], side: str
) -> None:
    for index, before in enumerate(recorded[:2]):
        me, output = typed("".join(line(act) for act in acts(before, side)))
        seats = {
            agent: Seat("direct", "me") if agent == side else seat
            for agent, seat in before.cast.items()
        }
        after = desk(seats, {"me": me}, index=index)
        assert after.error is None and after.returns() == before.returns()
        assert calls(after, side) == calls(before, side)
        shown = output.getvalue()
        assert ("/end_conversation reason=settled|refused" in shown) == (side == "user")
        assert ("/cancel_pending_order order_id=... reason=" in shown) == (side == "assistant")
        # shown once, not before every line
        assert shown.count("  tool end_conversation:") == (side == "user")


def test_a_recorded_user_is_replayed_against_another_assistant(recorded: list[Episode]) -> None:
    engine = Policy("then", Replay.of(recorded, policy="then"))
    seats = {"assistant": Seat("retail_scripted"), "user": Seat("direct", "then")}
    for index, before in enumerate(recorded):
        again = desk(seats, {"then": engine}, index=index)
        assert [turn.action for turn in again.turns] == [
            turn.action for turn in before.turns
        ] and again.returns() == before.returns()
        other = desk({**seats, "assistant": Seat("retail_nothing")}, {"then": engine}, index=index)
        assert texts(other, "user") == texts(before, "user") and calls(other, "user") == calls(
            before, "user"
        )
        shorter = replace(before, turns=before.turns[:-1])
        longer = desk(
            {**seats, "assistant": Seat("retail_nothing")},
            {"then": Policy("then", Replay.of([shorter], policy="then"))},
            index=index,
        )
        assert longer.end is End.FAILED and "the record holds no reply" in (longer.error or "")


@pytest.mark.parametrize("behaviour", ["user_verify", "user_react"])
def test_what_a_played_user_sent_is_replayed_and_not_what_it_thought(behaviour: str) -> None:
    lines = (
        "Thought: a\nResponse: A seat.",
        "no",
        "Thought: b\nResponse: Thanks.",
        "Thought: c\n" + bye(),
    )
    before = guest(behaviour, Model(*lines), judge=Model("true"))
    again = Policy("guest", Replay.of([before], policy="guest", actions=True))
    models = {"guest": again, "clerk": Policy("clerk", Scripted.of(Model("Certainly.")))}
    after = asyncio.run(
        play(Plan(SmallTalk(), {agent: Seat("direct", agent) for agent in models}), models)
    )
    assert [turn.action for turn in after.turns] == [turn.action for turn in before.turns]
