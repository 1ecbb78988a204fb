"""What an effect may hold: names of agents, messages, choices, tools, amounts. Each is checked, and
brought to the form in which the record keeps it.

Who is shown or asked does not matter here (`gem_ma.kernel.views`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import isfinite
from typing import Any

from gem_ma.kernel.fast_dataclass import quick
from gem_ma.kernel.parsing.legal import parse_action
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.types import RESERVED_SENDERS, Action, Image, Message, Tool

MOST_SAYINGS = 256  # answers that one choice remembers
LONGEST_SAYING = 64  # characters of such an answer


class Misfit(Exception):
    """An effect that breaks a rule; the play says where."""


@quick
@dataclass(frozen=True, slots=True)
class Pending:
    """What an agent is asked for at the open decision point."""

    legal: tuple[str, ...] | None = None
    tools: tuple[Tool, ...] = ()
    # short answers that were given here before: the same Action for all who say the same
    sayings: dict[str, Action] = field(default_factory=dict, compare=False, repr=False)

    def exact(self, text: str) -> Action | None:
        """The action of who says a legal string and nothing else, as bots do; else None."""
        action = self.sayings.get(text)
        if action is None and self.legal is not None and text in self.legal:
            action = self._remembered(Action(text, (), text))
        return action if action is None or action.parsed == text else None

    def said(self, text: str) -> Action:
        """The action of who says this text, read by the one parser."""
        if (action := self.sayings.get(text)) is not None:
            return action
        if (action := self.exact(text)) is not None:
            return action
        action = parse_action(text, self.legal, self.tools, is_inexact=True)
        # what was thought, or could not be written, has left the text
        if len(text) <= LONGEST_SAYING and action.text == text and self.legal and not self.tools:
            self._remembered(action)
        return action

    def _remembered(self, action: Action) -> Action:
        if len(self.sayings) < MOST_SAYINGS:
            self.sayings[action.text] = action
        return action


# Every play of a scenario comes with the same tuple.
@lru_cache(maxsize=512)
def agents_problem(agents: tuple[str, ...] | None) -> str:
    """Why these are not names of agents; "" where they are."""
    if not agents or not all(isinstance(agent, str) and agent for agent in agents):
        return "agents must be a tuple of names"
    if len(set(agents)) != len(agents) or RESERVED_SENDERS & set(agents):
        return f"agents must be distinct names other than {sorted(RESERVED_SENDERS)}"
    return ""


def as_messages(shown: Any) -> list[Message] | None:
    """What an author shows an agent, as messages; None where it is nothing that can be shown."""
    parts = (shown,) if isinstance(shown, (str, Message)) else shown
    if not isinstance(parts, (tuple, list)):
        return None
    messages = []
    for part in parts:
        message = Message(part) if isinstance(part, str) else part
        # what is said to many comes here once for each hearer
        if isinstance(message, Message) and _is_plain(message.content):
            messages.append(message)
            continue
        content = _content(message.content) if isinstance(message, Message) else None
        if content is None:
            return None
        # most text is clean already, and then the author's own message is what is shown
        same = content == message.content
        messages.append(message if same else replace(message, content=content))
    return messages


def _is_plain(content: Any) -> bool:
    return isinstance(content, str) and content.isascii()


def _content(content: Any) -> str | tuple[str | Image, ...] | None:
    """The content without lone surrogates; None where it is neither text nor a tuple of parts."""
    if isinstance(content, str):
        return clean(content)
    if not isinstance(content, tuple):
        return None
    if not all(isinstance(part, (str, Image)) for part in content):
        return None
    return tuple(clean(part) if isinstance(part, str) else part for part in content)


# Authors write their choices as constants, so the same tuple comes at every turn.
@lru_cache(maxsize=512)
def closed_choice(legal: tuple[str, ...]) -> Pending:
    """What is asked for where everybody chooses among the same strings and no tool is offered."""
    return Pending(_choices(legal))


def offer(legal: Any, tools: Any) -> Pending:
    """What one agent is asked for. Raises ValueError for anything that is neither a choice nor a
    tool."""
    return Pending(_choices(legal), _offered(tools))


def _are_clean(choices: tuple[Any, ...]) -> bool:
    try:
        # nearly all are ASCII, and a list of hundreds may change with every turn
        if all(map(str.isascii, choices)):
            return True
    except TypeError:
        return False
    return all(isinstance(choice, str) and choice == clean(choice) for choice in choices)


def _choices(legal: Any) -> tuple[str, ...] | None:
    if legal is None:
        return None
    # the order of a set is not a function of the seed
    choices = () if isinstance(legal, (str, set, frozenset)) else tuple(legal)
    if not choices or not _are_clean(choices):
        raise ValueError(f"legal must be a non-empty tuple of strings; got {legal!r}")
    return choices


def _offered(tools: Any) -> tuple[Tool, ...]:
    offered = tuple(tools or ())
    if not all(isinstance(tool, Tool) for tool in offered):
        raise ValueError(f"tools must be a tuple of Tool; got {tools!r}")
    return offered


def amount(value: Any) -> float:
    """A reward as a float. Raises ValueError for anything that is not a finite number."""
    kind = type(value)
    if kind is float and isfinite(value):
        return value
    # float("1") is a number and float(True) too, but whoever pays them meant something else
    if kind is not float and kind is not int and isinstance(value, (bool, str, bytes)):
        raise ValueError(f"a reward is a finite number; got {value!r}")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"a reward is a finite number; got {value!r}") from error
    if not isfinite(number):
        raise ValueError(f"a reward is a finite number; got {value!r}")
    return number


# values of JSON that two may share, exactly as they are
_SHARED = (type(None), bool, str)


def twice(value: Any) -> tuple[Any, Any]:
    """Two equal values of JSON that share no list: one for the record, and one for the scenario,
    which gets what a replay will feed. Raises TypeError, ValueError or RecursionError for a value
    that is none of JSON."""
    if type(value) in _SHARED:  # a text of any length is not written and read again
        return value, value
    text = json.dumps(value, allow_nan=False)
    return json.loads(text), json.loads(text)
