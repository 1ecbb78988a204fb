"""What passes between a scenario and its players, checked at the border: what is shown, offered
and paid on the way out, how an action is read on the way in, and the transcripts that both leave.

Who is asked when is the play's business (`gem_ma.scenario`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from math import isfinite
from operator import eq
from typing import Any, overload

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
    spoken,
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


# -- transcripts ----------------------------------------------------------------------------------


class Transcript(Sequence[Message]):
    """The first messages of a list that only grows: what was said until now, without a copy of
    it at each turn."""

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: list[Message]) -> None:
        self._messages, self._length = messages, len(messages)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, place: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(place, slice):
            return tuple(self._messages[slice(*place.indices(self._length))])
        return self._messages[range(self._length)[place]]

    def __iter__(self) -> Iterator[Message]:
        return islice(self._messages, self._length)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Transcript, tuple, list)):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class Misfit(Exception):
    """An effect that breaks a rule; the play says where."""


class Views:
    """What each agent of a play has been shown and has said, and who is still in it."""

    def __init__(self, agents: Sequence[str]) -> None:
        self.messages: dict[str, list[Message]] = {agent: [] for agent in agents}
        self.seen = dict.fromkeys(agents, 0)  # messages until the agent's own last one
        self.left: set[str] = set()

    def new(self, agent: str) -> tuple[Message, ...]:
        """What the agent was shown since its own last message."""
        return tuple(self.messages[agent][self.seen[agent] :])

    def say(self, agent: str, action: Action) -> tuple[Message, ...]:
        """Adds the agent's own action, and gives what it was shown since the one before."""
        view, seen = self.messages[agent], self.seen
        new = tuple(view[seen[agent] :])
        view.append(spoken(agent, action))
        seen[agent] = len(view)
        return new

    def show(self, to: Mapping[str, Any], effect: str) -> None:
        """Adds what an effect shows. Raises Misfit for a stranger, and for what cannot be shown."""
        if not isinstance(to, (dict, Mapping)):  # dict first: the abstract class alone is slow
            raise Misfit(f"{effect} takes {{agent: what it is shown}}; got {to!r}")
        messages, left, text, message = self.messages, self.left, None, None
        for agent, content in to.items():
            view = messages.get(agent)
            if view is None or agent in left:
                raise self.stranger(agent, effect)
            if isinstance(content, str):
                if message is None or content != text:  # one message for all who see the same
                    text, message = content, Message(clean(content))
                view.append(message)
            elif (several := as_messages(content)) is not None:
                view.extend(several)
            else:
                raise Misfit(
                    f"shows {content!r} to {agent}; what is shown is a str, a Message (text, or a"
                    " tuple of text and Image) or a tuple of these"
                )

    def offers(self, to: Mapping[str, Any], legal: Any, tools: Any) -> dict[str, Pending]:
        """What each of these agents is asked for; `legal` and `tools` are one value for all, or by
        agent. Raises Misfit for a stranger, ValueError for what is no choice or no tool."""
        if not to:
            raise Misfit("asks nobody: Ask({})")
        if isinstance(legal, tuple) and not tools:  # the common case, checked once
            return dict.fromkeys(to, closed_choice(legal))
        for values in (legal, tools):
            for agent in values if isinstance(values, Mapping) else ():
                if agent not in self.messages:
                    raise self.stranger(agent, "Ask(legal=, tools=)")
        choices = legal if isinstance(legal, Mapping) else dict.fromkeys(to, legal)
        offered = tools if isinstance(tools, Mapping) else dict.fromkeys(to, tools)
        return {agent: offer(choices.get(agent), offered.get(agent)) for agent in to}

    def stranger(self, agent: Any, effect: str) -> Misfit:
        """What is wrong with an effect that names this agent."""
        if agent in self.left:
            return Misfit(f"{effect} names {agent!r}, which has left")
        return Misfit(f"{effect} names {agent!r}; its agents are {', '.join(self.messages)}")


# -- in: from the players -------------------------------------------------------------------------


def mismatch(actions: Any, pending: Mapping[str, Pending]) -> str:
    """What is wrong with actions that are not one for each agent that is asked."""
    where = f"asked are {', '.join(pending)}"
    if not isinstance(actions, Mapping):
        return f"{where}; actions are {{agent: action}}, got {type(actions).__name__}"
    missing = [agent for agent in pending if agent not in actions]
    extra = [agent for agent in actions if agent not in pending]
    return f"{where}; missing {missing}, not asked {extra}"


def read(action: Action | str, asked: Pending, max_said: int | None = MAX_SAID) -> Action:
    """The action as the scenario gets it: cut at `max_said` characters (None = never), lone
    surrogates replaced, text parsed. `parsed` is legal or None. Raises ActionError for what is no
    action."""
    if isinstance(action, str):
        if asked.legal is not None and action in asked.legal:
            # what a bot says is mostly a legal string: the same Action for all who say it
            return _exact(action)
        text, _, cut = bounded(action, (), max_said)
        parsed_action = parse_action(text, asked.legal, asked.tools)
        return replace(parsed_action, cut=cut) if cut else parsed_action
    if not isinstance(action, Action):
        raise ActionError(f"an action is a str or an Action; got {type(action).__name__}")
    if not isinstance(action.text, str) or not isinstance(action.tool_calls, (tuple, list)):
        raise ActionError(f"an Action has a text and a tuple of tool calls; got {action!r}")
    # cut first: parsing is linear in the text, and a text may be as long as its author likes
    text, calls, cut = bounded(action.text, action.tool_calls, max_said)
    text, parsed = clean(text), action.parsed
    if asked.legal is None:
        parsed = None
    # a behaviour may claim any `parsed`; the scenario sees only what was offered
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
