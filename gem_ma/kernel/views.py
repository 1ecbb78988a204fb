"""What passes between a scenario and its players: what each agent is shown and offered on the way
out, how an action is read on the way in, and the transcripts that both leave.

Who is asked when is the play's business (`gem_ma.kernel.scenario`). What an effect may hold at all
is in `gem_ma.kernel.effects`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from operator import eq
from typing import Any, overload

from gem_ma.kernel.effects import Misfit, Pending, as_messages, closed_choice, offer
from gem_ma.kernel.errors import ActionError
from gem_ma.kernel.parsing.bounds import bounded
from gem_ma.kernel.parsing.legal import parse_action, parse_legal
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.types import MAX_SAID, Action, Message, ToolCall, maker

make_message = maker(Message)  # a play makes several a turn

# What an agent has seen and said until now, as its behaviour gets it.


class Transcript(Sequence[Message]):
    """The first messages of a list that only grows: what was said until now, without a copy of
    it at each turn."""

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: list[Message]) -> None:
        # the length of this moment: what is appended later is not part of it
        self._messages = messages
        self._length = len(messages)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, place: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(place, slice):
            return tuple(self._messages[slice(*place.indices(self._length))])
        # through the range, so that negative places and those beyond count in what is visible
        return self._messages[range(self._length)[place]]

    def __iter__(self) -> Iterator[Message]:
        # by length, not by copy: a behaviour may iterate while the play appends
        return islice(self._messages, self._length)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Transcript, tuple, list)):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


_OPEN = Pending()
_NOTHING = Message("")


class Views:
    """What each agent of a play has been shown and has said, and who is still in it."""

    def __init__(self, agents: Sequence[str]) -> None:
        self.messages: dict[str, list[Message]] = {agent: [] for agent in agents}
        self.seen = dict.fromkeys(agents, 0)  # messages until the agent's own last one
        self.left: set[str] = set()
        self._legal: Any = None  # the last closed choice, and its offer
        self._offer = _OPEN

    def new(self, agent: str) -> tuple[Message, ...]:
        """What the agent was shown since its own last message."""
        return tuple(self.messages[agent][self.seen[agent] :])

    def say(self, agent: str, action: Action) -> tuple[Message, ...]:
        """Adds the agent's own action, and gives what it was shown since the one before."""
        view = self.messages[agent]
        seen = self.seen
        new = tuple(view[seen[agent] :])
        view.append(make_message(action.text, agent, action.tool_calls))
        seen[agent] = len(view)
        return new

    def show(self, to: Mapping[str, Any], effect: str) -> None:
        """Adds what an effect shows. Raises Misfit for a stranger, and for what cannot be shown."""
        if not isinstance(to, (dict, Mapping)):  # dict first: the abstract class alone is slow
            raise Misfit(f"{effect} takes {{agent: what it is shown}}; got {to!r}")
        messages = self.messages
        left = self.left
        text: Any = _OPEN  # nobody shows that
        message = _NOTHING
        for agent, content in to.items():
            view = messages.get(agent)
            if view is None or (left and agent in left):
                raise self.stranger(agent, effect)
            if content is text:  # one message for all who see the same
                view.append(message)
            elif isinstance(content, str):
                if content != text:
                    text = content
                    message = make_message(clean(content))
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
        agent. Raises Misfit for a stranger, ValueError for anything that is neither a choice nor a
        tool."""
        if not to:
            raise Misfit("asks nobody: Ask({})")
        if isinstance(legal, tuple) and not tools:  # the common case, checked once
            # the same tuple again: not even a look-up, which reads all its strings
            if legal is not self._legal:
                self._legal = legal
                self._offer = closed_choice(legal)
            return dict.fromkeys(to, self._offer)
        if legal is None and tools is None:  # free text, asked of all
            return dict.fromkeys(to, _OPEN)
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
        if max_said is None or len(action) <= max_said:
            return asked.said(action)
        if (exact := asked.exact(action)) is not None:
            return exact
        text, _, cut = bounded(action, (), max_said)
        parsed_action = parse_action(text, asked.legal, asked.tools)
        return replace(parsed_action, cut=cut) if cut else parsed_action
    if not isinstance(action, Action):
        raise ActionError(f"an action is a str or an Action; got {type(action).__name__}")
    if not isinstance(action.text, str) or not isinstance(action.tool_calls, (tuple, list)):
        raise ActionError(f"an Action has a text and a tuple of tool calls; got {action!r}")
    is_plain = action.parsed == action.text and not action.tool_calls and not action.cut
    if is_plain and (exact := asked.exact(action.text)) is not None:
        return exact  # as bots write it, and as an environment has read it already
    # cut first: parsing is linear in the text, and a text may be as long as its author likes
    text, calls, cut = bounded(action.text, action.tool_calls, max_said)
    text = clean(text)
    parsed = action.parsed
    if asked.legal is None:
        parsed = None
    # a behaviour may claim any `parsed`; the scenario sees only what was offered
    elif parsed is None or parsed not in asked.legal:
        parsed = parse_legal(text, asked.legal)
    same = text == action.text and parsed == action.parsed and calls is action.tool_calls
    return action if same and not cut else Action(text, calls, parsed, action.cut + cut)


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
