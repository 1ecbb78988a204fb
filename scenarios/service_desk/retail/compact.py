"""How a one-order talk looks to a small model: a word or three for each thing that is said, called
or answered, and nothing else.

Both sides choose from a closed list of words. The desk behind them hears whole sentences and
gets real calls of the shop's tools: the customer is logged in and has one order, so a command
names no ids. `look` shows the order's status and size; a write answers `ok` or `no`; what cannot
be read, `what`. This module is a table between the two languages; it knows neither the task's
solution nor who plays.
"""

from __future__ import annotations

import json
from itertools import product

from gem_ma.scenarios.service_desk.desk.log import END, Style
from gem_ma.scenarios.service_desk.desk.overlay import Base
from gem_ma.scenarios.service_desk.desk.task import Task
from gem_ma.scenarios.service_desk.retail.one_order import (
    CANCEL,
    COLOURS,
    QUESTION,
    SIZES,
    STATUSES,
    write,
)
from gem_ma.scenarios.service_desk.retail.store.tools import REASONS

from gem_ma import Action, Malformed, Message, ToolCall
from gem_ma.kernel.parsing.legal import parse_legal

# The words are whole commands. A tiny model samples one from a closed list, so a call with free
# arguments would mostly be unreadable noise for it.
LOOK, TRANSFER, NONE = "look", "transfer", "none"
VERBS = {"modify": "pending", "exchange": "delivered"}
# By place: the tool's own reasons in its own order; `strict` fails here if the tool gets a third.
WHY = dict(zip(("unneeded", "mistake"), REASONS, strict=True))
# The verb says which tool: a pending order is modified, a delivered one exchanged. Whoever takes
# the wrong verb learns from `no` alone, so looking first is worth something.
CHANGES = {
    f"{verb} {colour} {size}": (status, colour, size)
    for (verb, status), colour, size in product(VERBS.items(), COLOURS, SIZES)
}
CANCELS = {f"cancel {word}": reason for word, reason in WHY.items()}
SAYS = {
    "ask colour": "Which colour would you like?",
    "ask reason": "For which reason: no longer needed, or ordered by mistake?",
    **{f"tell {size}": f"You ordered the size {size}." for size in SIZES},
    "done": "That has been done. Is there anything else?",
    "sorry": "I am sorry, that is not possible: the status of your order does not allow it.",
}
OPENINGS = {
    "change colour": "I would like what I ordered in another colour.",
    "which size": "Which size did I order?",
    "cancel": "Please cancel my order.",
}
ANSWERS = {
    **{colour: f"In {colour}, please." for colour in COLOURS},
    **{word: f"The reason: {reason}." for word, reason in WHY.items()},
    # Something must be legal for a customer who is asked what it does not know.
    NONE: "I have nothing to say to that.",
}
ENDS = {"bye": "settled", "accept": "refused", "leave": "gave_up"}
ASSISTANT_WORDS = (LOOK, *CHANGES, *CANCELS, *SAYS, TRANSFER)
USER_WORDS = (*OPENINGS, *ANSWERS, *ENDS)
# What the desk heard is shown back as the words it came from. Both directions are one table, so no
# sentence can be shown that nobody could have said.
HEARD = {sentence: words for words, sentence in {**SAYS, **OPENINGS, **ANSWERS}.items()}
POLICY, GREETING, WHAT, OK, NO = "desk", "hello", "what", "ok", "no"


def compact(task: Task, base: Base) -> Style:
    """The style of a talk about one task of the one-order shop."""
    # Exactly one order, else this raises: the words name no order, so they need just one.
    (order_id,) = base.tables["orders"]

    def read_assistant(did: Action) -> Action:
        words = _words(did, ASSISTANT_WORDS)
        if words in SAYS:
            return Action(SAYS[words])
        if words == LOOK:
            return _call("get_order_details", order_id=order_id)
        if words == TRANSFER:
            return _call(
                "transfer_to_human_agents",
                # The summary is fixed: no grader reads it, and the few words hold none.
                summary="The customer of the only order wants something.",
            )
        if words in CANCELS:
            return _call("cancel_pending_order", order_id=order_id, reason=CANCELS[words])
        if words in CHANGES:
            gold = write(base, *CHANGES[words])
            return _call(gold.name, **gold.arguments)
        return _unread(did)

    return Style(
        brief_assistant=(Message.system(POLICY),),
        brief_user=(Message.system(briefing(task)), Message(GREETING, "assistant")),
        tools=(),
        user_tools=(),
        # No tool schemas: they would fill the small prompt with names that the words never use.
        read_assistant=read_assistant,
        read_user=read_user,
        show_assistant=lambda text: HEARD.get(text, WHAT),
        show_user=lambda text: HEARD.get(text, WHAT),
        show_result=show_result,
        legal=ASSISTANT_WORDS,
        user_legal=USER_WORDS,
    )


def briefing(task: Task) -> str:
    """What the customer wants and knows, out of `Task.knowledge` alone."""
    if task.knows("wish") == QUESTION:
        return "want to know size"
    if task.knows("wish") == CANCEL:
        reasons = {reason: word for word, reason in WHY.items()}
        return f"want to cancel {reasons.get(task.knows('reason'), NONE)}"
    return f"want to change colour {task.knows('colour') or NONE}"


def read_user(did: Action) -> Action:
    """A user's words as a sentence, or as the end of the talk."""
    words = _words(did, USER_WORDS)
    if words in ENDS:
        return _call(END.name, reason=ENDS[words])
    sentence = OPENINGS.get(words) or ANSWERS.get(words)
    return Action(sentence) if sentence else _unread(did)


def show_result(call: ToolCall | Malformed, text: str) -> Message:
    """What is left of a result: of an order its status and its size, of a write whether it went
    through."""
    if isinstance(call, Malformed):
        return Message.tool("", WHAT)
    # The number behind a word is not shown: a read always works in this shop, so only a write
    # fails.
    if text.startswith("Error: "):
        return Message.tool(call.id, NO)
    if call.name != "get_order_details":
        return Message.tool(call.id, OK)
    order = json.loads(text)
    # `cancelled` and `changed` are states after a write; the exact text of a changed status would
    # tell which tool had gone through.
    status = (
        order["status"]
        if order["status"] in STATUSES or order["status"] == "cancelled"
        else "changed"
    )
    return Message.tool(call.id, f"{status} {order['items'][0]['options']['size']}")


def _words(did: Action, legal: tuple[str, ...]) -> str:
    # `parsed` first: an engine that samples from the legal list says so itself, and reading its
    # text again could only lose it.
    return "" if did.tool_calls else did.parsed or parse_legal(did.text, legal) or ""


def _call(name: str, **arguments: object) -> Action:
    return Action("", (ToolCall("1", name, arguments),))


def _unread(did: Action) -> Action:
    return Action("", (Malformed(did.text, "these are not words of the list"),))
