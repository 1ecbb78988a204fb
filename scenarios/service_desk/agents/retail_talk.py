"""What the scripted sides of a retail talk share: a script as a generator, and the words for a
change.

A script yields what to do and receives what came of it as text, so that a conversation reads
from top to bottom.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import Any

from gem_ma.scenarios.service_desk.retail.domain.kinds import (
    CANCEL,
    EXCHANGE,
    MODIFY,
    PAYMENT,
    RETURN,
)
from gem_ma.scenarios.service_desk.retail.domain.telling import labelled

from gem_ma import Action, Asked, Malformed, Message, ToolCall
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.parsing.text import EMAIL_ADDRESS
from gem_ma.kernel.types import SCENARIO, SYSTEM, TOOL

Script = Generator[Action, str, None]
ORDER, METHOD = re.compile(r"#W\d+"), re.compile(r"\b(?:credit_card|gift_card|paypal)_\d+\b")
EMAIL, ITEM = re.compile(EMAIL_ADDRESS), re.compile(r"(?<![\w#])\d{10}(?!\d)")


def need_task(agent: str, task: Any) -> Any:
    """The task of a privileged side. Raises ConfigError where there is none, or one of another
    scenario."""
    if not hasattr(task, "wishes"):
        raise ConfigError(
            f"agent {agent!r}: this behaviour plays from a task of the scenario retail; got"
            f" {task!r}"
        )
    return task


def say(text: str) -> Action:
    """A message to the other side."""
    return Action(text)


def use(name: str, **arguments: Any) -> Action:
    """One tool call."""
    return Action("", (ToolCall("call_0", name, arguments),))


class Scripted:
    """A behaviour that runs a script: the newest text that it was shown goes in, an action comes
    out.

    Where the script stands is read from the transcript. An act of its agent that the script did
    not want was typed in a fork, or is of who had the seat before. What follows it answers nothing
    that the script asked for, so the script begins anew, by what the behaviour knows until then.
    """

    waits = False

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self._script: Script | None = None
        self._wanted = Action()  # what the script wanted last
        self._act: Message | None = None  # the newest own act on record
        self._heard: Message | None = None  # what was shown last, behind that act
        self._read = 0  # messages of the transcript; at this place it was asked last
        self._asked = False  # whether it was asked for the newest own act

    def script(self, heard: str) -> Script:
        """The whole part, from a text of the other side on; "" where it said nothing."""
        raise NotImplementedError

    def overruled(self, act: Message, answer: str) -> None:
        """Takes in an own act that the script did not want, and what was shown after it."""

    async def act(self, asked: Asked) -> Action:
        was_asked = self._read
        for place, message in enumerate(asked.transcript[was_asked:], was_asked):
            # An own message before anything was said is a part of the briefing.
            if message.sender == self.agent and self._heard is not None:
                self._asked = place == was_asked
                if not self._asked:
                    self._go_on()
                self._act, self._heard = message, None
            elif message.sender != SYSTEM:
                self._heard = message
        self._go_on()
        self._read = len(asked.transcript)
        return self._wanted

    def _go_on(self) -> None:
        """Moves the script to what it wants after the newest act."""
        text = self._heard.text if self._heard is not None else ""
        if self._script is not None and self._act is not None:
            if self._as_wanted(self._act):
                self._wanted = self._script.send(text)
                return
            self.overruled(self._act, text)
        said = self._heard is not None and self._heard.sender not in (SCENARIO, TOOL)
        self._script = self.script(text if said else "")
        self._wanted = next(self._script)

    def _as_wanted(self, act: Message) -> bool:
        """Whether an act is what the script wanted. Who wraps a behaviour may reword its texts."""
        if act.tool_calls or self._wanted.tool_calls:
            same = called(act.tool_calls) == called(self._wanted.tool_calls)
            return same and (self._asked or act.text == self._wanted.text)
        return self._asked or act.text == self._wanted.text


def acts_of(agent: str, transcript: Iterable[Message]) -> Iterator[Message]:
    """What an agent did; an own message before anything was said is a part of its briefing."""
    talk = dropwhile(lambda message: message.sender in (SYSTEM, agent), transcript)
    return (message for message in talk if message.sender == agent)


def made(transcript: Iterable[Message], agent: str) -> list[tuple[str, Any]]:
    """Name and arguments of an agent's own calls that were answered without an error."""
    done: list[tuple[str, Any]] = []
    waiting: list[ToolCall | Malformed] = []
    for message in transcript:
        if message.sender == agent:
            waiting = list(message.tool_calls)
        elif message.sender == TOOL and waiting:
            call = waiting.pop(0)
            if isinstance(call, ToolCall) and not message.text.startswith("Error"):
                done.append((call.name, call.arguments))
    return done


def called(calls: Sequence[ToolCall | Malformed]) -> list[Any]:
    """What calls ask for, whatever their ids are."""
    return [(call.name, call.arguments) if isinstance(call, ToolCall) else call for call in calls]


def change(kind: str, arguments: Mapping[str, Any]) -> str:
    """A write in words, with every argument that matters.

    >>> change("cancel_pending_order", {"order_id": "#W1", "reason": "no longer needed"})
    "cancel order #W1 for the reason 'no longer needed'"
    """
    order_id, method = arguments.get("order_id", ""), arguments.get("payment_method_id", "")
    if kind == CANCEL:
        return f"cancel order {order_id} for the reason '{arguments['reason']}'"
    if kind == RETURN:
        return (
            f"return from order {order_id}: {', '.join(arguments['item_ids'])}, refunded to"
            f" {method}"
        )
    if kind in (EXCHANGE, MODIFY):
        pairs = [
            f"{old} for {new}"
            for old, new in zip(arguments["item_ids"], arguments["new_item_ids"], strict=True)
        ]
        return (
            f"{'exchange' if kind == EXCHANGE else 'change'} in order {order_id}:"
            f" {', '.join(pairs)}, with {method} for the difference"
        )
    if kind == PAYMENT:
        return f"change the payment of order {order_id} to {method}"
    where = f"address of order {order_id}" if order_id else "default address of your account"
    return f"change the {where} to {labelled(arguments)}"


def proposal(changes: Sequence[str]) -> str:
    """A question that asks for a yes to these changes."""
    listed = " ".join(f"{number}) {text}." for number, text in enumerate(changes, 1))
    return f"This is what I would do: {listed} Do you confirm this (yes or no)?"
