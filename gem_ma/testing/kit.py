"""What all rules share: the scenario under test, its findings, and plays on the kernel. No rule
stands here.

An exception of the scenario, the kernel or an environment is a finding; none leaves the kit. A play
that hangs is cut by a timer where one can be set.
"""

from __future__ import annotations

import contextlib
import copy
import math
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_ma.kernel.errors import ReplayError, ScenarioError
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.kernel.types import Action
from gem_ma.testing.clock import TooSlow, time_limit
from gem_ma.testing.players import Cast
from gem_ma.testing.report import Finding
from gem_ma.testing.traces import Trace, difference, trace

# a single play that takes longer hangs; so does a step that computes for so long
PLAY_S = 20.0
STEP_CPU_S = 6.0
SHOWN_LIMIT = 20_000_000  # characters of one message; more grows without bound
# cases that every rule tries; CPU time after which it tries no more
ALWAYS = 2
BUDGET_S = 0.3

# What the kernel says about an author's fault -> the rule it breaks. The first match holds.
_FAULTS = (
    (8, r"replay differs|call result that is not a JSON"),
    (6, r"while it was being closed"),
    (7, r"Reward names|Reward takes|malformed Reward|reward is a finite"),
    (10, r"legal must be"),
    (3, r"\): shows "),
    (
        11,
        (
            r"asks nobody|Ask names|Tell names|Leave names|malformed|without an Ask|without"
            r" asking|the effects are|takes \{agent"
        ),
    ),
    (11, r"agents must be|before the first Ask|yields nothing|has left"),
)


class Failed(Exception):
    """The play ended in a fault that has been written down."""


@dataclass
class Kit:
    """The scenario under test and what was found."""

    scenario: Scenario
    tasks: Sequence[Any]
    seeds: Sequence[int]
    cap: int  # decision points after which the kit cuts a play
    game: Any = Game
    by_name: Any = None  # the id or the class that the scenario was made from; None for an instance
    # the scenario with its calls' results kept, see gem_ma.testing.calls
    remembered: Scenario | None = None
    findings: dict[Any, Finding] = field(default_factory=dict)
    untested: dict[int, list[str]] = field(default_factory=dict)
    hung: bool = False  # plays take too long to try more of them
    cpu_s: float = math.inf  # processor time of all rules, after which no play begins
    began: float = field(default_factory=time.process_time)
    # of each task, before any play: a tuple with it, or None where it cannot be copied
    copies: list[Any] = field(default_factory=list)
    # agent -> (two scenarios, their tasks, seed) that differ in its secret only
    swapped: dict[str, Any] = field(default_factory=dict)
    _traces: dict[Any, Trace] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for task in self.tasks:
            try:
                # a tuple, since a task may be None
                self.copies.append((copy.deepcopy(task),))
            except Exception:  # of a task's own __deepcopy__
                self.copies.append(None)

    @property
    def spent(self) -> bool:
        """Whether the rules have taken all the processor time that they have."""
        return time.process_time() - self.began > self.cpu_s

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(self.scenario.agents)

    @property
    def played(self) -> Scenario:
        """The scenario as it is played for comparisons: outside work that was done once is not
        done anew."""
        return self.remembered or self.scenario

    def task(self, seed: int) -> Any:
        # the seeds take the tasks in turn, so that a few of them play all tasks
        if seed in self.seeds:
            return self.tasks[self.seeds.index(seed) % len(self.tasks)]
        return self.tasks[0]

    def within(self, cases: Sequence[Any], seconds: float = BUDGET_S) -> Iterator[Any]:
        """The cases, but no more than some once they have taken their share of CPU time: long
        plays need no dozen seeds."""
        started = time.process_time()
        for number, case in enumerate(cases):
            # CPU time, not the clock: a busy machine must not test less
            if number >= ALWAYS and time.process_time() - started > seconds:
                return
            yield case

    def fail(
        self,
        rule: int,
        message: str,
        *,
        agent: str | None = None,
        step: int | None = None,
        seed: int | None = None,
        key: Any = None,
    ) -> None:
        """Writes a finding down, once: the seeds are tried in order, so the first is the
        smallest."""
        # agents wrote part of it, and it lands on a terminal
        words = clean(message if len(message) < 500 else message[:500] + " ...")
        # numbers apart: the same fault at another step is the same fault
        self.findings.setdefault(
            (rule, key or re.sub(r"\d+", "#", words), agent if key is None else None),
            Finding(rule, words, agent, step, seed),
        )

    def same(
        self,
        rule: int,
        message: str,
        first: Trace,
        other: Trace,
        *,
        seed: int,
        key: Any,
        step: int | None = None,
    ) -> bool:
        """Whether two plays are the same; their first difference is a finding, at its own step
        where no other is named."""
        fault = difference(first, other)
        if fault is not None:
            what, agent, place = fault
            at = place if step is None else step
            self.fail(rule, f"{message}; {what}", agent=agent, step=at, seed=seed, key=key)
        return fault is None

    def skip(self, rule: int, reason: str) -> None:
        reasons = self.untested.setdefault(rule, [])
        if reason not in reasons:
            reasons.append(reason)

    def error(
        self,
        error: BaseException,
        where: str,
        *,
        agent: str | None = None,
        step: int | None = None,
        seed: int | None = None,
        rule: int = 5,
    ) -> None:
        """An exception as a finding: the kernel's own word decides the rule, anything else
        breaks rule 5 (or `rule`)."""
        text = f"{type(error).__name__}: {error}"
        # in the text too: an environment may have wrapped it
        if isinstance(error, TooSlow) or "TooSlow" in text:
            self.hung = True
            self.fail(
                11,
                f"a play must come to its next Ask; it hung: {text.partition(': ')[2]} ({where})",
                seed=seed,
                key="hung",
            )
            return
        if isinstance(error, ScenarioError):
            # the kernel names the fault in words, which are the only sign of its rule
            kind = next((kind for kind, pattern in _FAULTS if re.search(pattern, text)), rule)
            kind = 8 if isinstance(error, ReplayError) else kind
            # each such play takes long, and all end alike
            self.hung = self.hung or "effects without an Ask" in text
            found = re.search(r"step (\d+)\): (.*)", text, re.DOTALL)
            words = (found[2] if found else text).removeprefix("play() ")
            place = int(found[1]) if found else step
            self.fail(
                kind,
                f"{_STATED[kind]}; play() {words} ({where})",
                agent=agent,
                step=place,
                seed=seed,
                key=("fault", re.sub(r"'.*'|\d+", "#", words)[:80]),
            )
            return
        self.fail(
            rule,
            f"{_STATED[rule]}; {where} raised {text}",
            agent=agent,
            step=step,
            seed=seed,
            key=(where, type(error).__name__, text[:60]),
        )

    @contextlib.contextmanager
    def guarded(
        self, where: str, *, seed: int | None = None, rule: int = 5, seconds: float = PLAY_S
    ) -> Iterator[None]:
        """Runs foreign code: what it raises becomes a finding, and it does not hang."""
        try:
            with time_limit(seconds):
                yield
        except (KeyboardInterrupt, Failed):
            raise
        except BaseException as error:
            # SystemExit of a scenario is a finding, too
            self.error(error, where, seed=seed, rule=rule)

    # -- plays on the kernel ----------------------------------------------------------------------

    def start(
        self,
        seed: int,
        *,
        scenario: Scenario | None = None,
        task: Any = None,
        where: str = "the kernel",
    ) -> Any:
        """A fresh play. Raises Failed, with the finding written down."""
        if self.hung or self.spent:
            raise Failed
        with self._or_failed(where, seed, 0):
            started = self.game(
                scenario or self.played, self.task(seed) if task is None else task, seed
            )
        return started

    def send(
        self,
        game: Any,
        actions: Mapping[str, Action | str],
        where: str = "the kernel",
        rule: int = 5,
    ) -> None:
        """One decision point. Raises Failed, with the finding written down."""
        with self._or_failed(where, game.seed, game.step, rule):
            game.send(actions)
        self._bounded(game, where)

    @contextlib.contextmanager
    def _or_failed(self, where: str, seed: int, step: int, rule: int = 5) -> Iterator[None]:
        """Runs a step of a play: what it raises becomes a finding, and Failed."""
        try:
            with time_limit(PLAY_S, STEP_CPU_S):
                yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.error(error, where, seed=seed, step=step, rule=rule)
            raise Failed from error

    def _bounded(self, game: Any, where: str) -> None:
        # the last few only: what was bounded a step ago still is
        for agent in self.agents:
            longest = max((len(message.text) for message in game.view(agent)[-4:]), default=0)
            if longest > SHOWN_LIMIT:
                self.hung = True  # it only grows
                message = (
                    f"memory is bounded whatever an agent says; a message has {longest} characters"
                    f" ({where})"
                )
                self.fail(5, message, agent=agent, step=game.step, seed=game.seed, key="memory")
                raise Failed

    def finish(
        self, game: Any, cast: Cast, cap: int | None = None, where: str = "the kernel"
    ) -> None:
        """Plays on until the play is over or cut."""
        cap = self.cap if cap is None else cap
        while game.pending and game.step < cap:
            actions = {
                agent: cast.say(agent, asked.legal, asked.tools)
                for agent, asked in game.pending.items()
            }
            self.send(game, actions, where)

    def play(
        self,
        seed: int,
        player: str,
        *,
        stream: object = None,
        scenario: Scenario | None = None,
        task: Any = None,
        cap: int | None = None,
    ) -> Trace:
        """One play from start to end or cut. Raises Failed, with the finding written down."""
        game = self.start(seed, scenario=scenario, task=task, where=f"player {player}")
        cast = Cast(player, seed if stream is None else stream, self.agents)
        self.finish(game, cast, cap, f"player {player}")
        traced = trace(game)
        self.close(game, rule=5)
        return traced

    def close(self, game: Any, where: str = "closing the play", rule: int = 6) -> None:
        """Closes a play: a `finally` of the author runs there."""
        with self.guarded(where, seed=game.seed, rule=rule):
            game.close()

    def known(self, seed: int, player: str) -> Trace:
        """The play of this seed and player, played once."""
        # most rules look at the same plays
        if (seed, player) not in self._traces:
            self._traces[seed, player] = self.play(seed, player)
        return self._traces[seed, player]

    def plays(
        self,
        players: Collection[str],
        seeds: Sequence[int] | None = None,
        seconds: float = BUDGET_S,
    ) -> Iterator[tuple[int, str, Trace]]:
        """(seed, player, play) of all that do not fail, as many as `within` takes."""
        for seed in self.within(self.seeds if seeds is None else seeds, seconds):
            for player in players:
                try:
                    play = self.known(seed, player)
                except Failed:
                    continue
                yield seed, player, play


_STATED = {
    1: "the same seed, task and actions give the same play",
    2: "no play touches global random state",
    3: "what an agent is shown is a str, a Message or a tuple of these",
    4: "nobody sees another's secret",
    5: "nothing raises, whatever an agent says",
    6: "a play ends once, and closes cleanly at every step",
    7: "rewards are finite numbers for agents of the scenario that have not left",
    8: "a fork is a replay: calls are recorded as JSON and nothing else comes from outside",
    9: "all environments show the same play",
    10: "legal strings are distinct texts, and each can be played",
    11: "every play comes to its next Ask, of agents that are known and present",
    12: "the suites of PettingZoo and Gymnasium pass",
}


def differing(scenario: Scenario, **methods: Any) -> Scenario:
    """The same scenario with other methods on this one object. Raises TypeError where the object
    has no room for them."""
    # shallow: the data behind a scenario may be large, and is only read
    other = copy.copy(scenario)
    try:
        for name, method in methods.items():
            # past a frozen dataclass, which refuses plain assignment
            object.__setattr__(other, name, method)
    except AttributeError as error:
        raise TypeError(str(error)) from error
    return other
