"""A talk of two agents in which any side may be played by a model, and the means to play it with
scripted models."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gem_ma import (
    Action,
    Ask,
    Episode,
    Limits,
    Malformed,
    Message,
    Plan,
    Reply,
    Request,
    Reward,
    Scenario,
    Seat,
    Tool,
    ToolCall,
    play,
)
from gem_ma.engines.base import Policy
from gem_ma.engines.small.scripted import Scripted

WAYS = ("settled", "refused", "gave_up")
LEAVE = Tool(
    "leave",
    "Ends the talk.",
    {
        "type": "object",
        "properties": {"why": {"type": "string", "enum": list(WAYS)}},
        "required": ["why"],
    },
)
WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
LOOK = Tool("look_up", "Looks a word up.", WORD)
PART = "You are a guest. Your ticket is T-48151 and you want a window seat."
GREETING = "Good day, what can I do for you?"


class SmallTalk(Scenario):
    """A guest speaks to a clerk, who may look words up; the guest ends by a tool."""

    agents = ("clerk", "guest")
    id = "small_talk"
    version = 1
    max_steps = 60

    def __init__(self, turns: int = 6, tools: bool = True) -> None:
        self.turns, self.tools = turns, tools

    def play(self, rng: random.Random, task: Any) -> Any:
        to_guest: Any = (Message.system(PART), Message(GREETING, "clerk"))
        to_clerk: Any = (Message.system("You are a clerk."),)
        for _ in range(self.turns):
            said = (yield Ask({"guest": to_guest}, tools=(LEAVE,) if self.tools else None))["guest"]
            if any(
                isinstance(call, ToolCall)
                and call.name == LEAVE.name
                and call.arguments.get("why") in WAYS
                for call in said.tool_calls
            ):
                yield Reward({"guest": 1.0, "clerk": 1.0}, why="left")
                return
            if said.tool_calls or not said.text:
                to_guest = Message.tool("call_0", f"Error: {_why(said)}")
                continue
            to_clerk = (*to_clerk, Message(said.text, "guest"))
            for _ in range(self.turns):
                did = (yield Ask({"clerk": to_clerk}, tools=(LOOK,)))["clerk"]
                if not did.tool_calls:
                    break
                to_clerk = tuple(
                    Message.tool(getattr(call, "id", ""), _looked(call)) for call in did.tool_calls
                )
            to_clerk, to_guest = (), Message(did.text, "clerk")


def _why(said: Action) -> str:
    call = said.tool_calls[0] if said.tool_calls else None
    return (
        call.reason
        if isinstance(call, Malformed)
        else "nothing said"
        if call is None
        else "unknown call"
    )


def _looked(call: ToolCall | Malformed) -> str:
    return (
        f"Error: {call.reason}"
        if isinstance(call, Malformed)
        else f"{call.name} {call.arguments.get('word')}: found"
    )


class Model:
    """A scripted model that remembers what it was asked. A line may be a function of the
    request; the last one is said for ever."""

    def __init__(self, *lines: str | Callable[[Request], str]) -> None:
        self.lines, self.requests = lines, list[Request]()

    def __call__(self, request: Request) -> str:
        line = self.lines[min(len(self.requests), len(self.lines) - 1)]
        self.requests.append(request)
        return line if isinstance(line, str) else line(request)

    @property
    def last(self) -> str:
        """The last prompt as text, with senders."""
        return told(self.requests[-1])


def told(request: Request) -> str:
    return "\n".join(f"{message.sender}: {message.text}" for message in request.messages)


def bye(why: str = "settled", before: str = "") -> str:
    """What a model with tools writes to end the talk."""
    return before + f'<tool_call>{{"name": "leave", "arguments": {{"why": "{why}"}}}}</tool_call>'


def talk(
    seats: Mapping[str, Seat],
    models: Mapping[str, Callable[[Request], str | Reply]],
    scenario: Scenario | None = None,
    seed: int = 0,
    task: str = "train/0",
    limits: Limits = Limits(),  # noqa: B008  (frozen)
) -> Episode:
    """One play; each model is a policy of its name."""
    policies = {
        name: Policy(name, Scripted.of(model, policy=name)) for name, model in models.items()
    }
    plan = Plan(scenario or SmallTalk(), dict(seats), task, seed, limits=limits)
    return asyncio.run(play(plan, policies))


def guest(
    behaviour: str,
    model: Model,
    clerk: Sequence[str] = ("Certainly.",),
    judge: Model | None = None,
    seed: int = 0,
    **options: Any,
) -> Episode:
    """A guest under test; the clerk says these lines."""
    seat = Seat(
        behaviour,
        "guest",
        {"end_tool": "leave"} | options,
        policies={"judge": "judge"} if judge is not None else {},
    )
    models: dict[str, Any] = {"guest": model, "clerk": Model(*clerk)} | (
        {"judge": judge} if judge is not None else {}
    )
    return talk({"guest": seat, "clerk": Seat("direct", "clerk")}, models, seed=seed)


def clerk(
    behaviour: str,
    model: Model,
    lines: Sequence[str] = ("I want a seat.", "Thanks.", bye()),
    **options: Any,
) -> Episode:
    """A clerk under test; the guest says these lines."""
    return talk(
        {"guest": Seat("direct", "guest"), "clerk": Seat(behaviour, "clerk", options)},
        {"guest": Model(*lines), "clerk": model},
    )


def acts(episode: Episode, agent: str) -> list[Action]:
    return [turn.action for turn in episode.turns if turn.agent == agent]


def texts(episode: Episode, agent: str) -> list[str]:
    return [action.text for action in acts(episode, agent)]


def calls(episode: Episode, agent: str) -> list[tuple[str, dict[str, Any]] | str]:
    """(name, arguments) of each call, or the reason of a malformed one."""
    made = [call for action in acts(episode, agent) for call in action.tool_calls]
    return [
        call.reason if isinstance(call, Malformed) else (call.name, call.arguments) for call in made
    ]
