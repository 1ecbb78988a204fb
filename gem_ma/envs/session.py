"""What the three environments share: which episode is played, how far, and what each agent is told
about it. It knows no PettingZoo and no Gymnasium.

A session owns one `Game` at a time and the driver's limits. Observations need no freezing:
actions are buffered by the environment, and the game stands still until all of them are sent.
"""

from __future__ import annotations

import json
import operator
import random
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gem_ma.envs.observation import ByAgent, Messages, encode, later
from gem_ma.kernel.effects import Pending
from gem_ma.kernel.episode import End, Limits
from gem_ma.kernel.errors import ActionError, ConfigError, ScenarioError
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.kernel.types import Action, Tool
from gem_ma.registry import as_scenario, task_of

RENDER_MODES = ["human", "ansi"]
FEW = 4  # agents that are told at once; of more, those who look
# the last ones reorder letters
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def seed_of(seed: Any, where: str = "") -> int:
    """A seed as a plain number. Raises ConfigError."""
    try:
        number = operator.index(seed)  # numpy's numbers too
    except TypeError:
        line = " ".join(repr(seed).split())[:80]
        raise ConfigError(f"{where}a seed is an integer; got {line}") from None
    # as Gymnasium has it; to Python's generators -3 is 3, one play under two seeds
    if number < 0:
        raise ConfigError(f"{where}a seed is 0 or more; got {number}")
    return number


class Session:
    """One episode after another of one scenario.

    `task`: a task of the scenario, `<split>/<index>`, or an index in `split`; without one,
    episode seed s plays task s modulo their number, so that consecutive seeds meet every task.
    `limits.max_tokens` cannot count here, where no model is called.
    """

    def __init__(
        self,
        scenario: str | Scenario | type[Scenario],
        *,
        task: Any = None,
        split: str = "train",
        limits: Limits | None = None,
        max_steps: int | None = None,
        render_mode: str | None = None,
        options: Mapping[str, Any] | None = None,
        defer_calls: bool = False,
    ) -> None:
        """`defer_calls`: a Call of the scenario stops the play until `answer` is called."""
        if options and isinstance(scenario, Scenario):
            raise ConfigError(
                f"{_name(scenario)}: an instance takes no further options ({', '.join(options)});"
                " give its class or its id"
            )
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise ConfigError(
                f"render_mode is one of {', '.join(RENDER_MODES)} or None; got {render_mode!r}"
            )
        self.scenario = as_scenario(scenario, **(options or {}))
        self.name = _name(self.scenario)
        self.agents = tuple(self.scenario.agents)
        self.split = split
        self.render_mode = render_mode
        self._defer = defer_calls
        self.limits = _limits(limits, max_steps, self.scenario)
        # in a tuple, since None is a task
        self.fixed = None if task is None else (self._task(task),)
        self.game: Game | None = None
        self.end: End | None = None  # of the play; None while it goes on
        self.failure: ScenarioError | None = None
        # the stream of later resets, made when one is drawn: that takes longer than a turn
        self._seeds: random.Random | None = random.Random()
        self._seed = 0
        self._paid = self._printed = 0
        self._started = 0.0
        self._schemas: tuple[tuple[Tool, ...], str] = ((), "[]")
        self._later = later(self.agents)

    # -- episodes ---------------------------------------------------------------------------------

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> Game:
        """Starts episode `seed`, or the next one of the stream that the last seed began."""
        previous = self.game
        self.game = None
        self.failure = None
        if previous is not None:
            previous.close()
        if seed is not None:
            # as Gymnasium wants it: a seed decides all later resets without one
            seed = seed_of(seed, f"{self.name}: ")
            self._seed = seed
            self._seeds = None
        else:
            if self._seeds is None:
                self._seeds = random.Random(f"{self._seed}/resets")
            # 31 bits fit every library that a wrapper may seed by it
            seed = self._seeds.randrange(2**31)
        asked_for = options.get("task") if isinstance(options, Mapping) else None
        task = self._task(asked_for) if asked_for is not None else self._task_of_seed(seed)
        self.end = None
        self._paid = 0
        self._printed = 0
        self.turns, self.illegal = dict.fromkeys(self.agents, 0), dict.fromkeys(self.agents, False)
        self._encoded: dict[str, list[dict[str, str]]] = {agent: [] for agent in self.agents}
        # by message, as those see it who did not say it; None where each has one hearer
        self._heard: dict[int, dict[str, str]] | None = {} if len(self.agents) > 2 else None
        self._started = time.monotonic()
        try:
            self.game = Game(self.scenario, task, seed, defer_calls=self._defer)
            if self.limits is not None:
                self.game.max_said = self.limits.max_said
        except ScenarioError as error:
            self.failure = error
            raise
        return self.game

    def _task_of_seed(self, seed: int) -> Any:
        if self.fixed is not None:
            return self.fixed[0]
        tasks = self.scenario.tasks(self.split)
        if not len(tasks):
            raise ConfigError(f"{self.name}: split {self.split!r} has no tasks")
        return tasks[seed % len(tasks)]

    def _task(self, chosen: Any) -> Any:
        # True would be task 1
        if isinstance(chosen, int) and not isinstance(chosen, bool):
            return task_of(self.scenario, f"{self.split}/{chosen}")
        if isinstance(chosen, str):
            tasks = self.scenario.tasks(self.split)
            # then none is a text; a long split may make each task when it is asked for
            typed = len(tasks) and not isinstance(tasks[0], str)
            texts = [] if typed else [task for task in tasks if isinstance(task, str)]
            if chosen in texts:
                return chosen
            if re.fullmatch(r".*/-?\d+", chosen):
                return task_of(self.scenario, chosen)
            if not texts:
                raise ConfigError(
                    f"{self.name}: a task is named <split>/<index>, as in {self.split}/0; got"
                    f" {chosen!r}"
                )
        return chosen

    def playing(self) -> Game:
        """The open game. Raises ActionError where there is none, ScenarioError where the
        scenario has failed."""
        if self.failure is not None:
            raise ScenarioError(
                f"{self.failure} [the play has failed: call reset()]"
            ) from self.failure
        return self._game()

    def refuse(self) -> ActionError:
        """What a step gets once nobody can act any more."""
        return ActionError(f"{self.name}: the episode is over or closed; call reset()")

    def commit(self, actions: Mapping[str, Action | str]) -> None:
        """Sends the actions of one decision point, then holds the play against the limits."""
        game = self.playing()
        try:
            # a failure of the author's code is kept: every later call of the environment tells it
            # again
            game.send(actions)
            for turn in game.turns[-len(actions) :]:
                self.turns[turn.agent] += 1
                self.illegal[turn.agent] = turn.illegal
            self._settle(game)
        except ScenarioError as error:
            self.failure = error
            raise

    def answer(self, value: Any, error: str | None) -> None:
        """Hands the result of a deferred Call to the play, then holds it against the limits."""
        game = self.playing()
        try:
            game.answer(value, error)
            self._settle(game)
        except ScenarioError as failure:
            self.failure = failure
            raise

    def _settle(self, game: Game) -> None:
        if game.waiting is not None:
            return  # the step goes on once its call is answered
        self.end = game.own_end if game.over else self._limit(game)
        # at once, so that a `finally` of the author does not wait for the next reset
        if self.end is not None:
            game.close()

    def _limit(self, game: Game) -> End | None:
        limits = self.limits
        if limits is None:
            return None
        if limits.max_steps is not None and game.step >= limits.max_steps:
            return End.MAX_STEPS
        if limits.max_turns is not None and len(game.turns) >= limits.max_turns:
            return End.MAX_TURNS
        # asked between steps only: nothing here can break off an agent that thinks
        if limits.timeout_s is not None and time.monotonic() - self._started >= limits.timeout_s:
            return End.TIMEOUT
        return None

    def close(self) -> None:
        """Ends the play; may be called twice."""
        if self.game is not None:
            self.game.close()

    # -- what agents see --------------------------------------------------------------------------

    def observe(self, agent: str) -> dict[str, Any]:
        """The agent's whole transcript. A turn encodes what is new, once for all who hear it."""
        game = self._game()
        view = self._encoded[agent]
        if self._heard is None:
            for message in game.since(agent, len(view)):
                view.append(encode(message, agent))
        else:
            _encode_new(game, agent, view, self._heard)
        return {"messages": Messages(view)}

    def observations(self, agents: Sequence[str]) -> dict[str, dict[str, Any]]:
        """What each of these agents has seen until now, whenever it is looked at."""
        if len(agents) <= FEW:
            observe = self.observe
            return {agent: observe(agent) for agent in agents}
        # of this play, also where somebody looks after the next reset
        game = self._game()
        encoded = self._encoded
        heard = {} if self._heard is None else self._heard
        lengths = game.lengths(agents)

        def observation(agent: str) -> dict[str, Any]:
            _encode_new(game, agent, encoded[agent], heard)
            return {"messages": Messages(encoded[agent][: lengths[agent]])}

        return ByAgent(self._later_of(agents), observation)

    def info(self, agent: str) -> dict[str, Any]:
        """The plain facts of reference: who must act, what is legal, where the play stands."""
        return self.infos((agent,))[agent]

    def infos(self, agents: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The facts of each of these agents as of now, whenever they are looked at."""
        game = self._game()
        pending = game.pending
        step = game.step
        active = tuple(pending)
        turns = self.turns
        illegal = self.illegal
        facts = self._facts
        is_over = self.any_over
        if is_over or len(agents) <= FEW:
            told = {
                agent: facts(pending.get(agent), active, step, turns[agent], illegal[agent])
                for agent in agents
            }
            for agent in agents if is_over else ():
                told[agent] |= self._stop(agent)
            return told
        # those who look later are told how it was
        turns = turns.copy()
        illegal = illegal.copy()
        return ByAgent(
            self._later_of(agents),
            lambda agent: facts(pending.get(agent), active, step, turns[agent], illegal[agent]),
        )

    def _later_of(self, agents: Sequence[str]) -> Iterable[str]:
        """What a dict by these agents begins with: mostly they are all, in their order."""
        return self._later if len(agents) == len(self.agents) else agents

    def _facts(
        self, asked: Pending | None, active: tuple[str, ...], step: int, turn: int, illegal: bool
    ) -> dict[str, Any]:
        info: dict[str, Any] = {
            "active_agents": active,
            "active": asked is not None,
            "step": step,
            "turn": turn,
            "illegal": illegal,
        }
        if asked is not None:
            if asked.legal is not None:
                info["action_mask"] = asked.legal
            if asked.tools:
                info["tools"] = self._tools(asked.tools)
        return info

    @property
    def any_over(self) -> bool:
        """Whether the part of some agent has ended."""
        game = self._game()
        return bool(self.end is not None or game.over or game.left)

    def _stop(self, agent: str) -> dict[str, str]:
        """How the agent's part ended; {} while it goes on."""
        game = self._game()
        if self.end is None and agent not in game.left:
            return {}
        # who has left ended then, also where a limit cut the others later
        end = End.TERMINATED if self.terminated(agent) else self.end
        return {"stop": (End.TRUNCATED if agent in game.cut else end or End.TERMINATED).value}

    def over(self, agents: Sequence[str]) -> tuple[dict[str, bool], dict[str, bool]]:
        """(terminated, truncated) by agent."""
        terminated = {agent: self.terminated(agent) for agent in agents}
        return terminated, {agent: self.truncated(agent) for agent in agents}

    def terminated(self, agent: str) -> bool:
        """The agent's part ended by the rules."""
        game = self._game()
        return (game.over or agent in game.left) and agent not in game.cut

    def truncated(self, agent: str) -> bool:
        """A limit cut the agent's part, of the driver's or of the world's own."""
        is_over = self.end is not None or agent in self._game().cut
        return is_over and not self.terminated(agent)

    def rewards(self) -> dict[str, float]:
        """What the ledger paid since the last call, added in its order; agents without an entry
        are absent."""
        paid: dict[str, float] = {}
        ledger = self._game().ledger
        for entry in ledger[self._paid :]:
            paid[entry.agent] = paid.get(entry.agent, 0.0) + entry.value
        self._paid = len(ledger)
        return paid

    def _tools(self, tools: tuple[Tool, ...]) -> tuple[dict[str, Any], ...]:
        # an offer is mostly the same tuple at every turn
        if self._schemas[0] is not tools:
            self._schemas = (tools, json.dumps([tool.schema for tool in tools]))
        return tuple(json.loads(self._schemas[1]))

    def _game(self) -> Game:
        if self.game is None:
            raise ActionError(f"{self.name}: call reset() first")
        return self.game

    # -- rendering --------------------------------------------------------------------------------

    def render(self) -> str | None:
        """The recorded turns in the god's view, never an observation: text for `ansi`; `human`
        prints what is new since it last printed."""
        lines = self._lines()
        if self.render_mode == "human":
            new = lines[self._printed :]
            self._printed = len(lines)
            text = "".join(f"{line}\n" for line in new)
            # a terminal of another encoding would raise for a letter that it lacks
            encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
            sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
            return None
        return "\n".join(lines)

    def _lines(self) -> list[str]:
        game = self._game()
        lines = [f"{self.name}, seed {game.seed}"]
        entries = iter(game.ledger)
        entry = next(entries, None)
        for number, turn in enumerate(game.turns):
            calls = "".join(f" {call!r}" for call in turn.action.tool_calls)
            lines.append(f"step {turn.step}  {turn.agent}: {_printable(turn.action.text + calls)}")
            # rewards stand below the last turn of their step
            if number + 1 < len(game.turns) and game.turns[number + 1].step == turn.step:
                continue
            while entry is not None and entry.step <= turn.step:
                lines.append(
                    f"        {entry.agent} {entry.value:+g}  {_printable(entry.why)}".rstrip()
                )
                entry = next(entries, None)
        return [*lines, f"ended: {self.end.value}"] if self.end is not None else lines


def _encode_new(
    game: Game, agent: str, view: list[dict[str, str]], heard: dict[int, dict[str, str]]
) -> None:
    """Adds to an agent's encoded view what it lacks; `heard` has each message as all see it who
    did not say it, by its id: a game keeps its messages, so no two of a play have one."""
    for message in game.since(agent, len(view)):
        if message.sender == agent:
            view.append(encode(message, agent))
            continue
        line = heard.get(id(message))
        if line is None:
            line = heard[id(message)] = encode(message, agent)
        view.append(line)


def _printable(text: str) -> str:
    """The text on one line, without what could steer a terminal or reorder its letters."""
    return _CONTROL.sub(_escaped, text).replace("\n", "\\n")


def _escaped(letter: re.Match[str]) -> str:
    code = ord(letter[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _limits(limits: Limits | None, max_steps: int | None, scenario: Scenario) -> Limits | None:
    if not isinstance(limits, Limits | None):
        raise ConfigError(f"limits is a gem_ma.Limits, or None for none; got {limits!r}")
    if max_steps is not None:
        limits = replace(limits or Limits(), max_steps=max_steps)
    for name in ("max_steps", "max_turns", "max_said") if limits is not None else ():
        value = getattr(limits, name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ConfigError(f"{name} is at least 1, or None for none; got {value!r}")
    limits = (limits or Limits()).narrowed(scenario.limits)
    return None if limits == Limits() else limits


def _name(scenario: Scenario) -> str:
    return scenario.id or type(scenario).__name__
