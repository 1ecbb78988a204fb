"""What the scripted sides of a retail talk share: a script as a generator, and the words for a
change.

A script yields what to do and receives what came of it as text, so that a conversation reads
from top to bottom.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from gem_ma import Action, Asked, ToolCall
from gem_ma.errors import ConfigError
from gem_ma.parsing.text import EMAIL_ADDRESS

Script = Generator[Action, str, None]
ORDER, METHOD = re.compile(r"#W\d+"), re.compile(r"\b(?:credit_card|gift_card|paypal)_\d+\b")
EMAIL, ITEM = re.compile(EMAIL_ADDRESS), re.compile(r"(?<![\w#])\d{10}(?!\d)")
ADDRESS = ("address1", "address2", "city", "state", "country", "zip")
EXCHANGE, MODIFY = "exchange_delivered_order_items", "modify_pending_order_items"


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
    out."""

    waits = False

    def __init__(self) -> None:
        self._script: Script | None = None

    def script(self, heard: str) -> Script:
        """The whole part, from the first text on."""
        raise NotImplementedError

    async def act(self, asked: Asked) -> Action:
        heard = asked.new[-1].text if asked.new else ""
        if self._script is not None:
            return self._script.send(heard)
        self._script = self.script(heard)
        return next(self._script)


def change(kind: str, arguments: Mapping[str, Any]) -> str:
    """A write in words, with every argument that matters.

    >>> change("cancel_pending_order", {"order_id": "#W1", "reason": "no longer needed"})
    "cancel order #W1 for the reason 'no longer needed'"
    """
    order_id, method = arguments.get("order_id", ""), arguments.get("payment_method_id", "")
    if kind == "cancel_pending_order":
        return f"cancel order {order_id} for the reason '{arguments['reason']}'"
    if kind == "return_delivered_order_items":
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
    if kind == "modify_pending_order_payment":
        return f"change the payment of order {order_id} to {method}"
    where = f"address of order {order_id}" if order_id else "default address of your account"
    return f"change the {where} to {labelled(arguments)}"


def labelled(address: Mapping[str, Any]) -> str:
    """An address with the names of its parts."""
    return "; ".join(f"{part}: {address[part]}" for part in ADDRESS)


def proposal(changes: Sequence[str]) -> str:
    """A question that asks for a yes to these changes."""
    listed = " ".join(f"{number}) {text}." for number, text in enumerate(changes, 1))
    return f"This is what I would do: {listed} Do you confirm this (yes or no)?"
