"""The referee of a service talk: two agents by turns, tools answered at the desk, and one typed log
of all that happened.

Only these end a talk: the user's tool `end_conversation`, an assistant's tool that ends it, and
the bounds of `Rules`. No word in a text does. The user never sees a call of the assistant nor
its result, and the other way round where the user has tools of its own. Everything that judges a
talk (graders, the monitor, the ledger, rewards) reads `Desk.events` and the store, and nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from gem_ma.scenarios.service.desk.overlay import Overlay
from gem_ma.scenarios.service.desk.task import Task

from gem_ma import Action, Ask, Malformed, Message, Reward, Tell, Tool, ToolCall
from gem_ma.parsing import clean
from gem_ma.scenario import Effect

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
        return self.kind == "called" and self.result.startswith(
            ("Error: ", "Unknown action ", "Tool '")
        )


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

    `said`: the assistant's texts that reached the user; `shown`: what the assistant was shown
    (policy, the user's texts, results).
    """

    by: str
    reason: str = ""
    said: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
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
        event = Event(sum(self.acted.values()) - 1, kind, agent, **facts)
        self.events.append(event)
        self.errors += event.failed or (kind == "bounced" and event.text not in FAULTS)
        return event

    def _show(self, event: Event) -> None:
        for watcher in self.watchers:
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
        steps = sum(self.acted.values()) + self.answered
        return "limit" if self.rules.max_steps is not None and steps >= self.rules.max_steps else ""

    def pay(self) -> Generator[Effect, Any, None]:
        """What is due, as entries of the ledger."""
        due, self.due = self.due, []
        for agent, value, why in due:
            yield Reward({agent: value}, why=why)

    def end(self, by: str, agent: str = "", reason: str = "") -> Outcome:
        """Closes the talk. Watchers see the end once `outcome` stands."""
        event = self._log("ended", agent, reason=reason or by)
        said = tuple(
            event.text for event in self.events if event.kind == "said" and event.agent == ASSISTANT
        )
        shown = [message.text for message in self.style.brief_assistant]
        for event in self.events:
            if event.kind == "said" and event.agent == USER:
                shown.append(event.text)
            elif event.kind == "called" and event.agent == ASSISTANT:
                shown.append(event.result)
        self.outcome = Outcome(by, reason, said, tuple(shown), tuple(self.events))
        self._show(event)
        return self.outcome


def talk(desk: Desk) -> Generator[Effect, Any, Outcome]:
    """Plays a talk to its end. The user speaks first, to what its briefing shows."""
    style, rules = desk.style, desk.rules
    to_user, to_assistant = style.brief_user, style.brief_assistant
    # a reason given together with a text holds once the assistant has answered that text
    leaving = ""
    while True:
        if desk.acted[USER] == rules.max_user_actions:
            return (yield from _close(desk, "limit", USER, to_user))
        said = style.read_user(
            (yield Ask({USER: to_user}, style.user_legal, style.user_tools))[USER]
        )
        desk.acted[USER] += 1
        leaving, to_user = _user_acts(desk, said)
        yield from desk.pay()
        if desk.cut:
            return (yield from _close(desk, desk.cut, USER, to_user))
        if leaving and not said.text.strip():
            return (yield from _close(desk, "user", USER, (), leaving))
        if to_user:
            continue
        to_assistant = (*to_assistant, Message(style.show_assistant(said.text), USER))
        until, answer = desk.acted[ASSISTANT] + rules.grace, ""
        while not answer:
            if desk.acted[ASSISTANT] == rules.max_actions or (
                leaving and desk.acted[ASSISTANT] == until
            ):
                return (
                    yield from _close(
                        desk, "user" if leaving else "limit", ASSISTANT, to_assistant, leaving
                    )
                )
            did = style.read_assistant(
                (yield Ask({ASSISTANT: to_assistant}, style.legal, style.tools))[ASSISTANT]
            )
            desk.acted[ASSISTANT] += 1
            to_assistant, over = _assistant_acts(desk, did)
            yield from desk.pay()
            if over or desk.cut:
                return (
                    yield from _close(
                        desk, "transfer" if over else desk.cut, ASSISTANT, to_assistant
                    )
                )
            answer = "" if to_assistant else did.text
        to_user = (Message(style.show_user(answer), ASSISTANT),)
        if leaving:
            return (yield from _close(desk, "user", USER, to_user, leaving))


def _close(
    desk: Desk, by: str, told: str, last: tuple[Message, ...], reason: str = ""
) -> Generator[Effect, Any, Outcome]:
    if last:
        yield Tell({told: last})
    outcome = desk.end(by, {"user": USER, "transfer": ASSISTANT, "fault": told}.get(by, ""), reason)
    yield from desk.pay()
    return outcome


def _user_acts(desk: Desk, did: Action) -> tuple[str, tuple[Message, ...]]:
    """The reason with which the user ends the talk, if it does, and what is shown to it before
    it acts again; () after a message."""
    calls, show = did.tool_calls, desk.style.show_result
    if not calls:
        if did.text.strip():
            desk.see("said", USER, text=did.text)
            return "", ()
        desk.see("bounced", USER, text=USER_EMPTY)
        return "", (Message(USER_EMPTY),)
    call = calls[0]
    if desk.rules.all_calls and not (
        len(calls) == 1 and isinstance(call, ToolCall) and call.name == END.name
    ):
        return "", _user_calls(desk, did)
    if len(calls) > 1:
        fault = ONE_CALL
    elif isinstance(call, Malformed):
        fault = f"Error: malformed: {call.reason}"
    elif call.name == END.name:
        reason = call.arguments.get("reason") if isinstance(call.arguments, dict) else None
        if reason in REASONS:  # a tuple: what cannot be hashed is none of them
            if did.text.strip():
                desk.see("said", USER, text=did.text, reason=reason)
            return str(reason), ()
        fault = f"Error: reason must be one of {', '.join(REASONS)}"
    elif desk.user_store is not None and not did.text.strip():
        desk.answered += 1
        event = desk.see(
            "called", USER, call=call, result=desk.user_store.call(call.name, call.arguments)
        )
        return "", (show(call, event.result),)
    else:
        fault = f"Unknown action {call.name}" if desk.user_store is None else ONE_CALL
    desk.see("bounced", USER, text=fault)
    return "", tuple(show(call, fault) for call in calls)


def _user_calls(desk: Desk, did: Action) -> tuple[Message, ...]:
    """What is shown to a user whose calls are all answered; of a tool that it does not have, the
    answer is an error."""
    if desk.rules.lone_calls and did.text.strip():
        desk.see("bounced", USER, text=ONE_CALL)
        return tuple(desk.style.show_result(call, ONE_CALL) for call in did.tool_calls)
    shown = []
    desk.answered += 1
    for call in did.tool_calls:
        if isinstance(call, Malformed):
            fault = f"Error: malformed: {call.reason}"
            desk.see("bounced", USER, text=fault)
            shown.append(desk.style.show_result(call, fault))
        else:
            result = (
                NO_TOOLS
                if desk.user_store is None
                else desk.user_store.call(call.name, call.arguments)
            )
            shown.append(
                desk.style.show_result(
                    call, desk.see("called", USER, call=call, result=result).result
                )
            )
    return tuple(shown)


def _assistant_acts(desk: Desk, did: Action) -> tuple[tuple[Message, ...], bool]:
    """What is shown to the assistant before it acts again, () after a message; and whether its
    call ended the talk."""
    calls, show = did.tool_calls, desk.style.show_result
    if not calls:
        if did.text.strip():
            desk.see("said", ASSISTANT, text=did.text)
            return (), False
        desk.see("bounced", ASSISTANT, text=EMPTY)
        return (Message(EMPTY),), False
    rules = desk.rules
    if rules.lone_calls and ((len(calls) > 1 and not rules.all_calls) or did.text.strip()):
        desk.see("bounced", ASSISTANT, text=ONE_CALL)
        return tuple(show(call, ONE_CALL) for call in calls), False
    shown, over = list[Message](), False
    beside = (
        ""
        if rules.all_calls
        else NOT_FIRST
        if len(calls) > 1
        else ONE_CALL
        if did.text.strip()
        else ""
    )
    desk.answered += 1
    if rules.all_calls and did.text.strip():
        desk.see("aside", ASSISTANT, text=did.text)
    for place, call in enumerate(calls):
        if place and not rules.all_calls:
            shown.append(show(call, NOT_FIRST))
        elif isinstance(call, Malformed):
            fault = f"Error: malformed: {call.reason}"
            desk.see("bounced", ASSISTANT, text=fault)
            shown.append(show(call, fault))
        else:
            event = desk.see(
                "called",
                ASSISTANT,
                text=beside,
                call=call,
                result=desk.store.call(call.name, call.arguments),
            )
            over = over or (
                desk.store.terminates(call.name) and (rules.failed_end_counts or not event.failed)
            )
            shown.append(show(call, event.result))
    return tuple(shown), over


def retell(desk: Desk, acts: Iterable[Mapping[str, Action]]) -> Desk:
    """Plays recorded actions on a fresh desk, as far as they go; the log and the state of the
    store are then those of the record."""
    running = talk(desk)
    left = iter(acts)
    try:
        effect = next(running)
        while True:
            effect = running.send(next(left) if isinstance(effect, Ask) else None)
    except StopIteration:  # the talk is over, or the record ends before it
        running.close()
    return desk
