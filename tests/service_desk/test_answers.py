"""The one reader of yes and no: answers by what they mean, and that judges and assistants read
them alike."""

from __future__ import annotations

import asyncio

import pytest
from gem_ma.scenarios.service_desk.agents.retail_scripted import RetailScripted
from gem_ma.scenarios.service_desk.reading.answers import answer
from gem_ma.scenarios.service_desk.retail.domain.domain import domain_of
from gem_ma.scenarios.service_desk.watching.monitor import Monitor

from gem_ma import Action, Asked, Message
from gem_ma.kernel.types import spoken
from tests.talks.answers import meant
from tests.talks.script import scenario, talks

MEANT = meant()


@pytest.mark.parametrize(
    "case",
    [str, str.lower, str.upper, lambda text: f"  {text}  ", lambda text: text.replace("'", "’")],
)
def test_an_answer_is_read_as_it_is_meant_in_any_case_and_with_any_quotes(case: object) -> None:
    assert {text: answer(case(text)) for text in MEANT} == MEANT  # type: ignore[operator]


@pytest.mark.parametrize("text", list(MEANT)[::12])
def test_monitor_and_careful_assistant_read_the_same_yes(text: str) -> None:
    said = [
        (
            "Hi, my email is mara.quinn@example.com. Please cancel order #W1000333, it is no longer"
            " needed."
        ),
        text or "...",
    ]
    talk = next(talk for talk in talks() if talk.name == "cancel plain")
    desk, assistant = scenario().desk(talk.task), RetailScripted("assistant", None, None, None)  # type: ignore[arg-type]
    monitor, heard, wrote = (
        Monitor(domain_of(scenario().source.world(talk.task))),
        Message(said.pop(0), "user"),
        False,
    )
    desk.watchers = [monitor]
    desk.see("said", "user", text=heard.text)
    seen: list[Message] = []
    for step in range(9):
        seen.append(heard)
        did = asyncio.run(assistant.act(Asked((heard,), tuple(seen), None, (), step)))
        seen.append(spoken("assistant", did))
        if did.tool_calls:
            call = did.tool_calls[0]
            result = desk.store.call(call.name, call.arguments)  # type: ignore[union-attr]
            desk.see("called", "assistant", call=call, result=result)
            wrote |= desk.store.mutates(call.name)  # type: ignore[union-attr]
            heard = Message.tool("call_0", result)
        elif said:
            desk.see("said", "assistant", text=did.text)
            heard = Message(said.pop(0), "user")
            desk.see("said", "user", text=heard.text)
        else:
            break
    assert wrote is (MEANT[text] == "yes")
    assert [one.code for one in monitor.findings if one.code in ("CONSENT", "MISMATCH")] == []
    assert isinstance(did, Action)
