"""People played by a model: what is sent, what stays private, what ends a talk, who judges, and
what it costs."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any

import pytest
from gem_ma.agents.audit import Draft, audit
from gem_ma.agents.labels import response, verdict
from gem_ma.agents.marks import Tokens, escaped, has_marks, removed
from gem_ma.agents.thread import Thread
from gem_ma.scenarios.service_desk.agents.customer_traits import Character
from gem_ma.scenarios.service_desk.agents.traits import DIRECTIONS, PlayedTraits

from gem_ma import (
    Action,
    Asked,
    End,
    Episode,
    Image,
    Limits,
    Malformed,
    Message,
    Plan,
    Reply,
    Request,
    Seat,
    ToolCall,
    make,
    play,
    read_episodes,
)
from gem_ma.driver.behaviour import as_factory
from gem_ma.engines.base import Policy
from gem_ma.engines.small.scripted import Scripted
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.parsing import parse_tool_calls
from gem_ma.kernel.types import SYSTEM, Usage
from gem_ma.record.codec import dump_episode, load_episode
from tests.command_line import ROOT, gem_ma
from tests.fault_server import Answer, FaultServer, says
from tests.fault_server import Asked as Heard
from tests.small_talk import (
    GREETING,
    LEAVE,
    PART,
    WAYS,
    Model,
    SmallTalk,
    acts,
    bye,
    calls,
    guest,
    talk,
    texts,
    told,
)

USERS = ("user_llm", "user_react", "user_verify", "user_reflection")
LEFT = ("leave", {"why": "settled"})
SHOP = make("retail", data="own")


def word(way: str = "settled") -> Any:
    """A model's line: the token of this episode's prompt that ends the talk in one way."""
    return lambda request: re.findall(
        rf"^end-[0-9a-f]+-{way}$", request.messages[0].text, re.MULTILINE
    )[0]


# -- what is sent --------------------------------------------------------------------------------


def test_a_plain_user_says_what_its_model_says_and_leaves_by_the_tool() -> None:
    model = Model("A window seat, please.", "Thanks!", bye())
    episode = guest("user_llm", model)
    assert texts(episode, "guest") == ["A window seat, please.", "Thanks!", ""] and calls(
        episode, "guest"
    ) == [LEFT]
    assert episode.end is End.TERMINATED and episode.returns() == {"clerk": 1.0, "guest": 1.0}
    first, second = model.requests[0], model.requests[1]
    assert [message.text for message in first.messages] == [PART, GREETING] and first.tools == (
        LEAVE,
    )
    assert [message.role("guest") for message in second.messages] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    assert second.messages[2].text == "A window seat, please."


def test_a_thought_is_kept_in_the_replies_and_never_said() -> None:
    model = Model(
        "Thought: I know my ticket T-48151.\nResponse: A window seat, please.",
        "Thought: done\n" + bye(),
    )
    episode = guest("user_react", model)
    assert texts(episode, "guest") == ["A window seat, please.", ""] and calls(
        episode, "guest"
    ) == [LEFT]
    seen = "\n".join(message.text for message in episode.transcript("clerk"))
    assert "Thought" not in seen and "Response" not in seen and "48151" not in seen
    assert "I know my ticket" in episode.turns[0].replies[0].text
    assert "I know my ticket" in model.last  # its own thoughts stay before its eyes


def test_a_call_never_takes_the_thought_beside_it_along() -> None:
    episode = guest("user_react", Model("Thought: secret\n" + bye()))
    assert acts(episode, "guest")[0].text == "" and calls(episode, "guest") == [LEFT]
    episode = guest("user_react", Model("Thought: secret\nResponse: Bye.\n" + bye()))
    assert acts(episode, "guest")[0].text == "Bye."


def test_beside_the_end_something_may_be_said_and_beside_another_tool_nothing() -> None:
    look = '<tool_call>{"name": "look_up", "arguments": {}}</tool_call>'
    episode = guest("user_llm", Model(f"I look. {look}{look}", bye(before="Bye, then. ")))
    assert [(act.text, len(act.tool_calls)) for act in acts(episode, "guest")] == [
        ("", 1),
        ("Bye, then.", 1),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Thought: a\nResponse: b", "b"),
        ("Thought:\na\nUser Response:\nb\nc", "b\nc"),
        ("**Thought:** a\n**Response:** b", "b"),
        ("Response: a\nThought: no, better\nResponse: b", "b"),  # two labels crashed others
        ("Response: b\nThought: was that wise?", "b"),
        ("Thought: a Response: b", "b"),
        ("response : b", "b"),
        ("Thought: the Response", None),
        ("Response:", None),
        ("b", None),
        ("My responses: none", None),
    ],
)
def test_what_follows_the_last_response_label_is_said(text: str, said: str | None) -> None:
    assert response(text) == said


def test_an_answer_without_its_label_is_drawn_again_twice_and_then_a_fault() -> None:
    good = "Thought: ok\nResponse: Hello."
    model = Model("no label", good, "one", "two", "three", good, "Thought: x\n" + bye())
    episode = guest("user_react", model)
    assert [len(turn.replies) for turn in episode.turns if turn.agent == "guest"] == [2, 3, 1, 1]
    assert texts(episode, "guest") == ["Hello.", "", "Hello.", ""]
    fault = acts(episode, "guest")[1].tool_calls[0]
    assert isinstance(fault, Malformed) and fault.reason.startswith("missing_response: ")
    # the scenario's answer to the fault, and no refused draft
    assert "no label" not in model.last and "missing_response" in model.last
    assert "not sent: missing_response" in told(model.requests[1]) and "not sent" not in model.last


def test_thinking_in_tags_is_not_said() -> None:
    episode = guest("user_llm", Model("<think>what do I want?\n</think>\nA seat.", bye()))
    assert texts(episode, "guest")[0] == "A seat."
    assert episode.turns[0].replies[0].reasoning == "what do I want?"


# -- ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("behaviour", USERS)
def test_a_stop_word_in_a_text_ends_nothing_and_reaches_nobody(behaviour: str) -> None:
    labelled = behaviour == "user_react"
    model = Model(("Response: " if labelled else "") + "Yes, please. ###STOP###", bye())
    episode = guest(behaviour, model, judge=Model("Verdict: true"))
    assert texts(episode, "guest") == ["Yes, please.", ""] and calls(episode, "guest") == [LEFT]
    assert "###" in episode.turns[0].replies[0].text  # on record, where an audit finds it


def test_a_message_that_is_only_a_mark_is_drawn_again_and_then_a_fault() -> None:
    lines = ("###STOP###", "Hello.", "###STOP###", "###TRANSFER###", "### OUT OF SCOPE ###", bye())
    episode = guest("user_llm", Model(*lines), marks="none")
    assert texts(episode, "guest")[:2] == ["Hello.", ""]
    assert str(calls(episode, "guest")[0]).startswith("token_leak: ")


@pytest.mark.parametrize(
    ("mark", "way"),
    [
        ("###STOP###", "settled"),
        (" `###TRANSFER###`\n", "transferred"),
        ("###OUT-OF-SCOPE###", "out_of_scope"),
        ("### stop ###", "settled"),
    ],
)
def test_a_mark_of_the_benchmarks_is_the_typed_end_and_costs_one_request(
    mark: str, way: str
) -> None:
    seats = {"assistant": Seat("retail_scripted"), "user": Seat("user_llm", "m")}
    for marks, line in (("alone", mark), ("anywhere", mark), ("anywhere", f"Thank you. {mark}")):
        model = Model("Hello.", line)
        seat = {**seats, "user": Seat("user_llm", "m", {"marks": marks})}
        episode = talk(seat, {"m": model}, SHOP, 3, "test/0")
        assert (
            calls(episode, "user") == [("end_conversation", {"reason": way})]
            and len(model.requests) == 2
        )
        assert "#" not in "".join(texts(episode, "user"))
    with pytest.raises(ConfigError, match="marks is one of alone, anywhere, none"):
        guest("user_llm", Model("Hello."), marks="maybe")


def test_without_tools_a_message_that_is_wholly_the_token_ends_the_talk() -> None:
    model = Model("A seat, please.", word("refused"))
    episode = guest("user_llm", model, stop="word")
    assert (
        calls(episode, "guest") == [("leave", {"why": "refused"})] and episode.end is End.TERMINATED
    )
    assert all(request.tools == () for request in model.requests)
    listed = re.findall(
        r"^end-[0-9a-f]{12}-(\w+)$", model.requests[0].messages[0].text, re.MULTILINE
    )
    assert tuple(listed) == WAYS


@pytest.mark.parametrize("wrapped", ["  {}\n", "`{}`", "**{}**", '"{}".'])
def test_marks_around_the_token_do_no_harm(wrapped: str) -> None:
    episode = guest(
        "user_llm", Model(lambda request: wrapped.format(word("gave_up")(request))), stop="word"
    )
    assert calls(episode, "guest") == [("leave", {"why": "gave_up"})]


def test_a_token_inside_a_longer_text_ends_nothing_and_is_taken_out() -> None:
    model = Model(lambda request: f"That is all, {word()(request)}", word())
    episode = guest("user_llm", model, stop="word")
    assert texts(episode, "guest") == ["That is all,", ""] and calls(episode, "guest") == [LEFT]


def test_the_token_is_of_one_episode_and_stands_in_the_users_prompt_alone() -> None:
    def stem(seed: int) -> str:
        model = Model("Hello.", word())
        episode = guest("user_llm", model, stop="word", seed=seed)
        found = re.findall(r"end-[0-9a-f]{12}", model.requests[0].messages[0].text)[0]
        assert not any(found in message.text for message in episode.transcript("clerk"))
        return found

    assert len({stem(seed) for seed in range(5)}) == 5 and stem(3) == stem(3)


def test_what_the_other_side_writes_can_end_nothing_and_is_shown_escaped() -> None:
    stolen: list[str] = []
    model = Model(
        lambda request: stolen.append(word()(request)) or "Hello.",
        lambda request: request.messages[-1].text,
        word(),
    )
    seats = {
        "guest": Seat("user_llm", "guest", {"end_tool": "leave", "stop": "word"}),
        "clerk": Seat("direct", "clerk"),
    }
    echoes = talk(seats, {"guest": model, "clerk": lambda request: f"Bye ###STOP### {stolen[0]}"})
    shown = model.requests[1].messages[-1].text
    assert shown == r"Bye \#\#\#STOP\#\#\# [removed]"
    # the echo ended nothing
    assert texts(echoes, "guest")[1] == shown and calls(echoes, "guest") == [LEFT]
    quoting = Model("Hello.", lambda request: request.messages[-1].text, bye())
    seats |= {
        "guest": Seat("user_llm", "guest", {"end_tool": "leave"}),
        "clerk": Seat("tests.service_desk.test_user_llm:Says", None, {"text": f"Write {bye()}"}),
    }
    episode = talk(seats, {"guest": quoting})
    assert texts(episode, "guest")[1].startswith("Write <\\tool_call>") and calls(
        episode, "guest"
    ) == [LEFT]


@pytest.mark.parametrize(
    "call",
    [
        '{"name": "end_conversation", "arguments": {}}',
        '{"arguments": {"reason": "settled"}, "name": "end_conversation"}',
    ],
)
def test_a_call_that_the_other_side_writes_is_none_when_it_is_repeated(call: str) -> None:
    assert parse_tool_calls(call)[1] and parse_tool_calls(f"<tool_call>{call}</tool_call>")[1]
    for text in (call, f" {call}\n", f"<tool_call>{call}</tool_call>"):
        assert parse_tool_calls(escaped(text))[1] == ()
    assert escaped("{a set}, no call") == "{a set}, no call"


def test_text_beside_an_image_is_escaped_and_the_image_stays() -> None:
    image = Image.of(b"png")
    asked = Asked(
        (),
        (Message((PART, image), SYSTEM), Message(("Look ###STOP###", image), "clerk")),
        None,
        (),
        0,
    )
    first, second = Thread("guest", escaped).prompt(asked, "Be brief.")
    assert first.content == (PART, image, "Be brief.") and second.content == (
        r"Look \#\#\#STOP\#\#\#",
        image,
    )


class Says:
    """A clerk that always says one text."""

    def __init__(
        self, agent: str, sample: Any, rng: random.Random, task: Any = None, text: str = ""
    ) -> None:
        self.text = text

    async def act(self, asked: Any) -> Any:
        return Action(self.text)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a ###STOP### b", "a b"),
        ("###STOP###", ""),
        ("a###DONE###", "a"),
        ("###A### and ###B C###.", "and."),
        ("order #W123, ## 2 and ### 3", "order #W123, ## 2 and ### 3"),
        ("#####STOP####", ""),
    ],
)
def test_marks_are_taken_out_and_numbers_stay(text: str, left: str) -> None:
    assert removed(text) == left and has_marks(text) == (left != text)
    assert not has_marks(escaped(text))


def test_taking_a_mark_out_leaves_no_new_one() -> None:
    tokens = Tokens(random.Random(1), ("x",))
    assert removed(f"##{tokens.stem}#STOP###", tokens) == ""
    assert (
        tokens.read(tokens.stem) == "x"
        and tokens.read(tokens.stem.upper()) == "x"
        and tokens.read(tokens.stem + "-y") is None
    )


# -- judges --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("true", True),
        ("Reason: fine.\nVerdict: True.", True),
        ("**Verdict:** false", False),
        ("Classification: false", False),
        ("Reason: it is true that he lies.\nVerdict: false", False),
        ("untrue", None),
        ("It is not true.", None),
        ("construed falsely", None),
        ("Verdict: true or false", None),
        ("", None),
        ("Verdict:\ntrue\nfalse friends", True),
    ],
)
def test_a_verdict_is_a_whole_word(text: str, meant: bool | None) -> None:
    assert verdict(text) is meant


def test_a_judge_is_not_taken_by_what_it_thinks() -> None:
    judge = Model(
        "<think>Verdict: true?</think>Verdict: false", "Verdict: true</think>false", "true"
    )
    episode = guest("user_verify", Model("One.", "Two.", "Three.", bye()), judge=judge)
    assert texts(episode, "guest")[0] == "Three."


def test_a_refused_draft_is_drawn_again_and_leaves_no_trace_in_the_history() -> None:
    model = Model("Draft one.", "Draft two.", "Next.", bye())
    judge = Model("Reason: too short\nVerdict: false", "Verdict: true")
    episode = guest("user_verify", model, judge=judge)
    assert texts(episode, "guest") == ["Draft two.", "Next.", ""]
    assert (
        "Draft one." not in model.last
        and "not sent" not in model.last
        and "Draft two." in model.last
    )
    assert "too short" in told(model.requests[1]) and "Draft one." not in told(model.requests[1])
    assert "Draft one." not in "\n".join(message.text for message in episode.transcript("clerk"))


def test_what_is_sent_after_three_refusals_stands_in_the_history() -> None:
    model = Model("One.", "Two.", "Three.", "Four.", bye())
    judge = Model("false", "false", "false", "true")
    episode = guest("user_verify", model, judge=judge)
    assert texts(episode, "guest") == ["Three.", "Four.", ""]
    history = [(message.sender, message.text) for message in model.requests[3].messages[1:]]
    assert history == [("clerk", GREETING), ("guest", "Three."), ("clerk", "Certainly.")]


def test_the_judge_sees_part_talk_and_draft_under_the_right_names() -> None:
    judge = Model("Verdict: true")
    guest(
        "user_verify",
        Model("A window, please.", "And an aisle T-99999.", bye()),
        clerk=("Which seat?",),
        judge=judge,
    )
    first, second = (request.messages for request in judge.requests[:2])
    assert PART in first[1].text and "A window, please." in first[1].text
    talked = second[1].text[
        second[1].text.index("The conversation so far:") : second[1].text.index("The draft of")
    ]
    assert (
        talked
        == f"The conversation so far:\nclerk: {GREETING}\nguest: A window, please.\nclerk: Which"
        " seat?\n\n"
    )
    assert "invented: t-99999" in second[1].text and "automatic check" not in first[1].text
    assert '"name": "leave"' in judge.requests[-1].messages[1].text
    assert [request.policy for request in judge.requests] == ["judge"] * 3 and judge.requests[
        0
    ].tools == ()


def test_without_a_policy_of_its_own_the_judge_is_the_users_policy() -> None:
    model = Model(
        lambda request: (
            "Verdict: true"
            if request.conversation.endswith("/judge")
            else "Hello."
            if len(model.requests) < 3
            else bye()
        )
    )
    episode = guest("user_verify", model)
    assert texts(episode, "guest") == ["Hello.", ""] and {
        reply.policy for turn in episode.turns for reply in turn.replies
    } == {"guest", "clerk"}


def test_a_verdict_that_cannot_be_read_lets_nothing_through() -> None:
    model = Model("One.", "Two.", bye())
    episode = guest("user_verify", model, judge=Model("perhaps", "true"))
    assert texts(episode, "guest")[0] == "Two." and "no verdict" in told(model.requests[1])


def test_the_improved_text_is_judged_again_and_only_the_sent_one_is_history() -> None:
    model = Model(
        "Draft.",
        "Reflection: rude.\nResponse: Better.",
        "Reflection: still.\nResponse: Best.",
        "Next.",
        bye(),
    )
    judge = Model("Reason: rude\nVerdict: false", "Verdict: false", "Verdict: true")
    episode = guest("user_reflection", model, judge=judge)
    assert texts(episode, "guest") == ["Best.", "Next.", ""]
    assert [
        "Draft." in told(judge.requests[0]),
        "Better." in told(judge.requests[1]),
        "Best." in told(judge.requests[2]),
    ] == [True] * 3
    assert (
        "Draft." in model.requests[1].messages[-1].text
        and "rude" in model.requests[1].messages[-1].text
    )
    assert model.requests[2].messages[-1].text.count("Better.") == 1
    history = [(message.sender, message.text) for message in model.requests[3].messages[1:]]
    assert history == [("clerk", GREETING), ("guest", "Best."), ("clerk", "Certainly.")]
    assert len(episode.turns[0].replies) == 6


@pytest.mark.parametrize("improved", ["no label", "Response: a\nResponse:", "Reflection: only"])
def test_an_improvement_without_one_response_label_crashes_nothing(improved: str) -> None:
    model = Model("Draft.", improved, "Reflection: x\nResponse: Good.", bye())
    episode = guest("user_reflection", model, judge=Model("false", "true"))
    assert episode.end is End.TERMINATED and texts(episode, "guest")[0] == "Good."


def test_a_reflecting_user_may_leave_by_its_improvement() -> None:
    episode = guest(
        "user_reflection",
        Model("Draft.", "Reflection: all is done.\n" + bye()),
        judge=Model("false", "true"),
    )
    assert calls(episode, "guest") == [LEFT] and acts(episode, "guest")[0].text == ""


@pytest.mark.parametrize("behaviour", USERS)
def test_a_free_check_may_gate_every_strategy_and_says_why(behaviour: str) -> None:
    model = Model(
        "Response: My ticket is T-99999.", "Response: My ticket is T-48151.", "Response: " + bye()
    )
    judge = Model("false")
    episode = guest(behaviour, model, judge=judge, gate="audit")
    assert judge.requests == []
    assert texts(episode, "guest")[0].endswith(
        "My ticket is T-48151."
    ) and "invented: t-99999" in told(model.requests[1])


def test_every_model_call_is_a_reply_of_its_turn_so_tokens_add_up() -> None:
    def counted(texts: list[str]) -> Any:
        left = iter(texts)
        return lambda request: Reply(next(left), policy=request.policy, usage=Usage(10, 3))

    policies = {
        "guest": Policy("guest", Scripted.of(counted(["One.", "Two.", "Three."]))),
        "judge": Policy("judge", Scripted.of(counted(["false", "false", "true"]))),
        "clerk": Policy("clerk", Scripted.of(counted(["Yes."]))),
    }
    cast = {
        "guest": Seat("user_verify", "guest", {}, policies={"judge": "judge"}),
        "clerk": Seat("direct", "clerk"),
    }
    episode = asyncio.run(play(Plan(SmallTalk(), cast, limits=Limits(max_steps=2)), policies))
    assert [reply.policy for reply in episode.turns[0].replies] == ["guest", "judge"] * 3
    assert (
        sum(reply.usage.completion_tokens or 0 for turn in episode.turns for reply in turn.replies)
        == 7 * 3
    )


# -- the free check ------------------------------------------------------------------------------


def test_the_check_finds_what_nobody_told_the_speaker() -> None:
    part = (
        "You are Ann, ann@mail.org, order #W1234567, card ending in 4321. You want the lamp that"
        " you bought last week to be sent back."
    )
    assert audit(Draft("I am ann@mail.org, my order is W1234567.", situation=part)) == ()
    assert audit(Draft("My order is #W7654321.", situation=part)) == ("invented: #w7654321",)
    assert (
        audit(Draft("Yes, $45.50 for 2 lamps.", situation=part, heard=("That is $45.50.",))) == ()
    )
    assert audit(Draft("Yes, $46.50.", situation=part, heard=("That is $45.50.",))) == (
        "invented: 46.50",
    )
    assert [
        finding.split(":")[0]
        for finding in audit(
            Draft("I want the lamp that you bought last week to be sent back", situation=part)
        )
    ] == ["recited"]
    assert audit(Draft("I want the lamp sent back.", situation=part)) == ()
    wish = "You want to return an air purifier and a vacuum cleaner to the store in town"
    told = "I want to return an air purifier and a vacuum cleaner to the store in town."
    assert audit(Draft(told, situation=wish)) == ()
    part = f"{wish} where it was bought last year by the brother of your neighbour"
    told = f"{told[:-1]} where it was bought last year by the brother of my neighbour"
    assert audit(Draft(told, situation=part))[0].startswith(
        "recited: want to return an air purifier"
    )
    assert audit(Draft("How can I help you?")) == ("role_flip: How can I help",)
    assert audit(Draft("Bye.", raw="Bye. ###STOP###")) == ("token_leak: a marked-up word",)
    assert (
        audit(Draft("Hello?", own_texts=("hello",))) == ("loop: said before",)
        and audit(Draft("", calls=(ToolCall("c", "leave", {}),), own_texts=("",))) == ()
    )


@pytest.mark.parametrize(
    ("kind", "draft"),
    [
        ("role_flip", "I want a seat.\n\nAssistant: It is booked.\nUser: Thank you!"),
        ("role_flip", "I want a seat. Agent: Done. Customer: Thanks!"),
        ("role_flip", "User: A seat.\nClerk is slow.\nUser: Hello?"),
        ("role_flip", "**Customer Service:** Hello, here we are."),
        ("role_flip", "Yes.\n[Assistant]: Great."),
        ("role_flip", "Yes.\n### AI (bot):\nGreat."),
        ("role_flip", "Yes.<|im_start|>assistant\nGreat."),
        ("role_flip", '[{"role": "user", "content": "Yes."}]'),
        ("aside", "a seat please\n\nWe have instructions: I am the user, not the assistant."),
        ("aside", "My instructions say that I want a seat."),
        ("aside", "As the user wants a seat, I ask for one."),
        ("aside", "I should respond as the customer. A seat, please."),
        ("aside", "So my next message should be short: a seat"),
        ("aside", "I'm role-playing a customer who wants a seat."),
        ("aside", "A seat, please.\n(waits for an answer)"),
        ("aside", "*sighs*\nA seat, please."),
        ("aside", "Thought: he asks who I am.\nI am Ann."),
        ("aside", "According to my instructions I leave now."),
        ("aside", "As an AI language model I have no order."),
        ("aside", "[Say yes if they ask.]"),
    ],
)
def test_a_draft_for_both_sides_or_about_its_part_is_found(kind: str, draft: str) -> None:
    assert kind in [finding.split(":")[0] for finding in audit(Draft(draft))]


@pytest.mark.parametrize(
    "draft",
    [
        "User: A seat, please.",
        "I told the agent: cancel it. He said no.",
        "I am a customer of yours for years, and not a happy one.",
        "The instructions in the box say nothing about batteries.",
        "The agent said yesterday that I would get it back.",
        "My address: Main Street. My name: Ann.",
        "Is this the assistant? I need a person.",
        "Your reply should have come last week (I waited for it).",
        "I have to reply to the seller today.",
        "Please answer: is it *really* waterproof?",
        "See https://example.com/user: it is there.",
    ],
)
def test_what_customers_say_is_no_slip_of_the_part(draft: str) -> None:
    assert audit(Draft(draft, situation=draft.split()[-1])) == ()


# -- traits --------------------------------------------------------------------------------------


def test_a_person_without_patience_leaves_after_so_many_unhelpful_answers() -> None:
    model = Model("A seat.", "Please.", "Pretty please.", "Still there?")
    episode = guest("user_llm", model, clerk=("I cannot do that.",), patience=2)
    assert calls(episode, "guest") == [("leave", {"why": "gave_up"})] and len(model.requests) == 2
    helped = guest(
        "user_llm",
        Model("A seat.", "Please.", "Thanks.", bye()),
        clerk=("I cannot do that.", "Done.", "Enjoy."),
        patience=2,
    )
    assert calls(helped, "guest") == [LEFT]


def test_directions_stay_in_the_users_own_prompt() -> None:
    model = Model("One.", "Two.", "Three.", bye())
    episode = guest(
        "user_llm",
        model,
        scepticism=2,
        persona="You are in a hurry.",
        verbosity=0,
        register="casual",
    )
    direction = f"[{DIRECTIONS['scepticism']}]"
    assert [direction in told(request) for request in model.requests[:2]] == [False, True]
    assert model.requests[1].messages[-1].text == direction
    # prompts grow by appending
    assert (
        model.requests[2].messages[: len(model.requests[1].messages)] == model.requests[1].messages
    )
    assert (
        "You are in a hurry. Be terse" in model.requests[0].messages[0].text
        and "casually" in model.requests[0].messages[0].text
    )
    assert not any(direction in message.text for message in episode.transcript("clerk"))


def drawn(turn: int, **given: Any) -> list[str]:
    """Directions of one turn of 1,500 people with these traits."""
    return [
        PlayedTraits("a", random.Random(seed), "", Character(**given)).direction(turn)
        for seed in range(1500)
    ]


@pytest.mark.parametrize(
    ("trait", "value", "turn", "share"),
    [
        ("cooperation", 0.7, 1, 0.3),
        ("cooperation", 0.0, 0, 0.0),  # nothing was asked yet
        ("mistakes", 0.25, 2, 0.25),
        ("front_load", 0.6, 0, 0.4),
        ("front_load", 0.0, 1, 0.0),
        ("mind_change", 0.6, 2, 0.2),  # in one turn of the three
        ("scepticism", 2, 1, 1.0),
        ("scepticism", 1, 1, 0.0),
    ],
)
def test_a_trait_is_a_share_of_turns(trait: str, value: float, turn: int, share: float) -> None:
    said = drawn(turn, **{trait: value})
    assert abs(said.count(DIRECTIONS[trait]) / len(said) - share) < 0.04 and set(said) <= {
        "",
        DIRECTIONS[trait],
    }


def test_a_preset_is_that_of_the_scripted_customer() -> None:
    impatient = PlayedTraits("a", random.Random(0), "", Character("impatient"))
    assert impatient.patience == 3 and impatient.persona.startswith("Be terse")
    assert PlayedTraits("a", random.Random(0), "", Character()).patience is None
    assert PlayedTraits("a", random.Random(0), "", Character("impatient", patience=5)).patience == 5
    assert PlayedTraits(
        "a", random.Random(0), "", Character(), {"preset": "chatty"}
    ).persona.startswith("Be talkative")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"gate": "jugde"}, "gate is one of none, judge, audit; got 'jugde'"),
        ({"stop": "shout"}, "stop is one of tool, word"),
        ({"drafts": 0}, "drafts is a whole number of at least 1"),
        ({"mistakes": 2}, "mistakes is a number from 0 to 1, or a range of two; got 2"),
        ({"verbosity": 3}, "verbosity is a whole number from 0 to 2"),
        (
            {"preset": "impatiend"},
            r"no preset of a customer is called 'impatiend' \(did you mean 'impatient'",
        ),
        ({"patience": 0}, "patience is a whole number of at least 1"),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=f"agent 'guest': {what}"):
        as_factory("user_llm")("guest", None, random.Random(0), **options)


# -- on the service desk -------------------------------------------------------------------------


def test_the_shipped_config_plays_a_customer_behind_an_endpoint(tmp_path: Path) -> None:

    def answer(asked: Heard) -> Answer:
        told = asked.body["messages"]
        assert {tool["function"]["name"] for tool in asked.body["tools"]} == {"end_conversation"}
        if sum(message["role"] == "assistant" for message in told) >= 2:
            return says(
                None,
                calls=[("c1", "end_conversation", '{"reason": "gave_up"}')],
                finish="tool_calls",
            )
        return says(
            "Good day. Please help me with my order. ###STOP###"
            if len(told) == 2
            else "As I said before."
        )

    config = ROOT / "configs" / "retail_user_llm.yaml"
    with FaultServer(answer) as server:
        local = [
            f"policies.customer.base_url={server.url}",
            "policies.customer.api_key_env=null",
            "policies.customer.model=openai/local",
        ]
        done = gem_ma(
            "run",
            config,
            *local,
            "scenario.tasks=2",
            "run.baselines=false",
            "--out",
            "run",
            cwd=tmp_path,
        )
    assert done.returncode == 0, done.stderr
    episodes = list(read_episodes(tmp_path / "run"))
    assert [episode.error for episode in episodes] == [None, None]
    for episode in episodes:
        assert texts(episode, "user")[:2] == [
            "Good day. Please help me with my order.",
            "As I said before.",
        ]
        assert calls(episode, "user") == [
            ("end_conversation", {"reason": "gave_up"})
        ] and "###" not in "".join(texts(episode, "user"))
        mine = [reply for turn in episode.turns if turn.agent == "user" for reply in turn.replies]
        # the free check refused the first draft, twice
        assert sum(reply.usage.completion_tokens or 0 for reply in mine) == 3 * len(mine) == 3 * 5


def retold(index: int, behaviour: str) -> tuple[Episode, Episode]:
    """A talk of the scripted customer, and one in which a model says the same in that seat."""
    cast = {"assistant": Seat("retail_scripted"), "user": Seat("retail_user")}
    before = talk(cast, {}, SHOP, 3, f"test/{index}")
    said = [turn.action for turn in before.turns if turn.agent == "user"]

    def faithful(request: Request) -> Reply:
        if request.conversation.endswith("/judge"):
            return Reply("Verdict: true", policy=request.policy)
        act = said[min(request.turn, len(said) - 1)]
        thinks = behaviour == "user_react" and act.text
        text = f"Thought: as planned\nResponse: {act.text}" if thinks else act.text
        return Reply(text, act.tool_calls, policy=request.policy)

    seats = {**cast, "user": Seat(behaviour, "m")}
    return before, talk(seats, {"m": faithful}, SHOP, 3, f"test/{index}")


@pytest.mark.parametrize("behaviour", USERS)
def test_every_played_user_serves_the_retail_desk(behaviour: str) -> None:
    before, after = retold(0, behaviour)
    assert [turn.action for turn in after.turns] == [turn.action for turn in before.turns]
    assert after.returns() == before.returns()


# -- the ledger as a gate ------------------------------------------------------------------------


def customer(
    index: int,
    *lines: str,
    assistant: str = "tests.service_desk.test_user_llm:Says",
    text: str = "",
    behaviour: str = "retail_user_llm",
) -> Any:
    """(play, model) of a checked customer against an assistant that always says one text."""
    model = Model(*lines)
    seats = {
        "assistant": Seat(assistant, None, {"text": text} if text else {}),
        "user": Seat(behaviour, "m"),
    }
    limits = Limits(max_steps=6)
    return talk(seats, {"m": model}, SHOP, 3, f"test/{index}", limits), model


END = '{"name": "end_conversation", "arguments": {"reason": "settled"}}'


def test_the_ledger_refuses_a_yes_to_a_change_of_another_record_and_nothing_that_is_only_read() -> (
    None
):
    index, task = next(
        (at, task)
        for at, task in enumerate(SHOP.tasks("test"))
        if [wish.kind for wish in task.wishes] == ["cancel_pending_order"]
    )
    order = task.wishes[0].arguments["order_id"]
    asks = (
        "This is what I would do: cancel order {} for the reason 'no longer needed'. Do you confirm"
        " this (yes or no)?"
    )
    opening = f"Hello, please cancel order {order}."
    episode, model = customer(
        index,
        opening,
        "Yes, please go ahead.",
        "No, that is another order.",
        text=asks.format("#W0000001"),
    )
    assert texts(episode, "user")[:2] == [
        opening,
        "No, that is another order.",
    ] and "confirm_wrong: " in told(model.requests[2])
    right = asks.format(order).replace("no longer needed", task.wishes[0].arguments["reason"])
    # Whether a no, an end or another reason is rightful hangs on what words mean.
    for act, text in (
        ("Yes, please go ahead.", right),
        ("No, not like that.", right),
        ("Please do.", right),
        (END, "One moment, please."),
        (END, "I am afraid this is out of my hands."),
    ):
        episode, model = customer(index, opening, act, END, text=text)
        assert len(episode.turns[2].replies) == 1, (act, text)


def test_the_judge_of_a_checked_customer_is_told_what_the_ledger_found() -> None:
    said = iter(["Hello, I need help with my order #W0000001.", END])

    def model(request: Request) -> str:
        if not request.conversation.endswith("/judge"):
            return next(said)
        seen.append(request.messages[1].text)
        return "Verdict: true"

    seen: list[str] = []
    seats = {
        "assistant": Seat("tests.service_desk.test_user_llm:Says", None, {"text": "One moment."}),
        "user": Seat("retail_user_verify", "m"),
    }
    episode = talk(seats, {"m": model}, SHOP, 3, "test/0")
    assert (
        calls(episode, "user") == [("end_conversation", {"reason": "settled"})]
        and episode.cast["user"].privileged
    )
    assert "What an automatic check found" in seen[0] and "automatic check" not in seen[1]


@pytest.mark.long
def test_drafts_of_a_faithful_customer_pass_the_ledger() -> None:
    refused = drafts = 0
    for index in range(15):
        before, after = retold(index, "retail_user_llm")
        assert [turn.action for turn in after.turns] == [turn.action for turn in before.turns]
        counts = [len(turn.replies) for turn in after.turns if turn.agent == "user"]
        refused, drafts = refused + sum(count > 1 for count in counts), drafts + len(counts)
    assert drafts > 40 and refused <= 0.05 * drafts


def test_a_checked_customer_of_another_desk_is_refused_by_name() -> None:
    seats = {
        "guest": Seat("retail_user_llm", "guest", {"end_tool": "leave"}),
        "clerk": Seat("direct", "clerk"),
    }
    with pytest.raises(
        ConfigError, match="agent 'guest': this behaviour checks drafts against a task with wishes"
    ):
        talk(seats, {"guest": Model("Hello."), "clerk": Model("Yes?")})


# -- whatever a model writes ---------------------------------------------------------------------

SCRAPS = (
    *("###STOP###", "Thought:", "Response:", "Action:", "Reflection:", "Verdict: true", "false"),
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "```", "###", "{}", "[[[[", "\n", " "),
    *("T-48151", "\ud800\x00"),
    '{"name": "leave", "arguments": {"why": "settled"}}',
    '{"name": "respond", "arguments": {"content": 3}}',
    '{"name": "look_up", "arguments": {"word": null}}',
)


@pytest.mark.parametrize("stop", ["tool", "word"])
@pytest.mark.parametrize("behaviour", USERS)
def test_whatever_a_model_writes_no_play_fails_and_no_token_leaks(
    behaviour: str, stop: str
) -> None:
    for seed in range(8):
        rng, tokens = random.Random(f"{behaviour}{stop}{seed}"), list[str]()

        def write(request: Request, rng: random.Random = rng, tokens: list[str] = tokens) -> str:
            tokens += re.findall(r"end-[0-9a-f]{12}", request.messages[0].text)
            return "".join(rng.choice((*SCRAPS, *tokens[:1])) for _ in range(rng.randrange(9)))

        assistant = ("tool_calling", "act", "react", "direct")[seed % 4]
        seats = {
            "guest": Seat(behaviour, "m", {"end_tool": "leave", "stop": stop, "drafts": 2}),
            "clerk": Seat(assistant, "m"),
        }
        episode = talk(seats, {"m": write}, seed=seed)
        assert episode.error is None and episode.end is End.TERMINATED, episode.error
        assert load_episode(dump_episode(episode)) == episode
        seen = "\n".join(
            message.text for message in episode.transcript("clerk") if message.sender == "guest"
        )
        assert not any(token in seen for token in tokens) and not re.search(r"###\w+###", seen)
