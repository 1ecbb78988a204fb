"""The referee of a service talk: two agents by turns, tools answered at the desk, and one typed log
of all that happened.

Only these end a talk: the user's tool `end_conversation`, an assistant's tool that ends it, and
the bounds of `Rules`. No word in a text does. The user never sees a call of the assistant nor
its result, and the other way round where the user has tools of its own. Everything that judges a
talk (graders, the monitor, the ledger, rewards) reads `Desk.events` and the store, and nothing
else.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

from gem_ma.scenarios.service_desk.desk.log import (
    ASSISTANT,
    EMPTY,
    END,
    NO_TOOLS,
    NOT_FIRST,
    ONE_CALL,
    REASONS,
    USER,
    USER_EMPTY,
    Desk,
    Outcome,
)

from gem_ma import Action, Ask, Malformed, Message, Tell, ToolCall
from gem_ma.kernel.scenario import Effect


def talk(desk: Desk) -> Generator[Effect, Any, Outcome]:
    """Plays a talk to its end. The user speaks first, to what its briefing shows."""
    style, rules = desk.style, desk.rules
    to_user, to_assistant = style.brief_user, style.brief_assistant
    # a reason given together with a text holds once the assistant has answered that text
    leaving = ""
    while True:
        # Counted before it acts, so that a user with no action left is not asked.
        if desk.acted[USER] == rules.max_user_actions:
            return (yield from _close(desk, "limit", USER, to_user))
        act = style.read_user(
            (yield Ask({USER: to_user}, style.user_legal, style.user_tools))[USER]
        )
        desk.acted[USER] += 1
        leaving, to_user = _user_acts(desk, act)
        yield from desk.pay()
        if desk.cut:
            return (yield from _close(desk, desk.cut, USER, to_user))
        # Without a text there is nothing to answer: the talk is over at once.
        if leaving and not act.text.strip():
            return (yield from _close(desk, "user", USER, (), leaving))
        if to_user:
            continue
        # What it wrote beside its end is still said, and the assistant may act on it.
        to_assistant = (*to_assistant, Message(style.show_assistant(act.text), USER))
        # From here on: the assistant's own actions, results included, until it says something.
        until, answer = desk.acted[ASSISTANT] + rules.grace, ""
        while not answer:
            # A user that leaves waits for `grace` actions at most, so that a promised write can
            # still be made.
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
            # "" while a call or a fault is shown to it; a text goes to the user.
            answer = "" if to_assistant else did.text
        to_user = (Message(style.show_user(answer), ASSISTANT),)
        if leaving:
            return (yield from _close(desk, "user", USER, to_user, leaving))


def _close(
    desk: Desk,
    by: str,
    listener: str,
    last: tuple[Message, ...],
    reason: str = "",
) -> Generator[Effect, Any, Outcome]:
    # The last words of a talk reach who is left, though nobody answers them.
    if last:
        yield Tell({listener: last})
    outcome = desk.end(
        by, {"user": USER, "transfer": ASSISTANT, "fault": listener}.get(by, ""), reason
    )
    yield from desk.pay()
    return outcome


def _speaks(desk: Desk, agent: str, text: str, empty: str) -> tuple[Message, ...]:
    """What is shown to an agent that spoke, before it acts again: () where the other heard it."""
    if text.strip():
        desk.see("said", agent, text=text)
        return ()
    desk.see("bounced", agent, text=empty)
    return (Message(empty),)


def _bounce(
    desk: Desk, agent: str, calls: Iterable[ToolCall | Malformed], fault: str
) -> tuple[Message, ...]:
    """What is shown of calls that were not run."""
    desk.see("bounced", agent, text=fault)
    # Each call gets an answer, since chat formats want one per call.
    return tuple(desk.style.show_result(call, fault) for call in calls)


def _user_acts(desk: Desk, did: Action) -> tuple[str, tuple[Message, ...]]:
    """The reason with which the user ends the talk, if it does, and what is shown to it before
    it acts again; () after a message."""
    calls, show = did.tool_calls, desk.style.show_result
    if not calls:
        return "", _speaks(desk, USER, did.text, USER_EMPTY)
    # Under rules of single calls the first one decides; a second one is a fault below.
    call = calls[0]
    # Where all calls are run, an end that stands alone still ends the talk.
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
            # Said first, since the end comes after it.
            if did.text.strip():
                desk.see("said", USER, text=did.text, reason=reason)
            return str(reason), ()
        fault = f"Error: reason must be one of {', '.join(REASONS)}"
    elif desk.user_store is not None and not did.text.strip():
        desk.answered += 1
        result = desk.user_store.call(call.name, call.arguments)
        desk.see("called", USER, call=call, result=result)
        return "", (show(call, result),)
    else:
        # Without tools of its own the call is unknown; with them the text beside it is the fault.
        fault = f"Unknown action {call.name}" if desk.user_store is None else ONE_CALL
    return "", _bounce(desk, USER, calls, fault)


def _user_calls(desk: Desk, did: Action) -> tuple[Message, ...]:
    """What is shown to a user whose calls are all answered; of a tool that it does not have, the
    answer is an error."""
    if desk.rules.lone_calls and did.text.strip():
        return _bounce(desk, USER, did.tool_calls, ONE_CALL)
    answers = list[Message]()
    desk.answered += 1
    for call in did.tool_calls:
        if isinstance(call, Malformed):
            answers += _bounce(desk, USER, [call], f"Error: malformed: {call.reason}")
        else:
            result = (
                NO_TOOLS
                if desk.user_store is None
                else desk.user_store.call(call.name, call.arguments)
            )
            desk.see("called", USER, call=call, result=result)
            answers.append(desk.style.show_result(call, result))
    return tuple(answers)


def _assistant_acts(desk: Desk, did: Action) -> tuple[tuple[Message, ...], bool]:
    """What is shown to the assistant before it acts again, () after a message; and whether its
    call ended the talk."""
    calls, show = did.tool_calls, desk.style.show_result
    if not calls:
        return _speaks(desk, ASSISTANT, did.text, EMPTY), False
    rules = desk.rules
    # Nothing is run: else an agent could smuggle a write in beside a text.
    if rules.lone_calls and ((len(calls) > 1 and not rules.all_calls) or did.text.strip()):
        return _bounce(desk, ASSISTANT, calls, ONE_CALL), False
    answers, over = list[Message](), False
    # What is told about the rest of the turn, beside the result of the call that is run.
    beside = (
        ""
        if rules.all_calls
        else NOT_FIRST
        if len(calls) > 1
        else ONE_CALL
        if did.text.strip()
        else ""
    )
    # One step for all calls of an action, as in the benchmark.
    desk.answered += 1
    if rules.all_calls and did.text.strip():
        desk.see("aside", ASSISTANT, text=did.text)
    for place, call in enumerate(calls):
        if place and not rules.all_calls:
            answers.append(show(call, NOT_FIRST))
        elif isinstance(call, Malformed):
            answers += _bounce(desk, ASSISTANT, [call], f"Error: malformed: {call.reason}")
        else:
            event = desk.see(
                "called",
                ASSISTANT,
                text=beside,
                call=call,
                result=desk.store.call(call.name, call.arguments),
            )
            # A transfer that failed ends nothing, unless the benchmark's rules say that it does.
            over = over or (
                desk.store.terminates(call.name) and (rules.failed_end_counts or not event.failed)
            )
            answers.append(show(call, event.result))
    return tuple(answers), over


def retell(desk: Desk, acts: Iterable[Mapping[str, Action]]) -> Desk:
    """Plays recorded actions on a fresh desk, as far as they go; the log and the state of the
    store are then those of the record."""
    running = talk(desk)
    left = iter(acts)
    try:
        effect = next(running)
        while True:
            # A generator of `Tell` wants None; only `Ask` wants the next recorded action.
            effect = running.send(next(left) if isinstance(effect, Ask) else None)
    except StopIteration:  # the talk is over, or the record ends before it
        running.close()
    return desk
