"""A talk in progress: its rules, how it looks to both sides, and the typed log of what happened.
Knows nothing of whose turn it is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from gem_ma.scenarios.service_desk.desk.overlay import Overlay
from gem_ma.scenarios.service_desk.desk.task import Task

from gem_ma import Action, Malformed, Message, Reward, Tool, ToolCall
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.scenario import Effect

# A closed list: a typed reason is what a grader can go by, and what a user cannot phrase wrongly.
REASONS = ("settled", "refused", "transferred", "gave_up", "out_of_scope")
END = Tool(
    "end_conversation",
    "Ends the conversation. settled: you got what you came for; refused: it cannot be done and you"
    " accept that; transferred: you were handed over; gave_up: the assistant does not help;"
    " out_of_scope: your situation does not say how to go on.",
    {
        "type": "object",
        "properties": {"reason": {"type": "string", "enum": list(REASONS)}},
        "required": ["reason"],
    },
)
ONE_CALL = (
    "Error: one_call: a turn is one tool call and no text, or a text and no tool call; nothing"
    " was run"
)
NOT_FIRST = "Error: one_call: only the first tool call of a turn is run"
EMPTY = "Error: empty: write a message to the customer or call one tool"
USER_EMPTY = "Error: empty: write a message, or call end_conversation"
NO_TOOLS = "Error: User tools not available"
# Under `faults_end` these end the talk; any other bounced action counts as an error.
FAULTS = (ONE_CALL, EMPTY, USER_EMPTY)
ASSISTANT, USER = "assistant", "user"


class Store(Protocol):
    """What a domain's tools work on."""

    overlay: Overlay

    def call(self, tool: str, kwargs: Any) -> str:
        """What the tool answers; an error begins with `Error: ` or names an unknown tool. Never
        raises."""

    def mutates(self, tool: str) -> bool: ...

    def terminates(self, tool: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `kind`:

    `said` - `text` reached the other side; `aside` - `text` stood beside calls that were run,
    and reached nobody; `called` - `call` was run and gave `result`, `text` says if something
    beside it was not; `bounced` - an action that was none, `text` says why; `ended` - the talk
    is over, by `agent` ("" = a bound), for `reason`. `step` counts the actions of both agents
    before it.
    """

    step: int
    kind: str
    agent: str
    text: str = ""
    call: ToolCall | None = None
    result: str = ""
    reason: str = ""

    @property
    def failed(self) -> bool:
        """Whether a call gave an error."""
        return self.kind == "called" and failed(self.result)


def failed(result: str) -> bool:
    """Whether what a call gave is an error, or says that such a tool is missing, in the words of
    each desk."""
    return result.startswith(("Error: ", "Unknown action ", "Tool '"))


def said(events: Iterable[Event], agent: str) -> tuple[str, ...]:
    """The texts of an agent that reached the other side."""
    return tuple(event.text for event in events if event.kind == "said" and event.agent == agent)


class Pay(NamedTuple):
    """A reward that an event earned an agent. `why` is `<term>` or `<term>: <detail>`."""

    agent: str
    value: float
    why: str


class Watcher(Protocol):
    """Sees each event once, after the store has changed."""

    def see(self, event: Event, desk: Desk) -> Iterable[Pay]: ...


@dataclass(frozen=True, slots=True)
class Rules:
    """The bounds of a talk and what a turn may be."""

    max_actions: int = 30
    max_user_actions: int = 40
    # a call must stand alone; else the first of a turn is run, and text beside it reaches nobody
    lone_calls: bool = True
    # a tool that ends the talk ends it even where it answered an error
    failed_end_counts: bool = False
    grace: int = 3  # assistant actions between a text that comes with end_conversation and the end
    # all calls of a turn are answered, one after the other; text beside them is an aside, unless
    # calls are lone
    all_calls: bool = False
    # after which the talk is cut; an action is a step, and so is the answer to its calls
    max_steps: int | None = None
    # failed and unreadable calls of both agents, after which the talk is cut
    max_errors: int | None = None
    # an empty action, or one that is against `lone_calls`, ends the talk as that agent's fault
    faults_end: bool = False


def _as_is(action: Action) -> Action:
    return action


def _result(call: ToolCall | Malformed, text: str) -> Message:
    return Message.tool(call.id if isinstance(call, ToolCall) else "", clean(text))


@dataclass(frozen=True, slots=True)
class Style:
    """How a talk looks to the two agents: briefings, offered tools, and both directions between
    their words and the desk's."""

    brief_assistant: tuple[Message, ...]
    brief_user: tuple[Message, ...]
    tools: tuple[Tool, ...]
    user_tools: tuple[Tool, ...] = (END,)
    read_assistant: Callable[[Action], Action] = _as_is
    read_user: Callable[[Action], Action] = _as_is
    show_assistant: Callable[[str], str] = str  # a text of the user
    show_user: Callable[[str], str] = str  # a text of the assistant
    show_result: Callable[[ToolCall | Malformed, str], Message] = _result
    # all that the assistant can say, where its choice is closed
    legal: tuple[str, ...] | None = None
    user_legal: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a talk ended. `by`: `user`, `transfer`, `limit`, or `fault`; `reason` is what the user
    gave, or what was at fault.

    `texts`: the assistant's texts that reached the user; `sources`: what the assistant was shown
    (policy, the user's texts, results).
    """

    by: str
    reason: str = ""
    texts: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()


@dataclass(slots=True)
class Desk:
    """One talk in progress. `user_store` holds the user's own tools, where the domain gives it
    any."""

    task: Task
    store: Store
    style: Style
    rules: Rules = Rules()
    user_store: Store | None = None
    watchers: Sequence[Watcher] = ()
    events: list[Event] = field(default_factory=list)
    acted: dict[str, int] = field(default_factory=lambda: {ASSISTANT: 0, USER: 0})
    errors: int = 0
    answered: int = 0  # actions whose calls were run
    outcome: Outcome | None = None
    due: list[Pay] = field(default_factory=list)

    def see(self, kind: str, agent: str, **facts: Any) -> Event:
        """Logs an event and shows it to the watchers."""
        event = self._log(kind, agent, **facts)
        self._show(event)
        return event

    def _log(self, kind: str, agent: str, **facts: Any) -> Event:
        # -1, since the action that brought the event has been counted already.
        event = Event(sum(self.acted.values()) - 1, kind, agent, **facts)
        self.events.append(event)
        self.errors += event.failed or (kind == "bounced" and event.text not in FAULTS)
        return event

    def _show(self, event: Event) -> None:
        for watcher in self.watchers:
            # Watchers in their order: those who are asked by others stand before them.
            self.due += watcher.see(event, self)

    @property
    def cut(self) -> str:
        """How the rules end the talk after the last action: by its `fault`, by a `limit`, ""
        where they do not."""
        if (
            self.rules.faults_end
            and self.events
            and self.events[-1].kind == "bounced"
            and self.events[-1].text in FAULTS
        ):
            return "fault"
        if self.rules.max_errors is not None and self.errors >= self.rules.max_errors:
            return "fault"
        # Each answer to calls is a step of its own, as tau2-bench counts.
        steps = sum(self.acted.values()) + self.answered
        return "limit" if self.rules.max_steps is not None and steps >= self.rules.max_steps else ""

    def pay(self) -> Generator[Effect, Any, None]:
        """What is due, as entries of the ledger."""
        # Emptied before the first yield: nothing is paid twice if the talk is closed in between.
        due, self.due = self.due, []
        for agent, value, why in due:
            yield Reward({agent: value}, why=why)

    def end(self, by: str, agent: str = "", reason: str = "") -> Outcome:
        """Closes the talk. Watchers see the end once `outcome` stands."""
        # Logged first and shown last: watchers of the end ask for `outcome`, which holds the log.
        event = self._log("ended", agent, reason=reason or by)
        # What the assistant could know from: its briefing, the user's texts, results. Asides are
        # its own.
        sources = [message.text for message in self.style.brief_assistant]
        for event in self.events:
            if event.kind == "said" and event.agent == USER:
                sources.append(event.text)
            elif event.kind == "called" and event.agent == ASSISTANT:
                sources.append(event.result)
        self.outcome = Outcome(
            by, reason, said(self.events, ASSISTANT), tuple(sources), tuple(self.events)
        )
        self._show(event)
        return self.outcome
