"""What an agent's model is shown of a long play: a window of the last messages, with a summary of
those before it where that is wanted.

It stands between a behaviour and its model: the record stays whole, the behaviour keeps its own
view, and the prompt that the model got is what a learner trains on. A window that moves shortens
the front of a prompt, so each turn is a token row of its own (`restarts`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from gem_ma.driver.behaviour import Sample
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import SYSTEM, TOOL, Message, Reply
from gem_ma.registry import load, names_code

SUMMARY = "memory.summary"  # what the policy is called by that writes the summary
ORDER = (
    "You keep the memory of a player. Write in a few sentences what the player must still know:"
    " facts, promises, what was tried and what came of it. Write nothing else."
)
HEAD = "What happened before, in short: "


@dataclass(frozen=True, slots=True)
class Memory:
    """The last `window` messages, or the last `turns` turns of the agent, and the first `first`
    messages of all (a briefing). `summary`: a policy, or a function `f(messages) -> str` by its
    name, that says in short what falls out between them."""

    window: int | None = None
    turns: int | None = None
    first: int = 1
    summary: str | None = None

    @classmethod
    def of(cls, agent: str, settings: Mapping[str, Any]) -> Memory:
        """The memory of a seat. Raises ConfigError for what is none."""
        where = f"agent {agent!r}: memory"
        names = [field.name for field in fields(cls)]
        for name in settings:
            if name not in names:
                raise ConfigError(f"{where} has no {name!r}; it has {', '.join(names)}")
        memory = cls(**settings)
        if (memory.window is None) == (memory.turns is None):
            raise ConfigError(f"{where} is either {{window: messages}} or {{turns: turns}}")
        for name, least in (("window", 1), ("turns", 0), ("first", 0)):
            value = getattr(memory, name)
            if value is not None and (type(value) is not int or value < least):
                raise ConfigError(f"{where}: {name} is at least {least}; got {value!r}")
        return memory

    @property
    def policy(self) -> str | None:
        """The policy that writes the summary; None where a function does, or nobody."""
        return summarist({"summary": self.summary})

    def cut(self, agent: str, messages: Sequence[Message]) -> tuple[int, int]:
        """(messages that stay at the beginning, index of the first one of the window)."""
        first = min(self.first, len(messages))
        start = 0
        if self.window is not None:
            start = len(messages) - self.window
        else:
            turns = [place for place, each in enumerate(messages) if each.sender == agent]
            if len(turns) > (self.turns or 0):
                start = turns[-1 - (self.turns or 0)] + 1
        # a result of a tool without its call is refused by chat templates and by servers
        while first < start and messages[first].sender == TOOL:
            first += 1
        while first < start and messages[start].sender == TOOL:
            start -= 1
        # templates want somebody else to speak first, and a briefing is nobody
        if all(each.sender == SYSTEM for each in messages[:first]):
            while (
                first < start < len(messages) - 1
                and messages[start].sender == agent
                and messages[start + 1].sender != TOOL
            ):
                start += 1
        return first, max(first, start)

    def window_of(self, agent: str, messages: Sequence[Message]) -> tuple[Message, ...]:
        """These messages as the agent's model is shown them, less any summary."""
        first, start = self.cut(agent, messages)
        return (*messages[:first], *messages[start:])


def summarist(settings: Mapping[str, Any]) -> str | None:
    """The policy that writes the summary of such a memory; None where none does."""
    summary = settings.get("summary")
    return None if not isinstance(summary, str) or names_code(summary) else summary


def remembered(seat: Seat, agent: str, messages: Sequence[Message]) -> Sequence[Message]:
    """What the model in this seat is shown of a recorded view, less any summary."""
    if not seat.memory:
        return messages
    return Memory.of(agent, seat.memory).window_of(agent, messages)


class Remembering:
    """The `sample` of a seat with a memory: shortens each prompt. Keeps the summary of each
    thread, and what it is a summary of."""

    def __init__(self, agent: str, memory: Memory, sample: Sample) -> None:
        self._agent = agent
        self._memory = memory
        self._sample = sample
        self._rule: Callable[[Sequence[Message]], str] | None = None
        if memory.summary is not None and memory.policy is None:
            self._rule = load("agents", memory.summary)
        self._folded: dict[str, tuple[tuple[Message, ...], str]] = {}

    async def __call__(self, messages: Sequence[Message], *, thread: str = "", **how: Any) -> Reply:
        whole = tuple(messages)
        if self._memory.summary is None:
            return await self._sample(
                self._memory.window_of(self._agent, whole), thread=thread, **how
            )
        first, start = self._memory.cut(self._agent, whole)
        old, text = await self._summary(whole[first:start], thread)
        # what is folded in already is never shown beside its summary
        rest = whole[first + len(old) :]
        short = (Message(HEAD + text),) if text else ()
        return await self._sample((*whole[:first], *short, *rest), thread=thread, **how)

    async def _summary(
        self, old: tuple[Message, ...], thread: str
    ) -> tuple[tuple[Message, ...], str]:
        """The messages that are folded in, of those before the window, and their summary."""
        if self._rule is not None:
            return old, self._checked_text(self._rule(old)) if old else ""
        folded, text = self._folded.get(thread, ((), ""))
        if old[: len(folded)] != folded:
            # another conversation under the same name
            folded = ()
            text = ""
        new = old[len(folded) :]
        # a call for each message would cost more than the window saves, so some gather first; and
        # between two summaries the prompt only grows, as one token row
        if len(new) >= max(2, (self._memory.window or 2 * (self._memory.turns or 0)) // 2):
            lines = "\n".join(f"{message.sender}: {_text(message)}" for message in new)
            before = f"The memory so far:\n{text}\n\n" if text else ""
            prompt = (
                Message.system(ORDER),
                Message(f"{before}The player is {self._agent}. What followed:\n{lines}"),
            )
            # a thread of its own: it is not part of the conversation that the agent has
            reply = await self._sample(prompt, thread=f"{thread}/summary", policy=SUMMARY)
            folded = old
            text = reply.text.strip()
            self._folded[thread] = (folded, text)
        return folded, text

    def _checked_text(self, text: Any) -> str:
        if not isinstance(text, str):
            raise ConfigError(
                f"agent {self._agent!r}: memory.summary: {self._memory.summary} gives a text; got"
                f" {type(text).__name__}"
            )
        return text


def _text(message: Message) -> str:
    calls = "".join(f" {call!r}" for call in message.tool_calls)
    return f"{message.text}{calls}"
