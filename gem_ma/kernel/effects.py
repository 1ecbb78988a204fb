"""What a scenario is written in: the five effects that `play` yields, and the declaration of a
scenario. Nothing here plays it (`gem_ma.kernel.scenario`).

A scenario knows the rules and nothing else: no model, no I/O, no clock, no randomness but its
`rng`. It is a pure function of (seed, task, actions, call results), so a fork is a replay.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gem_ma.kernel.episode import Episode, Limits
from gem_ma.kernel.parsing.text import clean, first_sentence
from gem_ma.kernel.types import Message, Tool

Content = str | Message | Sequence[str | Message]


@dataclass(slots=True)
class Ask:
    """These agents must act now; one key = turn-based, several = simultaneous. Gives `{agent:
    Action}`.

    `legal` (strings) and `tools` are one value for all asked agents, or `{agent: value}`. `reveals`
    as in `Tell`.
    """

    to: Mapping[str, Content]
    # a tuple that is written once costs the kernel least: it is checked once
    legal: Sequence[str] | Mapping[str, Sequence[str] | None] | None = None
    tools: Sequence[Tool] | Mapping[str, Sequence[Tool]] | None = None
    reveals: Sequence[str] = ()


@dataclass(slots=True)
class Tell:
    """A visible message without asking. Nothing but Ask and Tell ever reaches an agent's view.

    `reveals` names agents whose secret the hearers may know from here on: who lies open, who was
    looked at, who is in the same pack. All others are still tested not to notice it.
    """

    to: Mapping[str, Content]
    reveals: Sequence[str] = ()


@dataclass(slots=True)
class Reward:
    """An entry in the ledger for each agent named; it may pay agents that did not act."""

    values: Mapping[str, float]
    why: str = ""
    # what the rules paid, where a wrapper makes something else of it
    original: Mapping[str, float] | None = None


@dataclass(slots=True)
class Leave:
    """This agent's part is over: nothing more will be paid to it, told to it or asked of it.

    An agent that dies and may still win with its team does not leave: it is never asked again, and
    is paid at the end.

    `cut`: a limit of the world ended it, not its rules, so the value of the future still counts.
    Tell the agent what it would have seen next first (`Tell`): a critic estimates that value from
    it. A play whose last agents are cut ends as `End.TRUNCATED`.
    """

    agent: str
    cut: bool = False


class Call:
    """Slow or non-deterministic outside work. The driver runs it and records its JSON result, so a
    replay never repeats it.

    Never touch `rng` inside `function`: a replay feeds the result and would not repeat the draw.
    """

    # no dataclass: its fields would have to be named before `*args`
    __slots__ = ("args", "function", "kwargs")

    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs

    def run(self) -> tuple[Any, str | None]:
        """(value, None), or (None, what was raised): the work's own failure is data for the
        scenario."""
        try:
            return self.function(*self.args, **self.kwargs), None
        # whoever types Ctrl-C means the run, not the work
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: outside work may fail, never end the run
            return None, clean(f"{type(error).__name__}: {error}")


Effect = Ask | Tell | Reward | Leave | Call
Play = Generator[Effect, Any, None]


class Scenario:
    """The rules of one multi-agent task. Subclass it and write `play`; everything below it is
    optional and checked by the kit (`gem_ma.testing.check_scenario`)."""

    agents: tuple[str, ...] = ()
    # higher when the same actions no longer give the same play: old records are refused then
    version: int = 1
    id: str = ""  # set by the registry

    # -- facts that a play never breaks -----------------------------------------------------------
    # every episode's rewards sum to 0; where there are teams, the means of its teams do
    zero_sum: bool = False
    cooperative: bool = False  # all agents are always paid alike
    chance: bool = True  # `play` draws from rng
    ends_within: int | None = None  # decision points after which it has ended under any player
    # a time limit of the world's own, as Limits(max_steps=200): it cuts a play, which is not an end
    # that the rules know, so the value of what would follow still counts
    limits: Limits | None = None
    # agent -> gamma that the shaping of its rewards stands on; it may not learn with another one
    discounts: Mapping[str, float] = {}

    # -- teams ------------------------------------------------------------------------------------
    # name -> its agents, where they are the same in all plays; else see `team`
    teams: Mapping[str, Sequence[str]] = {}

    # -- secrets ----------------------------------------------------------------------------------
    # agent -> fields of the task that only it may come to know
    private: Mapping[str, Sequence[str]] = {}
    # decision points after which what `deal` drew is not a secret any more; `Tell(reveals=...)`
    # says it of one secret and its hearers
    reveals_after: int | None = None

    # -- casts: who plays where nobody says -------------------------------------------------------
    # agent -> behaviour that plays it where a config does not say who
    default_cast: Mapping[str, str] = {}
    model_cast: Mapping[str, str] = {}  # the same of one that a model plays; else `direct`
    # name -> {agent: behaviour}: played on a run's own tasks, printed beside its score
    baseline_casts: Mapping[str, Mapping[str, str]] = {}
    # agent -> {other agent: behaviour} whose score with it is that agent's ceiling
    examiners: Mapping[str, Mapping[str, str]] = {}

    # -- how its numbers are read -----------------------------------------------------------------
    baselines: Mapping[str, float] = {}  # name of a trivial policy -> its score
    # names of measures, and `return AGENT`, that lie in 0..1 in every play; `*` = any text
    rates: Sequence[str] = ()
    more_is_better: Sequence[str] = ()  # names of measures, as in `rates`
    less_is_better: Sequence[str] = ()  # of these a table shades the least

    def play(self, rng: random.Random, task: Any) -> Play:
        """Yields effects; local variables are the state of the play."""
        # no abstract method: an instance without rules may still be asked for its facts
        raise NotImplementedError(f"{type(self).__name__} needs a play(self, rng, task)")

    def deal(self, rng: random.Random, task: Any) -> Mapping[str, Any]:
        """`{agent: secret}`: all hidden information of a play, drawn in this one place, so that
        the kit can deal anew and see who notices. `play` calls it before it draws anything else,
        so that `gem_ma.dealt` finds the secrets of a record; {} where nothing is hidden."""
        return {}

    def answers(self, rng: random.Random, task: Any) -> Sequence[str]:
        """What is right to say in the end, the plainest form first, where one answer can be; `rng`
        as `play` gets it. () where the rules do not say. Teams are told it (`teamwork`), and nobody
        else."""
        return ()

    def tasks(self, split: str) -> Sequence[Any]:
        """The tasks of a split; an episode's task is `<split>/<index>`. The default is one task,
        None, in every split."""
        return (None,)

    def success(self, episode: Episode) -> bool | None:
        """Whether the play reached its goal, a pure function of the record; None where the
        scenario has no such notion."""
        return None

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        """Named numbers of one play for the tables (violations, faults, turns), a pure function
        of the record; None where one does not apply."""
        return {}

    def labels(self, episode: Episode) -> Mapping[str, str | Sequence[str]]:
        """The groups that a play belongs to, as in `{"intent": ("cancel", "return"), "blame":
        "user"}`; scores are counted within each."""
        return {}

    def fault(self, episode: Episode) -> tuple[int | None, str, str] | None:
        """What lost a lost play, a pure function of the record: `(step, agent, sentence)`, as in
        `(4, "assistant", "assistant handed over, but the task can be served")`. The step is that
        of a turn of the agent; None, or "" for the agent, where neither is to blame. None for a
        play that was not lost, and where the rules cannot say."""
        return None

    def team(self, episode: Episode, agent: str) -> str:
        """The team of an agent in this play, a pure function of the record; "" where it has none.
        The base looks in `teams`; a world that deals teams asks `gem_ma.dealt`."""
        return next((name for name, agents in self.teams.items() if agent in agents), "")

    def role(self, episode: Episode, agent: str) -> str:
        """What an agent is in this play (`wolf`, `buyer`), a pure function of the record; "" where
        there are no roles. Scores are shown by role, since names of agents say nothing."""
        return ""

    def provenance(self) -> dict[str, Any]:
        """Where the tasks come from, for a run's manifest: JSON values, with a `digest` that
        changes when the data do; {} = the code alone."""
        return {}

    @property
    def summary(self) -> str:
        """First sentence of the class's docstring, on one line as the listing has it."""
        return first_sentence(type(self).__doc__ or "")
