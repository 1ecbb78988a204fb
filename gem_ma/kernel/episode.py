"""The record of one play: who sat where, what was done and paid, how it ended. An `Episode` is the
only thing that training, evaluation and the viewer read.

What its turns are made of is in `gem_ma.kernel.types`; how it becomes a line of JSON in
`gem_ma.record.codec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from gem_ma.kernel.notebook import lanes
from gem_ma.kernel.types import MAX_SAID, Message, Turn, quick, spoken


@quick
@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the reward ledger. `step` = last committed decision point, -1 before the
    first. `original`: what the rules paid, where a wrapper made something else of it."""

    step: int
    agent: str
    value: float
    why: str = ""
    original: float | None = None


@quick
@dataclass(frozen=True, slots=True)
class CallResult:
    """What a `Call` effect gave after decision point `step`: a JSON value, or the text of an
    error."""

    step: int
    value: Any = None
    error: str | None = None


class End(Enum):
    """How an episode ended."""

    TERMINATED = "terminated", "The scenario reached its own end."
    TRUNCATED = "truncated", "A limit of the world's own cut the play: `Leave(agent, cut=True)`."
    MAX_STEPS = "max_steps", "The driver's limit on decision points cut the play."
    MAX_TURNS = "max_turns", "The driver's limit on turns cut the play."
    MAX_TOKENS = "max_tokens", "The driver's limit on sampled tokens cut the play."
    TIMEOUT = "timeout", "The driver's wall-clock limit cut the play."
    CONTEXT = "context", "A prompt no longer fitted the context of a model."
    INTERRUPTED = "interrupted", "The run was stopped; neither trained on nor scored."
    FAILED = (
        "failed",
        (
            "Code outside the agents failed (scenario, engine, call); neither trained on nor"
            " scored, always counted."
        ),
    )

    def __new__(cls, value: str, doc: str) -> End:
        # an Enum has no place for a docstring per member, so each brings its own
        member = object.__new__(cls)
        member._value_ = value
        member.__doc__ = doc
        return member

    @property
    def bootstraps(self) -> bool:
        """True for a truncation: the play could have gone on, so a value may stand in for the
        rest."""
        # an interrupted play is not a truncation: it will be played again from its start
        return self not in (End.TERMINATED, End.INTERRUPTED, End.FAILED)

    @property
    def scored(self) -> bool:
        """True where the episode counts in scores and updates."""
        return self not in (End.INTERRUPTED, End.FAILED)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the driver; None = none. They are not rules of the scenario.

    `max_said`: characters of one utterance, and of the arguments of its calls; the rest is cut
    off and counted, and the play goes on.
    """

    max_steps: int | None = None
    max_turns: int | None = None
    max_tokens: int | None = None  # sampled in the whole play, thinking included
    timeout_s: float | None = None  # of the whole play, the making of its seats included
    max_said: int | None = MAX_SAID

    def narrowed(self, declared: Limits | None) -> Limits:
        """These, or the time limit of a scenario (`Scenario.limits`) where that comes first."""
        if declared is None or declared.max_steps is None:
            return self
        if self.max_steps is not None and self.max_steps <= declared.max_steps:
            return self
        return replace(self, max_steps=declared.max_steps)


@quick
@dataclass(frozen=True, slots=True)
class Seat:
    """Who plays an agent: a behaviour id with its options, and the policy it samples from, if
    any."""

    behaviour: str = "direct"
    policy: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    privileged: bool = False  # the behaviour was given the task (oracle, scripted user)
    # further ones, by what the behaviour calls them: {"judge": name}
    policies: Mapping[str, str] = field(default_factory=dict)
    # what the model is shown of a long play (`gem_ma.driver.seats`); {} = all of it
    memory: Mapping[str, Any] = field(default_factory=dict)


def placed(world: str, task: str) -> str:
    """A task with its world: two worlds may both have a `test/0`.

    >>> placed("kuhn", "test/0"), placed("", "test/0")
    ('kuhn/test/0', 'test/0')
    """
    return f"{world}/{task}" if world else task


@quick
@dataclass(frozen=True, slots=True)
class Episode:
    """One play: the only thing that training, evaluation and the viewer read. Returns, success and
    views are derived.

    `task` is `<split>/<index>`; `group` names episodes that share a start; `final` holds, per
    agent, the messages after its last turn, an unanswered Ask included; `forks` are (step, seed)
    pairs at which the play's random generator was reseeded. `world` names the scenario where a run
    plays several, else it is "". `cut` lists the agents that a limit of the world ended, however
    the play itself ended.
    """

    scenario: str
    version: int
    seed: int
    task: str
    repeat: int
    group: str | None
    cast: Mapping[str, Seat]
    turns: tuple[Turn, ...]
    calls: tuple[CallResult, ...]
    forks: tuple[tuple[int, str], ...]
    final: Mapping[str, tuple[Message, ...]]
    ledger: tuple[Entry, ...]
    end: End
    error: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of the scenario
    world: str = ""
    cut: tuple[str, ...] = ()

    def goes_on(self, agent: str) -> bool:
        """True where an agent's part was cut, so that a value may stand in for the rest. Of an
        agent that left before the driver cut the others no record tells."""
        return agent in self.cut or (self.end.bootstraps and self.end is not End.TRUNCATED)

    @property
    def agents(self) -> tuple[str, ...]:
        """Who took part."""
        return tuple(self.cast)

    @property
    def id(self) -> tuple[str, int, int]:
        """(task, seed, repeat), the task with its world: unique in a run."""
        return (placed(self.world, self.task), self.seed, self.repeat)

    def whose(self, agent: str) -> str:
        """The agent, with its world: agents of two worlds may share a name, and no score."""
        return f"{self.world} {agent}" if self.world else agent

    def returns(self) -> dict[str, float]:
        """Undiscounted sum of the ledger per agent of the cast."""
        # agents that were never paid have 0, not nothing
        totals = dict.fromkeys(self.cast, 0.0)
        for entry in self.ledger:
            totals[entry.agent] = totals.get(entry.agent, 0.0) + entry.value
        return totals

    def transcript(self, agent: str) -> tuple[Message, ...]:
        """Everything that the agent saw and said, in order."""
        seen: list[Message] = []
        for turn in self.turns:
            if turn.agent == agent:
                seen += turn.observed
                seen.append(spoken(agent, turn.action))
        return (*seen, *self.final.get(agent, ()))

    def __repr__(self) -> str:
        paid = ", ".join(f"{agent} {value:g}" for agent, value in self.returns().items())
        repeat = f", repeat {self.repeat}" if self.repeat else ""
        played = f"{self.scenario} {self.id[0]}, seed {self.seed}{repeat}"
        # whole records fill screens; `gem_ma.record.codec.dump_episode` gives everything
        return f"Episode({played}: {self.end.value}, {len(self.turns)} turns, returns {paid})"

    def _repr_html_(self) -> str:
        """Lanes, where a notebook shows the episode."""
        return lanes(self)
