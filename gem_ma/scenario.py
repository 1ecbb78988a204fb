"""The kernel: a scenario is a sync generator of five effects, and `Game` drives one play of it.

A scenario knows the rules and nothing else: no model, no I/O, no clock, no randomness but its `rng`. It is a pure function of (seed, task,
actions, call results), so a fork is a replay. `Game` knows transcripts, turns and the ledger; it does not know who plays.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_ma.errors import ActionError, CallError, ReplayError, ScenarioError
from gem_ma.parsing import clean, parse_action, parse_legal
from gem_ma.types import RESERVED_SENDERS, Action, CallResult, Entry, Episode, Message, Reply, Tool, Turn, spoken

MAX_EFFECTS = 10_000  # between two Asks; more is an endless loop of the author
Shown = str | Message | Sequence[str | Message]


@dataclass(slots=True)
class Ask:
    """These agents must act now; one key = turn-based, several = simultaneous. Gives `{agent: Action}`.

    `legal` (strings) and `tools` are one value for all asked agents, or `{agent: value}`.
    """

    to: Mapping[str, Shown]
    legal: Sequence[str] | Mapping[str, Sequence[str] | None] | None = None
    tools: Sequence[Tool] | Mapping[str, Sequence[Tool]] | None = None


@dataclass(slots=True)
class Tell:
    """A visible message without asking. Nothing but Ask and Tell ever reaches an agent's view."""

    to: Mapping[str, Shown]


@dataclass(slots=True)
class Reward:
    """An entry in the ledger for each agent named; it may pay agents that did not act."""

    values: Mapping[str, float]
    why: str = ""


@dataclass(slots=True)
class Leave:
    """This agent's part is over: it is never asked, told or paid again."""

    agent: str


class Call:
    """Slow or non-deterministic outside work. The driver runs it and records its JSON result, so a replay never repeats it.

    Never touch `rng` inside `function`: a replay feeds the result and would not repeat the draw.
    """

    __slots__ = ("args", "function", "kwargs")

    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs

    def run(self) -> Any:
        return self.function(*self.args, **self.kwargs)


Effect = Ask | Tell | Reward | Leave | Call
Play = Generator[Effect, Any, None]


class Scenario:
    """The rules of one multi-agent task. Subclass it and write `play`; everything below it is optional and checked by the kit.

    Optional method: `deal(rng, task) -> {agent: secret}`, the one place where hidden information is drawn.
    """

    agents: tuple[str, ...] = ()
    version: int = 1
    zero_sum: bool = False  # every episode's rewards sum to 0
    cooperative: bool = False  # all agents are always paid alike
    chance: bool = True  # `play` draws from rng
    ends_within: int | None = None  # decision points after which it has ended under any player
    baselines: Mapping[str, float] = {}  # name of a trivial policy -> its score
    id: str = ""  # set by the registry

    def play(self, rng: random.Random, task: Any) -> Play:
        """Yields effects; local variables are the state of the play."""
        raise NotImplementedError(f"{type(self).__name__} needs a play(self, rng, task)")

    def tasks(self, split: str) -> Sequence[Any]:
        """The tasks of a split; an episode's task is `<split>/<index>`. The default is one task, None, in every split."""
        return (None,)

    def success(self, episode: Episode) -> bool | None:
        """Whether the play reached its goal, a pure function of the record; None where the scenario has no such notion."""
        return None

    @property
    def summary(self) -> str:
        """First line of the class's docstring."""
        return (type(self).__doc__ or "").strip().split("\n", 1)[0]


@dataclass(frozen=True, slots=True)
class Pending:
    """What an agent is asked for at the open decision point."""

    legal: tuple[str, ...] | None = None
    tools: tuple[Tool, ...] = ()


@dataclass(slots=True)
class _Script:
    """What a replay feeds instead of the world: recorded call results, and reseedings by step."""

    calls: list[CallResult] = field(default_factory=list)
    forks: dict[int, list[str]] = field(default_factory=dict)


class Game:
    """One play of a scenario.

    >>> from gem_ma.registry import make
    >>> game = Game(make("kuhn_poker"), seed=7)
    >>> while game.pending:                       # {agent: Pending(legal, tools)}; empty when the play is over
    ...     game.send({agent: asked.legal[0] for agent, asked in game.pending.items()})
    >>> sum(entry.value for entry in game.ledger)
    0.0

    Raises ScenarioError where the author's code breaks a rule, ActionError where the caller does.
    """

    def __init__(self, scenario: Scenario, task: Any = None, seed: int = 0, *, defer_calls: bool = False, script: _Script | None = None) -> None:
        """`defer_calls=True`: a Call stops the play in `waiting` until `answer` is called (the async driver); else it runs inline."""
        if not scenario.agents or len(set(scenario.agents)) != len(scenario.agents) or RESERVED_SENDERS & set(scenario.agents):
            raise ScenarioError(f"{_name(scenario)}: agents must be distinct names other than {sorted(RESERVED_SENDERS)}; got {scenario.agents!r}")
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
        self._defer, self._script = defer_calls, script or _Script()
        self._views: dict[str, list[Message]] = {agent: [] for agent in scenario.agents}
        self._seen = dict.fromkeys(scenario.agents, 0)
        self._reseed()
        self._play = scenario.play(self.rng, task)
        self._advance(None)

    # -- looking ------------------------------------------------------------------------------------------------------------

    def view(self, agent: str) -> tuple[Message, ...]:
        """The agent's transcript: everything it was shown and everything it did, append-only."""
        return tuple(self._views[agent])

    def new(self, agent: str) -> tuple[Message, ...]:
        """What the agent was shown since its own last turn."""
        return tuple(self._views[agent][self._seen[agent] :])

    # -- acting -------------------------------------------------------------------------------------------------------------

    def send(self, actions: Mapping[str, Action | str], replies: Mapping[str, Sequence[Reply]] | None = None) -> None:
        """Commits one action for each pending agent and plays on to the next decision point. A str is parsed by the one parser."""
        if self.closed or self.waiting:
            raise ActionError(f"{_name(self.scenario)}: the play is {'waiting for a call' if self.waiting else 'over'}; nobody is asked")
        pending = self.pending
        if actions.keys() != pending.keys():
            missing, extra = [a for a in pending if a not in actions], [a for a in actions if a not in pending]
            raise ActionError(f"{_name(self.scenario)}, step {self.step}: asked are {', '.join(pending)}; missing {missing}, not asked {extra}")
        said = {agent: read(actions[agent], asked) for agent, asked in pending.items()}
        for agent, action in said.items():
            view, asked = self._views[agent], pending[agent]
            given = tuple(replies[agent]) if replies and agent in replies else ()
            self.turns.append(Turn(self.step, agent, tuple(view[self._seen[agent] :]), asked.legal, asked.tools, action, given))
            view.append(spoken(agent, action))
            self._seen[agent] = len(view)
        self.step += 1
        self._reseed()
        self._advance(said)

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
            except Exception as error:
                raise self._fault("raised while it was being closed (a `finally:` may not yield, `except:` may not swallow GeneratorExit)") from error

    def fork(self, step: int | None = None, seed: str | None = None) -> Game:
        """A second play that shares nothing with this one, replayed up to decision point `step` (default: now).

        With `seed`, the random generator is reseeded there, so that groups differ afterwards; the pair is kept in `forks`.
        """
        at = self.step if step is None else step
        if not 0 <= at <= self.step:
            raise ActionError(f"{_name(self.scenario)}: cannot fork at step {at}; {self.step} decision points are committed")
        forks = [pair for pair in self.forks if pair[0] <= at]
        calls = [call for call in self.calls if call.step < at]
        game = replay(self.scenario, self.task, self.seed, [t for t in self.turns if t.step < at], calls, forks, defer_calls=self._defer)
        if seed is not None:
            game.rng.seed(seed)
            game.forks.append((at, seed))
        return game

    # -- the loop over effects ----------------------------------------------------------------------------------------------

    def _advance(self, answer: Any, failed: str | None = None) -> None:
        self.pending = {}
        play, effects = self._play, 0
        while True:
            try:
                effect = play.send(answer) if failed is None else play.throw(CallError(failed))
            except StopIteration:
                if not self.step:
                    raise self._fault("ended without asking anybody") from None
                self.over = self.closed = True
                return
            except ScenarioError:
                self.closed = True
                raise
            except Exception as error:
                raise self._fault(f"raised {type(error).__name__}: {error}") from error
            answer, failed = None, None
            effects += 1
            if effects > MAX_EFFECTS:
                raise self._fault(f"yielded more than {MAX_EFFECTS} effects without an Ask")
            if isinstance(effect, Ask):
                self._show(effect.to, "Ask")
                self.pending = self._asked(effect)
                return
            if isinstance(effect, Tell):
                self._show(effect.to, "Tell")
            elif isinstance(effect, Reward):
                self._pay(effect)
            elif isinstance(effect, Leave):
                self._leave(effect.agent)
            elif isinstance(effect, Call):
                recorded = self._script.calls.pop(0) if self._script.calls and self._script.calls[0].step == self.step - 1 else None
                if recorded is not None:
                    self.calls.append(recorded)
                    answer, failed = json.loads(json.dumps(recorded.value)), recorded.error
                elif self._defer:
                    self.waiting = effect
                    return
                else:
                    answer, failed = self._run(effect)
            else:
                raise self._fault(f"yielded {effect!r}; the effects are Ask, Tell, Reward, Leave and Call")

    def _run(self, call: Call) -> tuple[Any, str | None]:
        try:
            value, error = call.run(), None
        except Exception as raised:
            value, error = None, f"{type(raised).__name__}: {raised}"
        return self._record(value, error), error

    def _record(self, value: Any, error: str | None) -> Any:
        try:
            value = json.loads(json.dumps(value, allow_nan=False))  # what a replay will feed: the scenario must never see more
        except (TypeError, ValueError, RecursionError) as problem:
            raise self._fault(f"got a call result that is not a JSON value ({problem})") from problem
        self.calls.append(CallResult(self.step - 1, value, error))
        return value

    def _show(self, to: Mapping[str, Shown], effect: str) -> None:
        for agent, shown in to.items():
            view = self._known(agent, effect)
            for part in (shown,) if isinstance(shown, (str, Message)) else shown:
                if isinstance(part, str):
                    view.append(Message(clean(part)))
                elif isinstance(part, Message) and isinstance(part.content, (str, tuple)):
                    view.append(part)
                else:
                    raise self._fault(f"shows {part!r} to {agent}; what is shown is a str, a Message or a tuple of these")

    def _known(self, agent: str, effect: str) -> list[Message]:
        view = self._views.get(agent)
        if view is None:
            raise self._fault(f"{effect} names {agent!r}; its agents are {', '.join(self.scenario.agents)}")
        if agent in self.left:
            raise self._fault(f"{effect} names {agent!r}, which has left")
        return view

    def _asked(self, ask: Ask) -> dict[str, Pending]:
        if not ask.to:
            raise self._fault("asks nobody: Ask({})")
        if not isinstance(ask.legal, Mapping) and not isinstance(ask.tools, Mapping):
            one = Pending(self._legal(ask.legal), tuple(ask.tools or ()))
            return dict.fromkeys(ask.to, one)
        legal = ask.legal if isinstance(ask.legal, Mapping) else dict.fromkeys(ask.to, ask.legal)
        tools = ask.tools if isinstance(ask.tools, Mapping) else dict.fromkeys(ask.to, ask.tools)
        return {agent: Pending(self._legal(legal.get(agent)), tuple(tools.get(agent) or ())) for agent in ask.to}

    def _legal(self, legal: Sequence[str] | None) -> tuple[str, ...] | None:
        if legal is None:
            return None
        choices = tuple(legal)
        if not choices or isinstance(legal, str) or not all(isinstance(choice, str) for choice in choices):
            raise self._fault(f"legal must be a non-empty tuple of strings; got {legal!r}")
        return choices

    def _pay(self, reward: Reward) -> None:
        for agent, value in reward.values.items():
            self._known(agent, "Reward")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise self._fault(f"pays {agent} {value!r}; a reward is a finite number")
            self.ledger.append(Entry(self.step - 1, agent, float(value), reward.why))

    def _leave(self, agent: str) -> None:
        self._known(agent, "Leave")
        if not self.step:
            raise self._fault(f"lets {agent} leave before the first Ask")
        self.left.add(agent)

    def _reseed(self) -> None:
        for seed in self._script.forks.get(self.step, ()):
            self.rng.seed(seed)
            self.forks.append((self.step, seed))

    def _fault(self, what: str) -> ScenarioError:
        self.closed, self.pending = True, {}
        return ScenarioError(f"{_name(self.scenario)} (seed {self.seed}, step {self.step}): {what}")


def read(action: Action | str, asked: Pending) -> Action:
    """The action as the scenario gets it: text parsed, lone surrogates replaced, `parsed` one of the legal strings or None."""
    if isinstance(action, str):
        if asked.legal is not None and action in asked.legal:
            return Action(action, (), action)
        return parse_action(action, asked.legal, asked.tools)
    if not isinstance(action, Action):
        raise ActionError(f"an action is a str or an Action; got {type(action).__name__}")
    text, parsed = clean(action.text), action.parsed
    if asked.legal is None:
        parsed = None
    elif parsed is None or parsed not in asked.legal:
        parsed = parse_legal(text, asked.legal)
    return action if text == action.text and parsed == action.parsed else Action(text, action.tool_calls, parsed)


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
    """The play that these recorded turns describe, as a live Game. Raises ReplayError at the first Ask that differs from the record."""
    script = _Script(list(calls))
    for step, reseed in forks:
        script.forks.setdefault(step, []).append(reseed)
    game = Game(scenario, task, seed, defer_calls=defer_calls, script=script)
    at = 0
    while at < len(turns):
        step = turns[at].step
        group = [turn for turn in turns[at : at + len(scenario.agents)] if turn.step == step]
        asked = {turn.agent: (turn.legal, turn.observed) for turn in group}
        if step != game.step or {a: (p.legal, game.new(a)) for a, p in game.pending.items()} != asked:
            where = f"{_name(scenario)} (seed {seed}): the replay differs from the record at step {step}"
            raise ReplayError(f"{where}; is the scenario pure, and its version the same?")
        game.send({turn.agent: turn.action for turn in group}, {turn.agent: turn.replies for turn in group})
        at += len(group)
    return game


def _name(scenario: Scenario) -> str:
    return scenario.id or type(scenario).__name__
