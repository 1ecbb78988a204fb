"""People played by a model whose drafts the goal ledger checks: it knows what the task wants, and
says why a draft is wrong.

The free check of `audit` knows only what the speaker was shown. Beside it a draft is refused for
what the ledger finds, such as a yes to a change of a record that is not in the task. Neutral: a
domain's subclass names its phrasebook. Privileged, since the ledger reads the task; a learned
policy takes the plain strategies with `gate: audit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from gem_ma.agents.audit import Draft, audit
from gem_ma.scenarios.service_desk.agents.user_llm import Gate, UserLLM
from gem_ma.scenarios.service_desk.desk.log import ASSISTANT, USER, Event
from gem_ma.scenarios.service_desk.reading.phrases import Phrasebook
from gem_ma.scenarios.service_desk.watching.ledger import Ledger

from gem_ma import Malformed, Message, ToolCall
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import RESERVED_SENDERS

# there at once, here only in hindsight
FOUND_BY_AUDIT = frozenset({"hallucinated_slot", "copy", "token_leak", "loop"})


class Ledgered(UserLLM):
    """Goes before a strategy: `class X(Ledgered, UserVerify)`. The gate is the free check,
    unless the strategy has a judge, who is told."""

    privileged = True
    gate: Gate = "audit"
    phrasebook: ClassVar[Phrasebook]

    def check(self, draft: Draft) -> Sequence[str]:
        if not hasattr(self.task, "wishes"):
            raise ConfigError(
                f"agent {self.agent!r}: this behaviour checks drafts against a task with wishes;"
                f" got {self.task!r}"
            )
        # Built anew for each draft: a refused one must leave no trace.
        ledger = Ledger(self.task, self.phrasebook)
        for event in events_of(draft.talk, self.agent, self.end_tool):
            ledger.see(event)
        step = len(draft.talk)
        faults = [
            fault
            for event in _acts(draft.text, draft.calls, self.end_tool, step)
            for fault in ledger.see(event)
        ]
        return (
            *audit(draft),
            *(
                f"{fault.kind}: {fault.evidence}"
                for fault in faults
                if fault.kind not in FOUND_BY_AUDIT
            ),
        )


def events_of(talk: Sequence[Message], me: str, end_tool: str) -> Iterator[Event]:
    """A talk in one side's eyes as the events of both. What stands before the side's first own
    act is its briefing."""
    # The greeting that opens a talk is a part of the briefing.
    first = next((place for place, message in enumerate(talk) if message.sender == me), len(talk))
    for place, message in enumerate(talk[first:], first):
        if message.sender == me:
            yield from _acts(message.text, message.tool_calls, end_tool, place)
        elif message.sender not in RESERVED_SENDERS and message.text.strip():
            yield Event(place, "said", ASSISTANT, text=message.text)


def _acts(
    text: str, calls: Sequence[ToolCall | Malformed], end_tool: str, step: int
) -> Iterator[Event]:
    """An act of the user as the event that it is, () where it is none."""
    end = next(
        (call for call in calls if isinstance(call, ToolCall) and call.name == end_tool), None
    )
    reason = str(end.arguments.get("reason", "")) if end is not None else ""
    # A text with an end beside it is one event, which holds the reason.
    if text.strip():
        yield Event(step, "said", USER, text=text, reason=reason)
    elif end is not None:
        yield Event(step, "ended", USER, reason=reason)
