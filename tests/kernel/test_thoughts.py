"""A thought is not speech: whichever way a model marks it, whoever reads what the model said."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gem_ma
from gem_ma import Action, Ask, Episode, Message, Reward, Scenario, Seat, Tool, ToolCall
from gem_ma.cli.episode_lanes import Lanes
from gem_ma.driver.forks import Branch
from gem_ma.driver.rollout import Plan
from gem_ma.driver.seats import SUMMARY
from gem_ma.engines.base import Policy
from gem_ma.engines.endpoint.reply import decode, read
from gem_ma.engines.small.replay import Replay
from gem_ma.kernel.types import Reply, Request
from gem_ma.pages.static.transcript import transcript
from gem_ma.record.codec import dump_episode, load_episode
from gem_ma.registry import make
from gem_ma.runs.export.chats import conversation
from tests.kernel.test_reasoning import FAMILIES

SECRET = "zebra"  # stands in thoughts alone
# tags, brackets, one that the prompt has opened, channels: all families in test_reasoning.py
SOME = {name: FAMILIES[name] for name in ("qwen", "opened", "magistral", "cohere", "harmony")}
CUT = {name: form.split("{}")[0] + "{}" for name, form in SOME.items() if form[0] != "{"}
END = Tool("end_conversation", "Ends it.")
CALL = '<tool_call>\n{{"name": "order", "arguments": {{"number": {}}}}}\n</tool_call>'
families = pytest.mark.parametrize("family", SOME)
cut_families = pytest.mark.parametrize("family", CUT)


class Says:
    """An engine that returns raw text, as an engine of somebody else may: these, then the last."""

    def __init__(self, *lines: str, finish: str = "stop") -> None:
        self.lines, self.finish = list(lines), finish
        self.requests: list[Request] = []

    async def sample(self, request: Request) -> Reply:
        self.requests.append(request)
        line = self.lines[min(len(self.requests), len(self.lines)) - 1]
        return Reply(line, finish=self.finish, policy=request.policy)

    @property
    def shown(self) -> str:
        return "\n".join(m.text for request in self.requests for m in request.messages)


class Shop(Scenario):
    """A seller and a buyer talk in turns; what one says the other is shown."""

    agents = ("seller", "buyer")

    def play(self, rng: Any, task: Any) -> Any:
        shown: Any = {"seller": (Message.system("You sell a lamp."), "Hello.")}
        for turn in range(4):
            (agent,) = shown
            tools = (Tool("order", "Orders."), END)
            acts = yield Ask(shown, tools={agent: tools})
            shown = {self.agents[(turn + 1) % 2]: acts[agent].text or "(nothing)"}
        yield Reward({"seller": 1.0, "buyer": 0.0})


def played(
    scenario: Scenario, seats: dict[str, Seat], engines: dict[str, Any], **plan: Any
) -> Episode:
    policies = {name: Policy(name, engine) for name, engine in engines.items()}
    episode = asyncio.run(gem_ma.play(Plan(scenario, seats, seed=1, **plan), policies))
    assert episode.error is None
    return episode


def talk(behaviour: str, *lines: str, **seat: Any) -> tuple[Episode, Says, Says]:
    """A talk of the seller, who is tested, and a buyer."""
    seller, buyer = Says(*lines), Says("And now?")
    seats = {"seller": Seat(behaviour, "seller", **seat), "buyer": Seat("direct", "buyer")}
    return played(Shop(), seats, {"seller": seller, "buyer": buyer}), seller, buyer


def choice(text: str, finish: str = "stop", behaviour: str = "direct") -> gem_ma.Turn:
    seats = {"player_0": Seat(behaviour, "p"), "player_1": Seat("first_legal")}
    return played(make("kuhn_poker"), seats, {"p": Says(text, finish=finish)}).turns[0]


# -- what is said, and to whom -------------------------------------------------------------------


@families
@pytest.mark.parametrize("behaviour", ["direct", "tool_calling", "user_llm"])
def test_nobody_else_is_told_a_thought(family: str, behaviour: str) -> None:
    episode, seller, buyer = talk(behaviour, SOME[family].format(f"My {SECRET}.", "Ninety."))
    assert [turn.action.text for turn in episode.turns[::2]] == ["Ninety.", "Ninety."]
    assert SECRET not in buyer.shown + seller.shown  # nor itself, later
    assert [turn.replies[0].reasoning for turn in episode.turns[::2]] == [f"My {SECRET}."] * 2
    assert load_episode(dump_episode(episode)) == episode


@cut_families
@pytest.mark.parametrize("behaviour", ["direct", "tool_calling"])
def test_who_is_cut_in_a_thought_has_said_nothing(family: str, behaviour: str) -> None:
    episode, _, buyer = talk(behaviour, CUT[family].format(f"My {SECRET} is"))
    assert episode.turns[0].action == Action("") and SECRET not in buyer.shown
    assert episode.turns[0].replies[0].reasoning == f"My {SECRET} is"


@families
@pytest.mark.parametrize("behaviour", ["act", "react"])
def test_a_text_protocol_reads_what_is_said_alone(family: str, behaviour: str) -> None:
    thought = 'Action: {"name": "respond", "arguments": {"content": "zebra"}}'
    said = 'Action: {"name": "respond", "arguments": {"content": "Ninety."}}'
    episode, _, buyer = talk(behaviour, SOME[family].format(thought, said))
    assert episode.turns[0].action == Action("Ninety.") and SECRET not in buyer.shown


@families
def test_a_user_simulator_neither_speaks_nor_stops_by_a_thought(family: str) -> None:
    form = SOME[family]
    labelled = "Thought: hm\nResponse: {}"
    episode, _, _ = talk("user_react", form.format(labelled.format(SECRET), labelled.format("Hi.")))
    assert episode.turns[0].action.text == "Hi."
    marks = {"marks": "anywhere"}
    episode, _, _ = talk("user_llm", form.format("###STOP### zebra", "A lamp."), options=marks)
    assert episode.turns[0].action == Action("A lamp.")
    # a draft that is wholly thought says nothing, and another one is drawn
    if family in CUT:
        episode, _, buyer = talk(
            "user_llm", CUT[family].format(f"My {SECRET} is"), form.format("hm", "Hi.")
        )
        assert episode.turns[0].action.text == "Hi." and SECRET not in buyer.shown


@families
def test_a_judge_says_what_it_says_behind_its_thought(family: str) -> None:
    seats = {
        "seller": Seat("user_verify", "seller", policies={"judge": "judge"}),
        "buyer": Seat("direct", "buyer"),
    }
    form = SOME[family]
    judge = Says(
        form.format("Verdict: true", "Reason: rude\nVerdict: false"),
        form.format("Verdict: false", "Verdict: true"),
    )
    engines = {"seller": Says("One.", "Two."), "buyer": Says("Well?"), "judge": judge}
    assert played(Shop(), seats, engines).turns[0].action.text == "Two."


@families
def test_the_writer_of_a_memory_keeps_its_thoughts_to_itself(family: str) -> None:
    writer = Says(SOME[family].format(SECRET, "They talked of a lamp."))
    seats = {
        "seller": Seat("direct", "seller", memory={"turns": 0, "summary": "writer"}),
        "buyer": Seat("direct", "buyer"),
    }

    class Long(Shop):
        def play(self, rng: Any, task: Any) -> Any:
            for _ in range(4):
                yield Ask({"seller": "Go on."})

    seller = Says("So.")
    played(Long(), seats, {"seller": seller, "buyer": Says("x"), "writer": writer})
    assert "They talked of a lamp." in seller.shown and SECRET not in seller.shown
    assert any(request.conversation.endswith("/summary") for request in writer.requests)
    assert SUMMARY  # the policy that writes it


# -- moves, calls and answers --------------------------------------------------------------------


@families
@pytest.mark.parametrize("behaviour", ["direct", "tool_calling", "act"])
@pytest.mark.parametrize(
    "thought", ["[check]", "\\boxed{check}", "<action>check</action>", "check"]
)
def test_a_closed_choice_is_read_behind_the_thought(
    family: str, behaviour: str, thought: str
) -> None:
    turn = choice(SOME[family].format(f"It is {thought}.", "I bet."), behaviour=behaviour)
    assert turn.action.parsed == "bet"


@cut_families
def test_a_thought_that_was_cut_is_no_move(family: str) -> None:
    turn = choice(CUT[family].format("To check would be to [bet]"), "length")
    assert turn.action == Action("") and turn.replies[0].finish == "length"


@families
def test_a_call_in_a_thought_is_not_made(family: str) -> None:
    order = ToolCall("call_0", "order", {"number": 2})
    thought, form = f"Order? {CALL.format(1)} No.", SOME[family]
    ways = {
        "tool_calling": lambda text: talk("tool_calling", text)[0].turns[0].action,
        "endpoint": lambda text: read(_body(text), tools_in_text=True),
        "text": lambda text: gem_ma.kernel.parsing.parse_action(text, None, (Tool("order"),)),
    }
    for acted in ways.values():
        assert acted(form.format(thought, "Shall I?")).tool_calls == ()
        assert acted(form.format(thought, CALL.format(2))).tool_calls == (order,)
        if family in CUT:
            assert acted(CUT[family].format(thought)).tool_calls == ()


def _body(text: str, **message: Any) -> dict[str, Any]:
    message["content"] = text
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


@families
def test_graders_and_boxes_see_what_was_said(family: str, tmp_path: Path) -> None:
    form = SOME[family]
    data = tmp_path / "questions.jsonl"
    data.write_text('{"question": "The capital of France?", "answer": "Paris"}\n')
    scenario = make("questions", data=str(data), held_out=0)
    (agent,) = scenario.agents

    def paid(text: str) -> float:
        episode = played(scenario, {agent: Seat("direct", "p")}, {"p": Says(text)})
        return episode.returns()[agent]

    assert paid(form.format("\\boxed{Paris}", "Rome")) <= 0
    assert paid(form.format("\\boxed{Rome}? The answer is Rome.", "Paris")) > 0
    if family in CUT:
        assert paid(CUT[family].format("So \\boxed{Paris}")) <= 0
    game = make("guess_number", numbers=3, turns=1)
    for thought, said in (("\\boxed{3}", "\\boxed{2}"), ("3", "2")):
        episode = played(
            game, {"player": Seat("direct", "p")}, {"p": Says(form.format(thought, said))}
        )
        assert "3" not in episode.turns[0].action.text


@families
def test_a_text_from_outside_is_read_as_one_of_a_policy_is(family: str) -> None:
    env = gem_ma.aec_env("kuhn_poker")
    env.reset(seed=1)
    env.step(SOME[family].format("[check]", "bet"))
    assert env.unwrapped.game.turns[0].action == Action("bet", (), "bet")


# -- the record ----------------------------------------------------------------------------------


def test_what_a_server_gives_apart_and_what_stands_in_the_text_are_one_thought() -> None:
    reply = read(_body("<think>two</think>So.", reasoning_content="one"))
    assert (reply.text, reply.reasoning) == ("So.", "one\n\ntwo")
    assert read(_body("So.", reasoning="one")).reasoning == "one"
    assert "reasoning" not in dump_episode(talk("direct", "Ninety.")[0])


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking", ""])
def test_a_stream_gives_the_thought_that_the_whole_reply_gives(field: str) -> None:
    pieces = [{field: "Is it "}, {field: "check?"}, {"content": "be"}, {"content": "t"}]
    if not field:  # as the text of a server without a reasoning parser
        pieces = [{"content": text} for text in ("<th", "ink>Is it ", "check?</thi", "nk>\n\nbet")]
    choices: list[Any] = [{"index": 0, "delta": piece} for piece in pieces]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    events = "".join(f"data: {json.dumps({'choices': [choice]})}\n\n" for choice in choices)
    reply = read(decode(events.encode(), "text/event-stream"))
    assert (reply.text, reply.reasoning) == ("bet", "Is it check?")


def test_a_record_of_old_in_which_a_thought_was_said_is_read_replayed_and_forked() -> None:
    raw = f"<think>\nMy {SECRET}.\n</think>\n\nNinety."
    now, _, _ = talk("direct", raw)
    old = replace(
        now,
        turns=tuple(
            replace(
                turn,
                action=replace(turn.action, text=raw),
                replies=(replace(turn.replies[0], text=raw, reasoning=""),),
            )
            if turn.agent == "seller"
            else replace(turn, observed=(*turn.observed[:-1], Message(raw)))
            for turn in now.turns
        ),
    )
    old = load_episode(dump_episode(old))
    seats = {"seller": Seat("direct", "seller"), "buyer": Seat("direct", "buyer")}
    branch = Branch(old, 2, "s", 0)
    forked = played(Shop(), seats, {"seller": Says(raw), "buyer": Says("And now?")}, branch=branch)
    assert forked.turns[:2] == old.turns[:2] and forked.turns[2].action.text == "Ninety."
    replays = {name: Replay.of([old], policy=name) for name in ("seller", "buyer")}
    assert [turn.action for turn in played(Shop(), seats, replays).turns] == [
        turn.action for turn in now.turns
    ]
    again = {name: Replay.of([now], policy=name) for name in ("seller", "buyer")}
    assert dump_episode(played(Shop(), seats, again)) == dump_episode(now)


def test_a_thought_is_shown_folded_and_exported_with_the_reply() -> None:
    episode, _, _ = talk("direct", f"<think>My {SECRET} is it.</think>Ninety.")

    def lines(**how: Any) -> str:
        return "\n".join(Lanes(episode, 100, **how).lines())

    assert "(thought, 4 words: --full)" in lines() and SECRET not in lines()
    assert f"thought: My {SECRET} is it." in lines(is_full=True)
    told = transcript(episode, {"kinds": [], "causes": {}, "labels": {}, "measures": {}})
    assert told["turns"][0]["replies"][0]["thoughts"] == f"My {SECRET} is it."
    assert "text" not in told["turns"][0]["replies"][0]  # the act is not told twice
    written = conversation(episode, "seller")
    assert SECRET not in str(written["messages"])
    assert written["turns"][0]["replies"][0]["reasoning"] == f"My {SECRET} is it."
