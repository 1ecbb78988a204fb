"""The kernel: `Game` drives one play of a scenario, a sync generator of the effects of
`gem_ma.kernel.effects`, which are named here too.

`Game` knows transcripts, turns and the ledger; it does not know who plays. A fork is a replay.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import groupby
from types import GeneratorType
from typing import Any

from gem_ma.kernel.effects import (
    Ask,
    Call,
    Content,
    Effect,
    Leave,
    Misfit,
    Pending,
    Play,
    Reward,
    Scenario,
    Tell,
    agents_problem,
    amount,
    twice,
)
from gem_ma.kernel.episode import CallResult, End, Entry
from gem_ma.kernel.errors import ActionError, CallError, ReplayError, ScenarioError
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.types import MAX_SAID, Action, Message, Reply, Turn, maker
from gem_ma.kernel.views import Transcript, Views, mismatch, private_copy, read

# The script of a replay: what a recorded play feeds a second one, and where the two differ.
# It knows records alone; `gem_ma.kernel.scenario` plays by it. No recorded call ever runs again.


@dataclass(slots=True)
class Script:
    """The recorded results of calls, and the reseedings by step, of the first `steps` decision
    points."""

    steps: int
    calls: deque[CallResult]
    forks: dict[int, list[str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        turns: Sequence[Turn],
        calls: Sequence[CallResult],
        forks: Sequence[tuple[int, str]],
    ) -> Script:
        """The script out of the parts of a record."""
        script = cls(turns[-1].step + 1 if turns else 0, deque(calls))
        for step, seed in forks:
            # several seeds at one step: the record was forked again before anybody acted
            script.forks.setdefault(step, []).append(seed)
        return script

    def lags(self, step: int) -> bool:
        """Whether a recorded call of an earlier step was never made."""
        return bool(self.calls) and self.calls[0].step < step

    def result(self, step: int) -> CallResult | None:
        """The recorded result of the call that is made before decision point `step`; None where
        the record holds none."""
        # a result bears the step that was committed last when its call was made
        if self.calls and self.calls[0].step == step - 1:
            return self.calls.popleft()
        return None


def steps_of(turns: Sequence[Turn]) -> Iterator[tuple[int, list[Turn]]]:
    """The recorded decision points, each with its turns."""
    for step, group in groupby(turns, lambda turn: turn.step):
        yield step, list(group)


def difference(
    group: Sequence[Turn],
    pending: Mapping[str, Pending],
    new: Callable[[str], tuple[Message, ...]],
) -> str:
    """How the open decision point differs from the recorded one, in words; "" where it does not.

    `new` gives what an agent was shown since its last turn.
    """
    agents = [turn.agent for turn in group]
    # in order: it is the order in which turns of one step are recorded
    if agents != list(pending):
        return f"asked are {', '.join(pending) or 'none'}, on record {', '.join(agents)}"
    for turn in group:
        asked = pending[turn.agent]
        # of a tool the name alone: a better description makes no other game
        offered = [tool.name for tool in asked.tools] == [tool.name for tool in turn.tools]
        if not offered or asked.legal != turn.legal or new(turn.agent) != turn.observed:
            return f"{turn.agent} is shown or offered something else"
    return ""


# the effects stand here too: this is the module that authors import from
__all__ = ["Ask", "Call", "Content", "Effect", "Leave", "Play", "Reward", "Scenario", "Tell"]
__all__ += ["Game", "replay"]

make_turn = maker(Turn)
make_entry = maker(Entry)
MAX_EFFECTS = 10_000  # between two Asks; more is an endless loop of the author


class Game:
    """One play of a scenario.

    >>> from gem_ma.registry import make
    >>> game = Game(make("kuhn_poker"), seed=7)
    >>> while game.pending:  # {agent: Pending(legal, tools)}; empty when the play is over
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
        script: Script | None = None,
    ) -> None:
        """`defer_calls=True`: a Call stops the play in `waiting` until `answer` is called (the
        async driver); else it runs inline."""
        self.scenario = scenario
        self.task = task
        self.seed = seed
        # the only source of chance of a play: fork and replay reseed this very object
        self.rng = random.Random(seed)
        self.turns: list[Turn] = []
        self.ledger: list[Entry] = []
        self.calls: list[CallResult] = []
        self.forks: list[tuple[int, str]] = []
        self.pending: dict[str, Pending] = {}
        self.step = 0  # index of the open decision point = number of committed ones
        self.over = False  # the scenario ended by itself
        self.cut: dict[str, int] = {}  # agent whose part its world cut -> step at which
        self.closed = False  # nothing more can be sent: over, cut or failed
        self.waiting: Call | None = None
        # characters of a saying; what is replayed was cut when it was recorded
        self.max_said: int | None = MAX_SAID if script is None else None
        self._defer = defer_calls
        self._script = script
        self._effects = 0
        self._play: Any = None
        agents = scenario.agents
        names = tuple(agents) if isinstance(agents, (tuple, list)) else None
        if problem := agents_problem(names):
            raise self._fault(f"{problem}; got {agents!r}")
        self._views = Views(agents)
        try:
            self._play = scenario.play(self.rng, task)
        except Exception as error:
            raise self._fault(f"play() raised {type(error).__name__}: {error}") from error
        # a `play` without `yield` has run to its end already, and nobody was asked
        if not isinstance(self._play, (GeneratorType, Generator)):
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

    def since(self, agent: str, place: int) -> list[Message]:
        """The agent's transcript from this place on."""
        return self._transcript(agent)[place:]

    def lengths(self, agents: Iterable[str]) -> dict[str, int]:
        """How many messages each of these transcripts has."""
        messages = self._views.messages
        return {agent: len(messages[agent]) for agent in agents}

    def new(self, agent: str) -> tuple[Message, ...]:
        """What the agent was shown since its own last turn."""
        self._transcript(agent)
        return self._views.new(agent)

    @property
    def left(self) -> Set[str]:
        """The agents whose part is over."""
        return self._views.left

    @property
    def own_end(self) -> End:
        """How it ends where no driver cuts it: truncated where the last to go were cut."""
        is_empty = len(self.left) == len(self._views.messages)
        return End.TRUNCATED if is_empty and self.step in self.cut.values() else End.TERMINATED

    def _transcript(self, agent: str) -> list[Message]:
        try:
            return self._views.messages[agent]
        except KeyError:
            raise ActionError(
                f"agent {agent!r} is not in {_name(self.scenario)}; its agents are"
                f" {', '.join(self._views.messages)}"
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
        pending = self.pending
        if not isinstance(actions, (dict, Mapping)) or actions.keys() != pending.keys():
            what = mismatch(actions, pending)
            raise ActionError(f"{_name(self.scenario)}, step {self.step}: {what}")
        # All are read before any is committed: one bad action may not leave half a step behind.
        read_actions = {}
        has_calls = False
        for agent, asked in pending.items():
            try:
                action = read(actions[agent], asked, self.max_said)
            except ActionError as error:
                raise ActionError(
                    f"{_name(self.scenario)}, step {self.step}, agent {agent!r}: {error}"
                ) from error
            read_actions[agent] = action
            if action.tool_calls:
                has_calls = True
        handed = read_actions
        if has_calls:
            handed = {agent: private_copy(action) for agent, action in read_actions.items()}
        step = self.step
        turns = self.turns
        say = self._views.say
        for agent, action in read_actions.items():
            asked = pending[agent]
            model_calls = tuple(replies.get(agent, ())) if replies else ()
            observed = say(agent, action)
            turns.append(
                make_turn(step, agent, observed, asked.legal, asked.tools, action, model_calls)
            )
        self.step = step + 1
        self._effects = 0
        self._advance(handed)

    def answer(self, value: Any = None, error: str | None = None) -> None:
        """Hands the result (or the error) of the waiting Call to the scenario."""
        if self.waiting is None:
            raise ActionError(f"{_name(self.scenario)}: no call is waiting for an answer")
        self.waiting = None
        self._advance(self._record(value, error), failed=error)

    def close(self) -> None:
        """Ends the play from outside; the scenario's `finally:` blocks run. May be called twice."""
        if not self.closed:
            self.closed = True
            self.pending = {}
            self.waiting = None
            try:
                # GeneratorExit is raised at the open `yield`, so the scenario can free what it
                # holds
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
        until = self.step if step is None else step
        if not 0 <= until <= self.step:
            raise ActionError(
                f"{_name(self.scenario)}: cannot fork at step {until}; {self.step} decision points"
                " are committed"
            )
        forks = [pair for pair in self.forks if pair[0] <= until]
        if seed is not None:
            forks.append((until, str(seed)))
        turns = [turn for turn in self.turns if turn.step < until]
        calls = [call for call in self.calls if call.step < until]
        game = replay(
            self.scenario, self.task, self.seed, turns, calls, forks, defer_calls=self._defer
        )
        game.max_said = self.max_said
        return game

    def __reduce_ex__(self, protocol: Any) -> Any:
        # PettingZoo and others copy environments in silence; this one says why it cannot
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
                if self._script is not None:
                    self._arrive(self._script)
                return
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                # SystemExit too: the author's code ends its own play, never the run
                raise self._fault(f"raised {type(error).__name__}: {error}") from error
            answer = None
            failed = None
            self._effects += 1
            if self._effects > MAX_EFFECTS:
                raise self._fault(f"yielded more than {MAX_EFFECTS} effects without an Ask")
            if isinstance(effect, Call):
                outcome = self._result(effect)
                if outcome is None:
                    self.waiting = effect
                    return
                answer, failed = outcome
            elif self._apply(effect):
                return

    def _apply(self, effect: Any) -> bool:
        """Does what an effect says; True for an Ask, at which the play stands."""
        try:
            if isinstance(effect, Ask):
                self._views.show(effect.to, "Ask")
                self.pending = self._views.offers(effect.to, effect.legal, effect.tools)
                if self._script is not None:
                    self._arrive(self._script)
                return True
            if isinstance(effect, Reward):
                self._pay(effect)
            elif isinstance(effect, Tell):
                self._views.show(effect.to, "Tell")
            elif isinstance(effect, Leave):
                if effect.agent not in self._views.messages or effect.agent in self.left:
                    raise self._views.stranger(effect.agent, "Leave")
                if not self.step:
                    raise Misfit(f"lets {effect.agent} leave before the first Ask")
                self._views.left.add(effect.agent)
                if effect.cut:
                    self.cut[effect.agent] = self.step
            else:
                raise Misfit(
                    f"yielded {effect!r}; the effects are Ask, Tell, Reward, Leave and Call"
                )
        except Misfit as error:
            raise self._fault(str(error)) from None
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            # fields of an effect that hold anything at all: its dataclass checks nothing
            raise self._fault(f"yielded a malformed {type(effect).__name__}: {error}") from error
        return False

    def _pay(self, reward: Reward) -> None:
        if not isinstance(reward.values, (dict, Mapping)):
            raise Misfit(f"Reward takes {{agent: number}}; got {reward.values!r}")
        # what is paid belongs to the decision point that was committed last
        step = self.step - 1
        why = clean(reward.why) if isinstance(reward.why, str) else str(reward.why)
        views = self._views
        ledger = self.ledger
        messages = views.messages
        left = views.left
        for agent, value in reward.values.items():
            if agent not in messages or agent in left:
                raise views.stranger(agent, "Reward")
            if reward.original is None:
                ledger.append(make_entry(step, agent, amount(value), why))
            else:
                original = amount(reward.original.get(agent, 0.0))
                ledger.append(make_entry(step, agent, amount(value), why, original))

    # -- calls, and the script of a replay --------------------------------------------------------

    def _result(self, call: Call) -> tuple[Any, str | None] | None:
        """(value, error) of a call, from the record or by running it; None where somebody else
        must run it."""
        script = self._script
        if script is not None:
            if recorded := script.result(self.step):
                self.calls.append(recorded)
                return deepcopy(recorded.value), recorded.error
            if self.step < script.steps:
                raise self._differs("it makes a call that the record does not hold")
            if self.step == script.steps:  # the record was cut inside this call
                return None
        if self._defer:
            return None
        value, error = call.run()
        return self._record(value, error), error

    def _record(self, value: Any, error: str | None) -> Any:
        try:
            stored, handed = twice(value)
        except (TypeError, ValueError, RecursionError) as problem:
            what = f"got a call result that is not a JSON value ({problem})"
            raise self._fault(what) from problem
        self.calls.append(CallResult(self.step - 1, stored, error))
        return handed

    def _arrive(self, script: Script) -> None:
        """The play stands at decision point `step`: here the reseedings of a fork take effect."""
        if script.lags(self.step):
            raise self._differs("it makes fewer calls")
        for seed in script.forks.pop(self.step, ()):
            # a text: seeds of forks never meet those of episodes, which are integers
            self.rng.seed(seed)
            self.forks.append((self.step, seed))

    # -- faults -----------------------------------------------------------------------------------

    def _differs(self, how: str) -> ReplayError:
        self._shut()
        return ReplayError(
            f"{_name(self.scenario)} (seed {self.seed}): the replay differs from the record at step"
            f" {self.step}: {how}; is the scenario pure, and its version the same?"
        )

    def _fault(self, what: str) -> ScenarioError:
        self._shut()
        line = " ".join(what.splitlines())  # an author's exception may have many
        where = f"{_name(self.scenario)} (seed {self.seed}, step {self.step})"
        return ScenarioError(clean(f"{where}: {line}"))

    def _shut(self) -> None:
        if not self.closed:
            self.closed = True
            self.pending = {}
            self.waiting = None
            with suppress(Exception):  # the first fault is the one to report
                if self._play is not None:
                    self._play.close()


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
    script = Script.of(turns, calls, forks)
    game = Game(scenario, task, seed, defer_calls=defer_calls, script=script)
    for step, group in steps_of(turns):
        how = difference(group, game.pending, game.new)
        if how or step != game.step:
            raise game._differs(how or f"the record goes on at step {step}")
        game.send(
            {turn.agent: turn.action for turn in group},
            {turn.agent: turn.replies for turn in group},
        )
    return game


def _name(scenario: Scenario) -> str:
    return scenario.id or type(scenario).__name__
