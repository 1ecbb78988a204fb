"""What passes between a scenario and its players, checked at the border: what is shown, offered
and paid on the way out, and how an action is read on the way in.

It knows single values. Who is asked when, and whose transcript grows, is the play's business
(`gem_ma.scenario`).
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite
from typing import Any

from gem_ma.errors import ActionError
from gem_ma.parsing import clean, parse_action, parse_legal
from gem_ma.parsing.bounds import bounded
from gem_ma.types import (
    MAX_SAID,
    RESERVED_SENDERS,
    Action,
    Image,
    Message,
    Tool,
    ToolCall,
)


@dataclass(frozen=True, slots=True)
class Pending:
    """What an agent is asked for at the open decision point."""

    legal: tuple[str, ...] | None = None
    tools: tuple[Tool, ...] = ()


# -- out: from the scenario -----------------------------------------------------------------------


@lru_cache(maxsize=512)
def agents_problem(agents: tuple[str, ...] | None) -> str:
    """Why these are no names of agents; "" where they are."""
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
        content = _content(message.content) if isinstance(message, Message) else None
        if content is None:
            return None
        # most text is clean already, and then the author's own message is what is shown
        same = content == message.content
        messages.append(message if same else replace(message, content=content))
    return messages


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
    """What one agent is asked for. Raises ValueError for what is no choice or no tool."""
    return Pending(_choices(legal), _offered(tools))


def _choices(legal: Any) -> tuple[str, ...] | None:
    if legal is None:
        return None
    # the order of a set is no function of the seed
    choices = () if isinstance(legal, (str, set, frozenset)) else tuple(legal)
    clean_texts = (isinstance(choice, str) and choice == clean(choice) for choice in choices)
    if not choices or not all(clean_texts):
        raise ValueError(f"legal must be a non-empty tuple of strings; got {legal!r}")
    return choices


def _offered(tools: Any) -> tuple[Tool, ...]:
    offered = tuple(tools or ())
    if not all(isinstance(tool, Tool) for tool in offered):
        raise ValueError(f"tools must be a tuple of Tool; got {tools!r}")
    return offered


def amount(value: Any) -> float:
    """A reward as a float. Raises ValueError for what is no finite number."""
    kind = type(value)
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


# -- in: from the players -------------------------------------------------------------------------


def read(action: Action | str, asked: Pending, max_said: int | None = MAX_SAID) -> Action:
    """The action as the scenario gets it: cut at `max_said` characters (None = never), lone
    surrogates replaced, text parsed. `parsed` is legal or None. Raises ActionError for what is no
    action."""
    if isinstance(action, str):
        if asked.legal is not None and action in asked.legal:
            return _exact(action)
        text, _, cut = bounded(action, (), max_said)
        parsed_action = parse_action(text, asked.legal, asked.tools)
        return replace(parsed_action, cut=cut) if cut else parsed_action
    if not isinstance(action, Action):
        raise ActionError(f"an action is a str or an Action; got {type(action).__name__}")
    if not isinstance(action.text, str) or not isinstance(action.tool_calls, (tuple, list)):
        raise ActionError(f"an Action has a text and a tuple of tool calls; got {action!r}")
    text, calls, cut = bounded(action.text, action.tool_calls, max_said)
    text, parsed = clean(text), action.parsed
    if asked.legal is None:
        parsed = None
    elif parsed is None or parsed not in asked.legal:
        parsed = parse_legal(text, asked.legal)
    same = text == action.text and parsed == action.parsed and calls is action.tool_calls
    return action if same and not cut else Action(text, calls, parsed, action.cut + cut)


@lru_cache(maxsize=512)
def _exact(choice: str) -> Action:
    return Action(choice, (), choice)


def private_copy(action: Action) -> Action:
    """The scenario's own copy: it may edit the arguments of a call, the record may not change."""
    if not action.tool_calls:  # all else is immutable
        return action
    calls = tuple(
        ToolCall(call.id, call.name, deepcopy(call.arguments), call.repaired)
        if isinstance(call, ToolCall)
        else call
        for call in action.tool_calls
    )
    return Action(action.text, calls, action.parsed, action.cut)
