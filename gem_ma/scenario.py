"""The kernel: `Game` drives one play of a scenario, a sync generator of the effects of
`gem_ma.effects`, which are named here too.

`Game` knows transcripts, turns and the ledger; it does not know who plays. A fork is a replay.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import isfinite
from typing import Any

from gem_ma.effects import Ask, Call, Effect, Leave, Play, Reward, Scenario, Shown, Tell
from gem_ma.errors import ActionError, CallError, ReplayError, ScenarioError
from gem_ma.parsing import clean, parse_action, parse_legal
from gem_ma.parsing.bounds import bounded
from gem_ma.types import (
    MAX_SAID,
    RESERVED_SENDERS,
    Action,
    CallResult,
    Entry,
    Image,
    Message,
    Reply,
    Tool,
    ToolCall,
    Transcript,
    Turn,
    spoken,
)

__all__ = [
    "Ask",
    "Call",
    "Effect",
    "Game",
    "Leave",
    "Pending",
    "Play",
    "Reward",
    "Scenario",
    "Shown",
    "Tell",
    "read",
    "replay",
]

MAX_EFFECTS = 10_000  # between two Asks; more is an endless loop of the author


@dataclass(frozen=True, slots=True)
class Pending:
    """What an agent is asked for at the open decision point."""

    legal: tuple[str, ...] | None = None
    tools: tuple[Tool, ...] = ()


@dataclass(slots=True)
class _Script:
    """What a replay feeds instead of the world: recorded call results, and reseedings by step,
    for the first `steps` decision points."""

    steps: int
    calls: deque[CallResult]
    forks: dict[int, list[str]] = field(default_factory=dict)


class Game:
    """One play of a scenario.

    >>> from gem_ma.registry import make
    >>> game = Game(make("kuhn_poker"), seed=7)
    >>> while game.pending:                       # {agent: Pending(legal, tools)}; empty when the play is over
    ...     game.send({agent: asked.legal[0] for agent, asked in game.pending.items()})
    >>> sum(entry.value for entry in game.ledger)
    0.0

    Raises ScenarioError where the author's code breaks a rule, ActionError where the caller
    does.
    """

    def __init__(
        self,
        scenario: Scenario,
        task: Any = None,
        seed: int = 0,
        *,
        defer_calls: bool = False,
        script: _Script | None = None,
    ) -> None:
        """`defer_calls=True`: a Call stops the play in `waiting` until `answer` is called (the
        async driver); else it runs inline."""
        self.scenario, self.task, self.seed = scenario, task, seed
        self.rng = random.Random(seed)
        self.turns: list[Turn] = []
        self.ledger: list[Entry] = []
        self.calls: list[CallResult] = []
        self.forks: list[tuple[int, str]] = []
        self.left: set[str] = set()
        self.pending: dict[str, Pending] = {}
        self.step = 0  # index of the open decision point = number of committed ones
        self.over = False  # the scenario ended by itself
        self.closed = False  # nothing more can be sent: over, cut or failed
        self.waiting: Call | None = None
        # of a saying; a record was cut when it was made
        self.max_said: int | None = MAX_SAID if script is None else None
        self._defer, self._script, self._effects = defer_calls, script, 0
        self._play: Any = None
        agents = scenario.agents
        if problem := _no_agents(tuple(agents) if isinstance(agents, (tuple, list)) else None):
            raise self._fault(f"{problem}; got {agents!r}")
        self._views: dict[str, list[Message]] = {agent: [] for agent in agents}
        self._seen = dict.fromkeys(agents, 0)
        try:
            self._play = scenario.play(self.rng, task)
        except Exception as error:
            raise self._fault(f"play() raised {type(error).__name__}: {error}") from error
        if not isinstance(self._play, Generator):
            self._play = None
            raise self._fault("play() yields nothing: it must be a generator of effects")
        self._advance(None)

    # -- looking ----------------------------------------------------------------------------------

    def view(self, agent: str) -> tuple[Message, ...]:
        """The agent's transcript: everything it was shown and everything it did, append-only."""
        return tuple(self._transcript(agent))

    def transcript(self, agent: str) -> Transcript:
        """The same, not copied: it stays what it is now, however the play goes on."""
        return Transcript(self._transcript(agent))

    def new(self, agent: str) -> tuple[Message, ...]:
        """What the agent was shown since its own last turn."""
        return tuple(self._transcript(agent)[self._seen[agent] :])

    def _transcript(self, agent: str) -> list[Message]:
        try:
            return self._views[agent]
        except KeyError:
            raise ActionError(
                f"agent {agent!r} is not in {_name(self.scenario)}; its agents are"
                f" {', '.join(self._views)}"
            ) from None

    # -- acting -----------------------------------------------------------------------------------

    def send(
        self,
        actions: Mapping[str, Action | str],
        replies: Mapping[str, Sequence[Reply]] | None = None,
    ) -> None:
        """Commits one action for each pending agent and plays on to the next decision point. A str
        is parsed by the one parser.

        A refused action (ActionError) changes nothing: the same decision point stays open.
        """
        if self.closed or self.waiting:
            raise ActionError(
                f"{_name(self.scenario)}: the play is"
                f" {'waiting for a call' if self.waiting else 'over'}; nobody is asked"
            )
        pending, said, handed = self.pending, {}, {}
        if not isinstance(actions, (dict, Mapping)) or actions.keys() != pending.keys():
            raise self._mismatch(actions)
        for agent, asked in pending.items():
            try:
                said[agent] = action = read(actions[agent], asked, self.max_said)
            except ActionError as error:
                raise ActionError(
                    f"{_name(self.scenario)}, step {self.step}, agent {agent!r}: {error}"
                ) from error
            handed[agent] = _copied(action) if action.tool_calls else action
        step, seen, views, turns = self.step, self._seen, self._views, self.turns
        for agent, action in said.items():
            view, asked = views[agent], pending[agent]
            given = tuple(replies.get(agent, ())) if replies else ()
            turns.append(
                Turn(
                    step, agent, tuple(view[seen[agent] :]), asked.legal, asked.tools, action, given
                )
            )
            view.append(spoken(agent, action))
            seen[agent] = len(view)
        self.step = step + 1
        self._effects = 0
        self._advance(handed)

    def _mismatch(self, actions: Any) -> ActionError:
        where = f"{_name(self.scenario)}, step {self.step}: asked are {', '.join(self.pending)}"
        if not isinstance(actions, Mapping):
            return ActionError(
                f"{where}; actions are {{agent: action}}, got {type(actions).__name__}"
            )
        missing, extra = (
            [a for a in self.pending if a not in actions],
            [a for a in actions if a not in self.pending],
        )
        return ActionError(f"{where}; missing {missing}, not asked {extra}")

    def answer(self, value: Any = None, error: str | None = None) -> None:
        """Hands the result (or the error) of the waiting Call to the scenario."""
        if self.waiting is None:
            raise ActionError(f"{_name(self.scenario)}: no call is waiting for an answer")
        self.waiting = None
        self._advance(self._record(value, error), failed=error)

    def close(self) -> None:
        """Ends the play from outside; the scenario's `finally:` blocks run. May be called twice."""
        if not self.closed:
            self.closed, self.pending, self.waiting = True, {}, None
            try:
                self._play.close()
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                how = "a `finally:` may not yield, `except:` may not swallow GeneratorExit"
                raise self._fault(
                    f"raised {type(error).__name__}: {error} while it was being closed ({how})"
                ) from error

    def fork(self, step: int | None = None, seed: str | None = None) -> Game:
        """A second play that shares nothing with this one, replayed up to decision point `step`
        (default: now).

        With `seed`, the random generator is reseeded there, so that groups differ afterwards;
        the pair is kept in `forks`.
        """
        at = self.step if step is None else step
        if not 0 <= at <= self.step:
            raise ActionError(
                f"{_name(self.scenario)}: cannot fork at step {at}; {self.step} decision points are"
                " committed"
            )
        forks = [pair for pair in self.forks if pair[0] <= at]
        if seed is not None:
            forks.append((at, str(seed)))
        calls = [call for call in self.calls if call.step < at]
        game = replay(
            self.scenario,
            self.task,
            self.seed,
            [turn for turn in self.turns if turn.step < at],
            calls,
            forks,
            defer_calls=self._defer,
        )
        game.max_said = self.max_said
        return game

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"{_name(self.scenario)}: a play runs a generator and cannot be copied or pickled; use"
            " fork(), or replay its actions"
        )

    # -- the loop over effects --------------------------------------------------------------------

    def _advance(self, answer: Any, failed: str | None = None) -> None:
        """Runs the scenario's code to its next Ask, to a Call that somebody else must run, or to
        its end."""
        self.pending = {}
        play = self._play
        while True:
            try:
                effect = play.send(answer) if failed is None else play.throw(CallError(failed))
            except StopIteration:
                if not self.step:
                    raise self._fault("ended without asking anybody") from None
                self.over = self.closed = True
                self._arrive()
                return
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                # SystemExit too: the author's code ends its own play, never the run
                raise self._fault(f"raised {type(error).__name__}: {error}") from error
            answer, failed = None, None
            self._effects += 1
            if self._effects > MAX_EFFECTS:
                raise self._fault(f"yielded more than {MAX_EFFECTS} effects without an Ask")
            try:
                if isinstance(effect, Ask):
                    self._show(effect.to, "Ask")
                    self.pending = self._asked(effect)
                    self._arrive()
                    return
                if isinstance(effect, Tell):
                    self._show(effect.to, "Tell")
                elif isinstance(effect, Reward):
                    self._pay(effect)
                elif isinstance(effect, Leave):
                    self._leave(effect.agent)
                elif not isinstance(effect, Call):
                    raise self._fault(
                        f"yielded {effect!r}; the effects are Ask, Tell, Reward, Leave and Call"
                    )
            except (TypeError, ValueError, AttributeError, KeyError) as error:
                raise self._fault(
                    f"yielded a malformed {type(effect).__name__}: {error}"
                ) from error
            if isinstance(effect, Call):
                recorded = self._recorded()
                if recorded is not None:
                    self.calls.append(recorded)
                    answer, failed = deepcopy(recorded.value), recorded.error
                elif self._defer or (self._script is not None and self.step <= self._script.steps):
                    # a record that was cut inside this call
                    self.waiting = effect
                    return
                else:
                    value, failed = effect.run()
                    answer = self._record(value, failed)

    def _arrive(self) -> None:
        """The play stands at decision point `step`: here the reseedings of a fork take effect."""
        if self._script is None:
            return
        if self._script.calls and self._script.calls[0].step < self.step:
            raise self._differs("it makes fewer calls")
        for seed in self._script.forks.pop(self.step, ()):
            self.rng.seed(seed)
            self.forks.append((self.step, seed))

    def _recorded(self) -> CallResult | None:
        """What the record says that this call gave; a replay never repeats a call."""
        if self._script is None:
            return None
        if self._script.calls and self._script.calls[0].step == self.step - 1:
            return self._script.calls.popleft()
        if self.step < self._script.steps:
            raise self._differs("it makes a call that the record does not hold")
        return None

    def _record(self, value: Any, error: str | None) -> Any:
        try:
            # the scenario gets what a replay will feed, and never the record's own object
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as problem:
            raise self._fault(
                f"got a call result that is not a JSON value ({problem})"
            ) from problem
        self.calls.append(CallResult(self.step - 1, json.loads(text), error))
        return json.loads(text)

    def _show(self, to: Mapping[str, Shown], effect: str) -> None:
        if not isinstance(to, (dict, Mapping)):  # dict first: the abstract class alone is slow
            raise self._fault(f"{effect} takes {{agent: what it is shown}}; got {to!r}")
        views, left, text, message = self._views, self.left, None, None
        for agent, shown in to.items():
            view = views.get(agent)
            if view is None or agent in left:
                raise self._stranger(agent, effect)
            if not isinstance(shown, str):
                view.extend(self._messages(agent, shown))
                continue
            if message is None or shown != text:  # one message for all who are shown the same
                text, message = shown, Message(clean(shown))
            view.append(message)

    def _messages(self, agent: str, shown: Any) -> list[Message]:
        messages = []
        for part in (
            (shown,)
            if isinstance(shown, Message)
            else shown
            if isinstance(shown, (tuple, list))
            else (None,)
        ):
            if isinstance(part, str):
                part = Message(part)
            content = part.content if isinstance(part, Message) else None
            if isinstance(content, str):
                content = clean(content)
            elif isinstance(content, tuple) and all(
                isinstance(piece, (str, Image)) for piece in content
            ):
                content = tuple(
                    clean(piece) if isinstance(piece, str) else piece for piece in content
                )
            else:
                raise self._fault(
                    f"shows {shown!r} to {agent}; what is shown is a str, a Message (text, or a"
                    " tuple of text and Image) or a tuple of these"
                )
            messages.append(part if content == part.content else replace(part, content=content))
        return messages

    def _stranger(self, agent: Any, effect: str) -> ScenarioError:
        if agent in self.left:
            return self._fault(f"{effect} names {agent!r}, which has left")
        return self._fault(f"{effect} names {agent!r}; its agents are {', '.join(self._views)}")

    def _asked(self, ask: Ask) -> dict[str, Pending]:
        if not ask.to:
            raise self._fault("asks nobody: Ask({})")
        if isinstance(ask.legal, tuple) and not ask.tools:
            return dict.fromkeys(ask.to, _closed(ask.legal))
        for given in (ask.legal, ask.tools):
            for agent in given if isinstance(given, Mapping) else ():
                if agent not in self._views:
                    raise self._stranger(agent, "Ask(legal=, tools=)")
        legal = ask.legal if isinstance(ask.legal, Mapping) else dict.fromkeys(ask.to, ask.legal)
        tools = ask.tools if isinstance(ask.tools, Mapping) else dict.fromkeys(ask.to, ask.tools)
        return {
            agent: Pending(_legal(legal.get(agent)), _tools(tools.get(agent))) for agent in ask.to
        }

    def _pay(self, reward: Reward) -> None:
        if not isinstance(reward.values, (dict, Mapping)):
            raise self._fault(f"Reward takes {{agent: number}}; got {reward.values!r}")
        step, why = (
            self.step - 1,
            (clean(reward.why) if isinstance(reward.why, str) else str(reward.why)),
        )
        views, left, ledger = self._views, self.left, self.ledger
        for agent, value in reward.values.items():
            if agent not in views or agent in left:
                raise self._stranger(agent, "Reward")
            ledger.append(Entry(step, agent, _amount(value), why))

    def _leave(self, agent: str) -> None:
        if agent not in self._views or agent in self.left:
            raise self._stranger(agent, "Leave")
        if not self.step:
            raise self._fault(f"lets {agent} leave before the first Ask")
        self.left.add(agent)

    def _differs(self, how: str) -> ReplayError:
        self._shut()
        where = (
            f"{_name(self.scenario)} (seed {self.seed}): the replay differs from the record at step"
            f" {self.step}: {how}"
        )
        return ReplayError(f"{where}; is the scenario pure, and its version the same?")

    def _fault(self, what: str) -> ScenarioError:
        self._shut()
        return ScenarioError(
            clean(f"{_name(self.scenario)} (seed {self.seed}, step {self.step}): {what}")
        )

    def _shut(self) -> None:
        if not self.closed:
            self.closed, self.pending, self.waiting = True, {}, None
            with suppress(Exception):  # the first fault is the one to report
                if self._play is not None:
                    self._play.close()


@lru_cache(maxsize=512)
def _no_agents(agents: tuple[str, ...] | None) -> str | None:
    if not agents or not all(isinstance(agent, str) and agent for agent in agents):
        return "agents must be a tuple of names"
    if len(set(agents)) != len(agents) or RESERVED_SENDERS & set(agents):
        return f"agents must be distinct names other than {sorted(RESERVED_SENDERS)}"
    return None


@lru_cache(maxsize=512)
def _closed(legal: tuple[str, ...]) -> Pending:
    return Pending(_legal(legal))


def _legal(legal: Any) -> tuple[str, ...] | None:
    if legal is None:
        return None
    # the order of a set is no function of the seed
    choices = () if isinstance(legal, (str, set, frozenset)) else tuple(legal)
    if not choices or not all(
        isinstance(choice, str) and choice == clean(choice) for choice in choices
    ):
        raise ValueError(f"legal must be a non-empty tuple of strings; got {legal!r}")
    return choices


def _tools(tools: Any) -> tuple[Tool, ...]:
    offered = tuple(tools or ())
    if not all(isinstance(tool, Tool) for tool in offered):
        raise ValueError(f"tools must be a tuple of Tool; got {tools!r}")
    return offered


def _amount(value: Any) -> float:
    if (
        type(value) is not float
        and type(value) is not int
        and isinstance(value, (bool, str, bytes))
    ):
        raise ValueError(f"a reward is a finite number; got {value!r}")
    try:
        amount = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"a reward is a finite number; got {value!r}") from error
    if not isfinite(amount):
        raise ValueError(f"a reward is a finite number; got {value!r}")
    return amount


def _copied(action: Action) -> Action:
    """The scenario's own copy: it may edit the arguments of a call, the record may not change."""
    calls = tuple(
        ToolCall(c.id, c.name, deepcopy(c.arguments), c.repaired) if isinstance(c, ToolCall) else c
        for c in action.tool_calls
    )
    return Action(action.text, calls, action.parsed, action.cut)


@lru_cache(maxsize=512)
def _exact(choice: str) -> Action:
    return Action(choice, (), choice)


def read(action: Action | str, asked: Pending, max_said: int | None = MAX_SAID) -> Action:
    """The action as the scenario gets it: cut at `max_said` (None = never), lone surrogates
    replaced, text parsed; `parsed` is legal or None."""
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
    same = (
        not cut and text == action.text and parsed == action.parsed and calls is action.tool_calls
    )
    return action if same else Action(text, calls, parsed, action.cut + cut)


def replay(
    scenario: Scenario,
    task: Any,
    seed: int,
    turns: Sequence[Turn],
    calls: Sequence[CallResult] = (),
    forks: Sequence[tuple[int, str]] = (),
    *,
    defer_calls: bool = False,
) -> Game:
    """The play that these recorded turns describe, as a live Game. Raises ReplayError at the first
    Ask that differs from the record.

    No recorded call runs again. Where the record was cut inside a call, the Game stands there in
    `waiting`.
    """
    script = _Script(turns[-1].step + 1 if turns else 0, deque(calls))
    for step, reseed in forks:
        script.forks.setdefault(step, []).append(reseed)
    game = Game(scenario, task, seed, defer_calls=defer_calls, script=script)
    at = 0
    while at < len(turns):
        step = turns[at].step
        group = [turn for turn in turns[at : at + len(scenario.agents)] if turn.step == step]
        if step != game.step or [turn.agent for turn in group] != list(game.pending):
            raise game._differs(
                f"asked are {', '.join(game.pending) or 'none'}, on record"
                f" {', '.join(turn.agent for turn in group)}"
            )
        for turn in group:
            asked = game.pending[turn.agent]
            if (
                asked.legal != turn.legal
                or game.new(turn.agent) != turn.observed
                or [t.name for t in asked.tools] != [t.name for t in turn.tools]
            ):
                raise game._differs(f"{turn.agent} is shown or offered something else")
        game.send(
            {turn.agent: turn.action for turn in group},
            {turn.agent: turn.replies for turn in group},
        )
        at += len(group)
    return game


def _name(scenario: Scenario) -> str:
    return scenario.id or type(scenario).__name__
