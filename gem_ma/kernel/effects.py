"""What a scenario is written in: the five effects that `play` yields, and the declaration of a
scenario. What an effect may hold is checked here, and brought to the form in which the record keeps
it. Nothing here plays it (`gem_ma.kernel.scenario`).

A scenario knows the rules and nothing else: no model, no I/O, no clock, no randomness but its
`rng`. It is a pure function of (seed, task, actions, call results), so a fork is a replay.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import isfinite
from typing import Any

from gem_ma.kernel.episode import Episode, Limits
from gem_ma.kernel.parsing.legal import parse_action
from gem_ma.kernel.parsing.text import clean, first_sentence
from gem_ma.kernel.types import RESERVED_SENDERS, Action, Image, Message, Tool, quick

MOST_SAYINGS = 256  # answers that one choice remembers
LONGEST_SAYING = 64  # characters of such an answer


class Misfit(Exception):
    """An effect that breaks a rule; the play says where."""


@quick
@dataclass(frozen=True, slots=True)
class Pending:
    """What an agent is asked for at the open decision point."""

    legal: tuple[str, ...] | None = None
    tools: tuple[Tool, ...] = ()
    # short answers that were given here before: the same Action for all who say the same
    sayings: dict[str, Action] = field(default_factory=dict, compare=False, repr=False)

    def exact(self, text: str) -> Action | None:
        """The action of who says a legal string and nothing else, as bots do; else None."""
        action = self.sayings.get(text)
        if action is None and self.legal is not None and text in self.legal:
            plain = clean(text)
            action = self._remembered(Action(plain, (), plain))
        return action if action is None or action.parsed == text else None

    def said(self, text: str) -> Action:
        """The action of who says this text, read by the one parser."""
        if (action := self.sayings.get(text)) is not None:
            return action
        if (action := self.exact(text)) is not None:
            return action
        action = parse_action(text, self.legal, self.tools, is_inexact=True)
        # what was thought, or could not be written, has left the text
        if len(text) <= LONGEST_SAYING and action.text == text and self.legal and not self.tools:
            self._remembered(action)
        return action

    def _remembered(self, action: Action) -> Action:
        if len(self.sayings) < MOST_SAYINGS:
            self.sayings[action.text] = action
        return action


# Every play of a scenario comes with the same tuple.
@lru_cache(maxsize=512)
def agents_problem(agents: tuple[str, ...] | None) -> str:
    """Why these are not names of agents; "" where they are."""
    if not agents or not all(isinstance(agent, str) and agent for agent in agents):
        return "agents must be a tuple of names"
    if len(set(agents)) != len(agents) or RESERVED_SENDERS & set(agents):
        return f"agents must be distinct names other than {sorted(RESERVED_SENDERS)}"
    return ""


def as_messages(shown: Any) -> list[Message] | None:
    """What an author shows an agent, as messages; None where it is nothing that can be shown."""
    parts = (shown,) if isinstance(shown, (str, Message)) else shown
    if not isinstance(parts, (tuple, list)):
        return None
    messages = []
    for part in parts:
        message = Message(part) if isinstance(part, str) else part
        # what is said to many comes here once for each hearer
        if isinstance(message, Message) and _is_plain(message.content):
            messages.append(message)
            continue
        content = _content(message.content) if isinstance(message, Message) else None
        if content is None:
            return None
        # most text is clean already, and then the author's own message is what is shown
        same = type(message.content) is str and content == message.content
        messages.append(message if same else replace(message, content=content))
    return messages


def _is_plain(content: Any) -> bool:
    return type(content) is str and content.isascii()


def _content(content: Any) -> str | tuple[str | Image, ...] | None:
    """The content without lone surrogates; None where it is neither text nor a tuple of parts."""
    if isinstance(content, str):
        return clean(content)
    if not isinstance(content, tuple):
        return None
    if not all(isinstance(part, (str, Image)) for part in content):
        return None
    return tuple(clean(part) if isinstance(part, str) else part for part in content)


# Authors write their choices as constants, so the same tuple comes at every turn.
@lru_cache(maxsize=512)
def closed_choice(legal: tuple[str, ...]) -> Pending:
    """What is asked for where everybody chooses among the same strings and no tool is offered."""
    return Pending(_choices(legal))


def offer(legal: Any, tools: Any) -> Pending:
    """What one agent is asked for. Raises ValueError for anything that is neither a choice nor a
    tool."""
    return Pending(_choices(legal), _offered(tools))


def _are_clean(choices: tuple[Any, ...]) -> bool:
    try:
        # nearly all are ASCII, and a list of hundreds may change with every turn
        if all(map(str.isascii, choices)):
            return True
    except TypeError:
        return False
    return all(isinstance(choice, str) and choice == clean(choice) for choice in choices)


def _choices(legal: Any) -> tuple[str, ...] | None:
    if legal is None:
        return None
    # the order of a set is not a function of the seed
    choices = () if isinstance(legal, (str, set, frozenset)) else tuple(legal)
    if not choices or not _are_clean(choices):
        raise ValueError(f"legal must be a non-empty tuple of strings; got {legal!r}")
    return choices


def _offered(tools: Any) -> tuple[Tool, ...]:
    offered = tuple(tools or ())
    if not all(isinstance(tool, Tool) for tool in offered):
        raise ValueError(f"tools must be a tuple of Tool; got {tools!r}")
    return offered


def amount(value: Any) -> float:
    """A reward as a float. Raises ValueError for anything that is not a finite number."""
    kind = type(value)
    if kind is float and isfinite(value):
        return value
    # float("1") is a number and float(True) too, but whoever pays them meant something else
    if kind is not float and kind is not int and isinstance(value, (bool, str, bytes)):
        raise ValueError(f"a reward is a finite number; got {value!r}")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"a reward is a finite number; got {value!r}") from error
    if not isfinite(number):
        raise ValueError(f"a reward is a finite number; got {value!r}")
    return number


# values of JSON that two may share, exactly as they are
_SHARED = (type(None), bool, str)


def twice(value: Any) -> tuple[Any, Any]:
    """Two equal values of JSON that share no list: one for the record, and one for the scenario,
    which gets what a replay will feed. Raises TypeError, ValueError or RecursionError for a value
    that is none of JSON."""
    if type(value) in _SHARED:  # a text of any length is not written and read again
        return value, value
    text = json.dumps(value, allow_nan=False)
    return json.loads(text), json.loads(text)


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
